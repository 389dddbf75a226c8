"""Conditions say the same in Python and as JSON schema."""

from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from eigenfed.study.config.conflicts import Condition, Conflict, below, equals, given

CONDITIONS = [
    given("a"),
    given("t.a"),
    equals("a", True),
    equals("t.a", "x", "y"),
    below("a", 3),
    below("t.a", 3),
]
VALUES: tuple[Any, ...] = (True, False, "x", "z", 2, 2.5, 3, ["x"], ["x", "y", "z"], {"b": 1})
DATA = [{}, {"t": {}}, *({"a": v} for v in VALUES), *({"t": {"a": v}} for v in VALUES)]


def can_compare(condition: Condition, data: dict[str, Any]) -> bool:
    """Leave out what a rule of the key itself has refused before."""
    value = data.get("a", data.get("t", {}).get("a"))
    is_size = isinstance(value, int | float | list) and not isinstance(value, bool)
    is_below = "maxItems" in condition.schema()
    return value is None or not is_below or is_size


@pytest.mark.parametrize("condition", [*CONDITIONS, *(~c for c in CONDITIONS)])
def test_a_condition_is_the_same_as_its_schema(condition: Condition) -> None:
    oracle = Draft202012Validator(condition.to_schema())
    verdicts = set()
    for data in DATA:
        if can_compare(condition, data):
            assert condition.holds(data) == oracle.is_valid(data), data
            verdicts.add(condition.holds(data))
    assert verdicts == {True, False}


def test_a_conflict_needs_all_of_its_conditions() -> None:
    conflict = Conflict((given("a"), ~given("t")), "Not together.")
    oracle = Draft202012Validator(conflict.to_schema())
    for data, applies in (({}, False), ({"a": 1}, True), ({"a": 1, "t": {}}, False)):
        assert conflict.applies(data) == applies
        assert oracle.is_valid(data) != applies
