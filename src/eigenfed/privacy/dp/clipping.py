"""Rows as whole numbers of bounded norm, so that their sums are exact and noise can be whole too.

A row is clipped to a radius, mapped to whole numbers of norm at most `grid`, and checked there: the
sensitivity holds for what is summed, not for what it was before rounding. Whole numbers are kept
in float64, in which sums and products below 2^53 are exact in any order.
"""

import math

import numpy as np

from eigenfed.arrays import Array
from eigenfed.errors import InputError

LARGEST = 1e100
"""Larger entries are brought back to this, so that no norm overflows; radii are from 1 over it."""

_EXACT_BITS = 53
_MOST_BITS = 20


def grid_for(n: int, d: int) -> int:
    """Return the largest norm in whole numbers at which the second moment of n rows is exact.

    Examples
    --------
    >>> grid_for(1797, 64), grid_for(10**6, 64)
    (1048576, 65536)
    """
    bits = min((_EXACT_BITS - 1 - max(n, 1).bit_length()) // 2, _MOST_BITS)
    grid = 1 << max(bits, 0)
    if grid < coarsest(d):
        raise InputError(
            f"{n} rows of {d} features are too many to be summed exactly on one grid. "
            "Take fewer rows."
        )
    return grid


def exact_rows(grid: int) -> int:
    """Return how many rows on a grid have a second moment that float64 adds up exactly.

    Examples
    --------
    >>> exact_rows(grid_for(10**6, 64)) > 10**6
    True
    """
    return (1 << _EXACT_BITS) // grid**2


def coarsest(d: int) -> float:
    """Return the least grid for rows of d features: below, rounding could lengthen a row much.

    Examples
    --------
    >>> coarsest(64)
    32.0
    """
    return 4.0 * math.sqrt(d)


def about(rows: Array, center: Array) -> Array:
    """Return rows less a centre, without overflow whatever the rows are.

    Examples
    --------
    >>> import numpy as np
    >>> about(np.array([[3.0, -1.7e308]]), center=np.array([1.0, 0.0]))
    array([[ 2.e+000, -1.e+100]])
    """
    around: Array = np.clip(rows, -LARGEST, LARGEST) - center
    return around


def on_grid(rows: Array, radius: float, grid: int) -> Array:
    """Clip rows to a radius and map them to whole numbers of norm at most `grid`.

    Parameters
    ----------
    rows : ndarray of shape (b, d)
        Without NaN.
    radius : float
        Rows beyond it are shortened to it.
    grid : int
        What the radius becomes.

    Returns
    -------
    ndarray of shape (b, d)
        Whole numbers; ``radius / grid`` of the unit of the rows each.

    Examples
    --------
    >>> import numpy as np
    >>> on_grid(np.array([[3.0, 4.0], [0.3, 0.4]]), radius=1.0, grid=1000)
    array([[600., 799.],
           [300., 400.]])
    """
    if not 1.0 / LARGEST <= radius <= LARGEST:
        raise InputError(f"radius={radius} must be a number above 0, of usual size. Pass 1.0, say.")
    if grid < coarsest(rows.shape[1]):
        raise InputError(f"grid={grid} must be at least {coarsest(rows.shape[1]):g}. Raise it.")
    rows = np.clip(rows, -LARGEST, LARGEST)
    # Rounding to the nearest can lengthen a row by sqrt(d) / 2.
    room = radius * (grid - math.sqrt(rows.shape[1]) / 2 - 1e-6 * grid) / grid
    factor = room / np.maximum(lengths(rows), room)
    whole: Array = np.rint(rows * (factor * (grid / radius))[:, None])
    if np.any(np.einsum("ij,ij->i", whole, whole) > float(grid) ** 2):
        raise InputError(f"grid={grid} is too coarse for these rows. Take a larger grid.")
    return whole


def lengths(rows: Array) -> Array:
    """Return the Euclidean norm of each row, without overflow.

    Examples
    --------
    >>> import numpy as np
    >>> lengths(np.array([[3e200, 4e200]]))
    array([5.e+200])
    """
    largest = np.abs(rows).max(axis=1, initial=0.0)
    unit = np.where(largest > 0, largest, 1.0)
    scaled = rows / unit[:, None]
    norms: Array = unit * np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
    return norms


def sketched(whole: Array, basis: Array, update_clip: float) -> Array:
    """Return whole-number coefficients w of rows z on a basis, with ``|z| |w|`` clipped.

    Parameters
    ----------
    whole : ndarray of shape (b, d)
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
    onto = whole @ basis
    sizes = lengths(whole) * lengths(onto)
    factor = update_clip / np.maximum(sizes, update_clip)
    coefficients: Array = np.trunc(onto * (factor * (1 - 1e-12))[:, None])
    return coefficients


def sketch_slack(grid: int, width: int) -> float:
    """Return by how much rounding coefficients can enlarge the change of a sketch.

    Each of two updates z w' is moved by at most ``|z| sqrt(l)`` when w is rounded.
    """
    return 2.0 * grid * math.sqrt(width)
