"""Typed values as named arrays, and back: the one codec of requests and replies.

A request or a reply is a frozen dataclass. Its fields are arrays (float64, int64 or uint8) or
single numbers, which travel as arrays of one entry; a field that is None, or a flag that is down by
default, does not travel. What is read back has exactly the fields of its type, each of its own
dtype: anything else is refused.
"""

from dataclasses import MISSING, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array, Arrays
from eigenfed.errors import DataError

Integers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

T = TypeVar("T")


class _Kind(NamedTuple):
    """How one field travels."""

    dtype: str
    single: type[Any] | None


_KINDS: dict[Any, _Kind] = {
    Array: _Kind("f8", None),
    Integers: _Kind("i8", None),
    Bytes: _Kind("u1", None),
    float: _Kind("f8", float),
    int: _Kind("i8", int),
    bool: _Kind("u1", bool),
}


class _Field(NamedTuple):
    name: str
    kind: _Kind
    required: bool


def pack(value: object) -> Arrays:
    """Write a typed value as named arrays.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Count:
    ...     n: int
    >>> pack(Count(3))
    {'n': array([3])}
    """
    packed: Arrays = {}
    kind: Any = type(value)
    for field in _layout(kind):
        given = getattr(value, field.name)
        if given is None or (given is False and not field.required):
            continue
        single = field.kind.single is not None
        packed[field.name] = np.array([given], field.kind.dtype) if single else given
    return packed


def unpack(cls: type[T], arrays: Arrays) -> T:
    """Read what `pack` wrote.

    Raises
    ------
    DataError
        If a field is missing, foreign, of another dtype, or not one number where it must be.
    """
    kind: Any = cls
    layout = _layout(kind)
    given: dict[str, Any] = {}
    for field in layout:
        array = arrays.get(field.name)
        if array is not None:
            given[field.name] = _read(field, array)
        elif field.required:
            raise DataError(f"The field {field.name!r} is missing. Use one release of eigenfed.")
    if len(given) < len(arrays):
        raise DataError(f"{cls.__name__} has no such field. Use one release of eigenfed.")
    return cls(**given)


def _read(field: _Field, array: npt.NDArray[Any]) -> Any:
    kind = field.kind
    if array.dtype != np.dtype(kind.dtype) or (kind.single is not None and array.shape != (1,)):
        raise DataError(
            f"The field {field.name!r} has another type or shape than this release writes. Use "
            "one release of eigenfed."
        )
    return array if kind.single is None else kind.single(array[0])


@cache
def _layout(cls: Any) -> tuple[_Field, ...]:
    """Return how the fields of a dataclass travel, in their order."""
    hints = get_type_hints(cls)
    return tuple(
        _Field(field.name, _KINDS[_present(hints[field.name])], field.default is MISSING)
        for field in fields(cls)
    )


def _present(hint: Any) -> Any:
    """Return the type of a field where it is there."""
    if isinstance(hint, UnionType):
        (kind,) = (part for part in get_args(hint) if part is not NoneType)
        return kind
    return hint
