"""Counts, means and variances over all sites.

===========  ==================================================================================
coordinator  sums over sites: weight, observed weight and total of each feature; sums of squares of
             each feature if rows are scaled. With secure aggregation also, from each site alone,
             the magnitude of its entries and of its weight to a factor of two; and the total
             sum of squares over all sites
site         the mean and scale of all rows; with secure aggregation, the largest magnitudes
===========  ==================================================================================

Secure aggregation sums integers modulo 2^64, so every number needs an agreed bound from which its
fixed-point step follows. The bounds come from magnitudes that each site declares first.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.feature_totals import FeatureTotals
from eigenfed.data.one_pass import OwnScatter
from eigenfed.data.source import Source
from eigenfed.errors import InputError, ProtocolError
from eigenfed.linalg.orthonormal import column_norms
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.privacy.secagg import fixed_point
from eigenfed.privacy.secagg.fixed_point import Bound
from eigenfed.protocol.core import Call, Protocol, Total, call_each
from eigenfed.protocol.exact.frame import FramedRequest
from eigenfed.protocol.exact.frame_checks import check_mean, check_reach, find_genotype_scale
from eigenfed.protocol.exact.frame_rows import find_varying, prepare_rows, sum_squares
from eigenfed.protocol.exact.magnitude import (
    LARGEST_POWER,
    NO_ENTRY,
    REACH,
    MagnitudeRequest,
    compute_limits,
    magnitude,
)
from eigenfed.protocol.exact.stages import (
    LEAST_SINGLE,
    Figures,
    StageRequest,
    bound_sent_mean,
    find_scale,
)
from eigenfed.protocol.operations import (
    Answer,
    Limits,
    Request,
    State,
    Terms,
    check_finite,
    check_integer,
    op,
)
from eigenfed.protocol.study import GENOTYPE, Study

_FINE = 1e-13
"""Relative fixed-point error up to which sums of squares are not requested a second time."""
_COARSEST = 40
"""By how many powers of two the agreed magnitudes may exceed those this site declared. More would
round the site's numbers so coarsely that a sum of them shows where single ones are rounded."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MomentsReply:
    """Weight of the rows, observed weight and weighted total of each feature."""

    n: float
    count: Array
    total: Array


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MomentsRequest(StageRequest[MomentsReply]):
    """Request weights and totals; with secure aggregation, announce the largest magnitudes.

    Attributes
    ----------
    entry, weight : int or None
        The largest exponents that sites have declared; None with plain sums.
    """

    entry: int | None = None
    weight: int | None = None

    op = "moments"
    reply: ClassVar[type[Any]] = MomentsReply
    # The scales of a standardisation decide how large totals are.
    noisy: ClassVar[bool] = True
    counts: ClassVar[frozenset[str]] = frozenset({"n", "count"})

    def begins_stage(self, terms: Terms, state: State) -> bool:
        """Return whether totals were sent before; with secure aggregation `magnitude` begins."""
        begun = state.totals is not None or state.variants is not None
        return not terms.parties and begun

    def check(self, terms: Terms, state: State) -> None:
        """Refuse magnitudes that are missing, below those the site declared, or far above."""
        super().check(terms, state)
        if not terms.parties:
            if (self.entry, self.weight) != (None, None):
                raise InputError("Plain sums need no magnitudes.")
            return
        if state.declared is None or self.entry is None or self.weight is None:
            raise InputError("Magnitudes must be requested first, and sent.")
        own_entry, own_weight = state.declared
        check_integer("entry", self.entry, max(own_entry, NO_ENTRY), LARGEST_POWER)
        check_integer("weight", self.weight, max(own_weight, NO_ENTRY), LARGEST_POWER)
        # Squares are the largest numbers of a run: their step grows with weight times entry^2. A
        # site whose entries or weights are all 0 has nothing that rounding could show.
        excess = 2 * (self.entry - own_entry) + self.weight - own_weight
        if min(own_entry, own_weight) > NO_ENTRY and excess > _COARSEST:
            raise InputError("The magnitudes are so large that this site's numbers are lost.")

    def apply_to(self, terms: Terms, state: State) -> State:
        """Return the state with figures, or with the limits that follow from the magnitudes."""
        state = super().apply_to(terms, state)
        if self.entry is None or self.weight is None:
            return state
        return replace(
            state, limits=compute_limits(self.entry, self.weight, terms.parties, terms.d)
        )

    def bounds(self, limits: Limits) -> Mapping[str, Bound]:
        """Return bounds on weights and totals."""
        weight = limits.weight
        return {"n": weight, "count": weight, "total": weight * limits.entry}


@op(Release("weight, and totals by feature", "1 + 2 d", Leaves.SUM_ONLY, Reveals.MEANS))
def moments(
    source: Source, request: MomentsRequest, state: State, terms: Terms
) -> Answer[MomentsReply]:
    """Return the weight of the rows, and the observed weight and weighted total of each feature.

    If the method will request the scatter, the site computes and keeps it here, so that it reads
    its rows once.
    """
    method, is_last = terms.study.method, state.preparation.missing is None
    keeps = is_last and not isinstance(method, str) and method.keeps_scatter()
    own = OwnScatter.of(source) if keeps else None
    if own is not None:
        totals = FeatureTotals(own.n, np.full(source.d, own.n), own.n * own.mean)
    else:
        totals = source.totals()
    reply = MomentsReply(n=totals.n, count=totals.observed, total=totals.total)
    return Answer(reply, replace(state, totals=totals, scatter=own))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SquaresReply:
    """Weighted sums of squares of the centred features."""

    squares: Array


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SquaresRequest(Request[SquaresReply]):
    """Request the sum of squares of each feature about the mean of all sites.

    Attributes
    ----------
    mean : ndarray of shape (d,)
    found : ndarray of shape (d,), or None
        With secure aggregation, the sums that an earlier request found: each feature then has its
        own bound, and small sums keep their digits.
    """

    mean: Array
    found: Array | None = None

    op, reply = "squares", SquaresReply
    noisy: ClassVar[bool] = True

    def check(self, terms: Terms, state: State) -> None:
        """Refuse a mean or sums of another shape or out of range."""
        if state.preparation.missing is None:
            check_mean(terms, self.mean, state.limits)
        else:
            # Steps of a preparation need variances, also of rows that are not centred later.
            check_reach(terms, self.mean, state.limits)
        if self.found is None:
            return
        check_finite("found", self.found, (terms.d,), largest=math.inf)
        limits = state.limits
        if limits is None or not (
            (self.found >= 0.0).all() and self.found.max() <= limits.parties * limits.squares
        ):
            raise InputError("found must be between 0 and the largest possible sum.")

    def bounds(self, limits: Limits) -> Mapping[str, Bound]:
        """Return bounds from the limits, or from the sums found and their error."""
        error = fixed_point.error(limits.squares, limits.parties, noisy=True)
        return {"squares": limits.squares if self.found is None else self.found + 2.0 * error}


@op(Release("sums of squares by feature", "d", Leaves.SUM_ONLY, Reveals.DIAGONAL))
def squares(
    source: Source, request: SquaresRequest, state: State, terms: Terms
) -> Answer[SquaresReply]:
    """Return weighted sums of squares about the mean, 0 for features constant up to rounding."""
    mean = None if terms.study.centers_by_site else request.mean
    mean, found = sum_squares(source, state, mean)
    varies = find_varying(source, state, mean, found, narrow=terms.narrow)
    reply = SquaresReply(squares=np.where(varies, found, 0.0))
    # Bounds of sums follow from these squares, so that they must hold for the rows too.
    constant = None if state.limits is None else ~varies
    return Answer(reply, replace(state, constant=constant))


@dataclass(frozen=True, kw_only=True)
class SpreadReply:
    """Total sum of squares."""

    spread: float


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SpreadRequest(FramedRequest):
    """Request the trace alone, which then bounds the numbers of later secure aggregations."""

    op, reply = "spread", SpreadReply

    def _check_most(self, terms: Terms, state: State) -> None:
        if self.most is not None or state.limits is None:
            raise InputError("most is what this request is for, and is not sent with it.")

    def bounds(self, limits: Limits) -> Mapping[str, Bound]:
        """Return d times the bound of one feature."""
        return {"spread": limits.squares * limits.d}


@op(Release("total sum of squares", "1", Leaves.SUM_ONLY, Reveals.BOUND))
def spread(
    source: Source, request: SpreadRequest, state: State, terms: Terms
) -> Answer[SpreadReply]:
    """Return the trace of the site's scatter."""
    _, frame, state = prepare_rows(source, state)
    return Answer(SpreadReply(spread=frame.trace), state)


OPS = (magnitude, moments, squares, spread)


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments of all rows, known before a method begins.

    Attributes
    ----------
    n : float
        Sum of the weights.
    mean : ndarray of shape (d,)
        Over observed entries; zeros where rows are not centred.
    scale : ndarray of shape (d,)
        Standard deviations over observed entries, divided by their weight; 1 where a feature is
        constant or never observed, and everywhere if rows are not scaled. For genotypes, those
        that follow from the mean.
    most : float
        Upper bound on the total sum of squares of all rows, and so on every entry of a scatter;
        infinite with plain sums, which need no bounds.
    wire : {"float64", "float32"}
        Precision of the floats in messages, which limits what a certificate can prove.
    single : bool
        Whether sites multiply in single precision, which limits it too.
    sent : bool
        Whether the sites already have the mean and the scale.
    average, observed : ndarray of shape (d,), or None
        Mean of all rows, also where rows are not centred; weight of the rows with each feature.
    scale_error : float
        Largest relative error of a squared scale, in fixed point or near the least numbers.
    mean_error : ndarray of shape (d,), or None
        Largest error of the mean, in fixed point or single precision; None for rounding alone.
    """

    n: float
    mean: Array
    scale: Array
    most: float = math.inf
    wire: str = "float64"
    single: bool = False
    sent: bool = False
    average: Array | None = None
    observed: Array | None = None
    scale_error: float = 0.0
    mean_error: Array | None = None

    @property
    def divisor(self) -> float:
        """Divisor that turns the scatter into the covariance, n - 1."""
        return self.n - 1.0 if self.n > 1.0 else 1.0

    @cached_property
    def distance(self) -> float:
        """Distance of the mean from zero, in units of the scale."""
        return float(column_norms((self.mean / self.scale)[:, None])[0])

    @cached_property
    def is_scaled(self) -> bool:
        """Whether any feature is divided by a scale other than 1."""
        return bool((self.scale != 1.0).any())

    @property
    def frame(self) -> dict[str, Any]:
        """Fields that the first request about the rows must bring to the sites."""
        fields: dict[str, Any] = {}
        if not self.sent:
            fields |= {"mean": self.mean, "scale": self.scale}
        if math.isfinite(self.most):
            fields["most"] = self.most
        return fields


def collect_moments(
    total: Total,
    study: Study,
    figures: Figures | None = None,
    request: type[MomentsRequest] = MomentsRequest,
) -> Protocol[Moments]:
    """Collect counts and means of all sites, and standard deviations if rows are scaled.

    Parameters
    ----------
    total : Total
        How sums over sites are made.
    study : Study
        Whether rows are centred and scaled, and the precision of messages.
    figures : dict, optional
        Figures of a preparation that the first request brings to the sites.
    request : type
        The request for weights and totals.
    """
    first, limits = yield from request_totals(total, study, figures or {}, request)
    mean = compute_mean(first, limits)
    center_at = mean if study.center else np.zeros_like(mean)
    scale, found, error = np.ones_like(mean), None, 0.0
    if study.scale == GENOTYPE:
        scale = find_genotype_scale(mean)
    elif study.scale:
        found = sums, errors = yield from request_squares(total, center_at, limits)
        if study.wire == "float32":
            # What is smaller than the least normal number of single precision loses digits.
            errors = errors + LEAST_SINGLE * len(study.sites)
        scale = find_scale(mean, sums, first.count)
        ratios = np.divide(errors, sums, out=np.zeros_like(sums), where=scale != 1.0)
        error = float(ratios.max())
    n = first.n
    result = Moments(
        n,
        center_at,
        scale,
        wire=study.wire,
        single=study.is_single,
        average=mean,
        observed=first.count,
        scale_error=error,
        mean_error=bound_sent_mean(mean, first.count, total, study),
    )
    if limits is None:
        return result
    result = yield from _add_bound(total, result, limits, found)
    total.agree(replace(limits, most=result.most))
    return result


def compute_mean(first: MomentsReply, limits: Limits | None) -> Array:
    """Return the means over observed entries."""
    if not first.n > 0.0:
        raise ProtocolError("All sites together have no rows of positive weight. Bring some rows.")
    sums = first.total
    if limits is not None:
        # Zeros leave the noise of rounding: it must not make a count negative.
        bound = limits.weight * limits.entry
        error = fixed_point.error(bound, limits.parties, noisy=True)
        sums = np.where(np.abs(sums) > error, sums, 0.0)
    mean = FeatureTotals(first.n, first.count, sums).mean
    if limits is not None:
        # A mean cannot exceed the largest entry, except by fixed-point error over a tiny weight.
        mean = np.clip(mean, -limits.entry / REACH, limits.entry / REACH)
    return mean


def request_totals(
    total: Total,
    study: Study,
    figures: Figures,
    request: type[MomentsRequest] = MomentsRequest,
) -> Protocol[tuple[MomentsReply, Limits | None]]:
    """Request totals, and with secure aggregation first the magnitudes that bound them."""
    if not total.bounded:
        return (yield from total(Call(request(**figures)))), None
    replies = yield from call_each(Call(MagnitudeRequest(**figures)))
    entry = max(reply.entry for reply in replies.values())
    weight = max(reply.weight for reply in replies.values())
    # The number of features is known only after the totals, whose bounds do not depend on it.
    limits = compute_limits(entry, weight, len(study.sites), 1)
    total.agree(limits)
    first = yield from total(Call(request(entry=entry, weight=weight)))
    limits = replace(limits, d=len(first.total))
    total.agree(limits)
    return first, limits


def _add_bound(
    total: Total, known: Moments, limits: Limits, found: tuple[Array, Array] | None
) -> Protocol[Moments]:
    """Add a bound on the total sum of squares, from sums by feature or from a request for it."""
    if found is not None:
        value, error = (float(np.sum(part / known.scale**2)) for part in found)
        return replace(known, most=_round_up(value, error))
    answer = yield from total(Call(SpreadRequest(**known.frame)))
    error = float(total.error(limits.squares * limits.d))
    return replace(known, most=_round_up(answer.spread, error), sent=True)


def request_squares(
    total: Total, mean: Array, limits: Limits | None
) -> Protocol[tuple[Array, Array]]:
    """Return the sums of squares by feature, over all sites, and their errors in fixed point.

    In fixed point, one bound for all features leaves small sums few digits. They are requested
    again, each with its own bound: the value found plus its error. Sums within their error are 0.
    """
    found = (yield from total(Call(SquaresRequest(mean=mean)))).squares
    error = total.error(math.inf if limits is None else limits.squares)
    if limits is None or np.all(error <= _FINE * found):
        return found, np.broadcast_to(error, found.shape)
    finer = SquaresRequest(mean=mean, found=np.maximum(found, 0.0))
    squares = (yield from total(Call(finer))).squares
    error = total.error(finer.bounds(limits)["squares"])
    return np.where(squares > error, squares, 0.0), error


def _round_up(value: float, error: float) -> float:
    """Return an upper bound on a number that is known up to an error."""
    return (max(value, 0.0) + 2.0 * error) * (1.0 + 1e-6)
