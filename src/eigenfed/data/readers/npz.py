"""Archives in numpy's ``.npz`` format: a sparse table as scipy saves it, or one dense array."""

import lzma
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from eigenfed.data.readers.csr import read_csr_rows
from eigenfed.data.readers.npy import check_table, count_block_rows, read_array, read_header
from eigenfed.data.source import Block, guard_blocks
from eigenfed.errors import DataError
from eigenfed.linalg.checks import MOST_FEATURES
from eigenfed.linalg.sparse_rows import merge_duplicates

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


def read_npz_blocks(path: Path) -> Iterator[Block]:
    """Yield the rows of an archive, sparse or dense.

    Tables stored by row (csr) and dense arrays in row order are streamed. Other layouts are read
    into memory, up to 64 MB. An array above that size may be at most 100 times as large as its
    compressed form, which guards against decompression bombs.

    Parameters
    ----------
    path : Path

    Raises
    ------
    DataError
        If the file is damaged, holds something else, or is large and in another layout.
    """
    fault = DataError(
        f"{path} is not a complete .npz file of numbers. Write it again with "
        "scipy.sparse.save_npz, or numpy.savez with one array."
    )
    return guard_blocks(_read_blocks(path), _BROKEN, fault)


def _read_blocks(path: Path) -> Iterator[Block]:
    with zipfile.ZipFile(path) as archive:
        members = [name.removesuffix(".npy") for name in archive.namelist()]
        if "format" not in members:
            yield from _read_dense(path, archive, members)
            return
        layout = _read_layout(path, archive)
        if layout == "csr":
            yield from map(Block, _read_sparse(path, archive))
        else:
            yield from _read_whole(path, archive, layout)


def _read_layout(path: Path, archive: zipfile.ZipFile) -> str:
    name = _read_member(path, archive, "format").item()
    return name.decode("ascii") if isinstance(name, bytes) else str(name)


def _read_dense(path: Path, archive: zipfile.ZipFile, members: list[str]) -> Iterator[Block]:
    if len(members) != 1:
        raise DataError(
            f"{path} holds {len(members)} arrays, and must hold one table. Save that one by itself."
        )
    with _open_member(path, archive, members[0]) as file:
        stored = _Stream(file, _get_size(archive, members[0]))
        check_table(path, stored.shape, stored.dtype)
        n, d = stored.shape
        if stored.by_columns:
            if n * d * stored.dtype.itemsize > _SMALL_BYTES:
                raise DataError(
                    f"{path} holds a large array in column order. Save it in row order."
                )
            yield Block(stored.take(n * d).reshape(d, n).T)
            return
        step = count_block_rows(d)
        for start in range(0, n, step):
            rows = min(step, n - start)
            yield Block(stored.take(rows * d).reshape(rows, d))


def _read_sparse(path: Path, archive: zipfile.ZipFile) -> Iterator[Any]:
    indptr = _read_member(path, archive, "indptr")
    shape = _read_shape(path, archive)
    with (
        _open_member(path, archive, "indices") as indices_file,
        _open_member(path, archive, "data") as data_file,
    ):
        indices = _Stream(indices_file, _get_size(archive, "indices"))
        data = _Stream(data_file, _get_size(archive, "data"))
        check_table(path, shape, data.dtype)
        if len(indptr) != shape[0] + 1:
            raise ValueError
        yield from read_csr_rows(path, indptr, indices.take, data.take, shape[1])


def _read_whole(path: Path, archive: zipfile.ZipFile, layout: str) -> Iterator[Block]:
    shape = _read_shape(path, archive)
    stored = sum(member.file_size for member in archive.infolist())
    # Converted to csr it has an entry of indptr for each row, however little the archive stores.
    if max(stored, 8 * shape[0]) > _SMALL_BYTES:
        raise DataError(
            f"{path} holds a large sparse table that is not stored by rows. Save its .tocsr()."
        )
    data, *places = (_read_member(path, archive, part) for part in _PARTS[layout])
    check_table(path, shape, data.dtype)
    make_table: Any = getattr(sparse, f"{layout}_array")
    parts = (data, tuple(places)) if layout == "coo" else (data, *places)
    table = make_table(parts, shape=shape)
    if layout in ("csc", "bsr"):
        table.check_format()
    yield Block(merge_duplicates(sparse.csr_array(table)))


def _read_shape(path: Path, archive: zipfile.ZipFile) -> tuple[int, int]:
    n, d = map(int, _read_member(path, archive, "shape"))
    if not 0 <= n <= MOST_FEATURES or not 0 <= d <= MOST_FEATURES:
        raise ValueError
    return n, d


def _open_member(path: Path, archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    """Open a member, unless it is far larger than its compressed form."""
    member = archive.getinfo(f"{name}.npy")
    if member.file_size > max(_SMALL_BYTES, _MOST_GROWTH * member.compress_size):
        raise DataError(
            f"{path} holds an array that is more than {_MOST_GROWTH} times as large as its "
            "compressed form. Save a table of zeros with scipy.sparse.save_npz, or without "
            "compression."
        )
    return archive.open(member)


def _read_member(path: Path, archive: zipfile.ZipFile, name: str) -> npt.NDArray[Any]:
    """Read a member into memory."""
    with _open_member(path, archive, name) as file:
        return read_array(file, _get_size(archive, name))


def _get_size(archive: zipfile.ZipFile, name: str) -> int:
    return archive.getinfo(f"{name}.npy").file_size


class _Stream:
    """The entries of one array in an archive, in the order in which they are stored."""

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
