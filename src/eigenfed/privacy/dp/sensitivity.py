"""By how much one row can change what is computed of all rows, in Euclidean norm.

Rows are clipped to norm C. ``replace_one`` turns a row into another one; ``zero_out`` leaves it out
of every sum (a row of zeros would not do: about a mean it is a row like others).
The number of rows is public in both. Derivations are in ``docs/privacy.md``; that none of these
can be exceeded is searched for numerically in ``tests/privacy/test_sensitivity.py``.

Radii that are searched for by counting rows: where to look, in what steps, in what units.
"""

import math

from eigenfed.errors import InputError

RELATIONS = ("replace_one", "zero_out")


def of_count(relation: str) -> float:
    """Of the number of rows that pass a test: one row passes it or does not.

    Examples
    --------
    >>> of_count("replace_one")
    1.0
    """
    _check(relation)
    return 1.0


def of_total(clip: float, relation: str) -> float:
    """Of the sum of rows: ``|x - y|`` is at most 2 C, and ``|x|`` at most C.

    Examples
    --------
    >>> of_total(3.0, "replace_one"), of_total(3.0, "zero_out")
    (6.0, 3.0)
    """
    return 2.0 * clip if _replaces(relation) else clip


def of_second_moment(clip: float, relation: str) -> float:
    """Of the sum of x x' in Frobenius norm.

    ``|xx' - yy'|^2 = |x|^4 + |y|^4 - 2 <x,y>^2`` is largest for orthogonal rows of norm C.

    Examples
    --------
    >>> round(of_second_moment(2.0, "replace_one"), 4), of_second_moment(2.0, "zero_out")
    (5.6569, 4.0)
    """
    return math.sqrt(2.0) * clip**2 if _replaces(relation) else clip**2


def of_sketch(clip: float, update_clip: float, relation: str) -> float:
    """Of the sum of x (Q'x)' with orthonormal Q, where ``|x| |Q'x|`` is clipped to c.

    ``<x,y> <Q'x,Q'y>`` can be negative, so that sqrt(2) c does not hold: two updates can be
    opposite, 2 c apart. As a part of xx' - yy' the change is at most sqrt(2) C^2 too.

    Examples
    --------
    >>> of_sketch(1.0, 0.5, "replace_one"), of_sketch(1.0, 0.5, "zero_out")
    (1.0, 0.5)
    """
    if _replaces(relation):
        return min(2.0 * update_clip, math.sqrt(2.0) * clip**2)
    return min(update_clip, clip**2)


def _replaces(relation: str) -> bool:
    _check(relation)
    return relation == "replace_one"


def _check(relation: str) -> None:
    if relation not in RELATIONS:
        raise InputError(
            f"relation={relation!r} must be 'replace_one' or 'zero_out'. Pass one of them."
        )


WIDEST = (-24.0, 40.0)
"""Between which powers of two a radius is looked for when nothing is known."""

WIDE_ASKS, NARROW_ASKS = 7, 4
"""How many counts a search takes in the widest range, and in four octaves."""

COUNT_UNIT = 1024
"""A count is noised in these parts, so that its noise is as good as continuous."""


def edge(i: float, low: float, high: float, asks: int) -> float:
    """Return the i-th of the radii that cut a range of powers of two into ``2**asks`` cells.

    Examples
    --------
    >>> [edge(i, 0.0, 2.0, asks=1) for i in range(3)]
    [1.0, 2.0, 4.0]
    """
    return float(2.0 ** (low + (high - low) * i / (1 << asks)))
