"""Tables given to an estimator, turned into sources whose features or rows are in one order.

Columns are matched by name and rows by key, never by position, wherever names or keys are given.
`as_sources` takes tables with the same features, `as_column_sources` tables with the same rows.
`as_plain_rows` recognises batches that need none of this: a stream may receive rows one by one.
"""

import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.linalg.blas import ddot

from eigenfed.data.column_names import describe_differences
from eigenfed.data.column_names import quote_names as list_few
from eigenfed.data.files import FileTable, column_names, open_source, open_table
from eigenfed.data.genotypes import Genotypes
from eigenfed.data.source import Source
from eigenfed.errors import Argument, Aside, DataError, InputError, Pass
from eigenfed.estimators.frames import (
    frame_to_rows,
    is_annotated,
    read_annotated,
    refuse_dates,
    refuse_other_frames,
)
from eigenfed.estimators.unnamed_tables import check_alike, find_names, shape_of
from eigenfed.linalg.checks import check_weights
from eigenfed.linalg.threads import one_blas_thread

_FEATURES = ("same", "common")
_SMALL_DOT = 10_000  # above it BLAS would wake its threads
T = TypeVar("T")
_FLOAT64, _FLOAT32 = np.dtype(np.float64), np.dtype(np.float32)


def check_sites(sites: Any) -> None:
    """Refuse what is not a mapping of at least one name to a table."""
    if not isinstance(sites, Mapping) or not sites:
        raise InputError(
            "sites must be a mapping of names to tables and name at least one site. "
            "Pass {'a': X_a, 'b': X_b}."
        )


def name_sites(argument: str, given: Mapping[Any, T] | None) -> dict[str, T]:
    """Return what an argument gives for sites, by their names as text; None is nothing.

    Examples
    --------
    >>> name_sites("sample_weight", {1: [0.5], "b": [2.0]})
    {'1': [0.5], 'b': [2.0]}
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InputError(
            f"{argument} has type {type(given).__name__} and must be a mapping whose keys are the "
            "names of sites. Pass {'a': ..., 'b': ...}."
        )
    counts = Counter(map(str, given))
    twice = [name for name, times in counts.items() if times > 1]
    if twice:
        raise InputError(
            f"{argument} has more than one site whose name as text is {twice[0]!r}. Rename them."
        )
    return {str(name): value for name, value in given.items()}


def as_sources(
    sites: Mapping[str, Any],
    *,
    weights: Mapping[str, npt.ArrayLike] | None = None,
    features: str = "same",
) -> dict[str, Source]:
    """Turn the tables of sites into sources, with features aligned by name where they have names.

    Parameters
    ----------
    sites : mapping of str to array-like, sparse matrix, data frame, path, Source or Table
    weights : mapping of str to array-like, optional
        Weights of the rows of some sites.
    features : {"same", "common"}, default="same"
        Whether sites must have the same features, or only those that all have are used.

    Returns
    -------
    dict of str to Source
        In sorted order.

    Examples
    --------
    >>> import pandas as pd
    >>> here, there = pd.DataFrame({"a": [1.0], "b": [2.0]}), pd.DataFrame({"b": [3.0], "a": [4.0]})
    >>> sources = as_sources({"here": here, "there": there})
    >>> sources["there"].names, sources["there"].X.tolist()
    (('a', 'b'), [[4.0, 3.0]])
    """
    if features not in _FEATURES:
        raise InputError(
            Argument("features", features),
            " must be 'same' or 'common'",
            remedy="Pass one of them.",
        )
    unknown = set(weights or {}) - set(sites)
    if unknown:
        raise InputError(
            f"sample_weight names {_list_names(unknown)}, which are not sites. Drop them."
        )
    tables = {str(name): _load_table(name, sites[name]) for name in sorted(sites, key=str)}
    names = _find_shared_names(tables, features)
    sources = {}
    for name, table in tables.items():
        own = None if weights is None else weights.get(name)
        sources[name] = _make_source(name, _select_columns(table, names, features), names, own)
    return sources


def as_column_sources(
    sites: Mapping[str, Any], keys: Mapping[str, npt.ArrayLike] | None
) -> tuple[dict[str, Source], tuple[str, ...] | None]:
    """Turn tables of different features into sources, with their rows in one order.

    Parameters
    ----------
    sites : mapping of str to array-like, sparse matrix, data frame, path, Source or Table
    keys : mapping of str to array-like, optional
        The key of each row of each site; without this, a data frame's index, or the row ids of a
        file or a Table, are its key.

    Returns
    -------
    sources : dict of str to Source
        In sorted order, their rows in the order of the first.
    names : tuple of str or None
        The features' names, joined in that order.

    Examples
    --------
    >>> import numpy as np
    >>> sources, _ = as_column_sources(
    ...     {"a": np.array([[1.0], [2.0]]), "b": np.array([[20.0], [10.0]])},
    ...     {"a": ["x", "y"], "b": ["y", "x"]},
    ... )
    >>> sources["b"].X.tolist()
    [[10.0], [20.0]]
    """
    unknown = set(keys or {}) - set(sites)
    if unknown:
        raise InputError(f"keys names {_list_names(unknown)}, which are not sites. Drop them.")
    tables = {str(name): _open_table(name, sites[name]) for name in sorted(sites, key=str)}
    given = {name: _row_key(name, table, keys) for name, table in tables.items()}
    first = next(iter(given.values()))
    sources = {}
    for name, table in tables.items():
        is_file = isinstance(table, FileTable)
        records = table.source if is_file else table
        source = _make_source(name, records, find_names(name, records), None)
        if source.weights is not None:
            raise InputError(
                f"Site {name!r} has weights, which split='features' cannot use. Drop them."
            )
        order = _row_order(name, given[name], first)
        # Rows that are mapped from a file stay mapped where their order allows it.
        if not (is_file and np.array_equal(order, np.arange(source.n))):
            source = Source(source.X[order], None, source.names)
        sources[name] = source
    return sources, _join_names(sources)


def as_plain_rows(
    X: Any, d: int, names: npt.NDArray[np.object_] | None, dtype: np.dtype[Any]
) -> npt.NDArray[Any] | None:
    """Return a batch as an array if it is plainly finite rows of the features; None if in doubt.

    Parameters
    ----------
    X : array-like or data frame
    d : int
        Number of features.
    names : ndarray of shape (d,) or None
        Names of the features, where they have some.
    dtype : dtype
        Of the batches so far; a wider dtype needs the full checks.

    Examples
    --------
    >>> import numpy as np
    >>> as_plain_rows([[1.0, 2.0]], 2, None, np.dtype(float))
    array([[1., 2.]])
    >>> as_plain_rows([[1.0, np.nan]], 2, None, np.dtype(float)) is None
    True
    """
    rows = _as_array(X, names)
    if (
        type(rows) is not np.ndarray
        or not (rows.dtype is _FLOAT32 or (rows.dtype is _FLOAT64 and dtype is _FLOAT64))
        or rows.ndim != 2
        or rows.shape[1] != d
        or not len(rows)
    ):
        return None
    return rows if _are_finite(rows.ravel(order="K")) else None


def align_columns(X: Any, names: Sequence[str] | None) -> Any:
    """Return a frame with its columns in the order of `names`; anything else as it is.

    Parameters
    ----------
    X : array-like, sparse matrix or data frame
    names : sequence of str or None
        The features' names; None where they have none.

    Raises
    ------
    InputError
        If the frame has a column twice, lacks one, or has one that is not in `names`.

    Examples
    --------
    >>> import pandas as pd
    >>> align_columns(pd.DataFrame({"b": [1], "a": [2]}), ["a", "b"]).columns.tolist()
    ['a', 'b']
    """
    if not hasattr(X, "columns"):
        return X
    columns = list(X.columns)
    twice = [name for name, times in Counter(columns).items() if times > 1]
    if twice:
        raise InputError(
            f"X has the columns {_list_names(twice)} more than once. Rename or drop them."
        )
    if names is None or columns == list(names):
        return X
    check_names("X", columns, names)
    return X[list(names)]


def check_names(subject: str, given: Sequence[Any], names: Sequence[str]) -> None:
    """Refuse names that are not those of `names` in some order.

    Examples
    --------
    >>> check_names("X", ["a", "c"], ["a", "b"])
    Traceback (most recent call last):
    eigenfed.errors.InputError: X lacks the columns 'b' and has the unknown columns 'c'. ...
    """
    absent, extra = set(names) - set(given), set(given) - set(names)
    faults = [f"lacks the columns {_list_names(absent)}"] if absent else []
    faults += [f"has the unknown columns {_list_names(extra)}"] if extra else []
    if faults:
        raise InputError(
            f"{subject} {' and '.join(faults)}. Bring the {len(names)} columns that were there "
            "first, in any order."
        )


@dataclass(frozen=True)
class NamedFile:
    """A file with named columns, which is read once their order is known."""

    path: Path
    columns: tuple[str, ...]


def _load_table(name: str, table: Any) -> Any:
    """Return a site's table; for a path its source, or the file if its columns have names."""
    if isinstance(table, FileTable):
        return table.source
    if isinstance(table, NamedFile):
        return table
    try:
        refuse_other_frames(table)
        if not isinstance(table, str | os.PathLike) and not is_annotated(table):
            return table
        if is_annotated(table):
            return read_annotated(table)
        columns = column_names(table)
        return open_source(table) if columns is None else NamedFile(Path(table), columns)
    except (InputError, DataError) as error:
        raise _name_file(name, error) from None


def _make_source(name: str, table: Any, names: list[str] | None, weights: Any) -> Source:
    """Return a site's table as a source with these features; errors name the site."""
    try:
        if isinstance(table, NamedFile):
            table = open_source(table.path, columns=_columns_to_read(table.columns, names))
        if isinstance(table, Source):
            return _add_weights(_align_source(table, names), weights)
        values = align_columns(table, names)
        refuse_dates(values)
        rows = frame_to_rows(values) if hasattr(values, "columns") else values
        return Source.of(rows, weights=weights, names=names)
    except (InputError, DataError) as error:
        is_file = isinstance(table, NamedFile)
        raise (_name_file if is_file else _name_site)(name, error) from None


def _has_genotypes(table: Any) -> bool:
    if isinstance(table, NamedFile):
        return table.path.suffix.lower() == ".bed"
    return isinstance(table, Source) and isinstance(table.X, Genotypes)


def _find_shared_names(tables: Mapping[str, Any], features: str) -> list[str] | None:
    given = {name: find_names(name, table) for name, table in tables.items()}
    named = {name: columns for name, columns in given.items() if columns is not None}
    if not named:
        check_alike(tables)
        return None
    if len(named) < len(tables):
        without = _list_names(set(tables) - set(named))
        raise InputError(
            f"The sites {without} have no feature names and others do. Name the features "
            "everywhere, or nowhere."
        )
    first = next(iter(named.values()))
    if all(columns == first for columns in named.values()):
        return first
    held = [set(columns) for columns in named.values()]
    shared = set.intersection(*held)
    common = [column for column in first if column in shared]
    differing = set.union(*held) - shared
    if differing and features == "same" and all(map(_has_genotypes, tables.values())):
        raise InputError(
            f"The sites differ in {describe_differences(named)}. Match their variants to a "
            "manifest, a .bim file with the variants of the study."
        )
    if differing and features == "same":
        raise InputError(
            f"The sites differ in {describe_differences(named)}",
            remedy=(
                "Rename or bring them, or ",
                Pass("features", "common"),
                " to go on with the others.",
            ),
        )
    if not common:
        raise InputError("The sites have no feature in common. Check their columns' names.")
    return common


def _select_columns(table: Any, names: list[str] | None, features: str) -> Any:
    """Drop columns of a frame that are not common; files and sources drop theirs when read."""
    if names is None or features != "common" or isinstance(table, NamedFile | Source):
        return table
    return table[names]


def _columns_to_read(columns: Sequence[str], names: list[str] | None) -> list[str] | None:
    """Return the columns to read from a file; None is all of them as they are."""
    return None if names is None or list(columns) == names else names


def _align_source(source: Source, names: list[str] | None) -> Source:
    if source.names is None or names is None or list(source.names) == names:
        return source
    places = {name: place for place, name in enumerate(source.names)}
    order = [places[name] for name in names]
    return Source(source.X[:, order], source.weights, tuple(names))


def _add_weights(source: Source, weights: Any) -> Source:
    if weights is None:
        return source
    if source.weights is not None:
        raise InputError(
            "Its rows have weights already, and sample_weight gives others. Drop one of them."
        )
    return replace(source, weights=check_weights(weights, source.n))


def _open_table(name: str, table: Any) -> Any:
    """Return a site's table; for a path, read with the ids of its rows."""
    if not isinstance(table, str | os.PathLike):
        return table
    try:
        return open_table(table)
    except (InputError, DataError) as error:
        raise _name_file(name, error) from None


def _row_key(name: str, table: Any, keys: Mapping[str, npt.ArrayLike] | None) -> npt.NDArray[Any]:
    index = table.row_ids if isinstance(table, FileTable) else getattr(table, "index", None)
    n = shape_of(table.source if isinstance(table, FileTable) else table)[0]
    if keys is not None and name in keys:
        key = np.asarray(keys[name])
    elif index is not None and not callable(index) and type(index).__name__ != "RangeIndex":
        key = np.asarray(index)
    else:
        raise InputError(
            f"Site {name!r} has no row key, and rows are matched by it. Pass keys={{{name!r}: ids}}"
            ", a data frame with an index, or open_table(path, id_column=...)."
        )
    if key.shape != (n,):
        raise InputError(
            f"The key of site {name!r} has shape {key.shape} and must have one entry for each of "
            f"its {n} rows. Reshape it."
        )
    if len(np.unique(key)) < len(key):
        raise InputError(
            f"The key of site {name!r} names a row more than once. Drop the duplicates."
        )
    return key


def _row_order(name: str, key: npt.NDArray[Any], first: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Return the positions in `key` of the entries of `first`."""
    places = {entry: place for place, entry in enumerate(key.tolist())}
    if places.keys() != set(first.tolist()):
        raise InputError(
            f"The rows of site {name!r} are not those of the first site. Bring the same rows "
            "everywhere."
        )
    return np.array([places[entry] for entry in first.tolist()], dtype=np.intp)


def _join_names(sources: Mapping[str, Source]) -> tuple[str, ...] | None:
    if any(source.names is None for source in sources.values()):
        return None
    names = [name for source in sources.values() for name in source.names or ()]
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise InputError(
            f"The features {_list_names(twice)} are at more than one site. Rename or drop them."
        )
    return tuple(names)


def _are_finite(values: npt.NDArray[Any]) -> bool:
    if values.size <= _SMALL_DOT:
        return math.isfinite(ddot(values, values))
    with one_blas_thread:
        return math.isfinite(ddot(values, values))


def _as_array(X: Any, names: npt.NDArray[np.object_] | None) -> Any:
    """Return plain rows as an array where that is cheap; leave all else to the full checks."""
    if names is not None:
        return align_columns(X, names.tolist()).to_numpy() if hasattr(X, "to_numpy") else None
    if type(X) is not list:
        return X
    try:
        return np.asarray(X)
    except ValueError:
        return None


def _list_names(names: Iterable[Any]) -> str:
    """List names for a message in sorted order, the first few of them.

    Examples
    --------
    >>> _list_names(["b", "a"])
    "'a', 'b'"
    """
    return list_few(sorted(map(str, names)))


def _name_site(name: str, error: InputError | DataError) -> InputError | DataError:
    """Return the error with the name of its site."""
    return error.with_prefix(f"Site {name!r}: ")


def _name_file(name: str, error: InputError | DataError) -> InputError | DataError:
    """Return the error with the name of its site, and where the arguments of a path belong."""
    named = _name_site(name, error)
    if not named.advised:
        return named
    return named.with_advice(Aside(" Those are arguments of open_table and of ReadOptions."))
