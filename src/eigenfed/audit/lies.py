"""The lies of a hostile coordinator: a message changed in every field, in every way.

What is changed is shape, dtype, scale and content of each array, the fields that are there, the
operation, the round and the run. Bytes that are cut or flipped are among them too.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.protocol.messages import Message
from eigenfed.protocol.methods import all_operations
from eigenfed.protocol.secure.participant import RELEASES

_ROWS = 17
"""A number of rows that an array might pretend to be of."""


def lies_about(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Give a message in every way in which a liar might change it.

    Parameters
    ----------
    data : bytes
        The opening of a run, or a request.

    Yields
    ------
    how : str
        What was changed.
    data : bytes
        Never the message itself.
    """
    return ((how, lie) for how, lie in _all_about(data) if lie != data)


def _all_about(data: bytes) -> Iterator[tuple[str, bytes]]:
    message = Message.from_bytes(data, "request", "open")
    yield "cut", data[:-9]
    yield "longer", data + b"12345678"
    yield "bit", data[:-40] + bytes([data[-40] ^ 1]) + data[-39:]
    yield "as a reply", replace(message, kind="reply").to_bytes()
    yield "other run", replace(message, run="another").to_bytes()
    yield "no run", replace(message, run="").to_bytes()
    yield "long run", replace(message, run="r" * 1000).to_bytes()
    if message.kind == "open":
        yield from _changed_arrays(message)
        return
    for round_ in (-1, 0, message.round_ - 1, 2**31, 2**40, 2**62):
        if (round_ != message.round_ and round_ < message.round_) or round_ > 2**31 - 1:
            yield f"round {round_}", replace(message, round_=round_).to_bytes()
    later = replace(message, round_=message.round_ + 1)
    for op in sorted({*all_operations(), *RELEASES, "open", "nonsense", ""}):
        if op != message.label:
            yield f"as {op}", replace(later, label=op).to_bytes()
    yield from _changed_arrays(message)


def _changed_arrays(message: Message) -> Iterator[tuple[str, bytes]]:
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
        for how, changed in _changed(array):
            mutated = {n: changed if n == name else a for n, a in arrays.items()}
            yield f"{name} {how}", replace(message, arrays=mutated).to_bytes()


def _changed(array: npt.NDArray[Any]) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Give an array of another shape, dtype, scale or content."""
    yield from _shapes(array)
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
        yield from _floats(array)


def _shapes(array: npt.NDArray[Any]) -> Iterator[tuple[str, npt.NDArray[Any]]]:
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


def _floats(array: Array) -> Iterator[tuple[str, Array]]:
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
