"""Rows of norm 1 at most, as the papers' mechanisms want them, and what a run knows of them.

===========  ==================================================================================
coordinator  the mean of all rows, where it is wanted; of each site on its own: the numbers of
             rows and features, the largest norm where no public bound is given, and a key
site         that mean, and the bound
===========  ==================================================================================

The mean and the largest norm leave without noise, as in the papers' experiments (002 section 4
says so); a public bound and rows that are not centred avoid both. The key is 32 bytes of the
site's own randomness: what a coordinator draws follows from all keys, see `noise.keyed`.
"""

import hashlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from eigenfed.arrays import Array, Arrays
from eigenfed.data.source import Source
from eigenfed.errors import InputError, ProtocolError
from eigenfed.linalg.orthonormal import signed_rows
from eigenfed.privacy.published.noise import Bits, keyed
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.core import Ask, Protocol, Replies
from eigenfed.protocol.moments import all_moments
from eigenfed.protocol.ops import Answer, op
from eigenfed.protocol.result import Decomposition
from eigenfed.protocol.totals import plain_sum

_KEY_BYTES = 32


@op(Release("numbers of rows, largest norm, and a key", "7", Leaves.PUBLISHED, Reveals.BOUND))
def bounded_rows(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Return the numbers of rows and features, and a key.

    Where a mean is sent, the largest norm about it is wanted too.
    """
    _check(source)
    key = np.frombuffer(secrets.token_bytes(_KEY_BYTES), np.uint8)
    reply = {"size": np.array([source.n, source.d]), "key": key}
    if "mean" in payload:
        peaks = (
            np.sqrt(np.einsum("ij,ij->i", rows, rows).max(initial=0.0))
            for rows in (block - payload["mean"] for block, _ in source.blocks())
        )
        reply["peak"] = np.array([max(peaks, default=0.0)])
    return Answer(reply, state)


OPS = (bounded_rows,)


def bounded_blocks(source: Source, payload: Arrays) -> Iterator[Array]:
    """Yield blocks of rows less the mean, shortened to the bound and divided by it."""
    _check(source)
    bound = float(payload["bound"][0])
    for block, _ in source.blocks():
        around = block - payload["mean"]
        norms = np.sqrt(np.einsum("ij,ij->i", around, around))
        yield around / np.maximum(norms, bound)[:, None]


def bounded_moment(source: Source, payload: Arrays) -> Array:
    """Return the sum of x x' over a site's bounded rows, (d, d)."""
    total = np.zeros((source.d, source.d))
    for block in bounded_blocks(source, payload):
        total += block.T @ block
    return total


def _check(source: Source) -> None:
    if source.weights is not None:
        raise InputError("weights have no place in the papers' mechanisms. Leave them out.")
    if source.has_missing:
        raise InputError("X holds NaN and must be complete here. Drop or impute those entries.")


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
    def arrays(self) -> Arrays:
        """The mean and bound, as sites are sent them."""
        return {"mean": self.mean, "bound": np.array([self.bound])}

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


def bounded(clip: float | None, *, center: bool) -> Protocol[Bounded]:
    """Learn the mean and the bound, unless they are public, and the sites' numbers of rows.

    Parameters
    ----------
    clip : float or None
        The public bound; None takes the largest norm of all rows.
    center : bool
        Whether the mean of all rows is subtracted; it leaves the sites without noise.
    """
    mean = np.zeros(1)
    if center:
        mean = (yield from all_moments(plain_sum, center=True, scale=False)).mean
    replies = yield Ask("bounded_rows", {"mean": mean} if clip is None else {})
    rows, d = _sizes(replies)
    bound = clip if clip is not None else max(float(r["peak"][0]) for r in replies.values())
    if not bound > 0.0:
        raise ProtocolError("All rows are alike, so that there is no direction. Bring other rows.")
    keys = b"".join(replies[site]["key"].tobytes() for site in rows)
    mean = mean if center else np.zeros(d)
    return Bounded(rows, mean, float(bound), hashlib.sha256(keys).digest())


def _sizes(replies: Replies) -> tuple[dict[str, int], int]:
    rows = {site: int(replies[site]["size"][0]) for site in sorted(replies)}
    widths = {int(reply["size"][1]) for reply in replies.values()}
    if len(widths) != 1:
        raise ProtocolError("Sites have different numbers of features. Bring the same everywhere.")
    empty = [site for site, n in rows.items() if not n]
    if empty:
        raise ProtocolError(f"Site {empty[0]!r} has no rows. Run without it.")
    return rows, widths.pop()
