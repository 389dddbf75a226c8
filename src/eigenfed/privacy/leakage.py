"""The leakage meter: how much of a site's scatter the answers so far have given away.

Exact methods answer products ``M q``. After d independent directions the asker can solve for all
of M (003 section 4), through secure sums too; and since real scatters are nearly low rank, most of
M is gone much earlier. So two numbers are kept for a data set, over all runs on it:
``rank_fraction``, the rank of all directions answered over d, which says what is fixed exactly;
and ``variance_fraction``, the share of the trace that the best completion of the answers holds
(Nystrom: ``M B (B'M B)^+ B'M`` with B the directions). The sum of Ritz values would understate
that: after one block of 8 random directions of 64 it can show 0.10 where the completion has 0.81.
A low rank fraction never means that little was learnt.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from eigenfed.arrays import Array, Container
from eigenfed.errors import DataError, InputError

_KIND, _VERSION = "meter", 1
_INDEPENDENT = 1e-10
_COVERED = 1e-6
_FIRM = 1e-8
_WELL_APART = 1e-3
_ORTHONORMAL = 1e-13
_MAX_BASIS_BYTES = 256 << 20


class Answered(NamedTuple):
    """Directions (d, l) that were answered about and their images, as the asker saw them.

    The scatter that the images are of is that of the rows divided by `scale`, and about another
    mean than the rows' own: it has ``outer(shift, shift)`` besides.
    """

    directions: Array
    images: Array
    scale: Array | None
    shift: Array | None

    @property
    def is_finite(self) -> bool:
        """Whether everything is finite, in the units of the rows too."""
        largest, smallest, moved = 1.0, 1.0, 0.0
        if self.scale is not None:
            largest, smallest = _peak(self.scale), float(np.abs(self.scale).min())
        if self.shift is not None:
            moved = _peak(self.shift)
        with np.errstate(all="ignore"):
            asked = np.divide(_peak(self.directions), smallest)
            seen = _peak(self.images) * largest + len(self.images) * moved * moved * asked
        return math.isfinite(asked) and math.isfinite(seen)

    def in_rows_units(self) -> tuple[Array, Array]:
        """Return directions and images as they are of the rows, about the rows' own mean."""
        directions, images = self.directions, self.images
        if self.scale is not None and (self.scale != 1.0).any():
            directions, images = directions / self.scale[:, None], images * self.scale[:, None]
        if self.shift is not None:
            images = images - np.outer(self.shift, self.shift @ directions)
        return directions, images


@dataclass(frozen=True, eq=False, repr=False)
class Meter:
    """What has been answered about one data set of d features.

    Attributes
    ----------
    d : int
    settled_basis, settled_images : ndarray of shape (d, r)
        Orthonormal columns that span the directions settled so far, and the scatter times them.
    trace : float
        The whole scatter's trace, as last seen.
    uncounted : int
        Columns answered after the basis had outgrown its memory, taken as independent.
    diagonal : bool
        Whether the scatter's diagonal was answered.
    whole : bool
        Whether all of the scatter was answered.
    pending : tuple of Answered
        What is not part of the basis yet: it becomes that when somebody reads the meter.

    Examples
    --------
    >>> import numpy as np
    >>> scatter = np.diag([3.0, 1.0])
    >>> meter = Meter.empty(2).answered(np.eye(2)[:, :1], scatter[:, :1], trace=4.0)
    >>> meter.rank_fraction, round(meter.variance_fraction, 12)
    (0.5, 0.75)
    """

    d: int
    settled_basis: Array
    settled_images: Array
    trace: float = 0.0
    uncounted: int = 0
    diagonal: bool = False
    whole: bool = False
    pending: tuple[Answered, ...] = ()

    @classmethod
    def empty(cls, d: int) -> "Meter":
        """Return the meter of a data set about which nothing was answered."""
        return cls(d, np.zeros((d, 0)), np.zeros((d, 0)))

    @property
    def basis(self) -> Array:
        """Orthonormal columns that span all directions answered, (d, r)."""
        return self._settled[0]

    @property
    def images(self) -> Array:
        """The scatter times that basis, (d, r)."""
        return self._settled[1]

    @property
    def rank_fraction(self) -> float:
        """Rank of all directions answered over the number of features."""
        rank = min(self.basis.shape[1] + self.uncounted, self.d)
        return 1.0 if self.whole else rank / self.d

    @property
    def variance_fraction(self) -> float:
        """Share of the trace that the best completion of the answers holds.

        It is 1 where directions are no longer followed.
        """
        if self.whole or self.uncounted:
            return 1.0
        if not (self.trace > 0 and self.basis.shape[1]):
            return 0.0
        inner = self.basis.T @ self.images
        values, vectors = np.linalg.eigh((inner + inner.T) / 2)
        # An image of a nearly repeated direction is a small difference: its noise must not count.
        kept = values > _FIRM * max(float(values[-1]), 0.0)
        factor = self.images @ (vectors[:, kept] / np.sqrt(values[kept]))
        return min(float(np.vdot(factor, factor)) / self.trace, 1.0)

    def answered(
        self,
        directions: Array,
        images: Array,
        trace: float,
        *,
        scale: Array | None = None,
        shift: Array | None = None,
    ) -> "Meter":
        """Count an answer ``images = M @ directions``, both of shape (d, l).

        Answers are put on file here and made into a basis when somebody reads the meter.

        Parameters
        ----------
        directions, images : ndarray of shape (d, l)
        trace : float
            Of the scatter of the rows, about their own mean and in their own units.
        scale : ndarray of shape (d,), optional
            What the rows were divided by in `images`.
        shift : ndarray of shape (d,), optional
            The root of the weight times the rows' mean, less the mean in `images`.
        """
        answer = Answered(directions, images, scale, shift)
        if not answer.is_finite:
            raise InputError("The directions asked about must be finite. Ask with unit vectors.")
        added = 2 * directions.nbytes
        if self._held_bytes + added > _MAX_BASIS_BYTES and self.pending:
            basis, kept = self._settled
            settled = replace(self, settled_basis=basis, settled_images=kept, pending=())
            return settled.answered(directions, images, trace, scale=scale, shift=shift)
        if self._held_bytes + added > _MAX_BASIS_BYTES:
            return replace(self, uncounted=self.uncounted + directions.shape[1], trace=trace)
        return replace(self, pending=(*self.pending, answer), trace=trace)

    @property
    def _held_bytes(self) -> int:
        return 2 * (self.settled_basis.nbytes + sum(a.directions.nbytes for a in self.pending))

    @cached_property
    def _settled(self) -> tuple[Array, Array]:
        """Join what is pending to the basis.

        Only the part of the directions outside the basis is new, and its image follows from the
        answers themselves, so nothing is computed from the rows. Lengths do not matter.
        """
        if not self.pending:
            return self.settled_basis, self.settled_images
        own = [answer.in_rows_units() for answer in self.pending]
        directions, images = (np.hstack(blocks) for blocks in zip(*own, strict=True))
        units, unit_images = _of_unit_length(directions, images)
        if not self.settled_basis.shape[1] and _is_orthonormal(units):
            return units, unit_images
        if self.settled_basis.shape[1]:
            known = self.settled_basis.T @ units
            outside = units - self.settled_basis @ known
            again = self.settled_basis.T @ outside
            units = outside - self.settled_basis @ again
            unit_images = unit_images - self.settled_images @ (known + again)
        fresh, fit = _orthonormal(units)
        return (
            np.hstack([self.settled_basis, fresh]),
            np.hstack([self.settled_images, unit_images @ fit]),
        )

    def covers(self, directions: Array) -> bool:
        """Say whether all of the directions, (d, l), were answered about before."""
        if self.whole or self.uncounted:
            return True
        lengths = np.sqrt(np.sum(directions**2, axis=0))
        outside = directions - self.basis @ (self.basis.T @ directions)
        return bool(np.all(np.sqrt(np.sum(outside**2, axis=0)) <= _COVERED * lengths))

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
        arrays = {"settled_basis": self.basis, "settled_images": self.images}
        return Container(_KIND, _VERSION, scalars, arrays).to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Meter":
        """Read what `to_bytes` wrote."""
        container = Container.from_bytes(data, kind=_KIND, version=_VERSION)
        try:
            meter = cls(**container.scalars, **container.arrays)  # type: ignore[arg-type]
            sound = meter.basis.shape == meter.images.shape == (meter.d, meter.basis.shape[1])
        except (AttributeError, IndexError, TypeError):
            sound = False
        if not sound:
            raise DataError("The data are not a sound meter. Fetch the site's own copy again.")
        return meter


def _of_unit_length(directions: Array, images: Array) -> tuple[Array, Array]:
    """Scale columns and their images to length 1, and drop those that are zero."""
    lengths = np.sqrt(np.einsum("ij,ij->j", directions, directions))
    if np.all(np.abs(lengths - 1.0) < 1e-9):
        return directions, images
    peaks = np.abs(directions).max(axis=0, initial=0.0)
    there = peaks > 0
    units, unit_images = (x[:, there] / peaks[there] for x in (directions, images))
    lengths = np.sqrt(np.einsum("ij,ij->j", units, units))
    return units / lengths, unit_images / lengths


def _peak(a: Array) -> float:
    """Return the largest magnitude, without a second array; NaN where there is one."""
    return max(float(a.max(initial=0.0)), -float(a.min(initial=0.0)))


def _is_orthonormal(units: Array) -> bool:
    defect = units.T @ units
    defect.flat[:: len(defect) + 1] -= 1.0
    return bool(np.abs(defect).max(initial=0.0) < _ORTHONORMAL)


def _orthonormal(units: Array) -> tuple[Array, Array]:
    """Orthonormal columns that span `units`, and what brings `units` to them, (m, r)."""
    gram = units.T @ units
    if np.min(np.linalg.eigvalsh(gram), initial=1.0) > _WELL_APART:
        fit: Array = np.linalg.inv(np.linalg.cholesky(gram)).T
        return units @ fit, fit
    frame, triangle = np.linalg.qr(units)
    turned, size, turn = np.linalg.svd(triangle, full_matrices=False)
    count = int(np.count_nonzero(size > _INDEPENDENT))
    return frame @ turned[:, :count], turn[:count].T / size[:count]
