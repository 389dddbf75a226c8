"""Fixed-point encoding: real numbers as integers, so that sums are exact and can be masked.

A number x is rounded to the nearest multiple of a step. The step is a power of two, so that scaling
is exact, and follows from the largest magnitude that one site may contribute: sums over all sites
stay below 2^62 and never overflow. Larger numbers are refused, never clipped.

A bound is rounded up to a power of two. A coordinator that varies bounds and observes which sites
refuse them thus learns magnitudes to a factor of two at best. Nor may it see how single numbers are
rounded: where it chooses what is multiplied, noise of a few steps is added before rounding.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array, Integers
from eigenfed.errors import InputError
from eigenfed.privacy.secagg.rounding_noise import LARGEST, draw_rounding_noise

Bound = int | float | npt.NDArray[np.float64]
"""Largest magnitude of an entry of one site's array, for all entries or for each. An int is for
integer arrays, which are then summed unchanged."""


_WORD_BITS = 62
_LEAST_EXPONENT = -1074
_LARGEST_FACTOR = 1000


def check_bound(name: str, bound: Bound, parties: int) -> None:
    """Raise InputError unless a bound is finite, at least 0 and, for integers, not too large."""
    if isinstance(bound, bool) or not isinstance(bound, int | float | np.ndarray):
        raise InputError(f"The bound of {name!r} has type {type(bound).__name__}. Pass a number.")
    values = np.asarray(bound, dtype=np.float64)
    if not (np.isfinite(values) & (values >= 0)).all():
        raise InputError(
            f"The bound of {name!r} must be finite and at least 0. Pass the largest magnitude that "
            "one site can contribute; rescale the features if that overflows."
        )
    if isinstance(bound, int) and bound * parties >= 1 << _WORD_BITS:
        raise InputError(
            f"The bound {bound} of {name!r} times {parties} sites must stay below 2^{_WORD_BITS}. "
            "Use smaller integers."
        )


def encode_fixed_point(
    values: npt.NDArray[Any], bound: Bound, parties: int, key: bytes | None = None
) -> Integers:
    """Encode one site's numbers as integers.

    Parameters
    ----------
    values : ndarray
        float64 or int64. With an int bound they must be int64 and are not changed.
    bound : int, float or ndarray of the same shape
        Largest magnitude allowed; a float is rounded up to a power of two.
    parties : int
        Number of sites in the sum.
    key : bytes, optional
        Of the noise to add to float64 numbers before they are rounded, in steps.

    Returns
    -------
    ndarray of int64
        A new array, of magnitude at most ``2**62 / parties``.

    Raises
    ------
    InputError
        If an entry is not finite or exceeds its bound. The message contains no entry.

    Examples
    --------
    >>> import numpy as np
    >>> integers = encode_fixed_point(np.array([0.5, -1.0]), 1.0, 4)
    >>> decode_fixed_point(3 * integers, 1.0, 4)
    array([ 1.5, -3. ])
    """
    if isinstance(bound, int):
        if values.dtype != np.int64:
            raise InputError("An int bound requires an int64 array. Pass a float bound.")
        if values.size and not max(int(values.max()), -int(values.min())) <= bound:
            raise InputError("An entry exceeds its bound. Pass a larger bound.")
        return values.copy()
    if values.dtype not in (np.float64, np.int64):
        raise InputError("Entries must be float64 or int64. Convert them first.")
    if isinstance(bound, np.ndarray) and bound.shape != values.shape:
        raise InputError("An array of bounds must have the shape of the entries. Reshape it.")
    if not _are_within(values, np.ldexp(1.0, _log2(bound))):
        raise InputError("An entry is not finite or exceeds its bound. Pass a larger bound.")
    powers = -_step_exponent(bound, parties)
    if values.dtype == np.int64:
        if powers.min(initial=0) < 0:
            raise InputError("The bound is too large for integers to stay exact. Lower it.")
        return values << powers
    scaled = _scale(values, powers)
    whole = np.rint(scaled, out=np.empty_like(scaled))
    found: Integers = whole.astype(np.int64)
    if key is not None:
        # Added to what is left of each number: a large one has no digits for it.
        scaled -= whole
        scaled += draw_rounding_noise(key, values.size).reshape(values.shape)
        found += np.rint(scaled, out=scaled).astype(np.int64)
        most = 1 << (_WORD_BITS - (parties - 1).bit_length())
        np.clip(found, -most, most, out=found)
    return found


def decode_fixed_point(total: Integers, bound: Bound, parties: int) -> npt.NDArray[Any]:
    """Decode a sum of encoded numbers to float64; with an int bound it is returned unchanged.

    Raises
    ------
    InputError
        If the sum exceeds what numbers within the bound can add up to.
    """
    largest = bound * parties if isinstance(bound, int) else 1 << _WORD_BITS
    if total.size and not max(int(total.max()), -int(total.min())) <= largest:
        raise InputError("The sum exceeds what numbers within their bounds can add up to.")
    if isinstance(bound, int):
        return total
    return _scale(total.astype(np.float64), _step_exponent(bound, parties))


def error(bound: Bound, parties: int, *, noisy: bool = False) -> Array:
    """Return the largest rounding error of an entry of the sum.

    With noise it is exceeded once in 1e17.

    Examples
    --------
    >>> float(error(1.0, 4)) == 2.0 * 2.0**-60
    True
    """
    if isinstance(bound, int):
        return np.zeros(())
    size = 0.5 * parties + (LARGEST * math.sqrt(parties) if noisy else 0.0)
    found: Array = size * np.ldexp(1.0, _step_exponent(bound, parties))
    return found


def _are_within(values: npt.NDArray[Any], limit: Array) -> bool:
    """Return whether all values are finite and within the limit."""
    if limit.ndim:
        return bool((np.abs(values) <= limit).all())
    # With one limit the extremes suffice, and no temporary array is needed; NaN compares as False.
    return values.size == 0 or bool(values.max() <= limit and -limit <= values.min())


def _log2(bound: float | Array) -> npt.NDArray[np.int64]:
    """Return the least integer p for which 2**p is at least the bound."""
    mantissa, exponent = np.frexp(bound)
    power = exponent.astype(np.int64) - (mantissa == 0.5)
    return np.asarray(np.where(mantissa == 0.0, _LEAST_EXPONENT, power))


def _step_exponent(bound: float | Array, parties: int) -> npt.NDArray[np.int64]:
    """Return the exponent of the step, which is a power of two."""
    bits = (parties - 1).bit_length()
    return np.maximum(_log2(bound) + (bits - _WORD_BITS), _LEAST_EXPONENT)


def _scale(values: Array, powers: npt.NDArray[np.int64]) -> Array:
    """Multiply by powers of two; by a plain product if that is exact, which is much faster."""
    if powers.ndim == 0 and abs(int(powers)) <= _LARGEST_FACTOR:
        return np.asarray(values * math.ldexp(1.0, int(powers)))
    return np.asarray(np.ldexp(values, powers))
