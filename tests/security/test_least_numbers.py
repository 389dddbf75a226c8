"""Numbers near the least ones are rounded to few digits, and then few rows are left of a sum.

A feature that is constant lets directions be as small as they like for the other features: their
products with the rows are then 0 but for the rows that exceed a bound.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eigenfed.arrays import Array
from eigenfed.data.genotypes import Genotypes
from eigenfed.data.loci import Loci
from eigenfed.data.source import Source
from eigenfed.protocol.exact.covariance import Covariance, ScatterRequest
from eigenfed.protocol.exact.frame_checks import find_genotype_scale
from eigenfed.protocol.exact.moments import MomentsRequest, SquaresRequest
from eigenfed.protocol.exact.orthonormalise import GramRequest
from eigenfed.protocol.exact.power_site import LocalProductRequest, WalkRequest, WeightRequest
from eigenfed.protocol.exact.products import ProductRequest
from eigenfed.protocol.exact.randomized import ReducedRequest
from eigenfed.protocol.exact.spectrum import unpack_symmetric
from eigenfed.protocol.exact.subspace import SidedProductRequest
from eigenfed.protocol.method import find_method
from eigenfed.protocol.study import Study
from hostile import Lone

N, D = 40, 12
LEAST = float(np.finfo(float).smallest_subnormal)


def table(far: float) -> Array:
    rows = np.random.default_rng(3).standard_normal((N, D)) + far
    rows[:, 0] = far
    return rows


def begin(rows: Array, method: Any, *, scale: bool) -> tuple[Lone, dict[str, Any], Array]:
    """Open a run; return the frame in which one row alone has half of the least number."""
    lone = Lone.of(rows, Study(("a",), 1, method, scale=scale, max_rounds=20))
    lone.open()
    totals = lone.reply(MomentsRequest())
    mean, scales = totals["total"] / totals["n"], np.ones(D)
    around = rows - mean
    if scale:
        lone.reply(SquaresRequest(mean=mean))
        largest, second = np.sort(np.abs(around[:, 1]))[:-3:-1]
        scales = np.r_[1.0, largest + second, np.full(D - 2, 1e-150)]
    return lone, {"mean": mean, "scale": scales}, around


def faint(size: float) -> Array:
    basis = np.zeros((D, 1))
    basis[:2, 0] = 1.0, size
    return basis


@pytest.mark.parametrize("far", [0.0, 100.0])
@pytest.mark.parametrize("name", ["krylov", "subspace"])
def test_a_direction_near_the_least_numbers_shows_no_single_row(name: str, far: float) -> None:
    """The product was that row, to the last digit, where the scale of others made it large."""
    lone, frame, _ = begin(table(far), name, scale=True)
    kind = ProductRequest if name == "krylov" else SidedProductRequest
    assert not lone.reply(kind(basis=faint(LEAST), **frame))["product"].any()


def test_local_steps_do_not_enlarge_it() -> None:
    """The basis after a step was the row, divided by its norm."""
    method = find_method("power", {"local_steps": 2, "align": "procrustes"})
    lone, frame, _ = begin(table(100.0), method, scale=True)
    lone.reply(WeightRequest(**frame))
    basis = lone.reply(WalkRequest(start=faint(LEAST), steps=1, shown=True))["basis"]
    np.testing.assert_array_equal(np.abs(basis), np.eye(D)[:, :1])
    assert not lone.reply(LocalProductRequest(start=faint(LEAST), steps=0))["product"].any()


def test_triangles_do_not_take_vectors_to_the_least_numbers_and_back() -> None:
    """Dividing by 2**511 left one entry of a vector, which 2**-511 made large again."""
    method = find_method("subspace", {"orthonormalise": "each"})
    lone, frame, around = begin(table(0.0), method, scale=False)
    largest, second = np.sort(np.abs(around[:, 1]))[:-3:-1]
    small = float(np.ldexp(2.0 / (largest + second), 511 - 1075))
    wide, narrow = np.array([[2.0**511]]), np.array([[2.0**-511]])
    lone.reply(GramRequest(basis=faint(small), triangle=wide, **frame))
    lone.reply(GramRequest(triangle=narrow))
    assert not lone.reply(SidedProductRequest(triangle=narrow))["product"].any()


def test_small_directions_that_keep_their_digits_are_answered() -> None:
    lone, frame, around = begin(table(0.0), "randomized", scale=False)
    for _ in range(10):
        product = lone.reply(SidedProductRequest(basis=faint(1e-80), **frame))["product"]
        np.testing.assert_allclose(product[:, 0], 1e-80 * around.T @ around[:, 1], rtol=1e-9)
        frame = {}
    inner = lone.reply(ReducedRequest(basis=faint(1e-80)))["inner"]
    np.testing.assert_allclose(inner[0, 0], 1e-160 * np.sum(around[:, 1] ** 2), rtol=1e-9)


def test_scales_do_not_take_a_feature_to_the_least_numbers_of_single_precision() -> None:
    """Of its entries one was left, and its column of the covariance was that row."""
    rows = table(0.0)
    lone = Lone.of(rows, Study(("a",), 1, Covariance(precision="single"), scale=True))
    lone.open()
    totals = lone.reply(MomentsRequest())
    mean = totals["total"] / totals["n"]
    around, scale = rows - mean, np.full(D, 1e-15)
    lone.reply(SquaresRequest(mean=mean))
    largest, second = np.sort(np.abs(around[:, 1]))[:-3:-1]
    scale[1] = (largest + second) * 2.0**149
    triangle = lone.reply(ScatterRequest(mean=mean, scale=scale))["triangle"]
    seen = unpack_symmetric(triangle, D)[1, 2:] * scale[1] * 1e-15
    np.testing.assert_allclose(seen, around[:, 2:].T @ around[:, 1], rtol=1e-4)


def people() -> tuple[Source, Array]:
    """Genotypes of people, the first variant with one allele only, and their copies."""
    rng = np.random.default_rng(1)
    codes = rng.choice([0, 2, 3], p=[0.2, 0.4, 0.4], size=(30, 64)).astype(np.uint8)
    codes[0] = 3
    packed = np.bitwise_or.reduce([codes[:, i::4] << (2 * i) for i in range(4)])
    table = replace(Genotypes.of(packed, 64), loci=Loci(np.ones(30, int), np.arange(30)))
    return Source(table), np.array([2.0, np.nan, 1.0, 0.0])[codes].T


@pytest.mark.parametrize("power", [0, 40, 149, 300])
def test_triangles_do_not_take_genotypes_to_the_least_numbers_of_single_precision(
    power: int,
) -> None:
    """Of vectors of all people one entry was left: the product was the genotypes of that person."""
    source, copies = people()
    method = find_method("subspace", {"orthonormalise": "each"})
    lone = Lone.of(source, Study(("a",), 1, method, scale="genotype", max_rounds=5))
    lone.open()
    totals = lone.reply(MomentsRequest())
    mean = totals["total"] / totals["count"]
    frame: dict[str, Any] = {"mean": mean, "scale": find_genotype_scale(mean)}
    rows = (copies - mean) / frame["scale"]
    basis = np.linalg.qr(np.random.default_rng(1).standard_normal((30, 1))).Q
    sided = (rows @ basis)[:, 0]
    largest, second = np.sort(np.abs(sided))[:-3:-1]
    triangle = np.array([[(largest + second) * 2.0**power]])
    lone.reply(GramRequest(basis=basis, triangle=triangle, **frame))
    seen = lone.reply(SidedProductRequest())["product"][:, 0] * triangle[0, 0]
    np.testing.assert_allclose(seen, rows.T @ sided, atol=1e-3)


def test_directions_near_the_least_numbers_of_single_precision_show_nobody() -> None:
    source, _ = people()
    lone = Lone.of(source, Study(("a",), 1, "krylov", scale="genotype"))
    lone.open()
    totals = lone.reply(MomentsRequest())
    mean = totals["total"] / totals["count"]
    basis = np.zeros((30, 1))
    basis[:2, 0] = 1.0, 2.0**-149
    frame: dict[str, Any] = {"mean": mean, "scale": find_genotype_scale(mean)}
    assert not lone.reply(ProductRequest(basis=basis, **frame))["product"].any()
