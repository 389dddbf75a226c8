"""Running means over the entries that were observed, for streams with gaps."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array


@dataclass(frozen=True, eq=False, repr=False)
class Observed:
    """Weight and mean of the observed entries of each feature.

    Attributes
    ----------
    n : ndarray of shape (d,)
        Sum of the weights of the rows in which the feature was there.
    mean : ndarray of shape (d,)
        Its mean over those rows; 0 where there were none.

    Examples
    --------
    >>> import numpy as np
    >>> nan = float("nan")
    >>> seen = Observed(np.zeros(2), np.zeros(2)).fold(np.array([[1.0, nan], [3.0, nan]]), None, 1)
    >>> seen.n, seen.mean
    (array([2., 0.]), array([2., 0.]))
    """

    n: Array
    mean: Array

    @classmethod
    def all_of(cls, n: float, mean: Array) -> "Observed":
        """Describe rows of weight `n` and that `mean` in which nothing was missing."""
        return cls(np.full(len(mean), n), mean)

    def merge(self, other: "Observed") -> "Observed":
        """Describe both sets of rows."""
        n = self.n + other.n
        share = self.n / np.where(n > 0, n, 1.0)
        return Observed(n, other.mean + share * (self.mean - other.mean))

    def fold(self, rows: Array, weights: Array | None, decay: float) -> "Observed":
        """Add rows, NaN where an entry is missing, after this one's weights times ``decay**2``."""
        there: npt.NDArray[np.bool_] = ~np.isnan(rows)
        shares = there * (1.0 if weights is None else weights[:, None])
        n_block = shares.sum(axis=0)
        n = decay * decay * self.n + n_block
        divisor = np.where(n > 0, n, 1.0)
        gap = np.where(there, rows - self.mean, 0.0)
        return Observed(n, self.mean + (shares * gap).sum(axis=0) / divisor)
