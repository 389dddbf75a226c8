"""Angles between subspaces, measured so that small ones keep their digits."""

import numpy as np

from eigenfed.arrays import Array
from eigenfed.errors import InputError


def sines(vt: Array, other: Array) -> Array:
    """Sines of the principal angles from the span of `vt` to the span of `other`.

    From the part of `vt` that lies outside the other span, since one minus a cosine holds no
    angle below 1e-8.

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
    found: Array = np.minimum(np.linalg.svd(outside, compute_uv=False), 1.0)
    return found
