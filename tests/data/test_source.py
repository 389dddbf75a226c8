"""A site's table: taken as it is, cut into blocks, refused where it breaks a rule."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from eigenfed.data import source as module
from eigenfed.data.source import Source, stored
from eigenfed.errors import InputError

TABLE = np.arange(24.0).reshape(6, 4)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_float_tables_are_not_copied(dtype: Any) -> None:
    X = TABLE.astype(dtype)
    source = Source.of(X)
    assert np.shares_memory(source.X, X)
    assert (source.n, source.d, source.is_sparse) == (6, 4, False)


@pytest.mark.parametrize("make", [sparse.csr_array, sparse.csr_matrix])
def test_sparse_rows_are_not_copied(make: Any) -> None:
    X = make(TABLE)
    source = Source.of(X)
    assert source.is_sparse
    assert np.shares_memory(source.X.data, X.data)


@pytest.mark.parametrize("make", [sparse.csc_array, sparse.coo_array, sparse.lil_matrix])
def test_other_sparse_formats_become_rows(make: Any) -> None:
    source = Source.of(make(TABLE))
    assert isinstance(source.X, sparse.csr_array)
    np.testing.assert_array_equal(source.X.toarray(), TABLE)


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, bool, np.float16, ">f8", np.longdouble])
def test_other_real_numbers_become_float64(dtype: Any) -> None:
    source = Source.of((TABLE % 2).astype(dtype))
    assert source.X.dtype == np.float64
    np.testing.assert_array_equal(source.X, TABLE % 2)


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, bool, np.longdouble])
def test_other_sparse_real_numbers_become_float64(dtype: Any) -> None:
    source = Source.of(sparse.csr_array((TABLE % 2).astype(dtype)))
    assert source.X.dtype == np.float64
    np.testing.assert_array_equal(source.X.toarray(), TABLE % 2)


def test_lists_are_tables_too() -> None:
    assert Source.of([[1, 2], [3, 4]]).X.dtype == np.float64


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize(("step", "count"), [(1, 6), (2, 3), (4, 2), (5, 2), (6, 1), (100, 1)])
def test_blocks_are_all_rows_in_order(
    monkeypatch: pytest.MonkeyPatch, is_sparse: bool, step: int, count: int
) -> None:
    monkeypatch.setattr(module, "_BLOCK_BYTES", step * 4 * 8)
    weights = np.arange(6.0)
    X: Any = sparse.csr_array(TABLE) if is_sparse else TABLE
    blocks = list(Source.of(X, weights=weights).blocks())
    assert len(blocks) == count
    assert all(len(rows) <= step for rows, _ in blocks)
    np.testing.assert_array_equal(np.vstack([rows for rows, _ in blocks]), TABLE)
    np.testing.assert_array_equal(np.hstack([w for _, w in blocks if w is not None]), weights)


def test_a_row_larger_than_a_block_is_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK_BYTES", 1)
    assert [rows.shape for rows, _ in Source.of(TABLE).blocks()] == [(1, 4)] * 6


def test_blocks_are_float64_and_without_weights_where_there_are_none() -> None:
    for rows, weights in Source.of(TABLE.astype(np.float32)).blocks():
        assert rows.dtype == np.float64
        assert weights is None


@pytest.mark.parametrize("is_sparse", [False, True])
def test_no_rows_are_no_blocks(is_sparse: bool) -> None:
    X: Any = sparse.csr_array((0, 3)) if is_sparse else np.zeros((0, 3))
    source = Source.of(X, weights=np.zeros(0))
    assert (source.n, source.d, list(source.blocks())) == (0, 3, [])
    assert not source.has_missing


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("place", [(0, 0), (3, 2), (5, 3)])
def test_missing_entries_are_found_wherever_they_are(
    monkeypatch: pytest.MonkeyPatch, is_sparse: bool, place: tuple[int, int]
) -> None:
    monkeypatch.setattr(module, "_BLOCK_BYTES", 40)
    X = TABLE.copy()
    X[place] = np.nan
    assert Source.of(sparse.csr_array(X) if is_sparse else X).has_missing
    assert not Source.of(sparse.csr_array(TABLE) if is_sparse else TABLE).has_missing


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("value", [np.inf, -np.inf])
@pytest.mark.parametrize("place", [(0, 0), (5, 3)])
def test_infinity_is_refused_wherever_it_is(
    monkeypatch: pytest.MonkeyPatch, is_sparse: bool, value: float, place: tuple[int, int]
) -> None:
    monkeypatch.setattr(module, "_BLOCK_BYTES", 40)
    X = TABLE.copy()
    X[place] = value
    with pytest.raises(InputError, match="infinity"):
        Source.of(sparse.csr_array(X) if is_sparse else X)


@pytest.mark.parametrize(
    "X",
    [
        np.array([["a"]]),
        np.array([[1j]]),
        np.array([[None]]),
        np.array([["2020-01-01"]], dtype="datetime64[D]"),
    ],
)
def test_what_is_no_real_number_is_refused(X: Any) -> None:
    with pytest.raises(InputError, match="real numbers"):
        Source.of(X)


@pytest.mark.parametrize("X", [np.zeros(3), np.zeros((2, 2, 2)), np.zeros((3, 0)), 5.0])
def test_what_is_no_table_is_refused(X: Any) -> None:
    with pytest.raises(InputError, match="rows x features"):
        Source.of(X)


def test_names_must_be_one_for_each_feature() -> None:
    assert Source.of(TABLE, names=["a", "b", "c", "d"]).names == ("a", "b", "c", "d")
    with pytest.raises(InputError, match="names has 3 entries and must have 4"):
        Source.of(TABLE, names=["a", "b", "c"])


@pytest.mark.parametrize("weights", [np.ones(5), np.ones((6, 1)), -np.ones(6), np.full(6, np.nan)])
def test_weights_must_be_one_for_each_row_and_not_negative(weights: Any) -> None:
    with pytest.raises(InputError, match="weights"):
        Source.of(TABLE, weights=weights)


def test_errors_name_no_value_of_the_data() -> None:
    X = np.full((2, 2), 12345.678901)
    X[1, 1] = np.inf
    with pytest.raises(InputError) as caught:
        Source.of(X)
    assert "12345" not in str(caught.value)


def test_stored_entries_are_those_in_memory() -> None:
    assert stored(TABLE) is TABLE
    assert stored(sparse.csr_array(np.eye(3))).shape == (3,)


def test_a_source_does_not_print_its_rows() -> None:
    assert "12345" not in repr(Source.of(np.full((2, 2), 12345.678901)))


def test_checks_and_blocks_need_little_beside_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK_BYTES", 64 << 10)
    X = np.ones((20_000, 50), dtype=np.float32)
    tracemalloc.start()
    try:
        source = Source.of(X)
        assert not source.has_missing
        assert sum(len(rows) for rows, _ in source.blocks()) == 20_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < X.nbytes / 8


def test_blocks_are_of_even_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK_BYTES", 10 * 4 * 8)
    sizes = [len(rows) for rows, _ in Source.of(np.zeros((23, 4))).blocks()]
    assert sizes == [7, 8, 8]


@pytest.mark.parametrize("is_sparse", [False, True])
def test_a_sum_beyond_the_largest_number_is_no_missing_entry(is_sparse: bool) -> None:
    big = np.array([[1.7e308, 1.7e308], [-1.7e308, -1.7e308]])
    X: Any = sparse.csr_array(big) if is_sparse else big
    assert not Source(X).has_missing


def test_observed_weights_of_sparse_rows_keep_their_digits_where_most_weight_is_missing() -> None:
    rng = np.random.default_rng(0)
    X, weights = rng.standard_normal((300, 4)), 10.0 ** rng.uniform(-8, 8, 300)
    weights[17] = 1e14
    X[rng.random((300, 4)) < 0.3] = np.nan
    X[17, :2], X[17, 2], X[:, 3] = np.nan, 0.0, np.nan
    _, count, total = Source.of(sparse.csr_array(X), weights=weights).totals()
    _, wanted_count, wanted_total = Source.of(X, weights=weights).totals()
    np.testing.assert_allclose(count, wanted_count, rtol=1e-13)
    np.testing.assert_allclose(total, wanted_total, rtol=1e-13)
    assert count[3] == 0.0
