"""The sections on sites: what of a component is a site, and rows as points."""

from collections.abc import Callable, Mapping, Sequence

from eigenfed.report.figures import Bar, bars, grid
from eigenfed.report.model import COMPONENTS_SHOWN, Report, SiteScores, SiteSpread
from eigenfed.report.page import Figure, Notice, PageTable, Part, Points, Section
from eigenfed.report.score_plot import COLOURS, scatter, thinned
from eigenfed.report.sections import site_notices
from eigenfed.report.wording import count, listed, percent, things

_SHOWN = 20
"""Components in a figure or table that has all sites for each."""


def by_site(report: Report) -> Section:
    """Show what of each component is a site."""
    title = "A site or a finding?"
    found = report.by_site
    if found is None:
        return Section("by-site", title, (_untold(report),), ())
    words = (
        "Hospitals, instruments and batches differ, and a component can be nothing but that. The "
        "share is how much of a component's variance lies between the means of the sites; sites "
        f"that differ in nothing would come to about {percent(found.by_chance)}. If it is large, "
        "check units, calibration and who was recruited.",
    )
    figures = (_explained(found), _shift(found), _contribution(found))
    return Section("by-site", title, words, (*site_notices(found), *figures))


def _untold(report: Report) -> str:
    if report.facts["privacy"] is not None:
        why = "this run let nothing be read but figures with noise."
    elif report.facts["secure"]:
        why = "in this run only sums over all sites can be read."
    else:
        why = "this run did not ask for them."
    own = (
        " Each site's own page shows it for that site. Compare those among you"
        if report.scores
        else " Each site can look at it with eigenfed project on its own rows"
    )
    return (
        "How much of a component is a difference between sites takes figures of single sites, and "
        f"{why}{own} before you call a component a finding: it may be nothing but a hospital."
    )


def _explained(found: SiteSpread) -> Figure:
    shares = list(enumerate(found.explained, start=1))
    items = [
        Bar(f"PC{p}", share, f"PC{p}: {percent(share)} of its variance is between sites")
        for p, share in shares[:_SHOWN]
    ]
    place, worst = max(shares, key=lambda entry: entry[1])
    caption = "Share of each component's variance that is between sites"
    svg = bars(
        "explained",
        items,
        title=caption,
        says=f"The largest is that of PC{place}, {percent(worst)}; the dashed line is at half.",
        high=1.0,
        written=lambda value: f"{100 * value:.0f} %",
        mark=0.5,
    )
    rows = tuple((f"PC{p}", share) for p, share in shares)
    head = ("component", "share between sites")
    return Figure(svg, (PageTable("explained-table", caption, head, rows, True),))


def _shift(found: SiteSpread) -> Figure:
    return _by_component(
        "shift",
        found.shift,
        title="Where each site's mean lies on each component",
        says="Mean score of the site's rows, in deviations of all rows; 0 is the mean of all.",
        unit="mean in deviations",
        written=lambda value: f"{value:+.2f}",
        full=2.0,
    )


def _contribution(found: SiteSpread) -> Figure:
    return _by_component(
        "contribution",
        found.contribution,
        title="What each site brings to each component",
        says="Share of the component's sum of squares that the site's rows bring.",
        unit="share",
        written=lambda value: f"{100 * value:.0f} %",
        full=1.0,
    )


def _by_component(
    name: str,
    values: Mapping[str, Sequence[float]],
    *,
    title: str,
    says: str,
    unit: str,
    written: Callable[[float], str],
    full: float,
) -> Figure:
    k = len(next(iter(values.values())))
    drawn = [f"PC{p}" for p in range(1, min(k, COMPONENTS_SHOWN) + 1)]
    svg = grid(
        name,
        list(values),
        drawn,
        [numbers[: len(drawn)] for numbers in values.values()],
        title=title,
        says=says,
        written=written,
        full=full,
    )
    more = f", first {_SHOWN} components; run.json has all" if k > _SHOWN else ""
    rows = tuple(
        (site, f"PC{place}", value)
        for site, numbers in values.items()
        for place, value in enumerate(numbers[:_SHOWN], start=1)
    )
    table = PageTable(f"{name}-table", f"{title}{more}", ("site", "component", unit), rows, True)
    return Figure(svg, (table,))


def points(report: Report) -> Section:
    """Show rows as points, of sites that opted in."""
    title = "Rows on the components"
    shown = report.shown_scores
    if not shown:
        return Section("rows", title, (_hidden(report),), ())
    others = [site for site in report.facts["sites"] if site not in shown]
    words = [
        "Each point is a row, of sites that agreed to show theirs. Groups that are sites are no "
        "finding; groups within every site may be one.",
    ]
    if others:
        words.append(f"Not shown: {listed(others)}. Their rows are in their own pages only.")
    return Section("rows", title, tuple(words), _points(shown))


def _hidden(report: Report) -> str:
    if report.facts["privacy"] is not None:
        return (
            "Rows are not shown: the components are private, and where a single row lies on them "
            "is not."
        )
    own = "It is in that site's own page only" if report.scores else "None were kept"
    return (
        "Where single rows lie on the components is about single persons, and no site has agreed "
        f"to show it to all. {own}. A site that may and wants to show it says so when the study "
        "is run."
    )


def own_points(site: str, scores: SiteScores) -> Section:
    """Show the rows of one site, for itself."""
    words = (
        "Each point is a row of this site; 0 is the mean of all rows of all sites. A cloud far "
        "from 0 is a site that differs from the others; points far from the cloud are rows to "
        "look at.",
    )
    return Section("rows", "Rows on the components", words, _points({site: scores}))


def _points(shown: Mapping[str, SiteScores]) -> tuple[Part, ...]:
    drawn = thinned(shown)
    width = next(iter(drawn.values())).shape[1]
    table = PageTable(
        "points-table",
        "Sites whose rows are drawn: mean and deviation of their scores",
        ("site", "rows", "drawn", "component", "mean", "deviation"),
        tuple(
            (site, found.rows, len(drawn[site]), f"PC{place}", mean, deviation)
            for site, found in shown.items()
            for place, mean, deviation in _moments(found, width)
        ),
        folded=True,
    )
    if width < 2:
        alone = Notice("plain", "With one component there is nothing to draw rows against.")
        return alone, table
    counts = [found.rows for found in shown.values()]
    number = sum(map(len, drawn.values()))
    says = f"{count(number)} points of {things(sum(counts), 'row')}, on PC1 and PC2 at first."
    figure = Figure(scatter(drawn, title="Rows as points", says=says), (table,))
    axes = tuple(f"PC{p}" for p in range(1, width + 1))
    parts: list[Part] = [Points(figure, axes, tuple(drawn), len(drawn) <= COLOURS)]
    if number < sum(counts):
        parts.append(
            Notice(
                "plain",
                f"Of {count(sum(counts))} rows, {count(number)} are drawn, evenly spaced in each "
                "site's order, so that the page stays small.",
            )
        )
    return tuple(parts)


def _moments(found: SiteScores, width: int) -> list[tuple[int, float, float]]:
    pairs = zip(found.mean.tolist(), found.deviation.tolist(), strict=True)
    return [(place, mean, sd) for place, (mean, sd) in enumerate(list(pairs)[:width], start=1)]


def own_level(report: Report, site: str, scores: SiteScores) -> Section:
    """Show where one site lies, from its own scores."""
    spread = [max(c.variance, 0.0) ** 0.5 for c in report.components]
    means = scores.mean.tolist()
    shift = [m / s if s else 0.0 for m, s in zip(means, spread, strict=True)]
    ratio = [
        (d / s) ** 2 if s else 0.0 for d, s in zip(scores.deviation.tolist(), spread, strict=True)
    ]
    drawn = [
        Bar(f"PC{p}", value, f"PC{p}: mean {value:+.2f} deviations from that of all rows")
        for p, value in enumerate(shift[:_SHOWN], start=1)
    ]
    furthest = max(range(len(shift)), key=lambda at: abs(shift[at]))
    svg = bars(
        "own-shift",
        drawn,
        title=f"Where the mean of {site} lies",
        says=f"Furthest out on PC{furthest + 1}: {shift[furthest]:+.2f} deviations of all rows.",
    )
    table = PageTable(
        "own-table",
        "Mean and variance of this site's scores, and how they compare with all rows",
        ("component", "mean", "variance", "mean in deviations of all", "variance over that of all"),
        tuple(
            (f"PC{p}", mean, deviation**2, moved, wide)
            for p, (mean, deviation, moved, wide) in enumerate(
                zip(means, scores.deviation.tolist(), shift, ratio, strict=True), start=1
            )
        ),
        folded=True,
    )
    words = (
        "From this site's own scores, which nobody else has: how far its mean is from the mean of "
        "all rows, in deviations of all rows, and how its variance compares with theirs (1 is the "
        "same). More than one deviation away, the component may be a difference between this site "
        "and the others.",
    )
    return Section("own", "Where this site lies", words, (Figure(svg, (table,)),))
