"""Eigenvalues outside known directions are bounded closely from above, by the shorter side."""

import numpy as np
import pytest

from eigenfed.linalg.krylov_bound import FAILURE
from eigenfed.linalg.remainder import Factor, bound_largest_outside

DRAW = np.random.default_rng(7).standard_normal


@pytest.mark.parametrize(("n", "d"), [(50, 30), (50, 400), (400, 50), (200, 180)])
@pytest.mark.parametrize("short_side", [500, 0])
def test_the_largest_eigenvalue_outside_directions(n: int, d: int, short_side: int) -> None:
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((n, d)) / np.arange(1, d + 1)
    factor, trace = Factor(n, d, rows.dot, rows.T.dot), float((rows * rows).sum())
    known = np.linalg.qr(rng.standard_normal((d, 5))).Q
    outside = rows - (rows @ known) @ known.T
    true = np.linalg.svd(outside, compute_uv=False)[0] ** 2
    found = bound_largest_outside(factor, known, trace, DRAW, short_side=short_side)
    assert true <= found.value <= true * (1.05 if short_side == 0 else 1.0 + 1e-12)
    assert found.failure == (FAILURE if short_side == 0 else 0.0)


def test_nothing_is_outside_all_directions_or_in_rows_of_zeros() -> None:
    rows = np.zeros((4, 3))
    factor = Factor(4, 3, rows.dot, rows.T.dot)
    assert bound_largest_outside(factor, np.eye(3), 1.0, DRAW) == (0.0, 0.0)
    assert bound_largest_outside(factor, np.eye(3)[:, :1], 0.0, DRAW) == (0.0, 0.0)


def test_the_bound_of_an_iteration_that_ends_early_still_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eigenfed.linalg.remainder._MOST_BLOCKS", 2)
    rows = np.diag(np.linspace(1.0, 0.9, 60))
    factor, trace = Factor(60, 60, rows.dot, rows.T.dot), float((rows * rows).sum())
    found = bound_largest_outside(factor, np.eye(60)[:, :1], trace, DRAW, short_side=0)
    true = float(rows[1, 1] ** 2)
    assert 1.05 * true < found.value <= trace
