"""Pruning of correlated variants in windows along a chromosome, from sums over all people.

The correlation of two variants follows from a sum of products and two sums of squares. Windows,
and the order in which variants are removed, are those of PLINK's ``--indep-pairwise`` with a step
of one variant: in every window, variants of a pair whose squared correlation exceeds the threshold
are removed one by one, the rarer one of each pair first, until no such pair remains.
"""

from itertools import pairwise

import numpy as np

from eigenfed.arrays import Array, Flags, Integers

_SAME_FREQUENCY = 2.0**-44


def find_window_ends(
    chromosome: Integers,
    position: Integers,
    *,
    variants: int | None = None,
    bases: int | None = None,
) -> Integers:
    """Return, for each variant, the place after the last one of the window that it begins.

    Parameters
    ----------
    chromosome, position : ndarray of int64, shape (d,)
        Variants of one chromosome are adjacent, in increasing order of position.
    variants : int, optional
        Number of variants in a window.
    bases : int, optional
        Largest distance in a window, in base pairs; needed where `variants` is None.

    Examples
    --------
    >>> chromosome, position = np.array([1, 1, 1, 2]), np.array([100, 150, 350, 10])
    >>> find_window_ends(chromosome, position, bases=100)
    array([2, 2, 3, 4])
    >>> find_window_ends(chromosome, position, variants=2)
    array([2, 3, 3, 4])
    """
    d = len(position)
    starts = np.flatnonzero(np.diff(chromosome, prepend=chromosome[:1] - 1))
    ends = np.repeat(np.append(starts[1:], d), np.diff(np.append(starts, d)))
    if variants is not None or bases is None:
        found: Integers = np.minimum(np.arange(d) + (variants or 1), ends)
        return found
    for start, stop in zip(starts, np.append(starts[1:], d), strict=True):
        within = position[start:stop]
        ends[start:stop] = start + np.searchsorted(within, within + bases, side="right")
    return ends


def are_sorted(chromosome: Integers, position: Integers) -> bool:
    """Return whether variants of one chromosome are adjacent and in increasing order of position.

    Examples
    --------
    >>> are_sorted(np.array([1, 1, 2]), np.array([5, 9, 3]))
    True
    >>> are_sorted(np.array([1, 2, 1]), np.array([5, 9, 7]))
    False
    """
    changes = np.diff(chromosome) != 0
    is_grouped = int(changes.sum()) + 1 == len(np.unique(chromosome)) or not len(chromosome)
    return is_grouped and bool((changes | (np.diff(position) >= 0)).all())


def list_pairs(ends: Integers, first: int, last: int) -> tuple[Integers, Integers]:
    """Return the pairs of variants in windows that begin at the places from `first` to `last`.

    Examples
    --------
    >>> one, other = list_pairs(np.array([3, 3, 3]), 0, 2)
    >>> one, other
    (array([0, 0, 1]), array([1, 2, 2]))
    """
    counts = ends[first:last] - np.arange(first, last) - 1
    one = np.repeat(np.arange(first, last), counts)
    other = np.arange(len(one)) - np.repeat(np.cumsum(counts) - counts, counts) + one + 1
    return one, other


def find_correlated(
    one: Integers, other: Integers, products: Array, squares: Array, r2: float
) -> Flags:
    """Return which pairs of variants have a squared correlation above a threshold.

    Parameters
    ----------
    one, other : ndarray of int64, shape (pairs,)
    products : ndarray of shape (pairs,)
        Sums of products of the centred copies of the two variants of each pair.
    squares : ndarray of shape (d,)
        Sums of squares of the centred copies of each variant.
    r2 : float

    Examples
    --------
    >>> find_correlated(np.array([0]), np.array([1]), np.array([4.0]), np.array([4.0, 5.0]), 0.5)
    array([ True])
    """
    found: Flags = products**2 > r2 * squares[one] * squares[other]
    return found


def prune_pairs(one: Integers, other: Integers, ends: Integers, frequency: Array) -> Flags:
    """Return which variants are kept, so that no two of them in a window are correlated.

    Parameters
    ----------
    one, other : ndarray of int64, shape (pairs,)
        The pairs of correlated variants, the first of each before the other, in order.
    ends : ndarray of int64, shape (d,)
        Of `find_window_ends`.
    frequency : ndarray of shape (d,)
        Of the rarer allele: of two correlated variants the one with the lower frequency is removed,
        and the second one if they are equal.

    Examples
    --------
    >>> ends, frequency = np.array([3, 3, 3]), np.array([0.1, 0.3, 0.2])
    >>> prune_pairs(np.array([0, 1]), np.array([1, 2]), ends, frequency)
    array([False,  True, False])
    """
    kept = np.ones(len(ends), dtype=np.bool_)
    # A pair is first in one window when its second variant enters: that window begins at the
    # first place from which the second variant can be reached. Pairs that entered before are
    # resolved by then, so that a window is decided by those that enter with it.
    entering = np.searchsorted(ends, other, side="right")
    order = np.argsort(entering, kind="stable")
    ones, others = one[order], other[order]
    bounds = np.flatnonzero(np.diff(entering[order], prepend=-1)).tolist()
    frequencies = frequency.tolist()
    for start, stop in pairwise([*bounds, len(order)]):
        first, second = ones[start:stop], others[start:stop]
        alive = kept[first] & kept[second]
        if alive.any():
            kept[_prune_window(first[alive].tolist(), second[alive].tolist(), frequencies)] = False
    return kept


def _prune_window(first: list[int], second: list[int], frequency: list[float]) -> list[int]:
    """Return variants of one window without which no correlated pair is left.

    One is removed per variant and pass.
    """
    partners: dict[int, list[int]] = {}
    for i, j in zip(first, second, strict=True):
        partners.setdefault(i, []).append(j)
    waiting = sorted(partners)
    removed: set[int] = set()
    while waiting:
        changed = []
        for i in waiting:
            if i in removed:
                continue
            j = next((place for place in partners[i] if place not in removed), -1)
            if j >= 0:
                is_rarer = frequency[i] * (1.0 + _SAME_FREQUENCY) < frequency[j]
                removed.add(i if is_rarer else j)
                changed.append(i)
        waiting = changed
    return list(removed)
