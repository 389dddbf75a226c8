"""Files of anndata: the table ``X`` and the names of its features and rows, read in blocks.

Results are written to where users of anndata look for them:

==============================  ===============================================================
``obsm["X_pca"]``               scores of the rows, n x k
``varm["PCs"]``                 the components, features x k; 0 where a feature was not used
``uns["pca"]["variance"]``      by component
``uns["pca"]["variance_ratio"]``
``uns["pca"]["params"]``        whether rows were centred and scaled, and the method
==============================  ===============================================================

Reading and writing need h5py, which the extra ``eigenfed[anndata]`` installs.
"""

import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from eigenfed.data.column_names import quote_names
from eigenfed.data.readers.csr import read_csr_rows
from eigenfed.data.readers.npy import check_table, count_block_rows
from eigenfed.data.row_filter import Condition, filter_blocks
from eigenfed.data.safe_files import check_writable
from eigenfed.data.source import BLOCK_BYTES, Block, guard_blocks
from eigenfed.errors import DataError, EigenfedError, InputError, Pass

_SMALL_BYTES = 64 << 20
_BROKEN = (OSError, KeyError, ValueError, TypeError, RuntimeError, MemoryError)


class H5adHeader(NamedTuple):
    """Names of the features of a file."""

    names: tuple[str, ...]


def read_h5ad_header(path: Path, highly_variable: bool = False) -> H5adHeader:
    """Read the names of the features.

    Parameters
    ----------
    path : Path
    highly_variable : bool, default=False
        Whether to return only those marked in ``var["highly_variable"]``.

    Raises
    ------
    InputError
        If the file does not mark features.
    DataError
        If the file is damaged.
    """
    names = None
    try:
        with _open_h5ad(path) as file:
            _check_own(path, file)
            names = tuple(_open_index(file["var"])[:])
            if highly_variable:
                marked = _read_marks(path, file["var"])
                names = tuple(name for name, mark in zip(names, marked, strict=True) if mark)
    except EigenfedError:
        raise
    except _BROKEN:
        pass
    if names is None:
        raise _damaged_error(path)
    return H5adHeader(names)


def _read_marks(path: Path, var: Any) -> list[bool]:
    if "highly_variable" not in var:
        raise InputError(
            f"{path} has no column highly_variable in var. Mark the features, for example with "
            "scanpy.pp.highly_variable_genes, or use all of them."
        )
    stored = var["highly_variable"]
    values = stored["values"] if hasattr(stored, "keys") else stored
    return [bool(mark) for mark in values[:]]


def read_obs_names(path: Path) -> tuple[str, ...]:
    """Return the names of the columns of ``obs``."""
    names = None
    try:
        with _open_h5ad(path) as file:
            names = tuple(name for name in file["obs"] if name != file["obs"].attrs["_index"])
    except EigenfedError:
        raise
    except _BROKEN:
        pass
    if names is None:
        raise _damaged_error(path)
    return names


def read_obs_labels(path: Path, column: str) -> tuple[str, ...]:
    """Return a column of ``obs`` as text, an entry for each row.

    Raises
    ------
    DataError
        If an entry is missing, or the file is damaged.
    """
    labels = None
    try:
        with _open_h5ad(path) as file:
            labels = _read_texts(path, file["obs"][column])
            if len(labels) != len(_open_index(file["obs"])):
                labels = None
    except EigenfedError:
        raise
    except (*_BROKEN, IndexError):
        pass
    if labels is None:
        raise _damaged_error(path)
    present = tuple(label for label in labels if label is not None)
    if len(present) < len(labels):
        raise missing_label_error(path, column)
    return present


def missing_label_error(path: Path, column: str) -> DataError:
    """Return the error for a column of labels with a gap."""
    return DataError(
        f"{path} lacks an entry of {column!r} in some row. Fill it, or use another column."
    )


def _read_texts(path: Path, stored: Any) -> list[str | None]:
    """Return entries of a stored column, in any of the encodings of anndata."""
    categories = stored.attrs.get("categories")
    if categories is not None or "codes" in getattr(stored, "keys", tuple)():
        # Until anndata 0.7 the codes refer to their categories.
        names, codes = (
            (stored["categories"], stored["codes"])
            if categories is None
            else (stored.file[categories], stored)
        )
        known = _read_texts(path, names)
        return [None if code < 0 else known[code] for code in codes[:]]
    if hasattr(stored, "keys"):
        entries = zip(_read_texts(path, stored["values"]), stored["mask"][:], strict=True)
        return [None if is_missing else text for text, is_missing in entries]
    if _import_h5py(path).check_string_dtype(stored.dtype) is not None:
        return list(stored.asstr()[:])
    return [None if value != value else str(value) for value in stored[:].tolist()]


def read_h5ad_blocks(
    path: Path,
    features: Sequence[str],
    conditions: Sequence[Condition] = (),
    layer: str | None = None,
) -> Iterator[Block]:
    """Yield the rows of ``X`` or a layer, dense or sparse as stored, with their names.

    A table stored by column (csc) is read into memory, up to 64 MB.

    Parameters
    ----------
    path : Path
    features : sequence of str
        Features to read, in this order.
    conditions : sequence of Condition
        On columns of ``obs``; rows that do not fulfil all of them are left out.
    layer : str, optional
        The layer to read instead of ``X``.

    Raises
    ------
    InputError
        If a condition is on a column that does not hold numbers, or there is no such layer.
    DataError
        If the file is damaged, has no ``X``, or is large and stored by column.
    """
    chosen = _read_chosen(path, features, conditions, layer)
    return guard_blocks(chosen, _BROKEN, _damaged_error(path))


def _read_chosen(
    path: Path, features: Sequence[str], conditions: Sequence[Condition], layer: str | None
) -> Iterator[Block]:
    blocks = _read_blocks(path, features, layer)
    if not conditions:
        yield from blocks
        return
    with _open_h5ad(path) as file:
        readers = {c.column: _make_reader(path, file["obs"], c.column) for c in conditions}

        def entries(block: Block, start: int, column: str) -> npt.NDArray[Any]:
            return readers[column](start, start + block.rows.shape[0])

        yield from filter_blocks(blocks, conditions, entries)


def _make_reader(path: Path, obs: Any, name: str) -> Callable[[int, int], npt.NDArray[np.float64]]:
    """Return a function that reads entries start:stop of a numeric column, NaN where missing."""
    stored = obs[name]
    nullable = stored.attrs.get("encoding-type") in ("nullable-integer", "nullable-boolean")
    values, mask = (stored["values"], stored["mask"]) if nullable else (stored, None)
    # A dataset with categories holds codes, and comparing those means nothing.
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


def _find_table(path: Path, file: Any, layer: str | None) -> Any:
    if layer is not None:
        layers = list(file["layers"]) if "layers" in file else []
        if layer not in layers:
            raise InputError(
                f"{path} has no layer {layer!r}. Its layers: {quote_names(layers) or 'none'}."
            )
        return file["layers"][layer]
    if "X" not in file or file["X"].attrs.get("encoding-type") == "null":
        raise DataError(f"{path} has no X. Write the file again with the table in X.")
    return file["X"]


def _read_blocks(path: Path, features: Sequence[str], layer: str | None) -> Iterator[Block]:
    with _open_h5ad(path) as file:
        table = _find_table(path, file, layer)
        places = {name: place for place, name in enumerate(_open_index(file["var"])[:])}
        chosen = np.array([places[name] for name in features], np.intp)
        is_all = np.array_equal(chosen, np.arange(len(places)))
        ids = _open_index(file["obs"])
        start = 0
        for rows in _read_tables(path, table, (len(ids), len(places))):
            stop = start + rows.shape[0]
            yield Block(rows if is_all else rows[:, chosen], list(ids[start:stop]))
            start = stop


def _read_tables(path: Path, X: Any, shape: tuple[int, int]) -> Iterator[Any]:
    h5py = _import_h5py(path)
    if isinstance(X, h5py.Dataset):
        check_table(path, X.shape, X.dtype)
        if X.shape != shape:
            raise ValueError
        step = _choose_step(X)
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
        yield from read_csr_rows(
            path, indptr, _make_taker(X["indices"]), _make_taker(X["data"]), shape[1]
        )
    elif layout in ("csc_matrix", "csc"):
        yield _read_csc(path, X, shape)
    else:
        raise ValueError


def _read_csc(path: Path, X: Any, shape: tuple[int, int]) -> Any:
    if sum(X[part].nbytes for part in ("data", "indices", "indptr")) > _SMALL_BYTES:
        raise DataError(
            f"{path} stores a large X by column (csc). Write it again with adata.X.tocsr()."
        )
    stored = (X["data"][:], X["indices"][:], X["indptr"][:])
    table = sparse.csc_array(stored, shape=shape)
    table.check_format()
    return table.tocsr()


def _choose_step(X: Any) -> int:
    """Return the rows of a block: whole chunks unless large, so that none is read twice."""
    step = count_block_rows(X.shape[1])
    tall = X.chunks[0] if X.chunks else 1
    if tall * X.shape[1] * 8 > 4 * BLOCK_BYTES:
        return step
    return int(max(tall, step // tall * tall))


def _make_taker(stored: Any) -> Callable[[int], npt.NDArray[Any]]:
    position = 0

    def take(count: int) -> npt.NDArray[Any]:
        nonlocal position
        position += count
        taken: npt.NDArray[Any] = stored[position - count : position]
        return taken

    return take


def _open_index(frame: Any) -> Any:
    """Return the index of a stored frame, to be read by slices, in either of its encodings."""
    index = frame[frame.attrs["_index"]]
    return (index["values"] if hasattr(index, "keys") else index).asstr()


def _open_h5ad(path: Path) -> Any:
    return _import_h5py(path).File(path, "r")


def _check_own(path: Path, file: Any) -> None:
    """Refuse a file whose parts lie in other files: it could have any file of the site read."""
    h5py = _import_h5py(path)

    def is_foreign(name: str, link: Any) -> bool | None:
        if isinstance(link, h5py.ExternalLink):
            return True
        found: Any = file[name] if isinstance(link, h5py.HardLink) else None
        is_data = isinstance(found, h5py.Dataset)
        return True if is_data and (found.is_virtual or found.external is not None) else None

    if file.visititems_links(is_foreign):
        raise DataError(
            f"{path} keeps a part of itself in other files. Read it with anndata, and write it "
            "again as one file."
        )


def _import_h5py(path: Path) -> Any:
    try:
        import h5py
    except ImportError:
        raise InputError(
            f"{path} needs the package h5py, which is not installed. "
            "Run pip install 'eigenfed[anndata]'."
        ) from None
    return h5py


def _damaged_error(path: Path) -> DataError:
    return DataError(
        f"{path} is not a complete .h5ad file of anndata 0.7 or later. If anndata can read "
        "it, read it and write it again."
    )


_SLOTS = ("obsm/X_pca", "varm/PCs", "uns/pca")


@dataclass(frozen=True, eq=False, repr=False)
class Slots:
    """Results to write into a file.

    Attributes
    ----------
    scores : ndarray of shape (n, k)
    components : ndarray of shape (k, d)
    features : sequence of str
        Names of the d features, all of which the file has.
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
    """Refuse a file that already has such results, unless they may be replaced.

    Also one that cannot be replaced: a copy beside it takes its place.

    Raises
    ------
    InputError
    DataError
        If the file cannot be opened.
    """
    h5py = _import_h5py(path)
    try:
        with h5py.File(path, "r") as file:
            taken = [slot for slot in _SLOTS if slot in file]
    except OSError:
        raise DataError(f"{path} is not a complete .h5ad file. Write it again.") from None
    if taken and not force:
        raise InputError(
            f"{path} already has {taken[0]}, and nothing is overwritten",
            remedy=("Remove it, or ", Pass("force", True), " to replace it."),
        )
    check_writable(path.resolve().parent)


def write_slots(path: Path, slots: Slots) -> None:
    """Write results into a ``.h5ad`` file: all of them, or none.

    They go into a copy, which then replaces the file: nobody sees half of them, and a full disk
    does no harm. The rest of the file stays as it is.

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
    h5py = _import_h5py(path)
    places = {name: place for place, name in enumerate(read_h5ad_header(path).names)}
    absent = [name for name in slots.features if name not in places]
    if absent:
        raise InputError(
            f"{path} lacks the feature {absent[0]!r} of the components. Pass the file that was "
            "fitted."
        )
    components = np.zeros((len(places), len(slots.components)), slots.components.dtype)
    components[[places[name] for name in slots.features]] = slots.components.T
    # Of a symbolic link the target is replaced, and the link stays.
    target = path.resolve()
    copy = target.with_name(f".{target.name}.new-{secrets.token_hex(4)}")
    try:
        shutil.copy2(target, copy)
        with h5py.File(copy, "r+") as file:
            _check_rows(path, file, len(slots.scores))
            _write_all(file, slots, components)
        with copy.open("rb") as written:
            os.fsync(written.fileno())
        copy.replace(target)
    except EigenfedError:
        raise
    except (OSError, RuntimeError, KeyError, ValueError, TypeError):
        raise DataError(
            f"{path} could not be written and is unchanged. Check that it is a complete .h5ad "
            "file, that its folder is writable, and that there is room for a copy of it."
        ) from None
    finally:
        copy.unlink(missing_ok=True)


def _check_rows(path: Path, file: Any, n: int) -> None:
    index = file["obs"][file["obs"].attrs["_index"]]
    found = len(index["values"] if hasattr(index, "keys") else index)
    if found != n:
        raise InputError(
            f"{path} has {found} rows and there are {n} scores. Pass the file that was fitted."
        )


def _write_all(file: Any, slots: Slots, components: npt.NDArray[Any]) -> None:
    for slot in _SLOTS:
        if slot in file:
            del file[slot]
    _write_array(_require_group(file, "obsm"), "X_pca", slots.scores)
    _write_array(_require_group(file, "varm"), "PCs", components)
    pca = _require_group(_require_group(file, "uns"), "pca")
    _write_array(pca, "variance", slots.variance)
    _write_array(pca, "variance_ratio", slots.variance_ratio)
    params = _require_group(pca, "params")
    for name, value in slots.params.items():
        kind = "string" if isinstance(value, str) else "numeric-scalar"
        params[name] = value
        params[name].attrs.update({"encoding-type": kind, "encoding-version": "0.2.0"})


def _require_group(parent: Any, name: str) -> Any:
    group = parent.require_group(name)
    if "encoding-type" not in group.attrs:
        group.attrs.update({"encoding-type": "dict", "encoding-version": "0.1.0"})
    return group


def _write_array(parent: Any, name: str, values: npt.NDArray[Any]) -> None:
    stored = parent.create_dataset(name, data=values)
    stored.attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
