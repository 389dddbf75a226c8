"""The private stream: one release, rows used once, noise that never comes from the seed."""

import copy
import pickle
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits

from eigenfed import InputError, Privacy, PrivacyError, StreamingPCA, Summary
from eigenfed.arrays import Array
from eigenfed.privacy.dp.private_stream import MeanStep, PrivateStream, RadiusStep

pytestmark = pytest.mark.usefixtures("seeded_noise")

PRIVACY = Privacy(1.0, 1e-5)


def rows_of(n: int, d: int = 6, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    rows: Array = rng.standard_normal((n, d)) * np.r_[9.0, 5.0, np.ones(d - 2)]
    return rows


def silent(sd: float, count: int) -> npt.NDArray[np.int64]:
    return np.zeros(count, dtype=np.int64)


def test_the_leading_directions_come_through_the_noise() -> None:
    rows = rows_of(20_000) + 3.0
    pca = StreamingPCA(2, privacy=PRIVACY, random_state=0).fit(rows)
    assert abs(pca.components_[0, 0]) > 0.95
    assert abs(pca.components_[1, 1]) > 0.9
    assert np.linalg.norm(pca.mean_ - 3.0) < 4.0
    np.testing.assert_allclose(pca.explained_variance_, [81.0, 25.0], rtol=0.5)
    np.testing.assert_allclose(pca.components_ @ pca.components_.T, np.eye(2), atol=1e-12)


@pytest.mark.parametrize(("epsilon", "least"), [(1.0, 0.73), (2.0, 0.87)])
def test_digits_with_public_centring_and_the_clip_paid_for(epsilon: float, least: float) -> None:
    digits = load_digits().data
    digits = digits - digits.mean(axis=0)
    scatter = digits.T @ digits
    best = np.linalg.eigvalsh(scatter)[-10:].sum()
    rng = np.random.default_rng(0)
    captured = []
    for seed in range(12):
        rows = digits[rng.permutation(len(digits))]
        pca = StreamingPCA(10, center=False, privacy=Privacy(epsilon, 1e-5), random_state=seed).fit(
            rows
        )
        captured.append(np.trace(pca.components_ @ scatter @ pca.components_.T) / best)
    assert np.mean(captured) >= least


def test_two_fits_with_one_seed_differ() -> None:
    rows = rows_of(3000)
    one, other = (
        StreamingPCA(2, privacy=PRIVACY, random_state=7).fit(rows).components_ for _ in range(2)
    )
    assert not np.array_equal(one, other)


def test_the_seed_fixes_the_public_directions() -> None:
    streams = [
        PrivateStream(6, 1, PRIVACY, True, np.random.default_rng(3), draw=silent) for _ in range(2)
    ]
    for stream in streams:
        stream.push(rows_of(3000))
    np.testing.assert_array_equal(streams[0].summary().vt, streams[1].summary().vt)


def test_without_noise_the_sketch_is_that_of_the_clipped_rows() -> None:
    rows = rows_of(5000)
    privacy = Privacy(1.0, 1e-5, clip=8.0)
    stream = PrivateStream(6, 2, privacy, False, np.random.default_rng(0), draw=silent)
    stream.push(rows)
    norms = np.linalg.norm(rows, axis=1)
    clipped = rows * np.minimum(1.0, 8.0 / norms)[:, None]
    grown = np.sum(np.minimum(norms, 32.0) ** 2) / np.sum(clipped**2)
    values, vectors = np.linalg.eigh(clipped.T @ clipped)
    summary = stream.summary()
    assert np.abs(summary.vt @ vectors[:, :-3:-1]).diagonal().min() > 0.9999
    np.testing.assert_allclose(summary.s**2, grown * values[:-3:-1], rtol=2e-3)
    np.testing.assert_allclose(summary.energy, np.sum(rows**2), rtol=2e-3)


@pytest.mark.parametrize("sizes", [[3000], [1] * 50 + [2950], [777, 1000, 1223]])
def test_batches_change_nothing(sizes: list[int]) -> None:
    rows = rows_of(3000)
    whole = PrivateStream(6, 2, PRIVACY, True, np.random.default_rng(0), draw=silent)
    whole.push(rows)
    parts = PrivateStream(6, 2, PRIVACY, True, np.random.default_rng(0), draw=silent)
    for batch in np.split(rows, np.cumsum(sizes)[:-1]):
        parts.push(batch)
    np.testing.assert_array_equal(whole.summary().vt, parts.summary().vt)
    assert parts.n_seen == 3000


def test_a_released_stream_takes_no_more_rows() -> None:
    pca = StreamingPCA(2, privacy=PRIVACY).partial_fit(rows_of(3000))
    first = pca.components_
    np.testing.assert_array_equal(first, pca.components_)
    with pytest.raises(PrivacyError, match="budget is spent"):
        pca.partial_fit(rows_of(10))


COPIES: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda found: pickle.loads(pickle.dumps(found)),
    "old pickle": lambda found: pickle.loads(pickle.dumps(found, protocol=1)),
    "copy": copy.copy,
    "deep copy": copy.deepcopy,
}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("n", [1, 50, 3000])
def test_a_stream_that_is_not_released_cannot_be_copied(how: str, n: int) -> None:
    pca = StreamingPCA(2, privacy=PRIVACY).partial_fit(rows_of(n))
    for found in (pca, pca._stream):
        with pytest.raises(PrivacyError, match=r"holds exact sums.* Read components_ first"):
            COPIES[how](found)
    assert not hasattr(clone(pca), "_stream")
    assert clone(pca).privacy == PRIVACY


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_of_a_released_stream_has_the_release_and_nothing_else(how: str) -> None:
    pca = StreamingPCA(2, privacy=PRIVACY).partial_fit(rows_of(3000))
    components = pca.components_
    again = COPIES[how](pca)
    np.testing.assert_array_equal(again.components_, components)
    np.testing.assert_array_equal(again.mean_, pca.mean_)
    assert again.privacy_ == pca.privacy_
    assert again.n_samples_seen_ == 3000
    with pytest.raises(PrivacyError, match="budget is spent"):
        again.partial_fit(rows_of(10))
    kept = {"d", "k", "n_seen", "n_missing", "statement", "_held"}
    state: Any = pca._stream.__getstate__()
    assert state.keys() == kept
    assert isinstance(COPIES[how](pca._stream).summary(), Summary)


def test_a_release_is_made_once_and_wipes_the_exact_sums() -> None:
    drawn: list[int] = []

    def noting(sd: float, count: int) -> npt.NDArray[np.int64]:
        drawn.append(count)
        return silent(sd, count)

    stream = PrivateStream(6, 2, PRIVACY, True, np.random.default_rng(0), draw=noting)
    stream.push(rows_of(5000))
    exact = [a for a in vars(stream._held).values() if isinstance(a, np.ndarray)]
    assert any(a.any() for a in exact)
    drawn.clear()
    first, asked = stream.summary(), list(drawn)
    assert sum(asked) == 6 * 6 + 6 + 2
    assert stream.summary() is first
    assert drawn == asked
    assert not any(a.any() for a in exact)
    whole = [v for v in vars(stream).values() if getattr(v, "dtype", None) == np.int64]
    assert not any(v.any() for v in whole)
    assert stream._held is first


def test_threads_that_look_at_the_same_time_see_one_release() -> None:
    stream = PrivateStream(6, 2, PRIVACY, True, np.random.default_rng(0))
    stream.push(rows_of(5000))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: stream.summary(), range(32)))
    assert all(summary is found[0] for summary in found)


def test_a_stream_whose_rows_are_too_few_is_not_released_by_asking() -> None:
    pca = StreamingPCA(2, privacy=Privacy(1.0, 1e-3)).partial_fit(rows_of(3000))
    for _ in range(2):
        with pytest.raises(InputError, match=r"delta=0.001 must be below 1/n"):
            _ = pca.components_
    with pytest.raises(PrivacyError, match="holds exact sums"):
        pickle.dumps(pca)


def test_a_stream_too_short_to_begin_says_how_many_rows_are_missing() -> None:
    pca = StreamingPCA(2, privacy=PRIVACY).partial_fit(rows_of(50))
    with pytest.raises(InputError, match=r"has 50 rows and needs \d+ more"):
        _ = pca.components_


def test_a_delta_of_one_over_n_is_refused() -> None:
    with pytest.raises(InputError, match=r"delta=0.001 must be below 1/n"):
        StreamingPCA(2, privacy=Privacy(1.0, 1e-3)).fit(rows_of(3000))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"rank": "adaptive"}, "rank='fixed'"),
        ({"forgetting": 0.9}, "forgetting=1.0"),
        ({"memory": "gram"}, "memory='gram'"),
        ({"oversample": 3}, "oversample"),
        ({"privacy": 1.0}, "privacy has type float"),
        ({"privacy": Privacy(1.0, 1e-5, colluders=1)}, "colluders=1"),
        ({"privacy": Privacy(1.0, 1e-5, dropouts=1)}, "dropouts=1"),
    ],
)
def test_what_does_not_go_with_privacy_is_refused(settings: dict[str, object], words: str) -> None:
    pca = StreamingPCA(2, **({"privacy": PRIVACY} | settings))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=re.escape(words)):
        pca.partial_fit(rows_of(10))


def test_weights_and_gaps_are_refused() -> None:
    rows = rows_of(10)
    with pytest.raises(PrivacyError, match="sample_weight is not possible under privacy"):
        StreamingPCA(2, privacy=PRIVACY).partial_fit(rows, sample_weight=np.ones(10))
    rows[0, 0] = np.nan
    with pytest.raises(PrivacyError, match="NaN is not possible under privacy"):
        StreamingPCA(2, privacy=PRIVACY).partial_fit(rows)


@pytest.mark.parametrize("scale", [2.0**-40, 2.0**60])
def test_norms_beyond_the_range_of_the_search_are_refused(scale: float) -> None:
    stream = PrivateStream(6, 2, PRIVACY, True, np.random.default_rng(0), draw=silent)
    with pytest.raises(InputError, match="Pass a public clip"):
        stream.push(rows_of(3000) * scale)


def test_a_public_clip_needs_no_search() -> None:
    pca = StreamingPCA(2, center=False, privacy=Privacy(1.0, 1e-5, clip=10.0))
    assert abs(pca.fit(rows_of(5000)).components_[0, 0]) > 0.95


def test_sparse_rows_are_rows() -> None:
    rows = rows_of(3000)
    rows[np.abs(rows) < 1.0] = 0.0
    dense, thin = (
        PrivateStream(6, 2, PRIVACY, True, np.random.default_rng(0), draw=silent) for _ in range(2)
    )
    dense.push(rows)
    thin.push(sparse.csr_array(rows))
    np.testing.assert_array_equal(dense.summary().vt, thin.summary().vt)


def test_released_streams_merge_into_a_stream_without_privacy_by_name() -> None:
    frame = pd.DataFrame(rows_of(4000), columns=list("abcdef"))
    here = StreamingPCA(2, privacy=PRIVACY).fit(frame)
    there = StreamingPCA(2, privacy=PRIVACY).fit(frame[list("fedcba")])
    both = StreamingPCA(2).merge(here).merge(there)
    assert both.n_samples_seen_ == 8000
    assert abs(both.components_[0, 0]) > 0.95
    with pytest.raises(PrivacyError, match="A private stream cannot be merged with another one"):
        StreamingPCA(2, privacy=PRIVACY).merge(here)


def test_the_statement_names_what_holds() -> None:
    said = StreamingPCA(2, privacy=Privacy(1.0, 1e-5, relation="zero_out")).fit(rows_of(3000))
    statement = said.privacy_
    assert statement is not None
    assert (statement.epsilon, statement.delta, statement.unit) == (1.0, 1e-5, "row")
    assert "one row is left out of every sum" in statement.text
    assert StreamingPCA(2).fit(rows_of(30)).privacy_ is None


@pytest.mark.parametrize("relation", ["replace_one", "zero_out"])
def test_each_warm_up_step_draws_the_noise_of_its_sensitivity(relation: str) -> None:
    drawn: list[float] = []

    def noting(sd: float, count: int) -> npt.NDArray[np.int64]:
        drawn.append(sd)
        return np.zeros(count, dtype=np.int64)

    search = RadiusStep(
        np.zeros(2), -4.0, 4.0, counts=3, quantile=0.5, mu=0.5, relation=relation, draw=noting
    )
    search.take(np.ones((search.room, 2)))
    assert drawn == pytest.approx([1024 / 0.5] * 3, rel=1e-6)
    drawn.clear()
    averaging = MeanStep(np.zeros(2), 1.0, mu=0.5, relation=relation, draw=noting)
    averaging.take(np.ones((averaging.room, 2)))
    averaging.mean()
    assert drawn == pytest.approx([(2 if relation == "replace_one" else 1) * 2**20 / 0.5])


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.8])
def test_the_search_finds_the_quantile_where_there_is_no_noise(quantile: float) -> None:
    norms = np.random.default_rng(0).lognormal(3.0, 1.0, 100_000)
    search = RadiusStep(
        np.zeros(1),
        -24.0,
        40.0,
        counts=7,
        quantile=quantile,
        mu=0.01,
        relation="replace_one",
        draw=silent,
    )
    search.take(norms[: search.room, None])
    ratio = search.radius / np.quantile(norms, quantile)
    assert 2**-0.5 < ratio < 2**0.5


def test_memory_is_of_order_features_times_components() -> None:
    stream = PrivateStream(2000, 2, PRIVACY, True, np.random.default_rng(0), draw=silent)
    stream.push(rows_of(9000, d=2000))
    held = [*vars(stream).values(), *vars(stream._held).values()]
    assert sum(a.nbytes for a in held if isinstance(a, np.ndarray)) < 8 * 2000 * (2 * 8 + 4)


def test_a_stream_far_from_zero_is_centred_well() -> None:
    spread = np.array([20.0, 15.0, 12.0, 9.0, 7.0, 4.0, 3.0, 2.0])
    rows = np.random.default_rng(5).standard_normal((8000, 8)) * spread
    best = np.linalg.eigvalsh(np.cov(rows.T))[-3:].sum()
    kept = []
    for _ in range(8):
        private = StreamingPCA(3, privacy=Privacy(1.0, 1e-6))
        private.partial_fit(rows + np.array([50, 25, 130, 80, 50, 120, 5, 90]))
        kept.append(np.trace(private.components_ @ np.cov(rows.T) @ private.components_.T) / best)
    assert np.mean(kept) > 0.985
