"""Noise of a few steps that a site adds before it rounds a number to fixed point.

A sum of rounded numbers is not the rounded sum: it tells, for a number near half a step, whether
one site's part was rounded up. Whoever chooses directions can make every site's part as small as a
step, and place that number by bisection. With Gaussian noise of standard deviation s, in steps, the
law of the rounded number depends on where it lies between two steps by about ``exp(-2 pi^2 s^2)``,
here 1e-34, so that the law of the sum depends on the sum alone.

The noise is a secret function of the numbers and of their bound. The same numbers in the same steps
get the same noise, so that nothing is learnt by asking again, and a run that is replayed sends the
same bytes. In other steps they get other noise: the same one would cancel.
"""

import math

import numpy as np

from eigenfed.arrays import Array
from eigenfed.privacy.secagg.masking import Mask, add_masks

STANDARD_DEVIATION = 2.0
_BITS = 53
LARGEST = STANDARD_DEVIATION * math.sqrt(2.0 * _BITS * math.log(2.0))
"""No number of the noise is larger. A sum of n of them exceeds root n times this once in 1e17."""


def draw_rounding_noise(key: bytes, count: int) -> Array:
    """Return normal numbers that follow from a key, by the method of Box and Muller.

    Parameters
    ----------
    key : bytes
        32 bytes, used for this only.
    count : int

    Examples
    --------
    >>> noise = draw_rounding_noise(bytes(32), 10001)
    >>> len(noise), bool(abs(noise.std() / STANDARD_DEVIATION - 1.0) < 0.05)
    (10001, True)
    """
    half = (count + 1) // 2
    words = np.zeros(2 * half, dtype=np.int64)
    add_masks([Mask(key, 1)], [words])
    # Above 0 and at most 1, so that every logarithm is finite.
    uniform = ((words.view(np.uint64) >> np.uint64(64 - _BITS)) + 1.0) * 2.0**-_BITS
    radius = STANDARD_DEVIATION * np.sqrt(-2.0 * np.log(uniform[:half]))
    angle = 2.0 * math.pi * uniform[half:]
    found: Array = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]
    return found
