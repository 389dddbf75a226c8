"""Vectors with an entry for each row, split over sites: the part that a site keeps.

Each site holds its rows of a matrix G of k columns, and they never leave it. G is computed from
directions, G = D H, or drawn at random; the coordinator then changes it by triangles that it knows.
Every reply about G is metered with the directions H from which it was computed.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from eigenfed.arrays import Array
from eigenfed.data.prepared import Prepared
from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.protocol.exact.frame import FramedRequest
from eigenfed.protocol.exact.frame_rows import prepare_rows
from eigenfed.protocol.operations import Answer, Limits, State, Terms, check_finite, check_integer

_LARGEST_DRAW = 10.0
"""Bound on the normal numbers of a random start; exceeded with probability about 1e-23 each."""
_LARGEST_ROOT = 1e154
"""Root of about the largest float64: norms of vectors are no larger."""
_LARGEST_GROWTH = 2.0**20
"""By how much intermediate numbers may exceed the columns that are divided by a triangle."""


@dataclass(frozen=True, eq=False, repr=False)
class Sided:
    """A site's rows of G.

    Triangles are the coordinator's numbers. Between a division by one of them and by its inverse,
    rows would be rounded to whatever digits the coordinator leaves, so that of a column only those
    entries would remain that exceed a bound. So rows are divided once more only where that costs
    few digits; otherwise they are computed again from G as it was at first.

    Attributes
    ----------
    rows : ndarray of shape (n, k)
    start : ndarray of shape (n, k)
        G as it was computed or drawn.
    factor : ndarray of shape (k, k)
        The matrix T with ``G T = start``.
    since : ndarray of shape (k, k)
        The part of T by which rows were divided since they were computed from `start`.
    behind : ndarray of shape (d, k), or None
        The directions H from which G was computed; None if it was drawn.
    images : ndarray of shape (d, k), or None
        The scatter times these, once it was computed.
    """

    rows: Array
    start: Array
    factor: Array
    since: Array
    behind: Array | None = None
    images: Array | None = None

    @classmethod
    def begin(cls, rows: Array, behind: Array | None = None) -> "Sided":
        """Return rows of G that were computed from directions, or drawn."""
        each = np.eye(rows.shape[1])
        return cls(rows, rows, each, each, behind)

    def divide(self, triangle: Array) -> "Sided":
        """Return the new G, where the old G is the new one times `triangle`.

        Examples
        --------
        >>> far, back = (np.array([[1.0, x], [0.0, 1.0]]) for x in (2.0**60, -(2.0**60)))
        >>> Sided.begin(np.array([[1.0, 3.0]])).divide(far).divide(back).rows
        array([[1., 3.]])
        """
        factor, since = triangle @ self.factor, triangle @ self.since
        if _keeps_digits(since):
            return replace(self, rows=_divide(self.rows, triangle), factor=factor, since=since)
        each = np.eye(len(factor))
        return replace(self, rows=_divide(self.start, factor), factor=factor, since=each)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SidedRequest(FramedRequest):
    """Base of requests about G, which may first compute or draw G anew, and change it.

    Attributes
    ----------
    basis : ndarray of shape (d, k), or None
        Sets G = D basis.
    seed : int or None
        Draws G, once per run.
    triangle : ndarray of shape (k, k), or None
        Replaces G by ``G @ inv(triangle)``.
    """

    basis: Array | None = None
    seed: int | None = None
    triangle: Array | None = None

    def check(self, terms: Terms, state: State) -> None:
        """Refuse fields that do not match the study's number of components or the state of G."""
        super().check(terms, state)
        k = min(terms.k, terms.d)
        if self.basis is not None:
            terms.check_directions("basis", self.basis, k)
        if self.seed is not None:
            check_integer("seed", self.seed, 0, (1 << 63) - 1)
            if state.own is not None or self.basis is not None:
                raise InputError("Row vectors are drawn once, at the beginning.")
        if self.basis is None and self.seed is None and not isinstance(state.own, Sided):
            raise InputError("Row vectors must be computed or drawn before they are used.")
        if self.triangle is not None:
            width = self.width(terms, state)
            # Vectors are divided by it, so that its size cannot make anything overflow.
            check_finite("triangle", self.triangle, (width, width), largest=_LARGEST_ROOT)
            if np.tril(self.triangle, -1).any():
                raise InputError("triangle must be upper triangular.")
            self.check_change(state, self.triangle)

    def check_change(self, state: State, triangle: Array) -> None:
        """Refuse a triangle that, with those before it, makes G so small that digits vanish."""
        own = state.own if self.basis is None and self.seed is None else None
        factor = triangle @ own.factor if isinstance(own, Sided) else triangle
        check_finite("triangle", factor, triangle.shape, largest=_LARGEST_ROOT)

    def width(self, terms: Terms, state: State) -> int:
        """Return the number of columns of G."""
        if self.basis is not None:
            return int(self.basis.shape[1])
        if self.seed is None and isinstance(state.own, Sided):
            return int(state.own.rows.shape[1])
        return min(terms.k, terms.d)

    def directions(self) -> Array | None:
        """Return the directions from which G is computed."""
        return self.basis

    def with_directions(self, directions: Array) -> "SidedRequest":
        """Return the same request about other directions."""
        return replace(self, basis=directions)


def update_sided(source: Source, request: SidedRequest, state: State, terms: Terms) -> State:
    """Return the state with G as requested: computed or drawn anew, changed, or as it was."""
    own = state.own
    if request.basis is not None:
        view, _, state = prepare_rows(source, state)
        basis = request.basis
        own = Sided.begin(view.multiply(basis), basis)
    elif request.seed is not None:
        own = Sided.begin(_draw_rows(source, request.seed, min(terms.k, terms.d)))
    if not isinstance(own, Sided):
        raise InputError("There are no row vectors yet.")
    if request.triangle is not None:
        own = own.divide(request.triangle)
    return replace(state, own=own)


def _draw_rows(source: Source, seed: int, k: int) -> Array:
    """Draw G from the seed and the site's own rows.

    With the rows in the seed, sites draw different numbers without a name or an extra round, and
    nobody else knows G: otherwise the combinations of rows that leave could be solved for the rows
    of a site with fewer than k of them. Sites with equal rows draw equal numbers, which does not
    lower the rank.
    """
    digest = hashlib.blake2b(digest_size=32)
    for rows, _ in source.blocks():
        digest.update(np.ascontiguousarray(rows).data)
    words = np.frombuffer(digest.digest(), np.uint32)
    return np.random.default_rng([seed, *words]).standard_normal((source.n, k))


def _divide(columns: Array, upper: Array) -> Array:
    """Return ``columns @ inv(upper)``; columns with a zero on the diagonal of `upper` become 0."""
    if len(columns) == 0:
        return columns
    is_zero = upper.diagonal() == 0.0
    quotient: Array = solve_triangular(upper + np.diag(is_zero), columns.T, trans="T").T
    quotient[:, is_zero] = 0.0
    return quotient


def _keeps_digits(triangle: Array) -> bool:
    """Return whether columns lose few digits when they are divided by a triangle."""
    upper = triangle + np.diag(triangle.diagonal() == 0.0)
    inverse = solve_triangular(upper, np.eye(len(upper)))
    return bool((np.abs(inverse) @ np.abs(upper)).max() <= _LARGEST_GROWTH)


def apply_weights(source: Source, columns: Array) -> Array:
    """Multiply rows by their weights, if there are any."""
    return columns if source.weights is None else columns * source.weights[:, None]


def get_sided(state: State) -> Sided:
    """Return the rows of G that a site holds."""
    if not isinstance(state.own, Sided):
        raise InputError("There are no row vectors yet.")
    return state.own


def find_images(view: Prepared, state: State) -> State:
    """Return the state with the scatter times the directions from which G was computed, if any.

    It follows from G as it was at first: triangles may leave nothing of it.
    """
    own = get_sided(state)
    if own.behind is None or own.images is not None:
        return state
    return replace(state, own=replace(own, images=view.adjoint(own.start)))


def answer_and_count(source: Source, reply: Any, state: State) -> Answer[Any]:
    """Return a reply about G, metered with the directions from which G was computed, if any."""
    view, frame, state = prepare_rows(source, state)
    state = find_images(view, state)
    own = get_sided(state)
    if own.behind is None or own.images is None:
        nothing = np.zeros((source.d, 0))
        return Answer(reply, state, frame.answered(nothing, nothing))
    return Answer(reply, state, frame.answered(own.behind, own.images))


def bound_norm(limits: Limits, *, drawn: bool) -> float:
    """Bound the squared norm of a column of G at one site."""
    return _LARGEST_DRAW**2 * limits.weight if drawn else limits.most
