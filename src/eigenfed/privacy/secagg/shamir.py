"""Secrets in shares: any `threshold` of them bring the secret back, fewer tell nothing of it.

Shamir's scheme over the field of the first prime above 2^256, so that every secret of 32 bytes is
an element of it. Fewer shares than the threshold are uniform whatever the secret is. The arithmetic
is Python's and takes a time that depends on the numbers: it is no defence against somebody who
measures the processor of a site.
"""

import secrets
from collections.abc import Mapping, Sequence
from functools import lru_cache

from eigenfed.errors import DataError, InputError

PRIME = 2**256 + 297
SECRET_BYTES = 32
SHARE_BYTES = 33


def split(secret: bytes, threshold: int, points: Sequence[int]) -> list[bytes]:
    """Cut a secret into one share for each point.

    Parameters
    ----------
    secret : bytes
        32 bytes.
    threshold : int
        How many shares bring it back; at least 2.
    points : sequence of int
        Where the polynomial is evaluated: distinct, from 1 on, `threshold` or more.

    Returns
    -------
    list of bytes
        33 bytes for each point.

    Examples
    --------
    >>> shares = split(b"s" * 32, 2, [1, 2, 3])
    >>> recovered({1: shares[0], 3: shares[2]}, 2) == b"s" * 32
    True
    """
    if len(secret) != SECRET_BYTES:
        raise InputError(
            f"The secret has {len(secret)} bytes and must have {SECRET_BYTES}. Cut it."
        )
    if not 2 <= threshold <= len(points):
        raise InputError(
            f"threshold={threshold} must be at least 2 and at most {len(points)}, the number of "
            "shares. Lower it, or make more shares."
        )
    _check_points(points)
    coefficients = [secrets.randbelow(PRIME) for _ in range(threshold - 1)]
    constant = int.from_bytes(secret, "big")
    return [_value(constant, coefficients, x).to_bytes(SHARE_BYTES, "big") for x in points]


def recovered(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """Bring a secret back from shares by point; of more than `threshold` the first are taken.

    Raises
    ------
    DataError
        If there are too few shares, one is malformed, or they are not of one secret as far as that
        shows: wrong shares mostly give a wrong secret.
    """
    if len(shares) < threshold:
        raise DataError(
            f"There are {len(shares)} shares and {threshold} are needed. Wait for more of them."
        )
    points = tuple(sorted(shares))[:threshold]
    _check_points(points)
    total = 0
    for x, weight in zip(points, _weights(points), strict=True):
        share = shares[x]
        value = int.from_bytes(share, "big")
        if len(share) != SHARE_BYTES or value >= PRIME:
            raise DataError(f"The share at point {x} is malformed. Ask its holder again.")
        total += weight * value
    secret = total % PRIME
    if secret >> (8 * SECRET_BYTES):
        raise DataError("The shares are not of one secret. Ask their holders again.")
    return secret.to_bytes(SECRET_BYTES, "big")


def _check_points(points: Sequence[int]) -> None:
    if len(set(points)) != len(points) or not all(0 < x < PRIME for x in points):
        raise InputError("The points of shares must be distinct and from 1 on. Number the holders.")


def _value(constant: int, coefficients: Sequence[int], x: int) -> int:
    total = 0
    for coefficient in reversed(coefficients):
        total = (total + coefficient) * x % PRIME
    return (total + constant) % PRIME


@lru_cache(maxsize=256)
def _weights(points: tuple[int, ...]) -> tuple[int, ...]:
    """Lagrange's weights of the value at 0."""
    found = []
    for x in points:
        above = below = 1
        for other in points:
            if other != x:
                above = above * other % PRIME
                below = below * (other - x) % PRIME
        found.append(above * pow(below, -1, PRIME) % PRIME)
    return tuple(found)
