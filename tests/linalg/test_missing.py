"""Means over observed entries, against numpy's nanmean and explicit weights."""

import numpy as np
import pytest

from eigenfed.arrays import Array
from eigenfed.linalg.stream import Observed

NOTHING = Observed(np.zeros(4), np.zeros(4))


def gappy(seed: int, b: int) -> Array:
    """Rows with a third of the entries missing, none in feature 0, all in feature 3."""
    rng = np.random.default_rng(seed)
    rows: Array = rng.standard_normal((b, 4)) + np.array([0.0, 10.0, -5.0, 3.0])
    rows[rng.random((b, 4)) < 1 / 3] = np.nan
    rows[:, 0] = rng.standard_normal(b)
    rows[:, 3] = np.nan
    return rows


def observed(rows: Array, weights: Array) -> tuple[Array, Array]:
    """Weight and mean of the entries that are there, feature by feature."""
    n, mean = np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
    for j, column in enumerate(rows.T):
        there = ~np.isnan(column)
        n[j] = weights[there].sum()
        if n[j] > 0:
            mean[j] = np.average(column[there], weights=weights[there])
    return n, mean


def assert_is(found: Observed, n: Array, mean: Array) -> None:
    np.testing.assert_allclose(found.n, n, rtol=1e-13)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("cuts", [[], [7], [1, 2, 3], [0, 20]])
def test_means_are_over_what_was_observed_in_any_partition(cuts: list[int]) -> None:
    rows = gappy(0, 20)
    kept = rows.copy()
    found = NOTHING
    for part in np.split(rows, cuts):
        found = found.fold(part, None, 1.0)
    assert_is(found, *observed(rows, np.ones(20)))
    np.testing.assert_array_equal(found.n, (~np.isnan(rows)).sum(axis=0))
    np.testing.assert_array_equal(rows, kept)


def test_weights_count_only_where_the_entry_is_there() -> None:
    rows, weights = gappy(1, 15), np.random.default_rng(2).random(15)
    weights[:3] = 0.0
    assert_is(NOTHING.fold(rows, weights, 1.0), *observed(rows, weights))


@pytest.mark.parametrize("scale", [1e-3, 1e-300])
def test_weights_may_all_be_small(scale: float) -> None:
    rows, weights = gappy(12, 15), scale * np.random.default_rng(12).random(15)
    whole = NOTHING.fold(rows, weights, 1.0)
    assert_is(whole, *observed(rows, weights))
    first, second = (
        NOTHING.fold(rows[part], weights[part], 1.0) for part in (slice(6), slice(6, 15))
    )
    assert_is(first.merge(second), *observed(rows, weights))


def test_decay_shrinks_earlier_weights_by_its_square() -> None:
    first, second = gappy(3, 10), gappy(4, 6)
    found = NOTHING.fold(first, None, 1.0).fold(second, None, 0.5)
    weights = np.concatenate([np.full(10, 0.25), np.ones(6)])
    assert_is(found, *observed(np.vstack([first, second]), weights))


def test_a_feature_that_was_never_observed_has_no_weight_and_mean_zero() -> None:
    found = NOTHING.fold(gappy(5, 8), None, 1.0)
    assert found.n[3] == 0.0
    assert found.mean[3] == 0.0


def test_a_late_first_value_is_the_mean() -> None:
    late = np.array([[1.0, 1.0, 1.0, 42.0]])
    found = NOTHING.fold(gappy(6, 50), None, 1.0).fold(late, None, 1.0)
    assert found.n[3] == 1.0
    assert found.mean[3] == 42.0


def test_a_value_of_weight_zero_is_not_an_observation() -> None:
    found = NOTHING.fold(np.full((1, 4), 42.0), np.zeros(1), 1.0)
    np.testing.assert_array_equal(found.n, np.zeros(4))
    np.testing.assert_array_equal(found.mean, np.zeros(4))


def test_folding_leaves_the_earlier_value_as_it_was() -> None:
    before = NOTHING.fold(gappy(7, 5), None, 1.0)
    n, mean = before.n.copy(), before.mean.copy()
    before.fold(gappy(8, 5), None, 0.5)
    before.merge(NOTHING)
    np.testing.assert_array_equal(before.n, n)
    np.testing.assert_array_equal(before.mean, mean)


def test_merging_is_folding_all_rows_in() -> None:
    first, second = gappy(9, 10), gappy(10, 30)
    second[:, 3] = np.arange(30.0)
    merged = NOTHING.fold(first, None, 1.0).merge(NOTHING.fold(second, None, 1.0))
    assert_is(merged, *observed(np.vstack([first, second]), np.ones(40)))


def test_merging_with_nothing_changes_no_bit_from_either_side() -> None:
    some = NOTHING.fold(gappy(11, 9), None, 1.0)
    for merged in (some.merge(NOTHING), NOTHING.merge(some)):
        np.testing.assert_array_equal(merged.n, some.n)
        np.testing.assert_allclose(merged.mean, some.mean, rtol=1e-15)


def test_complete_rows_have_the_same_weight_in_every_feature() -> None:
    mean = np.array([1.0, -2.0])
    found = Observed.from_complete_rows(3.5, mean)
    np.testing.assert_array_equal(found.n, [3.5, 3.5])
    np.testing.assert_array_equal(found.mean, mean)


def test_repr_shows_no_value_of_the_data() -> None:
    assert "987654" not in repr(NOTHING.fold(np.full((2, 4), 987654.321), None, 1.0))
