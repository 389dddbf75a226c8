"""The leakage meter: how much of a site's scatter the answers so far have given away.

Exact methods answer products ``M q``. After d independent directions the asker can solve for all of
M ([Hartebrodt2022] section 4), through secure sums too; and since real scatters are nearly low
rank, most of M is gone much earlier. So two numbers are kept for a data set, over all runs on it:
``rank_fraction``, the rank of all directions answered over d, which says what is fixed exactly; and
``variance_fraction``, the share of the trace that the best completion of the answers holds
(Nystrom: ``M B (B'M B)^+ B'M`` with B the directions). The sum of Ritz values would understate
that: after one block of 8 random directions of 64 it can show 0.10 where the completion has 0.81. A
low rank fraction never means that little was learnt.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from eigenfed.arrays import Array, Container
from eigenfed.errors import DataError, InputError
from eigenfed.privacy.release import Reveals

_KIND, _VERSION = "meter", 1
_INDEPENDENT = 1e-10
_ROUNDING = 1e-14
_SURELY_COUNTED = 1e-12
_APART = 1e-10
_FIRM = 1e-8
_WELL_APART = 1e-3
_ORTHONORMAL = 1e-13
_MAX_BASIS_BYTES = 256 << 20


class Answered(NamedTuple):
    """Directions (d, l) that were answered about and their images, as the asker saw them.

    The scatter that the images are of is that of the rows divided by `scale`, and about another
    mean than the rows' own: it has ``outer(shift, shift)`` besides. `trace` is that of the scatter
    of the rows about their own mean, in their own units.
    """

    directions: Array
    images: Array
    trace: float
    scale: Array | None = None
    shift: Array | None = None

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
    means : bool
        Whether totals by feature were answered.
    numbers : int
        Single numbers about all rows that were answered, such as a trace or a bound.
    settled_faint : int
        Directions settled so far that differ from others by so little that they are no part of the
        basis, and by more than rounding: a difference of images may still tell something.
    pending : tuple of Answered
        What is not part of the basis yet: it becomes that when somebody reads the meter.

    Examples
    --------
    >>> import numpy as np
    >>> scatter = np.diag([3.0, 1.0])
    >>> meter = Meter.empty(2).answered(Answered(np.eye(2)[:, :1], scatter[:, :1], trace=4.0))
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
    means: bool = False
    numbers: int = 0
    settled_faint: int = 0
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
    def rank(self) -> int:
        """Rank of all directions answered."""
        if self.whole:
            return self.d
        rank = int(self.basis.shape[1]) + self.uncounted + self._settled[2]
        return min(rank, self.d)

    @property
    def rank_fraction(self) -> float:
        """Rank of all directions answered over the number of features."""
        return self.rank / self.d

    def filled(self, rank: int) -> "Meter":
        """Return a meter of this rank at least.

        Examples
        --------
        >>> Meter.empty(4).filled(2).rank
        2
        """
        missing = min(rank, self.d) - self.rank
        if missing <= 0:
            return self
        settled = self.settled()
        return replace(settled, settled_faint=settled.settled_faint + missing)

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

    def answered(self, answer: Answered) -> "Meter":
        """Count an answer ``images = M @ directions``.

        Answers are put on file here and made into a basis when somebody reads the meter.
        """
        if not answer.is_finite:
            raise InputError("The directions asked about must be finite. Ask with unit vectors.")
        added, trace = 2 * answer.directions.nbytes, answer.trace
        if self._held_bytes + added > _MAX_BASIS_BYTES and self.pending:
            return self.settled().answered(answer)
        if self._held_bytes + added > _MAX_BASIS_BYTES:
            count = self.uncounted + answer.directions.shape[1]
            return replace(self, uncounted=count, trace=trace)
        return replace(self, pending=(*self.pending, answer), trace=trace)

    def _outside(self, units: Array) -> Array:
        """Return the part of unit columns outside the basis; twice is enough to be exact."""
        for _ in range(2):
            units = units - self.basis @ (self.basis.T @ units)
        return units

    def counting(self, reveals: Reveals, answer: Answered | None) -> "Meter":
        """Count a reply by what it declares to reveal; what has noise is charged to the ledger.

        Parameters
        ----------
        reveals : Reveals
        answer : Answered or None
            The directions and images, where it reveals directions.
        """
        match reveals:
            case Reveals.DIRECTIONS:
                if answer is None:
                    raise InputError("The operation declares directions and names none.")
                return self.answered(answer)
            case Reveals.SCATTER:
                return replace(self, whole=True)
            case Reveals.DIAGONAL:
                return replace(self, diagonal=True)
            case Reveals.MEANS:
                return replace(self, means=True)
            case Reveals.COUNTS | Reveals.BOUND | Reveals.RANGE:
                return replace(self, numbers=self.numbers + 1)
            case Reveals.SIZE | Reveals.NOISE | Reveals.NOTHING:
                return self

    def settled(self) -> "Meter":
        """Return the same meter with everything pending made part of the basis."""
        if not self.pending:
            return self
        basis, images, faint = self._settled
        return replace(
            self, settled_basis=basis, settled_images=images, settled_faint=faint, pending=()
        )

    def counted(self, directions: Array, scale: Array | None) -> Array:
        """Return directions of which every part is either counted or known already.

        What lies outside the directions answered before by less than the meter tells from
        rounding would not be counted, and yet the difference of two images would tell of it. That
        part is taken away, so that nothing new can be learnt from it.

        Parameters
        ----------
        directions : ndarray of shape (d, l)
            As they are asked, of rows divided by `scale`.
        scale : ndarray of shape (d,) or None

        Returns
        -------
        ndarray of shape (d, l)
            The same array where there is nothing to take away.
        """
        if self.whole or self.uncounted or self._is_apart(directions, scale):
            return directions
        units = directions if scale is None else directions / scale[:, None]
        lengths = np.sqrt(np.einsum("ij,ij->j", units, units))
        outside = self._outside(units / lengths)
        if np.linalg.eigvalsh(outside.T @ outside)[0] > _SURELY_COUNTED:
            return directions
        frame, triangle = np.linalg.qr(outside)
        left, sizes, right = np.linalg.svd(triangle)
        hidden = sizes <= _INDEPENDENT
        if not hidden.any():
            return directions
        extra = ((frame @ left[:, hidden]) * sizes[hidden]) @ right[hidden] * lengths
        kept: Array = directions - (extra if scale is None else extra * scale[:, None])
        return kept

    def rank_with(self, directions: Array, scale: Array | None) -> float:
        """Return the rank fraction after an answer about directions (d, l) of scaled rows."""
        if self.whole:
            return 1.0
        units = directions if scale is None else directions / scale[:, None]
        lengths = np.sqrt(np.einsum("ij,ij->j", units, units))
        outside = self._outside(units / np.where(lengths > 0, lengths, 1.0))
        sizes = np.linalg.svd(outside, compute_uv=False)
        added = int(np.count_nonzero(sizes > _INDEPENDENT))
        return min(self.rank_fraction + added / self.d, 1.0)

    def _is_apart(self, directions: Array, scale: Array | None) -> bool:
        """Tell cheaply whether directions are orthogonal to all that were answered before."""
        units = directions if scale is None else directions / scale[:, None]
        largest = _peak(units)
        asked = (answer.in_rows_units()[0] for answer in self.pending)
        return all(
            _peak(known.T @ units) <= _APART * _peak(known) * largest
            for known in (self.settled_basis, *asked)
            if known.shape[1]
        )

    @property
    def _held_bytes(self) -> int:
        return 2 * (self.settled_basis.nbytes + sum(a.directions.nbytes for a in self.pending))

    @cached_property
    def _settled(self) -> tuple[Array, Array, int]:
        """Join what is pending to the basis; return it, its images, and the faint directions.

        Only the part of the directions outside the basis is new, and its image follows from the
        answers themselves, so nothing is computed from the rows. Lengths do not matter.
        """
        if not self.pending:
            return self.settled_basis, self.settled_images, self.settled_faint
        own = [answer.in_rows_units() for answer in self.pending]
        directions, images = (np.hstack(blocks) for blocks in zip(*own, strict=True))
        units, unit_images = _of_unit_length(directions, images)
        if not self.settled_basis.shape[1] and _is_orthonormal(units):
            return units, unit_images, self.settled_faint
        if self.settled_basis.shape[1]:
            known = self.settled_basis.T @ units
            outside = units - self.settled_basis @ known
            again = self.settled_basis.T @ outside
            units = outside - self.settled_basis @ again
            unit_images = unit_images - self.settled_images @ (known + again)
        fresh, fit, faint = _orthonormal(units)
        return (
            np.hstack([self.settled_basis, fresh]),
            np.hstack([self.settled_images, unit_images @ fit]),
            self.settled_faint + faint,
        )

    def to_bytes(self) -> bytes:
        """Serialise, to be stored with the site."""
        scalars = {
            "d": self.d,
            "trace": self.trace,
            "uncounted": self.uncounted,
            "diagonal": self.diagonal,
            "whole": self.whole,
            "means": self.means,
            "numbers": self.numbers,
            "settled_faint": self._settled[2],
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


def _orthonormal(units: Array) -> tuple[Array, Array, int]:
    """Orthonormal columns that span `units`, what brings `units` to them, and how many are faint.

    Returns
    -------
    columns : ndarray of shape (d, r)
    fit : ndarray of shape (m, r)
    faint : int
        Directions that are told apart from the others neither surely nor only by rounding.
    """
    gram = units.T @ units
    if np.min(np.linalg.eigvalsh(gram), initial=1.0) > _WELL_APART:
        fit: Array = np.linalg.inv(np.linalg.cholesky(gram)).T
        return units @ fit, fit, 0
    frame, triangle = np.linalg.qr(units)
    turned, size, turn = np.linalg.svd(triangle, full_matrices=False)
    count = int(np.count_nonzero(size > _INDEPENDENT))
    faint = int(np.count_nonzero(size > _ROUNDING)) - count
    return frame @ turned[:, :count], turn[:count].T / size[:count], faint
