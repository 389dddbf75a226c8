"""Bundles: signed messages with a manifest that a person can read.

A bundle is what travels between machines, over a network or as a file. It begins with two lines of
text, which any viewer shows: a mark, and the manifest as JSON. A line with the signature follows,
and then the message, byte by byte as within one process::

    eigenfed bundle 1
    {"answers":"","arrays":{},"round":3,"from":"coordinator","kind":"request", ...}
    9f86d081...
    <message>

The sender signs the manifest, and the manifest has the SHA-256 of the message and, in a reply, that
of the request. Whoever carries bundles can lose or repeat them, but not forge, alter or swap them.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from eigenfed.data.safe_files import parse_strict_json
from eigenfed.errors import DataError
from eigenfed.privacy.secagg.identity import Identity, is_signed
from eigenfed.privacy.secagg.masking import context
from eigenfed.protocol.messages import MAX_BYTES, Message

COORDINATOR = "coordinator"
_MARK = b"eigenfed bundle 1\n"
_MOST_HEADER_BYTES = 1 << 16
_SIGNATURE_DIGITS = 128
MOST_START_BYTES = len(_MARK) + _MOST_HEADER_BYTES + _SIGNATURE_DIGITS + 2
"""Length of what comes before a message, at most."""
KINDS = ("open", "request", "reply", "refusal", "close")


def name_site(site: str) -> str:
    """Return the name of a site as a sender or recipient of bundles.

    Examples
    --------
    >>> name_site("north")
    'site north'
    """
    return f"site {site}"


@dataclass(frozen=True)
class Manifest:
    """What a bundle holds, and between whom.

    Attributes
    ----------
    sender, recipient : str
        ``coordinator``, or ``site`` and the name of a site.
    kind : {"open", "request", "reply", "refusal", "close"}
    run : str
    round : int
    operation : str
        In a refusal, its code.
    arrays : mapping of str to tuple of int
        The shapes of the arrays in the message.
    size : int
        Length of the message, in bytes.
    sha256 : str
        Of the message.
    answers : str
        SHA-256 of the request that a reply answers; otherwise empty. A refusal of a bundle because
        of its signature has the `digest_start` of the bundle.
    """

    sender: str
    recipient: str
    kind: str
    run: str
    round: int
    operation: str
    arrays: Mapping[str, tuple[int, ...]]
    size: int
    sha256: str
    answers: str = ""

    @classmethod
    def of(cls, message: bytes, *, sender: str, recipient: str, answers: str = "") -> "Manifest":
        """Describe a message.

        Raises
        ------
        DataError
            If it is malformed.
        """
        found = Message.from_bytes(message, *KINDS)
        shapes = {name: tuple(array.shape) for name, array in sorted(found.arrays.items())}
        return cls(
            sender,
            recipient,
            found.kind,
            found.run,
            found.round_,
            found.label,
            shapes,
            len(message),
            hash_message(message),
            answers,
        )

    def to_bytes(self) -> bytes:
        """Serialise to one line; equal manifests have equal bytes."""
        record = asdict(self)
        record["from"], record["to"] = record.pop("sender"), record.pop("recipient")
        return json.dumps(record, sort_keys=True, separators=(",", ":")).encode("ascii")

    @classmethod
    def from_bytes(cls, data: bytes) -> "Manifest":
        """Read what `to_bytes` wrote; ValueError, KeyError or TypeError for anything else."""
        record: dict[str, Any] = parse_strict_json(data.decode("ascii"))
        record["sender"], record["recipient"] = record.pop("from"), record.pop("to")
        record["arrays"] = {name: tuple(shape) for name, shape in record["arrays"].items()}
        found = cls(**record)
        if not found._has_types() or found.to_bytes() != data:
            raise ValueError
        return found

    def _has_types(self) -> bool:
        """Return whether all fields have their types: 3.0 and True equal integers, unlike texts."""
        parties = self.sender, self.recipient, self.answers
        texts = *parties, self.kind, self.run, self.operation, self.sha256
        lengths = (length for shape in self.arrays.values() for length in shape)
        return all(type(text) is str for text in texts) and all(
            type(number) is int for number in (self.round, self.size, *lengths)
        )


@dataclass(frozen=True, repr=False)
class Bundle:
    """A manifest, its signature, and the message.

    Examples
    --------
    >>> mine = Identity.generate()
    >>> message = Message("request", "r1", 0, "moments", {}).to_bytes()
    >>> data = sign_bundle(message, mine, sender=COORDINATOR, recipient=name_site("north"))
    >>> bundle = Bundle.from_bytes(data)
    >>> bundle.manifest.operation, bundle.is_signed_by(mine.public)
    ('moments', True)
    """

    manifest: Manifest
    signature: bytes
    message: bytes

    @classmethod
    def from_bytes(cls, data: bytes) -> "Bundle":
        """Read a bundle and check that its manifest describes its message.

        Raises
        ------
        DataError
            If it is not a bundle, or was altered. Who signed it is not checked.
        """
        try:
            found = cls._parse(data)
            if found.manifest.kind not in KINDS:
                raise ValueError
            if found.manifest != Manifest.of(
                found.message,
                sender=found.manifest.sender,
                recipient=found.manifest.recipient,
                answers=found.manifest.answers,
            ):
                raise ValueError
            return found
        except (AttributeError, DataError, KeyError, RecursionError, TypeError, ValueError):
            pass
        raise DataError(
            "The data are not a bundle of this release, or were altered. Have it sent again."
        )

    @classmethod
    def _parse(cls, data: bytes) -> "Bundle":
        if len(data) > MAX_BYTES or not data.startswith(_MARK):
            raise ValueError
        end = _find_end(data)
        start = end + 1 + _SIGNATURE_DIGITS + 1
        signature = data[end + 1 : start]
        if len(signature) != _SIGNATURE_DIGITS + 1 or signature[-1:] != b"\n":
            raise ValueError
        manifest = Manifest.from_bytes(data[len(_MARK) : end])
        return cls(manifest, bytes.fromhex(signature[:-1].decode("ascii")), data[start:])

    def to_bytes(self) -> bytes:
        """Serialise."""
        signature = self.signature.hex().encode("ascii")
        parts = (_MARK, self.manifest.to_bytes(), b"\n", signature, b"\n", self.message)
        return b"".join(parts)

    def is_signed_by(self, public: bytes) -> bool:
        """Return whether the owner of a public key has signed it."""
        return is_signed(public, _statement(self.manifest.to_bytes()), self.signature)


def read_manifest(data: bytes) -> Manifest:
    """Return the manifest of a bundle, without looking at its message.

    Raises
    ------
    DataError
        If it cannot be read.

    Examples
    --------
    >>> message = Message("request", "r1", 3, "moments", {}).to_bytes()
    >>> parties = {"sender": COORDINATOR, "recipient": name_site("north")}
    >>> read_manifest(sign_bundle(message, Identity.generate(), **parties)).round
    3
    """
    return read_start(data)[0]


def read_start(data: bytes) -> tuple[Manifest, int]:
    """Return the manifest of a bundle that begins with these bytes, and where its message begins.

    Raises
    ------
    DataError
        If it cannot be read.
    """
    try:
        end = _find_end(data)
        return Manifest.from_bytes(data[len(_MARK) : end]), end + 1 + _SIGNATURE_DIGITS + 1
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        raise DataError("The data are not a bundle of this release.") from None


def digest_start(data: bytes) -> str:
    """Return the SHA-256 of what comes before a bundle's message, its signature included.

    Two bundles of one message have the same only if their signatures are the same too.

    Raises
    ------
    DataError
        If it cannot be read.
    """
    return hash_message(data[: read_start(data)[1]])


def _find_end(data: bytes) -> int:
    """Return where the manifest ends."""
    return data.index(b"\n", len(_MARK), len(_MARK) + _MOST_HEADER_BYTES)


def sign_bundle(
    message: bytes, identity: Identity, *, sender: str, recipient: str, answers: str = ""
) -> bytes:
    """Return the bundle of a message, signed by its sender.

    Parameters
    ----------
    message : bytes
    identity : Identity
        Of the sender.
    sender, recipient, answers : str
        As in `Manifest`.
    """
    manifest = Manifest.of(message, sender=sender, recipient=recipient, answers=answers)
    signature = identity.sign(_statement(manifest.to_bytes()))
    return Bundle(manifest, signature, message).to_bytes()


def hash_message(message: bytes) -> str:
    """Return the SHA-256 of a message, in hexadecimal."""
    return hashlib.sha256(message).hexdigest()


def _statement(manifest: bytes) -> bytes:
    return context("bundle", manifest)
