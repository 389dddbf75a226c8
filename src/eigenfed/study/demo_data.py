"""Simulated records of three hospitals, and the PCA of the pooled records."""

import numpy as np
from sklearn.decomposition import PCA

from eigenfed.arrays import Array
from eigenfed.baselines import uda
from eigenfed.linalg.orthonormal import sines

FEATURES, K = 120, 4
ROWS = {"north": 3000, "south": 900, "island": 150}


def make_records(rng: np.random.Generator) -> dict[str, Array]:
    """Draw rows for hospitals of unequal size and different means, with 2 % missing entries.

    Examples
    --------
    >>> {name: rows.shape for name, rows in make_records(np.random.default_rng(0)).items()}
    {'north': (3000, 120), 'south': (900, 120), 'island': (150, 120)}
    """
    basis = np.linalg.qr(rng.standard_normal((FEATURES, FEATURES)))[0]
    spread = 0.85 ** np.arange(FEATURES)
    hospitals = {}
    for name, n in ROWS.items():
        rows = (rng.standard_normal((n, FEATURES)) * spread) @ basis.T
        rows += 0.25 * rng.standard_normal(FEATURES)
        rows[rng.random(rows.shape) < 0.02] = np.nan
        hospitals[name] = rows
    return hospitals


def pool_components(hospitals: dict[str, Array]) -> Array:
    """Return the components of the pooled rows, missing entries set to the mean, (K, d)."""
    rows = np.vstack(list(hospitals.values()))
    filled = np.where(np.isnan(rows), np.nanmean(rows, axis=0), rows)
    components: Array = PCA(K, svd_solver="full").fit(filled).components_
    return components


def average_components(hospitals: dict[str, Array]) -> Array:
    """Return the average of the hospitals' local PCAs, each about its own mean, (K, d)."""
    centred = [np.nan_to_num(rows - np.nanmean(rows, axis=0)) for rows in hospitals.values()]
    return uda(centred, K)


def largest_angle(components: Array, others: Array) -> float:
    """Return the largest angle between two subspaces, in radians."""
    return float(np.arcsin(min(sines(components, others)[0], 1.0)))
