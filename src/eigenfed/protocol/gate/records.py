"""A site's records: what it pays before noise is drawn, and writes down before anything leaves."""

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from eigenfed.arrays import checksum
from eigenfed.errors import InputError, Refusal
from eigenfed.privacy.guarantee import Privacy
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.ledger.entries import ReplyKey
from eigenfed.privacy.ledger.site_ledger import NullLedger, SiteLedger
from eigenfed.privacy.ledger.storage import digest
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.study import Study

_log = logging.getLogger(__name__)

_PAID = (Leaves.NOISED, Leaves.PUBLISHED)
_UNMETERED = (Reveals.NOTHING, Reveals.NOISE, Reveals.SIZE)


@dataclass(frozen=True)
class Egress:
    """One line of a site's own log of what left it."""

    run: str
    round_: int
    op: str
    release: Release
    shapes: Mapping[str, tuple[int, ...]]
    sent_bytes: int
    digest: str
    masked: bool = False


class Records:
    """What a site keeps of one data set: its ledger, and what left since it was started.

    Parameters
    ----------
    ledger : SiteLedger or None
        One for each site: two sites must not share one under the same name of a data set. Without
        one, nothing with noise leaves.
    dataset : str
        The ledger's name for the rows.
    policy : Policy

    Attributes
    ----------
    dataset : str
    egress : list of Egress
        What left, in order.
    spent : int
        How many replies were paid for.
    """

    def __init__(self, ledger: SiteLedger | None, dataset: str, policy: Policy) -> None:
        self._ledger = ledger or NullLedger()
        self._keeps_digests = ledger is not None
        self._policy = policy
        self._key: ReplyKey | None = None
        self.dataset = dataset
        self.egress: list[Egress] = []
        self.spent = 0
        if policy.budget is not None:
            self._ledger.set_budget(dataset, policy.budget)

    def meter(self) -> Meter | None:
        """Return the meter of the data set as earlier runs have left it."""
        kept = self._ledger.meter(self.dataset)
        return None if kept is None else Meter.from_bytes(kept)

    def affords(self, privacy: Privacy) -> bool:
        """Tell whether the budget carries a study to its end."""
        return self._ledger.affords(self.dataset, privacy.mu, privacy.relation)

    def open_run(self, run: str, study: Study, coordinator: bytes) -> bool:
        """Write down that a run begins; False if it began before the site was last started."""
        return self._ledger.open_run(
            self.dataset,
            run,
            study=study.digest,
            coordinator=coordinator.hex(),
            most=self._policy.max_runs,
        )

    def kept(self, key: ReplyKey) -> bytes | None:
        """Return the reply that was made for a request before, if it is kept."""
        return self._ledger.reply(key)

    def refuse(self, key: ReplyKey, code: str) -> None:
        """Write down that a request was refused, where that can be written."""
        _log.info("run %r round %d: %r refused with the code %s", key.run, key.round_, key.op, code)
        with suppress(Refusal):
            self._ledger.refuse(key, code)

    def spend(self, key: ReplyKey, mu: float, sensitivity: float, relation: str) -> None:
        """Pay for a reply with noise, before it is computed.

        Raises
        ------
        Refusal
            If the budget does not allow it.
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
        """Write down that a reply leaves for which nothing holds, if the policy lets it."""
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
    ) -> bytes:
        """Write a reply down, with the meter after it where it moved; return what may leave."""
        moved = release.reveals not in _UNMETERED
        sent = self._ledger.commit(
            key,
            reply,
            release,
            shapes,
            paid=release.leaves in _PAID,
            meter=(lambda _: meter.to_bytes()) if moved else None,
        )
        self._ledger.forget_replies(key.run, before=key.round_)
        mark = digest(sent) if self._keeps_digests else checksum(sent)
        left = Egress(key.run, key.round_, key.op, release, shapes, len(sent), mark, masked)
        self.egress.append(left)
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
        """Write down that a run has ended because something failed that depends on the rows."""
        self._ledger.abort(self.dataset, key.run, key.round_, key.op)

    def begin(self, key: ReplyKey) -> None:
        """Take the request under which a set of sites may be written down next."""
        self._key = key

    def seen(self) -> set[frozenset[str]]:
        """Return the sets of sites over which the rows were summed without noise."""
        return {past.sites for past in self._ledger.sums(self.dataset)}

    def add(self, sites: frozenset[str]) -> None:
        """Write down that a sum over these sites is about to be opened."""
        if self._key is None:
            raise InputError("No request is at hand under which to write down a sum.")
        fewest = self._policy.least_roster_change
        self._ledger.summed(self._key, sites, fewest=fewest)
