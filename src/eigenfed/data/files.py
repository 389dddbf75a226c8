"""Files as sources: one call for every kind, in memory that does not grow with the file.

==================  ============================================================================
``.npy``            mapped where it holds float64 or float32
``.npz``            a sparse table as scipy saves it, or one dense array
``.csv .csv.gz``    UTF-8 with a line of names; needs ``eigenfed[tables]``
``.parquet``        needs ``eigenfed[tables]``
``.h5ad``           the table X of anndata, dense or sparse; needs ``eigenfed[anndata]``
``.svm``            rows of libsvm; the label is left out
==================  ============================================================================

What is not mapped as it is becomes float64: in memory up to 64 MB, and else in a parsed copy on
disk that is mapped (see `eigenfed.data.cache` for where it lies, and `forget_cache` to remove it).
The numbers are the same whichever kind of file holds them. No message quotes a value.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from pathlib import Path

from eigenfed.data.cache import CacheSlot, check_unique, forget_cache, kept, store
from eigenfed.data.column_names import features_of
from eigenfed.data.readers.csv import csv_blocks, read_header
from eigenfed.data.readers.h5ad import h5ad_blocks, h5ad_names, obs_names
from eigenfed.data.readers.npy import array_blocks, is_ready, npy_array
from eigenfed.data.readers.npz import npz_blocks
from eigenfed.data.readers.parquet import check_pandas_index, parquet_blocks, parquet_names
from eigenfed.data.readers.svm import svm_blocks
from eigenfed.data.row_filter import Condition, check_columns, conditions_of, named_rows
from eigenfed.data.source import Block, Source, guarded
from eigenfed.errors import Argument, DataError, InputError, Name
from eigenfed.linalg.checks import check_count

__all__ = ["FileTable", "column_names", "forget_cache", "open_source", "open_table"]

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, eq=False, repr=False)
class FileTable:
    """A file's records, and what they are called.

    Attributes
    ----------
    source : Source
    path : Path
        The file.
    cache : Path or None
        The folder of the parsed copy; None where the file itself is mapped, or is in memory.
    """

    source: Source
    path: Path
    cache: Path | None
    _ids: tuple[str, ...] | Path | None

    @cached_property
    def row_ids(self) -> tuple[str, ...] | None:
        """What the rows are called; None where the file does not say. They stay at the site."""
        if not isinstance(self._ids, Path):
            return self._ids
        with self._ids.open(encoding="utf-8") as lines:
            return tuple(json.loads(line) for line in lines)


def open_table(
    path: PathLike,
    *,
    columns: Sequence[str] | None = None,
    id_column: str | None = None,
    n_features: int | None = None,
    where: Sequence[str] | None = None,
    cache: PathLike | None = None,
) -> FileTable:
    r"""Open a file of records.

    Parameters
    ----------
    path : path
        Of a kind in the table above.
    columns : sequence of str, optional
        Features to take, in this order, of a file that names them; all of them without this.
    id_column : str, optional
        Column of a ``.csv`` or ``.parquet`` file that names the rows; each has its own name. A
        ``.h5ad`` file names its rows itself.
    n_features : int, optional
        Width of a ``.svm`` file, which says no more than its largest index.
    where : sequence of str, optional
        Rows to take of a file that names its columns: those for which all of these conditions
        hold, each a column, one of ``< <= == != >= >`` and a number, as in ``"age >= 18"``. The
        column need not be a feature; of a ``.h5ad`` file it is one of ``obs``. A missing entry
        fulfils none.
    cache : path, optional
        Folder for parsed copies; without it they lie beside the file, in ``<file>.eigenfed``.

    Returns
    -------
    Table

    Raises
    ------
    InputError
        If the file is not there or cannot be used with these arguments.
    DataError
        If the file is not what it claims to be.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "a.csv")
    >>> _ = path.write_text("id,age,bmi\np1,34,21.5\np2,,30\n")
    >>> table = open_table(path, id_column="id")
    >>> table.source.names, table.row_ids
    (('age', 'bmi'), ('p1', 'p2'))
    >>> table.source.X.tolist()
    [[34.0, 21.5], [nan, 30.0]]
    >>> open_table(path, columns=["bmi"], id_column="id", where=["age >= 18"]).row_ids
    ('p1',)
    >>> folder.cleanup()
    """
    path = Path(path)
    kind = _kind(path)
    _check_options(path, kind, columns, id_column, n_features)
    conditions = _conditions(path, kind, where, id_column)
    if kind == ".npy":
        X = npy_array(path)
        if is_ready(X):
            return FileTable(_mapped_source(path, X), path, None, None)
    features = _features(path, kind, columns, id_column)
    wanted = [features, id_column, n_features, *map(astuple, conditions)]
    slot = CacheSlot.of(path, wanted, cache)
    stored = kept(slot)
    if stored is None:
        blocks = _blocks(path, kind, features, id_column, n_features, conditions)
        fault = DataError(f"{path} cannot be read to its end. Check the disk that it lies on.")
        stored = store(guarded(blocks, (OSError,), fault), slot, features)
    return FileTable(Source(stored.X, None, features), path, stored.place, stored.ids)


def open_source(
    path: PathLike,
    *,
    columns: Sequence[str] | None = None,
    id_column: str | None = None,
    n_features: int | None = None,
    where: Sequence[str] | None = None,
    cache: PathLike | None = None,
) -> Source:
    r"""Open a file of records as a source: `open_table` without the rows' names.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "a.svm")
    >>> _ = path.write_text("+1 1:0.5 3:2\n-1 2:1\n")
    >>> open_source(path).X.toarray().tolist()
    [[0.5, 0.0, 2.0], [0.0, 1.0, 0.0]]
    >>> folder.cleanup()
    """
    table = open_table(
        path,
        columns=columns,
        id_column=id_column,
        n_features=n_features,
        where=where,
        cache=cache,
    )
    return table.source


def column_names(path: PathLike) -> tuple[str, ...] | None:
    """Return the names of a file's columns from its header; None where its kind has no names.

    Examples
    --------
    >>> column_names("nowhere.csv")
    Traceback (most recent call last):
    eigenfed.errors.InputError: nowhere.csv is not there. Check the path.
    """
    path = Path(path)
    kind = _kind(path)
    return _NAMES[kind](path) if kind in _NAMES else None


_NAMES: dict[str, Callable[[Path], tuple[str, ...]]] = {
    ".csv": lambda path: read_header(path).names,
    ".csv.gz": lambda path: read_header(path).names,
    ".parquet": parquet_names,
    ".h5ad": h5ad_names,
}
_WITH_IDS = (".csv", ".csv.gz", ".parquet")
KINDS = (".npy", ".npz", ".csv", ".csv.gz", ".parquet", ".h5ad", ".svm")


def _kind(path: Path) -> str:
    """Return the suffix of a file that is there and can be read."""
    kind = next((kind for kind in KINDS if path.name.lower().endswith(kind)), None)
    if kind is None:
        raise InputError(
            f"{path} is of no kind that is read: {', '.join(KINDS)}. Convert it to one of them."
        )
    try:
        with path.open("rb"):
            return kind
    except FileNotFoundError:
        raise InputError(f"{path} is not there. Check the path.") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder. Pass a file.") from None
    except PermissionError:
        raise InputError(f"{path} may not be read by you. Ask its owner for leave.") from None


def _check_options(
    path: Path,
    kind: str,
    columns: Sequence[str] | None,
    id_column: str | None,
    n_features: int | None,
) -> None:
    if isinstance(columns, str):
        raise InputError(
            Argument("columns", columns),
            " must be a list of names",
            remedy=f"Pass [{columns!r}].",
        )
    if columns is not None and kind not in _NAMES:
        raise InputError(
            f"{path} does not name its columns, and ",
            Name("columns"),
            " cannot choose",
            remedy="Drop it.",
        )
    if id_column is not None and kind not in _WITH_IDS:
        raise InputError(
            Name("id_column"),
            f" goes with {', '.join(_WITH_IDS)}, not {path}",
            remedy="Drop it.",
        )
    if n_features is not None:
        if kind != ".svm":
            raise InputError(f"n_features goes with .svm, not {path}. Drop it.")
        check_count("n_features", n_features, "Pass the largest index of all sites.")


def _conditions(
    path: Path, kind: str, where: Sequence[str] | None, id_column: str | None
) -> tuple[Condition, ...]:
    conditions = conditions_of(where)
    if not conditions:
        return ()
    if kind not in _NAMES:
        raise InputError(
            f"{path} does not name its columns, and where cannot compare them. Drop where, or "
            f"bring one of {', '.join(_NAMES)}."
        )
    names = obs_names(path) if kind == ".h5ad" else _NAMES[kind](path)
    check_columns(path, conditions, names, id_column)
    return conditions


def _mapped_source(path: Path, X: object) -> Source:
    try:
        return Source.of(X)
    except InputError:
        raise DataError(
            f"{path} holds infinity, and entries must be finite or NaN. Drop those entries."
        ) from None


def _features(
    path: Path, kind: str, columns: Sequence[str] | None, id_column: str | None
) -> tuple[str, ...] | None:
    if kind not in _NAMES:
        return None
    features = features_of(path, _NAMES[kind](path), columns, id_column)
    if kind == ".parquet" and columns is None:
        check_pandas_index(path, features)
    return features


def _blocks(
    path: Path,
    kind: str,
    features: tuple[str, ...] | None,
    id_column: str | None,
    n_features: int | None,
    conditions: tuple[Condition, ...],
) -> Iterator[Block]:
    if kind == ".svm":
        return svm_blocks(path, n_features)
    if features is None:
        return npz_blocks(path) if kind == ".npz" else array_blocks(npy_array(path))
    if kind == ".h5ad":
        return h5ad_blocks(path, features, conditions)
    read = parquet_blocks if kind == ".parquet" else csv_blocks
    if conditions:
        blocks = named_rows(read, path, features, id_column, conditions)
    else:
        blocks = read(path, features, id_column)
    return blocks if id_column is None else check_unique(blocks, path, id_column)
