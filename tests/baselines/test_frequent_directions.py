"""Frequent Directions against its bounds, by an eigendecomposition of all rows."""

from collections.abc import Callable

import numpy as np
import pytest

from eigenfed.arrays import Array
from eigenfed.baselines import FrequentDirections
from eigenfed.errors import InputError

ELL = 8


def noise(rng: np.random.Generator) -> Array:
    return rng.standard_normal((203, 12))


def decaying(rng: np.random.Generator) -> Array:
    return rng.standard_normal((500, 40)) * 0.8 ** np.arange(40)


def low_rank(rng: np.random.Generator) -> Array:
    return rng.standard_normal((300, 5)) @ rng.standard_normal((5, 30))


def drifting(rng: np.random.Generator) -> Array:
    return rng.standard_normal((400, 1)) * np.repeat(np.eye(20), 20, axis=0)


def heavy_tailed(rng: np.random.Generator) -> Array:
    return rng.standard_cauchy((300, 15))


def weak_but_frequent(rng: np.random.Generator) -> Array:
    """Plain truncation loses the last direction: in no buffer is it among the strongest."""
    return np.vstack([10 * np.eye(ELL - 1, ELL + 3), np.tile(np.eye(ELL + 3)[-1], (1000, 1))])


def few_features(rng: np.random.Generator) -> Array:
    return rng.standard_normal((100, 5))


STREAMS = [noise, decaying, low_rank, drifting, heavy_tailed, weak_but_frequent, few_features]


def tail_energies(rows: Array) -> Array:
    """||A - A_k||_F^2 for k = 0, 1, ..., by the singular values of all rows."""
    energies = np.linalg.svd(rows, compute_uv=False) ** 2
    tails: Array = np.append(energies[::-1].cumsum()[::-1], np.zeros(ELL))
    return tails


def assert_sketch_bound(rows: Array, sketch: Array) -> None:
    gap = np.linalg.eigvalsh(rows.T @ rows - sketch.T @ sketch)
    rounding = 1e-12 * np.sum(rows**2)
    bounds = tail_energies(rows)[:ELL] / (ELL - np.arange(ELL))
    assert gap[0] >= -rounding
    assert gap[-1] <= bounds.min() + rounding


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("make", STREAMS)
def test_sketch_keeps_its_bound_for_every_rank(
    make: Callable[[np.random.Generator], Array], seed: int
) -> None:
    rows = make(np.random.default_rng(seed))
    sketch = FrequentDirections(2, sketch_size=ELL).partial_fit(rows).sketch_
    assert len(sketch) < ELL
    assert_sketch_bound(rows, sketch)


@pytest.mark.parametrize("make", STREAMS)
@pytest.mark.parametrize("k", [1, 2, 4])
def test_components_keep_the_bound_on_what_they_leave(
    make: Callable[[np.random.Generator], Array], k: int
) -> None:
    rows = make(np.random.default_rng(0))
    components = FrequentDirections(k, sketch_size=ELL).partial_fit(rows).components_
    left = np.sum((rows - rows @ components.T @ components) ** 2)
    rounding = 1e-12 * np.sum(rows**2)
    assert left <= (1 + k / (ELL - k)) * tail_energies(rows)[k] + rounding


def test_bound_holds_after_every_row() -> None:
    rows = decaying(np.random.default_rng(4))[:60]
    tracker = FrequentDirections(2, sketch_size=ELL)
    for count in range(1, len(rows) + 1):
        sketch = tracker.partial_fit(rows[count - 1 : count]).sketch_
        assert_sketch_bound(rows[:count], sketch)


def test_bound_is_reached_by_a_sketch_that_shrinks() -> None:
    """On noise the loss is within a factor of three of what the bound allows for k = 0."""
    rows = noise(np.random.default_rng(0))
    sketch = FrequentDirections(2, sketch_size=ELL).partial_fit(rows).sketch_
    loss = np.linalg.norm(rows.T @ rows - sketch.T @ sketch, 2)
    assert np.sum(rows**2) / ELL / 3 < loss < np.sum(rows**2) / ELL


@pytest.mark.parametrize("make", [low_rank, few_features])
def test_rows_of_rank_below_the_sketch_size_are_kept_exactly(
    make: Callable[[np.random.Generator], Array],
) -> None:
    rows = make(np.random.default_rng(1))
    tracker = FrequentDirections(2, sketch_size=ELL).partial_fit(rows)
    np.testing.assert_allclose(
        tracker.sketch_.T @ tracker.sketch_, rows.T @ rows, atol=1e-11 * np.sum(rows**2)
    )
    top = np.linalg.eigh(rows.T @ rows).eigenvectors[:, -2:]
    np.testing.assert_allclose(np.abs(tracker.components_ @ top[:, ::-1]), np.eye(2), atol=1e-9)


def test_components_are_the_principal_directions_of_the_sketch() -> None:
    tracker = FrequentDirections(3, sketch_size=ELL).partial_fit(noise(np.random.default_rng(2)))
    directions = np.linalg.svd(tracker.sketch_).Vh[:3]
    np.testing.assert_allclose(np.abs(tracker.components_ @ directions.T), np.eye(3), atol=1e-10)


def test_sketch_size_is_twice_the_components_unless_given() -> None:
    assert FrequentDirections(5).sketch_size == 10
    assert FrequentDirections(5, sketch_size=6).sketch_size == 6


def test_sketch_size_must_exceed_the_components() -> None:
    message = "sketch_size=3 must be an integer of at least 4"
    with pytest.raises(InputError, match=message):
        FrequentDirections(3, sketch_size=3)


def test_sketch_before_any_rows_is_refused() -> None:
    with pytest.raises(InputError, match=r"sketch_ needs at least 1 row and FrequentDirections"):
        _ = FrequentDirections(3).sketch_
