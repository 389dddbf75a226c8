"""The sections on what was found: variances, features, convergence."""

from typing import Any

from eigenfed.protocol.method import all_methods
from eigenfed.report.figures import Bar, bars, scree
from eigenfed.report.figures import convergence as residuals
from eigenfed.report.model import COMPONENTS_SHOWN, Loadings, Report
from eigenfed.report.page import Facts, Figure, Panels, Part, Section, Table
from eigenfed.report.verdicts import accuracy
from eigenfed.report.wording import angle, count, listed, number, percent, size

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
    table = Table(
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
    table = Table(
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
    return Figure(svg, (Table(f"{name}-table", f"Loadings of {place}", head, rows, True),))


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
                if facts["clarity"]
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
    parts: list[Part] = [] if facts["clarity"] is None else [_clarity(facts["clarity"])]
    parts += [] if grade is None else [_grade(grade), _residual_table(grade)]
    table = _round_table(report, folded=True)
    parts.append(table if curve is None else Figure(curve, (table,)))
    return Section("convergence", "How well it converged", tuple(words), tuple(parts))


def _clarity(clarity: list[float]) -> Figure:
    named = [(f"PC{place}", share) for place, share in enumerate(clarity, start=1)]
    svg = bars(
        "clarity",
        [Bar(name, share, f"{name}: {percent(share)} left") for name, share in named[:_DRAWN]],
        title="What noise has left of each component",
        says="Estimated squared cosine with the component without noise; the least is "
        f"{percent(min(clarity))}.",
        high=1.0,
        written=lambda value: f"{100 * value:.0f} %",
    )
    head = ("component", "squared cosine with the one without noise")
    table = Table("clarity-table", "What noise has left", head, tuple(named), folded=True)
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


def _residual_table(grade: dict[str, Any]) -> Table:
    graded = zip(grade["residuals"], grade["converged"], strict=True)
    return Table(
        "residual-table",
        "Residual by component",
        ("component", "residual", "converged"),
        tuple((f"PC{p}", residual, reached) for p, (residual, reached) in enumerate(graded, 1)),
        folded=True,
    )


def _round_table(report: Report, *, folded: bool) -> Table:
    return Table(
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
