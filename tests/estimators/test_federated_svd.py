"""Truncated SVD over sites: the attributes of scikit-learn on pooled rows."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.utils.estimator_checks import parametrize_with_checks

from eigenfed import FederatedSVD, InputError, PrivacyError

RNG = np.random.default_rng(3)
DENSE = RNG.standard_normal((90, 12)) * np.linspace(4.0, 1.0, 12) + RNG.standard_normal(12)
SPARSE = sparse.random_array((90, 30), density=0.2, rng=5, format="csr")


@parametrize_with_checks([FederatedSVD()])  # type: ignore[untyped-decorator]
def test_scikit_learn_contract(estimator: Any, check: Any) -> None:
    check(estimator)


def as_sites(X: Any) -> dict[str, Any]:
    return {"a": X[:10], "b": X[10:40], "c": X[40:]}


@pytest.mark.parametrize("X", [DENSE, SPARSE], ids=["dense", "sparse"])
@pytest.mark.parametrize(
    "parameters",
    [{"method": "covariance"}, {"method": "krylov"}, {"secure": True}],
    ids=lambda parameters: str(*parameters.values()),
)
def test_attributes_are_those_of_scikit_learn(X: Any, parameters: dict[str, Any]) -> None:
    exact = TruncatedSVD(3, algorithm="arpack").fit(X)
    ours = FederatedSVD(3, tol=1e-9, random_state=0, **parameters)
    ours.fit_sites(as_sites(X))
    np.testing.assert_allclose(ours.singular_values_, exact.singular_values_, rtol=1e-9)
    for name in ("explained_variance_", "explained_variance_ratio_"):
        np.testing.assert_allclose(getattr(ours, name), getattr(exact, name), rtol=1e-6)
    signs = np.sign((ours.components_ * exact.components_).sum(axis=1))
    np.testing.assert_allclose(ours.components_ * signs[:, None], exact.components_, atol=1e-6)
    np.testing.assert_allclose(ours.transform(X) * signs, exact.transform(X), atol=1e-5)
    scores = ours.transform(X)
    np.testing.assert_allclose(ours.inverse_transform(scores), scores @ ours.components_)


def test_it_runs_as_an_uncentred_pca_does() -> None:
    ours = FederatedSVD(2, random_state=0).fit(DENSE, groups=np.arange(90) % 3)
    assert ours.method_ == "covariance"
    assert ours.n_rounds_ == 2
    assert ours.n_samples_ == 90
    assert ours.certificate_ is not None
    assert ours.certificate_.converged.all()
    assert set(ours.egress_) == {"0", "1", "2"}
    assert ours.leakage_.rank_fraction == 1.0


def test_weights_count_as_repeated_rows() -> None:
    weights = np.arange(90) % 3 + 1
    ours = FederatedSVD(2).fit(DENSE, sample_weight=weights)
    repeated = FederatedSVD(2).fit(np.repeat(DENSE, weights, axis=0))
    for name in ("singular_values_", "explained_variance_", "explained_variance_ratio_"):
        np.testing.assert_allclose(getattr(ours, name), getattr(repeated, name), rtol=1e-9)


def test_one_row_and_rows_of_zeros_have_an_svd() -> None:
    row: npt.NDArray[np.float64] = np.array([[3.0, 4.0]])
    ours = FederatedSVD(1).fit(row)
    np.testing.assert_allclose(ours.singular_values_, [5.0])
    np.testing.assert_allclose(ours.explained_variance_, [0.0], atol=1e-12)
    zeros = FederatedSVD(1).fit(np.zeros((4, 2)))
    np.testing.assert_array_equal(zeros.explained_variance_ratio_, [0.0])


def test_what_it_cannot_do_is_refused() -> None:
    holes = DENSE.copy()
    holes[0, 0] = np.nan
    for refused in (
        FederatedSVD(1).fit,
        FederatedSVD(1).fit(DENSE).transform,
        FederatedSVD(1).fit(DENSE).transform_aligned,
    ):
        # There is no center to choose.
        with pytest.raises(InputError, match=r"^X holds NaN, and rows that .* Impute it first\.$"):
            refused(holes)
    with pytest.raises(PrivacyError, match="3 sites at least"):
        FederatedSVD(1, secure=True).fit(DENSE)
