"""A product may be tiny and tell as much as a large one: limits on the variance count it."""

from typing import Any

import numpy as np
import pytest

from eigenfed.arrays import Array
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.policy import Policy
from eigenfed.protocol.exact.moments import MomentsRequest
from eigenfed.protocol.exact.products import ProductRequest
from eigenfed.protocol.study import Study
from hostile import Lone

N, D = 60, 12


def begin(rows: Array, limit: float) -> tuple[Lone, dict[str, Any]]:
    policy = Policy(max_variance_fraction=limit)
    lone = Lone.of(rows, Study(("a",), 1, "krylov", max_rounds=D), policy=policy)
    lone.open()
    totals = lone.reply(MomentsRequest())
    return lone, {"mean": totals["total"] / totals["n"], "scale": np.ones(D)}


def column(**entries: float) -> Array:
    found = np.zeros((D, 1))
    for name, entry in entries.items():
        found[int(name.removeprefix("at"))] = entry
    return found


@pytest.mark.parametrize("constant", [1.0, 0.1])
@pytest.mark.parametrize("faint", [1e-5, 1e-9])
def test_constant_features_do_not_hide_the_products_of_others(
    constant: float, faint: float
) -> None:
    """One other feature with each constant one: the meter left out what had tiny Ritz values."""
    rows = np.random.default_rng(0).standard_normal((N, D))
    rows[:, :6], rows[:, 6] = constant, 2.0 * rows[:, 6]
    lone, frame = begin(rows, 0.6)
    lone.reply(ProductRequest(basis=column(at6=1.0), **frame))
    before = lone.site.meter.variance_fraction
    lone.reply(ProductRequest(basis=column(at0=1.0, at7=faint)))
    assert lone.site.meter.variance_fraction > before + 0.05
    codes = [
        lone.request(ProductRequest(basis=column(**{f"at{i}": 1.0, f"at{7 + i}": faint}))).code
        for i in (1, 2, 3)
    ]
    assert "aborted" in codes


@pytest.mark.parametrize("limit", [1.0, 0.999])
@pytest.mark.parametrize("faint", [1e-6, 1e-18])
def test_repeated_directions_of_constant_features_hide_nothing(faint: float, limit: float) -> None:
    """Rounding errors of the repeated ones outweighed a faint direction: a third was counted."""
    rows = np.random.default_rng(0).standard_normal((N, D))
    rows[:, :8] = 1.0
    lone, frame = begin(rows, limit)
    basis = np.zeros((D, 8))
    basis[:8] = np.linalg.qr(np.random.default_rng(1).standard_normal((8, 8))).Q
    basis[8, 0] = faint
    lone.reply(ProductRequest(basis=basis, **frame))
    lone.reply(ProductRequest(basis=basis))
    around = rows - rows.mean(axis=0)
    exact = around.T @ around[:, 8]
    counted = exact @ exact / exact[8] / np.sum(around**2)
    assert lone.site.meter.settled().variance_fraction == pytest.approx(counted)


def test_a_feature_in_other_units_shows_the_variance_of_its_copy() -> None:
    """The image of a copy in large units was that of the largest feature, and not counted."""
    rows = np.random.default_rng(0).standard_normal((N, D))
    rows[:, 1] = 1e3 * rows[:, 1]
    rows[:, 0] = 1e-9 * rows[:, 1]
    lone, frame = begin(rows, 0.5)
    lone.reply(ProductRequest(basis=column(at2=1.0), **frame))
    assert lone.request(ProductRequest(basis=column(at0=1.0))).code == "aborted"


def test_the_spread_of_features_is_kept_with_the_meter() -> None:
    rows = np.random.default_rng(0).standard_normal((N, D)) * np.geomspace(1e-6, 1e6, D)
    lone, frame = begin(rows, 0.99)
    lone.reply(ProductRequest(basis=column(at3=1.0), **frame))
    meter = lone.site.meter
    again = Meter.from_bytes(meter.to_bytes())
    assert again.spread is not None
    np.testing.assert_allclose(again.spread, np.square(rows - rows.mean(axis=0)).sum(axis=0))
    assert again.variance_fraction == meter.variance_fraction
