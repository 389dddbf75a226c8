"""Products of sparse rows: scipy and the kernel give the same bits, whichever is used."""

import builtins
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import sparse

from eigenfed import FederatedPCA
from eigenfed.linalg import sparse_products, vector_entries
from eigenfed.linalg.sparse_products import (
    LANES,
    Kernel,
    add_products,
    load_kernels,
    multiply_by_kernels,
    multiply_by_scipy,
    multiply_twice,
)
from eigenfed.linalg.sparse_rows import ScatteredSparse
from eigenfed.linalg.vector_entries import CompiledProducts

Load = Callable[[npt.DTypeLike], dict[int, Kernel]]


def draw_rows(n: int, d: int, places: npt.DTypeLike) -> Any:
    """Sparse rows of very different magnitudes, some of them empty."""
    rng = np.random.default_rng(n)
    rows: Any = sparse.random_array((n, d), density=0.3, rng=rng, format="csr")
    rows.data[:] = rng.standard_normal(rows.nnz) * 10.0 ** rng.integers(-5, 5, rows.nnz)
    rows.indices, rows.indptr = rows.indices.astype(places), rows.indptr.astype(places)
    return rows


def compile_all(places: npt.DTypeLike) -> dict[int, Kernel]:
    return {lanes: CompiledProducts(lanes, places) for lanes in LANES}


def as_python(_: npt.DTypeLike) -> dict[int, Kernel]:
    return dict.fromkeys(LANES, add_products)


def check_bits(kernels: dict[int, Kernel], rows: Any, width: int, *, weighted: bool) -> None:
    rng = np.random.default_rng(width)
    basis, shift = rng.standard_normal((rows.shape[1], width)), rng.standard_normal(width)
    weights = rng.random(2 * rows.shape[0])[::2] if weighted else None
    found = multiply_by_kernels(kernels, rows, basis, shift, weights)
    expected = multiply_by_scipy(rows, basis, shift, weights)
    np.testing.assert_array_equal(found.sided, expected.sided)
    np.testing.assert_array_equal(found.total, expected.total)


@pytest.mark.parametrize("load", [compile_all, as_python])
@pytest.mark.parametrize("places", [np.int32, np.int64])
def test_kernels_give_the_bits_of_scipy(load: Load, places: npt.DTypeLike) -> None:
    kernels = load(places)
    for n, d in ((0, 3), (1, 1), (17, 40), (60, 7)):
        for width in (1, 3, 4, 5, 8, 9, 12, 17):
            check_bits(kernels, draw_rows(n, d, places), width, weighted=width % 2 == 0)


@pytest.mark.parametrize("load", [compile_all, as_python])
@pytest.mark.parametrize("places", [np.int32, np.int64])
def test_scattered_rows_are_multiplied_to_the_bits_of_their_copy(
    load: Load, places: npt.DTypeLike
) -> None:
    rng = np.random.default_rng(0)
    table = draw_rows(60, 17, places)
    rows = ScatteredSparse(table, rng.permutation(60)[:23])
    basis, shift, weights = rng.standard_normal((17, 5)), rng.standard_normal(5), rng.random(23)
    expected = multiply_by_scipy(rows[:], basis, shift, weights)
    for found in (
        multiply_by_kernels(load(places), rows, basis, shift, weights),
        multiply_twice(rows, basis, shift, weights),
    ):
        np.testing.assert_array_equal(found.sided, expected.sided)
        np.testing.assert_array_equal(found.total, expected.total)


def test_kernels_are_loaded_after_work_that_takes_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def record(places: np.dtype[Any]) -> dict[int, Kernel]:
        asked.append(places)
        return compile_all(places)

    monkeypatch.setattr(sparse_products, "load_kernels", record)
    monkeypatch.setattr(sparse_products._Work, "done", 0.0)
    rows = draw_rows(50, 20, np.int32)
    monkeypatch.setattr(sparse_products, "_WORTH_LOADING", 4.0 * rows.nnz)
    basis, shift = np.random.default_rng(0).standard_normal((20, 2)), np.ones(2)
    results = [multiply_twice(rows, basis, shift) for _ in range(3)]
    assert asked == [np.int32]
    for found in results[1:]:
        np.testing.assert_array_equal(found.total, results[0].total)
    # A single direction is not worth a vector.
    multiply_twice(rows, basis[:, :1], shift[:1])
    assert len(asked) == 1


def test_scipy_serves_where_llvmlite_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] == "llvmlite":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    monkeypatch.delitem(sys.modules, "eigenfed.linalg.vector_entries")
    monkeypatch.setattr(sparse_products, "load_kernels", load_kernels.__wrapped__)
    monkeypatch.setattr(sparse_products, "_WORTH_LOADING", -1.0)
    assert load_kernels.__wrapped__(np.dtype(np.int32)) == {}
    rows = draw_rows(30, 8, np.int32)
    basis, shift = np.ones((8, 3)), np.zeros(3)
    found, expected = (
        multiply_twice(rows, basis, shift),
        multiply_by_scipy(rows, basis, shift, None),
    )
    np.testing.assert_array_equal(found.total, expected.total)


def test_kernels_that_round_otherwise_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class Inexact(CompiledProducts):
        def __call__(self, *arrays: Any) -> None:
            super().__call__(*arrays)
            total = arrays[-2]
            total[...] = np.nextafter(total, np.inf)

    assert set(load_kernels.__wrapped__(np.dtype(np.int64))) == set(LANES)
    monkeypatch.setattr(vector_entries, "CompiledProducts", Inexact)
    assert load_kernels.__wrapped__(np.dtype(np.int64)) == {}


@pytest.mark.parametrize("weighted", [False, True])
def test_a_fit_has_the_same_bits_with_either(
    monkeypatch: pytest.MonkeyPatch, weighted: bool
) -> None:
    rows = draw_rows(90, 30, np.int32)
    rows.data[::50] = np.nan
    groups = np.arange(90) % 3
    weights = np.random.default_rng(0).random(90) if weighted else None
    fits = []
    for limit in (np.inf, -1.0):
        monkeypatch.setattr(sparse_products, "_WORTH_LOADING", limit)
        pca = FederatedPCA(3, method="krylov", random_state=0)
        fits.append(pca.fit(rows, groups=groups, sample_weight=weights))
    np.testing.assert_array_equal(fits[0].components_, fits[1].components_)
    np.testing.assert_array_equal(fits[0].explained_variance_, fits[1].explained_variance_)
