"""Types of values: numbers as JSON schema has them, methods by the registry, rules in words."""

from dataclasses import dataclass
from typing import Any, ClassVar, get_args

import pytest
from pydantic import Field, ValidationError

from eigenfed.privacy.dp.sensitivity import RELATIONS
from eigenfed.protocol.exact.factors import Factors
from eigenfed.protocol.method import registered
from eigenfed.study.config.fields import (
    FilePath,
    Flag,
    Fraction,
    MethodName,
    MethodOption,
    Name,
    Positive,
    Relation,
    Seed,
    TomlTable,
    UniqueList,
    describe_schema,
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
    """Whether it
    is on.
    """
    name: Name | None = None
    file: FilePath | None = None
    names: UniqueList[Name] = ()
    method: MethodOption = "auto"
    methods: UniqueList[MethodName] = ()


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
    "names": [["a", "a"], [["a"]], "a", {}],
    "method": ["slow", {"name": "auto"}, {"name": ["power"]}, {"local_steps": 1}, 3, []],
    "methods": [["slow"], ["krylov", "krylov"], ["auto"], [{}], "krylov"],
}


@pytest.mark.parametrize("key", REFUSED)
def test_a_value_is_refused(key: str) -> None:
    for value in REFUSED[key]:
        with pytest.raises(ValidationError):
            Values.model_validate({key: value})


def test_rules_follow_from_the_types() -> None:
    rules = {key: describe_schema(s) for key, s in get_schema(Values)["properties"].items()}
    assert rules["count"] == "an integer of at least 1"
    assert rules["seed"] == "an integer from 0 to 4294967295"
    assert rules["share"] == "a number of at least 0 and at most 1"
    assert rules["on"] == "true or false"
    assert rules["file"] == "the path of a file, in quotes"
    assert rules["method"].endswith('"merge", or a table of a name and options')


def test_choices_are_those_of_the_library() -> None:
    assert get_args(Relation) == RELATIONS


def test_a_schema_has_no_null_no_titles_of_keys_and_descriptions_on_one_line() -> None:
    schema = get_schema(Values)
    assert schema["description"] == "One key of each kind. And a second paragraph."
    assert schema["properties"]["count"] == {"type": "integer", "minimum": 1, "examples": [3]}
    flag = schema["properties"]["on"]
    assert (flag["type"], flag["default"], flag.get("title")) == ("boolean", False, None)
    assert flag["description"] == "Whether it is on."


@dataclass(frozen=True, repr=False)
class Slow(Factors):
    """Another one."""

    name: ClassVar[str] = "slow"
    summary: ClassVar[str] = "takes its time"

    pause: int | None = None
    factor: float = 1.5


def test_a_method_is_known_as_long_as_it_is_registered() -> None:
    data = {"method": {"name": "slow", "pause": 3.0, "factor": 2}, "methods": ["slow"]}
    with registered(Slow):
        values = Values.model_validate(data)
        assert (values.method, values.methods) == (Slow(pause=3, factor=2), ("slow",))
        keys = get_schema(Values)["properties"]
        assert "slow" in keys["methods"]["items"]["enum"]
        assert keys["method"]["anyOf"][-1] == {
            "description": "takes its time",
            "type": "object",
            "properties": {
                "name": {"const": "slow"},
                "pause": {"type": "integer"},
                "factor": {"type": "number", "default": 1.5},
            },
            "required": ["name"],
            "additionalProperties": False,
        }
    assert "slow" not in get_schema(Values)["properties"]["methods"]["items"]["enum"]
    with pytest.raises(ValidationError):
        Values.model_validate(data)
