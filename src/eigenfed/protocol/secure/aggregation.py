"""Secure aggregation: the coordinator's half.

===========  ==================================================================================
coordinator  masked words of each site, which tell nothing; their sum over the sites that were
             there; who those are
site         see `participant`
===========  ==================================================================================

Each sum takes three asks: for masked replies, for signatures of who is in the sum, and for the
shares that open it. Two more asks bring the keys for some sums ahead. The masked ask keeps the name
of the operation, so that logs and transcripts say what left.

A site that drops out after its keys were shared is left out of the sum and of all later ones, as it
has missed a step of the study's script, and its masks with others are opened. Down to the roster's
threshold any losses are survived at any stage; below it the run ends with `SiteLost` and nothing is
opened. Sites that were asked different things, or send garbage,
make a sum of random words. That is found out, except for a site that masks a false reply within its
bounds: nobody can tell that from a true one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from eigenfed.arrays import Array, Arrays
from eigenfed.errors import DataError, InputError, ProtocolError
from eigenfed.linalg.checks import check_count
from eigenfed.privacy.secagg import fixed_point
from eigenfed.privacy.secagg.fixed_point import Bound
from eigenfed.privacy.secagg.identity import SIGNATURE_BYTES, Roster
from eigenfed.privacy.secagg.masking import KeyPair, Mask, add_masks, derived
from eigenfed.privacy.secagg.shamir import SHARE_BYTES, recovered
from eigenfed.privacy.secagg.topology import Ring
from eigenfed.protocol.core import TOTAL, Call, Protocol, call_each, read_reply
from eigenfed.protocol.messages import Bytes
from eigenfed.protocol.operations import Limits, R, Request
from eigenfed.protocol.secure import sum_format as form
from eigenfed.protocol.secure.sum_format import (
    Envelope,
    KeysRequest,
    PublicKeys,
    SharesRequest,
    SurvivorsRequest,
    UnmaskRequest,
)

AHEAD = 8
"""For how many sums keys are made at a time."""


@dataclass(eq=False)
class _Keys:
    """Public keys for the sums from `first` to before `end`, and shares on their way."""

    first: int
    end: int
    public: dict[str, PublicKeys]
    shares: dict[str, Bytes] = field(default_factory=dict)
    delivered: set[str] = field(default_factory=set)

    @property
    def present(self) -> tuple[str, ...]:
        """The sites that have shared their secrets."""
        return tuple(self.shares)

    def for_holders(self) -> dict[str, Arrays]:
        """Return the sealed shares for each site that does not have them yet."""
        places = {name: i for i, name in enumerate(self.public)}
        return {
            holder: {
                form.PREFIX + "shares": np.stack(
                    [shared[places[holder]] for shared in self.shares.values()]
                )
            }
            for holder in self.present
            if holder not in self.delivered
        }


@dataclass(frozen=True, eq=False)
class _Masked:
    """A sum of masked replies."""

    number: int
    keys: _Keys
    words: Arrays
    present: tuple[str, ...]
    survivors: tuple[str, ...]


class SecureSum:
    """Sums over the sites of a roster; one object for one run.

    Parameters
    ----------
    roster : Roster
        The sites, as they have pinned it. The coordinator has no key of its own.
    run : str
        Name of the run, as the transport has it.
    ahead : int, default=8
        For how many sums keys are made at a time.

    Attributes
    ----------
    summed : tuple of str
        The sites in the last sum.
    """

    bounded = True

    def __init__(self, roster: Roster, *, run: str, ahead: int = AHEAD) -> None:
        check_count("ahead", ahead, "Make keys for one sum at a time, or for more.")
        if ahead > form.MOST_AHEAD:
            raise InputError(f"ahead={ahead} must be at most {form.MOST_AHEAD}. Lower it.")
        self.summed: tuple[str, ...] = ()
        self.limits: Limits | None = None
        self._roster = roster
        self._ring = Ring(roster)
        self._purpose = form.Purpose(run, roster)
        self._ahead = ahead
        self._keyed = 0
        self._number = 0
        self._keys: _Keys | None = None
        self._gone: set[str] = set()

    def agree(self, limits: Limits) -> None:
        """Take what the sites have agreed on, from which bounds follow."""
        self.limits = limits

    def error(self, bound: Bound) -> Array:
        """Return the most by which an entry so bounded differs from the sum of the entries."""
        return fixed_point.error(bound, len(self._roster))

    def __call__(self, call: Call[R]) -> Protocol[R]:
        """Ask for masked replies, and open their sum.

        Parameters
        ----------
        ask : Ask
            To all sites, the same for each. Its `quorum` says how many sites must be in the sum;
            None wants all of the roster.

        Raises
        ------
        InputError
            If the ask cannot be summed so.
        SiteLost
            If too few sites answer. Nothing is opened then.
        ProtocolError
            If what came back is not the sum of what sites were asked for.
        """
        bounds = self._checked(call)
        if not bounds and call.largest is None:
            replies = yield replace(call, to=self._roster.sites, summed=True)
            return read_reply(call, "", replies[TOTAL])
        needed = len(self._roster) if call.quorum is None else call.quorum
        if needed > len(self._roster) - len(self._gone):
            raise ProtocolError(
                f"{', '.join(sorted(self._gone))} missed an earlier sum of this run, and "
                f"{call.op!r} is wanted of {needed} sites. Run again, or allow for more dropouts."
            )
        keys = self._keys
        if keys is None or self._number >= keys.end or len(keys.present) < needed:
            keys = self._keys = yield from self._made(call, needed)
        masked = yield from self._masked(call, keys, needed)
        asked, signers = yield from self._signed(call, masked)
        shares = yield from self._shares(call, masked, signers)
        self._unmask(masked, asked, shares)
        self.summed = masked.survivors
        return read_reply(call, "", self._decoded(masked, call, bounds))

    def _checked(self, call: Call[Any]) -> Mapping[str, Bound]:
        if call.to is not None or call.differs:
            raise InputError(
                f"{call.op!r} is addressed to some sites, or brings one site what others do not "
                "get: a secure sum of that would tell of single sites. Ask all alike."
            )
        least, most = self._roster.threshold, len(self._roster)
        if call.quorum is not None and not least <= call.quorum <= most:
            raise InputError(
                f"quorum={call.quorum} must be from {least} to {most}: more than two thirds of the "
                "roster's sites, and no more than all. Pass None to want all."
            )
        if call.largest is not None:
            fixed_point.check_bound("largest", call.largest, most)
            return {}
        if self.limits is None:
            raise InputError(f"{call.op!r} is summed before magnitudes were agreed on. Ask first.")
        bounds = call.request.bounds(self.limits)
        for name, bound in bounds.items():
            fixed_point.check_bound(name, bound, most)
        return bounds

    def _part(
        self, call: Call[Any], request: Request[R], to: Iterable[str], quorum: int
    ) -> Protocol[dict[str, R]]:
        """Ask for something of the sum's own."""
        part = Call(request, to=tuple(to), quorum=quorum, deadline_s=call.deadline_s)
        return (yield from call_each(part))

    def _made(self, call: Call[Any], needed: int) -> Protocol[_Keys]:
        """Have keys made for some sums ahead, and shared."""
        first = self._number = self._keyed
        self._keyed += self._ahead
        wanted = KeysRequest(first=first, count=self._ahead)
        standing = [name for name in self._roster.sites if name not in self._gone]
        replies = yield from self._part(call, wanted, standing, needed)
        size = form.keys_bytes(self._ahead)
        shown = {name: _row(name, "keys", reply.keys, size) for name, reply in replies.items()}
        signatures = {
            name: _row(name, "signature", reply.signature, SIGNATURE_BYTES)
            for name, reply in replies.items()
        }
        for name, keys in shown.items():
            statement = self._purpose.keys(name, first, keys)
            if not self._roster.signed(name, statement, signatures[name]):
                raise _not_theirs(name, "keys")
        request = SharesRequest(
            present=form.written(replies, self._roster),
            keys=form.as_rows(list(shown.values())),
            signatures=form.as_rows(list(signatures.values())),
        )
        shared = yield from self._part(call, request, replies, needed)
        public = {n: PublicKeys.from_bytes(keys, self._ahead) for n, keys in shown.items()}
        shape = (len(public), form.sealed_bytes(self._ahead))
        for name, reply in shared.items():
            if reply.shares.shape != shape:
                raise _malformed(name, "shares")
        shares = {name: reply.shares for name, reply in shared.items()}
        return _Keys(first, first + self._ahead, public, shares)

    def _masked(self, call: Call[Any], keys: _Keys, needed: int) -> Protocol[_Masked]:
        number, present = self._number, keys.present
        self._number += 1
        envelope = Envelope(number=number, present=form.written(present, self._roster))
        replies = yield replace(
            call,
            envelope=envelope.to_arrays(),
            each_envelope=keys.for_holders(),
            to=present,
            summed=True,
            quorum=needed,
        )
        words = {name: np.array(array) for name, array in replies[TOTAL].items()}
        framing = {form.PLACE, form.CHECK}
        if not framing < words.keys() or any(a.dtype != np.int64 for a in words.values()):
            raise ProtocolError(
                f"The sum of {call.op!r} does not have the arrays of a masked reply, as words. "
                "Use the same release of eigenfed everywhere."
            )
        survivors = self._placed(words.pop(form.PLACE), present, needed)
        keys.delivered |= set(survivors)
        self._leave_out(set(self._roster.sites) - set(survivors), keys)
        return _Masked(number, keys, words, present, survivors)

    def _leave_out(self, lost: set[str], keys: _Keys) -> None:
        """Ask sites that were lost no more: they have missed a step of the study's script."""
        self._gone |= lost
        for name in lost & keys.shares.keys():
            del keys.shares[name]

    def _placed(self, flags: Array, present: tuple[str, ...], needed: int) -> tuple[str, ...]:
        """Read who is in a sum, of which each site has written one place."""
        try:
            survivors = form.read(flags, self._roster)
        except DataError:
            survivors = ()
        if len(survivors) < needed or not set(survivors) <= set(present):
            raise ProtocolError(
                "The sites in a sum have not each written their own place. "
                "Use the same release of eigenfed everywhere."
            )
        return survivors

    def _signed(self, call: Call[Any], masked: _Masked) -> Protocol[tuple[bytes, dict[str, bytes]]]:
        """Have the survivors sign that they are, and learn the digest of what they were asked."""
        request = SurvivorsRequest(
            number=masked.number, survivors=form.written(masked.survivors, self._roster)
        )
        least = self._roster.threshold
        replies = yield from self._part(call, request, masked.survivors, least)
        digests = {_row(name, "asked", reply.asked, 32) for name, reply in replies.items()}
        if len(digests) > 1:
            raise ProtocolError(
                f"Sites were asked different things as {call.op!r}. Send all of them the same."
            )
        asked = digests.pop()
        signatures = {
            name: _row(name, "signature", reply.signature, SIGNATURE_BYTES)
            for name, reply in replies.items()
        }
        survivors = frozenset(masked.survivors)
        statement = self._purpose.survivors(masked.number, asked, survivors)
        for name, signature in signatures.items():
            if not self._roster.signed(name, statement, signature):
                raise _not_theirs(name, "signature of the survivors")
        return asked, signatures

    def _shares(
        self, call: Call[Any], masked: _Masked, signatures: dict[str, bytes]
    ) -> Protocol[dict[str, list[bytes]]]:
        """Have shares brought by those who signed: of each site present, one from each of them."""
        request = UnmaskRequest(
            number=masked.number,
            survivors=form.written(masked.survivors, self._roster),
            signers=form.written(signatures, self._roster),
            signatures=form.as_rows(list(signatures.values())),
        )
        replies = yield from self._part(call, request, signatures, self._roster.threshold)
        owners = masked.present
        found: dict[str, list[bytes]] = {}
        for name, reply in replies.items():
            try:
                found[name] = form.rows_of(reply.shares, len(owners), SHARE_BYTES)
            except DataError:
                raise _malformed(name, "shares") from None
        return found

    def _unmask(self, masked: _Masked, asked: bytes, shares: dict[str, list[bytes]]) -> None:
        """Take the masks away, in place."""
        number, index = masked.number, masked.number - masked.keys.first
        masks = []
        for i, owner in enumerate(masked.present):
            public = masked.keys.public[owner]
            secret = self._secret(owner, {name: parts[i] for name, parts in shares.items()})
            if owner in masked.survivors:
                if form.seal_of(secret) != public.seals[index]:
                    raise _wrong_shares(owner)
                own = self._purpose.own(number, asked, owner)
                masks.append(Mask(derived(secret, own), -1))
                continue
            pair = KeyPair(secret)
            if pair.public != public.masks[index]:
                raise _wrong_shares(owner)
            for name in self._ring.of(owner):
                if name in masked.survivors:
                    agreed = pair.agreed(masked.keys.public[name].masks[index])
                    key = derived(agreed, self._purpose.pair(number, asked, owner, name))
                    # What is left of the pair is the mask that the survivor has put on.
                    masks.append(Mask(key, -form.sign(name, owner)))
        add_masks(masks, form.masked_fields(masked.words))

    def _secret(self, owner: str, shares: dict[str, bytes]) -> bytes:
        by_point = {self._roster.place(name) + 1: share for name, share in shares.items()}
        try:
            return recovered(by_point, self._roster.threshold)
        except DataError:
            raise _wrong_shares(owner) from None

    def _decoded(self, masked: _Masked, call: Call[Any], bounds: Mapping[str, Bound]) -> Arrays:
        words, parties = dict(masked.words), len(self._roster)
        check = words.pop(form.CHECK)
        limits: Mapping[str, Bound] = bounds
        if call.largest is not None:
            limits = dict.fromkeys(words, call.largest)
        try:
            if check.any() or limits.keys() != words.keys():
                raise InputError("masks are left")
            return {
                name: fixed_point.decoded(words[name], limit, parties)
                for name, limit in limits.items()
            }
        except InputError:
            raise ProtocolError(
                "A secure sum is no sum of replies within their bounds: a site sent garbage, or "
                "was asked something else than the others. Run again without it."
            ) from None


def _row(site: str, what: str, array: Bytes, size: int) -> bytes:
    """Read one row of bytes of a reply."""
    if array.shape != (size,):
        raise _malformed(site, what)
    return array.tobytes()


def _malformed(site: str, what: str) -> ProtocolError:
    return ProtocolError(
        f"The {what} of site {site!r} in a secure sum are malformed. "
        "Use the same release of eigenfed everywhere."
    )


def _not_theirs(site: str, what: str) -> ProtocolError:
    return ProtocolError(
        f"The {what} said to be of site {site!r} are not signed with its key in the roster, for "
        "this run. Use one roster everywhere, and name the run as the transport does."
    )


def _wrong_shares(owner: str) -> ProtocolError:
    return ProtocolError(
        f"The shares of the secret of site {owner!r} do not bring it back: that site or one that "
        "holds a share sent garbage. Run again without it."
    )
