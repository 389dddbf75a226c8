"""Features ranked by how much they vary, against the published recipes written out in pandas."""

import numpy as np
import pandas as pd
import pytest

from eigenfed.arrays import Array
from eigenfed.errors import InputError
from eigenfed.linalg.dispersion import select_variable


def counts(n: int = 300, d: int = 400) -> Array:
    rng = np.random.default_rng(3)
    rates = rng.gamma(0.4, 2.0, d) * rng.gamma(3.0, 0.3, (n, 1))
    rates = rates * np.where(rng.random(d) < 0.2, rng.gamma(0.5, 2.0, (n, d)), 1.0)
    X = rng.poisson(rates).astype(np.float64)
    X[:, ::41] = 0.0
    X[:, 7] = 2.0
    return X


def seurat(X: Array) -> "pd.Series[float]":
    """Normalised dispersions: log dispersions, standardised in 20 bins of the log mean."""
    mean, variance = X.mean(axis=0), X.var(axis=0, ddof=1)
    dispersion = variance / np.where(mean == 0, 1e-12, mean)
    dispersion[dispersion == 0] = np.nan
    frame = pd.DataFrame({"mean": np.log1p(mean), "dispersion": np.log(dispersion)})
    groups = frame.groupby(pd.cut(frame["mean"], bins=20), observed=True)["dispersion"]
    center, spread = groups.transform("mean"), groups.transform("std")
    alone = spread.isna()
    spread[alone], center[alone] = center[alone], 0.0
    return (frame["dispersion"] - center) / spread


def cell_ranger(X: Array) -> "pd.Series[float]":
    """Dispersions about the median, over the median absolute deviation, in bins of the mean."""
    mean, variance = X.mean(axis=0), X.var(axis=0, ddof=1)
    frame = pd.DataFrame({"mean": mean, "dispersion": variance / np.where(mean == 0, 1e-12, mean)})
    edges = np.r_[-np.inf, np.unique(np.percentile(mean, np.arange(10, 105, 5))), np.inf]
    groups = frame.groupby(pd.cut(frame["mean"], edges), observed=True)["dispersion"]
    center = groups.transform("median")
    spread = groups.transform(lambda x: (x - x.median()).abs().median() / 0.6744897501960817)
    return (frame["dispersion"] - center) / spread


@pytest.mark.parametrize(("flavor", "recipe"), [("seurat", seurat), ("cell_ranger", cell_ranger)])
@pytest.mark.parametrize("n_features", [1, 40, 150])
def test_the_features_are_those_of_the_recipe(flavor: str, recipe: object, n_features: int) -> None:
    X = counts()
    score = recipe(X)  # type: ignore[operator]
    best = np.sort(score.sort_values(ascending=False, kind="stable").index[:n_features])
    found = select_variable(X.mean(axis=0), X.var(axis=0), n_features, flavor)
    np.testing.assert_array_equal(found, best)


@pytest.mark.parametrize("flavor", ["variance", "seurat", "cell_ranger"])
def test_constant_features_come_last(flavor: str) -> None:
    X = counts()
    constant = X.var(axis=0) == 0
    varying = int(np.sum(~constant))
    found = select_variable(X.mean(axis=0), X.var(axis=0), varying, flavor)
    np.testing.assert_array_equal(found, np.flatnonzero(~constant))
    everything = select_variable(X.mean(axis=0), X.var(axis=0), 10_000, flavor)
    np.testing.assert_array_equal(everything, np.arange(X.shape[1]))


def test_of_equal_features_the_first_are_kept() -> None:
    np.testing.assert_array_equal(select_variable(np.ones(5), np.ones(5), 2, "variance"), [0, 1])
    np.testing.assert_array_equal(select_variable(np.ones(5), np.ones(5), 2, "seurat"), [0, 1])


def test_negative_means_are_refused_where_dispersions_are_compared() -> None:
    with pytest.raises(InputError, match="needs entries of at least 0"):
        select_variable(np.array([1.0, -1.0]), np.ones(2), 1, "cell_ranger")
