"""The live page of a run, at its coordinator."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Literal, TypeAlias

from eigenfed.report.figures import draw_angles
from eigenfed.report.live_page import LiveView, describe_engine, show_log
from eigenfed.report.model import Round
from eigenfed.report.page_elements import (
    Figure,
    Page,
    PageTable,
    PageVerdict,
    Part,
    Section,
    Tone,
)
from eigenfed.report.wording import duration, join_names, size, things
from eigenfed.transport.rounds import RoundRecord

Phase: TypeAlias = Literal["starting", "waiting", "running", "done", "stopped"]
SiteState: TypeAlias = Literal["in", "asked", "missing", "lost"]

_ROUNDS_SHOWN, _REPLIES_SHOWN, _DOTS = 200, 600, 150
_TITLES: dict[Phase, str] = {
    "starting": "Starting",
    "waiting": "Waiting for sites",
    "running": "Running",
    "done": "Done",
    "stopped": "Stopped",
}
_STATES: dict[SiteState, str] = {
    "in": "in",
    "asked": "asked, no reply yet",
    "missing": "missing",
    "lost": "lost: did not answer",
}


@dataclass(frozen=True)
class LiveSite:
    """A site as the coordinator sees it: its state, and its traffic so far."""

    name: str
    state: SiteState
    replies: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    missed: int = 0


@dataclass(frozen=True)
class RunSnapshot:
    """A run at one moment.

    Attributes
    ----------
    study, engine : str
    run : str
        Name of the run; empty before it has one.
    phase : Phase
    words : str
        What is happening, or why it ended, in a sentence.
    quorum : int
        Number of sites that a run requires.
    tol : float
        The angle at which the run ends, in degrees.
    sites : tuple of LiveSite
    rounds : tuple of RoundRecord
        The finished rounds, the earliest first.
    left_s : float or None
        Estimated remaining time, in seconds.
    log : tuple of str
        The last log lines.

    Examples
    --------
    >>> one = RoundRecord(0, "product", {"a": 10}, {"a": 990}, angle=1e-2)
    >>> site = LiveSite("a", "in", 1, 990, 10)
    >>> run = RunSnapshot("heart", "files", "9f86", "running", "", 1, 1e-4, (site,), (one,))
    >>> [verdict.value for verdict in view_run(run).page.verdicts]
    ['Running', '1 of 1', '0.01 degrees', '1.0 kB', 'unknown']
    """

    study: str
    engine: str
    run: str
    phase: Phase
    words: str
    quorum: int
    tol: float
    sites: tuple[LiveSite, ...]
    rounds: tuple[RoundRecord, ...]
    left_s: float | None = None
    log: tuple[str, ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether the command has done what it will do."""
        return self.phase in ("done", "stopped")

    @property
    def angle(self) -> float | None:
        """The last known angle, in degrees."""
        known = [record.angle for record in self.rounds if record.angle is not None]
        return known[-1] if known and math.isfinite(known[-1]) else None

    @property
    def bytes_up(self) -> int:
        """Bytes from all sites."""
        return sum(record.bytes_up for record in self.rounds)

    @property
    def bytes_down(self) -> int:
        """Bytes to all sites."""
        return sum(record.bytes_down for record in self.rounds)

    def list_sites(self, *states: SiteState) -> list[str]:
        """Return the names of the sites in one of these states."""
        return [site.name for site in self.sites if site.state in states]


def view_run(run: RunSnapshot) -> LiveView:
    """Return the live page of a run, and its facts."""
    recent = [asdict(record) for record in run.rounds[-_ROUNDS_SHOWN:]]
    facts = {
        **asdict(replace(run, rounds=())),
        "rounds": recent,
        "n_rounds": len(run.rounds),
        "angle": run.angle,
        "bytes_up": run.bytes_up,
        "bytes_down": run.bytes_down,
    }
    return LiveView(_make_page(run), facts, run.is_over)


def _make_page(run: RunSnapshot) -> Page:
    name = f"run {run.run[:8]}" if run.run else "no run yet"
    return Page(
        f"Study {run.study}",
        f"{name}, {things(len(run.rounds), 'round')} so far, {describe_engine(run.engine)}",
        (
            PageVerdict("State", _TITLES[run.phase], run.words, _judge_phase(run.phase)),
            _judge_sites(run),
            _judge_angle(run),
            PageVerdict(
                "Traffic so far",
                size(run.bytes_up + run.bytes_down),
                f"{size(run.bytes_up)} from the sites, {size(run.bytes_down)} to them.",
                "plain",
            ),
            _judge_time(run),
        ),
        (_show_sites(run), _show_angles(run), _show_rounds(run), show_log(run.log)),
    )


def _judge_phase(phase: Phase) -> Tone:
    tones: dict[Phase, Tone] = {"done": "good", "stopped": "look"}
    return tones.get(phase, "plain")


def _judge_sites(run: RunSnapshot) -> PageVerdict:
    there = run.list_sites("in", "asked")
    gone: tuple[SiteState, ...] = ("missing", "lost")
    found = {state: run.list_sites(state) for state in gone}
    words = [
        f"{state.capitalize()}: {join_names(names)}." for state, names in found.items() if names
    ]
    tone: Tone = "look" if words and not run.is_over else "plain"
    needed = f"A run requires {run.quorum}."
    value = f"{len(there)} of {len(run.sites)}"
    return PageVerdict("Sites", value, " ".join([*words, needed]), tone)


def _judge_angle(run: RunSnapshot) -> PageVerdict:
    title, ends = "Angle to go", f"The run ends at {run.tol:g} degrees."
    if run.phase == "done":
        return PageVerdict(title, "none", "The report says how accurate the result is.", "plain")
    if run.angle is None:
        return PageVerdict(title, "unknown", f"No round has an estimate yet. {ends}", "plain")
    return PageVerdict(title, f"{run.angle:.2g} degrees", f"Estimated. {ends}", "plain")


def _judge_time(run: RunSnapshot) -> PageVerdict:
    if run.is_over:
        return PageVerdict("Time left", "none", "This page does not change any more.", "plain")
    if run.left_s is None:
        words = "It is estimated from the angle, once two rounds have an estimate."
        return PageVerdict("Time left", "unknown", words, "plain")
    words = "If the angle keeps falling at this rate."
    return PageVerdict("Time left", f"about {duration(run.left_s)}", words, "plain")


def _show_sites(run: RunSnapshot) -> Section:
    table = PageTable(
        "sites-table",
        "Sites and their traffic",
        ("site", "state", "replies", "bytes sent", "bytes received", "rounds missed"),
        tuple(
            (s.name, _STATES[s.state], s.replies, s.bytes_up, s.bytes_down, s.missed)
            for s in run.sites
        ),
    )
    words = (
        (
            "With files, a site counts as missing until its first reply: whether it reads its "
            "files is not known before.",
        )
        if run.engine == "files"
        else ()
    )
    return Section("sites", "Sites", words, (table,))


def _show_angles(run: RunSnapshot) -> Section:
    step = max(math.ceil(len(run.rounds) / _DOTS), 1)
    last = run.rounds[-1].round if run.rounds else 0
    rounds = [
        Round(
            record.round + 1,
            record.op,
            record.bytes_down,
            record.bytes_up,
            record.lost,
            record.angle if (last - record.round) % step == 0 and _is_finite(record) else None,
        )
        for record in run.rounds
    ]
    drawing = draw_angles(rounds, None, run.tol)
    parts: tuple[Part, ...] = () if drawing is None else (Figure(drawing, ()),)
    words = () if parts else ("The angle is drawn here once two rounds have an estimate.",)
    return Section("accuracy", "Accuracy", words, parts)


def _is_finite(record: RoundRecord) -> bool:
    return record.angle is not None and math.isfinite(record.angle)


def _show_rounds(run: RunSnapshot) -> Section:
    rounds = run.rounds[: -_ROUNDS_SHOWN - 1 : -1]
    cut = f", the last {len(rounds)} of {len(run.rounds)}" if len(rounds) < len(run.rounds) else ""
    table = PageTable(
        "round-table",
        f"Rounds, the latest first{cut}",
        ("round", "request", "bytes up", "bytes down", "lost", "angle before it, in degrees"),
        tuple(
            (
                str(record.round + 1),
                record.op,
                record.bytes_up,
                record.bytes_down,
                ", ".join(record.lost) or "-",
                "-" if record.angle is None else f"{record.angle:.2e}",
            )
            for record in rounds
        ),
    )
    replies = [
        (str(record.round + 1), record.op, site, up, record.sent.get(site, 0))
        for record in rounds
        for site, up in record.received.items()
    ][:_REPLIES_SHOWN]
    by_site = PageTable(
        "reply-table",
        "Bytes by round and site",
        ("round", "request", "site", "bytes up", "bytes down"),
        tuple(replies),
        folded=True,
    )
    if not run.rounds:
        return Section("rounds", "Rounds", ("No round is over yet.",), ())
    return Section("rounds", "Rounds", (), (table, by_site))
