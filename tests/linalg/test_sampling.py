"""Noise edge and sampling angles, against simulated samples."""

import math

import numpy as np
import pytest

from eigenfed.arrays import Array
from eigenfed.linalg.sampling import (
    compare_with_independent,
    estimate_turns,
    find_noise_edge,
    largest_by_chance,
)


def samples(population: Array, n: int, times: int) -> tuple[Array, Array]:
    """Return eigenvalues (times, d) and vectors (times, d, d) of centred samples of n rows."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((times, n, len(population))) * np.sqrt(population)
    X -= X.mean(axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(X.transpose(0, 2, 1) @ X / (n - 1))
    return values[:, ::-1], vectors[:, :, ::-1]


@pytest.mark.parametrize(("n", "d"), [(30, 20), (200, 8), (14, 24)])
def test_noise_alone_passes_the_edge_in_five_of_a_hundred_samples(n: int, d: int) -> None:
    values, _ = samples(np.ones(d), n, 400)
    passed = np.mean(values[:, 0] > largest_by_chance(n - 1.0, d))
    assert 0.02 <= passed <= 0.09
    counts = [find_noise_edge(v[:6], v.sum(), n - 1.0, d).above for v in values]
    assert np.mean(np.array(counts) > 0) <= 0.09
    parallel = [compare_with_independent(v[:6], v.sum(), n - 1.0, d).above for v in values]
    assert np.mean(np.array(parallel) > 0) <= 0.09


@pytest.mark.parametrize(("n", "d"), [(50, 30), (300, 8), (60, 70)])
def test_strong_components_are_counted_and_turn_as_estimated(n: int, d: int) -> None:
    population = np.ones(d)
    population[:3] += np.array([32.0, 14.0, 6.0]) * max(math.sqrt(d / n), 0.3)
    values, vectors = samples(population, n, 120)
    edges = [find_noise_edge(v[:8], v.sum(), n - 1.0, d) for v in values]
    assert np.mean([edge.above == 3 for edge in edges]) >= 0.9
    assert np.mean([edge.noise for edge in edges]) == pytest.approx(1.0, rel=0.03)
    turned = np.arccos(np.minimum(np.abs(vectors[:, [0, 1, 2], [0, 1, 2]]), 1.0))
    told = np.array([estimate_turns(v[:8], v.sum(), n - 1.0, d)[:3] for v in values])
    found = np.sqrt(np.mean(turned**2, axis=0))
    np.testing.assert_allclose(np.median(told, axis=0), found, rtol=0.15)


def test_all_known_components_above_the_edge_leave_the_count_open() -> None:
    variances = np.array([9.0, 5.0, 3.0])
    edge = find_noise_edge(variances, 27.0, 500.0, 13)
    assert (edge.above, edge.all_above) == (3, True)
    parallel = compare_with_independent(variances, 27.0, 500.0, 13)
    assert (parallel.above, parallel.all_above) == (3, True)
    complete = find_noise_edge(np.array([9.0, 5.0, 3.0, 1.0]), 18.0, 500.0, 4)
    assert (complete.above, complete.all_above) == (3, False)


def test_components_that_are_tied_or_noise_are_not_determined() -> None:
    turns = estimate_turns(np.array([5.0, 5.0, 1.0]), 5 + 5 + 8.0, 300.0, 10)
    assert turns.tolist() == [math.pi / 2] * 3


def test_rows_without_noise_turn_nothing() -> None:
    edge = find_noise_edge(np.array([2.0, 0.0]), 2.0, 9.0, 5)
    assert (edge.above, edge.variance, edge.noise) == (1, 0.0, 0.0)
    assert estimate_turns(np.array([2.0, 0.0]), 2.0, 9.0, 5)[0] == 0.0
    assert find_noise_edge(np.zeros(2), 0.0, 9.0, 5).above == 0
