"""Products of sparse rows with a few directions: X B less a shift, and X' times that.

scipy reads the entries once for each factor, and its loop over a few directions is not made of
vector instructions. The kernel here reads the entries of a row once for both factors and takes 4 or
8 directions at a time, in 0.4 to 0.8 of scipy's time. It adds in the same order, so that both give
the same bits, and nothing depends on which of them was used: a site that answers a request again
after a restart must give the same reply. That is checked when the kernel is loaded.

Loading it takes a tenth of a second and 60 MB, so it is loaded only after as much work. Without
llvmlite (``eigenfed[sparse]``) all products are scipy's.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from eigenfed.arrays import Array
from eigenfed.linalg.row_sums import split_long_table
from eigenfed.linalg.sparse_rows import gather, locate_entries, view_transpose

Places = npt.NDArray[np.int32] | npt.NDArray[np.int64]
Kernel = Callable[
    [Places, Places, Places, Array, Array, int, Array, Array, Array, Array, list[slice]], None
]

LANES = (4, 8)
"""Numbers of directions that the kernel takes at a time. Rows of 16 would no longer stay in the
cache from one entry of a feature to the next, where features are many."""
_ENTRIES_AT_ONCE = 1 << 18
"""Entries that scipy multiplies at once where a table is added up in pieces."""
_WORTH_LOADING = 5e7
"""Entries times directions after which the kernel is loaded."""


def add_products(
    starts: Places,
    stops: Places,
    columns: Places,
    entries: Array,
    weights: Array,
    step: int,
    basis: Array,
    shift: Array,
    sided: Array,
    total: Array,
    pieces: list[slice],
) -> None:
    """Fill `sided` with W (X B - shift), and add X' times it to `total`, in pieces of the rows.

    The kernel as Python runs it: `eigenfed.linalg.vector_entries` compiles the same.
    """
    for piece in pieces:
        part = np.zeros_like(total)
        for i in range(piece.start, piece.stop):
            found = np.zeros(len(shift))
            for place in range(starts[i], stops[i]):
                found += entries[place] * basis[columns[place]]
            sided[i] = (found - shift) * weights[step * i]
            for place in range(starts[i], stops[i]):
                part[columns[place]] += entries[place] * sided[i]
        total += part


class _Work:
    """Entries times directions that this process has multiplied."""

    done = 0.0


class SparseProducts(NamedTuple):
    """What a product with sparse rows returns.

    Attributes
    ----------
    sided : ndarray of shape (n, l)
        W (X B - shift).
    total : ndarray of shape (d, l)
        X' times that; it may be a part of a wider array.
    """

    sided: Array
    total: Array


def multiply_twice(
    rows: Any, basis: Array, shift: Array, weights: Array | None = None
) -> SparseProducts:
    """Multiply sparse rows by directions, and their transpose by the result.

    Parameters
    ----------
    rows : csr_array or ScatteredSparse of shape (n, d)
        float64.
    basis : ndarray of shape (d, l)
    shift : ndarray of shape (l,)
        Subtracted from each row of X B.
    weights : ndarray of shape (n,), optional

    Examples
    --------
    >>> rows = sparse.csr_array([[1.0, 0.0], [0.0, 2.0]])
    >>> multiply_twice(rows, np.array([[3.0], [4.0]]), np.ones(1))
    SparseProducts(sided=array([[2.],
           [7.]]), total=array([[ 2.],
           [14.]]))
    """
    _Work.done += float(rows.nnz) * basis.shape[1]
    if basis.shape[1] > 1 and _Work.done > _WORTH_LOADING:
        kernels = load_kernels(locate_entries(rows).columns.dtype)
        if kernels:
            return multiply_by_kernels(kernels, rows, basis, shift, weights)
    return multiply_by_scipy(gather(rows), basis, shift, weights)


def multiply_by_scipy(
    rows: Any, basis: Array, shift: Array, weights: Array | None
) -> SparseProducts:
    """Do what `multiply_twice` does with scipy."""
    sided = rows @ basis
    sided -= shift
    if weights is not None:
        sided *= weights[:, None]
    return SparseProducts(sided, multiply_transpose(rows, sided))


def multiply_transpose(rows: Any, sided: Array) -> Array:
    """Multiply the transpose of sparse rows by an array, (d, l), in pieces of the rows.

    Parameters
    ----------
    rows : csr_array of shape (n, d)
    sided : ndarray of shape (n, l)

    Examples
    --------
    >>> rows = sparse.csr_array([[1.0, 0.0], [0.0, 2.0]])
    >>> multiply_transpose(rows, np.array([[3.0], [4.0]]))
    array([[3.],
           [8.]])
    """
    d, pieces = rows.shape[1], split_long_table(rows.shape[0], rows.nnz, rows.shape[1])
    if len(pieces) == 1:
        whole: Array = view_transpose(rows) @ sided
        return whole
    total = np.zeros((d, sided.shape[1]))
    together = max(_ENTRIES_AT_ONCE * len(pieces) // max(rows.nnz, 1), 1)
    for first in range(0, len(pieces), together):
        # Features of each piece are numbered after those of the piece before: one product of all
        # takes less time than one of each, whose calls take longer than short pieces.
        joined = pieces[first : first + together]
        starts = rows.indptr[joined[0].start : joined[-1].stop + 1]
        stored = slice(starts[0], starts[-1])
        lengths = [int(rows.indptr[part.stop] - rows.indptr[part.start]) for part in joined]
        offsets = np.arange(len(joined), dtype=rows.indices.dtype) * d
        places = np.repeat(offsets, lengths) + rows.indices[stored]
        shape = len(joined) * d, len(starts) - 1
        entries = (rows.data[stored], places, starts - starts[0])
        found = sparse.csc_array(entries, shape=shape) @ sided[joined[0].start : joined[-1].stop]
        for part in found.reshape(len(joined), d, -1):
            total += part
    return total


def multiply_by_kernels(
    kernels: dict[int, Kernel], rows: Any, basis: Array, shift: Array, weights: Array | None
) -> SparseProducts:
    """Do what `multiply_twice` does with the kernel for each number of directions at a time."""
    (n, d), width = rows.shape, basis.shape[1]
    starts, stops, columns, values = locate_entries(rows)
    heavy, step = (np.ones(1), 0) if weights is None else (np.ascontiguousarray(weights), 1)
    sided, total = np.empty((n, width)), np.empty((d, 0))
    pieces = split_long_table(n, rows.nnz, d)
    for start in range(0, width, LANES[-1]):
        group = slice(start, min(start + LANES[-1], width))
        count = group.stop - group.start
        lanes = next(lanes for lanes in LANES if lanes >= count)
        given, less = _pad(basis[:, group], lanes), _pad(shift[None, group], lanes)[0]
        here, found = np.empty((n, lanes)), np.zeros((d, lanes))
        kernels[lanes](
            starts, stops, columns, values, heavy, step, given, less, here, found, pieces
        )
        sided[:, group] = here[:, :count]
        if count == width:
            return SparseProducts(sided, found[:, :count])
        total = total if start else np.empty((d, width))
        total[:, group] = found[:, :count]
    return SparseProducts(sided, total)


def _pad(columns: Array, lanes: int) -> Array:
    """Return columns in C order, with columns of 0 up to the number of lanes."""
    if columns.shape[1] == lanes:
        return np.ascontiguousarray(columns)
    padded = np.zeros((len(columns), lanes))
    padded[:, : columns.shape[1]] = columns
    return padded


@cache
def load_kernels(places: np.dtype[Any]) -> dict[int, Kernel]:
    """Return a kernel for each number of lanes, or none where they cannot be used.

    Parameters
    ----------
    places : dtype
        Type of the positions of entries, int32 or int64.
    """
    try:
        from eigenfed.linalg.vector_entries import CompiledProducts

        kernels: dict[int, Kernel] = {lanes: CompiledProducts(lanes, places) for lanes in LANES}
    except (ImportError, OSError, RuntimeError):  # not installed, or of no use on this machine
        return {}
    return kernels if _are_like_scipy(kernels, places) else {}


def _are_like_scipy(kernels: dict[int, Kernel], places: np.dtype[Any]) -> bool:
    """Return whether kernels give the bits of scipy, which some processors round otherwise."""
    n, d, width = 12, 5, sum(LANES)
    rows = sparse.csr_array(np.sin(np.arange(n * d, dtype=float) ** 2).reshape(n, d))
    rows.indices, rows.indptr = rows.indices.astype(places), rows.indptr.astype(places)
    basis = np.cos(np.arange(d * width, dtype=float) ** 2).reshape(d, width)
    given = basis, basis[0], np.sqrt(np.arange(1.0, n + 1))
    one = multiply_by_kernels(kernels, rows, *given)
    other = multiply_by_scipy(rows, *given)
    return np.array_equal(one.sided, other.sided) and np.array_equal(one.total, other.total)
