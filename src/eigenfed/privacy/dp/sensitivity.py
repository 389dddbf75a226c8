"""L2 sensitivities: how much one row can change a sum over all rows, in Euclidean norm.

Rows are clipped to norm C. Under ``replace_one`` a row is replaced by another; under ``zero_out``
it is left out of every sum (which differs from a row of zeros: about a mean that is a row like any
other). The number of rows is public under both. Derivations are in ``docs/privacy.md``;
``tests/privacy/dp/test_sensitivity.py`` searches numerically for a violation of each bound.

The constants and `search_radius` below define the private search for a clipping radius, a binary
search on noisy counts of the rows within a radius.
"""

import math

from eigenfed.errors import InputError

RELATIONS = ("replace_one", "zero_out")


def count_sensitivity(relation: str) -> float:
    """Return the sensitivity of a count of rows that satisfy a condition.

    Examples
    --------
    >>> count_sensitivity("replace_one")
    1.0
    """
    _check(relation)
    return 1.0


def sum_sensitivity(clip: float, relation: str) -> float:
    """Return the sensitivity of the sum of rows: ``|x - y|`` is at most 2 C, ``|x|`` at most C.

    Examples
    --------
    >>> sum_sensitivity(3.0, "replace_one"), sum_sensitivity(3.0, "zero_out")
    (6.0, 3.0)
    """
    return 2.0 * clip if _replaces(relation) else clip


def second_moment_sensitivity(clip: float, relation: str) -> float:
    """Return the sensitivity of the sum of x x', in Frobenius norm.

    ``|xx' - yy'|^2 = |x|^4 + |y|^4 - 2 <x,y>^2`` is largest for orthogonal rows of norm C.

    Examples
    --------
    >>> round(second_moment_sensitivity(2.0, "replace_one"), 4)
    5.6569
    >>> second_moment_sensitivity(2.0, "zero_out")
    4.0
    """
    return math.sqrt(2.0) * clip**2 if _replaces(relation) else clip**2


def sketch_sensitivity(clip: float, update_clip: float, relation: str) -> float:
    """Return the sensitivity of the sum of x (Q'x)', Q orthonormal, ``|x| |Q'x|`` clipped to c.

    Under ``replace_one`` it is not sqrt(2) c: ``<x,y> <Q'x,Q'y>`` can be negative, so that two
    updates can be opposite, 2 c apart. As a part of xx' - yy', the change is also at most
    sqrt(2) C^2.

    Examples
    --------
    >>> sketch_sensitivity(1.0, 0.5, "replace_one"), sketch_sensitivity(1.0, 0.5, "zero_out")
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
"""Range of the search if nothing is known about the radius, as powers of two."""

WIDE_STEPS, NARROW_STEPS = 7, 4
"""Number of counts of a search over the widest range, and over four octaves."""

COUNT_UNIT = 1024
"""A count is multiplied by this before noise is added: with a large standard deviation, discrete
noise costs hardly more than continuous noise."""


def search_radius(i: float, low: float, high: float, counts: int) -> float:
    """Return the i-th of the radii that divide a range of powers of two into ``2**counts`` cells.

    Examples
    --------
    >>> [search_radius(i, 0.0, 2.0, counts=1) for i in range(3)]
    [1.0, 2.0, 4.0]
    """
    return float(2.0 ** (low + (high - low) * i / (1 << counts)))
