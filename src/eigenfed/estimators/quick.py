"""The short way in for batches that need no preparation: rows may come one by one."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg.blas import ddot

from eigenfed.estimators.frames import aligned
from eigenfed.linalg.threads import one_blas_thread

_SMALL_DOT = 10_000  # above it BLAS would wake its threads


def are_finite(values: npt.NDArray[Any]) -> bool:
    """Say whether a flat array holds neither NaN, infinity, nor what overflows when squared."""
    if values.size <= _SMALL_DOT:
        return math.isfinite(ddot(values, values))
    with one_blas_thread:
        return math.isfinite(ddot(values, values))


def quick_array(X: Any, names: npt.NDArray[np.object_] | None) -> Any:
    """Turn plain rows into an array where that is cheap and leave all else to the full checks."""
    if names is not None:
        return aligned(X, names.tolist()).to_numpy() if hasattr(X, "to_numpy") else None
    if type(X) is not list:
        return X
    try:
        return np.asarray(X)
    except ValueError:
        return None
