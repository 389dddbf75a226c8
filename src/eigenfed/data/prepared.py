"""Products with centred and scaled rows, without ever forming the centred table.

Let D be the rows minus the mean, divided by the scale, with 0 where an entry is missing, and W the
weights: ``multiply`` is D Q, ``adjoint`` is D'W Y, ``product`` is D'W D Q. Dense rows are centred
block by block, which loses no digits however large the mean is. Sparse rows stay sparse:
``D Q = X (Q/scale) - 1 (mean/scale)'Q``, and likewise for the adjoint. Where the mean is larger
than the spread, entries of features that no row lacks are centred one by one before that. A product
with dense rows does the same as sparse rows where the mean is no larger than the spread, since it
then loses no digits either: centring a block takes as long as multiplying it by a few directions.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.linalg.block_scatter import sum_scatters
from eigenfed.linalg.orthonormal import column_norms, split_powers
from eigenfed.linalg.remembered import remember_last
from eigenfed.linalg.row_sums import sum_by_feature, sum_rows, sum_squares
from eigenfed.linalg.sparse_products import multiply_transpose, multiply_twice
from eigenfed.linalg.sparse_rows import ScatteredSparse, gather, join_spans, slice_rows
from eigenfed.linalg.stacked_rows import split_columns
from eigenfed.linalg.summary import Summary
from eigenfed.linalg.threads import map_in_order

SingleArray = npt.NDArray[np.float32]

_ROWS_AT_A_TIME = 4096
_MOST_COLUMNS = 32
"""Columns that sparse rows are multiplied by at once: rows of more no longer stay in the cache from
one entry of a feature to the next, which takes twice the time."""
_PARTS, _LEAST_PART_BYTES = 32, 1 << 20
"""What a product of sparse rows may take beside them: a part of the entries, or a megabyte."""
_SCATTERED_PARTS = 8
"""Parts of scattered sparse rows, of which one at a time may be copied: more take longer."""
_SINGLE_ROWS = 2048
_LEAST_SINGLE, _LARGEST_SINGLE, _MOST_RATIO = 1e-20, 1e38, 1e10
LEAST_NORM = 1e-300
"""Norm of columns of D Q below which they are taken for 0: smaller ones have few digits."""
_LEAST_FACTOR = 2.0**-200
"""Entries of directions, relative to the scale, from which columns of D Q keep their digits."""


class ProductParts(NamedTuple):
    """A product D'W D Q, as a large array and little that is still to be subtracted.

    Attributes
    ----------
    images : ndarray of shape (d, l)
    mean : ndarray of shape (d,), or None
        The product is ``images - outer(mean / scale, sums)``; None if it is `images` as they are.
    sums : ndarray of shape (l,), or None
        Sums of the columns of W D Q.
    """

    images: Array
    mean: Array | None = None
    sums: Array | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Prepared:
    """A source with the mean and the scale to apply to its rows.

    Attributes
    ----------
    source : Source
    mean : ndarray of shape (d,)
    scale : ndarray of shape (d,)
    near : bool, default=False
        Whether the mean is no larger than the spread of the rows about it, so that products may
        be centred after they were multiplied.
    rest : ndarray of shape (d,), or None
        What is subtracted after the mean: digits of it that one number cannot hold. It is 0 for
        features that some sparse row lacks. Cannot be combined with `near`.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[1.0, 0.0], [3.0, 0.0]])
    >>> Prepared(Source.of(rows), mean=np.array([2.0, 0.0]), scale=np.ones(2)).scatter()
    array([[2., 0.],
           [0., 0.]])
    """

    source: Source
    mean: Array
    scale: Array
    near: bool = False
    rest: Array | None = None

    def blocks(self) -> Iterator[tuple[Array, Array | None]]:
        """Yield dense blocks of D and their weights."""
        return map(self._block, self.source.spans())

    def _block(self, span: slice) -> tuple[Array, Array | None]:
        centred = self._centre(self.source.stored_block(span), slice(None))
        return centred, self.source.block_weights(span)

    def _centre(self, rows: npt.NDArray[Any], features: slice) -> Array:
        """Return entries of D from those of some rows and features."""
        # float32 rows are converted here, in small pieces, and not as a block.
        centred: Array = np.subtract(rows, self.mean[features], dtype=np.float64)
        if self.rest is not None:
            centred -= self.rest[features]
        if self.source.has_missing:
            centred[np.isnan(centred)] = 0.0
        if self._is_scaled:
            centred /= self.scale[features]
        return centred

    def column_spans(self) -> list[slice]:
        """Return the features of each block of columns; empty if the rows are not one array."""
        source = self.source
        return split_columns(source.n, source.d) if isinstance(source.X, np.ndarray) else []

    def column_block(self, span: slice) -> Array:
        """Return some columns of D, all rows of them, (n, m)."""
        return self._centre(self.source.X[:, span], span)

    def multiply(self, basis: Array) -> Array:
        """Return D Q, (n, l), which has a row for each record and never leaves a site.

        Columns near the least numbers are 0: of what has so few digits only single rows are left.
        """
        found = self._multiply(basis)
        least = self._find_least_norms(basis)
        if least is not None:
            found[:, column_norms(found) < least] = 0.0
        return found

    def _find_least_norms(self, basis: Array) -> Array | None:
        """Return norms below which columns of D Q are 0; None without tiny entries in `basis`."""
        if _find_least(basis) >= _LEAST_FACTOR * self.scale.max(initial=0.0):
            return None
        sizes, least = np.abs(basis), _LEAST_FACTOR * self.scale
        is_faint = ((sizes > 0.0) & (sizes < least[:, None])).any()
        return np.full(basis.shape[1], LEAST_NORM) if is_faint else None

    def _multiply(self, basis: Array) -> Array:
        """Return D Q, whatever its size."""
        if self.source.is_sparse:
            return self._multiply_sparse(basis)
        flops = 2.0 * self.source.n * basis.size
        parts = map_in_order(
            lambda span: self._block(span)[0] @ basis, self.source.spans(), flops=flops
        )
        return np.concatenate([np.zeros((0, basis.shape[1])), *parts])

    def adjoint(self, sided: Array) -> Array:
        """Return D'W Y, (d, l)."""
        weighted, powers = split_powers(self._apply_weights(sided))
        if self.source.is_sparse:
            found = self._adjoin_sparse(weighted)
        else:
            d, width = self.source.d, sided.shape[1]
            found = self._sum_blocks(
                lambda span: self._block(span)[0].T @ weighted[span],
                (d, width),
                flops=2.0 * d * sided.size,
            )
        return np.ldexp(found, powers, out=found)

    def product(self, basis: Array) -> Array:
        """Return D'W D Q, (d, l), in one pass over dense rows."""
        if self._find_least_norms(basis) is not None:
            return self.adjoint(self.multiply(basis))
        if self.source.is_sparse:
            total, sums = self._uncentred_product(basis)
            return self._centre_adjoint(total, sums)
        near = self.near and not self.source.has_missing
        scaled = basis / self.scale[:, None] if near and self._is_scaled else basis
        onto_mean = (self.mean @ scaled)[:, None] if near else 0.0

        def multiply_block(span: slice) -> tuple[Array, Array]:
            block, weights = self.source.block(span) if near else self._block(span)
            # Both factors transposed: BLAS takes two thirds of the time of the other order.
            sided = scaled.T @ block.T
            if near:
                sided -= onto_mean
            if weights is not None:
                sided *= weights
            return sided @ block, sided.sum(axis=1)

        total, sums = np.zeros(basis.shape[::-1]), np.zeros(basis.shape[1])
        flops = 4.0 * self.source.n * basis.size
        for part, part_sums in map_in_order(multiply_block, self.source.spans(), flops=flops):
            total += part
            sums += part_sums
        if near:
            for row, by_direction in zip(total, sums, strict=True):
                row -= by_direction * self.mean
            if self._is_scaled:
                total /= self.scale
        return np.ascontiguousarray(total.T)

    def product_in_parts(self, basis: Array) -> ProductParts:
        """Return D'W D Q as it is before the mean is subtracted from it, if it is made so."""
        if not self.source.is_sparse or self._find_least_norms(basis) is not None:
            return ProductParts(self.product(basis))
        total, sums = self._uncentred_product(basis)
        if self._is_scaled:
            total /= self.scale[:, None]
        return ProductParts(total, self.sparse_mean, sums)

    def squares(self) -> Array:
        """Return the weighted sums of squares of the columns of D, (d,)."""
        if self.source.is_sparse:
            return self._sparse_squares()

        def sum_block(span: slice) -> Array:
            return sum_squares(*self._block(span))

        d = self.source.d
        return self._sum_blocks(sum_block, (d,), flops=2.0 * self.source.n * d)

    def scatter(self) -> Array:
        """Return D'W D, (d, d)."""
        return sum_scatters(self._weighted_block, self.source.spans(), self.source.d)

    def single_scatter(self) -> SingleArray | None:
        """Return D'W D in single precision, (d, d), within `single_error` of it.

        It takes about half the time of `scatter`. None is returned if the entries of D are too
        large or too small for single precision, or if some may be next to the others.
        """
        if self.scale.max(initial=0.0) > _MOST_RATIO * self.scale.min(initial=np.inf):
            return None
        total = sum_scatters(self._single_block, self.source.spans(_SINGLE_ROWS), self.source.d)
        largest = total.diagonal().max()
        # An entry that overflows makes its diagonal entry infinite or NaN.
        return total.astype(np.float32) if _LEAST_SINGLE < largest < _LARGEST_SINGLE else None

    def _single_block(self, span: slice) -> SingleArray:
        """Return a block of D, its rows multiplied by the roots of their weights, in float32."""
        source = self.source
        plain = not source.is_sparse and source.weights is None and not source.has_missing
        if plain and not self._is_scaled and self.rest is None:
            single = np.empty((span.stop - span.start, source.d), dtype=np.float32)
            with np.errstate(over="ignore"):
                np.subtract(source.X[span], self.mean, out=single, casting="same_kind")
            return single
        with np.errstate(over="ignore"):
            return self._weighted_block(span).astype(np.float32)

    def _weighted_block(self, span: slice) -> Array:
        """Return a block of D, its rows multiplied by the roots of their weights."""
        block, weights = self._block(span)
        if weights is not None:
            block *= np.sqrt(weights)[:, None]
        return block

    def summary(self, rank: int) -> Summary:
        """Summarise the rows of D, about their own mean.

        That mean is the shift of this site, which a merge of sites needs.
        """
        summary = Summary.empty(self.source.d, rank)
        for block, weights in self.blocks():
            summary = summary.update(block, weights)
        return summary

    def _sparse_squares(self) -> Array:
        """Sum over stored entries, and add the squared mean for each entry that is not stored."""
        weights, d = self.source.weights, self.source.d
        stored, present, places = np.zeros(d), np.zeros(d), np.zeros(d)
        for values, columns, by_entry in self.source.entries():
            centred = values - self.mean[columns]
            if self.rest is not None:
                centred -= self.rest[columns]
            if self.source.has_missing:
                centred[np.isnan(centred)] = 0.0
            squares = np.square(centred, out=centred)
            if by_entry is not None:
                squares *= by_entry
            stored += sum_by_feature(columns, squares, d)
            present += sum_by_feature(columns, by_entry, d)
            if by_entry is not None:
                places += np.bincount(columns, by_entry > 0.0, minlength=d)
        if weights is None:
            absent = self.source.n - present
        else:
            # Sums of weights differ by rounding where no entry is absent.
            is_complete = places == np.count_nonzero(weights)
            absent = np.where(is_complete, 0.0, np.maximum(weights.sum() - present, 0.0))
        variation: Array = (stored + absent * self.mean**2) / self.scale**2
        return variation

    def _sum_blocks(
        self, task: Callable[[slice], Array], shape: tuple[int, ...], *, flops: float
    ) -> Array:
        """Sum the task's results over the blocks, in their order: the result is reproducible."""
        total: Array | None = None
        for part in map_in_order(task, self.source.spans(), flops=flops):
            if total is None:
                total = part
            else:
                total += part
        return np.zeros(shape) if total is None else total

    def _apply_weights(self, sided: Array) -> Array:
        return sided if self.source.weights is None else sided * self.source.weights[:, None]

    @cached_property
    def _is_scaled(self) -> bool:
        return bool((self.scale != 1.0).any())

    @cached_property
    def sparse_mean(self) -> Array:
        """The mean of features that some row lacks, 0 for the others where the mean is large.

        It is subtracted after products with sparse rows. Features that every row has may be so far
        from zero that products would lose their digits.
        """
        return self.mean if self._within is None else self.mean - self._within

    @cached_property
    def _within(self) -> Array | None:
        """What is subtracted from the entries of sparse rows, before `rest`; None for nothing."""
        complete = None if self.near else self.source.complete_features
        return None if complete is None else np.where(complete, self.mean, 0.0)

    def _multiply_sparse(self, basis: Array) -> Array:
        scaled = self._divide_by_scale(basis)
        image = np.empty((self.source.n, basis.shape[1]))
        for span, rows in self._filled_parts():
            image[span] = gather(rows) @ scaled
        image -= self.sparse_mean @ scaled
        if self.source.weights is not None:
            self._complete_weightless(image, scaled)
        return image

    def _complete_weightless(self, image: Array, scaled: Array) -> None:
        """Subtract the mean where rows without weight, which count in no sum, lack a feature."""
        weightless = np.flatnonzero(self.source.weights == 0.0)
        if self._within is None or not len(weightless):
            return
        mean = self._within if self.rest is None else self._within + self.rest
        held = self.source.X[weightless]
        entries = (mean[held.indices], held.indices, held.indptr)
        image[weightless] += sparse.csr_array(entries, shape=held.shape) @ scaled - mean @ scaled

    def _adjoin_sparse(self, weighted: Array) -> Array:
        total = np.zeros((self.source.d, weighted.shape[1]))
        for span, rows in self._filled_parts():
            total += multiply_transpose(gather(rows), weighted[span])
        return self._centre_adjoint(total, sum_rows(weighted))

    def _uncentred_product(self, basis: Array) -> tuple[Array, Array]:
        """Return X'W D Q, (d, l), and the sums of the columns of W D Q, (l,), of sparse rows."""
        count = -(-basis.shape[1] // _MOST_COLUMNS)
        if count > 1:
            parts = np.array_split(basis, count, axis=1)
            found = [self._uncentred_product(np.ascontiguousarray(part)) for part in parts]
            return np.hstack([total for total, _ in found]), np.hstack([sums for _, sums in found])
        scaled = self._divide_by_scale(basis)
        total: Array | None = None
        sums, shift = np.zeros(basis.shape[1]), self.sparse_mean @ scaled
        for span, rows in self._split_for(basis.shape[1]):
            weights = self.source.block_weights(span)
            sided, part = multiply_twice(rows, scaled, shift, weights)
            total = part if total is None else np.add(total, part, out=total)
            sums += sum_rows(sided)
        return np.zeros(basis.shape) if total is None else total, sums

    def join_parts(self, parts: ProductParts) -> Array:
        """Return the product of which these are the parts."""
        if parts.mean is None or parts.sums is None:
            return parts.images
        return parts.images - np.outer(parts.mean / self.scale, parts.sums)

    def _centre_adjoint(self, total: Array, sums: Array) -> Array:
        """Turn X'W Y into D'W Y; `sums` are the columns' sums of W Y."""
        centred = _subtract_outer(total, self.sparse_mean, sums)
        if self._is_scaled:
            centred /= self.scale[:, None]
        return centred

    def _divide_by_scale(self, basis: Array) -> Array:
        return basis / self.scale[:, None] if self._is_scaled else basis

    def _split_for(self, width: int) -> Iterator[tuple[slice, Any]]:
        """Yield sparse rows, few enough at a time that `width` numbers for each take little memory.

        That is little beside the rows' own entries, or beside `width` numbers for each feature.
        """
        for span, rows in self._filled_parts():
            entry_bytes = rows.nnz * rows.dtype.itemsize
            beside = entry_bytes // _PARTS, 32 * self.source.d * width, _LEAST_PART_BYTES
            count = -(-8 * rows.shape[0] * width // max(beside))
            edges = [i * rows.shape[0] // count for i in range(count)] + [rows.shape[0]]
            for start, stop in pairwise(edges):
                part = rows if count == 1 else slice_rows(rows, slice(start, stop))
                yield slice(span.start + start, span.start + stop), part

    def _filled_parts(self) -> Iterator[tuple[slice, Any]]:
        """Yield sparse rows in double precision, with missing entries set to the mean.

        Such entries are 0 in D. What `sparse_mean` leaves out is subtracted from the entries. Rows
        that need no change are not copied: they are one part, or scattered rows in as many as are
        copied at a time where that is necessary after all.
        """
        X, missing, within = self.source.X, self.source.has_missing, self._within
        if X.dtype == np.float64 and not missing and within is None:
            spans = [slice(0, self.source.n)]
            if isinstance(X, ScatteredSparse):
                spans = join_spans(self.source.part_spans, _SCATTERED_PARTS)
            for span in spans:
                yield span, X if len(spans) == 1 else slice_rows(X, span)
            return
        for span, part in self.source.parts():
            values, columns = part.data.astype(np.float64), part.indices
            gaps = np.isnan(values) if missing else None
            if within is not None:
                values -= within[columns]
            if self.rest is not None:
                values -= self.rest[columns]
            if gaps is not None:
                values[gaps] = self.sparse_mean[columns[gaps]]
            yield span, sparse.csr_array((values, columns, part.indptr), shape=part.shape)


def single_error(trace: float) -> float:
    """Bound the spectral norm of the error of `single_scatter`, summed over sites.

    Let u be the unit roundoff and |D| the absolute values of D. The error of an entry is at most
    (m + 4) u times the same entry of |D|'W|D|: 2 u for the two factors, m u for a sum of m rows in
    any order, and 2 u for adding the blocks and sending the result. The norm of |D|'W|D| is at
    most its trace, which is that of D'W D.

    Parameters
    ----------
    trace : float
        Of D'W D, summed over sites.

    Examples
    --------
    >>> f"{single_error(1.0):.1e}"
    '1.2e-04'
    """
    u = float(np.finfo(np.float32).eps) / 2
    return 1.01 * (_SINGLE_ROWS + 4) * u * trace


@remember_last
def _find_least(a: Array) -> float:
    """Return the least magnitude of entries other than 0; infinity if there are none."""
    sizes = np.abs(a)
    least = float(sizes.min(initial=np.inf))
    return least if least > 0.0 else float(sizes.min(initial=np.inf, where=sizes > 0.0))


def _subtract_outer(a: Array, x: Array, y: Array) -> Array:
    """Subtract ``outer(x, y)`` from `a`, in place if it is in C order, some rows at a time."""
    found = a if a.flags.c_contiguous else np.empty(a.shape)
    for start in range(0, len(a), _ROWS_AT_A_TIME):
        span = slice(start, start + _ROWS_AT_A_TIME)
        # As a matrix product, which takes a third of the time of broadcasting to few columns.
        np.subtract(a[span], np.dot(x[span, None], y[None, :]), out=found[span])
    return found
