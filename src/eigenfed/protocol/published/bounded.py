"""Rows of norm 1 at most, as the papers' mechanisms want them, and what a run knows of them.

===========  ==================================================================================
coordinator  the mean of all rows, where it is wanted; of each site on its own: the numbers of
             rows and features, the largest norm where no public bound is given, and a key
site         that mean, and the bound
===========  ==================================================================================

The mean and the largest norm leave without noise, as in the papers' experiments ([Imtiaz2018]
section 4 says so); a public bound and rows that are not centred avoid both. The key is 32 bytes of
the site's own randomness: what a coordinator draws follows from all keys, see `noise.keyed`.
"""

import hashlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.errors import InputError, ProtocolError
from eigenfed.linalg.orthonormal import signed_rows
from eigenfed.privacy.published_claims import Published
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.core import Call, Protocol, call_each, plain_sum
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.moments import all_moments, check_mean
from eigenfed.protocol.messages import Bytes
from eigenfed.protocol.operations import LARGEST, Answer, Request, State, Terms, op
from eigenfed.protocol.published.continuous_noise import Bits, keyed
from eigenfed.protocol.study import Study

_KEY_BYTES = 32


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SizesReply:
    """Numbers of rows and features, a key, and the largest norm where it is wanted."""

    n: int
    d: int
    key: Bytes
    peak: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SizesRequest(Request[SizesReply]):
    """Ask for the numbers of rows and features, and for a key.

    Attributes
    ----------
    mean : ndarray of shape (d,), or None
        Where no public bound is given and rows are centred: about what the largest norm is wanted.
    """

    mean: Array | None = None

    op, reply = "bounded_rows", SizesReply

    def check(self, terms: Terms, state: State) -> None:
        """Refuse a mean of another shape, or one where the study needs none."""
        if (self.mean is not None) != (_wants_peak(terms.study) and terms.study.center):
            raise InputError("The mean is sent where the largest norm about it is wanted.")
        if self.mean is not None:
            check_mean(terms, self.mean)


@op(Release("numbers of rows, largest norm, and a key", "7", Leaves.PUBLISHED, Reveals.BOUND))
def bounded_rows(
    source: Source, request: SizesRequest, state: State, terms: Terms
) -> Answer[SizesReply]:
    """Return the numbers of rows and features, and a key.

    Where the study has no public bound, the largest norm is wanted too.
    """
    key = np.frombuffer(secrets.token_bytes(_KEY_BYTES), np.uint8)
    peak = None
    if _wants_peak(terms.study):
        mean = np.zeros(source.d) if request.mean is None else request.mean
        peaks = (
            np.sqrt(np.einsum("ij,ij->i", rows, rows).max(initial=0.0))
            for rows in (block - mean for block in _filled(source, mean))
        )
        peak = float(max(peaks, default=0.0))
    return Answer(SizesReply(n=source.n, d=source.d, key=key, peak=peak), state)


OPS = (bounded_rows,)


def _wants_peak(study: Study) -> bool:
    return published_value(study).clip is None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BoundedRequest(Request[Any]):
    """A request about rows less a mean, shortened to a bound and divided by it.

    Attributes
    ----------
    mean : ndarray of shape (d,)
    bound : float
    """

    mean: Array
    bound: float

    def check(self, terms: Terms, state: State) -> None:
        """Refuse a mean of another shape, and a bound that is not the study's."""
        check_mean(terms, self.mean)
        clip = published_value(terms.study).clip
        if not 0.0 < self.bound < LARGEST or (clip is not None and self.bound != clip):
            raise InputError("bound must be above 0, and the study's where that has one.")


def published_value(study: Study) -> Published:
    """Return the published mechanism of a study."""
    if not isinstance(study.privacy, Published):
        raise InputError("The study has no published mechanism.")
    return study.privacy


def bounded_blocks(source: Source, mean: Array, bound: float) -> Iterator[Array]:
    """Yield blocks of rows less the mean, shortened to the bound and divided by it."""
    for block in _filled(source, mean):
        around = block - mean
        norms = np.sqrt(np.einsum("ij,ij->i", around, around))
        yield around / np.maximum(norms, bound)[:, None]


def bounded_moment(source: Source, mean: Array, bound: float) -> Array:
    """Return the sum of x x' over a site's bounded rows, (d, d)."""
    total = np.zeros((source.d, source.d))
    for block in bounded_blocks(source, mean, bound):
        total += block.T @ block
    return total


def _filled(source: Source, mean: Array) -> Iterator[Array]:
    """Yield blocks of rows, with the mean where an entry is missing."""
    for block, _ in source.blocks():
        yield np.where(np.isnan(block), mean, block) if source.has_missing else block


@dataclass(frozen=True, eq=False)
class Bounded:
    """What a coordinator knows before a mechanism begins.

    Attributes
    ----------
    rows : dict of str to int
        Number of rows of each site, in sorted order.
    mean : ndarray of shape (d,)
        What is subtracted; zeros where rows are not centred.
    bound : float
        Norm to which rows are shortened and by which they are divided.
    key : bytes
        Of all sites' keys.
    """

    rows: dict[str, int]
    mean: Array
    bound: float
    key: bytes

    @property
    def n(self) -> int:
        """Number of all rows."""
        return sum(self.rows.values())

    @property
    def d(self) -> int:
        """Number of features."""
        return len(self.mean)

    @property
    def fields(self) -> dict[str, Any]:
        """The mean and bound, as sites are sent them."""
        return {"mean": self.mean, "bound": self.bound}

    def bits(self) -> Bits:
        """Return the source of the coordinator's noise, from its beginning."""
        return keyed(self.key)

    def decomposition(
        self, basis: Array, values: Array, *, total: float, products: int
    ) -> Decomposition:
        """Return components in the rows' own units.

        Parameters
        ----------
        basis : ndarray of shape (d, k)
            Orthonormal columns.
        values : ndarray of shape (k,)
            Second moments of bounded rows along them, by falling size.
        total : float
            Their second moment in all; NaN where the run does not tell it.
        products : int
            Rounds in which matrices came from sites.
        """
        unit = self.bound**2 * self.n / max(self.n - 1, 1)
        return Decomposition(
            signed_rows(basis.T),
            np.maximum(values, 0.0) * unit,
            self.mean,
            np.ones(self.d),
            float(self.n),
            total * unit,
            products,
        )


def bounded(study: Study) -> Protocol[Bounded]:
    """Learn the mean and the bound, unless they are public, and the sites' numbers of rows."""
    mean, clip = np.zeros(1), published_value(study).clip
    if study.center:
        mean = (yield from all_moments(plain_sum, study)).mean
    wanted = mean if clip is None and study.center else None
    replies = yield from call_each(Call(SizesRequest(mean=wanted)))
    rows, d = _sizes(replies)
    bound = clip if clip is not None else max(reply.peak or 0.0 for reply in replies.values())
    if not bound > 0.0:
        raise ProtocolError("All rows are alike, so that there is no direction. Bring other rows.")
    keys = b"".join(replies[site].key.tobytes() for site in rows)
    mean = mean if study.center else np.zeros(d)
    return Bounded(rows, mean, float(bound), hashlib.sha256(keys).digest())


def _sizes(replies: dict[str, SizesReply]) -> tuple[dict[str, int], int]:
    rows = {site: replies[site].n for site in sorted(replies)}
    widths = {reply.d for reply in replies.values()}
    if len(widths) != 1:
        raise ProtocolError("Sites have different numbers of features. Bring the same everywhere.")
    empty = [site for site, n in rows.items() if not n]
    if empty:
        raise ProtocolError(f"Site {empty[0]!r} has no rows. Run without it.")
    return rows, widths.pop()
