"""FederatedPCA against the PCA of all rows in one place."""

import math
import pickle
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from eigenfed import (
    EigenfedError,
    FederatedPCA,
    InputError,
    Merge,
    Policy,
    Power,
    SiteRefused,
    Subspace,
)
from eigenfed.arrays import Array
from eigenfed.linalg.orthonormal import sines
from eigenfed.privacy.ledger.ledger import Ledger
from eigenfed.transport import Local

EXACT = ("covariance", "factors", "krylov", "randomized", "subspace")
METHODS = (*EXACT, "power", "merge")


def rows(n: int = 400, d: int = 20, *, seed: int = 0, offset: float = 5.0) -> Array:
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    X: Array = (rng.standard_normal((n, d)) * 0.6 ** np.arange(d)) @ basis + offset
    return X


def shifted_sites(sizes: tuple[int, ...] = (200, 37, 3, 160), d: int = 20) -> dict[str, Array]:
    """Sites of unequal size whose means differ, one with fewer rows than components."""
    shifts = np.random.default_rng(9).standard_normal((len(sizes), d))
    return {f"s{i}": rows(n, d, seed=i) + shifts[i] for i, n in enumerate(sizes)}


def stacked(sites: dict[str, Array]) -> Array:
    return np.vstack([sites[name] for name in sorted(sites)])


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [FederatedPCA(), FederatedPCA(method="krylov", tol=1e-12), FederatedPCA(scale=True)]
)
def test_scikit_learn_contract(estimator: FederatedPCA, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("as_sparse", [False, True])
def test_every_method_finds_the_pooled_subspace(method: str, as_sparse: bool) -> None:
    sites = shifted_sites()
    tables = {n: sparse.csr_array(X) if as_sparse else X for n, X in sites.items()}
    exact = PCA(4).fit(stacked(sites))
    ours = FederatedPCA(4, method=method, random_state=0, max_rounds=300).fit_sites(tables)
    assert ours.method_ == method
    assert ours.certificate_ is not None
    limit = 1e-5 if method in EXACT else 0.05
    assert sines(ours.components_, exact.components_)[0] < limit
    rtol = 1e-9 if method in EXACT else 1e-2
    np.testing.assert_allclose(ours.explained_variance_, exact.explained_variance_, rtol=rtol)
    total = exact.explained_variance_[0] / exact.explained_variance_ratio_[0]
    np.testing.assert_allclose(ours.certificate_.total_variance, total, rtol=1e-9)
    angle = np.arcsin(sines(ours.components_, exact.components_)[0])
    assert angle <= ours.certificate_.angle_bound + 1e-12


@pytest.mark.parametrize("method", ["covariance", "krylov"])
def test_projector_to_nine_digits_where_asked_for(method: str) -> None:
    sites = shifted_sites()
    exact = PCA(4).fit(stacked(sites))
    ours = FederatedPCA(4, method=method, tol=1e-12, random_state=0).fit_sites(sites)
    assert sines(ours.components_, exact.components_)[0] < 1e-9
    np.testing.assert_allclose(ours.components_, exact.components_, atol=1e-8)
    np.testing.assert_allclose(ours.mean_, exact.mean_, rtol=1e-12)
    np.testing.assert_allclose(ours.noise_variance_, exact.noise_variance_, rtol=1e-8)
    np.testing.assert_allclose(ours.singular_values_, exact.singular_values_, rtol=1e-9)
    X = stacked(sites)
    np.testing.assert_allclose(ours.transform(X), exact.transform(X), atol=1e-7)
    np.testing.assert_allclose(
        ours.inverse_transform(ours.transform(X)),
        exact.inverse_transform(exact.transform(X)),
        atol=1e-7,
    )


@pytest.mark.parametrize("method", ["covariance", "krylov"])
@pytest.mark.parametrize("scale", [False, True])
def test_missing_entries_count_as_the_mean_of_all(method: str, scale: bool) -> None:
    sites = shifted_sites()
    sites["s1"][:, 4] = np.nan
    rng = np.random.default_rng(3)
    sites["s0"][rng.random(sites["s0"].shape) < 0.1] = np.nan
    pooled = StandardScaler(with_std=scale).fit_transform(stacked(sites))
    exact = PCA(3).fit(np.nan_to_num(pooled, nan=0.0))
    ours = FederatedPCA(3, method=method, scale=scale, tol=1e-12, random_state=0)
    ours.fit_sites(sites)
    np.testing.assert_allclose(ours.explained_variance_, exact.explained_variance_, rtol=1e-9)
    assert sines(ours.components_, exact.components_)[0] < 1e-8


def test_scaled_scores_are_those_of_scaled_rows() -> None:
    X = rows() * 10.0 ** np.arange(20)
    exact = PCA(3).fit(StandardScaler().fit_transform(X))
    ours = FederatedPCA(3, scale=True).fit(X, groups=np.arange(400) % 3)
    np.testing.assert_allclose(ours.scale_, X.std(axis=0))
    np.testing.assert_allclose(
        ours.transform(X), exact.transform(StandardScaler().fit_transform(X)), atol=1e-8
    )
    np.testing.assert_allclose(
        FederatedPCA(20, scale=True)
        .fit(X)
        .inverse_transform(FederatedPCA(20, scale=True).fit(X).transform(X)),
        X,
        rtol=1e-8,
    )


def test_groups_may_be_of_any_kind_and_order() -> None:
    X = rows()
    labels = np.array(["b", "a", "c"])[np.arange(400) % 3]
    ours = FederatedPCA(3).fit(X, groups=labels)
    sorted_ = FederatedPCA(3).fit(X[np.argsort(labels, kind="stable")], groups=np.sort(labels))
    np.testing.assert_array_equal(ours.components_, sorted_.components_)
    np.testing.assert_allclose(ours.components_, PCA(3).fit(X).components_, atol=1e-9)
    with pytest.raises(InputError, match=r"groups has shape \(3,\) and must be \(400,\)"):
        FederatedPCA().fit(X, groups=[1, 2, 3])


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT])
def test_labels_of_several_kinds_are_text_and_missing_ones_are_refused(missing: Any) -> None:
    X, labels = rows(), pd.Series([1, "a"] * 200, dtype=object)
    assert sorted(FederatedPCA(3).fit(X, groups=labels).egress_) == ["1", "a"]
    labels[5], labels[8] = missing, missing
    with pytest.raises(InputError, match="no site for 2 of 400 rows, first for row 5"):
        FederatedPCA(3).fit(X, groups=labels)
    numbers = np.where(np.arange(400) == 7, np.nan, 1.0)
    with pytest.raises(InputError, match="no site for 1 of 400 rows, first for row 7"):
        FederatedPCA(3).fit(X, groups=numbers)


def test_weights_stand_for_repeated_rows() -> None:
    X = rows()
    weights = np.random.default_rng(0).integers(0, 3, 400)
    weighted = FederatedPCA(3).fit(X, groups=np.arange(400) // 90, sample_weight=weights)
    exact = PCA(3).fit(np.repeat(X, weights, axis=0))
    np.testing.assert_allclose(weighted.explained_variance_, exact.explained_variance_, rtol=1e-9)
    by_site = FederatedPCA(3).fit_sites(
        {"a": X[:100], "b": X[100:]}, sample_weight={"a": weights[:100], "b": weights[100:]}
    )
    np.testing.assert_allclose(by_site.components_, weighted.components_, atol=1e-9)


def test_frames_are_aligned_by_name_across_sites() -> None:
    sites = shifted_sites(d=6)
    frames = {
        name: pd.DataFrame(X, columns=list("abcdef"))[list("abcdef")[:: 1 if i % 2 else -1]]
        for i, (name, X) in enumerate(sites.items())
    }
    ours = FederatedPCA(2).fit_sites(frames)
    names = list(ours.feature_names_in_)
    exact = PCA(2).fit(pd.DataFrame(stacked(sites), columns=list("abcdef"))[names])
    np.testing.assert_allclose(ours.components_, exact.components_, atol=1e-9)


def test_different_features_are_refused_or_cut_by_choice() -> None:
    sites = shifted_sites(d=6)
    frames = {name: pd.DataFrame(X, columns=list("abcdef")) for name, X in sites.items()}
    frames["s1"] = frames["s1"].rename(columns={"c": "z"})
    with pytest.raises(InputError, match=r"differ in 'c' \(not at 's1'\), 'z' \(only at 's1'\)"):
        FederatedPCA().fit_sites(frames)
    ours = FederatedPCA().fit_sites(frames, features="common")
    assert list(ours.feature_names_in_) == list("abdef")


def test_float32_gives_float32() -> None:
    sites = {name: X.astype(np.float32) for name, X in shifted_sites().items()}
    ours = FederatedPCA(3).fit_sites(sites)
    assert ours.components_.dtype == ours.transform(sites["s0"]).dtype == np.float32


def test_paths_of_arrays_are_sites(tmp_path: Any) -> None:
    sites = shifted_sites()
    for name, X in sites.items():
        np.save(tmp_path / f"{name}.npy", X)
    paths = {name: tmp_path / f"{name}.npy" for name in sites}
    np.testing.assert_array_equal(
        FederatedPCA(3).fit_sites(paths).components_, FederatedPCA(3).fit_sites(sites).components_
    )
    with pytest.raises(InputError, match=r"^Site 'a': table.txt is of an unknown kind"):
        FederatedPCA().fit_sites({"a": "table.txt"})


@pytest.mark.parametrize(
    "method",
    [
        Subspace(start="merge"),
        Subspace(orthonormalise="each"),
        Power(local_steps=2, align="sign"),
        Merge(weighting="none"),
        Merge(weighting="sqrt"),
    ],
)
def test_methods_may_be_values_with_options(method: Any) -> None:
    ours = FederatedPCA(2, method=method, random_state=0).fit_sites(shifted_sites())
    assert ours.method_ == type(method).__name__.lower()
    np.testing.assert_allclose(ours.components_ @ ours.components_.T, np.eye(2), atol=1e-12)


def test_result_says_what_it_cost_and_why() -> None:
    sites = shifted_sites()
    ours = FederatedPCA(3).fit_sites(sites)
    assert ours.method_ == "covariance"
    assert "20 features" in ours.reason_
    assert ours.n_rounds_ == 2
    assert ours.n_samples_ == 400
    floats = 4 * (1 + 2 * 20 + 20 * 21 // 2)
    assert 8 * floats < ours.bytes_up_ < 8 * floats + 4 * 2 * 500
    assert ours.leakage_ == (1.0, 1.0)
    assert ours.privacy_ is None
    wide = FederatedPCA(3, method="krylov", random_state=0).fit_sites(sites)
    assert wide.bytes_down_ > 0
    assert 0 < wide.leakage_.rank_fraction <= 1


def test_auto_turns_away_from_the_covariance_where_policy_or_width_ask_for_it() -> None:
    sites = shifted_sites()
    shy = {"s1": Policy(methods=frozenset({"krylov", "power"}))}
    ours = FederatedPCA(3, random_state=0).fit_sites(sites, policies=shy)
    assert ours.method_ == "krylov"
    assert "policy" in ours.reason_
    wide = FederatedPCA(2, random_state=0).fit(
        sparse.random_array((50, 2100), density=0.02, rng=np.random.default_rng(0))
    )
    assert wide.method_ == "factors"


def test_a_policy_that_refuses_stops_the_run_with_a_code() -> None:
    sites = shifted_sites()
    with pytest.raises(SiteRefused, match="refused 'open' in round 0 with the code 'method'"):
        FederatedPCA(2, method="covariance").fit_sites(
            sites, policies={"s0": Policy(methods=frozenset({"krylov"}))}
        )
    with pytest.raises(SiteRefused, match="'leakage'"):
        FederatedPCA(2, method="krylov").fit_sites(
            sites, policies={"s0": Policy(max_rank_fraction=0.3)}
        )


def test_a_run_that_did_not_converge_says_so() -> None:
    X = np.random.default_rng(0).standard_normal((300, 100))
    ours = FederatedPCA(5, method="krylov", max_rounds=2, random_state=0).fit(X)
    assert ours.certificate_ is not None
    assert not ours.certificate_.converged.all()
    exact = PCA(5).fit(X)
    angle = np.arcsin(sines(ours.components_, exact.components_)[0])
    assert angle <= ours.certificate_.angle_bound


def test_components_beyond_the_rank_have_variance_zero() -> None:
    X = np.outer(np.arange(10.0), np.arange(1.0, 6.0))
    for method in ("covariance", "krylov"):
        ours = FederatedPCA(3, method=method, random_state=0).fit(X)
        np.testing.assert_allclose(ours.explained_variance_[1:], 0, atol=1e-10)
        np.testing.assert_allclose(ours.components_ @ ours.components_.T, np.eye(3), atol=1e-10)


def test_the_seed_repeats_the_run() -> None:
    sites = shifted_sites()
    a, b = (FederatedPCA(3, method="krylov", random_state=4).fit_sites(sites) for _ in range(2))
    np.testing.assert_array_equal(a.components_, b.components_)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_components": 21}, "n_components=21 must be at most 20"),
        ({"n_components": 0}, "n_components=0 must be an integer of at least 1"),
        ({"method": "magic"}, "method='magic' must be one of 'auto', 'covariance'"),
        ({"method": 3}, "method=3 must be one of"),
        ({"split": "rows"}, "split='rows' must be one of 'samples', 'features'"),
        ({"stop": "never"}, "stop='never' must be one of 'auto', 'all', 'separated'"),
        ({"tol": 0.0}, "tol=0.0 must be a number between 0 and 90: it is an angle in degrees"),
        ({"tol": True}, "tol=True must be a number between 0 and 90"),
        ({"max_rounds": 0}, "max_rounds=0 must be an integer of at least 1"),
        ({"certify": 1}, "certify=1 must be True, False, 'auto' or 'rigorous'"),
        ({"certify": 0}, "certify=0 must be True, False, 'auto' or 'rigorous'"),
        ({"secure": 1}, "secure=1 must be True, False or 'auto'"),
        ({"scale": "yes"}, "scale='yes' must be True, False, 'auto' or 'genotype'"),
        ({"privacy": 1.0}, "privacy has type float and must be None, a Privacy"),
    ],
)
def test_bad_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(EigenfedError, match=message):
        FederatedPCA(**parameters).fit_sites(shifted_sites())


def test_numbers_and_flags_of_numpy_are_parameters_too() -> None:
    plain = {"n_components": 3, "tol": 0.5, "scale": True, "max_rounds": 20, "certify": False}
    numbers = {name: np.asarray(value)[()] for name, value in plain.items()}
    sites = shifted_sites()
    first, second = (
        FederatedPCA(method="krylov", random_state=0, **given).fit_sites(sites)
        for given in (plain, numbers)
    )
    np.testing.assert_array_equal(first.components_, second.components_)
    assert first.settings_ == second.settings_
    FederatedPCA(2, tol=1).fit_sites(sites)


@pytest.mark.parametrize(
    ("sites", "message"),
    [
        ({}, "name at least one site"),
        ([1, 2], "sites must be a mapping"),
        ({"a": np.ones((3, 2)), "b": np.ones((3, 4))}, "'a' has 2, 'b' has 4"),
        ({"a": [["x", "y"]]}, "Site 'a': X has dtype <U1 and must hold real numbers"),
        ({"a": [[np.inf, 1.0]]}, "Site 'a': X holds infinity"),
        ({"a": np.ones((0, 2))}, "at most 0"),
        ({"a": np.ones((2, 2)), "b": pd.DataFrame({"x": [1.0]})}, "'a' have no feature names"),
        (
            {"a": pd.DataFrame({"x": [1.0]}), "b": pd.DataFrame({"y": [1.0]})},
            r"differ in 'x' \(not at",
        ),
        (
            {"a": np.ones((3, 2)), "b": np.ones(2)},
            r"^Site 'b': X has shape \(2,\) and must be rows",
        ),
        ({"a": np.ones((3, 2)), "b": None}, r"^Site 'b': X has shape \(\) and must be rows"),
        (
            {"a": pd.DataFrame(np.ones((3, 2))), "b": pd.DataFrame(np.ones((3, 2)))[[1, 0]]},
            "are not text, and those at 'b' are not those at 'a'. Name them by text, as ",
        ),
        (
            {"a": pd.DataFrame(np.ones((3, 2))), "b": pd.DataFrame({"x": [1.0], 1: [2.0]})},
            "^Site 'b': X has columns whose labels are text and others whose are not. Name them",
        ),
    ],
)
def test_bad_sites_are_refused(sites: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        FederatedPCA().fit_sites(sites)


def test_other_bad_arguments_are_refused() -> None:
    sites = shifted_sites()
    with pytest.raises(InputError, match="features='some' must be"):
        FederatedPCA().fit_sites(sites, features="some")
    with pytest.raises(InputError, match="sample_weight names 'z'"):
        FederatedPCA().fit_sites(sites, sample_weight={"z": np.ones(3)})
    with pytest.raises(InputError, match="policies names"):
        FederatedPCA().fit_sites(sites, policies={"z": Policy()})
    frames = {"a": pd.DataFrame({"x": [1.0]}), "b": pd.DataFrame({"y": [1.0]})}
    with pytest.raises(InputError, match="no feature in common"):
        FederatedPCA(1).fit_sites(frames, features="common")


# Features split over sites


def column_sites(X: Array) -> tuple[dict[str, Array], dict[str, npt.NDArray[np.str_]]]:
    """Cut the columns into three sites, each with its rows in an order of its own."""
    keys = np.array([f"id{i}" for i in range(len(X))])
    orders = {name: np.random.default_rng(i).permutation(len(X)) for i, name in enumerate("abc")}
    cuts = {"a": slice(0, 5), "b": slice(5, 6), "c": slice(6, None)}
    sites = {name: X[orders[name], cuts[name]] for name in cuts}
    return sites, {name: keys[orders[name]] for name in cuts}


@pytest.mark.parametrize(("n", "d"), [(5, 8), (3, 3)])
def test_features_split_over_sites_give_as_many_components_as_rows(n: int, d: int) -> None:
    X = rows(n, d)
    sites, keys = {"a": X[:, :2], "b": X[:, 2:]}, {"a": np.arange(n), "b": np.arange(n)}
    ours = FederatedPCA(n, split="features", random_state=0).fit_sites(sites, keys=keys)
    exact = PCA(n).fit(X)
    np.testing.assert_allclose(ours.explained_variance_, exact.explained_variance_, atol=1e-12)
    np.testing.assert_allclose(ours.components_[:-1], exact.components_[:-1], atol=1e-9)


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("as_sparse", [False, True])
def test_features_split_over_sites_give_the_pooled_pca(scale: bool, as_sparse: bool) -> None:
    X = rows(80, 30)
    X[3, 4] = np.nan
    sites, keys = column_sites(X)
    tables = {n: sparse.csr_array(part) if as_sparse else part for n, part in sites.items()}
    ours = FederatedPCA(3, split="features", scale=scale, tol=1e-12, random_state=0)
    ours.fit_sites(tables, keys=keys)
    prepared = np.nan_to_num(StandardScaler(with_std=scale).fit_transform(X), nan=0.0)
    exact = PCA(3).fit(prepared)
    np.testing.assert_allclose(ours.explained_variance_, exact.explained_variance_, rtol=1e-9)
    np.testing.assert_allclose(
        ours.explained_variance_ratio_, exact.explained_variance_ratio_, rtol=1e-9
    )
    assert sines(ours.components_, exact.components_)[0] < 1e-8
    np.testing.assert_allclose(
        np.abs(ours.transform(X)), np.abs(exact.transform(prepared)), atol=1e-7
    )
    assert ours.n_samples_ == 80
    assert ours.leakage_.rank_fraction <= 1.0


@pytest.mark.parametrize("method", ["covariance", "factors", "krylov"])
def test_bounds_hold_where_products_lose_digits_near_the_least_numbers(method: str) -> None:
    for seed in range(6):
        X = np.random.default_rng(seed).standard_normal((12, 3)) * np.array([1.0, 0.6, 0.3])
        exact = np.linalg.svd(X)[2][:1]
        for size in (1e-157, 1e-159, 3e-161):
            pca = FederatedPCA(1, method=method, center=False, random_state=0)
            pca.fit(size * X, groups=np.arange(12) % 3)
            assert pca.certificate_ is not None
            bound = pca.certificate_.angle_bound
            assert math.isinf(bound) or sines(pca.components_, exact)[0] <= bound + 1e-15


def test_features_whose_variance_is_near_the_least_numbers_have_no_bound() -> None:
    X = 1e-142 + 1e-158 * np.arange(25.0)[:, None] * np.ones(2)
    sites = {"a": X[:, :1], "b": X[:, 1:]}
    keys = dict.fromkeys(sites, np.arange(25))
    pca = FederatedPCA(1, split="features").fit_sites(sites, keys=keys)
    assert pca.certificate_ is not None
    assert pca.certificate_.basis == "none"


def test_frames_of_features_are_matched_by_their_index() -> None:
    X = rows(60, 8)
    whole = pd.DataFrame(X, columns=list("abcdefgh"), index=[f"p{i}" for i in range(60)])
    sites = {
        "left": whole[list("abc")].sample(frac=1, random_state=0),
        "right": whole[list("defgh")],
    }
    ours = FederatedPCA(2, split="features", random_state=0).fit_sites(sites)
    assert list(ours.feature_names_in_) == list("abcdefgh")
    assert sines(ours.components_, PCA(2).fit(X).components_)[0] < 1e-6


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (None, "Site 'a' has no row key"),
        ({"a": [1, 2, 3], "b": [1, 2, 2]}, "key of site 'b' names a row more than once"),
        ({"a": [1, 2, 3], "b": [1, 2, 4]}, "rows of site 'b' are not those of the first"),
        ({"a": [1, 2], "b": [1, 2, 3]}, r"key of site 'a' has shape \(2,\)"),
    ],
)
def test_rows_that_cannot_be_matched_are_refused(keys: Any, message: str) -> None:
    sites = {"a": np.eye(3), "b": np.eye(3)}
    with pytest.raises(InputError, match=message):
        FederatedPCA(split="features").fit_sites(sites, keys=keys)


def test_what_the_split_by_features_cannot_do_is_refused() -> None:
    sites, keys = column_sites(rows(30, 10))
    ours = FederatedPCA(split="features", method="covariance")
    with pytest.raises(
        InputError, match="method='covariance' cannot be combined with split='features'"
    ):
        ours.fit_sites(sites, keys=keys)
    with pytest.raises(InputError, match="needs a table for each site, and fit takes one"):
        FederatedPCA(split="features").fit(rows())
    with pytest.raises(InputError, match="sample_weight and features require split='samples'"):
        FederatedPCA(split="features").fit_sites(sites, keys=keys, features="common")
    with pytest.raises(InputError, match="keys requires split='features'"):
        FederatedPCA().fit_sites(sites, keys=keys)
    same = pd.DataFrame({"x": [1.0, 2.0]}, index=["p", "q"])
    with pytest.raises(InputError, match="'x' are at more than one site"):
        FederatedPCA(1, split="features").fit_sites({"a": same, "b": same})


def test_leakage_is_worked_out_when_it_is_read_and_answers_are_not_kept() -> None:
    ours = FederatedPCA(3, method="krylov", max_rounds=1, random_state=0)
    assert not hasattr(ours, "leakage_")
    ours.fit_sites(shifted_sites())
    copied = pickle.loads(pickle.dumps(ours))
    assert copied.leakage_ == ours.leakage_
    assert not any(isinstance(value, list) for value in vars(copied).values())
    again = FederatedPCA(3, method="krylov", max_rounds=1, random_state=0).fit_sites(
        shifted_sites()
    )
    assert again.leakage_ == ours.leakage_
    first = again.leakage_
    again.set_params(method="covariance").fit_sites(shifted_sites())
    assert first != again.leakage_ == (1.0, 1.0)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([[1.0, 2.0], [3.0]], r"^Site 'a': X has rows of different lengths and must be a table\."),
        (np.ma.masked_less([[1.0, 2.0], [3.0, 4.0]], 2.0), r"^Site 'a': X has masked entries"),
        ([[10**400, 2.0], [3.0, 4.0]], r"^Site 'a': X has dtype object and must hold real"),
    ],
    ids=["ragged", "masked", "huge"],
)
def test_what_is_no_table_of_a_site_is_refused(table: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        FederatedPCA(1).fit_sites({"a": table})


def test_masked_weights_are_refused() -> None:
    weights = np.ma.masked_less([1.0, 2.0, 3.0], 2.0)
    with pytest.raises(InputError, match=r"^sample_weight has masked entries"):
        FederatedPCA(1).fit(np.eye(3), sample_weight=weights)


def test_rows_that_were_split_in_another_way_before_need_another_name() -> None:
    X = np.random.default_rng(0).standard_normal((30, 6))
    ledger, keys = Ledger(None), {"a": np.arange(30), "b": np.arange(30)}
    tables = {"a": X[:, :3], "b": X[:, 3:]}
    by_columns = FederatedPCA(1, split="features")
    by_columns.fit_sites(tables, keys=keys, ledgers={"a": ledger})
    by_rows = FederatedPCA(1, method="krylov")
    with pytest.raises(InputError, match=r"split in another way.*datasets"):
        by_rows.fit_sites({"a": X[:10], "b": X[10:]}, ledgers={"a": ledger})
    named = {"a": "by rows"}
    by_rows.fit_sites({"a": X[:10], "b": X[10:]}, ledgers={"a": ledger}, datasets=named)
    assert ledger.datasets == ("data", "by rows")


def test_numbers_name_sites_and_what_is_given_for_them() -> None:
    here, there, weight = rows(30, 4), rows(50, 4, seed=1), np.linspace(0.1, 3.0, 30)
    numbered: Any = {1: here, 2: there}
    weights: Any = {1: weight}
    ours = FederatedPCA(2).fit_sites(numbered, sample_weight=weights)
    named = FederatedPCA(2).fit_sites({"1": here, "2": there}, sample_weight={"1": weight})
    np.testing.assert_array_equal(ours.explained_variance_, named.explained_variance_)
    policies: Any = {1: Policy(min_rows=40)}
    with pytest.raises(SiteRefused, match="Site '1' refused"):
        FederatedPCA(2).fit_sites(numbered, policies=policies)
    numbered[2], keys = there[:30], {1: np.arange(30), 2: np.arange(30)}
    by_columns: Any = FederatedPCA(2, split="features")
    assert by_columns.fit_sites(numbered, keys=keys).n_samples_ == 30


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sites": {1: rows(9, 3), "1": rows(9, 3)}}, "sites has more than one site whose name"),
        ({"sample_weight": np.ones(18)}, "sample_weight has type ndarray and must be a mapping"),
        ({"policies": [Policy()]}, "policies has type list and must be a mapping"),
        ({"policies": {"a": "strict"}}, "policies has a value of type str for site 'a'"),
        ({"datasets": {"a": 5}}, "datasets has a value of type int for site 'a'"),
    ],
    ids=str,
)
def test_what_is_not_for_single_sites_is_refused(arguments: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"sites": {"a": rows(9, 3), "b": rows(9, 3)}} | arguments
    with pytest.raises(InputError, match=message):
        FederatedPCA(2).fit_sites(**given)


def test_a_key_for_an_unknown_site_is_refused() -> None:
    tables = {name: pd.DataFrame(rows(9, 2), index=list("abcdefghi")) for name in ("x", "y")}
    with pytest.raises(InputError, match="keys names 'X', which are not sites"):
        FederatedPCA(2, split="features").fit_sites(tables, keys={"X": np.arange(9)})


@pytest.mark.parametrize("method", ["covariance", "factors", "krylov"])
@pytest.mark.parametrize("center", [True, "site"])
def test_a_constant_feature_is_not_scaled_where_messages_are_narrow(
    method: str, center: Any
) -> None:
    X, groups = rows(60, 4), np.arange(60) % 3
    X[:, 2] = 37.1
    narrow = FederatedPCA(
        2, method=method, scale=True, center=center, transport=Local(wire="float32")
    ).fit(X, groups=groups)
    assert narrow.scale_[2] == 1.0
    assert narrow.total_variance_ == pytest.approx(3.0 * 60 / 59, rel=1e-6)


@pytest.mark.parametrize("method", ["covariance", "factors", "krylov", "merge"])
def test_bounds_count_the_mean_of_narrow_messages_where_entries_are_missing(method: str) -> None:
    X = rows(60, 3) * np.array([500.0, 1.0, 0.1]) + np.array([0.0, 1.3e6, 0.0])
    X[X[:, 0] > np.median(X[:, 0]), 1] = np.nan
    within = X.astype(np.longdouble)
    within = np.nan_to_num(within - np.nanmean(within, axis=0))
    exact = np.linalg.eigh((within.T @ within).astype(np.float64))[1][:, -1:].T
    narrow = FederatedPCA(1, method=method, transport=Local(wire="float32"), random_state=0)
    narrow.fit(X, groups=np.arange(60) % 3)
    assert narrow.certificate_ is not None
    assert sines(narrow.components_, exact)[0] <= narrow.certificate_.angle_bound < 2e-3


def test_a_constant_feature_is_not_prepared_as_if_it_varied_where_messages_are_narrow() -> None:
    X = np.hstack([rows(60, 2) * 1e-9, np.full((60, 1), 37.1)])
    for step in ("select:2", "standardize"):
        pca = FederatedPCA(1, prepare=[step], transport=Local(wire="float32"))
        known = pca.fit(X, groups=np.arange(60) % 3).preparation_
        if step == "standardize":
            assert known.spread is not None
            assert known.spread[2] == 1.0
        else:
            np.testing.assert_array_equal(known.selected, [0, 1])


@pytest.mark.parametrize("method", ["covariance", "factors", "krylov"])
def test_a_feature_too_small_to_divide_by_is_not_scaled(method: str) -> None:
    X = rows(60, 3) * np.array([1.0, 1e-160, 3.0])
    pca = FederatedPCA(2, method=method, scale=True).fit(X, groups=np.arange(60) % 3)
    assert pca.scale_[1] == 1.0
    assert pca.total_variance_ == pytest.approx(2.0 * 60 / 59)


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("center", [True, "site"])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_constant_feature_of_many_rows_is_not_scaled(
    is_sparse: bool, center: Any, weighted: bool
) -> None:
    X = rows(20_000, 4)
    X[:, 1] = 0.1
    weight = np.random.default_rng(0).random(len(X)) if weighted else None
    if weight is not None:
        weight /= weight.sum() / 100.0
    table: Any = sparse.csr_array(X) if is_sparse else X
    pca = FederatedPCA(3, method="krylov", scale=True, center=center)
    pca.fit(table, groups=np.arange(len(X)) % 2, sample_weight=weight)
    n = len(X) if weight is None else 100.0
    assert pca.scale_[1] == 1.0
    assert pca.total_variance_ == pytest.approx(3.0 * n / (n - 1.0))
    assert np.abs(pca.components_[:, 1]).max() < 1e-6
