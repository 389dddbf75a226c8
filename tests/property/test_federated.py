"""Any split of any rows over any number of sites gives the pooled PCA."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenfed import FederatedPCA
from eigenfed.arrays import Array
from oracles import pooled
from strategies import table

KINDS = ("plain", "offset", "low_rank", "constant_column", "duplicate_rows", "integer", "float32")


def fitted(X: Array, sites: int, seed: int, method: str) -> FederatedPCA:
    groups = np.random.default_rng(seed).integers(0, sites, len(X))
    return FederatedPCA(2, method=method, tol=1e-12, random_state=seed).fit(X, groups=groups)


@given(
    kind=st.sampled_from(KINDS),
    n=st.integers(3, 80),
    d=st.integers(2, 15),
    sites=st.integers(1, 20),
    seed=st.integers(0, 10**6),
    method=st.sampled_from(["covariance", "krylov"]),
)
@settings(max_examples=120)
def test_any_split_gives_the_pooled_eigenvalues(
    kind: str, n: int, d: int, sites: int, seed: int, method: str
) -> None:
    X = table(kind, n, d, np.random.default_rng(seed))
    ours = fitted(X, sites, seed, method)
    exact = pooled(X)
    values = np.zeros(2)
    values[: len(exact.s)] = exact.s[:2] ** 2 / (n - 1)
    rounding = 1e-9 * exact.energy / (n - 1) + 1e-13 * float(np.sum(exact.mean**2))
    np.testing.assert_allclose(ours.explained_variance_, values, rtol=1e-9, atol=rounding)
    np.testing.assert_allclose(ours.components_ @ ours.components_.T, np.eye(2), atol=1e-10)
    third = exact.s[2] if len(exact.s) > 2 else 0.0
    if exact.s[1] ** 2 - third**2 > 1e-3 * exact.s[0] ** 2 and kind != "offset":
        projector = ours.components_.T @ ours.components_
        truth = exact.vt[:2].T @ exact.vt[:2]
        np.testing.assert_allclose(projector, truth, atol=1e-9)


@given(seed=st.integers(0, 10**6), order=st.permutations(range(5)))
@settings(max_examples=30)
def test_names_and_order_of_sites_change_only_rounding(seed: int, order: list[int]) -> None:
    X = table("plain", 60, 8, np.random.default_rng(seed))
    parts = np.array_split(X, 5)
    straight = FederatedPCA(2).fit_sites({str(i): part for i, part in enumerate(parts)})
    mixed = FederatedPCA(2).fit_sites({str(i): parts[j] for i, j in enumerate(order)})
    np.testing.assert_allclose(straight.explained_variance_, mixed.explained_variance_, rtol=1e-12)


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6])
def test_a_large_offset_costs_no_digits(offset: float) -> None:
    X = table("plain", 200, 10, np.random.default_rng(0)) * 0.5 ** np.arange(10)
    exact = pooled(X)
    for method in ("covariance", "krylov"):
        ours = fitted(X + offset, 3, 1, method)
        np.testing.assert_allclose(
            ours.explained_variance_, exact.s[:2] ** 2 / 199, rtol=1e-9 + 1e-15 * offset
        )
