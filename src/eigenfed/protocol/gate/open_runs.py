"""The runs that are open at a site: how they are opened, found after a restart, and ended.

A run is opened with a study that is verified, approved, checked against the policy, and recorded.
"""

import logging
from collections import OrderedDict

from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.privacy.ledger.entries import ReplyKey
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.published_claims import Published
from eigenfed.privacy.secagg.identity import Identity, Roster
from eigenfed.protocol.gate.admission import check_budget, check_study, read_opening
from eigenfed.protocol.gate.records import Records
from eigenfed.protocol.gate.restart import Replay, derive_keys
from eigenfed.protocol.gate.run_state import OpenRun
from eigenfed.protocol.messages import Message, refusal
from eigenfed.protocol.operations import State
from eigenfed.protocol.secure.participant import Participant
from eigenfed.protocol.secure.sum_keys import DrawKey, fresh_key
from eigenfed.protocol.study import Study

_log = logging.getLogger(__name__)

_MOST_OPEN_RUNS = 8
"""Number of runs whose state a site keeps; one more drops the oldest."""


class OpenRuns:
    """Open runs by name, and the site's part in their secure aggregations.

    Parameters are those of `eigenfed.protocol.gate.gate.Site`.

    Attributes
    ----------
    participant : Participant or None
    """

    def __init__(
        self,
        site: str,
        source: Source,
        records: Records,
        policy: Policy,
        *,
        coordinator: bytes,
        approved: frozenset[str] | None,
        identity: Identity | None,
        roster: Roster | None,
        filtered: bool,
        wire: str,
        draw_key: DrawKey,
        resumable: bool,
    ) -> None:
        self._site = site
        self._source = source
        self._records = records
        self._policy = policy
        self._coordinator = coordinator
        self._approved = approved
        self._filtered = filtered
        self._wire = wire
        self._draw_key = draw_key
        self._resumable = resumable
        self._runs: OrderedDict[str, OpenRun] = OrderedDict()
        self.participant = self._make_participant(identity, roster)

    def _make_participant(
        self, identity: Identity | None, roster: Roster | None
    ) -> Participant | None:
        if (identity is None) != (roster is None):
            raise InputError(
                f"Site {self._site!r} has only one of identity and roster, and secure aggregation "
                "requires both. Pass both, or neither."
            )
        if identity is None or roster is None:
            return None
        return Participant(
            self._site,
            identity,
            roster,
            least_change=self._policy.least_roster_change,
            sums=self._records,
            draw_keys=self._choose_keys,
        )

    def _choose_keys(self, name: str) -> DrawKey:
        run = self._runs.get(name)
        return derive_keys(run.secret) if run is not None and run.secret else self._draw_key

    def __len__(self) -> int:
        return len(self._runs)

    def __getitem__(self, name: str) -> OpenRun:
        return self._runs[name]

    def open(self, message: Message, data: bytes) -> None:
        """Open a run with the study of a message, whose bytes are `data`.

        Raises
        ------
        Refusal
            If the site does not take part, or the run is from before a restart.
        """
        # Opening twice changes nothing: a reset state or script would allow rounds to be repeated.
        if self.find(message.run) is not None:
            return
        study = self._check_opening(message)
        check_budget(study, self._policy, self._records)
        remember = None
        if self._resumable and not isinstance(study.privacy, Published):
            remember = data, fresh_key("run")
        # A run that the ledger knows, and that is not remembered, is from before a restart, and
        # would start its script again.
        if not self._records.open_run(message.run, study, self._coordinator, remember):
            raise refusal("restarted")
        self._keep(message.run, study, b"" if remember is None else remember[1])

    def find(self, name: str) -> OpenRun | None:
        """Return an open run, replayed from the ledger if it is from before a restart."""
        if name in self._runs or not self._resumable:
            return self._runs.get(name)
        known = self._records.recall(name)
        if known is None:
            return None
        study = self._check_opening(Message.from_bytes(known.opening, "open"))
        run = self._keep(name, study, known.secret)
        run.is_aborted = self._records.is_aborted(name)
        if run.is_aborted:
            return run
        _log.info("run %s is from before a restart: %d requests again", name, len(known.requests))
        replay = Replay(self._source, self._records, self.participant, self._wire)
        try:
            replay.replay(run, known.requests)
        except Exception:
            self.abort(
                run, ReplyKey(self._records.dataset, name, max(run.round_, 0), "restart", "-")
            )
        return run

    def require_open(self, run: OpenRun | None) -> OpenRun:
        """Return a run of which requests are answered.

        Raises
        ------
        Refusal
            If it is closed or aborted, or if too many runs were.
        """
        if run is None:
            raise refusal("closed")
        if run.is_aborted:
            raise refusal("aborted")
        # Runs that were opened before the rows were blocked could be aborted one after the other.
        if self._records.is_held:
            raise refusal("held")
        return run

    def take_rows(self, source: Source) -> None:
        """Use other rows for runs that are opened, or replayed, from now on."""
        self._source = source

    def forget_reply(self, name: str) -> None:
        """Drop the last reply of a run, which may be large."""
        run = self._runs.get(name)
        if run is not None:
            run.reply = b""

    def forget(self, name: str) -> None:
        """Drop the state and the secrets of a run from this process."""
        self._runs.pop(name, None)
        if self.participant is not None:
            self.participant.forget(name)

    def end(self, name: str) -> None:
        """Forget a run for good: no request of it is answered any more."""
        self.forget(name)
        self._records.forget_run(name)

    def abort(self, run: OpenRun, key: ReplyKey) -> None:
        """End a run at this site, durably: that something failed may depend on the rows.

        Aborts are counted in the ledger, since each may reveal one bit.
        """
        _log.exception("op %s of round %d failed; the run is aborted", key.op, key.round_)
        run.is_aborted = True
        run.state = State()
        self._records.abort(key)

    def _check_opening(self, message: Message) -> Study:
        study, method = read_opening(message, self._coordinator, self._approved)
        return check_study(
            study,
            method,
            site=self._site,
            source=self._source,
            policy=self._policy,
            roster=None if self.participant is None else self.participant.roster,
            filtered=self._filtered,
        )

    def _keep(self, name: str, study: Study, secret: bytes) -> OpenRun:
        run = OpenRun.start(study, self._source)
        run.secret = secret
        self._runs[name] = run
        while len(self._runs) > _MOST_OPEN_RUNS:
            self.forget(next(iter(self._runs)))
        return run
