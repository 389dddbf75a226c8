"""How much of an eigenvector is left under noise, told from the noisy matrix alone.

Of a symmetric matrix with independent noise of deviation s on its entries, an eigenvector with the
eigenvalue v keeps the squared cosine 1 / (1 + s^2 sum_i (v - v_i)^-2), where the v_i are the other
eigenvalues with noise. For one eigenvalue l above nothing that is the well-known 1 - s^2 d / l^2;
among many that lie as near as noise throws them, next to nothing. It holds for large matrices and
is an estimate, not a bound.
"""

import numpy as np

from eigenfed.arrays import Array


def cosines_under_noise(values: Array, k: int, deviation: float) -> Array:
    """Estimate the squared cosines of leading eigenvectors with those without noise.

    Parameters
    ----------
    values : ndarray of shape (d,)
        All eigenvalues with noise, falling.
    k : int
        Number of eigenvectors.
    deviation : float
        Of the noise on an entry off the diagonal.

    Returns
    -------
    ndarray of shape (k,)

    Examples
    --------
    >>> cosines_under_noise(np.array([10.0, 1.0, 0.9, 0.1]), 2, 0.2).round(2)
    array([1. , 0.2])
    """
    apart = values[:k, None] - values
    own = np.eye(k, len(values), dtype=bool)
    with np.errstate(divide="ignore"):
        turned = np.where(own, 0.0, (deviation / np.where(own, 1.0, apart)) ** 2)
    cosines: Array = 1.0 / (1.0 + turned.sum(axis=1))
    return cosines


def cosines_beside(values: Array, strange: float, d: int) -> Array:
    """Estimate what one strange direction, drawn at random, leaves of eigenvectors.

    It mixes with an eigenvector as two axes of a matrix do whose inner product is one over the
    root of d, and takes its place where it is the stronger of the two.

    Parameters
    ----------
    values : ndarray of shape (k,)
        Eigenvalues.
    strange : float
        Variance along the strange direction.
    d : int

    Returns
    -------
    ndarray of shape (k,)
        Squared cosines.

    Examples
    --------
    >>> cosines_beside(np.array([10.0, 1.0, 0.1]), 1.0, 100).round(2)
    array([1.  , 0.5 , 0.01])
    """
    apart = values - strange
    mixed = 4.0 * strange**2 / d
    spread = np.sqrt(apart**2 + mixed)
    cosines: Array = (1.0 + apart / np.where(spread > 0.0, spread, 1.0)) / 2.0
    return cosines
