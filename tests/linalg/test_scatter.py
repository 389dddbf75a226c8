"""The whole scatter, against the covariance of all rows at once."""

import re

import numpy as np
import pytest

from eigenfed.arrays import Array
from eigenfed.errors import InputError
from eigenfed.linalg.scatter import Scatter
from eigenfed.linalg.summary import Summary
from oracles import pooled

TOO_LARGE = re.escape(
    "The block holds numbers too large to square in float64. Rescale it to below 1e150."
)


def rows_of(seed: int, b: int, d: int = 5) -> Array:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((b, d)) @ rng.standard_normal((d, d)) + 3 * rng.standard_normal(d)


def folded(rows: Array, weights: Array | None = None, *, centered: bool = True) -> Scatter:
    return Scatter.empty(rows.shape[1], centered=centered).fold(rows, weights, 1.0)


def assert_scatter_of(
    scatter: Scatter, rows: Array, weights: Array | None = None, *, centered: bool = True
) -> None:
    truth = pooled(rows, weights, centered=centered)
    expected = (truth.vt.T * truth.s**2) @ truth.vt
    np.testing.assert_allclose(scatter.n, truth.n, rtol=1e-13)
    np.testing.assert_allclose(scatter.mean, truth.mean, rtol=0, atol=1e-12)
    np.testing.assert_allclose(scatter.matrix, expected, rtol=0, atol=1e-12 * truth.energy)
    assert (scatter.missed, scatter.lost) == (0.0, 0.0)
    assert scatter.centered == centered


def test_empty_is_the_scatter_of_no_rows() -> None:
    empty = Scatter.empty(3, centered=False)
    assert empty.n == 0.0
    np.testing.assert_array_equal(empty.mean, np.zeros(3))
    np.testing.assert_array_equal(empty.matrix, np.zeros((3, 3)))
    assert not empty.centered
    assert Scatter.empty(3).centered


@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize("cuts", [[], [1], [10, 11, 30], [0, 40]])
def test_any_partition_gives_the_scatter_of_all_rows(cuts: list[int], centered: bool) -> None:
    rows = rows_of(0, 40)
    scatter = Scatter.empty(5, centered=centered)
    for part in np.split(rows, cuts):
        scatter = scatter.fold(part, None, 1.0)
    assert_scatter_of(scatter, rows, centered=centered)


@pytest.mark.parametrize("centered", [True, False])
def test_weights_count_as_so_many_rows(centered: bool) -> None:
    rows, weights = rows_of(1, 12), np.arange(12.0)
    scatter = folded(rows[:5], weights[:5], centered=centered)
    assert_scatter_of(scatter.fold(rows[5:], weights[5:], 1.0), rows, weights, centered=centered)
    repeated = np.repeat(rows, np.arange(12), axis=0)
    assert_scatter_of(folded(rows, weights, centered=centered), repeated, centered=centered)


def test_decay_shrinks_the_weights_of_earlier_rows_by_its_square() -> None:
    first, second = rows_of(2, 9), rows_of(3, 7)
    weights = np.concatenate([np.full(9, 0.25), np.ones(7)])
    scatter = folded(first).fold(second, None, 0.5)
    assert_scatter_of(scatter, np.vstack([first, second]), weights)
    assert_scatter_of(folded(first).merge(folded(second), 0.5), np.vstack([first, second]), weights)


@pytest.mark.parametrize("weights", [None, np.zeros(3)])
def test_rows_without_weight_only_let_the_others_fade(weights: Array | None) -> None:
    rows = rows_of(4, 9)
    nothing = np.zeros((0, 5)) if weights is None else rows_of(5, 3)
    before = folded(rows)
    assert before.fold(nothing, weights, 1.0) is before
    assert_scatter_of(before.fold(nothing, weights, 0.5), rows, np.full(9, 0.25))


def test_decay_also_shrinks_what_is_missed_and_lost() -> None:
    before = Scatter(4.0, np.ones(2), np.eye(2), missed=3.0, lost=2.0)
    after = before.fold(np.zeros((0, 2)), None, 0.5)
    assert (after.n, after.missed, after.lost) == (1.0, 0.75, 0.5)
    np.testing.assert_array_equal(after.matrix, np.eye(2) / 4)
    np.testing.assert_array_equal(after.mean, np.ones(2))


def test_merging_is_the_scatter_of_both_sets_of_rows() -> None:
    first, second = rows_of(6, 9), rows_of(7, 30)
    merged = folded(first).merge(folded(second))
    assert_scatter_of(merged, np.vstack([first, second]))


def test_merging_adds_what_is_missed_and_lost() -> None:
    here = Scatter(1.0, np.zeros(2), np.eye(2), missed=3.0, lost=2.0)
    there = Scatter(1.0, np.zeros(2), np.eye(2), missed=0.5, lost=0.25)
    merged = here.merge(there, 0.5)
    assert (merged.missed, merged.lost) == (1.25, 0.75)


def test_merging_with_nothing_changes_nothing() -> None:
    rows, empty = rows_of(8, 6), Scatter.empty(5)
    assert_scatter_of(folded(rows).merge(empty), rows)
    assert_scatter_of(empty.merge(folded(rows)), rows)
    assert empty.merge(Scatter.empty(5)) is empty
    assert empty.merge(Scatter.empty(5), 0.5) is empty


def test_arguments_stay_as_they_were() -> None:
    here, there = folded(rows_of(9, 6)), folded(rows_of(10, 6))
    kept, other_kept = here.matrix.copy(), there.matrix.copy()
    here.merge(there, 0.5)
    here.fold(rows_of(11, 3), None, 0.5)
    np.testing.assert_array_equal(here.matrix, kept)
    np.testing.assert_array_equal(there.matrix, other_kept)


def test_a_mean_that_is_large_beside_the_spread_costs_no_digits() -> None:
    steps = rows_of(12, 60)
    scatter = Scatter.empty(5)
    for part in np.split(steps + 1e8, 6):
        scatter = scatter.fold(part, None, 1.0)
    expected = (steps - steps.mean(axis=0)).T @ (steps - steps.mean(axis=0))
    np.testing.assert_allclose(scatter.matrix, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize("rank", [1, 3, 5, 9])
def test_summary_holds_the_leading_directions_and_all_energy(rank: int, centered: bool) -> None:
    rows = rows_of(13, 40)
    truth = pooled(rows, centered=centered)
    summary = folded(rows, centered=centered).summary(rank)
    kept = min(rank, 5)
    assert (summary.n, summary.rank, summary.centered) == (40.0, rank, centered)
    np.testing.assert_allclose(summary.mean, truth.mean, rtol=0, atol=1e-12)
    np.testing.assert_allclose(summary.s, truth.s[:kept], rtol=1e-10)
    np.testing.assert_allclose(np.abs(np.sum(summary.vt * truth.vt[:kept], axis=1)), 1.0)
    np.testing.assert_allclose(summary.vt @ summary.vt.T, np.eye(kept), rtol=0, atol=1e-13)
    np.testing.assert_allclose(summary.energy, truth.energy, rtol=1e-13)
    following = truth.s[kept] ** 2 if kept < 5 else 0.0
    np.testing.assert_allclose(summary.lost, following, rtol=1e-9, atol=1e-12)


def test_summary_of_few_rows_has_only_their_directions() -> None:
    rows = rows_of(14, 3)
    summary = folded(rows).summary(5)
    truth = pooled(rows)
    np.testing.assert_allclose(summary.s, truth.s[:2], rtol=1e-10)
    assert summary.lost < 1e-12 * truth.energy


@pytest.mark.parametrize("rows", [np.zeros((0, 3)), np.ones((4, 3))], ids=["none", "constant"])
def test_summary_of_rows_without_spread_has_no_direction(rows: Array) -> None:
    summary = folded(rows).summary(2)
    assert summary.s.shape == (0,)
    assert summary.vt.shape == (0, 3)
    assert (summary.n, summary.energy, summary.lost) == (float(len(rows)), 0.0, 0.0)


def test_a_summary_comes_back_through_its_scatter() -> None:
    summary = Summary.empty(5, 3).update(rows_of(15, 40))
    again = Scatter.from_summary(summary).summary(3)
    assert again.n == summary.n
    np.testing.assert_array_equal(again.mean, summary.mean)
    np.testing.assert_allclose(again.s, summary.s, rtol=1e-12)
    np.testing.assert_allclose(np.abs(np.sum(again.vt * summary.vt, axis=1)), 1.0)
    np.testing.assert_allclose(again.energy, summary.energy, rtol=1e-13)
    np.testing.assert_allclose(again.lost, summary.lost, rtol=1e-12)
    assert Scatter.from_summary(Summary.empty(5, 3, centered=False)).centered is False


def test_what_a_truncated_summary_misses_stays_on_record() -> None:
    first, second = rows_of(16, 40), rows_of(17, 40)
    coarse = Summary.empty(5, 2).update(first)
    assert coarse.lost > 0
    summary = Scatter.from_summary(coarse).merge(folded(second)).summary(4)
    truth = pooled(np.vstack([first, second]))
    np.testing.assert_allclose(summary.energy, truth.energy, rtol=1e-12)
    assert np.all(summary.s**2 <= truth.s[:4] ** 2 * (1 + 1e-12))
    assert np.all(summary.s**2 + summary.lost >= truth.s[:4] ** 2)
    assert summary.lost <= summary.missed


def test_lost_never_exceeds_the_energy_that_is_missed() -> None:
    summary = Scatter(4.0, np.zeros(2), np.diag([2.0, 1.0]), missed=0.5, lost=0.4).summary(1)
    np.testing.assert_allclose([summary.energy, summary.lost], [3.5, 1.4], rtol=1e-14)
    bounded = Scatter(4.0, np.zeros(2), np.diag([2.0, 1.0]), missed=0.1, lost=0.4).summary(1)
    np.testing.assert_allclose([bounded.energy, bounded.lost], [3.1, 1.1], rtol=1e-14)


def test_reordering_moves_mean_and_matrix_together() -> None:
    rows, columns = rows_of(18, 10), np.array([2, 0, 4, 1, 3])
    assert_scatter_of(folded(rows).reorder(columns), rows[:, columns])


@pytest.mark.parametrize("size", [1e160, 1e300])
def test_numbers_too_large_to_square_are_refused(size: float) -> None:
    rows = size * np.array([[1.0, 0.0], [-1.0, 0.5]])
    with pytest.raises(InputError, match=TOO_LARGE):
        folded(rows)


def test_a_shift_too_large_to_square_is_refused() -> None:
    here, there = (Scatter(2.0, np.full(2, x), np.zeros((2, 2))) for x in (1e200, -1e200))
    with pytest.raises(InputError, match=TOO_LARGE):
        here.merge(there)


def test_a_large_first_mean_is_no_shift() -> None:
    np.testing.assert_array_equal(folded(np.full((2, 2), 1e200)).mean, np.full(2, 1e200))


def test_repr_shows_no_value_of_the_data() -> None:
    assert "987654" not in repr(folded(np.full((2, 5), 987654.321)))


def test_scatters_of_other_features_are_refused() -> None:
    with pytest.raises(InputError, match="other has 1 features and must have 3"):
        Scatter.empty(3).merge(Scatter.empty(1))


@pytest.mark.parametrize("centered", [True, False])
def test_a_weight_that_decays_to_nothing_leaves_no_scatter(centered: bool) -> None:
    empty = Scatter.empty(3, centered=centered)
    full = empty.fold(1e9 * np.arange(12.0).reshape(4, 3), None, 1.0)
    gone = full.merge(empty, decay=1e-170)
    assert (gone.n, bool(gone.matrix.any()), gone.centered) == (0.0, False, centered)


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6])
@pytest.mark.parametrize("seed", range(4))
def test_the_bound_on_the_angle_is_rounding_and_holds(offset: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((3000, 30)) * 0.8 ** np.arange(30) + offset * rng.standard_normal(30)
    scatter = Scatter.empty(30)
    for block in np.array_split(rows, 40):
        scatter = scatter.fold(block, None, 1.0)
    exact = rows.astype(np.longdouble)
    exact = (exact - exact.mean(axis=0)).astype(np.float64)
    truth = np.linalg.svd(exact, full_matrices=False)[2][:5]
    found = scatter.summary(5).vt
    sine = np.linalg.norm(found - found @ truth.T @ truth, 2)
    assert sine <= scatter.sine_bound(5) < 1e-11 + 1e-12 * offset


def test_what_was_let_go_before_stays_in_the_bound() -> None:
    rows = rows_of(0, 400, d=8) * 0.3 ** np.arange(8)
    summary = Summary.empty(8, 5).update(rows)
    both = Scatter.from_summary(summary).merge(Scatter.empty(8).fold(rows, None, 1.0))
    assert summary.lost < both.sine_bound(2) * both.summary(3).s[1] ** 2


def test_a_spectrum_that_is_flat_has_no_bound() -> None:
    assert Scatter(9.0, np.zeros(3), np.eye(3)).sine_bound(1) == np.inf
    assert Scatter.empty(3).sine_bound(1) == np.inf
