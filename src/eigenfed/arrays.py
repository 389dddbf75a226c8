"""Array types, and named arrays as bytes: versioned, checked, never pickled.

Layout of a container, every part padded to a multiple of 8 bytes::

    8 bytes   b"eigenfed"
    8 bytes   length of the header, little-endian
    header    JSON: kind, version, scalars, arrays as [name, dtype, shape]
    arrays    raw, C order, little-endian, in the header's order
    16 bytes  of SHA-256 of all that precedes: they find accidents and do not authenticate
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.errors import DataError, InputError

Array = npt.NDArray[np.float64]
Scalar = bool | int | float | str
Arrays = dict[str, npt.NDArray[Any]]

_MAGIC = b"eigenfed"
_DIGEST_BYTES = 16
_PREFIX_BYTES = len(_MAGIC) + 8
_DTYPES = ("<f8", "<f4", "<i8", "|u1")
_MAX_HEADER_BYTES = 1 << 20
_WHOLE = 1 << 1024
_LONGEST_KIND = 80
_MOST_VERSIONS = 1 << 31


@dataclass(frozen=True, eq=False, repr=False)
class Container:
    """Named scalars and arrays of one kind.

    Attributes
    ----------
    kind : str
        What the arrays are, such as ``"summary"``.
    version : int
        Version of that kind's format.
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

    def to_bytes(self) -> bytes:
        """Serialise; the same values always give the same bytes."""
        for name, value in self.scalars.items():
            if not _is_scalar(value):
                raise InputError(
                    f"The scalar {name!r} must be text, True or False, a finite number or a whole "
                    "one of at most 1024 bits. Convert it first."
                )
        parts = [_flat(array) for array in self.arrays.values()]
        for name, part in zip(self.arrays, parts, strict=True):
            if part.dtype.str not in _DTYPES:
                raise InputError(
                    f"The array {name!r} has dtype {part.dtype} and must be float64, float32, "
                    "int64 or uint8. Convert it first."
                )
        described = [
            [name, part.dtype.str, list(array.shape)]
            for (name, array), part in zip(self.arrays.items(), parts, strict=True)
        ]
        header = json.dumps(
            {
                "kind": self.kind,
                "version": self.version,
                "scalars": dict(self.scalars),
                "arrays": described,
            },
            allow_nan=False,
        ).encode()
        header += b" " * (-len(header) % 8)
        pieces: list[bytes | memoryview] = [_MAGIC, len(header).to_bytes(8, "little"), header]
        for part in parts:
            pieces += [part.data, b"\0" * (-part.nbytes % 8)]
        return b"".join([*pieces, _digest(*pieces)])

    @classmethod
    def from_bytes(
        cls, data: bytes, *, kind: str, version: int, intact: bool = False
    ) -> "Container":
        """Read and check what `to_bytes` wrote.

        Parameters
        ----------
        data : bytes
        kind : str
            The kind expected; another one is refused.
        version : int
            The version that this code reads; another one is refused.
        intact : bool, default=False
            Whether nothing can have happened to the bytes, because they never left the process:
            their checksum is not made again then.

        Raises
        ------
        DataError
            If the bytes are foreign, cut short, corrupt, or of another kind or version.
        """
        header, start = _read_header(data)
        arrays, end = _read_arrays(data, header["arrays"], start)
        _check_length(data, end + _DIGEST_BYTES)
        if not intact and _digest(memoryview(data)[:end]) != data[end:]:
            raise DataError("The data are corrupt: their checksum does not fit. Fetch them again.")
        if header["kind"] != kind:
            raise DataError(
                f"The data hold a {header['kind']!r} where a {kind!r} is expected. "
                "Pass the file that was meant."
            )
        if header["version"] != version:
            raise DataError(
                f"The data are of {kind} format {header['version']} and this eigenfed reads "
                f"format {version}. Use the same release of eigenfed on both sides."
            )
        return cls(kind, version, header["scalars"], arrays)


def checksum(data: bytes) -> str:
    """Return the checksum that a container's bytes end with, as text.

    Examples
    --------
    >>> len(checksum(Container("note", 1, {}, {}).to_bytes()))
    32
    """
    return data[-_DIGEST_BYTES:].hex()


def _flat(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the entries in C order, little-endian, in one dimension; copied only if they must."""
    return array.astype(array.dtype.newbyteorder("<"), order="C", copy=False).reshape(-1)


def _digest(*pieces: bytes | memoryview) -> bytes:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.digest()[:_DIGEST_BYTES]


def _check_length(data: bytes, expected: int) -> None:
    if len(data) < expected:
        raise DataError(
            f"The data are cut short: {len(data)} bytes where {expected} are needed. "
            "Fetch them again."
        )
    if len(data) > expected:
        raise DataError(
            f"The data are corrupt: {len(data)} bytes where {expected} were written. "
            "Fetch them again."
        )


def _read_header(data: bytes) -> tuple[dict[str, Any], int]:
    if data[: len(_MAGIC)] != _MAGIC[: len(data)] or not data:
        raise DataError(
            "The data were not written by eigenfed: they do not begin with its mark. "
            "Pass the bytes of to_bytes()."
        )
    size = int.from_bytes(data[len(_MAGIC) : _PREFIX_BYTES], "little")
    if size > _MAX_HEADER_BYTES:
        raise DataError("The data are corrupt: their header is impossibly long. Fetch them again.")
    start = _PREFIX_BYTES + size
    if len(data) < max(start, _PREFIX_BYTES):
        _check_length(data, start + _DIGEST_BYTES)
    try:
        header = json.loads(data[_PREFIX_BYTES:start])
    except (ValueError, RecursionError):
        header = None
    if not _is_header(header):
        raise DataError("The data are corrupt: their header cannot be read. Fetch them again.")
    return header, start


def _is_header(header: Any) -> bool:
    return (
        isinstance(header, dict)
        and header.keys() == {"kind", "version", "scalars", "arrays"}
        and isinstance(header["kind"], str)
        and len(header["kind"]) <= _LONGEST_KIND
        and type(header["version"]) is int
        and abs(header["version"]) < _MOST_VERSIONS
        and isinstance(header["scalars"], dict)
        and all(_is_scalar(value) for value in header["scalars"].values())
        and isinstance(header["arrays"], list)
        and all(_is_array_entry(entry) for entry in header["arrays"])
    )


def _is_scalar(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str) or (isinstance(value, int) and -_WHOLE <= value < _WHOLE)


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
        and (0 not in shape or math.prod(length or 1 for length in shape) < 1 << 60)
    )


def _read_arrays(
    data: bytes, entries: list[tuple[str, str, list[int]]], start: int
) -> tuple[dict[str, npt.NDArray[Any]], int]:
    arrays = {}
    for name, dtype_name, shape in entries:
        dtype = np.dtype(dtype_name)
        count = math.prod(shape)
        end = start + count * dtype.itemsize
        if len(data) < end + _DIGEST_BYTES:
            _check_length(data, end + _DIGEST_BYTES)
        array = np.frombuffer(data, dtype, count, start).reshape(shape)
        arrays[name] = array.astype(dtype.newbyteorder("="), copy=False)
        start = end + -end % 8
    return arrays, start
