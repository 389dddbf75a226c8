"""Vectors with an entry for each row, split over sites: the part that a site keeps.

Each site holds its rows of a matrix G of k columns, and they never leave it. G is computed from
directions, G = D H, or drawn at random; the coordinator then changes it by triangles that it knows.
Every reply about G is metered with the directions H from which it was computed.
"""

import hashlib
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from eigenfed.arrays import Array
from eigenfed.data.prepared import LEAST_NORM, Prepared
from eigenfed.data.shifted_rows import ShiftedRows
from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.linalg.orthonormal import column_norms, split_powers
from eigenfed.protocol.exact.frame import FramedRequest
from eigenfed.protocol.exact.frame_rows import prepare_rows
from eigenfed.protocol.operations import Answer, Limits, State, Terms, check_finite, check_integer

_LARGEST_DRAW = 10.0
"""Bound on the normal numbers of a random start; exceeded with probability about 1e-23 each."""
_LARGEST_ROOT = 1e154
"""Root of about the largest float64: norms of vectors are no larger."""
_EPS = float(np.finfo(float).eps)
_LEAST_DIGITS = 2.0**-27
"""Largest rounding error of a column relative to its norm, above which it is computed anew."""
_LARGEST_ERROR = 4.0
"""Rounding error of a column that is computed anew, relative to the norms of its factors."""


@dataclass(frozen=True, eq=False, repr=False)
class Sided:
    """A site's rows of G.

    Triangles are the coordinator's numbers. Where columns cancel, or between a division by a
    triangle and by its inverse, G would be rounded to whatever digits the coordinator leaves, so
    that of a column only those entries would remain that exceed a bound. So columns are divided as
    long as they keep half of their digits, and otherwise computed again from the directions, or
    from what was drawn.

    Nor is what a distant mean adds to every row part of `rows`, which it would round: it is kept
    beside them, and added to sums over rows.

    Attributes
    ----------
    rows : ndarray of shape (n, k)
        G without its level.
    behind : ndarray of shape (d, k), or None
        The directions H from which G was computed; None if it was drawn.
    drawn : ndarray of shape (n, k), or None
        G as it was drawn.
    factor, change : ndarray of shape (k, k)
        The matrix T with ``G T = D H``, and its inverse.
    noise : ndarray of shape (k,)
        Bounds on the rounding errors of the columns since they were computed.
    level, sums : ndarray of shape (k,)
        What that mean adds to all rows of G, and the sums of `rows` as the sums of columns have
        them, which are not rounded row by row; 0 without a distant mean.
    shifted : ShiftedRows or None
        The rows from which G was computed, if their mean is distant.
    images : ndarray of shape (d, k), or None
        The scatter times H, once it was computed.
    """

    rows: Array
    behind: Array | None
    drawn: Array | None
    factor: Array
    change: Array
    noise: Array
    level: Array
    sums: Array
    shifted: ShiftedRows | None = None
    images: Array | None = None

    @classmethod
    def begin(cls, rows: Array, behind: Array | None = None) -> "Sided":
        """Return rows of G that were computed from directions, or drawn."""
        k = rows.shape[1]
        each, drawn, nothing = np.eye(k), rows if behind is None else None, np.zeros(k)
        return cls(rows, behind, drawn, each, each, _bound_noise(rows), nothing, nothing)

    @classmethod
    def multiply(cls, view: Prepared, basis: Array) -> "Sided":
        """Return G = D H."""
        if not isinstance(view, ShiftedRows):
            return cls.begin(view.multiply(basis), basis)
        level, sums = view.measure(basis)
        own = cls.begin(view.near_rows.multiply(basis), basis)
        return replace(own, shifted=view, level=level, sums=sums)

    @property
    def is_first(self) -> bool:
        """Whether G is what was computed or drawn, and no triangle has changed it."""
        return np.array_equal(self.change, np.eye(len(self.change)))

    def adjoin(self, view: Prepared) -> Array:
        """Return D'W G, (d, k)."""
        if self.shifted is None:
            return view.adjoint(self.rows)
        return self.shifted.adjoin_shifted(self.rows, self.level, self.sums)

    def inner(self, source: Source, left: slice, right: slice) -> Array:
        """Return the weighted inner products of some columns of G with others."""
        units, powers = split_powers(self.rows[:, left])
        others, exponents = split_powers(self.rows[:, right])
        weighted = others if source.weights is None else others * source.weights[:, None]
        found: Array = np.ldexp(units.T @ weighted, powers[:, None] + exponents)
        level, sums = self.level, self.sums
        found += np.outer(sums[left] + source.total_weight * level[left], level[right])
        found += np.outer(level[left], sums[right])
        return found

    def divide(self, triangle: Array, view: Prepared, trace: float) -> "Sided":
        """Return the new G, where the old G is the new one times `triangle`.

        Columns of which nothing but rounding is left become 0, as do those that are too small.
        `trace` is that of the scatter of the rows, without what a distant mean adds to it.
        """
        if self.shifted is not None:
            view = self.shifted.near_rows
        size = math.sqrt(trace) if self.drawn is None else float(np.linalg.norm(self.drawn))
        factor, change = triangle @ self.factor, _divide(self.change, triangle)
        rows, inverse = _divide(self.rows, triangle), np.abs(_divide(np.eye(len(factor)), triangle))
        noise = (self.noise + _EPS * column_norms(self.rows)) @ inverse + _bound_noise(rows)
        worn = np.flatnonzero(~(noise <= _LEAST_DIGITS * column_norms(rows)))
        if len(worn):
            by = change[:, worn]
            if self.behind is not None:
                by = self.behind @ by
            found = view.multiply(by) if self.drawn is None else self.drawn @ by
            lengths = column_norms(found)
            # What is no longer than rounding errors would not be the same when computed again.
            found[:, lengths <= _EPS * _LARGEST_ERROR * size * column_norms(by)] = 0.0
            rows[:, worn], noise[worn] = found, _bound_noise(found)
        rows[:, column_norms(rows) < LEAST_NORM] = 0.0
        level, sums = _divide(np.stack([self.level, self.sums]), triangle)
        change[:, ~rows.any(axis=0) & (np.abs(level) < LEAST_NORM)] = 0.0
        divided = replace(self, rows=rows, factor=factor, change=change, noise=noise)
        return replace(divided, level=level, sums=sums)


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
        own = Sided.multiply(view, request.basis)
    elif request.seed is not None:
        own = Sided.begin(_draw_rows(source, request.seed, min(terms.k, terms.d)))
    if not isinstance(own, Sided):
        raise InputError("There are no row vectors yet.")
    if request.triangle is not None:
        view, frame, state = prepare_rows(source, state)
        own = own.divide(request.triangle, view, frame.near_trace)
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


def _bound_noise(columns: Array) -> Array:
    """Bound the norms of the rounding errors of columns, also near the least numbers."""
    least = math.sqrt(len(columns)) * float(np.finfo(float).smallest_subnormal)
    bound: Array = _EPS * column_norms(columns) + least
    return bound


def _divide(columns: Array, upper: Array) -> Array:
    """Return ``columns @ inv(upper)``; columns with a zero on the diagonal of `upper` become 0."""
    if len(columns) == 0:
        return columns
    is_zero = upper.diagonal() == 0.0
    quotient: Array = solve_triangular(upper + np.diag(is_zero), columns.T, trans="T").T
    quotient[:, is_zero] = 0.0
    return quotient


def get_sided(state: State) -> Sided:
    """Return the rows of G that a site holds."""
    if not isinstance(state.own, Sided):
        raise InputError("There are no row vectors yet.")
    return state.own


def find_images(view: Prepared, state: State) -> State:
    """Return the state with the scatter times the directions from which G was computed, if any.

    It does not follow from a G that was divided, as triangles may leave nothing of it, and from one
    about a distant mean only to the digits that this mean has left.
    """
    own = get_sided(state)
    if own.behind is None or own.images is not None:
        return state
    is_known = own.is_first and own.shifted is None
    images = view.adjoint(own.rows) if is_known else view.product(own.behind)
    return replace(state, own=replace(own, images=images))


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
