"""Sums over sites, as sub-protocols: how a sum is kept private is a choice beside the algorithm."""

from dataclasses import replace
from typing import Protocol as TypingProtocol

import numpy as np

from eigenfed.arrays import Array
from eigenfed.privacy.fixed_point import Bound
from eigenfed.protocol.core import TOTAL, Ask, Protocol, read_reply
from eigenfed.protocol.ops import Limits, R


class Total(TypingProtocol):
    """A way to sum replies over sites."""

    @property
    def bounded(self) -> bool:
        """Whether sums need bounds on what one site can bring."""

    @property
    def summed(self) -> tuple[str, ...]:
        """The sites in the last sum; empty where it is always all of them."""

    @property
    def limits(self) -> Limits | None:
        """What the sites have agreed on, from which bounds follow; None where none are needed."""

    def agree(self, limits: Limits) -> None:
        """Take what the sites have agreed on."""

    def error(self, bound: Bound) -> Array:
        """Return the most by which an entry so bounded differs from the sum of the entries."""

    def __call__(self, ask: Ask[R]) -> Protocol[R]:
        """Ask for replies and return their sum."""


class PlainSum:
    """Sums that the coordinator makes of single replies, so that it could see each one.

    Examples
    --------
    >>> import numpy as np
    >>> from eigenfed.protocol.moments import SquaresRequest
    >>> asking = plain_sum(Ask(SquaresRequest(mean=np.zeros(2))))
    >>> next(asking).summed
    True
    >>> try:
    ...     asking.send({TOTAL: {"squares": np.array([3.0, 4.0])}})
    ... except StopIteration as end:
    ...     print(end.value.squares)
    [3. 4.]
    """

    bounded = False
    limits: Limits | None = None
    summed: tuple[str, ...] = ()

    def agree(self, limits: Limits) -> None:
        """Take limits, of which plain sums need none."""

    def error(self, bound: Bound) -> Array:
        """Return 0: only rounding is lost."""
        return np.zeros(np.shape(bound))

    def __call__(self, ask: Ask[R]) -> Protocol[R]:
        """Ask for replies and return their sum."""
        replies = yield replace(ask, summed=True)
        return read_reply(ask, "", replies[TOTAL])


plain_sum = PlainSum()
