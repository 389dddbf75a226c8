"""What was last computed from an array that nobody can write to.

In one process all sites of a run are sent the same message: what is checked of its directions is
the same at each of them, and reading long directions again takes as long as a small product.
"""

import threading
import weakref
from collections.abc import Callable
from functools import wraps

import numpy as np

from eigenfed.arrays import Array


class _Last(threading.local):
    """The last array of this thread, if it is still in use, and its number."""

    array: Callable[[], Array | None] = staticmethod(lambda: None)
    number: float = 0.0


def remember_last(compute: Callable[[Array], float]) -> Callable[[Array], float]:
    """Make a function of an array return at once if it is called with the same array again.

    Only arrays that were read from bytes are remembered: others may be written to.

    Parameters
    ----------
    compute : callable

    Examples
    --------
    >>> calls = []
    >>> total = remember_last(lambda array: calls.append(array) or float(array.sum()))
    >>> message = np.frombuffer(bytes(16)).reshape(2, 1)
    >>> total(message), total(message), len(calls)
    (0.0, 0.0, 1)
    """
    last = _Last()

    @wraps(compute)
    def look_up(array: Array) -> float:
        if last.array() is array:
            return last.number
        number = compute(array)
        if _is_read_only(array):
            last.array, last.number = weakref.ref(array), number
        return number

    return look_up


def _is_read_only(array: Array) -> bool:
    """Return whether an array is part of immutable bytes."""
    return isinstance(array.base, np.ndarray) and isinstance(array.base.base, bytes)
