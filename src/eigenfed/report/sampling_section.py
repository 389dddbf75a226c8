"""What follows from the number of rows: components above noise, and turns in another sample."""

import math
from typing import Any

from eigenfed.report.page_elements import PageTable
from eigenfed.report.prepared_section import is_scaled
from eigenfed.report.wording import angle, number, percent, things


def describe_edge(facts: dict[str, Any]) -> list[str]:
    """Return sentences on how many components stand above noise; none if it is unknown.

    Examples
    --------
    >>> edge = {"variance": 1.12, "noise": 1.0, "above": 3, "all_above": False}
    >>> facts = {"noise_edge": edge, "remaining_noise_edge": edge | {"above": 5}, "k": 4}
    >>> facts |= {"scale": True, "prepare": None, "total_variance": 7.0}
    >>> words = describe_edge(facts)
    >>> print(words[0])
    3 components stand above the edge of noise, a variance of 1.12 (16 % of the total). Of the 4
    requested, 1 does not.
    """
    edge, remaining = facts["noise_edge"], facts["remaining_noise_edge"]
    if edge is None or remaining is None:
        return []
    fraction = edge["variance"] / facts["total_variance"]
    first = (
        f"{_count_components(edge)} above the edge of noise, a variance of "
        f"{number(edge['variance'])} ({percent(fraction)} of the total)."
    )
    if edge["above"] < facts["k"]:
        below = facts["k"] - edge["above"]
        first += f" Of the {facts['k']} requested, {below} {'does' if below == 1 else 'do'} not."
    words = [
        first,
        "The edge is the largest variance of a component if the features were independent, with "
        "the same total variance; noise exceeds it in 5 of 100 samples of this size (parallel "
        "analysis, by the Tracy-Widom law). Tested one after the other against the variance that "
        f"remains, {_count_remaining(remaining)}. Both rules assume independent rows; a component "
        "above them need not be of interest.",
    ]
    if not is_scaled(facts):
        words.append(
            "The features were not scaled: if their units differ, a feature in a small unit stands "
            "above the edge for that reason alone."
        )
    return words


def _count_components(edge: dict[str, Any]) -> str:
    if not edge["above"]:
        return "No component stands"
    least = "At least " if edge["all_above"] else ""
    verb = "stands" if edge["above"] == 1 else "stand"
    return f"{least}{things(edge['above'], 'component')} {verb}"


def _count_remaining(edge: dict[str, Any]) -> str:
    if not edge["above"]:
        return "none differs from noise"
    least = "at least " if edge["all_above"] else ""
    verb = "differs" if edge["above"] == 1 else "differ"
    return f"{least}{things(edge['above'], 'component')} {verb} from noise of equal variance"


def describe_turns(facts: dict[str, Any]) -> str | None:
    """Return a sentence on the largest turn in another sample, or None if it is unknown."""
    turns = facts["sampling_angles"]
    if turns is None:
        return None
    known = [turn for turn in turns if turn < math.pi / 2]
    text = (
        "The bound is about these rows. Another sample of as many rows from the same populations "
        "would turn the components too: see the table below, an estimate for independent and "
        "roughly normal rows (Anderson 1963)."
    )
    if len(known) < len(turns):
        missing = things(len(turns) - len(known), "component")
        return f"{text} {missing} would not be found again."
    return f"{text} The largest turn is about {angle(max(known))}."


def list_turns(facts: dict[str, Any]) -> list[PageTable]:
    """Return the table of turns in another sample, if they are known.

    With a certificate it has an interval for the angle between each component and that of the
    population: up to the turn that 95 of 100 samples stay below, plus the error of the computation.
    """
    turns, bounds = facts["sampling_angles"], facts["confidence_angles"]
    if turns is None:
        return []
    head: tuple[str, ...] = ("component", "typical turn in degrees")
    rows: list[tuple[float | str, ...]] = [
        (f"PC{place}", _format_turn(turn)) for place, turn in enumerate(turns, start=1)
    ]
    if bounds is not None:
        head = (*head, "95 % interval with the certificate, in degrees")
        rows = [(*row, _format_interval(bound)) for row, bound in zip(rows, bounds, strict=True)]
    title = "Estimated angle of each component to that of another sample of as many rows"
    return [PageTable("turn-table", title, head, tuple(rows), folded=True)]


def _format_turn(turn: float) -> float | str:
    return math.degrees(turn) if turn < math.pi / 2 else "not determined"


def _format_interval(bound: float) -> str:
    return f"0 to {math.degrees(bound):.3g}" if bound < math.pi / 2 else "not determined"
