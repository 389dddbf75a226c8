"""Made-up records of three hospitals, and the PCA that pooling them would give."""

import numpy as np
from sklearn.decomposition import PCA

from eigenfed.arrays import Array
from eigenfed.baselines import uda
from eigenfed.linalg.orthonormal import sines

FEATURES, K = 120, 4
ROWS = {"north": 3000, "south": 900, "island": 150}


def records(rng: np.random.Generator) -> dict[str, Array]:
    """Make rows: unequal numbers, a level for each hospital, and 2 % of entries missing.

    Examples
    --------
    >>> {name: rows.shape for name, rows in records(np.random.default_rng(0)).items()}
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


def pooled_components(hospitals: dict[str, Array]) -> Array:
    """Return the components of all rows in one place, missing entries at the mean, (K, d)."""
    rows = np.vstack(list(hospitals.values()))
    filled = np.where(np.isnan(rows), np.nanmean(rows, axis=0), rows)
    components: Array = PCA(K, svd_solver="full").fit(filled).components_
    return components


def averaged_components(hospitals: dict[str, Array]) -> Array:
    """Return what averaging the hospitals' own PCAs gives, each about its own mean, (K, d)."""
    centred = [np.nan_to_num(rows - np.nanmean(rows, axis=0)) for rows in hospitals.values()]
    return uda(centred, K)


def apart(components: Array, others: Array) -> float:
    """Return the largest angle between two subspaces, in radians."""
    return float(np.arcsin(min(sines(components, others)[0], 1.0)))
