"""Rows of a site: `Block`, as readers of files yield them, and `Source`, as a protocol uses them.

Readers yield blocks of rows, so that no file is in memory as a whole. A source holds all rows of
a site, in memory or memory-mapped, and hands them on in blocks without copying the table.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from scipy import sparse

from eigenfed.arrays import Array
from eigenfed.data.feature_totals import FeatureTotals
from eigenfed.data.genotypes import GenotypeCounts, Genotypes
from eigenfed.data.sparse_rows import merge_duplicates, view_transpose
from eigenfed.errors import DataError, EigenfedError, InputError
from eigenfed.linalg.checks import as_real_array, check_weights
from eigenfed.linalg.row_sums import sum_by_feature, sum_rows

BLOCK_BYTES = 4 << 20


@dataclass(frozen=True, eq=False, repr=False)
class Block:
    """Consecutive rows of a file.

    Attributes
    ----------
    rows : ndarray or csr_array of shape (rows, d)
    ids : sequence of str, or None
    places : ndarray of shape (rows,) or None
        Positions of the rows in the file, counted from 0; None if no row was left out.
    """

    rows: Any
    ids: Sequence[str] | None = None
    places: npt.NDArray[np.intp] | None = None


@dataclass(frozen=True, eq=False, repr=False)
class StoredRows:
    """All rows of a file.

    Attributes
    ----------
    X : ndarray or csr_array of shape (n, d)
        float64.
    ids : tuple of str, Path or None
        Ids of the rows, or the file that holds them.
    place : Path or None
        Folder of the parsed copy, if there is one.
    """

    X: Any
    ids: tuple[str, ...] | Path | None
    place: Path | None


def guard_blocks(
    blocks: Iterable[Block], kinds: tuple[type[Exception], ...], fault: EigenfedError
) -> Iterator[Block]:
    """Yield blocks, and raise `fault` instead of an exception of these kinds.

    The exception is dropped, not chained: its message may quote the file.
    """
    remaining = iter(blocks)
    while True:
        failed = False
        try:
            block = next(remaining, None)
        except EigenfedError:
            raise
        except kinds:
            failed = True
        if failed:
            raise fault
        if block is None:
            return
        yield block


_PART_ENTRIES = 1 << 18
_LEAST_ENTRIES = 1 << 16

Take = Callable[[int], npt.NDArray[Any]]


def read_csr_rows(
    path: Path, indptr: npt.NDArray[Any], take_indices: Take, take_data: Take, d: int
) -> Iterator[Any]:
    """Yield the rows of a stored sparse table.

    Parameters
    ----------
    path : Path
        For messages.
    indptr : ndarray of shape (n + 1,)
        Offset of each row.
    take_indices, take_data : callables
        Return the next columns or values, as many as asked for; fewer at the end.
    d : int
        Number of columns.

    Yields
    ------
    csr_array of shape (rows, d)
        With sorted columns and no duplicates.

    Raises
    ------
    DataError
        If the parts are inconsistent. scipy does not check: with a column out of range it would
        read or write beyond the end of an array.
    """
    if indptr.ndim != 1 or indptr.dtype.kind not in "iu" or not len(indptr):
        raise _inconsistent_error(path)
    indptr = indptr.astype(np.int64, copy=False)
    if indptr[0] != 0 or (np.diff(indptr) < 0).any():
        raise _inconsistent_error(path)
    for start, stop in split_rows(indptr):
        count = int(indptr[stop] - indptr[start])
        columns, values = take_indices(count), take_data(count)
        if not (len(columns) == len(values) == count and _are_valid_columns(columns, d)):
            raise _inconsistent_error(path)
        starts = indptr[start : stop + 1] - indptr[start]
        rows = sparse.csr_array((values, columns, starts), shape=(stop - start, d))
        rows.sum_duplicates()
        yield rows


def split_rows(indptr: npt.NDArray[Any], entries: int = _PART_ENTRIES) -> Iterator[tuple[int, int]]:
    """Yield ranges (start, stop) of rows with at most `entries` entries, or of a single row.

    Examples
    --------
    >>> list(split_rows(np.array([0, 200_000, 250_000, 500_000, 900_000])))
    [(0, 2), (2, 3), (3, 4)]
    """
    starts, start = indptr.astype(np.int64, copy=False), 0
    while start < len(starts) - 1:
        full = int(np.searchsorted(starts, starts[start] + entries, side="right")) - 1
        stop = min(max(full, start + 1), start + entries)
        yield start, stop
        start = stop


def _are_valid_columns(columns: npt.NDArray[Any], d: int) -> bool:
    if columns.dtype.kind not in "iu":
        return False
    return not len(columns) or bool(columns.min() >= 0 and columns.max() < d)


def _inconsistent_error(path: Path) -> DataError:
    return DataError(f"{path} holds a sparse table whose parts are inconsistent. Write it again.")


class LazyTable:
    """Base of dense tables whose rows are made when they are read, by slices.

    A subclass has `shape`, `dtype` and ``__getitem__``.
    """

    shape: Any
    dtype: Any
    ndim = 2

    def __len__(self) -> int:
        return int(self.shape[0])

    @property
    def size(self) -> int:
        """Number of entries."""
        return int(self.shape[0] * self.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes of the table as an array."""
        return self.size * int(self.dtype.itemsize)


@runtime_checkable
class RowsInFile(Protocol):
    """Rows that one pass can take from their file, which then needs no parsed copy."""

    @property
    def is_stored(self) -> bool:
        """Whether there is a parsed copy, which is faster to read."""

    def read_first(self, n: int) -> npt.NDArray[Any]:
        """Return the first `n` rows, or all if there are fewer."""

    def read_columns(self) -> Iterator[list[Array]]:
        """Yield the columns of some rows at a time, in order."""


_BLOCK_BYTES = 12 << 20
_LEAST_BLOCK_BYTES = 1 << 20
_NEARLY_NONE = 0.01
_BLOCKS = 32
"""Number of blocks that keeps each of them small beside the table."""


@dataclass(frozen=True, eq=False, repr=False)
class Source:
    """Rows of one site, dense, sparse or packed, with optional weights and feature names.

    Attributes
    ----------
    X : ndarray, csr_array or Genotypes of shape (n, d)
        float64 or float32; NaN marks a missing entry.
    weights : ndarray of shape (n,) or None
    names : tuple of str or None

    Examples
    --------
    >>> import numpy as np
    >>> source = Source.of(np.eye(3))
    >>> source.n, source.d, [block.shape for block, _ in source.blocks()]
    (3, 3, [(3, 3)])
    """

    X: Any
    weights: Array | None = None
    names: tuple[str, ...] | None = None

    @classmethod
    def of(
        cls,
        X: Any,
        *,
        weights: npt.ArrayLike | None = None,
        names: Sequence[str] | None = None,
    ) -> "Source":
        """Check a table and wrap it, without a copy if it is float32 or float64.

        Sparse rows are also copied if an entry is stored in parts, or entries are not in order.
        """
        is_sparse: bool = sparse.issparse(X)
        table: Any = sparse.csr_array(X) if is_sparse else as_real_array("X", X)
        if table.dtype.kind not in "biuf":
            raise InputError(
                f"X has dtype {table.dtype} and must hold real numbers. Convert it first."
            )
        if table.ndim != 2 or table.shape[1] == 0:
            raise InputError(f"X has shape {table.shape} and must be rows x features. Reshape it.")
        if table.dtype not in (np.float64, np.float32):
            table = table.astype(np.float64)
        table = merge_duplicates(table) if is_sparse else table
        if any(np.isinf(part).any() for part in split_entries(stored(table))):
            raise InputError("X holds infinity and must be finite or NaN. Drop those entries.")
        if names is not None and len(names) != table.shape[1]:
            raise InputError(
                f"names has {len(names)} entries and must have {table.shape[1]}, one for each "
                "feature. Name every feature once."
            )
        checked = None if weights is None else check_weights(weights, table.shape[0])
        return cls(table, checked, None if names is None else tuple(names))

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def d(self) -> int:
        """Number of features."""
        return int(self.X.shape[1])

    @property
    def total_weight(self) -> float:
        """Sum of the weights: the number of rows if they have none."""
        return float(self.n if self.weights is None else self.weights.sum())

    @property
    def is_sparse(self) -> bool:
        """Whether the rows are a sparse array."""
        return bool(sparse.issparse(self.X))

    @cached_property
    def transposed(self) -> Any:
        """Sparse rows as columns, on the same memory."""
        return view_transpose(self.X)

    @cached_property
    def complete_features(self) -> npt.NDArray[np.bool_] | None:
        """Which features every sparse row of positive weight has an entry of; None without any."""
        if not self.n or not self.X.has_canonical_format:
            return None
        columns, count = self.X.indices, self.n
        if self.weights is not None:
            counts = self.weights > 0.0
            columns = columns[np.repeat(counts, np.diff(self.X.indptr))]
            count = int(np.count_nonzero(counts))
        complete = np.bincount(columns, minlength=self.d) == count
        return complete if complete.any() else None

    def blocks(self) -> Iterator[tuple[Array, Array | None]]:
        """Yield dense float64 blocks of rows, of at most 12 MB, and their weights."""
        return map(self.block, self.spans())

    def read_columns(self) -> Iterator[list[Array]] | None:
        """Return an iterator over the columns of some rows at a time, if they stay in a file."""
        X = self.X
        return X.read_columns() if isinstance(X, RowsInFile) and not X.is_stored else None

    def spans(self, rows: int | None = None) -> list[slice]:
        """Return the rows of each block: as few blocks as possible, of even sizes.

        Parameters
        ----------
        rows : int, optional
            Largest number of rows in a block; at most as many as fit into 12 MB, the default.
        """
        most = max(1, limit_block_bytes(self.n, self.d) // (8 * self.d))
        most = most if rows is None else min(most, rows)
        count = -(-self.n // most)
        edges = [i * self.n // count for i in range(count)] + [self.n]
        return [slice(start, stop) for start, stop in pairwise(edges)]

    def block(self, span: slice) -> tuple[Array, Array | None]:
        """Return some rows, dense and float64, and their weights."""
        return self.stored_block(span).astype(np.float64, copy=False), self.block_weights(span)

    def stored_block(self, span: slice) -> npt.NDArray[Any]:
        """Return some rows, dense, in the precision in which they are stored."""
        rows = self.X[span]
        dense: npt.NDArray[Any] = rows.toarray() if self.is_sparse else rows
        return dense

    def parts(self) -> Iterator[tuple[slice, slice]]:
        """Yield the rows of each part of a sparse table, and where their entries are stored."""
        starts = self.X.indptr
        for start, stop in split_rows(starts, max(_LEAST_ENTRIES, self.X.nnz // _BLOCKS)):
            yield slice(start, stop), slice(starts[start], starts[stop])

    def block_weights(self, span: slice) -> Array | None:
        """Return the weights of some rows, if rows have weights."""
        return None if self.weights is None else self.weights[span]

    def totals(self) -> FeatureTotals:
        """Return the total weight, and by feature the observed weight and the sum, (d,) each."""
        if self.counts is not None:
            n = self.total_weight
            observed, copies = self.counts.observed, self.counts.copies
            return FeatureTotals(n, observed.astype(np.float64), copies.astype(np.float64))
        if self.is_sparse:
            return self._sparse_totals()
        if self.weights is None and not self.has_missing:
            n = float(self.n)
            return FeatureTotals(n, np.full(self.d, n), self._dense_totals.copy())
        n, count, total = 0.0, np.zeros(self.d), np.zeros(self.d)
        for rows, weights in self.blocks():
            w = np.ones(len(rows)) if weights is None else weights
            n += float(w.sum())
            if self.has_missing:
                there = ~np.isnan(rows)
                count += sum_rows(there.astype(np.float64), w)
                rows = np.where(there, rows, 0.0)
            else:
                count += w.sum()
            total += sum_rows(rows, w)
        return FeatureTotals(n, count, total)

    def _sparse_totals(self) -> FeatureTotals:
        n = float(self.n if self.weights is None else self.weights.sum())
        count, total = np.full(self.d, n), np.zeros(self.d)
        for values, columns, by_entry in self.entries():
            if _has_nan(values):
                gaps = np.isnan(values)
                missing = None if by_entry is None else by_entry[gaps]
                count -= sum_by_feature(columns[gaps], missing, self.d)
                values = np.where(gaps, 0.0, values)
            held = values if by_entry is None else by_entry * values
            total += sum_by_feature(columns, held, self.d)
        if self.weights is not None:
            # Where nearly all weight is missing, the difference has few digits.
            few = np.flatnonzero(count < _NEARLY_NONE * n)
            count[few] = self._observed_weights(few)
        return FeatureTotals(n, count, total)

    def _observed_weights(self, features: npt.NDArray[np.intp]) -> Array:
        """Return the weight of the sparse rows in which each of some features is not missing."""
        if not len(features):
            return np.zeros(0)
        gaps = np.flatnonzero(np.isnan(self.X.data))
        gaps = gaps[np.argsort(self.X.indices[gaps], kind="stable")]
        rows = np.searchsorted(self.X.indptr, gaps, side="right") - 1
        starts = np.searchsorted(self.X.indices[gaps], features)
        stops = np.searchsorted(self.X.indices[gaps], features, side="right")
        found = np.zeros(len(features))
        for i, (start, stop) in enumerate(zip(starts, stops, strict=True)):
            weights = np.array(self.weights)
            weights[rows[start:stop]] = 0.0
            found[i] = weights.sum()
        return found

    def largest(self) -> float:
        """Return the largest magnitude of an entry; 0 without one."""
        found = 0.0
        if isinstance(self.X, Genotypes):
            return 2.0
        for part in split_entries(stored(self.X)):
            low, high = np.nanmin(part, initial=0.0), np.nanmax(part, initial=0.0)
            found = max(found, -float(low), float(high))
        return found

    def entries(self) -> Iterator[tuple[Array, npt.NDArray[Any], Array | None]]:
        """Yield stored entries of sparse rows: values, columns, and weights if rows have any."""
        X = self.X
        for span, part in self.parts():
            weights, by_entry = self.block_weights(span), None
            if weights is not None:
                by_entry = np.repeat(weights, np.diff(X.indptr[span.start : span.stop + 1]))
            yield X.data[part].astype(np.float64, copy=False), X.indices[part], by_entry

    @cached_property
    def counts(self) -> GenotypeCounts | None:
        """Counts of genotypes over rows of weight 1; None for other rows or other weights."""
        if not isinstance(self.X, Genotypes):
            return None
        if self.weights is None:
            return self.X.counts
        is_mask = bool(np.isin(self.weights, (0.0, 1.0)).all())
        return self.X.count(self.weights > 0.0) if is_mask else None

    @cached_property
    def has_missing(self) -> bool:
        """Whether any entry is NaN."""
        if isinstance(self.X, Genotypes):
            return bool(self.X.counts.missing.any())
        # A NaN makes its feature's total NaN, and the totals are needed anyway.
        if not self.is_sparse and not np.isnan(self._dense_totals).any():
            return False
        return any(_has_nan(part) for part in split_entries(stored(self.X)))

    @cached_property
    def _dense_totals(self) -> Array:
        """Unweighted sums by feature, (d,); NaN where any entry is NaN."""
        total = np.zeros(self.d)
        with np.errstate(over="ignore", invalid="ignore"):
            for part in split_entries(self.X):
                total += sum_rows(part)
        return total


def limit_block_bytes(n: int, d: int) -> int:
    """Return the largest size of a block of a table of n rows and d features, in bytes.

    Examples
    --------
    >>> limit_block_bytes(1000, 10), limit_block_bytes(10**7, 10)
    (1048576, 12582912)
    """
    # A block whose scatter is added up should have more rows than the scatter has.
    return min(_BLOCK_BYTES, max(_LEAST_BLOCK_BYTES, 16 * d * d, 8 * n * d // _BLOCKS))


def stored(X: Any) -> npt.NDArray[Any]:
    """Return the stored entries: all of a dense array, the explicit ones of a sparse one."""
    is_sparse: bool = sparse.issparse(X)
    entries: npt.NDArray[Any] = X.data if is_sparse else X
    return entries


def _has_nan(part: npt.NDArray[Any]) -> bool:
    """Return whether any entry is NaN. The sum is checked first, which is much faster."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = part.sum()
    return bool(np.isnan(total)) and bool(np.isnan(part).any())


def split_entries(entries: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """Yield parts along the first axis: a check of one needs little memory for temporaries."""
    each = max(1, entries[:1].nbytes)
    most = min(_BLOCK_BYTES, max(_LEAST_BLOCK_BYTES, len(entries) * each // _BLOCKS))
    step = max(1, most // each)
    for start in range(0, len(entries), step):
        yield entries[start : start + step]
