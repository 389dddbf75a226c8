"""What a report says of the accuracy of components that follow from summaries of streams."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from eigenfed.report.accuracy_verdict import judge_accuracy
from eigenfed.report.model import Report
from eigenfed.report.wording import describe_unconverged


@pytest.mark.parametrize(
    ("bound", "converged", "value", "tone", "said"),
    [
        (1e-12, 2, "exact", "good", "within"),
        (0.1, 0, "within 5.7 degrees", "plain", "more directions in them"),
        (None, 0, "no bound", "look", "There is no bound on the angle"),
    ],
)
def test_summaries_are_judged_by_what_they_left_out(
    bound: float | None, converged: int, value: str, tone: str, said: str
) -> None:
    facts: dict[str, Any] = {
        "certificate": {"angle_bound": bound, "failure": 0.0},
        "k": 2,
        "privacy": None,
        "asked": {"options": {"max_summaries": 3}, "tol": 1e-4},
    }
    report = cast(Report, SimpleNamespace(facts=facts, converged=converged))
    verdict = judge_accuracy(report)
    assert (verdict.value, verdict.tone) == (value, tone)
    assert said in verdict.words
    assert "rounds" not in verdict.words


@pytest.mark.parametrize(
    ("converged", "said"),
    [
        ([True, True, False], "1 of 3 components is not known to be within the tolerance of 0.05"),
        ([True, False, False], "2 of 3 components are not known to be within the tolerance of"),
    ],
)
def test_a_component_without_a_bound_is_not_said_to_have_missed_the_tolerance(
    converged: list[bool], said: str
) -> None:
    certificate = {"angle_bound": None, "converged": converged}
    facts = {"certificate": certificate, "k": 3, "total_variance": 9.0, "asked": {"tol": 0.05}}
    text = describe_unconverged(facts)
    assert text.startswith(f"Not certified: there is no bound on the angle. {said}")
    assert "did not reach" not in text
