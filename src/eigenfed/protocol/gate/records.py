"""Records of a site: the ledger that it pays from and writes to, and the log of what left.

Budget is spent before noise is drawn, and a reply is recorded before it leaves. A crash at any
point can therefore waste budget, but never release a reply that was not paid for or not recorded.
"""

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from eigenfed.arrays import checksum, is_sealed
from eigenfed.errors import InputError, Refusal
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.ledger.entries import ReplyKey
from eigenfed.privacy.ledger.ledger_interface import NullLedger, SiteLedger
from eigenfed.privacy.ledger.run_memory import RememberedRun
from eigenfed.privacy.ledger.storage import digest
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.study import Study

_log = logging.getLogger(__name__)

_PAID = (Leaves.NOISED, Leaves.PUBLISHED)
_UNMETERED = (Reveals.NOTHING, Reveals.NOISE, Reveals.SIZE)


@dataclass(frozen=True)
class Egress:
    """One entry of a site's own log of replies that left it.

    The digest is the ledger's, or the checksum of the reply at a site without a ledger; empty if
    the reply stayed within the process, where it has no checksum.
    """

    run: str
    round_: int
    op: str
    release: Release
    shapes: Mapping[str, tuple[int, ...]]
    sent_bytes: int
    digest: str
    masked: bool = False


class Records:
    """Ledger of one data set, and the replies that left since the site was started.

    Parameters
    ----------
    ledger : SiteLedger or None
        Two sites must not share one under the same data set name. Without one, no noised reply
        leaves.
    dataset : str
        The ledger's name for the rows.
    policy : Policy

    Attributes
    ----------
    dataset : str
    egress : list of Egress
        The replies that left, in order.
    spent : int
        Number of replies paid for.
    has_ledger : bool
        Whether there is a ledger, which records messages by their digests.
    """

    def __init__(self, ledger: SiteLedger | None, dataset: str, policy: Policy) -> None:
        self._ledger = ledger or NullLedger()
        self.has_ledger = ledger is not None
        self._policy = policy
        self._key: ReplyKey | None = None
        self.dataset = dataset
        self.egress: list[Egress] = []
        self.spent = 0
        if policy.budget is not None:
            self._ledger.set_budget(dataset, policy.budget)

    def meter(self) -> Meter | None:
        """Return the data set's leakage meter as stored by earlier runs; None if there is none."""
        kept = self._ledger.meter(self.dataset)
        return None if kept is None else Meter.from_bytes(kept)

    def affords(self, privacy: Privacy) -> bool:
        """Return whether the budget covers a study to its end."""
        return self._ledger.affords(self.dataset, privacy.mu, privacy.relation)

    @property
    def has_budget(self) -> bool:
        """Whether the rows have a budget, set by this policy or recorded in the ledger before."""
        return self._ledger.budget(self.dataset) is not None

    @property
    def has_exact(self) -> bool:
        """Whether exact sums of the rows have left."""
        return self._ledger.has_exact(self.dataset)

    @property
    def is_held(self) -> bool:
        """Whether so many runs were aborted that nothing is answered until a person has acted."""
        return self._ledger.held(self.dataset)

    def open_run(
        self,
        run: str,
        study: Study,
        coordinator: bytes,
        remember: tuple[bytes, bytes] | None = None,
    ) -> bool:
        """Record that a run begins; return False if it is recorded already.

        With `remember`, the opening and a secret, the ledger remembers the run until it ends.
        """
        return self._ledger.open_run(
            self.dataset,
            run,
            study=study.digest,
            coordinator=coordinator.hex(),
            most=self._policy.max_runs,
            remember=remember,
        )

    def recall(self, run: str) -> RememberedRun | None:
        """Return a run that is remembered from before a restart."""
        return self._ledger.recall(self.dataset, run)

    def forget_run(self, run: str) -> None:
        """Delete what is remembered of a run that has ended."""
        self._ledger.forget_run(self.dataset, run)

    def is_aborted(self, run: str) -> bool:
        """Return whether a run was aborted."""
        return self._ledger.is_aborted(self.dataset, run)

    def has_sent(self, run: str, round_: int, reply: bytes) -> bool:
        """Return whether this reply was recorded for a round."""
        return self._ledger.has_sent(self.dataset, run, round_, digest(reply))

    def find_reply(self, key: ReplyKey) -> bytes | None:
        """Return the stored reply to a request; None if there is none."""
        return self._ledger.reply(key)

    def refuse(self, key: ReplyKey, code: str) -> None:
        """Record that a request was refused, if the ledger can be written."""
        _log.info("run %r round %d: %r refused with the code %s", key.run, key.round_, key.op, code)
        with suppress(Refusal):
            self._ledger.refuse(key, code)

    def spend(self, key: ReplyKey, mu: float, sensitivity: float, relation: str) -> None:
        """Pay for a noised reply, before it is computed.

        Raises
        ------
        Refusal
            If the budget does not cover it.
        """
        self._ledger.spend(
            key,
            mu,
            sensitivity=sensitivity,
            sd=sensitivity / mu,
            relation=relation,
            mechanism=key.op,
        )
        self.spent += 1

    def spend_unsound(self, key: ReplyKey) -> None:
        """Record a reply without a proven guarantee, if the policy allows such replies."""
        allowed = not self._policy.sound_only and self._policy.budget is None
        self._ledger.spend_unsound(key, mechanism=key.op, allowed=allowed)
        self.spent += 1

    def commit(
        self,
        key: ReplyKey,
        reply: bytes,
        release: Release,
        shapes: Mapping[str, tuple[int, ...]],
        meter: Meter,
        *,
        masked: bool,
        request: bytes | None = None,
    ) -> bytes:
        """Record a reply, with the meter if it changed, and return the bytes that may leave.

        With `request`, the ledger remembers it until the run ends.
        """
        is_metered = release.reveals not in _UNMETERED
        sent = self._ledger.commit(
            key,
            reply,
            release,
            shapes,
            paid=release.leaves in _PAID,
            meter=(lambda _: meter.to_bytes()) if is_metered else None,
            request=request,
        )
        self._ledger.forget_replies(key.run, before=key.round_)
        unrecorded = checksum(sent) if is_sealed(sent) else ""
        mark = digest(sent) if self.has_ledger else unrecorded
        entry = Egress(key.run, key.round_, key.op, release, shapes, len(sent), mark, masked)
        self.egress.append(entry)
        _log.debug(
            "run %r round %d: %r answered with %d bytes %s",
            key.run,
            key.round_,
            key.op,
            len(sent),
            dict(shapes),
        )
        return sent

    def abort(self, key: ReplyKey) -> None:
        """Record that a run ended because something failed that depends on the rows."""
        self._ledger.abort(self.dataset, key.run, key.round_, key.op)

    def begin(self, key: ReplyKey) -> None:
        """Set the request under which the next set of sites is recorded."""
        self._key = key

    def seen(self) -> set[frozenset[str]]:
        """Return the sets of sites over which the rows were summed without noise."""
        return {past.sites for past in self._ledger.sums(self.dataset)}

    def add(self, sites: frozenset[str]) -> None:
        """Record that a sum over these sites is about to be opened."""
        if self._key is None:
            raise InputError("No request is set under which to record a sum.")
        fewest = self._policy.least_roster_change
        self._ledger.summed(self._key, sites, fewest=fewest)
