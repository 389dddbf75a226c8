"""A site's books: noise is paid for before it is drawn, and what leaves is written down first."""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from eigenfed.arrays import Arrays, checksum
from eigenfed.privacy.chain import digest
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.ledger import Key, Ledger, Refusal
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.release import Leaves
from eigenfed.privacy.sensitivity import RELATIONS
from eigenfed.protocol.codes import WHY
from eigenfed.protocol.messages import Message
from eigenfed.protocol.ops import Answer, Op

_PAID = (Leaves.NOISED, Leaves.PUBLISHED)


class Books:
    """What a site's gate asks its ledger; without one, exact replies leave all the same.

    Parameters
    ----------
    ledger : Ledger or None
        One for each site: two sites must not share one under the same name of a data set.
    dataset : str
        The ledger's name for the rows.
    policy : Policy
    """

    def __init__(self, ledger: Ledger | None, dataset: str, policy: Policy) -> None:
        self._ledger, self._dataset, self._policy = ledger, dataset, policy
        self._sets: set[frozenset[str]] = set()
        self._key = Key(dataset, "none", 0, "none", "none")
        if ledger is not None and policy.budget is not None:
            ledger.set_budget(dataset, policy.budget)

    @property
    def meter(self) -> Meter | None:
        """The meter of the data set as earlier runs have left it."""
        kept = None if self._ledger is None else self._ledger.meter(self._dataset)
        return None if kept is None else Meter.from_bytes(kept)

    def digest(self, reply: bytes) -> str:
        """Return a reply's digest, as the ledger has it where there is one."""
        return checksum(reply) if self._ledger is None else digest(reply)

    def opened(self, ask: Message, digest: str, roster: str) -> Key:
        """Begin with an ask, and return the key under which it is written down."""
        self._key = Key(self._dataset, ask.run, ask.round_, ask.label, digest, roster)
        return self._key

    def kept(self, key: Key) -> bytes | None:
        """Return the reply that was made before the site was last started, if it was."""
        return None if self._ledger is None else self._ledger.reply(key)

    def seen(self) -> set[frozenset[str]]:
        """Return the sets of sites over which the rows were summed without noise."""
        if self._ledger is None:
            return set(self._sets)
        return {past.sites for past in self._ledger.sums(self._dataset)}

    def add(self, sites: frozenset[str]) -> None:
        """Write down that a sum over these sites is about to be opened, by the ask begun last."""
        self._sets.add(sites)
        if self._ledger is not None:
            fewest = self._policy.least_roster_change
            self._ledger.summed(self._key, sites, fewest=fewest)

    def noised(
        self, key: Key, op: Op, payload: Arrays, answer: Answer, *, masked_by: int
    ) -> Answer:
        """Return the answer as it may leave: with noise that the ledger was charged for.

        Parameters
        ----------
        key : Key
            Of the ask.
        op : Op
            What it declares decides: a reply that leaves exactly, or for a sum, is returned as
            it is.
        payload : mapping of str to ndarray
            ``privacy.mu``, ``privacy.parties`` and ``privacy.relation`` of a private ask.
        answer : Answer
        masked_by : int
            How many sites the secure sum has that the reply goes into; 0 where it goes alone.

        Raises
        ------
        Refusal
            If it cannot be paid for, or if the policy forbids it.
        """
        if op.release.leaves is Leaves.PUBLISHED:
            allowed = not self._policy.sound_only and self._policy.budget is None
            self._required().spend_unsound(key, mechanism=op.name, allowed=allowed)
            return answer
        if op.release.leaves is not Leaves.NOISED:
            return answer
        if answer.noise is None:
            raise Refusal("undeclared", "The operation declares noise and says not how much.")
        mu, parties = float(payload["privacy.mu"][0]), int(payload["privacy.parties"][0])
        if not 0.0 < mu < math.inf or parties < 0:
            raise Refusal("malformed", "A private ask must say what to spend and who adds noise.")
        self._check_who_adds(parties, masked_by)
        sensitivity = answer.noise.sensitivity
        self._required().spend(
            key,
            mu,
            sensitivity=sensitivity,
            sd=sensitivity / mu,
            relation=RELATIONS[int(payload["privacy.relation"][0])],
            mechanism=op.name,
        )
        if parties == 0:
            return answer
        # From here on nothing may be refused for what the rows hold: a retry draws noise anew
        # under the same spend, so that refusals would sort draws for free.
        return replace(answer, reply=answer.noise.added(answer.reply, mu, parties))

    def written(
        self,
        key: Key,
        op: Op,
        shapes: Mapping[str, tuple[int, ...]],
        reply: bytes,
        meter: Meter | None,
    ) -> bytes:
        """Write a reply down, with the meter after it where it moved, and return what may leave."""
        if self._ledger is None:
            return reply
        sent = self._ledger.commit(
            key,
            reply,
            op.release,
            shapes,
            paid=op.release.leaves in _PAID,
            meter=None if meter is None else lambda _: meter.to_bytes(),
        )
        self._ledger.forget_replies(key.run, before=key.round_)
        return sent

    def refused(self, key: Key, code: str) -> None:
        """Write down that an ask was refused, where that can be written: nothing leaves anyway."""
        if self._ledger is not None:
            with suppress(Refusal):
                self._ledger.refuse(key, code)

    def _check_who_adds(self, parties: int, masked_by: int) -> None:
        """Refuse to leave noise to others who may not add it, or whose part would not be hidden."""
        policy = self._policy
        if parties == 0 and (masked_by or not policy.trusts_coordinator):
            raise Refusal("untrusted", WHY["untrusted"])
        if parties > 1 and not masked_by:
            raise Refusal("unmasked", "A part of the noise is enough in a secure sum only.")
        if masked_by and parties > masked_by - policy.tolerate:
            raise Refusal("collusion", WHY["collusion"])

    def _required(self) -> Ledger:
        if self._ledger is None:
            raise Refusal("ledger", "Noise is paid for in a ledger, and the site has none.")
        return self._ledger
