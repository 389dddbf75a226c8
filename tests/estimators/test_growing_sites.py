"""Several partial fits equal one fit of all rows, within the bound that the result states."""

import math
import pickle
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from eigenfed import FederatedPCA, InputError, Privacy
from eigenfed.estimators import growing_sites
from eigenfed.linalg.orthonormal import sines

RNG = np.random.default_rng(5)
SITES = np.array(["a", "b", "c"])[RNG.integers(0, 3, 240)]
X = RNG.standard_normal((240, 7)) * np.linspace(4.0, 1.0, 7) + 5.0 * (SITES == "b")[:, None]
PARTS = np.split(np.arange(240), [50, 51, 130])


def grown(rows: Any = X, **parameters: Any) -> FederatedPCA:
    pca = FederatedPCA(3, random_state=0, **parameters)
    for part in PARTS:
        pca.partial_fit(rows[part], groups=SITES[part])
    return pca


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"method": "krylov"},
        {"center": False},
        {"center": "site"},
        {"scale": True},
        {"secure": True},
        {"method": "merge"},
    ],
    ids=str,
)
def test_several_partial_fits_equal_one_fit(parameters: dict[str, Any]) -> None:
    ours = grown(**parameters)
    whole = FederatedPCA(3, random_state=0, **parameters).fit(X, groups=SITES)
    assert ours.n_samples_ == whole.n_samples_ == 240
    np.testing.assert_allclose(ours.explained_variance_, whole.explained_variance_, rtol=1e-7)
    np.testing.assert_allclose(ours.components_, whole.components_, atol=1e-5)
    for name in ("mean_", "scale_", "total_variance_", "noise_variance_", "singular_values_"):
        np.testing.assert_allclose(getattr(ours, name), getattr(whole, name), rtol=1e-7, atol=1e-9)
    if parameters.get("center") == "site":
        np.testing.assert_allclose(ours.site_means_["b"], whole.site_means_["b"])


def check_certificate(pca: FederatedPCA, centred: Any) -> float:
    """Check what a certificate says of components of centred rows; return the sine of their angle.

    Residuals are compared with sums that are rounded themselves.
    """
    grade = pca.certificate_
    assert grade is not None
    values, exact = np.linalg.svd(centred, full_matrices=False)[1:]
    scatter = centred.T @ centred / values[0] ** 2
    variances = pca.explained_variance_ * (len(centred) - 1) / values[0] ** 2
    off = scatter @ pca.components_.T - variances * pca.components_.T
    assert np.all(np.linalg.norm(off, axis=0) <= grade.residuals + 1e-12)
    sine = float(sines(pca.components_, exact[:3])[0])
    assert math.asin(sine) <= grade.angle_bound
    for component, vector, angle in zip(pca.components_, exact, grade.angles, strict=False):
        assert math.asin(min(sines(component[None], vector[None])[0], 1.0)) <= angle
    return sine


def test_with_many_features_the_bound_holds() -> None:
    rng = np.random.default_rng(2)
    wide = rng.standard_normal((120, 520)) * 0.7 ** np.arange(520)
    sites = np.arange(120) % 2
    pca = FederatedPCA(3, random_state=0)
    for part in np.array_split(np.arange(120), 4):
        pca.partial_fit(wide[part], groups=sites[part])
    assert check_certificate(pca, wide - wide.mean(axis=0)) > 1e-9
    assert pca.certificate_ is not None
    assert np.degrees(pca.certificate_.angle_bound) < 30.0
    # What the summaries have lost is more than a component that has converged may be off.
    assert not pca.certificate_.converged.any()
    assert pca.total_variance_ == pytest.approx(wide.var(axis=0, ddof=1).sum())
    with pytest.raises(InputError, match="must be an integer for partial_fit above 512 features"):
        FederatedPCA(0.9).partial_fit(wide)
    bare = FederatedPCA(3, method="krylov", certify=False).partial_fit(wide)
    assert bare.certificate_ is None
    assert bare.total_variance_ == pytest.approx(wide.var(axis=0, ddof=1).sum())


@pytest.mark.parametrize("center", [True, "site"])
@pytest.mark.parametrize("far", [0.0, 1e3, 1e6, 1e9])
def test_the_certificate_counts_the_digits_that_summaries_lose(center: Any, far: float) -> None:
    rows = X + far * np.arange(1.0, 8.0)
    centred = rows - rows.mean(axis=0)
    if center == "site":
        for here in (np.flatnonzero(np.isin(SITES, site)) for site in "abc"):
            centred[here] = rows[here] - rows[here].mean(axis=0)
    sine = check_certificate(grown(rows, center=center), centred)
    assert sine < 1e-15 * max(far, 1e2)


@pytest.mark.parametrize("scale", [False, True])
def test_components_that_truncated_summaries_have_turned_are_not_converged(scale: bool) -> None:
    rng = np.random.default_rng(3)
    rows, sites = rng.standard_normal((300, 520)), np.arange(300) % 3
    pca = FederatedPCA(2, scale=scale, random_state=0)
    for part in np.array_split(rng.permutation(300), 5):
        pca.partial_fit(rows[part], groups=sites[part])
    covariance = np.corrcoef(rows.T) if scale else np.cov(rows.T)
    found = pca.certificate_
    assert found is not None
    exact = np.linalg.eigh(covariance)[1][:, ::-1].T[:2]
    assert np.abs(np.sum(pca.components_ * exact, axis=1)).max() < 0.9
    assert not found.converged.any()
    assert not np.isfinite(found.angles).any()
    left = covariance @ pca.components_.T - pca.components_.T * pca.explained_variance_
    true = np.sqrt(np.sum(left**2, axis=0)) / np.linalg.eigvalsh(covariance)[-1]
    assert np.all(true <= found.residuals)
    assert found.angle_bound == np.inf


@pytest.mark.parametrize("method", ["auto", "covariance", "factors", "krylov", "merge"])
@pytest.mark.parametrize("d", [6, 700])
def test_rows_of_lower_rank_than_the_components_are_accepted(method: str, d: int) -> None:
    rows = np.arange(d) % 7.0 * np.array([[1.0], [3.0], [1.0], [1.0], [3.0]])
    pca = FederatedPCA(4, method=method).partial_fit(rows)
    exact = rows - rows.mean(axis=0)
    np.testing.assert_allclose(
        pca.explained_variance_, [np.sum(exact**2) / 4, 0.0, 0.0, 0.0], atol=1e-12 * d
    )
    np.testing.assert_allclose(pca.components_ @ pca.components_.T, np.eye(4), atol=1e-12)


def test_weights_and_sparse_rows_and_other_batches_change_nothing() -> None:
    weights = np.arange(240) % 3 + 0.5
    whole = FederatedPCA(2).fit(X, groups=SITES, sample_weight=weights)
    pca = FederatedPCA(2)
    for part in PARTS[::-1]:
        rows = sparse.csr_array(X[part])
        pca.partial_fit(rows, groups=SITES[part], sample_weight=weights[part])
    np.testing.assert_allclose(pca.explained_variance_, whole.explained_variance_, rtol=1e-9)
    np.testing.assert_allclose(pca.transform(X), whole.transform(X), atol=1e-8)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_parts_of_a_table_give_the_same_to_the_last_bit(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites = np.arange(240) % 3 * (np.arange(240) < 90)  # every third row, and scattered ones
    whole = FederatedPCA(2).partial_fit(kind(X), groups=sites, sample_weight=np.arange(240.0))
    monkeypatch.setattr(growing_sites, "_BYTES_AT_A_TIME", 5 * 8 * 7)
    parts = FederatedPCA(2).partial_fit(kind(X), groups=sites, sample_weight=np.arange(240.0))
    np.testing.assert_array_equal(parts.components_, whole.components_)
    np.testing.assert_array_equal(parts.explained_variance_, whole.explained_variance_)


def test_a_refused_call_adds_nothing_and_a_fit_starts_anew() -> None:
    pca = grown()
    with pytest.raises(ValueError, match="features"):
        pca.partial_fit(X[:, :3])
    with pytest.raises(InputError, match="needs complete rows"):
        pca.partial_fit(np.full((2, 7), np.nan))
    pca.n_components = 99
    with pytest.raises(InputError, match="at most"):
        pca.partial_fit(X)
    pca.n_components = 3
    assert pca.partial_fit(X[:1]).n_samples_ == 241
    assert pca.fit(X).partial_fit(X[:10]).n_samples_ == 10


def test_copies_hold_the_result_and_not_the_summaries() -> None:
    pca = grown()
    assert b"growing_sites" not in pickle.dumps(pca)
    for copied in (deepcopy(pca), pickle.loads(pickle.dumps(pca))):
        np.testing.assert_array_equal(copied.components_, pca.components_)
        with pytest.raises(InputError, match="does not hold the sites' summaries"):
            copied.partial_fit(X)
    assert pca.partial_fit(X[:2]).n_samples_ == 242


def test_what_summaries_do_not_suffice_for_is_refused() -> None:
    for name, value in (
        ("privacy", Privacy(1.0, 1e-6)),
        ("split", "features"),
        ("transcript", "run.bin"),
        ("prepare", ["log1p"]),
    ):
        pca: Any = FederatedPCA(1).set_params(**{name: value})
        with pytest.raises(InputError, match=f"partial_fit cannot be combined with {name}"):
            pca.partial_fit(X)


def test_scales_of_features_in_very_different_units_are_those_of_one_fit() -> None:
    units = np.array([1e8, 1.0, 1e-8])
    rows = (X[:, :3] - X[:, :3].mean(axis=0)) * units + np.array([0.0, 0.0, 1e-7])
    rows[:, 1] = 3.7
    ours = grown(rows, scale=True)
    whole = FederatedPCA(3, scale=True, random_state=0).fit(rows, groups=SITES)
    np.testing.assert_allclose(ours.scale_, whole.scale_, rtol=1e-10)
    np.testing.assert_allclose(ours.explained_variance_, whole.explained_variance_, atol=1e-9)
    assert ours.certificate_ is not None
    assert np.isfinite(ours.certificate_.angle_bound)


@pytest.mark.parametrize(("first", "then"), [(False, True), (False, "site"), (True, False)])
def test_center_cannot_change_once_rows_are_gone(first: Any, then: Any) -> None:
    pca = FederatedPCA(2, center=first).partial_fit(X[:100])
    variances = pca.explained_variance_.copy()
    with pytest.raises(InputError, match="center was changed after rows were added"):
        pca.set_params(center=then).partial_fit(X[100:])
    np.testing.assert_array_equal(pca.explained_variance_, variances)
