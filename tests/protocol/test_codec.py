"""Typed values as named arrays: what goes in comes out, and nothing else comes in."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from eigenfed.arrays import Array, Arrays, Integers
from eigenfed.errors import DataError
from eigenfed.protocol.messages import Bytes, Message, pack, unpack
from eigenfed.protocol.method_registry import all_operations


@dataclass(frozen=True, kw_only=True, eq=False)
class Everything:
    """A field of every kind."""

    values: Array
    whole: Integers
    data: Bytes
    size: float
    count: int
    sure: bool
    more: Array | None = None
    number: int | None = None
    flag: bool = False


def sound() -> Everything:
    return Everything(
        values=np.array([[1.0, 2.0]]),
        whole=np.array([3]),
        data=np.zeros(2, np.uint8),
        size=0.5,
        count=7,
        sure=True,
    )


arrays = hnp.arrays(np.float64, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))


@given(
    values=arrays,
    whole=hnp.arrays(np.int64, hnp.array_shapes(max_side=4)),
    data=st.binary(max_size=20),
    size=st.floats(),
    count=st.integers(-(2**63), 2**63 - 1),
    sure=st.booleans(),
    more=st.none() | arrays,
    number=st.none() | st.integers(-9, 9),
    flag=st.booleans(),
)
def test_values_come_back_as_they_were_through_a_message(data: bytes, **fields: Any) -> None:
    sent = Everything(data=np.frombuffer(data, np.uint8), **fields)
    crossed = Message("request", "r", 0, "x", pack(sent)).to_bytes()
    got = unpack(Everything, Message.from_bytes(crossed, "request").arrays)
    for name, value in fields.items():
        found = getattr(got, name)
        assert type(found) is type(value)
        np.testing.assert_array_equal(found, value)
    assert got.data.tobytes() == data


def test_what_is_not_there_does_not_travel() -> None:
    assert list(pack(sound())) == ["values", "whole", "data", "size", "count", "sure"]
    # A flag that must be said travels whatever it is.
    assert unpack(Everything, pack(sound())).sure is True
    assert list(pack(Everything(**{**vars(sound()), "flag": True, "number": 0})))[-2:] == [
        "number",
        "flag",
    ]


@pytest.mark.parametrize("name", ["values", "whole", "data", "size", "count", "sure"])
def test_a_missing_field_is_refused_by_name(name: str) -> None:
    packed = {field: array for field, array in pack(sound()).items() if field != name}
    with pytest.raises(DataError, match=f"The field '{name}' is missing"):
        unpack(Everything, packed)


@pytest.mark.parametrize("name", ["", "other", "values ", "secure.number", "__class__"])
def test_a_foreign_field_is_refused(name: str) -> None:
    with pytest.raises(DataError, match="was sent with an unexpected field"):
        unpack(Everything, pack(sound()) | {name: np.zeros(1)})


@pytest.mark.parametrize(
    "changed",
    [
        {"values": np.array([1])},
        {"values": np.array([1.0], np.float32)},
        {"whole": np.array([1.0])},
        {"whole": np.array([1], np.uint8)},
        {"data": np.array([1])},
        {"size": np.array([1])},
        {"size": np.array([1.0, 2.0])},
        {"size": np.array(1.0)},
        {"size": np.array([[1.0]])},
        {"size": np.zeros(0)},
        {"count": np.array([1.0])},
        {"count": np.array([1, 2])},
        {"sure": np.array([1])},
        {"number": np.array([1.0])},
        {"flag": np.zeros(2, np.uint8)},
        {"more": np.array([1])},
    ],
    ids=str,
)
def test_a_field_of_another_type_or_shape_is_refused(changed: Arrays) -> None:
    (name,) = changed
    with pytest.raises(DataError, match=f"The field '{name}' has an unexpected type or shape"):
        unpack(Everything, pack(sound()) | changed)


@pytest.mark.parametrize("name", sorted(all_operations()))
def test_every_request_and_reply_of_the_package_can_travel(name: str) -> None:
    request = all_operations()[name].request
    for kind in (request, request.reply):
        with pytest.raises(DataError):
            unpack(kind, {"foreign": np.zeros(1)})
