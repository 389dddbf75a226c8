"""The magnitude of a site's numbers, from which the bounds of secure sums follow.

===========  ==================================================================================
coordinator  from each site alone, the least powers of two that bound its entries and its weight
site         the figures of a preparation, if this request begins a stage of it
===========  ==================================================================================
"""

import math
from dataclasses import dataclass, replace

from eigenfed.data.source import Source
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.exact.stages import StageRequest
from eigenfed.protocol.operations import Answer, Limits, State, Terms, op

NO_ENTRY = -1074
"""The declared power of two of a site without nonzero numbers: that of the least float64."""
LARGEST_POWER = 1023
_LEAST_ENTRY = -500
"""Power of two below which entries are bounded alike: squares of smaller ones would vanish."""
REACH = 2.1
"""Means are no larger than entries, up to rounding: centred entries are within this factor."""


@dataclass(frozen=True, kw_only=True)
class MagnitudeReply:
    """Exponents of the least powers of two that bound the entries, and the weight."""

    entry: int
    weight: int


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MagnitudeRequest(StageRequest[MagnitudeReply]):
    """Request the magnitude of a site's numbers."""

    op, reply = "magnitude", MagnitudeReply

    def begins_stage(self, terms: Terms, state: State) -> bool:
        """Return whether magnitudes were declared before."""
        return state.declared is not None


@op(Release("magnitude of entries and of the weight", "2", Leaves.EXACT, Reveals.RANGE))
def magnitude(
    source: Source, request: MagnitudeRequest, state: State, terms: Terms
) -> Answer[MagnitudeReply]:
    """Return the exponents of the least powers of two that bound the entries, and the weight.

    Clipped entries have a bound that is known without them.
    """
    weight = float(source.n if source.weights is None else source.weights.sum())
    clip = state.preparation.clip
    largest = source.largest() if clip is None else 2.0 * clip
    declared = round_up_to_power(largest), round_up_to_power(weight)
    reply = MagnitudeReply(entry=declared[0], weight=declared[1])
    return Answer(reply, replace(state, declared=declared))


def compute_limits(entry: int, weight: int, parties: int, d: int) -> Limits:
    """Compute the limits of a run from the largest exponents declared.

    Entries whose squares vanish have the limit of others: sums that follow from it have a bound.
    """
    return Limits(
        REACH * math.ldexp(1.0, max(entry, _LEAST_ENTRY)), math.ldexp(1.0, weight), parties, d
    )


def round_up_to_power(value: float) -> int:
    """Return the exponent of the least power of two that is at least `value`."""
    mantissa, exponent = math.frexp(value)
    return exponent - (mantissa == 0.5) if value > 0 else NO_ENTRY
