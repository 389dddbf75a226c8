"""Clipping: rows become integers of bounded norm, so that sums are exact and noise can be discrete.

A row is clipped to a radius and rounded to an integer vector of norm at most `grid`. The norm is
checked after rounding, because the sensitivity must hold for the numbers that are summed. Integers
are kept in float64, in which sums and products below 2^53 are exact in any order.
"""

import math

import numpy as np

from eigenfed.arrays import Array
from eigenfed.errors import InputError

LARGEST = 1e100
"""Entries are clipped to this magnitude, so that no norm overflows. Its inverse is the least
radius."""

_EXACT_BITS = 53
_MOST_BITS = 20


def choose_grid(n: int, d: int) -> int:
    """Return the largest integer norm for which the second moment of n rows is exact.

    Examples
    --------
    >>> choose_grid(1797, 64), choose_grid(10**6, 64)
    (1048576, 65536)
    """
    bits = min((_EXACT_BITS - 1 - max(n, 1).bit_length()) // 2, _MOST_BITS)
    grid = 1 << max(bits, 0)
    if grid < least_grid(d):
        raise InputError(
            f"{n} rows of {d} features are too many to be summed exactly on one grid. "
            "Use fewer rows."
        )
    return grid


def max_exact_rows(grid: int) -> int:
    """Return the largest number of rows on a grid whose second moment float64 sums exactly.

    Examples
    --------
    >>> max_exact_rows(choose_grid(10**6, 64)) > 10**6
    True
    """
    return (1 << _EXACT_BITS) // grid**2


def least_grid(d: int) -> float:
    """Return the least grid for d features: on a coarser one, rounding changes norms too much.

    Examples
    --------
    >>> least_grid(64)
    32.0
    """
    return 4.0 * math.sqrt(d)


def subtract_center(rows: Array, center: Array) -> Array:
    """Subtract a centre from rows, clipping huge entries so that nothing overflows.

    Examples
    --------
    >>> import numpy as np
    >>> subtract_center(np.array([[3.0, -1.7e308]]), center=np.array([1.0, 0.0]))
    array([[ 2.e+000, -1.e+100]])
    """
    centred: Array = np.clip(rows, -LARGEST, LARGEST) - center
    return centred


def round_to_grid(rows: Array, radius: float, grid: int) -> Array:
    """Clip rows to a radius and round them to integer vectors of norm at most `grid`.

    Parameters
    ----------
    rows : ndarray of shape (b, d)
        Without NaN.
    radius : float
        Largest norm; longer rows are scaled down to it.
    grid : int
        The radius in integer steps.

    Returns
    -------
    ndarray of shape (b, d)
        Integers, in units of ``radius / grid``.

    Examples
    --------
    >>> import numpy as np
    >>> round_to_grid(np.array([[3.0, 4.0], [0.3, 0.4]]), radius=1.0, grid=1000)
    array([[600., 799.],
           [300., 400.]])
    """
    if not 1.0 / LARGEST <= radius <= LARGEST:
        raise InputError(
            f"radius={radius} must be from {1.0 / LARGEST} to {LARGEST}. Pass 1.0, for example."
        )
    if grid < least_grid(rows.shape[1]):
        raise InputError(f"grid={grid} must be at least {least_grid(rows.shape[1]):g}. Raise it.")
    rows = np.clip(rows, -LARGEST, LARGEST)
    # Rounding to nearest can lengthen a row by sqrt(d) / 2: clip to that much less.
    limit = radius * (grid - math.sqrt(rows.shape[1]) / 2 - 1e-6 * grid) / grid
    factor = limit / np.maximum(row_norms(rows), limit)
    integers: Array = np.rint(rows * (factor * (grid / radius))[:, None])
    if np.any(np.einsum("ij,ij->i", integers, integers) > float(grid) ** 2):
        raise InputError(f"grid={grid} is too coarse for these rows. Pass a larger grid.")
    return integers


def row_norms(rows: Array) -> Array:
    """Return the Euclidean norm of each row, without overflow.

    Examples
    --------
    >>> import numpy as np
    >>> row_norms(np.array([[3e200, 4e200]]))
    array([5.e+200])
    """
    largest = np.abs(rows).max(axis=1, initial=0.0)
    unit = np.where(largest > 0, largest, 1.0)
    scaled = rows / unit[:, None]
    norms: Array = unit * np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
    return norms


def compute_coefficients(integers: Array, basis: Array, update_clip: float) -> Array:
    """Return integer coefficients w of rows z with respect to a basis, with ``|z| |w|`` clipped.

    Parameters
    ----------
    integers : ndarray of shape (b, d)
        Rows on the grid.
    basis : ndarray of shape (d, l)
        Orthonormal columns.
    update_clip : float
        Largest ``|z| |w|``, above 0.

    Returns
    -------
    ndarray of shape (b, l)
        Rounded towards zero, so that no clipped norm grows.
    """
    onto = integers @ basis
    sizes = row_norms(integers) * row_norms(onto)
    factor = update_clip / np.maximum(sizes, update_clip)
    coefficients: Array = np.trunc(onto * (factor * (1 - 1e-12))[:, None])
    return coefficients


def sketch_slack(grid: int, width: int) -> float:
    """Return by how much rounding the coefficients can increase the sensitivity of a sketch.

    Rounding w changes each of the two updates z w' by at most ``|z| sqrt(l)``.
    """
    return 2.0 * grid * math.sqrt(width)
