"""Counts, means and variances over all sites.

===========  ==================================================================================
coordinator  sums over sites: weight, observed weight and total by feature; squares by feature
             where scales are wanted. Where sums need bounds also, of each site on its own, how
             large its entries and its weight are, to a factor of two; and as a sum the total
             squared deviation
site         the mean and scale of all rows; with bounds, how large entries and weights are anywhere
===========  ==================================================================================
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.one_pass import OwnScatter
from eigenfed.data.prepared import Prepared
from eigenfed.data.source import Source, stored
from eigenfed.errors import InputError, ProtocolError
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.privacy.secagg import fixed_point
from eigenfed.privacy.secagg.fixed_point import Bound
from eigenfed.protocol.core import Call, Protocol, Total, call_each
from eigenfed.protocol.gate.script import Script, optional, repeat, sequence
from eigenfed.protocol.operations import (
    Answer,
    Frame,
    Limits,
    Request,
    State,
    Terms,
    check_finite,
    check_integer,
    op,
)
from eigenfed.protocol.study import Study

_NONE = -1074
_LARGEST_POWER = 1023
_FINE = 1e-13
_REACH = 2.1
"""Means are no larger than entries, but for rounding: no deviation is farther than this times."""
_ROUNDED = 1.01
_COARSEST = 40
"""By how many powers of two what all sites may bring can exceed what this one declared. More would
round the site's numbers so coarsely that a sum of them shows where single ones are rounded."""


@dataclass(frozen=True, kw_only=True)
class MagnitudeReply:
    """Least powers of two that no entry exceeds, and that the weight does not."""

    entry: int
    weight: int


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MagnitudeRequest(Request[MagnitudeReply]):
    """Ask how large a site's numbers are."""

    op, reply = "magnitude", MagnitudeReply


@op(Release("magnitude of entries and of the weight", "2", Leaves.EXACT, Reveals.RANGE))
def magnitude(
    source: Source, request: MagnitudeRequest, state: State, terms: Terms
) -> Answer[MagnitudeReply]:
    """Return the least powers of two that no entry exceeds, and that the weight does not."""
    entries = stored(source.X)
    weight = float(source.n if source.weights is None else source.weights.sum())
    largest = max(
        -float(np.nanmin(entries, initial=0.0)), float(np.nanmax(entries, initial=0.0)), 0.0
    )
    declared = _power(largest), _power(weight)
    reply = MagnitudeReply(entry=declared[0], weight=declared[1])
    return Answer(reply, replace(state, declared=declared))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MomentsReply:
    """Weight of the rows, observed weight and weighted total of each feature."""

    n: float
    count: Array
    total: Array


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MomentsRequest(Request[MomentsReply]):
    """Ask for totals; where sums need bounds, say how large numbers are at any site.

    Attributes
    ----------
    entry, weight : int or None
        The largest powers of two that sites have declared.
    """

    entry: int | None = None
    weight: int | None = None

    op, reply = "moments", MomentsReply

    def check(self, terms: Terms, state: State) -> None:
        """Refuse magnitudes that are missing, below what the site declared, or far above."""
        given = (self.entry, self.weight)
        if not terms.parties:
            if given != (None, None):
                raise InputError("Plain sums need no magnitudes.")
            return
        if state.declared is None or self.entry is None or self.weight is None:
            raise InputError("Magnitudes must be asked for first, and sent.")
        for name, told, own in zip(("entry", "weight"), given, state.declared, strict=True):
            check_integer(name, told or 0, max(own, _NONE), _LARGEST_POWER)
        entry, weight = (told - own for told, own in zip(given, state.declared, strict=True))  # type: ignore[operator]
        # A site without numbers other than zero has nothing to hide in rounding.
        if state.declared[0] > _NONE and 2 * entry + weight > _COARSEST:
            raise InputError("The magnitudes are so large that this site's numbers are lost.")

    def agreed(self, terms: Terms, state: State) -> State:
        """Return the state with the limits that follow from the magnitudes."""
        if self.entry is None or self.weight is None:
            return state
        return replace(state, limits=limits_of(self.entry, self.weight, terms.parties, terms.d))

    def bounds(self, limits: Limits) -> Mapping[str, Bound]:
        """Bound weights and totals."""
        weight = limits.weight
        return {"n": weight, "count": weight, "total": weight * limits.entry}


@op(Release("weight, and totals by feature", "1 + 2 d", Leaves.SUM_ONLY, Reveals.MEANS))
def moments(
    source: Source, request: MomentsRequest, state: State, terms: Terms
) -> Answer[MomentsReply]:
    """Weight of the rows, observed weight and weighted total of each feature.

    Where the scatter will be asked for, the site keeps its own, so that it reads its rows once.
    """
    keeps = not isinstance(terms.study.method, str) and terms.study.method.keeps_scatter()
    own = OwnScatter.of(source) if keeps else None
    if own is not None:
        n, count, total = own.n, np.full(source.d, own.n), own.n * own.mean
    else:
        n, count, total = source.totals()
    state = replace(state, totals=(n, count, total), scatter=own)
    return Answer(MomentsReply(n=n, count=count, total=total), state)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SquaresReply:
    """Squared deviations by feature."""

    squares: Array


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SquaresRequest(Request[SquaresReply]):
    """Ask for squared deviations from the mean of all sites.

    Attributes
    ----------
    mean : ndarray of shape (d,)
    found : ndarray of shape (d,), or None
        Where sums are in fixed point, what an earlier ask found for all sites: each feature then
        has a bound of its own, and small ones keep their digits.
    """

    mean: Array
    found: Array | None = None

    op, reply = "squares", SquaresReply

    def check(self, terms: Terms, state: State) -> None:
        """Refuse a mean or sums of another shape."""
        check_mean(terms, self.mean, state.limits)
        if self.found is None:
            return
        check_finite("found", self.found, (terms.d,))
        limits = state.limits
        if limits is None or not (
            (self.found >= 0.0).all() and self.found.max() <= limits.parties * limits.squares
        ):
            raise InputError("found must lie between 0 and what all sites can bring.")

    def bounds(self, limits: Limits) -> Mapping[str, Bound]:
        """Bound squares by the limits, or by what was found and its error."""
        if self.found is None:
            return {"squares": limits.squares}
        return {"squares": self.found + 2.0 * fixed_point.error(limits.squares, limits.parties)}


@op(Release("squared deviations by feature", "d", Leaves.SUM_ONLY, Reveals.DIAGONAL))
def squares(
    source: Source, request: SquaresRequest, state: State, terms: Terms
) -> Answer[SquaresReply]:
    """Weighted squared deviations of each feature from the mean of all sites."""
    if state.scatter is not None:
        return Answer(SquaresReply(squares=state.scatter.squares(request.mean)), state)
    prepared = Prepared(source, request.mean, np.ones(source.d))
    return Answer(SquaresReply(squares=prepared.squares()), state)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FramedRequest(Request[Any]):
    """A request about rows as the run sees them: the first brings the mean and the scale.

    Attributes
    ----------
    mean, scale : ndarray of shape (d,), or None
        None once the site has them.
    most : float or None
        Where sums need bounds, no less than the total squared deviation of all rows; None once the
        site has it.
    """

    mean: Array | None = None
    scale: Array | None = None
    most: float | None = None

    def check(self, terms: Terms, state: State) -> None:
        """Refuse a frame that is missing, comes twice, or is not what the study says."""
        given = self.mean is not None or self.scale is not None
        if given != (state.sent is None):
            raise InputError("The mean and scale of a run come once, with the first request.")
        if self.mean is not None and self.scale is not None:
            check_mean(terms, self.mean, state.limits)
            check_scale(terms, self.scale)
        elif given:
            raise InputError("The mean and scale of a run come together.")
        self._check_most(terms, state)

    def _check_most(self, terms: Terms, state: State) -> None:
        limits = state.limits
        needed = bool(terms.parties) and (limits is None or math.isinf(limits.most))
        if (self.most is not None) != needed or (needed and limits is None):
            raise InputError("The largest squared deviation comes once, where sums need bounds.")
        if (
            self.most is not None
            and limits is not None
            and not 0.0
            <= self.most
            <= 1.01 * (limits.parties * limits.squares * limits.d / self._least_scale(state) ** 2)
        ):
            raise InputError("most must be between 0 and what all sites can bring.")

    def _least_scale(self, state: State) -> float:
        scale = state.sent_frame[1] if self.scale is None else self.scale
        return float(scale.min())

    def agreed(self, terms: Terms, state: State) -> State:
        """Return the state with the mean and scale, and the bound on squared deviations."""
        if self.mean is not None and self.scale is not None:
            state = replace(state, sent=(self.mean, self.scale))
        if self.most is not None and state.limits is not None:
            state = replace(state, limits=replace(state.limits, most=self.most))
        return state


def framed(source: Source, state: State) -> tuple[Prepared, Frame, State]:
    """Return the rows through the run's mean and scale."""
    frame = state.frame
    if frame is None:
        frame = _frame(source, state)
        state = replace(state, frame=frame)
    return Prepared(source, frame.mean, frame.scale), frame, state


def _frame(source: Source, state: State) -> Frame:
    """Work out what the meter needs: it counts about the site's own mean.

    What a coordinator sends as a mean must neither dwarf the part of the variance that was told
    nor pass for some of it.
    """
    mean, scale = state.sent_frame
    n, count, total = source.totals() if state.totals is None else state.totals
    own_mean = total / np.where(count > 0, count, 1.0)
    raw = Prepared(source, own_mean, np.ones(source.d)).squares()
    away = own_mean - mean
    inside = (raw + count * away**2) / scale**2
    return Frame(mean, scale, float(inside.sum()), float(raw.sum()), np.sqrt(n) * away)


def check_mean(terms: Terms, mean: Array, limits: Limits | None = None) -> None:
    """Refuse a mean of another shape, or one other than 0 where rows are not centred.

    Where magnitudes were agreed on, no mean lies beyond them: about one that does, whether a reply
    fits its bounds would tell of the rows.
    """
    terms.check_vector("mean", mean)
    if limits is not None and np.abs(mean).max() > _ROUNDED * limits.entry / _REACH:
        raise InputError("mean must lie within the largest entry that a site has declared.")
    if not terms.study.center and mean.any():
        raise InputError("The study does not centre, and the mean must be 0.")


def check_scale(terms: Terms, scale: Array) -> None:
    """Refuse a scale of another shape or not above 0, or other than 1 where nothing is scaled."""
    terms.check_vector("scale", scale)
    if not (scale > 1e-150).all():
        raise InputError("scale must be above 0.")
    if not terms.study.scale and (scale != 1.0).any():
        raise InputError("The study does not scale, and the scale must be 1.")


@dataclass(frozen=True, kw_only=True)
class SpreadReply:
    """Total squared deviation."""

    spread: float


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SpreadRequest(FramedRequest):
    """Ask for the trace alone, by which sums that need bounds are bounded from then on."""

    op, reply = "spread", SpreadReply

    def _check_most(self, terms: Terms, state: State) -> None:
        if self.most is not None or state.limits is None:
            raise InputError("The largest squared deviation is what is asked for.")

    def bounds(self, limits: Limits) -> Mapping[str, Bound]:
        """Bound it by the limits of one feature."""
        return {"spread": limits.squares * limits.d}


@op(Release("total squared deviation", "1", Leaves.SUM_ONLY, Reveals.BOUND))
def spread(
    source: Source, request: SpreadRequest, state: State, terms: Terms
) -> Answer[SpreadReply]:
    """Return the trace of the site's scatter."""
    _, frame, state = framed(source, state)
    return Answer(SpreadReply(spread=frame.trace), state)


OPS = (magnitude, moments, squares, spread)


def moments_script(study: Study) -> Script:
    """Return what a site is asked before the method begins."""
    if not study.masked:
        return sequence("moments", optional("squares") if study.scale else sequence())
    last = repeat("squares", 1, 2) if study.scale else sequence("spread")
    return sequence("magnitude", "moments", last)


def limits_of(entry: int, weight: int, parties: int, d: int) -> Limits:
    """Return the limits that follow from the largest powers of two declared."""
    return Limits(_REACH * math.ldexp(1.0, entry), math.ldexp(1.0, weight), parties, d)


def _power(value: float) -> int:
    mantissa, exponent = math.frexp(value)
    return exponent - (mantissa == 0.5) if value > 0 else _NONE


@dataclass(frozen=True, eq=False)
class Moments:
    """What a PCA needs to know of all rows before it begins.

    Attributes
    ----------
    n : float
        Sum of the weights.
    mean : ndarray of shape (d,)
        Over observed entries; zeros where rows are not centred.
    scale : ndarray of shape (d,)
        Standard deviations over observed entries, divisor their weight; 1 where a feature is
        constant or never observed, and everywhere where no scaling is wanted.
    most : float
        No less than the total squared deviation of all rows, with which that of each site and
        every entry of its scatter is bounded; infinite where sums need no bounds.
    wire : {"float64", "float32"}
        Precision of the floats in messages, which limits what a certificate can say.
    sent : bool
        Whether the sites have the mean and the scale already.
    """

    n: float
    mean: Array
    scale: Array
    most: float = math.inf
    wire: str = "float64"
    sent: bool = False

    @property
    def divisor(self) -> float:
        """What turns scatter into covariance."""
        return self.n - 1.0 if self.n > 1.0 else 1.0

    @property
    def frame(self) -> dict[str, Any]:
        """Fields of the first request about the rows, as far as the sites do not have them."""
        fields: dict[str, Any] = {}
        if not self.sent:
            fields |= {"mean": self.mean, "scale": self.scale}
        if math.isfinite(self.most):
            fields["most"] = self.most
        return fields


def all_moments(total: Total, study: Study) -> Protocol[Moments]:
    """Bring together counts and means, and standard deviations where they are wanted.

    Parameters
    ----------
    total : Total
        How sums are made.
    study : Study
        Whether rows are centred and scaled, and over which wire.
    """
    first, limits = yield from _first(total, study)
    n, count = first.n, first.count
    if not n > 0.0:
        raise ProtocolError("All sites together have no rows of positive weight. Bring some rows.")
    observed = np.where(count > 0, count, 1.0)
    mean = first.total / observed
    if limits is not None:
        # No mean is beyond the largest entry, but for what fixed point makes of next to no weight.
        mean = np.clip(mean, -limits.entry / _REACH, limits.entry / _REACH)
    center_at = mean if study.center else np.zeros_like(mean)
    deviations, sums = np.ones_like(mean), np.full_like(mean, math.inf)
    if study.scale:
        sums = yield from _squares(total, center_at, limits)
        deviations = np.sqrt(sums / observed)
        # What is left of a constant feature after rounding is not a spread.
        rounding = 10 * np.finfo(float).eps * np.abs(mean)
        deviations = np.where(deviations > rounding, deviations, 1.0)
    found = Moments(n, center_at, deviations, wire=study.wire)
    if limits is None:
        return found
    found = yield from _with_most(total, found, limits, sums if study.scale else None)
    total.agree(replace(limits, most=found.most))
    return found


def _first(total: Total, study: Study) -> Protocol[tuple[MomentsReply, Limits | None]]:
    """Ask for totals, and before that for magnitudes where sums need bounds."""
    if not total.bounded:
        return (yield from total(Call(MomentsRequest()))), None
    replies = yield from call_each(Call(MagnitudeRequest()))
    entry = max(reply.entry for reply in replies.values())
    weight = max(reply.weight for reply in replies.values())
    # The number of features only shows with the totals, which are bounded without it.
    limits = limits_of(entry, weight, len(study.sites), 1)
    total.agree(limits)
    first = yield from total(Call(MomentsRequest(entry=entry, weight=weight)))
    limits = replace(limits, d=len(first.total))
    total.agree(limits)
    return first, limits


def _with_most(
    total: Total, found: Moments, limits: Limits, sums: Array | None
) -> Protocol[Moments]:
    """Bound the total squared deviation, from sums by feature or by asking for it."""
    if sums is not None:
        return replace(found, most=_above(float(np.sum(sums / found.scale**2)), 0.0))
    answer = yield from total(Call(SpreadRequest(**found.frame)))
    error = float(total.error(limits.squares * limits.d))
    return replace(found, most=_above(answer.spread, error), sent=True)


def _squares(total: Total, mean: Array, limits: Limits | None) -> Protocol[Array]:
    """Return the squared deviations by feature, of all sites.

    Where sums are in fixed point, one bound for all features leaves the small ones few digits.
    They are asked for again then, each with a bound of its own: what was found, and the error.
    """
    found = (yield from total(Call(SquaresRequest(mean=mean)))).squares
    if limits is None or np.all(total.error(limits.squares) <= _FINE * found):
        return found
    finer = SquaresRequest(mean=mean, found=np.maximum(found, 0.0))
    return (yield from total(Call(finer))).squares


def _above(value: float, error: float) -> float:
    """Return a number that is surely no less than one known up to an error."""
    return (max(value, 0.0) + 2.0 * error) * (1.0 + 1e-6)
