"""The sections on what was computed, its results and their accuracy."""

import math
from typing import Any

from eigenfed.protocol.method import all_methods
from eigenfed.report.accuracy_verdict import judge_accuracy
from eigenfed.report.figures import Bar, draw_angles, draw_bars, draw_scree
from eigenfed.report.model import COMPONENTS_SHOWN, Loadings, Report
from eigenfed.report.page_elements import (
    Facts,
    Figure,
    Notice,
    PageTable,
    Panels,
    Part,
    Section,
)
from eigenfed.report.prepared_section import describe_features, describe_scale
from eigenfed.report.sampling_section import describe_edge, describe_turns, list_turns
from eigenfed.report.verdicts import HIDDEN, is_rest_hidden
from eigenfed.report.wording import (
    PLACES,
    angle,
    count,
    describe_basis,
    describe_missing,
    explain_no_variance,
    join_names,
    name_method,
    number,
    percent,
    size,
    things,
)

_DRAWN = 20
"""Components in a figure; the table behind it has all."""
_LEAST_FEATURES = 3
_DOMINATES = 0.9
"""Squared loading from which a component is called one feature."""


_CENTRES = {
    True: "yes, by the mean of all rows",
    False: "no",
    "site": "yes, each site by its own mean: components of what varies within sites",
}


def show_run(report: Report) -> Section:
    """Show what was computed, with which settings, and over which sites."""
    facts = report.facts
    lost = sorted({site for round_ in report.rounds for site in round_.lost})
    about = (("Study", facts["study"]), ("Date", facts["date"]), ("Run", facts["run"]))
    items = [
        *((name, value) for name, value in about if value is not None),
        ("Sites", f"{len(facts['sites'])}: {join_names(facts['sites'], most=60)}"),
        ("Rows", count(facts["n"])),
        ("Features", describe_features(facts)),
        ("Components", str(facts["k"])),
        ("Method", _describe_method(facts)),
        ("Centred", _CENTRES[facts["center"]]),
        ("Scaled", describe_scale(facts)),
        ("Rounds", str(facts["rounds"])),
        (
            "Traffic",
            f"{size(facts['bytes_up'])} from the sites, {size(facts['bytes_down'])} to them",
        ),
    ]
    if (missing := describe_missing(facts)) is not None:
        items.append(("Missing", missing))
    if facts["engine"] in PLACES:
        items.append(("Place", PLACES[facts["engine"]]))
    if lost:
        items.append(("Did not answer a request", join_names(lost, most=60)))
    split = facts["split"] == "samples"
    held = "different rows of the same features" if split else "different features of the same rows"
    table = PageTable(
        "sites-table",
        "Rows and traffic per site",
        ("site", "rows", "replies", "bytes sent", "bytes received"),
        tuple(
            (s.name, _rows(s.rows, facts), s.replies, s.bytes_up, s.bytes_down)
            for s in report.sites
        ),
        folded=len(report.sites) > 12,
    )
    words = (
        f"The sites hold {held}, and computed one principal component analysis without pooling "
        "them. Check the sites and the numbers of rows first: if they are not what you expect, the "
        "rest of this page is about other data.",
    )
    return Section("computed", "What was computed", words, (Facts(tuple(items)), table))


def _describe_method(facts: dict[str, Any]) -> str:
    """Return the method with its options, its summary, and why it was used."""
    named = name_method(facts["method"], facts["asked"]["options"])
    known = all_methods().get(facts["method"])
    summary = "" if known is None else f": {known.summary}"
    return f"{named}{summary} ({facts['reason']})"


def _rows(rows: float | None, facts: dict[str, Any]) -> float | str:
    """Return a number of rows as an integer, unless rows have weights.

    Sites disclose it to the coordinator except where only sums over all sites can be read; under
    privacy, except where the number of rows is private.
    """
    if rows is None:
        terms = facts["asked"]["privacy"]
        hidden = facts["secure"] if terms is None else terms.get("count") == "private"
        return "not disclosed" if hidden else "not listed"
    return int(rows) if float(rows).is_integer() else rows


def show_variance(report: Report) -> Section:
    """Show the variances of the components."""
    total, k = report.facts["total_variance"], report.facts["k"]
    first, together = report.components[0], percent(report.components[-1].cumulative)
    together = f", {'both' if k == 2 else f'all {k}'} together {together}" if k > 1 else ""
    words = [
        f"The total variance is {number(total)}. The first component explains "
        f"{percent(first.fraction)} of it{together}. Where the bars level off, further components "
        "are hardly more than noise. If the last bar is still tall, request more components."
        if total
        else explain_no_variance(report.facts).capitalize(),
        *describe_edge(report.facts),
    ]
    if report.facts["privacy"] is not None:
        words.append("These are the released variances, with noise.")
    if is_rest_hidden(report.facts):
        words.append(HIDDEN)
    table = PageTable(
        "scree-table",
        "Variance by component",
        ("component", "variance", "fraction of total", "cumulative"),
        tuple((f"PC{c.place}", c.variance, c.fraction, c.cumulative) for c in report.components),
        folded=True,
    )
    edge = report.facts["noise_edge"]
    scree = draw_scree(
        report.components,
        total,
        further=report.facts["further"],
        exact=report.facts["further_exact"],
        edge=None if edge is None else edge["variance"],
    )
    figure = Figure(scree, (table,))
    parts: tuple[Part, ...] = (figure, *_list_further(report.facts))
    return Section("variance", "Explained variance", tuple(words), parts)


def _list_further(facts: dict[str, Any]) -> list[PageTable]:
    """Return the table of variances after those of the components, if some are known."""
    if not facts["further"]:
        return []
    kind = "" if facts["further_exact"] else ", lower bounds"
    rows = tuple((f"PC{p}", v) for p, v in enumerate(facts["further"], start=facts["k"] + 1))
    caption = f"Variances of further components{kind}"
    return [PageTable("further-table", caption, ("component", "variance"), rows, folded=True)]


def show_loadings(report: Report) -> Section:
    """Show the largest loadings of each component."""
    words = [
        "A component is a weighted sum of the features. Its weights are called loadings; their "
        "squares sum to 1. The overall sign of a component is arbitrary. If a single feature "
        "dominates a component, check its unit, or scale the features."
    ]
    if not report.facts["named"]:
        words.append("The features have no names: x0 is the first column.")
    if report.facts["k"] > COMPONENTS_SHOWN:
        words.append(
            f"Shown are the first {COMPONENTS_SHOWN} of {report.facts['k']} components; "
            "components.npy has all."
        )
    d = report.facts["d"]
    figures = tuple((f"PC{found.place}", _draw_loadings(found, d)) for found in report.loadings)
    parts: tuple[Part, ...] = (*_warn_of_features(report), Panels("loadings", "Component", figures))
    return Section("loadings", "Loadings", tuple(words), parts)


def _warn_of_features(report: Report) -> list[Notice]:
    """Return a notice that names components that are nearly one feature each."""
    single = [
        f"PC{found.place} is {percent(found.features[0][1] ** 2)} {found.features[0][0]}"
        for found in report.loadings
        if found.features[0][1] ** 2 >= _DOMINATES
        and report.components[found.place - 1].variance > 0.0
    ]
    if not single or report.facts["d"] < _LEAST_FEATURES:
        return []
    one = len(single) == 1
    remedy = (
        f"Check whether {'it is' if one else 'one of them is'} an identifier, an outlier or a rare "
        "category."
        if report.facts["scale"]
        else f"Check whether {'it is' if one else 'one of them is'} an identifier or has a smaller "
        "unit than the others, and scale the features if so."
    )
    return [Notice("look", f"{join_names(single)}. {remedy}")]


def _draw_loadings(found: Loadings, d: int) -> Figure:
    name, place = f"loadings-{found.place}", f"PC{found.place}"
    largest, weight = found.features[0]
    items = [Bar(n, w, f"{n}: {w:.4g}, {percent(w * w)} of {place}") for n, w in found.features]
    which = f"The {len(items)} largest of {count(d)} loadings"
    if len(items) == d:
        which = f"All {things(d, 'feature')}" if d > 1 else "The only feature"
    svg = draw_bars(
        name,
        items,
        title=f"Largest loadings of {place}",
        caption=f"{which}. The largest is that of {largest}, {weight:.3g}.",
    )
    rows = tuple((n, w, w * w) for n, w in found.features)
    head = ("feature", "loading", "squared loading")
    return Figure(svg, (PageTable(f"{name}-table", f"Loadings of {place}", head, rows, True),))


def show_accuracy(report: Report) -> Section:
    """Show how the run converged, and what the certificate proves."""
    facts, certificate = report.facts, report.facts["certificate"]
    verdict = judge_accuracy(report)
    words = [f"{verdict.value.capitalize()}. {verdict.words}"]
    if certificate is not None:
        words.append(
            "The angle of each component to the eigenvector that it approximates is estimated from "
            "its residual and the distance to the neighbouring eigenvalues. The bound holds for "
            "all components together, as a subspace: it follows from the residuals and from an "
            "upper bound on the next eigenvalue. It is rigorous, or holds with the probability "
            "given, over the random start of the run. Do not interpret a component that did not "
            "converge: its direction may still change."
        )
    if facts["privacy"] is not None:
        words.append(
            "These figures are about the matrix with noise. "
            + (
                "How much signal noise has left is estimated below: a component near 0 % is noise, "
                "whatever its variance."
                if facts["signal"]
                else "How far noise has moved the components is not part of them."
            )
        )
    turns = describe_turns(facts)
    words += [] if turns is None else [turns]
    curve = draw_angles(report.rounds, _find_largest(certificate), facts["asked"]["tol"])
    known = all_methods().get(facts["method"])
    if curve is None and known is not None and not known.iterates:
        words.append(
            "This method computes the components directly from the replies, without iterations, so "
            "there is no convergence curve."
        )
    parts: list[Part] = [] if facts["signal"] is None else [_draw_signal(facts["signal"])]
    if certificate is not None:
        parts += [_list_bounds(certificate), _make_angle_table(certificate)]
    parts += list_turns(facts)
    table = _make_round_table(report)
    parts.append(table if curve is None else Figure(curve, (table,)))
    return Section("convergence", "Convergence and accuracy", tuple(words), tuple(parts))


def _draw_signal(signal: list[float]) -> Figure:
    named = [(f"PC{place}", part) for place, part in enumerate(signal, start=1)]
    svg = draw_bars(
        "signal",
        [Bar(name, part, f"{name}: {percent(part)} kept") for name, part in named[:_DRAWN]],
        title="Signal kept by each component",
        caption="Estimated squared cosine with the component without noise; the smallest is "
        f"{percent(min(signal))}.",
        high=1.0,
        format_value=lambda value: f"{100 * value:.0f} %",
    )
    head = ("component", "squared cosine with the component without noise")
    table = PageTable("signal-table", "Signal kept", head, tuple(named), folded=True)
    return Figure(svg, (table,))


def _list_bounds(certificate: dict[str, Any]) -> Facts:
    bounds = (
        ("Bound on the angle", certificate["angle_bound"]),
        ("Estimate of the angle", certificate["angle_estimate"]),
    )
    items = [
        (name, "none: the next eigenvalue is too close" if value is None else angle(value))
        for name, value in bounds
    ]
    if certificate["angle_bound"] is not None:
        items.insert(1, ("The bound holds", describe_basis(certificate["failure"])))
    if None not in certificate["residuals"]:
        items.append(("Largest residual", f"{max(certificate['residuals']):.2e}"))
    items.append(("Error of orthonormality", f"{certificate['orthonormality']:.2e}"))
    return Facts(tuple(items))


def _find_largest(certificate: dict[str, Any] | None) -> float | None:
    """Return the largest estimated angle, in degrees, if all are finite."""
    angles = None if certificate is None else certificate["angles"]
    return None if angles is None or None in angles else math.degrees(max(angles))


def _make_angle_table(certificate: dict[str, Any]) -> PageTable:
    residuals, converged = certificate["residuals"], certificate["converged"]
    angles = certificate["angles"] or [None] * len(residuals)
    degrees = [None if angle is None else math.degrees(angle) for angle in angles]
    graded = zip(degrees, residuals, converged, strict=True)
    return PageTable(
        "angle-table",
        "Accuracy by component",
        ("component", "estimated angle in degrees", "residual", "converged"),
        tuple((f"PC{place}", *row) for place, row in enumerate(graded, 1)),
        folded=True,
    )


def _make_round_table(report: Report) -> PageTable:
    return PageTable(
        "round-table",
        "Requests, traffic and angle by round",
        ("round", "request", "bytes to sites", "bytes from sites", "degrees before", "no answer"),
        tuple(
            (
                r.place,
                r.op,
                r.bytes_down,
                r.bytes_up,
                "-" if r.angle is None else r.angle,
                ", ".join(r.lost) or "-",
            )
            for r in report.rounds
        ),
        folded=True,
    )
