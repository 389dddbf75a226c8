"""What noise leaves of eigenvectors, against matrices with noise."""

import numpy as np
import pytest

from eigenfed.arrays import Array
from eigenfed.linalg.spiked import (
    estimate_cosines_along,
    estimate_cosines_beside,
    estimate_cosines_under_noise,
)


def under_noise(spectrum: Array, deviation: float, seed: int) -> tuple[Array, Array]:
    """All noisy eigenvalues, and the squared cosines of eigenvectors with the axes."""
    d = len(spectrum)
    noise = np.random.default_rng(seed).standard_normal((d, d))
    matrix = np.diag(spectrum) + deviation * (np.triu(noise) + np.triu(noise, 1).T)
    values, vectors = np.linalg.eigh(matrix)
    return values[::-1], np.diag(vectors[:, ::-1]) ** 2


@pytest.mark.parametrize("deviation", [0.02, 0.05, 0.06])
def test_clear_directions_are_estimated_closely(deviation: float) -> None:
    spectrum = np.r_[3.0, 2.0, np.zeros(398)]
    told, true = [], []
    for seed in range(5):
        values, cosines = under_noise(spectrum, deviation, seed)
        told.append(estimate_cosines_under_noise(values, 2, deviation))
        true.append(cosines[:2])
    np.testing.assert_allclose(np.mean(told, axis=0), np.mean(true, axis=0), atol=0.05)
    expected = 1.0 - deviation**2 * 400 / spectrum[:2] ** 2
    np.testing.assert_allclose(np.mean(told, axis=0), expected, atol=0.05)


def test_directions_below_the_noise_are_said_to_be_lost() -> None:
    values, _ = under_noise(np.r_[1.0, np.zeros(399)], 0.1, 0)
    assert estimate_cosines_under_noise(values, 1, 0.1)[0] < 0.4


def test_ties_are_lost_where_nothing_is_above_them() -> None:
    values, _ = under_noise(np.ones(200), 1e-3, 0)
    assert estimate_cosines_under_noise(values, 3, 1e-3).max() < 0.6


def test_without_noise_all_is_left_and_an_exact_tie_leaves_nothing() -> None:
    np.testing.assert_array_equal(
        estimate_cosines_under_noise(np.array([2.0, 1.0]), 2, 0.0), [1.0, 1.0]
    )
    np.testing.assert_array_equal(
        estimate_cosines_under_noise(np.array([2.0, 2.0]), 2, 0.1), [0.0, 0.0]
    )


def beside(strange: float) -> tuple[float, float]:
    """The mean squared cosine with an axis beside a random direction, told and true."""
    d, told, true = 40, [], []
    axis = np.diag(np.r_[4.0, np.zeros(d - 1)])
    for seed in range(400):
        drawn = np.random.default_rng(seed).standard_normal(d) * np.sqrt(strange / d)
        values, vectors = np.linalg.eigh(axis + np.outer(drawn, drawn))
        rest = max(values.sum() - strange, 0.0) / d
        told.append(estimate_cosines_beside(values[-1:], strange, d, background=rest)[0])
        true.append(vectors[0, -1] ** 2)
    return float(np.mean(told)), float(np.mean(true))


@pytest.mark.parametrize("strange", [0.0, 0.3, 1.0, 2.0, 12.0])
def test_a_strange_direction_mixes_with_those_it_comes_near(strange: float) -> None:
    told, true = beside(strange)
    assert told == pytest.approx(true, abs=0.06)


@pytest.mark.parametrize("strange", [3.0, 4.0, 5.0, 6.0])
def test_what_may_be_the_strange_direction_is_not_taken_for_another(strange: float) -> None:
    """Its own eigenvalue is larger than its squared length: what is above that is no sign."""
    told, true = beside(strange)
    assert told < min(true, 0.5)


def test_what_lies_along_a_known_direction_is_taken_off() -> None:
    d, rng = 30, np.random.default_rng(0)
    known = rng.standard_normal(d)
    known /= np.linalg.norm(known)
    axes = np.diag(np.r_[4.0, np.ones(d - 1)])
    values, vectors = np.linalg.eigh(axes + 9.0 * np.outer(known, known))
    leading = vectors[:, ::-1][:, :2].T
    told = estimate_cosines_along(values[::-1][:2], (leading @ known) ** 2, 9.0, 1.0)
    assert told[0] < 0.05
    assert told[1] > 0.9
    assert leading[1, 0] ** 2 > 0.9
    np.testing.assert_array_equal(estimate_cosines_along(np.ones(2), np.ones(2), 0.0, 0.0), 1.0)
