"""Pruning keeps no correlated pair in a window, as a plain loop over windows does."""

import numpy as np
import pytest

from eigenfed.linalg.ld_pruning import (
    are_sorted,
    find_correlated,
    find_window_ends,
    list_pairs,
    prune_pairs,
)
from oracles import prune_plainly


@pytest.mark.parametrize("window", [{"bases": 60}, {"variants": 4}])
def test_what_is_kept_is_what_a_plain_loop_keeps(window: dict[str, int]) -> None:
    for seed in range(12):
        rng = np.random.default_rng(seed)
        d = 40
        chromosome = np.sort(rng.integers(1, 4, d))
        position = rng.integers(0, 300, d)
        position = position[np.lexsort((position, chromosome))]
        copies = rng.binomial(2, 0.4, (30, d)).astype(np.float64)
        for j in range(1, d):
            copies[:20, j] = copies[:20, j - 1]
        copies -= copies.mean(axis=0)
        squares, frequency = np.sum(copies**2, axis=0), rng.permutation(d) / d
        frequency[::3] = 0.5
        ends = find_window_ends(chromosome, position, **window)
        one, other = list_pairs(ends, 0, d)
        products = np.sum(copies[:, one] * copies[:, other], axis=0)
        correlated = find_correlated(one, other, products, squares, 0.3)
        found = prune_pairs(one[correlated], other[correlated], ends, frequency)
        r2 = np.asarray(np.corrcoef(copies.T)) ** 2
        assert found.tolist() == prune_plainly(r2, ends.tolist(), frequency, 0.3)
        assert 1 < found.sum() < d
        alive = correlated & found[one] & found[other]
        assert not alive.any()


def test_windows_end_with_their_chromosome() -> None:
    chromosome, position = np.array([1, 1, 1, 2, 2]), np.array([5, 10, 1000, 7, 9])
    assert find_window_ends(chromosome, position, bases=5).tolist() == [2, 2, 3, 5, 5]
    assert find_window_ends(chromosome, position, variants=2).tolist() == [2, 3, 3, 5, 5]
    one, other = list_pairs(np.array([2, 2, 3, 5, 5]), 0, 5)
    assert list(zip(one.tolist(), other.tolist(), strict=True)) == [(0, 1), (3, 4)]


def test_order_is_seen() -> None:
    assert are_sorted(np.array([2, 2, 1]), np.array([1, 3, 2]))
    assert not are_sorted(np.array([1, 1]), np.array([3, 2]))
    assert not are_sorted(np.array([1, 2, 1]), np.array([1, 2, 3]))
    assert are_sorted(np.zeros(0, dtype=int), np.zeros(0, dtype=int))
