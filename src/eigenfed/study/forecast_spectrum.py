"""Eigenvalues that a forecast reckons with: given, or assumed at three steepnesses."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import digamma

from eigenfed.arrays import Array

_STEEP = 0.1
_CURVE_POINTS = 20_001


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues of a covariance by falling size, never all of them in memory.

    Attributes
    ----------
    name : str
        How it falls, in a word.
    d : int
        Number of features.
    rank : int
        How many eigenvalues there are above 0.
    at : callable
        Eigenvalues at places below the rank.
    trace : float
        The sum of all.
    has_components : bool
        Whether there is anything to find: of pure noise, any directions are as good.
    """

    name: str
    d: int
    rank: int
    at: Callable[[npt.NDArray[np.int64]], Array]
    trace: float
    has_components: bool = True

    def values(self, count: int) -> Array:
        """Return so many eigenvalues: all, or the largest and a sample of the others.

        What a method sees of a spectrum is where it begins and how it goes on, so that few features
        with such eigenvalues stand for many.

        Examples
        --------
        >>> falling(0.5, d=1000, rank=999).values(4)
        array([1.00000000e+000, 5.00000000e-001, 2.50000000e-001, 3.05493...e-151])
        """
        places = np.arange(min(count, self.d))
        if self.rank > count:
            head = count - count // 2
            rest = np.linspace(head, self.rank, count // 2, endpoint=False).astype(np.int64)
            places = np.concatenate([places[:head], rest])
        found, there = np.zeros(len(places)), places < self.rank
        found[there] = self.at(places[there])
        return found

    def leading(self, k: int) -> float:
        """Return the sum of the first k."""
        return float(self.at(np.arange(min(k, self.rank))).sum())


def listed(given: Sequence[float], d: int, rank: int) -> Spectrum:
    """Take eigenvalues as they are given, and the rest as 0."""
    known = np.asarray(given[: min(d, rank)], dtype=np.float64) / given[0]
    there = int(np.count_nonzero(known))
    return Spectrum("given", d, there, lambda places: known[places], float(known.sum()))


def falling(share: float, d: int, rank: int, name: str = "given") -> Spectrum:
    """Let each eigenvalue be a share of the one before.

    Examples
    --------
    >>> falling(0.5, d=3, rank=3).trace
    1.75
    """
    trace = float(rank) if share == 1.0 else -math.expm1(rank * math.log(share)) / (1.0 - share)

    def at(places: npt.NDArray[np.int64]) -> Array:
        values: Array = share ** places.astype(np.float64)
        # Below the least normal number a feature would be constant.
        return np.maximum(values, np.finfo(np.float64).tiny)

    return Spectrum(name, d, rank, at, trace)


def assumed(n: int, d: int, k: int, rank: int) -> tuple[Spectrum, ...]:
    """Return spectra that others lie between, in how many rounds they take.

    Parameters
    ----------
    n : int
        Number of rows.
    d, k, rank : int

    Returns
    -------
    steep, usual, flat : Spectrum
        The components wanted and nothing else, each a tenth of the one before; one over its
        place; pure noise.
    """
    harmonic = float(digamma(rank + 1.0)) + np.euler_gamma
    usual = Spectrum("usual", d, rank, lambda places: np.reciprocal(places + 1.0), harmonic)
    return falling(_STEEP, d, min(k, rank), "steep"), usual, _noise(n, d, rank)


def _noise(n: int, d: int, rank: int) -> Spectrum:
    """Eigenvalues of rows without any structure, by the law of Marchenko and Pastur."""
    ratio = min(d, n) / max(d, n)
    low, high = (1.0 - math.sqrt(ratio)) ** 2, (1.0 + math.sqrt(ratio)) ** 2
    # Substituting x = middle - half cos(t) makes the density smooth at both ends.
    t = np.linspace(0.0, math.pi, _CURVE_POINTS)
    half = (high - low) / 2
    x = np.maximum((high + low) / 2 - half * np.cos(t), np.finfo(np.float64).tiny)
    density = np.sin(t) ** 2 / x
    below = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    below /= below[-1]

    def at(places: npt.NDArray[np.int64]) -> Array:
        return np.interp(1.0 - (places + 0.5) / rank, below, x)

    return Spectrum("flat", d, rank, at, float(rank), has_components=False)
