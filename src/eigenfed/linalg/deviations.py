"""Deviations of a block's rows from their weighted mean."""

import numpy as np

from eigenfed.arrays import Array


def deviations(rows: Array, weights: Array | None, *, centered: bool, out: Array) -> Array:
    """Write ``sqrt(weights) * (rows - mean)`` into `out` and return the mean.

    Parameters
    ----------
    rows : ndarray of shape (b, d)
    weights : ndarray of shape (b,) or None
        With a positive sum.
    centered : bool
        With false the mean is taken to be zero.
    out : ndarray of shape (b, d)

    Returns
    -------
    ndarray of shape (d,)

    Examples
    --------
    >>> import numpy as np
    >>> around = np.empty((2, 1))
    >>> deviations(np.array([[1.0], [5.0]]), None, centered=True, out=around)
    array([3.])
    >>> around
    array([[-2.],
           [ 2.]])
    """
    if centered:
        b = len(rows)
        # About one of the rows, so that a large common offset costs no digits and a constant
        # feature deviates by exactly nothing.
        origin = rows[0] if weights is None else rows[weights.argmax()]
        with np.errstate(over="ignore", invalid="ignore"):
            np.subtract(rows, origin, out=out)
        shift = (np.full(b, 1.0 / b) if weights is None else weights / weights.sum()) @ out
        out -= shift
        mean: Array = origin + shift
    else:
        out[:] = rows
        mean = np.zeros(rows.shape[1])
    if weights is not None:
        out *= np.sqrt(weights)[:, None]
    return mean
