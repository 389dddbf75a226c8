"""Every refusal names argument, rule, value and remedy, and never an entry of the data."""

import re
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from eigenfed.errors import EigenfedError, InputError
from eigenfed.linalg.checks import (
    as_real_array,
    check_block,
    check_count,
    check_decay,
    check_weights,
    make_range_error,
)

MARK = 987654.321
TEXT = "canary"


def exactly(message: str) -> str:
    return f"^{re.escape(message)}$"


def assert_hides_data(error: BaseException) -> None:
    assert "987654" not in str(error)
    assert TEXT not in str(error)


@pytest.mark.parametrize("value", [1, 2, 10**20, np.int64(3), np.uint8(1)])
def test_counts_are_whole_numbers_from_one(value: Any) -> None:
    check_count("rank", value, "Ask.")


@pytest.mark.parametrize(
    "value", [0, -1, 1.0, 2.5, True, False, None, "2", np.float64(2), [1], np.True_]
)
def test_what_is_no_count_is_refused(value: Any) -> None:
    message = f"rank={value!r} must be an integer of at least 1. Ask for more."
    with pytest.raises(InputError, match=exactly(message)):
        check_count("rank", value, "Ask for more.")


@pytest.mark.parametrize("value", [1, 1.0, 0.5, 5e-324, np.float32(0.25), np.float64(1.0)])
def test_decays_lie_above_zero_and_reach_one(value: Any) -> None:
    check_decay(value)


@pytest.mark.parametrize(
    "value",
    [
        0,
        0.0,
        -0.5,
        1.0000001,
        2,
        10**400,
        float("nan"),
        float("inf"),
        None,
        "1",
        Decimal("0.5"),
        1j,
        True,
    ],
)
def test_what_is_no_decay_is_refused(value: Any) -> None:
    message = f"decay={value!r} must be a number above 0 and at most 1. Pass 1.0 to forget nothing."
    with pytest.raises(InputError, match=exactly(message)):
        check_decay(value)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint64, np.float16, np.float32, np.float64])
def test_blocks_of_any_real_dtype_become_double(dtype: npt.DTypeLike) -> None:
    given = np.array([[0, 1, 1], [1, 0, 1]], dtype=dtype)
    found = check_block(given, 3)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, given.astype(float))


def test_blocks_may_be_lists_and_may_be_empty() -> None:
    np.testing.assert_array_equal(check_block([[1, 2]], 2), [[1.0, 2.0]])
    assert check_block(np.zeros((0, 2)), 2).shape == (0, 2)


def test_a_block_that_is_right_is_not_copied() -> None:
    block = np.ones((2, 3))
    assert check_block(block, 3) is block


@pytest.mark.parametrize(
    ("block", "dtype"),
    [
        ([[TEXT, "1"]], "<U6"),
        (np.array([[MARK + 1j, 0]]), "complex128"),
        (np.array([[MARK, None]], dtype=object), "object"),
        (np.array([["2026-01-01", "2026-01-02"]], dtype="M8[D]"), "datetime64[D]"),
        (np.array([[b"canary", b"1"]]), "|S6"),
    ],
)
def test_a_block_of_anything_but_real_numbers_is_refused(block: Any, dtype: str) -> None:
    message = f"block has dtype {dtype} and must hold real numbers. Convert it first."
    with pytest.raises(InputError, match=exactly(message)) as caught:
        check_block(block, 2)
    assert_hides_data(caught.value)


@pytest.mark.parametrize("shape", [(), (2,), (3, 1), (2, 3), (1, 2, 2), (2, 0)])
def test_a_block_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    message = (
        f"block has shape {shape} and must have rows of 2 features. "
        "Reshape one record with block.reshape(1, -1)."
    )
    with pytest.raises(InputError, match=exactly(message)) as caught:
        check_block(np.full(shape, MARK), 2)
    assert_hides_data(caught.value)


@pytest.mark.parametrize("entry", [np.nan, np.inf, -np.inf])
def test_a_block_that_is_not_finite_is_refused(entry: float) -> None:
    message = (
        "block holds NaN or infinity and must be finite. Drop or impute those entries; "
        "StreamingPCA imputes NaN."
    )
    with pytest.raises(InputError, match=exactly(message)) as caught:
        check_block([[MARK, 1.0], [1.0, entry]], 2)
    assert_hides_data(caught.value)


@pytest.mark.parametrize(
    "weights", [[1, 2, 0], np.array([1, 2, 0], dtype=np.uint8), (1.0, 2.0, 0.0)]
)
def test_weights_become_double(weights: Any) -> None:
    found = check_weights(weights, 3)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, [1.0, 2.0, 0.0])


def test_weights_may_be_booleans_and_may_be_none() -> None:
    np.testing.assert_array_equal(check_weights(np.array([True, False]), 2), [1.0, 0.0])
    assert check_weights(np.zeros(0), 0).shape == (0,)


@pytest.mark.parametrize("name", ["weights", "sample_weight"])
def test_weights_that_are_no_real_numbers_are_refused(name: str) -> None:
    message = f"{name} has dtype <U6 and must hold real numbers. Convert it first."
    with pytest.raises(InputError, match=exactly(message)) as caught:
        check_weights([TEXT], 1, name)
    assert_hides_data(caught.value)


@pytest.mark.parametrize("shape", [(), (2,), (4,), (3, 1), (1, 3)])
def test_weights_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    message = f"weights has shape {shape} and must be (3,), one for each row. Reshape it."
    with pytest.raises(InputError, match=exactly(message)) as caught:
        check_weights(np.full(shape, MARK), 3)
    assert_hides_data(caught.value)


@pytest.mark.parametrize(
    "weights", [[MARK, np.nan], [MARK, np.inf], [-MARK, 2 * MARK], [1.0, -5e-324], [-np.inf, 1.0]]
)
def test_weights_that_are_negative_or_not_finite_are_refused(weights: list[float]) -> None:
    message = "sample_weight must be finite and not negative. Use weight 0 to leave a row out."
    with pytest.raises(InputError, match=exactly(message)) as caught:
        check_weights(weights, 2, "sample_weight")
    assert_hides_data(caught.value)


@pytest.mark.parametrize("weights", [[1e308, 1e308], [np.inf, -np.inf]])
def test_weights_whose_sum_is_not_finite_are_refused_without_a_warning(
    weights: list[float],
) -> None:
    with pytest.raises(InputError, match="must be finite"):
        check_weights(weights, 2)


def test_numbers_too_large_to_square_have_an_error_of_their_own() -> None:
    error = make_range_error()
    assert isinstance(error, InputError)
    assert isinstance(error, EigenfedError)
    assert str(error) == (
        "The block holds numbers too large to square in float64. Rescale it to below 1e150."
    )


@pytest.mark.parametrize("name", ["block", "weights"])
def test_rows_of_different_lengths_are_refused(name: str) -> None:
    message = (
        f"{name} has rows of different lengths and must be a table. Give every row the same length."
    )
    with pytest.raises(InputError, match=exactly(message)) as caught:
        as_real_array(name, [[MARK, 1.0], [MARK]])
    assert_hides_data(caught.value)


def test_a_mask_is_refused_where_it_would_be_lost() -> None:
    message = (
        "block has masked entries, and masks are not supported. Pass block.filled(np.nan) where "
        "NaN may mark a missing entry, or drop those rows."
    )
    with pytest.raises(InputError, match=exactly(message)):
        check_block(np.ma.masked_greater([[1.0, MARK]], 2.0), 2)
    with pytest.raises(InputError, match=r"^weights has masked entries"):
        check_weights(np.ma.masked_greater([1.0, 3.0], 2.0), 2)
    unmasked = np.ma.masked_greater([[1.0, 2.0]], 5.0)
    np.testing.assert_array_equal(check_block(unmasked, 2), [[1.0, 2.0]])
