"""Preparation by steps: the result is that of the same steps on all rows in one place."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone

from eigenfed import (
    Covariance,
    FederatedPCA,
    Log1p,
    NormalizeCounts,
    Privacy,
    SelectVariable,
    Standardize,
)
from eigenfed.arrays import Array
from eigenfed.data import prepared_rows
from eigenfed.data.prepare_step import PrepareStep
from eigenfed.errors import InputError, PrivacyError, SiteRefused
from eigenfed.linalg.dispersion import select_variable
from eigenfed.privacy.policy import Policy

K = 3
RECIPE: list[PrepareStep | str] = [
    NormalizeCounts(1e4),
    SelectVariable(15),
    "log1p",
    Standardize(2.5, ddof=1),
]
"""The recipe of single-cell analysis, with a clip that many entries exceed."""


class Pooled(NamedTuple):
    """The same steps on all rows, written out in numpy."""

    selected: npt.NDArray[np.int64]
    mean: Array
    variances: Array
    components: Array
    rows: Array


def counts(*, missing: bool = False, n: int = 180, d: int = 40) -> Array:
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 3, n)
    rates = rng.gamma(0.5, 2.0, d) * rng.gamma(3.0, 0.3, (n, 1))
    rates = rates * np.where(rng.random((3, d)) < 0.3, 6.0, 1.0)[groups]
    X = rng.poisson(rates).astype(np.float64)
    X[4] = 0.0
    X[:, 6] = 0.0
    if missing:
        X[rng.random(X.shape) < 0.05] = np.nan
    return X


def pool(X: Array, weights: Array | None = None) -> Pooled:
    w = np.ones(len(X)) if weights is None else weights
    there = ~np.isnan(X)
    total = np.nansum(X, axis=1)
    Y = X / np.where(total > 0, total, 1.0)[:, None] * 1e4
    count = w @ there

    def moments(Z: Array) -> tuple[Array, Array]:
        inside = ~np.isnan(Z)
        mean = w @ np.where(inside, Z, 0.0) / (w @ inside)
        return mean, w @ np.where(inside, Z - mean, 0.0) ** 2

    mean, squares = moments(Y)
    selected = select_variable(mean, squares / count, 15, "seurat")
    Y = np.log1p(Y[:, selected])
    mean, squares = moments(Y)
    Z = np.clip((Y - mean) / np.sqrt(squares / (count[selected] - 1)), -2.5, 2.5)
    assert np.mean(np.abs(Z) == 2.5) > 0.005
    mean, _ = moments(Z)
    centred = np.sqrt(w)[:, None] * np.where(np.isnan(Z), 0.0, Z - mean)
    _, s, vt = np.linalg.svd(centred, full_matrices=False)
    return Pooled(selected, mean, s[:K] ** 2 / (w.sum() - 1), vt[:K], Z)


def cut(X: Any) -> dict[str, Any]:
    return {"a": X[:50], "b": X[50:110], "c": X[110:]}


def check(pca: FederatedPCA, expected: Pooled, *, rtol: float = 1e-10) -> None:
    assert pca.selected_features_ is not None
    np.testing.assert_array_equal(pca.selected_features_, expected.selected)
    np.testing.assert_allclose(pca.mean_, expected.mean, atol=1e-11)
    np.testing.assert_allclose(pca.explained_variance_, expected.variances, rtol=rtol)
    cosines = np.abs(np.sum(pca.components_ * expected.components, axis=1))
    np.testing.assert_allclose(cosines, 1.0, atol=rtol)


@pytest.mark.parametrize("kind", ["dense", "sparse", "mixed"])
@pytest.mark.parametrize("settings", [{}, {"secure": True}, {"method": "krylov"}], ids=str)
def test_the_result_is_that_of_all_rows(kind: str, settings: dict[str, Any]) -> None:
    X = counts()
    sites: dict[str, Any] = cut(X)
    for name in {"dense": [], "sparse": ["a", "b", "c"], "mixed": ["b"]}[kind]:
        sites[name] = sparse.csr_array(sites[name])
    pca = FederatedPCA(K, prepare=RECIPE, **settings).fit_sites(sites)
    expected = pool(X)
    check(pca, expected)
    scores = (expected.rows - expected.mean) @ pca.components_.T
    for rows in (X, sparse.csr_array(X)):
        np.testing.assert_allclose(pca.transform(rows), scores, atol=1e-10)
    assert pca.certificate_ is not None
    assert pca.certificate_.converged.all()
    ops = [record.op for record in pca.rounds_ if record.op in ("moments", "squares")]
    if not pca.secure:
        assert ops == ["moments", "squares", "moments", "squares", "moments"]


@pytest.mark.parametrize(
    "method", ["covariance", Covariance(precision="single"), "krylov", "merge"]
)
def test_rows_that_are_prepared_whenever_they_are_read_give_the_same_bits(
    method: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites = cut(counts(missing=True))
    settings: dict[str, Any] = {"method": method, "random_state": 0}
    steps = ["normalize", "log1p", "standardize:2"]
    stored = FederatedPCA(K, prepare=steps, **settings).fit_sites(sites, by_site=True)
    monkeypatch.setattr(prepared_rows, "_BLOCK_BYTES", 1 << 12)
    read = FederatedPCA(K, prepare=steps, **settings).fit_sites(sites, by_site=True)
    np.testing.assert_array_equal(read.components_, stored.components_)
    np.testing.assert_array_equal(read.mean_, stored.mean_)


def test_missing_entries_and_weights_count_as_observed() -> None:
    X = counts(missing=True)
    pca = FederatedPCA(K, prepare=RECIPE).fit(X, groups=np.arange(len(X)) % 3)
    check(pca, pool(X))
    check(FederatedPCA(K, prepare=RECIPE).fit(sparse.csr_array(X)), pool(X))
    weights = np.random.default_rng(1).uniform(0.5, 2.0, len(X))
    check(FederatedPCA(K, prepare=RECIPE).fit(X, sample_weight=weights), pool(X, weights))


def test_single_precision_rows_give_single_precision_results() -> None:
    X = counts().astype(np.float32)
    pca = FederatedPCA(K, prepare=RECIPE).fit(X)
    assert pca.components_.dtype == pca.transform(X).dtype == np.float32
    np.testing.assert_allclose(pca.explained_variance_, pool(counts()).variances, rtol=1e-5)


def test_names_are_those_of_the_table_and_components_of_the_selection(tmp_path: Path) -> None:
    names = [f"gene{i}" for i in range(40)]
    frame = pd.DataFrame(counts(), columns=names)
    shuffled = frame[names[::-1]]
    sites = {"a": frame[:50], "b": shuffled[50:110], "c": tmp_path / "c.csv"}
    frame[110:].to_csv(sites["c"], index=False)
    pca = FederatedPCA(K, prepare=RECIPE).fit_sites(sites)
    expected = pool(counts())
    check(pca, expected)
    assert pca.n_features_in_ == 40
    np.testing.assert_array_equal(pca.feature_names_in_, names)
    kept = pca.feature_names_in_[pca.selected_features_]
    np.testing.assert_array_equal(kept, np.array(names)[expected.selected])
    assert pca.components_.shape == (K, 15)
    assert len(pca.get_feature_names_out()) == K
    np.testing.assert_allclose(pca.transform(shuffled), pca.transform(frame))
    rest = float(pool(counts()).rows.var(axis=0, ddof=1).sum() - pca.explained_variance_.sum())
    assert pca.noise_variance_ == pytest.approx(rest / (15 - K))


def test_steps_need_not_come_in_the_order_of_the_recipe() -> None:
    X = counts()
    pca = FederatedPCA(K, prepare=["log1p", "select:10:variance"], center=False).fit(X)
    Y = np.log1p(X)
    best = np.sort(np.argsort(-Y.var(axis=0))[:10])
    np.testing.assert_array_equal(pca.selected_features_, best)
    s = np.linalg.svd(Y[:, best], compute_uv=False)
    np.testing.assert_allclose(pca.singular_values_, s[:K], rtol=1e-10)
    local = FederatedPCA(K, prepare=["normalize", "log1p"]).fit_sites(cut(X))
    # Steps within a row need no round.
    assert local.n_rounds_ == FederatedPCA(K).fit_sites(cut(X)).n_rounds_
    assert local.selected_features_ is None
    everything = FederatedPCA(K, prepare=["select:99"], scale=True).fit(X)
    np.testing.assert_array_equal(everything.selected_features_, np.arange(40))


def test_steps_are_parameters_as_others_are() -> None:
    pca = FederatedPCA(K, prepare=RECIPE)
    assert clone(pca).get_params()["prepare"] == RECIPE
    assert "Standardize(clip=2.5, ddof=1)" in repr(pca)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"prepare": ["standardize"], "scale": True}, "combined with scale=True: 'standardize'"),
        ({"prepare": ["standardize"], "center": False}, "combined with center=False: 'standardize"),
        ({"prepare": ["log1p"], "split": "features"}, "combined with split='features': a row is"),
        ({"prepare": ["select:2"]}, "n_components=3 must be at most 2"),
        ({"prepare": "log1p"}, "prepare has type str and must be a list"),
    ],
)
def test_what_cannot_be_combined_is_refused(settings: dict[str, Any], match: str) -> None:
    sites = cut(counts())
    if "split" in settings:
        ids = [f"r{i}" for i in range(50)]
        sites = {
            name: pd.DataFrame(rows[:50], index=ids).add_prefix(name)
            for name, rows in sites.items()
        }
    with pytest.raises(InputError, match=match):
        FederatedPCA(K, **settings).fit_sites(sites)


def test_negative_entries_are_refused_before_anything_runs() -> None:
    X = counts() - 1.0
    for step in ("normalize", "log1p", "select:5"):
        with pytest.raises(InputError, match="Site 'a' holds negative entries, and prepare has a"):
            FederatedPCA(1, prepare=[step]).fit_sites(cut(X))
    pca = FederatedPCA(1, prepare=["log1p"]).fit(counts())
    with pytest.raises(InputError, match=r"^X holds negative entries"):
        pca.transform(X)
    FederatedPCA(1, prepare=["select:5:variance", "standardize"]).fit(X)


def test_what_is_lost_is_not_undone() -> None:
    pca = FederatedPCA(1, prepare=["log1p"]).fit(counts())
    with pytest.raises(InputError, match="inverse_transform would have to undo the steps"):
        pca.inverse_transform(np.ones((2, 1)))


def test_privacy_allows_steps_within_a_row_and_no_others() -> None:
    X = np.vstack([counts()] * 12)
    privacy = Privacy(8.0, 1e-5, clip=8.0)
    settings: dict[str, Any] = {"privacy": privacy, "random_state": 0}
    sites = cut(X)
    prepared = FederatedPCA(K, prepare=["normalize:100", "log1p"], **settings).fit_sites(sites)
    totals = X.sum(axis=1)
    Y = np.log1p(X / np.where(totals > 0, totals, 1.0)[:, None] * 100)
    by_hand = np.linalg.svd(Y - Y.mean(axis=0), full_matrices=False)[2][:1]
    assert prepared.privacy_ is not None
    assert abs(float(prepared.components_[0] @ by_hand[0])) > 0.9
    for step in ("select:5:variance", "standardize"):
        with pytest.raises(PrivacyError, match="prepare cannot be combined with privacy: "):
            FederatedPCA(K, prepare=["log1p", step], **settings).fit_sites(sites)


def test_a_site_may_refuse_steps() -> None:
    sites = cut(counts())
    policies = {"b": Policy(steps=frozenset({"normalize", "log1p"}))}
    FederatedPCA(K, prepare=["log1p"]).fit_sites(sites, policies=policies)
    with pytest.raises(SiteRefused, match="does not allow a step of the study's preparation"):
        FederatedPCA(K, prepare=RECIPE).fit_sites(sites, policies=policies)


def test_a_selection_counts_in_the_meter_as_its_features_do() -> None:
    X = counts()
    policies = {"a": Policy(max_rank_fraction=0.5)}
    steps = ["log1p", "select:10:variance"]
    with pytest.raises(SiteRefused, match="revealed more than its policy allows"):
        FederatedPCA(K, method="krylov", prepare=steps).fit_sites(cut(X), policies=policies)
    pca = FederatedPCA(K, method="merge", prepare=[Log1p(), SelectVariable(30, "variance")])
    fraction = pca.fit_sites(cut(X)).leakage_.rank_fraction
    assert fraction == pytest.approx(2 * 8 / 30, abs=0.35)
