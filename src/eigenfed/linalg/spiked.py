"""Estimates of how well noisy eigenvectors agree with noiseless ones, from noisy eigenvalues only.

For a symmetric matrix with independent noise of standard deviation s on its entries, the squared
cosine between an eigenvector of the noisy matrix, with eigenvalue v, and the noiseless one is about
1 / (1 + s^2 sum_i (v - v_i)^-2), where v_i are the other noisy eigenvalues. For a single eigenvalue
l with all others 0 this is the spiked model's 1 - s^2 d / l^2; among eigenvalues as close together
as the noise spreads them it is near 0. It is an estimate for large matrices, not a bound.

`estimate_shrinkage` is about sampling noise, which components of few rows follow.
"""

import numpy as np

from eigenfed.arrays import Array


def estimate_cosines_under_noise(values: Array, k: int, sd: float) -> Array:
    """Estimate the squared cosines between leading noisy eigenvectors and noiseless ones.

    Parameters
    ----------
    values : ndarray of shape (d,)
        All noisy eigenvalues, largest first.
    k : int
        Number of eigenvectors.
    sd : float
        Standard deviation of the noise on an off-diagonal entry.

    Returns
    -------
    ndarray of shape (k,)

    Examples
    --------
    >>> estimate_cosines_under_noise(np.array([10.0, 1.0, 0.9, 0.1]), 2, 0.2).round(2)
    array([1. , 0.2])
    """
    apart = values[:k, None] - values
    own = np.eye(k, len(values), dtype=bool)
    with np.errstate(divide="ignore"):
        turned = np.where(own, 0.0, (sd / np.where(own, 1.0, apart)) ** 2)
    cosines: Array = 1.0 / (1.0 + turned.sum(axis=1))
    return cosines


def estimate_cosines_beside(values: Array, added: float, d: int) -> Array:
    """Estimate how one added random direction mixes with eigenvectors.

    The direction and an eigenvector are treated as two axes with inner product ``1 / sqrt(d)``;
    the direction takes the eigenvector's place where its variance is larger.

    Parameters
    ----------
    values : ndarray of shape (k,)
        Eigenvalues.
    added : float
        Variance along the added direction.
    d : int
        Number of features.

    Returns
    -------
    ndarray of shape (k,)
        Squared cosines.

    Examples
    --------
    >>> estimate_cosines_beside(np.array([10.0, 1.0, 0.1]), 1.0, 100).round(2)
    array([1.  , 0.5 , 0.01])
    """
    apart = values - added
    mixed = 4.0 * added**2 / d
    spread = np.sqrt(apart**2 + mixed)
    cosines: Array = (1.0 + apart / np.where(spread > 0.0, spread, 1.0)) / 2.0
    return cosines


def estimate_shrinkage(values: Array, aspect: float) -> Array:
    """Estimate by which factors scores of new rows are closer to 0 than those of fitted rows.

    In the spiked model of n rows of d independent features, an eigenvalue l of the population
    appears as ``v = l (1 + g / (l - 1))`` with ``g = d / n``, and the factor is
    ``(l - 1) / (l - 1 + g)`` (Lee, Zou and Wright 2010).

    Parameters
    ----------
    values : ndarray of shape (k,)
        Eigenvalues v, relative to the variance of a feature that is noise.
    aspect : float
        The ratio g.

    Returns
    -------
    ndarray of shape (k,)
        0 for an eigenvalue within noise, where ``v <= (1 + sqrt(g))**2``.

    Examples
    --------
    >>> estimate_shrinkage(np.array([100.0, 20.0, 4.0]), 10.0).round(2)
    array([0.9 , 0.44, 0.  ])
    """
    middle = values + 1.0 - aspect
    within = middle**2 - 4.0 * values
    is_clear = values > (1.0 + np.sqrt(aspect)) ** 2
    above = (middle + np.sqrt(np.where(is_clear, within, 0.0))) / 2.0 - 1.0
    factors: Array = np.where(is_clear, above / np.where(is_clear, above + aspect, 1.0), 0.0)
    return factors
