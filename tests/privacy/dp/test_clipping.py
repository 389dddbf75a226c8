"""Rows as whole numbers: their norms are bounded whatever the rows, and their sums exact."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenfed.arrays import Array
from eigenfed.errors import InputError
from eigenfed.privacy.dp.clipping import (
    LARGEST,
    choose_grid,
    compute_coefficients,
    least_grid,
    round_to_grid,
    row_norms,
    sketch_slack,
    subtract_center,
)

anything = st.floats(allow_nan=False, allow_infinity=False)
usual = st.floats(-10, 10)


@st.composite
def tables(draw: st.DrawFn) -> Array:
    n, d = draw(st.integers(1, 4)), draw(st.integers(1, 12))
    entries = draw(st.sampled_from([anything, usual]))
    values = draw(st.lists(entries, min_size=n * d, max_size=n * d))
    return np.array(values).reshape(n, d)


def squared(row: Array) -> int:
    """The squared norm of a row of whole numbers, in whole numbers."""
    return sum(int(z) ** 2 for z in row)


def is_whole(values: Array) -> bool:
    return bool(np.all(values == np.rint(values)))


@given(
    rows=tables(),
    radius=st.floats(-100, 100).map(lambda e: 10.0**e),
    bits=st.integers(4, 20),
)
def test_no_row_is_longer_than_the_grid(rows: Array, radius: float, bits: int) -> None:
    grid = 1 << bits
    whole = round_to_grid(rows, radius, grid)
    assert is_whole(whole)
    assert all(squared(row) <= grid**2 for row in whole)


@given(rows=tables(), bits=st.integers(8, 20))
def test_short_rows_keep_their_length_and_long_ones_their_direction(rows: Array, bits: int) -> None:
    grid, radius = 1 << bits, 5.0
    rows = np.clip(rows, -1e60, 1e60)
    whole = round_to_grid(rows, radius, grid) * (radius / grid)
    norms = np.linalg.norm(rows, axis=1)
    wanted = rows * np.minimum(1.0, radius / np.maximum(norms, radius / 2))[:, None]
    # Half a step for each entry, and for long rows the room that is left for rounding.
    step = radius / grid
    room = (np.sqrt(rows.shape[1]) / 2 + 1e-6 * grid) * step
    np.testing.assert_allclose(whole, wanted, rtol=0, atol=step / 2 + room + 1e-12)


@pytest.mark.parametrize("entry", [1.7e308, -1.7e308, 1e200, 5e-324, 0.0, -0.0])
def test_huge_tiny_and_zero_rows_are_rows(entry: float) -> None:
    whole = round_to_grid(np.full((2, 3), entry), 1.0, 1024)
    assert np.isfinite(whole).all()
    assert abs(entry) > 1 or not whole.any()
    assert abs(entry) < 1 or 1020**2 < squared(whole[0]) <= 1024**2


@pytest.mark.parametrize("radius", [0.0, -1.0, np.nan, np.inf, 1e-101, 1e101])
def test_a_radius_that_is_none_is_refused(radius: float) -> None:
    with pytest.raises(InputError, match="radius="):
        round_to_grid(np.zeros((1, 2)), radius, 1024)


def test_a_grid_that_is_too_coarse_is_refused_whatever_the_rows_are() -> None:
    for rows in (np.zeros((1, 64)), np.eye(64), np.full((2, 64), 1e9)):
        with pytest.raises(InputError, match="grid=31"):
            round_to_grid(rows, 1.0, 31)
        round_to_grid(rows, 1.0, 32)


@pytest.mark.parametrize(("n", "d"), [(1, 1), (1797, 64), (10**6, 64), (10**7, 1000)])
def test_second_moments_of_that_many_rows_are_exact(n: int, d: int) -> None:
    grid = choose_grid(n, d)
    assert n * grid**2 < 2**53
    assert least_grid(d) <= grid <= 2**20


def test_more_rows_than_can_be_summed_exactly_are_refused() -> None:
    with pytest.raises(InputError, match="too many"):
        choose_grid(2**48, 64)
    with pytest.raises(InputError, match="too many"):
        choose_grid(10**9, 10**7)


def test_sums_are_exact_in_any_order() -> None:
    rng = np.random.default_rng(0)
    n, d = 3000, 7
    grid = choose_grid(n, d)
    whole = round_to_grid(rng.standard_normal((n, d)) * 10, 1.0, grid)
    moment = whole.T @ whole
    integers = whole.astype(np.int64)
    exact = [[sum(map(int, integers[:, i] * integers[:, j])) for j in range(d)] for i in range(d)]
    assert moment.astype(np.int64).tolist() == exact
    shuffled = whole[rng.permutation(n)]
    np.testing.assert_array_equal(shuffled.T @ shuffled, moment)
    parts = sum((part.T @ part for part in np.array_split(whole, 7)), np.zeros((d, d)))
    np.testing.assert_array_equal(parts, moment)
    np.testing.assert_array_equal(whole.sum(axis=0), integers.sum(axis=0))


@given(rows=tables())
def test_lengths_are_right_without_overflow(rows: Array) -> None:
    rows = np.clip(rows, -LARGEST, LARGEST)
    for row, found in zip(rows, row_norms(rows), strict=True):
        exact = sum(Fraction(float(x)) ** 2 for x in row)
        assert float(Fraction(float(found)) ** 2) == pytest.approx(float(exact), rel=1e-13)
    assert np.isfinite(row_norms(rows)).all()


def test_rows_about_a_centre_never_overflow() -> None:
    rows = np.array([[1.7e308, -1.7e308, 3.0]])
    around = subtract_center(rows, np.array([-LARGEST, LARGEST, 1.0]))
    np.testing.assert_array_equal(around, [[2 * LARGEST, -2 * LARGEST, 2.0]])
    assert np.isfinite(row_norms(around)).all()


@given(
    rows=tables(),
    width=st.integers(1, 12),
    part=st.sampled_from([1e-9, 1e-3, 0.1, 0.9, 1.0]),
    seed=st.integers(0, 99),
)
def test_no_update_is_larger_than_its_clip(rows: Array, width: int, part: float, seed: int) -> None:
    """In whole numbers: |z|^2 |w|^2 against the square of the clip, without rounding."""
    d, grid = rows.shape[1], 1 << 12
    width = min(width, d)
    basis = np.linalg.qr(np.random.default_rng(seed).standard_normal((d, d))).Q[:, :width]
    whole = round_to_grid(rows, 1.0, grid)
    coefficients = compute_coefficients(whole, basis, part * grid**2)
    assert is_whole(coefficients)
    clip = Fraction(part) * grid**2
    for z, w in zip(whole, coefficients, strict=True):
        assert squared(z) * squared(w) <= clip**2
        assert squared(w) <= squared(z)


def test_an_unclipped_update_is_off_by_less_than_the_slack() -> None:
    rng = np.random.default_rng(4)
    grid, d, width = 1 << 14, 9, 4
    whole = round_to_grid(rng.standard_normal((50, d)), 2.0, grid)
    basis = np.linalg.qr(rng.standard_normal((d, width))).Q
    rounded = compute_coefficients(whole, basis, float(grid**2))
    exact = whole @ basis
    for z, w, v in zip(whole, rounded, exact, strict=True):
        moved = np.linalg.norm(np.outer(z, w) - np.outer(z, v))
        assert 2 * moved <= sketch_slack(grid, width)
