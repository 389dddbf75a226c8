"""A site's secrets for some sums ahead, and the shares that it holds of the others' secrets.

For each sum a site has a key, from which the masks with other sites come, and a seed, from which
its own mask comes. Both are for that sum only: when a site drops out its key is brought back, and
a key that had been used before would open the replies that it hid then. What belongs to a sum is
forgotten once the sum is open.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from eigenfed.privacy.secagg.identity import Roster
from eigenfed.privacy.secagg.masking import KeyPair, derived, sealed, unsealed
from eigenfed.privacy.secagg.shamir import SECRET_BYTES, SHARE_BYTES, split
from eigenfed.protocol.secure.sum_format import PublicKeys, Purpose, seal_of, sealed_bytes

DrawKey = Callable[[str], bytes]
"""Returns 32 bytes of a key for what it is told."""


def fresh_key(purpose: str) -> bytes:
    """Draw a key from the operating system's randomness, whatever it is for."""
    return secrets.token_bytes(SECRET_BYTES)


@dataclass(frozen=True, eq=False, repr=False)
class Secret:
    """What hides one site's reply in one sum.

    Attributes
    ----------
    pair : KeyPair
        For the masks with other sites.
    seed : bytes
        For the site's own mask.
    """

    pair: KeyPair
    seed: bytes

    @classmethod
    def drawn(cls, draw: DrawKey, number: int) -> "Secret":
        """Draw the one of a sum."""
        return cls(KeyPair(draw(f"pair {number}")), draw(f"seed {number}"))


@dataclass(frozen=True, eq=False, repr=False)
class Shares:
    """One holder's shares of the two parts of a `Secret`; at most one of them is ever shown."""

    seed: bytes
    key: bytes


@dataclass(eq=False, repr=False)
class Batch:
    """Secrets for the sums from `first` on.

    Attributes
    ----------
    site : str
    first, count : int
    draw : callable
        Source of keys: `fresh_key`, except where copies of a site must make the same ones again.
    channel : KeyPair
        With which shares are sealed.
    secrets : dict of int to Secret
        By the number of the sum.
    peers : dict of str to PublicKeys
        Of all sites that take part, once their keys have come.
    held : dict of int to dict of str to Shares
        By the number of the sum, and by whose secret it is.
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
        self.secrets = {number: Secret.drawn(self.draw, number) for number in numbers}
        self.held = {number: {} for number in numbers}

    @property
    def public(self) -> PublicKeys:
        """What others are shown, while nothing was forgotten yet."""
        made = self.secrets.values()
        return PublicKeys(
            self.channel.public,
            tuple(secret.pair.public for secret in made),
            tuple(seal_of(secret.seed) for secret in made),
        )

    def shared(self, purpose: Purpose, peers: Mapping[str, PublicKeys]) -> list[bytes]:
        """Take the others' keys, and cut the secrets into sealed shares, one text a holder.

        The site's own text is zeros: it keeps what is in it.
        """
        texts = self._cut(purpose.roster, tuple(peers))
        self.peers = dict(peers)
        self._keep(self.site, texts[self.site])
        return [
            bytes(sealed_bytes(self.count))
            if holder == self.site
            else self._sealed(purpose.share(self.site, holder, self.first), holder, texts[holder])
            for holder in peers
        ]

    def receive(self, purpose: Purpose, owner: str, text: bytes) -> None:
        """Open the `sealed_bytes` that an owner made for this site; again, it changes nothing.

        Raises
        ------
        DataError
            If the owner did not make it for this site, these sums and this run.
        """
        if self._has(owner):
            return
        about = purpose.share(owner, self.site, self.first)
        self._keep(owner, unsealed(self._key(about, owner), text, about))

    def forget(self, number: int) -> None:
        """Drop all that belongs to a sum, and to those before it."""
        for earlier in [known for known in self.secrets if known <= number]:
            del self.secrets[earlier], self.held[earlier]

    def _cut(self, roster: Roster, holders: tuple[str, ...]) -> dict[str, bytes]:
        """Cut the secrets of all sums: for each holder two shares a sum, one after the other."""
        points = [roster.place(holder) + 1 for holder in holders]
        parts: list[list[bytes]] = []
        for secret in self.secrets.values():
            parts.append(split(secret.seed, roster.threshold, points))
            parts.append(split(secret.pair.private, roster.threshold, points))
        return {holder: b"".join(part[i] for part in parts) for i, holder in enumerate(holders)}

    def _sealed(self, about: bytes, holder: str, text: bytes) -> bytes:
        return sealed(self._key(about, holder), text, about)

    def _key(self, about: bytes, other: str) -> bytes:
        return derived(self.channel.agreed(self.peers[other].channel), about)

    def _has(self, owner: str) -> bool:
        return all(owner in held for held in self.held.values())

    def _keep(self, owner: str, text: bytes) -> None:
        for number, held in self.held.items():
            start = 2 * SHARE_BYTES * (number - self.first)
            both = text[start : start + 2 * SHARE_BYTES]
            held[owner] = Shares(both[:SHARE_BYTES], both[SHARE_BYTES:])
