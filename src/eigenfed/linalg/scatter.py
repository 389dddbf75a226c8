"""The exact counterpart of a summary: the whole d x d scatter matrix, for few features."""

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.errors import InputError
from eigenfed.linalg.checks import make_range_error
from eigenfed.linalg.compress import center_rows
from eigenfed.linalg.summary import Summary, bound_rounding
from eigenfed.linalg.threads import limit_threads

_ROWS_AT_ONCE = 256
"""Rows that a stream adds at once."""
_FIRST_ROUNDINGS = 64.0
"""Epsilons by which the sum over so many equal rows is off."""


@dataclass(frozen=True, eq=False, repr=False)
class Scatter:
    """Weight, mean and scatter matrix of rows that are not stored.

    Nothing is truncated, so order, partition and block size change the result only by rounding.
    The scatter is centred at the mean of its own rows: ``X'X - n m m'`` would lose every digit
    where the mean is large compared with the spread.

    Attributes
    ----------
    n : float
        Sum of the rows' weights.
    mean : ndarray of shape (d,)
        Weighted mean; zeros where `centered` is false.
    matrix : ndarray of shape (d, d)
        Weighted sum of the outer products of the centred rows.
    missed : float
        Energy not in `matrix`, from truncated summaries merged into it.
    lost : float
        Bound on the largest eigenvalue of the missing part, as in `Summary`.
    centered : bool

    Examples
    --------
    >>> import numpy as np
    >>> scatter = Scatter.empty(2).fold(np.array([[1.0, 0.0], [3.0, 0.0]]), None, 1.0)
    >>> scatter.matrix
    array([[2., 0.],
           [0., 0.]])
    """

    n: float
    mean: Array
    matrix: Array
    missed: float = 0.0
    lost: float = 0.0
    centered: bool = True

    @classmethod
    def empty(cls, d: int, *, centered: bool = True) -> "Scatter":
        """Return the scatter of no rows of `d` features."""
        return cls(0.0, np.zeros(d), np.zeros((d, d)), centered=centered)

    @classmethod
    def from_summary(cls, summary: Summary) -> "Scatter":
        """Return the scatter that a summary represents, with what it misses recorded."""
        scaled = summary.s[:, None] * summary.vt
        return cls(
            summary.n,
            summary.mean,
            scaled.T @ scaled,
            summary.missed,
            summary.lost,
            summary.centered,
        )

    def fold(self, rows: Array, weights: Array | None, decay: float) -> "Scatter":
        """Add rows that have been checked, as `Summary.fold` does."""
        n = float(len(rows)) if weights is None else float(weights.sum())
        if n == 0.0:
            return self._decay(decay)
        mine = self._decay(decay)
        # One more row carries the shift between the two means: cheaper than its outer product.
        around = np.empty((len(rows) + 1, len(self.mean)))
        with limit_threads(around.size * len(self.mean)):
            mean = center_rows(rows, weights, centered=self.centered, out=around[:-1])
            with np.errstate(over="ignore", invalid="ignore"):
                shift = mine.mean - mean if mine.n > 0.0 else np.zeros_like(mean)
                around[-1] = math.sqrt(mine.n / (mine.n + n) * n) * shift
                matrix = around.T @ around
                matrix += mine.matrix
        return mine._grow(n, mean, shift, matrix)

    def merge(self, other: "Scatter", decay: float = 1.0) -> "Scatter":
        """Return the scatter of both sets of rows, with these weights times ``decay**2``."""
        mine = self._decay(decay)
        if len(other.mean) != len(self.mean):
            raise InputError(
                f"other has {len(other.mean)} features and must have {len(self.mean)}. "
                "Merge scatters of the same features."
            )
        if other.n == 0.0:
            return mine
        shift = mine.mean - other.mean if mine.n > 0.0 else np.zeros_like(mine.mean)
        with np.errstate(over="ignore", invalid="ignore"):
            matrix = mine.matrix + other.matrix
            matrix += (mine.n / (mine.n + other.n) * other.n) * np.outer(shift, shift)
        grown = mine._grow(other.n, other.mean, shift, matrix)
        return replace(grown, missed=mine.missed + other.missed, lost=mine.lost + other.lost)

    def _grow(self, n: float, mean: Array, shift: Array, matrix: Array) -> "Scatter":
        """Return the scatter with `n` further rows, or raise if it is not finite."""
        with np.errstate(over="ignore", invalid="ignore"):
            energy = float(matrix.trace())
        if not math.isfinite(energy):
            raise make_range_error()
        total = self.n + n
        return replace(self, n=total, mean=mean + (self.n / total) * shift, matrix=matrix)

    def summary(self, rank: int) -> Summary:
        """Return a summary with the leading `rank` directions."""
        with limit_threads(10.0 * self.matrix.size * len(self.mean)):
            values, vectors = np.linalg.eigh(self.matrix)
        values = np.maximum(values[::-1], 0.0)
        noise = len(values) * np.finfo(float).eps * values[0]
        kept = min(rank, int(np.count_nonzero(values > noise)))
        discarded = float(values[kept]) if kept < len(values) else 0.0
        s = np.sqrt(values[:kept])
        energy = max(float(self.matrix.trace()) + self.missed, float(s @ s))
        return Summary(
            self.n,
            self.mean,
            s,
            np.ascontiguousarray(vectors[:, ::-1][:, :kept].T),
            energy,
            min(self.lost + discarded, energy - float(s @ s)),
            rank,
            self.centered,
        )

    def factor(self) -> Array:
        """Return rows whose inner products are the matrix, (r, d).

        Every feature keeps its digits, however small its variance is beside that of others: the
        eigenvectors are those of the correlations.

        Examples
        --------
        >>> units = np.array([1e9, 1e-9])
        >>> rows = Scatter(9.0, np.zeros(2), np.outer(units, units) * [[2, 1], [1, 2]]).factor()
        >>> (rows.T @ rows / np.outer(units, units)).round(12)
        array([[2., 1.],
               [1., 2.]])
        """
        deviations = np.sqrt(np.maximum(self.matrix.diagonal(), 0.0))
        divisors = np.where(deviations > 0.0, deviations, 1.0)
        with limit_threads(10.0 * self.matrix.size * len(self.mean)):
            values, vectors = np.linalg.eigh(self.matrix / divisors / divisors[:, None])
        kept = values > len(values) * np.finfo(float).eps * values[-1]
        rows: Array = np.sqrt(values[kept])[:, None] * vectors[:, kept].T
        return rows * deviations

    def sine_bound(self, k: int, rows: float | None = None) -> float:
        """Bound the sine of the largest angle between the first `k` directions and the pooled ones.

        As `Summary.sine_bound`, where only rounding is lost: that of the sums, and that of means
        far from zero. Rows are added many at a time, which rounds less often.

        Examples
        --------
        >>> scatter = Scatter(9.0, np.zeros(3), np.diag([4.0, 2.0, 1.0]))
        >>> bool(0.0 < scatter.sine_bound(2) < 1e-12)
        True
        """
        with limit_threads(10.0 * self.matrix.size * len(self.mean)):
            values = np.maximum(np.linalg.eigvalsh(self.matrix)[::-1], 0.0)
        rows = self.n if rows is None else rows
        energy, updates = float(values.sum()), count_updates(rows)
        rounding = bound_rounding(self.n, self.mean, energy, len(values), rows, updates)
        off = self.lost + rounding
        following = float(values[k]) if k < len(values) else 0.0
        gap = float(values[k - 1]) - following - off
        return off / gap if gap > 0.0 else math.inf

    def reorder(self, columns: npt.NDArray[np.intp]) -> "Scatter":
        """Reorder the features, as `Summary.reorder` does."""
        return replace(self, mean=self.mean[columns], matrix=self.matrix[np.ix_(columns, columns)])

    def _decay(self, decay: float) -> "Scatter":
        if decay == 1.0 or self.n == 0.0:
            return self
        square = decay * decay
        if square * self.n == 0.0:
            return Scatter.empty(len(self.mean), centered=self.centered)
        return replace(
            self,
            n=square * self.n,
            matrix=square * self.matrix,
            missed=square * self.missed,
            lost=square * self.lost,
        )


def count_updates(rows: float) -> float:
    """Return how often a scatter has been rounded that a stream of so many rows has added to.

    Examples
    --------
    >>> count_updates(2560.0)
    74.0
    """
    return _FIRST_ROUNDINGS + rows / _ROWS_AT_ONCE
