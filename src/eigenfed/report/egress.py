"""The sections on what left the sites, and on privacy."""

from typing import Any

from eigenfed.privacy.dp.accounting import format_loss
from eigenfed.report.figures import Bar, draw_bars
from eigenfed.report.model import ReplyGroup, Report, format_shapes
from eigenfed.report.page_elements import Cell, Facts, Figure, Notice, PageTable, Part, Section
from eigenfed.report.wording import percent, size, things

_REVEALS = {
    "counts": "the number of rows and their weights",
    "size": "the numbers of rows and features, which count as public",
    "means": "sums by feature: with the number of rows, the mean of each feature",
    "diagonal": "the variance of each feature",
    "genotype counts": "counts of genotypes by variant",
    "entries": "covariances of neighbouring variants",
    "directions": "the covariance along the requested directions",
    "scatter": "the full covariance",
    "bound": "one number about all rows, such as a bound on the remaining variance",
    "remainder": "one number: the largest variance outside directions already revealed",
    "noise": "as much as the noise permits; see the privacy statement",
    "range": "the magnitude of entries and weights, to a factor of two",
    "nothing": "nothing about the rows: keys and secret shares",
}

_REPLIES_SHOWN = 6000

_BY_ROW = (
    "The sites hold different features of the same rows, and vectors with one entry per row left "
    "them. These vectors reveal something about single rows."
)


def show_egress(report: Report, only: str | None = None) -> Section:
    """Show everything that left the sites, or one of them.

    Parameters
    ----------
    report : Report
    only : str, optional
        The site for whose own page this is.
    """
    groups = [group for group in report.left if only is None or only in group.bytes]
    words = [
        f"This is everything that left, reply by reply, {_describe_recorder(report)}. If something "
        "should not have left, the site's policy can forbid it by the name of the request.",
        _describe_masking(report),
    ]
    if report.facts["engine"] == "in_process":
        words.append(
            "All sites ran in one process, whose owner could see everything. Listed are the "
            "messages from the sites to the coordinator, which are what would leave the sites if "
            "each ran on its own machine."
        )
    table = PageTable(
        "left-table",
        "What left, by request",
        (
            "request",
            "what left",
            "what it reveals about a site",
            "how it left",
            "arrays",
            "replies",
            "bytes",
        ),
        tuple(
            (
                group.op,
                group.what,
                describe_content(group.reveals, masked=group.masked),
                describe_protection(
                    group.leaves, group.reveals, masked=group.masked, central=_is_central(report)
                ),
                "; ".join(group.shapes[:3]) + ("; ..." if len(group.shapes) > 3 else ""),
                group.replies if only is None else _count_replies(report, only, group),
                sum(group.bytes.values()) if only is None else group.bytes[only],
            )
            for group in groups
        ),
    )
    parts: list[Part] = [table]
    if report.facts["split"] == "features":
        parts.insert(0, Notice("look", _BY_ROW))
    if only is None:
        parts.append(_draw_bytes(report))
    parts.append(_make_reply_table(report, only))
    return Section(
        "left", "What left this site" if only else "What left each site", tuple(words), tuple(parts)
    )


def _describe_masking(report: Report) -> str:
    if not any(group.masked for group in report.left):
        return "Nothing was masked: the coordinator can read every reply of every site."
    return (
        "A masked reply cannot be read on its own: the masks cancel only in the sum over all sites "
        "that answered, and nobody can read anything but that sum. Requests named sum_... and "
        "arrays named secure... belong to the masking."
    )


def describe_content(reveals: str, *, masked: bool) -> str:
    """Return what a reply reveals about a site, in words.

    Examples
    --------
    >>> describe_content("diagonal", masked=True)
    'of all sites together only: the variance of each feature'
    """
    text = _REVEALS.get(reveals, reveals)
    return f"of all sites together only: {text}" if masked else text


def describe_protection(leaves: str, reveals: str, *, masked: bool, central: bool) -> str:
    """Return how a reply was protected: by masks, by noise, or not.

    Parameters
    ----------
    leaves, reveals : str
        As the reply was declared.
    masked : bool
    central : bool
        Whether the coordinator is trusted to add the noise.
    """
    noise = "with noise" if leaves == "noised" else ""
    if noise and central:
        return "exact, to the trusted coordinator, which adds the noise"
    if masked:
        return f"masked, {noise or 'exact'} in the sum"
    if leaves == "as published":
        return "as printed in the paper"
    if reveals == "nothing":
        return "as it is"
    return noise or "exact, readable by the coordinator"


def _is_central(report: Report) -> bool:
    privacy = report.facts["privacy"]
    return privacy is not None and privacy["trust"] == "central"


def _count_replies(report: Report, site: str, group: ReplyGroup) -> int:
    return sum(
        reply.op == group.op and reply.masked == group.masked for reply in report.replies[site]
    )


def _draw_bytes(report: Report) -> Figure:
    items = [Bar(s.name, s.bytes_up, f"{s.name}: {size(s.bytes_up)}") for s in report.sites]
    most = max(report.sites, key=lambda site: site.bytes_up)
    alike = all(site.bytes_up == most.bytes_up for site in report.sites)
    who = "Each site sent" if alike else f"The most was sent by {most.name}:"
    svg = draw_bars(
        "bytes",
        items,
        title="Bytes sent by each site",
        caption=f"{who} {size(most.bytes_up)}.",
        format_value=size,
    )
    ops = list(dict.fromkeys(group.op for group in report.left))
    totals = {(group.op, site): n for group in report.left for site, n in group.bytes.items()}
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (s.name, s.bytes_up, *(totals.get((op, s.name), 0) for op in ops)) for s in report.sites
    )
    caption = "Bytes sent by each site, in total and by request"
    return Figure(svg, (PageTable("bytes-table", caption, ("site", "total", *ops), rows, True),))


def _make_reply_table(report: Report, only: str | None) -> PageTable:
    replies = [
        (site, reply)
        for site, sent in report.replies.items()
        if only in (None, site)
        for reply in sent
    ]
    shown = replies[:_REPLIES_SHOWN]
    cut = f", the first {len(shown)} of {len(replies)}; run.jsonl has all"
    return PageTable(
        "reply-table",
        f"Every reply{cut if len(shown) < len(replies) else ''}",
        ("site", "round", "request", "masked", "arrays", "bytes"),
        tuple(
            (site, r.place, r.op, r.masked, format_shapes(dict(r.shapes)), r.bytes)
            for site, r in shown
        ),
        folded=True,
    )


def show_privacy(report: Report) -> Section:
    """Show the privacy guarantee, or without one how much was revealed."""
    statement = report.facts["privacy"]
    parts: list[Part] = []
    if statement is None:
        exact = "the sums that can be read are" if report.facts["secure"] else "what was sent is"
        words = [
            f"No noise was added: {exact} exact, and nothing guarantees that a single row cannot "
            "be inferred from it. Whether this is acceptable depends on who can read it. eigenfed "
            "audit shows what can be inferred; a run with epsilon and delta adds noise.",
            _describe_leakage(report),
        ]
        rank, part = (report.facts["leakage"][n] for n in ("rank_fraction", "variance_fraction"))
        parts.append(
            Facts(
                (
                    ("Directions revealed, most exposed site", percent(rank)),
                    ("Variance along them, most exposed site", percent(part)),
                )
            )
        )
    else:
        words = [
            "This is the guarantee, and against whom it holds. The smaller epsilon, the stronger: "
            "about 1 is strong, above 10 is weak. Every further run on the same rows adds to it, "
            "and spent budget cannot be recovered.",
            *statement["text"].splitlines(),
        ]
        parts += _show_statement(report)
    if report.facts["ledgers"]:
        parts.append(_make_ledger_table(report))
    return Section("privacy", "Privacy and leakage", tuple(words), tuple(parts))


def _describe_recorder(report: Report) -> str:
    if report.facts["engine"] == "in_process":
        return "as recorded by the sites themselves"
    return "as the coordinator received it; the ledger of each site has the site's own record"


def _describe_leakage(report: Report) -> str:
    rank, part = (report.facts["leakage"][n] for n in ("rank_fraction", "variance_fraction"))
    secure = report.facts["secure"]
    if report.sends_covariance:
        text = "The coordinator can reconstruct each site's full covariance."
        if secure:
            text = (
                "The coordinator can reconstruct the full covariance of all sites together, but "
                "not of a single site."
            )
    else:
        seen = ", but only in sums over all sites, so that its own part is hidden" if secure else ""
        text = (
            f"The most exposed site revealed its covariance along {percent(rank)} of directions, "
            f"which hold {percent(part)} of its variance{seen}."
        )
    return f"{text} A covariance of many rows reveals little about one row; one of few rows, much."


def _show_statement(report: Report) -> list[Part]:
    statement = report.facts["privacy"]
    parts: list[Part] = []
    if statement["epsilon"] is None:
        claimed = statement["claimed_epsilon"]
        claim = "" if claimed is None else f" The paper claims epsilon {claimed:g}."
        parts.append(Notice("look", f"This mechanism gives no guarantee.{claim}"))
    budget = list(statement["budget"].items())
    svg = draw_bars(
        "budget",
        [Bar(name, part, f"{name}: {percent(part)} of the budget") for name, part in budget],
        title="How the budget was spent",
        caption="Fractions of mu squared: "
        + ", ".join(f"{name} {percent(part)}" for name, part in budget),
        high=1.0,
        format_value=lambda value: f"{100 * value:.0f} %",
    )
    epsilon = "no guarantee" if statement["epsilon"] is None else f"{statement['epsilon']:g}"
    parts += [
        Facts(
            (
                ("Epsilon", epsilon),
                *_list_epsilons(statement),
                ("Delta", f"{statement['delta']:g}"),
                ("Protected unit", f"one {statement['unit']}"),
                ("Neighbouring tables", statement["relation"]),
                ("Noise", statement["mechanism"]),
                ("Trust", statement["trust"]),
            )
        ),
        Figure(
            svg,
            (
                PageTable(
                    "budget-table",
                    "Budget by purpose",
                    ("purpose", "fraction of mu squared"),
                    tuple(budget),
                    True,
                ),
            ),
        ),
    ]
    return parts


def _list_epsilons(statement: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the epsilon against each group of people, if the statement has them."""
    outside, inside = statement["epsilon_outsiders"], statement["epsilon_participants"]
    if outside is None:
        return ()
    return (
        ("Epsilon against people outside the study", format_loss(outside)),
        ("Epsilon against participants", "no guarantee" if inside is None else format_loss(inside)),
    )


def _make_ledger_table(report: Report) -> PageTable:
    accounts = report.facts["ledgers"]
    return PageTable(
        "ledger-table",
        f"Ledger totals of {things(len(accounts), 'site')}, over all runs",
        ("site", "epsilon", "delta", "mu", "spends", "in words"),
        tuple(
            (site, *_format_guarantee(a), a["spends"], a["text"]) for site, a in accounts.items()
        ),
    )


def _format_guarantee(account: dict[str, Any]) -> tuple[Cell, Cell, Cell]:
    # Exact replies count no spends: their mu is not the 0 of perfect privacy.
    if account.get("exact") or account.get("unsound"):
        return "no guarantee", account["delta"], "no guarantee"
    return account["epsilon"], account["delta"], account["mu"]
