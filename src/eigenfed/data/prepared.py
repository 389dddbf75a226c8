"""Rows centred and scaled on the way: products of them, never a table of them.

With D the deviations of the rows from the mean, divided by the scale, and 0 where an entry is
missing, and W the weights: ``multiply`` is D Q, ``adjoint`` is D'W Y, ``product`` is D'W D Q.
Dense rows are centred block by block, which costs no digits at any offset. Sparse rows stay
sparse: ``D Q = X (Q/scale) - 1 (mean/scale)'Q``, and likewise on the other side.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.linalg.summary import Summary
from eigenfed.linalg.threads import threads_for


@dataclass(frozen=True, eq=False, repr=False)
class Prepared:
    """A source seen through a mean and a scale.

    Attributes
    ----------
    source : Source
    mean : ndarray of shape (d,)
    scale : ndarray of shape (d,)

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[1.0, 0.0], [3.0, 0.0]])
    >>> Prepared(Source.of(rows), mean=np.array([2.0, 0.0]), scale=np.ones(2)).scatter()
    array([[2., 0.],
           [0., 0.]])
    """

    source: Source
    mean: Array
    scale: Array

    def blocks(self) -> Iterator[tuple[Array, Array | None]]:
        """Yield blocks of D, dense, and their weights."""
        for rows, weights in self.source.blocks():
            around = rows - self.mean
            if self.source.has_missing:
                around[np.isnan(around)] = 0.0
            if self._is_scaled:
                around /= self.scale
            yield around, weights

    def multiply(self, basis: Array) -> Array:
        """Return D Q, (n, l): the rows' side, which never leaves a site."""
        if self.source.is_sparse:
            scaled = basis / self.scale[:, None]
            sided: Array = self._filled @ scaled - self.mean @ scaled
            return sided
        parts = [block @ basis for block, _ in self.blocks()]
        return np.concatenate(parts) if parts else np.zeros((0, basis.shape[1]))

    def adjoint(self, sided: Array) -> Array:
        """Return D'W Y, (d, l)."""
        weighted = self._weighted(sided)
        if self.source.is_sparse:
            summed = self._filled.T @ weighted - np.outer(self.mean, weighted.sum(axis=0))
            answer: Array = summed / self.scale[:, None]
            return answer
        total, start = np.zeros((self.source.d, sided.shape[1])), 0
        for block, _ in self.blocks():
            total += block.T @ weighted[start : start + len(block)]
            start += len(block)
        return total

    def product(self, basis: Array) -> Array:
        """Return D'W D Q, (d, l), in one pass over dense rows."""
        if self.source.is_sparse:
            return self.adjoint(self.multiply(basis))
        total = np.zeros(basis.shape)
        with threads_for(4.0 * self.source.n * basis.size):
            for block, weights in self.blocks():
                sided = block @ basis
                if weights is not None:
                    sided *= weights[:, None]
                total += block.T @ sided
        return total

    def squares(self) -> Array:
        """Return the sums of weighted squares of D by feature, (d,)."""
        if self.source.is_sparse:
            return self._sparse_squares()
        total = np.zeros(self.source.d)
        for block, weights in self.blocks():
            total += np.einsum(
                "ij,ij->j", block, block if weights is None else block * weights[:, None]
            )
        return total

    def scatter(self) -> Array:
        """Return D'W D, (d, d)."""
        total = np.zeros((self.source.d, self.source.d))
        with threads_for(float(self.source.n) * self.source.d**2):
            for block, weights in self.blocks():
                if weights is not None:
                    block *= np.sqrt(weights)[:, None]
                total += block.T @ block
        return total

    def summary(self, rank: int) -> Summary:
        """Summarise the scaled rows about their own mean, with the mean as it is unscaled.

        The mean of D is what a merge needs to find the shift between sites.
        """
        summary = Summary.empty(self.source.d, rank)
        for block, weights in self.blocks():
            summary = summary.update(block, weights)
        return summary

    def _sparse_squares(self) -> Array:
        """Entries that are stored, and as many times the squared mean as are not."""
        weights, d = self.source.weights, self.source.d
        stored, there = np.zeros(d), np.zeros(d)
        for values, columns, by_entry in self.source.entries():
            around = values - self.mean[columns]
            around[np.isnan(around)] = 0.0
            stored += np.bincount(columns, by_entry * around**2, minlength=d)
            there += np.bincount(columns, by_entry, minlength=d)
        absent = np.maximum((self.source.n if weights is None else weights.sum()) - there, 0.0)
        squares: Array = (stored + absent * self.mean**2) / self.scale**2
        return squares

    def _weighted(self, sided: Array) -> Array:
        return sided if self.source.weights is None else sided * self.source.weights[:, None]

    @cached_property
    def _is_scaled(self) -> bool:
        return bool((self.scale != 1.0).any())

    @cached_property
    def _filled(self) -> Any:
        """Sparse rows with missing entries set to the mean."""
        X = self.source.X.astype(np.float64, copy=False)
        if not self.source.has_missing:
            return X
        gaps = np.isnan(X.data)
        X = X.copy()
        X.data[gaps] = self.mean[X.indices[gaps]]
        return X
