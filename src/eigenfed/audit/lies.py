"""The lies of a hostile coordinator: a valid message, altered in one way at a time.

Alterations cover the shape, dtype, scale and content of each array, missing and additional fields,
the operation, the round, the run, and truncated or flipped bytes.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.protocol.messages import Message
from eigenfed.protocol.method_registry import all_operations
from eigenfed.protocol.secure.participant import RELEASES

_ROWS = 17
"""Number of rows to which an array is broadcast, as if it had one entry per row."""


def generate_lies(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Generate all alterations of a message.

    Parameters
    ----------
    data : bytes
        The opening of a run, or a request.

    Yields
    ------
    how : str
        What was altered.
    data : bytes
        The altered message, never equal to the original.
    """
    return ((how, lie) for how, lie in _alter_message(data) if lie != data)


def _alter_message(data: bytes) -> Iterator[tuple[str, bytes]]:
    message = Message.from_bytes(data, "request", "open")
    yield "cut", data[:-9]
    yield "longer", data + b"12345678"
    yield "bit", data[:-40] + bytes([data[-40] ^ 1]) + data[-39:]
    yield "as a reply", replace(message, kind="reply").to_bytes()
    yield "other run", replace(message, run="another").to_bytes()
    yield "no run", replace(message, run="").to_bytes()
    yield "long run", replace(message, run="r" * 1000).to_bytes()
    if message.kind == "open":
        yield from _alter_arrays(message)
        return
    for round_ in (-1, 0, message.round_ - 1, 2**31, 2**40, 2**62):
        if (round_ != message.round_ and round_ < message.round_) or round_ > 2**31 - 1:
            yield f"round {round_}", replace(message, round_=round_).to_bytes()
    later = replace(message, round_=message.round_ + 1)
    for op in sorted({*all_operations(), *RELEASES, "open", "nonsense", ""}):
        if op != message.label:
            yield f"as {op}", replace(later, label=op).to_bytes()
    yield from _alter_arrays(message)


def _alter_arrays(message: Message) -> Iterator[tuple[str, bytes]]:
    arrays = message.arrays
    extra = {"foreign": np.zeros(3), "mean": np.zeros(2), "secure.number": np.array([0])}
    for name, array in extra.items():
        if name not in arrays:
            yield f"with {name}", replace(message, arrays={**arrays, name: array}).to_bytes()
    for name, array in arrays.items():
        rest = {n: a for n, a in arrays.items() if n != name}
        yield f"without {name}", replace(message, arrays=rest).to_bytes()
        renamed = {**rest, name + "_": array}
        yield f"{name} renamed", replace(message, arrays=renamed).to_bytes()
        for how, changed in _alter_array(array):
            mutated = {n: changed if n == name else a for n, a in arrays.items()}
            yield f"{name} {how}", replace(message, arrays=mutated).to_bytes()


def _alter_array(array: npt.NDArray[Any]) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Generate alterations of the shape, dtype, scale or content of an array."""
    yield from _alter_shape(array)
    for dtype in ("f8", "f4", "i8", "u1"):
        if array.dtype != np.dtype(dtype):
            with np.errstate(all="ignore"):
                yield f"as {dtype}", array.astype(dtype)
    if array.dtype == np.uint8:
        yield "flipped", array ^ 1
        yield "zeros", np.zeros_like(array)
        yield "255", np.full_like(array, 255)
    elif array.dtype == np.int64:
        for value in (-(2**62), -1, 0, 1, 3, 10**6, 2**59, 2**62):
            yield f"all {value}", np.full_like(array, value)
        yield "one more", array + 1
    else:
        yield from _alter_floats(array)


def _alter_shape(array: npt.NDArray[Any]) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    yield "empty", array[:0]
    yield "one axis more", array[None]
    yield "a column", array.reshape(-1, 1)
    yield "flat", array.ravel()
    yield "longer", np.concatenate([array, array])
    yield "shorter", array[:-1]
    yield "by row", np.broadcast_to(array, (_ROWS, *array.shape)).copy()
    if array.ndim == 2:
        yield "turned", array.T.copy()
        yield "wider", np.hstack([array, array])
        yield "narrower", array[:, :-1]


def _alter_floats(array: Array) -> Iterator[tuple[str, Array]]:
    for value in (np.nan, np.inf, -np.inf, 0.0, -1.0, 1e300, 1e-300, 2.0**59):
        changed = array.copy()
        changed.flat[:1] = value
        yield f"first {value}", changed
        yield f"all {value}", np.full_like(array, value)
    for factor in (-1.0, 2.0, 1 + 1e-6, 1 + 5e-11, 1e160, 1e-160):
        with np.errstate(all="ignore"):
            yield f"times {factor}", array * factor
    if array.ndim == 2 and array.size:
        yield "identity", np.eye(*array.shape)
        same = array.copy()
        same[:, -1] = same[:, 0]
        yield "a column twice", same
        rng = np.random.default_rng(3)
        yield "a little off", array + 5e-11 * rng.standard_normal(array.shape)
        yield "swapped", array[:, ::-1].copy()
