"""The number of components: fractions as in scikit-learn, all, parallel analysis, refusals."""

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from eigenfed import (
    Covariance,
    FederatedPCA,
    FederatedSVD,
    InputError,
    Policy,
    Privacy,
    PrivacyError,
    SiteRefused,
    StreamingPCA,
    Subspace,
)
from eigenfed.protocol.component_count import check_components, find_count, noise_edge
from eigenfed.protocol.study import Study

X = load_digits().data[::10, 8:40]
GROUPS = np.arange(len(X)) % 4


@pytest.mark.parametrize("method", ["covariance", "krylov"])
@pytest.mark.parametrize(
    ("fraction", "secure"), [(0.01, False), (0.5, True), (0.9, False)], ids=str
)
def test_a_fraction_of_the_variance_is_that_of_scikit_learn(
    method: str, fraction: float, secure: bool
) -> None:
    exact = PCA(fraction, svd_solver="full").fit(X)
    ours = FederatedPCA(fraction, method=method, secure=secure, random_state=0)
    ours.fit(X, groups=GROUPS)
    assert ours.n_components_ == exact.n_components_ == len(ours.components_)
    np.testing.assert_allclose(ours.explained_variance_, exact.explained_variance_, rtol=1e-7)
    assert ours.get_feature_names_out()[-1] == f"federatedpca{exact.n_components_ - 1}"


def test_none_takes_all_components() -> None:
    few = X[:20]
    for rows, count in ((few, 20), (X, 32)):
        ours = FederatedPCA(None).fit(rows)
        assert ours.n_components_ == count
        assert ours.explained_variance_ratio_.sum() == pytest.approx(1.0)
    for method in ("krylov", "merge", "subspace", "randomized"):
        ours = FederatedPCA(None, method=method, max_rounds=5).fit(
            few[:, 10:20], groups=GROUPS[:20]
        )
        assert ours.n_components_ == 10


def test_the_rule_of_auto_is_parallel_analysis() -> None:
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((400, 30))
    signal = noise * np.r_[3.0, 2.5, 2.0, np.ones(27)]
    found = {method: FederatedPCA("auto", method=method).fit(signal) for method in METHODS}
    assert {ours.n_components_ for ours in found.values()} == {3}
    pure = FederatedPCA("auto").fit(noise)
    assert pure.n_components_ == 1
    assert pure.explained_variance_[0] < noise_edge(pure.total_variance_, 400, 30)
    # Horn's own procedure: the 95 % quantile over random draws of the same shape.
    drawn = [
        np.linalg.norm(center(rng.standard_normal((400, 30))), 2) ** 2 / 399 for _ in range(60)
    ]
    assert noise_edge(30.0, 400, 30) == pytest.approx(np.quantile(drawn, 0.95), rel=0.04)


METHODS = ("covariance", "krylov")


def center(rows: Any) -> Any:
    return rows - rows.mean(axis=0)


def test_an_uncentred_fraction_is_one_of_the_sum_of_squares() -> None:
    s = np.linalg.svd(X, compute_uv=False) ** 2
    count = int(np.searchsorted(np.cumsum(s) / s.sum(), 0.9, side="right")) + 1
    assert FederatedSVD(0.9).fit(X).n_components_ == count


def test_a_number_is_needed_where_it_must_be_known_beforehand() -> None:
    for k in (0.9, "auto", None):
        with pytest.raises(PrivacyError, match=r"n_components=.* cannot be combined with privacy"):
            FederatedPCA(k, privacy=Privacy(1.0, 1e-6)).fit(X, groups=GROUPS)
        halves = {"a": X[:, :15], "b": X[:, 15:]}
        keys = dict.fromkeys(halves, np.arange(len(X)))
        with pytest.raises(InputError, match=r"cannot be combined with split='features'"):
            FederatedPCA(k, split="features").fit_sites(halves, keys=keys)
    for method in ("merge", "power", "subspace", "randomized", Covariance(precision="single")):
        with pytest.raises(InputError, match="needs the number of components before it starts"):
            FederatedPCA(0.9, method=method).fit(X)
    for k in (0.0, 1.0, 1.5, -0.5, "mle", float("nan")):
        with pytest.raises(InputError, match=r"a fraction of the variance between 0 and 1, None"):
            FederatedPCA(k).fit(X)


def test_a_site_refuses_to_reveal_more_than_its_policy_allows() -> None:
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((300, 200)) * 0.8 ** np.arange(200) + 0.01 * rng.standard_normal(200)
    sites = {"a": rows[:200], "b": rows[200:]}
    policy = Policy(max_rank_fraction=0.6)
    ours = FederatedPCA(0.9, method="krylov", random_state=0)
    ours.fit_sites(sites, policies={"a": policy})
    assert 1 < ours.n_components_ < 15
    assert ours.leakage_.rank_fraction <= 0.6
    sites = {"a": X[:90], "b": X[90:]}
    with pytest.raises(SiteRefused, match="revealed more than its policy allows"):
        FederatedPCA(0.95, method="krylov").fit_sites(sites, policies={"a": policy})


def test_a_fraction_that_is_not_reached_in_time_is_an_error() -> None:
    with pytest.raises(InputError, match=r"0.95 of the variance .* Raise max_rounds"):
        FederatedPCA(0.95, method="krylov", max_rounds=1, random_state=0).fit(
            np.random.default_rng(3).standard_normal((100, 80))
        )


def test_a_stream_that_keeps_its_scatter_finds_the_number_when_it_is_read() -> None:
    stream = StreamingPCA(0.9)
    for batch in np.array_split(X, 5):
        stream.partial_fit(batch)
    exact = PCA(0.9, svd_solver="full").fit(X)
    assert stream.n_components_ == exact.n_components_ == len(stream.components_)
    np.testing.assert_allclose(stream.explained_variance_, exact.explained_variance_)
    assert stream.transform(X[:3]).shape == (3, exact.n_components_)
    assert stream.sine_bound_ < 1e-6
    assert StreamingPCA(None).fit(X[:20]).n_components_ == 20
    assert StreamingPCA("auto").fit(X).n_components_ == FederatedPCA("auto").fit(X).n_components_
    wide = np.zeros((3, 513))
    for refused in ({"rank": "adaptive"}, {"memory": "low_rank"}, {"oversample": 3}, {}):
        with pytest.raises(InputError, match=r"n_components=0.9 requires .*memory='gram'"):
            StreamingPCA(0.9, **refused).fit(wide)
    with pytest.raises(InputError, match="privacy requires n_components as an integer"):
        StreamingPCA(0.9, privacy=Privacy(1.0, 1e-6)).fit(X)
    assert StreamingPCA(0.9, memory="gram").fit(wide).n_components_ == 3


def test_studies_hold_what_a_number_can_be() -> None:
    for components in (3, 0.5, "all", "auto"):
        check_components(components)
        study = Study(("a",), components)
        assert Study.from_bytes(study.to_bytes()) == study
    for wrong in (0, -1, True, 0.0, 1.0, float("nan"), "some", None):
        with pytest.raises(InputError, match="components of a study"):
            Study(("a",), wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="must be an integer"):
        Study(("a",), 0.5, split="features")


def test_more_eigenvalues_are_asked_for_until_the_number_is_known() -> None:
    values = np.array([5.0, 3.0, 1.0, 1.0])
    for known, expected in ((1, None), (2, None), (3, 3)):
        assert find_count(0.85, values[:known], total=10.0, n=100, d=4) == expected
    assert find_count("auto", values[:1], total=10.0, n=100, d=4) is None
    assert find_count("auto", values[:3], total=10.0, n=100, d=4) == 1


@pytest.mark.parametrize("method", ["auto", "krylov", "factors"])
@pytest.mark.parametrize("total", [3.0, 5000.0])
def test_none_takes_all_components_of_weighted_rows(method: str, total: float) -> None:
    weights = np.random.default_rng(0).random(20)
    weights *= total / weights.sum()
    ours = FederatedPCA(None, method=method, random_state=0).fit(
        X[:20], groups=GROUPS[:20], sample_weight=weights
    )
    assert ours.n_components_ == 20
    assert ours.explained_variance_ratio_.sum() == pytest.approx(1.0)


def test_a_fraction_does_not_end_at_the_sum_of_the_weights() -> None:
    rng = np.random.default_rng(0)
    rows, weights = rng.standard_normal((90, 60)), np.full(90, 5.0 / 90.0)
    exact = FederatedPCA(0.95).fit(rows)
    ours = FederatedPCA(0.95, method="krylov", random_state=0).fit(rows, sample_weight=weights)
    assert ours.n_components_ == exact.n_components_ > 32
    assert find_count(0.9, np.array([3.0, 2.0]), total=10.0, n=2.5, d=4) is None
    assert find_count(0.9, np.zeros(2), total=0.0, n=2.0, d=4) == 2


@pytest.mark.parametrize("options", [{}, {"orthonormalise": "each"}], ids=str)
def test_subspace_iteration_finds_all_components_of_few_rows(options: dict[str, Any]) -> None:
    exact = PCA(None).fit(X[:12])
    ours = FederatedPCA(None, method=Subspace(**options), random_state=0, max_rounds=200)
    ours.fit(X[:12], groups=GROUPS[:12])
    np.testing.assert_allclose(
        ours.explained_variance_, exact.explained_variance_, atol=1e-6 * X.var()
    )
