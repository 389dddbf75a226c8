"""Types of values: numbers as JSON schema has them, and rules in words."""

from typing import Any

import pytest
from pydantic import Field, ValidationError

from eigenfed.study.config.fields import (
    FileName,
    Flag,
    Fraction,
    Name,
    Positive,
    Remedy,
    Rule,
    Seed,
    TomlTable,
    Unique,
    advise,
    describe_rule,
    find_marker,
    get_schema,
)


class Values(TomlTable):
    """One key of each kind.

    And a second paragraph.
    """

    count: Positive | None = Field(default=None, examples=[3])
    seed: Seed | None = None
    share: Fraction | None = None
    on: Flag = False
    name: Name | None = None
    file: FileName | None = None


@pytest.mark.parametrize(
    ("key", "value", "taken"),
    [
        ("count", 4, 4),
        ("count", 4.0, 4),
        ("count", 10**30, 10**30),
        ("share", 1, 1.0),
        ("share", 0.25, 0.25),
        ("on", True, True),
        ("name", "a-b_1", "a-b_1"),
    ],
)
def test_a_value_is_taken(key: str, value: Any, taken: Any) -> None:
    found = getattr(Values.model_validate({key: value}), key)
    assert found == taken
    assert type(found) is type(taken)


REFUSED: dict[str, list[Any]] = {
    "count": [True, "4", 4.5, 0, 10**400, float("inf"), float("nan"), [4], {}],
    "seed": [-1, 2**32, 2.0**32, True],
    "share": [True, "0.5", -0.1, 1.1, 10**400, float("nan"), []],
    "on": [0, 1, "true", "yes", 1.0],
    "name": ["", "-a", "a b", "a\n", "a" * 65, "\u00e4", 3, ["a"]],
    "file": ["", "a\x00b", 3],
}


@pytest.mark.parametrize("key", REFUSED)
def test_a_value_is_refused(key: str) -> None:
    for value in REFUSED[key]:
        with pytest.raises(ValidationError):
            Values.model_validate({key: value})


def test_rules_and_remedies_follow_from_the_types() -> None:
    assert describe_rule(Values, "count") == "an integer of at least 1"
    assert describe_rule(Values, "seed") == "an integer from 0 to 4294967295"
    assert describe_rule(Values, "share") == "a number of at least 0 and at most 1"
    assert describe_rule(Values, "on") == "true or false"
    assert describe_rule(Values, "file") == "the path of a file, in quotes"
    assert advise(Values, "count") == "Set count = 3, for example."
    assert advise(Values, "on") == "Write true or false, without quotes."


def test_the_outermost_marker_counts() -> None:
    class Table(TomlTable):
        names: tuple[Name, ...] = ()
        name: Name | None = None

    assert find_marker(Table.model_fields["names"], Unique) is None
    assert find_marker(Table.model_fields["name"], Rule) is not None
    assert find_marker(Table.model_fields["name"], Remedy) is None


def test_a_schema_has_no_null_no_titles_of_keys_and_descriptions_on_one_line() -> None:
    schema = get_schema(Values)
    assert schema["description"] == "One key of each kind. And a second paragraph."
    assert schema["properties"]["count"] == {"type": "integer", "minimum": 1, "examples": [3]}
    assert schema["properties"]["on"] == {"type": "boolean", "default": False}
