"""A site's secrets for a batch of sums, and the shares it holds of other sites' secrets.

For each sum a site has a key, from which its pairwise masks with other sites are derived, and a
seed, from which its own mask is derived. Each is used for one sum only: if the site drops out, its
key is reconstructed, and a key that had served earlier sums would unmask the replies in them. Once
a sum is open, the secrets that belong to it are deleted.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from eigenfed.privacy.secagg.identity import Roster
from eigenfed.privacy.secagg.masking import KeyPair, derive_key, seal, unseal
from eigenfed.privacy.secagg.shamir import PRIME, SECRET_BYTES, SHARE_BYTES, split
from eigenfed.protocol.secure.sum_format import (
    PublicKeys,
    Purpose,
    sealed_bytes,
    seed_digest,
)

DrawKey = Callable[[str], bytes]
"""Returns a key of 32 bytes for the purpose that it is given."""


def fresh_key(purpose: str) -> bytes:
    """Draw a key from the operating system's randomness, for any purpose."""
    return secrets.token_bytes(SECRET_BYTES)


@dataclass(frozen=True, eq=False, repr=False)
class Secret:
    """What masks one site's reply in one sum.

    Attributes
    ----------
    pair : KeyPair
        Key of the pairwise masks with other sites.
    seed : bytes
        Seed of the site's own mask.
    """

    pair: KeyPair
    seed: bytes

    @classmethod
    def draw(cls, draw_key: DrawKey, number: int) -> "Secret":
        """Draw the secret of a sum."""
        return cls(KeyPair(draw_key(f"pair {number}")), draw_key(f"seed {number}"))


@dataclass(frozen=True, eq=False, repr=False)
class Shares:
    """One holder's shares of the two parts of a `Secret`; at most one is ever revealed.

    With both, the coordinator could remove both masks of one site and read its reply.
    """

    seed: bytes
    key: bytes


@dataclass(eq=False, repr=False)
class Batch:
    """Secrets for `count` sums from `first` on.

    Attributes
    ----------
    site : str
    first, count : int
    draw : callable
        Source of keys: `fresh_key`, except where copies of a site must make the same keys.
    channel : KeyPair
        Key that seals secret shares.
    secrets : dict of int to Secret
        The secrets, by number of the sum.
    peers : dict of str to PublicKeys
        Public keys of all sites that take part, once received.
    held : dict of int to dict of str to Shares
        Shares held, by number of the sum and owner of the secret.
    """

    site: str
    first: int
    count: int
    draw: DrawKey = fresh_key
    channel: KeyPair = field(init=False)
    secrets: dict[int, Secret] = field(init=False)
    peers: dict[str, PublicKeys] = field(default_factory=dict)
    held: dict[int, dict[str, Shares]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        numbers = range(self.first, self.first + self.count)
        self.channel = KeyPair(self.draw(f"channel {self.first}"))
        self.secrets = {number: Secret.draw(self.draw, number) for number in numbers}
        self.held = {number: {} for number in numbers}

    @property
    def public(self) -> PublicKeys:
        """The public keys, as long as no secret was deleted."""
        made = self.secrets.values()
        return PublicKeys(
            self.channel.public,
            tuple(secret.pair.public for secret in made),
            tuple(seed_digest(secret.seed) for secret in made),
        )

    def share(self, purpose: Purpose, peers: Mapping[str, PublicKeys]) -> list[bytes]:
        """Store the other sites' keys, and return sealed shares of the secrets, one per holder.

        The entry for the site itself is zeros; its own shares do not leave it.
        """
        texts = self._split(purpose.roster, tuple(peers))
        self.peers = dict(peers)
        self._store(self.site, texts[self.site])
        return [
            bytes(sealed_bytes(self.count))
            if holder == self.site
            else self._seal(purpose.share(self.site, holder, self.first), holder, texts[holder])
            for holder in peers
        ]

    def receive(self, purpose: Purpose, owner: str, text: bytes) -> None:
        """Open the sealed shares of one owner; a second time has no effect.

        Raises
        ------
        DataError
            If the owner did not seal them for this site, these sums and this run.
        """
        if self._has(owner):
            return
        about = purpose.share(owner, self.site, self.first)
        self._store(owner, unseal(self._seal_key(about, owner), text, about))

    def forget(self, number: int) -> None:
        """Delete the secrets of a sum and of all earlier ones."""
        for earlier in [known for known in self.secrets if known <= number]:
            del self.secrets[earlier], self.held[earlier]

    def _split(self, roster: Roster, holders: tuple[str, ...]) -> dict[str, bytes]:
        """Split the secrets of all sums: for each holder, two shares per sum, concatenated."""
        points = [roster.place(holder) + 1 for holder in holders]
        parts: list[list[bytes]] = []
        for number, secret in self.secrets.items():
            for kind, text in (("seed", secret.seed), ("pair", secret.pair.private)):
                draw = self._coefficients(f"{kind} {number}")
                parts.append(split(text, roster.threshold, points, draw))
        return {holder: b"".join(part[i] for part in parts) for i, holder in enumerate(holders)}

    def _coefficients(self, purpose: str) -> Callable[[int], int]:
        """Return the coefficients of a polynomial, which a restarted site draws again.

        Two keys make one number of 512 bits, whose remainder is uniform to within 2**-255.
        """

        def draw(power: int) -> int:
            halves = (self.draw(f"{half} {power} {purpose}") for half in ("high", "low"))
            return int.from_bytes(b"".join(halves), "big") % PRIME

        return draw

    def _seal(self, about: bytes, holder: str, text: bytes) -> bytes:
        return seal(self._seal_key(about, holder), text, about)

    def _seal_key(self, about: bytes, other: str) -> bytes:
        return derive_key(self.channel.agreed(self.peers[other].channel), about)

    def _has(self, owner: str) -> bool:
        return all(owner in held for held in self.held.values())

    def _store(self, owner: str, text: bytes) -> None:
        for number, held in self.held.items():
            start = 2 * SHARE_BYTES * (number - self.first)
            both = text[start : start + 2 * SHARE_BYTES]
            held[owner] = Shares(both[:SHARE_BYTES], both[SHARE_BYTES:])
