"""A method whose one operation counts what it is asked, and fails where it is told to."""

from dataclasses import dataclass, replace

import numpy as np

from eigenfed.data.source import Source
from eigenfed.errors import DataError
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.gate.script import repeat
from eigenfed.protocol.operations import Answer, Request, State, Terms, op
from federation import Testing

SECRET = "patient 4711 has 12345.678901"
ERRORS: tuple[type[Exception], ...] = (
    ValueError,
    KeyError,
    ZeroDivisionError,
    MemoryError,
    np.linalg.LinAlgError,
    DataError,
)


@dataclass(frozen=True, kw_only=True)
class CountReply:
    """How often a site was asked in this run, and how many rows it has."""

    count: int
    rows: int


@dataclass(frozen=True, kw_only=True)
class CountRequest(Request[CountReply]):
    """Ask for the count; `fails` says with which error it fails instead."""

    fails: int | None = None

    op, reply = "counting", CountReply


@op(Release("a count of asks", "2", Leaves.EXACT, Reveals.COUNTS))
def counting(
    source: Source, request: CountRequest, state: State, terms: Terms
) -> Answer[CountReply]:
    """Count the answers in this run; fail with an error that holds a secret where told to."""
    if request.fails is not None:
        raise ERRORS[request.fails](SECRET)
    before = state.own if isinstance(state.own, int) else 0
    reply = CountReply(count=before + 1, rows=source.n)
    return Answer(reply, replace(state, own=reply.count))


class Counting(Testing):
    """Counts as often as it is asked."""

    name = "counting"
    ops = (counting,)
    asked = repeat("counting", 0, 100)
