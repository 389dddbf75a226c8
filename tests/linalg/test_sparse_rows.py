from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from eigenfed import FederatedPCA
from eigenfed.arrays import Array
from eigenfed.data import scattered_rows, source
from eigenfed.data.source import Source
from eigenfed.linalg.sparse_rows import (
    ScatteredSparse,
    find_offsets,
    gather,
    merge_duplicates,
    slice_rows,
    view_transpose,
)

N, D = 60, 8


def stored_in_parts() -> tuple[Any, Array]:
    """Rows with several entries at some places, out of order, and the same rows dense."""
    rng = np.random.default_rng(0)
    rows = np.sort(rng.integers(0, N, 900))
    columns, values = rng.integers(0, D, 900), rng.standard_normal(900)
    table: Any = sparse.csr_array(
        (values, columns, np.searchsorted(rows, np.arange(N + 1))), shape=(N, D)
    )
    assert not table.has_canonical_format
    return table, table.toarray()


@pytest.mark.parametrize("settings", [{"method": "krylov"}, {"scale": True}, {"secure": True}])
@pytest.mark.parametrize("by_site", [False, True])
def test_entries_stored_in_parts_count_as_their_sums(
    settings: dict[str, Any], by_site: bool
) -> None:
    table, dense = stored_in_parts()
    before = table.data.copy()

    def fit(rows: Any) -> FederatedPCA:
        pca = FederatedPCA(3, random_state=0, **settings)
        if by_site:
            return pca.fit_sites({"a": rows[:10], "b": rows[10:40], "c": rows[40:]})
        return pca.fit(rows, groups=np.arange(N) % 3)

    found, wanted = fit(table), fit(dense)
    np.testing.assert_allclose(found.components_, wanted.components_, atol=1e-12)
    np.testing.assert_allclose(found.total_variance_, wanted.total_variance_)
    np.testing.assert_array_equal(table.data, before)


def test_parts_of_entries_in_a_file_stored_by_columns_are_added_up(tmp_path: Path) -> None:
    parts = sparse.csc_array(([1.0, 2.0, 4.0], [0, 0, 1], [0, 2, 3]), shape=(2, 2))
    sparse.save_npz(tmp_path / "rows.npz", parts)
    found = FederatedPCA(1, center=False).fit_sites({"a": tmp_path / "rows.npz"})
    assert found.total_variance_ == pytest.approx(3.0**2 + 4.0**2)


@pytest.mark.parametrize("positions", [np.int32, np.int64])
def test_views_share_the_memory_of_all_rows(positions: type) -> None:
    table = merge_duplicates(stored_in_parts()[0])
    table.indices, table.indptr = table.indices.astype(positions), table.indptr.astype(positions)
    part, turned = slice_rows(table, slice(10, 40)), view_transpose(table)
    for view, wanted in ((part, table.toarray()[10:40]), (turned, table.toarray().T)):
        np.testing.assert_array_equal(view.toarray(), wanted)
        np.testing.assert_array_equal(view @ np.eye(view.shape[1]), wanted)
        assert np.shares_memory(view.data, table.data)
        assert np.shares_memory(view.indices, table.indices)


SETTINGS: tuple[dict[str, Any], ...] = (
    {"method": "krylov"},
    {"method": "covariance", "scale": True},
    {"method": "krylov", "scale": True, "secure": True},
    {"method": "subspace"},
    {"method": "merge", "certify": False},
    {"method": "krylov", "center": "site"},
    {"prepare": ["normalize:100", "log1p", "select:6"]},
    {"prepare": ["standardize"]},
)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("kind", ["plain", "single", "gaps", "complete", "weights"])
def test_scattered_rows_of_sites_are_what_their_copies_are(
    settings: dict[str, Any], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    table: Any = sparse.random_array((300, 12), density=0.4, rng=rng, format="csr")
    table.data *= 9.0
    if kind == "complete":
        table = sparse.csr_array(table.toarray() + np.r_[1e6, np.zeros(11)])
    if kind == "gaps":
        table.data[5:9] = np.nan
    table = table.astype(np.float32) if kind == "single" else table
    weights = rng.integers(0, 3, 300) if kind == "weights" else None
    groups = rng.integers(0, 3, 300)

    def fit(small: int) -> FederatedPCA:
        monkeypatch.setattr(scattered_rows, "_SMALL_BYTES", small)
        monkeypatch.setattr(source, "_LEAST_ENTRIES", 100)
        pca = FederatedPCA(3, random_state=0, **settings)
        return pca.fit(table, groups=groups, sample_weight=weights)

    found, wanted = fit(-1), fit(1 << 20)
    np.testing.assert_allclose(found.components_, wanted.components_, atol=1e-6)
    np.testing.assert_allclose(found.explained_variance_, wanted.explained_variance_, rtol=1e-6)
    np.testing.assert_allclose(found.mean_, wanted.mean_, rtol=1e-6, atol=1e-12)


def test_rows_scattered_in_a_table_share_its_memory() -> None:
    table = merge_duplicates(stored_in_parts()[0])
    places = np.array([7, 3, 41])
    rows = ScatteredSparse(table, places)
    assert rows.shape == (3, D)
    assert (rows.nnz, rows.dtype) == (int(np.diff(table.indptr)[places].sum()), table.dtype)
    assert np.shares_memory(rows.entries.values, table.data)
    np.testing.assert_array_equal(rows[1:].toarray(), table.toarray()[places[1:]])
    np.testing.assert_array_equal(rows[:].toarray(), Source(rows).stored_block(slice(0, 3)))
    part = slice_rows(rows, slice(1, 2))
    np.testing.assert_array_equal(gather(part).toarray(), table.toarray()[[3]])
    np.testing.assert_array_equal(find_offsets(rows), np.cumsum([0, *rows.lengths]))


def test_rows_in_order_are_not_copied() -> None:
    table = merge_duplicates(stored_in_parts()[0])
    assert merge_duplicates(table) is table
    assert np.shares_memory(Source.of(table).X.data, table.data)
