"""What sites keep on the rows' side, given to them or looked at by a test."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.exact.frame import FramedRequest
from eigenfed.protocol.exact.orthonormalise import OPS, NoReply
from eigenfed.protocol.exact.site_vectors import Sided
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.gate.script import either, optional, repeat, sequence
from eigenfed.protocol.operations import Answer, State, Terms, op
from federation import Testing


@dataclass(frozen=True, kw_only=True, eq=False)
class PutRequest(FramedRequest):
    """Have a site take its rows themselves as the vectors."""

    op, reply = "put", NoReply


@op(Release("nothing", "0", Leaves.EXACT, Reveals.NOTHING))
def put(source: Source, request: PutRequest, state: State, terms: Terms) -> Answer[NoReply]:
    """Take the rows themselves as the vectors: those that the features' own directions make."""
    own = Sided.begin(np.array(source.X), np.eye(source.d))
    return Answer(NoReply(), replace(state, own=own))


class Given(Testing):
    """Vectors that are the rows themselves, to be made orthonormal."""

    name = "given"
    ops = (put, *OPS)
    asked = sequence(
        "put",
        repeat(either("sided_gram", "sided_norm", "sided_onto"), 0, 100),
        optional("sided_close"),
    )


def sides_of(sites: Mapping[str, Site], run: str) -> Array:
    """Return the vectors that the sites hold, one below the other."""
    return np.vstack([side_of(sites[name]._runs[run].state) for name in sorted(sites)])


def side_of(state: State) -> Array:
    """Return the vectors that one site holds."""
    own: Any = state.own
    assert isinstance(own, Sided)
    whole: Array = own.rows + own.level
    return whole
