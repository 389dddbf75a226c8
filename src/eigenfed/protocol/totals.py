"""Sums over sites, as sub-protocols: how a sum is kept private is a choice beside the algorithm."""

from collections.abc import Callable
from dataclasses import replace

from eigenfed.arrays import Arrays
from eigenfed.protocol.core import TOTAL, Ask, Protocol

Total = Callable[[Ask], Protocol[Arrays]]


def plain_sum(ask: Ask) -> Protocol[Arrays]:
    """Ask for replies and return their sum; the coordinator could see each one.

    Examples
    --------
    >>> import numpy as np
    >>> asking = plain_sum(Ask("moments"))
    >>> next(asking).summed
    True
    >>> try:
    ...     asking.send({TOTAL: {"n": np.array([3.0])}})
    ... except StopIteration as end:
    ...     print(end.value)
    {'n': array([3.])}
    """
    replies = yield replace(ask, summed=True)
    return replies[TOTAL]
