"""Sites that hold different features of the same rows: rows matched by key, never by position."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.data.files import Table, open_table
from eigenfed.data.source import Source
from eigenfed.errors import DataError, InputError
from eigenfed.estimators.frames import listed
from eigenfed.estimators.sites import columns_of, named_source, of_site, shape_of


def as_column_sources(
    sites: Mapping[str, Any], keys: Mapping[str, npt.ArrayLike] | None
) -> tuple[dict[str, Source], tuple[str, ...] | None]:
    """Take tables of different features, with their rows in one order.

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
    tables = {str(name): _opened(name, sites[name]) for name in sorted(sites, key=str)}
    given = {name: _key(name, table, keys) for name, table in tables.items()}
    first = next(iter(given.values()))
    sources = {}
    for name, table in tables.items():
        is_file = isinstance(table, Table)
        records = table.source if is_file else table
        source = named_source(name, records, columns_of(records), None)
        if source.weights is not None:
            raise InputError(f"Site {name!r} has weights, and split='features' none. Drop them.")
        order = _order(name, given[name], first)
        # What is mapped from a file stays so where it can.
        if not (is_file and np.array_equal(order, np.arange(source.n))):
            source = Source(source.X[order], None, source.names)
        sources[name] = source
    return sources, _joined_names(sources)


def _opened(name: str, table: Any) -> Any:
    """Return a site's table, read with its rows' ids where it is a path."""
    if not isinstance(table, str | os.PathLike):
        return table
    try:
        return open_table(table)
    except (InputError, DataError) as error:
        raise of_site(name, error) from None


def _key(name: str, table: Any, keys: Mapping[str, npt.ArrayLike] | None) -> npt.NDArray[Any]:
    index = table.row_ids if isinstance(table, Table) else getattr(table, "index", None)
    n = shape_of(table.source if isinstance(table, Table) else table)[0]
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


def _order(name: str, key: npt.NDArray[Any], first: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Places in `key` of the entries of `first`."""
    places = {entry: place for place, entry in enumerate(key.tolist())}
    if places.keys() != set(first.tolist()):
        raise InputError(
            f"The rows of site {name!r} are not those of the first site. Bring the same rows "
            "everywhere."
        )
    return np.array([places[entry] for entry in first.tolist()], dtype=np.intp)


def _joined_names(sources: Mapping[str, Source]) -> tuple[str, ...] | None:
    if any(source.names is None for source in sources.values()):
        return None
    names = [name for source in sources.values() for name in source.names or ()]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise InputError(
            f"The features {listed(twice)} are at more than one site. Rename or drop them."
        )
    return tuple(names)
