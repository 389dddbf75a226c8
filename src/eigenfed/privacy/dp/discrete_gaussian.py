"""Discrete Gaussian noise from the operating system's randomness.

Noise is of whole numbers and added to whole numbers, so that no rounding of floating-point numbers
can tell what is under it. ``P(z)`` is proportional to ``exp(-z^2 / (2 s^2))``.

**Drawing.** Up to s = 4096 by a table of the cumulated distribution to 128 bits, from whose end
at most 2^-127 of the probability is cut for each entry. Above, ``z = a + B b`` with a and b
discrete Gaussians of smaller deviation, ``s^2 = s_a^2 + B^2 s_b^2``. Given z, what sums over b is
a Gaussian of variance ``t^2 = 1 / (B^2 / s_a^2 + 1 / s_b^2)`` summed over the integers, which by
Poisson's formula is the same for every z up to a factor within ``1 +- 2.1 exp(-2 pi^2 t^2)``. With
``s_a = 3 B`` and ``s_b >= 60``, t is above 2.99 and the factor within ``1 +- 1e-76``.

**Accounting.** Round a continuous Gaussian y of variance ``s^2 - 4`` about x to an integer drawn
from the discrete Gaussian of deviation 2 about y. By the same formula the outcome is distributed as
x plus the discrete Gaussian of deviation s, up to a factor within ``1 +- 1e-33``. So the discrete
Gaussian mechanism is a post-processing of the continuous one, and exactly as private as noise of
standard deviation `effective`: tight Gaussian accounting holds for it, composition included. Sums
of discrete Gaussians are again such, up to factors of the same kind.

Noise for a reply of whole numbers: how much, in what shape, and whose part of it.
"""

import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array, Arrays
from eigenfed.errors import Argument, InputError, Name

Bits = Callable[[int], bytes]
"""Gives that many random bytes."""

ROUNDING_VARIANCE = 4.0
"""What whole numbers cost: their variance must exceed the calibrated one by this."""

LEAST_SD = 8.0
"""Below this, sums of discrete Gaussians are not close enough to being one."""

_LARGEST_TABLE = 4096.0
_LARGEST_STEP = 1024
_TABLE_BITS = 128
_WORK_BITS = 256
_REACH = 14.0
_MOST_SD = 2.0**55


def whole_sd(sd: float) -> float:
    """Return the deviation of whole-number noise that is as private as continuous noise of `sd`.

    Examples
    --------
    >>> whole_sd(100.0) > 100.0
    True
    >>> round(effective(whole_sd(100.0)), 9)
    100.0
    """
    return math.sqrt(sd**2 + ROUNDING_VARIANCE)


def effective(sd: float) -> float:
    """Return the deviation of continuous noise that whole-number noise of `sd` is as private as."""
    if not sd >= LEAST_SD:
        raise InputError(
            f"sd={sd} of whole-number noise must be at least {LEAST_SD}. Scale the values up."
        )
    return math.sqrt(sd**2 - ROUNDING_VARIANCE)


def discrete_gaussian(
    sd: float, size: int | tuple[int, ...], bits: Bits = secrets.token_bytes
) -> npt.NDArray[np.int64]:
    """Draw discrete Gaussian noise of mean 0.

    Parameters
    ----------
    sd : float
        Standard deviation in whole numbers, at least 8.
    size : int or tuple of int
        Shape of what is returned.
    bits : callable
        Source of random bytes: the operating system's, except in tests.

    Examples
    --------
    >>> noise = discrete_gaussian(1000.0, 50000)
    >>> bool(abs(noise.std() / 1000.0 - 1) < 0.05)
    True
    """
    if not LEAST_SD <= sd <= _MOST_SD:
        raise InputError(
            f"sd={sd} must be from {LEAST_SD} to {_MOST_SD:.0f} whole numbers. Scale the values."
        )
    count = math.prod(size) if isinstance(size, tuple) else size
    return _drawn(sd, count, bits).reshape(size)


def _drawn(sd: float, count: int, bits: Bits) -> npt.NDArray[np.int64]:
    if sd <= _LARGEST_TABLE:
        return _from_table(_table(sd), count, bits)
    step = min(_LARGEST_STEP, 1 << (int(sd) // 64).bit_length() - 1)
    fine = 3.0 * step
    coarse = math.sqrt((sd - fine) * (sd + fine)) / step
    return _drawn(fine, count, bits) + step * _drawn(coarse, count, bits)


_Table = tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]


@lru_cache(maxsize=16)
def _table(sd: float) -> _Table:
    """P(abs(z) <= k) for k = 0, 1, ... as the upper and lower 64 of 128 bits."""
    cumulated, mass = [], 1 << _WORK_BITS
    ratio, fall = _powers(sd)
    total = mass
    cumulated.append(total)
    for _ in range(math.ceil(_REACH * sd)):
        mass = mass * ratio >> _WORK_BITS
        ratio = ratio * fall >> _WORK_BITS
        total += 2 * mass
        cumulated.append(total)
    scaled = [(c << _TABLE_BITS) // total for c in cumulated[:-1]]
    low = (1 << 64) - 1
    return (
        np.array([c >> 64 for c in scaled], dtype=np.uint64),
        np.array([c & low for c in scaled], dtype=np.uint64),
    )


def _powers(sd: float) -> tuple[int, int]:
    """exp(-1 / (2 s^2)) and exp(-1 / s^2), as integers over 2^256."""
    with localcontext() as context:
        context.prec = 100
        ratio = (Decimal(-1) / (2 * Decimal(sd) ** 2)).exp()
        one = Decimal(2) ** _WORK_BITS
        return int(ratio * one), int(ratio * ratio * one)


def _from_table(table: _Table, count: int, bits: Bits) -> npt.NDArray[np.int64]:
    """Draw magnitudes by inverting the cumulated distribution, and signs by single bits."""
    upper, lower = table
    drawn = np.frombuffer(bits(8 * count), dtype=np.uint64)
    magnitude = np.searchsorted(upper, drawn, side="left").astype(np.int64)
    tied = np.flatnonzero(upper[np.minimum(magnitude, len(upper) - 1)] == drawn)
    for i in tied:
        rest = int.from_bytes(bits(8), "little")
        at = int(magnitude[i])
        while at < len(upper) and upper[at] == drawn[i] and int(lower[at]) <= rest:
            at += 1
        magnitude[i] = at
    signs = np.unpackbits(np.frombuffer(bits(-(-count // 8)), dtype=np.uint8), count=count)
    return np.where(signs == 1, -magnitude, magnitude)


Draw = Callable[[float, int], npt.NDArray[np.int64]]
"""Whole-number noise of a standard deviation, so many of it."""


@dataclass(frozen=True, eq=False, repr=False)
class Noise:
    """What makes a reply private.

    Attributes
    ----------
    sensitivity : float
        How far one row can move the reply, in Euclidean norm, once each entry is divided by its
        relative deviation.
    relative : mapping of str to ndarray
        Relative standard deviation of the noise on each entry of an array; 1 where none is given.

    Examples
    --------
    >>> import numpy as np
    >>> noise = Noise(sensitivity=1024.0)
    >>> noisy = noise.added({"count": np.array([2048])}, mu=0.1)
    >>> noisy["count"].dtype
    dtype('int64')
    """

    sensitivity: float
    relative: Mapping[str, Array] = field(default_factory=dict)

    def added(
        self, reply: Arrays, mu: float, parties: int = 1, draw: Draw = discrete_gaussian
    ) -> Arrays:
        """Return the reply with one party's part of the noise.

        Parameters
        ----------
        reply : mapping of str to ndarray of int64
        mu : float
            What the noise of all parties together must give, as Gaussian DP.
        parties : int
            How many add their part.
        draw : callable
            Source of noise: `discrete_gaussian`, except in tests.
        """
        if not 0.0 < mu < math.inf:
            raise InputError(
                Argument("mu", mu),
                " must be a finite number above 0",
                remedy="Ask for less privacy loss.",
            )
        if parties < 1:
            raise InputError(f"parties={parties} must be at least 1: somebody adds the noise.")
        return {
            name: values + self._drawn(values, self.relative.get(name), mu, parties, draw)
            for name, values in reply.items()
        }

    def _drawn(
        self,
        values: npt.NDArray[np.int64],
        relative: Array | None,
        mu: float,
        parties: int,
        draw: Draw,
    ) -> npt.NDArray[np.int64]:
        shape = np.ones(values.shape) if relative is None else relative
        noise = np.zeros(values.shape, dtype=np.int64)
        for part in np.unique(shape):
            sd = whole_sd(self.sensitivity * float(part) / mu) / math.sqrt(parties)
            if sd < LEAST_SD:
                raise InputError(
                    "The noise is too small for whole numbers",
                    remedy=("Lower ", Name("epsilon"), "."),
                )
            where = shape == part
            noise[where] = draw(sd, int(where.sum()))
        return noise
