"""Files of anndata: the table ``X`` with the names of its features and rows, read in blocks.

Results in the places of a ``.h5ad`` file where users of anndata look for them.

==============================  ===============================================================
``obsm["X_pca"]``               the rows' scores, n x k
``varm["PCs"]``                 the components, features x k; 0 where a feature was not used
``uns["pca"]["variance"]``      by component
``uns["pca"]["variance_ratio"]``
``uns["pca"]["params"]``        whether rows were centred and scaled, and the method
==============================  ===============================================================
"""

import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from eigenfed.data.readers.npy import check_table, rows_of_a_block
from eigenfed.data.readers.optional import needed
from eigenfed.data.row_filter import Condition, filtered
from eigenfed.data.source import BLOCK_BYTES, Block, csr_rows, guarded
from eigenfed.errors import DataError, EigenfedError, InputError

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


def obs_names(path: Path) -> tuple[str, ...]:
    """Return the names of what is known of the rows beside ``X``."""
    names = None
    try:
        with _opened(path) as file:
            names = tuple(name for name in file["obs"] if name != file["obs"].attrs["_index"])
    except EigenfedError:
        raise
    except _BROKEN:
        pass
    if names is None:
        raise _damaged(path)
    return names


def h5ad_blocks(
    path: Path, features: Sequence[str], conditions: Sequence[Condition] = ()
) -> Iterator[Block]:
    """Yield the rows of ``X``, dense or sparse as they are stored, with their names.

    Rows that are stored by column (csc) are read whole, up to 64 MB.

    Parameters
    ----------
    path : Path
    features : sequence of str
        Features to take, in this order.
    conditions : sequence of Condition
        On columns of ``obs``, that rows must fulfil.

    Raises
    ------
    InputError
        If a condition is on a column that does not hold numbers.
    DataError
        If the file is damaged, has no ``X``, or is large and stored by column.
    """
    return guarded(_chosen(path, features, conditions), _BROKEN, _damaged(path))


def _chosen(
    path: Path, features: Sequence[str], conditions: Sequence[Condition]
) -> Iterator[Block]:
    blocks = _blocks(path, features)
    if not conditions:
        yield from blocks
        return
    with _opened(path) as file:
        readers = {c.column: _numbers(path, file["obs"], c.column) for c in conditions}

        def entries(block: Block, start: int, column: str) -> npt.NDArray[Any]:
            return readers[column](start, start + block.rows.shape[0])

        yield from filtered(blocks, path, conditions, entries)


def _numbers(path: Path, obs: Any, name: str) -> Callable[[int, int], npt.NDArray[np.float64]]:
    """Return what reads some entries of a column of numbers; missing ones are NaN."""
    stored = obs[name]
    nullable = stored.attrs.get("encoding-type") in ("nullable-integer", "nullable-boolean")
    values, mask = (stored["values"], stored["mask"]) if nullable else (stored, None)
    # A dataset with categories holds codes, which are no numbers to compare.
    if (
        not hasattr(values, "dtype")
        or values.dtype.kind not in "biuf"
        or "categories" in values.attrs
    ):
        raise InputError(
            f"where compares {name!r} in {path} with a number, and the column does not hold "
            "numbers. Compare a column of obs that does."
        )

    def read(start: int, stop: int) -> npt.NDArray[np.float64]:
        taken = np.asarray(values[start:stop], np.float64)
        return taken if mask is None else np.where(mask[start:stop], np.nan, taken)

    return read


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


_SLOTS = ("obsm/X_pca", "varm/PCs", "uns/pca")


@dataclass(frozen=True, eq=False, repr=False)
class Slots:
    """What goes into the file.

    Attributes
    ----------
    scores : ndarray of shape (n, k)
    components : ndarray of shape (k, d)
    features : sequence of str
        Names of the d features, which the file has too.
    variance, variance_ratio : ndarray of shape (k,)
    params : mapping of str to bool or str
    """

    scores: npt.NDArray[Any]
    components: npt.NDArray[Any]
    features: Sequence[str]
    variance: npt.NDArray[Any]
    variance_ratio: npt.NDArray[Any]
    params: Mapping[str, bool | str]


def check_slots_free(path: Path, *, force: bool) -> None:
    """Refuse a file that has such results already, unless they may be replaced.

    Raises
    ------
    InputError
    DataError
        If the file cannot be opened.
    """
    h5py = needed("h5py", extra="anndata", path=path)
    try:
        with h5py.File(path, "r") as file:
            taken = [slot for slot in _SLOTS if slot in file]
    except OSError:
        raise DataError(f"{path} is no whole .h5ad file. Write it again.") from None
    if taken and not force:
        raise InputError(
            f"{path} has {taken[0]} already, and nothing is overwritten. Remove it, or pass "
            "--force to replace it."
        )


def write_slots(path: Path, slots: Slots) -> None:
    """Write results into a ``.h5ad`` file: all of them, or none.

    They go into a copy, which then takes the file's place, so that nobody sees half of them and a
    full disk costs nothing. What else is in the file stays.

    Parameters
    ----------
    path : Path
    slots : Slots

    Raises
    ------
    InputError
        If the file lacks a feature or has another number of rows.
    DataError
        If the file cannot be written.
    """
    h5py = needed("h5py", extra="anndata", path=path)
    places = {name: place for place, name in enumerate(h5ad_names(path))}
    absent = [name for name in slots.features if name not in places]
    if absent:
        raise InputError(
            f"{path} lacks the feature {absent[0]!r} of the components. Bring the file that was "
            "fitted."
        )
    whole = np.zeros((len(places), len(slots.components)), slots.components.dtype)
    whole[[places[name] for name in slots.features]] = slots.components.T
    # Through a link, the file that it leads to is replaced and the link stays.
    target = path.resolve()
    copy = target.with_name(f".{target.name}.new-{secrets.token_hex(4)}")
    try:
        shutil.copy2(target, copy)
        with h5py.File(copy, "r+") as file:
            _check_rows(path, file, len(slots.scores))
            _put(file, slots, whole)
        with copy.open("rb") as written:
            os.fsync(written.fileno())
        copy.replace(target)
    except EigenfedError:
        raise
    except (OSError, RuntimeError, KeyError, ValueError, TypeError):
        raise DataError(
            f"{path} could not be written, and is as it was. Check that it is a whole .h5ad file, "
            "that its folder may be written to, and that there is room for a copy of it."
        ) from None
    finally:
        copy.unlink(missing_ok=True)


def _check_rows(path: Path, file: Any, n: int) -> None:
    index = file["obs"][file["obs"].attrs["_index"]]
    found = len(index["values"] if hasattr(index, "keys") else index)
    if found != n:
        raise InputError(
            f"{path} has {found} rows and there are {n} scores. Bring the file that was fitted."
        )


def _put(file: Any, slots: Slots, components: npt.NDArray[Any]) -> None:
    for slot in _SLOTS:
        if slot in file:
            del file[slot]
    _array(_group(file, "obsm"), "X_pca", slots.scores)
    _array(_group(file, "varm"), "PCs", components)
    found = _group(_group(file, "uns"), "pca")
    _array(found, "variance", slots.variance)
    _array(found, "variance_ratio", slots.variance_ratio)
    params = _group(found, "params")
    for name, value in slots.params.items():
        kind = "string" if isinstance(value, str) else "numeric-scalar"
        params[name] = value
        params[name].attrs.update({"encoding-type": kind, "encoding-version": "0.2.0"})


def _group(parent: Any, name: str) -> Any:
    group = parent.require_group(name)
    if "encoding-type" not in group.attrs:
        group.attrs.update({"encoding-type": "dict", "encoding-version": "0.1.0"})
    return group


def _array(parent: Any, name: str, values: npt.NDArray[Any]) -> None:
    stored = parent.create_dataset(name, data=values)
    stored.attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
