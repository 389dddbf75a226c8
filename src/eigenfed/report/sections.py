"""The first screen: what was found, how sure it is, what left, and what is only a site.

The sections on what was found: variances, features, convergence.
"""

from typing import Any

from eigenfed.protocol.method import all_methods
from eigenfed.report.figures import Bar, bars, scree
from eigenfed.report.figures import convergence as residuals
from eigenfed.report.model import COMPONENTS_SHOWN, Loadings, Report, SiteSpread
from eigenfed.report.page import (
    Facts,
    Figure,
    Notice,
    PageTable,
    PageVerdict,
    Panels,
    Part,
    Section,
    Tone,
)
from eigenfed.report.wording import (
    MOSTLY,
    PARTLY,
    angle,
    count,
    listed,
    number,
    percent,
    size,
    small_angle,
    things,
)


def verdicts(report: Report) -> tuple[PageVerdict, ...]:
    """Say in a few lines what the page says."""
    found = [held(report), accuracy(report), left(report)]
    if report.facts["signal"] is not None:
        found.append(noise(report.facts["signal"]))
    if report.by_site is not None:
        found.append(sites(report.by_site))
    return tuple(found)


def held(report: Report) -> PageVerdict:
    """Say how much of the variance the components hold."""
    cumulative = report.components[-1].cumulative
    k = report.facts["k"]
    words = (
        f"{things(k, 'component')} of {things(report.facts['d'], 'feature')}"
        f"{', with noise' if report.facts['privacy'] else ''}."
    )
    value = "not known" if cumulative is None else percent(min(cumulative, 1.0))
    return PageVerdict("Variance held", value, words, "plain")


def accuracy(report: Report) -> PageVerdict:
    """Say whether the components can be relied on as components."""
    grade, k = report.facts["certificate"], report.facts["k"]
    if grade is None or report.converged is None:
        words = "No certificate was made: nothing is known of how near the components are."
        return PageVerdict("Accuracy", "not graded", words, "look")
    of = " of the matrix with noise" if report.facts["privacy"] else ""
    bound = grade["angle_bound"]
    if report.converged < k:
        missing = k - report.converged
        words = (
            f"{things(missing, 'component')} of {k} did not reach the tolerance. Allow more "
            "rounds, or ask for fewer components."
        )
        return PageVerdict("Accuracy", "not converged", words, "look")
    if bound is None:
        words = (
            f"All components have converged{of}, but the next one is too near to the last for a "
            "bound on the angle: those two may mix."
        )
        return PageVerdict("Accuracy", "converged, no bound", words, "look")
    words = f"No direction is further than {small_angle(bound)} from the exact components{of}"
    if of:
        seen = "is estimated below" if report.facts["signal"] else "is not known"
        words = f"{words}. How far noise has moved those {seen}."
        return PageVerdict("Accuracy", "converged, with noise", words, "plain")
    return PageVerdict(
        "Accuracy", "converged", f"{words}, as if all rows were in one place.", "good"
    )


def noise(signal: list[float]) -> PageVerdict:
    """Say what noise has left of the components."""
    drowned = sum(share < MOSTLY for share in signal)
    words = "About so much of its direction without noise the least clear component keeps."
    if drowned:
        words = (
            f"{drowned} of {things(len(signal), 'component')} keep less than half of their "
            "direction without noise: do not interpret them. eigenfed plan says what would help."
        )
    value = f"{percent(min(signal))} left"
    return PageVerdict("Noise", value, words, "look" if drowned else "good")


def left(report: Report) -> PageVerdict:
    """Say what left the sites, in a word."""
    privacy = report.facts["privacy"]
    if privacy is not None and privacy["epsilon"] is None:
        words = "A published mechanism was run as printed; nothing is guaranteed for a row."
        return PageVerdict("What left the sites", "no guarantee", words, "look")
    if privacy is not None:
        value = f"private, epsilon {privacy['epsilon']:g}"
        words = (
            f"Everything released is differentially private for one {privacy['unit']}, at delta "
            f"{privacy['delta']:g}."
        )
        return PageVerdict("What left the sites", value, words, "good")
    if report.facts["secure"]:
        words = "Replies were masked: only their sum over all sites can be read, without noise."
        return PageVerdict("What left the sites", "secure sums", words, "good")
    return PageVerdict("What left the sites", "exact figures", _open_words(report), "plain")


def _open_words(report: Report) -> str:
    told = {kind.reveals for kind in report.left}
    what = "its whole covariance" if "scatter" in told else "figures about directions of its rows"
    rows = "No row left; each" if report.facts["split"] == "samples" else "Each"
    return f"{rows} site sent {what}, readable by the coordinator, without noise."


def sites(found: SiteSpread) -> PageVerdict:
    """Say whether a component is a site."""
    worst = max(found.explained)
    place = found.explained.index(worst) + 1
    tone, words = _site_words(found, worst, place)
    value = f"PC{place}: {percent(worst)}" if tone == "look" else f"at most {percent(worst)}"
    return PageVerdict("Between sites", value, words, tone)


def _site_words(found: SiteSpread, share: float, place: int) -> tuple[Tone, str]:
    if share >= MOSTLY:
        return (
            "look",
            f"PC{place} is {percent(share)} between sites: it tells sites apart. Look at units "
            "and calibration before calling it a finding.",
        )
    if share >= max(PARTLY, 3 * found.by_chance):
        return (
            "look",
            f"PC{place} is {percent(share)} between sites. Look at how they differ before calling "
            "it a finding.",
        )
    return "good", "No component tells the sites apart to speak of."


def site_notices(found: SiteSpread) -> tuple[Notice, ...]:
    """Say which components tell sites apart."""
    said = [(p, s, *_site_words(found, s, p)) for p, s in enumerate(found.explained, start=1)]
    looked = [(place, share, words) for place, share, tone, words in said if tone == "look"]
    if len(looked) < 2:
        return tuple(Notice("look", words) for _, _, words in looked)
    names = listed([f"PC{place} ({percent(share)})" for place, share, _ in looked], most=10)
    words = (
        f"{len(looked)} components tell sites apart: {names}. Look at units and calibration before "
        "calling them findings."
    )
    return (Notice("look", words),)


_DRAWN = 20
"""Components in a figure; the table behind it has all."""


def computed(report: Report) -> Section:
    """Say what was computed, and by whom."""
    facts = report.facts
    lost = sorted({site for round_ in report.rounds for site in round_.lost})
    items = [
        *([] if facts["study"] is None else [("Study", facts["study"])]),
        ("Sites", f"{len(facts['sites'])}: {listed(facts['sites'], most=60)}"),
        ("Rows", count(facts["n"])),
        ("Features", count(facts["d"]) + ("" if facts["named"] else ", without names")),
        ("Components", str(facts["k"])),
        ("Method", _method(facts)),
        ("Centred", "yes, about the mean of all rows" if facts["center"] else "no"),
        ("Scaled", "yes, by the deviation over all rows" if facts["scale"] else "no"),
        ("Rounds", str(facts["rounds"])),
        ("Sent", f"{size(facts['bytes_up'])} by the sites, {size(facts['bytes_down'])} to them"),
    ]
    if facts["engine"] == "in_process":
        items.append(("Run", "in one process, which held the rows of all sites"))
    if lost:
        items.append(("Did not answer an ask", listed(lost, most=60)))
    split = facts["split"] == "samples"
    held = "different rows of the same features" if split else "different features of the same rows"
    table = PageTable(
        "sites-table",
        "Sites: rows where they were told, replies, and bytes",
        ("site", "rows", "replies", "bytes sent", "bytes received"),
        tuple((s.name, _told(s.rows), s.replies, s.bytes_up, s.bytes_down) for s in report.sites),
        folded=len(report.sites) > 12,
    )
    words = (
        f"Sites with {held} computed one principal component analysis without putting their rows "
        "in one place. If a site or a number of rows is not what you expect, stop here: the rest "
        "of the page is about other data than you think.",
    )
    return Section(
        "computed", "What was computed, and by whom", words, (Facts(tuple(items)), table)
    )


def _method(facts: dict[str, Any]) -> str:
    """Name the method, with its options, and tell what it does and why it was taken."""
    asked = facts["asked"]
    given = [f"{option} = {value}" for option, value in asked["options"].items()]
    named = f"{facts['method']} with {', '.join(given)}" if given else facts["method"]
    known = all_methods().get(facts["method"])
    summary = "" if known is None else f": {known.summary}"
    return f"{named}{summary} ({facts['reason']})"


def _told(rows: float | None) -> float | str:
    """Write rows without a point where they have no weights."""
    if rows is None:
        return "not told"
    return int(rows) if float(rows).is_integer() else rows


def variance(report: Report) -> Section:
    """Show the scree."""
    total = report.facts["total_variance"]
    last = report.components[-1]
    words = [
        f"The total variance is {number(total)}. The first component holds "
        f"{percent(report.components[0].share)} of it, all {report.facts['k']} together "
        f"{percent(last.cumulative)}. Where the bars level off, further components are hardly "
        "more than noise; if even the last is tall, ask for more components."
    ]
    if report.facts["privacy"] is not None:
        words.append("These are variances with noise, as they were released.")
    table = PageTable(
        "scree-table",
        "Variance by component",
        ("component", "variance", "share of total", "summed up"),
        tuple((f"PC{c.place}", c.variance, c.share, c.cumulative) for c in report.components),
        folded=True,
    )
    figure = Figure(scree(report.components, total), (table,))
    return Section("variance", "How much variance the components hold", tuple(words), (figure,))


def loadings(report: Report) -> Section:
    """Show which features weigh most."""
    words = [
        "A component is a weighted sum of features. These are the features with the largest "
        "weights; the squares of all weights of a component add up to 1. Signs matter only "
        "relative to each other. If one feature carries a component alone, look at its unit, or "
        "scale the features."
    ]
    if not report.facts["named"]:
        words.append("The features have no names: x0 is the first column.")
    if report.facts["k"] > COMPONENTS_SHOWN:
        words.append(
            f"Shown are the first {COMPONENTS_SHOWN} of {report.facts['k']} components; "
            "components.npy has all."
        )
    figures = tuple((f"PC{found.place}", _loadings(found)) for found in report.loadings)
    parts = (Panels("loadings", "Component", figures),)
    return Section("loadings", "What the components are made of", tuple(words), parts)


def _loadings(found: Loadings) -> Figure:
    name, place = f"loadings-{found.place}", f"PC{found.place}"
    first = found.features[0]
    items = [Bar(n, w, f"{n}: {w:.4g}, {percent(w * w)} of {place}") for n, w in found.features]
    svg = bars(
        name,
        items,
        title=f"Largest loadings of {place}",
        says=f"{len(items)} features; the largest is {first[0]} with {first[1]:.3g}.",
    )
    rows = tuple((n, w, w * w) for n, w in found.features)
    head = ("feature", "loading", "share of the component")
    return Figure(svg, (PageTable(f"{name}-table", f"Loadings of {place}", head, rows, True),))


def convergence(report: Report) -> Section:
    """Show how the run came to its end, and what the certificate says."""
    facts, grade = report.facts, report.facts["certificate"]
    verdict = accuracy(report)
    words = [f"{verdict.value.capitalize()}. {verdict.words}"]
    if grade is not None:
        words.append(
            "The residual of a component says how far it is from solving its equation, relative "
            "to the first variance. The bound on the angle follows from the residuals, from the "
            "gap to the next component, and from the largest variance that each site has left "
            "outside. A component that did not converge may still turn: do not interpret it."
        )
    if facts["privacy"] is not None:
        words.append(
            "All of this is about the matrix with noise. How far noise has moved the components "
            + (
                "is estimated from it: near 0 a component is noise, whatever its variance."
                if facts["signal"]
                else "from those of the rows is not in it."
            )
        )
    final = None if grade is None else max(grade["residuals"])
    curve = residuals(report.rounds, final, facts["asked"]["tol"])
    if curve is None:
        words.append(
            "This method gets its components in one go from what the sites sent: there is no "
            "iteration to watch."
        )
    parts: list[Part] = [] if facts["signal"] is None else [_signal(facts["signal"])]
    parts += [] if grade is None else [_grade(grade), _residual_table(grade)]
    table = _round_table(report, folded=True)
    parts.append(table if curve is None else Figure(curve, (table,)))
    return Section("convergence", "How well it converged", tuple(words), tuple(parts))


def _signal(signal: list[float]) -> Figure:
    named = [(f"PC{place}", share) for place, share in enumerate(signal, start=1)]
    svg = bars(
        "signal",
        [Bar(name, share, f"{name}: {percent(share)} left") for name, share in named[:_DRAWN]],
        title="What noise has left of each component",
        says="Estimated squared cosine with the component without noise; the least is "
        f"{percent(min(signal))}.",
        high=1.0,
        written=lambda value: f"{100 * value:.0f} %",
    )
    head = ("component", "squared cosine with the one without noise")
    table = PageTable("signal-table", "What noise has left", head, tuple(named), folded=True)
    return Figure(svg, (table,))


def _grade(grade: dict[str, Any]) -> Facts:
    bounds = (
        ("Bound on the angle", grade["angle_bound"]),
        ("Estimate of the angle", grade["angle_estimate"]),
    )
    items = [
        (name, "none: the next component is too near" if value is None else angle(value))
        for name, value in bounds
    ]
    items.append(("Largest residual", f"{max(grade['residuals']):.2e}"))
    items.append(("Departure from orthonormal", f"{grade['orthonormality']:.2e}"))
    return Facts(tuple(items))


def _residual_table(grade: dict[str, Any]) -> PageTable:
    graded = zip(grade["residuals"], grade["converged"], strict=True)
    return PageTable(
        "residual-table",
        "Residual by component",
        ("component", "residual", "converged"),
        tuple((f"PC{p}", residual, reached) for p, (residual, reached) in enumerate(graded, 1)),
        folded=True,
    )


def _round_table(report: Report, *, folded: bool) -> PageTable:
    return PageTable(
        "round-table",
        "Rounds: what was asked, bytes to and from all sites, and the residual before",
        ("round", "ask", "bytes down", "bytes up", "residual before", "did not answer"),
        tuple(
            (r.place, r.op, r.bytes_down, r.bytes_up, _known(r.residual), ", ".join(r.lost) or "-")
            for r in report.rounds
        ),
        folded=folded,
    )


def _known(residual: float | None) -> float | str:
    return "-" if residual is None else residual
