"""Covariance, precision, likelihood and whitening equal those of scikit-learn on pooled rows."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from eigenfed import FederatedPCA, InputError, StreamingPCA

N, D = 120, 9


def rows(n: int = N, d: int = D) -> npt.NDArray[np.float64]:
    rng = np.random.default_rng(7)
    scales = 1.0 + 4.0 / np.arange(1, d + 1)
    return rng.standard_normal((n, d)) * scales + rng.standard_normal(d)


X = rows()
GROUPS = np.arange(N) % 3


def fitted(name: str, k: int, X: npt.NDArray[np.float64] = X, **parameters: Any) -> Any:
    if name == "stream":
        return StreamingPCA(k, **parameters).fit(X)
    return FederatedPCA(k, method=name, tol=1e-9, random_state=0, **parameters).fit(
        X, groups=np.arange(len(X)) % 3
    )


@pytest.mark.parametrize("name", ["covariance", "krylov", "stream"])
@pytest.mark.parametrize("k", [1, 4, D])
def test_the_model_is_that_of_scikit_learn(name: str, k: int) -> None:
    exact, ours = PCA(k).fit(X), fitted(name, k)
    new = X[:20] * 1.5
    assert ours.noise_variance_ == pytest.approx(exact.noise_variance_, rel=1e-9)
    np.testing.assert_allclose(ours.get_covariance(), exact.get_covariance(), atol=1e-8)
    np.testing.assert_allclose(ours.get_precision(), exact.get_precision(), atol=1e-8)
    np.testing.assert_allclose(ours.score_samples(new), exact.score_samples(new), rtol=1e-8)
    assert ours.score(new) == pytest.approx(exact.score(new), rel=1e-9)
    table = sparse.csr_array(new)
    np.testing.assert_allclose(ours.score_samples(table), exact.score_samples(new), rtol=1e-8)


@pytest.mark.parametrize("name", ["covariance", "stream"])
def test_whitened_scores_are_those_of_scikit_learn(name: str) -> None:
    exact, ours = PCA(3, whiten=True).fit(X), fitted(name, 3, whiten=True)
    scores = ours.transform(X)
    np.testing.assert_allclose(scores, exact.transform(X), atol=1e-8)
    np.testing.assert_allclose(scores.var(axis=0, ddof=1), 1.0, rtol=1e-9)
    back = ours.inverse_transform(X=scores)
    np.testing.assert_allclose(back, exact.inverse_transform(X=scores), atol=1e-8)
    plain = PCA(3).fit(X)  # the rows' own covariance does not depend on what transform divides by
    np.testing.assert_allclose(ours.get_covariance(), plain.get_covariance(), atol=1e-8)
    assert ours.score(X) == pytest.approx(plain.score(X), rel=1e-9)


def test_with_fewer_rows_than_features_noise_is_spread_over_the_rows_there_are() -> None:
    wide = rows(12, 40)
    exact = PCA(4).fit(wide)
    for name in ("covariance", "krylov", "stream"):
        ours = fitted(name, 4, wide)
        assert ours.noise_variance_ == pytest.approx(exact.noise_variance_, rel=1e-8)
        assert ours.score(wide) == pytest.approx(exact.score(wide), rel=1e-7)


def test_a_scaled_model_is_that_of_a_pipeline_with_a_scaler() -> None:
    exact = make_pipeline(StandardScaler(), PCA(3)).fit(X)
    ours = FederatedPCA(3, scale=True, whiten=True).fit(X, groups=GROUPS)
    assert ours.score(X) == pytest.approx(exact.score(X), rel=1e-9)
    np.testing.assert_allclose(ours.get_covariance(), exact[-1].get_covariance(), atol=1e-9)
    back = ours.inverse_transform(ours.transform(X))
    np.testing.assert_allclose(back, exact.inverse_transform(exact.transform(X)))


def test_a_grid_search_by_likelihood_chooses_as_with_scikit_learn() -> None:
    grid = {"n_components": [1, 3, 6]}
    exact = GridSearchCV(PCA(), grid, cv=3).fit(X)
    ours = GridSearchCV(FederatedPCA(), grid, cv=3).fit(X)
    assert ours.best_params_ == exact.best_params_
    np.testing.assert_allclose(
        ours.cv_results_["mean_test_score"], exact.cv_results_["mean_test_score"], rtol=1e-7
    )


def test_a_singular_model_and_missing_entries_are_refused() -> None:
    wide = rows(6, 10)
    for ours in (FederatedPCA(6).fit(wide), StreamingPCA(6).fit(wide)):
        for ask in (ours.get_precision, lambda ours=ours: ours.score(wide)):
            with pytest.raises(InputError, match=r"6 components in 10 features is singular.*Lower"):
                ask()
        assert np.isfinite(ours.get_covariance()).all()
    holes = X.copy()
    holes[0, 0] = np.nan
    with pytest.raises(InputError, match="no likelihood"):
        FederatedPCA(2).fit(holes).score(holes)


def test_whitened_scores_of_rows_without_variance_are_finite() -> None:
    flat = np.outer(np.arange(8.0), np.ones(3))
    scores = FederatedPCA(2, whiten=True).fit(flat).transform(flat)
    assert np.isfinite(scores).all()


def test_whiten_must_be_a_flag() -> None:
    estimators: list[Any] = [FederatedPCA, StreamingPCA]
    for estimator in estimators:
        with pytest.raises(InputError, match="whiten='yes' must be True or False"):
            estimator(whiten="yes").fit(X)
