"""The leakage meter: how much of a site's scatter the answers so far have given away.

Exact methods answer products ``M q``. After d independent directions the asker can solve for all
of M (003 section 4), through secure sums too; and since real scatters are nearly low rank, most of
M is gone much earlier. So two numbers are kept for a data set, over all runs on it:
``rank_fraction``, the rank of all directions answered over d, which says what is fixed exactly;
and ``variance_fraction``, the sum of the Ritz values over the trace, which says how much of the
variance the asker has. A low rank fraction never means that little was learnt.
"""

from dataclasses import dataclass, replace

import numpy as np

from eigenfed.arrays import Array, Container

_KIND, _VERSION = "meter", 1
_INDEPENDENT = 1e-10
_MAX_BASIS_BYTES = 256 << 20


@dataclass(frozen=True, eq=False, repr=False)
class Meter:
    """What has been answered about one data set of d features.

    Attributes
    ----------
    d : int
    basis : ndarray of shape (d, r)
        Orthonormal columns that span all directions answered.
    inner : ndarray of shape (r, r)
        The scatter on that basis.
    trace : float
        The whole scatter's trace, as last seen.
    uncounted : int
        Columns answered after the basis had outgrown its memory, taken as independent.
    diagonal : bool
        Whether the scatter's diagonal was answered.
    whole : bool
        Whether all of the scatter was answered.

    Examples
    --------
    >>> import numpy as np
    >>> scatter = np.diag([3.0, 1.0])
    >>> meter = Meter.empty(2).answered(np.eye(2)[:, :1], scatter[:, :1], trace=4.0)
    >>> meter.rank_fraction, meter.variance_fraction
    (0.5, 0.75)
    """

    d: int
    basis: Array
    inner: Array
    trace: float = 0.0
    uncounted: int = 0
    diagonal: bool = False
    whole: bool = False

    @classmethod
    def empty(cls, d: int) -> "Meter":
        """Return the meter of a data set about which nothing was answered."""
        return cls(d, np.zeros((d, 0)), np.zeros((0, 0)))

    @property
    def rank_fraction(self) -> float:
        """Rank of all directions answered over the number of features."""
        rank = min(self.basis.shape[1] + self.uncounted, self.d)
        return 1.0 if self.whole else rank / self.d

    @property
    def variance_fraction(self) -> float:
        """Sum of the Ritz values over the trace; 1 where directions are no longer followed."""
        if self.whole or self.uncounted:
            return 1.0
        return min(float(self.inner.trace()) / self.trace, 1.0) if self.trace > 0 else 0.0

    def answered(self, directions: Array, images: Array, trace: float) -> "Meter":
        """Count an answer ``images = M @ directions``, both of shape (d, l).

        Only the part of the directions outside the basis is new, and its place in the scatter
        follows from the answer itself, so nothing is computed from the rows.
        """
        if self.basis.nbytes + directions.nbytes > _MAX_BASIS_BYTES:
            return replace(self, uncounted=self.uncounted + directions.shape[1], trace=trace)
        known = self.basis.T @ directions
        outside = directions - self.basis @ known
        again = self.basis.T @ outside
        outside, known = outside - self.basis @ again, known + again
        fresh, size, turn = np.linalg.svd(outside, full_matrices=False)
        largest = np.sqrt(np.max(np.sum(directions**2, axis=0), initial=0.0))
        count = int(np.count_nonzero(size > _INDEPENDENT * largest))
        fit = turn[:count].T / size[:count]
        mixed = self.basis.T @ images
        corner = directions.T @ images - mixed.T @ known - known.T @ mixed
        corner = fit.T @ (corner + known.T @ self.inner @ known) @ fit
        side = (mixed - self.inner @ known) @ fit
        return replace(
            self,
            basis=np.hstack([self.basis, fresh[:, :count]]),
            inner=np.block([[self.inner, side], [side.T, corner]]),
            trace=trace,
        )

    def all_answered(self) -> "Meter":
        """Count an answer that holds all of the scatter."""
        return replace(self, whole=True)

    def diagonal_answered(self) -> "Meter":
        """Count an answer that holds the scatter's diagonal."""
        return replace(self, diagonal=True)

    def to_bytes(self) -> bytes:
        """Serialise, to be stored with the site."""
        scalars = {
            "d": self.d,
            "trace": self.trace,
            "uncounted": self.uncounted,
            "diagonal": self.diagonal,
            "whole": self.whole,
        }
        arrays = {"basis": self.basis, "inner": self.inner}
        return Container(_KIND, _VERSION, scalars, arrays).to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Meter":
        """Read what `to_bytes` wrote."""
        container = Container.from_bytes(data, kind=_KIND, version=_VERSION)
        return cls(**container.scalars, **container.arrays)  # type: ignore[arg-type]
