"""Who is who: each site's signing key, and the list of them that every site has pinned.

Keys are Ed25519. A roster is agreed on outside of the protocol, as certificates are: whoever may
change it may add sites that are its own.
"""

from collections.abc import Mapping
from functools import cached_property
from hashlib import sha256

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

from eigenfed.errors import InputError
from eigenfed.privacy.secagg.masking import context

LEAST_SITES = 3
"""In a sum over two sites each knows the other's part."""

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
        """Draw a key from the operating system's randomness."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_bytes(cls, data: bytes) -> "Identity":
        """Take the 32 bytes of `to_bytes`."""
        if len(data) != 32:
            raise InputError(f"The key has {len(data)} bytes and must have 32. Pass a whole key.")
        return cls(Ed25519PrivateKey.from_private_bytes(data))

    def to_bytes(self) -> bytes:
        """Return the private key: whoever has it can play the site."""
        return self._key.private_bytes_raw()

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes, for the roster."""
        return self._key.public_key().public_bytes_raw()

    def sign(self, statement: bytes) -> bytes:
        """Return the signature of a statement, 64 bytes; the same one every time."""
        return self._key.sign(statement)


def is_signed(public: bytes, statement: bytes, signature: bytes) -> bool:
    """Tell whether the owner of a public key has signed a statement.

    Examples
    --------
    >>> mine = Identity.generate()
    >>> is_signed(mine.public, b"so", mine.sign(b"so")), is_signed(mine.public, b"so", bytes(64))
    (True, False)
    """
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, statement)
    except (InvalidSignature, ValueError):
        return False
    return True


class Roster:
    """The sites that sum together, with their public keys, in sorted order of names.

    Parameters
    ----------
    keys : mapping of str to bytes
        Public Ed25519 key of each site; three sites at least.

    Attributes
    ----------
    sites : tuple of str
    digest : bytes
        SHA-256 of names and keys: sites that name the same digest have the same roster.
    threshold : int
        How many sites must be there to the end: more than two thirds of all, so that any two such
        groups share more than a third.

    Examples
    --------
    >>> identities = {name: Identity.generate() for name in ("a", "b", "c", "d")}
    >>> roster = Roster.of(identities)
    >>> roster.sites, roster.threshold, roster.place("c")
    (('a', 'b', 'c', 'd'), 3, 2)
    >>> roster.signed("a", b"so", identities["b"].sign(b"so"))
    False
    """

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        if len(keys) < LEAST_SITES:
            raise InputError(
                f"The roster has {len(keys)} sites and secure sums need {LEAST_SITES} at least: "
                "of two, each could tell the other's part. Bring more sites."
            )
        if len(set(keys.values())) < len(keys):
            raise InputError("Two sites of the roster have one key. Let every site make its own.")
        self._keys = {name: _public(name, keys[name]) for name in sorted(keys)}
        self._bytes = {name: keys[name] for name in self._keys}
        self.sites = tuple(self._keys)
        self._places = {name: i for i, name in enumerate(self.sites)}
        self.digest = sha256(
            context("roster", *(part for item in self._bytes.items() for part in item))
        ).digest()

    @classmethod
    def of(cls, identities: Mapping[str, Identity]) -> "Roster":
        """Make the roster of identities that are all at hand, as they are in one process."""
        return cls({name: identity.public for name, identity in identities.items()})

    @property
    def keys(self) -> dict[str, bytes]:
        """Public key of each site."""
        return dict(self._bytes)

    @cached_property
    def threshold(self) -> int:
        """How many sites must be there to the end."""
        return 2 * len(self.sites) // 3 + 1

    def __len__(self) -> int:
        return len(self.sites)

    def place(self, site: str) -> int:
        """Return where a site stands in the roster, from 0."""
        return self._places[site]

    def signed(self, site: str, statement: bytes, signature: bytes) -> bool:
        """Say whether a site has signed a statement."""
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
            f"The key of site {name!r} is no public Ed25519 key of 32 bytes. Ask the site for it."
        ) from None
