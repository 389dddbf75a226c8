"""The exact test of Hardy-Weinberg equilibrium, with mid-p values, of many variants at once.

Given the copies of both alleles among n people, the number of heterozygotes h has a known
distribution in equilibrium. The ratio of its neighbouring probabilities is a ratio of small
integers, so that probabilities relative to that of the observed table are products of such ratios:
no logarithm of a factorial, whose rounding error grows with n, is needed. The p-value is the
probability of all tables that are less probable than the observed one, plus half of that of those
which are as probable (Graffelman and Moreno 2013).
"""

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array

Counts = npt.NDArray[np.int64]

_VARIANTS_AT_A_TIME = 1 << 15
_NEGLIGIBLE = 1e-18
_LARGEST = 1e280
"""Ratio to the observed probability beyond which the p-value is 0."""
_TIED = 1e-10


def find_hardy_weinberg_p(two: Counts, one: Counts, none: Counts) -> Array:
    """Return the mid-p value of the exact test of each variant.

    Parameters
    ----------
    two, one, none : ndarray of int64, shape (d,)
        People with two, one and no copies of an allele.

    Returns
    -------
    ndarray of shape (d,)
        From 0, also for p-values below 1e-280, to 1. A variant with one allele only has 0.5.

    Examples
    --------
    >>> two, one, none = np.array([25, 30, 9]), np.array([50, 40, 0]), np.array([25, 30, 0])
    >>> find_hardy_weinberg_p(two, one, none).round(3)
    array([0.921, 0.037, 0.5  ])
    """
    values = np.empty(len(one))
    for start in range(0, len(one), _VARIANTS_AT_A_TIME):
        span = slice(start, start + _VARIANTS_AT_A_TIME)
        table = two[span], one[span], none[span]
        center, tail = np.zeros(len(table[0])), np.zeros(len(table[0]))
        for up in (True, False):
            _add_side(table, center, tail, up=up)
        # The observed table itself counts one half.
        values[span] = (tail + 0.5) / (tail + center + 1.0)
    return values


def _add_side(table: tuple[Counts, ...], center: Array, tail: Array, *, up: bool) -> None:
    """Add the probabilities of tables with more, or with fewer, heterozygotes than observed.

    Those less probable than the observed table are added to `tail`, the others to `center`;
    of those as probable as it, one half to each.
    """
    two, one, none = (counts.astype(np.float64) for counts in table)
    place, ratio = np.arange(len(one)), np.ones(len(one))
    while len(place):
        if up:
            ratio = ratio * (4.0 * two * none) / ((one + 2.0) * (one + 1.0))
            two, one, none = two - 1.0, one + 2.0, none - 1.0
        else:
            ratio = ratio * (one * (one - 1.0)) / (4.0 * (two + 1.0) * (none + 1.0))
            two, one, none = two + 1.0, one - 2.0, none + 1.0
        tied = np.abs(ratio - 1.0) <= _TIED
        less = np.where(tied, 0.5, ratio < 1.0)
        tail[place] += ratio * less
        center[place] += ratio * (1.0 - less)
        # Beyond the largest ratio only the order of magnitude is left, and p is 0.
        center[place[ratio > _LARGEST]] = np.inf
        going = (ratio > _NEGLIGIBLE) & (ratio <= _LARGEST)
        if not going.all():
            place, ratio = place[going], ratio[going]
            two, one, none = two[going], one[going], none[going]
