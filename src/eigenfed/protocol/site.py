"""The one gate that every reply passes on its way out of a site.

===========  ==================================================================================
site sees    asks: an operation's name and arrays, and which run and round they belong to
leaves site  a reply that its operation declares, or a code with the operation and the round
stays        rows, everything of the rows' side, state, texts of errors, the log
===========  ==================================================================================
"""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from eigenfed.arrays import Array, Arrays, checksum
from eigenfed.data.source import Source
from eigenfed.errors import DataError, InputError
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.release import Release, Reveals
from eigenfed.protocol.messages import Message, check_wire
from eigenfed.protocol.ops import Answer, Op
from eigenfed.protocol.registry import OPS

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Egress:
    """One line of a site's own log of what left it."""

    run: str
    round_: int
    op: str
    release: Release
    shapes: dict[str, tuple[int, ...]]
    sent_bytes: int
    digest: str


class _Refusal(Exception):
    """An ask that the gate does not let through; carries the code that leaves."""


@dataclass
class _Run:
    """What a site remembers of one run."""

    state: Arrays = field(default_factory=dict)
    round_: int = -1
    answered: int = 0
    asked: str = ""
    reply: bytes = b""
    bounds: set[str] = field(default_factory=set)


class Site:
    """Rows, a policy and a meter behind one door: `answer`.

    Parameters
    ----------
    name : str
    source : Source
    policy : Policy, optional
    meter : Meter, optional
        What earlier runs on the same data set have answered.
    ops : mapping of str to Op, optional
        The operations known; all of them by default.
    wire : {"float64", "float32"}, default="float64"
        Precision of the floats that leave.

    Attributes
    ----------
    meter : Meter
        To be stored with the site between runs.
    egress : list of Egress
        What left, in order.
    """

    def __init__(
        self,
        name: str,
        source: Source,
        *,
        policy: Policy | None = None,
        meter: Meter | None = None,
        ops: Mapping[str, Op] = OPS,
        wire: str = "float64",
    ) -> None:
        check_wire(wire)
        self.name = name
        self.meter = Meter.empty(source.d) if meter is None else meter
        self.egress: list[Egress] = []
        self._source = source
        self._policy = policy or Policy()
        self._ops = ops
        self._wire = wire
        self._runs: dict[str, _Run] = {}
        self._lock = threading.Lock()
        if self.meter.d not in (source.d, source.n):
            raise InputError(
                f"The meter is of {self.meter.d} features and the source has {source.d}. "
                "Take the meter that belongs to this data set."
            )

    def answer(self, data: bytes) -> bytes:
        """Answer one ask.

        A site answers a round of a run once. The same ask again brings the same bytes; another
        ask in an answered round is refused. Whatever goes wrong inside leaves as a code.

        Parameters
        ----------
        data : bytes
            An ask, as `Message` writes it.

        Returns
        -------
        bytes
            A reply or a refusal.
        """
        try:
            ask = Message.from_bytes(data, "ask")
        except DataError:
            return Message("refusal", "", -1, "malformed", {}).to_bytes()
        digest = checksum(data)
        with self._lock:
            run = self._runs.setdefault(ask.run, _Run())
            try:
                if ask.round_ == run.round_ and digest == run.asked:
                    return run.reply
                return self._admitted(ask, digest, run)
            except _Refusal as refusal:
                code = str(refusal)
            except Exception:  # whatever it is, its text may hold data and stays here
                _log.exception("op %s of round %d failed", ask.label, ask.round_)
                code = "failed"
        return Message("refusal", ask.run, ask.round_, code, {}).to_bytes()

    def _admitted(self, ask: Message, digest: str, run: _Run) -> bytes:
        op = self._checked_op(ask, run)
        self._check_bound(op, ask, run)
        answer = op.run(self._source, ask.arrays, run.state)
        meter = self._metered(op, answer)
        reply = Message("reply", ask.run, ask.round_, ask.label, answer.reply).to_bytes(self._wire)
        self.meter = meter
        self.egress.append(_egress(ask, op, answer, reply))
        run.state, run.reply = answer.state, reply
        run.round_, run.asked = ask.round_, digest
        run.answered += 1
        return reply

    def _checked_op(self, ask: Message, run: _Run) -> Op:
        op = self._ops.get(ask.label)
        if op is None:
            raise _Refusal("unknown_op")
        if not self._policy.allows(op.name):
            raise _Refusal("forbidden")
        if self._source.n < self._policy.min_rows:
            raise _Refusal("few_rows")
        if ask.round_ <= run.round_:
            raise _Refusal("answered")
        if self._policy.max_rounds is not None and run.answered >= self._policy.max_rounds:
            raise _Refusal("rounds")
        return op

    def _check_bound(self, op: Op, ask: Message, run: _Run) -> None:
        """Let a bound be asked once a run, and only outside directions answered already.

        The largest eigenvalue outside all directions but v is v'Mv: asked freely, bounds alone
        would give everything away past the meter.
        """
        known = ask.arrays.get("known")
        if op.release.reveals is not Reveals.BOUND or known is None:
            return
        if op.name in run.bounds:
            raise _Refusal("bound_again")
        scale = run.state.get("scale")
        if not self.meter.covers(known if scale is None else known / scale[:, None]):
            raise _Refusal("bound_beyond")
        run.bounds.add(op.name)

    def _metered(self, op: Op, answer: Answer) -> Meter:
        meter = _counted(self.meter, op.release.reveals, answer)
        policy = self._policy
        if meter is not self.meter and policy.exceeded_by(
            lambda: meter.rank_fraction, lambda: meter.variance_fraction
        ):
            raise _Refusal("leakage")
        return meter


def _counted(meter: Meter, reveals: Reveals, answer: Answer) -> Meter:
    match reveals:
        case Reveals.DIRECTIONS:
            if answer.directions is None or answer.images is None:
                raise _Refusal("undeclared")
            return _counted_directions(meter, answer.directions, answer.images, answer)
        case Reveals.SCATTER:
            return meter.all_answered()
        case Reveals.DIAGONAL:
            return meter.diagonal_answered()
        case _:
            return meter


def _counted_directions(meter: Meter, directions: Array, images: Array, answer: Answer) -> Meter:
    """Count in the units of the rows and about their own mean, whatever the asker sent as such."""
    state = answer.state
    trace = float(state["raw_trace"][0]) if "raw_trace" in state else answer.trace
    return meter.answered(
        directions, images, trace, scale=state.get("scale"), shift=state.get("shift")
    )


def _egress(ask: Message, op: Op, answer: Answer, reply: bytes) -> Egress:
    shapes = {name: array.shape for name, array in answer.reply.items()}
    return Egress(ask.run, ask.round_, op.name, op.release, shapes, len(reply), checksum(reply))
