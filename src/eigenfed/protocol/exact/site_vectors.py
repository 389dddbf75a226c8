"""Vectors with an entry for each row, split over sites: what a site keeps of them, and changes.

Each site has its rows of a matrix G of k columns and keeps them. G is made of directions, G = D H,
or drawn; it is changed by triangles that the coordinator knows. What leaves about it is counted
with the directions that it is made of.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.protocol.exact.moments import FramedRequest, framed
from eigenfed.protocol.operations import Answer, Limits, State, Terms, check_finite, check_integer

_LARGEST_DRAW = 10.0
"""No normal number of a random start is larger, but for one in 10^22."""


@dataclass(frozen=True, eq=False, repr=False)
class Sided:
    """A site's rows of G.

    Attributes
    ----------
    rows : ndarray of shape (n, k)
    behind : ndarray of shape (d, k), or None
        The directions H that G is made of; None where it was drawn.
    factor : ndarray of shape (k, k), or None
        The matrix T with ``G T = D H``.
    """

    rows: Array
    behind: Array | None = None
    factor: Array | None = None

    def changed(self, rows: Array, factor: Array) -> "Sided":
        """Replace G, where the old G is the new one times `factor`."""
        return Sided(rows, self.behind, None if self.factor is None else factor @ self.factor)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SidedRequest(FramedRequest):
    """A request about G, which may first be made anew and changed.

    Attributes
    ----------
    basis : ndarray of shape (d, k), or None
        Makes G = D basis.
    seed : int or None
        Draws G, once a run.
    triangle : ndarray of shape (k, k), or None
        Divides G from the right.
    """

    basis: Array | None = None
    seed: int | None = None
    triangle: Array | None = None

    def check(self, terms: Terms, state: State) -> None:
        """Refuse what does not fit the study's number of components."""
        super().check(terms, state)
        k = min(terms.k, terms.d)
        if self.basis is not None:
            terms.check_directions("basis", self.basis, k)
        if self.seed is not None:
            check_integer("seed", self.seed, 0, (1 << 63) - 1)
            if state.own is not None or self.basis is not None:
                raise InputError("Row vectors are drawn once, at the beginning.")
        if self.basis is None and self.seed is None and not isinstance(state.own, Sided):
            raise InputError("Row vectors must be made before anything is asked about them.")
        if self.triangle is not None:
            width = self.width(terms, state)
            check_finite("triangle", self.triangle, (width, width))
            if np.tril(self.triangle, -1).any():
                raise InputError("triangle must be an upper triangle.")

    def width(self, terms: Terms, state: State) -> int:
        """Return the number of columns of G."""
        if self.basis is not None:
            return int(self.basis.shape[1])
        if self.seed is None and isinstance(state.own, Sided):
            return int(state.own.rows.shape[1])
        return min(terms.k, terms.d)

    def directions(self) -> Array | None:
        """Return the directions that G is made of."""
        return self.basis

    def about(self, directions: Array) -> "SidedRequest":
        """Return the same request about other directions."""
        return replace(self, basis=directions)


def sided_of(source: Source, request: SidedRequest, state: State, terms: Terms) -> State:
    """Return the state with G as the request wants it: made anew, changed, or as it was."""
    own = state.own
    if request.basis is not None:
        view, _, state = framed(source, state)
        basis = request.basis
        own = Sided(view.multiply(basis), basis, np.eye(basis.shape[1]))
    elif request.seed is not None:
        own = Sided(_drawn(source, request.seed, min(terms.k, terms.d)))
    if not isinstance(own, Sided):
        raise InputError("There are no row vectors yet.")
    if request.triangle is not None:
        own = own.changed(_divided(own.rows, request.triangle), request.triangle)
    return replace(state, own=own)


def _drawn(source: Source, seed: int, k: int) -> Array:
    """Draw G from the seed and the site's own rows.

    With the rows in the seed, sites draw apart without a name or an extra round, and nobody else
    knows G: the combinations of rows that leave could otherwise be solved for the rows of a site
    that has fewer of them than k. Sites with the same rows draw the same, which costs no rank.
    """
    mark = hashlib.blake2b(digest_size=32)
    for rows, _ in source.blocks():
        mark.update(rows.tobytes())
    words = np.frombuffer(mark.digest(), np.uint32)
    return np.random.default_rng([seed, *words]).standard_normal((source.n, k))


def _divided(columns: Array, upper: Array) -> Array:
    """Return ``columns @ inv(upper)``, with zeros where the diagonal of `upper` has them."""
    if len(columns) == 0:
        return columns
    gone = upper.diagonal() == 0.0
    answer: Array = solve_triangular(upper + np.diag(gone), columns.T, trans="T").T
    answer[:, gone] = 0.0
    return answer


def weighted(source: Source, columns: Array) -> Array:
    """Multiply rows by their weights, where they have some."""
    return columns if source.weights is None else columns * source.weights[:, None]


def sided_in(state: State) -> Sided:
    """Return the rows of G that a site keeps."""
    if not isinstance(state.own, Sided):
        raise InputError("There are no row vectors yet.")
    return state.own


def answer_counted(source: Source, reply: Any, state: State) -> Answer[Any]:
    """Answer with numbers about G, counted with the directions that G is made of, if it is."""
    own = sided_in(state)
    view, frame, state = framed(source, state)
    if own.behind is None or own.factor is None:
        none = np.zeros((source.d, 0))
        return Answer(reply, state, frame.answered(none, none))
    images = view.adjoint(own.rows) @ own.factor
    return Answer(reply, state, frame.answered(own.behind, images))


def largest_norm(limits: Limits, *, drawn: bool) -> float:
    """Bound the squared norm of a column of G at one site."""
    return _LARGEST_DRAW**2 * limits.weight if drawn else limits.most
