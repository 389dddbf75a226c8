"""Components of what varies within sites: no mean leaves, and all rows in one place agree."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from eigenfed import FederatedPCA, InputError, Privacy, PrivacyError
from eigenfed.data.source import Source
from eigenfed.linalg.orthonormal import sines
from eigenfed.protocol.exact.covariance import ScatterRequest, scatter
from eigenfed.protocol.exact.merge import SummaryRequest, summarise
from eigenfed.protocol.exact.moments import SquaresRequest, squares
from eigenfed.protocol.exact.own_means import WeightsRequest, weights
from eigenfed.protocol.exact.products import ProductRequest, product
from eigenfed.protocol.messages import pack
from eigenfed.protocol.operations import State, Terms
from eigenfed.protocol.study import Study

RNG = np.random.default_rng(11)
LEVELS = {"a": 40.0, "b": -10.0, "c": 0.0}
SITES = {
    name: RNG.standard_normal((n, 8)) * np.linspace(3.0, 1.0, 8) + level * np.eye(8)[5]
    for (name, level), n in zip(LEVELS.items(), (50, 80, 120), strict=True)
}
WITHIN = np.vstack([X - X.mean(axis=0) for X in SITES.values()])
METHODS = ("covariance", "krylov", "randomized", "subspace", "power", "merge")


def fitted(**parameters: Any) -> FederatedPCA:
    ours = FederatedPCA(3, center="site", random_state=0, max_rounds=300, **parameters)
    return ours.fit_sites(SITES)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_finds_what_varies_within_sites(method: str) -> None:
    exact, ours = PCA(3).fit(WITHIN), fitted(method=method)
    rtol = 1e-6 if method in ("covariance", "krylov") else 0.03
    np.testing.assert_allclose(ours.explained_variance_, exact.explained_variance_, rtol=rtol)
    if method in ("covariance", "krylov"):
        np.testing.assert_allclose(ours.components_, exact.components_, atol=1e-4)
        assert ours.total_variance_ == pytest.approx(WITHIN.var(axis=0, ddof=1).sum())
    assert (
        abs(ours.components_[0, 5]) < 0.5 < abs(FederatedPCA(1).fit_sites(SITES).components_[0, 5])
    )
    np.testing.assert_array_equal(ours.mean_, 0.0)


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("scale", [False, True])
def test_sums_are_about_own_means_also_scaled_and_masked(secure: bool, scale: bool) -> None:
    ours = fitted(secure=secure, scale=scale)
    exact = PCA(3).fit(StandardScaler(with_std=scale).fit_transform(WITHIN))
    np.testing.assert_allclose(ours.explained_variance_, exact.explained_variance_, rtol=1e-7)
    names = [entry.op for entry in ours.egress_["a"]]
    assert "weights" in names
    assert "moments" not in names


def test_what_leaves_does_not_depend_on_the_means_of_sites() -> None:
    """Rows moved by a constant give the same replies, bit for bit."""
    half = np.round(SITES["a"])
    rows = np.vstack([half, -half])  # a mean of exactly 0
    frame: dict[str, Any] = {"mean": np.zeros(8), "scale": np.ones(8)}
    requests: dict[Any, Any] = {
        scatter: ScatterRequest(**frame),
        product: ProductRequest(basis=np.eye(8)[:, :2], **frame),
        summarise: SummaryRequest(**frame),
        squares: SquaresRequest(mean=np.zeros(8)),
    }
    for method, ops in (("covariance", (scatter, squares)), ("merge", (summarise, product))):
        terms = Terms(Study(("a",), 2, method, center="site", scale=True), len(rows), 8)
        for op in ops:
            replies = []
            for moved in (rows, rows + 2.0**6):
                source = Source.of(moved)
                first = weights.run(source, WeightsRequest(), State(), terms)
                state = requests[op].apply_to(terms, first.state)
                reply = op.run(source, requests[op], state, terms).reply
                replies.append(pack(first.reply) | pack(reply))
            for name, array in replies[0].items():
                np.testing.assert_array_equal(array, replies[1][name])


def test_a_site_projects_about_its_own_mean() -> None:
    ours, exact = fitted(), PCA(3).fit(WITHIN)
    start = 0
    for name, X in SITES.items():
        scores = ours.at_site(name).transform(X)
        expected = exact.transform(WITHIN)[start : start + len(X)]
        np.testing.assert_allclose(scores, expected, atol=1e-8)
        np.testing.assert_allclose(ours.at_site("new", X).transform(X), expected, atol=1e-8)
        back = ours.at_site(name).inverse_transform(scores)
        np.testing.assert_allclose(back.mean(axis=0), X.mean(axis=0))
        start += len(X)
    assert ours.at_site("a").score(SITES["a"]) < 0.0
    np.testing.assert_allclose(ours.get_covariance(), exact.get_covariance(), atol=1e-9)
    labels = np.repeat(list(SITES), [len(X) for X in SITES.values()])
    joint = FederatedPCA(3, center="site").fit_transform(
        np.vstack(list(SITES.values())), groups=labels
    )
    np.testing.assert_allclose(joint, exact.transform(WITHIN), atol=1e-8)


def test_missing_entries_count_as_the_mean_of_their_site() -> None:
    holes = {name: X.copy() for name, X in SITES.items()}
    holes["b"][::7, 2] = np.nan
    filled = [np.where(np.isnan(X), np.nanmean(X, axis=0), X) for X in holes.values()]
    exact = PCA(3).fit(np.vstack([X - X.mean(axis=0) for X in filled]))
    ours = FederatedPCA(3, center="site").fit_sites(holes)
    np.testing.assert_allclose(ours.explained_variance_, exact.explained_variance_)
    tables = {name: sparse.csr_array(X) for name, X in SITES.items()}
    same = FederatedPCA(3, center="site").fit_sites(tables)
    np.testing.assert_allclose(same.explained_variance_, fitted().explained_variance_)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match=r"site of these rows is not known. Call at_site"):
        fitted().transform(SITES["a"])
    with pytest.raises(InputError, match="'d' was not fitted"):
        fitted().at_site("d")
    with pytest.raises(InputError, match="at_site requires center='site'"):
        FederatedPCA(1).fit_sites(SITES).at_site("a")
    with pytest.raises(PrivacyError, match="center='site' cannot be combined with privacy"):
        FederatedPCA(1, center="site", privacy=Privacy(1.0, 1e-6)).fit_sites(SITES)
    with pytest.raises(InputError, match="center='mean' must be True, False or 'site'"):
        FederatedPCA(1, center="mean").fit_sites(SITES)
    with pytest.raises(InputError, match="center='site' requires split='samples'"):
        FederatedPCA(1, center="site", split="features").fit_sites(
            {name: X[:50] for name, X in SITES.items()},
            keys={name: np.arange(50) for name in SITES},
        )
    for wrong in ({"privacy": Privacy(1.0, 1e-6)}, {"split": "features"}, {"center": 1}):
        with pytest.raises(InputError, match="center"):
            Study(("a",), 2, **({"center": "site"} | wrong))


@pytest.mark.parametrize("secure", [False, True])
def test_a_constant_feature_is_not_scaled(secure: bool) -> None:
    weight = {name: RNG.random(len(X)) for name, X in SITES.items()}
    constant = {name: np.where(np.eye(8)[2] > 0.0, 3.7, X) for name, X in SITES.items()}
    ours = FederatedPCA(3, center="site", scale=True, secure=secure, random_state=0)
    ours.fit_sites(constant, sample_weight=weight)
    assert ours.scale_[2] == 1.0
    n = sum(weights.sum() for weights in weight.values())
    assert ours.total_variance_ == pytest.approx(7.0 * n / (n - 1.0))


@pytest.mark.parametrize("method", [*METHODS, "factors"])
@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("scale", [False, True])
def test_bounds_hold_for_rows_far_from_zero(method: str, is_sparse: bool, scale: bool) -> None:
    rng = np.random.default_rng(0)
    groups = np.arange(60) % 3
    for offset in (1e3, 1e7, 1e12):
        rows = rng.standard_normal((60, 6)) * 0.7 ** np.arange(6) + offset
        within = rows.astype(np.longdouble)
        for site in range(3):
            within[groups == site] -= within[groups == site].mean(axis=0)
        if scale:
            within /= np.sqrt((within**2).mean(axis=0))
        exact = np.linalg.eigh((within.T @ within).astype(np.float64))[1][:, :-3:-1].T
        pca = FederatedPCA(2, center="site", scale=scale, method=method, random_state=0)
        pca.fit(sparse.csr_array(rows) if is_sparse else rows, groups=groups)
        assert pca.certificate_ is not None
        assert sines(pca.components_, exact)[0] <= pca.certificate_.angle_bound + 1e-15


@pytest.mark.parametrize("method", [*METHODS, "factors"])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_rows_that_do_not_vary_within_sites_have_no_variance(method: str, is_sparse: bool) -> None:
    # A mean of equal numbers is off by rounding, with which a direction would be certified.
    rows = np.repeat(np.random.default_rng(0).standard_normal((3, 4)), 7, axis=0) + 0.1
    weight = np.where(np.arange(21) % 7 == 0, 0.0, 3.0)
    for empty in (False, True):
        X = np.where(empty & (weight == 0.0)[:, None], 0.0, rows)
        pca = FederatedPCA(1, center="site", method=method)
        table = sparse.csr_array(X) if is_sparse else X
        pca.fit(table, groups=np.arange(21) // 7, sample_weight=weight)
        assert pca.certificate_ is not None
        assert (pca.total_variance_, pca.certificate_.basis) == (0.0, "none")
