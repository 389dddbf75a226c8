"""Products of centred and scaled rows against a table that is centred and scaled whole."""

import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from threadpoolctl import threadpool_limits

from eigenfed.arrays import Array
from eigenfed.data import source as module
from eigenfed.data.own_center import split_own_mean
from eigenfed.data.prepared import Prepared
from eigenfed.data.source import Source


@dataclass(frozen=True)
class Dense:
    """The same view, made plainly: the whole table of deviations and its weights."""

    D: Array
    w: Array

    @classmethod
    def of(cls, X: Array, weights: Array | None, mean: Array, scale: Array) -> "Dense":
        around = X.astype(np.float64) - mean
        around = np.where(np.isnan(around), 0.0, around) / scale
        return cls(around, np.ones(len(X)) if weights is None else weights)

    def adjoint(self, sided: Array) -> Array:
        summed: Array = self.D.T @ (self.w[:, None] * sided)
        return summed

    def scatter(self) -> Array:
        return self.adjoint(self.D)


def view_of(
    X: Array, weights: Array | None, mean: Array, scale: Array, *, is_sparse: bool
) -> Prepared:
    table: Any = sparse.csr_array(X) if is_sparse else X
    return Prepared(Source.of(table, weights=weights), mean, scale)


def check(view: Prepared, dense: Dense, *, rtol: float) -> None:
    """Compare all products, relative to the largest entry of each."""
    n, d = dense.D.shape
    rng = np.random.default_rng(0)
    basis, sided = rng.standard_normal((d, 3)), rng.standard_normal((n, 3))
    scatter = dense.scatter()
    pairs = {
        "multiply": (view.multiply(basis), dense.D @ basis),
        "adjoint": (view.adjoint(sided), dense.adjoint(sided)),
        "product": (view.product(basis), scatter @ basis),
        "squares": (view.squares(), np.diag(scatter)),
        "scatter": (view.scatter(), scatter),
    }
    for name, (got, wanted) in pairs.items():
        assert got.dtype == np.float64, name
        assert got.shape == wanted.shape, name
        atol = rtol * np.abs(wanted).max(initial=0.0) + 1e-300
        np.testing.assert_allclose(got, wanted, rtol=0, atol=atol, err_msg=name)


def check_summary(view: Prepared, dense: Dense, *, rtol: float) -> None:
    """The summary is about the rows' own mean, kept to full rank here."""
    n, d = dense.D.shape
    found = view.summary(max(n, d))
    total = float(dense.w.sum())
    assert found.n == pytest.approx(total, rel=1e-12)
    if total == 0:
        assert found.energy == 0.0
        return
    mean = dense.w @ dense.D / total
    around = np.sqrt(dense.w)[:, None] * (dense.D - mean)
    whole = around.T @ around
    size = np.abs(dense.D).max(initial=0.0)
    np.testing.assert_allclose(found.mean, mean, rtol=0, atol=rtol * size + 1e-300)
    got = (found.vt.T * found.s**2) @ found.vt
    np.testing.assert_allclose(got, whole, rtol=0, atol=rtol * total * size**2 + 1e-300)
    assert found.energy == pytest.approx(whole.trace(), rel=1e-9, abs=rtol * total * size**2)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(0, 14),
    d=st.integers(1, 6),
    rows_a_block=st.integers(1, 15),
    is_sparse=st.booleans(),
    is_weighted=st.booleans(),
    is_scaled=st.booleans(),
    has_missing=st.booleans(),
    is_single=st.booleans(),
)
def test_every_product_is_that_of_the_whole_table(
    seed: int,
    n: int,
    d: int,
    rows_a_block: int,
    is_sparse: bool,
    is_weighted: bool,
    is_scaled: bool,
    has_missing: bool,
    is_single: bool,
) -> None:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.6)
    if is_single:
        X = X.astype(np.float32)
    if has_missing:
        X[rng.random((n, d)) < 0.2] = np.nan
    weights = rng.integers(0, 3, n) * rng.random(n) if is_weighted else None
    mean = rng.standard_normal(d)
    scale = rng.uniform(0.1, 5.0, d) if is_scaled else np.ones(d)
    dense = Dense.of(X, weights, mean, scale)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK_BYTES", rows_a_block * d * 8)
        view = view_of(X, weights, mean, scale, is_sparse=is_sparse)
        check(view, dense, rtol=1e-13)
        check_summary(view, dense, rtol=1e-12)


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("rows_a_block", [1, 6, 7, 100])
def test_block_boundaries_do_not_show(
    monkeypatch: pytest.MonkeyPatch, is_sparse: bool, rows_a_block: int
) -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((13, 5))
    X[4, 2] = np.nan
    weights, mean, scale = rng.random(13), np.nanmean(X, axis=0), rng.uniform(1, 2, 5)
    monkeypatch.setattr(module, "_BLOCK_BYTES", rows_a_block * 5 * 8)
    view = view_of(X, weights, mean, scale, is_sparse=is_sparse)
    dense = Dense.of(X, weights, mean, scale)
    check(view, dense, rtol=1e-13)
    check_summary(view, dense, rtol=1e-12)


@pytest.mark.parametrize("offset", [1e3, 1e6])
def test_an_offset_costs_dense_rows_no_digits(offset: float) -> None:
    rng = np.random.default_rng(2)
    # Whole numbers over 1024: the offset rows are exact, so that only the method can lose digits.
    small = rng.integers(-2048, 2049, (200, 4)) / 1024
    X = small + offset
    mean = np.full(4, offset) + small.mean(axis=0)
    dense = Dense.of(X, None, mean, np.ones(4))
    check(view_of(X, None, mean, np.ones(4), is_sparse=False), dense, rtol=1e-13)
    naive = X.T @ X - 200 * np.outer(mean, mean)
    assert np.abs(naive - dense.scatter()).max() > 1e-13 * np.abs(dense.scatter()).max()


@pytest.mark.parametrize("offset", [1e3, 1e6])
@pytest.mark.parametrize("has_gaps", [False, True])
def test_an_offset_costs_complete_features_of_sparse_rows_no_digits(
    offset: float, has_gaps: bool
) -> None:
    rng = np.random.default_rng(3)
    X = rng.integers(-2048, 2049, (300, 4)) / 1024 + offset
    # Rows that lack a feature are 0 there, so that its spread is about as large as its mean.
    X[:, 1] *= rng.random(300) < 0.5
    X[::7, 2] = np.nan if has_gaps else X[::7, 2]
    mean, scale = np.nanmean(X, axis=0), np.array([2.0, offset, 0.5, 1.0])
    weights = rng.random(300)
    dense = Dense.of(X, weights, mean, scale)
    check(view_of(X, weights, mean, scale, is_sparse=True), dense, rtol=1e-12)


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("has_gaps", [False, True])
def test_a_mean_in_two_parts_costs_no_digits(
    is_sparse: bool, is_weighted: bool, has_gaps: bool
) -> None:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 5)) + np.array([1e12, -1e9, 3.0, 0.0, 0.0])
    X[:, 3] *= rng.random(60) < 0.5
    X[:, 4] = 0.1
    X[::7, [0, 2, 4]] = np.nan if has_gaps else X[::7, [0, 2, 4]]
    weights = rng.choice([0.0, 3.0, 7.0], 60) if is_weighted else np.ones(60)
    if is_sparse and is_weighted:
        X[weights == 0.0] = 0.0  # rows without weight lack features that all others have
    source = Source.of(
        sparse.csr_array(X) if is_sparse else X, weights=weights if is_weighted else None
    )
    observed = ~np.isnan(X) * weights[:, None].astype(np.longdouble)
    exact = np.where(observed > 0, X, 0.0).astype(np.longdouble)
    within = X - (observed * exact).sum(axis=0) / observed.sum(axis=0)
    within -= (observed * np.nan_to_num(within)).sum(axis=0) / observed.sum(axis=0)
    mean, rest = split_own_mean(source)
    view = Prepared(source, mean, np.ones(5), rest=rest)
    dense = np.where(np.isnan(X), 0.0, within).astype(np.float64)
    dense[weights > 0.0, 4] = 0.0
    check(view, Dense(dense, weights), rtol=1e-12)
    np.testing.assert_array_equal(view.squares()[4], 0.0)


def test_features_of_entries_in_parts_are_not_taken_for_complete() -> None:
    parts = sparse.csr_array(([1.0, 2.0, 4.0], [0, 0, 1], [0, 2, 3]), shape=(2, 2))
    view = Prepared(Source(parts), np.array([2.0, 2.0]), np.ones(2))
    np.testing.assert_array_equal(view.multiply(np.eye(2)), [[1.0, -2.0], [-2.0, 2.0]])


@pytest.mark.parametrize("is_sparse", [False, True])
def test_missing_entries_weigh_nothing_on_either_side(is_sparse: bool) -> None:
    X = np.array([[1.0, np.nan], [3.0, 5.0], [np.nan, 7.0]])
    mean = np.array([2.0, 6.0])
    view = view_of(X, None, mean, np.ones(2), is_sparse=is_sparse)
    np.testing.assert_allclose(view.scatter(), [[2.0, -1.0], [-1.0, 2.0]], rtol=1e-14)
    np.testing.assert_allclose(view.product(np.eye(2)), view.scatter(), rtol=1e-14)
    np.testing.assert_allclose(
        view.multiply(np.eye(2)), [[-1.0, 0.0], [1.0, -1.0], [0.0, 1.0]], rtol=0, atol=1e-14
    )


@pytest.mark.parametrize("is_sparse", [False, True])
def test_rows_of_weight_zero_are_as_if_absent(is_sparse: bool) -> None:
    rng = np.random.default_rng(4)
    X, mean = rng.standard_normal((6, 3)), rng.standard_normal(3)
    weights = np.array([1.0, 0.0, 2.0, 0.0, 0.5, 1.0])
    there = weights > 0
    whole = view_of(X, weights, mean, np.ones(3), is_sparse=is_sparse)
    part = view_of(X[there], weights[there], mean, np.ones(3), is_sparse=is_sparse)
    np.testing.assert_allclose(whole.product(np.eye(3)), part.product(np.eye(3)), rtol=1e-13)
    np.testing.assert_allclose(whole.scatter(), part.scatter(), rtol=1e-13)
    np.testing.assert_allclose(whole.summary(3).s, part.summary(3).s, rtol=1e-12)


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("has_missing", [False, True])
def test_nothing_changes_the_rows(is_sparse: bool, has_missing: bool) -> None:
    rng = np.random.default_rng(5)
    X = rng.standard_normal((8, 3))
    if has_missing:
        X[2, 1] = np.nan
    table: Any = sparse.csr_array(X) if is_sparse else X
    weights = rng.random(8)
    before = (table.data if is_sparse else table).copy()
    view = Prepared(Source.of(table, weights=weights), np.ones(3), np.full(3, 2.0))
    view.product(np.eye(3)), view.scatter(), view.squares(), view.summary(2)
    view.adjoint(view.multiply(np.eye(3)))
    np.testing.assert_array_equal(table.data if is_sparse else table, before)


def peak_of(view: Prepared, name: str) -> int:
    basis = np.ones((view.source.d, 2))
    calls: dict[str, Callable[[], object]] = {
        "product": lambda: view.product(basis),
        "adjoint": lambda: view.adjoint(view.multiply(basis)),
        "squares": view.squares,
        "scatter": view.scatter,
        "summary": lambda: view.summary(4),
    }
    tracemalloc.start()
    try:
        calls[name]()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["product", "adjoint", "squares", "scatter", "summary"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_no_second_table_is_made(
    monkeypatch: pytest.MonkeyPatch, name: str, dtype: type[np.floating[Any]]
) -> None:
    monkeypatch.setattr(module, "_BLOCK_BYTES", 64 << 10)
    X = np.random.default_rng(6).standard_normal((20_000, 64)).astype(dtype)
    weights = np.ones(len(X))
    view = Prepared(Source.of(X, weights=weights), np.ones(64), np.full(64, 2.0))
    # The rows' side of two directions is n x 2 floats, four times with its parts and weights.
    assert peak_of(view, name) < 4 * 2 * 8 * len(X) + (1 << 20) < X.nbytes / 2


@pytest.mark.parametrize("name", ["product", "adjoint", "squares"])
def test_sparse_rows_stay_sparse(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(module, "_BLOCK_BYTES", 64 << 10)
    X = sparse.random_array((2_000, 500), density=0.01, format="csr", rng=7)
    view = Prepared(Source.of(X), np.ones(500), np.full(500, 2.0))
    assert peak_of(view, name) < 1 << 20 < 2_000 * 500 * 8 / 7


@pytest.mark.parametrize("name", ["product", "scatter", "multiply", "adjoint", "squares"])
@pytest.mark.parametrize("weighted", [False, True])
def test_results_are_the_same_bits_on_one_thread_and_on_two(name: str, weighted: bool) -> None:
    rng = np.random.default_rng(8)
    X = rng.standard_normal((20_000, 200)) + 3.0
    source = Source.of(X, weights=rng.random(len(X)) if weighted else None)
    view = Prepared(source, np.full(200, 3.0), np.full(200, 2.0))
    given = {"product": (200, 15), "multiply": (200, 15), "adjoint": (len(X), 15)}
    arguments = [rng.standard_normal(given[name])] if name in given else []
    found = []
    for threads in (1, 2):
        with threadpool_limits(limits=threads, user_api="blas"):
            found.append(getattr(view, name)(*arguments))
    np.testing.assert_array_equal(found[0], found[1])


def test_sparse_rows_are_multiplied_by_many_directions_some_at_a_time() -> None:
    rng = np.random.default_rng(3)
    X, basis = rng.poisson(0.2, (40, 90)).astype(float), rng.standard_normal((90, 70))
    mean, scale, weights = rng.random(90), rng.random(90) + 0.5, rng.random(40)
    view = view_of(X, weights, mean, scale, is_sparse=True)
    expected = Dense.of(X, weights, mean, scale).scatter() @ basis
    found = view.product(basis)
    assert found.flags.c_contiguous
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-12 * np.abs(expected).max())


def test_a_feature_that_is_stored_in_every_row_has_no_absent_weight() -> None:
    weights = np.random.default_rng(0).random(10_000)
    weights[:100] = 0.0
    column = np.where(weights > 0.0, 0.1, 0.0)[:, None]
    source = Source(sparse.csr_array(column), weights)
    assert Prepared(source, np.array([0.1]), np.ones(1)).squares()[0] == 0.0
