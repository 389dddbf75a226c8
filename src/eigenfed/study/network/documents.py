"""The JSON files that coordinator and sites send each other: strict, small and signed.

A file must be exactly what `NetworkDocument.to_bytes` writes, up to line ends: so a key that is
unknown, repeated or hidden cannot be read in two ways. No error quotes the content of a file.
"""

import json
import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator, ValidationError

from eigenfed.data.safe_files import read_part
from eigenfed.errors import DataError, InputError
from eigenfed.privacy.secagg.identity import SIGNATURE_BYTES, Identity, is_signed
from eigenfed.privacy.secagg.masking import KEY_BYTES, context
from eigenfed.study.config.fields import NAME_PATTERN

MOST_BYTES = 1 << 20
"""Largest size of a document."""
_FORMAT = re.compile(rb'\s*\{\s*"format": "eigenfed ([a-z ]{1,32}) (\d{1,4})"')


def _check_length(value: Any, length: int) -> bytes:
    if isinstance(value, str) and re.fullmatch(f"[0-9a-f]{{{2 * length}}}", value):
        return bytes.fromhex(value)
    if isinstance(value, bytes) and len(value) == length:
        return value
    raise ValueError


_HEX = PlainSerializer(bytes.hex)

PublicKey = Annotated[bytes, PlainValidator(lambda value: _check_length(value, KEY_BYTES)), _HEX]
Signature = Annotated[
    bytes, PlainValidator(lambda value: _check_length(value, SIGNATURE_BYTES)), _HEX
]
SiteName = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$")]
Pem = Annotated[
    str,
    Field(
        max_length=1 << 14,
        pattern="^(-----BEGIN [A-Z ]{1,32}-----\n[A-Za-z0-9+/=\n]+-----END [A-Z ]{1,32}-----\n)+$",
    ),
]
"""Certificates or requests for one, as text."""


class NetworkDocument(BaseModel):
    """A document; subclasses have a field `format` of the text "eigenfed <kind> <version>"."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    label: ClassVar[str]
    """What the document is, in words with an article."""

    def to_bytes(self) -> bytes:
        """Serialise; equal documents have equal bytes."""
        return _dump(self.model_dump(mode="json", exclude_none=True))

    @classmethod
    def from_bytes(cls, data: bytes, source: str = "The document") -> Self:
        """Read what `to_bytes` wrote.

        Parameters
        ----------
        data : bytes
        source : str, optional
            Name of the file, for messages.

        Raises
        ------
        DataError
            If the bytes are anything else, or have more than 1 MB.
        """
        if len(data) > MOST_BYTES:
            raise DataError(
                f"{source} has more than {MOST_BYTES >> 20} MB and is not {cls.label}. "
                "Check which file it is."
            )
        own = _FORMAT.match(cls._start().encode())
        found = _FORMAT.match(data)
        if found is None:
            raise DataError(f"{source} is not {cls.label}. Check which file it is.")
        if own is None or found[1] != own[1]:
            raise DataError(
                f"{source} is an eigenfed {found[1].decode()}, and not {cls.label}. Check which "
                "file it is."
            )
        if found[2] != own[2]:
            raise DataError(
                f"{source} was written by another release of eigenfed. Use one release everywhere."
            )
        try:
            document = cls.model_validate_json(data)
        except ValidationError as error:
            place = _name_place(error, cls)
            raise DataError(
                f"{source} is not a valid eigenfed {found[1].decode()}: {place}. Ask for the file "
                "again."
            ) from None
        if document.to_bytes().strip() != data.replace(b"\r\n", b"\n").strip():
            raise DataError(
                f"{source} is not as eigenfed wrote it: it was edited. Ask for the file again."
            )
        return document

    @classmethod
    def _start(cls) -> str:
        return f'{{"format": "{cls.model_fields["format"].default}"'


class SignedDocument(NetworkDocument):
    """A document with the signature of the one who wrote it."""

    signature: Signature = bytes(SIGNATURE_BYTES)

    @property
    def statement(self) -> bytes:
        """What is signed: everything but the signature."""
        return context(
            "network document",
            _dump(self.model_dump(mode="json", exclude_none=True, exclude={"signature"})),
        )

    def signed_by(self, identity: Identity) -> Self:
        """Return the document with a signature."""
        return self.model_copy(update={"signature": identity.sign(self.statement)})

    def check_signature(self, public: bytes, source: str) -> None:
        """Refuse a document that the owner of a public key has not signed."""
        if not is_signed(public, self.statement, self.signature):
            raise DataError(
                f"{source} was changed after it was signed. Ask for the file again, by another way."
            )


def read_bytes(path: Path) -> bytes:
    """Read a document from a file.

    Raises
    ------
    InputError
        If it cannot be read, is not a regular file, or is far larger than a document may be.
    """
    try:
        return read_part(path)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}. Check the path.") from None


def read_kind(data: bytes) -> str:
    """Return the kind of a document, such as "invitation"; empty if it is none."""
    found = _FORMAT.match(data)
    return "" if found is None else found[1].decode("ascii")


def _dump(record: dict[str, Any]) -> bytes:
    # The signature is a field of the base class, and so the first one; it is written last.
    record |= {"signature": record.pop("signature")} if "signature" in record else {}
    return (json.dumps(record, indent=1) + "\n").encode("ascii")


def _name_place(error: ValidationError, model: type[BaseModel]) -> str:
    """Return what is wrong; of the names in the file, only those that documents have."""
    details = error.errors(include_url=False, include_input=False)
    first = next((part for part in details[0]["loc"] if part in model.model_fields), None)
    if details[0]["type"] == "extra_forbidden":
        return "it has an unknown key"
    if details[0]["type"] == "missing":
        return "a key is missing"
    return "it is cut off or not JSON" if first is None else f"{first} is not valid"
