"""Stored sparse rows, taken some rows at a time and never trusted."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from eigenfed.errors import DataError

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
