"""Sums in pieces: those of equal rows are as exact as those of different ones."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from eigenfed.arrays import Array
from eigenfed.data.prepared import Prepared
from eigenfed.data.source import Source
from eigenfed.linalg import sparse_products
from eigenfed.linalg.row_sums import split_long_table, sum_by_feature, sum_rows, sum_squares
from eigenfed.linalg.sparse_products import (
    LANES,
    add_products,
    multiply_by_kernels,
    multiply_by_scipy,
    multiply_transpose,
)

N = 60_000
VALUES = (0.1, 0.3, 0.7, 1 / 3, 0.9, 1.7, 0.47)
"""One after the other, sums of so many of these are off by up to 1e4 unit roundoffs."""
LEAST = 2.0**-53 * (10.0 + N**0.5)


def plain(rows: Array) -> Prepared:
    return Prepared(Source.of(rows), np.zeros(2), np.ones(2))


def sparsely(rows: Array) -> Prepared:
    return Prepared(Source.of(sparse.csr_array(rows)), np.zeros(2), np.ones(2))


@pytest.mark.parametrize(
    ("add", "power"),
    [
        (lambda rows: sum_rows(rows)[0], 1),
        (lambda rows: sum_rows(rows, np.ones(N))[0], 1),
        (lambda rows: sum_rows(np.asfortranarray(rows))[0], 1),
        (lambda rows: sum_squares(rows)[0], 2),
        (lambda rows: sum_squares(rows, np.ones(N))[0], 2),
        (lambda rows: sum_by_feature(np.zeros(N, np.int32), rows[:, 0], 2)[0], 1),
        (lambda rows: plain(rows).source.totals()[2][0], 1),
        (lambda rows: plain(rows).squares()[0], 2),
        (lambda rows: sparsely(rows).source.totals()[2][0], 1),
        (lambda rows: sparsely(rows).squares()[0], 2),
        (lambda rows: sparsely(rows).product(np.eye(2))[0, 0], 2),
        (lambda rows: sparsely(rows).adjoint(rows)[0, 0], 2),
    ],
)
def test_sums_of_equal_rows_keep_their_digits(add: Callable[[Array], float], power: int) -> None:
    for value in VALUES:
        exact = np.longdouble(value) ** power * N
        found = add(np.full((N, 2), value))
        assert abs(found - exact) <= LEAST * exact


def test_pieces_hold_all_rows_and_features() -> None:
    rng = np.random.default_rng(0)
    columns, values = rng.integers(0, 7, 5000).astype(np.int32), rng.integers(-9, 9, 5000) * 1.0
    np.testing.assert_array_equal(
        sum_by_feature(columns, values, 7), np.bincount(columns, values, minlength=7)
    )
    np.testing.assert_array_equal(sum_by_feature(columns, None, 9)[7:], 0.0)
    narrow = rng.integers(-9, 9, (1000, 3)).astype(np.float32)
    np.testing.assert_array_equal(sum_rows(narrow), narrow.sum(axis=0))
    assert sum_rows(narrow).dtype == np.float64
    np.testing.assert_array_equal(sum_rows(np.zeros((0, 3))), np.zeros(3))
    spans = split_long_table(5000, 40_000, 4)
    assert len(spans) > 1
    assert np.concatenate([np.arange(5000)[span] for span in spans]).tolist() == list(range(5000))


@pytest.mark.parametrize("width", [1, 3, 8, 9])
@pytest.mark.parametrize("at_once", [1, 3000, 1 << 20])
def test_products_in_pieces_have_the_bits_of_the_kernel(
    monkeypatch: pytest.MonkeyPatch, width: int, at_once: int
) -> None:
    rng = np.random.default_rng(width)
    rows: Any = sparse.random_array((1500, 9), density=0.4, rng=rng, format="csr")
    basis, shift, weights = rng.random((9, width)), rng.random(width), rng.random(1500)
    monkeypatch.setattr(sparse_products, "_ENTRIES_AT_ONCE", at_once)
    assert len(split_long_table(1500, rows.nnz, 9)) > 1
    expected = multiply_by_scipy(rows, basis, shift, weights)
    found = multiply_by_kernels(dict.fromkeys(LANES, add_products), rows, basis, shift, weights)
    np.testing.assert_array_equal(found.sided, expected.sided)
    np.testing.assert_array_equal(found.total, expected.total)
    np.testing.assert_array_equal(multiply_transpose(rows, found.sided), found.total)
    np.testing.assert_allclose(found.total, rows.T @ found.sided, rtol=1e-12)
