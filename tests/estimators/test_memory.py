"""A fit needs little memory beside the rows."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from eigenfed import FederatedPCA

_K, _WIDTH = 3, 16


def _dense(rng: np.random.Generator, dtype: type) -> Any:
    rows = rng.standard_normal((60_000, 100), dtype=np.float32)
    rows[:, :_K] *= 9.0
    return rows.astype(dtype, copy=False)


def _sparse(rng: np.random.Generator, dtype: type) -> Any:
    n, each = 60_000, 40
    columns = rng.integers(0, 500, (n, each), dtype=np.int32)
    values: Any = rng.standard_normal((n, each)).astype(dtype)
    values[0, 0] = np.nan
    values[columns < _K] *= 9.0
    return sparse.csr_array((values.ravel(), columns.ravel(), each * np.arange(n + 1)), (n, 500))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("make", [_dense, _sparse])
def test_a_fit_needs_a_fifth_of_the_rows_memory_at_most(make: Any, dtype: type) -> None:
    rows = make(np.random.default_rng(0), dtype)
    n, d = rows.shape
    own = rows.nbytes if isinstance(rows, np.ndarray) else rows.data.nbytes + rows.indices.nbytes
    sites = {name: rows[i * n // 3 : (i + 1) * n // 3] for i, name in enumerate("abc")}
    pca = FederatedPCA(_K, method="krylov", max_rounds=4, certify=False, random_state=0)
    tracemalloc.start()
    try:
        pca.fit_sites(sites)
        extra = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert extra <= own / 5 + 100 * 8 * d * _WIDTH
