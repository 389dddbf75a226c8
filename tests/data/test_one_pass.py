"""One pass over the rows against two: the same scatter, at any offset and in any order of rows."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse

import eigenfed.data.source as module
from eigenfed.arrays import Array
from eigenfed.data.one_pass import OwnScatter
from eigenfed.data.prepared import Prepared
from eigenfed.data.source import Source

RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((200, 5)) @ RNG.standard_normal((5, 5)) + [3.0, 0.0, -1.0, 8.0, 2.0]


def two_passes(X: Array, mean: Array, scale: Array) -> Array:
    around = (X.astype(np.longdouble) - mean) / scale
    scatter: Array = (around.T @ around).astype(np.float64)
    return scatter


def read_once(X: Any) -> OwnScatter:
    own = OwnScatter.of(Source.of(X))
    assert own is not None
    return own


@pytest.fixture(params=[10, 64, 1000], ids=lambda rows: f"{rows} rows a block")
def _blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK_BYTES", request.param * 5 * 8)


@pytest.mark.usefixtures("_blocks")
@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6])
@pytest.mark.parametrize("away", [0.0, 0.1, 50.0])
def test_an_offset_costs_no_digits(offset: float, away: float) -> None:
    X = ROWS + offset
    own = read_once(X)
    mean, scale = X.mean(axis=0) + away, np.array([1.0, 2.0, 0.5, 1.0, 3.0])
    exact = two_passes(X, mean, scale)
    # What an entry of 1e6 has lost itself, 1e-10 of the spread, cannot be told from the rows.
    close = 1e-13 * (1.0 + 1e-3 * offset) * np.abs(exact).max()
    np.testing.assert_allclose(own.about(mean, scale), exact, rtol=0, atol=close)
    np.testing.assert_allclose(own.about(mean, np.ones(5)).diagonal(), own.squares(mean))
    np.testing.assert_allclose(own.mean, X.mean(axis=0), rtol=1e-15 * 10)
    assert own.n == 200.0


@pytest.mark.usefixtures("_blocks")
def test_a_first_block_that_is_unlike_the_others_costs_few_digits() -> None:
    X = ROWS.copy()
    X[:10] -= 1e4
    own = read_once(X)
    exact = two_passes(X, X.mean(axis=0), np.ones(5))
    np.testing.assert_allclose(own.matrix, exact, rtol=0, atol=1e-13 * np.abs(exact).max())


def test_single_precision_is_widened_before_it_is_summed() -> None:
    X = ROWS.astype(np.float32)
    own = read_once(X)
    view = Prepared(Source.of(X), own.mean, np.ones(5))
    np.testing.assert_allclose(own.matrix, view.scatter(), rtol=1e-12, atol=1e-10)


def test_a_constant_feature_has_no_spread_below_zero() -> None:
    X = np.full((40, 2), 0.1)
    X[:, 1] = RNG.standard_normal(40)
    own = read_once(X)
    assert np.all(own.squares(own.mean) >= 0.0)
    assert own.squares(own.mean)[0] < 1e-28


@pytest.mark.parametrize(
    ("X", "weights", "fits"),
    [
        (ROWS, None, True),
        (ROWS[:20], None, True),
        (ROWS[:19], None, False),
        (ROWS[:0], None, False),
        (ROWS, np.ones(200), False),
        (np.where(ROWS > 9, np.nan, ROWS), None, False),
        (sparse.csr_array(ROWS), None, False),
    ],
    ids=["dense", "few", "too few", "none", "weights", "missing", "sparse"],
)
def test_two_passes_are_taken_where_one_would_not_do(X: Any, weights: Any, fits: bool) -> None:
    assert (OwnScatter.of(Source.of(X, weights=weights)) is not None) is fits


@pytest.mark.parametrize("row", [0, 63, 64, 199])
def test_one_missing_entry_anywhere_ends_the_pass(
    monkeypatch: pytest.MonkeyPatch, row: int
) -> None:
    monkeypatch.setattr(module, "_BLOCK_BYTES", 64 * 5 * 8)
    X = ROWS.copy()
    X[row, 2] = np.nan
    assert OwnScatter.of(Source.of(X)) is None


def test_rows_are_not_changed_and_not_printed() -> None:
    before = ROWS.copy()
    own = read_once(ROWS)
    own.about(np.zeros(5), np.full(5, 2.0))
    np.testing.assert_array_equal(ROWS, before)
    assert "array" not in repr(own)
