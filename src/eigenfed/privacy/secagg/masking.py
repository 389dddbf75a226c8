"""Pairwise masking: key agreement between sites, and the key streams that hide their replies.

X25519 gives two sites a shared secret, HKDF-SHA-256 derives from it a key for one purpose (which is
spelled out in its context), and ChaCha20 expands the key to as many 64-bit words as are needed. One
of the two sites adds the words to its reply and the other subtracts them, so that they cancel in
the sum (Bonawitz et al., 2017).

All primitives are those of the `cryptography` package. The masking is our own because the secure
aggregation of federated learning frameworks is built for clipped gradients: Flower's SecAgg+ clips
at 8 by default and quantises coarsely, while sums of products in PCA need the full 64-bit word.
Tests compare the masks with the plain ChaCha20 stream.
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
# Words are masked in chunks that stay in the cache while all streams are added to them.
_CHUNK_WORDS = 1 << 14
_ZEROS = bytes(8 * _CHUNK_WORDS)


def context(*parts: str | bytes | int) -> bytes:
    """Encode the purpose of a key or signature, injectively: no two purposes have equal bytes.

    Examples
    --------
    >>> context("mask", "ab", "c") == context("mask", "a", "bc")
    False
    """
    encoding = [_DOMAIN]
    for part in parts:
        kind = type(part).__name__[:1].encode()
        data = part if isinstance(part, bytes) else str(part).encode()
        encoding.append(kind + len(data).to_bytes(8, "little") + data)
    return b"".join(encoding)


def derive_key(secret: bytes, purpose: bytes) -> bytes:
    """Derive a key of 32 bytes for one purpose."""
    return HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=purpose).derive(secret)


class KeyPair:
    """An X25519 key pair; the private key is not part of its repr.

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
        """Generate a key from the operating system's random generator."""
        return cls(X25519PrivateKey.generate().private_bytes_raw())

    @property
    def private(self) -> bytes:
        """The private key, 32 bytes."""
        return self._key.private_bytes_raw()

    def agreed(self, public: bytes) -> bytes:
        """Return the secret shared with the owner of a public key.

        Raises
        ------
        DataError
            If the public key is malformed or of low order, so that the secret would be known.
        """
        try:
            return self._key.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            raise DataError(
                "A public key is malformed or of low order. Generate a new one."
            ) from None


def seal(key: bytes, text: bytes, purpose: bytes) -> bytes:
    """Encrypt and authenticate a text. A key is used once, so the nonce can be constant."""
    return ChaCha20Poly1305(key).encrypt(bytes(12), text, purpose)


def unseal(key: bytes, data: bytes, purpose: bytes) -> bytes:
    """Decrypt the output of `seal`.

    Raises
    ------
    DataError
        If the data were not encrypted with this key for this purpose.
    """
    try:
        return ChaCha20Poly1305(key).decrypt(bytes(12), data, purpose)
    except InvalidTag:
        raise DataError("A sealed message was changed, or is for another recipient.") from None


@dataclass(frozen=True, repr=False)
class Mask:
    """The key stream of a key, and whether it is added or subtracted.

    Attributes
    ----------
    key : bytes
        32 bytes, used for one stream only.
    sign : {1, -1}
    """

    key: bytes
    sign: int


def add_masks(masks: Iterable[Mask], words: Iterable[npt.NDArray[Any]]) -> None:
    """Add key streams to arrays of 64-bit words in place, or subtract them, modulo 2^64.

    Parameters
    ----------
    masks : iterable of Mask
    words : iterable of ndarray of int64
        C-contiguous; each stream continues through all of them, in order.

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
    # Encrypting zeros gives the key stream itself, here without an allocation for each chunk.
    stream_words, zeros = np.frombuffer(buffer, "<u8"), memoryview(_ZEROS)
    for array in words:
        flat = array.reshape(-1).view(np.uint64)
        for start in range(0, flat.size, _CHUNK_WORDS):
            part = flat[start : start + _CHUNK_WORDS]
            for stream, apply in streams:
                stream.update_into(zeros[: part.nbytes], buffer)
                apply(part, stream_words[: part.size], out=part)
