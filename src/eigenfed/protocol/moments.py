"""Counts, means and variances over all sites.

===========  ==================================================================================
coordinator  sums over sites: weight, observed weight and total by feature; squares by feature
             where scales are wanted. Where sums need bounds also, of each site on its own, how
             large its entries and its weight are, to a factor of two; and as a sum the total
             squared deviation
site         whether its whole scatter will be asked for; the mean and scale of all rows
===========  ==================================================================================
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from eigenfed.arrays import Array, Arrays
from eigenfed.data.one_pass import OwnScatter
from eigenfed.data.prepared import Prepared
from eigenfed.data.source import Source, stored
from eigenfed.errors import ProtocolError
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.core import Ask, Protocol
from eigenfed.protocol.messages import check_wire
from eigenfed.protocol.ops import Answer, op
from eigenfed.protocol.totals import Total


@op(Release("weight, and totals by feature", "1 + 2 d", Leaves.SUM_ONLY, Reveals.MEANS))
def moments(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Weight of the rows, observed weight and weighted total of each feature.

    Where the scatter will be asked for, the site keeps its own, so that it reads its rows once.
    """
    kept: Arrays = {}
    whole = "whole_up_to" in payload and source.d <= payload["whole_up_to"][0]
    own = OwnScatter.of(source) if whole else None
    if own is not None:
        n, count, total = own.n, np.full(source.d, own.n), own.n * own.mean
        kept = {"kept_mean": own.mean, "kept_scatter": own.matrix}
    else:
        n, count, total = source.totals()
    reply = {"n": np.array([n]), "count": count, "total": total}
    known = {"own_n": reply["n"], "own_count": count, "own_total": total}
    return Answer(reply, {**state, **known, **kept})


def kept_scatter(state: Arrays) -> OwnScatter | None:
    """Return the site's scatter about its own mean, where it was kept."""
    if "kept_scatter" not in state:
        return None
    return OwnScatter(float(state["own_n"][0]), state["kept_mean"], state["kept_scatter"])


def known_totals(source: Source, state: Arrays) -> tuple[float, Array, Array]:
    """Return `Source.totals`, from the state where the run has asked for moments."""
    if "own_n" not in state:
        return source.totals()
    return float(state["own_n"][0]), state["own_count"], state["own_total"]


@op(Release("squared deviations by feature", "d", Leaves.SUM_ONLY, Reveals.DIAGONAL))
def squares(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Weighted squared deviations of each feature from the mean of all sites."""
    kept = kept_scatter(state)
    if kept is not None:
        return Answer({"squares": kept.squares(payload["mean"])}, state)
    prepared = Prepared(source, payload["mean"], np.ones(source.d))
    return Answer({"squares": prepared.squares()}, state)


@op(Release("magnitude of entries and of the weight", "2", Leaves.EXACT, Reveals.RANGE))
def magnitude(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Return the least powers of two that no entry exceeds, and that the weight does not."""
    entries = stored(source.X)
    weight = float(source.n if source.weights is None else source.weights.sum())
    largest = max(
        -float(np.nanmin(entries, initial=0.0)), float(np.nanmax(entries, initial=0.0)), 0.0
    )
    powers = {"entry": largest, "weight": weight}
    return Answer({name: np.array([_power(value)]) for name, value in powers.items()}, state)


OPS = (moments, squares, magnitude)

_NONE = -1074
_FINE = 1e-13


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
    """

    n: float
    mean: Array
    scale: Array
    most: float = math.inf
    wire: str = "float64"

    @property
    def divisor(self) -> float:
        """What turns scatter into covariance."""
        return self.n - 1.0 if self.n > 1.0 else 1.0

    @property
    def arrays(self) -> Arrays:
        """The mean and scale, as sites are sent them."""
        return {"mean": self.mean, "scale": self.scale}


@dataclass(frozen=True)
class _Limits:
    """What one site can bring at most; infinite where nobody asks.

    Attributes
    ----------
    entry : float
        Magnitude of an entry, and of a deviation from a mean.
    weight : float
    """

    entry: float = math.inf
    weight: float = math.inf

    @property
    def squares(self) -> float:
        """Squared deviations of a feature."""
        return self.weight * self.entry**2


def all_moments(
    total: Total,
    *,
    center: bool,
    scale: bool,
    whole_up_to: float = 0.0,
    wire: str = "float64",
) -> Protocol[Moments]:
    """Bring together counts and means, and standard deviations where they are wanted.

    Parameters
    ----------
    total : Total
        How sums are made.
    center, scale : bool
    whole_up_to : float, default=0.0
        Up to how many features the whole scatter will be asked for next, by `covariance`.
    wire : {"float64", "float32"}, default="float64"
        Precision of the floats in messages, as the transport and the sites have it.
    """
    check_wire(wire)
    limits = (yield from _limits()) if total.bounded else _Limits()
    weight, entry = limits.weight, limits.entry
    bounds = {"n": weight, "count": weight, "total": weight * entry}
    saying = {"whole_up_to": np.array([whole_up_to])} if whole_up_to else {}
    first = yield from total(Ask("moments", saying, bounds=bounds))
    n, count = float(first["n"][0]), first["count"]
    if not n > 0.0:
        raise ProtocolError("All sites together have no rows of positive weight. Bring some rows.")
    observed = np.where(count > 0, count, 1.0)
    mean = first["total"] / observed
    center_at = mean if center else np.zeros_like(mean)
    deviations, sums = np.ones_like(mean), np.full_like(mean, math.inf)
    if scale:
        sums = yield from _squares(total, center_at, limits)
        deviations = np.sqrt(sums / observed)
        # What is left of a constant feature after rounding is not a spread.
        rounding = 10 * np.finfo(float).eps * np.abs(mean)
        deviations = np.where(deviations > rounding, deviations, 1.0)
    found = Moments(n, center_at, deviations, wire=wire)
    if not total.bounded:
        return found
    if scale:
        return replace(found, most=_above(float(np.sum(sums / deviations**2)), 0.0))
    most = limits.squares * len(mean)
    answer = yield from total(Ask("spread", found.arrays, bounds={"spread": most}))
    return replace(found, most=_above(float(answer["spread"][0]), float(total.error(most))))


def _limits() -> Protocol[_Limits]:
    """Ask each site how large its numbers are."""
    replies = yield Ask("magnitude")
    entry, weight = (
        math.ldexp(1.0, max(int(reply[name][0]) for reply in replies.values()))
        for name in ("entry", "weight")
    )
    # Means are no larger than entries, but for rounding.
    return _Limits(2.1 * entry, weight)


def _squares(total: Total, mean: Array, limits: _Limits) -> Protocol[Array]:
    """Return the squared deviations by feature, of all sites.

    Where sums are in fixed point, one bound for all features leaves the small ones few digits.
    They are asked for again then, each with a bound of its own: what was found, and the error.
    """
    ask = Ask("squares", {"mean": mean}, bounds={"squares": limits.squares})
    found: Array = (yield from total(ask))["squares"]
    error = total.error(limits.squares)
    if not total.bounded or np.all(error <= _FINE * found):
        return found
    finer = {"squares": np.maximum(found, 0.0) + 2.0 * error}
    answer = yield from total(replace(ask, bounds=finer))
    return answer["squares"]


def _above(value: float, error: float) -> float:
    """Return a number that is surely no less than one known up to an error."""
    return (max(value, 0.0) + 2.0 * error) * (1.0 + 1e-6)
