"""Counts, means and variances over all sites.

===========  ==================================================================================
coordinator  sums over sites: weight, observed weight and total by feature; squares by feature
             where scales are wanted
site         whether its whole scatter will be asked for; the mean and scale of all rows
===========  ==================================================================================
"""

from dataclasses import dataclass

import numpy as np

from eigenfed.arrays import Array, Arrays
from eigenfed.data.one_pass import OwnScatter
from eigenfed.data.prepared import Prepared
from eigenfed.data.source import Source
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
    if (
        "whole_up_to" in payload
        and source.d <= payload["whole_up_to"][0]
        and OwnScatter.fits(source)
    ):
        own = OwnScatter.of(source)
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


OPS = (moments, squares)


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
    wire : {"float64", "float32"}
        Precision of the floats in messages, which limits what a certificate can say.
    """

    n: float
    mean: Array
    scale: Array
    wire: str = "float64"

    @property
    def arrays(self) -> Arrays:
        """The mean and scale, as sites are sent them."""
        return {"mean": self.mean, "scale": self.scale}


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
    saying = {"whole_up_to": np.array([whole_up_to])} if whole_up_to else {}
    first = yield from total(Ask("moments", saying))
    n, count = float(first["n"][0]), first["count"]
    if not n > 0.0:
        raise ProtocolError("All sites together have no rows of positive weight. Bring some rows.")
    observed = np.where(count > 0, count, 1.0)
    mean = first["total"] / observed
    deviations = np.ones_like(mean)
    if scale:
        second = yield from total(Ask("squares", {"mean": mean if center else 0.0 * mean}))
        deviations = np.sqrt(second["squares"] / observed)
        # What is left of a constant feature after rounding is not a spread.
        rounding = 10 * np.finfo(float).eps * np.abs(mean)
        deviations = np.where(deviations > rounding, deviations, 1.0)
    return Moments(n, mean if center else np.zeros_like(mean), deviations, wire)
