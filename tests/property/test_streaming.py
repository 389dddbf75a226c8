"""StreamingPCA over random data, batches and settings."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenfed import StreamingPCA
from eigenfed.arrays import Array
from oracles import pooled, power_law
from strategies import Case, cases


def in_pieces(pca: StreamingPCA, case: Case) -> StreamingPCA:
    for rows, weights in case.pieces:
        if len(rows):
            pca.partial_fit(rows, sample_weight=weights)
    return pca


@given(case=cases(), memory=st.sampled_from(["auto", "gram", "low_rank"]), center=st.booleans())
@settings(max_examples=300)
def test_any_batches_give_the_pooled_variances(case: Case, memory: str, center: bool) -> None:
    k = min(2, case.X.shape[1])
    pca = in_pieces(StreamingPCA(k, memory=memory, center=center, oversample=12), case)
    exact = pooled(case.X, case.weights, centered=center)
    rounding = 1e-9 * exact.energy + 1e-13 * float(np.sum(exact.mean**2)) * exact.n
    whole = np.zeros(k)
    whole[: len(exact.s)] = exact.s[:k] ** 2
    np.testing.assert_allclose(pca.singular_values_**2, whole, rtol=1e-9, atol=rounding)
    np.testing.assert_allclose(pca.components_ @ pca.components_.T, np.eye(k), atol=1e-10)
    assert np.all(pca.explained_variance_ratio_ >= 0)
    assert pca.explained_variance_ratio_.sum() <= 1 + 1e-12
    assert pca.n_samples_seen_ == len(case.X)


@given(case=cases(scales=(1.0,)), settings_=st.sampled_from([{}, {"memory": "low_rank"}]))
def test_merging_streams_is_streaming_both(case: Case, settings_: dict[str, Any]) -> None:
    k = min(2, case.X.shape[1])
    parts = [
        StreamingPCA(k, oversample=12, **settings_).partial_fit(rows, sample_weight=weights)
        for rows, weights in case.pieces
        if len(rows)
    ]
    merged = parts[0]
    for part in parts[1:]:
        merged.merge(part)
    exact = pooled(case.X, case.weights)
    rounding = 1e-9 * exact.energy + 1e-13 * float(np.sum(exact.mean**2)) * exact.n
    whole = np.zeros(k)
    whole[: len(exact.s)] = exact.s[:k] ** 2
    np.testing.assert_allclose(merged.singular_values_**2, whole, rtol=1e-9, atol=rounding)


def residual(X: Array, components: Array) -> float:
    return float(np.linalg.norm(X - (X @ components.T) @ components))


@pytest.mark.parametrize("alpha", [0.001, 0.1, 0.5, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("start", [2, 10])
def test_adaptive_rank_keeps_the_bracket_of_001_eq_16(alpha: float, start: int) -> None:
    """Left side exact; the right one to 1 %, as its proof assumes the best rank-r iterates."""
    X = power_law(4000, 100, alpha)
    pca = StreamingPCA(start, rank="adaptive", center=False)
    ranks = []
    for block in np.split(X, 80):
        ranks.append(pca.partial_fit(block).n_components_)
    s = np.linalg.svd(X, compute_uv=False)
    low, high = (np.sqrt(np.sum(s[r:] ** 2)) for r in (max(ranks), min(ranks)))
    assert low * (1 - 1e-12) <= residual(X, pca.components_) <= 1.01 * high
    assert min(ranks) >= 1
    assert max(ranks) <= 4 * start
    assert pca.components_.shape == (pca.n_components_, 100)


@pytest.mark.parametrize("memory", ["low_rank", "gram"])
def test_a_grown_rank_is_as_good_as_one_had_from_the_start(memory: str) -> None:
    """Appending a canonical vector, as in [Grammenos2020], leaves 2.37 times the best residual."""
    X = power_law(4000, 400, 1.0)
    pca = StreamingPCA(2, rank="adaptive", center=False, memory=memory).fit(X)
    r = pca.n_components_
    assert 2 < r <= 8
    best = np.sqrt(np.sum(np.linalg.svd(X, compute_uv=False)[r:] ** 2))
    assert residual(X, pca.components_) <= 1.002 * best


def test_adaptive_rank_settles_where_the_share_is_within_the_bounds() -> None:
    X = np.random.default_rng(0).standard_normal((6000, 50)) * 0.7 ** np.arange(50)
    pca = StreamingPCA(5, rank="adaptive", energy=(0.02, 0.10)).fit(X)
    s = pca.singular_values_
    assert 0.02 <= s[-1] / s.sum() <= 0.10


def test_adaptive_rank_follows_the_data_down_and_up() -> None:
    rng = np.random.default_rng(0)
    narrow = np.outer(rng.standard_normal(3000), np.eye(30)[0]) * 100
    narrow += 1e-6 * rng.standard_normal(narrow.shape)
    wide = rng.standard_normal((6000, 30)) * 100
    pca = StreamingPCA(5, rank="adaptive", forgetting=0.99).partial_fit(narrow)
    assert pca.n_components_ <= 2
    assert pca.partial_fit(wide).n_components_ >= 8


@pytest.mark.parametrize("rows", [1, 4, 500])
def test_adaptive_rank_on_nothing_but_zeros_stays(rows: int) -> None:
    pca = StreamingPCA(3, rank="adaptive").fit(np.zeros((rows, 6)))
    assert pca.n_components_ == 3
    np.testing.assert_array_equal(pca.explained_variance_, np.zeros(3))
