"""Numbers in fixed point: sums that are exact to the step, and refusals of all that is beyond."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenfed.errors import InputError
from eigenfed.privacy.secagg.fixed_point import (
    Bound,
    check_bound,
    decode_fixed_point,
    encode_fixed_point,
    error,
)

SIZES = [5e-324, 1e-300, 1e-3, 1.0, 3.0, 1e6, 1e150, 1e300]


@given(
    st.sampled_from(SIZES),
    st.integers(3, 60),
    st.lists(st.floats(-1, 1, width=64), min_size=1, max_size=6),
)
def test_a_sum_is_right_to_half_a_step_for_each_site(
    bound: float, parties: int, shares: list[float]
) -> None:
    parts = [np.array([bound * share]) for share in shares] * math.ceil(parties / len(shares))
    parts = parts[:parties]
    total = np.sum([encode_fixed_point(part, bound, parties) for part in parts], axis=0)
    exact = sum((Fraction(float(part[0])) for part in parts), Fraction(0))
    found = Fraction(float(decode_fixed_point(total, bound, parties)[0]))
    rounding = abs(exact) * Fraction(2) ** -53 + Fraction(2) ** -1074
    assert abs(found - exact) <= Fraction(float(error(bound, parties))) + rounding


@pytest.mark.parametrize("parties", [3, 10, 16, 17, 50, 1000])
@pytest.mark.parametrize("bound", [1.0, 1.1, 1e-9, 255.0, 3e12])
def test_the_step_is_as_fine_as_the_word_allows(bound: float, parties: int) -> None:
    """Within a factor of four of range x sites / 2^62, by rounding both up to powers of two."""
    step = 2.0 * float(error(bound, parties)) / parties
    assert math.frexp(step)[0] == 0.5
    assert bound * parties / 2**62 <= step < 4.0 * bound * parties / 2**62


@pytest.mark.parametrize("parties", [3, 4, 50])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_sums_of_the_largest_numbers_do_not_wrap_round(sign: float, parties: int) -> None:
    most = encode_fixed_point(np.array([sign * 8.0]), 8.0, parties)
    total = parties * most
    assert abs(int(total[0])) == abs(int(most[0])) * parties <= 2**62
    np.testing.assert_array_equal(decode_fixed_point(total, 8.0, parties), [sign * 8.0 * parties])


def test_numbers_on_the_step_are_exact() -> None:
    values = np.array([1.0, -2.5, 3.0 + 2.0**-40, 0.0])
    total = sum(encode_fixed_point(values, 4.0, 5) for _ in range(5))
    np.testing.assert_array_equal(decode_fixed_point(np.asarray(total), 4.0, 5), 5 * values)


def test_bounds_may_differ_by_entry() -> None:
    values, bounds = np.array([[1e9, 1e-9], [3.0, 0.0]]), np.array([[2e9, 2e-9], [4.0, 0.0]])
    back = decode_fixed_point(encode_fixed_point(values, bounds, 3), bounds, 3)
    np.testing.assert_allclose(back, values, rtol=1e-17)
    assert error(bounds, 3)[0, 1] < 1e-26
    coarse = decode_fixed_point(encode_fixed_point(values, 2e9, 3), 2e9, 3)
    assert coarse[0, 1] != values[0, 1]


def test_whole_numbers_with_a_whole_bound_stay_as_they_are() -> None:
    values = np.array([2**50 + 1, -(2**50)])
    whole = encode_fixed_point(values, 2**50 + 1, 4)
    np.testing.assert_array_equal(whole, values)
    assert whole is not values
    total = decode_fixed_point(4 * whole, 2**50 + 1, 4)
    assert total.dtype == np.int64
    np.testing.assert_array_equal(total, 4 * values)
    assert float(error(2**50 + 1, 4)) == 0.0


def test_whole_numbers_with_a_bound_as_a_fraction_are_exact_too() -> None:
    values = np.array([123456789, -7])
    total = 9 * encode_fixed_point(values, 2e8, 9)
    np.testing.assert_array_equal(decode_fixed_point(total, 2e8, 9), 9.0 * values)


BEYOND: list[tuple[Any, Bound]] = [
    (np.array([1.0, np.nan]), 2.0),
    (np.array([np.inf]), 2.0),
    (np.array([-np.inf]), 1e300),
    (np.array([4.0, 4.0000001]), 3.0),
    (np.array([-1e-300]), 0.0),
    (np.array([5.0, 0.3]), np.array([5.0, 0.25])),
    (np.array([11]), 10),
    (np.array([-11]), 10),
    (np.array([np.iinfo(np.int64).min]), 10),
    (np.array([11]), 7.0),
]


@pytest.mark.parametrize(("values", "bound"), BEYOND)
def test_what_is_beyond_its_bound_is_refused_and_not_shown(values: Any, bound: Bound) -> None:
    with pytest.raises(InputError, match="exceeds its bound") as caught:
        encode_fixed_point(values, bound, 3)
    assert not any(char.isdigit() for char in str(caught.value))


def test_a_bound_counts_as_the_next_power_of_two() -> None:
    """Who states bounds to see which are refused learns magnitudes to a factor of two only."""
    for bound in (2.1, 3.0, 4.0):
        assert encode_fixed_point(np.array([4.0]), bound, 3)[0] > 0
        with pytest.raises(InputError):
            encode_fixed_point(np.array([4.1]), bound, 3)


@pytest.mark.parametrize(
    ("values", "bound", "message"),
    [
        (np.array([1.0]), 5, "int bound requires an int64 array"),
        (np.array([1], dtype=np.uint8), 5.0, "must be float64 or int64"),
        (np.array([1.0, 2.0]), np.array([5.0]), "shape of the entries"),
        (np.array([1]), 2.0**62, "too large for integers"),
    ],
)
def test_bounds_that_do_not_fit_the_numbers_are_refused(
    values: Any, bound: Bound, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        encode_fixed_point(values, bound, 3)


def test_a_sum_that_its_bounds_rule_out_is_refused() -> None:
    for total, bound in ((2**62 + 1, 1.0), (-(2**62) - 1, 1.0), (31, 10), (-31, 10)):
        with pytest.raises(InputError, match="exceeds what numbers within their bounds"):
            decode_fixed_point(np.array([total]), bound, 3)


@pytest.mark.parametrize(
    ("bound", "message"),
    [
        (math.inf, "'x' must be finite and at least 0"),
        (math.nan, "'x' must be finite and at least 0"),
        (-1.0, "'x' must be finite and at least 0"),
        (-1, "'x' must be finite and at least 0"),
        (np.array([1.0, np.inf]), "'x' must be finite and at least 0"),
        (2**61, "times 3 sites must stay below 2"),
        (True, "'x' has type bool"),
        ("1", "'x' has type str"),
    ],
)
def test_bounds_that_bound_nothing_are_refused(bound: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_bound("x", bound, 3)


@pytest.mark.parametrize("bound", [0.0, 0, 1e308, np.zeros(2), 2**60])
def test_every_finite_bound_is_one(bound: Any) -> None:
    check_bound("x", bound, 3)


def test_nothing_is_summed_as_nothing() -> None:
    assert decode_fixed_point(encode_fixed_point(np.zeros((0, 3)), 1.0, 3), 1.0, 3).shape == (0, 3)
    assert decode_fixed_point(encode_fixed_point(np.zeros(0, dtype=np.int64), 1, 3), 1, 3).size == 0
    np.testing.assert_array_equal(
        decode_fixed_point(encode_fixed_point(np.zeros(2), 0.0, 3), 0.0, 3), [0.0, 0.0]
    )
