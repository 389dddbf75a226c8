"""FederatedPCA with secure sums."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from eigenfed import FederatedPCA, Merge, Policy, Power, PrivacyError, SiteRefused, Subspace
from eigenfed.linalg.orthonormal import sines
from oracles import pooled, power_law
from private_runs import in_parts

ROWS = power_law(120, 9, 1.0) + 3.0


@pytest.mark.parametrize("method", ["auto", "krylov", Power(local_steps=1)])
@pytest.mark.parametrize("scale", [False, True])
def test_secure_sums_give_the_same_components(method: Any, scale: bool) -> None:
    sites = in_parts(ROWS, 4)
    plain, safe = (
        FederatedPCA(3, method=method, scale=scale, secure=secure, random_state=0).fit_sites(sites)
        for secure in (False, True)
    )
    np.testing.assert_allclose(safe.components_, plain.components_, atol=1e-11)
    np.testing.assert_allclose(safe.explained_variance_, plain.explained_variance_, rtol=1e-11)
    np.testing.assert_allclose(safe.mean_, plain.mean_, rtol=1e-13)
    assert safe.n_rounds_ > plain.n_rounds_
    assert safe.leakage_ == pytest.approx(plain.leakage_)
    assert safe.certificate_ is not None
    assert safe.certificate_.converged.all()


def test_groups_and_sparse_rows_are_summed_securely_too() -> None:
    rng = np.random.default_rng(0)
    X: Any = sparse.random_array((60, 8), density=0.4, rng=rng, format="csr")
    safe = FederatedPCA(2, secure=True).fit(X, groups=np.arange(60) % 3)
    wanted = pooled(X.toarray())
    np.testing.assert_allclose(safe.singular_values_, wanted.s[:2], rtol=1e-12)


def test_a_sites_own_policy_still_counts() -> None:
    policies = {"s1": Policy(methods=frozenset({"krylov"}))}
    sites = in_parts(ROWS, 3)
    safe = FederatedPCA(2, secure=True, random_state=0).fit_sites(sites, policies=policies)
    assert safe.method_ == "krylov"
    limited = {"s1": Policy(max_rank_fraction=0.1)}
    with pytest.raises(SiteRefused, match="'leakage'"):
        FederatedPCA(2, secure=True).fit_sites(sites, policies=limited)


@pytest.mark.parametrize(
    ("parameters", "sites", "message"),
    [
        ({}, 2, "secure=True needs 3 sites at least and has 2"),
        ({}, 1, "secure=True needs 3 sites at least and has 1"),
        ({"split": "features"}, 3, "secure=True cannot be combined with split='features'"),
        ({"method": "merge"}, 3, "method='merge' needs replies of single sites"),
        ({"method": Merge()}, 3, "needs replies of single sites"),
        ({"method": "power"}, 3, r"Pass Power\(local_steps=1\)"),
        ({"method": Power(local_steps=4)}, 3, r"Pass Power\(local_steps=1\)"),
        ({"method": Subspace(start="merge")}, 3, r"Pass Subspace\(start='random'\)"),
    ],
)
def test_what_cannot_be_summed_securely_is_refused(
    parameters: dict[str, Any], sites: int, message: str
) -> None:
    tables: Any = in_parts(ROWS[:, :8], sites)
    if parameters.get("split") == "features":
        ids = [f"row {i}" for i in range(len(ROWS))]
        tables = {
            f"s{i}": pd.DataFrame(ROWS[:, [i]], columns=[f"x{i}"], index=ids) for i in range(3)
        }
    with pytest.raises(PrivacyError, match=message):
        FederatedPCA(1, secure=True, **parameters).fit_sites(tables)


def test_a_site_whose_weights_are_all_zero_adds_nothing() -> None:
    sites = in_parts(ROWS, 4)
    weight = {"s1": np.zeros(len(sites["s1"]))}
    safe = FederatedPCA(2, secure=True, random_state=0).fit_sites(sites, sample_weight=weight)
    others = {name: part for name, part in sites.items() if name != "s1"}
    plain = FederatedPCA(2, random_state=0).fit_sites(others)
    np.testing.assert_allclose(safe.explained_variance_, plain.explained_variance_, rtol=1e-11)
    np.testing.assert_allclose(safe.mean_, plain.mean_, rtol=1e-12)


@pytest.mark.parametrize("method", ["covariance", "krylov", "randomized", "subspace"])
@pytest.mark.parametrize("center", [True, "site"])
@pytest.mark.parametrize("scale", [False, True])
def test_rows_that_do_not_vary_have_no_variance(method: str, center: Any, scale: bool) -> None:
    ulps = 0.3 + np.arange(30.0).reshape(15, 2) % 2 * 2.0**-54
    for rows in (np.zeros((15, 2)), np.full((15, 2), np.nan), np.full((15, 2), 1e9 / 3), ulps):
        pca = FederatedPCA(1, method=method, center=center, scale=scale, secure=True)
        pca.fit_sites(in_parts(rows, 3))
        assert 0.0 <= pca.total_variance_ < 1e-10


def test_a_feature_too_small_beside_others_to_be_scaled_does_not_end_a_run() -> None:
    rows = np.column_stack([np.full(120, 1e60), ROWS[:, 0]])
    for method in ("covariance", "krylov"):
        pca = FederatedPCA(1, method=method, scale=True, secure=True).fit_sites(in_parts(rows, 3))
        np.testing.assert_array_equal(pca.scale_, 1.0)


@pytest.mark.parametrize("method", ["covariance", "krylov", "randomized", "subspace"])
def test_entries_whose_squares_vanish_count_as_zero(method: str) -> None:
    sites = in_parts(1e-200 * ROWS, 3)
    for scale in (False, True):
        pca = FederatedPCA(2, method=method, scale=scale, secure=True).fit_sites(sites)
        assert 0.0 <= pca.total_variance_ < 1e-300


@pytest.mark.parametrize("method", ["covariance", "krylov", "subspace"])
@pytest.mark.parametrize("unit", [1e6, 1e9])
def test_bounds_count_the_error_of_means_where_entries_are_missing(
    method: str, unit: float
) -> None:
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((60, 4)) @ rng.standard_normal((4, 4)) + rng.standard_normal(4)
    rows[:, 0] *= unit
    rows[rng.random((60, 4)) < 0.2] = np.nan
    within = rows.astype(np.longdouble)
    within = np.nan_to_num(within - np.nanmean(within, axis=0))
    within /= np.sqrt((within**2).sum(axis=0) / (~np.isnan(rows)).sum(axis=0))
    exact = np.linalg.eigh((within.T @ within).astype(np.float64))[1][:, :-3:-1].T
    safe = FederatedPCA(2, method=method, scale=True, secure=True, random_state=0)
    safe.fit_sites(in_parts(rows, 3))
    assert safe.certificate_ is not None
    assert sines(safe.components_, exact)[0] <= safe.certificate_.angle_bound < 1e-4
