"""Sites that hold different features of the same rows: rows matched by key, never by position."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.estimators.frames import listed
from eigenfed.estimators.sites import loaded, named_source


def as_column_sources(
    sites: Mapping[str, Any], keys: Mapping[str, npt.ArrayLike] | None
) -> tuple[dict[str, Source], tuple[str, ...] | None]:
    """Take tables of different features, with their rows in one order.

    Parameters
    ----------
    sites : mapping of str to array-like, sparse matrix, data frame or path of an .npy file
    keys : mapping of str to array-like, optional
        The key of each row of each site; a data frame's index is its key without this.

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
    tables = {str(name): loaded(name, sites[name]) for name in sorted(sites, key=str)}
    given = {name: _key(name, table, keys) for name, table in tables.items()}
    first = next(iter(given.values()))
    sources = {}
    for name, table in tables.items():
        columns = list(map(str, table.columns)) if hasattr(table, "columns") else None
        source = named_source(name, table, columns, None)
        order = _order(name, given[name], first)
        sources[name] = Source(source.X[order], None, source.names)
    return sources, _joined_names(sources)


def _key(name: str, table: Any, keys: Mapping[str, npt.ArrayLike] | None) -> npt.NDArray[Any]:
    index = getattr(table, "index", None)
    if keys is not None and name in keys:
        key = np.asarray(keys[name])
    elif index is not None and not callable(index) and type(index).__name__ != "RangeIndex":
        key = np.asarray(index)
    else:
        raise InputError(
            f"Site {name!r} has no row key, and rows are matched by it. Pass keys={{{name!r}: ids}}"
            " or a data frame with an index."
        )
    if key.shape != (np.shape(table)[0],):
        raise InputError(
            f"The key of site {name!r} has shape {key.shape} and must have one entry for each of "
            f"its {np.shape(table)[0]} rows. Reshape it."
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
