"""Checks at the public door of `linalg`: each message names argument, rule, value and remedy."""

import math
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.errors import Argument, InputError, Parts

MOST_FEATURES = 1 << 48


def check_count(name: str, value: Any, remedy: Parts, *, least: int = 1) -> None:
    """Refuse what is not a whole number of at least `least`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < least:
        raise InputError(
            Argument(name, value), f" must be a whole number of at least {least}", remedy=remedy
        )


def check_decay(value: float) -> None:
    """Refuse a decay outside (0, 1]."""
    if not isinstance(value, Real) or isinstance(value, bool) or not 0.0 < value <= 1.0:
        raise InputError(
            Argument("decay", value),
            " must be a number above 0 and at most 1",
            remedy="Pass 1.0 to forget nothing.",
        )


def check_unmasked(name: str, value: Any) -> None:
    """Refuse a masked array with something masked: its mask would be lost."""
    if np.ma.is_masked(value):
        raise InputError(
            f"{name} has masked entries, and a mask is not followed. Pass {name}.filled(np.nan) "
            "where NaN may stand for a missing entry, or drop those rows."
        )


def real_array(name: str, value: Any) -> npt.NDArray[Any]:
    """Return an array of real numbers of any dtype, or refuse what is none.

    Examples
    --------
    >>> real_array("block", [[1, 2], [3, 4]]).shape
    (2, 2)
    """
    check_unmasked(name, value)
    try:
        array = np.asarray(value)
    except ValueError:
        raise InputError(
            f"{name} has rows of different lengths and must be a table. "
            "Give every row the same length."
        ) from None
    if array.dtype.kind not in "biuf":
        raise InputError(
            f"{name} has dtype {array.dtype} and must hold real numbers. Convert it first."
        )
    return array


def checked_block(block: npt.ArrayLike, d: int) -> Array:
    """Return rows as a finite float64 array of shape (b, d)."""
    rows = real_array("block", block)
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
    checked = real_array(name, weights)
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
