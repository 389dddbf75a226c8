"""An upper bound on the next eigenvalue from a block Lanczos run itself, with its probability.

Ritz values are lower bounds: an eigenvector that the start hardly contains could be missed. For a
Gaussian start that is improbable, and how improbable follows from the run.

Let M be symmetric with eigenvalues ``l_1 >= l_2 >= ...``, and ``M V = V T + Q B E'`` after some
steps of block Lanczos from the Gaussian matrix ``G = V_1 R`` of shape (d, b), where E selects the
last block. Let U hold the first k + 1 eigenvectors of M, and ``T = Y diag(t) Y'`` with the k
largest Ritz values and their vectors set apart ("high") from the others ("low"). From ``V'M U = V'U
diag(l)`` follows for each eigenvector ``(l_j - t_low) (Y_low' V'u_j) = Y_low' E B' (Q'u_j)``. There
is a unit vector a of length k + 1 with ``Y_high' V'U a = 0``, and the part of ``s = U a`` in the
first block is then ``V_1's = sum_j a_j g(l_j) Q'u_j`` with::

    g(x) = E_1' Y_low (x - t_low)^-1 Y_low' E B'

so that ``|V_1's| <= sqrt(k + 1) sup |g(x)|`` over ``x >= l_(k+1)``, which is tiny once the run has
converged. But ``|V_1's| >= smin(G'U) / |G|``, and G'U is Gaussian of shape (b, k + 1): its least
singular value has a known tail (Halko, Martinsson and Tropp 2011, Prop. A.3). So ``l_(k+1)`` cannot
lie where g is small, except with a small probability over G. Nothing is assumed of the spectrum.

In floating point ``M V = V T + Q B E' + F``, which adds ``|F| / (x - t_(k+1))`` to the bound on
``|g(x)|``; F also holds the directions that a deflated block has left out. V need not be
orthonormal for the above, and an invariant space (B = 0) is no exception: a Gaussian start with
more than k columns has missed none of the first eigenvectors. The event that fails concerns G and U
only, so that one probability covers every number of steps, and a run may stop when it likes.

**Blocks of fewer than k + 1 directions, or of few more,** take several steps of this kind. Let the
first c Ritz vectors be within an angle of tangent h of the first c eigenvectors, and let the
argument above end at ``e > c`` instead of k: ``s = U a`` now splits into its part ``U_1 a_1`` along
the first c eigenvectors and ``U_2 a_2`` along those from c + 1 to e + 1. As s is orthogonal to the
Ritz vectors, ``|a_1| <= h |a_2|``, so that ``|G's| >= (smin(G'U_2) - h |G|) |a_2|``, and
``|a_2|^2`` is at least ``1 / (1 + h^2)``. G'U_2 is Gaussian of shape (b, e - c + 1), for which b
directions suffice as long as ``e - c < b``. The bound on ``l_(e+1)`` gives the next tangent by the
theorem of Davis and Kahan, from the residuals of the first e Ritz vectors, and so on up to k. Which
c and e are used depends on the run, so the probability is divided: one half is for a single step to
k, the other for all pairs of c and e. An eigenvalue that is repeated b times or more is never
certified: a start of b directions contains b of its eigenvectors and no others.

The supremum is bounded on intervals by Taylor polynomials of g, whose remainder is known: the
coefficient of order i is at most ``|B| / (x - t_(k+1))^(i + 1)``.
"""

import math
from typing import NamedTuple

import numpy as np

from eigenfed.arrays import Array
from eigenfed.linalg.orthonormal import column_norms

FAILURE = 1e-6
"""Probability, over the random start, that the bound does not hold."""
_STEPS = (2.0, 1.2)
"""Factors by which the search approaches the Ritz value: large steps first, then small ones."""
_NEGLIGIBLE = 0.01
"""Ratio of the remainder of a Taylor polynomial to what must not be exceeded."""
_NARROWEST = 1e-7
"""Distance to the Ritz value, relative to it, at which the search stops."""
_ROUNDINGS = 8.0
_SPARE, _SPARE_PART = 2, 4
"""Directions of a block beyond the components that one step adds: so many, or this part of it. With
a few more, a step tolerates rounding errors that are a thousand times as large."""
_MOST_ORDERS, _BATCH = 16, 1 << 15
"""Coefficients of a Taylor polynomial that are computed at a time, and entries of their factors:
with a few directions it takes as long to call a function as to multiply."""
_SMALL = 1e-8
"""Angle of Ritz vectors that hardly weakens the next step."""
_TINY = float(np.finfo(float).tiny)


class RitzSpace(NamedTuple):
    """All Ritz pairs of a block Lanczos run.

    Attributes
    ----------
    values : ndarray of shape (m,)
        All Ritz values, largest first.
    first : ndarray of shape (b, m)
        Entries of the Ritz vectors in the first block.
    coupled : ndarray of shape (r, m)
        B times their entries in the last block: their residuals in the basis of the next block.
    start : float
        Spectral norm of the Gaussian start.
    error : float
        Bound on the norm of F, by which the products miss the relation of the module.
    """

    values: Array
    first: Array
    coupled: Array
    start: float
    error: float


def bound_next_eigenvalue(
    space: RitzSpace, k: int, most: float, *, enough: float = -math.inf
) -> float:
    """Bound eigenvalue k + 1 of the matrix that a block Lanczos run multiplied by.

    Parameters
    ----------
    space : RitzSpace
        From a Gaussian start.
    k : int
        Less than the number of Ritz values.
    most : float
        Upper bound on all eigenvalues, such as the trace; it is returned if nothing smaller holds.
    enough : float, optional
        A bound below this is not improved further.

    Returns
    -------
    float
        It is exceeded with a probability of at most `FAILURE` over the start.

    Examples
    --------
    >>> import numpy as np
    >>> from eigenfed.linalg.lanczos import BlockLanczos
    >>> matrix = np.diag(np.r_[9.0, 8.0, np.linspace(5.0, 0.0, 98)])
    >>> start = np.sin(np.arange(800.0) ** 2).reshape(100, 8)  # stands for a Gaussian matrix
    >>> lanczos = BlockLanczos(np.linalg.qr(start).Q)
    >>> for _ in range(8):
    ...     lanczos.take(matrix @ lanczos.block)
    ...     lanczos.extend()
    >>> lanczos.take(matrix @ lanczos.block)
    >>> space = lanczos.describe(float(np.linalg.norm(start, 2)), error=1e-14)
    >>> bool(5.0 <= bound_next_eigenvalue(space, 2, matrix.trace()) < 6.0)
    True
    """
    width = len(space.first)
    # The Ritz pairs are those of a matrix as near to T as rounding.
    rounding = _ROUNDINGS * len(space.values) * float(np.finfo(float).eps)
    error = space.error + rounding * float(np.abs(space.values[[0, -1]]).max())
    space = space._replace(error=error)
    spare, bound = max(_SPARE, width // _SPARE_PART), most
    if width > k:
        bound = _bound_next(space, k, enough, _Stage(0, 0.0, most, FAILURE / 2.0))
        if bound <= enough or k <= max(width - spare, 0):
            return bound
    # More components for each step, as ties may require, leave fewer directions to spare.
    for kept in sorted({spare, _SPARE}, reverse=True):
        stages = _reach(space, k, width - kept, most)
        for stage in reversed(stages):
            bound = min(bound, _bound_next(space, k, enough, stage))
            if bound <= enough:
                break
        if stages:
            break
    return bound


class _Stage(NamedTuple):
    """Ritz vectors that are known to be near as many eigenvectors.

    Attributes
    ----------
    known : int
        How many.
    tangent : float
        Bound on the tangent of the angle between their spans.
    most : float
        Upper bound on the eigenvalues after theirs.
    failure : float
        Probability of error that the next step may add.
    """

    known: int
    tangent: float
    most: float
    failure: float


def _reach(space: RitzSpace, k: int, added: int, most: float) -> list[_Stage]:
    """Return the Ritz vectors from which one step leads to k: those of the last stages before it.

    The fewer components the last step adds, the more directions it has to spare.

    Parameters
    ----------
    space, k, most
        As for `bound_next_eigenvalue`.
    added : int
        Components that a step adds at most.
    """
    stages, stage = [], _Stage(0, 0.0, most, FAILURE / (k * (k + 1)))
    while added > 0:
        if k - stage.known <= added:
            stages.append(stage)
        if k - stage.known == 1:
            break
        end = _choose_end(space, stage.known, min(stage.known + added, k - 1))
        following = _bound_following(space, end, stage)
        tangent = _bound_tangent(space, end, following)
        if math.isinf(tangent):
            break
        stage = stage._replace(known=end, tangent=tangent, most=following)
    return stages


def _choose_end(space: RitzSpace, count: int, last: int) -> int:
    """Return after which of the Ritz vectors from `count` + 1 to `last` the next step ends."""
    largest = np.maximum.accumulate(column_norms(space.coupled[:, :last]))[count:] + space.error
    gaps = -np.diff(space.values[count : last + 1])
    angles = largest / np.maximum(gaps, max(space.error, _TINY))
    # Of angles that are all small enough, the last one makes for the fewest steps.
    small = np.flatnonzero(angles <= max(_SMALL, float(angles.min())))
    return count + 1 + int(small[-1])


def _bound_following(space: RitzSpace, end: int, stage: _Stage) -> float:
    """Bound eigenvalue `end` + 1 well enough for the angle of the Ritz vectors before it."""
    lowest, following = (float(value) for value in space.values[end - 1 : end + 1])
    # Half the gap changes the angle by a factor of 2, which is of no importance.
    return _bound_next(space, end, following + (lowest - following) / 2, stage)


def _bound_tangent(space: RitzSpace, end: int, following: float) -> float:
    """Bound the angle of the first Ritz vectors to as many eigenvectors, or return infinity."""
    residual = float(np.linalg.norm(space.coupled[:, :end], 2)) if space.coupled.size else 0.0
    gap = float(space.values[end - 1]) - following
    if not residual + space.error < gap:
        return math.inf
    return math.tan(math.asin((residual + space.error) / gap))


def _bound_next(space: RitzSpace, k: int, enough: float, stage: _Stage) -> float:
    """Bound eigenvalue k + 1 as `bound_next_eigenvalue` does, from what is known before it."""
    width, tangent = len(space.first), stage.tangent
    inverse = _bound_pseudo_inverse(width, k - stage.known + 1, stage.failure)
    known = (1.0 / inverse - tangent * space.start) / math.sqrt(1.0 + tangent * tangent)
    least = known / (space.start * math.sqrt(k + 1.0))
    low = space.values[k:]
    resolvent = _Resolvent(low, space.first[:, k:], space.coupled[:, k:], space.error)
    nearest, bound = float(low[0]), stage.most
    for step in _STEPS:
        while bound > enough and bound - nearest > _NARROWEST * abs(nearest):
            left = nearest + (bound - nearest) / step
            if not nearest < left < bound or not resolvent.is_below(least, left, bound):
                break
            bound = left
    return bound


class _Resolvent:
    """The function g of the module, for x above all low Ritz values."""

    def __init__(self, low: Array, first: Array, coupled: Array, error: float) -> None:
        self._low, self._first, self._coupled, self._error = low, first, coupled, error
        # Squares of large eigenvalues would overflow.
        self._size = math.hypot(*column_norms(coupled))
        self._orders = max(1, min(_MOST_ORDERS, _BATCH // max(first.size, 1)))

    def is_below(self, least: float, left: float, right: float) -> bool:
        """Return whether the norm of g is below `least` from `left` to `right`."""
        radius = (right - left) / 2
        distances = left + radius - self._low
        nearest = float(distances[0])
        ratio = radius / nearest
        # Where numbers are near the least of all floats, an overflow means that nothing is known.
        with np.errstate(over="ignore"):
            weights = 1.0 / distances
        if not np.isfinite(weights[0]):
            return False
        total = self._error / (nearest - radius)
        rest = self._size / nearest / (1.0 - ratio)
        orders = self._orders
        while True:
            for norm in self._coefficients(weights, radius / distances, orders):
                if not total < least <= total + rest:
                    return total < least
                if rest < _NEGLIGIBLE * least:
                    return False
                total += norm
                rest *= ratio
            weights = weights * (radius / distances) ** orders

    def _coefficients(self, weights: Array, ratios: Array, orders: int) -> list[float]:
        """Return the norms of the next coefficients of the Taylor polynomial, so many at a time."""
        powers = weights * ratios ** np.arange(orders)[:, None]
        rows = (powers[:, None, :] * self._first).reshape(-1, len(weights))
        norms: list[float] = column_norms((rows @ self._coupled.T).reshape(orders, -1).T).tolist()
        return norms


def _bound_pseudo_inverse(width: int, leading: int, failure: float = FAILURE) -> float:
    """Bound the norm of the pseudo-inverse of a Gaussian matrix, except with a probability."""
    spare = width - leading + 1
    tail = (math.e * math.sqrt(width) / spare) ** spare / math.sqrt(2.0 * math.pi * spare)
    return float((tail / failure) ** (1.0 / spare))
