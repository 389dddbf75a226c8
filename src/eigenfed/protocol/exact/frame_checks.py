"""The mean and scale of a run as a site checks them, before its rows are touched."""

import numpy as np

from eigenfed.arrays import Array
from eigenfed.errors import InputError, ProtocolError
from eigenfed.protocol.exact.magnitude import REACH
from eigenfed.protocol.exact.stages import LEAST_SCALE
from eigenfed.protocol.operations import Limits, Terms
from eigenfed.protocol.study import GENOTYPE

_ROUNDED = 1.01
_SAME, _NARROW = 1e-12, 1e-3
"""Largest relative difference of scales that follow from the same mean, which messages may round
to single precision: that of a rare allele or of a common one, 1 - p, is then known less well."""
_LEAST_VARIANCE = 1e-9
"""Variance below which only one allele was seen: with one copy in a billion people it is larger."""


def check_mean(terms: Terms, mean: Array, limits: Limits | None = None) -> None:
    """Refuse a mean of another shape, or one other than 0 if rows are not centred."""
    check_reach(terms, mean, limits)
    if terms.study.center is not True and mean.any():
        raise InputError("The study does not centre rows at one mean, so the mean must be 0.")


def check_reach(terms: Terms, mean: Array, limits: Limits | None) -> None:
    """Refuse a mean of another shape, or out of reach.

    With secure aggregation the mean must lie within the agreed magnitudes: with any other mean,
    whether a reply exceeds its bounds would reveal something about the rows.
    """
    terms.check_vector("mean", mean)
    if limits is not None and np.abs(mean).max() > _ROUNDED * limits.entry / REACH:
        raise InputError("mean must lie within the largest entry that a site has declared.")


def check_scale(terms: Terms, scale: Array, mean: Array) -> None:
    """Refuse a scale of another shape or not above 0, or one that the study does not allow.

    Without scaling it is 1, and for genotypes it follows from the mean.
    """
    terms.check_vector("scale", scale)
    if not (scale > LEAST_SCALE).all():
        raise InputError("scale must be above 0.")
    if not terms.study.scale and (scale != 1.0).any():
        raise InputError("The study does not scale rows, so the scale must be 1.")
    if terms.study.scale == GENOTYPE:
        if not ((mean >= 0.0) & (mean <= 2.0)).all():
            raise InputError("The mean number of copies of an allele must be from 0 to 2.")
        rounding = _NARROW if terms.narrow else _SAME
        if not (np.abs(scale / find_genotype_scale(mean) - 1.0) <= rounding).all():
            raise InputError("The scale of genotypes must be the one that follows from the mean.")


def check_both_alleles(mean: Array) -> None:
    """Refuse genotypes that do not differ, from their mean over all sites.

    Examples
    --------
    >>> check_both_alleles(np.array([0.0, 2.0]))
    Traceback (most recent call last):
    eigenfed.errors.ProtocolError: No variant has both alleles among the people, so that...
    """
    if not ((mean > 0.0) & (mean < 2.0)).any():
        raise ProtocolError(
            "No variant has both alleles among the people, so that there is nothing for components "
            "to describe. Check the files, and how people and variants were chosen."
        )


def find_genotype_scale(mean: Array) -> Array:
    """Return the standard deviation of genotypes in Hardy-Weinberg equilibrium, (d,).

    With p the frequency of the counted allele, half the mean, it is ``sqrt(2 p (1 - p))``; 1 for a
    variant of which only one allele was seen.

    Examples
    --------
    >>> find_genotype_scale(np.array([1.0, 0.0, 0.2])).round(3)
    array([0.707, 1.   , 0.424])
    """
    variance = mean * (1.0 - mean / 2.0)
    scale: Array = np.where(variance > _LEAST_VARIANCE, np.sqrt(np.maximum(variance, 0.0)), 1.0)
    return scale
