"""Streams in any batches, against all rows at once."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from threadpoolctl import threadpool_limits

from eigenfed.arrays import Array
from eigenfed.errors import InputError
from eigenfed.linalg.orthonormal import sines
from eigenfed.linalg.stream import _EXACT_CHUNK_ROWS, Stream, StreamSettings
from eigenfed.linalg.summary import Summary, chunk_rows
from oracles import pooled

D = 12
PLAIN = StreamSettings(k=3)
EXACT = StreamSettings(k=3, exact=True)
# As many directions as features: nothing is truncated, so the pooled answer is the right one.
WHOLE = StreamSettings(k=3, oversample=D - 3)


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    # Several BLAS threads on a busy machine make the small decompositions here take seconds.
    with threadpool_limits(limits=1, user_api="blas"):
        yield


def rows_of(seed: int, b: int, d: int = D) -> Array:
    rng = np.random.default_rng(seed)
    mixed = (rng.standard_normal((b, d)) / np.arange(1, d + 1)) @ rng.standard_normal((d, d))
    rows: Array = mixed + rng.standard_normal(d)
    return rows


def gappy(seed: int, b: int, share: float = 0.2) -> Array:
    rows = rows_of(seed, b)
    rows[np.random.default_rng(seed + 1000).random(rows.shape) < share] = np.nan
    return rows


def streamed(
    settings: StreamSettings,
    *batches: Any,
    weights: Array | None = None,
    missing: bool = False,
) -> Stream:
    stream, start = Stream(batches[0].shape[1], settings), 0
    for batch in batches:
        stop = start + batch.shape[0]
        stream.push(batch, None if weights is None else weights[start:stop], missing=missing)
        start = stop
    return stream


def chunk_of(settings: StreamSettings) -> int:
    """Rows that are folded in at once, which is where running means are taken."""
    return _EXACT_CHUNK_ROWS if settings.exact else chunk_rows(settings.tracked(settings.k))


def in_batches(rows: Array, sizes: list[int]) -> list[Array]:
    """Cut rows into batches whose sizes repeat."""
    cuts, place = [], 0
    while place < len(rows):
        cuts.append(place)
        place += sizes[len(cuts) % len(sizes)]
    return np.split(rows, cuts[1:])


def assert_same(found: Stream, expected: Stream) -> None:
    """Compare two streams to the last bit."""
    assert (found.n_seen, found.k) == (expected.n_seen, expected.k)
    np.testing.assert_array_equal(found.n_missing, expected.n_missing)
    for field in dataclasses.fields(Summary):
        np.testing.assert_array_equal(
            getattr(found.summary(), field.name), getattr(expected.summary(), field.name)
        )


def assert_summarises(
    summary: Summary, rows: Array, weights: Array | None = None, *, centered: bool = True
) -> None:
    """Check that the summary is that of all rows, up to rounding and the directions kept."""
    truth = pooled(rows, weights, centered=centered)
    kept = len(summary.s)
    assert np.all(truth.s[kept : summary.rank] <= 1e-9 * truth.s[0])
    assert summary.centered == centered
    np.testing.assert_allclose(summary.n, truth.n, rtol=1e-12)
    np.testing.assert_allclose(summary.mean, truth.mean, rtol=1e-13, atol=1e-11)
    np.testing.assert_allclose(summary.energy, truth.energy, rtol=1e-10)
    np.testing.assert_allclose(summary.s, truth.s[:kept], rtol=1e-7, atol=1e-9 * truth.s[0])
    scatter = (truth.vt[:kept].T * truth.s[:kept] ** 2) @ truth.vt[:kept]
    found = (summary.vt.T * summary.s**2) @ summary.vt
    np.testing.assert_allclose(found, scatter, rtol=0, atol=1e-9 * truth.energy)


def imputed(rows: Array, chunk: int, weights: Array | None = None) -> Array:
    """Fill gaps with the mean over what was observed up to the end of the gap's chunk.

    Where there was nothing yet, the first chunk that has something says what the mean is.
    """
    filled = rows.copy()
    w = np.ones(len(rows)) if weights is None else weights
    for j in range(rows.shape[1]):
        there = ~np.isnan(rows[:, j])
        ends = [min(start + chunk, len(rows)) for start in range(0, len(rows), chunk)]
        ends_seen = [end for end in ends if w[:end][there[:end]].sum() > 0]
        for end in reversed(ends):
            until = max(end, ends_seen[0]) if ends_seen else end
            seen = there & (np.arange(len(rows)) < until)
            mean = np.average(rows[seen, j], weights=w[seen]) if ends_seen else 0.0
            block = slice(max(0, end - chunk) if end % chunk == 0 else end - end % chunk, end)
            filled[block, j] = np.where(there[block], rows[block, j], mean)
    return filled


@pytest.mark.parametrize(
    ("oversample", "k", "tracked"),
    [(None, 1, 9), (None, 8, 16), (None, 20, 40), (0, 5, 5), (3, 5, 8)],
)
def test_as_many_directions_again_are_tracked_and_at_least_eight(
    oversample: int | None, k: int, tracked: int
) -> None:
    assert StreamSettings(k=1, oversample=oversample).tracked(k) == tracked


SETTINGS = {
    "low rank": PLAIN,
    "exact": EXACT,
    "uncentred": StreamSettings(k=3, centered=False),
    "forgetting": StreamSettings(k=3, forgetting=0.97),
    "exact and forgetting": StreamSettings(k=3, forgetting=0.97, exact=True),
    "adaptive": StreamSettings(k=2, energy=(0.01, 0.1)),
    "exact and adaptive": StreamSettings(k=2, energy=(0.01, 0.1), exact=True),
}


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("sizes", [[1], [3, 1, 50], [31, 1, 33], [256], [300, 7], [64, 0, 32]])
@pytest.mark.parametrize("name", SETTINGS)
def test_batches_change_nothing_to_the_last_bit(
    name: str, sizes: list[int], weighted: bool
) -> None:
    rows = rows_of(0, 600, 40)
    weights = np.random.default_rng(0).random(600) if weighted else None
    at_once = streamed(SETTINGS[name], rows, weights=weights)
    piecewise = streamed(SETTINGS[name], *in_batches(rows, sizes), weights=weights)
    assert_same(piecewise, at_once)
    more = rows_of(1, 100, 40)
    at_once.push(more)
    for row in more:
        piecewise.push(row[None])
    assert_same(piecewise, at_once)


@pytest.mark.parametrize("name", SETTINGS)
def test_reading_does_not_disturb(name: str) -> None:
    rows = rows_of(2, 600, 40)
    unread = streamed(SETTINGS[name], *in_batches(rows, [7]))
    stream = Stream(40, SETTINGS[name])
    for batch in in_batches(rows, [7]):
        stream.push(batch)
        assert stream.summary().n > 0
    assert_same(stream, unread)


@pytest.mark.parametrize("settings", [WHOLE, EXACT], ids=["low rank", "exact"])
def test_reading_at_any_time_summarises_all_rows_so_far(settings: StreamSettings) -> None:
    rows, stream = rows_of(3, 300), Stream(D, settings)
    for start in range(0, 300, 23):
        stream.push(rows[start : start + 23])
        seen = rows[: start + 23]
        assert stream.n_seen == len(seen)
        assert_summarises(stream.summary(), seen)


def test_reading_twice_works_once_and_rows_make_it_stale() -> None:
    stream = streamed(PLAIN, rows_of(4, 10))
    assert stream.summary() is stream.summary()
    before = stream.summary()
    stream.push(rows_of(5, 1))
    assert stream.summary().n == before.n + 1


@pytest.mark.parametrize("settings", [PLAIN, EXACT], ids=["low rank", "exact"])
def test_no_rows_make_the_empty_summary(settings: StreamSettings) -> None:
    stream = Stream(D, settings)
    stream.push(np.zeros((0, D)))
    summary = stream.summary()
    assert (stream.n_seen, summary.n, summary.energy, len(summary.s)) == (0, 0.0, 0.0, 0)
    assert summary.rank == PLAIN.tracked(3)
    np.testing.assert_array_equal(stream.n_missing, np.zeros(D))


def test_a_batch_without_rows_changes_nothing() -> None:
    rows = rows_of(6, 40)
    stream = streamed(PLAIN, rows[:10], rows[:0], rows[10:], rows[:0])
    assert_same(stream, streamed(PLAIN, rows))


def test_rows_may_be_overwritten_after_they_were_pushed() -> None:
    rows, weights = rows_of(7, 70), np.random.default_rng(7).random(70)
    expected = streamed(PLAIN, rows, weights=weights)
    stream = Stream(D, PLAIN)
    for start, stop in [(0, 5), (5, 70)]:
        batch, part = rows[start:stop].copy(), weights[start:stop].copy()
        stream.push(batch, part)
        batch[:], part[:] = np.nan, np.nan
    assert_same(stream, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
@pytest.mark.parametrize("size", [1, 32, 200])
def test_other_dtypes_are_kept_in_double(dtype: Any, size: int) -> None:
    rows = (100 * rows_of(8, 200)).astype(dtype)
    stream = streamed(PLAIN, *in_batches(rows, [size]))
    assert_same(stream, streamed(PLAIN, rows.astype(float)))
    assert stream.summary().mean.dtype == np.float64


@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize("exact", [True, False])
def test_the_summary_is_that_of_all_rows(exact: bool, centered: bool) -> None:
    rows, settings = rows_of(9, 700), StreamSettings(3, D - 3, centered=centered, exact=exact)
    assert_summarises(streamed(settings, rows).summary(), rows, centered=centered)


def test_a_truncated_stream_shows_its_tracked_directions_within_bounds() -> None:
    rows = rows_of(10, 700, 60)
    summary = streamed(PLAIN, rows).summary()
    truth = pooled(rows)
    assert (len(summary.s), summary.rank) == (11, 11)
    assert np.all(summary.s**2 <= truth.s[:11] ** 2 * (1 + 1e-10))
    assert np.all(truth.s[:11] ** 2 <= summary.s**2 + summary.lost)
    assert sines(summary.vt[:3], truth.vt[:3]).max() <= summary.sine_bound(3)
    np.testing.assert_allclose(summary.energy, truth.energy, rtol=1e-10)


@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize("exact", [True, False])
def test_weights_are_those_of_all_rows(exact: bool, centered: bool) -> None:
    rows, weights = rows_of(11, 600), 2 * np.random.default_rng(11).random(600)
    weights[::5] = 0.0
    settings = StreamSettings(3, D - 3, centered=centered, exact=exact)
    stream = streamed(settings, *in_batches(rows, [50, 9]), weights=weights)
    assert_summarises(stream.summary(), rows, weights, centered=centered)
    assert stream.n_seen == 600


@pytest.mark.parametrize("settings", [PLAIN, EXACT], ids=["low rank", "exact"])
def test_rows_without_weights_have_the_weight_one_among_others(settings: StreamSettings) -> None:
    rows, weights = rows_of(12, 100), np.random.default_rng(12).random(100)
    mixed, full = Stream(D, settings), Stream(D, settings)
    for i, batch in enumerate(np.split(np.arange(100), [7, 9, 54, 60])):
        weighted = i % 2 == 1
        mixed.push(rows[batch], weights[batch] if weighted else None)
        full.push(rows[batch], weights[batch] if weighted else np.ones(len(batch)))
    assert_same(mixed, full)


def test_weights_of_one_are_no_weights_to_the_last_bit() -> None:
    rows = rows_of(13, 100)
    assert_same(streamed(PLAIN, rows, weights=np.ones(100)), streamed(PLAIN, rows))


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("sizes", [[1], [600], [40, 3]])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_forgetting_is_a_weight_by_age(exact: bool, sizes: list[int], weighted: bool) -> None:
    rows = rows_of(14, 600)
    weights = np.random.default_rng(14).random(600) if weighted else None
    settings = StreamSettings(3, D - 3, forgetting=0.99, exact=exact)
    stream = streamed(settings, *in_batches(rows, sizes), weights=weights)
    fading = 0.99 ** np.arange(599.0, -1.0, -1.0)
    assert_summarises(stream.summary(), rows, fading * (1.0 if weights is None else weights))
    assert stream.n_seen == 600


@pytest.mark.parametrize("exact", [True, False])
def test_rows_of_weight_zero_still_age_the_others(exact: bool) -> None:
    rows, weights = rows_of(15, 90), np.repeat([1.0, 0.0], 45)
    settings = StreamSettings(3, D - 3, forgetting=0.95, exact=exact)
    stream = streamed(settings, rows, weights=weights)
    fading = 0.95 ** np.arange(89.0, -1.0, -1.0)
    assert_summarises(stream.summary(), rows[:45], fading[:45])


@pytest.mark.parametrize("sizes", [[1], [300], [37, 4]])
@pytest.mark.parametrize("settings", [WHOLE, EXACT], ids=["low rank", "exact"])
def test_gaps_are_filled_with_the_running_mean(settings: StreamSettings, sizes: list[int]) -> None:
    rows = gappy(16, 300)
    stream = streamed(settings, *in_batches(rows, sizes), missing=True)
    assert_summarises(stream.summary(), imputed(rows, chunk_of(settings)))
    np.testing.assert_array_equal(stream.n_missing, np.isnan(rows).sum(axis=0))
    assert stream.n_missing.dtype == np.int64
    assert_same(stream, streamed(settings, rows, missing=True))


@pytest.mark.parametrize("settings", [WHOLE, EXACT], ids=["low rank", "exact"])
def test_gaps_are_filled_with_the_weighted_mean(settings: StreamSettings) -> None:
    rows, weights = gappy(17, 300), np.random.default_rng(17).random(300)
    weights[:40] = 0.0
    stream = streamed(settings, *in_batches(rows, [45]), weights=weights, missing=True)
    filled = imputed(rows, chunk_of(settings), weights)
    assert_summarises(stream.summary(), filled, weights)


def test_gaps_are_filled_with_the_fading_mean() -> None:
    rows, fading = gappy(18, 300), 0.97 ** np.arange(299.0, -1.0, -1.0)
    settings = StreamSettings(3, D - 3, forgetting=0.97)
    summary = streamed(settings, *in_batches(rows, [45]), missing=True).summary()
    assert_summarises(summary, imputed(rows, chunk_of(settings), fading), fading)


@pytest.mark.parametrize("settings", [WHOLE, EXACT], ids=["low rank", "exact"])
def test_gaps_may_begin_after_complete_rows(settings: StreamSettings) -> None:
    complete, later = rows_of(20, 70), gappy(21, 300)
    stream = streamed(settings, *in_batches(complete, [9]))
    for batch in in_batches(later, [20]):
        stream.push(batch, missing=bool(np.isnan(batch).any()))
    filled = imputed(np.vstack([complete, later]), chunk_of(settings))
    assert_summarises(stream.summary(), filled)
    np.testing.assert_array_equal(stream.n_missing, np.isnan(later).sum(axis=0))


@pytest.mark.parametrize("settings", [WHOLE, EXACT], ids=["low rank", "exact"])
def test_complete_rows_may_follow_gaps(settings: StreamSettings) -> None:
    early, later = gappy(22, 50), rows_of(23, 400)
    stream = streamed(settings, early, missing=True)
    for batch in in_batches(later, [3, 300]):
        stream.push(batch)
    filled = imputed(np.vstack([early, later]), chunk_of(settings))
    assert_summarises(stream.summary(), filled)


@pytest.mark.parametrize("settings", [WHOLE, EXACT], ids=["low rank", "exact"])
def test_a_feature_that_was_never_observed_has_no_variance(settings: StreamSettings) -> None:
    rows = rows_of(24, 400)
    rows[:, 5] = np.nan
    summary = streamed(settings, rows, missing=True).summary()
    assert summary.mean[5] == 0.0
    assert np.abs(summary.vt[:, 5]).max() < 1e-12
    assert_summarises(summary, np.nan_to_num(rows, nan=0.0))


@pytest.mark.parametrize("late", [10, 100, 300, 599])
@pytest.mark.parametrize("settings", [WHOLE, EXACT], ids=["low rank", "exact"])
def test_a_feature_observed_late_brings_no_variance_from_before(
    settings: StreamSettings, late: int
) -> None:
    rows = rows_of(25, 600)
    rows[:, 5] = 1e4
    rows[:late, 5] = np.nan
    summary = streamed(settings, *in_batches(rows, [60]), missing=True).summary()
    expected = rows.copy()
    expected[:, 5] = 1e4
    assert summary.mean[5] == pytest.approx(1e4, rel=1e-12)
    assert_summarises(summary, expected)


PAIRS = {
    "low rank into low rank": (WHOLE, WHOLE),
    "exact into exact": (EXACT, EXACT),
    "low rank into exact": (EXACT, WHOLE),
    "exact into low rank": (WHOLE, EXACT),
}


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize(("n_here", "n_there"), [(300, 300), (5, 300), (300, 5), (64, 32)])
def test_a_merge_is_the_summary_of_both(pair: str, n_here: int, n_there: int) -> None:
    first, second = rows_of(26, n_here), rows_of(27, n_there) + 3.0
    here, there = (
        streamed(settings, rows)
        for settings, rows in zip(PAIRS[pair], (first, second), strict=True)
    )
    untouched = streamed(PAIRS[pair][1], second)
    here.merge(there)
    assert_summarises(here.summary(), np.vstack([first, second]))
    assert here.n_seen == n_here + n_there
    assert_same(there, untouched)
    more = rows_of(28, 100)
    here.push(more)
    there.push(more)
    untouched.push(more)
    assert_summarises(here.summary(), np.vstack([first, second, more]))
    assert_same(there, untouched)


@pytest.mark.parametrize("pair", PAIRS)
def test_a_merge_into_or_of_nothing_is_the_other(pair: str) -> None:
    rows = rows_of(29, 100)
    for first, second in ((rows, rows[:0]), (rows[:0], rows)):
        here, there = streamed(PAIRS[pair][0], first), streamed(PAIRS[pair][1], second)
        here.merge(there)
        assert_summarises(here.summary(), rows)
        assert here.n_seen == 100


def test_a_merge_of_truncated_streams_keeps_the_bounds() -> None:
    first, second = rows_of(30, 400, 60), rows_of(31, 400, 60)
    truth = pooled(np.vstack([first, second]))
    for settings, other in ((PLAIN, PLAIN), (PLAIN, EXACT), (EXACT, PLAIN)):
        here, there = streamed(settings, first), streamed(other, second)
        here.merge(there)
        summary = here.summary()
        assert len(summary.s) == summary.rank == 11
        assert np.all(summary.s**2 <= truth.s[:11] ** 2 * (1 + 1e-10))
        assert np.all(truth.s[:11] ** 2 <= summary.s**2 + summary.lost)
        np.testing.assert_allclose(summary.energy, truth.energy, rtol=1e-10)


@pytest.mark.parametrize("settings", [WHOLE, EXACT], ids=["low rank", "exact"])
def test_a_summary_can_be_merged_and_counts_as_its_weight(settings: StreamSettings) -> None:
    first, second = rows_of(32, 50), rows_of(33, 30)
    weights = np.full(30, 0.255)
    here = streamed(settings, first)
    here.merge(Summary.empty(D, D).update(second, weights))
    assert_summarises(
        here.summary(), np.vstack([first, second]), np.concatenate([np.ones(50), weights])
    )
    assert here.n_seen == 50 + 8


def test_a_stream_merged_with_itself_counts_every_row_twice() -> None:
    rows = rows_of(34, 77)
    stream = streamed(WHOLE, rows)
    stream.merge(stream)
    assert_summarises(stream.summary(), np.vstack([rows, rows]))
    assert stream.n_seen == 154


def test_weights_that_waited_before_a_merge_do_not_return() -> None:
    first, second, third = rows_of(35, 20), rows_of(36, 40), rows_of(37, 10)
    weights = np.full(20, 5.0)
    here = streamed(WHOLE, first, weights=weights)
    here.merge(streamed(WHOLE, second))
    here.push(third)
    assert_summarises(
        here.summary(),
        np.vstack([first, second, third]),
        np.concatenate([weights, np.ones(50)]),
    )


def test_a_merge_with_forgetting_counts_both_sides_in_full() -> None:
    first, second = rows_of(38, 50), rows_of(39, 30)
    settings = StreamSettings(3, D - 3, forgetting=0.9)
    here = streamed(settings, first)
    here.merge(streamed(settings, second))
    weights = 0.9 ** np.concatenate([np.arange(49.0, -1.0, -1.0), np.arange(29.0, -1.0, -1.0)])
    assert_summarises(here.summary(), np.vstack([first, second]), weights)


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("unobserved_here", [True, False])
@pytest.mark.parametrize("gaps_elsewhere", [True, False])
def test_a_feature_never_observed_on_one_side_brings_no_variance(
    pair: str, unobserved_here: bool, gaps_elsewhere: bool
) -> None:
    without, observed = rows_of(40, 60), rows_of(41, 90)
    without[:, 5] = np.nan
    observed[:, 5] += 1e4
    filled = without.copy()
    filled[:, 5] = observed[:, 5].mean()
    if gaps_elsewhere:
        observed[3, 2] = np.nan
    here, there = Stream(D, PAIRS[pair][0]), Stream(D, PAIRS[pair][1])
    gappy_side, full_side = (here, there) if unobserved_here else (there, here)
    gappy_side.push(without, missing=True)
    full_side.push(observed, missing=gaps_elsewhere)
    here.merge(there)
    chunk = chunk_of(PAIRS[pair][int(unobserved_here)])
    expected = np.vstack([filled, imputed(observed, chunk)])
    assert_summarises(here.summary(), expected)
    np.testing.assert_array_equal(
        here.n_missing, np.isnan(without).sum(axis=0) + np.isnan(observed).sum(axis=0)
    )


@pytest.mark.parametrize("exact", [True, False])
def test_a_summary_may_know_a_feature_that_was_never_observed(exact: bool) -> None:
    without, observed = rows_of(42, 60), rows_of(43, 30)
    without[:, 5] = np.nan
    here = streamed(StreamSettings(3, D - 3, exact=exact), without, missing=True)
    here.merge(Summary.empty(D, D).update(observed))
    filled = without.copy()
    filled[:, 5] = observed[:, 5].mean()
    assert_summarises(here.summary(), np.vstack([filled, observed]))


@pytest.mark.parametrize("exact", [True, False])
def test_a_feature_observed_on_neither_side_can_still_come_late(exact: bool) -> None:
    settings = StreamSettings(3, D - 3, exact=exact)
    first, second, third = rows_of(44, 40), rows_of(45, 40), rows_of(46, 30)
    first[:, 5] = second[:, 5] = np.nan
    third[:, 5] += 1e4
    here = streamed(settings, first, missing=True)
    here.merge(streamed(settings, second, missing=True))
    here.push(third)
    early = np.vstack([first, second])
    early[:, 5] = third[:, 5].mean()
    assert_summarises(here.summary(), np.vstack([early, third]))


def test_means_over_observed_entries_go_on_after_a_merge() -> None:
    first, second = gappy(47, 30), gappy(48, 30)
    here = streamed(EXACT, first, missing=True)
    here.merge(streamed(EXACT, second, missing=True))
    gap = np.full((1, D), np.nan)
    means = np.nanmean(np.vstack([first, second]), axis=0)
    before = here.summary()
    here.push(gap, missing=True)
    expected = before.mean + (means - before.mean) / 61.0
    np.testing.assert_allclose(here.summary().mean, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("exact", [True, False])
def test_rank_grows_by_one_each_flush_up_to_four_times_the_start(exact: bool) -> None:
    settings = StreamSettings(k=1, energy=(0.01, 0.1), exact=exact)
    chunk = chunk_of(settings)
    rows = np.random.default_rng(49).standard_normal((6 * chunk, 30))
    stream, ranks = Stream(30, settings), []
    for half in np.split(rows, 12):
        stream.push(half)
        ranks.append(stream.k)
        assert stream.summary().rank == settings.tracked(stream.k)
    assert ranks == [1, 2, 2, 3, 3, 4, 4, 4, 4, 4, 4, 4]
    assert len(stream.summary().s) == settings.tracked(4)


@pytest.mark.parametrize("exact", [True, False])
def test_rank_shrinks_to_the_directions_that_carry_energy(exact: bool) -> None:
    settings = StreamSettings(k=5, energy=(0.01, 0.6), exact=exact)
    rng = np.random.default_rng(50)
    rows = rng.standard_normal((6 * chunk_of(settings), 2)) @ rng.standard_normal((2, 30))
    rows += 1e-4 * rng.standard_normal(rows.shape)
    stream, ranks = Stream(30, settings), []
    for chunk in np.split(rows, 6):
        stream.push(chunk)
        ranks.append(stream.k)
    assert ranks == [4, 3, 2, 2, 2, 2]
    assert stream.summary().rank == settings.tracked(2)


@pytest.mark.parametrize("exact", [True, False])
def test_rank_never_exceeds_the_number_of_features(exact: bool) -> None:
    rows = np.random.default_rng(51).standard_normal((256 * 4, 3))
    stream = streamed(StreamSettings(k=2, energy=(0.01, 0.1), exact=exact), rows)
    assert stream.k == 3


@pytest.mark.parametrize("exact", [True, False])
def test_rank_stays_where_there_is_no_energy(exact: bool) -> None:
    settings = StreamSettings(k=2, energy=(0.01, 0.1), exact=exact)
    stream = streamed(settings, np.ones((600, 9)))
    assert stream.k == 2
    assert len(stream.summary().s) == 0


def test_rank_stays_fixed_without_bounds() -> None:
    rows = np.random.default_rng(52).standard_normal((300, 30))
    assert streamed(StreamSettings(k=1), rows).k == 1


def test_rank_moves_only_when_rows_are_folded_in() -> None:
    settings = StreamSettings(k=1, energy=(0.01, 0.1))
    rows = np.random.default_rng(53).standard_normal((chunk_of(settings), 30))
    stream = streamed(settings, rows[:-1])
    stream.summary()
    assert stream.k == 1
    stream.push(rows[-1:])
    assert stream.k == 2


@pytest.mark.parametrize("settings", [WHOLE, EXACT], ids=["low rank", "exact"])
def test_a_reordered_copy_is_the_stream_of_reordered_rows(settings: StreamSettings) -> None:
    rows, more = gappy(54, 300), gappy(55, 50)
    columns = np.random.default_rng(54).permutation(D)
    stream = streamed(settings, rows, missing=True)
    unchanged = streamed(settings, rows, missing=True)
    copied = stream.reorder(columns)
    chunk = chunk_of(settings)
    assert_summarises(copied.summary(), imputed(rows, chunk)[:, columns])
    np.testing.assert_array_equal(copied.n_missing, stream.n_missing[columns])
    assert copied.n_seen == 300
    copied.push(more[:, columns], missing=True)
    assert_summarises(copied.summary(), imputed(np.vstack([rows, more]), chunk)[:, columns])
    assert_same(stream, unchanged)


@pytest.mark.parametrize("b", [0, 5, 32, 50])
def test_a_reordered_copy_of_complete_rows_has_the_waiting_ones_too(b: int) -> None:
    rows, columns = rows_of(56, b), np.arange(D)[::-1]
    copied = streamed(WHOLE, rows).reorder(columns)
    more = rows_of(57, 20)
    copied.push(more)
    assert_summarises(copied.summary(), np.vstack([rows[:, columns], more]))


def test_a_reordered_copy_shares_no_weights_with_the_stream() -> None:
    rows, columns = rows_of(58, 8), np.arange(D)[::-1]
    stream = streamed(WHOLE, rows[:4], weights=np.ones(4))
    copied = stream.reorder(columns)
    copied.push(rows[4:, columns], np.full(4, 2.0))
    stream.push(rows[4:], np.full(4, 100.0))
    weights = np.repeat([1.0, 2.0], 4)
    assert_summarises(copied.summary(), rows[:, columns], weights)


@pytest.mark.parametrize("kind", [scipy.sparse.csr_array, scipy.sparse.csr_matrix])
@pytest.mark.parametrize("sizes", [[1], [90], [3, 33, 40]])
@pytest.mark.parametrize("settings", [PLAIN, EXACT], ids=["low rank", "exact"])
def test_sparse_rows_are_dense_rows(kind: Any, sizes: list[int], settings: StreamSettings) -> None:
    rows = rows_of(59, 90)
    rows[np.abs(rows) < 1.0] = 0.0
    weights = np.random.default_rng(59).random(90)
    expected = streamed(settings, rows)
    batches = in_batches(rows, sizes)
    assert_same(streamed(settings, *(kind(batch) for batch in batches)), expected)
    mixed = [kind(batch) if i % 2 else batch for i, batch in enumerate(batches)]
    assert_same(streamed(settings, *mixed), expected)
    assert_same(
        streamed(settings, *(kind(batch) for batch in batches), weights=weights),
        streamed(settings, rows, weights=weights),
    )


def test_sparse_rows_may_have_gaps() -> None:
    rows = gappy(60, 90)
    rows[np.abs(rows) < 1.0] = 0.0
    assert_same(
        streamed(PLAIN, scipy.sparse.csr_array(rows), missing=True),
        streamed(PLAIN, rows, missing=True),
    )


def test_a_summary_of_other_features_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"^A summary of 3 features cannot be merged into one of 12\."
    ):
        streamed(PLAIN, rows_of(61, 9)).merge(Summary.empty(3, 2).update(np.eye(3)))


def test_a_merge_that_is_refused_leaves_the_stream_as_it_was() -> None:
    stream = streamed(PLAIN, rows_of(62, 9))
    with pytest.raises(InputError):
        stream.merge(Summary.empty(3, 2).update(np.eye(3)))
    assert_same(stream, streamed(PLAIN, rows_of(62, 9)))


def test_the_bound_counts_rounding_where_nothing_was_truncated() -> None:
    rng = np.random.default_rng(1)
    directions = np.linalg.qr(rng.standard_normal((20, 3)))[0].T
    rows = (rng.standard_normal((400, 3)) * [1e5, 1.0, 1e-2]) @ directions
    stream = Stream(20, StreamSettings(k=2, centered=False))
    stream.push(rows)
    exact = np.linalg.svd(rows, full_matrices=False)[2][:2]
    assert stream.summary().lost < 1e-12
    assert sines(stream.summary().vt[:2], exact).max() <= stream.sine_bound(2) < 0.1


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("weight", [None, 0.01])
def test_the_bound_counts_the_rounding_of_every_update(exact: bool, weight: float | None) -> None:
    different = np.random.default_rng(5).integers(0, 10, (5, 3, 2)) / 10.0
    for rows in different:
        stream = Stream(2, StreamSettings(k=1, centered=False, exact=exact))
        many = np.repeat(rows, 10_000, axis=0)
        stream.push(many, None if weight is None else np.full(len(many), weight))
        assert_turned_less(stream, rows)


def test_the_bound_of_rows_that_came_one_by_one_holds() -> None:
    for rows in np.random.default_rng(6).integers(0, 10, (5, 3, 2)) / 10.0:
        summary = Summary.empty(2, 2, centered=False)
        for i in range(1500):
            summary = summary.fold(rows[i % 3, None], None, 1.0)
        assert_turned_less(summary, rows)


def assert_turned_less(found: Stream | Summary, rows: Array) -> None:
    """Compare the first of two directions with that of equally many equal rows, to 19 digits."""
    wide = rows.astype(np.longdouble)
    first = (found.summary() if isinstance(found, Stream) else found).vt[0].astype(np.longdouble)
    other = np.array([-first[1], first[0]])
    along, across = wide @ first, wide @ other
    turn = abs(along @ across) / (along @ along - across @ across)
    assert float(turn) <= found.sine_bound(1) < 1e-6


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("power", [-158, -159, -161, -300])
def test_the_bound_counts_what_squares_near_the_least_numbers_lose(exact: bool, power: int) -> None:
    rows = np.random.default_rng(7).standard_normal((50, 6)) * 0.6 ** np.arange(6)
    stream = Stream(6, StreamSettings(k=2, centered=False, exact=exact))
    stream.push(rows * 10.0**power)
    turned = sines(stream.summary().vt[:2], np.linalg.svd(rows)[2][:2])
    assert len(turned) < 2 or turned.max() <= stream.sine_bound(2) + 1e-14
