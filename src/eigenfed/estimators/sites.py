"""What people hand over as sites, turned into sources with the same features in one order."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.data.columns import differences
from eigenfed.data.files import Table, column_names, open_source
from eigenfed.data.source import Source
from eigenfed.errors import Argument, DataError, InputError, Pass
from eigenfed.estimators.frames import aligned, listed
from eigenfed.linalg.checks import checked_weights

FEATURES = ("same", "common")


@dataclass(frozen=True)
class NamedFile:
    """A file that names its columns, and is not read before their order is known."""

    path: Path
    columns: tuple[str, ...]


def as_sources(
    sites: Mapping[str, Any],
    *,
    weights: Mapping[str, npt.ArrayLike] | None = None,
    features: str = "same",
) -> dict[str, Source]:
    """Take tables as sites, with their features aligned by name where they have names.

    Parameters
    ----------
    sites : mapping of str to array-like, sparse matrix, data frame, path, Source or Table
    weights : mapping of str to array-like, optional
        Weights of the rows of some sites.
    features : {"same", "common"}, default="same"
        Whether sites must have the same features, or those are taken that all have.

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
    if features not in FEATURES:
        raise InputError(
            Argument("features", features),
            " must be 'same' or 'common'",
            remedy="Pass one of them.",
        )
    unknown = set(weights or {}) - set(sites)
    if unknown:
        raise InputError(f"sample_weight names {listed(unknown)}, which are not sites. Drop them.")
    tables = {str(name): loaded(name, sites[name]) for name in sorted(sites, key=str)}
    names = _shared_names(tables, features)
    sources = {}
    for name, table in tables.items():
        own = None if weights is None else weights.get(name)
        sources[name] = named_source(name, _chosen(table, names, features), names, own)
    return sources


def check_sites(sites: Any) -> None:
    """Refuse what is not a mapping of at least one name to a table."""
    if not isinstance(sites, Mapping) or not sites:
        raise InputError(
            "sites must be a mapping of names to tables and name at least one site. "
            "Pass {'a': X_a, 'b': X_b}."
        )


def loaded(name: str, table: Any) -> Any:
    """Return a site's table: of a path its source, or the file where its columns have names."""
    if isinstance(table, Table):
        return table.source
    if not isinstance(table, str | os.PathLike):
        return table
    try:
        columns = column_names(table)
        return open_source(table) if columns is None else NamedFile(Path(table), columns)
    except (InputError, DataError) as error:
        raise of_site(name, error) from None


def named_source(name: str, table: Any, names: list[str] | None, weights: Any) -> Source:
    """Return a site's table as a source with features of these names, or refuse it by name."""
    try:
        if isinstance(table, NamedFile):
            table = open_source(table.path, columns=_order(table.columns, names))
        if isinstance(table, Source):
            return _weighted(_aligned_source(table, names), weights)
        values = aligned(table, names)
        return Source.of(
            values.to_numpy() if hasattr(values, "to_numpy") else values,
            weights=weights,
            names=names,
        )
    except (InputError, DataError) as error:
        raise of_site(name, error) from None


def of_site(name: str, error: InputError | DataError) -> InputError | DataError:
    """Say in an error which site it is about."""
    return error.prefixed(f"Site {name!r}: ")


def _chosen(table: Any, names: list[str] | None, features: str) -> Any:
    """Leave out of a frame what is not common; files and sources are cut when they are read."""
    if names is None or features != "common" or isinstance(table, NamedFile | Source):
        return table
    return table[names]


def _order(columns: Sequence[str], names: list[str] | None) -> list[str] | None:
    """Return what to ask of a file; None is all of it as it is."""
    return None if names is None or list(columns) == names else names


def _aligned_source(source: Source, names: list[str] | None) -> Source:
    if source.names is None or names is None or list(source.names) == names:
        return source
    places = {name: place for place, name in enumerate(source.names)}
    order = [places[name] for name in names]
    return Source(source.X[:, order], source.weights, tuple(names))


def _weighted(source: Source, weights: Any) -> Source:
    if weights is None:
        return source
    if source.weights is not None:
        raise InputError("Its rows have weights, and sample_weight has others. Drop one of them.")
    return replace(source, weights=checked_weights(weights, source.n))


def _shared_names(tables: Mapping[str, Any], features: str) -> list[str] | None:
    given = {name: columns_of(table) for name, table in tables.items()}
    named = {name: columns for name, columns in given.items() if columns is not None}
    if not named:
        _check_widths(tables)
        return None
    if len(named) < len(tables):
        without = listed(set(tables) - set(named))
        raise InputError(
            f"The sites {without} have no feature names and others do. Name the features "
            "everywhere, or nowhere."
        )
    first = next(iter(named.values()))
    common = [column for column in first if all(column in columns for columns in named.values())]
    differing = {column for columns in named.values() for column in columns} - set(common)
    if differing and features == "same":
        raise InputError(
            f"The sites differ in {differences(named)}",
            remedy=(
                "Rename or bring them, or ",
                Pass("features", "common"),
                " to go on with the others.",
            ),
        )
    if not common:
        raise InputError("The sites have no feature in common. Check their columns' names.")
    return common


def columns_of(table: Any) -> list[str] | None:
    """Return the names of a table's columns; None where they have none."""
    names = table.names if isinstance(table, Source) else getattr(table, "columns", None)
    return None if names is None else list(map(str, names))


def shape_of(table: Any) -> tuple[int, ...]:
    """Return the shape of a table, or of the table that a source has."""
    return np.shape(table.X if isinstance(table, Source) else table)


def _check_widths(tables: Mapping[str, Any]) -> None:
    widths = {name: _shape(name, table)[1:] for name, table in tables.items()}
    if len(set(widths.values())) > 1:
        shown = ", ".join(f"{name!r} has {shape[0]}" for name, shape in widths.items() if shape)
        raise InputError(
            f"All sites must have the same number of features: {shown}. Bring the same features, "
            "name them in data frames, or open .svm files with one n_features."
        )


def _shape(name: str, table: Any) -> tuple[int, ...]:
    try:
        return shape_of(table)
    except ValueError:
        raise InputError(
            f"Site {name!r}: X has rows of different lengths and must be a table. "
            "Give every row the same length."
        ) from None
