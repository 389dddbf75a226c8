"""Argument checks: each message names the argument, its value, the rule and the remedy."""

import math
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.errors import Argument, InputError, Parts, Pass

MOST_FEATURES = 1 << 48
"""Larger counts cannot be meant: eight bytes for each would be 2 PiB."""
_LARGEST = 1e150


def check_count(name: str, value: Any, remedy: Parts, *, least: int = 1) -> None:
    """Raise unless `value` is an integer of at least `least`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < least:
        raise InputError(
            Argument(name, value), f" must be an integer of at least {least}", remedy=remedy
        )


def check_flag(name: str, value: Any, *others: str) -> None:
    """Refuse what is neither True nor False; the message lists `others` that are allowed too."""
    if not isinstance(value, bool):
        *allowed, last = ("True", "False", *map(repr, others))
        raise InputError(
            Argument(name, value),
            f" must be {', '.join(allowed)} or {last}",
            remedy="Pass one of them.",
        )


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Refuse what is not one of the choices."""
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(map(repr, choices))
        raise InputError(
            Argument(name, value), f" must be one of {listed}", remedy="Pass one of them."
        )


def check_decay(value: float) -> None:
    """Raise unless `value` is a number in (0, 1]."""
    if not isinstance(value, Real) or isinstance(value, bool) or not 0.0 < value <= 1.0:
        raise InputError(
            Argument("decay", value),
            " must be a number above 0 and at most 1",
            remedy="Pass 1.0 to forget nothing.",
        )


def check_unmasked(name: str, value: Any) -> None:
    """Raise for a masked array with masked entries: converting it would drop the mask."""
    if np.ma.is_masked(value):
        raise InputError(
            f"{name} has masked entries, and masks are not supported. Pass {name}.filled(np.nan) "
            "where NaN may mark a missing entry, or drop those rows."
        )


def as_real_array(name: str, value: Any) -> npt.NDArray[Any]:
    """Convert to an array of real numbers, of any dtype; raise if that is not possible.

    Examples
    --------
    >>> as_real_array("block", [[1, 2], [3, 4]]).shape
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


def check_block(block: npt.ArrayLike, d: int) -> Array:
    """Convert rows to a finite float64 array of shape (b, d), or raise."""
    rows = as_real_array("block", block)
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


def check_weights(weights: npt.ArrayLike, b: int, name: str = "weights") -> Array:
    """Convert weights to a finite, non-negative float64 array of shape (b,), or raise."""
    checked = as_real_array(name, weights)
    if checked.shape != (b,):
        raise InputError(
            f"{name} has shape {checked.shape} and must be ({b},), one for each row. Reshape it."
        )
    checked = checked.astype(np.float64, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(checked.sum())
    if not math.isfinite(total) or (checked < 0).any():
        raise InputError(
            f"{name} must be finite and not negative. Use weight 0 to leave a row out."
        )
    return checked


def sum_squares(values: npt.NDArray[Any]) -> float:
    """Return the sum of the squares of all entries, without a copy of the table.

    ``np.vdot`` copies a table that is stored column by column, as data frames are, which takes a
    hundred times as long as the sum.

    Examples
    --------
    >>> columns = np.asfortranarray([[1.0, 2.0], [3.0, 4.0]])
    >>> sum_squares(columns), sum_squares(columns[:1])
    (30.0, 5.0)
    """
    if values.ndim == 2 and not values.flags.forc:
        return float(np.einsum("ij,ij->", values, values))
    flat = values.ravel(order="K")
    return float(np.vdot(flat, flat))


def has_finite_squares(values: npt.NDArray[Any]) -> bool:
    """Return whether the squares of all entries have a finite sum: each is finite and bounded."""
    with np.errstate(over="ignore", invalid="ignore"):
        return math.isfinite(sum_squares(values))


def is_bounded(values: Any) -> bool:
    """Return whether all entries but NaN can be squared and summed in float64."""
    if values.dtype == np.float32 or has_finite_squares(values):
        return True  # the largest float32 is far below the limit
    # Both ignore NaN, and neither makes a table of its own.
    least, most = np.fmin.reduce(values, axis=None), np.fmax.reduce(values, axis=None)
    return not (least < -_LARGEST or most > _LARGEST)


def make_range_error() -> InputError:
    """Return the error for numbers whose squares overflow float64."""
    return InputError(
        "The block holds numbers too large to square in float64. Rescale it to below 1e150."
    )


def make_missing_error(*, by_choice: bool = True) -> InputError:
    """Return the error for missing entries where no mean is kept to stand in for them.

    Parameters
    ----------
    by_choice : bool, default=True
        Whether ``center=False`` was chosen; an SVD has no other.
    """
    if not by_choice:
        return InputError(
            "X holds NaN, and rows that are not centred have no mean that could stand in for it. "
            "Impute it first."
        )
    return InputError(
        "X holds NaN, which is imputed by the mean, and ",
        Argument("center", False),
        " keeps none. Impute it first or ",
        Pass("center", True),
        ".",
    )


def are_finite(a: Array) -> bool:
    """Return whether all entries are finite.

    The sum of their squares is checked first, which takes a fifth of the time.

    Examples
    --------
    >>> are_finite(np.array([1.0, 1e200])), are_finite(np.array([np.nan]))
    (True, False)
    """
    return math.isfinite(sum_squares(a)) or bool(np.isfinite(a).all())
