"""Continuous Gaussian noise in floating point, as in the papers.

Each number is the inverse normal distribution function of 52 bits of the operating system's
randomness. Proofs about real numbers do not cover floating point, and no number is beyond 8.3
standard deviations: good enough to study the papers, and for nothing else.
"""

import hashlib
import math
import secrets
from collections.abc import Callable
from itertools import count

import numpy as np
from scipy.special import ndtri

from eigenfed.arrays import Array

Bits = Callable[[int], bytes]
"""Returns a given number of random bytes."""


def draw_normal(shape: tuple[int, ...], sd: float, bits: Bits | None = None) -> Array:
    """Draw independent normal numbers of mean 0.

    Parameters
    ----------
    shape : tuple of int
    sd : float
        Standard deviation.
    bits : callable, optional
        Source of random bytes; the operating system by default.

    Returns
    -------
    ndarray of that shape

    Notes
    -----
    Our own, because numpy's generators are not cryptographic and can be seeded. It is vectorised,
    and tests compare its distribution with scipy's.

    Examples
    --------
    >>> draw_normal((2,), 3.0, bits=lambda size: bytes(size)).round(2)
    array([-24.63, -24.63])
    """
    drawn = (bits or secrets.token_bytes)(8 * math.prod(shape))
    # 52 bits plus one half: with 53 bits the largest would round up to 1, whose quantile is
    # infinite.
    uniform = ((np.frombuffer(drawn, "<u8") >> np.uint64(12)) + 0.5) * 2.0**-52
    quantiles: Array = ndtri(uniform)
    return sd * quantiles.reshape(shape)


def draw_symmetric(d: int, sd: float, bits: Bits | None = None) -> Array:
    """Draw a symmetric matrix, (d, d): independent on and above the diagonal, mirrored below.

    The triangle of the noise is mirrored. The published code of [Grammenos2020] mirrors that of the
    data instead and releases twice the data there, without any noise.

    Examples
    --------
    >>> noise = draw_symmetric(3, 1.0)
    >>> bool((noise == noise.T).all())
    True
    """
    rows, columns = np.triu_indices(d)
    noise = np.zeros((d, d))
    noise[rows, columns] = noise[columns, rows] = draw_normal((len(rows),), sd, bits)
    return noise


def derive_bits(key: bytes) -> Bits:
    """Return a source of bytes derived from a key (SHAKE-256).

    A coordinator must reach the same result from the same replies, or a resumed run would draw
    fresh noise for the same data. So sites send keys from the operating system's randomness, and
    the coordinator's noise is derived from all of them.

    Examples
    --------
    >>> first, again = derive_bits(b"key"), derive_bits(b"key")
    >>> first(8) == again(8), first(8) == first(8)
    (True, False)
    """
    turns = count()

    def stream(size: int) -> bytes:
        return hashlib.shake_256(next(turns).to_bytes(8) + key).digest(size)

    return stream
