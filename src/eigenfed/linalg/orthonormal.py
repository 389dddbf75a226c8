"""Orthonormal rows: orthonormalise, complete, fix signs; column norms and principal angles."""

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.errors import InputError

_ROWS_AT_ONCE = 64


def orthonormalise_rows(vt: Array) -> Array:
    """Orthonormalise nearly orthonormal rows, each against the rows above it.

    One pass of Cholesky QR: its error is the unit roundoff times the squared condition number of
    `vt`, so it is meant for rows that are orthonormal to 1e-3 or better. Earlier rows, which
    belong to larger singular values and are more accurate, keep their direction.

    Parameters
    ----------
    vt : ndarray of shape (k, d)

    Returns
    -------
    ndarray of shape (k, d)

    Examples
    --------
    >>> import numpy as np
    >>> rows = orthonormalise_rows(np.array([[1.0, 1e-5], [0.0, 1.0]]))
    >>> bool(np.allclose(rows @ rows.T, np.eye(2), rtol=0, atol=1e-15))
    True
    """
    # On use: a device that keeps a small scatter needs no scipy, and has little memory.
    from scipy.linalg import cholesky, solve_triangular

    lower = cholesky(vt @ vt.T, lower=True, check_finite=False)
    rows: Array = solve_triangular(lower, vt, lower=True, check_finite=False)
    return rows


def complete_rows(vt: Array, k: int) -> Array:
    """Add orthonormal rows to `vt` until there are `k`, deterministically.

    Each new row is the canonical vector least covered by the rows so far, made orthogonal to
    them. The least covered of d canonical vectors keeps at least ``1 - rows/d`` of its squared
    length, so the step never divides by a tiny number.

    Parameters
    ----------
    vt : ndarray of shape (j, d)
        Orthonormal rows, ``j <= k <= d``.
    k : int

    Returns
    -------
    ndarray of shape (k, d)

    Examples
    --------
    >>> import numpy as np
    >>> complete_rows(np.array([[0.0, 1.0, 0.0]]), 2)
    array([[0., 1., 0.],
           [1., 0., 0.]])
    """
    j, d = vt.shape
    rows = np.zeros((k, d))
    rows[:j] = vt
    for i in range(j, k):
        above = rows[:i]
        row = np.zeros(d)
        row[np.argmin(np.einsum("ij,ij->j", above, above))] = 1.0
        for _ in range(2):
            row -= (above @ row) @ above
        rows[i] = row / np.linalg.norm(row)
    return rows


def flip_signs(vt: Array) -> Array:
    """Flip rows so that the entry of largest magnitude in each is positive.

    Parameters
    ----------
    vt : ndarray of shape (k, d)

    Returns
    -------
    ndarray of shape (k, d)

    Examples
    --------
    >>> import numpy as np
    >>> flip_signs(np.array([[0.6, -0.8]]))
    array([[-0.6,  0.8]])
    """
    largest = np.take_along_axis(vt, np.abs(vt).argmax(axis=1)[:, None], axis=1)
    return vt * np.where(largest < 0, -1.0, 1.0)


def column_norms(a: Array) -> Array:
    """Compute the Euclidean norm of each column without overflow or underflow.

    Parameters
    ----------
    a : ndarray of shape (d, k)

    Returns
    -------
    ndarray of shape (k,)

    Examples
    --------
    >>> import numpy as np
    >>> column_norms(np.array([[3e200, 0.0], [4e200, 0.0]]))
    array([5.e+200, 0.e+000])
    """
    peaks = column_peaks(a)
    units = a / np.where(peaks > 0.0, peaks, 1.0)
    norms: Array = peaks * np.sqrt(np.einsum("ij,ij->j", units, units))
    return norms


def column_peaks(a: Array) -> Array:
    """Return the largest magnitude in each column, (k,).

    Many rows of few columns are compared some at a time, in a fifth of the time.

    Examples
    --------
    >>> column_peaks(np.array([[-3.0, 0.0], [2.0, 0.0]]))
    array([3., 0.])
    """
    sizes = np.abs(a)
    n, k = sizes.shape
    joined = n // _ROWS_AT_ONCE * _ROWS_AT_ONCE
    rest, first = sizes[joined:], sizes[:joined]
    if joined and sizes.flags.c_contiguous:
        wide = first.reshape(-1, _ROWS_AT_ONCE * k).max(axis=0)
        first = wide.reshape(_ROWS_AT_ONCE, k)
    peaks: Array = np.maximum(rest.max(axis=0, initial=0.0), first.max(axis=0, initial=0.0))
    return peaks


def find_powers(columns: Array) -> npt.NDArray[np.intc]:
    """Return the powers of two that no entry of each column exceeds.

    Examples
    --------
    >>> find_powers(np.array([[3.0, 0.25], [-1.0, 0.0]])).tolist()
    [2, -1]
    """
    powers: npt.NDArray[np.intc] = np.frexp(column_peaks(columns))[1]
    return powers


def split_powers(columns: Array) -> tuple[Array, npt.NDArray[np.intc]]:
    """Return columns divided by powers of two, so that no entry exceeds 1, and the exponents.

    So products with tiny columns are not rounded to the least numbers before they are added up.

    Examples
    --------
    >>> units, powers = split_powers(np.array([[3e-300, 0.0], [1e-300, 0.0]]))
    >>> np.ldexp(units, powers)
    array([[3.e-300, 0.e+000],
           [1.e-300, 0.e+000]])
    """
    powers = find_powers(columns)
    units: Array = np.ldexp(columns, -powers)
    return units, powers


def sines(vt: Array, other: Array) -> Array:
    """Compute the sines of the principal angles from the span of `vt` to the span of `other`.

    From the part of `vt` outside the other span: cosines cannot resolve angles below 1e-8.

    Parameters
    ----------
    vt : ndarray of shape (k, d)
        Orthonormal rows.
    other : ndarray of shape (l, d)
        Orthonormal rows, ``l >= k``.

    Returns
    -------
    ndarray of shape (k,)
        Largest first, at most 1.

    Examples
    --------
    >>> import numpy as np
    >>> tilted = np.array([[np.cos(1e-12), np.sin(1e-12)]])
    >>> sines(tilted, np.array([[1.0, 0.0]]))
    array([1.e-12])
    """
    if vt.shape[1] != other.shape[1] or vt.shape[0] > other.shape[0]:
        raise InputError(
            f"other has shape {other.shape} and must have the {vt.shape[1]} columns of vt and at "
            f"least its {vt.shape[0]} rows. Swap the arguments or cut vt."
        )
    outside = vt - (vt @ other.T) @ other
    values: Array = np.minimum(np.linalg.svd(outside, compute_uv=False), 1.0)
    return values
