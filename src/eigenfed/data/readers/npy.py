"""Arrays in numpy's ``.npy`` format, memory-mapped where their numbers can be used as they are.

numpy evaluates the header of a file as a Python expression and allocates what it claims. Here
regular expressions parse it, and nothing is allocated or mapped that the file does not fill.
"""

import math
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from eigenfed.data.source import BLOCK_BYTES, Block
from eigenfed.errors import DataError, InputError

_MAGIC = b"\x93NUMPY"
_LENGTH_BYTES = {1: 2, 2: 4, 3: 4}
_MOST_HEADER_BYTES = 10_000
_MOST_AXES = 32
_MOST_BYTES = 1 << 60
_KEY = r"\s*(['\"]){}\1\s*:\s*"
_DTYPE = re.compile(_KEY.format("descr") + r"(['\"])([<>|=]?[A-Za-z?]\d{0,6}(?:\[\w{1,8}\])?)\2")
_ORDER = re.compile(_KEY.format("fortran_order") + r"(True|False)(?=\s*[,}])")
_SHAPE = re.compile(_KEY.format("shape") + r"\(((?:\s*\d{1,18}L?\s*,)*\s*(?:\d{1,18}L?\s*)?)\)")
_ENTRIES = (_DTYPE, _ORDER, _SHAPE)
_BETWEEN = re.compile(r"\s*,\s*")
_AROUND = re.compile(r"\s*\{(.*)\}\s*", re.DOTALL)


@dataclass(frozen=True)
class NpyHeader:
    """The header of an ``.npy`` file.

    Attributes
    ----------
    shape : tuple of int
    by_columns : bool
        Whether entries are stored in Fortran order.
    dtype : numpy dtype
        Of numbers or text, never of objects.
    start : int
        Offset of the first entry in the file.
    """

    shape: tuple[int, ...]
    by_columns: bool
    dtype: np.dtype[Any]
    start: int

    @property
    def nbytes(self) -> int:
        """Number of bytes of all entries."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(file: IO[bytes]) -> NpyHeader:
    """Read the header at the start of a file.

    Raises
    ------
    ValueError
        If it is not the header of an array of numbers or text.

    Examples
    --------
    >>> from io import BytesIO
    >>> file = BytesIO()
    >>> np.save(file, np.zeros((3, 2)))
    >>> _ = file.seek(0)
    >>> header = read_header(file)
    >>> header.shape, header.dtype.str, header.nbytes, header.start
    ((3, 2), '<f8', 48, 128)
    """
    head = file.read(len(_MAGIC) + 2)
    if head[:-2] != _MAGIC or head[-2] not in _LENGTH_BYTES:
        raise ValueError
    width = _LENGTH_BYTES[head[-2]]
    length = int.from_bytes(file.read(width), "little")
    if length > _MOST_HEADER_BYTES:
        raise ValueError
    text = file.read(length)
    if len(text) != length:
        raise ValueError
    return _parse_header(text.decode("latin1"), len(head) + width + length)


def _parse_header(text: str, start: int) -> NpyHeader:
    """Parse the three entries, each of which occurs once, in any order."""
    around = _AROUND.fullmatch(text)
    rest = "" if around is None else around.group(1)
    found: dict[re.Pattern[str], str] = {}
    for _ in _ENTRIES:
        matches = ((entry, entry.match(rest)) for entry in _ENTRIES if entry not in found)
        entry, match = next(((e, m) for e, m in matches if m is not None), (None, None))
        if entry is None or match is None:
            raise ValueError
        found[entry] = match.groups()[-1]
        rest = rest[match.end() :]
        comma = _BETWEEN.match(rest)
        rest = rest if comma is None else rest[comma.end() :]
    if rest.strip():
        raise ValueError
    shape = tuple(int(n.strip().rstrip("L")) for n in found[_SHAPE].split(",") if n.strip())
    dtype = _parse_dtype(found[_DTYPE])
    # numpy refuses such a shape even where an axis of length 0 makes the array empty.
    if len(shape) > _MOST_AXES or math.prod(n or 1 for n in shape) * dtype.itemsize > _MOST_BYTES:
        raise ValueError
    return NpyHeader(shape, found[_ORDER] == "True", dtype, start)


def _parse_dtype(name: str) -> np.dtype[Any]:
    try:
        dtype = np.dtype(name)
    except TypeError:
        raise ValueError from None
    if dtype.hasobject:
        raise ValueError
    return dtype


def map_npy(path: Path) -> npt.NDArray[Any]:
    """Map the array of an ``.npy`` file that is at least as long as its header says.

    Parameters
    ----------
    path : Path

    Raises
    ------
    DataError
        If it is not such a file.
    OSError
        If it cannot be opened or mapped.
    """
    with open(path, "rb", opener=_open_now) as file:
        header = _read_complete_header(file)
        if header is None:
            raise DataError(
                f"{path} is not a complete .npy file of numbers. Write it again with numpy.save."
            )
        if not header.nbytes:
            return np.empty(header.shape, header.dtype)
        return np.memmap(
            file,
            header.dtype,
            mode="r",
            offset=header.start,
            shape=header.shape,
            order="F" if header.by_columns else "C",
        )


def _open_now(path: str, flags: int) -> int:
    """Open without blocking on a named pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _read_complete_header(file: IO[bytes]) -> NpyHeader | None:
    """Return the header of a regular file that holds all of its array, else None."""
    about = os.fstat(file.fileno())
    if not stat.S_ISREG(about.st_mode):
        return None
    try:
        header = read_header(file)
    except ValueError:
        return None
    return header if header.start + header.nbytes <= about.st_size else None


def read_array(file: IO[bytes], size: int) -> npt.NDArray[Any]:
    """Read an array from a stream of `size` bytes.

    Parameters
    ----------
    file : binary file
    size : int
        An array that needs more or fewer bytes is refused before memory is allocated for it.

    Raises
    ------
    ValueError
        If the stream does not hold such an array.
    """
    header = read_header(file)
    if header.start + header.nbytes != size:
        raise ValueError
    data = file.read(header.nbytes)
    if len(data) != header.nbytes:
        raise ValueError
    entries: npt.NDArray[Any] = np.empty(0, header.dtype)
    if data:
        entries = np.frombuffer(data, header.dtype)
    return entries.reshape(header.shape, order="F" if header.by_columns else "C")


def open_npy(path: Path) -> npt.NDArray[Any]:
    """Map the table of an ``.npy`` file; only its header is read, and nothing is unpickled.

    Parameters
    ----------
    path : Path

    Returns
    -------
    ndarray of shape (n, d)
        Of real numbers.
    """
    try:
        X = map_npy(path)
    except OSError as error:
        raise InputError(
            f"{path} cannot be mapped: {error.strerror}. Allow this process more address space."
        ) from None
    check_table(path, X.shape, X.dtype)
    return X


def is_ready(X: npt.NDArray[Any]) -> bool:
    """Return whether an array is float64 or float32 in native byte order."""
    return X.dtype in (np.float64, np.float32)


def read_array_blocks(X: npt.NDArray[Any]) -> Iterator[Block]:
    """Yield the rows of a mapped array as blocks."""
    step = count_block_rows(X.shape[1])
    for start in range(0, len(X), step):
        yield Block(np.array(X[start : start + step]))


def count_block_rows(d: int) -> int:
    """Return how many rows of d numbers fit into a block of 4 MB, at least one."""
    return max(1, BLOCK_BYTES // (8 * d))


def check_table(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuse anything but a table of real numbers with at least a row and a column."""
    if dtype.kind not in "biuf":
        raise DataError(
            f"{path} holds numbers of dtype {dtype}, and they must be real. Convert them first."
        )
    if len(shape) != 2 or not shape[1]:
        raise DataError(
            f"{path} holds an array of shape {shape}, which must be rows x features. Reshape it."
        )
    if not shape[0]:
        raise DataError(f"{path} has no rows. Pass a file with records.")
