"""Sites and weights reach a fit through pipelines and searches, and data frames come out."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from eigenfed import FederatedPCA, FederatedSVD, StreamingPCA

X, y = load_iris(return_X_y=True)
GROUPS = np.arange(150) % 5
WEIGHTS = np.arange(150) % 4 + 1.0
NAMES = ["sl", "sw", "pl", "pw"]


@pytest.fixture(autouse=True)
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.parametrize("cls", [FederatedPCA, FederatedSVD])
def test_a_pipeline_brings_groups_and_weights_to_the_fit(cls: Any) -> None:
    step = cls(2).set_fit_request(groups=True, sample_weight=True)
    pipeline = make_pipeline(step, LogisticRegression().set_fit_request(sample_weight=False))
    pipeline.fit(X, y, groups=GROUPS, sample_weight=WEIGHTS)
    alone = cls(2).fit(X, groups=GROUPS, sample_weight=WEIGHTS)
    np.testing.assert_array_equal(pipeline[0].components_, alone.components_)
    assert set(pipeline[0].egress_) == {"0", "1", "2", "3", "4"}
    other = cls(2).fit(X, groups=GROUPS)
    assert np.abs(other.components_ - alone.components_).max() > 1e-6


def test_sites_centred_by_themselves_stay_so_in_a_pipeline() -> None:
    moved = X + 50.0 * GROUPS[:, None]
    step = FederatedPCA(2, center="site").set_fit_request(groups=True)
    scores = make_pipeline(step).fit_transform(moved, y, groups=GROUPS)
    assert np.abs(scores).max() < 10.0


def test_a_search_brings_groups_to_its_folds_and_to_the_fit() -> None:
    pipeline = Pipeline(
        [
            ("pca", FederatedPCA().set_fit_request(groups=True, sample_weight=False)),
            ("classify", LogisticRegression().set_fit_request(sample_weight=False)),
        ]
    )
    search = GridSearchCV(pipeline, {"pca__n_components": [1, 0.99]}, cv=GroupKFold(3))
    search.fit(X, y, groups=GROUPS)
    best = search.best_estimator_["pca"]
    assert len(best.egress_) == 5
    found = cross_validate(
        pipeline, X, y, params={"groups": GROUPS}, cv=GroupKFold(5), return_estimator=True
    )
    assert [len(fold["pca"].egress_) for fold in found["estimator"]] == [4] * 5


def test_a_stream_takes_weights_in_a_pipeline() -> None:
    step = StreamingPCA(2).set_fit_request(sample_weight=True)
    pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), step)
    pipeline.fit(X, sample_weight=WEIGHTS)
    scaled = StandardScaler().fit_transform(X)
    alone = StreamingPCA(2).fit(scaled, sample_weight=WEIGHTS)
    np.testing.assert_allclose(pipeline[-1].components_, alone.components_)


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("cls", [FederatedPCA, FederatedSVD, StreamingPCA])
def test_frames_go_in_and_come_out(cls: Any, library: str) -> None:
    frame = pd.DataFrame(X, columns=NAMES) if library == "pandas" else pl.DataFrame(X, NAMES)
    plain = cls(2).fit(X)
    ours = cls(2).set_output(transform=library).fit(frame)
    assert list(ours.feature_names_in_) == NAMES
    scores = ours.transform(frame[NAMES[::-1]])
    assert type(scores) is type(frame)
    assert list(scores.columns) == list(ours.get_feature_names_out())
    np.testing.assert_allclose(scores.to_numpy(), plain.transform(X), atol=1e-9)
    both = cls(2).set_output(transform=library).fit_transform(frame)
    assert type(both) is type(frame)
    np.testing.assert_allclose(both.to_numpy(), plain.transform(X), atol=1e-9)


def test_frames_whose_columns_have_only_numbers_are_taken_as_arrays() -> None:
    frame = pd.DataFrame(X)  # labelled 0, 1, ...
    for rest in (frame[60:], X[60:]):
        ours = FederatedPCA(2).fit_sites({"a": frame[:60], "b": rest})
        assert not hasattr(ours, "feature_names_in_")
        np.testing.assert_allclose(ours.transform(frame), FederatedPCA(2).fit(frame).transform(X))
    keyed = frame.set_axis([f"r{i}" for i in range(len(X))])
    columns = {"a": keyed[[0, 1]], "b": keyed[[*range(2, X.shape[1])]]}
    split = FederatedPCA(2, split="features").fit_sites(columns)
    np.testing.assert_allclose(split.transform(frame), ours.transform(frame), atol=1e-6)


def test_sites_of_different_libraries_are_aligned_by_name() -> None:
    sites = {
        "a": pd.DataFrame(X[:60], columns=NAMES),
        "b": pl.DataFrame(X[60:, ::-1], NAMES[::-1]),
    }
    ours = FederatedPCA(2).fit_sites(sites)
    np.testing.assert_allclose(ours.components_, FederatedPCA(2).fit(X).components_, atol=1e-9)
    numbered = FederatedPCA(2, center="site").fit(X, groups=np.arange(len(X)) % 2)
    centred = numbered.at_site(1).transform(X[1::2]).mean(axis=0)
    np.testing.assert_allclose(centred, 0.0, atol=1e-9)
    within = FederatedPCA(2, center="site").set_output(transform="pandas").fit_sites(sites)
    assert list(within.at_site("a").transform(sites["a"]).columns) == [
        "federatedpca0",
        "federatedpca1",
    ]
