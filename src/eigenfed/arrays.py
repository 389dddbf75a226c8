"""Array types, and a container that stores named arrays as bytes, without pickle.

The container is our own because its bytes are canonical (ledgers and transcripts compare digests
of them) and because it is read from peers that are not trusted: every length is checked before
memory is allocated, and nothing in it can be executed.

Layout, with every part padded to a multiple of 8 bytes::

    8 bytes   b"eigenfed"
    8 bytes   length of the header, little-endian
    header    JSON: kind, version, scalars, arrays as [name, dtype, shape]
    arrays    raw, C order, little-endian, in the order of the header
    16 bytes  first half of the SHA-256 of everything before: a checksum, not an authentication;
              zeros in messages that stay within a process
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from eigenfed.errors import Aside, DataError, InputError

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Scalar = bool | int | float | str
Arrays = dict[str, npt.NDArray[Any]]

_MAGIC = b"eigenfed"
_DIGEST_BYTES = 16
_UNSEALED = bytes(_DIGEST_BYTES)
_PREFIX_BYTES = len(_MAGIC) + 8
_DTYPES = ("<f8", "<f4", "<i8", "|u1")
_MAX_HEADER_BYTES = 1 << 20
_SHORT_HEADER_BYTES = 1 << 11
_HEADERS_KEPT = 64
"""Number of short headers that are kept: those of all replies in a round are equal."""
_MAX_INTEGER = 1 << 1024
_MAX_KIND_LENGTH = 80
_MAX_VERSION = 1 << 31


@dataclass(frozen=True, eq=False, repr=False)
class Container:
    """Named scalars and arrays of one kind.

    Attributes
    ----------
    kind : str
        What the container holds, such as ``"summary"``.
    version : int
        Format version of that kind.
    scalars : mapping of str to bool, int, float or str
    arrays : mapping of str to ndarray
        float64, float32, int64 or uint8.

    Examples
    --------
    >>> import numpy as np
    >>> data = Container("note", 1, {"n": 3.0}, {"mean": np.zeros(2)}).to_bytes()
    >>> Container.from_bytes(data, kind="note", version=1).arrays["mean"]
    array([0., 0.])
    """

    kind: str
    version: int
    scalars: Mapping[str, Scalar]
    arrays: Mapping[str, npt.NDArray[Any]]

    def to_bytes(self, *, sealed: bool = True) -> bytes:
        """Serialise; the same values always give the same bytes.

        Parameters
        ----------
        sealed : bool, default=True
            Whether to compute the checksum. Bytes without one are read only with ``intact=True``.
        """
        for name, value in self.scalars.items():
            if not _is_scalar(value):
                raise InputError(
                    f"The scalar {name!r} must be text, a boolean, a finite float or an integer of "
                    "at most 1024 bits. Convert it first."
                )
        parts = [_flatten(array) for array in self.arrays.values()]
        for name, part in zip(self.arrays, parts, strict=True):
            if part.dtype.str not in _DTYPES:
                raise InputError(
                    f"The array {name!r} has dtype {part.dtype} and must be float64, float32, "
                    "int64 or uint8. Convert it first."
                )
        # Equal keys must have equal JSON, and True == 1 == 1.0 and 0.0 == -0.0: hence the texts.
        scalars = tuple((name, value, repr(value)) for name, value in self.scalars.items())
        arrays = tuple(
            (name, part.dtype.str, array.shape)
            for (name, array), part in zip(self.arrays.items(), parts, strict=True)
        )
        size = sum(len(text) for _, _, text in scalars) + sum(len(name) for name in self.arrays)
        write = _write_short_header if size <= _SHORT_HEADER_BYTES else _write_header
        header = write(self.kind, self.version, scalars, arrays)
        pieces: list[bytes | memoryview] = [_MAGIC, len(header).to_bytes(8, "little"), header]
        for part in parts:
            pieces += [part.data, b"\0" * (-part.nbytes % 8)]
        return b"".join([*pieces, _digest(*pieces) if sealed else _UNSEALED])

    @classmethod
    def from_bytes(
        cls,
        data: bytes,
        *,
        kind: str,
        version: int,
        oldest: int | None = None,
        intact: bool = False,
    ) -> "Container":
        """Read and check the output of `to_bytes`.

        Parameters
        ----------
        data : bytes
        kind : str
            The expected kind; any other is refused.
        version : int
            The expected version; any other is refused.
        oldest : int, optional
            The oldest version that is accepted too.
        intact : bool, default=False
            Skip the checksum, for bytes that never left the process.

        Raises
        ------
        DataError
            If the bytes are not a container, truncated, corrupt, or of another kind or version.
        """
        header, start = _read_header(data)
        arrays, end = _read_arrays(data, header.arrays, start)
        _check_length(data, end + _DIGEST_BYTES)
        if not intact and _digest(memoryview(data)[:end]) != data[end:]:
            raise DataError("The data are corrupt: the checksum does not match. Fetch them again.")
        if header.kind != kind:
            raise DataError(
                f"The data hold a {header.kind!r} where a {kind!r} is expected. Pass another file."
            )
        if not (version if oldest is None else oldest) <= header.version <= version:
            raise DataError(
                f"The data have {kind} format {header.version} and this release of eigenfed "
                f"reads format {version}. Use the same release on both sides."
            )
        return cls(kind, header.version, dict(header.scalars), arrays)


def checksum(data: bytes) -> str:
    """Return the checksum at the end of a container's bytes, in hexadecimal; zeros if unsealed.

    Examples
    --------
    >>> len(checksum(Container("note", 1, {}, {}).to_bytes()))
    32
    """
    return data[-_DIGEST_BYTES:].hex()


def is_sealed(data: bytes) -> bool:
    """Return whether a container's bytes end with their checksum."""
    return not data.endswith(_UNSEALED)


def are_same(data: bytes, other: bytes) -> bool:
    """Return whether the bytes of two containers are the same, with or without checksums.

    Examples
    --------
    >>> note = Container("note", 1, {}, {})
    >>> are_same(note.to_bytes(), note.to_bytes(sealed=False)), are_same(note.to_bytes(), b"")
    (True, False)
    """
    return data[:-_DIGEST_BYTES] == other[:-_DIGEST_BYTES]


def seal(data: bytes) -> bytes:
    """Return a container's bytes with their checksum, if they were written without it.

    Examples
    --------
    >>> note = Container("note", 1, {}, {})
    >>> seal(note.to_bytes(sealed=False)) == note.to_bytes() == seal(note.to_bytes())
    True
    """
    if is_sealed(data):
        return data
    return data[:-_DIGEST_BYTES] + _digest(memoryview(data)[:-_DIGEST_BYTES])


def _flatten(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the entries as one dimension in C order, little-endian; copied only if necessary."""
    return array.astype(array.dtype.newbyteorder("<"), order="C", copy=False).reshape(-1)


def _digest(*pieces: bytes | memoryview) -> bytes:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.digest()[:_DIGEST_BYTES]


def _check_length(data: bytes, expected: int) -> None:
    if len(data) < expected:
        raise DataError(
            f"The data are truncated: {len(data)} bytes where {expected} are needed. "
            "Fetch them again."
        )
    if len(data) > expected:
        raise DataError(
            f"The data are corrupt: {len(data)} bytes where {expected} are expected. "
            "Fetch them again."
        )


class _Layout(NamedTuple):
    """Where an array is in the bytes, and what it is there."""

    name: str
    dtype: np.dtype[Any]
    native: np.dtype[Any]
    shape: tuple[int, ...]
    size: int


class _Header(NamedTuple):
    kind: str
    version: int
    scalars: Mapping[str, Scalar]
    arrays: tuple[_Layout, ...]


def _write_header(
    kind: str,
    version: int,
    scalars: tuple[tuple[str, Scalar, str], ...],
    arrays: tuple[tuple[str, str, tuple[int, ...]], ...],
) -> bytes:
    header = json.dumps(
        {
            "kind": kind,
            "version": version,
            "scalars": {name: value for name, value, _ in scalars},
            "arrays": arrays,
        },
        allow_nan=False,
    ).encode()
    return header + b" " * (-len(header) % 8)


_write_short_header = lru_cache(_HEADERS_KEPT)(_write_header)


def _read_header(data: bytes) -> tuple[_Header, int]:
    if data[: len(_MAGIC)] != _MAGIC[: len(data)] or not data:
        raise DataError(
            "The data were not written by eigenfed: their signature is missing",
            remedy=(
                "Pass a file that eigenfed wrote, such as a summary",
                Aside(", or the output of to_bytes()"),
                ".",
            ),
        )
    size = int.from_bytes(data[len(_MAGIC) : _PREFIX_BYTES], "little")
    if size > _MAX_HEADER_BYTES:
        raise DataError("The data are corrupt: the header is too long. Fetch them again.")
    start = _PREFIX_BYTES + size
    if len(data) < max(start, _PREFIX_BYTES):
        _check_length(data, start + _DIGEST_BYTES)
    parse = _parse_short_header if size <= _SHORT_HEADER_BYTES else _parse_header
    header = parse(data[_PREFIX_BYTES:start])
    if header is None:
        raise DataError("The data are corrupt: the header cannot be read. Fetch them again.")
    return header, start


def _parse_header(text: bytes) -> _Header | None:
    """Parse a header; None if it is not one."""
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not _is_header(header):
        return None
    layouts = []
    for name, dtype_name, shape in header["arrays"]:
        dtype = np.dtype(dtype_name)
        native = dtype.newbyteorder("=")
        layouts.append(_Layout(name, dtype, native, tuple(shape), math.prod(shape)))
    return _Header(header["kind"], header["version"], header["scalars"], tuple(layouts))


_parse_short_header = lru_cache(_HEADERS_KEPT)(_parse_header)


def _is_header(header: Any) -> bool:
    return (
        isinstance(header, dict)
        and header.keys() == {"kind", "version", "scalars", "arrays"}
        and isinstance(header["kind"], str)
        and len(header["kind"]) <= _MAX_KIND_LENGTH
        and type(header["version"]) is int
        and abs(header["version"]) < _MAX_VERSION
        and isinstance(header["scalars"], dict)
        and all(_is_scalar(value) for value in header["scalars"].values())
        and isinstance(header["arrays"], list)
        and all(_is_array_entry(entry) for entry in header["arrays"])
    )


def _is_scalar(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    is_integer = isinstance(value, int) and -_MAX_INTEGER <= value < _MAX_INTEGER
    return isinstance(value, str) or is_integer


def _is_array_entry(entry: Any) -> bool:
    if not (isinstance(entry, list) and len(entry) == 3):
        return False
    name, dtype, shape = entry
    return (
        isinstance(name, str)
        and dtype in _DTYPES
        and isinstance(shape, list)
        and len(shape) <= 4
        and all(type(length) is int and 0 <= length < 1 << 48 for length in shape)
        # numpy refuses even an empty array if the product of its other dimensions overflows.
        and (0 not in shape or math.prod(length or 1 for length in shape) < 1 << 60)
    )


def _read_arrays(
    data: bytes, layouts: tuple[_Layout, ...], start: int
) -> tuple[dict[str, npt.NDArray[Any]], int]:
    arrays = {}
    for name, dtype, native, shape, size in layouts:
        end = start + size * dtype.itemsize
        if len(data) < end + _DIGEST_BYTES:
            _check_length(data, end + _DIGEST_BYTES)
        array = np.frombuffer(data, dtype, size, start).reshape(shape)
        arrays[name] = array.astype(native, copy=False)
        start = end + -end % 8
    return arrays, start
