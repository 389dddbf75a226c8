"""Tables of sites whose columns have no names, which are matched by position.

Labels of a data frame that are not text are no names, as in scikit-learn: those that pandas gives
by itself are numbers. They must be the same at all sites all the same.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from eigenfed.data.source import Source
from eigenfed.errors import InputError

_AS_TEXT = "Name them by text, as df.columns = df.columns.astype(str) does."


def find_names(name: str, table: Any) -> list[str] | None:
    """Return the names of the columns of a site's table; None where they have none.

    Raises
    ------
    InputError
        If only some of the labels of a data frame are text.

    Examples
    --------
    >>> import pandas as pd
    >>> find_names("a", pd.DataFrame({"age": [1.0]})), find_names("a", pd.DataFrame([[1.0]]))
    (['age'], None)
    """
    if isinstance(table, Source):
        return None if table.names is None else list(table.names)
    labels = getattr(table, "columns", None)
    if labels is None:
        return None
    are_text = [issubclass(kind, str) for kind in set(map(type, labels))]
    if all(are_text):
        return list(map(str, labels))
    if any(are_text):
        raise InputError(
            f"Site {name!r}: X has columns whose labels are text and others whose are not. "
            f"{_AS_TEXT}"
        )
    return None


def check_alike(tables: Mapping[str, Any]) -> None:
    """Refuse tables without names that have different labels, or different numbers of columns."""
    shapes = {name: _check_shape(name, table) for name, table in tables.items()}
    labels = {name: list(table.columns) for name, table in tables.items() if _is_frame(table)}
    differing = [name for name, found in labels.items() if found != next(iter(labels.values()))]
    if differing:
        raise InputError(
            f"The labels of the columns are not text, and those at {differing[0]!r} are not those "
            f"at {next(iter(labels))!r}. {_AS_TEXT} They are then matched by name."
        )
    if len({d for _, d in shapes.values()}) > 1:
        shown = ", ".join(f"{name!r} has {d}" for name, (_, d) in shapes.items())
        raise InputError(
            f"All sites must have the same number of features: {shown}. Bring the same features, "
            "name them in data frames, or open .svm files with one n_features."
        )


def _is_frame(table: Any) -> bool:
    return not isinstance(table, Source) and hasattr(table, "columns")


def _check_shape(name: str, table: Any) -> tuple[int, int]:
    try:
        shape = shape_of(table)
    except ValueError:
        raise InputError(
            f"Site {name!r}: X has rows of different lengths and must be a table. "
            "Give every row the same length."
        ) from None
    if len(shape) != 2:
        raise InputError(
            f"Site {name!r}: X has shape {shape} and must be rows x features. Reshape it."
        )
    return shape[0], shape[1]


def shape_of(table: Any) -> tuple[int, ...]:
    """Return the shape of a table, or of the table that a source has."""
    return np.shape(table.X if isinstance(table, Source) else table)
