"""Wire format of secure aggregation: messages, byte layouts, and the contexts of keys.

Shared by the coordinator's half (`aggregation`) and the site's half (`participant`). A set of sites
is sent as one byte per site of the roster, in its order. Every signed statement and every context
of a key begins with the run and the digest of the roster (`Purpose`), so that nothing signed or
derived in one run can be used in another.
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
"""Number of zeros masked with each reply: after unmasking, other values show leftover masks."""
MOST_AHEAD = 64
LAST_SUM = 1 << 16


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Envelope:
    """What accompanies a request whose reply goes into a secure aggregation.

    Attributes
    ----------
    number : int
        Number of the sum in the run.
    present : ndarray of uint8
        The sites that have shared keys for it.
    shares : ndarray of uint8, or None
        The secret shares they sealed for this site; sent once for each batch of keys.
    """

    number: int
    present: Bytes
    shares: Bytes | None = None

    def to_arrays(self) -> Arrays:
        """Return its fields as arrays, with a prefix that sets them apart from the request's."""
        return {PREFIX + name: array for name, array in pack(self).items()}

    def digest(self, op: str, payload: Arrays, bounds: Mapping[str, Bound] | None) -> bytes:
        """Return the digest of the request that all sites must have received, and of its bounds.

        It is part of every mask: the masks of sites that received different requests, or derived
        different bounds, do not cancel.
        """
        common = {"number": np.array([self.number]), "present": self.present}
        derived = {} if bounds is None else {f"bound.{n}": _as_array(b) for n, b in bounds.items()}
        named = dict(sorted({**payload, **common, **derived}.items()))
        return sha256(Container("asked", 2, {"op": op}, named).to_bytes()).digest()


def _as_array(bound: Bound) -> npt.NDArray[Any]:
    return bound if isinstance(bound, np.ndarray) else np.array([float(bound)])


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class KeysReply:
    """Public keys of a site, and its signature of them."""

    keys: Bytes
    signature: Bytes


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class KeysRequest(Request[KeysReply]):
    """Request to make keys for `count` sums, from number `first` on."""

    first: int
    count: int

    op, reply = "sum_keys", KeysReply


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SharesReply:
    """Secret shares, one row per site."""

    shares: Bytes


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SharesRequest(Request[SharesReply]):
    """Request to seal secret shares for the sites whose signed keys are shown."""

    present: Bytes
    keys: Bytes
    signatures: Bytes

    op, reply = "sum_shares", SharesReply


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SurvivorsReply:
    """Digest of the request that a site has answered, and its signature of the survivors."""

    asked: Bytes
    signature: Bytes


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SurvivorsRequest(Request[SurvivorsReply]):
    """Request to sign which sites are in a sum."""

    number: int
    survivors: Bytes

    op, reply = "sum_survivors", SurvivorsReply


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class UnmaskRequest(Request[SharesReply]):
    """Request for the secret shares that open a sum, with the signatures of its survivors."""

    number: int
    survivors: Bytes
    signers: Bytes
    signatures: Bytes

    op, reply = "sum_unmask", SharesReply


@dataclass(frozen=True)
class Purpose:
    """Contexts that bind keys, masks and signatures to one run, roster and purpose.

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
        """Return the statement that a site signs with its keys for the sums from `first` on."""
        return self._of("keys", site, first, keys)

    def share(self, owner: str, holder: str, first: int) -> bytes:
        """Return the context of the seal on an owner's secret shares for one holder."""
        return self._of("share", owner, holder, first)

    def pair(self, number: int, digest: bytes, one: str, other: str) -> bytes:
        """Return the context of the mask of two sites, for one sum of one request."""
        return self._of("pair", number, digest, *sorted((one, other)))

    def own(self, number: int, digest: bytes, site: str) -> bytes:
        """Return the context of a site's own mask, for one sum of one request."""
        return self._of("own", number, digest, site)

    def survivors(self, number: int, digest: bytes, survivors: frozenset[str]) -> bytes:
        """Return the statement by which sites sign who is in a sum."""
        return self._of("survivors", number, digest, bytes(encode_sites(survivors, self.roster)))


@dataclass(frozen=True)
class PublicKeys:
    """Public part of a site's keys for a batch of sums.

    Attributes
    ----------
    channel : bytes
        Public key for sealing secret shares.
    masks : tuple of bytes
        Public keys for the pairwise masks, one per sum.
    seals : tuple of bytes
        Digests of the seeds of the site's own masks, one per sum.
    """

    channel: bytes
    masks: tuple[bytes, ...]
    seals: tuple[bytes, ...]

    def to_bytes(self) -> bytes:
        """Return the concatenated keys."""
        return b"".join((self.channel, *self.masks, *self.seals))

    @classmethod
    def from_bytes(cls, data: bytes, count: int) -> "PublicKeys":
        """Read the keys of `count` sums, in `keys_bytes` bytes."""
        parts = [data[i : i + KEY_BYTES] for i in range(0, len(data), KEY_BYTES)]
        return cls(parts[0], tuple(parts[1 : count + 1]), tuple(parts[count + 1 :]))


def keys_bytes(count: int) -> int:
    """Return the length of a site's public keys for `count` sums."""
    return KEY_BYTES * (2 * count + 1)


def sealed_bytes(count: int) -> int:
    """Return the length of one owner's sealed shares for one holder and `count` sums."""
    return 2 * SHARE_BYTES * count + TAG_BYTES


def seed_digest(seed: bytes) -> bytes:
    """Return the digest with which a seed that was recovered from shares is verified."""
    return sha256(context("seed", seed)).digest()


def split_message(arrays: Arrays) -> tuple[Arrays, Envelope | None]:
    """Split the arrays of a message into the request's fields and the envelope, if any.

    Raises
    ------
    DataError
        If the envelope is malformed.
    """
    inner = {n.removeprefix(PREFIX): a for n, a in arrays.items() if n.startswith(PREFIX)}
    payload = {name: array for name, array in arrays.items() if not name.startswith(PREFIX)}
    return payload, unpack(Envelope, inner) if inner else None


def encode_sites(sites: Iterable[str], roster: Roster) -> Bytes:
    """Encode a set of sites, one byte per site of the roster."""
    chosen = set(sites)
    return np.array([name in chosen for name in roster.sites], dtype=np.uint8)


def decode_sites(flags: npt.NDArray[Any], roster: Roster) -> tuple[str, ...]:
    """Decode a set of sites, in the roster's order."""
    if flags.shape != (len(roster),) or not np.isin(flags, (0, 1)).all():
        raise DataError("A list of sites is malformed. Use one release of eigenfed.")
    return tuple(name for name, flag in zip(roster.sites, flags, strict=True) if flag)


def read_rows(array: npt.NDArray[Any], count: int, size: int) -> list[bytes]:
    """Return the rows of an array of `count` rows of `size` bytes."""
    if array.dtype != np.uint8 or array.shape != (count, size):
        raise DataError("An array of bytes is malformed. Use one release of eigenfed.")
    return [row.tobytes() for row in array]


def stack_rows(parts: Sequence[bytes]) -> Bytes:
    """Return byte strings of equal length as the rows of an array."""
    return np.frombuffer(b"".join(parts), np.uint8).reshape(len(parts), -1)


def masked_fields(fields: Mapping[str, npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """Return the arrays of a masked reply, in the order in which a mask is added to them."""
    return [fields[name] for name in sorted(fields) if name not in (PLACE, CHECK)] + [fields[CHECK]]


def as_bytes_array(data: bytes) -> Bytes:
    """Return bytes as an array."""
    return np.frombuffer(data, np.uint8)


def mask_sign(site: str, other: str) -> int:
    """Return 1 if `site` adds its mask with `other`, and -1 if it subtracts it."""
    return 1 if site < other else -1
