"""Rows of a site: `Block`, as readers of files yield them, and `Source`, as a protocol uses them.

Readers yield blocks of rows, so that no file is in memory as a whole. A source holds all rows of
a site, in memory or memory-mapped, and hands them on in blocks without copying the table.
"""

from collections.abc import Iterable, Iterator, Sequence
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
from eigenfed.errors import EigenfedError, InputError
from eigenfed.linalg.checks import as_real_array, check_weights
from eigenfed.linalg.row_sums import sum_by_feature, sum_rows
from eigenfed.linalg.sparse_rows import (
    ScatteredSparse,
    find_offsets,
    is_sparse_table,
    merge_duplicates,
    slice_rows,
    split_rows,
)

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


_LEAST_ENTRIES = 1 << 16


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
    X : ndarray, csr_array, ScatteredSparse or Genotypes of shape (n, d)
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
        """Whether the rows are a sparse array, or scattered rows of one."""
        return is_sparse_table(self.X)

    @property
    def stored_size(self) -> int:
        """Number of stored entries."""
        return int(self.X.nnz if self.is_sparse else self.X.size)

    @cached_property
    def complete_features(self) -> npt.NDArray[np.bool_] | None:
        """Which features every sparse row of positive weight has an entry of; None without any."""
        if not self.n or not self.X.has_canonical_format:
            return None
        held, count = np.zeros(self.d, dtype=np.int64), self.n
        for _, columns, by_entry in self.entries():
            held += np.bincount(
                columns if by_entry is None else columns[by_entry > 0.0], minlength=self.d
            )
        if self.weights is not None:
            count = int(np.count_nonzero(self.weights > 0.0))
        complete = held == count
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

    @cached_property
    def part_spans(self) -> list[slice]:
        """The rows of each part of a sparse table, which has a fraction of the entries."""
        offsets = find_offsets(self.X)
        most = max(_LEAST_ENTRIES, int(offsets[-1] - offsets[0]) // _BLOCKS)
        return [slice(start, stop) for start, stop in split_rows(offsets, most)]

    def parts(self) -> Iterator[tuple[slice, Any]]:
        """Yield parts of a sparse table, as csr_arrays, and the rows of each."""
        scattered = isinstance(self.X, ScatteredSparse)
        for span in self.part_spans:
            yield span, self.X[span] if scattered else slice_rows(self.X, span)

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
        by_part = []
        for span, part in self.parts():
            gaps = np.flatnonzero(np.isnan(part.data))
            inside = np.searchsorted(part.indptr, gaps, side="right") - 1
            by_part.append((part.indices[gaps], span.start + inside))
        columns, rows = (np.concatenate(found) for found in zip(*by_part, strict=True))
        order = np.argsort(columns, kind="stable")
        columns, rows = columns[order], rows[order]
        starts = np.searchsorted(columns, features)
        stops = np.searchsorted(columns, features, side="right")
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
        for part in split_stored(self.X):
            low, high = np.nanmin(part, initial=0.0), np.nanmax(part, initial=0.0)
            found = max(found, -float(low), float(high))
        return found

    def entries(self) -> Iterator[tuple[Array, npt.NDArray[Any], Array | None]]:
        """Yield stored entries of sparse rows: values, columns, and weights if rows have any."""
        for span, part in self.parts():
            weights, by_entry = self.block_weights(span), None
            if weights is not None:
                by_entry = np.repeat(weights, np.diff(part.indptr))
            yield part.data.astype(np.float64, copy=False), part.indices, by_entry

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
        return any(_has_nan(part) for part in split_stored(self.X))

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


def split_stored(X: Any) -> Iterator[npt.NDArray[Any]]:
    """Yield the stored entries of any table in parts.

    Examples
    --------
    >>> [part.tolist() for part in split_stored(np.eye(2))]
    [[[1.0, 0.0], [0.0, 1.0]]]
    """
    if isinstance(X, ScatteredSparse):
        return (part.data for _, part in Source(X).parts())
    return split_entries(stored(X))


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
