"""How long the steps of a method take: predicted seconds of one processor.

The constants were measured on one core of a current server. Only their proportions matter for the
choice of a method; another machine is faster or slower at nearly all of them alike. The benchmark
`bench/choice.py` compares the choice that follows from them with the times of all methods.
"""

import math

_PASS = 0.7e-9
"""To read one entry of dense rows from memory."""
_MULTIPLY = 0.045e-9
"""A multiplication by one of a few directions, on top of reading the entry."""
_PASS_STORED = 2.5e-9
_MULTIPLY_STORED = 0.33e-9
"""The same two for a stored entry of sparse rows."""
_DENSE_COLUMN = 2e-9
"""To make one entry of a sparse product, which is dense."""
_SQUARE = 0.025e-9
"""A multiplication in a large matrix product."""
_CENTRE = 1e-9
"""To centre or to unpack one entry."""
_EIGEN = 0.055e-9
"""Per cubed length of a symmetric matrix that fits into the cache; larger ones take longer."""
_CACHED_LENGTH = 1500
_EIGENVECTOR = 0.45e-9
_NUMBER = 4.5e-9
"""To encode, send within a process, decode and add up one number of a reply."""
_ROUND = 0.22e-3
"""Everything else about one request to one site."""
_SECURE_ROUNDS = 4
"""Rounds of one secure aggregation, keys included."""
_MASK = 12e-9
"""To mask one number with one neighbour."""
_MOST_NEIGHBOURS = 32


def time_products(
    rows: float, features: float, density: float, count: float, calls: float
) -> float:
    """Return the seconds of the scatter times `count` directions in all, in `calls` requests.

    Examples
    --------
    >>> f"{time_products(2000, 2000, 1.0, 12, 1):.1e}"
    '7.1e-03'
    """
    entries = rows * features
    if density < 1.0:
        stored = density * entries * (_PASS_STORED * calls + 2 * _MULTIPLY_STORED * count)
        return stored + _DENSE_COLUMN * features * count
    return entries * (_PASS * calls + 2 * _MULTIPLY * count)


def time_scatter(rows: float, features: float, density: float) -> float:
    """Return the seconds of a whole scatter, for which sparse rows are unpacked."""
    centring = _CENTRE * (2.0 if density < 1.0 else 1.0)
    return rows * features * (centring + _SQUARE * features)


def time_square(length: float, depth: float) -> float:
    """Return the seconds of a product of length x depth by its own transpose."""
    return _SQUARE * length * length * depth


def time_eigen(length: float, k: float) -> float:
    """Return the seconds of k eigenpairs of a symmetric matrix."""
    rate = _EIGEN * math.sqrt(max(1.0, length / _CACHED_LENGTH))
    return 1e-4 + rate * length**3 + _EIGENVECTOR * length * length * k


def time_messages(rounds: float, numbers: float, sites: int, *, secure: bool) -> float:
    """Return the seconds that all parties spend on messages, masks included.

    Parameters
    ----------
    rounds : float
        Rounds of sums.
    numbers : float
        Numbers that one site sends in all.
    sites : int
    secure : bool
        Whether sums are computed by secure aggregation.
    """
    each = _NUMBER * numbers + _ROUND * rounds * (_SECURE_ROUNDS if secure else 1)
    if secure:
        each += _MASK * numbers * min(sites - 1, _MOST_NEIGHBOURS)
    return sites * each


def time_lanczos(features: float, directions: float, width: float) -> float:
    """Return the seconds of orthogonalising that many directions, `width` at a time."""
    rounds = math.ceil(directions / width)
    orthogonalising = features * directions * (0.28e-9 * directions + 0.33e-9 * width)
    return orthogonalising + rounds * (1e-3 + 0.015e-9 * directions**3)
