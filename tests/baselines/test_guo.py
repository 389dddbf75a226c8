"""GUO against the pooled decomposition, and its price in rounds."""

import numpy as np
import pytest

from eigenfed.arrays import Array
from eigenfed.baselines.averaging import guo
from eigenfed.errors import InputError
from eigenfed.linalg.orthonormal import sines
from oracles import pooled, power_law


def run(
    parts: list[Array], k: int, *, tol: float = 1e-9, max_rounds: int = 1000, seed: int = 0
) -> tuple[Array, int]:
    return guo(parts, k, rng=np.random.default_rng(seed), tol=tol, max_rounds=max_rounds)


@pytest.mark.parametrize("seed", range(3))
def test_each_vector_is_that_of_the_pooled_rows(seed: int) -> None:
    X = power_law(300, 15, 2.5, seed=seed)
    components, _ = run(np.array_split(X, 4), 3, tol=1e-20, seed=seed)
    truth = pooled(X, centered=False).vt[:3]
    for found, expected in zip(components, truth, strict=True):
        assert sines(found[None], expected[None])[0] < 1e-8


def test_the_published_tolerance_leaves_an_error_above_itself() -> None:
    X = power_law(300, 15, 1.0)
    truth = pooled(X, centered=False).vt[:3]
    coarse = sines(run([X], 3)[0], truth)[0]
    fine = sines(run([X], 3, tol=1e-24, max_rounds=5000)[0], truth)[0]
    assert fine < 1e-9
    assert 1e-5 < coarse < 1e-2


def test_vectors_come_one_after_the_other() -> None:
    X = power_law(200, 10, 2.0)
    one, rounds_one = run([X], 1)
    two, rounds_two = run([X], 2)
    np.testing.assert_array_equal(one[0], two[0])
    assert rounds_two > rounds_one > 1


def test_the_number_of_sites_changes_only_rounding() -> None:
    X = power_law(200, 10, 2.0)
    one, rounds_one = run([X], 3)
    many, rounds_many = run(np.array_split(X, 7), 3)
    np.testing.assert_allclose(one, many, atol=1e-10)
    assert rounds_one == rounds_many


def test_rounds_end_at_the_most_for_each_vector() -> None:
    X = power_law(200, 10, 0.1)
    components, rounds = run([X], 3, max_rounds=2)
    assert rounds == 6
    np.testing.assert_allclose(components @ components.T, np.eye(3), atol=1e-12)


@pytest.mark.parametrize("sizes", [(0, 2), (1, 0), (0, 0)])
def test_rows_of_low_rank_are_completed(sizes: tuple[int, int]) -> None:
    parts = [np.outer(np.arange(1.0, n + 1), np.ones(6)) for n in sizes]
    components, _ = run(parts, 3)
    np.testing.assert_allclose(components @ components.T, np.eye(3), atol=1e-12)
    if sum(sizes):
        np.testing.assert_allclose(components[0], np.full(6, 6**-0.5))


def test_zeros_give_some_basis() -> None:
    components, rounds = run([np.zeros((4, 3))], 2)
    np.testing.assert_allclose(components @ components.T, np.eye(2), atol=1e-12)
    assert rounds == 1


@pytest.mark.parametrize(
    ("k", "tol", "max_rounds", "match"),
    [
        (0, 1e-9, 10, "k=0 must be"),
        (1, 0.0, 10, "tol=0.0 must be above 0"),
        (1, np.nan, 10, "tol=nan must be above 0"),
        (1, 1e-9, 0, "max_rounds=0 at least 1"),
    ],
)
def test_bad_arguments_are_refused(k: int, tol: float, max_rounds: int, match: str) -> None:
    with pytest.raises(InputError, match=match):
        run([np.ones((2, 3))], k, tol=tol, max_rounds=max_rounds)
