"""Eigenvalues for a forecast: given, decaying geometrically, or three assumed spectra."""

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
    """Eigenvalues of a covariance in decreasing order, computed on demand.

    Attributes
    ----------
    name : str
        "given", "steep", "usual" or "flat".
    d : int
        Number of features.
    rank : int
        Number of eigenvalues above 0.
    at : callable
        Returns the eigenvalues with the given indices, all below `rank`.
    trace : float
        The sum of all eigenvalues.
    has_components : bool
        False for pure noise, where no direction is better than another.
    """

    name: str
    d: int
    rank: int
    at: Callable[[npt.NDArray[np.int64]], Array]
    trace: float
    has_components: bool = True

    def values(self, count: int) -> Array:
        """Return `count` eigenvalues: all, or the largest and an even sample of the others.

        The convergence of a method depends on the leading eigenvalues and on the range of the
        others, so that a few features with these eigenvalues represent many.

        Examples
        --------
        >>> make_geometric_spectrum(0.5, d=1000, rank=999).values(4)
        array([1.00000000e+000, 5.00000000e-001, 2.50000000e-001, 3.05493...e-151])
        """
        indices = np.arange(min(count, self.d))
        if self.rank > count:
            head = count - count // 2
            rest = np.linspace(head, self.rank, count // 2, endpoint=False).astype(np.int64)
            indices = np.concatenate([indices[:head], rest])
        values, positive = np.zeros(len(indices)), indices < self.rank
        values[positive] = self.at(indices[positive])
        return values

    def leading(self, k: int) -> float:
        """Return the sum of the first `k` eigenvalues."""
        return float(self.at(np.arange(min(k, self.rank))).sum())


def make_spectrum(values: Sequence[float], d: int, rank: int) -> Spectrum:
    """Return the spectrum with these eigenvalues, followed by zeros."""
    known = np.asarray(values[: min(d, rank)], dtype=np.float64) / values[0]
    positive = int(np.count_nonzero(known))
    return Spectrum("given", d, positive, lambda indices: known[indices], float(known.sum()))


def make_geometric_spectrum(decay: float, d: int, rank: int, name: str = "given") -> Spectrum:
    """Return the spectrum in which each eigenvalue is `decay` times the one before.

    Examples
    --------
    >>> make_geometric_spectrum(0.5, d=3, rank=3).trace
    1.75
    """
    trace = float(rank) if decay == 1.0 else -math.expm1(rank * math.log(decay)) / (1.0 - decay)

    def at(indices: npt.NDArray[np.int64]) -> Array:
        values: Array = decay ** indices.astype(np.float64)
        # An eigenvalue that underflows to 0 would make the feature constant.
        return np.maximum(values, np.finfo(np.float64).tiny)

    return Spectrum(name, d, rank, at, trace)


def assume_spectra(n: int, d: int, k: int, rank: int) -> tuple[Spectrum, ...]:
    """Return three spectra whose numbers of rounds should enclose that of the true one.

    Parameters
    ----------
    n, d : int
        Numbers of rows and of features.
    k : int
        Number of components.
    rank : int
        Largest number of eigenvalues above 0.

    Returns
    -------
    steep, usual, flat : Spectrum
        Only the components, each a tenth of the one before; eigenvalue i equal to 1/i; pure noise.
    """
    harmonic = float(digamma(rank + 1.0)) + np.euler_gamma
    usual = Spectrum("usual", d, rank, lambda indices: np.reciprocal(indices + 1.0), harmonic)
    steep = make_geometric_spectrum(_STEEP, d, min(k, rank), "steep")
    return steep, usual, _make_noise_spectrum(n, d, rank)


def _make_noise_spectrum(n: int, d: int, rank: int) -> Spectrum:
    """Return the eigenvalues of unstructured rows, by the Marchenko-Pastur law."""
    ratio = min(d, n) / max(d, n)
    low, high = (1.0 - math.sqrt(ratio)) ** 2, (1.0 + math.sqrt(ratio)) ** 2
    # Substituting x = middle - half * cos(t) makes the density smooth at both ends.
    t = np.linspace(0.0, math.pi, _CURVE_POINTS)
    half = (high - low) / 2
    x = np.maximum((high + low) / 2 - half * np.cos(t), np.finfo(np.float64).tiny)
    density = np.sin(t) ** 2 / x
    below = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    below /= below[-1]

    def at(indices: npt.NDArray[np.int64]) -> Array:
        return np.interp(1.0 - (indices + 0.5) / rank, below, x)

    return Spectrum("flat", d, rank, at, float(rank), has_components=False)
