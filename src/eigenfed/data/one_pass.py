"""The scatter of a site in one pass over its rows, before the mean of all sites is known.

Rows are centred about the mean of the first block, and the scatter is corrected for the difference
to the site's own mean at the end. The correction cancels few digits: the first block alone accounts
for so much of the scatter that with b blocks the correction is at most b times the scatter.
``X'X - n m m'`` would lose every digit when the mean is large compared with the spread.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
from scipy.linalg.blas import dgemm

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.linalg.block_scatter import sum_scatters
from eigenfed.linalg.row_sums import sum_rows
from eigenfed.linalg.threads import one_blas_thread

_LEAST_ROWS_PER_FEATURE = 4
_ROWS_AT_A_TIME = 256
_PARTS_AT_ONCE = 32
"""Parts of columns that are centred alike; the scatters of more are merged."""
_FEW_FEATURES, _SMALL_PRODUCT = 32, 900_000
"""Up to so many features, products of short pieces take half the time of numpy's of long ones."""
_CENTRED_ENTRIES = 360_000
"""Entries that are centred at a time, of several pieces: numpy's calls take longer than a piece."""


class _EntryMissing(Exception):
    """Ends a pass over rows at the first block in which an entry is missing."""


@dataclass(frozen=True, eq=False, repr=False)
class OwnScatter:
    """Number of rows of a site, their mean, and their scatter about it.

    Attributes
    ----------
    n : float
    mean : ndarray of shape (d,)
    matrix : ndarray of shape (d, d)

    Examples
    --------
    >>> import numpy as np
    >>> own = OwnScatter.of(Source.of(np.array([[1.0], [3.0], [5.0], [7.0]])))
    >>> own.mean, own.matrix, own.about(np.zeros(1), np.ones(1))
    (array([4.]), array([[20.]]), array([[84.]]))
    """

    n: float
    mean: Array
    matrix: Array

    @classmethod
    def of(cls, source: Source) -> "OwnScatter | None":
        """Read the rows once; return None if that is not possible or saves nothing.

        Rows with weights are not read, as the first block may have little weight; nor are sparse
        rows, which would become dense; nor fewer than 4 rows per feature, as the scatter is then
        about as large as the rows. A missing entry represents the mean of all sites, which is not
        known yet, so the first block with one ends the pass.
        """
        plain = not source.is_sparse and source.weights is None
        if not plain or source.n < _LEAST_ROWS_PER_FEATURE * source.d:
            return None
        columns = source.read_columns()
        if columns is not None:
            return cls._of_columns(columns)
        spans = source.spans()
        first = source.stored_block(spans[0])
        # A mean of equal numbers may be off by rounding, and their scatter would not be 0.
        is_flat = (first == first[0]).all(axis=0)
        near = np.where(is_flat, first[0], first.mean(axis=0, dtype=np.float64))

        shifts: dict[int, Array] = {}

        def centre_block(span: slice) -> Array:
            centred: Array = np.subtract(source.stored_block(span), near, dtype=np.float64)
            shifts[span.start] = sum_rows(centred)
            if np.isnan(shifts[span.start]).any():
                raise _EntryMissing
            return centred

        try:
            matrix = sum_scatters(centre_block, spans, source.d)
        except _EntryMissing:
            return None
        away = sum((shifts[span.start] for span in spans), np.zeros(source.d)) / source.n
        _add_outer(matrix, away, -float(source.n))
        return cls(float(source.n), near + away, matrix)

    @classmethod
    def _of_columns(cls, parts: Iterator[list[Array]]) -> "OwnScatter | None":
        """Read rows that come as columns, some at a time; None if an entry is missing."""
        found: OwnScatter | None = None
        with one_blas_thread:
            for first in parts:
                joined = _scatter_columns(first, islice(parts, _PARTS_AT_ONCE - 1))
                if joined is None:
                    return None
                found = joined if found is None else found.merge(joined)
        return found

    def merge(self, other: "OwnScatter") -> "OwnScatter":
        """Return the scatter of the rows of both about their common mean."""
        n, away = self.n + other.n, other.mean - self.mean
        matrix = self.matrix + other.matrix + (self.n * other.n / n) * np.outer(away, away)
        return OwnScatter(n, self.mean + (other.n / n) * away, matrix)

    def squares(self, mean: Array) -> Array:
        """Return the sums of squares of the rows minus a mean, by feature, (d,)."""
        squares: Array = np.maximum(self.matrix.diagonal(), 0.0) + self.n * (self.mean - mean) ** 2
        return squares

    def about(self, mean: Array, scale: Array) -> Array:
        """Return the scatter of the rows minus a mean, divided by the scale, (d, d)."""
        away = (self.mean - mean) / scale
        scatter = self.matrix.copy()
        if (scale != 1.0).any():
            scatter /= scale
            scatter /= scale[:, None]
        _add_outer(scatter, away, self.n)
        return scatter


def _add_outer(matrix: Array, away: Array, n: float) -> None:
    """Add ``n * outer(away, away)`` in place, some rows at a time to save memory."""
    for start in range(0, len(away), _ROWS_AT_A_TIME):
        span = slice(start, start + _ROWS_AT_A_TIME)
        matrix[span] += n * np.outer(away[span], away)


def _scatter_columns(first: list[Array], others: Iterator[list[Array]]) -> OwnScatter | None:
    """Return the scatter of some parts, centred about the mean of the first; None with a NaN."""
    d = len(first)
    # As in `OwnScatter.of`, equal numbers have their own value as a mean.
    near = np.array([c[0] if (c == c[0]).all() else c.mean() for c in first])
    total, matrix, n = np.zeros(d), np.zeros((d, d), order="F"), 0
    step = _SMALL_PRODUCT // d**2 if d <= _FEW_FEATURES else len(first[0])
    room, ones = np.empty((max(_CENTRED_ENTRIES // (d * step), 1), d, step)), np.ones(step)
    for part in chain([first], others):
        n += len(part[0])
        for centred in _centre_columns(part, near, room):
            total += centred @ ones[: centred.shape[1]]
            if d <= _FEW_FEATURES:
                matrix = dgemm(1.0, centred.T, centred.T, 1.0, matrix, 1, overwrite_c=True)
            else:
                matrix += centred @ centred.T
    away = total / n
    matrix -= n * np.outer(away, away)
    return None if np.isnan(total).any() else OwnScatter(float(n), near + away, matrix)


def _centre_columns(part: list[Array], near: Array, room: Array) -> Iterator[Array]:
    """Yield pieces of some columns minus a mean, (d, rows); several are made at a time in `room`.

    Parameters
    ----------
    part : list of ndarray of shape (n,)
    near : ndarray of shape (d,)
    room : ndarray of shape (pieces, d, rows)
    """
    most, _, step = room.shape
    n, start = len(part[0]), 0
    while start < n:
        count, length = (
            (min((n - start) // step, most), step) if n - start >= step else (1, n - start)
        )
        stop = start + count * length
        pieces = room[:count, :, :length]
        for j, column in enumerate(part):
            np.subtract(column[start:stop].reshape(count, length), near[j], out=pieces[:, j])
        yield from pieces
        start = stop
