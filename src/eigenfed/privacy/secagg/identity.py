"""Identities: each site's Ed25519 signing key, and the roster of public keys that every site pins.

The roster is agreed on outside the protocol, as certificates are: whoever can change it can add
sites of their own, and so defeat secure aggregation.
"""

from collections.abc import Mapping
from functools import cached_property, lru_cache
from hashlib import sha256

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from eigenfed.errors import InputError
from eigenfed.privacy.secagg.masking import context, derive_key

LEAST_SITES = 3
"""Least number of sites in a secure aggregation: of two, each could compute the other's term."""

SIGNATURE_BYTES = 64


class Identity:
    """The signing key of one site, which never leaves it.

    Examples
    --------
    >>> mine = Identity.generate()
    >>> Identity.from_bytes(mine.to_bytes()).public == mine.public
    True
    """

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    @classmethod
    def generate(cls) -> "Identity":
        """Generate a key from the operating system's random generator."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_bytes(cls, data: bytes) -> "Identity":
        """Read the 32 bytes of `to_bytes`."""
        if len(data) != 32:
            raise InputError(f"The key has {len(data)} bytes and must have 32. Pass a full key.")
        return cls(Ed25519PrivateKey.from_private_bytes(data))

    def to_bytes(self) -> bytes:
        """Return the private key: whoever has it can impersonate the site."""
        return self._key.private_bytes_raw()

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes, for the roster."""
        return self._key.public_key().public_bytes_raw()

    def sign(self, statement: bytes) -> bytes:
        """Return the signature of a statement, 64 bytes; it is deterministic."""
        return self._key.sign(statement)

    def derive_secret(self, purpose: bytes) -> bytes:
        """Derive 32 secret bytes for one purpose, which is never signed for anybody."""
        return derive_key(self.sign(purpose), purpose)


@lru_cache(maxsize=16)
def is_signed(public: bytes, statement: bytes, signature: bytes) -> bool:
    """Return whether the owner of a public key has signed a statement.

    Cached, since in one process all sites of a run verify the same opening.

    Examples
    --------
    >>> mine = Identity.generate()
    >>> is_signed(mine.public, b"yes", mine.sign(b"yes")), is_signed(mine.public, b"yes", bytes(64))
    (True, False)
    """
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, statement)
    except (InvalidSignature, ValueError):
        return False
    return True


class Roster:
    """The sites of a secure aggregation with their public keys, sorted by name.

    Parameters
    ----------
    keys : mapping of str to bytes
        Public Ed25519 key of each site; at least three sites.

    Attributes
    ----------
    sites : tuple of str
    digest : bytes
        SHA-256 of names and keys: sites with the same digest have the same roster.
    threshold : int
        Least number of sites that must complete the aggregation: more than two thirds of all, so
        that any two such groups have more than a third of the sites in common.

    Examples
    --------
    >>> identities = {name: Identity.generate() for name in ("a", "b", "c", "d")}
    >>> roster = Roster.of(identities)
    >>> roster.sites, roster.threshold, roster.place("c")
    (('a', 'b', 'c', 'd'), 3, 2)
    >>> roster.signed("a", b"yes", identities["b"].sign(b"yes"))
    False
    """

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        if len(keys) < LEAST_SITES:
            raise InputError(
                f"The roster has {len(keys)} sites and secure aggregation needs at least "
                f"{LEAST_SITES}: of two, each could compute the other's term. Add more sites."
            )
        if len(set(keys.values())) < len(keys):
            raise InputError("Two sites of the roster have the same key. Generate one for each.")
        self._keys = {name: _public(name, keys[name]) for name in sorted(keys)}
        self._bytes = {name: keys[name] for name in self._keys}
        self.sites = tuple(self._keys)
        self._places = {name: i for i, name in enumerate(self.sites)}
        self.digest = sha256(
            context("roster", *(part for item in self._bytes.items() for part in item))
        ).digest()

    @classmethod
    def of(cls, identities: Mapping[str, Identity]) -> "Roster":
        """Return the roster of identities that are all in this process."""
        return cls({name: identity.public for name, identity in identities.items()})

    @property
    def keys(self) -> dict[str, bytes]:
        """Public key of each site."""
        return dict(self._bytes)

    @cached_property
    def threshold(self) -> int:
        """Least number of sites that must complete the aggregation."""
        return 2 * len(self.sites) // 3 + 1

    def __len__(self) -> int:
        return len(self.sites)

    def place(self, site: str) -> int:
        """Return the index of a site in the roster, from 0."""
        return self._places[site]

    def signed(self, site: str, statement: bytes, signature: bytes) -> bool:
        """Return whether a site has signed a statement."""
        try:
            self._keys[site].verify(signature, statement)
        except InvalidSignature:
            return False
        return True


def _public(name: str, key: bytes) -> Ed25519PublicKey:
    try:
        return Ed25519PublicKey.from_public_bytes(key)
    except ValueError:
        raise InputError(
            f"The key of site {name!r} is not a public Ed25519 key of 32 bytes. Get it from the "
            "site."
        ) from None
