"""What pooling all rows would have given, computed the plain way."""

from fractions import Fraction
from math import factorial
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


def enumerate_midp(two: int, one: int, none: int) -> float:
    """Return the mid-p value from all tables with the same copies of both alleles, in fractions."""
    n, copies = two + one + none, 2 * two + one
    found = {}
    for heterozygotes in range(copies % 2, min(copies, 2 * n - copies) + 1, 2):
        twos = (copies - heterozygotes) // 2
        nones = n - heterozygotes - twos
        ways = factorial(twos) * factorial(heterozygotes) * factorial(nones)
        found[heterozygotes] = Fraction(factorial(n) * 2**heterozygotes, ways)
    observed = found[one]
    less = sum(p for p in found.values() if p < observed)
    same = sum(p for p in found.values() if p == observed)
    return float((less + same / 2) / sum(found.values()))


def prune_plainly(r2: Array, ends: list[int], frequency: Array, most: float) -> list[bool]:
    """Go through every window, pair by pair, until none of its pairs is correlated."""
    kept = [True] * len(ends)
    for start, end in enumerate(ends):
        changed = True
        while changed:
            changed = False
            for i in range(start, end):
                for j in range(i + 1, end):
                    if kept[i] and kept[j] and r2[i, j] > most:
                        kept[i if frequency[i] < frequency[j] else j] = False
                        changed = True
                        break
    return kept
