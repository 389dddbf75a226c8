"""The one gate that every reply passes on its way out of a site.

===========  ==================================================================================
site sees    the study that opens a run; then requests of that study's script
leaves site  a reply that its operation declares, or a code with the round
stays        rows, everything of the rows' side, state, texts of errors, the log
===========  ==================================================================================

A site answers a study, not a coordinator. A run is opened with a study that the site has approved,
signed by the coordinator whose key it has pinned; what then may be asked is the script of the
study's method. A request brings only what the site cannot derive from the study, from what the run
has agreed on, or from its own rows. Everything that can be decided without the rows is decided
before a row is touched; whatever fails afterwards aborts the run, with one code for every cause,
durably, and counts.
"""

import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eigenfed.arrays import Arrays, checksum
from eigenfed.data.source import Source
from eigenfed.errors import DataError, EigenfedError, InputError, Refusal
from eigenfed.privacy.dp.discrete_gaussian import Noise
from eigenfed.privacy.guarantee import Privacy
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.ledger.ledger import ReplyKey
from eigenfed.privacy.ledger.site_ledger import SiteLedger
from eigenfed.privacy.ledger.storage import Broken
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.privacy.secagg.identity import Identity, Roster
from eigenfed.protocol.gate.admission import check_study, read_opening
from eigenfed.protocol.gate.records import Egress, Records
from eigenfed.protocol.gate.script import Script
from eigenfed.protocol.messages import Message, check_wire, pack, refusal, unpack
from eigenfed.protocol.methods import operations_of, script_of
from eigenfed.protocol.operations import Answer, Op, Request, State, Terms
from eigenfed.protocol.private.budget_schedule import Spend, spending
from eigenfed.protocol.secure.participant import RELEASES, Participant, Place
from eigenfed.protocol.secure.sum_format import Envelope, parted
from eigenfed.protocol.secure.sum_keys import DrawKey, fresh_key
from eigenfed.protocol.study import (
    Study,
)

_log = logging.getLogger(__name__)

_MOST_OPEN_RUNS = 8
"""How many runs a site keeps open; another one closes the oldest."""
_MOST_REFUSALS = 20
"""After how many refusals a run is closed."""
_MOST_KEY_MESSAGES = 4096
"""How many messages of secure sums a site answers in one run."""
_SUMMED = (Leaves.SUM_ONLY, Leaves.NOISED)


@dataclass(eq=False, repr=False)
class _Run:
    """What a site remembers of one open run."""

    terms: Terms
    script: Script
    ops: dict[str, Op[Any, Any]]
    spends: tuple[Spend, ...] = ()
    state: State = field(default_factory=State)
    round_: int = -1
    asked: str = ""
    reply: bytes = b""
    answered: int = 0
    charged: int = 0
    refused: int = 0
    key_messages: int = 0
    is_aborted: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class _Admitted:
    """A request that has its place in the run, and what is settled about its reply."""

    op: Op[Any, Any]
    request: Request[Any]
    following: Script
    envelope: Envelope | None


@dataclass(frozen=True, eq=False, repr=False)
class _Charge:
    """Noise that was paid for."""

    noise: Noise
    mu: float
    parties: int


class Site:
    """Rows, a policy and a meter behind one door: `answer`.

    Parameters
    ----------
    name : str
    source : Source
    coordinator : bytes
        Public key of the coordinator whose studies the site answers.
    approved : frozenset of str or None
        Digests of the studies that the site has approved; None approves every study of that
        coordinator that the policy allows.
    policy : Policy, optional
    meter : Meter, optional
        What earlier runs on the same data set have answered.
    ledger : SiteLedger, optional
        Where what leaves is written down and paid for. Without one, no reply with noise leaves.
    dataset : str, default="data"
        The ledger's name for the rows.
    identity : Identity, optional
        The site's signing key, for secure aggregation.
    roster : Roster, optional
        The sites of secure aggregation, pinned here; requires `identity`.
    filtered : bool, default=False
        Whether the rows were chosen by what is in them, so that their number tells of them.
    wire : {"float64", "float32"}, default="float64"
        Precision of the floats that leave.
    draw_key : callable, optional
        Source of keys for secure aggregation: the operating system's randomness, except in audits
        and tests, where copies of a site must make the same keys again.

    Attributes
    ----------
    meter : Meter
        To be stored with the site between runs.
    """

    def __init__(
        self,
        name: str,
        source: Source,
        *,
        coordinator: bytes,
        approved: frozenset[str] | None = None,
        policy: Policy | None = None,
        meter: Meter | None = None,
        ledger: SiteLedger | None = None,
        dataset: str = "data",
        identity: Identity | None = None,
        roster: Roster | None = None,
        filtered: bool = False,
        wire: str = "float64",
        draw_key: DrawKey = fresh_key,
    ) -> None:
        check_wire(wire)
        self.name = name
        self._source = source
        self._coordinator = coordinator
        self._approved = approved
        self._policy = policy or Policy()
        self._records = Records(ledger, dataset, self._policy)
        self.meter = meter or self._records.meter() or Meter.empty(source.d)
        self._filtered = filtered
        self._participant = self._made_participant(identity, roster, draw_key)
        self._wire = wire
        self._runs: OrderedDict[str, _Run] = OrderedDict()
        self._stopped = False
        self._lock = threading.Lock()
        if self.meter.d not in (source.d, source.n):
            raise InputError(
                f"The meter of {dataset!r} is of {self.meter.d} features and the rows have "
                f"{source.d}. Take the meter that belongs to them, or name them as another dataset."
            )

    @property
    def egress(self) -> list[Egress]:
        """What left, in order."""
        return self._records.egress

    @property
    def spent(self) -> int:
        """How many replies were paid for."""
        return self._records.spent

    def _made_participant(
        self, identity: Identity | None, roster: Roster | None, draw_key: DrawKey
    ) -> Participant | None:
        if (identity is None) != (roster is None):
            raise InputError(
                f"Site {self.name!r} has an identity or a roster, and secure aggregation needs "
                "both. Pass both, or none of them."
            )
        if identity is None or roster is None:
            return None
        return Participant(
            self.name,
            identity,
            roster,
            least_change=self._policy.least_roster_change,
            sums=self._records,
            draw_key=draw_key,
        )

    def answer(self, data: bytes, *, intact: bool = False) -> bytes:
        """Answer one message: the opening of a run, or a request of an open one.

        A site answers a round of a run once. The same request again brings the same bytes; another
        one in an answered round is refused. Whatever goes wrong inside leaves as a code.

        Parameters
        ----------
        data : bytes
            A message, as `Message` writes it.
        intact : bool, default=False
            Whether it was written in this process and never left it, so that its checksum, which
            finds accidents on the way, need not be made again at every site.

        Returns
        -------
        bytes
            A reply or a refusal.
        """
        try:
            message = Message.from_bytes(data, "request", "open", intact=intact)
        except DataError:
            return _refused("", -1, "malformed")
        with self._lock:
            try:
                if self._stopped:
                    raise refusal("stopped")
                if message.kind == "open":
                    return self._open(message)
                return self._answer(message, checksum(data))
            except Refusal as refused:
                return _refused(message.run, message.round_, refused.code)
            except Broken:
                _log.exception("the ledger is not the one that was known: the site stops")
                self._stopped = True
                return _refused(message.run, message.round_, "stopped")
            except Exception:  # whatever it is, its text may hold data and stays here
                _log.exception("message %s of round %d failed", message.label, message.round_)
                return _refused(message.run, message.round_, "malformed")

    # Opening a run: the study is verified, approved, held against the policy, and recorded.

    def _open(self, message: Message) -> bytes:
        opened = Message("reply", message.run, 0, "open", {}).to_bytes()
        if message.run in self._runs:
            return opened
        study, method = read_opening(message, self._coordinator, self._approved)
        chosen = check_study(
            study,
            method,
            site=self.name,
            source=self._source,
            policy=self._policy,
            roster=None if self._participant is None else self._participant.roster,
            filtered=self._filtered,
        )
        self._check_budget(study)
        if not self._records.open_run(message.run, study, self._coordinator):
            raise refusal("restarted")
        self._runs[message.run] = self._begun(chosen)
        while len(self._runs) > _MOST_OPEN_RUNS:
            self._forget(next(iter(self._runs)))
        return opened

    def _check_budget(self, study: Study) -> None:
        """Refuse a study that the budget cannot carry to its end, before anything is spent."""
        if not isinstance(study.privacy, Privacy):
            return
        if self._policy.budget is None:
            raise refusal("no_budget")
        if not self._records.affords(study.privacy):
            raise refusal("budget")

    def _begun(self, study: Study) -> _Run:
        parties, narrow = len(study.sites) if study.masked else 0, study.wire == "float32"
        terms = Terms(study, self._source.n, self._source.d, parties, narrow)
        spends = spending(study) if isinstance(study.privacy, Privacy) else ()
        return _Run(terms, script_of(study, self._source.d), operations_of(study), spends)

    def _forget(self, run: str) -> None:
        self._runs.pop(run, None)
        if self._participant is not None:
            self._participant.forget(run)

    # Answering a request: what can be decided without the rows comes first.

    def _answer(self, message: Message, asked: str) -> bytes:
        run = self._runs.get(message.run)
        if run is not None and message.round_ == run.round_ and asked == run.asked:
            return run.reply
        key = self._key(message, asked)
        kept = self._records.kept(key)
        if kept is not None:
            return kept
        if run is None:
            raise refusal("closed")
        if run.is_aborted:
            raise refusal("aborted")
        try:
            if message.round_ <= run.round_:
                raise refusal("answered")
            if message.label in RELEASES:
                reply = self._answer_about_keys(run, key, message)
            else:
                reply = self._answer_about_rows(run, key, message)
        except Refusal as refused:
            self._count_refusal(message.run, run, key, refused)
            raise
        run.round_, run.asked, run.reply = message.round_, asked, reply
        return reply

    def _key(self, message: Message, asked: str) -> ReplyKey:
        roster = "" if self._participant is None else self._participant.roster.digest.hex()
        place = self._records.dataset, message.run, message.round_, message.label
        try:
            return ReplyKey(*place, asked, roster)
        except InputError:
            raise refusal("malformed") from None

    def _count_refusal(self, name: str, run: _Run, key: ReplyKey, refused: Refusal) -> None:
        """Write a refusal down, and close a run that had too many."""
        run.refused += 1
        if not refused.recorded and not run.is_aborted:
            self._records.refuse(key, refused.code)
        if run.refused >= _MOST_REFUSALS:
            self._forget(name)

    def _answer_about_keys(self, run: _Run, key: ReplyKey, message: Message) -> bytes:
        """Answer a message of a secure sum, which has nothing to do with the rows."""
        if self._participant is None or not run.terms.parties:
            raise refusal("script")
        run.key_messages += 1
        if run.key_messages > _MOST_KEY_MESSAGES:
            raise refusal("rounds")
        self._records.begin(key)
        reply = pack(self._participant.answer(message.label, message.run, message.arrays))
        return self._sent(key, message.label, RELEASES[message.label], reply, masked=False)

    def _answer_about_rows(self, run: _Run, key: ReplyKey, message: Message) -> bytes:
        admitted = self._admit(run, message)
        request, state, own = self._settle(run, admitted)
        place = self._take_place(key.run, admitted)
        charge = self._charge(run, key, admitted, request)
        # From here on rows are touched, and nothing is refused any more.
        try:
            # What overflows is found in the reply, not in a warning that might be anywhere.
            with np.errstate(all="ignore"):
                answer = admitted.op.run(self._source, request, state, run.terms)
            reply = pack(answer.reply)
            _check_finite(reply)
            self._count_in_meter(admitted.op, answer, own)
            if charge is not None and charge.parties:
                reply = charge.noise.added(reply, charge.mu, charge.parties)
            if place is not None:
                reply = self._mask(run, admitted, place, state, reply, charge)
            sent = self._sent(key, admitted.op.name, admitted.op.release, reply, masked=bool(place))
        except Exception:
            self._abort(run, key)
            raise refusal("aborted") from None
        run.state, run.script = answer.state, admitted.following
        run.answered += 1
        return sent

    def _admit(self, run: _Run, message: Message) -> _Admitted:
        """Admit what the script has next, of its type, with fields that fit the run."""
        op, following = run.ops.get(message.label), run.script.after(message.label)
        if op is None or following is None:
            raise refusal("script")
        try:
            payload, envelope = parted(message.arrays)
            request = unpack(op.request, payload)
        except DataError:
            raise refusal("malformed") from None
        masked = bool(run.terms.parties) and op.release.leaves in _SUMMED
        if (envelope is not None) != masked:
            raise refusal("unmasked" if masked else "script")
        most = self._policy.max_rounds
        if most is not None and run.answered >= most:
            raise refusal("rounds")
        try:
            request.check(run.terms, run.state)
        except EigenfedError:
            _log.info("a field of %s does not fit", message.label, exc_info=True)
            raise refusal("invalid") from None
        return _Admitted(op, request, following, envelope)

    def _settle(self, run: _Run, admitted: _Admitted) -> tuple[Request[Any], State, int]:
        """Return the request without what would pass uncounted, the state, and what rows decide.

        The last is how many directions are asked about that follow from the rows. Refuses
        directions beyond what the policy lets be told.
        """
        request = admitted.request
        state, directions = request.agreed(run.terms, run.state), request.directions()
        if directions is not None and len(directions) != self.meter.d:
            raise refusal("invalid")
        if not self._policy.limits_leakage:
            return request, state, 0
        self.meter = self.meter.settled()
        scale, own = None if state.sent is None else state.sent[1], 0
        if directions is not None:
            # Directions that differ from known ones by next to nothing would not be counted.
            counted = self.meter.counted(directions, scale)
            request = request if counted is directions else request.about(counted)
            rank = self.meter.rank_with(counted, scale)
        elif admitted.op.release.reveals is Reveals.SCATTER:
            rank = 1.0
        else:
            own = request.own_directions(run.terms, state)
            rank = min(self.meter.rank_fraction + own / self.meter.d, 1.0) if own else 0.0
        if rank > self._policy.max_rank_fraction:
            raise refusal("leakage")
        return request, state, own

    def _take_place(self, run: str, admitted: _Admitted) -> Place | None:
        """Take a place in a secure sum, where the reply goes into one."""
        if admitted.envelope is None or self._participant is None:
            return None
        return self._participant.prepare(run, admitted.envelope)

    def _charge(
        self, run: _Run, key: ReplyKey, admitted: _Admitted, request: Request[Any]
    ) -> _Charge | None:
        """Pay for the reply, by the study's own terms, before it is computed."""
        op, privacy = admitted.op, run.terms.study.privacy
        if op.release.leaves is Leaves.PUBLISHED:
            self._records.spend_unsound(key)
            return None
        noise = request.noise(run.terms, run.state)
        if op.release.leaves is not Leaves.NOISED:
            return None
        if noise is None or not isinstance(privacy, Privacy):
            raise refusal("script")
        mu = privacy.mu * run.spends[run.charged].fraction ** 0.5
        self._records.spend(key, mu, noise.sensitivity, privacy.relation)
        run.charged += 1
        return _Charge(noise, mu, privacy.parties(len(run.terms.study.sites)))

    def _count_in_meter(self, op: Op[Any, Any], answer: Answer[Any], own: int) -> None:
        """Count what the reply reveals; beyond the policy's limit the run ends."""
        meter, policy = self.meter.counting(op.release.reveals, answer.revealed), self._policy
        if own:
            # As many as were asked about, whatever the rows' rank is: later refusals hang on it.
            meter = meter.filled(self.meter.rank + own)
        if meter is not self.meter and policy.max_variance_fraction < 1.0:
            meter = meter.settled()
            if meter.variance_fraction > policy.max_variance_fraction:
                raise InputError("The answers would tell more than the policy allows.")
        self.meter = meter

    def _mask(
        self,
        run: _Run,
        admitted: _Admitted,
        place: Place,
        state: State,
        reply: Arrays,
        charge: _Charge | None,
    ) -> Arrays:
        """Hide the reply in the sum, within bounds that follow from what the run has agreed on."""
        request, envelope = admitted.request, admitted.envelope
        if self._participant is None or envelope is None:
            raise InputError("There is nobody to mask with.")
        bounds, least = None, 0
        if charge is None:
            if state.limits is None:
                raise InputError("No limits were agreed on.")
            bounds = request.bounds(state.limits)
        elif isinstance(run.terms.study.privacy, Privacy):
            least = len(run.terms.study.sites) - run.terms.study.privacy.dropouts
        asked = envelope.digest(request.op, pack(request), bounds)
        return self._participant.mask(place, asked, reply, bounds, least=least)

    def _sent(
        self, key: ReplyKey, op: str, release: Release, reply: Arrays, *, masked: bool
    ) -> bytes:
        """Write the reply down, with the meter after it, and return what may leave."""
        shapes = {name: array.shape for name, array in reply.items()}
        data = Message("reply", key.run, key.round_, op, reply).to_bytes(self._wire)
        return self._records.commit(key, data, release, shapes, self.meter, masked=masked)

    def _abort(self, run: _Run, key: ReplyKey) -> None:
        """End the run at this site, durably: what failed may tell of the rows."""
        _log.exception("op %s of round %d failed; the run ends here", key.op, key.round_)
        run.is_aborted = True
        run.state = State()
        self._records.abort(key)


def _check_finite(reply: Arrays) -> None:
    """Refuse to let out what overflowed."""
    for array in reply.values():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise InputError("A number of the reply is not finite.")


def _refused(run: str, round_: int, code: str) -> bytes:
    return Message("refusal", run, round_, code, {}).to_bytes()
