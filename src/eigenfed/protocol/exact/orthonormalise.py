"""Orthonormalise vectors that are split over sites: each site holds its rows of G.

===========  ==================================================================================
coordinator  sums over sites of inner products of G's columns: k x k (`cholesky_steps`), or a norm
             and up to k - 1 products at a time (`gram_schmidt_steps`)
site         the triangles, norms and products that change G; the directions it is computed from
===========  ==================================================================================

Inner products are weighted, so sqrt(W) G becomes orthonormal. If G = D H they are H' S H, S the
scatter, and are metered as if the product S H had left: since the coordinator chooses H, they
would otherwise bypass the meter.

The state of a site between rounds is a `Sided`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.errors import InputError, ProtocolError
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.privacy.secagg.fixed_point import Bound
from eigenfed.protocol.core import Call, Protocol, Total
from eigenfed.protocol.exact.frame_rows import prepare_rows
from eigenfed.protocol.exact.site_vectors import (
    Sided,
    SidedRequest,
    answer_and_count,
    bound_norm,
    get_sided,
    update_sided,
)
from eigenfed.protocol.operations import Answer, Limits, State, Terms, check_finite, op

_PASSES = 6
_SETTLED = 1e-13
"""A column whose part outside the others is below this, squared and relative, is rounding."""
_FINE = 1e-14
"""Relative fixed-point error up to which inner products are not requested a second time."""
_CLOSE = 0.1
"""Cholesky QR is accurate to rounding if no squared norm falls below this by orthogonalisation."""
_EPS = float(np.finfo(float).eps)

_LEAST_SQUARE = 1e-305
"""Squared norm below which a column is nothing: rows may be as small as 1e-150, and numbers near
the least of all floats have lost their digits."""

_NEARLY_ONE = 8.0
"""Bound on the norm of orthonormalised columns, with room for rounding if G is nearly dependent. A
bound that is too wide costs bits of fixed point; one that is too narrow makes the run fail."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class GramReply:
    """Inner products of the columns of G."""

    gram: Array


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class GramRequest(SidedRequest):
    """Request all inner products of the columns of G.

    Attributes
    ----------
    norms : ndarray of shape (k,), or None
        With secure aggregation, bounds on the columns' norms from an earlier request: short columns
        then keep their digits.
    """

    norms: Array | None = None

    op, reply = "sided_gram", GramReply

    def check(self, terms: Terms, state: State) -> None:
        """Refuse norms of another shape or out of range."""
        super().check(terms, state)
        if self.norms is None:
            return
        check_finite("norms", self.norms, (self.width(terms, state),))
        if state.limits is None or not (
            (self.norms >= 0.0).all() and (self.norms**2 <= _bound_largest_norm(state.limits)).all()
        ):
            raise InputError("norms must be between 0 and the largest possible norm.")

    def bounds(self, limits: Limits) -> Mapping[str, Bound]:
        """Return products of two norms each, which bound inner products by Cauchy-Schwarz."""
        if self.norms is not None:
            return {"gram": np.outer(self.norms, self.norms) * (1.0 + 1e-6)}
        return {"gram": self.largest(limits)}

    def largest(self, limits: Limits) -> float:
        """Return a bound on all inner products of G after the change that this request makes."""
        if self.triangle is not None:
            return _NEARLY_ONE**2
        return bound_norm(limits, drawn=self.seed is not None)


@op(Release("inner products of row vectors", "k x k", Leaves.SUM_ONLY, Reveals.DIRECTIONS))
def sided_gram(
    source: Source, request: GramRequest, state: State, terms: Terms
) -> Answer[GramReply]:
    """Return all inner products of the site's columns of G."""
    state = update_sided(source, request, state, terms)
    gram = get_sided(state).inner(source, slice(None), slice(None))
    return answer_and_count(source, GramReply(gram=gram), state)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NormReply:
    """Squared norm of a column of G."""

    norm: float


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NormRequest(SidedRequest):
    """Make column i orthogonal to the earlier ones, and request its squared norm.

    Attributes
    ----------
    onto : ndarray of shape (i,)
        Coefficients of column i on the columns before it.
    drawn : bool
        Whether G was drawn, or computed from directions.
    """

    onto: Array
    drawn: bool = False

    op, reply = "sided_norm", NormReply

    def check(self, terms: Terms, state: State) -> None:
        """Refuse coefficients that match no column."""
        super().check(terms, state)
        if self.onto.ndim != 1 or len(self.onto) >= self.width(terms, state):
            raise InputError("onto must have an entry for each earlier column.")
        check_finite("onto", self.onto, self.onto.shape)
        _check_drawn(self, state)
        change = self.change(self.width(terms, state))
        self.check_change(state, change if self.triangle is None else change @ self.triangle)

    def change(self, width: int) -> Array:
        """Return the triangle that makes the column orthogonal to the earlier ones."""
        triangle: Array = np.eye(width)
        triangle[: len(self.onto), len(self.onto)] = self.onto
        return triangle

    def bounds(self, limits: Limits) -> Mapping[str, Bound]:
        """Return a bound on the squared norm."""
        return {"norm": _NEARLY_ONE * bound_norm(limits, drawn=self.drawn)}


@op(Release("squared norm of a row vector", "1", Leaves.SUM_ONLY, Reveals.DIRECTIONS))
def sided_norm(
    source: Source, request: NormRequest, state: State, terms: Terms
) -> Answer[NormReply]:
    """Make column i orthogonal to the earlier ones and return its squared norm."""
    state = update_sided(source, request, state, terms)
    view, frame, state = prepare_rows(source, state)
    own, i = get_sided(state), len(request.onto)
    own = own.divide(request.change(own.rows.shape[1]), view, frame.near_trace)
    norm = float(own.inner(source, slice(i, i + 1), slice(i, i + 1))[0, 0])
    return answer_and_count(source, NormReply(norm=norm), replace(state, own=own))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OntoReply:
    """Coefficients of a column on the earlier ones."""

    onto: Array


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OntoRequest(SidedRequest):
    """Request the coefficients of column i on the earlier ones.

    Attributes
    ----------
    norms : ndarray of shape (i,)
        Squared norms of the earlier columns, over all sites.
    drawn : bool
        Whether G was drawn, or computed from directions.
    """

    norms: Array
    drawn: bool = False

    op, reply = "sided_onto", OntoReply

    def check(self, terms: Terms, state: State) -> None:
        """Refuse norms that match no columns."""
        super().check(terms, state)
        if self.norms.ndim != 1 or not 1 <= len(self.norms) < self.width(terms, state):
            raise InputError("norms must have an entry for each earlier column.")
        check_finite("norms", self.norms, self.norms.shape, largest=1.0 / _LEAST_SQUARE)
        if not (self.norms > _LEAST_SQUARE).all():
            raise InputError("norms must be above 0.")
        _check_drawn(self, state)

    def bounds(self, limits: Limits) -> Mapping[str, Bound]:
        """Return bounds on the coefficients, each divided by the norm of its column."""
        most = _NEARLY_ONE * bound_norm(limits, drawn=self.drawn)
        return {"onto": np.sqrt(most / self.norms)}


@op(Release("coefficients of a row vector", "up to k - 1", Leaves.SUM_ONLY, Reveals.DIRECTIONS))
def sided_onto(
    source: Source, request: OntoRequest, state: State, terms: Terms
) -> Answer[OntoReply]:
    """Return the coefficients of column i on the earlier ones."""
    norms, i = request.norms, len(request.norms)
    onto = get_sided(state).inner(source, slice(0, i), slice(i, i + 1))[:, 0] / norms
    return answer_and_count(source, OntoReply(onto=onto), state)


@dataclass(frozen=True)
class NoReply:
    """Nothing leaves."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CloseRequest(SidedRequest):
    """Request the last change of G, without a reply."""

    op, reply = "sided_close", NoReply


@op(Release("nothing", "0", Leaves.EXACT, Reveals.NOTHING))
def sided_close(
    source: Source, request: CloseRequest, state: State, terms: Terms
) -> Answer[NoReply]:
    """Change G for the last time; nothing leaves."""
    return Answer(NoReply(), update_sided(source, request, state, terms))


OPS = (sided_gram, sided_norm, sided_onto, sided_close)


def _bound_largest_norm(limits: Limits) -> float:
    either = max(bound_norm(limits, drawn=True), bound_norm(limits, drawn=False))
    return 1.01 * limits.parties * max(either, _NEARLY_ONE**2)


def _check_drawn(request: NormRequest | OntoRequest, state: State) -> None:
    """Refuse a wrong statement of how G was made, since bounds depend on it."""
    drawn = request.seed is not None
    if not drawn and request.basis is None and isinstance(state.own, Sided):
        drawn = state.own.behind is None
    if request.drawn != drawn:
        raise InputError("drawn must state whether the row vectors were drawn.")


@dataclass(frozen=True, eq=False)
class Orthonormal:
    """Vectors that are orthonormal after one more change at the sites.

    Attributes
    ----------
    triangle : ndarray of shape (k, k)
        The old G is the new one times this. A row of zeros marks a column that depends on the
        earlier ones: that column of the new G is zero.
    closing : ndarray of shape (k, k)
        The triangle by which the sites still have to divide G, in the next request about it.
    """

    triangle: Array
    closing: Array


def close_vectors(total: Total, done: Orthonormal) -> Protocol[None]:
    """Have the sites change G for the last time, without a reply."""
    yield from total(Call(CloseRequest(triangle=done.closing)))


def cholesky_steps(total: Total, opening: dict[str, Any]) -> Protocol[Orthonormal]:
    """Orthonormalise G by CholeskyQR2: two sums of k x k numbers, more if G is nearly dependent.

    The error of one pass of Cholesky QR is the unit roundoff times the squared condition number of
    G; the second pass reduces it to 1e-15. A column whose part outside the others is not above
    rounding is only orthogonalised in that pass and normalised in the next; once it is below the
    rounding of the column itself, it is set to zero.

    Parameters
    ----------
    total : Total
        How sums over sites are made.
    opening : dict
        Fields of the first request: what G is computed from.
    """
    gram = yield from _request_gram(total, opening)
    # In fixed point a norm of 0 may come out as a little less.
    nothing = (8 * len(gram) * _EPS) ** 2 * np.maximum(gram.diagonal(), 0.0)
    triangle: Array = np.eye(len(gram))
    for step in range(_PASSES):
        if not np.isfinite(gram).all():
            break
        # The diagonal of the triangle converts the present norms to units of the original columns.
        alive = triangle.diagonal() ** 2 * gram.diagonal() > nothing
        upper, least = _cholesky(gram, alive)
        triangle = upper @ triangle
        if step > 0 and least > _CLOSE:
            return Orthonormal(triangle, upper)
        gram = yield from _request_gram(total, {"triangle": upper})
    raise ProtocolError(
        f"The vectors at the sites are not orthonormal after {_PASSES} passes, or their inner "
        "products leave the range of float64. Rescale the features."
    )


def _request_gram(total: Total, change: dict[str, Any]) -> Protocol[Array]:
    """Change G, and return the inner products of its columns, over all sites.

    In fixed point, one bound for all columns leaves short ones few digits. The inner products are
    then requested again, with bounds from the norms found plus their error (Cauchy-Schwarz).
    """
    request = GramRequest(**change)
    gram: Array = (yield from total(Call(request))).gram
    limits = total.limits
    if limits is None:
        return gram
    error = total.error(request.largest(limits))
    if np.all(error <= _FINE * gram.diagonal()):
        return gram
    norms = np.sqrt(np.maximum(gram.diagonal(), 0.0) + 2.0 * error)
    gram = (yield from total(Call(GramRequest(norms=norms)))).gram
    return gram


def _cholesky(gram: Array, alive: npt.NDArray[np.bool_]) -> tuple[Array, float]:
    """Return the Cholesky factor, and the smallest pivot relative to a squared norm.

    A column that is not alive has a row and column of zeros; one whose pivot is rounding has its
    norm on the diagonal and zeros to its right.
    """
    rest, upper, least = gram.copy(), np.zeros_like(gram), 1.0
    for j in np.flatnonzero(alive):
        ratio = float(rest[j, j] / gram[j, j])
        least = min(least, ratio)
        if ratio > _SETTLED:
            upper[j, j:] = rest[j, j:] / np.sqrt(rest[j, j])
            upper[j, ~alive] = 0.0
            rest -= np.outer(upper[j], upper[j])
        else:
            upper[j, j] = np.sqrt(gram[j, j])
    return upper, least


def gram_schmidt_steps(k: int, total: Total, opening: dict[str, Any]) -> Protocol[Orthonormal]:
    """Orthonormalise G of k columns by [Hartebrodt2022] Alg. 2, as printed: 2 k - 1 sums.

    This is classical Gram-Schmidt: orthogonality is lost with the squared condition number of G.
    The last norm is sent to the sites in a message without a reply (its lines 22 to 26).

    Raises
    ------
    ProtocolError
        If a column depends on the earlier ones, where the printed algorithm divides by zero.
    """
    norms, unit, drawn = np.zeros(0), np.eye(k), "seed" in opening
    for i in range(k):
        onto = np.zeros(0)
        if i > 0:
            answer = yield from total(Call(OntoRequest(norms=norms, drawn=drawn)))
            onto = answer.onto
        fields = opening if i == 0 else {}
        request = NormRequest(onto=onto, drawn=drawn, **fields)
        norm = (yield from total(Call(request))).norm
        before = norm + float(onto**2 @ norms)
        error = 0.0
        if total.limits is not None:
            error = float(total.error(request.bounds(total.limits)["norm"]))
        if not norm > max((8 * k * _EPS) ** 2 * before, 2.0 * error, _LEAST_SQUARE):
            raise ProtocolError(
                f"Column {i} of the vectors at the sites is zero or depends on the earlier ones, "
                "and Gram-Schmidt cannot continue. Request fewer components, or pass by='cholesky'."
            )
        unit[:i, i] = onto
        norms = np.append(norms, norm)
    scale = np.diag(np.sqrt(norms))
    return Orthonormal(scale @ unit, scale)


def orthonormalise_columns(columns: Array) -> Array:
    """Orthonormalise (d, k) columns at the coordinator, with the signs of Gram-Schmidt.

    Examples
    --------
    >>> import numpy as np
    >>> orthonormalise_columns(np.array([[2.0, 1.0], [0.0, 3.0]]))
    array([[1., 0.],
           [0., 1.]])
    """
    q, r = np.linalg.qr(columns)
    signed: Array = q * np.where(r.diagonal() < 0.0, -1.0, 1.0) + 0.0
    return signed
