"""Sums over sites, as sub-protocols: how a sum is kept private is a choice beside the algorithm."""

from dataclasses import replace
from typing import Protocol as TypingProtocol

import numpy as np

from eigenfed.arrays import Array, Arrays
from eigenfed.privacy.fixed_point import Bound
from eigenfed.protocol.core import TOTAL, Ask, Protocol


class Total(TypingProtocol):
    """A way to sum replies over sites."""

    @property
    def bounded(self) -> bool:
        """Whether asks must state how large an entry of one site can be."""

    @property
    def summed(self) -> tuple[str, ...]:
        """The sites in the last sum; empty where it is always all of them."""

    def error(self, bound: Bound) -> Array:
        """Return the most by which an entry so bounded differs from the sum of the entries."""

    def __call__(self, ask: Ask) -> Protocol[Arrays]:
        """Ask for replies and return their sum."""


class PlainSum:
    """Sums that the coordinator makes of single replies, so that it could see each one.

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

    bounded = False
    summed: tuple[str, ...] = ()

    def error(self, bound: Bound) -> Array:
        """Return 0: only rounding is lost."""
        return np.zeros(np.shape(bound))

    def __call__(self, ask: Ask) -> Protocol[Arrays]:
        """Ask for replies and return their sum."""
        replies = yield replace(ask, summed=True)
        return replies[TOTAL]


plain_sum = PlainSum()
