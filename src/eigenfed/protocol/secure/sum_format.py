"""What both halves of a secure sum agree on: names of fields, layouts of bytes, signed statements.

Sets of sites travel as one byte for each site of the roster, in its order. Whatever is signed, or
goes into a key, begins with the run and the roster's digest.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Arrays, Container
from eigenfed.errors import DataError
from eigenfed.privacy.secagg.fixed_point import Bound
from eigenfed.privacy.secagg.identity import Roster
from eigenfed.privacy.secagg.masking import KEY_BYTES, TAG_BYTES, context
from eigenfed.privacy.secagg.shamir import SHARE_BYTES
from eigenfed.protocol.messages import Bytes, pack, unpack
from eigenfed.protocol.operations import Request

PREFIX = "secure."
PLACE, CHECK = "secure.place", "secure.check"
CHECK_WORDS = 4
"""Zeros that are masked with the rest: what is left of them tells masks that do not cancel."""
MOST_AHEAD = 64
LAST_SUM = 1 << 16


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Envelope:
    """What comes with a request whose reply goes into a secure sum.

    Attributes
    ----------
    number : int
        Of the sum.
    present : ndarray of uint8
        The sites that have shared keys for it.
    shares : ndarray of uint8, or None
        What they have sealed for this site, once for each set of keys.
    """

    number: int
    present: Bytes
    shares: Bytes | None = None

    def to_arrays(self) -> Arrays:
        """Write it beside the fields of a request."""
        return {PREFIX + name: array for name, array in pack(self).items()}

    def digest(self, op: str, payload: Arrays, bounds: Mapping[str, Bound] | None) -> bytes:
        """Return the digest of all that is asked of every site alike, and of what follows from it.

        It is in every mask: sites that were asked different things, or that derive different
        bounds, have masks that do not cancel.
        """
        alike = {"number": np.array([self.number]), "present": self.present}
        derived = {} if bounds is None else {f"bound.{n}": _listed(b) for n, b in bounds.items()}
        named = dict(sorted({**payload, **alike, **derived}.items()))
        return sha256(Container("asked", 2, {"op": op}, named).to_bytes()).digest()


def _listed(bound: Bound) -> npt.NDArray[Any]:
    return bound if isinstance(bound, np.ndarray) else np.array([float(bound)])


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class KeysReply:
    """Public keys of a site, signed."""

    keys: Bytes
    signature: Bytes


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class KeysRequest(Request[KeysReply]):
    """Have a site make keys for the sums from `first` on."""

    first: int
    count: int

    op, reply = "sum_keys", KeysReply


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SharesReply:
    """Shares, a row for each site."""

    shares: Bytes


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SharesRequest(Request[SharesReply]):
    """Show a site the others' keys, and have it seal shares of its secrets for them."""

    present: Bytes
    keys: Bytes
    signatures: Bytes

    op, reply = "sum_shares", SharesReply


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SurvivorsReply:
    """A site's word on what it was asked, and its signature of who is in the sum."""

    asked: Bytes
    signature: Bytes


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SurvivorsRequest(Request[SurvivorsReply]):
    """Have a site sign who is in a sum."""

    number: int
    survivors: Bytes

    op, reply = "sum_survivors", SurvivorsReply


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class UnmaskRequest(Request[SharesReply]):
    """Show a site who has signed, and ask for what opens the sum."""

    number: int
    survivors: Bytes
    signers: Bytes
    signatures: Bytes

    op, reply = "sum_unmask", SharesReply


@dataclass(frozen=True)
class Purpose:
    """What keys, masks and signatures of one run are bound to.

    Attributes
    ----------
    run : str
    roster : Roster
    """

    run: str
    roster: Roster

    def _of(self, what: str, *parts: str | bytes | int) -> bytes:
        return context(what, self.run, self.roster.digest, *parts)

    def keys(self, site: str, first: int, keys: bytes) -> bytes:
        """Say what a site signs when it makes keys for the sums from `first` on."""
        return self._of("keys", site, first, keys)

    def share(self, owner: str, holder: str, first: int) -> bytes:
        """Say what seals an owner's shares for one holder."""
        return self._of("share", owner, holder, first)

    def pair(self, number: int, asked: bytes, one: str, other: str) -> bytes:
        """Say what the mask of two sites is for, in one sum of one ask."""
        return self._of("pair", number, asked, *sorted((one, other)))

    def own(self, number: int, asked: bytes, site: str) -> bytes:
        """Say what a site's own mask is for, in one sum of one ask."""
        return self._of("own", number, asked, site)

    def survivors(self, number: int, asked: bytes, survivors: frozenset[str]) -> bytes:
        """Say what sites sign once they are told who is in the sum."""
        return self._of("survivors", number, asked, bytes(written(survivors, self.roster)))


@dataclass(frozen=True)
class PublicKeys:
    """What a site shows of its keys for some sums.

    Attributes
    ----------
    channel : bytes
        For sealing shares.
    masks : tuple of bytes
        One for each sum.
    seals : tuple of bytes
        Digests of the seeds of its own masks, one for each sum.
    """

    channel: bytes
    masks: tuple[bytes, ...]
    seals: tuple[bytes, ...]

    def to_bytes(self) -> bytes:
        """Write them one after the other."""
        return b"".join((self.channel, *self.masks, *self.seals))

    @classmethod
    def from_bytes(cls, data: bytes, count: int) -> "PublicKeys":
        """Read the keys of `count` sums, in `keys_bytes` bytes."""
        parts = [data[i : i + KEY_BYTES] for i in range(0, len(data), KEY_BYTES)]
        return cls(parts[0], tuple(parts[1 : count + 1]), tuple(parts[count + 1 :]))


def keys_bytes(count: int) -> int:
    """Return the length of a site's public keys for so many sums."""
    return KEY_BYTES * (2 * count + 1)


def sealed_bytes(count: int) -> int:
    """Return the length of one owner's sealed shares for one holder and so many sums."""
    return 2 * SHARE_BYTES * count + TAG_BYTES


def seal_of(seed: bytes) -> bytes:
    """Return the digest by which a seed is known to be right when it is brought back."""
    return sha256(context("seed", seed)).digest()


def parted(arrays: Arrays) -> tuple[Arrays, Envelope | None]:
    """Split a message into what its operation sees and what the secure sum needs.

    Raises
    ------
    DataError
        If the envelope is malformed.
    """
    inner = {n.removeprefix(PREFIX): a for n, a in arrays.items() if n.startswith(PREFIX)}
    payload = {name: array for name, array in arrays.items() if not name.startswith(PREFIX)}
    return payload, unpack(Envelope, inner) if inner else None


def written(sites: Iterable[str], roster: Roster) -> Bytes:
    """Write a set of sites, one byte for each of the roster."""
    chosen = set(sites)
    return np.array([name in chosen for name in roster.sites], dtype=np.uint8)


def read(flags: npt.NDArray[Any], roster: Roster) -> tuple[str, ...]:
    """Read a set of sites, in the roster's order."""
    if flags.shape != (len(roster),) or not np.isin(flags, (0, 1)).all():
        raise DataError("A list of sites is malformed. Use one release of eigenfed.")
    return tuple(name for name, flag in zip(roster.sites, flags, strict=True) if flag)


def rows_of(array: npt.NDArray[Any], count: int, size: int) -> list[bytes]:
    """Read an array of `count` rows of `size` bytes."""
    if array.dtype != np.uint8 or array.shape != (count, size):
        raise DataError("An array of bytes is malformed. Use one release of eigenfed.")
    return [row.tobytes() for row in array]


def as_rows(parts: Sequence[bytes]) -> Bytes:
    """Write parts of equal length as the rows of an array."""
    return np.frombuffer(b"".join(parts), np.uint8).reshape(len(parts), -1)


def masked_fields(fields: Mapping[str, npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """Return the arrays of a masked reply in the order in which a stream runs through them."""
    return [fields[name] for name in sorted(fields) if name not in (PLACE, CHECK)] + [fields[CHECK]]


def flat(data: bytes) -> Bytes:
    """Write bytes as an array."""
    return np.frombuffer(data, np.uint8)


def sign(site: str, other: str) -> int:
    """Return which of two sites adds their mask, and which takes it away."""
    return 1 if site < other else -1
