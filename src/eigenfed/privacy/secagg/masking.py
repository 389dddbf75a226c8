"""Keys that two sites agree on, and streams of random words that hide what they are added to.

X25519 gives two sites a common secret, HKDF-SHA-256 turns it into a key for one purpose (all of
the purpose is in its context), and ChaCha20 stretches the key to as many words as are needed. All
are those of the `cryptography` package.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from eigenfed.errors import DataError

KEY_BYTES = 32
TAG_BYTES = 16

_DOMAIN = b"eigenfed secure sum 1"
# A part of the words that stays in the cache while all streams are added to it.
_CHUNK_WORDS = 1 << 14
_ZEROS = bytes(8 * _CHUNK_WORDS)


def context(*parts: str | bytes | int) -> bytes:
    """Write down what a key or a signature is for, so that no two purposes look alike.

    Examples
    --------
    >>> context("mask", "ab", "c") == context("mask", "a", "bc")
    False
    """
    written = [_DOMAIN]
    for part in parts:
        kind = type(part).__name__[:1].encode()
        data = part if isinstance(part, bytes) else str(part).encode()
        written.append(kind + len(data).to_bytes(8, "little") + data)
    return b"".join(written)


def derived(secret: bytes, purpose: bytes) -> bytes:
    """Return a key of 32 bytes for one purpose."""
    return HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=purpose).derive(secret)


class KeyPair:
    """An X25519 key; the private half shows only where it is asked for by name.

    Examples
    --------
    >>> here, there = KeyPair.generate(), KeyPair.generate()
    >>> here.agreed(there.public) == there.agreed(here.public)
    True
    """

    def __init__(self, private: bytes) -> None:
        self._key = X25519PrivateKey.from_private_bytes(private)
        self.public = self._key.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> "KeyPair":
        """Draw a key from the operating system's randomness."""
        return cls(X25519PrivateKey.generate().private_bytes_raw())

    @property
    def private(self) -> bytes:
        """The private half, 32 bytes."""
        return self._key.private_bytes_raw()

    def agreed(self, public: bytes) -> bytes:
        """Return the secret in common with the owner of a public key.

        Raises
        ------
        DataError
            If that key is one with which nothing would be secret.
        """
        try:
            return self._key.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            raise DataError("A public key is malformed or of low order. Make a new one.") from None


def sealed(key: bytes, text: bytes, purpose: bytes) -> bytes:
    """Encrypt and authenticate; a key is for one text, so there is no nonce to choose."""
    return ChaCha20Poly1305(key).encrypt(bytes(12), text, purpose)


def unsealed(key: bytes, data: bytes, purpose: bytes) -> bytes:
    """Undo `sealed`.

    Raises
    ------
    DataError
        If the data were not made with this key for this purpose.
    """
    try:
        return ChaCha20Poly1305(key).decrypt(bytes(12), data, purpose)
    except InvalidTag:
        raise DataError("A sealed message was changed, or is for somebody else.") from None


@dataclass(frozen=True, repr=False)
class Mask:
    """A key's stream of words, and whether it is added or taken away.

    Attributes
    ----------
    key : bytes
        32 bytes, used for one stream only.
    sign : {1, -1}
    """

    key: bytes
    sign: int


def add_masks(masks: Iterable[Mask], words: Iterable[npt.NDArray[Any]]) -> None:
    """Add streams to arrays of 64-bit words in place, or take them away; words wrap round.

    Parameters
    ----------
    masks : iterable of Mask
    words : iterable of ndarray of int64
        C-contiguous; one stream runs through all of them, in order.

    Examples
    --------
    >>> import numpy as np
    >>> numbers = np.arange(3)
    >>> add_masks([Mask(bytes(32), 1)], [numbers])
    >>> add_masks([Mask(bytes(32), -1)], [numbers])
    >>> numbers
    array([0, 1, 2])
    """
    streams = [
        (
            Cipher(algorithms.ChaCha20(mask.key, bytes(16)), mode=None).encryptor(),
            np.add if mask.sign > 0 else np.subtract,
        )
        for mask in masks
    ]
    buffer = bytearray(8 * _CHUNK_WORDS)
    made, zeros = np.frombuffer(buffer, "<u8"), memoryview(_ZEROS)
    for array in words:
        flat = array.reshape(-1).view(np.uint64)
        for start in range(0, flat.size, _CHUNK_WORDS):
            part = flat[start : start + _CHUNK_WORDS]
            for stream, apply in streams:
                stream.update_into(zeros[: part.nbytes], buffer)
                apply(part, made[: part.size], out=part)
