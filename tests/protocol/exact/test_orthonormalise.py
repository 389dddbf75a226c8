"""Vectors split over sites become orthonormal, and only inner products leave."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest

from eigenfed.arrays import Array
from eigenfed.errors import ProtocolError
from eigenfed.privacy.policy import Policy
from eigenfed.protocol.core import TOTAL, Call, Protocol, drive, plain_sum
from eigenfed.protocol.exact.moments import MomentsRequest
from eigenfed.protocol.exact.orthonormalise import (
    cholesky_steps,
    close_vectors,
    gram_schmidt_steps,
    orthonormalise_columns,
)
from eigenfed.protocol.method import registered
from federation import gate, opened, study_of
from sides import Given, PutRequest, sides_of

CUTS = [3, 45, 46, 900]


class Run(NamedTuple):
    triangle: Array
    vectors: Array
    shapes: list[dict[str, tuple[int, ...]]]
    ops: list[str]


def orthonormalised(
    vectors: Array, by: str, cuts: list[int] = CUTS, weights: Array | None = None
) -> Run:
    """Put the vectors at the sites, orthonormalise them there and look at them."""
    sites = {}
    for i, (a, b) in enumerate(pairwise([0, *cuts, len(vectors)])):
        part = None if weights is None else weights[a:b]
        sites[f"s{i}"] = gate(f"s{i}", vectors[a:b], weights=part, policy=Policy(min_rows=0))
    k = vectors.shape[1]

    def protocol() -> Protocol[Array]:
        yield Call(MomentsRequest())
        yield Call(PutRequest(mean=np.zeros(k), scale=np.ones(k)))
        if by == "cholesky":
            done = yield from cholesky_steps(plain_sum, {})
        else:
            done = yield from gram_schmidt_steps(k, plain_sum, {})
        yield from close_vectors(plain_sum, done)
        return done.triangle

    with registered(Given):
        transport = opened(sites, study_of(sites, k, Given(), center=False))
        triangle = drive(protocol(), transport)
    left = sites["s0"].egress[2:]
    found = sides_of(sites, transport.run)
    return Run(triangle, found, [dict(e.shapes) for e in left], [e.op for e in left])


def conditioned(n: int, k: int, condition: float, seed: int = 0) -> Array:
    """Vectors whose singular values fall evenly, on a log scale, from 1."""
    rng = np.random.default_rng(seed)
    left = np.linalg.qr(rng.standard_normal((n, k))).Q
    right = np.linalg.qr(rng.standard_normal((k, k))).Q
    vectors: Array = (left * np.geomspace(1.0, 1.0 / condition, k)) @ right.T
    return vectors


def hard(n: int, k: int, condition: float, seed: int = 0) -> Array:
    """Vectors half of whose singular values are 1 and half as small as the condition allows."""
    rng = np.random.default_rng(seed)
    left = np.linalg.qr(rng.standard_normal((n, k))).Q
    right = np.linalg.qr(rng.standard_normal((k, k))).Q
    vectors: Array = (left * np.repeat([1.0, 1.0 / condition], k // 2)) @ right.T
    return vectors


def defect(vectors: Array, weights: Array | None = None) -> float:
    w = np.ones(len(vectors)) if weights is None else weights
    gram = vectors.T @ (vectors * w[:, None])
    return float(np.linalg.norm(gram - np.eye(len(gram)), 2))


def schmidt(vectors: Array) -> Array:
    """[Hartebrodt2022] eq. 4 and the scaling after it, on all rows at once."""
    made: list[Array] = []
    for v in vectors.T:
        made.append(v - sum((u @ v / (u @ u)) * u for u in made))
    return np.column_stack([u / np.sqrt(u @ u) for u in made])


@pytest.mark.parametrize("seed", range(3))
def test_cholesky_keeps_orthogonality_where_gram_schmidt_loses_it(seed: int) -> None:
    vectors = hard(1200, 30, 1e6, seed)
    assert defect(orthonormalised(vectors, "cholesky").vectors) < 1e-13
    assert 5e-5 < defect(orthonormalised(vectors, "gram_schmidt").vectors) < 1e-2


@pytest.mark.parametrize("condition", [1.0, 1e3, 1e6, 1e8, 1e10, 1e13])
def test_cholesky_is_orthonormal_at_any_condition(condition: float) -> None:
    vectors = conditioned(1200, 12, condition, 4)
    run = orthonormalised(vectors, "cholesky")
    assert defect(run.vectors) < 1e-13
    np.testing.assert_allclose(run.vectors @ run.triangle, vectors, rtol=0, atol=1e-15)
    np.testing.assert_array_equal(np.tril(run.triangle, -1), 0.0)
    assert (run.triangle.diagonal() > 0).all()


@pytest.mark.parametrize("by", ["cholesky", "gram_schmidt"])
def test_both_are_the_centralised_gram_schmidt(by: str) -> None:
    vectors = conditioned(1000, 8, 30.0, 5)
    run = orthonormalised(vectors, by)
    np.testing.assert_allclose(run.vectors, schmidt(vectors), rtol=0, atol=1e-12)
    np.testing.assert_allclose(run.vectors, orthonormalise_columns(vectors), rtol=0, atol=1e-12)
    np.testing.assert_allclose(run.vectors @ run.triangle, vectors, rtol=0, atol=1e-14)


def test_gram_schmidt_as_printed_errs_as_the_centralised_one_does() -> None:
    vectors = hard(1000, 12, 1e5, 6)
    ours, theirs = (
        defect(orthonormalised(vectors, "gram_schmidt").vectors),
        defect(schmidt(vectors)),
    )
    assert 0.02 < ours / theirs < 50


def test_cholesky_takes_two_sums_and_gram_schmidt_one_less_than_twice_the_columns() -> None:
    k = 7
    vectors = conditioned(1000, k, 100.0, 7)
    quick, printed = (orthonormalised(vectors, by) for by in ("cholesky", "gram_schmidt"))
    assert quick.shapes == [{"gram": (k, k)}, {"gram": (k, k)}, {}]
    assert printed.ops[:4] == ["sided_norm", "sided_onto", "sided_norm", "sided_onto"]
    assert sum(bool(shapes) for shapes in printed.shapes) == 2 * k - 1
    sent = sum(length for shapes in printed.shapes for (length,) in shapes.values())
    assert sent == k + k * (k - 1) // 2
    assert printed.shapes[-1] == {}


@pytest.mark.parametrize("by", ["cholesky", "gram_schmidt"])
def test_sites_of_no_row_and_of_fewer_rows_than_columns_take_part(by: str) -> None:
    vectors = conditioned(40, 9, 10.0, 8)
    run = orthonormalised(vectors, by, cuts=[0, 1, 3, 3, 10])
    assert defect(run.vectors) < 1e-13
    np.testing.assert_allclose(run.vectors, schmidt(vectors), rtol=0, atol=1e-13)


@pytest.mark.parametrize("by", ["cholesky", "gram_schmidt"])
def test_inner_products_are_in_the_weights_of_the_rows(by: str) -> None:
    vectors = conditioned(1000, 6, 10.0, 9)
    weights = np.random.default_rng(9).uniform(0.0, 3.0, 1000)
    run = orthonormalised(vectors, by, weights=weights)
    assert defect(run.vectors, weights) < 1e-13
    expected = schmidt(np.sqrt(weights)[:, None] * vectors)
    np.testing.assert_allclose(np.sqrt(weights)[:, None] * run.vectors, expected, atol=1e-13)


def test_columns_that_depend_on_others_become_zero_and_the_rest_is_orthonormal() -> None:
    rng = np.random.default_rng(10)
    vectors = rng.standard_normal((1000, 3)) @ rng.standard_normal((3, 6))
    vectors[:, 1] = 0.0
    vectors[:, 3] *= 1e-8
    run = orthonormalised(vectors, "cholesky")
    alive = [0, 2, 3]
    assert defect(run.vectors[:, alive]) < 1e-13
    np.testing.assert_array_equal(run.vectors[:, [1, 4, 5]], 0.0)
    np.testing.assert_array_equal(run.triangle[[1, 4, 5]], 0.0)
    np.testing.assert_allclose(run.vectors @ run.triangle, vectors, rtol=0, atol=1e-14)


def test_squared_norms_below_zero_are_those_of_columns_of_zeros() -> None:
    # Sums in fixed point: the first column is alive at first, and the second never is.
    first = np.array([[1e-36, 3e-36], [3e-36, -2e-36]])
    second = np.array([[-5e-32, 2e-31], [2e-31, -1e-32]])
    steps = cholesky_steps(plain_sum, {})
    next(steps)
    steps.send({TOTAL: {"gram": first}})
    with pytest.raises(StopIteration) as end:
        steps.send({TOTAL: {"gram": second}})
    np.testing.assert_array_equal(end.value.value.triangle, 0.0)
    np.testing.assert_array_equal(end.value.value.closing, 0.0)


def test_columns_closer_than_their_inner_products_can_tell_are_told_apart() -> None:
    rng = np.random.default_rng(11)
    vectors = np.ones((1000, 5)) / 30
    vectors[:, 1:4] += 1e-10 * rng.standard_normal((1000, 3))
    run = orthonormalised(vectors, "cholesky")
    assert defect(run.vectors[:, :4]) < 1e-13
    np.testing.assert_array_equal(run.vectors[:, 4], 0.0)
    graded = orthonormalised(conditioned(1200, 12, 1e12, 11), "cholesky")
    assert graded.ops == ["sided_gram"] * 3 + ["sided_close"]


@pytest.mark.parametrize("case", ["zero", "copy", "first"])
def test_gram_schmidt_says_which_column_depends_on_others(case: str) -> None:
    vectors = conditioned(1000, 4, 10.0, 12)
    column = 0 if case == "first" else 2
    vectors[:, column] = vectors[:, 0] if case == "copy" else 0.0
    with pytest.raises(ProtocolError, match=rf"^Column {column} .* depends on the earlier ones"):
        orthonormalised(vectors, "gram_schmidt")


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_inner_products_out_of_range_are_refused(value: float) -> None:
    protocol = cholesky_steps(plain_sum, {})
    assert next(protocol).op == "sided_gram"
    with pytest.raises(ProtocolError, match=r"Rescale the features\.$"):
        protocol.send({TOTAL: {"gram": np.full((2, 2), value)}})


def test_the_coordinator_orthonormalises_columns_that_depend_on_others_too() -> None:
    columns = np.zeros((5, 3))
    columns[:, 0] = [0.0, -2.0, 0.0, 0.0, 0.0]
    columns[:, 2] = [0.0, 5.0, 0.0, 1.0, 0.0]
    found = orthonormalise_columns(columns)
    assert defect(found) < 1e-15
    np.testing.assert_allclose(found[:, 0], [0.0, -1.0, 0.0, 0.0, 0.0], atol=1e-15)
