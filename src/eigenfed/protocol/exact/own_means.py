"""Rows that each site centres by its own mean: only weights are summed, and no mean leaves a site.

===========  ==================================================================================
coordinator  sums over sites: weight, and observed weight of each feature
site         a mean of 0, and the scale of all rows
===========  ==================================================================================

The components are those of the variation within sites: of all rows in one place, after the mean of
its site was subtracted from each. Differences between sites, such as those of their instruments, do
not enter. The requests of the methods are the same; a site replaces the mean that they bring, which
must be 0, by its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.privacy.secagg.fixed_point import Bound
from eigenfed.protocol.exact.moments import MomentsRequest, moments
from eigenfed.protocol.operations import Answer, Limits, State, Terms, op


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WeightsReply:
    """Weight of the rows, and observed weight of each feature."""

    n: float
    count: Array

    @property
    def total(self) -> Array:
        """Totals about the sites' own means, which are 0."""
        return np.zeros_like(self.count)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WeightsRequest(MomentsRequest):
    """Request weights; with secure aggregation, announce the largest magnitudes."""

    op, reply = "weights", WeightsReply

    def bounds(self, limits: Limits) -> Mapping[str, Bound]:
        """Return bounds on weights."""
        return {"n": limits.weight, "count": limits.weight}


@op(Release("weight, and observed weight by feature", "1 + d", Leaves.SUM_ONLY, Reveals.COUNTS))
def weights(
    source: Source, request: WeightsRequest, state: State, terms: Terms
) -> Answer[WeightsReply]:
    """Return the weight of the rows and the observed weight of each feature; keep the totals."""
    answer = moments.run(source, request, state, terms)
    reply = WeightsReply(n=answer.reply.n, count=answer.reply.count)
    return Answer(reply, answer.state)


OPS = (weights,)
