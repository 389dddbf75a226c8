"""Real numbers as whole ones, so that sums of them are exact and can be masked.

A number x becomes the nearest whole multiple of a step, a power of two, so that scaling loses
nothing. The step comes from the largest magnitude that one site may bring: sums over all sites
then stay below 2^62 and never wrap round. What is beyond is refused, never cut.

A bound counts as the next power of two. Whoever states bounds and looks at who refuses them thus
learns magnitudes to a factor of two at best.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.errors import InputError

Bound = int | float | npt.NDArray[np.float64]
"""Largest magnitude of an entry of one site's array, for all entries or for each. A whole number
is for whole numbers, which are then summed as they are."""

Integers = npt.NDArray[np.int64]

_WORD_BITS = 62
_LEAST_EXPONENT = -1074
_LARGEST_FACTOR = 1000


def check_bound(name: str, bound: Bound, parties: int) -> None:
    """Refuse a bound that is no finite number of at least 0, or one too large for whole numbers."""
    if isinstance(bound, bool) or not isinstance(bound, int | float | np.ndarray):
        raise InputError(f"The bound of {name!r} is a {type(bound).__name__}. Pass a number.")
    values = np.asarray(bound, dtype=np.float64)
    if not (np.isfinite(values) & (values >= 0)).all():
        raise InputError(
            f"The bound of {name!r} must be finite and at least 0. State the largest magnitude "
            "that one site can bring; rescale the features where that overflows."
        )
    if isinstance(bound, int) and bound * parties >= 1 << _WORD_BITS:
        raise InputError(
            f"The bound {bound} of {name!r} times {parties} sites must stay below 2^{_WORD_BITS}. "
            "Bring smaller whole numbers."
        )


def encoded(values: npt.NDArray[Any], bound: Bound, parties: int) -> Integers:
    """Turn one site's numbers into whole ones.

    Parameters
    ----------
    values : ndarray
        float64 or int64. Where the bound is whole they are int64 and stay as they are.
    bound : int, float or ndarray of the same shape
        Largest magnitude allowed; a fraction counts as the next power of two.
    parties : int
        How many sites there are to sum over.

    Returns
    -------
    ndarray of int64
        A new array, of magnitude below ``2**62 / parties``.

    Raises
    ------
    InputError
        If an entry is not finite or beyond its bound. The text holds no entry.

    Examples
    --------
    >>> import numpy as np
    >>> whole = encoded(np.array([0.5, -1.0]), 1.0, 4)
    >>> decoded(3 * whole, 1.0, 4)
    array([ 1.5, -3. ])
    """
    if isinstance(bound, int):
        if values.dtype != np.int64:
            raise InputError("A whole bound is for whole numbers. State a bound as a fraction.")
        if values.size and not max(int(values.max()), -int(values.min())) <= bound:
            raise InputError("An entry is beyond its bound. State a larger one.")
        return values.copy()
    if values.dtype not in (np.float64, np.int64):
        raise InputError("Entries must be float64 or int64. Convert them first.")
    if isinstance(bound, np.ndarray) and bound.shape != values.shape:
        raise InputError("Bounds by entry must have the shape of the entries. Reshape them.")
    if not _are_within(values, np.ldexp(1.0, _log2(bound))):
        raise InputError("An entry is not finite or is beyond its bound. State a larger one.")
    powers = -_exponent(bound, parties)
    if values.dtype == np.int64:
        if powers.min(initial=0) < 0:
            raise InputError("The bound is too large for whole numbers to be kept. Lower it.")
        return values << powers
    scaled = _scaled(values, powers)
    return np.rint(scaled, out=scaled).astype(np.int64)


def decoded(total: Integers, bound: Bound, parties: int) -> npt.NDArray[Any]:
    """Turn a sum of encoded numbers back, as float64, or as it is where the bound is whole.

    Raises
    ------
    InputError
        If the sum is one that numbers within the bound cannot have.
    """
    whole = isinstance(bound, int)
    largest = bound * parties if isinstance(bound, int) else 1 << _WORD_BITS
    if total.size and not max(int(total.max()), -int(total.min())) <= largest:
        raise InputError("The sum is beyond what numbers within their bounds can add up to.")
    return total if whole else _scaled(total.astype(np.float64), _exponent(bound, parties))


def error(bound: Bound, parties: int) -> Array:
    """Return the most by which an entry of the sum differs from the sum of the entries.

    Examples
    --------
    >>> float(error(1.0, 4)) == 2.0 * 2.0**-60
    True
    """
    if isinstance(bound, int):
        return np.zeros(())
    halves: Array = parties * np.ldexp(0.5, _exponent(bound, parties))
    return halves


def _are_within(values: npt.NDArray[Any], limit: Array) -> bool:
    """Say whether all are finite and no larger than the limit; by the extremes if there is one."""
    if limit.ndim:
        return bool((np.abs(values) <= limit).all())
    return values.size == 0 or bool(values.max() <= limit and -limit <= values.min())


def _log2(bound: float | Array) -> npt.NDArray[np.int64]:
    """Return the least whole power of 2 that is not below the bound."""
    mantissa, exponent = np.frexp(bound)
    power = exponent.astype(np.int64) - (mantissa == 0.5)
    return np.asarray(np.where(mantissa == 0.0, _LEAST_EXPONENT, power))


def _exponent(bound: float | Array, parties: int) -> npt.NDArray[np.int64]:
    """Return the power of 2 that is the step."""
    bits = (parties - 1).bit_length()
    return np.maximum(_log2(bound) + (bits - _WORD_BITS), _LEAST_EXPONENT)


def _scaled(values: Array, powers: npt.NDArray[np.int64]) -> Array:
    """Multiply by powers of 2: as a product where that is exact, which is much faster."""
    if powers.ndim == 0 and abs(int(powers)) <= _LARGEST_FACTOR:
        return np.asarray(values * math.ldexp(1.0, int(powers)))
    return np.asarray(np.ldexp(values, powers))
