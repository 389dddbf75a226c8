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
        turned = (sd / np.where(own, np.inf, apart)) ** 2
    cosines: Array = 1.0 / (1.0 + turned.sum(axis=1))
    return cosines


def estimate_cosines_beside(
    values: Array, added: float, d: int, *, background: float = 0.0, sd: float = 0.0
) -> Array:
    """Estimate how far eigenvectors are mixed with one random direction that was added.

    The direction, of squared length a, has an eigenvalue e of its own: a, the variance that is
    there anyway, and what noise lifts it by. An eigenvalue v above e belongs to a vector with a
    squared cosine of ``1 / (1 + a^2 / (d (v - e)^2))``, since the inner product of two directions
    is about ``1 / sqrt(d)``. One that is not above e is taken for the direction itself, or for one
    whose place it has taken. The squared length is a sum over d random numbers: one standard
    deviation more than expected is allowed for.

    Parameters
    ----------
    values : ndarray of shape (k,)
        Leading eigenvalues, with the direction added.
    added : float
        Expected variance along the added direction.
    d : int
        Number of features.
    background : float
        Mean variance of a feature without it.
    sd : float
        Standard deviation of the noise on an off-diagonal entry.

    Returns
    -------
    ndarray of shape (k,)
        Squared cosines.

    Examples
    --------
    >>> estimate_cosines_beside(np.array([10.0, 1.5, 0.1]), 1.0, 100).round(2)
    array([1.  , 0.93, 0.  ])
    """
    if not added > 0.0:
        return np.ones(len(values))
    # In units of the direction itself, so that no square overflows.
    noise = d * (sd / added) ** 2
    own = 1.0 + np.sqrt(2.0 / d) + background / added + noise / (1.0 + noise)
    above = values / added - own
    with np.errstate(divide="ignore"):
        cosines: Array = 1.0 / (1.0 + 1.0 / (d * np.maximum(above, 0.0) ** 2))
    return cosines


def estimate_cosines_along(values: Array, along: Array, added: float, background: float) -> Array:
    """Estimate what is left of eigenvectors without the variance added along a known direction.

    Parameters
    ----------
    values : ndarray of shape (k,)
        Leading eigenvalues, with the direction added.
    along : ndarray of shape (k,)
        Squared cosines of their eigenvectors with the direction.
    added : float
        Variance added along it.
    background : float
        Mean variance of a feature without it.

    Returns
    -------
    ndarray of shape (k,)
        Squared cosines.

    Examples
    --------
    >>> values, along = np.array([10.0, 4.0, 2.0]), np.array([0.1, 0.9, 0.0])
    >>> estimate_cosines_along(values, along, added=3.0, background=1.0).round(2)
    array([0.97, 0.1 , 1.  ])
    """
    if not added > 0.0:
        return np.ones(len(values))
    cosines: Array = 1.0 - np.minimum(along * added / np.maximum(values - background, added), 1.0)
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
