"""The scatter of blocks is that of all rows, for any number of threads."""

import tracemalloc
from typing import Any

import numpy as np
import pytest

from eigenfed.linalg.block_scatter import MANY_FEATURES, sum_scatters
from eigenfed.linalg.threads import one_blas_thread

MANY = MANY_FEATURES + 7
SPANS = [slice(0, 30), slice(30, 31), slice(31, 90)]


@pytest.mark.parametrize("d", [1, 40, MANY_FEATURES, MANY])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_blocks_add_up_to_the_scatter_of_all_rows(
    d: int, dtype: type[np.floating[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eigenfed.linalg.threads._WORTH_THREADS_FLOPS", 0.0)
    rows = np.random.default_rng(0).standard_normal((90, d)).astype(dtype)
    found = []
    for threads in (1, 3):
        with one_blas_thread:
            monkeypatch.setattr(one_blas_thread, "most", threads)
            found.append(sum_scatters(lambda span: rows[span], SPANS, d))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[0].T)
    exact = rows.astype(np.float64).T @ rows.astype(np.float64)
    least = float(np.finfo(dtype).eps)
    np.testing.assert_allclose(found[0], exact, rtol=0, atol=200 * 90 * least)


@pytest.mark.parametrize("d", [3, MANY])
def test_products_that_overflow_are_not_finite_and_do_not_warn(d: int) -> None:
    rows = np.ones((90, d), dtype=np.float32)
    rows[:, 2] = 3e38
    found = sum_scatters(lambda span: rows[span], SPANS, d)
    assert not np.isfinite(found[2, 2])
    assert found[0, 0] == 90.0


def test_many_features_take_the_memory_of_one_matrix() -> None:
    rows = np.random.default_rng(0).standard_normal((300, 2 * MANY))
    spans = [slice(start, start + 10) for start in range(0, 300, 10)]
    tracemalloc.start()
    try:
        found = sum_scatters(lambda span: rows[span], spans, rows.shape[1])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.5 * found.nbytes
