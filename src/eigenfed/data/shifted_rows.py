"""Rows about a distant mean, as rows about a near one and a shift of all of them.

A number from which a distant mean is subtracted is rounded: of a mean of 2**55 and entries below 8
only those above 2 leave anything. Two features with such means cancel in a product, and what is
left is a sum over the few rows that exceed a bound. So the distant mean is not subtracted from
entries: ``D = C + 1 a'``, with the rows C about the near mean, gives the same products.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.prepared import Prepared, ProductParts, SingleArray
from eigenfed.linalg.summary import Summary


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ShiftedRows(Prepared):
    """A source with a mean and a scale, where that mean is distant.

    Attributes
    ----------
    near_rows : Prepared
        The rows about their own mean. A feature that is missing in a row is about `mean`.
    shift : ndarray of shape (d,)
        What is added to every row: 0 for features that some row misses.

    Examples
    --------
    >>> from eigenfed.data.source import Source
    >>> rows, away = Source.of(np.array([[1.0, 2.0], [3.0, 2.0]])), np.array([2.0**60, 0.0])
    >>> near = Prepared(rows, np.array([2.0, 2.0]), np.ones(2))
    >>> shifted = ShiftedRows(rows, away, np.ones(2), near_rows=near, shift=near.mean - away)
    >>> shifted.multiply(np.array([[0.0], [1.0]])).ravel()
    array([2., 2.])
    """

    near_rows: Prepared
    shift: Array
    _last: list[tuple[Array, ProductParts]] = field(default_factory=list)

    def multiply(self, basis: Array) -> Array:
        """Return D Q, (n, l), which has a row for each record and never leaves a site."""
        found = self.near_rows.multiply(basis)
        found += self.shift @ basis
        return found

    def adjoint(self, sided: Array) -> Array:
        """Return D'W Y, (d, l)."""
        found: Array = self.near_rows.adjoint(sided)
        found += np.outer(self.shift, self._apply_weights(sided).sum(axis=0))
        return found

    def measure(self, basis: Array) -> Array:
        """Return a'Q, which the shift adds to each row of C Q, and 1'W C Q, (2, l)."""
        found: Array = self._right @ basis
        return found

    def adjoin_shifted(self, sided: Array, level: Array, sums: Array) -> Array:
        """Return D'W (Y + 1 b'), (d, l).

        Parameters
        ----------
        sided : ndarray of shape (n, l)
            Y = C Q.
        level, sums : ndarray of shape (l,)
            b = Q'a and Q'C'W 1, as `measure` returns them.
        """
        found = self.near_rows.adjoint(sided)
        found += self._left.T @ np.stack([level, sums])
        return found

    def product(self, basis: Array) -> Array:
        """Return D'W D Q, (d, l)."""
        near = self.near_product(basis)
        # The shift is multiplied by the sums C'W 1, and not by those of W C Q, which have been
        # rounded row by row: far enough away it would show how.
        left, right = self._left, self.measure(basis)
        if near.sums is not None:
            left, right = self._sparse_left, np.vstack([right, near.sums])
        # One product of few columns by few rows, in a third of the time of outer products.
        added: Array = left.T @ right
        return np.add(added, near.images, out=added)

    def near_product(self, basis: Array) -> ProductParts:
        """Return C'W C Q; the last one is kept, as the leakage meter counts it too."""
        if not self._last or self._last[0][0] is not basis:
            self._last[:] = [(basis, self.near_rows.product_in_parts(basis))]
        return self._last[0][1]

    def scatter(self) -> Array:
        """Return D'W D, (d, d)."""
        found = self.near_rows.scatter()
        found += self._shift_scatter()
        return found

    def single_scatter(self) -> SingleArray | None:
        """Return D'W D rounded to single precision, (d, d); None if that cannot hold it."""
        found = self.near_rows.single_scatter()
        if found is None:
            return None
        with np.errstate(over="ignore"):
            rounded = (found + self._shift_scatter()).astype(np.float32)
        return rounded if np.isfinite(rounded.diagonal()).all() else None

    def column_spans(self) -> list[slice]:
        """Return nothing: single columns of D would be about the distant mean."""
        return []

    def summary(self, rank: int) -> Summary:
        """Summarise the rows of D, about their own mean."""
        found = self.near_rows.summary(rank)
        return replace(found, mean=found.mean + self.shift)

    def _shift_scatter(self) -> Array:
        """Return what the shift adds to the scatter C'W C, (d, d)."""
        half = self.near_sums + 0.5 * self.source.total_weight * self.shift
        one_side: Array = np.outer(half, self.shift)
        return one_side + one_side.T

    @cached_property
    def _right(self) -> Array:
        """The shift a, and the sums C'W 1, (2, d)."""
        return np.stack([self.shift, self.near_sums])

    @cached_property
    def _left(self) -> Array:
        """What a'Q and 1'W C Q are multiplied by, (2, d)."""
        return np.stack([self.near_sums + self.source.total_weight * self.shift, self.shift])

    @cached_property
    def _sparse_left(self) -> Array:
        """The same, and what the sums of a product in parts are multiplied by, (3, d)."""
        return np.vstack([self._left, -self.near_rows.sparse_mean / self.scale])

    @cached_property
    def near_sums(self) -> Array:
        """The sums C'W 1: of features about their own mean, what their mean is rounded by, (d,)."""
        found: Array = self.near_rows.adjoint(np.ones((self.source.n, 1)))[:, 0]
        return found
