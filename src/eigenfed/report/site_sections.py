"""The sections on sites: differences between them, and their rows as points."""

from collections.abc import Callable, Mapping, Sequence

from eigenfed.report.figures import Bar, draw_bars, draw_grid
from eigenfed.report.model import COMPONENTS_SHOWN, Report, SiteSpread
from eigenfed.report.page_elements import Figure, Notice, PageTable, Part, Points, Section
from eigenfed.report.score_plot import COLOURS, draw_points, thin_points
from eigenfed.report.site_scores import SiteScores
from eigenfed.report.verdicts import judge_component
from eigenfed.report.wording import MOSTLY, count, join_names, percent, signed, things

_SHOWN = 20
"""Components in a figure or table that has all sites for each."""
_NAMED = 3
"""Features and components that a warning names."""
_MISSING = 500
"""Features in the table of missing entries."""


def compare_sites(report: Report) -> Section:
    """Show how much of each component is a difference between sites."""
    title = "Differences between sites"
    spread = report.by_site
    if len(report.sites) == 1:
        return Section(
            "by-site", title, ("There is one site, so there is nothing to compare.",), ()
        )
    if spread is None:
        return Section("by-site", title, (_explain_missing(report),), ())
    if report.facts["center"] == "site":
        removed = (
            "Each site subtracted its own mean, so that the components show what varies within "
            "sites. How far the means of the sites are apart is not part of this result."
        )
        return Section("by-site", title, (removed,), (_draw_contributions(spread),))
    words = (
        "Sites may differ in their populations, instruments and batches, and a component may "
        "reflect nothing else. The first figure shows which fraction of its variance lies "
        "between the means of the sites; without real differences it would be about "
        f"{percent(spread.by_chance)}. If it is large, check "
        f"{'ancestry, genotyping' if spread.of_genotypes else 'units, calibration'} and "
        "recruitment.",
    )
    figures = (_draw_explained(spread), _draw_means(spread), _draw_contributions(spread))
    return Section("by-site", title, words, (*_warn_of_sites(report, spread), *figures))


def _warn_of_sites(report: Report, spread: SiteSpread) -> tuple[Notice, ...]:
    """Return a notice that names the components that reflect differences between sites.

    It also names the site that lies farthest away on each, and the features with the largest
    loadings, which is where to look first.
    """
    judged = [(p, s, *judge_component(spread, s, p)) for p, s in enumerate(spread.explained, 1)]
    large = [(place, part, words) for place, part, tone, words in judged if tone == "look"]
    if len(large) < 2:
        notices = tuple(
            Notice("look", f"{words} {_locate_difference(report, spread, place)}")
            for place, _, words in large
        )
        return notices + _advise_centre(spread)
    names = join_names([f"PC{place} ({percent(part)})" for place, part, _ in large], most=10)
    words = (
        f"{len(large)} components reflect differences between sites: {names}. Check "
        f"{spread.causes} before you interpret them."
    )
    where = " ".join(_locate_difference(report, spread, place) for place, _, _ in large[:_NAMED])
    return (Notice("look", f"{words} {where}"), *_advise_centre(spread))


def _advise_centre(spread: SiteSpread) -> tuple[Notice, ...]:
    """Return what is left of the components within sites, and how to compute those alone."""
    large = [(place, part) for place, part in enumerate(spread.explained, 1) if part >= MOSTLY]
    if not large or spread.of_genotypes:  # they are always centred by their frequencies
        return ()
    within = join_names([f"{percent(1.0 - part)} of PC{place}" for place, part in large], most=10)
    words = (
        f"Within sites lies {within}. If the differences are of no interest, such as those of "
        'instruments, fit with center="site" (--center site): each site subtracts its own mean, '
        "and the components are those of what varies within sites."
    )
    return (Notice("plain", words),)


def _locate_difference(report: Report, spread: SiteSpread, place: int) -> str:
    site, shift = max(
        ((site, shifts[place - 1]) for site, shifts in spread.shift.items()),
        key=lambda entry: abs(entry[1]),
    )
    text = f"On PC{place}, {site} lies {shift:+.1f} standard deviations from the mean of all rows"
    if place > len(report.loadings):
        return f"{text}."
    features = [name for name, _ in report.loadings[place - 1].features[:_NAMED]]
    return f"{text}; its largest loadings are those of {join_names(features)}."


def _explain_missing(report: Report) -> str:
    if report.facts["privacy"] is not None:
        why = "this run released only figures with noise."
    elif report.facts["secure"]:
        why = "in this run only sums over all sites can be read."
    else:
        why = "this run did not request them."
    own = (
        "Each site's own page shows where that site lies. Compare these pages"
        if report.scores
        else "Each site can check its own rows with eigenfed project. Do so"
    )
    return (
        f"Comparing sites requires figures of single sites, and {why} {own} before you interpret "
        "a component: it may reflect nothing but differences between sites."
    )


def _draw_explained(spread: SiteSpread) -> Figure:
    parts = list(enumerate(spread.explained, start=1))
    items = [
        Bar(f"PC{p}", part, f"PC{p}: {percent(part)} of its variance lies between sites")
        for p, part in parts[:_SHOWN]
    ]
    place, worst = max(parts, key=lambda entry: entry[1])
    title = "Fraction of each component's variance between sites"
    svg = draw_bars(
        "explained",
        items,
        title=title,
        caption=f"The largest is that of PC{place}, {percent(worst)}. The dashed line is at 50 %.",
        high=1.0,
        format_value=lambda value: f"{100 * value:.0f} %",
        mark=0.5,
    )
    rows = tuple((f"PC{p}", part) for p, part in parts)
    head = ("component", "fraction between sites")
    return Figure(svg, (PageTable("explained-table", title, head, rows, True),))


def _draw_means(spread: SiteSpread) -> Figure:
    return _draw_by_component(
        "shift",
        spread.shift,
        title="Mean score of each site",
        caption="In standard deviations of all rows; 0 is the mean of all rows.",
        unit="mean in standard deviations",
        format_value=signed,
        full=2.0,
    )


def _draw_contributions(spread: SiteSpread) -> Figure:
    return _draw_by_component(
        "contribution",
        spread.contribution,
        title="Contribution of each site",
        caption="Fraction of the component's sum of squares that comes from the site's rows.",
        unit="fraction",
        format_value=lambda value: f"{100 * value:.0f} %",
        full=1.0,
    )


def _draw_by_component(
    name: str,
    values: Mapping[str, Sequence[float]],
    *,
    title: str,
    caption: str,
    unit: str,
    format_value: Callable[[float], str],
    full: float,
) -> Figure:
    k = len(next(iter(values.values())))
    drawn = [f"PC{p}" for p in range(1, min(k, COMPONENTS_SHOWN) + 1)]
    svg = draw_grid(
        name,
        list(values),
        drawn,
        [numbers[: len(drawn)] for numbers in values.values()],
        title=title,
        caption=caption,
        format_value=format_value,
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


def show_rows(report: Report) -> Section:
    """Show rows as points, for sites that agreed to it."""
    title = "Rows on the components"
    shown = report.shown_scores
    if not shown:
        return Section("rows", title, (_explain_hidden(report),), ())
    others = [site for site in report.facts["sites"] if site not in shown]
    words = [
        "Each point is a row of a site that agreed to show its rows. Groups that coincide with "
        "sites are not a finding; groups within every site may be one.",
    ]
    if others:
        where = "its own page" if len(others) == 1 else "their own pages"
        words.append(f"Not shown: {join_names(others)}. These rows are on {where} only.")
    return Section("rows", title, tuple(words), _draw_rows(shown))


def _explain_hidden(report: Report) -> str:
    if report.facts["privacy"] is not None:
        return (
            "Rows are not shown: the components are differentially private, but the scores of "
            "single rows are not."
        )
    own = "They are on the site's own page only" if report.scores else "None were stored"
    return (
        "The scores of single rows may be personal data, and no site has agreed to show them to "
        f"all. {own}. A site agrees with --share-scores, or with share_scores = true in its site "
        "file."
    )


def show_own_rows(site: str, scores: SiteScores) -> Section:
    """Show the rows of one site on its own page."""
    words: tuple[str, ...] = (
        "Each point is a row of this site; 0 is the mean of all rows of all sites. If all points "
        "lie far from 0, this site differs from the others. Check single points that lie far from "
        "the rest: the table below names the farthest.",
    )
    if scores.groups:
        words = (
            *words,
            "Colours are the labels of the rows, which no other page shows and which are not among "
            "the features. Where they lie apart, a component follows the label, or something that "
            "goes along with it.",
        )
    drawn = _draw_rows(scores.groups, by="label") if scores.groups else _draw_rows({site: scores})
    parts = (*drawn, _list_far_rows(scores))
    return Section("rows", "Rows on the components", words, parts)


def _list_far_rows(scores: SiteScores) -> PageTable:
    named = scores.ids is not None and len(scores.ids) == scores.rows
    return PageTable(
        "far-table",
        f"The {len(scores.far)} rows farthest from the mean of all rows, on all components",
        (*(("id",) if named else ()), "row", "distance in standard deviations"),
        tuple(
            (*((scores.ids[row],) if named and scores.ids else ()), row + 1, distance)
            for row, distance in scores.far
        ),
    )


def show_feature_means(site: str, scores: SiteScores) -> tuple[Section, ...]:
    """Show the features whose mean at one site differs most from that of all rows."""
    if not scores.means:
        return ()
    words = (
        "The mean of a feature at this site less the mean of all rows, in standard deviations of "
        "this site. A large difference of one feature alone is often one of units or of "
        "instruments. The site's means are on this page only."
    )
    table = PageTable(
        "feature-means-table",
        f"The {len(scores.means)} features of {site} that differ most",
        ("feature", "difference of the means in standard deviations"),
        tuple(scores.means.items()),
        folded=len(scores.means) > _SHOWN,
    )
    return (Section("feature-means", "Means of features", (words,), (table,)),)


def show_missing(site: str, scores: SiteScores) -> tuple[Section, ...]:
    """Show how many entries of each feature are missing at one site, if some are."""
    counts = sorted(scores.missing.items(), key=lambda entry: (-entry[1], entry[0]))
    if not counts:
        return ()
    total = sum(number for _, number in counts)
    verb = "is" if total == 1 else "are"
    words = (
        f"{things(total, 'entry')} of {things(len(counts), 'feature')} {verb} missing and counted "
        "as the mean of the feature over all sites. A feature that is mostly missing here shows "
        "little about these rows."
    )
    table = PageTable(
        "missing-table",
        f"Missing entries of {site} by feature",
        ("feature", "missing", "fraction of rows"),
        tuple((name, number, number / max(scores.rows, 1)) for name, number in counts[:_MISSING]),
        folded=len(counts) > _SHOWN,
    )
    return (Section("missing", "Missing entries", (words,), (table,)),)


def _draw_rows(shown: Mapping[str, SiteScores], by: str = "site") -> tuple[Part, ...]:
    drawn = thin_points(shown)
    width = next(iter(drawn.values())).shape[1]
    table = PageTable(
        "points-table",
        "Mean and standard deviation of the scores",
        (by, "rows", "drawn", "component", "mean", "standard deviation"),
        tuple(
            (site, found.rows, len(drawn[site]), f"PC{place}", mean, sd)
            for site, found in shown.items()
            for place, mean, sd in _list_moments(found, width)
        ),
        folded=True,
    )
    if width < 2:
        alone = Notice("plain", "With one component there is no second axis for a plot of rows.")
        return alone, table
    counts = [found.rows for found in shown.values()]
    number = sum(map(len, drawn.values()))
    caption = f"{count(number)} of {things(sum(counts), 'row')}, initially on PC1 and PC2."
    figure = Figure(draw_points(drawn, title="Rows as points", caption=caption), (table,))
    axes = tuple(f"PC{p}" for p in range(1, width + 1))
    parts: list[Part] = [Points(figure, axes, tuple(drawn), len(drawn) <= COLOURS, by)]
    if number < sum(counts):
        parts.append(
            Notice(
                "plain",
                f"{count(number)} of {count(sum(counts))} rows are drawn, evenly spaced in the "
                "order of each site, to keep the page small.",
            )
        )
    return tuple(parts)


def _list_moments(found: SiteScores, width: int) -> list[tuple[int, float, float]]:
    pairs = zip(found.mean.tolist(), found.sd.tolist(), strict=True)
    return [(place, mean, sd) for place, (mean, sd) in enumerate(list(pairs)[:width], start=1)]


def show_own_means(report: Report, site: str, scores: SiteScores) -> Section:
    """Compare the scores of one site with all rows, on its own page."""
    spread = [max(c.variance, 0.0) ** 0.5 for c in report.components]
    means = scores.mean.tolist()
    shift = [m / s if s else 0.0 for m, s in zip(means, spread, strict=True)]
    ratio = [(sd / s) ** 2 if s else 0.0 for sd, s in zip(scores.sd.tolist(), spread, strict=True)]
    drawn = [
        Bar(
            f"PC{p}", value, f"PC{p}: {signed(value)} standard deviations from the mean of all rows"
        )
        for p, value in enumerate(shift[:_SHOWN], start=1)
    ]
    furthest = max(range(len(shift)), key=lambda at: abs(shift[at]))
    svg = draw_bars(
        "own-shift",
        drawn,
        title=f"Mean score of {site}",
        caption="In standard deviations of all rows. Farthest from 0 on "
        f"PC{furthest + 1}: {signed(shift[furthest])}.",
    )
    table = PageTable(
        "own-table",
        "Mean and variance of this site's scores, compared with all rows",
        (
            "component",
            "mean",
            "variance",
            "mean in standard deviations of all rows",
            "variance relative to all rows",
        ),
        tuple(
            (f"PC{p}", mean, sd**2, moved, wide)
            for p, (mean, sd, moved, wide) in enumerate(
                zip(means, scores.sd.tolist(), shift, ratio, strict=True), start=1
            )
        ),
        folded=True,
    )
    words = (
        "Computed from this site's own scores, which no other site has: how far its mean is from "
        "the mean of all rows, in standard deviations of all rows, and the ratio of its variance "
        "to that of all rows. If the mean is more than one standard deviation away, the component "
        "may reflect a difference between this site and the others.",
    )
    return Section("own", "This site compared with all sites", words, (Figure(svg, (table,)),))
