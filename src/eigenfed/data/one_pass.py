"""All of a site's scatter in one pass over its rows, before the mean of all sites is known.

Deviations are taken from the mean of the first block, which is near enough to the site's own mean:
the first block alone has a share of the scatter that keeps the correction from cancelling more
than its number of blocks. ``X'X - n m m'`` would lose every digit when the mean is large beside
the spread.
"""

from dataclasses import dataclass

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.linalg.threads import in_order

_LEAST_ROWS_PER_FEATURE = 4


@dataclass(frozen=True, eq=False, repr=False)
class OwnScatter:
    """Number of rows, their mean, and their scatter about it.

    Attributes
    ----------
    n : float
    mean : ndarray of shape (d,)
    matrix : ndarray of shape (d, d)

    Examples
    --------
    >>> import numpy as np
    >>> own = OwnScatter.of(Source.of(np.array([[1.0], [3.0], [5.0], [7.0]])))
    >>> own.mean, own.matrix, own.about(np.zeros(1), np.ones(1))
    (array([4.]), array([[20.]]), array([[84.]]))
    """

    n: float
    mean: Array
    matrix: Array

    @classmethod
    def of(cls, source: Source) -> "OwnScatter | None":
        """Read the rows once; None where that does not do or what is kept is as large as they are.

        Weights may leave the first block without a say, and sparse rows would not stay sparse. A
        missing entry stands for the mean of all sites: at the first block with one this ends.
        """
        plain = not source.is_sparse and source.weights is None
        if not plain or source.n < _LEAST_ROWS_PER_FEATURE * source.d:
            return None
        spans = source.spans()
        near = source.block(spans[0])[0].mean(axis=0)

        def about_near(span: slice) -> tuple[Array, Array]:
            around = source.block(span)[0] - near
            return np.ones(len(around)) @ around, around.T @ around

        total, matrix = np.zeros(source.d), np.zeros((source.d, source.d))
        for moved, part in in_order(about_near, spans, flops=float(source.n) * source.d**2):
            if np.isnan(moved).any():
                return None
            total += moved
            matrix += part
        away = total / source.n
        matrix -= source.n * np.outer(away, away)
        return cls(float(source.n), near + away, matrix)

    def squares(self, mean: Array) -> Array:
        """Return the squared deviations of each feature from a mean, (d,)."""
        squares: Array = np.maximum(self.matrix.diagonal(), 0.0) + self.n * (self.mean - mean) ** 2
        return squares

    def about(self, mean: Array, scale: Array) -> Array:
        """Return the scatter about another mean, of rows divided by the scale, (d, d)."""
        away = (self.mean - mean) / scale
        whole = self.n * np.outer(away, away)
        whole += self.matrix / np.outer(scale, scale) if (scale != 1.0).any() else self.matrix
        return whole
