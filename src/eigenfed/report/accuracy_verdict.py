"""The verdict on the accuracy of the components."""

from typing import Any

from eigenfed.report.model import Report
from eigenfed.report.page_elements import PageVerdict
from eigenfed.report.wording import (
    describe_basis,
    describe_clear,
    describe_unconverged,
    small_angle,
)


def judge_accuracy(report: Report) -> PageVerdict:
    """Return whether the components have converged, and how accurate they are."""
    certificate, k = report.facts["certificate"], report.facts["k"]
    if certificate is None or report.converged is None:
        words = "No certificate was computed, so the accuracy of the components is unknown."
        return PageVerdict("Accuracy", "not certified", words, "look")
    private = report.facts["privacy"] is not None
    bound = certificate["angle_bound"]
    if "max_summaries" in report.facts["asked"]["options"]:
        return _judge_summaries(certificate, k - report.converged)
    clear = describe_clear(report.facts)
    if clear is not None:
        return PageVerdict("Accuracy", f"{report.converged} of {k} converged", clear, "plain")
    if report.converged < k:
        words = describe_unconverged(report.facts)
        return PageVerdict("Accuracy", "not converged", words, "look")
    if bound is None:
        words = (
            f"Not certified: all components converged"
            f"{' on the matrix with noise' if private else ''}, but the next eigenvalue is too "
            "close for a bound on the angle: the last component may mix with the next."
        )
        return PageVerdict("Accuracy", "converged, no bound", words, "look")
    basis = describe_basis(certificate["failure"])
    within = f"The components are within {small_angle(bound)} ({basis}) of those of"
    if private:
        effect = "is estimated below" if report.facts["signal"] else "is unknown"
        words = f"{within} the matrix with noise. How far noise has moved them {effect}."
        return PageVerdict("Accuracy", "converged, with noise", words, "plain")
    return PageVerdict("Accuracy", "converged", f"{within} all rows in one table.", "good")


def _judge_summaries(certificate: dict[str, Any], inaccurate: int) -> PageVerdict:
    """Return how accurate components are that follow from summaries of streams."""
    bound, name = certificate["angle_bound"], "Accuracy"
    remedy = (
        "It follows from what the summaries left out: more directions in them, by -k of eigenfed "
        "stream and by oversample of the method, make it smaller."
    )
    if bound is None:
        words = (
            f"There is no bound on the angle between the components and those of all rows. {remedy}"
        )
        return PageVerdict(name, "no bound", words, "look")
    basis = describe_basis(certificate["failure"])
    within = f"within {small_angle(bound)}"
    words = f"The components are {within} ({basis}) of those of all rows in one table."
    if not inaccurate:
        return PageVerdict(name, "exact", words, "good")
    return PageVerdict(name, within, f"{words} {remedy}", "plain")
