"""A fit needs little memory beside the rows."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from eigenfed import FederatedPCA, Policy
from eigenfed.transport import Local, Processes

_K, _WIDTH = 3, 16


def _dense(rng: np.random.Generator, dtype: type) -> Any:
    rows = rng.standard_normal((60_000, 100), dtype=np.float32)
    rows[:, :_K] *= 9.0
    return rows.astype(dtype, copy=False)


def _sparse(rng: np.random.Generator, dtype: type) -> Any:
    n, each = 60_000, 40
    columns = 12 * np.arange(each, dtype=np.int32) + rng.integers(0, 12, (n, each), dtype=np.int32)
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
    extra = _measure(lambda pca: pca.fit_sites(sites))
    assert extra <= own / 5 + 100 * 8 * d * _WIDTH


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_table_is_not_copied_to_split_it_into_sites(order: Any) -> None:
    rows = np.asarray(_dense(np.random.default_rng(0), np.float64), order=order)
    rows[0, 0] = np.nan
    groups = np.random.default_rng(1).integers(0, 3, len(rows))
    extra = _measure(lambda pca: pca.fit(rows, groups=groups))
    assert extra <= rows.nbytes / 5 + 100 * 8 * rows.shape[1] * _WIDTH


@pytest.mark.parametrize("method", ["merge", "subspace"])
@pytest.mark.parametrize("make", [_dense, _sparse])
def test_a_certificate_requested_of_sites_needs_no_more(make: Any, method: str) -> None:
    rows = make(np.random.default_rng(0), np.float64)
    own = rows.nbytes if isinstance(rows, np.ndarray) else rows.data.nbytes + rows.indices.nbytes
    groups = np.arange(rows.shape[0]) * 3 // rows.shape[0]
    certified: Any = {"method": method, "certify": "rigorous"}
    extra = _measure(lambda pca: pca.set_params(**certified).fit(rows, groups=groups))
    # Up to 500 features the largest eigenvalue outside is that of a whole matrix, at two sites.
    assert extra <= own / 5 + 100 * 8 * rows.shape[1] * _WIDTH + 6 * 8 * rows.shape[1] ** 2


@pytest.mark.parametrize("sites", [1, 3])
def test_rows_are_added_without_a_copy_of_all_of_a_site(sites: int) -> None:
    rows = _dense(np.random.default_rng(0), np.float64)
    groups = np.random.default_rng(1).integers(0, sites, len(rows))
    extra = _measure(lambda pca: pca.partial_fit(rows, groups=groups))
    assert extra <= rows.nbytes / 5 + 100 * 8 * rows.shape[1] * _WIDTH


@pytest.mark.parametrize("adjacent", [True, False])
@pytest.mark.parametrize("positions", [np.int32, np.int64])
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_sparse_rows_are_not_copied_to_split_them_into_sites(
    kind: type, positions: type, adjacent: bool
) -> None:
    rows = _sparse(np.random.default_rng(0), kind)
    rows.indices, rows.indptr = rows.indices.astype(positions), rows.indptr.astype(positions)
    own, d = rows.data.nbytes + rows.indices.nbytes, rows.shape[1]
    groups = np.arange(rows.shape[0]) * 3 // rows.shape[0]
    groups = groups if adjacent else np.random.default_rng(1).permutation(groups)
    extra = _measure(lambda pca: pca.fit(rows, groups=groups))
    assert extra <= own / 5 + 100 * 8 * d * _WIDTH


def test_a_fit_does_not_hold_the_replies_of_all_sites() -> None:
    rows = np.random.default_rng(0).standard_normal((20_000, 300))
    groups = np.arange(len(rows)) * 100 // len(rows)
    terms = {"method": "covariance", "transport": Local(workers=2)}
    extra = _measure(lambda pca: pca.set_params(**terms).fit(rows, groups=groups))
    replies = 100 * 8 * 300 * 301 // 2
    assert extra < 20 * 8 * 300**2 < replies


@pytest.mark.parametrize("workers", [1, 2])
def test_factors_of_few_rows_take_little_more_than_the_rows(workers: int) -> None:
    """All replies are held, as large as the rows, and the factor of each site at work."""
    rows = np.random.default_rng(0).standard_normal((600, 9000))
    groups = np.arange(600) * 3 // 600
    terms = {"method": "factors", "transport": Local(workers=workers)}
    extra = _measure(lambda pca: pca.set_params(**terms).fit(rows, groups=groups))
    assert extra < (1 + workers / 3) * rows.nbytes + 100 * 8 * 9000


def test_leakage_meters_of_all_sites_share_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What exceeds it counts as revealed, but not where a policy refuses by it."""
    monkeypatch.setattr("eigenfed.estimators.in_process._ALL_METERS_BYTES", 2 * 2 * 8 * 60 * 10)
    rows = np.random.default_rng(0).standard_normal((200, 60)) * 0.8 ** np.arange(60)
    sites = {"a": rows[:90], "b": rows[90:]}
    pca = FederatedPCA(2, method="krylov", certify=False, random_state=0)
    limited = pca.fit_sites(sites).leakage_
    policies = {name: Policy(max_rank_fraction=0.99) for name in sites}
    full = pca.fit_sites(sites, policies=policies).leakage_
    assert limited.rank_fraction == pytest.approx(full.rank_fraction)
    assert full.variance_fraction < limited.variance_fraction == 1.0


def test_a_fitted_estimator_does_not_keep_more_replies_than_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eigenfed.estimators.in_process._ALL_METERS_BYTES", 1 << 20)
    rows = np.random.default_rng(0).standard_normal((300, 3000))
    groups = np.arange(300) * 10 // 300
    pca = FederatedPCA(_K, method="krylov", certify=False, random_state=0)
    tracemalloc.start()
    try:
        pca.fit(rows, groups=groups)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    replies = 10 * pca.n_rounds_ * _K * rows[0].nbytes
    assert held < 1 << 20 < replies / 8
    assert pca.leakage_.variance_fraction == 1.0


def _measure(fit: Callable[[FederatedPCA], object]) -> int:
    """Return the largest number of bytes that a fit allocates."""
    tracemalloc.start()
    try:
        fit(FederatedPCA(_K, method="krylov", max_rounds=4, certify=False, random_state=0))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("transport", [None, Processes()])
@pytest.mark.parametrize("make", [_dense, _sparse])
def test_scattered_rows_of_a_site_give_what_adjacent_ones_do(make: Any, transport: Any) -> None:
    rows = make(np.random.default_rng(0), np.float32)
    if isinstance(rows, np.ndarray):
        rows[7, 0] = np.nan
    groups = np.random.default_rng(1).integers(0, 3, rows.shape[0])
    order = np.argsort(groups, kind="stable")
    pca = FederatedPCA(_K, random_state=0, transport=transport)
    scattered = pca.fit(rows, groups=groups).components_
    np.testing.assert_array_equal(
        scattered,
        FederatedPCA(_K, random_state=0).fit(rows[order], groups=groups[order]).components_,
    )
