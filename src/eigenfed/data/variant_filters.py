"""Which variants the steps of a study keep, from counts over all sites, and what each removes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eigenfed.arrays import Array, Flags, Integers
from eigenfed.data.loci import Loci
from eigenfed.data.long_range_ld import find_in_regions
from eigenfed.data.prepare_step import PrepareStep
from eigenfed.data.variant_steps import (
    Autosomes,
    CallRate,
    ExcludeLongRangeLd,
    HardyWeinberg,
    MinorAlleleFrequency,
)
from eigenfed.linalg.hardy_weinberg import find_hardy_weinberg_p

ALL, USABLE = "variants of the study", "usable at every site"
_EQUAL = 1.0 - 2.0**-44
"""Factor of a threshold that rounding must not make a variant miss."""


@dataclass(frozen=True)
class Attrition:
    """How many variants a step has removed.

    Attributes
    ----------
    step : str
        The step as text, or what else was asked of a variant.
    removed, left : int
    """

    step: str
    removed: int
    left: int


@dataclass(frozen=True, eq=False, repr=False)
class PooledCounts:
    """Counts of genotypes over all sites.

    Attributes
    ----------
    people : int
    weight : float
        Weight of the people in later sums: their number, unless they were given weights.
    sites : int
    two, one, none : ndarray of int64, shape (d,)
        People with two, one and no copies of the counted allele.
    usable : ndarray of int64, shape (d,)
        Number of sites that have the variant.
    matched : ndarray of int64, shape (8,)
        How the sites' variants were matched to the manifest, added up (`eigenfed.data.harmonise`).
    """

    people: int
    weight: float
    sites: int
    two: Integers
    one: Integers
    none: Integers
    usable: Integers
    matched: Integers

    @property
    def observed(self) -> Integers:
        """People whose genotype is known, (d,)."""
        return self.two + self.one + self.none

    @property
    def mean(self) -> Array:
        """Mean number of copies, (d,); 0 where nobody is known."""
        found: Array = (2 * self.two + self.one) / np.maximum(self.observed, 1)
        return found

    @property
    def squares(self) -> Array:
        """Sums of squares of the copies about their mean, (d,)."""
        found: Array = 4.0 * self.two + self.one - self.observed * self.mean**2
        return np.maximum(found, 0.0)

    @property
    def minor_frequency(self) -> Array:
        """Frequency of the rarer allele, (d,)."""
        found: Array = np.minimum(self.mean, 2.0 - self.mean) / 2.0
        return found


def filter_variants(
    steps: Sequence[PrepareStep], counts: PooledCounts, loci: Loci
) -> tuple[Flags, tuple[Attrition, ...]]:
    """Return which variants pass the steps that decide from counts and places, and a table of them.

    Parameters
    ----------
    steps : sequence of PrepareStep
        Those that need more are passed over.
    counts : PooledCounts
    loci : Loci

    Returns
    -------
    kept : ndarray of bool, shape (d,)
    table : tuple of Attrition
        One row for all variants, one for those that every site has, and one for each step.

    Examples
    --------
    >>> numbers = np.array([[1, 0, 0], [4, 0, 3], [5, 10, 3], [3, 3, 2], [0] * 3])
    >>> counts = PooledCounts(10, 10.0, 3, *numbers[:4], np.zeros(8, dtype=int))
    >>> loci = Loci(np.array([1, 1, 2]), np.array([10, 20, 30]))
    >>> kept, table = filter_variants([MinorAlleleFrequency(0.05)], counts, loci)
    >>> kept, [(row.step, row.removed, row.left) for row in table[1:]]
    (array([ True, False, False]), [('usable at every site', 1, 2), ('maf:0.05', 1, 1)])
    """
    kept = counts.usable == counts.sites
    table = [Attrition(ALL, 0, len(kept)), _count(USABLE, np.ones_like(kept), kept)]
    for step in steps:
        before = kept
        passed = _apply(step, counts, loci)
        if passed is not None:
            kept = kept & passed
            table.append(_count(step.text, before, kept))
    return kept, tuple(table)


def _apply(step: PrepareStep, counts: PooledCounts, loci: Loci) -> Flags | None:
    """Return which variants pass a step; None if it needs more than counts and places."""
    passed: Flags
    match step:
        case Autosomes():
            passed = loci.autosomal
        case ExcludeLongRangeLd(build=build):
            passed = ~find_in_regions(loci, build)
        case CallRate(least=least):
            passed = counts.observed >= _EQUAL * least * counts.people
        case MinorAlleleFrequency(least=least):
            passed = counts.minor_frequency >= _EQUAL * least
        case HardyWeinberg(p=least):
            p = find_hardy_weinberg_p(counts.two, counts.one, counts.none)
            passed = p >= _EQUAL * least
        case _:
            return None
    return passed


def _count(step: str, before: Flags, after: Flags) -> Attrition:
    left = int(after.sum())
    return Attrition(step, int(before.sum()) - left, left)


def format_attrition(table: Sequence[Attrition]) -> list[str]:
    r"""Return the lines of a table of what each step has removed.

    Examples
    --------
    >>> print("\n".join(format_attrition([Attrition(ALL, 0, 90), Attrition("maf:0.01", 10, 80)])))
    variants                removed  left
    variants of the study         0    90
    maf:0.01                     10    80
    """
    rows = [("variants", "removed", "left")]
    rows += [(row.step, str(row.removed), str(row.left)) for row in table]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        f"{step:<{widths[0]}}  {removed:>{widths[1]}}  {left:>{widths[2]}}"
        for step, removed, left in rows
    ]
