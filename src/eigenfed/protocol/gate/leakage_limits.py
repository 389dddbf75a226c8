"""What a reply reveals: the policy's limits before it is computed, and the meter after.

Whether a reply may leave is decided from its request, the study and the meter, before rows are
read: a refusal that depended on rows would reveal more. What it has revealed is counted once it was
computed, before it leaves; beyond the limit on the variance, which only the reply decides, the run
aborts.
"""

import math
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.release import Reveals
from eigenfed.privacy.revealed_products import RevealedEntries, RevealedProducts
from eigenfed.protocol.gate.run_state import Admitted, OpenRun
from eigenfed.protocol.messages import refusal
from eigenfed.protocol.operations import Answer, Request, State


@dataclass(frozen=True, eq=False, repr=False)
class Allowed:
    """A request whose reply is within the policy's limits.

    Attributes
    ----------
    request : Request
        Without the parts of its directions that the meter could not count.
    state : State
        The state with the values that the request carries for later ones.
    own : int
        Number of directions to be revealed that the site computes from its rows.
    meter : Meter
        The site's meter, with all replies merged into its basis if the policy limits leakage.
    """

    request: Request[Any]
    state: State
    own: int
    meter: Meter


def check_leakage(
    run: OpenRun, admitted: Admitted, meter: Meter, policy: Policy, source: Source
) -> Allowed:
    """Refuse a request whose reply would exceed the policy's limit on revealed directions.

    Parameters
    ----------
    run : OpenRun
    admitted : Admitted
    meter : Meter
        The site's meter.
    policy : Policy
    source : Source
        The site's rows, of which nothing is read but whether entries are missing.

    Raises
    ------
    Refusal
        With the code "leakage", or "invalid" for directions of another length than rows have.
    """
    request, reveals = admitted.request, admitted.op.release.reveals
    state = request.apply_to(run.terms_at(run.state), run.state)
    directions = request.directions()
    if meter.count_clip(state.preparation.bounds_digest).clip_count > policy.max_clips:
        raise refusal("leakage")
    if directions is not None and len(directions) != state.preparation.width(meter.d):
        raise refusal("invalid")
    if not policy.limits_leakage:
        return Allowed(request, state, 0, meter)
    meter = meter.settled()
    about, own = _find_meter(run, meter, state, source), 0
    if _may_determine_all(about, reveals, policy):
        raise refusal("leakage")
    if directions is not None:
        request, rank = _count_directions(request, state, about)
    elif reveals is Reveals.SCATTER:
        rank = 1.0
    elif reveals is Reveals.REMAINDER:
        rank = _rank_with_remainder(about, policy)
    else:
        # The directions are not known yet: all of them are assumed to be new.
        own = request.own_directions(run.terms_at(state), state)
        rank = min(about.rank_fraction + own / about.size, 1.0) if own else 0.0
    if rank > policy.max_rank_fraction:
        raise refusal("leakage")
    return Allowed(request, state, own, meter)


def count_leakage(
    run: OpenRun,
    reveals: Reveals,
    answer: Answer[Any],
    allowed: Allowed,
    policy: Policy,
    source: Source,
) -> Meter:
    """Return the site's meter after a reply.

    Raises
    ------
    InputError
        If more of the variance would be revealed than the policy allows.
    """
    before = _find_meter(run, allowed.meter, answer.state, source)
    meter = before.count_clip(answer.state.preparation.bounds_digest)
    meter = meter.count_reply(reveals, _embed_revealed(answer, before.d))
    if allowed.own:
        # As promised before the reply, whatever the rank: later refusals depend on this count.
        meter = meter.raise_rank(before.rank + allowed.own)
    if meter is not allowed.meter and policy.max_variance_fraction < 1.0:
        meter = meter.settled()
        if meter.variance_fraction > policy.max_variance_fraction:
            raise InputError("The replies would reveal more variance than the policy allows.")
    return meter


def _find_meter(run: OpenRun, meter: Meter, state: State, source: Source) -> Meter:
    """Return the leakage meter of a data set for rows as a run prepares them."""
    prepare, d, sent = state.preparation, run.terms.d, state.sent
    if meter.d != d or prepare.missing is not None or not (sent or run.summary):
        return meter  # which rows the directions will be about is not known yet
    width = prepare.width(d) if prepare.filters_variants else run.terms.study.width(d)
    # Two summaries of a stream are of different rows, as two ways to prepare rows are.
    key = prepare.key or run.summary
    if sent is not None and _has_gaps(state, source):
        # Missing entries are at the run's mean: with another mean these are other rows.
        mean = b"own" if state.centers_itself else sent[0].tobytes()
        key = f"{key} mean:{sha256(mean).hexdigest()}".strip()
    return meter.about(key, width, others=bool(run.summary))


def _has_gaps(state: State, source: Source) -> bool:
    """Return whether entries are missing; complete rows are not read once more to tell."""
    known = state.totals
    is_complete = known is not None and bool((known.observed == known.n).all())
    return not is_complete and source.has_missing


def _embed_revealed(answer: Answer[Any], d: int) -> RevealedProducts | RevealedEntries | None:
    """Return what a reply reveals about all d features, where rows have only selected ones."""
    found, selected = answer.revealed, answer.state.preparation.selected
    if found is None or selected is None:
        return found or answer.entries
    return found._replace(selected=selected, size=d)


def _count_directions(
    request: Request[Any], state: State, meter: Meter
) -> tuple[Request[Any], float]:
    """Return a request without the parts of its directions that the meter could not count.

    Directions that almost repeat known ones would pass as rounding errors, and yet the difference
    of the two replies would reveal a new one. That part is removed. The second return value is the
    rank fraction after the reply.
    """
    known, directions = state.preparation, request.directions()
    if directions is None:
        return request, 0.0
    scale = None if state.sent is None else known.embed(state.sent[1], meter.d, 1.0)
    whole = known.embed(directions, meter.d)
    counted = meter.counted(whole, scale)
    if counted is not whole:
        kept = counted if known.selected is None else counted[known.selected]
        request, counted = request.with_directions(kept), known.embed(kept, meter.d)
    return request, meter.rank_with(counted, scale)


def _may_determine_all(meter: Meter, reveals: Reveals, policy: Policy) -> bool:
    """Return whether nothing bounds what replies determine of the variance, which is limited.

    Beside the diagonal, single entries of the scatter leave little of it open.
    """
    return policy.max_variance_fraction < 1.0 and (meter.mixed or reveals is Reveals.ENTRIES)


def _rank_with_remainder(meter: Meter, policy: Policy) -> float:
    """Return the rank fraction after a remainder; infinite if the variance may exceed its limit."""
    after = meter.count_reply(Reveals.REMAINDER, None)
    determines = after.remainder_rank and policy.max_variance_fraction < 1.0
    return math.inf if determines else after.rank_fraction
