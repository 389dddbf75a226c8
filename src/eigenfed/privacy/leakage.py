"""The leakage meter: how much of a site's scatter matrix its exact replies have revealed.

Exact methods reply with products ``M q`` of the scatter M. From d independent directions the
coordinator can solve for all of M ([Hartebrodt2022] section 4), also under secure aggregation; and
since real scatters are nearly of low rank, most of M is determined much earlier. So the meter keeps
two numbers for a data set, over all runs:

- ``rank_fraction``, the rank of all requested directions over d: what is determined exactly.
- ``variance_fraction``, the fraction of the trace in the best completion of the replies (Nystrom:
  ``M B (B'M B)^+ B'M`` with B the directions): what is determined approximately. The sum of Ritz
  values would understate it: after one block of 8 random directions of 64 it can be 0.10 where the
  completion has 0.81. A low rank fraction never means that little was revealed.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from eigenfed.arrays import Array, Container, Scalar
from eigenfed.errors import DataError, InputError
from eigenfed.privacy.meter_reading import Reading, read_answers
from eigenfed.privacy.release import Reveals
from eigenfed.privacy.revealed_basis import (
    INDEPENDENT,
    are_orthogonal,
    complete_trace,
    count_determined,
    find_hidden,
    merge_answers,
)
from eigenfed.privacy.revealed_products import RevealedEntries, RevealedProducts

_KIND, _VERSION = "meter", 1
_OPTIONAL = ("clips", "entries", "remainders", "features", "mixed")
MOST_METER_BYTES = 256 << 20
_LARGE_BYTES = 8 << 20  # of replies that are worth reading without merging them


@dataclass(frozen=True, eq=False, repr=False)
class Meter:
    """What has been revealed about one data set of d features.

    Attributes
    ----------
    d : int
    settled_basis, settled_images : ndarray of shape (d, r)
        Orthonormal columns that span the directions processed so far, and the scatter times them.
    trace : float
        Trace of the whole scatter, as last seen.
    spread : ndarray of shape (d,) or None
        Its diagonal, as last seen.
    uncounted : int
        Directions revealed after the basis had reached its memory limit, counted as independent.
    diagonal, whole, means : bool
        Whether the diagonal of the scatter, the whole of it, or totals by feature were revealed.
    numbers : int
        How many single numbers about all rows were revealed, such as a trace or a bound.
    settled_faint : int
        Number of directions that differ from the basis by too little to join it, but by more than
        rounding: the difference of two images may still reveal something.
    pending : tuple of RevealedProducts
        Replies that have not been merged into the basis; they are when the meter is read.
    preparation : str
        How the rows were prepared whose scatter this is; empty if they were not.
    width : int
        Number of features that a preparation keeps, to which fractions relate; 0 if it keeps all.
    other_rank : int
        Rank of the directions revealed about the same rows prepared in other ways.
    other_variance : float
        Largest fraction of the variance revealed about rows prepared in one of those ways.
    entries : int
        How many entries of the scatter off its diagonal were revealed one by one.
    remainders : int
        How many numbers were revealed about what known directions leave of the scatter.
    features : str
        Digest of the names of the features; empty if they are not known.
    mixed : bool
        Whether directions were revealed of the same rows with other features or preparations.
    limit : int
        Bytes that directions and images may take.
    forgets : bool
        Whether a meter that reaches the limit forgets them, as one that serves a single run may: it
        will not have to recognise them again.
    clips : str
        Digests of the bounds at which entries were clipped whose sums left, with spaces between.

    Examples
    --------
    >>> import numpy as np
    >>> scatter = np.diag([3.0, 1.0])
    >>> revealed = RevealedProducts(np.eye(2)[:, :1], scatter[:, :1], trace=4.0)
    >>> meter = Meter.empty(2).answered(revealed)
    >>> meter.rank_fraction, round(meter.variance_fraction, 12)
    (0.5, 0.75)
    """

    d: int
    settled_basis: Array
    settled_images: Array
    trace: float = 0.0
    spread: Array | None = None
    uncounted: int = 0
    diagonal: bool = False
    whole: bool = False
    means: bool = False
    numbers: int = 0
    settled_faint: int = 0
    pending: tuple[RevealedProducts, ...] = ()
    preparation: str = ""
    width: int = 0
    other_rank: int = 0
    other_variance: float = 0.0
    clips: str = ""
    entries: int = 0
    remainders: int = 0
    features: str = ""
    mixed: bool = False
    limit: int = MOST_METER_BYTES
    forgets: bool = False

    @classmethod
    def empty(cls, d: int) -> "Meter":
        """Return the meter of a data set about which nothing was revealed."""
        return cls(d, np.zeros((d, 0)), np.zeros((d, 0)))

    @property
    def basis(self) -> Array:
        """Orthonormal columns that span all revealed directions, (d, r)."""
        return self._settled[0]

    @property
    def images(self) -> Array:
        """The scatter times that basis, (d, r)."""
        return self._settled[1]

    @property
    def size(self) -> int:
        """Number of features that fractions relate to."""
        return self.width or self.d

    @property
    def rank(self) -> int:
        """Rank of all revealed directions."""
        if self.whole:
            return self.size
        return min(self._rank_of_directions + self.remainder_rank, self.size)

    @property
    def _rank_of_directions(self) -> int:
        rank = self._own_rank + self.uncounted + self.other_rank
        # Single entries count as the directions that reveal as many numbers.
        return rank + RevealedEntries(self.entries).worth(self.size)

    @property
    def remainder_rank(self) -> int:
        """Number of directions that would have revealed no more than the remainders did."""
        return count_determined(self.remainders, self.size - self._rank_of_directions)

    @property
    def rank_fraction(self) -> float:
        """Rank of all revealed directions over the number of features."""
        return self.rank / self.size

    def about(self, preparation: str, width: int, *, others: bool = False) -> "Meter":
        """Return the meter for rows that are prepared in some way.

        Rows that are prepared in another way have another scatter, of which the same directions
        reveal something new: ranks add up. The rows may be nearly the same up to a linear map, as
        with other targets of `normalize` or other scales: what is revealed of both together counts
        as all of the variance. Every change from one preparation to another counts in full.

        Parameters
        ----------
        preparation : str
            Empty for rows as they are; for summaries of a stream, the digest of the summary.
        width : int
            Number of features that the preparation keeps.
        others : bool
            Whether they are other rows: of fractions of the variance the largest counts then.

        Examples
        --------
        >>> meter = Meter.empty(4).answered(RevealedProducts(np.eye(4)[:, :1], np.eye(4)[:, :1], 4))
        >>> other = meter.about("log1p", 4)
        >>> other.rank, meter.about("log1p", 2).rank_fraction, other.variance_fraction
        (1, 0.5, 1.0)
        """
        width = 0 if width == self.d else width
        if preparation == self.preparation:
            return self if width == self.width else replace(self, width=width)
        settled = self.settled()
        rank = settled.basis.shape[1] + settled.settled_faint + settled.uncounted
        return replace(
            settled,
            settled_basis=np.zeros((self.d, 0)),
            settled_images=np.zeros((self.d, 0)),
            settled_faint=0,
            spread=None,
            uncounted=0,
            preparation=preparation,
            width=width,
            other_rank=settled.other_rank + int(rank),
            other_variance=settled.variance_fraction,
            mixed=settled.mixed or (not others and settled.other_rank + rank > 0),
        )

    def of_features(self, features: str, d: int) -> "Meter":
        """Return the meter of the same rows for a study of some of their features.

        Two sets of features may overlap, and then what is known of one tells something of the
        other. Nothing is assumed to be known twice: ranks add up over sets, in whatever order they
        take turns, and the variance that both determine together, which no completion of either
        bounds, counts as all of it.

        Parameters
        ----------
        features : str
            Digest of the names of the features; empty if they are not known, as for arrays. A set
            that is not known is taken for one of the same size.
        d : int
            Number of features.

        Examples
        --------
        >>> meter = Meter.empty(4).answered(RevealedProducts(np.eye(4)[:, :1], np.eye(4)[:, :1], 4))
        >>> other = meter.of_features("5d41", 4).of_features("7d79", 10)
        >>> other.rank_fraction, other.variance_fraction
        (0.1, 1.0)
        """
        if d == self.d and (not features or self.features in ("", features)):
            return replace(self, features=features) if features else self
        settled = self.settled()
        rank = settled.size if self.whole else settled.basis.shape[1] + settled.settled_faint
        entries = 0 if self.whole else RevealedEntries(self.entries).worth(self.size)
        own = int(rank) + settled.uncounted + entries
        return replace(
            Meter.empty(d),
            limit=self.limit,
            forgets=self.forgets,
            diagonal=self.diagonal,
            means=self.means,
            numbers=self.numbers,
            remainders=self.remainders,
            clips=self.clips,
            features=features,
            mixed=self.mixed or own + self.other_rank > 0,
            other_rank=own + self.other_rank,
        )

    def raise_rank(self, rank: int) -> "Meter":
        """Return the meter with its rank raised to at least `rank`.

        Examples
        --------
        >>> Meter.empty(4).raise_rank(2).rank
        2
        """
        missing = min(rank, self.size) - self.rank
        if missing <= 0:
            return self
        settled = self.settled()
        return replace(settled, settled_faint=settled.settled_faint + missing)

    @property
    def variance_fraction(self) -> float:
        """Fraction of the trace in the best completion of the revealed products.

        It is 1 if the basis has reached its memory limit or the scatter is determined otherwise.
        """
        of_entries = RevealedEntries(self.entries).worth(self.size)
        is_whole = self.whole or of_entries == self.size
        if is_whole or self.uncounted or self.mixed or self.remainder_rank:
            return 1.0
        if not (self.trace > 0 and self._own_rank):
            return self.other_variance
        if self._reading is not None:
            return max(min(self._reading.variance / self.trace, 1.0), self.other_variance)
        found = min(complete_trace(self.basis, self.images, self.spread) / self.trace, 1.0)
        return max(found, self.other_variance)

    def answered(self, answer: RevealedProducts) -> "Meter":
        """Return the meter after a reply ``images = M @ directions``.

        It is merged into the basis when the meter is read: all replies at once cost less.
        """
        if not answer.is_finite:
            raise InputError("The requested directions must be finite. Pass unit vectors.")
        held, trace = self._held_bytes + 2 * answer.directions.nbytes, answer.trace
        if self.forgets and (self.uncounted or held > self.limit):
            return self._forget(answer)
        # One reply alone takes no less memory once it is merged.
        can_shrink = len(self.pending) > 1 or (self.pending and self.settled_basis.shape[1])
        if held > self.limit and can_shrink:
            return self.settled().answered(answer)
        if held > self.limit:
            count = self.uncounted + answer.directions.shape[1]
            return replace(self, uncounted=count, trace=trace)
        pending = (*self.pending, answer)
        return replace(self, pending=pending, trace=trace, spread=answer.whole_spread)

    def _forget(self, answer: RevealedProducts) -> "Meter":
        """Return the meter after a reply that exceeds its memory, with nothing held any longer."""
        known = sum(held.directions.shape[1] for held in (*self.pending, answer))
        return replace(
            self,
            settled_basis=np.zeros((self.d, 0)),
            settled_images=np.zeros((self.d, 0)),
            pending=(),
            uncounted=self.uncounted + known + self.settled_basis.shape[1],
            trace=answer.trace,
        )

    def _outside(self, units: Array) -> Array:
        """Project unit columns onto the complement of the basis, twice to remove rounding."""
        for _ in range(2):
            units = units - self.basis @ (self.basis.T @ units)
        return units

    def count_clip(self, bounds: str) -> "Meter":
        """Return the meter after a reply about entries that were clipped at a coordinator's bounds.

        Sums for many different bounds would tell where single entries are.

        Parameters
        ----------
        bounds : str
            Digest of the bounds; empty if nothing is clipped.

        Examples
        --------
        >>> Meter.empty(2).count_clip("one").count_clip("other").count_clip("one").clip_count
        2
        """
        if not bounds or bounds in self.clips.split():
            return self
        return replace(self, clips=f"{self.clips} {bounds}".strip())

    @property
    def clip_count(self) -> int:
        """At how many different bounds entries were clipped."""
        return len(self.clips.split())

    def count_reply(
        self, reveals: Reveals, answer: RevealedProducts | RevealedEntries | None
    ) -> "Meter":
        """Return the meter after a reply; replies with noise are charged to the ledger instead.

        Parameters
        ----------
        reveals : Reveals
            What the operation declares.
        answer : RevealedProducts, RevealedEntries or None
            Directions and images, required if the reply reveals directions; or how many entries.
        """
        match reveals:
            case Reveals.DIRECTIONS:
                if not isinstance(answer, RevealedProducts):
                    raise InputError("The operation declares directions but provides none.")
                return self.answered(answer)
            case Reveals.SCATTER:
                return replace(self, whole=True)
            case Reveals.ENTRIES:
                if not isinstance(answer, RevealedEntries):
                    raise InputError("The operation declares entries but provides none.")
                return replace(self, entries=self.entries + answer.number)
            case Reveals.GENOTYPES:
                return replace(self, diagonal=True, means=True)
            case Reveals.DIAGONAL:
                return replace(self, diagonal=True)
            case Reveals.MEANS:
                return replace(self, means=True)
            case Reveals.COUNTS | Reveals.BOUND | Reveals.RANGE:
                return replace(self, numbers=self.numbers + 1)
            case Reveals.REMAINDER:
                return replace(self, numbers=self.numbers + 1, remainders=self.remainders + 1)
            case Reveals.SIZE | Reveals.NOISE | Reveals.NOTHING:
                return self

    @cached_property
    def _reading(self) -> Reading | None:
        """What all replies have revealed, where that can be read without merging them."""
        is_merged = self.settled_basis.shape[1] or self.settled_faint or "_settled" in vars(self)
        is_large = self._held_bytes > _LARGE_BYTES
        return read_answers(self.pending) if is_large and not is_merged else None

    @property
    def _own_rank(self) -> int:
        if self._reading is not None:
            return self._reading.rank
        return int(self.basis.shape[1]) + self._settled[2]

    def settled(self) -> "Meter":
        """Return the same meter with all pending replies merged into the basis."""
        if not self.pending:
            return self
        basis, images, faint = self._settled
        return replace(
            self, settled_basis=basis, settled_images=images, settled_faint=faint, pending=()
        )

    def counted(self, directions: Array, scale: Array | None) -> Array:
        """Return directions without the components that the meter would fail to count.

        A component outside the basis that is too small to tell from rounding would not be counted,
        yet the difference of two images would reveal the scatter along it. Such components are
        removed, so that every direction that is answered is either counted or known already.

        Parameters
        ----------
        directions : ndarray of shape (d, l)
            As requested, for rows divided by `scale`.
        scale : ndarray of shape (d,) or None

        Returns
        -------
        ndarray of shape (d, l)
            The same array if there is nothing to remove.
        """
        is_orthogonal = self.whole or self._is_orthogonal(directions, scale)
        if self.whole or (is_orthogonal and scale is None):
            return directions
        units = directions if scale is None else directions / scale[:, None]
        lengths = np.sqrt(np.einsum("ij,ij->j", units, units))
        outside = units / lengths if is_orthogonal else self._outside(units / lengths)
        hidden = find_hidden(outside)
        if hidden is None:
            return directions
        hidden = hidden * lengths
        countable: Array = directions - (hidden if scale is None else hidden * scale[:, None])
        return countable

    def rank_with(self, directions: Array, scale: Array | None) -> float:
        """Return the rank fraction after a reply about directions (d, l) of scaled rows."""
        if self.whole:
            return 1.0
        units = directions if scale is None else directions / scale[:, None]
        lengths = np.sqrt(np.einsum("ij,ij->j", units, units))
        outside = self._outside(units / np.where(lengths > 0, lengths, 1.0))
        added = int(np.count_nonzero(np.linalg.svd(outside, compute_uv=False) > INDEPENDENT))
        return min(self.rank_fraction + added / self.size, 1.0)

    def _is_orthogonal(self, directions: Array, scale: Array | None) -> bool:
        """Return whether directions are orthogonal to all revealed ones; cheap, without a basis."""
        units = directions if scale is None else directions / scale[:, None]
        pending = (answer.in_rows_units()[0] for answer in self.pending)
        return all(are_orthogonal(known, units) for known in (self.settled_basis, *pending))

    @property
    def _held_bytes(self) -> int:
        return 2 * (self.settled_basis.nbytes + sum(a.directions.nbytes for a in self.pending))

    @cached_property
    def _settled(self) -> tuple[Array, Array, int]:
        """The basis with pending replies, its images, and the number of faint directions."""
        if not self.pending:
            return self.settled_basis, self.settled_images, self.settled_faint
        basis, images, faint = merge_answers(self.settled_basis, self.settled_images, self.pending)
        return basis, images, self.settled_faint + faint

    def to_bytes(self) -> bytes:
        """Serialise the meter, for the site's ledger."""
        scalars: dict[str, Scalar] = {
            "d": self.d,
            "trace": self.trace,
            "uncounted": self.uncounted,
            "diagonal": self.diagonal,
            "whole": self.whole,
            "means": self.means,
            "numbers": self.numbers,
            "settled_faint": self._settled[2],
        }
        scalars |= {name: getattr(self, name) for name in _OPTIONAL if getattr(self, name)}
        if self.preparation or self.other_rank or self.other_variance:
            scalars |= {
                "preparation": self.preparation,
                "width": self.width,
                "other_rank": self.other_rank,
                "other_variance": self.other_variance,
            }
        arrays = {"settled_basis": self.basis, "settled_images": self.images}
        if self.spread is not None:
            arrays["spread"] = self.spread
        return Container(_KIND, _VERSION, scalars, arrays).to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Meter":
        """Read the output of `to_bytes`."""
        container = Container.from_bytes(data, kind=_KIND, version=_VERSION)
        try:
            content: dict[str, Any] = dict(**container.scalars, **container.arrays)
            meter = cls(**content)
            valid = meter.basis.shape == meter.images.shape == (meter.d, meter.basis.shape[1])
            valid = valid and (meter.spread is None or meter.spread.shape == (meter.d,))
        except (AttributeError, IndexError, TypeError):
            valid = False
        if not valid:
            raise DataError("The data are not a valid leakage meter. Restore the site's own copy.")
        return meter
