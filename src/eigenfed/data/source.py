"""What readers of files hand on: some rows at a time, and what becomes of all of them.

Stored sparse rows, taken some rows at a time and never trusted.

A site's records, as blocks of rows that are never copied whole.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from eigenfed.arrays import Array
from eigenfed.errors import DataError, EigenfedError, InputError
from eigenfed.linalg.checks import checked_weights, real_array

BLOCK_BYTES = 4 << 20


@dataclass(frozen=True, eq=False, repr=False)
class Block:
    """Some rows of a file, in their order.

    Attributes
    ----------
    rows : ndarray or csr_array of shape (rows, d)
    ids : sequence of str, or None
    places : ndarray of shape (rows,) or None
        Where the rows stand in the file, counted from 0; None where none were left out.
    """

    rows: Any
    ids: Sequence[str] | None = None
    places: npt.NDArray[np.intp] | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Stored:
    """All rows of a file.

    Attributes
    ----------
    X : ndarray or csr_array of shape (n, d)
        float64.
    ids : tuple of str, Path or None
        The rows' ids, or the file that has them.
    place : Path or None
        The parsed copy, where there is one.
    """

    X: Any
    ids: tuple[str, ...] | Path | None
    place: Path | None


def guarded(
    blocks: Iterable[Block], kinds: tuple[type[Exception], ...], fault: EigenfedError
) -> Iterator[Block]:
    """Pass blocks on, and tell of a fault in reading them by `fault` alone.

    Its cause is dropped, not chained: a reader's own message may quote what stands in the file.
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

Take = Callable[[int], npt.NDArray[Any]]


def csr_rows(
    path: Path, indptr: npt.NDArray[Any], take_indices: Take, take_data: Take, d: int
) -> Iterator[Any]:
    """Yield the rows of a stored sparse table.

    Parameters
    ----------
    path : Path
        For messages.
    indptr : ndarray of shape (n + 1,)
        Where each row starts.
    take_indices, take_data : callables
        Give the next so many columns and values; fewer at the end of what is stored.
    d : int
        Number of columns.

    Yields
    ------
    csr_array of shape (rows, d)
        With sorted columns, each once a row.

    Raises
    ------
    DataError
        If the parts do not fit together: a wrong column would be read beyond an array's end.
    """
    if indptr.ndim != 1 or indptr.dtype.kind not in "iu" or not len(indptr):
        raise _not_sound(path)
    indptr = indptr.astype(np.int64, copy=False)
    if indptr[0] != 0 or (np.diff(indptr) < 0).any():
        raise _not_sound(path)
    for start, stop in row_parts(indptr):
        count = int(indptr[stop] - indptr[start])
        columns, values = take_indices(count), take_data(count)
        if not (len(columns) == len(values) == count and _are_columns(columns, d)):
            raise _not_sound(path)
        starts = indptr[start : stop + 1] - indptr[start]
        rows = sparse.csr_array((values, columns, starts), shape=(stop - start, d))
        rows.sum_duplicates()
        yield rows


def row_parts(indptr: npt.NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows that hold 262144 entries at most, or are one row.

    Examples
    --------
    >>> list(row_parts(np.array([0, 200_000, 250_000, 500_000, 900_000])))
    [(0, 2), (2, 3), (3, 4)]
    """
    starts, start = indptr.astype(np.int64, copy=False), 0
    while start < len(starts) - 1:
        full = int(np.searchsorted(starts, starts[start] + _PART_ENTRIES, side="right")) - 1
        stop = min(max(full, start + 1), start + _PART_ENTRIES)
        yield start, stop
        start = stop


def _are_columns(columns: npt.NDArray[Any], d: int) -> bool:
    if columns.dtype.kind not in "iu":
        return False
    return not len(columns) or bool(columns.min() >= 0 and columns.max() < d)


def _not_sound(path: Path) -> DataError:
    return DataError(
        f"{path} holds a sparse table whose parts do not fit together. Write it again."
    )


_BLOCK_BYTES = 12 << 20


@dataclass(frozen=True, eq=False, repr=False)
class Source:
    """Rows of one site, dense or sparse, with optional weights and feature names.

    Attributes
    ----------
    X : ndarray or csr_array of shape (n, d)
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
        """Check a table and take it as it is: without a copy where it is float already."""
        is_sparse: bool = sparse.issparse(X)
        table: Any = sparse.csr_array(X) if is_sparse else real_array("X", X)
        if table.dtype.kind not in "biuf":
            raise InputError(
                f"X has dtype {table.dtype} and must hold real numbers. Convert it first."
            )
        if table.ndim != 2 or table.shape[1] == 0:
            raise InputError(f"X has shape {table.shape} and must be rows x features. Reshape it.")
        if table.dtype not in (np.float64, np.float32):
            table = table.astype(np.float64)
        if any(np.isinf(part).any() for part in _parts(stored(table))):
            raise InputError("X holds infinity and must be finite or NaN. Drop those entries.")
        if names is not None and len(names) != table.shape[1]:
            raise InputError(
                f"names has {len(names)} entries and must have {table.shape[1]}, one for each "
                "feature. Name every feature once."
            )
        checked = None if weights is None else checked_weights(weights, table.shape[0])
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
    def is_sparse(self) -> bool:
        """Whether rows are stored sparse."""
        return bool(sparse.issparse(self.X))

    def blocks(self) -> Iterator[tuple[Array, Array | None]]:
        """Yield dense float64 blocks of rows and their weights, of 12 MB at most."""
        return map(self.block, self.spans())

    def spans(self, rows: int | None = None) -> list[slice]:
        """Return which rows belong to each block: as few blocks as fit, of even sizes.

        Parameters
        ----------
        rows : int, optional
            Most rows of a block; as many as 12 MB hold by default, and never more.
        """
        most = max(1, _BLOCK_BYTES // (8 * self.d))
        most = most if rows is None else min(most, rows)
        count = -(-self.n // most)
        edges = [i * self.n // count for i in range(count)] + [self.n]
        return [slice(start, stop) for start, stop in pairwise(edges)]

    def block(self, span: slice) -> tuple[Array, Array | None]:
        """Return some rows, dense and float64, and their weights."""
        rows = self.X[span]
        dense = rows.toarray() if self.is_sparse else rows
        weights = None if self.weights is None else self.weights[span]
        return dense.astype(np.float64, copy=False), weights

    def totals(self) -> tuple[float, Array, Array]:
        """Return the rows' weight, and by feature the observed weight and the total, (d,) each."""
        if self.is_sparse:
            return self._sparse_totals()
        if self.weights is None and not self.has_missing:
            return float(self.n), np.full(self.d, float(self.n)), self._dense_totals.copy()
        n, count, total = 0.0, np.zeros(self.d), np.zeros(self.d)
        for rows, weights in self.blocks():
            w = np.ones(len(rows)) if weights is None else weights
            n += float(w.sum())
            if self.has_missing:
                there = ~np.isnan(rows)
                count += w @ there
                rows = np.where(there, rows, 0.0)
            else:
                count += w.sum()
            total += w @ rows
        return n, count, total

    def _sparse_totals(self) -> tuple[float, Array, Array]:
        n = float(self.n if self.weights is None else self.weights.sum())
        count, total = np.full(self.d, n), np.zeros(self.d)
        for values, columns, by_entry in self.entries():
            gaps = np.isnan(values)
            count -= np.bincount(columns[gaps], by_entry[gaps], minlength=self.d)
            held = by_entry * np.where(gaps, 0.0, values)
            total += np.bincount(columns, held, minlength=self.d)
        return n, count, total

    def entries(self) -> Iterator[tuple[Array, npt.NDArray[Any], Array]]:
        """Yield the stored entries of sparse rows: values, columns, and weights of their rows."""
        X = self.X
        for start, stop in row_parts(X.indptr):
            part = slice(X.indptr[start], X.indptr[stop])
            w = np.ones(stop - start) if self.weights is None else self.weights[start:stop]
            by_entry = np.repeat(w, np.diff(X.indptr[start : stop + 1]))
            yield X.data[part].astype(np.float64, copy=False), X.indices[part], by_entry

    @cached_property
    def has_missing(self) -> bool:
        """Whether any entry is NaN."""
        # A missing entry shows in the totals, which are wanted anyway.
        if not self.is_sparse and not np.isnan(self._dense_totals).any():
            return False
        return any(_has_nan(part) for part in _parts(stored(self.X)))

    @cached_property
    def _dense_totals(self) -> Array:
        """Sums of the rows by feature, (d,), without weights: NaN where any entry is."""
        total = np.zeros(self.d)
        with np.errstate(over="ignore", invalid="ignore"):
            for part in _parts(self.X):
                total += np.ones(len(part)) @ part
        return total


def stored(X: Any) -> npt.NDArray[Any]:
    """Return the entries that are stored: all of a dense array's, the explicit of a sparse one."""
    is_sparse: bool = sparse.issparse(X)
    entries: npt.NDArray[Any] = X.data if is_sparse else X
    return entries


def _has_nan(part: npt.NDArray[Any]) -> bool:
    """Look for NaN: in the sum, which is a good deal faster, and closely only if that is one."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = part.sum()
    return bool(np.isnan(total)) and bool(np.isnan(part).any())


def _parts(entries: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """Cut along the first axis, so that a check makes no second table."""
    step = max(1, _BLOCK_BYTES // max(1, entries[:1].nbytes))
    for start in range(0, len(entries), step):
        yield entries[start : start + step]
