"""Rows of norm at most 1, which the papers' mechanisms assume, and what a run knows about them.

===========  ==================================================================================
coordinator  the mean of all rows, if they are centred; from each site alone: the numbers of rows
             and features, the largest norm if there is no public bound, and a key
site         that mean, and the bound
===========  ==================================================================================

The mean and the largest norm leave without noise, as in the papers' experiments ([Imtiaz2018]
section 4 says so); a public bound and rows that are not centred avoid both. The key is 32 bytes of
the site's own randomness: the coordinator derives its noise from all keys.
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
from eigenfed.linalg.orthonormal import flip_signs
from eigenfed.privacy.published_claims import Published
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.core import Call, Protocol, call_each, plain_sum
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.frame_checks import check_mean
from eigenfed.protocol.exact.moments import collect_moments
from eigenfed.protocol.messages import Bytes
from eigenfed.protocol.operations import LARGEST, Answer, Request, State, Terms, op
from eigenfed.protocol.published.continuous_noise import Bits, derive_bits
from eigenfed.protocol.study import Study

_KEY_BYTES = 32


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SizesReply:
    """Numbers of rows and features, a key, and the largest norm if there is no public bound."""

    n: int
    d: int
    key: Bytes
    peak: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SizesRequest(Request[SizesReply]):
    """Request the numbers of rows and features, and a key.

    Attributes
    ----------
    mean : ndarray of shape (d,), or None
        The mean about which the largest norm is taken, if there is no public bound and rows are
        centred.
    """

    mean: Array | None = None

    op, reply = "bounded_rows", SizesReply

    def check(self, terms: Terms, state: State) -> None:
        """Refuse a mean of another shape, or one that the study does not need."""
        if (self.mean is not None) != (_needs_peak(terms.study) and terms.study.center):
            raise InputError("The mean is sent only if the largest norm about it is needed.")
        if self.mean is not None:
            check_mean(terms, self.mean)


@op(Release("numbers of rows, largest norm, and a key", "7", Leaves.PUBLISHED, Reveals.BOUND))
def bounded_rows(
    source: Source, request: SizesRequest, state: State, terms: Terms
) -> Answer[SizesReply]:
    """Return the numbers of rows and features, a key, and the largest norm if it is needed."""
    key = np.frombuffer(secrets.token_bytes(_KEY_BYTES), np.uint8)
    peak = None
    if _needs_peak(terms.study):
        mean = np.zeros(source.d) if request.mean is None else request.mean
        peaks = (
            np.sqrt(np.einsum("ij,ij->i", rows, rows).max(initial=0.0))
            for rows in (block - mean for block in _fill_missing(source, mean))
        )
        peak = float(max(peaks, default=0.0))
    return Answer(SizesReply(n=source.n, d=source.d, key=key, peak=peak), state)


OPS = (bounded_rows,)


def _needs_peak(study: Study) -> bool:
    return get_published(study).clip is None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BoundedRequest(Request[Any]):
    """Base of requests about centred rows, clipped to a norm and divided by it.

    Attributes
    ----------
    mean : ndarray of shape (d,)
    bound : float
    """

    mean: Array
    bound: float

    def check(self, terms: Terms, state: State) -> None:
        """Refuse a mean of another shape, and a bound other than the study's."""
        check_mean(terms, self.mean)
        clip = get_published(terms.study).clip
        if not 0.0 < self.bound < LARGEST or (clip is not None and self.bound != clip):
            raise InputError("bound must be above 0, and the study's if it has one.")


def get_published(study: Study) -> Published:
    """Return the published mechanism of a study."""
    if not isinstance(study.privacy, Published):
        raise InputError("The study has no published mechanism.")
    return study.privacy


def iterate_bounded_blocks(source: Source, mean: Array, bound: float) -> Iterator[Array]:
    """Yield blocks of centred rows, clipped to the bound and divided by it."""
    for block in _fill_missing(source, mean):
        centred = block - mean
        norms = np.sqrt(np.einsum("ij,ij->i", centred, centred))
        yield centred / np.maximum(norms, bound)[:, None]


def compute_bounded_moment(source: Source, mean: Array, bound: float) -> Array:
    """Compute the sum of x x' over a site's bounded rows, (d, d)."""
    total = np.zeros((source.d, source.d))
    for block in iterate_bounded_blocks(source, mean, bound):
        total += block.T @ block
    return total


def _fill_missing(source: Source, mean: Array) -> Iterator[Array]:
    """Yield blocks of rows, with the mean where an entry is missing."""
    for block, _ in source.blocks():
        yield np.where(np.isnan(block), mean, block) if source.has_missing else block


@dataclass(frozen=True, eq=False)
class Bounded:
    """What the coordinator knows before a mechanism begins.

    Attributes
    ----------
    rows : dict of str to int
        Number of rows of each site, in sorted order.
    mean : ndarray of shape (d,)
        The mean subtracted; zeros if rows are not centred.
    bound : float
        Norm to which rows are clipped and by which they are divided.
    key : bytes
        Derived from all sites' keys.
    """

    rows: dict[str, int]
    mean: Array
    bound: float
    key: bytes

    @property
    def n(self) -> int:
        """Total number of rows."""
        return sum(self.rows.values())

    @property
    def d(self) -> int:
        """Number of features."""
        return len(self.mean)

    @property
    def fields(self) -> dict[str, Any]:
        """The mean and bound, as fields of a `BoundedRequest`."""
        return {"mean": self.mean, "bound": self.bound}

    def bits(self) -> Bits:
        """Return the random source of the coordinator's noise, at its beginning."""
        return derive_bits(self.key)

    def decomposition(
        self, basis: Array, values: Array, *, total: float, products: int
    ) -> Decomposition:
        """Return a decomposition in the units of the original rows.

        Parameters
        ----------
        basis : ndarray of shape (d, k)
            Orthonormal columns.
        values : ndarray of shape (k,)
            Second moments of the bounded rows along them, largest first.
        total : float
            Total second moment of the bounded rows; NaN if the run does not know it.
        products : int
            Rounds in which sites sent matrices.
        """
        unit = self.bound**2 * self.n / max(self.n - 1, 1)
        return Decomposition(
            flip_signs(basis.T),
            np.maximum(values, 0.0) * unit,
            self.mean,
            np.ones(self.d),
            float(self.n),
            total * unit,
            products,
        )


def collect_bounds(study: Study) -> Protocol[Bounded]:
    """Collect the mean and the bound, unless they are public, and the sites' numbers of rows."""
    mean, clip = np.zeros(1), get_published(study).clip
    if study.center:
        mean = (yield from collect_moments(plain_sum, study)).mean
    sent = mean if clip is None and study.center else None
    replies = yield from call_each(Call(SizesRequest(mean=sent)))
    rows, d = _check_sizes(replies)
    bound = clip if clip is not None else max(reply.peak or 0.0 for reply in replies.values())
    if not bound > 0.0:
        raise ProtocolError("All rows are equal, so there is no direction. Use other rows.")
    keys = b"".join(replies[site].key.tobytes() for site in rows)
    mean = mean if study.center else np.zeros(d)
    return Bounded(rows, mean, float(bound), hashlib.sha256(keys).digest())


def _check_sizes(replies: dict[str, SizesReply]) -> tuple[dict[str, int], int]:
    rows = {site: replies[site].n for site in sorted(replies)}
    widths = {reply.d for reply in replies.values()}
    if len(widths) != 1:
        raise ProtocolError("Sites have different numbers of features. Use the same everywhere.")
    empty = [site for site, n in rows.items() if not n]
    if empty:
        raise ProtocolError(f"Site {empty[0]!r} has no rows. Run without it.")
    return rows, widths.pop()
