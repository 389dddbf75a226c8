"""The exact test of Hardy-Weinberg equilibrium agrees with a direct enumeration."""

import numpy as np
import pytest

from eigenfed.linalg.hardy_weinberg import find_hardy_weinberg_p
from oracles import enumerate_midp


def test_p_values_are_those_of_an_enumeration() -> None:
    tables = np.random.default_rng(0).integers(0, 40, (400, 3))
    tables = np.vstack([tables, [[0, 0, 0], [9, 0, 0], [0, 1, 0], [0, 2, 0], [50, 0, 50]]])
    expected = [enumerate_midp(*row) for row in tables.tolist()]
    found = find_hardy_weinberg_p(*tables.T)
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    turned = find_hardy_weinberg_p(tables[:, 2], tables[:, 1], tables[:, 0])
    np.testing.assert_allclose(turned, expected, rtol=1e-13)


def test_many_people_keep_their_digits_and_the_impossible_is_zero(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eigenfed.linalg.hardy_weinberg._VARIANTS_AT_A_TIME", 2)
    two, one, none = np.array([[150, 190, 2500], [330, 300, 0], [180, 150, 2500]])
    expected = [enumerate_midp(*row) for row in np.column_stack([two, one, none]).tolist()[:2]]
    found = find_hardy_weinberg_p(two, one, none)
    np.testing.assert_allclose(found[:2], expected, rtol=1e-11)
    assert found[2] == 0.0
