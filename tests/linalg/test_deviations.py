"""Deviations from the weighted mean, against numpy's average."""

import numpy as np
import pytest

from eigenfed.arrays import Array
from eigenfed.linalg.compress import center_rows


def taken(rows: Array, weights: Array | None, *, centered: bool = True) -> tuple[Array, Array]:
    out = np.full(rows.shape, np.nan)
    kept = rows.copy()
    mean = center_rows(rows, weights, centered=centered, out=out)
    np.testing.assert_array_equal(rows, kept)
    return mean, out


@pytest.mark.parametrize("b", [1, 2, 17])
def test_without_weights_every_row_counts_once(b: int) -> None:
    rows = np.random.default_rng(b).standard_normal((b, 4))
    mean, around = taken(rows, None)
    np.testing.assert_allclose(mean, rows.mean(axis=0), rtol=0, atol=1e-15)
    np.testing.assert_allclose(around, rows - rows.mean(axis=0), rtol=0, atol=1e-15)


def test_weights_move_the_mean_and_scale_rows_by_their_roots() -> None:
    rng = np.random.default_rng(0)
    rows, weights = rng.standard_normal((9, 3)), rng.random(9) * 5
    kept = weights.copy()
    mean, around = taken(rows, weights)
    expected = np.average(rows, axis=0, weights=weights)
    np.testing.assert_allclose(mean, expected, rtol=0, atol=1e-15)
    np.testing.assert_allclose(
        around, np.sqrt(weights)[:, None] * (rows - expected), rtol=0, atol=1e-14
    )
    np.testing.assert_array_equal(weights, kept)


@pytest.mark.parametrize("place", [1, 3])
def test_a_weight_of_zero_takes_a_row_out(place: int) -> None:
    rows = np.random.default_rng(1).standard_normal((4, 2))
    rows[place] = 1e6
    weights = np.ones(4)
    weights[place] = 0.0
    mean, around = taken(rows, weights)
    np.testing.assert_allclose(mean, np.delete(rows, place, axis=0).mean(axis=0), rtol=1e-12)
    np.testing.assert_array_equal(around[place], [0.0, 0.0])


def test_a_first_row_of_weight_zero_costs_the_others_no_digits() -> None:
    mean, around = taken(np.array([[1e20], [1.0], [2.0]]), np.array([0.0, 1.0, 1.0]))
    np.testing.assert_allclose(mean, [1.5], rtol=1e-14)
    np.testing.assert_allclose(around, [[0.0], [-0.5], [0.5]], rtol=1e-14)


def test_weights_of_one_are_no_weights_to_the_last_bit() -> None:
    rows = np.random.default_rng(2).standard_normal((7, 5))
    plain, weighted = taken(rows, None), taken(rows, np.ones(7))
    np.testing.assert_array_equal(weighted[0], plain[0])
    np.testing.assert_array_equal(weighted[1], plain[1])


def test_uncentred_rows_are_taken_as_they_are() -> None:
    rows = np.random.default_rng(3).standard_normal((5, 3)) + 10
    mean, around = taken(rows, None, centered=False)
    np.testing.assert_array_equal(mean, np.zeros(3))
    np.testing.assert_array_equal(around, rows)


def test_uncentred_rows_are_scaled_by_the_roots_of_their_weights() -> None:
    rows, weights = np.arange(6.0).reshape(3, 2), np.array([4.0, 0.0, 9.0])
    mean, around = taken(rows, weights, centered=False)
    np.testing.assert_array_equal(mean, np.zeros(2))
    np.testing.assert_array_equal(around, [[0.0, 2.0], [0.0, 0.0], [12.0, 15.0]])


def test_a_large_common_offset_costs_no_digits() -> None:
    steps = np.random.default_rng(4).integers(-8, 9, size=(32, 3)).astype(float)
    mean, around = taken(steps + 1e9, None)
    np.testing.assert_allclose(mean - 1e9, steps.mean(axis=0), rtol=0, atol=2e-7)
    np.testing.assert_allclose(around, steps - steps.mean(axis=0), rtol=0, atol=1e-6)


def test_deviations_are_written_into_part_of_a_larger_array() -> None:
    stack = np.full((5, 2), 7.0)
    center_rows(np.array([[1.0, 2.0], [3.0, 6.0]]), None, centered=True, out=stack[1:3])
    np.testing.assert_array_equal(stack, [[7, 7], [-1, -2], [1, 2], [7, 7], [7, 7]])
