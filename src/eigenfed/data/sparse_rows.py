"""Sparse rows as scipy holds them: each place stored once, and parts of them without a copy.

scipy's own slices and transposes copy: the slices everything, and every constructor the positions
if they fit into fewer bits than they have.
"""

from typing import Any

from scipy import sparse


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
