"""The sections on what left the sites, and what that tells."""

from typing import Any

from eigenfed.report.figures import Bar, bars
from eigenfed.report.model import Left, Report, shape_text
from eigenfed.report.page import Cell, Facts, Figure, Notice, PageTable, Part, Section
from eigenfed.report.wording import percent, size, things

_REVEALS = {
    "counts": "how many rows there are, and their weights",
    "size": "how many rows and features there are, which is taken as public",
    "means": "totals by feature: with the number of rows, the mean of each feature",
    "diagonal": "how much each feature varies",
    "directions": "how the rows vary along the directions that were asked about",
    "scatter": "the whole covariance: how every two features vary together",
    "bound": "one number about the whole, such as the largest variance that is left",
    "noise": "as much as the noise lets through, which the privacy statement bounds",
    "range": "how large entries and weights are, to a factor of two",
    "nothing": "nothing about the rows: keys and shares",
}

_REPLIES_SHOWN = 6000

_BY_ROW = (
    "The sites hold different features of the same rows, and vectors with an entry for each row "
    "left them. Where single rows lie can be told from those: this is not a run in which nothing "
    "by row leaves."
)


def left(report: Report, only: str | None = None) -> Section:
    """Show all that left the sites, or one of them.

    Parameters
    ----------
    report : Report
    only : str, optional
        The site whose own page this is for.
    """
    kinds = [kind for kind in report.left if only is None or only in kind.bytes]
    words = [
        "This is all that left, as each site's own gate wrote it down, reply by reply. If "
        "something here should not have left, the site's policy can forbid it by the name of the "
        "ask.",
        _way_words(report),
    ]
    if report.facts["engine"] == "in_process":
        words.append(
            "The sites lived in one process, whose owner could see everything. What is listed "
            "crossed as bytes between them and the coordinator, and is what would leave them if "
            "each had a machine of its own."
        )
    table = PageTable(
        "left-table",
        "What left, by ask",
        (
            "ask",
            "what left",
            "what it tells of a site",
            "how it left",
            "numbers",
            "replies",
            "bytes",
        ),
        tuple(
            (
                kind.op,
                kind.what,
                _tells(kind),
                how(kind, report),
                "; ".join(kind.shapes[:3]) + ("; ..." if len(kind.shapes) > 3 else ""),
                kind.replies if only is None else _count(report, only, kind),
                sum(kind.bytes.values()) if only is None else kind.bytes[only],
            )
            for kind in kinds
        ),
    )
    parts: list[Part] = [table]
    if report.facts["split"] == "features":
        parts.insert(0, Notice("look", _BY_ROW))
    if only is None:
        parts.append(_bytes_by_site(report))
    parts.append(_replies(report, only))
    return Section(
        "left", "What left this site" if only else "What left each site", tuple(words), tuple(parts)
    )


def _way_words(report: Report) -> str:
    masked = any(kind.masked for kind in report.left)
    if not masked:
        return "Nothing was masked: the coordinator can read every reply of every site."
    return (
        "A masked reply cannot be read by itself: masks cancel only in the sum over all sites that "
        "answered, and only that sum is known to anybody. Numbers named secure belong to the "
        "masking."
    )


def _tells(kind: Left) -> str:
    text = _REVEALS.get(kind.reveals, kind.reveals)
    return f"{text}; of all sites together only" if kind.masked else text


def how(kind: Left, report: Report) -> str:
    """Say how a reply left."""
    privacy = report.facts["privacy"]
    central = privacy is not None and privacy["trust"] == "central"
    noise = "with noise" if kind.leaves == "noised" else ""
    if noise and central:
        return "as it is, to the trusted coordinator, who adds the noise"
    if kind.masked:
        return f"masked, {noise or 'exact'} in the sum"
    if kind.leaves == "as published":
        return "as the paper prints it"
    return noise or "as it is, readable by the coordinator"


def _count(report: Report, site: str, kind: Left) -> int:
    return sum(
        reply.op == kind.op and reply.masked == kind.masked for reply in report.replies[site]
    )


def _bytes_by_site(report: Report) -> Figure:
    items = [Bar(s.name, s.bytes_up, f"{s.name}: {size(s.bytes_up)}") for s in report.sites]
    most = max(report.sites, key=lambda site: site.bytes_up)
    svg = bars(
        "bytes",
        items,
        title="Bytes that left each site",
        says=f"The largest: {most.name}, {size(most.bytes_up)}.",
        written=size,
    )
    ops = list(dict.fromkeys(kind.op for kind in report.left))
    totals = {(kind.op, site): n for kind in report.left for site, n in kind.bytes.items()}
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (s.name, s.bytes_up, *(totals.get((op, s.name), 0) for op in ops)) for s in report.sites
    )
    caption = "Bytes that left each site, in all and by ask"
    return Figure(svg, (PageTable("bytes-table", caption, ("site", "all", *ops), rows, True),))


def _replies(report: Report, only: str | None) -> PageTable:
    named = [
        (site, reply)
        for site, replies in report.replies.items()
        if only in (None, site)
        for reply in replies
    ]
    kept = named[:_REPLIES_SHOWN]
    cut = f", the first {len(kept)} of {len(named)}; run.jsonl has all" if kept != named else ""
    return PageTable(
        "reply-table",
        f"Every reply{cut}",
        ("site", "round", "ask", "masked", "numbers", "bytes"),
        tuple(
            (site, r.place, r.op, r.masked, shape_text(dict(r.shapes)), r.bytes) for site, r in kept
        ),
        folded=True,
    )


def privacy(report: Report) -> Section:
    """Say what is guaranteed, or how much was told."""
    stated = report.facts["privacy"]
    parts: list[Part] = []
    if stated is None:
        exact = "the sums that can be read are" if report.facts["secure"] else "what was sent is"
        words = [
            f"Nothing was noised: {exact} exact, and there is no guarantee that a single row "
            "cannot be told from it. Whether that is all right depends on who may read it; "
            "eigenfed audit tries what can be told, and a run with epsilon and delta has noise.",
            _leakage(report),
        ]
        rank, share = (report.facts["leakage"][n] for n in ("rank_fraction", "variance_fraction"))
        parts.append(
            Facts(
                (
                    ("Directions answered about, most open site", percent(rank)),
                    ("Variance along them, most open site", percent(share)),
                )
            )
        )
    else:
        words = [
            "This is what is promised, and to whom. The smaller epsilon, the stronger: about 1 is "
            "strong, above 10 says little. If it is more than you may spend, do not run it again "
            "but with less: what is spent stays spent.",
            *stated["text"].splitlines(),
        ]
        parts += _stated(report)
    if report.facts["ledgers"]:
        parts.append(_ledgers(report))
    return Section("privacy", "Privacy and leakage", tuple(words), tuple(parts))


def _leakage(report: Report) -> str:
    rank, share = (report.facts["leakage"][n] for n in ("rank_fraction", "variance_fraction"))
    seen = (
        "but inside secure sums, so that its own part cannot be told from the others'"
        if report.facts["secure"]
        else "and by itself, so that this part of its covariance is known to the coordinator"
    )
    whole = " At 100 % nothing of a site's covariance is left to hide." if rank >= 1.0 else ""
    return (
        f"The most open site answered about {percent(rank)} of the directions, which hold "
        f"{percent(share)} of its variance, {seen}.{whole} A covariance of many rows tells little "
        "of one of them; of few rows, much."
    )


def _stated(report: Report) -> list[Part]:
    stated = report.facts["privacy"]
    parts: list[Part] = []
    if stated["epsilon"] is None:
        claimed = stated["claimed_epsilon"]
        claim = "" if claimed is None else f" The paper claims epsilon {claimed:g}."
        parts.append(Notice("look", f"Nothing is guaranteed by this mechanism.{claim}"))
    budget = list(stated["budget"].items())
    svg = bars(
        "budget",
        [Bar(name, share, f"{name}: {percent(share)} of the budget") for name, share in budget],
        title="What the budget was spent on",
        says="Shares of mu squared: "
        + ", ".join(f"{name} {percent(share)}" for name, share in budget),
        high=1.0,
        written=lambda value: f"{100 * value:.0f} %",
    )
    epsilon = "no guarantee" if stated["epsilon"] is None else f"{stated['epsilon']:g}"
    parts += [
        Facts(
            (
                ("Epsilon", epsilon),
                *_against(stated),
                ("Delta", f"{stated['delta']:g}"),
                ("Protects", f"one {stated['unit']}; neighbours: {stated['relation']}"),
                ("Noise", stated["mechanism"]),
                ("Trust", stated["trust"]),
            )
        ),
        Figure(
            svg,
            (
                PageTable(
                    "budget-table",
                    "Budget by what it bought",
                    ("what", "share of mu squared"),
                    tuple(budget),
                    True,
                ),
            ),
        ),
    ]
    return parts


def _against(stated: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Tell what holds against whom, where that is claimed of each."""
    outside, inside = stated["epsilon_outsiders"], stated["epsilon_participants"]
    if outside is None:
        return ()
    return (
        ("Epsilon against people outside the study", f"{outside:.3g}"),
        ("Epsilon against participants", "no guarantee" if inside is None else f"{inside:.3g}"),
    )


def _ledgers(report: Report) -> PageTable:
    accounts = report.facts["ledgers"]
    return PageTable(
        "ledger-table",
        f"What the ledgers of {things(len(accounts), 'site')} come to, over all runs",
        ("site", "epsilon", "delta", "mu", "spends", "in words"),
        tuple(
            (site, a["epsilon"], a["delta"], a["mu"], a["spends"], a["text"])
            for site, a in accounts.items()
        ),
    )
