"""Few rows and many features, as in genes and genotypes, against scikit-learn's PCA by arpack.

Processor time with BLAS on one thread, so that threads that wait by spinning do not count. The
genotypes are read from the folder that EIGENFED_DATA names; the line is left out without them.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.decomposition import PCA
from threadpoolctl import threadpool_limits

from bench.table import Line, least_cpu
from eigenfed import FederatedPCA
from eigenfed.arrays import Array
from eigenfed.linalg.orthonormal import sines

_BED = "genotypes_1kg/1kg_phase1_thinned.bed"
_ALLELES = np.array([2, -1, 1, 0], dtype=np.int8)
"""Counts of the first allele by PLINK's two bits; -1 where it is missing."""
_WRONG_SINE = 1e-4


def decaying(n: int, d: int) -> Array:
    """Noise, and components whose variances decay."""
    rng = np.random.default_rng(0)
    count = min(n, 200)
    spread = 3.0 / np.arange(1, count + 1) ** 0.75
    rows: Array = (rng.standard_normal((n, count)) * spread) @ rng.standard_normal((count, d))
    return rows + rng.standard_normal((n, d)) + 1.0


def counts(n: int, d: int) -> Any:
    """Sparse counts of 20 kinds of rows, 3 percent of them above zero."""
    rng = np.random.default_rng(0)
    rows: Any = sparse.random_array((n, d), density=0.02, rng=rng, format="csr")
    kind, each = rng.integers(0, 20, n), d // 100
    columns = kind[:, None] * (d // 20) + rng.integers(0, d // 20, (n, each))
    heights = np.repeat(np.linspace(6, 3, 20)[kind], each)
    places = (np.repeat(np.arange(n), each), columns.ravel())
    return sparse.csr_array(rows + sparse.csr_array((heights, places), shape=(n, d)))


def genotypes() -> Array | None:
    """Allele counts of 957 people, with missing ones at the mean; None if they are not there."""
    path = Path(os.environ.get("EIGENFED_DATA", "../shared/data")) / _BED
    if not path.is_file():
        return None
    people = len(path.with_suffix(".fam").read_text().splitlines())
    packed = np.fromfile(path, np.uint8)[3:].reshape(-1, -(-people // 4))
    pairs = np.stack([(packed >> shift) & 3 for shift in (0, 2, 4, 6)], axis=2)
    found = _ALLELES[pairs.reshape(len(packed), -1)[:, :people]].T[:957].astype(float)
    found[found < 0] = np.nan
    return np.where(np.isnan(found), np.nanmean(found, axis=0), found)


def compare(name: str, X: Any, k: int, sites: int) -> Line:
    groups = np.arange(X.shape[0]) * sites // X.shape[0]

    def fit() -> FederatedPCA:
        return FederatedPCA(k, certify=False, random_state=0).fit(X, groups=groups)

    with threadpool_limits(1):
        ours, peer = least_cpu(
            fit, lambda: PCA(k, svd_solver="arpack", random_state=0).fit(X), repeats=5
        )
        pca = fit()
        exact = PCA(k, svd_solver="arpack", random_state=0).fit(X).components_
    apart = float(sines(pca.components_, exact)[0])
    return Line(
        f"{sites} sites / pooled arpack, {name}, k={k}",
        ours / peer,
        "at most",
        3.0,
        apart < _WRONG_SINE,
        f"{1e3 * ours:.0f} ms / {1e3 * peer:.0f} ms, {pca.method_}; sine {apart:.0e}",
    )


def lines() -> Iterator[Line]:
    for n, d, k, sites in (
        (200, 2_000, 10, 5),
        (100, 2_000, 2, 3),
        (569, 2_848, 10, 5),
        (100, 20_000, 10, 5),
        (1_000, 20_000, 10, 5),
        (1_000, 20_000, 2, 50),
    ):
        yield compare(f"{n}x{d}", decaying(n, d), k, sites)
    yield compare("559x32786 sparse", counts(559, 32_786), 10, 5)
    people = genotypes()
    if people is not None:
        yield compare("957x14079 genotypes", people, 10, 5)
