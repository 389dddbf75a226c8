"""What people hand over as sites, turned into sources with the same features in one order."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.estimators.frames import aligned, listed

FEATURES = ("same", "common")


def as_sources(
    sites: Mapping[str, Any],
    *,
    weights: Mapping[str, npt.ArrayLike] | None = None,
    features: str = "same",
) -> dict[str, Source]:
    """Take tables as sites, with their features aligned by name where they have names.

    Parameters
    ----------
    sites : mapping of str to array-like, sparse matrix, data frame or path of an .npy file
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
        raise InputError(f"features={features!r} must be 'same' or 'common'. Pass one of them.")
    unknown = set(weights or {}) - set(sites)
    if unknown:
        raise InputError(f"sample_weight names {listed(unknown)}, which are not sites. Drop them.")
    tables = {str(name): loaded(name, sites[name]) for name in sorted(sites, key=str)}
    names = _shared_names(tables, features)
    sources = {}
    for name, table in tables.items():
        chosen = table[names] if names is not None and features == "common" else table
        own = None if weights is None else weights.get(name)
        sources[name] = named_source(name, chosen, names, own)
    return sources


def check_sites(sites: Any) -> None:
    """Refuse what is not a mapping of at least one name to a table."""
    if not isinstance(sites, Mapping) or not sites:
        raise InputError(
            "sites must be a mapping of names to tables and name at least one site. "
            "Pass {'a': X_a, 'b': X_b}."
        )


def loaded(name: str, table: Any) -> Any:
    """Return a site's table, read from its file where it is a path."""
    if not isinstance(table, str | Path):
        return table
    if Path(table).suffix != ".npy":
        raise InputError(
            f"Site {name!r} is a path that does not end in .npy, the one kind of file that is "
            "read so far. Load the table and pass it."
        )
    return np.load(table, mmap_mode="r", allow_pickle=False)


def named_source(name: str, table: Any, names: list[str] | None, weights: Any) -> Source:
    """Return a site's table as a source with features of these names, or refuse it by name."""
    try:
        values = aligned(table, names)
        return Source.of(
            values.to_numpy() if hasattr(values, "to_numpy") else values,
            weights=weights,
            names=names,
        )
    except InputError as error:
        raise InputError(f"Site {name!r}: {error}") from None


def _shared_names(tables: Mapping[str, Any], features: str) -> list[str] | None:
    named = {name: list(map(str, t.columns)) for name, t in tables.items() if hasattr(t, "columns")}
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
            f"The sites differ in the features {listed(differing)}. Bring them everywhere, or "
            "pass features='common' to go on with the others."
        )
    if not common:
        raise InputError("The sites have no feature in common. Check their columns' names.")
    return common


def _check_widths(tables: Mapping[str, Any]) -> None:
    widths = {name: _shape(name, table)[1:] for name, table in tables.items()}
    if len(set(widths.values())) > 1:
        shown = ", ".join(f"{name!r} has {shape[0]}" for name, shape in widths.items() if shape)
        raise InputError(
            f"All sites must have the same number of features: {shown}. Bring the same features, "
            "or name them in data frames."
        )


def _shape(name: str, table: Any) -> tuple[int, ...]:
    try:
        return np.shape(table)
    except ValueError:
        raise InputError(
            f"Site {name!r}: X has rows of different lengths and must be a table. "
            "Give every row the same length."
        ) from None
