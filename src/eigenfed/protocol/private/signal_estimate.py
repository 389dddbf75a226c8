"""How much of its signal each component of a private run has kept, from what was released.

The noise on the covariance turns its eigenvectors, and the error of the mean adds a direction to
it. Both are estimated: neither costs privacy.
"""

import math

import numpy as np

from eigenfed.arrays import Array
from eigenfed.linalg.spiked import (
    estimate_cosines_along,
    estimate_cosines_beside,
    estimate_cosines_under_noise,
)


def estimate_signal(
    matrix: Array, components: Array, missed: float, short: Array, sd: float
) -> Array:
    """Estimate each squared cosine with the noiseless component.

    Parameters
    ----------
    matrix : ndarray of shape (d, d)
        Noisy covariance.
    components : ndarray of shape (k, d)
    missed, short
        Error of the mean, as in `discount_mean`.
    sd : float
        Standard deviation of the noise on an off-diagonal entry.

    Examples
    --------
    >>> matrix, error = np.diag([9.0, 4.0] + [1.0] * 8), np.array([0.0, 1.2] + [0.0] * 8)
    >>> estimate_signal(matrix, np.eye(10)[:2], 0.0, error, 0.1).round(2)
    array([1.  , 0.29])
    """
    values = np.linalg.eigvalsh(matrix)[::-1].astype(np.float64)
    k = len(components)
    cosines = estimate_cosines_under_noise(values, k, sd)
    along = normalize(short)
    short = limit_length(short, float(along @ matrix @ along))
    return cosines * discount_mean(
        values[:k], components, missed, short, total=float(values.sum()), sd=sd
    )


def normalize(short: Array) -> Array:
    """Return the direction of an error, of length 1; 0 if there is none."""
    direction: Array = short / max(float(np.linalg.norm(short)), np.finfo(float).tiny)
    return direction


def limit_length(short: Array, variance: float) -> Array:
    """Return an error of the mean that adds no more than all variance along its direction."""
    length = math.sqrt(max(variance, 0.0))
    return normalize(short) * min(float(np.linalg.norm(short)), length)


def discount_mean(
    values: Array,
    components: Array,
    missed: float,
    short: Array,
    *,
    total: float = 0.0,
    sd: float = 0.0,
) -> Array:
    """Estimate what is left of components without the error of the mean.

    An error e adds e e' to the covariance: a variance of ``|e|^2`` along e.

    Parameters
    ----------
    values : ndarray of shape (k,)
    components : ndarray of shape (k, d)
    missed : float
        Expected squared length of the error in a random direction.
    short : ndarray of shape (d,)
        Expected error in a known direction.
    total : float
        Variance of all features; 0 if it is not known.
    sd : float
        Standard deviation of the noise on an entry of the covariance.
    """
    length, d = float(np.linalg.norm(short)), components.shape[1]
    along = (components @ normalize(short)) ** 2
    background = max(total - missed - length**2, 0.0) / d
    beside = estimate_cosines_beside(values, missed, d, background=background, sd=sd)
    return beside * estimate_cosines_along(values, along, length**2, background)
