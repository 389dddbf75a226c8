"""Files of records as sources: one call for every kind, in memory that does not grow with the file.

==================  ============================================================================
``.npy``            memory-mapped if it holds float64 or float32
``.npz``            a sparse table as scipy saves it, or one dense array
``.csv .csv.gz``    UTF-8 with a line of names; any delimiter and decimal mark
``.tsv .tsv.gz``    the same with tabs
``.xlsx``           the first sheet, with a line of names; needs ``eigenfed[excel]``
``.parquet``
``.h5ad``           the table X of anndata, dense or sparse; needs ``eigenfed[anndata]``
``.svm``            rows in the format of libsvm; labels are left out
``.bed``            genotypes of PLINK 1, mapped; the ``.bim`` and ``.fam`` files lie beside it
==================  ============================================================================

Tables that are not mapped directly become float64: in memory up to 64 MB, beyond that in a parsed
copy on disk that is mapped (`eigenfed.data.cache` documents where it lies; ``keep=False`` keeps
none, and `forget_cache` removes those of a file). A long parquet file of few columns has a copy
only once more than one pass over its rows is needed. A file holds the same numbers whatever its
kind.
No message quotes a value.
"""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy.typing as npt

from eigenfed.data.cache import (
    CacheSlot,
    check_unique,
    forget_cache,
    is_small,
    load_copy,
    store_blocks,
    take_copy,
)
from eigenfed.data.column_names import list_columns, list_features, select_features
from eigenfed.data.copy_files import read_row_ids
from eigenfed.data.file_kinds import CELL_KINDS, TEXT_KINDS, find_kind
from eigenfed.data.read_options import ReadOptions
from eigenfed.data.readers.csv import CsvHeader, read_csv_blocks, read_csv_header
from eigenfed.data.readers.h5ad import (
    H5adHeader,
    missing_label_error,
    read_h5ad_blocks,
    read_h5ad_header,
    read_obs_labels,
    read_obs_names,
)
from eigenfed.data.readers.npy import is_ready, open_npy, read_array_blocks
from eigenfed.data.readers.npz import read_npz_blocks
from eigenfed.data.readers.parquet import (
    ParquetHeader,
    check_pandas_index,
    read_parquet_blocks,
    read_parquet_header,
)
from eigenfed.data.readers.parquet_rows import ParquetRows, can_stay
from eigenfed.data.readers.plink import PlinkFile, read_plink, read_variants
from eigenfed.data.readers.svm import read_svm_blocks
from eigenfed.data.readers.xlsx import XlsxHeader, read_xlsx_blocks, read_xlsx_header
from eigenfed.data.row_filter import Condition, check_columns, parse_conditions, read_filtered
from eigenfed.data.source import Block, Source, StoredRows, guard_blocks
from eigenfed.errors import Argument, DataError, InputError, Name
from eigenfed.linalg.checks import check_count

__all__ = [
    "FileTable",
    "column_names",
    "forget_cache",
    "open_source",
    "open_table",
    "read_feature_names",
]

PathLike = str | os.PathLike[str]
Header = CsvHeader | ParquetHeader | H5adHeader | XlsxHeader

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False, repr=False)
class FileTable:
    """The records of a file and their ids.

    Attributes
    ----------
    source : Source
    path : Path
        The file.
    cache : Path or None
        The folder of the parsed copy that is kept; None if there is none.
    notes : tuple of str
        What its user should know that was detected about the file, and which copy was made of it.
    plink : PlinkFile or None
        The people and variants of a ``.bed`` file.
    """

    source: Source
    path: Path
    cache: Path | None
    _ids: tuple[str, ...] | Path | None
    notes: tuple[str, ...] = ()
    plink: PlinkFile | None = None

    @cached_property
    def row_ids(self) -> tuple[str, ...] | None:
        """Ids of the rows, which stay at the site; None if the file has none."""
        return read_row_ids(self._ids) if isinstance(self._ids, Path) else self._ids

    @property
    def late_notes(self) -> tuple[str, ...]:
        """Notes on what was left because rows were read: a parsed copy that was not made before."""
        rows = self.source.X
        return rows.notes if isinstance(rows, ParquetRows) else ()


def open_table(
    path: PathLike,
    *,
    columns: Sequence[str] | None = None,
    id_column: str | None = None,
    n_features: int | None = None,
    where: Sequence[str] | None = None,
    cache: PathLike | None = None,
    keep: bool = True,
    options: ReadOptions | None = None,
    may_be_empty: bool = False,
) -> FileTable:
    r"""Open a file of records.

    Parameters
    ----------
    path : path
        Of a kind in the table above.
    columns : sequence of str, optional
        Features to read, in this order, of a file that names them; all of them by default.
    id_column : str, optional
        Column that holds row ids, which must be unique. A ``.h5ad`` file always has row ids.
    n_features : int, optional
        Number of features of a ``.svm`` file; its largest index by default.
    where : sequence of str, optional
        Conditions on the rows of a file that names its columns, all of which must hold. Each is
        a column, one of ``< <= == != >= >`` and a number, as in ``"age >= 18"``. The column need
        not be a feature; in a ``.h5ad`` file it is one of ``obs``. A missing entry fulfils none.
    cache : path, optional
        Folder for parsed copies; by default ``<file>.eigenfed`` beside the file.
    keep : bool, default=True
        Whether the parsed copy of a large file stays there for the next time. Otherwise rows that
        do not fit into memory are in files that are deleted as soon as they are mapped, and a copy
        of an earlier time is deleted too.
    options : ReadOptions, optional
        Dialect of text, columns to leave out, new names, units, missing codes.
    may_be_empty : bool, default=False
        Whether a table without rows is returned if no row fulfils `where`: where the number of rows
        is private, a refusal would reveal it.

    Returns
    -------
    FileTable

    Raises
    ------
    InputError
        If the file does not exist or cannot be used with these arguments.
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
    path, options = Path(path), options or ReadOptions()
    kind = find_kind(path)
    _check_options(path, kind, columns, id_column, n_features)
    options.check_kind(path, kind)
    conditions = _check_where(path, kind, where)
    if kind == ".npy":
        X = open_npy(path)
        if is_ready(X):
            return FileTable(_check_mapped(path, X), path, None, None)
    if kind == ".bed":
        return _open_bed(path, columns, options)
    header, features = None, None
    if kind in _HEADERS:
        header = _HEADERS[kind](path, options)
        options.check_names(path, header.names)
        names = options.rename_all(header.names)
        features = select_features(path, names, columns, id_column, options.exclude)
        if isinstance(header, ParquetHeader) and columns is None:
            check_pandas_index(path, header, features)
        compared = read_obs_names(path) if conditions and kind == ".h5ad" else names
        check_columns(path, conditions, compared, id_column)
    plain = id_column is None and not conditions and options == ReadOptions()
    wanted = [features, id_column, n_features, options.as_json, *map(astuple, conditions)]
    slot = CacheSlot.of(path, wanted, cache)
    stored = load_copy(slot)

    def store() -> StoredRows:
        if header is None or features is None:
            blocks = _read_unnamed(path, kind, n_features)
        else:
            blocks = _read_named(path, header, features, id_column, conditions, options)
        fault = DataError(f"{path} cannot be read to its end. Check the disk that it is on.")
        checked = guard_blocks(blocks, (OSError,), fault)
        return store_blocks(checked, slot, features, keep=keep, may_be_empty=bool(conditions))

    # Whoever names a folder wants a copy now; whoever keeps none must not leave one later.
    if stored is None and plain and keep and cache is None and isinstance(header, ParquetHeader):
        rows = _leave_in_file(header, features or (), slot, store)
        if rows is not None:
            return FileTable(Source(rows, None, features), path, None, None)
    stored = stored or store()
    if conditions and not (stored.X.shape[0] or may_be_empty):
        raise InputError(f"No row of {path} fulfils where. Check its conditions, or loosen them.")
    if not keep:
        stored = take_copy(slot, stored)
    note = getattr(header, "note", None)
    notes = (*(() if note is None else (note,)), *_describe_copy(path, stored.place, cache))
    for note in notes:
        _LOG.info(note)
    return FileTable(Source(stored.X, None, features), path, stored.place, stored.ids, notes)


def _leave_in_file(
    header: ParquetHeader, features: Sequence[str], slot: CacheSlot, store: Callable[[], StoredRows]
) -> ParquetRows | None:
    """Return rows that stay in their file until more than one pass needs them, if they may."""
    size = 8 * header.metadata.num_rows * len(features)
    if is_small(size) or not can_stay(slot.path, header, features):
        return None

    def store_late() -> tuple[npt.NDArray[Any], tuple[str, ...]]:
        stored = store()
        notes = _describe_copy(slot.path, stored.place, None)
        for note in notes:
            _LOG.info(note)
        return stored.X, notes

    return ParquetRows(slot.path, header, features, store_late, slot.check_state)


def _open_bed(path: Path, columns: Sequence[str] | None, options: ReadOptions) -> FileTable:
    opened = read_plink(path, options.filters)
    if columns is not None:
        opened = opened.take_named(columns)
    return FileTable(opened.source, path, None, opened.row_ids, opened.notes, opened)


def _describe_copy(path: Path, place: Path | None, cache: PathLike | None) -> tuple[str, ...]:
    if place is None:
        return ()
    held = sum(file.stat().st_size for file in place.iterdir())
    where = "" if cache is None else f" --cache {cache}"
    return (
        f"A parsed copy of {path} ({max(1, held // 10**6)} MB) is kept in {place.parent}. Delete "
        f"it with eigenfed cache {path}{where} --remove.",
    )


def open_source(path: PathLike, **settings: Any) -> Source:
    r"""Open a file of records as a source: `open_table`, with its arguments, without row ids.

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
    return open_table(path, **settings).source


def read_labels(
    path: PathLike, column: str, feature: str, options: ReadOptions | None = None
) -> tuple[str, ...]:
    r"""Read a column as text, an entry for each row: groups of rows, for plots of a site's own.

    Parameters
    ----------
    path : path
        A csv, tsv, xlsx, parquet or h5ad file.
    column : str
        A column, of ``obs`` in an h5ad file.
    feature : str
        Any column of numbers, with which the rows are read.
    options : ReadOptions, optional

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "a.csv")
    >>> _ = path.write_text("age,group\n40,case\n50,control\n60,case\n")
    >>> read_labels(path, "group", "age")
    ('case', 'control', 'case')
    >>> folder.cleanup()
    """
    path, options = Path(path), options or ReadOptions()
    if column not in label_names(path, options):
        raise InputError(f"{path} lacks {list_columns([column])}. Check the spelling.")
    if find_kind(path) == ".h5ad":
        return read_obs_labels(path, column)
    header = _HEADERS[find_kind(path)](path, options)
    blocks = _read_columns(path, header, (feature,), column, (), options)
    try:
        return tuple(str(label) for block in blocks for label in block.ids or ())
    except DataError:
        raise missing_label_error(path, column) from None


def label_names(path: PathLike, options: ReadOptions | None = None) -> tuple[str, ...]:
    """Read the names of the columns that `read_labels` can read."""
    path, kind = Path(path), find_kind(Path(path))
    if kind == ".h5ad":
        return read_obs_names(path)
    if kind not in _WITH_IDS:
        raise InputError(
            f"Labels of rows require a file of kind {', '.join((*_WITH_IDS, '.h5ad'))}, not "
            f"{path}. Pass such files, or go without labels."
        )
    return column_names(path, options) or ()


def column_names(path: PathLike, options: ReadOptions | None = None) -> tuple[str, ...] | None:
    """Read the names of a file's columns from its header; None if its kind has no names.

    Examples
    --------
    >>> column_names("nowhere.csv")
    Traceback (most recent call last):
    eigenfed.errors.InputError: nowhere.csv does not exist. Check the path.
    """
    path, options = Path(path), options or ReadOptions()
    kind = find_kind(path)
    options.check_kind(path, kind)
    if kind == ".bed":
        return read_variants(path, options.filters).names
    if kind not in _HEADERS:
        return None
    return options.rename_all(_HEADERS[kind](path, options).names)


def read_feature_names(
    path: PathLike, id_column: str | None, options: ReadOptions | None = None
) -> list[str] | None:
    """Read the names of a file's features: of all columns but `id_column` and those left out.

    Raises
    ------
    InputError
        If the index of a pandas frame, which is not a feature, is among them.
    """
    path, options = Path(path), options or ReadOptions()
    kind = find_kind(path)
    options.check_kind(path, kind)
    if kind == ".bed":
        return list(read_variants(path, options.filters).names)
    if kind not in _HEADERS:
        return None
    header = _HEADERS[kind](path, options)
    features = list_features(options.rename_all(header.names), id_column, options.exclude)
    if isinstance(header, ParquetHeader):
        check_pandas_index(path, header, features)
    return features


_HEADERS: dict[str, Callable[[Path, ReadOptions], Header]] = {
    **{kind: lambda path, options: read_csv_header(path, options.dialect) for kind in TEXT_KINDS},
    ".xlsx": lambda path, options: read_xlsx_header(path, options.dialect),
    ".parquet": lambda path, _: read_parquet_header(path),
    ".h5ad": lambda path, options: read_h5ad_header(path, options.highly_variable),
}
_WITH_IDS = (*CELL_KINDS, ".parquet")


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
    if columns is not None and kind not in (*_HEADERS, ".bed"):
        raise InputError(
            f"{path} does not name its columns, and ",
            Name("columns"),
            " cannot select any",
            remedy="Drop it.",
        )
    if id_column is not None and kind not in _WITH_IDS:
        raise InputError(
            Name("id_column"),
            f" requires a file of kind {', '.join(_WITH_IDS)}, not {path}",
            remedy="Drop it.",
        )
    if n_features is not None:
        if kind != ".svm":
            raise InputError(f"n_features requires a .svm file, not {path}. Drop it.")
        check_count("n_features", n_features, "Pass the largest index of all sites.")


def _check_where(path: Path, kind: str, where: Sequence[str] | None) -> tuple[Condition, ...]:
    conditions = parse_conditions(where)
    if conditions and kind not in _HEADERS:
        raise InputError(
            f"{path} does not name its columns, and where cannot compare them. Drop where, or "
            f"pass a file of kind {', '.join(_HEADERS)}."
        )
    return conditions


def _check_mapped(path: Path, X: object) -> Source:
    try:
        return Source.of(X)
    except InputError:
        raise DataError(
            f"{path} holds infinity, and entries must be finite or NaN. Drop those entries."
        ) from None


def _read_unnamed(path: Path, kind: str, n_features: int | None) -> Iterator[Block]:
    if kind == ".svm":
        return read_svm_blocks(path, n_features)
    return read_npz_blocks(path) if kind == ".npz" else read_array_blocks(open_npy(path))


def _read_named(
    path: Path,
    header: Header,
    features: tuple[str, ...],
    id_column: str | None,
    conditions: tuple[Condition, ...],
    options: ReadOptions,
) -> Iterator[Block]:
    blocks = _read_columns(path, header, features, id_column, conditions, options)
    with_ids = id_column is not None and not isinstance(header, H5adHeader)
    return check_unique(blocks, path, id_column or "") if with_ids else blocks


def _read_columns(
    path: Path,
    header: Header,
    features: tuple[str, ...],
    id_column: str | None,
    conditions: tuple[Condition, ...],
    options: ReadOptions,
) -> Iterator[Block]:
    if isinstance(header, H5adHeader):

        def read_h5ad(columns: Sequence[str], _: str | None) -> Iterator[Block]:
            return read_h5ad_blocks(path, columns, conditions, options.layer)

        return options.read_columns(read_h5ad, header.names)(features, None)
    read: Callable[..., Iterator[Block]]
    if isinstance(header, ParquetHeader):
        read = partial(read_parquet_blocks, path, header)
    elif isinstance(header, XlsxHeader):
        read = partial(read_xlsx_blocks, path, header)
    else:
        read = partial(read_csv_blocks, path, header)
    read = options.read_columns(read, header.names)
    if conditions:
        return read_filtered(read, path, features, id_column, conditions)
    return read(features, id_column)
