"""Data frames and AnnData objects given to an estimator."""

from typing import Any

import numpy as np

from eigenfed.data.column_names import quote_names
from eigenfed.data.source import Source
from eigenfed.errors import InputError

_SHOWN_OBJECT = "an AnnData object"


def is_annotated(table: Any) -> bool:
    """Return whether a table is an AnnData object; anndata is not imported."""
    return all(hasattr(table, name) for name in ("X", "obs", "var_names", "layers"))


def refuse_annotated(X: Any) -> None:
    """Refuse an AnnData object where a table is expected: numpy would take minutes to fail."""
    if is_annotated(X):
        raise InputError(
            f"X is {_SHOWN_OBJECT} and must be a table. Pass adata.X or adata.to_df(), or pass it "
            "to fit_sites."
        )


def read_annotated(adata: Any) -> Source:
    """Return the table ``X`` of an AnnData object, with the names of its features.

    Raises
    ------
    InputError
        If it has no ``X``, or ``X`` is in a file.
    """
    if adata.X is None:
        raise InputError(f"X is {_SHOWN_OBJECT} without X. Pass adata.layers[...].")
    if getattr(adata, "isbacked", False):
        raise InputError(f"X is {_SHOWN_OBJECT} in a file. Pass the path of the file instead.")
    return Source.of(adata.X, names=[str(name) for name in adata.var_names])


def refuse_dates(X: Any) -> None:
    """Refuse dates and durations, which numpy would turn into large integers without a word."""
    if hasattr(X, "columns") and hasattr(X, "dtypes"):
        dated = [
            str(name) for name, dtype in zip(X.columns, X.dtypes, strict=False) if _is_date(dtype)
        ]
        if dated:
            raise non_numeric_columns_error(dated)
    elif _is_date(getattr(X, "dtype", None)):
        raise InputError("X holds dates and must hold numbers. Convert them first.")


def _is_date(dtype: Any) -> bool:
    return getattr(dtype, "kind", None) in ("m", "M") or bool(
        getattr(dtype, "is_temporal", lambda: False)()
    )


def find_non_numeric(frame: Any) -> list[str]:
    """Return the names of the columns of a frame that do not hold numbers.

    Examples
    --------
    >>> import pandas as pd
    >>> find_non_numeric(pd.DataFrame({"a": [1.0], "b": ["x"]}))
    ['b']
    """
    if not hasattr(frame, "columns"):
        return []
    return [str(name) for name in frame.columns if not _is_numeric(frame[name])]


def _is_numeric(column: Any) -> bool:
    values = np.asarray(column)
    if values.dtype.kind in "biuf":
        return True
    if values.dtype.kind != "O":
        return False
    try:
        values.astype(np.float64)
    except (TypeError, ValueError):
        return False
    # pandas writes dates as objects of a class of its own, which numpy turns into integers.
    return not any(hasattr(value, "isoformat") for value in values[:1])


def non_numeric_columns_error(columns: list[str]) -> InputError:
    """Return the error for columns of a frame that do not hold numbers."""
    return InputError(
        f"X has columns that do not hold numbers: {quote_names(columns)}. Convert or drop them."
    )
