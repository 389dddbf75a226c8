"""Counts of genotypes by variant over all sites, from which filters of variants are decided.

===========  ==================================================================================
coordinator  sums over sites: people and their weight; by variant, sites that can use it, people
             whose genotype is known, copies of the counted allele, heterozygotes; and how many
             variants of the manifest were matched in which way. With secure aggregation also,
             from each site alone, the magnitude of its number of people to a factor of two
site         nothing but the request; with secure aggregation, the largest magnitude
===========  ==================================================================================

With plain sums the coordinator sees each site's counts, and which variants of the manifest each
site has: its array, or how it was imputed. With secure aggregation it sees how many sites have a
variant. A site with few people sends counts within secure aggregation only (`Policy.min_counted`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.genotypes import Genotypes
from eigenfed.data.harmonise import CLASSES
from eigenfed.data.source import Source
from eigenfed.data.variant_filters import PooledCounts
from eigenfed.errors import InputError
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.privacy.secagg.fixed_point import Bound
from eigenfed.protocol.core import Protocol, Total
from eigenfed.protocol.exact.moments import MomentsReply, MomentsRequest, request_totals
from eigenfed.protocol.operations import Answer, Limits, State, Terms, VariantState, op
from eigenfed.protocol.study import Study

_MOST_VARIANTS = float(1 << 32)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class VariantCountsReply(MomentsReply):
    """Moments of copies, and further counts of the same people.

    Attributes
    ----------
    n : float
        People.
    count, total : ndarray of shape (d,)
        People whose genotype is known, and copies of the counted allele.
    weight : float
        Weight of the people in later sums: their number, unless they were given weights.
    one : ndarray of shape (d,)
        Heterozygotes.
    usable : ndarray of shape (d,)
        1 for a variant that the site can use, 0 for others.
    matched : ndarray of shape (8,)
        Numbers of variants by how they were matched to the manifest.
    """

    weight: float
    one: Array
    usable: Array
    matched: Array


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class VariantCountsRequest(MomentsRequest):
    """Request counts of genotypes; with secure aggregation, announce the largest magnitudes."""

    op = "variant_counts"
    reply: ClassVar[type[Any]] = VariantCountsReply
    noisy: ClassVar[bool] = False

    def begins_stage(self, terms: Terms, state: State) -> bool:
        """Return whether figures are due: counts come before any."""
        return False

    def bounds(self, limits: Limits) -> Mapping[str, Bound]:
        """Return bounds on all counts."""
        weight = limits.weight
        more = {"weight": weight, "one": weight, "usable": 1.0, "matched": _MOST_VARIANTS}
        return {**super().bounds(limits), **more}


@op(Release("counts of genotypes by variant", "10 + 4 d", Leaves.SUM_ONLY, Reveals.GENOTYPES))
def variant_counts(
    source: Source, request: VariantCountsRequest, state: State, terms: Terms
) -> Answer[VariantCountsReply]:
    """Return the counts of a site's people, those that are only projected left out."""
    table = source.X
    if not isinstance(table, Genotypes) or table.loci is None:
        raise InputError("Only genotypes have variants.")
    fitted = None if source.weights is None else source.weights > 0.0
    people = len(table) if fitted is None else int(fitted.sum())
    counts = table.counts if fitted is None else table.count(fitted)
    matched = table.loci.matched
    if matched is None:
        matched = np.zeros(len(CLASSES), dtype=np.int64)
        matched[0] = len(table.places)
    reply = VariantCountsReply(
        n=float(people),
        weight=source.total_weight,
        count=counts.observed.astype(np.float64),
        total=counts.copies.astype(np.float64),
        one=counts.one.astype(np.float64),
        usable=(table.places >= 0).astype(np.float64),
        matched=matched.astype(np.float64),
    )
    return Answer(reply, replace(state, variants=VariantState()))


def request_counts(total: Total, study: Study) -> Protocol[PooledCounts]:
    """Request the counts of all sites together."""
    first, _ = yield from request_totals(total, study, {}, VariantCountsRequest)
    if not isinstance(first, VariantCountsReply):
        raise InputError("Counts of genotypes were requested and something else was received.")
    observed, copies, one = (
        np.rint(sums).astype(np.int64) for sums in (first.count, first.total, first.one)
    )
    two = (copies - one) // 2
    matched = np.rint(first.matched).astype(np.int64)
    return PooledCounts(
        people=round(first.n),
        weight=first.weight,
        # A site counts each variant in one class. The study may name sites that are not in the run.
        sites=int(matched.sum()) // len(one),
        two=two,
        one=one,
        none=observed - two - one,
        usable=np.rint(first.usable).astype(np.int64),
        matched=matched,
    )
