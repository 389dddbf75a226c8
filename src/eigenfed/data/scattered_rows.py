"""Rows of a site that lie scattered in a larger table, gathered where they are used.

A copy of each site's rows would double the memory of a table that is split into sites.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from eigenfed.data.source import LazyTable
from eigenfed.linalg.sparse_rows import ScatteredSparse, slice_rows

_SMALL_BYTES = 4 << 20
"""Scattered rows of at most this size are copied."""


@dataclass(frozen=True, eq=False, repr=False)
class ScatteredRows(LazyTable):
    """Some rows of a dense table, as a table that is read by slices.

    Attributes
    ----------
    table : ndarray of shape (m, d)
    places : ndarray of int of shape (n,)
        Where the rows are.

    Examples
    --------
    >>> rows = ScatteredRows(np.eye(4), np.array([0, 3]))
    >>> rows.shape, rows[1:]
    ((2, 4), array([[0., 0., 0., 1.]]))
    """

    table: npt.NDArray[Any]
    places: npt.NDArray[np.intp]

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", (len(self.places), self.table.shape[1]))
        object.__setattr__(self, "dtype", self.table.dtype)

    def __getitem__(self, span: slice) -> npt.NDArray[Any]:
        """Return a copy of some rows."""
        # Not `take`, which copies the whole of a table that is stored by columns.
        rows: npt.NDArray[Any] = self.table[self.places[span]]
        return rows


def pick_rows(table: Any, rows: slice | npt.NDArray[np.intp]) -> Any:
    """Return the rows of one site, without a copy of large rows or of adjacent sparse ones.

    Parameters
    ----------
    table : ndarray or csr_array of shape (m, d)
    rows : slice or ndarray of int

    Examples
    --------
    >>> pick_rows(np.eye(3), np.array([0, 2])).shape
    (2, 3)
    """
    if sparse.issparse(table):
        return _pick_sparse(table, rows)
    if isinstance(rows, slice):
        return table[rows]
    scattered = ScatteredRows(table, rows)
    return scattered if scattered.nbytes > _SMALL_BYTES else table[rows]


def _pick_sparse(table: Any, rows: slice | npt.NDArray[np.intp]) -> Any:
    if isinstance(rows, slice) and rows.step in (None, 1):
        return slice_rows(table, rows)
    places = np.arange(len(table.indptr) - 1)[rows] if isinstance(rows, slice) else rows
    scattered = ScatteredSparse(table, places)
    entry_bytes = table.data.itemsize + table.indices.itemsize
    return scattered if scattered.nnz * entry_bytes > _SMALL_BYTES else scattered[:]
