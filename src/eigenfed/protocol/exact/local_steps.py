"""What a site does in FedPower: power steps of its own, and the step that is averaged.

===========  ==================================================================================
coordinator  D'W D Z T of one site or summed, d x r, where Z is where the site's own steps led and
             T turns it towards the baseline site; of the baseline also Z; the weight of the rows
site         the common basis that the steps start from, and with alignment the baseline's Z
===========  ==================================================================================

Local steps are no protection: what leaves after them still is the site's scatter times directions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.prepared import Prepared
from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.privacy.secagg.fixed_point import Bound
from eigenfed.protocol.exact.moments import FramedRequest, framed
from eigenfed.protocol.operations import Answer, Limits, State, Terms, check_integer, op


@dataclass(frozen=True, kw_only=True)
class WeightReply:
    """Weight of a site's rows."""

    weight: float


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WeightRequest(FramedRequest):
    """Ask for the weight of the rows."""

    op, reply = "site_weight", WeightReply


@op(Release("weight of the rows", "1", Leaves.EXACT, Reveals.COUNTS))
def site_weight(
    source: Source, request: WeightRequest, state: State, terms: Terms
) -> Answer[WeightReply]:
    """Return the sum of the weights of the site's rows."""
    weight = float(source.n if source.weights is None else source.weights.sum())
    return Answer(WeightReply(weight=weight), state)


@dataclass(frozen=True, eq=False, repr=False)
class Walked:
    """Where a site's own steps have led, (d, r)."""

    basis: Array


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WalkReply:
    """Where the steps of the baseline led; nothing of other sites."""

    basis: Array | None = None


def _check_steps(terms: Terms, start: Array | None, steps: int | None) -> None:
    """Refuse steps that the study's method does not take, or a start that is no basis."""
    method = terms.study.chosen
    most = int(getattr(method, "local_steps", 1)) - 1
    if start is None or steps is None:
        raise InputError("Local steps have a start and a number.")
    check_integer("steps", steps, 0, most)
    terms.check_directions("start", start, method.width(terms.k, terms.d))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WalkRequest(FramedRequest):
    """Have a site take steps of its own.

    Attributes
    ----------
    start : ndarray of shape (d, r)
        Orthonormal columns.
    steps : int
        No more than the study's method takes before an average.
    shown : bool
        Whether the site is the baseline, and tells where its steps led.
    """

    start: Array
    steps: int
    shown: bool = False

    op, reply = "local_walk", WalkReply

    def check(self, terms: Terms, state: State) -> None:
        """Refuse steps that the study's method does not take."""
        super().check(terms, state)
        _check_steps(terms, self.start, self.steps)

    def own_directions(self, terms: Terms, state: State) -> int:
        """Count the directions of the baseline."""
        return self.start.shape[1] if self.shown else 0


@op(Release("basis after local steps, of one site", "d x l", Leaves.EXACT, Reveals.DIRECTIONS))
def local_walk(
    source: Source, request: WalkRequest, state: State, terms: Terms
) -> Answer[WalkReply]:
    """Take the local steps, keep where they led, and reply with it only where that is asked.

    What leaves spans the images of the last step but is not they; the meter counts it as if it
    were.
    """
    view, frame, state = framed(source, state)
    before, images, basis = _walked(view, request.start, request.steps)
    state = replace(state, own=Walked(basis))
    if not request.shown:
        nothing = np.zeros((source.d, 0))
        return Answer(WalkReply(), state, frame.answered(nothing, nothing))
    return Answer(WalkReply(basis=basis), state, frame.answered(before, images))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LocalProductReply:
    """The step to be averaged."""

    product: Array


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LocalProductRequest(FramedRequest):
    """Ask for the step to be averaged: from a start, or from where local steps have led.

    Attributes
    ----------
    start : ndarray of shape (d, r), or None
    steps : int or None
    reference : ndarray of shape (d, r), or None
        Instead of a start: the baseline's basis, to which the site turns its own.
    share : float or None
        What the step counts in the average, where sites are drawn; above 0 and at most 1.
    """

    start: Array | None = None
    steps: int | None = None
    reference: Array | None = None
    share: float | None = None

    op, reply = "local_product", LocalProductReply

    def check(self, terms: Terms, state: State) -> None:
        """Refuse a start or reference that is no basis, and shares beyond 1."""
        super().check(terms, state)
        if self.share is not None and not 0.0 < self.share <= 1.0:
            raise InputError("share must be above 0 and at most 1.")
        if self.reference is None:
            _check_steps(terms, self.start, self.steps)
            return
        if not isinstance(state.own, Walked) or self.start is not None or self.steps is not None:
            raise InputError("A reference comes after local steps.")
        width = state.own.basis.shape[1]
        terms.check_directions("reference", self.reference, width)
        if self.reference.shape[1] != width:
            raise InputError("reference must have as many columns as the local steps.")

    def directions(self) -> Array | None:
        """Return the directions, where no local step comes before."""
        return self.start if self.steps == 0 else None

    def about(self, directions: Array) -> "LocalProductRequest":
        """Return the same request about other directions."""
        return replace(self, start=directions)

    def own_directions(self, terms: Terms, state: State) -> int:
        """Count the directions where local steps led."""
        basis = self.reference if self.start is None else self.start
        return 0 if basis is None or self.steps == 0 else basis.shape[1]

    def bounds(self, limits: Limits) -> Mapping[str, Bound]:
        """Bound the product by the trace."""
        return {"product": limits.most}


@op(Release("scatter times aligned basis", "d x l", Leaves.SUM_ONLY, Reveals.DIRECTIONS))
def local_product(
    source: Source, request: LocalProductRequest, state: State, terms: Terms
) -> Answer[LocalProductReply]:
    """Return the step to be averaged, from local steps turned to the baseline's if it is given."""
    view, frame, state = framed(source, state)
    if request.reference is not None and isinstance(state.own, Walked):
        signs = getattr(terms.study.chosen, "align", "") == "sign"
        basis = _turned(state.own.basis, request.reference, signs=signs)
    elif request.start is not None:
        *_, basis = _walked(view, request.start, request.steps or 0)
    else:
        raise InputError("There is neither a start nor where local steps led.")
    images = view.product(basis)
    share = 1.0 if request.share is None else request.share
    reply = LocalProductReply(product=share * images)
    return Answer(reply, state, frame.answered(basis, images))


OPS = (site_weight, local_walk, local_product)


def _walked(view: Prepared, start: Array, steps: int) -> tuple[Array, Array, Array]:
    """Take the local steps: the last one's basis, the scatter times it, and where that led.

    The first two have no columns where there is no step to take.
    """
    basis = start
    before = images = np.zeros((len(basis), 0))
    for _ in range(steps):
        before, images = basis, view.product(basis)
        basis = np.linalg.qr(images).Q
    return before, images, basis


def _turned(basis: Array, reference: Array, *, signs: bool) -> Array:
    """Turn a basis towards the reference by an orthogonal matrix, or only by signs."""
    overlap = basis.T @ reference
    if signs:
        return basis * np.where(overlap.diagonal() < 0, -1.0, 1.0)
    left, _, right = np.linalg.svd(overlap)
    turned: Array = basis @ (left @ right)
    return turned
