"""Files of anndata: the table ``X`` with the names of its features and rows, read in blocks."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from eigenfed.data.block import BLOCK_BYTES, Block, guarded
from eigenfed.data.csr import csr_rows
from eigenfed.data.extras import needed
from eigenfed.data.npy import check_table, rows_of_a_block
from eigenfed.errors import DataError, EigenfedError

_SMALL_BYTES = 64 << 20
_BROKEN = (OSError, KeyError, ValueError, TypeError, RuntimeError)


def h5ad_names(path: Path) -> tuple[str, ...]:
    """Return the names of the features."""
    try:
        with _opened(path) as file:
            names = tuple(_texts(file["var"])[:])
    except EigenfedError:
        raise
    except _BROKEN:
        names = None
    if names is None:
        raise _damaged(path)
    return names


def h5ad_blocks(path: Path, features: Sequence[str]) -> Iterator[Block]:
    """Yield the rows of ``X``, dense or sparse as they are stored, with their names.

    Rows that are stored by column (csc) are read whole, up to 64 MB.

    Parameters
    ----------
    path : Path
    features : sequence of str
        Features to take, in this order.

    Raises
    ------
    DataError
        If the file is damaged, has no ``X``, or is large and stored by column.
    """
    return guarded(_blocks(path, features), _BROKEN, _damaged(path))


def _blocks(path: Path, features: Sequence[str]) -> Iterator[Block]:
    with _opened(path) as file:
        if "X" not in file or file["X"].attrs.get("encoding-type") == "null":
            raise DataError(f"{path} has no X. Write the file again with the table in X.")
        places = {name: place for place, name in enumerate(_texts(file["var"])[:])}
        chosen = np.array([places[name] for name in features], np.intp)
        is_all = np.array_equal(chosen, np.arange(len(places)))
        ids = _texts(file["obs"])
        start = 0
        for rows in _tables(path, file["X"], (len(ids), len(places))):
            stop = start + rows.shape[0]
            yield Block(rows if is_all else rows[:, chosen], list(ids[start:stop]))
            start = stop


def _tables(path: Path, X: Any, shape: tuple[int, int]) -> Iterator[Any]:
    h5py = needed("h5py", extra="anndata", path=path)
    if isinstance(X, h5py.Dataset):
        check_table(path, X.shape, X.dtype)
        if X.shape != shape:
            raise ValueError
        step = _step(X)
        for start in range(0, len(X), step):
            yield X[start : start + step]
        return
    layout = X.attrs.get("encoding-type", X.attrs.get("h5sparse_format"))
    if tuple(X.attrs.get("shape", X.attrs.get("h5sparse_shape"))) != shape:
        raise ValueError
    check_table(path, shape, X["data"].dtype)
    if layout in ("csr_matrix", "csr"):
        indptr = X["indptr"][:]
        if len(indptr) != shape[0] + 1:
            raise ValueError
        yield from csr_rows(path, indptr, _reader(X["indices"]), _reader(X["data"]), shape[1])
    elif layout in ("csc_matrix", "csc"):
        yield _turned(path, X, shape)
    else:
        raise ValueError


def _turned(path: Path, X: Any, shape: tuple[int, int]) -> Any:
    if sum(X[part].nbytes for part in ("data", "indices", "indptr")) > _SMALL_BYTES:
        raise DataError(
            f"{path} stores a large X by column (csc). Write it again with adata.X.tocsr()."
        )
    stored = (X["data"][:], X["indices"][:], X["indptr"][:])
    table = sparse.csc_array(stored, shape=shape)
    table.check_format()
    return table.tocsr()


def _step(X: Any) -> int:
    """Rows of a block: whole chunks where those are not large, or each would be read twice."""
    step = rows_of_a_block(X.shape[1])
    tall = X.chunks[0] if X.chunks else 1
    if tall * X.shape[1] * 8 > 4 * BLOCK_BYTES:
        return step
    return int(max(tall, step // tall * tall))


def _reader(stored: Any) -> Callable[[int], npt.NDArray[Any]]:
    position = 0

    def take(count: int) -> npt.NDArray[Any]:
        nonlocal position
        position += count
        taken: npt.NDArray[Any] = stored[position - count : position]
        return taken

    return take


def _texts(frame: Any) -> Any:
    """Return the index of a stored frame, to be read by slices, in either way of storing it."""
    index = frame[frame.attrs["_index"]]
    return (index["values"] if hasattr(index, "keys") else index).asstr()


def _opened(path: Path) -> Any:
    return needed("h5py", extra="anndata", path=path).File(path, "r")


def _damaged(path: Path) -> DataError:
    return DataError(f"{path} is no whole .h5ad file of anndata 0.7 or later. Write it again.")
