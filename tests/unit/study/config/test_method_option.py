"""The method of a study file follows the registry, whatever is registered."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from eigenfed.protocol.exact.krylov import Krylov
from eigenfed.protocol.exact.power import Power
from eigenfed.protocol.method import registered
from eigenfed.study.config.method_option import (
    cannot_be_private,
    get_method_schema,
    get_name_schema,
    needs_single_replies,
    read_method,
    read_name,
)


@dataclass(frozen=True, repr=False)
class Slow(Krylov):
    """Another one."""

    name: ClassVar[str] = "slow"
    summary: ClassVar[str] = "takes its time"

    pause: int | None = None
    factor: float = 1.5


def test_a_method_is_known_as_long_as_it_is_registered() -> None:
    with registered(Slow):
        assert read_method({"name": "slow", "pause": 3.0, "factor": 2}) == Slow(pause=3, factor=2)
        assert read_name("slow") == "slow"
        assert "slow" in get_name_schema()["enum"]
        assert get_method_schema()["anyOf"][-1] == {
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
    assert "slow" not in get_name_schema()["enum"]
    for read in (read_method, read_name):
        with pytest.raises(ValueError, match=r"^$"):
            read("slow")


def test_what_a_method_needs_is_asked_of_the_method() -> None:
    single, private = needs_single_replies(), cannot_be_private()
    assert [single.holds({"method": m}) for m in ("auto", "krylov", "merge")] == [0, 0, 1]
    assert single.holds({"method": {"name": "covariance", "precision": "single"}})
    assert not single.holds({})
    assert [private.holds({"method": m}) for m in ("auto", "krylov", "covariance")] == [0, 1, 0]
    assert private.holds({"method": {"name": "power", "local_steps": Power().local_steps}})
