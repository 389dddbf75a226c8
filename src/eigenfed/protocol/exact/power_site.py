"""Site operations of FedPower: local power steps, and the product that is averaged.

===========  ==================================================================================
coordinator  D'W D Z T of one site or summed, d x r, where Z is the site's basis after its local
             steps and T aligns it with the baseline site; Z itself from the baseline; the weight
             of the rows
site         the common basis from which the local steps start; with alignment, the baseline's Z
===========  ==================================================================================

Local steps do not protect the rows: what leaves after them is still the scatter times directions.
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
from eigenfed.protocol.exact.frame import FramedRequest
from eigenfed.protocol.exact.frame_rows import prepare_rows
from eigenfed.protocol.operations import Answer, Limits, State, Terms, check_integer, op


@dataclass(frozen=True, kw_only=True)
class WeightReply:
    """Weight of a site's rows."""

    weight: float


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WeightRequest(FramedRequest):
    """Request the weight of the rows."""

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
    """State of a site after its local steps: their basis, (d, r)."""

    basis: Array


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WalkReply:
    """Basis of the baseline site after its local steps; None from other sites."""

    basis: Array | None = None


def _check_steps(terms: Terms, start: Array | None, steps: int | None) -> None:
    """Refuse more steps than the study's method takes, or a start that is not a basis."""
    method = terms.study.chosen
    most = int(getattr(method, "local_steps", 1)) - 1
    if start is None or steps is None:
        raise InputError("Local steps need a start and a number of steps.")
    check_integer("steps", steps, 0, most)
    terms.check_directions("start", start, method.width(terms.k, terms.d))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WalkRequest(FramedRequest):
    """Request local steps of a site.

    Attributes
    ----------
    start : ndarray of shape (d, r)
        Orthonormal columns.
    steps : int
        At most as many as the study's method takes before an average.
    shown : bool
        Whether the site is the baseline and replies with the basis that its steps led to.
    """

    start: Array
    steps: int
    shown: bool = False

    op, reply = "local_walk", WalkReply

    def check(self, terms: Terms, state: State) -> None:
        """Refuse more steps than the study's method takes."""
        super().check(terms, state)
        _check_steps(terms, self.start, self.steps)

    def own_directions(self, terms: Terms, state: State) -> int:
        """Return the number of directions that the baseline reveals."""
        return self.start.shape[1] if self.shown else 0


@op(Release("basis after local steps, of one site", "d x l", Leaves.EXACT, Reveals.DIRECTIONS))
def local_walk(
    source: Source, request: WalkRequest, state: State, terms: Terms
) -> Answer[WalkReply]:
    """Take the local steps and keep their basis; reply with it only if requested.

    The basis spans the products of the last step without being equal to them; the meter counts
    it as those products, which is more.
    """
    view, frame, state = prepare_rows(source, state)
    before, images, basis = _take_steps(view, request.start, request.steps)
    state = replace(state, own=Walked(basis))
    if not request.shown:
        nothing = np.zeros((source.d, 0))
        return Answer(WalkReply(), state, frame.answered(nothing, nothing))
    return Answer(WalkReply(basis=basis), state, frame.answered(before, images))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LocalProductReply:
    """The product to be averaged."""

    product: Array


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LocalProductRequest(FramedRequest):
    """Request the product to be averaged, after local steps from a start, or after earlier ones.

    Attributes
    ----------
    start : ndarray of shape (d, r), or None
    steps : int or None
    reference : ndarray of shape (d, r), or None
        Instead of a start: the baseline's basis, with which the site aligns its own.
    share : float or None
        Factor of the product in the average if sites are sampled; above 0 and at most 1.
    """

    start: Array | None = None
    steps: int | None = None
    reference: Array | None = None
    share: float | None = None

    op, reply = "local_product", LocalProductReply

    def check(self, terms: Terms, state: State) -> None:
        """Refuse a start or reference that is not a basis, and factors above 1."""
        super().check(terms, state)
        if self.share is not None and not 0.0 < self.share <= 1.0:
            raise InputError("share must be above 0 and at most 1.")
        if self.reference is None:
            _check_steps(terms, self.start, self.steps)
            return
        if not isinstance(state.own, Walked) or self.start is not None or self.steps is not None:
            raise InputError("A reference requires local steps before it.")
        width = state.own.basis.shape[1]
        terms.check_directions("reference", self.reference, width)
        if self.reference.shape[1] != width:
            raise InputError("reference must have as many columns as the local steps.")

    def directions(self) -> Array | None:
        """Return the directions, if there are no local steps."""
        return self.start if self.steps == 0 else None

    def with_directions(self, directions: Array) -> "LocalProductRequest":
        """Return the same request about other directions."""
        return replace(self, start=directions)

    def own_directions(self, terms: Terms, state: State) -> int:
        """Return the number of directions that follow from local steps."""
        basis = self.reference if self.start is None else self.start
        return 0 if basis is None or self.steps == 0 else basis.shape[1]

    def bounds(self, limits: Limits) -> Mapping[str, Bound]:
        """Return the trace, which bounds every entry of the product."""
        return {"product": limits.most}


@op(Release("scatter times aligned basis", "d x l", Leaves.SUM_ONLY, Reveals.DIRECTIONS))
def local_product(
    source: Source, request: LocalProductRequest, state: State, terms: Terms
) -> Answer[LocalProductReply]:
    """Return the scatter times the site's basis, aligned with the reference if there is one."""
    view, frame, state = prepare_rows(source, state)
    if request.reference is not None and isinstance(state.own, Walked):
        signs = getattr(terms.study.chosen, "align", "") == "sign"
        basis = align_basis(state.own.basis, request.reference, signs=signs)
    elif request.start is not None:
        *_, basis = _take_steps(view, request.start, request.steps or 0)
    else:
        raise InputError("There is neither a start nor a basis from local steps.")
    images = view.product(basis)
    factor = 1.0 if request.share is None else request.share
    reply = LocalProductReply(product=factor * images)
    return Answer(reply, state, frame.answered(basis, images))


OPS = (site_weight, local_walk, local_product)


def _take_steps(view: Prepared, start: Array, steps: int) -> tuple[Array, Array, Array]:
    """Take the local steps; return the basis before the last one, its product, and the new basis.

    The first two have no columns if there are no steps.
    """
    basis = start
    before = images = np.zeros((len(basis), 0))
    for _ in range(steps):
        before, images = basis, view.product(basis)
        basis = np.linalg.qr(images).Q
    return before, images, basis


def align_basis(basis: Array, reference: Array, *, signs: bool = False) -> Array:
    """Align a basis with the reference by an orthogonal matrix ([Guo2024] eq. 3.2), or by signs."""
    overlap = basis.T @ reference
    if signs:
        return basis * np.where(overlap.diagonal() < 0, -1.0, 1.0)
    left, _, right = np.linalg.svd(overlap)
    aligned: Array = basis @ (left @ right)
    return aligned
