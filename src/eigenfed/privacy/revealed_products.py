"""What a reply reveals about a scatter: directions, and the products with them."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.linalg.remembered import remember_last


class RevealedEntries(NamedTuple):
    """Single entries of the scatter that a reply revealed, off its diagonal.

    Attributes
    ----------
    number : int
    """

    number: int

    def worth(self, d: int) -> int:
        """Return how many directions reveal as many numbers about a scatter of d features.

        The products of a symmetric matrix with r directions are ``r d - r (r - 1) / 2`` independent
        numbers.

        Examples
        --------
        >>> RevealedEntries(4).worth(4), RevealedEntries(5).worth(4), RevealedEntries(99).worth(4)
        (1, 2, 4)
        """
        within = (2 * d + 1) ** 2 - 8 * self.number
        if within <= 0:
            return d
        found = (2 * d + 1 - math.sqrt(within)) / 2
        return min(math.ceil(found - 1e-9), d)


class RevealedProducts(NamedTuple):
    """Requested directions and the products that a reply revealed, as the coordinator saw them.

    Attributes
    ----------
    directions, images : ndarray of shape (d, l)
        The directions, and the scatter times them. This scatter is that of the rows divided by
        `scale`, about another mean than their own, which adds ``outer(shift, shift)`` to it: or
        whatever adds ``outer(shift, along)`` to the images, in the units of the rows.
    trace : float
        Trace of the scatter of the rows about their own mean, in their own units.
    scale, shift : ndarray of shape (d,) or None
    along : ndarray of shape (l,) or None
    selected : ndarray of int64 or None
        Positions of the d features, if they are a selection; `size` is then the number of all.
    size : int
    spread : ndarray of shape (d,) or None
        Diagonal of the scatter of the rows about their own mean, in their own units: 0 for a
        feature that is constant up to rounding.
    """

    directions: Array
    images: Array
    trace: float
    scale: Array | None = None
    shift: Array | None = None
    selected: npt.NDArray[np.int64] | None = None
    size: int = 0
    spread: Array | None = None
    along: Array | None = None

    @property
    def is_finite(self) -> bool:
        """Whether directions and images are finite, also in the units of the rows."""
        # Norms bound all entries, and nearly always suffice; to find the largest takes much longer.
        return self._are_bounded(_bound_abs) or self._are_bounded(max_abs)

    def _are_bounded(self, measure: Callable[[Array], float]) -> bool:
        """Return whether directions and images of at most the measured magnitudes are finite."""
        direction, image = measure(self.directions), measure(self.images)
        shift = 0.0 if self.shift is None else measure(self.shift)
        if self.scale is None:
            return self._stays_finite(direction, image, shift)
        sizes = np.abs(self.scale)
        with np.errstate(all="ignore"):
            # Extremes bound all rows, and nearly always suffice; row by row takes much longer.
            if self._stays_finite(np.divide(direction, sizes.min()), image * sizes.max(), shift):
                return True
            rows = _max_rows(self.directions) / sizes, _max_rows(self.images) * sizes
            return self._stays_finite(rows[0].max(), rows[1].max(), shift)

    def _stays_finite(self, direction: float, image: float, shift: float) -> bool:
        """Return whether numbers up to these are finite once the shift is subtracted."""
        with np.errstate(all="ignore"):
            most = len(self.images) * np.float64(shift) * direction
            image = image + shift * (most if self.along is None else max_abs(self.along))
        return math.isfinite(direction) and math.isfinite(image)

    def in_rows_units(self) -> tuple[Array, Array]:
        """Return directions and images of the rows themselves, about their own mean."""
        directions, images = self.directions, self.images
        if self.scale is not None:
            directions, images = directions / self.scale[:, None], images * self.scale[:, None]
        along = self.measure_shift()
        if self.shift is not None and along is not None:
            images = images - np.outer(self.shift, along)
        return self._embed(directions), self._embed(images)

    def measure_shift(self) -> Array | None:
        """Return what the shift adds to the images of the rows, relative to it, (l,)."""
        if self.shift is None or self.along is not None:
            return self.along
        shift: Array = self.shift if self.scale is None else self.shift / self.scale
        return shift @ self.directions

    @property
    def whole_spread(self) -> Array | None:
        """The spread of all features, 0 for those that are not selected."""
        return None if self.spread is None else self._embed(self.spread)

    def _embed(self, values: Array) -> Array:
        """Return numbers about selected features as numbers about all, 0 for the others."""
        if self.selected is None:
            return values
        whole = np.zeros((self.size, *values.shape[1:]))
        whole[self.selected] = values
        return whole


def max_abs(a: Array) -> float:
    """Return the largest magnitude, without a temporary array; NaN if an entry is NaN."""
    return max(float(a.max(initial=0.0)), -float(a.min(initial=0.0)))


@remember_last
def _bound_abs(a: Array) -> float:
    """Return a bound on the largest magnitude; infinite or NaN if squares overflow."""
    return math.sqrt(np.vdot(a, a))


def _max_rows(a: Array) -> Array:
    """Return the largest magnitude of each row."""
    found: Array = np.maximum(a.max(axis=1, initial=0.0), -a.min(axis=1, initial=0.0))
    return found
