"""Factors of the scatter: exact, and a function of the scatter alone."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from eigenfed import Factors, FederatedPCA, Policy
from eigenfed.arrays import Array
from eigenfed.data.prepared import Prepared
from eigenfed.data.source import Source
from eigenfed.errors import ProtocolError, SiteRefused
from eigenfed.linalg.orthonormal import sines
from eigenfed.protocol.exact.factors import ScatterFactorReply, _stack, factorise
from methods import check_against_pooled
from oracles import pooled

RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((30, 200)) * np.linspace(3, 1, 200) + 2.0


def view(rows: Any, mean: Array | float = 0.0, weights: Array | None = None) -> Prepared:
    source = Source.of(rows, weights=weights)
    return Prepared(source, np.zeros(source.d) + mean, np.linspace(1, 2, source.d))


@pytest.mark.parametrize("n", [1, 30, 199, 201, 450])
def test_a_factor_squares_to_the_scatter_and_is_no_larger(n: int) -> None:
    rows = RNG.standard_normal((n, 200))
    at = view(rows, mean=0.3)
    found, scatter = factorise(at), at.scatter()
    assert found.shape == (min(n, 200), 200)
    np.testing.assert_allclose(found.T @ found, scatter, atol=1e-12 * scatter.trace())


def test_weights_missing_entries_and_sparse_rows_are_those_of_the_scatter() -> None:
    rows = np.where(RNG.random((25, 60)) < 0.3, RNG.standard_normal((25, 60)), 0.0)
    rows[3, 4] = np.nan
    weights = RNG.uniform(0, 2, 25)
    weights[5] = 0.0
    for table in (rows, sparse.csr_array(rows)):
        at = view(table, mean=0.1, weights=weights)
        found, scatter = factorise(at), at.scatter()
        np.testing.assert_allclose(found.T @ found, scatter, atol=1e-12 * scatter.trace())


@pytest.mark.parametrize("kind", ["generic", "tied", "deficient"])
def test_rows_with_one_scatter_have_one_factor(kind: str) -> None:
    """Whatever distinguishes rows beyond their scatter does not leave: here a rotation of them."""
    rows = ROWS[:20]
    if kind == "tied":
        rows = np.eye(200)[10:30]
    elif kind == "deficient":
        rows = np.vstack([rows[:10], rows[:10]])
    turned = np.linalg.qr(RNG.standard_normal((20, 20))).Q @ rows
    first, second = (factorise(view(part)) for part in (rows, turned))
    np.testing.assert_allclose(first, second, atol=1e-9 * np.abs(rows).max())
    assert not np.isclose(np.abs(first).max(axis=1), np.abs(rows).max(axis=1)).all()


def test_pooled_components_whatever_the_sites() -> None:
    tables = {"a": ROWS[:4], "b": ROWS[4:5], "c": ROWS[5:] + 1.0}
    pca = check_against_pooled(Factors(), tables, 5)
    assert pca.n_rounds_ == 2
    assert pca.leakage_.rank_fraction == 1.0
    most = FederatedPCA(0.5, method="factors").fit_sites(tables)
    kept = most.explained_variance_ratio_
    assert kept.sum() > 0.5 > kept[:-1].sum()
    tall = {"a": RNG.standard_normal((40, 6)), "b": RNG.standard_normal((3, 6))}
    assert check_against_pooled(Factors(), tall, 6).certificate_ is not None


def test_auto_takes_factors_where_rows_are_few() -> None:
    sites = {"a": ROWS[:10], "b": ROWS[10:]}
    pca = FederatedPCA(3).fit_sites(sites)
    assert pca.method_ == "factors"
    assert "20 rows" in pca.reason_
    assert sines(pca.components_, pooled(ROWS).vt[:3])[0] < 1e-9
    limited = FederatedPCA(3).fit_sites(sites, policies={"a": Policy(max_rank_fraction=0.9)})
    assert limited.method_ == "krylov"
    with pytest.raises(SiteRefused, match="revealed more"):
        FederatedPCA(3, method="factors").fit_sites(
            sites, policies={"a": Policy(max_rank_fraction=0.9)}
        )


def test_a_factor_of_other_features_is_refused() -> None:
    replies = {
        "a": ScatterFactorReply(factor=np.zeros((2, 3))),
        "b": ScatterFactorReply(factor=np.zeros((2, 4))),
    }
    with pytest.raises(ProtocolError, match="site 'b' does not have 3 columns"):
        _stack(replies, 3)
