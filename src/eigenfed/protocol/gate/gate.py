"""The gate of a site: every request enters and every reply leaves through it.

===========  ==================================================================================
site sees    the study that opens a run; then the requests of that study's script
leaves site  a reply as its operation declares it, or a refusal code with the round
stays        rows, everything computed from them, state, error texts, the log
===========  ==================================================================================

A site answers a study, not a coordinator. A run is opened with a study that the site has approved,
signed by the coordinator whose key it has pinned. After that, the script of the study's method
decides which requests are admitted. A request carries only what the site cannot derive from the
study, from earlier rounds of the run, or from its own rows.

Everything that can be decided without the rows is decided before a row is read, so that no refusal
depends on their content. Whatever fails later aborts the run: durably, counted, and with one code
for all causes, so that failures reveal nothing either. `Site._answer_about_rows` lists the steps.
"""

import logging
import threading
from typing import Any

import numpy as np

from eigenfed.arrays import Arrays, checksum, seal
from eigenfed.data.source import Source
from eigenfed.errors import DataError, EigenfedError, InputError, Refusal
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.ledger.ledger import ReplyKey
from eigenfed.privacy.ledger.ledger_interface import SiteLedger
from eigenfed.privacy.ledger.storage import Broken
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.privacy.release import Leaves, Release
from eigenfed.privacy.secagg.identity import Identity, Roster
from eigenfed.protocol.gate.leakage_limits import check_leakage, count_leakage
from eigenfed.protocol.gate.open_runs import OpenRuns
from eigenfed.protocol.gate.records import Egress, Records
from eigenfed.protocol.gate.run_state import (
    Admitted,
    Charge,
    OpenRun,
    check_overflow,
)
from eigenfed.protocol.messages import Message, check_wire, pack, refusal, unpack
from eigenfed.protocol.operations import Request, State
from eigenfed.protocol.secure.participant import RELEASES, Place
from eigenfed.protocol.secure.sum_format import split_message
from eigenfed.protocol.secure.sum_keys import DrawKey, fresh_key

_log = logging.getLogger(__name__)

_MOST_REFUSALS, _MOST_KEY_MESSAGES = 20, 4096
"""Refusals after which a run is closed, and messages of secure aggregation that one may have."""
_SUMMED = (Leaves.SUM_ONLY, Leaves.NOISED)


class Site:
    """A site of a federated run: rows, a policy and a leakage meter, reached only by `answer`.

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
        The leakage meter after earlier runs on the same data set.
    ledger : SiteLedger, optional
        Where replies are recorded and paid for. Without one, no noised reply leaves.
    dataset : str, default="data"
        The ledger's name for the rows.
    features : str, default=""
        Digest of the names of the features, by which the ledger's meter tells them from others of
        the same rows; empty if all studies have the same.
    identity : Identity, optional
        The site's signing key, for secure aggregation.
    roster : Roster, optional
        The sites of secure aggregation and their keys, pinned here; requires `identity`.
    filtered : bool, default=False
        Whether the rows were selected by their content, so that even their number is private.
    wire : {"float64", "float32"}, default="float64"
        Precision of the floats that leave.
    draw_key : callable, optional
        Source of keys for secure aggregation: the operating system's randomness, except in audits
        and tests, where copies of a site must make the same keys.
    resumable : bool, default=False
        Whether runs go on after a restart of the site: the ledger then remembers their requests
        and a secret until `close_run`. Runs of published mechanisms do not.

    Attributes
    ----------
    meter : Meter
        Has to be stored between runs, unless the ledger does so.
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
        features: str = "",
        identity: Identity | None = None,
        roster: Roster | None = None,
        filtered: bool = False,
        wire: str = "float64",
        draw_key: DrawKey = fresh_key,
        resumable: bool = False,
    ) -> None:
        check_wire(wire)
        self.name = name
        self._source = source
        self._policy = policy or Policy()
        self._records = Records(ledger, dataset, self._policy)
        self._features, self._d = features, source.d
        self.meter = meter or self._load_meter(Meter.empty(source.d))
        self._runs = OpenRuns(
            name,
            source,
            self._records,
            self._policy,
            coordinator=coordinator,
            approved=approved,
            identity=identity,
            roster=roster,
            filtered=filtered,
            wire=wire,
            draw_key=draw_key,
            resumable=resumable,
        )
        self._participant = self._runs.participant
        self._wire = wire
        self._stopped = False
        self._lock = threading.Lock()
        if self.meter.d not in (source.d, source.n):
            raise InputError(
                f"The leakage meter of {dataset!r} has {self.meter.d} features and the rows have "
                f"{source.d}. Pass the meter of these rows, or give them another dataset name."
            )

    @property
    def egress(self) -> list[Egress]:
        """The replies that left, in order."""
        return self._records.egress

    @property
    def has_ledger(self) -> bool:
        """Whether a ledger records messages by their checksums."""
        return self._records.has_ledger

    @property
    def spent(self) -> int:
        """Number of replies paid for."""
        return self._records.spent

    def answer(self, data: bytes, *, intact: bool = False) -> bytes:
        """Answer one message: the opening of a run, or a request of an open one.

        A site answers each round of a run once. The same request again returns the same bytes;
        another request in an answered round is refused. Any error leaves as a refusal code.

        Parameters
        ----------
        data : bytes
            A message, as `Message` writes it.
        intact : bool, default=False
            Whether it never left this process, and neither will the answer. Their checksums, which
            detect transmission errors, are then not verified at every site, and are left out of
            messages that no ledger records.

        Returns
        -------
        bytes
            A reply or a refusal.
        """
        try:
            message = Message.from_bytes(data, "request", "open", intact=intact)
        except DataError:
            return _write_refusal("", -1, "malformed")
        with self._lock:
            try:
                if self._stopped:
                    raise refusal("stopped")
                if message.kind == "open":
                    self._runs.open(message, data)
                    return Message("reply", message.run, 0, "open", {}).to_bytes()
                return self._answer(message, data)
            except Refusal as refused:
                return _write_refusal(message.run, message.round_, refused.code)
            except Broken:
                _log.exception("the ledger is not the one last written: the site stops")
                self._stopped = True
                return _write_refusal(message.run, message.round_, "stopped")
            except Exception:  # its text may hold data, so it goes to the log and not out
                _log.exception("message %s of round %d failed", message.label, message.round_)
                return _write_refusal(message.run, message.round_, "malformed")

    def take_rows(self, source: Source) -> None:
        """Answer later requests from another summary of the site's stream."""
        with self._lock:
            self._source = source
            self._runs.take_rows(source)

    def reload_meter(self) -> None:
        """Take the leakage meter from the ledger, which another gate of the site may have used."""
        with self._lock:
            self.meter = self._load_meter(self.meter)

    def _load_meter(self, otherwise: Meter) -> Meter:
        """Return the ledger's meter, or another one if it has none, for the site's features."""
        kept = self._records.meter() or otherwise
        return kept.of_features(self._features, self._d) if self._features else kept

    def close_run(self, name: str) -> None:
        """Forget a run that has ended, with its secrets; its rounds are never answered again."""
        with self._lock:
            self._runs.end(name)

    def forget_reply(self, name: str) -> None:
        """Forget the last reply of a run, which has arrived and will not be requested again."""
        with self._lock:
            self._runs.forget_reply(name)

    # Answering a request: what can be decided without the rows comes first.

    def _answer(self, message: Message, data: bytes) -> bytes:
        """Answer a request of an open run, or repeat the reply that it had before."""
        run = self._runs.find(message.run)
        if self.has_ledger:
            data = seal(data)
        # The same request gets the same bytes: the mean of many fresh replies would have no noise.
        if run is not None and run.has_answered(message.round_, data):
            return run.reply if message.intact else seal(run.reply)
        key = self._reply_key(message, checksum(data))
        stored = self._records.find_reply(key)
        if stored is not None:
            return stored
        run = self._runs.require_open(run)
        try:
            if message.round_ <= run.round_:
                raise refusal("answered")
            if message.label in RELEASES:
                reply = self._answer_about_keys(run, key, message, data)
            else:
                reply = self._answer_about_rows(run, key, message, data)
        except Refusal as refused:
            self._count_refusal(message.run, run, key, refused)
            raise
        run.round_, run.request, run.reply = message.round_, data, reply
        return reply

    def _reply_key(self, message: Message, digest: str) -> ReplyKey:
        roster = "" if self._participant is None else self._participant.roster.digest.hex()
        place = self._records.dataset, message.run, message.round_, message.label
        try:
            return ReplyKey(*place, digest, roster)
        except InputError:
            raise refusal("malformed") from None

    def _count_refusal(self, name: str, run: OpenRun, key: ReplyKey, refused: Refusal) -> None:
        """Record a refusal, and close a run that had too many: its coordinator is probing."""
        run.refused += 1
        if not refused.recorded and not run.is_aborted:
            self._records.refuse(key, refused.code)
        if run.refused >= _MOST_REFUSALS:
            self._runs.end(name)

    def _answer_about_keys(
        self, run: OpenRun, key: ReplyKey, message: Message, data: bytes
    ) -> bytes:
        """Answer a message of secure aggregation, which is independent of the rows."""
        if self._participant is None or not run.terms.parties:
            raise refusal("script")
        run.key_messages += 1
        if run.key_messages > _MOST_KEY_MESSAGES:
            raise refusal("rounds")
        self._records.begin(key)
        reply = pack(self._participant.answer(message.label, message.run, message.arrays))
        kept = data if run.secret else None
        return self._record(key, message, RELEASES[message.label], reply, kept, masked=False)

    def _answer_about_rows(
        self, run: OpenRun, key: ReplyKey, message: Message, data: bytes
    ) -> bytes:
        """Answer a request about the rows, in nine steps; the first four may refuse."""
        # 1. Admit only what the script has next: others could reveal what the method does not.
        admitted = self._admit(run, message)
        # 2. Check what the reply would reveal. A refusal that depended on rows would reveal more.
        allowed = check_leakage(run, admitted, self.meter, self._policy, self._source)
        self.meter, request, state = allowed.meter, allowed.request, allowed.state
        # 3. Check that the reply can be masked, before there is a reply.
        place = self._take_place(key.run, admitted)
        # 4. Pay for the noise. Paid first, so that no crash leaves a reply that was not paid for.
        charge = self._charge(run, key, admitted, request)
        # From here on rows are read, and nothing is refused: whatever fails aborts the run.
        try:
            # 5. Compute. An overflow is detected in the reply.
            with np.errstate(all="ignore"):
                rows = run.rows_at(state, self._source)
                answer = admitted.op.run(rows, request, state, run.terms_at(state))
            reply = pack(answer.reply)
            check_overflow(reply)
            # 6. Count what the reply reveals, before it leaves.
            reveals = admitted.op.release.reveals
            self.meter = count_leakage(run, reveals, answer, allowed, self._policy, self._source)
            # 7. Add the site's part of the noise, unless the study trusts the coordinator with it.
            if charge is not None and charge.parties:
                reply = charge.noise.add_to(reply, charge.mu, charge.parties)
            # 8. Mask the reply: the coordinator learns the sum over sites and no single reply.
            if place is not None:
                reply = self._mask(run, admitted, place, state, reply, charge)
            # 9. Record reply and meter durably; only what is recorded may leave.
            kept = self._encode_kept(run, message, data, admitted, request)
            sent = self._record(key, message, admitted.op.release, reply, kept, masked=bool(place))
        except Exception as error:
            # A full disk has nothing to do with the rows: the run goes on as after a restart.
            if run.secret and isinstance(error, Refusal) and error.code == "ledger":
                self._runs.forget(key.run)
                raise
            self._runs.abort(run, key)
            raise refusal("aborted") from None
        run.state, run.script = answer.state, admitted.following
        run.answered += 1
        return sent

    def _admit(self, run: OpenRun, message: Message) -> Admitted:
        """Admit a request that the script has next, if its type, envelope and fields are valid."""
        op, following = run.ops.get(message.label), run.script.after(message.label)
        if op is None or following is None:
            raise refusal("script")
        try:
            payload, envelope = split_message(message.arrays)
            request = unpack(op.request, payload)
        except DataError:
            raise refusal("malformed") from None
        # The study decides whether a reply is masked; the envelope in the message must agree.
        masked = bool(run.terms.parties) and op.release.leaves in _SUMMED
        if (envelope is not None) != masked:
            raise refusal("unmasked" if masked else "script")
        most = self._policy.max_rounds
        if most is not None and run.answered >= most:
            raise refusal("rounds")
        try:
            request.check(run.terms_at(run.state), run.state)
        except EigenfedError:
            _log.info("a field of %s is not valid for the run", message.label, exc_info=True)
            raise refusal("invalid") from None
        return Admitted(op, request, following, envelope)

    def _take_place(self, run: str, admitted: Admitted) -> Place | None:
        """Take a place in the secure aggregation that the reply goes into, if it does."""
        if admitted.envelope is None or self._participant is None:
            return None
        return self._participant.prepare(run, admitted.envelope)

    def _charge(
        self, run: OpenRun, key: ReplyKey, admitted: Admitted, request: Request[Any]
    ) -> Charge | None:
        """Pay for the reply as the study says; no amount is taken from the request."""
        op, privacy = admitted.op, run.terms.study.privacy
        if op.release.leaves is Leaves.PUBLISHED:
            self._records.spend_unsound(key)
            return None
        noise = request.noise(run.terms_at(run.state), run.state)
        if op.release.leaves is not Leaves.NOISED:
            return None
        if noise is None or not isinstance(privacy, Privacy):
            raise refusal("script")
        charge = run.charge_for(noise, privacy)
        self._records.spend(key, charge.mu, noise.sensitivity, privacy.relation)
        run.charged += 1
        return charge

    def _mask(
        self,
        run: OpenRun,
        admitted: Admitted,
        place: Place,
        state: State,
        reply: Arrays,
        charge: Charge | None,
    ) -> Arrays:
        """Mask the reply, within bounds that follow from what the sites agreed on in this run."""
        request, envelope = admitted.request, admitted.envelope
        if self._participant is None or envelope is None:
            raise InputError("The site takes no part in secure aggregation.")
        bounds, least = None, 0
        if charge is None:
            if state.limits is None:
                raise InputError("No limits were agreed on.")
            bounds = request.bounds(state.limits)
        elif isinstance(run.terms.study.privacy, Privacy):
            # With more dropouts than planned the noise in the sum would be too small.
            least = len(run.terms.study.sites) - run.terms.study.privacy.dropouts
        digest = envelope.digest(request.op, pack(request), bounds)
        return self._participant.mask(
            place, digest, reply, bounds, least=least, noisy=request.list_noisy(reply)
        )

    @staticmethod
    def _encode_kept(
        run: OpenRun, message: Message, data: bytes, admitted: Admitted, request: Request[Any]
    ) -> bytes | None:
        """Return what is remembered of a request: the request as it was answered, if it is."""
        if not run.secret or request is admitted.request:
            return data if run.secret else None
        arrays = {**message.arrays, **pack(request)}
        return Message("request", message.run, message.round_, message.label, arrays).to_bytes()

    def _record(
        self,
        key: ReplyKey,
        message: Message,
        release: Release,
        reply: Arrays,
        request: bytes | None,
        *,
        masked: bool,
    ) -> bytes:
        """Record the reply, with the meter after it, and return the bytes that may leave."""
        shapes = {name: array.shape for name, array in reply.items()}
        sealed = self.has_ledger or not message.intact
        answer = Message("reply", key.run, key.round_, message.label, reply)
        data = answer.to_bytes(self._wire, sealed=sealed)
        return self._records.commit(
            key, data, release, shapes, self.meter, masked=masked, request=request
        )


def _write_refusal(run: str, round_: int, code: str) -> bytes:
    return Message("refusal", run, round_, code, {}).to_bytes()
