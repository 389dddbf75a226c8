"""The live page of a site: what leaves it, for its own people only."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

from eigenfed.privacy.dp.accounting import epsilon_of
from eigenfed.privacy.ledger.ledger import Totals
from eigenfed.privacy.release import Release
from eigenfed.protocol.gate.records import Egress
from eigenfed.protocol.messages import REFUSAL_TEXTS
from eigenfed.report.egress import describe_content, describe_protection
from eigenfed.report.live_page import LiveView, describe_engine, show_log
from eigenfed.report.model import format_shapes
from eigenfed.report.page_elements import (
    Facts,
    Notice,
    Page,
    PageTable,
    PageVerdict,
    Part,
    Section,
    Tone,
)
from eigenfed.report.wording import join_names, number, percent, size, things

SitePhase: TypeAlias = Literal["starting", "up", "stopped"]

_REPLIES_SHOWN = 300
_TITLES: dict[SitePhase, str] = {"starting": "Starting", "up": "Up", "stopped": "Stopped"}


@dataclass(frozen=True)
class LiveReply:
    """A reply that left the site.

    Attributes
    ----------
    study : str
        Name of the study.
    central : bool
        Whether the study trusts the coordinator to add the noise.
    left : Egress
    """

    study: str
    central: bool
    left: Egress


@dataclass(frozen=True)
class SiteSnapshot:
    """A site at one moment.

    Attributes
    ----------
    site, network, engine : str
        Names of the site, of its network and of the engine.
    phase : SitePhase
    words : str
        What is happening, in a sentence.
    since : str
        When the site was started.
    approved : tuple of str
        Names of the approved studies.
    replies : tuple of LiveReply
        The replies since then, the earliest first.
    sent_bytes : int
        All bytes that left since then, with signatures and refusals.
    refused : mapping of str to int
        Number of refusals since then, by code.
    totals : Totals or None
        What has been spent according to the ledger, over all runs.
    is_held : bool
        Whether the rows are blocked after aborted runs.
    leakage : tuple of float or None
        Fractions of directions and of variance that have been revealed, over all runs.
    log : tuple of str
        The last log lines.

    Examples
    --------
    >>> site = SiteSnapshot("north", "heart", "files", "up", "", "12:00:00", ("heart",))
    >>> [verdict.value for verdict in view_site(site).page.verdicts]
    ['Up', '0 bytes', 'nothing', 'no ledger', 'unknown']
    """

    site: str
    network: str
    engine: str
    phase: SitePhase
    words: str
    since: str
    approved: tuple[str, ...] = ()
    replies: tuple[LiveReply, ...] = ()
    sent_bytes: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    totals: Totals | None = None
    is_held: bool = False
    leakage: tuple[float, float] | None = None
    log: tuple[str, ...] = ()


def view_site(site: SiteSnapshot) -> LiveView:
    """Return the live page of a site, and its facts."""
    return LiveView(_make_page(site), _list_facts(site), site.phase == "stopped")


def _list_facts(site: SiteSnapshot) -> dict[str, Any]:
    totals = site.totals
    rank, part = site.leakage or (None, None)
    return {
        "site": site.site,
        "network": site.network,
        "engine": site.engine,
        "phase": site.phase,
        "since": site.since,
        "approved": site.approved,
        "replies": [_list_reply(reply) for reply in site.replies[-_REPLIES_SHOWN:]],
        "sent_bytes": site.sent_bytes,
        "refused": dict(site.refused),
        "spent": None if totals is None else asdict(totals) | {"epsilon": totals.epsilon},
        "held": site.is_held,
        "leakage": {"rank_fraction": rank, "variance_fraction": part},
        "log": site.log,
    }


def _list_reply(reply: LiveReply) -> dict[str, Any]:
    left, release = reply.left, reply.left.release
    return {
        "study": reply.study,
        "run": left.run,
        "round": left.round_,
        "op": left.op,
        "what": release.kind,
        "leaves": release.leaves.value,
        "reveals": release.reveals.value,
        "masked": left.masked,
        "shapes": left.shapes,
        "bytes": left.sent_bytes,
    }


def _make_page(site: SiteSnapshot) -> Page:
    network = f"Network {site.network} {describe_engine(site.engine)}, since {site.since}. "
    return Page(
        f"Site {site.site}",
        f"{network if site.network else ''}For the people of this site only.",
        (
            _judge_phase(site),
            _judge_left(site),
            _judge_refused(site),
            _judge_budget(site),
            _judge_leakage(site),
        ),
        (_show_left(site), _show_refused(site), _show_account(site), show_log(site.log)),
    )


def _judge_phase(site: SiteSnapshot) -> PageVerdict:
    approved = f" Approved: {join_names(sorted(site.approved))}." if site.approved else ""
    tone: Tone = "good" if site.phase == "up" else "plain"
    return PageVerdict("State", _TITLES[site.phase], f"{site.words}{approved}", tone)


def _judge_left(site: SiteSnapshot) -> PageVerdict:
    if not site.replies:
        words = "No reply has left since the site was started."
    else:
        last = site.replies[-1]
        words = (
            f"{things(len(site.replies), 'reply')}; the last to {last.left.op} in round "
            f"{last.left.round_ + 1} of {last.study}."
        )
    return PageVerdict("Left the site", size(site.sent_bytes), words, "plain")


def _judge_refused(site: SiteSnapshot) -> PageVerdict:
    refused = site.refused
    if not refused:
        words = "No request was refused since the site was started."
        return PageVerdict("Refused", "nothing", words, "plain")
    value = things(sum(refused.values()), "request")
    return PageVerdict("Refused", value, f"Codes: {join_names(sorted(refused))}.", "look")


def _judge_budget(site: SiteSnapshot) -> PageVerdict:
    totals = site.totals
    if totals is None:
        return PageVerdict("Budget", "no ledger", "The ledger has not been read.", "plain")
    tone: Tone = "look" if site.is_held else "plain"
    hold = "The rows are blocked after aborted runs. " if site.is_held else ""
    if totals.budget is None:
        value = "none set"
    elif math.isinf(totals.mu):
        value = "no guarantee"
    else:
        value = f"{number(totals.epsilon)} of {totals.budget.epsilon:g}"
    return PageVerdict("Budget, epsilon", value, f"{hold}{totals.text}", tone)


def _judge_leakage(site: SiteSnapshot) -> PageVerdict:
    if site.leakage is None:
        words = "No exact reply about directions has left."
        return PageVerdict("Leakage", "unknown" if site.totals is None else "none", words, "plain")
    rank, part = site.leakage
    words = f"of directions revealed, over all runs; they hold {percent(part)} of the variance."
    return PageVerdict("Leakage", percent(rank), words, "plain")


def _show_left(site: SiteSnapshot) -> Section:
    words = (
        "This is what the gate let out since the site was started; the ledger has everything "
        "before. Values are not shown.",
    )
    if not site.replies:
        return Section("left", "What leaves this site", (*words, "Nothing has left yet."), ())
    groups: dict[tuple[str, str, bool, bool, Release], list[Egress]] = {}
    for reply in site.replies:
        left = reply.left
        key = reply.study, left.op, left.masked, reply.central, left.release
        groups.setdefault(key, []).append(left)
    declared = PageTable(
        "left-table",
        "What left, by request",
        (
            *("request", "study", "what left", "what it reveals about this site"),
            *("how it left", "replies", "bytes"),
        ),
        tuple(
            (
                op,
                study,
                release.kind,
                describe_content(release.reveals.value, masked=masked),
                describe_protection(
                    release.leaves.value, release.reveals.value, masked=masked, central=central
                ),
                len(replies),
                sum(left.sent_bytes for left in replies),
            )
            for (study, op, masked, central, release), replies in groups.items()
        ),
    )
    return Section("left", "What leaves this site", words, (declared, _make_reply_table(site)))


def _make_reply_table(site: SiteSnapshot) -> PageTable:
    shown = site.replies[: -_REPLIES_SHOWN - 1 : -1]
    cut = f", the last {len(shown)} of {len(site.replies)}"
    return PageTable(
        "reply-table",
        f"Every reply, the latest first{cut if len(shown) < len(site.replies) else ''}",
        ("round", "request", "study", "run", "masked", "arrays", "bytes"),
        tuple(
            (
                str(reply.left.round_ + 1),
                reply.left.op,
                reply.study,
                reply.left.run[:8],
                "yes" if reply.left.masked else "no",
                format_shapes(dict(reply.left.shapes)),
                reply.left.sent_bytes,
            )
            for reply in shown
        ),
    )


def _show_refused(site: SiteSnapshot) -> Section:
    refused = site.refused
    if not refused:
        return Section("refused", "Refusals", ("Nothing was refused.",), ())
    words = ("A code is all that leaves when a request is refused.",)
    table = PageTable(
        "refused-table",
        "Refusals by code",
        ("code", "times", "meaning"),
        tuple(
            (code, times, REFUSAL_TEXTS.get(code, "unknown"))
            for code, times in sorted(refused.items())
        ),
    )
    return Section("refused", "Refusals", words, (table,))


def _show_account(site: SiteSnapshot) -> Section:
    parts: list[Part] = []
    totals = site.totals
    if site.is_held:
        words = "These rows are blocked after aborted runs: see eigenfed ledger release."
        parts.append(Notice("look", words))
    if totals is not None:
        parts.append(Facts(tuple(_list_budget(totals))))
    if site.leakage is not None:
        rank, part = site.leakage
        parts.append(
            Facts(
                (
                    ("Directions revealed", percent(rank)),
                    ("Variance along them", percent(part)),
                )
            )
        )
    words = "From the ledger and the leakage meter of these rows, over all runs."
    return Section("account", "Budget and leakage", (words,), tuple(parts))


def _list_budget(totals: Totals) -> list[tuple[str, str]]:
    budget = totals.budget
    counts = [
        ("Replies with noise", f"{totals.spends:,}"),
        ("Exact replies about the rows", f"{totals.exact:,}"),
    ]
    if budget is None:
        return [("Budget", "none set"), ("Spent", totals.text), *counts]
    left = 0.0
    if math.isfinite(totals.mu):
        left = epsilon_of(budget.delta, max(budget.mu**2 - totals.mu**2, 0.0) ** 0.5)
    return [
        ("Budget", f"epsilon {budget.epsilon:g} at delta {budget.delta:g}"),
        ("Spent", totals.text),
        ("Left", f"epsilon {number(left)} at delta {budget.delta:g}, if spent in one run"),
        *counts,
    ]
