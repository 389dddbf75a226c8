"""Data frames with columns that are not numbers, and AnnData objects."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

from eigenfed import FederatedPCA, InputError, StreamingPCA

CANARY = "4711.25"
X = np.random.default_rng(0).normal(size=(40, 3))


def annotated(table: Any, **more: Any) -> Any:
    """What anndata.AnnData has, without anndata."""
    return SimpleNamespace(X=table, obs=None, layers={}, var_names=["g1", "g2", "g3"], **more)


def frames() -> list[Any]:
    numbers = pd.DataFrame(X, columns=["a", "b", "c"])
    dated = numbers.assign(when=pd.date_range("2020-01-01", periods=40))
    text = numbers.assign(when=f"x{CANARY}")
    return [dated, text, dated[["when"]], pl.from_pandas(dated), pl.from_pandas(text)]


@pytest.mark.parametrize("place", range(5))
def test_columns_that_are_not_numbers_are_named_and_never_quoted(place: int) -> None:
    frame = frames()[place]
    for fit in (
        FederatedPCA(1).fit,
        StreamingPCA(1).fit,
        lambda X: FederatedPCA(1).fit_sites({"a": X}),
    ):
        with pytest.raises(InputError, match="X has columns that do not hold numbers: 'when'"):
            fit(frame)


def test_an_array_of_dates_is_refused() -> None:
    dates = np.full((5, 2), "2020-01-01", "M8[D]")
    with pytest.raises(InputError, match="X holds dates and must hold numbers"):
        FederatedPCA(1).fit(dates)
    with pytest.raises(InputError, match="Site 'a': X holds dates and must hold numbers"):
        FederatedPCA(1).fit_sites({"a": dates})


def test_anndata_objects_are_sites_by_the_names_of_their_features() -> None:
    sites = {"a": annotated(sparse.csr_array(X[:20])), "b": annotated(X[20:])}
    pca = FederatedPCA(2).fit_sites(sites)
    assert pca.feature_names_in_.tolist() == ["g1", "g2", "g3"]
    np.testing.assert_allclose(
        pca.explained_variance_, FederatedPCA(2).fit(X).explained_variance_, rtol=1e-10
    )


@pytest.mark.parametrize(
    ("adata", "message"),
    [
        (annotated(None), "an AnnData object without X"),
        (annotated(X, isbacked=True), "Pass the path of the file instead"),
    ],
)
def test_an_anndata_object_without_a_table_in_memory_is_refused(adata: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"Site 'a': .*{message}"):
        FederatedPCA(1).fit_sites({"a": adata})


@pytest.mark.parametrize("fit", [FederatedPCA(1).fit, StreamingPCA(1).partial_fit])
def test_an_anndata_object_is_no_table_elsewhere(fit: Any) -> None:
    with pytest.raises(InputError, match="X is an AnnData object and must be a table"):
        fit(annotated(X))
