"""The largest eigenvalue of a positive matrix outside known directions, from above.

The matrix is given as ``A'A`` by products with A and its transpose. If one side of A is short the
eigenvalue is computed from a matrix of that size, exactly up to rounding. Otherwise it is bounded
by block Lanczos from a random start, and the bound fails with a stated probability.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from eigenfed.arrays import Array
from eigenfed.linalg.eigen import top_eigh
from eigenfed.linalg.krylov_bound import FAILURE, bound_next_eigenvalue
from eigenfed.linalg.lanczos import BlockLanczos

SHORT_SIDE = 500
"""Length of the shorter side up to which the eigenvalue is computed from a whole matrix."""
_COLUMNS_AT_A_TIME = 64
_WIDTH = 8
_MOST_BLOCKS = 30
_CLOSE = 1.05
"""Ratio of the bound to the Ritz value at which the iteration stops."""
_ROUNDINGS = 64.0


class Factor(NamedTuple):
    """A matrix A by its products.

    Attributes
    ----------
    rows, columns : int
    forward : callable
        Multiplies A by an array of shape (columns, l).
    backward : callable
        Multiplies the transpose of A by an array of shape (rows, l).
    product : callable or None
        Multiplies A'A by an array of shape (columns, l), in less memory than one after the other.
    """

    rows: int
    columns: int
    forward: Callable[[Array], Array]
    backward: Callable[[Array], Array]
    product: Callable[[Array], Array] | None = None


class UpperBound(NamedTuple):
    """An upper bound, and the probability that it does not hold."""

    value: float
    failure: float


def bound_largest_outside(
    factor: Factor,
    known: Array,
    trace: float,
    draw: Callable[[tuple[int, int]], Array],
    *,
    short_side: int = SHORT_SIDE,
) -> UpperBound:
    """Bound the largest eigenvalue of ``A'A`` outside the span of `known`.

    Parameters
    ----------
    factor : Factor
        A, with d columns.
    known : ndarray of shape (d, m)
        Orthonormal columns.
    trace : float
        Trace of ``A'A``, which bounds every eigenvalue.
    draw : callable
        Returns an array of independent standard normal numbers of a shape, for the start. They must
        not depend on `known`.
    short_side : int, default=500
        Length of the shorter side of A up to which nothing is left to chance.

    Returns
    -------
    UpperBound
        Its `failure` is 0 if the shorter side of A is short enough, and otherwise the probability,
        over a random start, that the value is too small.

    Examples
    --------
    >>> import numpy as np
    >>> a = np.diag([3.0, 2.0, 1.0])
    >>> factor = Factor(3, 3, a.dot, a.T.dot)
    >>> bound = bound_largest_outside(factor, np.eye(3)[:, :1], 14.0, draw=np.ones)
    >>> round(bound.value, 12), bound.failure
    (4.0, 0.0)
    """
    d = len(known)
    if known.shape[1] >= d or trace == 0.0:
        return UpperBound(0.0, 0.0)
    rounding = _ROUNDINGS * float(np.finfo(float).eps) * trace
    short = min(factor.rows, d)
    if short <= short_side:
        square = _fold_rows(factor, known) if factor.rows < d else _fold_columns(factor, known)
        largest = float(top_eigh(square, 1)[0][0])
        return UpperBound(min(max(largest, 0.0) + rounding, trace), 0.0)
    start = draw((d, min(_WIDTH, d - known.shape[1])))
    value = _iterate(factor, known, trace, start, rounding) + rounding
    return UpperBound(min(value, trace), FAILURE if value < trace else 0.0)


def _fold_rows(factor: Factor, known: Array) -> Array:
    """Return ``A (I - KK') A'``, as small as A has rows."""
    square = np.empty((factor.rows, factor.rows))
    inside = factor.forward(known)
    for span in _spans(factor.rows):
        units = np.zeros((factor.rows, span.stop - span.start))
        units[span] = np.eye(span.stop - span.start)
        square[:, span] = factor.forward(factor.backward(units)) - inside @ inside[span].T
    return (square + square.T) / 2


def _fold_columns(factor: Factor, known: Array) -> Array:
    """Return ``(I - KK') A'A (I - KK')``."""
    d = len(known)
    square = np.empty((d, d))
    for span in _spans(d):
        units = np.zeros((d, span.stop - span.start))
        units[span] = np.eye(span.stop - span.start)
        square[:, span] = _apply_outside(factor, known, units)
    return (square + square.T) / 2


def _spans(size: int) -> list[slice]:
    starts = range(0, size, _COLUMNS_AT_A_TIME)
    return [slice(start, min(start + _COLUMNS_AT_A_TIME, size)) for start in starts]


def _apply_outside(factor: Factor, known: Array, columns: Array) -> Array:
    """Multiply ``(I - KK') A'A (I - KK')`` by columns."""
    columns = columns - known @ (known.T @ columns)
    if factor.product is None:
        image = factor.backward(factor.forward(columns))
    else:
        image = factor.product(columns)
    return image - known @ (known.T @ image)


def _iterate(factor: Factor, known: Array, trace: float, start: Array, rounding: float) -> float:
    """Bound the largest eigenvalue outside by block Lanczos."""
    # Within the complement of K the start is Gaussian, as the bound requires.
    start = start - known @ (known.T @ start)
    space = BlockLanczos(np.linalg.qr(start).Q)
    norm, bound = float(np.linalg.norm(start, 2)), trace
    for _ in range(_MOST_BLOCKS):
        space.take(_apply_outside(factor, known, space.block))
        described = space.describe(norm, rounding)
        bound = bound_next_eigenvalue(described, 0, trace)
        if not space.room or bound <= _CLOSE * described.values[0]:
            break
        space.extend()
    return bound
