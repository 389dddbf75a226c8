"""Archives of numpy: a sparse table as scipy saves it, or one dense array, read as a stream."""

import lzma
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from eigenfed.data.readers.npy import check_table, read_header, read_stored, rows_of_a_block
from eigenfed.data.source import Block, csr_rows, guarded
from eigenfed.errors import DataError
from eigenfed.linalg.checks import MOST_FEATURES

_SMALL_BYTES = 64 << 20
_MOST_GROWTH = 100
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    KeyError,
    OverflowError,
    RuntimeError,
    TypeError,
    ValueError,
)
_PARTS = {
    "csc": ("data", "indices", "indptr"),
    "bsr": ("data", "indices", "indptr"),
    "coo": ("data", "row", "col"),
    "dia": ("data", "offsets"),
}


def npz_blocks(path: Path) -> Iterator[Block]:
    """Yield the rows of an archive, sparse or dense.

    Rows that were saved by row (csr) and dense arrays in row order are streamed. Other layouts
    are read whole, up to 64 MB. An array of more than that may be 100 times as large as the
    archive stores it: what grows further is no table, but a trap.

    Parameters
    ----------
    path : Path

    Raises
    ------
    DataError
        If the file is damaged, holds something else, or is large in another layout.
    """
    fault = DataError(
        f"{path} is no whole .npz file of numbers. Write it again with scipy.sparse.save_npz, or "
        "numpy.savez with one array."
    )
    return guarded(_blocks(path), _BROKEN, fault)


def _blocks(path: Path) -> Iterator[Block]:
    with zipfile.ZipFile(path) as archive:
        members = [name.removesuffix(".npy") for name in archive.namelist()]
        if "format" not in members:
            yield from _dense(path, archive, members)
            return
        layout = _layout(path, archive)
        if layout == "csr":
            yield from map(Block, _sparse_rows(path, archive))
        else:
            yield from _whole(path, archive, layout)


def _layout(path: Path, archive: zipfile.ZipFile) -> str:
    name = _small(path, archive, "format").item()
    return name.decode("ascii") if isinstance(name, bytes) else str(name)


def _dense(path: Path, archive: zipfile.ZipFile, members: list[str]) -> Iterator[Block]:
    if len(members) != 1:
        raise DataError(
            f"{path} holds {len(members)} arrays, and must hold one table. Save that one by itself."
        )
    with _opened(path, archive, members[0]) as file:
        stored = _Stream(file, _size(archive, members[0]))
        check_table(path, stored.shape, stored.dtype)
        n, d = stored.shape
        if stored.by_columns:
            if n * d * stored.dtype.itemsize > _SMALL_BYTES:
                raise DataError(
                    f"{path} holds a large array in column order. Save it in row order."
                )
            yield Block(stored.take(n * d).reshape(d, n).T)
            return
        step = rows_of_a_block(d)
        for start in range(0, n, step):
            rows = min(step, n - start)
            yield Block(stored.take(rows * d).reshape(rows, d))


def _sparse_rows(path: Path, archive: zipfile.ZipFile) -> Iterator[Any]:
    indptr = _small(path, archive, "indptr")
    shape = _shape(path, archive)
    with (
        _opened(path, archive, "indices") as indices_file,
        _opened(path, archive, "data") as data_file,
    ):
        indices = _Stream(indices_file, _size(archive, "indices"))
        data = _Stream(data_file, _size(archive, "data"))
        check_table(path, shape, data.dtype)
        if len(indptr) != shape[0] + 1:
            raise ValueError
        yield from csr_rows(path, indptr, indices.take, data.take, shape[1])


def _whole(path: Path, archive: zipfile.ZipFile, layout: str) -> Iterator[Block]:
    shape = _shape(path, archive)
    stored = sum(member.file_size for member in archive.infolist())
    # By rows it has a number for each row, however few of them the archive stores.
    if max(stored, 8 * shape[0]) > _SMALL_BYTES:
        raise DataError(
            f"{path} holds a large sparse table that is not stored by rows. Save its .tocsr()."
        )
    data, *places = (_small(path, archive, part) for part in _PARTS[layout])
    check_table(path, shape, data.dtype)
    made: Any = getattr(sparse, f"{layout}_array")
    parts = (data, tuple(places)) if layout == "coo" else (data, *places)
    table = made(parts, shape=shape)
    if layout in ("csc", "bsr"):
        table.check_format()
    yield Block(sparse.csr_array(table))


def _shape(path: Path, archive: zipfile.ZipFile) -> tuple[int, int]:
    n, d = map(int, _small(path, archive, "shape"))
    if not 0 <= n <= MOST_FEATURES or not 0 <= d <= MOST_FEATURES:
        raise ValueError
    return n, d


def _opened(path: Path, archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    """Open a member that is not much larger than what the archive stores of it."""
    member = archive.getinfo(f"{name}.npy")
    if member.file_size > max(_SMALL_BYTES, _MOST_GROWTH * member.compress_size):
        raise DataError(
            f"{path} holds an array that is more than {_MOST_GROWTH} times as large as what is "
            "stored of it. Save a table of zeros with scipy.sparse.save_npz, or without "
            "compression."
        )
    return archive.open(member)


def _small(path: Path, archive: zipfile.ZipFile, name: str) -> npt.NDArray[Any]:
    """Read a member whole: one with no more than a number for each row."""
    with _opened(path, archive, name) as file:
        return read_stored(file, _size(archive, name))


def _size(archive: zipfile.ZipFile, name: str) -> int:
    return archive.getinfo(f"{name}.npy").file_size


class _Stream:
    """The numbers of one array in an archive, in the order in which they are stored."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        header = read_header(file)
        if header.start + header.nbytes != size:
            raise ValueError
        self.shape, self.by_columns, self.dtype = header.shape, header.by_columns, header.dtype
        self._file = file

    def take(self, count: int) -> npt.NDArray[Any]:
        size = count * self.dtype.itemsize
        data = self._file.read(size)
        if len(data) != size:
            raise EOFError
        return np.frombuffer(data, self.dtype)
