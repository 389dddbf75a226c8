"""Summaries of rows that are gone, against the decomposition of all rows at once."""

import dataclasses
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from threadpoolctl import threadpool_limits

from eigenfed.arrays import Array
from eigenfed.errors import DataError, InputError
from eigenfed.linalg.orthonormal import sines
from eigenfed.linalg.summary import Summary, chunk_rows
from oracles import pooled

MARK = 987654.321
TOO_LARGE = "The block holds numbers too large to square in float64. Rescale it to below 1e150."


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    # Several BLAS threads on a busy machine make the small decompositions here take seconds.
    with threadpool_limits(limits=1, user_api="blas"):
        yield


def exactly(message: str) -> str:
    return f"^{re.escape(message)}$"


def rows_of(seed: int, b: int, d: int = 6, decay: float = 1.0) -> Array:
    """Rows about a mean of their own with variances that fall off in a random basis."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((d, d))).Q
    spread = rng.standard_normal((b, d)) * np.arange(1, d + 1) ** -decay
    rows: Array = spread @ basis.T + rng.standard_normal(d)
    return rows


def summed(rows: Array, rank: int, *, centered: bool = True) -> Summary:
    return Summary.empty(rows.shape[1], rank, centered=centered).update(rows)


def assert_same(found: Summary, expected: Summary) -> None:
    """Compare to the last bit."""
    for field in dataclasses.fields(Summary):
        np.testing.assert_array_equal(getattr(found, field.name), getattr(expected, field.name))


def assert_summarises(summary: Summary, rows: Array, weights: Array | None = None) -> None:
    """Check every promise of a summary against all rows at once."""
    truth = pooled(rows, weights, centered=summary.centered)
    kept = len(summary.s)
    rounding = 1e-11 * truth.energy
    assert kept <= min(summary.rank, summary.d)
    assert summary.vt.shape == (kept, summary.d)
    np.testing.assert_allclose(summary.n, truth.n, rtol=1e-12)
    np.testing.assert_allclose(summary.mean, truth.mean, rtol=0, atol=1e-12)
    np.testing.assert_allclose(summary.energy, truth.energy, rtol=1e-11)
    np.testing.assert_allclose(summary.vt @ summary.vt.T, np.eye(kept), rtol=0, atol=1e-10)
    assert np.all(np.diff(summary.s) <= 0)
    assert 0.0 <= summary.lost <= summary.missed + rounding
    np.testing.assert_allclose(
        summary.missed, max(truth.energy - np.sum(summary.s**2), 0), atol=rounding
    )
    gone = (truth.vt.T * truth.s**2) @ truth.vt - (summary.vt.T * summary.s**2) @ summary.vt
    eigenvalues = np.linalg.eigvalsh(gone)
    assert eigenvalues[0] >= -rounding
    assert eigenvalues[-1] <= summary.lost + rounding


def assert_exact(summary: Summary, rows: Array, weights: Array | None = None) -> None:
    """Check that nothing was lost on the way to the leading directions."""
    assert_summarises(summary, rows, weights)
    truth = pooled(rows, weights, centered=summary.centered)
    kept = len(summary.s)
    assert np.all(truth.s[kept : summary.rank] <= 1e-9 * truth.s[0])
    np.testing.assert_allclose(summary.s, truth.s[:kept], rtol=1e-9, atol=1e-11 * truth.s[0])
    gaps = np.diff(truth.s**2, append=0.0)
    if kept and -gaps[kept - 1] > 1e-3 * truth.s[0] ** 2:
        assert sines(summary.vt, truth.vt[:kept]).max() < 1e-9


def test_empty_summarises_no_rows() -> None:
    empty = Summary.empty(3, 2)
    assert (empty.n, empty.energy, empty.lost, empty.rank, empty.d) == (0.0, 0.0, 0.0, 2, 3)
    assert empty.centered
    np.testing.assert_array_equal(empty.mean, np.zeros(3))
    assert empty.s.shape == (0,)
    assert empty.vt.shape == (0, 3)
    assert not Summary.empty(3, 2, centered=False).centered


@pytest.mark.parametrize("value", [0, -1, 1.0, None, "3", True])
def test_empty_refuses_what_is_no_count(value: Any) -> None:
    rule = f"{value!r} must be an integer of at least 1."
    with pytest.raises(InputError, match=exactly(f"d={rule} Pass the number of features.")):
        Summary.empty(value, 2)
    with pytest.raises(InputError, match=exactly(f"rank={rule} Ask for one direction or more.")):
        Summary.empty(3, value)


def test_repr_shows_sizes_and_no_value_of_the_data() -> None:
    summary = summed(np.array([[MARK, 1.0, 2.0], [3.0, MARK, 4.0]]), 5)
    assert repr(summary) == "Summary(n=2, d=3, kept=1, rank=5)"
    assert str(summary) == repr(summary)
    assert repr(summary.update(np.zeros((0, 3)), decay=0.5)).startswith("Summary(n=0.5, ")


@pytest.mark.parametrize("name", ["mean", "s", "vt"])
def test_arrays_refuse_writing(name: str) -> None:
    summary = summed(rows_of(0, 10), 3)
    for each in (summary, Summary.from_bytes(summary.to_bytes()), summary.merge(summary)):
        with pytest.raises(ValueError, match="read-only"):
            getattr(each, name)[...] = 0.0


def test_fields_refuse_assignment() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Summary.empty(2, 1).n = 3.0  # type: ignore[misc]


@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize("rank", [2, 6, 9])
@pytest.mark.parametrize("b", [1, 2, 5, 30])
def test_one_block_gives_the_pooled_directions(b: int, rank: int, centered: bool) -> None:
    rows = rows_of(1, b)
    summary = summed(rows, rank, centered=centered)
    assert_exact(summary, rows)
    following = pooled(rows, centered=centered).s[rank:]
    np.testing.assert_allclose(summary.lost, np.max(following**2, initial=0.0), atol=1e-12)


@pytest.mark.parametrize("cuts", [[1], [5, 6, 7, 40], list(range(60))])
@pytest.mark.parametrize("centered", [True, False])
def test_blocks_of_any_size_lose_nothing_at_full_rank(cuts: list[int], centered: bool) -> None:
    rows = rows_of(2, 60)
    summary = Summary.empty(6, 6, centered=centered)
    for block in np.split(rows, cuts):
        summary = summary.update(block)
    assert_exact(summary, rows)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("decay", [0.2, 1.0, 3.0])
@pytest.mark.parametrize(("rank", "block"), [(4, 1), (4, 30), (20, 45)])
def test_a_truncated_stream_keeps_its_bounds(
    seed: int, decay: float, rank: int, block: int
) -> None:
    rows = rows_of(seed, 180, 70, decay)
    summary = Summary.empty(70, rank)
    for start in range(0, len(rows), block):
        summary = summary.update(rows[start : start + block])
    assert_summarises(summary, rows)
    assert summary.lost > 0


def test_a_large_block_is_folded_in_pieces() -> None:
    rows, weights = rows_of(3, 200, 40), np.random.default_rng(3).random(200)
    step = chunk_rows(5)
    assert step < 100
    start = summed(rows_of(4, 20, 40), 5)
    for given in (None, weights):
        piecewise, decay = start, 0.5
        for first in range(0, 200, step):
            part = None if given is None else given[first : first + step]
            piecewise = piecewise.fold(rows[first : first + step], part, decay)
            decay = 1.0
        assert_same(start.update(rows, given, decay=0.5), piecewise)


@pytest.mark.parametrize("rank", [1, 12, 13, 100])
def test_pieces_have_at_least_32_rows_and_more_than_the_rank(rank: int) -> None:
    assert chunk_rows(rank) >= max(32, 2 * rank)


@pytest.mark.parametrize("block", [[[1, 2]], ((1, 2),), np.array([[1, 2]], np.float32)])
def test_blocks_may_be_lists_and_of_other_dtypes(block: npt.ArrayLike) -> None:
    summary = Summary.empty(2, 1).update(block)
    np.testing.assert_array_equal(summary.mean, [1.0, 2.0])
    assert summary.mean.dtype == np.float64


def test_update_leaves_rows_weights_and_the_earlier_summary_as_they_were() -> None:
    rows, weights = rows_of(5, 9), np.random.default_rng(5).random(9)
    summary = summed(rows_of(6, 20), 3)
    kept = (rows.copy(), weights.copy(), summary.to_bytes())
    summary.update(rows, weights, decay=0.5)
    np.testing.assert_array_equal(rows, kept[0])
    np.testing.assert_array_equal(weights, kept[1])
    assert summary.to_bytes() == kept[2]


def test_the_same_blocks_give_the_same_bits() -> None:
    first, second = summed(rows_of(7, 90, 50), 20), summed(rows_of(7, 90, 50), 20)
    assert_same(first.update(rows_of(8, 50, 50)), second.update(rows_of(8, 50, 50)))


@pytest.mark.parametrize("centered", [True, False])
def test_weights_are_those_of_the_pooled_rows(centered: bool) -> None:
    rows, weights = rows_of(9, 40), 3 * np.random.default_rng(9).random(40)
    summary = Summary.empty(6, 6, centered=centered)
    for part in np.split(np.arange(40), [3, 20]):
        summary = summary.update(rows[part], weights[part])
    assert_exact(summary, rows, weights)


@pytest.mark.parametrize("centered", [True, False])
def test_a_weight_of_two_is_the_row_twice(centered: bool) -> None:
    rows, weights = rows_of(10, 12), np.arange(12) % 3
    assert_exact(
        Summary.empty(6, 6, centered=centered).update(rows, weights),
        np.repeat(rows, weights, axis=0),
    )


def test_a_weight_of_zero_is_the_row_left_out() -> None:
    rows, weights = rows_of(11, 12), np.ones(12)
    rows[[4, 7]], weights[[4, 7]] = 1e5, 0.0
    summary = Summary.empty(6, 6).update(rows, weights)
    assert_exact(summary, np.delete(rows, [4, 7], axis=0))


@pytest.mark.parametrize("weights", [None, np.zeros(3)])
def test_rows_without_weight_change_nothing(weights: Array | None) -> None:
    block = np.zeros((0, 6)) if weights is None else rows_of(12, 3)
    summary = summed(rows_of(13, 20), 3)
    assert_same(summary.update(block, weights), summary)
    assert_same(Summary.empty(6, 3).update(block, weights), Summary.empty(6, 3))


def test_decay_scales_singular_values_and_by_its_square_all_weights() -> None:
    summary = summed(rows_of(14, 20), 3)
    faded = summary.update(np.zeros((0, 6)), decay=0.5)
    assert (faded.n, faded.rank) == (5.0, 3)
    np.testing.assert_array_equal(faded.s, summary.s / 2)
    np.testing.assert_array_equal(faded.mean, summary.mean)
    np.testing.assert_array_equal(faded.vt, summary.vt)
    assert (faded.energy, faded.lost) == (summary.energy / 4, summary.lost / 4)
    assert_same(summary.merge(Summary.empty(6, 9), decay=0.5), faded)


@pytest.mark.parametrize("centered", [True, False])
def test_decay_is_a_weight_of_its_square_on_all_that_came_before(centered: bool) -> None:
    blocks = [rows_of(seed, 40) for seed in (15, 16, 17)]
    summary = Summary.empty(6, 6, centered=centered)
    for block in blocks:
        summary = summary.update(block, decay=0.8)
    weights = np.repeat([0.8**4, 0.8**2, 1.0], 40)
    assert_exact(summary, np.vstack(blocks), weights)


def test_decay_of_a_truncated_summary_keeps_its_bounds() -> None:
    blocks = [rows_of(seed, 60, 70) for seed in (18, 19, 20)]
    summary = Summary.empty(70, 20)
    for block in blocks:
        summary = summary.update(block, decay=0.7)
    assert_summarises(summary, np.vstack(blocks), np.repeat([0.7**4, 0.7**2, 1.0], 60))


@pytest.mark.parametrize("decay", [0, -1.0, 1.5, math.nan, None])
def test_a_decay_outside_its_range_is_refused(decay: Any) -> None:
    message = f"decay={decay!r} must be a number above 0 and at most 1. Pass 1.0 to forget nothing."
    summary = Summary.empty(6, 2)
    with pytest.raises(InputError, match=exactly(message)):
        summary.update(rows_of(0, 3), decay=decay)
    with pytest.raises(InputError, match=exactly(message)):
        summary.merge(summary, decay=decay)


@pytest.mark.parametrize(
    ("block", "weights", "message"),
    [
        ([[MARK, 2.0, 3.0]], None, "block has shape (1, 3) and must have rows of 2 features."),
        ([[MARK, math.nan]], None, "block holds NaN or infinity and must be finite."),
        ([["987654", "x"]], None, "block has dtype <U6 and must hold real numbers."),
        ([[MARK, 1.0]], [MARK, 1.0], "weights has shape (2,) and must be (1,)"),
        ([[MARK, 1.0]], [-MARK], "weights must be finite and not negative."),
        ([[MARK, 1.0]], ["987654"], "weights has dtype <U6 and must hold real numbers."),
    ],
)
def test_update_refuses_rows_and_weights_without_quoting_them(
    block: Any, weights: Any, message: str
) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(message)}") as caught:
        Summary.empty(2, 1).update(block, weights)
    assert "987654" not in str(caught.value)


@pytest.mark.parametrize("size", [1e155, 1e200, 1e300])
def test_numbers_too_large_to_square_are_refused(size: float) -> None:
    block = size * np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.25]])
    with np.errstate(over="ignore"), pytest.raises(InputError, match=exactly(TOO_LARGE)):
        Summary.empty(2, 1).update(block)


def test_a_shift_too_large_to_square_is_refused() -> None:
    here, there = summed(np.full((2, 2), 1e200), 1), summed(np.full((2, 2), -1e200), 1)
    with np.errstate(over="ignore"), pytest.raises(InputError, match=exactly(TOO_LARGE)):
        here.merge(there)


def test_numbers_just_small_enough_to_square_are_taken() -> None:
    rows = rows_of(21, 20)
    large, plain = summed(1e150 * rows, 3), summed(rows, 3)
    np.testing.assert_allclose(large.s / 1e150, plain.s, rtol=1e-12)
    np.testing.assert_allclose(large.energy / 1e300, plain.energy, rtol=1e-12)


@pytest.mark.parametrize("scale", [1e-100, 1e-150, 1e-200])
def test_tiny_numbers_keep_their_directions(scale: float) -> None:
    rows = rows_of(22, 20)
    tiny, plain = summed(scale * rows, 3), summed(rows, 3)
    np.testing.assert_allclose(tiny.s / scale, plain.s, rtol=1e-10)
    assert sines(tiny.vt, plain.vt).max() < 1e-9


def test_rows_of_ordinary_size_may_follow_tiny_ones() -> None:
    rows = rows_of(23, 40, 100)
    summary = summed(1e-170 * rows_of(24, 40, 100), 20).update(rows)
    assert_summarises(summary, np.vstack([np.zeros((40, 100)), rows]))


def test_constant_rows_have_a_mean_and_no_direction() -> None:
    summary = summed(np.tile([3.0, -1.0, 0.1], (50, 1)), 2)
    assert (summary.n, len(summary.s), summary.energy, summary.lost) == (50.0, 0, 0.0, 0.0)
    np.testing.assert_array_equal(summary.mean, [3.0, -1.0, 0.1])


def test_merge_gives_the_pooled_directions_also_where_means_differ() -> None:
    first, second = rows_of(25, 30), rows_of(26, 50) + 20.0
    merged = summed(first, 6).merge(summed(second, 6))
    assert_exact(merged, np.vstack([first, second]))


@pytest.mark.parametrize("centered", [True, False])
def test_merge_takes_decay_on_this_side_only(centered: bool) -> None:
    first, second = rows_of(27, 30), rows_of(28, 50)
    here, there = (summed(rows, 6, centered=centered) for rows in (first, second))
    weights = np.repeat([0.09, 1.0], [30, 50])
    assert_exact(here.merge(there, decay=0.3), np.vstack([first, second]), weights)
    assert_exact(here.merge(there, 0.3), np.vstack([first, second]), weights)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("rank", "other_rank"), [(3, 9), (9, 3), (30, 30), (20, 40)])
def test_merging_truncated_summaries_keeps_the_bounds(
    seed: int, rank: int, other_rank: int
) -> None:
    first, second = rows_of(seed, 90, 60, 0.7), rows_of(seed + 100, 70, 60, 0.7)
    here, there = summed(first, rank), summed(second, other_rank)
    merged = here.merge(there, decay=0.9)
    assert merged.rank == rank
    assert merged.lost >= 0.81 * here.lost + there.lost
    weights = np.repeat([0.81, 1.0], [90, 70])
    assert_summarises(merged, np.vstack([first, second]), weights)


def test_lost_is_the_sum_of_what_each_step_let_go() -> None:
    here = Summary(9.0, np.zeros(4), np.array([5.0, 3.0]), np.eye(4)[:2], 50.0, 4.0, 2)
    there = Summary(4.0, np.zeros(4), np.array([4.0, 1.0]), np.eye(4)[[2, 1]], 24.0, 2.0, 2)
    merged = here.merge(there, 0.5)
    np.testing.assert_allclose(merged.s, [4.0, 2.5], rtol=1e-14)
    np.testing.assert_allclose(merged.energy, 0.25 * 50.0 + 24.0, rtol=1e-14)
    np.testing.assert_allclose(merged.lost, 0.25 * 4.0 + 2.0 + (0.25 * 9.0 + 1.0), rtol=1e-14)
    np.testing.assert_allclose(merged.missed, 36.5 - 22.25, rtol=1e-14)


def test_lost_is_never_more_than_the_energy_that_is_missed() -> None:
    here = Summary(9.0, np.zeros(2), np.array([3.0]), np.eye(2)[:1], 9.5, 0.5, 1)
    there = Summary(4.0, np.zeros(2), np.array([2.0]), np.eye(2)[:1], 4.2, 0.2, 1)
    merged = here.merge(there)
    np.testing.assert_allclose(merged.s, [math.sqrt(13.0)], rtol=1e-14)
    np.testing.assert_allclose([merged.energy, merged.lost], [13.7, 0.7], rtol=1e-12)
    assert merged.lost <= merged.energy - float(merged.s @ merged.s)


@pytest.mark.parametrize("centered", [True, False])
def test_the_empty_summary_is_neutral_to_the_last_bit(centered: bool) -> None:
    summary = summed(rows_of(29, 40), 3, centered=centered)
    empty = Summary.empty(6, 3, centered=centered)
    assert_same(summary.merge(empty), summary)
    assert_same(empty.merge(summary), summary)
    assert_same(empty.merge(empty), empty)
    assert_same(empty.merge(summary, decay=0.5), summary)


def test_merging_into_the_empty_summary_takes_its_rank() -> None:
    summary = summed(rows_of(30, 40), 5)
    assert_same(Summary.empty(6, 2).merge(summary), summary.truncate(2))
    assert Summary.empty(6, 9).merge(summary).rank == 9


def test_a_first_update_counts_as_the_block_alone() -> None:
    rows = rows_of(31, 10)
    assert_same(Summary.empty(6, 3).update(rows, decay=0.5), Summary.empty(6, 3).update(rows))


def test_merge_refuses_other_features_and_another_centring() -> None:
    summary = Summary.empty(3, 1)
    message = (
        "A summary of 4 features cannot be merged into one of 3. "
        "Merge summaries of the same features."
    )
    with pytest.raises(InputError, match=exactly(message)):
        summary.merge(Summary.empty(4, 1))
    centred, others = "centred rows", "rows that were not centred"
    for centered, given, own in ((True, centred, others), (False, others, centred)):
        message = (
            f"A summary of {given} cannot be merged into one of {own}. Make both with the same "
            "choice."
        )
        with pytest.raises(InputError, match=exactly(message)):
            Summary.empty(3, 1, centered=not centered).merge(Summary.empty(3, 1, centered=centered))


def test_variance_divides_by_one_less_than_the_weight() -> None:
    rows = rows_of(32, 15)
    expected = np.linalg.eigvalsh(np.cov(rows.T))[::-1]
    np.testing.assert_allclose(summed(rows, 6).variance, expected, rtol=1e-9)


@pytest.mark.parametrize(("n", "factor"), [(0.5, 0.0), (1.0, 0.0), (1.5, 2.0), (3.0, 0.5)])
def test_variance_is_zero_up_to_a_weight_of_one(n: float, factor: float) -> None:
    summary = Summary(n, np.zeros(2), np.array([3.0, 2.0]), np.eye(2), 13.0, 0.0, 2)
    np.testing.assert_allclose(summary.variance, factor * np.array([9.0, 4.0]), rtol=1e-15)


def test_explained_is_the_share_of_all_energy() -> None:
    rows = rows_of(33, 30)
    truth = pooled(rows)
    np.testing.assert_allclose(summed(rows, 2).explained, truth.s[:2] ** 2 / truth.energy)
    assert summed(rows, 6).explained.sum() == pytest.approx(1.0, rel=1e-12)


def test_explained_is_at_most_one_and_empty_without_energy() -> None:
    assert summed(np.array([[1.0, 2.0], [4.0, 6.0]]), 2).explained == pytest.approx([1.0])
    rounded = Summary(2.0, np.zeros(1), np.array([2.0]), np.eye(1), 3.9999999, 0.0, 1)
    assert rounded.explained.tolist() == [1.0]
    assert Summary.empty(3, 2).explained.shape == (0,)
    nothing = Summary(2.0, np.zeros(1), np.array([0.0]), np.eye(1), 0.0, 0.0, 1)
    assert nothing.explained.tolist() == [0.0]


def test_missed_is_the_energy_outside_the_directions_and_never_negative() -> None:
    outside = Summary(2.0, np.zeros(2), np.array([2.0]), np.eye(2)[:1], 4.75, 0.5, 1)
    assert outside.missed == 0.75
    rounded = Summary(2.0, np.zeros(2), np.array([2.0]), np.eye(2)[:1], 3.9999999, 0.0, 1)
    assert rounded.missed == 0.0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("k", [1, 2, 3])
def test_sine_bound_holds_against_the_pooled_directions(seed: int, k: int) -> None:
    rows = rows_of(seed, 400, 50, 2.0)
    summary = Summary.empty(50, 8)
    for block in np.split(rows, 20):
        summary = summary.update(block)
    bound = summary.sine_bound(k)
    assert 0.0 < bound < 0.5
    assert sines(summary.vt[:k], pooled(rows).vt[:k]).max() <= bound


@pytest.mark.parametrize(
    ("k", "lost", "expected"),
    [
        (1, 0.0, 0.0),
        (1, 2.0, 0.4),
        (2, 2.0, 2.0 / 4.0),
        (3, 2.0, 2.0 / 1.0),
        (3, 3.0, math.inf),
        (3, 4.0, math.inf),
        (2, 6.0, math.inf),
    ],
)
def test_sine_bound_is_that_of_davis_and_kahan(k: int, lost: float, expected: float) -> None:
    s = np.sqrt([16.0, 9.0, 3.0])
    summary = Summary(9.0, np.zeros(4), s, np.eye(4)[:3], 40.0, lost, 3)
    assert summary.sine_bound(k) == pytest.approx(expected, rel=1e-12)


def test_sine_bound_is_infinite_between_equal_singular_values() -> None:
    summary = Summary(9.0, np.zeros(3), np.array([2.0, 2.0]), np.eye(3)[:2], 8.0, 0.0, 2)
    assert summary.sine_bound(1) == math.inf
    assert 0.0 < summary.sine_bound(2) < 1e-14


@pytest.mark.parametrize("offset", [1e3, 1e6, 1e9])
def test_sine_bound_counts_rounding_where_nothing_is_lost(offset: float) -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(-999, 999, (80, 4)) / 1024 * np.array([4.0, 2.0, 1.0, 0.5])
    summary = (
        Summary.empty(4, 4)
        .update(X[:40] + offset)
        .merge(Summary.empty(4, 4).update(X[40:] + offset))
    )
    assert summary.lost == 0.0
    assert sines(summary.vt[:2], pooled(X).vt[:2])[0] <= summary.sine_bound(2) < 1e-3


@pytest.mark.parametrize("k", [0, -1, 3, 10**400, 1.0, True, "1", None, math.nan], ids=str)
def test_sine_bound_refuses_directions_that_are_not_kept(k: Any) -> None:
    summary = summed(rows_of(34, 20), 2)
    message = f"k={k!r} must be an integer from 1 to 2, the directions kept. Change k."
    with pytest.raises(InputError, match=exactly(message)):
        summary.sine_bound(k)


@pytest.mark.parametrize("rank", [1, 2, 4, 5, 6, 50])
def test_truncate_keeps_leading_directions_weight_mean_and_energy(rank: int) -> None:
    rows = rows_of(35, 40)
    summary = summed(rows, 5)
    cut = summary.truncate(rank)
    assert_summarises(cut, rows)
    kept = min(rank, 5)
    assert (cut.n, cut.energy, cut.rank) == (summary.n, summary.energy, rank)
    np.testing.assert_array_equal(cut.mean, summary.mean)
    np.testing.assert_array_equal(cut.s, summary.s[:kept])
    np.testing.assert_array_equal(cut.vt, summary.vt[:kept])
    gone = summary.s[kept] ** 2 if kept < 5 else 0.0
    np.testing.assert_allclose(cut.lost, summary.lost + gone, rtol=1e-12)


def test_truncate_never_loses_more_than_is_missed() -> None:
    summary = Summary(4.0, np.zeros(2), np.array([2.0, 1.0]), np.eye(2), 5.0, 0.0, 2)
    rounded = dataclasses.replace(summary, lost=1e-3)
    np.testing.assert_allclose(rounded.truncate(1).lost, 1.0, rtol=1e-12)


def test_truncate_makes_room_for_later_rows() -> None:
    rows = rows_of(36, 30)
    summary = summed(rows[:1], 1).truncate(6)
    assert_exact(summary.update(rows[1:]), rows)


@pytest.mark.parametrize("rank", [0, -3, 1.5, True, None])
def test_truncate_refuses_what_is_no_count(rank: Any) -> None:
    message = f"rank={rank!r} must be an integer of at least 1. Ask for one direction or more."
    with pytest.raises(InputError, match=exactly(message)):
        Summary.empty(3, 2).truncate(rank)


@pytest.mark.parametrize("as_type", [list, tuple, np.array])
def test_reorder_moves_the_features(as_type: Any) -> None:
    rows, columns = rows_of(37, 20), [3, 0, 5, 1, 2, 4]
    assert_exact(summed(rows, 6).reorder(as_type(columns)), rows[:, columns])


def test_reorder_and_back_changes_no_bit() -> None:
    summary, columns = summed(rows_of(38, 20), 3), np.array([3, 0, 5, 1, 2, 4])
    assert_same(summary.reorder(columns).reorder(np.argsort(columns)), summary)


@pytest.mark.parametrize(
    "columns",
    [[0, 1], [0, 1, 1], [0, 1, 3], [-1, 0, 1], [0, 1, 2, 3], [[0, 1, 2]], []],
    ids=repr,
)
def test_reorder_refuses_what_is_no_permutation(columns: Any) -> None:
    message = "columns must hold each number from 0 to 2 once. Pass a permutation."
    with pytest.raises(InputError, match=exactly(message)):
        Summary.empty(3, 2).reorder(columns)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["a", "b", "c"], "columns has dtype <U1 and must hold real numbers. Convert it first."),
        ([[0], [1, 2]], "columns has rows of different lengths and must be a table. "),
        ([10**400, 1, 2], "columns has dtype object and must hold real numbers. Convert it first."),
    ],
    ids=["text", "ragged", "huge"],
)
def test_reorder_refuses_what_is_no_list_of_numbers(columns: Any, message: str) -> None:
    with pytest.raises(InputError, match="^" + re.escape(message)):
        Summary.empty(3, 2).reorder(columns)


def test_more_features_than_any_memory_are_refused() -> None:
    message = "d has 1329 bits and must be at most 281474976710656. Pass the number of features."
    with pytest.raises(InputError, match=exactly(message)):
        Summary.empty(10**400, 2)


@pytest.mark.parametrize("centered", [True, False])
def test_a_weight_that_decays_to_nothing_leaves_an_empty_summary(centered: bool) -> None:
    summary = Summary.empty(4, 2, centered=centered).update(1e9 * rows_of(35, 20)[:, :4])
    gone = summary.merge(Summary.empty(4, 2, centered=centered), decay=1e-170)
    assert (gone.n, gone.energy, len(gone.s), gone.rank) == (0.0, 0.0, 0, 2)
    assert Summary.from_bytes(gone.to_bytes()).centered is centered


@pytest.mark.parametrize("columns", [[0.0, 1.0], [False, True]], ids=repr)
def test_reorder_refuses_numbers_that_are_not_whole(columns: Any) -> None:
    message = "columns must hold each number from 0 to 1 once. Pass a permutation."
    with pytest.raises(InputError, match=exactly(message)):
        Summary.empty(2, 2).reorder(columns)


@pytest.mark.parametrize("centered", [True, False])
def test_bytes_come_back_to_the_last_bit(centered: bool) -> None:
    for summary in (
        summed(rows_of(39, 40), 3, centered=centered),
        Summary.empty(6, 4, centered=centered),
        summed(rows_of(40, 40), 3, centered=centered).update(rows_of(41, 3), decay=0.3),
    ):
        again = Summary.from_bytes(summary.to_bytes())
        assert_same(again, summary)
        assert type(again.rank) is int
        assert type(again.centered) is bool
        assert again.to_bytes() == summary.to_bytes()


def test_a_summary_that_was_read_goes_on() -> None:
    summary, block = summed(rows_of(42, 40), 3), rows_of(43, 20)
    again = Summary.from_bytes(summary.to_bytes())
    assert_same(again.update(block), summary.update(block))
    assert_same(again.merge(summary), summary.merge(again))


def test_bytes_of_anything_else_are_refused() -> None:
    with pytest.raises(DataError, match="not written by eigenfed"):
        Summary.from_bytes(b"not a summary")
    with pytest.raises(DataError, match="truncated"):
        Summary.from_bytes(Summary.empty(3, 2).to_bytes()[:-1])
    missing: Any = None
    with pytest.raises(DataError, match=r"data has type NoneType\. Pass the output of to_bytes"):
        Summary.from_bytes(missing)


def test_summaries_are_merged_by_name_where_both_have_names() -> None:
    X = np.random.default_rng(0).standard_normal((30, 3))
    plain = Summary.empty(3, 3).update(X[:20])
    here = plain.with_names(["a", "b", "c"])
    there = Summary.empty(3, 3).update(X[20:, [2, 0, 1]]).with_names(["c", "a", "b"])
    both = here.merge(there)
    assert both.names == ("a", "b", "c")
    np.testing.assert_allclose(both.mean, X.mean(axis=0), rtol=1e-12)
    assert here.merge(plain).names is None
    assert plain.merge(here).names is None
    empty = Summary.empty(3, 2)
    assert empty.merge(here).names == here.merge(empty).names == here.names
    assert here.update(X[:1]).names == here.truncate(1).names == here.names
    faded = replace(here, n=1e-300).merge(empty, decay=1e-30)
    assert (faded.n, faded.names) == (0.0, here.names)
    with pytest.raises(InputError, match="A summary without 'b' cannot be merged into one with it"):
        here.merge(there.with_names(["c", "a", "z"]))
    with pytest.raises(InputError, match="without 'a', 'b', 'c' and 2 more features cannot"):
        Summary.empty(5, 1).with_names("abcde").merge(Summary.empty(5, 1).with_names("fghij"))
    for names in (["a", "b"], ["a", "b", "a"]):
        with pytest.raises(InputError, match="names must hold 3 different names"):
            plain.with_names(names)
