"""Orthonormal vectors that are split over sites: each site has its rows of G, and keeps them.

===========  ==================================================================================
coordinator  sums over sites of inner products of G's columns: k x k (`cholesky_steps`), or a norm
             and up to k - 1 products at a time (`gram_schmidt_steps`)
site         the triangles, norms and products that change G; what G is made of
===========  ==================================================================================

Inner products are in the weights of the rows, so that sqrt(W) G has orthonormal columns. Where
G = D H they are H' S H, S the scatter, so they are counted as if the product S H had left: with
H of the asker's choice they would otherwise be a way round the meter.

What a site keeps between rounds is a `Sided`.
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
from eigenfed.protocol.exact.site_vectors import (
    Sided,
    SidedRequest,
    answer_counted,
    largest_norm,
    sided_in,
    sided_of,
    weighted,
)
from eigenfed.protocol.operations import Answer, Limits, State, Terms, check_finite, op

_PASSES = 6
_SETTLED = 1e-13
_FINE = 1e-14
_CLOSE = 0.1
_EPS = float(np.finfo(float).eps)

_NEARLY_ONE = 8.0
"""Bound on the norm of columns that were made orthonormal, and of what rounding makes of them where
G is near to dependent. A bound that is too wide costs bits of fixed point, one that is too narrow
the run."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class GramReply:
    """Inner products of the columns of G."""

    gram: Array


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class GramRequest(SidedRequest):
    """Ask for all inner products of the columns of G.

    Attributes
    ----------
    norms : ndarray of shape (k,), or None
        Where sums are in fixed point, what an earlier ask found to bound the columns' norms: short
        columns then keep their digits.
    """

    norms: Array | None = None

    op, reply = "sided_gram", GramReply

    def check(self, terms: Terms, state: State) -> None:
        """Refuse norms that are no bounds."""
        super().check(terms, state)
        if self.norms is None:
            return
        check_finite("norms", self.norms, (self.width(terms, state),))
        if state.limits is None or not (
            (self.norms >= 0.0).all() and (self.norms**2 <= _widest(state.limits)).all()
        ):
            raise InputError("norms must lie between 0 and what all sites can bring.")

    def bounds(self, limits: Limits) -> Mapping[str, Bound]:
        """Bound by norms: no inner product exceeds the root of two squared norms' product."""
        if self.norms is not None:
            return {"gram": np.outer(self.norms, self.norms) * (1.0 + 1e-6)}
        return {"gram": self.largest(limits)}

    def largest(self, limits: Limits) -> float:
        """Return the largest inner product of G as this request makes it."""
        if self.triangle is not None:
            return _NEARLY_ONE**2
        return largest_norm(limits, drawn=self.seed is not None)


@op(Release("inner products of row vectors", "k x k", Leaves.SUM_ONLY, Reveals.DIRECTIONS))
def sided_gram(
    source: Source, request: GramRequest, state: State, terms: Terms
) -> Answer[GramReply]:
    """Return all inner products of the site's columns of G."""
    state = sided_of(source, request, state, terms)
    rows = sided_in(state).rows
    return answer_counted(source, GramReply(gram=rows.T @ weighted(source, rows)), state)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NormReply:
    """Squared norm of a column of G."""

    norm: float


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NormRequest(SidedRequest):
    """Make the next column orthogonal to those before it, and ask for its squared norm.

    Attributes
    ----------
    onto : ndarray of shape (i,)
        Coefficients of column i on the columns before it.
    drawn : bool
        Whether G was drawn, or made of directions.
    """

    onto: Array
    drawn: bool = False

    op, reply = "sided_norm", NormReply

    def check(self, terms: Terms, state: State) -> None:
        """Refuse coefficients of no column."""
        super().check(terms, state)
        if self.onto.ndim != 1 or len(self.onto) >= self.width(terms, state):
            raise InputError("onto must have an entry for each earlier column.")
        check_finite("onto", self.onto, self.onto.shape)
        _check_drawn(self, state)

    def bounds(self, limits: Limits) -> Mapping[str, Bound]:
        """Bound the squared norm."""
        return {"norm": _NEARLY_ONE * largest_norm(limits, drawn=self.drawn)}


@op(Release("squared norm of a row vector", "1", Leaves.SUM_ONLY, Reveals.DIRECTIONS))
def sided_norm(
    source: Source, request: NormRequest, state: State, terms: Terms
) -> Answer[NormReply]:
    """Make the next column orthogonal to those before it and return its squared norm."""
    state = sided_of(source, request, state, terms)
    own, onto = sided_in(state), request.onto
    i, factor = len(onto), np.eye(own.rows.shape[1])
    factor[:i, i] = onto
    rows = own.rows.copy()
    rows[:, i] -= rows[:, :i] @ onto
    last = rows[:, i : i + 1]
    norm = float((last.T @ weighted(source, last))[0, 0])
    return answer_counted(
        source, NormReply(norm=norm), replace(state, own=own.changed(rows, factor))
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OntoReply:
    """Coefficients of a column on those before it."""

    onto: Array


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class OntoRequest(SidedRequest):
    """Ask for the next column's coefficients on the columns before it.

    Attributes
    ----------
    norms : ndarray of shape (i,)
        Squared norms of the columns before it, over all sites.
    drawn : bool
        Whether G was drawn, or made of directions.
    """

    norms: Array
    drawn: bool = False

    op, reply = "sided_onto", OntoReply

    def check(self, terms: Terms, state: State) -> None:
        """Refuse norms of no columns."""
        super().check(terms, state)
        if self.norms.ndim != 1 or not 1 <= len(self.norms) < self.width(terms, state):
            raise InputError("norms must have an entry for each earlier column.")
        check_finite("norms", self.norms, self.norms.shape)
        if not (self.norms > 1e-300).all():
            raise InputError("norms must be above 0.")
        _check_drawn(self, state)

    def bounds(self, limits: Limits) -> Mapping[str, Bound]:
        """Bound each coefficient by the norm that it is divided by."""
        most = _NEARLY_ONE * largest_norm(limits, drawn=self.drawn)
        return {"onto": np.sqrt(most / self.norms)}


@op(Release("a row vector on those before it", "up to k - 1", Leaves.SUM_ONLY, Reveals.DIRECTIONS))
def sided_onto(
    source: Source, request: OntoRequest, state: State, terms: Terms
) -> Answer[OntoReply]:
    """Return the next column's coefficients on the columns before it."""
    norms, rows = request.norms, sided_in(state).rows
    i = len(norms)
    column = weighted(source, rows[:, i : i + 1])
    onto = (rows[:, :i].T @ column)[:, 0] / norms
    return answer_counted(source, OntoReply(onto=onto), state)


@dataclass(frozen=True)
class NoReply:
    """Nothing leaves."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CloseRequest(SidedRequest):
    """Change G a last time."""

    op, reply = "sided_close", NoReply


@op(Release("nothing", "0", Leaves.EXACT, Reveals.NOTHING))
def sided_close(
    source: Source, request: CloseRequest, state: State, terms: Terms
) -> Answer[NoReply]:
    """Change G a last time; nothing leaves."""
    return Answer(NoReply(), sided_of(source, request, state, terms))


OPS = (sided_gram, sided_norm, sided_onto, sided_close)


def _widest(limits: Limits) -> float:
    either = max(largest_norm(limits, drawn=True), largest_norm(limits, drawn=False))
    return 1.01 * limits.parties * max(either, _NEARLY_ONE**2)


def _check_drawn(request: NormRequest | OntoRequest, state: State) -> None:
    """Refuse a word on how G was made that is not so."""
    drawn = request.seed is not None
    if not drawn and request.basis is None and isinstance(state.own, Sided):
        drawn = state.own.behind is None
    if request.drawn != drawn:
        raise InputError("drawn must tell how the row vectors were made.")


@dataclass(frozen=True, eq=False)
class Orthonormal:
    """Vectors that are orthonormal once the sites have had the closing.

    Attributes
    ----------
    triangle : ndarray of shape (k, k)
        The old G is the new one times this. A row of zeros stands for a column that depends on
        those before it: that column of the new G is zero.
    closing : ndarray of shape (k, k)
        What the sites still have to divide G by, in the next request about it.
    """

    triangle: Array
    closing: Array


def closed(total: Total, done: Orthonormal) -> Protocol[None]:
    """Have the sites change G a last time; nothing comes back."""
    yield from total(Call(CloseRequest(triangle=done.closing)))


def cholesky_steps(total: Total, opening: dict[str, Any]) -> Protocol[Orthonormal]:
    """Orthonormalise G in two sums of k x k numbers, more only where G is near to dependent.

    Ours. One pass of Cholesky QR errs by the unit roundoff times the squared condition of G; the
    second starts from there and leaves 1e-15. A column whose part outside the others cannot be
    told from rounding is only freed of them in that pass and left to the next; once it is below
    the rounding of the column itself, it is made zero.

    Parameters
    ----------
    total : Total
        How sums are made.
    opening : dict
        Fields of the first request: what G is made of.
    """
    gram = yield from _gram(total, opening)
    nothing = (8 * len(gram) * _EPS) ** 2 * gram.diagonal()
    triangle: Array = np.eye(len(gram))
    for step in range(_PASSES):
        if not np.isfinite(gram).all():
            break
        # The triangle's diagonal is the unit in which the columns are measured by now.
        alive = triangle.diagonal() ** 2 * gram.diagonal() > nothing
        upper, least = _cholesky(gram, alive)
        triangle = upper @ triangle
        if step > 0 and least > _CLOSE:
            return Orthonormal(triangle, upper)
        gram = yield from _gram(total, {"triangle": upper})
    raise ProtocolError(
        f"The vectors at the sites are not orthonormal after {_PASSES} passes, or their inner "
        "products leave the range of float64. Rescale the features."
    )


def _gram(total: Total, change: dict[str, Any]) -> Protocol[Array]:
    """Change G, and return the inner products of its columns, of all sites.

    Where sums are in fixed point, one bound for all leaves short columns few digits. They are asked
    for again then, each within what was found and the error: by Cauchy and Schwarz no inner product
    exceeds the root of the two squared norms' product.
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
    """Factor as far as the digits go; also the smallest remainder relative to a squared norm.

    A column that is not alive has a row and column of zeros; one whose remainder is mere
    rounding has its norm on the diagonal and nothing to its right.
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

    It is classical Gram-Schmidt: orthogonality is lost with the squared condition of G. The last
    norm goes to the sites in a message that nothing answers (its lines 22 to 26).

    Raises
    ------
    ProtocolError
        If a column depends on those before it, where the printed algorithm divides by nothing.
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
        if not norm > max((8 * k * _EPS) ** 2 * before, 2.0 * error):
            raise ProtocolError(
                f"Column {i} of the vectors at the sites depends on those before it, and "
                "Gram-Schmidt cannot go on. Ask for fewer components, or for 'cholesky'."
            )
        unit[:i, i] = onto
        norms = np.append(norms, norm)
    scale = np.diag(np.sqrt(norms))
    return Orthonormal(scale @ unit, scale)


def orthonormal_columns(columns: Array) -> Array:
    """Orthonormalise (d, k) columns at the coordinator, with the signs of Gram-Schmidt.

    Examples
    --------
    >>> import numpy as np
    >>> orthonormal_columns(np.array([[2.0, 1.0], [0.0, 3.0]]))
    array([[1., 0.],
           [0., 1.]])
    """
    q, r = np.linalg.qr(columns)
    signed: Array = q * np.where(r.diagonal() < 0.0, -1.0, 1.0) + 0.0
    return signed
