"""What n rows can tell: which components stand above noise, and how far a new sample turns them.

The model is the spiked covariance: a few directions of large variance, and noise of one variance in
all others, in independent rows that are roughly normal. Under it the largest eigenvalue of noise
alone follows a Tracy-Widom law (Johnstone 2001), which is the Marchenko-Pastur edge ``noise * (1 +
sqrt(d / n))**2`` with its fluctuations. With the mean variance of all features as noise this is
Horn's (1965) parallel analysis without drawing rows: what independent features would give.
Kritchman and Nadler (2008) test components one after the other instead, each against the noise that
remains; their estimate of it undoes the upward bias of the leading eigenvalues. Directions of a
sample differ from those of the population by the angles of Anderson (1963), with the correction of
the spiked model where features are not few beside rows (Paul 2007).

All of it uses variances and counts only, never a row.
"""

import math
from dataclasses import dataclass

import numpy as np

from eigenfed.arrays import Array

_QUANTILE = 0.9793
"""Of the Tracy-Widom law of order 1, at 95 %."""
_STEPS = 20
"""Of a fixed point whose error shrinks by more than half in each."""

_QUANTILE_95 = 1.959963984540054
_TIED_95 = -8.0 * math.log(0.05)
"""Square of the relative difference of two equal variances, times rows, in 95 of 100 samples."""


@dataclass(frozen=True)
class NoiseEdge:
    """The largest variance that noise alone would give a component, in 95 of 100 samples.

    Attributes
    ----------
    variance : float
        The edge.
    noise : float
        Variance of the noise in each direction.
    above : int
        Number of leading components above the edge.
    all_above : bool
        Whether all known components are above it: then there may be more.
    """

    variance: float
    noise: float
    above: int
    all_above: bool


def largest_by_chance(n: float, d: int) -> float:
    """Return the largest eigenvalue of noise of variance 1, as exceeded in 5 of 100 samples.

    Parameters
    ----------
    n : float
        Degrees of freedom: rows, less one if they are centred.
    d : int
        Number of features.

    Examples
    --------
    >>> round(largest_by_chance(1000.0, 100), 3), round((1 + 0.1**0.5) ** 2, 3)
    (1.752, 1.732)
    """
    rows, features = math.sqrt(max(n - 1.0, 1.0)), math.sqrt(d)
    centre = (rows + features) ** 2
    spread = (rows + features) * math.cbrt(1.0 / rows + 1.0 / features)
    return (centre + _QUANTILE * spread) / n


def compare_with_independent(variances: Array, total: float, n: float, d: int) -> NoiseEdge:
    """Count the components with more variance than any of independent features: parallel analysis.

    Parameters
    ----------
    variances, total, n, d
        As for `find_noise_edge`.

    Examples
    --------
    >>> variances = np.array([3.0, 2.2, 1.4, 0.3])
    >>> edge = compare_with_independent(variances, total=7.0, n=2099.0, d=7)
    >>> edge.above, round(edge.variance, 2)
    (3, 1.13)
    """
    noise = total / d
    edge = noise * largest_by_chance(n, d)
    above = int(np.count_nonzero(variances > edge))
    return NoiseEdge(edge, noise, above, above == len(variances) < d)


def find_noise_edge(variances: Array, total: float, n: float, d: int) -> NoiseEdge:
    """Count the components that stand above noise, each against the noise that remains.

    Parameters
    ----------
    variances : ndarray of shape (m,)
        Leading eigenvalues of a sample covariance, largest first.
    total : float
        The sum of all d eigenvalues.
    n : float
        Degrees of freedom: rows, less one if they are centred.
    d : int
        Number of features.

    Examples
    --------
    >>> variances = np.array([9.0, 4.0, 1.3, 1.2, 1.2])
    >>> edge = find_noise_edge(variances, total=9 + 4 + 48.0, n=1000.0, d=50)
    >>> edge.above, round(edge.variance, 2), round(edge.noise, 2)
    (2, 1.51, 1.0)
    """
    above = 0
    while True:
        noise = _estimate_noise(variances[:above], total, n, d)
        edge = noise * largest_by_chance(n, d - above)
        last = above == min(len(variances), d - 1)
        if last or not variances[above] > edge:
            return NoiseEdge(edge, noise, above, last and above < d - 1)
        above += 1


def _estimate_noise(leading: Array, total: float, n: float, d: int) -> float:
    """Return the noise variance that is consistent with the variances without bias."""
    rest = d - len(leading)
    noise = max(total - float(leading.sum()), 0.0) / rest
    for _ in range(_STEPS):
        noise = max(total - float(remove_bias(leading, noise, n, rest).sum()), 0.0) / rest
    return noise


def remove_bias(leading: Array, noise: float, n: float, rest: int) -> Array:
    """Return variances of the population, from those of a sample above the noise edge.

    A sample multiplies a variance v by about ``1 + r * noise / (v - noise)``, where r is rest / n.

    Parameters
    ----------
    leading : ndarray of shape (m,)
    noise : float
        Variance of the noise in each direction.
    n : float
        Degrees of freedom.
    rest : int
        Number of directions that have noise only.

    Examples
    --------
    >>> remove_bias(np.array([4 * (1 + 0.5 / 3)]), 1.0, n=100.0, rest=50).round(12)
    array([4.])
    """
    half = (leading + noise * (1.0 - rest / n)) / 2.0
    found: Array = half + np.sqrt(np.maximum(half**2 - leading * noise, 0.0))
    return found


def estimate_turns(variances: Array, total: float, n: float, d: int) -> Array:
    """Estimate by how much another sample of as many rows would turn each component.

    Parameters
    ----------
    variances, total, n, d
        As for `find_noise_edge`.

    Returns
    -------
    ndarray of shape (m,)
        Root mean square of the angle between the component and that of the population, in radians;
        pi / 2 for components that do not stand above noise.

    Examples
    --------
    >>> turns = estimate_turns(np.array([9.0, 4.0, 1.1]), total=9 + 4 + 8.0, n=500.0, d=10)
    >>> np.degrees(turns).round(1)
    array([ 4.1,  5.7, 90. ])
    """
    into_noise, into_others = _square_tangents(variances, total, n, d)
    turns = np.full(len(variances), math.pi / 2)
    turns[: len(into_noise)] = np.arctan(np.sqrt(into_noise + into_others.sum(axis=1)))
    return turns


def bound_turns(variances: Array, total: float, n: float, d: int) -> Array:
    """Return angles that hold with 95 % confidence, in place of the root mean squares of angles.

    The squared tangent is a weighted sum of squared normal variables. Of all such sums with one
    mean, a single variable has the largest 95 % quantile (Szekely and Bakirov 2003): 1.96 squared
    times the mean.

    Two components turn into each other by half the angle whose sine is their covariance over half
    the difference of their variances in the sample, of which the tangent of the angle is the limit.
    A sample also separates variances that are equal, v: the squared difference is exponential, of
    mean 8 v^2 / n. Components whose variances differ by no more than that of equal ones in 95 of
    100 samples may be turned by any angle.

    Parameters
    ----------
    variances, total, n, d
        As for `find_noise_edge`.

    Returns
    -------
    ndarray of shape (m,)
        In radians; pi / 2 for components that are not determined.

    Examples
    --------
    >>> variances = np.array([9.0, 4.0, 1.1])
    >>> np.degrees(bound_turns(variances, total=9 + 4 + 8.0, n=500.0, d=10)).round(1)
    array([ 8. , 11.2, 90. ])
    >>> np.degrees(bound_turns(variances, total=9 + 4 + 8.0, n=25.0, d=10)).round(1)
    array([90., 90., 90.])
    """
    into_noise, into_others = _square_tangents(variances, total, n, d)
    sines = 2.0 * _QUANTILE_95 * np.sqrt(np.minimum(into_others, 1.0 / _TIED_95))
    others = np.where(into_others < 1.0 / _TIED_95, np.tan(np.arcsin(sines) / 2.0) ** 2, np.inf)
    turns = np.full(len(variances), math.pi / 2)
    turns[: len(into_noise)] = np.arctan(np.sqrt(_QUANTILE_95**2 * into_noise + others.sum(axis=1)))
    return turns


def _square_tangents(variances: Array, total: float, n: float, d: int) -> tuple[Array, Array]:
    """Return the mean squared tangents of turns of the m components above noise.

    Those into noise, (m,), and those of each into each other, (m, m).
    """
    edge = find_noise_edge(variances, total, n, d)
    rest = d - edge.above
    v = remove_bias(variances[: edge.above], edge.noise, n, rest)
    ratio = rest / n
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = (v - edge.noise) ** 2 - ratio * edge.noise**2
        into_noise = np.where(gap > 0.0, ratio * v * edge.noise / gap, np.inf)
        into_others = np.outer(v, v) / (n * np.subtract.outer(v, v) ** 2)
    np.fill_diagonal(into_others, 0.0)
    return into_noise, into_others
