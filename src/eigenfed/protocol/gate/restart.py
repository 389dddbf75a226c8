"""A run that goes on after its site was restarted.

The state of a run is not stored: it follows from the rows, from the requests that were answered and
from one secret (`eigenfed.privacy.ledger.run_memory`). A restarted site replays the requests. That
takes about as long as answering them did, works for every method, and writes nothing computed from
rows to the disk. Nothing is charged, counted or sent again, and no noise is drawn: the reply to the
last request is stored, and earlier ones are never repeated.

Exact replies come out the same to the last bit. They are compared with the digests in the ledger,
so that a run is aborted, and not continued on other rows, if the rows were changed meanwhile.
"""

from typing import Any

import numpy as np

from eigenfed.arrays import Arrays
from eigenfed.data.source import Source
from eigenfed.errors import DataError, InputError
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.privacy.release import Leaves
from eigenfed.privacy.secagg.masking import context, derive_key
from eigenfed.protocol.gate.records import Records
from eigenfed.protocol.gate.run_state import OpenRun
from eigenfed.protocol.messages import Message, pack, unpack
from eigenfed.protocol.operations import Request, State
from eigenfed.protocol.secure.participant import RELEASES, Participant
from eigenfed.protocol.secure.sum_format import Envelope, split_message
from eigenfed.protocol.secure.sum_keys import DrawKey


def derive_keys(secret: bytes) -> DrawKey:
    """Return a source of keys that gives the same keys after a restart.

    Examples
    --------
    >>> derive_keys(bytes(32))("seed 0") == derive_keys(bytes(32))("seed 0")
    True
    """
    return lambda purpose: derive_key(secret, context("run key", purpose))


class Replay:
    """Rebuilds the state of open runs from the requests that a ledger remembers.

    Parameters
    ----------
    source : Source
    records : Records
    participant : Participant or None
        The site's part in secure aggregation.
    wire : str
        Precision of the floats in replies.
    """

    def __init__(
        self, source: Source, records: Records, participant: Participant | None, wire: str
    ) -> None:
        self._source = source
        self._records = records
        self._participant = participant
        self._wire = wire

    def replay(self, run: OpenRun, requests: tuple[bytes, ...]) -> None:
        """Bring a run, as it was opened, to where it was after these requests.

        Raises
        ------
        EigenfedError
            If the requests are not those that this site answered about these rows.
        """
        for data in requests:
            message = Message.from_bytes(data, "request")
            if message.label in RELEASES:
                self._repeat_about_keys(run, message)
            else:
                self._repeat_about_rows(run, message)
            # A repeated request is recognised by the ledger, which has its digest and the reply.
            run.round_ = message.round_

    def _repeat_about_keys(self, run: OpenRun, message: Message) -> None:
        if self._participant is None:
            raise InputError("The site takes no part in secure aggregation any more.")
        run.key_messages += 1
        with self._participant.replaying():
            self._participant.answer(message.label, message.run, message.arrays)

    def _repeat_about_rows(self, run: OpenRun, message: Message) -> None:
        op, following = run.ops.get(message.label), run.script.after(message.label)
        if op is None or following is None:
            raise DataError("A remembered request does not belong to the script of its run.")
        payload, envelope = split_message(message.arrays)
        request = unpack(op.request, payload)
        state = request.apply_to(run.terms_at(run.state), run.state)
        with np.errstate(all="ignore"):
            rows = run.rows_at(state, self._source)
            answer = op.run(rows, request, state, run.terms_at(state))
        is_noised = op.release.leaves is Leaves.NOISED
        reply = pack(answer.reply)
        if envelope is not None:
            reply = self._mask(run, message.run, request, state, envelope, reply, is_noised)
        if is_noised:
            run.charged += 1
        else:
            self._compare(message, reply)
        run.state, run.script = answer.state, following
        run.answered += 1

    def _mask(
        self,
        run: OpenRun,
        name: str,
        request: Request[Any],
        state: State,
        envelope: Envelope,
        reply: Arrays,
        is_noised: bool,
    ) -> Arrays:
        """Take the place in the sum again; return the masked reply, or nothing if it had noise."""
        if self._participant is None:
            raise InputError("The site takes no part in secure aggregation any more.")
        place = self._participant.prepare(name, envelope)
        bounds = None if is_noised or state.limits is None else request.bounds(state.limits)
        digest = envelope.digest(request.op, pack(request), bounds)
        if bounds is not None:
            noisy = request.list_noisy(reply)
            return self._participant.mask(place, digest, reply, bounds, least=0, noisy=noisy)
        privacy, sites = run.terms.study.privacy, len(run.terms.study.sites)
        least = sites - privacy.dropouts if isinstance(privacy, Privacy) else 0
        self._participant.enter_sum(place, digest, noised=True, least=least)
        return {}

    def _compare(self, message: Message, reply: Arrays) -> None:
        data = Message("reply", message.run, message.round_, message.label, reply)
        if not self._records.has_sent(message.run, message.round_, data.to_bytes(self._wire)):
            raise DataError("The rows are not those of before the restart. Open a new run.")
