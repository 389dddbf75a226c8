"""Counts of rows within many radii, released at once, and the radii found with them.

A row falls into one of m cells by its norm: cell i has the norms up to radius i that are above
radius i - 1. With h the numbers of rows in the cells, the counts within the radii are A h, where A
has ones on and below its diagonal. Noise on h itself would add up in the counts; noise on A h would
have to be large, since one row changes many counts. So ``y = L h`` is released, where L is the
square root of A (lower triangular, the same along each diagonal) in integers. The columns of L,
which decide how much one row changes y, and the rows of ``A L^-1``, which decide how much noise is
in the counts, both have squared norms of about 1 + ln(m) / pi only.

A row adds one column of L to y, or nothing if it is beyond all radii or left out. So y changes by
at most the largest distance between two columns, or of a column from 0, if a row is replaced, and
by at most the largest norm of a column if it is left out. Both are computed from the integers that
are summed.
"""

import math
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular, toeplitz

from eigenfed.arrays import Array
from eigenfed.privacy.dp.sensitivity import COUNT_UNIT, WIDEST, count_sensitivity

WIDE_CELLS, NEAR_CELLS = 128, 32
"""Number of radii over the widest range, and about a known radius."""
_BELOW, _ABOVE = 5, 3
"""Range of the radii about a known one, in octaves."""


def wide_radii() -> Array:
    """Return the radii to count within if nothing is known about the norms.

    Examples
    --------
    >>> len(wide_radii()), float(wide_radii()[-1]) == 2.0**40
    (128, True)
    """
    return _make_radii(*WIDEST, WIDE_CELLS)


def near_radii(radius: float) -> Array:
    """Return the radii to count within if the norms are about as large as a known radius.

    Examples
    --------
    >>> near_radii(1.0)[[0, 19, -1]].round(3)
    array([0.037, 1.   , 8.   ])
    """
    middle = math.log2(radius)
    return _make_radii(middle - _BELOW, middle + _ABOVE, NEAR_CELLS)


def _make_radii(low: float, high: float, cells: int) -> Array:
    radii: Array = 2.0 ** (low + (high - low) * np.arange(1, cells + 1) / cells)
    return radii


@cache
def _root(cells: int) -> npt.NDArray[np.int64]:
    """Return L: the power series of 1 / sqrt(1 - x) along its columns, in units of COUNT_UNIT."""
    steps = np.arange(1, cells)
    series = np.concatenate([[1.0], np.cumprod((2 * steps - 1) / (2 * steps))])
    integers: npt.NDArray[np.int64] = np.rint(COUNT_UNIT * np.tril(toeplitz(series))).astype(
        np.int64
    )
    return integers


@cache
def norm_counts_sensitivity(cells: int, relation: str) -> float:
    """Return how much one row can change the reply of `encode_counts`, in Euclidean norm.

    Examples
    --------
    >>> from eigenfed.privacy.dp.sensitivity import COUNT_UNIT
    >>> relations = "replace_one", "zero_out"
    >>> [round(norm_counts_sensitivity(32, r) / COUNT_UNIT, 2) for r in relations]
    [1.79, 1.47]
    """
    count_sensitivity(relation)
    columns = np.column_stack([_root(cells), np.zeros(cells, np.int64)])
    inner = columns.T @ columns
    squares = inner.diagonal()
    apart = squares[:, None] + squares - 2 * inner if relation == "replace_one" else squares
    return math.sqrt(int(apart.max()))


def encode_counts(norms: Array, radii: Array) -> npt.NDArray[np.int64]:
    """Return the integers to which noise is added, for rows with these norms.

    Parameters
    ----------
    norms : ndarray of shape (n,)
    radii : ndarray of shape (m,)
        Increasing.

    Returns
    -------
    ndarray of shape (m,)
    """
    cells = np.searchsorted(radii, norms, side="left")
    held = np.bincount(cells, minlength=len(radii) + 1)[: len(radii)]
    encoded: npt.NDArray[np.int64] = _root(len(radii)) @ held
    return encoded


def decode_counts(encoded: Array) -> Array:
    """Return the numbers of rows within the radii.

    Noise may make them fall where they cannot: the closest rising sequence is returned.

    Examples
    --------
    >>> radii = near_radii(1.0)
    >>> decode_counts(encode_counts(np.array([0.5, 1.0, 1.0]), radii))[[0, 17, 19]].round()
    array([0., 1., 3.])
    """
    from scipy.optimize import isotonic_regression  # loaded on use: sites import this module too

    held = solve_triangular(_root(len(encoded)).astype(np.float64), encoded, lower=True)
    counts: Array = isotonic_regression(np.cumsum(held)).x
    return counts


@cache
def decoded_sd(cells: int) -> float:
    """Return the largest standard deviation of a decoded count, if the noise has 1.

    Examples
    --------
    >>> from eigenfed.privacy.dp.sensitivity import COUNT_UNIT
    >>> round(decoded_sd(32) * COUNT_UNIT, 2)
    1.47
    """
    inverse = solve_triangular(_root(cells).astype(np.float64), np.eye(cells), lower=True)
    return float(np.sqrt(np.sum(np.cumsum(inverse, axis=0) ** 2, axis=1)).max())


def find_quantile(radii: Array, counts: Array, wanted: float) -> float | None:
    """Return the radius that holds so many rows; None if that is outside the radii.

    Parameters
    ----------
    radii : ndarray of shape (m,)
    counts : ndarray of shape (m,)
        Rising numbers of rows within the radii.
    wanted : float

    Examples
    --------
    >>> round(find_quantile(np.array([1.0, 4.0]), np.array([10.0, 20.0]), 15.0), 6)
    2.0
    """
    i = int(np.searchsorted(counts, wanted))
    if i in (0, len(counts)):
        return None
    part = (wanted - counts[i - 1]) / (counts[i] - counts[i - 1])
    return float(radii[i - 1] * (radii[i] / radii[i - 1]) ** part)
