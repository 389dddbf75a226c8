"""Runs and sites at one moment, for the tests of live pages."""

from dataclasses import replace

from eigenfed.privacy.ledger.ledger import Budget, Totals
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.gate.records import Egress
from eigenfed.report.live_run import LiveSite, Phase, RunSnapshot, SiteState
from eigenfed.report.live_site import LiveReply, SiteSnapshot
from eigenfed.transport.rounds import RoundRecord

NAMES = ("north", "south", "island")
RUN = "30e676730399442293368b02fb93a3e3"


def round_of(number: int, *, lost: tuple[str, ...] = ()) -> RoundRecord:
    there = [name for name in NAMES if name not in lost]
    op = ("product", "sum_survivors", "sum_unmask")[number % 3]
    return RoundRecord(
        number,
        op,
        dict.fromkeys(there, 7656),
        dict.fromkeys(there, 61520 + number),
        lost,
        3.0 * 10.0 ** (-number / 2) if number % 3 == 0 else None,
    )


def run_at(
    rounds: int, phase: Phase = "running", states: tuple[SiteState, ...] = ("in", "asked", "lost")
) -> RunSnapshot:
    """Return a run after so many rounds; where a site is lost, the last is so for all of them."""
    lost = tuple(name for name, state in zip(NAMES, states, strict=True) if state == "lost")
    records = tuple(round_of(number, lost=lost) for number in range(rounds))
    sites = tuple(
        LiveSite(
            name,
            state,
            sum(name in record.received for record in records),
            sum(record.received.get(name, 0) for record in records),
            sum(record.sent.get(name, 0) for record in records),
            sum(name in record.lost for record in records),
        )
        for name, state in zip(NAMES, states, strict=True)
    )
    return RunSnapshot(
        study="heart",
        engine="nvflare",
        run=RUN if rounds else "",
        phase=phase,
        words=f"Round {rounds + 1}, product: waiting for south.",
        quorum=2,
        tol=1e-4,
        sites=sites,
        rounds=records,
        left_s=42.0 if rounds > 3 else None,
        log=tuple(
            f"02:20:{number % 60:02d} run {RUN} round {number} {record.op}: "
            f"{len(record.received)} sites answered, {len(record.lost)} lost, "
            f"{record.bytes_up} bytes up, {record.bytes_down} bytes down"
            for number, record in enumerate(records[-300:])
        ),
    )


_PRODUCTS = Release("scatter times directions", "d x l", Leaves.SUM_ONLY, Reveals.DIRECTIONS)
_SHARES = Release("one share of a secret of each site", "n", Leaves.EXACT, Reveals.NOTHING)


def site_at(replies: int) -> SiteSnapshot:
    """Return a site after so many replies and a refusal."""
    left = [
        Egress(RUN, number, "product", _PRODUCTS, {"product": (60, 8)}, 3_900, "00ff" * 16, True)
        if number % 2 == 0
        else Egress(RUN, number, "sum_unmask", _SHARES, {"shares": (3, 33)}, 304, "00ff" * 16)
        for number in range(replies)
    ]
    return SiteSnapshot(
        site="north",
        network="heart",
        engine="nvflare",
        phase="up",
        words="Answering runs.",
        since="2026-11-18 02:20:24",
        approved=("heart",),
        replies=tuple(LiveReply("heart", False, entry) for entry in left),
        sent_bytes=sum(entry.sent_bytes for entry in left),
        refused={"unapproved": 2},
        totals=Totals("replace_one", 0.2, 1e-5, 3, 0, Budget(1.0, 1e-5)),
        leakage=(0.125, 0.81),
        log=("02:20:24 run '30e6' round 3: 'scatter' refused with the code script",),
    )


def ended(run: RunSnapshot) -> RunSnapshot:
    """Return a run with its result written."""
    return replace(run, phase="done", words="The result is in result.", left_s=None)
