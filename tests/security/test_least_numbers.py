"""Numbers near the least ones are rounded to few digits, and then few rows are left of a sum.

A feature that is constant lets directions be as small as they like for the other features: their
products with the rows are then 0 but for the rows that exceed a bound.
"""

from typing import Any

import numpy as np
import pytest

from eigenfed.arrays import Array
from eigenfed.protocol.exact.moments import MomentsRequest, SquaresRequest
from eigenfed.protocol.exact.orthonormalise import GramRequest
from eigenfed.protocol.exact.power_site import LocalProductRequest, WalkRequest, WeightRequest
from eigenfed.protocol.exact.products import ProductRequest
from eigenfed.protocol.exact.randomized import ReducedRequest
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
