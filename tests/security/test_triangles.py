"""Triangles that change row vectors are the coordinator's: they must leave neither digits nor rows.

A site keeps vectors with an entry for each of its rows. Divided by a triangle and by its inverse,
they would be rounded to whatever the coordinator chose: of a column only those rows would remain
that exceed a bound, and a sum over them is a single row.
"""

from typing import Any

import numpy as np
import pytest

from eigenfed.arrays import Array
from eigenfed.privacy.policy import Policy
from eigenfed.protocol.exact.moments import MomentsRequest
from eigenfed.protocol.exact.orthonormalise import GramRequest, NormRequest
from eigenfed.protocol.exact.subspace import SidedProductRequest
from eigenfed.protocol.method import find_method
from eigenfed.protocol.study import Study
from hostile import Lone

N, D = 40, 12


def table() -> Array:
    return np.random.default_rng(3).standard_normal((N, D))


def start(k: int, policy: Policy | None = None, rows: Array | None = None) -> Lone:
    method = find_method("subspace", {"orthonormalise": "each"})
    lone = Lone.of(
        table() if rows is None else rows, Study(("a",), k, method, max_rounds=20), policy=policy
    )
    lone.open()
    lone.reply(MomentsRequest())
    return lone


def frame(far: float = 0.0) -> dict[str, Any]:
    mean = table().mean(axis=0)
    mean[0] -= far
    return {"mean": mean, "scale": np.ones(D)}


def upper(entry: float) -> Array:
    return np.array([[1.0, entry], [0.0, 1.0]])


def test_columns_that_cancel_are_not_what_rounding_left_of_them() -> None:
    """Beside constant features a direction was rounded to their digits: another brought it out."""
    rows = table()
    rows[:, [0, 2]] = 1.0
    mean = rows.mean(axis=0)
    first, second = np.sort(np.abs(rows - mean)[:, 1])[:-3:-1]
    root, step = np.sqrt(0.5), first + second
    unit = np.spacing(root)
    basis = np.zeros((D, 2))
    basis[0], basis[2], basis[1, 0] = root, (root, -root), unit / step
    mean[0] -= 1.0
    lone = start(2, rows=rows)
    opening: dict[str, Any] = {"basis": basis, "triangle": upper(1.0)}
    lone.reply(GramRequest(**opening, mean=mean, scale=np.ones(D)))
    lone.reply(GramRequest(triangle=np.diag([1.0, unit])))
    # It is the product with one feature, to the last digit, and is counted as such.
    around = rows - rows.mean(axis=0)
    exact = around.T @ around[:, 1]
    product = lone.reply(SidedProductRequest())["product"][:, 1]
    np.testing.assert_allclose(product, -exact / step, rtol=1e-9, atol=1e-12)
    counted = exact @ exact / exact[1] / np.sum(around**2)
    assert lone.site.meter.settled().variance_fraction == pytest.approx(counted)


@pytest.mark.parametrize("how", ["triangle", "onto"])
def test_triangles_do_not_round_vectors_to_the_row_that_exceeds_a_bound(how: str) -> None:
    """The largest of all entries alone was left: the product was that row, to the last digit."""
    lone, rows = start(2), table() - table().mean(axis=0)
    first, second = np.sort(np.abs(rows[:, 1]))[:-3:-1]
    step, most = first + second, 2.0**32
    opening: dict[str, Any] = {"basis": np.eye(D)[:, :2], "triangle": np.diag([1.0, step])}
    lone.reply(GramRequest(**opening, **frame(far=1.5 * 2.0**20)))
    for entry in (most, -most):
        if how == "triangle":
            lone.reply(GramRequest(triangle=upper(entry)))
        else:
            lone.reply(NormRequest(onto=np.array([entry])))
    seen = lone.reply(SidedProductRequest())["product"][1:, 1]
    np.testing.assert_allclose(seen, (rows.T @ rows[:, 1])[1:] / step, rtol=1e-6)
    alone = rows[np.abs(rows[:, 1]).argmax(), 1:]
    assert np.abs(np.abs(seen) - np.abs(alone)).max() > 0.5


def test_triangles_do_not_round_vectors_that_were_drawn() -> None:
    """Of vectors that nobody knows few entries would be left, and their product would be a row."""
    lone = start(2)
    opening: dict[str, Any] = {"seed": 1, "triangle": np.eye(2)}
    before = lone.reply(SidedProductRequest(**opening, **frame()))["product"]
    for entry in (2.0**58, -(2.0**58)):
        lone.reply(GramRequest(triangle=upper(entry)))
    after = lone.reply(SidedProductRequest())["product"]
    np.testing.assert_allclose(after, before, rtol=1e-9)


def test_triangles_cannot_make_vectors_vanish_step_by_step() -> None:
    lone = start(1)
    opening: dict[str, Any] = {"seed": 1, "triangle": np.array([[1e150]])}
    assert lone.request(GramRequest(**opening, **frame())).kind == "reply"
    assert lone.request(GramRequest(triangle=np.array([[1e5]]))).code == "invalid"


def test_a_triangle_of_zeros_does_not_hide_from_the_meter_what_directions_show() -> None:
    """The meter took zeros for the products of known directions, and a limit was never reached."""
    lone, every = start(D, Policy(max_variance_fraction=0.5)), np.eye(D)
    zeros = GramRequest(basis=every[:, :2], triangle=np.zeros((2, 2)), **frame())
    assert lone.request(zeros).kind == "reply"
    rows = table() - table().mean(axis=0)
    found = rows.T @ rows[:, :2]
    known = np.trace(found @ np.linalg.solve(found[:2], found.T)) / np.square(rows).sum()
    assert lone.site.meter.variance_fraction == pytest.approx(known)
    assert lone.request(SidedProductRequest(basis=every)).code == "aborted"
