"""Sparse rows as scipy holds them: each place stored once, and parts of them without a copy.

scipy's own slices and transposes copy: the slices everything, and every constructor the positions
if they fit into fewer bits than they have. Rows that are not adjacent cannot be a table of scipy's
without a copy: they are a table of their own kind, which copies some of its rows at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse


class RowEntries(NamedTuple):
    """Where the entries of each row are stored: ``columns[starts[i]:stops[i]]``.

    Attributes
    ----------
    starts, stops : ndarray of int64, shape (n,)
    columns : ndarray of int32 or int64
    values : ndarray of float
    """

    starts: npt.NDArray[np.int64]
    stops: npt.NDArray[np.int64]
    columns: npt.NDArray[Any]
    values: npt.NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class ScatteredSparse:
    """Some rows of a sparse table, in any order, on the same memory.

    Attributes
    ----------
    table : csr_array of shape (m, d)
        Each place is stored once, in order.
    places : ndarray of int of shape (n,)
        Where the rows are.

    Examples
    --------
    >>> rows = sparse.csr_array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
    >>> some = ScatteredSparse(rows, np.array([2, 0]))
    >>> some.shape, some.nnz, some[:].toarray().tolist()
    ((2, 2), 2, [[3.0, 0.0], [1.0, 0.0]])
    """

    table: Any
    places: npt.NDArray[np.intp]

    has_canonical_format = True

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and features."""
        return len(self.places), int(self.table.shape[1])

    @property
    def dtype(self) -> Any:
        """Type of the entries."""
        return self.table.dtype

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Number of entries of each row, (n,)."""
        return self.entries.stops - self.entries.starts

    @cached_property
    def nnz(self) -> int:
        """Number of entries."""
        return int(self.lengths.sum())

    @cached_property
    def entries(self) -> RowEntries:
        """Where the entries are stored."""
        starts = self.table.indptr[self.places].astype(np.int64)
        stops = self.table.indptr[self.places + 1].astype(np.int64)
        return RowEntries(starts, stops, self.table.indices, self.table.data)

    def __getitem__(self, rows: slice | npt.NDArray[np.intp]) -> Any:
        """Return a copy of some rows, a csr_array."""
        found = self.table[self.places[rows]]
        found.has_canonical_format = True
        return found


def split_rows(indptr: npt.NDArray[Any], entries: int) -> Iterator[tuple[int, int]]:
    """Yield ranges (start, stop) of rows with at most `entries` entries, or of a single row.

    Examples
    --------
    >>> list(split_rows(np.array([0, 200, 250, 500, 900]), 250))
    [(0, 2), (2, 3), (3, 4)]
    """
    starts, start = indptr.astype(np.int64, copy=False), 0
    while start < len(starts) - 1:
        full = int(np.searchsorted(starts, starts[start] + entries, side="right")) - 1
        stop = min(max(full, start + 1), start + entries)
        yield start, stop
        start = stop


def join_spans(spans: list[slice], count: int) -> list[slice]:
    """Join adjacent parts to at most `count` larger ones.

    Examples
    --------
    >>> join_spans([slice(0, 3), slice(3, 5), slice(5, 9)], 2)
    [slice(0, 5, None), slice(5, 9, None)]
    """
    step = max(1, -(-len(spans) // count))
    firsts = range(0, len(spans), step)
    return [slice(spans[i].start, spans[i : i + step][-1].stop) for i in firsts]


def is_sparse_table(X: Any) -> bool:
    """Return whether a table is a sparse array, or scattered rows of one.

    Examples
    --------
    >>> is_sparse_table(sparse.csr_array([[1.0]])), is_sparse_table(np.eye(2))
    (True, False)
    """
    return bool(sparse.issparse(X)) or isinstance(X, ScatteredSparse)


def locate_entries(rows: Any) -> RowEntries:
    """Return where the entries of sparse rows are stored, whether they are scattered or not.

    Examples
    --------
    >>> locate_entries(sparse.csr_array([[1.0, 0.0], [0.0, 2.0]])).stops
    array([1, 2])
    """
    if isinstance(rows, ScatteredSparse):
        return rows.entries
    edges = rows.indptr.astype(np.int64, copy=False)
    return RowEntries(edges[:-1], edges[1:], rows.indices, rows.data)


def gather(rows: Any) -> Any:
    """Return sparse rows as a csr_array: a copy if they are scattered.

    Examples
    --------
    >>> rows = sparse.csr_array([[1.0]])
    >>> gather(rows) is rows, gather(ScatteredSparse(rows, np.array([0]))).toarray()
    (True, array([[1.]]))
    """
    return rows[:] if isinstance(rows, ScatteredSparse) else rows


def find_offsets(rows: Any) -> npt.NDArray[Any]:
    """Return how many entries the rows before each row have, and all of them, (n + 1,).

    Examples
    --------
    >>> find_offsets(sparse.csr_array([[1.0, 0.0], [0.0, 2.0]]))
    array([0, 1, 2], dtype=int32)
    """
    if not isinstance(rows, ScatteredSparse):
        offsets: npt.NDArray[Any] = rows.indptr
        return offsets
    return np.concatenate([[0], np.cumsum(rows.lengths)])


def merge_duplicates(rows: Any) -> Any:
    """Return sparse rows in which each place is stored once, in order: the same ones if they are.

    scipy allows an entry to be stored in parts that add up to it. Their squares do not.

    Examples
    --------
    >>> parts = sparse.csr_array(([1.0, 2.0], [0, 0], [0, 2]), shape=(1, 1))
    >>> merge_duplicates(parts).data, parts.data
    (array([3.]), array([1., 2.]))
    """
    if rows.has_canonical_format:
        return rows
    merged = rows.copy()
    merged.sum_duplicates()
    return merged


def slice_rows(rows: Any, span: slice) -> Any:
    """Return adjacent rows, on the same memory.

    Examples
    --------
    >>> rows = sparse.csr_array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
    >>> part = slice_rows(rows, slice(1, 3))
    >>> part.toarray()
    array([[0., 2.],
           [3., 0.]])
    """
    if isinstance(rows, ScatteredSparse):
        return ScatteredSparse(rows.table, rows.places[span])
    starts = rows.indptr[span.start : span.stop + 1]
    stored = slice(starts[0], starts[-1])
    view = sparse.csr_array((span.stop - span.start, rows.shape[1]), dtype=rows.dtype)
    view.data, view.indices = rows.data[stored], rows.indices[stored]
    view.indptr = starts - starts[0]
    return view


def view_transpose(rows: Any) -> Any:
    """Return the transpose of sparse rows, on the same memory.

    Examples
    --------
    >>> rows = sparse.csr_array([[1.0, 0.0], [4.0, 2.0]])
    >>> view_transpose(rows).toarray()
    array([[1., 4.],
           [0., 2.]])
    """
    view = sparse.csc_array(rows.shape[::-1], dtype=rows.dtype)
    view.data, view.indices, view.indptr = rows.data, rows.indices, rows.indptr
    return view
