"""Batches that need no preparation, told quickly: rows may come one by one."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg.blas import ddot

from eigenfed.estimators.frames import aligned
from eigenfed.linalg.threads import one_blas_thread

_SMALL_DOT = 10_000  # above it BLAS would wake its threads
_FLOAT64, _FLOAT32 = np.dtype(np.float64), np.dtype(np.float32)


def plain_rows(
    X: Any, d: int, names: npt.NDArray[np.object_] | None, dtype: np.dtype[Any]
) -> npt.NDArray[Any] | None:
    """Return a batch as it is where it is finite rows of the features, and None where in doubt.

    Parameters
    ----------
    X : array-like or data frame
    d : int
        Number of features.
    names : ndarray of shape (d,) or None
        Names of the features, where they have some.
    dtype : dtype
        Of the batches so far: a wider one needs preparation.

    Examples
    --------
    >>> import numpy as np
    >>> plain_rows([[1.0, 2.0]], 2, None, np.dtype(float))
    array([[1., 2.]])
    >>> plain_rows([[1.0, np.nan]], 2, None, np.dtype(float)) is None
    True
    """
    rows = _quick_array(X, names)
    if (
        type(rows) is not np.ndarray
        or not (rows.dtype is _FLOAT32 or (rows.dtype is _FLOAT64 and dtype is _FLOAT64))
        or rows.ndim != 2
        or rows.shape[1] != d
        or not len(rows)
    ):
        return None
    return rows if _are_finite(rows.ravel()) else None


def _are_finite(values: npt.NDArray[Any]) -> bool:
    if values.size <= _SMALL_DOT:
        return math.isfinite(ddot(values, values))
    with one_blas_thread:
        return math.isfinite(ddot(values, values))


def _quick_array(X: Any, names: npt.NDArray[np.object_] | None) -> Any:
    """Turn plain rows into an array where that is cheap and leave all else to the full checks."""
    if names is not None:
        return aligned(X, names.tolist()).to_numpy() if hasattr(X, "to_numpy") else None
    if type(X) is not list:
        return X
    try:
        return np.asarray(X)
    except ValueError:
        return None
