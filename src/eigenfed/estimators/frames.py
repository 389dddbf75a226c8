"""Data frames and AnnData objects given to an estimator."""

from typing import Any

import numpy as np
import numpy.typing as npt

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


def refuse_other_frames(X: Any) -> None:
    """Refuse tables of other libraries, whose columns may be arrays, and queries without rows."""
    if hasattr(X, "to_numpy"):
        return
    if type(X).__name__ == "LazyFrame":
        raise InputError("X is a LazyFrame and must hold rows. Pass X.collect().")
    if hasattr(X, "columns"):
        raise InputError(
            f"X has columns and type {type(X).__name__}, and must be a DataFrame of pandas or "
            "polars, or an array. Convert it first."
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
    return [str(name) for name in frame.columns if _read_numbers(frame[name]) is None]


def frame_to_rows(frame: Any) -> npt.NDArray[Any]:
    """Return the rows of a data frame, with NaN for what its library marks as missing.

    Raises
    ------
    InputError
        If a column does not hold numbers.

    Examples
    --------
    >>> import pandas as pd
    >>> frame_to_rows(pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "b": [True, False]}))
    array([[ 1.,  1.],
           [nan,  0.]])
    """
    rows: npt.NDArray[Any] = frame.to_numpy()
    if rows.dtype.kind in "biuf":
        return rows
    # pandas returns objects where columns have nullable types, or flags among numbers.
    columns = {str(name): _read_numbers(frame[name]) for name in frame.columns}
    found = [values for values in columns.values() if values is not None]
    if len(found) < len(columns):
        raise non_numeric_columns_error([name for name in columns if columns[name] is None])
    return np.column_stack(found)


def _read_numbers(column: Any) -> npt.NDArray[Any] | None:
    """Return the numbers of a column, or None if it does not hold numbers."""
    values = np.asarray(column)
    if values.dtype.kind in "biuf":
        return values
    # pandas writes dates as objects of a class of its own, which numpy turns into integers.
    if values.dtype.kind != "O" or any(hasattr(value, "isoformat") for value in values[:1]):
        return None
    try:
        if hasattr(column, "iloc"):
            numbers: npt.NDArray[Any] = column.to_numpy(dtype=np.float64, na_value=np.nan)
            return numbers
        return values.astype(np.float64)
    except (TypeError, ValueError):
        return None


def non_numeric_columns_error(columns: list[str]) -> InputError:
    """Return the error for columns of a frame that do not hold numbers."""
    return InputError(
        f"X has columns that do not hold numbers: {quote_names(columns)}. Convert or drop them."
    )
