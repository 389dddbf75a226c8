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
from dataclasses import dataclass, field, replace

from eigenfed.arrays import Array, Arrays, checksum
from eigenfed.data.source import Source
from eigenfed.errors import DataError, InputError
from eigenfed.privacy.identity import Identity, Roster
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.ledger import Key, Ledger, Refusal
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.books import Books
from eigenfed.protocol.codes import WHY
from eigenfed.protocol.messages import Message, check_wire
from eigenfed.protocol.ops import Answer, Op
from eigenfed.protocol.registry import OPS
from eigenfed.protocol.sealing import Sealer, Sums
from eigenfed.protocol.sum_format import parted

_log = logging.getLogger(__name__)

_FREE = (Reveals.SIZE, Reveals.RANGE, Reveals.NOTHING)
"""What leaves outside of sums even where all else must not."""


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
    masked: bool = False


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
    ledger : Ledger, optional
        Where what leaves is written down and paid for. Without one, no reply with noise leaves.
    dataset : str, default="data"
        The ledger's name for the rows.
    identity : Identity, optional
        The site's signing key, for secure sums.
    roster : Roster, optional
        The sites of secure sums, pinned here; goes with `identity`.
    sums : Sums, optional
        The sets of sites that the rows were summed over before, without noise.
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
        ledger: Ledger | None = None,
        dataset: str = "data",
        identity: Identity | None = None,
        roster: Roster | None = None,
        sums: Sums | None = None,
        ops: Mapping[str, Op] = OPS,
        wire: str = "float64",
    ) -> None:
        check_wire(wire)
        self.name = name
        self.egress: list[Egress] = []
        self._source = source
        self._policy = policy or Policy()
        self._books = Books(ledger, dataset, self._policy)
        self.meter = meter or self._books.meter or Meter.empty(source.d)
        self._roster_digest = "" if roster is None else roster.digest.hex()
        self._roster_size = 0 if roster is None else len(roster)
        self._sealer = self._made_sealer(identity, roster, sums)
        self._ops = ops
        self._wire = wire
        self._runs: dict[str, _Run] = {}
        self._lock = threading.Lock()
        if self.meter.d not in (source.d, source.n):
            raise InputError(
                f"The meter of {dataset!r} is of {self.meter.d} features and the rows have "
                f"{source.d}. Take the meter that belongs to them, or name them as another dataset."
            )

    def _made_sealer(
        self, identity: Identity | None, roster: Roster | None, sums: Sums | None
    ) -> Sealer | None:
        if (identity is None) != (roster is None):
            raise InputError(
                f"Site {self.name!r} has an identity or a roster, and secure sums need both. "
                "Pass both, or none of them."
            )
        if identity is None or roster is None:
            return None
        least = self._policy.least_roster_change
        return Sealer(self.name, identity, roster, least_change=least, sums=sums or self._books)

    def answer(self, data: bytes, *, intact: bool = False) -> bytes:
        """Answer one ask.

        A site answers a round of a run once. The same ask again brings the same bytes; another
        ask in an answered round is refused. Whatever goes wrong inside leaves as a code.

        Parameters
        ----------
        data : bytes
            An ask, as `Message` writes it.
        intact : bool, default=False
            Whether it was written in this process and never left it, so that its checksum, which
            finds accidents on the way, need not be made again at every site.

        Returns
        -------
        bytes
            A reply or a refusal.
        """
        try:
            ask = Message.from_bytes(data, "ask", intact=intact)
        except DataError:
            return Message("refusal", "", -1, "malformed", {}).to_bytes()
        digest = checksum(data)
        with self._lock:
            run = self._runs.setdefault(ask.run, _Run())
            key = None
            try:
                if ask.round_ == run.round_ and digest == run.asked:
                    return run.reply
                roster = self._roster_digest if parted(ask.arrays)[1] else ""
                key = self._books.opened(ask, digest, roster)
                return self._admitted(ask, key, run)
            except Refusal as refusal:
                code, recorded = refusal.code, refusal.recorded
            except Exception:  # whatever it is, its text may hold data and stays here
                _log.exception("op %s of round %d failed", ask.label, ask.round_)
                code, recorded = "failed", False
            if key is not None and not recorded:
                self._books.refused(key, code)
        return Message("refusal", ask.run, ask.round_, code, {}).to_bytes()

    def _admitted(self, ask: Message, key: Key, run: _Run) -> bytes:
        op = self._checked_op(ask, run)
        payload, envelope = parted(ask.arrays)
        self._check_bound(op, payload, run)
        reply = self._books.kept(key)
        if reply is None:
            answer = self._answered(op, ask.run, payload, run.state)
            self._check_way(op, answer, masked=bool(envelope))
            # Counted even if the reply turns out to be beyond its bounds: a refusal says so.
            before, self.meter = self.meter, self._metered(op, answer)
            among = self._roster_size if envelope else 0
            answer = self._books.noised(key, op, payload, answer, masked_by=among)
            if envelope:
                answer = self._masked(op, ask.run, payload, envelope, answer)
            shapes = {name: array.shape for name, array in answer.reply.items()}
            reply = Message("reply", ask.run, ask.round_, ask.label, answer.reply).to_bytes(
                self._wire
            )
            moved = None if self.meter is before else self.meter
            reply = self._books.written(key, op, shapes, reply, moved)
            left = (shapes, len(reply), self._books.digest(reply), bool(envelope))
            self.egress.append(Egress(ask.run, ask.round_, op.name, op.release, *left))
            run.state = answer.state
        run.round_, run.asked, run.reply = ask.round_, key.ask_digest, reply
        run.answered += op.release.reveals is not Reveals.NOTHING
        return reply

    def _answered(self, op: Op, run: str, payload: Arrays, state: Arrays) -> Answer:
        if op.release.reveals is Reveals.NOTHING and self._sealer is not None:
            return Answer(self._sealer.answer(op.name, run, payload), state)
        return op.run(self._source, payload, state)

    def _check_way(self, op: Op, answer: Answer, *, masked: bool) -> None:
        """Let into a sum what is meant for one, and past it only what the policy lets."""
        if masked:
            if op.release.leaves not in (Leaves.SUM_ONLY, Leaves.NOISED):
                raise _refusal("not_a_sum")
        elif self._policy.secure_only and answer.reply and op.release.reveals not in _FREE:
            raise _refusal("unmasked")
        if self._policy.budget is not None and answer.reply and _is_exact(op.release):
            raise _refusal("exact")

    def _masked(
        self, op: Op, run: str, payload: Arrays, envelope: Arrays, answer: Answer
    ) -> Answer:
        if self._sealer is None:
            raise _refusal("no_identity")
        parties = 0 if answer.noise is None else int(payload["privacy.parties"][0])
        reply = self._sealer.masked(run, op.name, payload, envelope, answer.reply, parties=parties)
        return replace(answer, reply=reply)

    def _checked_op(self, ask: Message, run: _Run) -> Op:
        op = self._ops.get(ask.label)
        if op is None:
            raise _refusal("unknown_op")
        if not self._policy.allows(op.name):
            raise _refusal("forbidden")
        if self._source.n < self._policy.min_rows:
            raise _refusal("few_rows")
        if ask.round_ <= run.round_:
            raise _refusal("answered")
        most = self._policy.max_rounds
        if most is not None and run.answered >= most and op.release.reveals is not Reveals.NOTHING:
            raise _refusal("rounds")
        return op

    def _check_bound(self, op: Op, payload: Arrays, run: _Run) -> None:
        """Let a bound be asked once a run, and only outside directions answered already.

        The largest eigenvalue outside all directions but v is v'Mv: asked freely, bounds alone
        would give everything away past the meter.
        """
        known = payload.get("known")
        if op.release.reveals is not Reveals.BOUND or known is None:
            return
        if op.name in run.bounds:
            raise _refusal("bound_again")
        scale = run.state.get("scale")
        if not self.meter.covers(known if scale is None else known / scale[:, None]):
            raise _refusal("bound_beyond")
        run.bounds.add(op.name)

    def _metered(self, op: Op, answer: Answer) -> Meter:
        meter = _counted(self.meter, op.release.reveals, answer)
        policy = self._policy
        if meter is not self.meter and policy.exceeded_by(
            lambda: meter.rank_fraction, lambda: meter.variance_fraction
        ):
            raise _refusal("leakage")
        return meter


def _is_exact(release: Release) -> bool:
    """Say whether a reply tells of the rows without noise: no sum of it is private either."""
    bare = release.leaves in (Leaves.EXACT, Leaves.SUM_ONLY)
    return bare and release.reveals not in (Reveals.SIZE, Reveals.NOTHING)


def _refusal(code: str) -> Refusal:
    return Refusal(code, WHY[code])


def _counted(meter: Meter, reveals: Reveals, answer: Answer) -> Meter:
    match reveals:
        case Reveals.DIRECTIONS:
            if answer.directions is None or answer.images is None:
                raise _refusal("undeclared")
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
