"""Rows of a sparse table that a file stores by row: offsets, columns and values."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from eigenfed.errors import DataError
from eigenfed.linalg.sparse_rows import split_rows

_PART_ENTRIES = 1 << 18

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
    for start, stop in split_rows(indptr, _PART_ENTRIES):
        count = int(indptr[stop] - indptr[start])
        columns, values = take_indices(count), take_data(count)
        if not (len(columns) == len(values) == count and _are_valid_columns(columns, d)):
            raise _inconsistent_error(path)
        starts = indptr[start : stop + 1] - indptr[start]
        rows = sparse.csr_array((values, columns, starts), shape=(stop - start, d))
        rows.sum_duplicates()
        yield rows


def _are_valid_columns(columns: npt.NDArray[Any], d: int) -> bool:
    if columns.dtype.kind not in "iu":
        return False
    return not len(columns) or bool(columns.min() >= 0 and columns.max() < d)


def _inconsistent_error(path: Path) -> DataError:
    return DataError(f"{path} holds a sparse table whose parts are inconsistent. Write it again.")
