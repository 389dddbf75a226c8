"""What pooling all rows would have given, computed the plain way."""

from typing import NamedTuple

import numpy as np

from eigenfed.arrays import Array


class Pooled(NamedTuple):
    """Weight, mean, singular values, directions and energy of all rows at once."""

    n: float
    mean: Array
    s: Array
    vt: Array
    energy: float


def pooled(X: Array, weights: Array | None = None, *, centered: bool = True) -> Pooled:
    """Decompose all rows at once; `s` has min(n, d) entries and `vt` as many rows."""
    w = np.ones(len(X)) if weights is None else weights
    mean = np.average(X, axis=0, weights=w) if centered else np.zeros(X.shape[1])
    around = np.sqrt(w)[:, None] * (X - mean)
    _, s, vt = np.linalg.svd(around, full_matrices=False)
    return Pooled(float(w.sum()), mean, s, vt, float(np.sum(around**2)))


def power_law(n: int, d: int, alpha: float, seed: int = 0) -> Array:
    """Draw Synth(alpha) of [Grammenos2020] D.1: variances i**-alpha in a random basis."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    rows: Array = (rng.standard_normal((n, d)) * np.arange(1, d + 1) ** (-alpha / 2)) @ basis.T
    return rows
