"""A summary is the pooled decomposition within its own bounds, however the rows came."""

import math
from functools import reduce

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eigenfed import Summary
from eigenfed.arrays import Array
from eigenfed.linalg.orthonormal import sines
from oracles import pooled
from strategies import Case, cases

ranks = st.integers(1, 14)


def streamed(case: Case, rank: int, *, centered: bool = True) -> Summary:
    """Fold the pieces in one after the other."""
    summary = Summary.empty(case.X.shape[1], rank, centered=centered)
    for rows, weights in case.pieces:
        summary = summary.update(rows, weights)
    return summary


def merged(case: Case, rank: int) -> Summary:
    """Summarise each piece on its own, then merge."""
    empty = Summary.empty(case.X.shape[1], rank)
    return reduce(Summary.merge, [empty.update(rows, w) for rows, w in case.pieces], empty)


def scatter(summary: Summary) -> Array:
    return (summary.vt.T * summary.s**2) @ summary.vt


def padded(s: Array, length: int) -> Array:
    return np.concatenate([s, np.zeros(max(0, length - len(s)))])[:length]


def check_against_pooled(summary: Summary, case: Case, *, centered: bool = True) -> None:
    exact = pooled(case.X, case.weights, centered=centered)
    spread = max(exact.energy, np.finfo(float).tiny)
    rounding = 1e-9 * spread + 1e-13 * float(np.sum(exact.mean**2)) * exact.n
    assert summary.n == pytest.approx(exact.n)
    np.testing.assert_allclose(
        summary.mean, exact.mean, rtol=1e-9, atol=1e-9 * float(np.abs(case.X).max())
    )
    assert summary.energy == pytest.approx(exact.energy, rel=1e-9, abs=rounding)
    kept, whole = padded(summary.s, len(exact.s)) ** 2, exact.s**2
    assert np.all(kept <= whole + rounding)
    assert np.all(whole <= kept + summary.lost + rounding)
    assert summary.lost <= summary.energy - np.sum(summary.s**2) + rounding
    assert np.abs(summary.vt @ summary.vt.T - np.eye(len(summary.s))).max(initial=0) < 1e-10


@given(case=cases(), rank=ranks, centered=st.booleans())
@settings(max_examples=400)
def test_streaming_stays_within_the_bounds(case: Case, rank: int, centered: bool) -> None:
    check_against_pooled(streamed(case, rank, centered=centered), case, centered=centered)


@given(case=cases(), rank=ranks)
@settings(max_examples=400)
def test_merging_stays_within_the_bounds(case: Case, rank: int) -> None:
    check_against_pooled(merged(case, rank), case)


@given(case=cases(scales=(1.0,)), rank=ranks, k=st.integers(1, 12))
@settings(max_examples=400)
def test_the_sine_bound_holds(case: Case, rank: int, k: int) -> None:
    summary = streamed(case, rank)
    if k > len(summary.s):
        return
    bound = summary.sine_bound(k)
    exact = pooled(case.X, case.weights)
    noise = 1e-6 * summary.s[0] + 1e-9 * np.abs(case.X).max()
    if math.isfinite(bound) and summary.s[k - 1] > noise:
        assert sines(summary.vt[:k], exact.vt[:k])[0] <= bound + 1e-7


@given(case=cases(scales=(1.0, 1e-120, 1e120)))
@settings(max_examples=400)
def test_a_rank_that_covers_the_data_loses_nothing(case: Case) -> None:
    exact = pooled(case.X, case.weights)
    rounding = 1e-13 * float(np.abs(case.X).max())
    for summary in (streamed(case, rank=12), merged(case, rank=12)):
        kept = padded(summary.s, len(exact.s))
        np.testing.assert_allclose(kept, exact.s, rtol=0, atol=1e-9 * exact.s[0] + rounding)


@given(case=cases(scales=(1.0,)), seed=st.integers(0, 1000))
def test_order_of_rows_and_merges_does_not_matter(case: Case, seed: int) -> None:
    """[Grammenos2020] Lemma 10, exact when the rank kept covers the rank of the data."""
    order = np.random.default_rng(seed).permutation(len(case.X))
    shuffled = Case(case.X[order], case.weights[order], case.cuts)
    left, right = merged(case, 12), merged(shuffled, 12)
    size = max(left.energy, 1e-8 * float(np.abs(case.X).max()) ** 2, 1e-300)
    np.testing.assert_allclose(scatter(left), scatter(right), rtol=0, atol=1e-9 * size)


@given(case=cases(scales=(1.0,)), rank=ranks)
def test_merge_commutes_and_associates_within_what_was_lost(case: Case, rank: int) -> None:
    empty = Summary.empty(case.X.shape[1], rank)
    third = max(1, len(case.X) // 3)
    a, b, c = (
        empty.update(case.X[span], case.weights[span])
        for span in (slice(third), slice(third, 2 * third), slice(2 * third, None))
    )
    first = a.merge(b).merge(c)
    for other in (a.merge(b.merge(c)), c.merge(b).merge(a), b.merge(a).merge(c)):
        rounding = 1e-9 * max(first.energy, 1e-8 * float(np.abs(case.X).max()) ** 2, 1e-300)
        apart = np.linalg.norm(scatter(first) - scatter(other), 2)
        assert apart <= max(first.lost, other.lost) + rounding
        assert first.n == pytest.approx(other.n)
        assert first.energy == pytest.approx(other.energy, abs=rounding)
        np.testing.assert_allclose(first.mean, other.mean, rtol=1e-9, atol=1e-9)


@given(case=cases(scales=(1.0,)), decays=st.lists(st.floats(0.05, 1.0), min_size=7, max_size=7))
@example(Case(np.eye(3), np.ones(3), [1, 2]), [0.5] * 7)
def test_decay_is_a_weight_on_what_came_before(case: Case, decays: list[float]) -> None:
    summary = Summary.empty(case.X.shape[1], 12)
    weights = np.zeros(0)
    for (rows, w), decay in zip(case.pieces, decays, strict=False):
        summary = summary.merge(Summary.empty(summary.d, 12).update(rows, w), decay)
        weights = np.concatenate([decay**2 * weights, w])
    if weights.sum() > 0:
        check_against_pooled(summary, Case(case.X, weights, []))


@given(case=cases(scales=(1.0,)), rank=ranks, cut=ranks)
def test_truncation_keeps_weight_mean_and_energy(case: Case, rank: int, cut: int) -> None:
    whole = streamed(case, rank)
    part = whole.truncate(cut)
    assert (part.n, part.energy) == (whole.n, whole.energy)
    np.testing.assert_array_equal(part.mean, whole.mean)
    check_against_pooled(part, case)


@given(case=cases(), rank=ranks)
def test_bytes_round_trip_exactly(case: Case, rank: int) -> None:
    summary = streamed(case, rank)
    again = Summary.from_bytes(summary.to_bytes())
    for name in ("n", "energy", "lost", "rank", "centered"):
        assert getattr(again, name) == getattr(summary, name)
    for name in ("mean", "s", "vt"):
        np.testing.assert_array_equal(getattr(again, name), getattr(summary, name))


@given(case=cases(scales=(1.0,)))
def test_integers_and_single_precision_are_taken_as_they_are(case: Case) -> None:
    whole = np.rint(9 * case.X / max(1e-300, float(np.abs(case.X).max()))).astype(np.int16)
    empty = Summary.empty(whole.shape[1], 12)
    for dtype in (np.int16, np.float32, np.float64):
        np.testing.assert_array_equal(
            empty.update(whole.astype(dtype)).s, empty.update(whole.astype(np.float64)).s
        )
