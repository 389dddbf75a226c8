"""Rows in several arrays as one table, and the leading eigenpairs of its products.

The rows may be as large as the data of all sites: they are not copied to lie together.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eigenfed.arrays import Array
from eigenfed.linalg.eigen import top_eigh
from eigenfed.linalg.orthonormal import complete_rows, flip_signs, orthonormalise_rows

_WELL_ABOVE = 1e-8
"""Ratio of eigenvalues down to which inner products of rows determine a component well."""
_COLUMN_BYTES, _LEAST_COLUMNS = 4 << 20, 64


@dataclass(frozen=True, eq=False, repr=False)
class StackedRows:
    """Arrays of the same number of columns, one below the other.

    Attributes
    ----------
    parts : sequence of ndarray of shape (m, d)

    Examples
    --------
    >>> rows = StackedRows([np.ones((1, 2)), np.eye(2)])
    >>> rows.shape, rows.multiply(np.ones((2, 1))).ravel()
    ((3, 2), array([2., 1., 1.]))
    """

    parts: Sequence[Array]

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows of all parts, and of columns."""
        return sum(map(len, self.parts)), int(self.parts[0].shape[1])

    def multiply(self, basis: Array) -> Array:
        """Return ``rows @ basis``, (n, k)."""
        return np.concatenate([part @ basis for part in self.parts])

    def adjoint(self, sided: Array) -> Array:
        """Return ``rows.T @ sided``, (d, k)."""
        total, start = np.zeros((sided.shape[1], self.shape[1])), 0
        for part in self.parts:
            total += sided[start : start + len(part)].T @ part
            start += len(part)
        return total.T

    def square_shorter_side(self) -> Array:
        """Return the products of all rows with each other, or of all columns if they are fewer."""
        n, d = self.shape
        inner = np.zeros((min(n, d), min(n, d)))
        if n >= d:
            for part in self.parts:
                inner += part.T @ part
            return inner
        for span in split_columns(n, d):
            columns = np.concatenate([part[:, span] for part in self.parts])
            inner += columns @ columns.T
        return inner


def split_columns(n: int, d: int) -> list[slice]:
    """Return the columns of each block of a table of n rows and d columns, 4 MB at most if it can.

    Examples
    --------
    >>> split_columns(8192, 100)
    [slice(0, 64, None), slice(64, 100, None)]
    """
    step = max(_COLUMN_BYTES // (8 * max(n, 1)), _LEAST_COLUMNS)
    return [slice(start, min(start + step, d)) for start in range(0, d, step)]


def leading_pairs(rows: StackedRows, inner: Array, k: int, further: int) -> tuple[Array, Array]:
    """Compute the leading eigenpairs of ``rows' rows``.

    Parameters
    ----------
    rows : StackedRows of shape (n, d)
    inner : ndarray of shape (m, m)
        `StackedRows.square_shorter_side`, m = min(n, d).
    k : int
        At most d. Beyond m, further directions complete the basis, with eigenvalue 0.
    further : int
        How many eigenvalues that follow are wanted, if there are so many.

    Returns
    -------
    values : ndarray of shape (l,)
        k eigenvalues, largest first, and those that follow.
    vt : ndarray of shape (k, d)
        Orthonormal rows, signs fixed.

    Examples
    --------
    >>> rows = StackedRows([np.array([[3.0, 0.0, 0.0], [0.0, 0.0, 1.0]])])
    >>> values, vt = leading_pairs(rows, rows.square_shorter_side(), 1, 1)
    >>> values.round(12), abs(vt).round(12)
    (array([9., 1.]), array([[1., 0., 0.]]))
    """
    n, d = rows.shape
    values, vectors = top_eigh(inner, min(k + further, len(inner)))
    values = np.maximum(values, 0.0)
    if n >= d:
        return values, flip_signs(vectors[:, :k].T)
    values = np.pad(values, (0, max(k - len(values), 0)))
    if values[k - 1] > _WELL_ABOVE * values[0]:
        vt = orthonormalise_rows(rows.adjoint(vectors[:, :k] / np.sqrt(values[:k])).T)
    else:
        s, vt = np.linalg.svd(np.concatenate(rows.parts), full_matrices=False)[1:]
        values[: len(s)] = s[: len(values)] ** 2
        vt = complete_rows(vt[:k], k)
    return values, flip_signs(vt)
