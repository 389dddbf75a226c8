"""Archives of numpy: a sparse table as scipy saves it, or one dense array, read as a stream."""

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from eigenfed.data.block import Block, guarded
from eigenfed.data.csr import csr_rows
from eigenfed.data.npy import check_table, rows_of_a_block
from eigenfed.errors import DataError

_SMALL_BYTES = 64 << 20
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError, RuntimeError)


def npz_blocks(path: Path) -> Iterator[Block]:
    """Yield the rows of an archive, sparse or dense.

    Rows that were saved by row (csr) and dense arrays in row order are streamed. Other layouts
    are read whole, up to 64 MB.

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
        elif _small(archive, "format").item() in ("csr", b"csr"):
            yield from map(Block, _sparse_rows(path, archive))
        else:
            yield from _whole(path, archive)


def _dense(path: Path, archive: zipfile.ZipFile, members: list[str]) -> Iterator[Block]:
    if len(members) != 1:
        raise DataError(
            f"{path} holds {len(members)} arrays, and must hold one table. Save that one by itself."
        )
    with archive.open(f"{members[0]}.npy") as file:
        stored = _Stream(file)
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
    indptr = _small(archive, "indptr")
    shape = tuple(map(int, _small(archive, "shape")))
    with archive.open("indices.npy") as indices_file, archive.open("data.npy") as data_file:
        indices, data = _Stream(indices_file), _Stream(data_file)
        check_table(path, shape, data.dtype)
        if len(indptr) != shape[0] + 1:
            raise ValueError
        yield from csr_rows(path, indptr, indices.take, data.take, shape[1])


def _whole(path: Path, archive: zipfile.ZipFile) -> Iterator[Block]:
    if sum(member.file_size for member in archive.infolist()) > _SMALL_BYTES:
        raise DataError(
            f"{path} holds a large sparse table that is not stored by rows. Save its .tocsr()."
        )
    table: Any = sparse.load_npz(path)
    check_table(path, table.shape, table.dtype)
    if table.format in ("csc", "bsr"):
        table.check_format()
    yield Block(sparse.csr_array(table))


def _small(archive: zipfile.ZipFile, name: str) -> npt.NDArray[Any]:
    """Read a member whole: one with no more than a number for each row."""
    with archive.open(f"{name}.npy") as file:
        loaded: npt.NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    return loaded


class _Stream:
    """The numbers of one array in an archive, in the order in which they are stored."""

    def __init__(self, file: IO[bytes]) -> None:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0
        if version != (1, 0):
            read = np.lib.format.read_array_header_2_0
        self.shape, self.by_columns, self.dtype = read(file)
        if self.dtype.hasobject:
            raise ValueError
        self._file = file

    def take(self, count: int) -> npt.NDArray[Any]:
        size = count * self.dtype.itemsize
        data = self._file.read(size)
        if len(data) != size:
            raise EOFError
        return np.frombuffer(data, self.dtype)
