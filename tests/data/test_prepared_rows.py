"""Rows after steps: dense and sparse alike, block by block, with missing entries."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

from eigenfed.arrays import Array
from eigenfed.data import prepared_rows
from eigenfed.data.prepared_rows import Preparation, PreparedTable, is_negative, prepare_source
from eigenfed.data.source import Source
from eigenfed.data.steps import Log1p, NormalizeCounts, SelectVariable, Standardize, as_steps

STEPS = as_steps(["normalize:100", "log1p", "select:6:variance", "standardize:1.5"])


def counts(n: int = 40, d: int = 9) -> Array:
    rng = np.random.default_rng(0)
    X = rng.poisson(rng.gamma(0.5, 2.0, d) * np.ones((n, 1))).astype(np.float64)
    X[3] = 0.0
    X[:, 2] += 60.0
    X[5, 4] = X[7, 0] = np.nan
    return X


def known(X: Array) -> tuple[Preparation, Array]:
    """The preparation with figures from all rows, and what it makes of them, written out."""
    total = np.nansum(X, axis=1)
    Y = np.log1p(X / np.where(total > 0, total, 1.0)[:, None] * 100.0)
    selected = np.array([0, 2, 3, 4, 6, 8])
    Y = Y[:, selected]
    mean, sd = np.nanmean(Y, axis=0), np.nanstd(Y, axis=0)
    preparation = Preparation(STEPS).with_selected(selected).with_moments(mean, sd)
    return preparation, np.clip((Y - mean) / sd, -1.5, 1.5)


def test_dense_and_sparse_rows_are_prepared_alike() -> None:
    X = counts()
    preparation, expected = known(X)
    np.testing.assert_allclose(preparation.transform(X), expected, atol=1e-13)
    np.testing.assert_allclose(preparation.transform(sparse.csr_array(X)), expected, atol=1e-13)
    # What is not stored is 0 before and after, also where 0 itself is clipped.
    assert preparation.origin is not None
    assert np.any(np.abs(preparation.origin) >= 1.5 - 1e-12)
    stored = preparation.apply_sparse(sparse.csr_array(X))
    assert preparation.selected is not None
    assert stored.nnz == np.count_nonzero(X[:, preparation.selected]) < stored.shape[0] * 6
    np.testing.assert_allclose(stored.toarray() + preparation.origin, expected, atol=1e-13)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sparse_rows_are_prepared_in_parts_to_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, dtype: type
) -> None:
    X = counts()
    rows = sparse.csr_array(X.astype(dtype))
    found = []
    for preparation in (known(X)[0], Preparation(STEPS)):
        found.append(preparation.apply_sparse(rows))
        with monkeypatch.context() as small:
            small.setattr(prepared_rows, "_LEAST_ENTRIES", 5)
            small.setattr(prepared_rows, "_PARTS", 10_000)
            found.append(preparation.apply_sparse(rows))
    for whole, parts in (found[:2], found[2:]):
        assert parts.format == "csr"
        for name in ("data", "indices", "indptr"):
            np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))
    assert not prepared_rows.Preparation(STEPS).apply_sparse(rows[:0]).nnz


def test_sparse_rows_are_prepared_in_little_more_memory_than_the_new_entries() -> None:
    n, each = 120_000, 20
    entries = np.random.default_rng(0).random(n * each)
    places = np.tile(np.arange(each, dtype=np.int32) * 10, n)
    table = sparse.csr_array((entries, places, each * np.arange(n + 1)), shape=(n, 200))
    preparation = Preparation(as_steps(["normalize:100", "log1p"]))
    tracemalloc.start()
    try:
        preparation.apply_sparse(table)
        assert tracemalloc.get_traced_memory()[1] < 1.5 * entries.nbytes
    finally:
        tracemalloc.stop()


def test_steps_wait_for_their_figures() -> None:
    X = counts()
    preparation, _ = known(X)
    bare = Preparation(STEPS)
    assert [type(step) for step in bare.active] == [NormalizeCounts, Log1p]
    assert bare.missing == SelectVariable(6, "variance")
    assert bare.width(9) == 9
    assert preparation.selected is not None
    chosen = bare.with_selected(preparation.selected)
    # The logarithm is taken of selected features only.
    assert [type(step) for step in chosen.active] == [NormalizeCounts, SelectVariable, Log1p]
    assert (chosen.missing, chosen.width(9), chosen.clip) == (Standardize(1.5), 6, None)
    np.testing.assert_allclose(chosen.apply(X), bare.apply(X)[:, chosen.selected])
    assert (preparation.missing, preparation.clip) == (None, 1.5)


def test_a_large_mean_costs_no_digits() -> None:
    rng = np.random.default_rng(1)
    X = 1e9 + rng.standard_normal((50, 2))
    mean, sd = X.mean(axis=0), X.std(axis=0)
    preparation = Preparation((Standardize(2.0),)).with_moments(mean, sd)
    assert np.abs(preparation.apply(X)).max() <= 4.0
    np.testing.assert_allclose(
        preparation.transform(X), np.clip((X - mean) / sd, -2, 2), atol=1e-14
    )
    # Bounds hold to the last digit, also with figures that no rows have.
    lies = Preparation((Standardize(2.0),)).with_moments(np.full(2, 1e6), np.full(2, 1e-149))
    assert np.abs(lies.apply(X)).max() <= 4.0


def test_entries_stored_in_parts_are_added_first() -> None:
    parts = sparse.csr_array(
        (np.array([1.0, 2.0, 4.0]), np.array([1, 1, 0]), np.array([0, 3])), shape=(1, 2)
    )
    found = Preparation((Log1p(),)).apply_sparse(parts).toarray()
    np.testing.assert_allclose(found, np.log1p([[4.0, 3.0]]))
    assert parts.nnz == 3


def test_every_row_can_be_prepared() -> None:
    """A step never fails at a site, whatever its rows: estimators refuse negative entries."""
    X = np.array([[-3.0, 3.0], [0.0, 0.0], [np.nan, np.nan], [1e-310, 0.0], [1e308, 1e308]])
    with np.errstate(all="ignore"):
        for rows in (X, sparse.csr_array(X)):
            found = Preparation(as_steps(["normalize", "log1p"])).transform(rows)
            assert not np.isinf(found).any()
            np.testing.assert_array_equal(np.isnan(found), np.isnan(X))
    assert is_negative(X, (Log1p(),))
    assert not is_negative(np.abs(X), (Log1p(),))
    assert not is_negative(X, as_steps(["select:1:variance", "standardize"]))


def test_large_dense_rows_are_prepared_when_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared_rows, "_BLOCK_BYTES", 1 << 16)
    rng = np.random.default_rng(2)
    X = rng.poisson(2.0, (4000, 50)).astype(np.float64)
    source = prepare_source(Source.of(X), Preparation((NormalizeCounts(), Log1p())))
    assert isinstance(source.X, PreparedTable)
    expected = np.log1p(X / X.sum(axis=1)[:, None] * 1e4)
    tracemalloc.start()
    part = source.X[100:160]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < X.nbytes / 8
    np.testing.assert_allclose(part, expected[100:160])
    np.testing.assert_allclose(source.totals()[2], expected.sum(axis=0))
    assert source.largest() == pytest.approx(expected.max(), rel=1e-14)
    assert len(source.X) == source.n == 4000
    few = Preparation(as_steps(["log1p", "select:5:variance"])).with_selected(np.arange(5))
    # A selection that is small is stored.
    assert isinstance(prepare_source(Source.of(X), few).X, np.ndarray)


def test_names_follow_the_selection() -> None:
    source = Source.of(np.eye(3), names=["a", "b", "c"])
    few = Preparation(as_steps(["select:2"])).with_selected(np.array([0, 2]))
    assert prepare_source(source, few).names == ("a", "c")
    assert prepare_source(source, Preparation(as_steps(["select:2"]))) is source
