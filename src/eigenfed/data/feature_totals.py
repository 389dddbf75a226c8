"""Weights and sums of features over rows, from which their means follow."""

from typing import NamedTuple

import numpy as np

from eigenfed.arrays import Array


class FeatureTotals(NamedTuple):
    """Totals of some rows.

    Attributes
    ----------
    n : float
        Weight of the rows.
    observed : ndarray of shape (d,)
        Weight of the rows in which each feature is observed.
    total : ndarray of shape (d,)
        Weighted sum of the observed entries.

    Examples
    --------
    >>> FeatureTotals(2.0, np.array([2.0, 0.0]), np.array([6.0, 0.0])).mean
    array([3., 0.])
    """

    n: float
    observed: Array
    total: Array

    @property
    def divisor(self) -> Array:
        """What sums over observed entries are divided by, (d,): 1 where none is observed."""
        return np.where(self.observed > 0, self.observed, 1.0)

    @property
    def mean(self) -> Array:
        """Means over observed entries, (d,); 0 where none is observed."""
        return self.total / self.divisor
