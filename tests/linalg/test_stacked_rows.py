"""Rows in several arrays as one table."""

import numpy as np
import pytest

from eigenfed.linalg.orthonormal import sines
from eigenfed.linalg.stacked_rows import StackedRows, leading_pairs

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("d", [5, 9, 300_000])
def test_products_are_those_of_the_rows_together(d: int) -> None:
    parts = [RNG.standard_normal((m, d)) for m in (3, 0, 1, 5)]
    rows, whole = StackedRows(parts), np.vstack(parts)
    assert rows.shape == whole.shape
    basis, sided = RNG.standard_normal((d, 2)), RNG.standard_normal((9, 2))
    np.testing.assert_allclose(rows.multiply(basis), whole @ basis, atol=1e-9)
    np.testing.assert_allclose(rows.adjoint(sided), whole.T @ sided, atol=1e-12)
    expected = whole @ whole.T if d > 9 else whole.T @ whole
    np.testing.assert_allclose(rows.square_shorter_side(), expected, atol=1e-8)


@pytest.mark.parametrize("d", [6, 40])
def test_leading_pairs_are_those_of_the_rows_together(d: int) -> None:
    whole = RNG.standard_normal((20, d)) * 0.8 ** np.arange(d)
    rows = StackedRows([whole[:13], whole[13:]])
    values, vt = leading_pairs(rows, rows.square_shorter_side(), 3, 2)
    s, exact = np.linalg.svd(whole)[1:]
    np.testing.assert_allclose(values, s[:5] ** 2, rtol=1e-10)
    assert sines(vt, exact[:3])[0] < 1e-10


def test_components_far_below_the_first_are_found() -> None:
    basis = np.linalg.qr(RNG.standard_normal((50, 4))).Q.T
    s = np.array([1.0, 1e-3, 1e-7, 1e-9])
    rows = np.linalg.qr(RNG.standard_normal((8, 4))).Q * s @ basis
    values, vt = leading_pairs(StackedRows([rows]), rows @ rows.T, 3, 0)
    np.testing.assert_allclose(values[:3], s[:3] ** 2, rtol=1e-6)
    assert sines(vt, basis[:3])[0] < 1e-6
    np.testing.assert_allclose(vt @ vt.T, np.eye(3), atol=1e-12)
