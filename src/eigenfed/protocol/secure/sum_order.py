"""Order of the messages of one run's secure aggregations: which may follow which at a site.

The table `ORDER` is the whole rule. A site makes keys for some sums, shares them, masks one reply
for each sum, signs one list of survivors and opens that list once.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from eigenfed.protocol.messages import refusal
from eigenfed.protocol.secure.sum_format import (
    KeysRequest,
    SharesRequest,
    SurvivorsRequest,
    UnmaskRequest,
)

MASK = "mask"
"""Name of the step in which a reply is masked, which is part of a request about the rows."""


class KeyProgress(Enum):
    """Progress of the keys for the next sums."""

    NONE = auto()
    MADE = auto()
    SHARED = auto()


class SumProgress(Enum):
    """Progress of the last sum."""

    NONE = auto()
    MASKED = auto()
    SIGNED = auto()
    OPEN = auto()


class OrderStep(NamedTuple):
    """For each state, the code with which a request is refused; empty where it is allowed."""

    keyed: dict[KeyProgress, str]
    summed: dict[SumProgress, str]


_ANY_SUM: dict[SumProgress, str] = dict.fromkeys(SumProgress, "")
_ANY_KEYS: dict[KeyProgress, str] = dict.fromkeys(KeyProgress, "")
ORDER = {
    KeysRequest.op: OrderStep(_ANY_KEYS, _ANY_SUM),
    SharesRequest.op: OrderStep(
        {KeyProgress.NONE: "sum", KeyProgress.MADE: "", KeyProgress.SHARED: "sum_again"}, _ANY_SUM
    ),
    MASK: OrderStep(
        {KeyProgress.NONE: "sum", KeyProgress.MADE: "sum", KeyProgress.SHARED: ""}, _ANY_SUM
    ),
    SurvivorsRequest.op: OrderStep(
        _ANY_KEYS,
        {
            SumProgress.NONE: "sum",
            SumProgress.MASKED: "",
            SumProgress.SIGNED: "",
            SumProgress.OPEN: "sum_again",
        },
    ),
    UnmaskRequest.op: OrderStep(
        _ANY_KEYS,
        {
            SumProgress.NONE: "sum",
            SumProgress.MASKED: "survivors",
            SumProgress.SIGNED: "",
            SumProgress.OPEN: "sum_again",
        },
    ),
}
"""For each request: in which states it is allowed (an empty code), and the code otherwise."""


@dataclass
class Progress:
    """How far a site is with the keys and the last sum of one run.

    Examples
    --------
    >>> Progress().check(MASK)
    Traceback (most recent call last):
    eigenfed.errors.Refusal: No keys were made and shared for this sum, ...
    """

    keyed: KeyProgress = KeyProgress.NONE
    summed: SumProgress = SumProgress.NONE

    def check(self, op: str) -> None:
        """Refuse a request that is not allowed now."""
        step = ORDER[op]
        code = step.keyed[self.keyed] or step.summed[self.summed]
        if code:
            raise refusal(code)
