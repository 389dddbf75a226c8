"""Errors of a covariance that a certificate must add: arithmetic, messages, fixed point.

A residual below rounding is not zero. Every error here is in the units of the covariance, and
bounds the spectral norm of the difference between the matrix that the run has multiplied by and the
covariance of the rows.
"""

import math

import numpy as np

from eigenfed.linalg.orthonormal import column_norms
from eigenfed.linalg.row_sums import PIECE_ROWS
from eigenfed.protocol.core import Total
from eigenfed.protocol.exact.moments import Moments
from eigenfed.protocol.exact.stages import LEAST_SINGLE, SINGLE_ROUNDOFF

_ROUNDOFF = float(np.finfo(float).eps) / 2
_LEAST = float(np.finfo(float).smallest_subnormal)
_STEPS = 10.0
_ALIKE = 0.1
"""Roundings added for each row of a piece. Rows that are equal need them all: 256 equal products,
one after the other, are off by 43 at most where sites and BLAS add them."""
_MARGIN = 4.0
_TILE_TERMS, _TERM_PEOPLE = 256.0, 32.0
"""Additions in single precision that follow each other over a tile of variants, whose sums are in
double precision, and people whose genotypes are added together."""


def bound_rounding(moments: Moments, variance: float) -> float:
    """Bound the error of the covariance due to arithmetic.

    With u the unit roundoff, a sum of n products is off by at most about ``sqrt(n) u`` times the
    sum of their sizes: rounding errors behave as independent ones (Higham and Mary 2019). Those of
    equal products do not: in a row, n of them are off by up to ``n u / 4``. Sites and BLAS add up
    pieces of a few hundred rows, and then fewer than ``4 sqrt(n)`` pieces. The sizes
    add up to the mean square of the rows about zero, not about the mean: sparse rows are centred
    after they were multiplied, and rows far from zero are known to that precision only. Scales are
    roots of such sums, and their error changes the covariance as much again. Sites that multiply
    genotypes in single precision add short sums with a larger u.

    Parameters
    ----------
    moments : Moments
    variance : float
        The total variance.

    Examples
    --------
    >>> import numpy as np
    >>> near = Moments(100.0, np.zeros(2), np.ones(2))
    >>> far = Moments(100.0, np.full(2, 1e6), np.ones(2))
    >>> f"{bound_rounding(near, 1.0):.1e} {bound_rounding(far, 1.0):.1e}"
    '3.3e-15 6.7e-03'
    """
    squares = variance + moments.n / moments.divisor * moments.distance * moments.distance
    error = count_roundings(moments.n) * _ROUNDOFF * squares
    # Each of n products may lose half of the least number, and so may their sum when it is divided.
    error += len(moments.mean) * (moments.n / moments.divisor + 1.0) * _LEAST
    if moments.is_scaled:
        error = 2.0 * error + moments.scale_error * variance
    error += _bound_centre(moments, variance)
    return error + (_bound_single(moments, variance) if moments.single else 0.0)


def count_roundings(n: float) -> float:
    """Return by how many unit roundoffs of its terms' sizes a sum of n products is off at most.

    Examples
    --------
    >>> count_roundings(100.0), count_roundings(1e6)
    (30.0, 1035.6)
    """
    return _STEPS + math.sqrt(n) + _ALIKE * min(n, PIECE_ROWS)


def _bound_centre(moments: Moments, variance: float) -> float:
    """Bound the error of the covariance due to a mean that messages have rounded.

    About a mean that is off by e the scatter of complete rows exceeds theirs by ``n e e'``. Rows
    that lack a feature, where e is not subtracted, leave a product of e with their sum as well. In
    single precision the totals of sites are rounded, which lie about as far from zero as the mean
    and the spread together.
    """
    if moments.mean_error is None or moments.observed is None:
        return 0.0
    error, narrow = moments.mean_error / moments.scale, moments.wire == "float32"
    spread = SINGLE_ROUNDOFF * math.sqrt(max(variance, 0.0)) if narrow else 0.0
    lacking = np.sqrt(np.maximum(moments.n - moments.observed, 0.0) / moments.divisor)
    away = float(column_norms(error[:, None])[0]) + spread
    across = float(column_norms((lacking * error)[:, None])[0]) + float(lacking.max()) * spread
    squares = moments.n / moments.divisor + (variance if moments.is_scaled else 0.0)
    return squares * away * away + 2.0 * math.sqrt(max(variance, 0.0)) * across


def _bound_single(moments: Moments, variance: float) -> float:
    """Bound the error of products with genotypes in single precision.

    Rounding errors of different entries are independent as well, so that they add up as the norms
    of vectors do. With t additions after each other and x an entry of D: the error of ``y = D q``
    has the norm ``sqrt(t) u |x q|``, at most that of a column of D, and is multiplied by D' then;
    the error of ``D'y`` has the norm ``sqrt(t) u |x y|``, at most that of a row of D times y. The
    norm of D is at most the root of the trace. Of a column the mean square is at most 2, and in a
    row copies minus one are added up, which are centred afterwards.
    """
    away = float(column_norms(((moments.mean - 1.0) / moments.scale)[:, None])[0])
    in_row = (variance + away * away) / moments.divisor
    terms = _TILE_TERMS + moments.n / _TERM_PEOPLE
    size = math.sqrt(max(variance, 0.0)) * (math.sqrt(2.0) + math.sqrt(in_row))
    return _MARGIN * math.sqrt(terms) * SINGLE_ROUNDOFF * size


def bound_wire_error(moments: Moments, variance: float, directions: int) -> float:
    """Bound the error of the covariance due to messages in single precision.

    With u the relative rounding error of one number: the directions sent have the relative error u,
    and so have the replies of the sites, whose norms add up to at most the total variance. The mean
    sent to the sites adds the square of its error, and the scale adds 2 u. Numbers too small for
    single precision are off by half of its least number, in the replies of up to n sites.

    Parameters
    ----------
    moments : Moments
    variance : float
        The total variance.
    directions : int
        How many directions were multiplied.

    Examples
    --------
    >>> import numpy as np
    >>> bound_wire_error(Moments(9.0, np.zeros(2), np.ones(2)), 1.0, 3)
    0.0
    >>> f"{bound_wire_error(Moments(9.0, np.zeros(2), np.ones(2), wire='float32'), 1.0, 4):.1e}"
    '4.8e-07'
    """
    if moments.wire == "float64":
        return 0.0
    u = float(np.finfo(np.float32).eps) / 2
    away = u * moments.distance
    ratio = moments.n / moments.divisor
    lost = LEAST_SINGLE * ratio * math.sqrt(float(directions) * len(moments.mean))
    return 2 * u * variance * (math.sqrt(directions) + 2.0) + ratio * away * away + lost


def bound_fixed_point(moments: Moments, total: Total, numbers: float) -> float:
    """Bound the error of sums in fixed point, all numbers of them together; 0 for plain sums.

    Parameters
    ----------
    moments : Moments
    total : Total
        How sums over sites were made.
    numbers : float
        How many numbers the sums had.
    """
    step = float(np.max(total.error(moments.most)))
    return step * math.sqrt(numbers) / moments.divisor
