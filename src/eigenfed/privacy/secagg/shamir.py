"""Shamir's secret sharing: any `threshold` secret shares recover a secret, fewer reveal nothing.

The field is that of the first prime above 2^256, so that every secret of 32 bytes is an element of
it. Fewer shares than the threshold are distributed uniformly, whatever the secret is.

The implementation is our own because `cryptography` has none, and a dependency for a few lines of
modular arithmetic would have to be trusted with keys. Tests check recovery from every group of
holders, and that fewer shares are consistent with every secret. Python's integer arithmetic does
not run in constant time: it does not protect against an attacker who can time a site's processor.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from eigenfed.errors import DataError, InputError

PRIME = 2**256 + 297
SECRET_BYTES = 32
SHARE_BYTES = 33


def split(
    secret: bytes,
    threshold: int,
    points: Sequence[int],
    draw: Callable[[int], int] = lambda index: secrets.randbelow(PRIME),
) -> list[bytes]:
    """Split a secret into secret shares, one for each point.

    Parameters
    ----------
    secret : bytes
        32 bytes.
    threshold : int
        Number of shares that recover it; at least 2.
    points : sequence of int
        Points at which the polynomial is evaluated: distinct, at least 1, at least `threshold`
        of them.
    draw : callable, optional
        Returns the coefficient of a power of the polynomial, from 1, uniform below `PRIME`: by
        default from the operating system's randomness.

    Returns
    -------
    list of bytes
        33 bytes for each point.

    Examples
    --------
    >>> shares = split(b"s" * 32, 2, [1, 2, 3])
    >>> recover_secret({1: shares[0], 3: shares[2]}, 2) == b"s" * 32
    True
    """
    if len(secret) != SECRET_BYTES:
        raise InputError(
            f"The secret has {len(secret)} bytes and must have {SECRET_BYTES}. Pass a key."
        )
    if not 2 <= threshold <= len(points):
        raise InputError(
            f"threshold={threshold} must be at least 2 and at most {len(points)}, the number of "
            "shares. Change it, or pass more points."
        )
    _check_points(points)
    coefficients = [draw(power) for power in range(1, threshold)]
    constant = int.from_bytes(secret, "big")
    return [_evaluate(constant, coefficients, x).to_bytes(SHARE_BYTES, "big") for x in points]


def recover_secret(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """Recover a secret from shares by point; of more than `threshold`, the first ones are used.

    Raises
    ------
    DataError
        If there are too few shares, one is malformed, or the result is not a valid secret. Wrong
        shares usually give a wrong secret without an error.
    """
    if len(shares) < threshold:
        raise DataError(
            f"There are {len(shares)} secret shares and {threshold} are needed. Wait for more."
        )
    points = tuple(sorted(shares))[:threshold]
    _check_points(points)
    total = 0
    for x, weight in zip(points, _lagrange_weights(points), strict=True):
        share = shares[x]
        value = int.from_bytes(share, "big")
        if len(share) != SHARE_BYTES or value >= PRIME:
            raise DataError(f"The secret share at point {x} is malformed. Request it again.")
        total += weight * value
    secret = total % PRIME
    if secret >> (8 * SECRET_BYTES):
        raise DataError("The secret shares do not belong together. Request them again.")
    return secret.to_bytes(SECRET_BYTES, "big")


def _check_points(points: Sequence[int]) -> None:
    if len(set(points)) != len(points) or not all(0 < x < PRIME for x in points):
        raise InputError("The points must be distinct and at least 1. Number the holders from 1.")


def _evaluate(constant: int, coefficients: Sequence[int], x: int) -> int:
    """Evaluate the polynomial at x, by Horner's rule."""
    total = 0
    for coefficient in reversed(coefficients):
        total = (total + coefficient) * x % PRIME
    return (total + constant) % PRIME


@lru_cache(maxsize=256)
def _lagrange_weights(points: tuple[int, ...]) -> tuple[int, ...]:
    """Return the Lagrange weights of the value at 0."""
    weights = []
    for x in points:
        numerator = denominator = 1
        for other in points:
            if other != x:
                numerator = numerator * other % PRIME
                denominator = denominator * (other - x) % PRIME
        weights.append(numerator * pow(denominator, -1, PRIME) % PRIME)
    return tuple(weights)
