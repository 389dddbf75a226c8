"""Checks at the public door of `linalg`: each message names argument, rule, value and remedy."""

import math
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.errors import InputError


def check_count(name: str, value: Any, remedy: str, *, least: int = 1) -> None:
    """Refuse what is not a whole number of at least `least`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < least:
        raise InputError(f"{name}={value!r} must be a whole number of at least {least}. {remedy}")


def check_decay(value: float) -> None:
    """Refuse a decay outside (0, 1]."""
    if not isinstance(value, Real) or not 0.0 < value <= 1.0:
        raise InputError(
            f"decay={value!r} must be a number above 0 and at most 1. Pass 1.0 to forget nothing."
        )


def checked_block(block: npt.ArrayLike, d: int) -> Array:
    """Return rows as a finite float64 array of shape (b, d)."""
    rows = np.asarray(block)
    if rows.dtype.kind not in "biuf":
        raise InputError(
            f"block has dtype {rows.dtype} and must hold real numbers. Convert it first."
        )
    if rows.ndim != 2 or rows.shape[1] != d:
        raise InputError(
            f"block has shape {rows.shape} and must have rows of {d} features. "
            "Reshape one record with block.reshape(1, -1)."
        )
    rows = rows.astype(np.float64, copy=False)
    if not np.isfinite(rows).all():
        raise InputError(
            "block holds NaN or infinity and must be finite. Drop or impute those entries; "
            "StreamingPCA imputes NaN."
        )
    return rows


def checked_weights(weights: npt.ArrayLike, b: int, name: str = "weights") -> Array:
    """Return weights as a finite, non-negative float64 array of shape (b,)."""
    checked = np.asarray(weights)
    if checked.dtype.kind not in "biuf":
        raise InputError(
            f"{name} has dtype {checked.dtype} and must hold real numbers. Convert it first."
        )
    if checked.shape != (b,):
        raise InputError(
            f"{name} has shape {checked.shape} and must be ({b},), one for each row. Reshape it."
        )
    checked = checked.astype(np.float64, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(checked.sum())
    if not math.isfinite(total) or (checked < 0).any():
        raise InputError(
            f"{name} must be finite and not negative. Give a row to leave out the weight 0."
        )
    return checked


def too_large() -> InputError:
    """Make the error for numbers whose squares leave the range of float64."""
    return InputError(
        "The block holds numbers too large to square in float64. Rescale it to below 1e150."
    )
