"""Secure aggregation: the coordinator's half.

===========  ==================================================================================
coordinator  masked words of each site, which are random on their own; their sum over the sites
             that replied; which sites those are
site         see `participant`
===========  ==================================================================================

Each sum takes three rounds: masked replies, signatures of which sites are in the sum, and the
secret shares that open it. Two more rounds make the keys, for several sums at a time. `participant`
says what an attacker would gain without each round. The round of masked replies keeps the name of
the operation, so that logs and transcripts show what left.

A site that drops out after its keys were shared is left out of the sum and of all later ones, since
it missed a step of the study's script; its pairwise masks are opened. Losses are survived at any
stage as long as the threshold of the roster is met; below it the run ends with `SiteLost` and
nothing is opened. If sites receive different requests, or send garbage, the sum is random words,
which is detected. A site that masks a false reply within its bounds cannot be detected.
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
from eigenfed.privacy.secagg.masking import KeyPair, Mask, add_masks, derive_key
from eigenfed.privacy.secagg.shamir import SHARE_BYTES, recover_secret
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
"""Number of sums for which keys are made at a time."""


@dataclass(eq=False)
class _Keys:
    """Public keys for the sums `first` to ``end - 1``, and sealed shares to be delivered."""

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
        """Return the sealed shares for each site that has not received them yet."""
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
    """A sum of masked replies, not opened yet."""

    number: int
    keys: _Keys
    words: Arrays
    present: tuple[str, ...]
    survivors: tuple[str, ...]


class SecureSum:
    """Secure aggregation over the sites of a roster; one object per run.

    Parameters
    ----------
    roster : Roster
        The sites and their public keys, as the sites have pinned them.
    run : str
        Name of the run, the same as the transport's.
    ahead : int, default=8
        Number of sums for which keys are made at a time.

    Attributes
    ----------
    summed : tuple of str
        The sites in the last sum.
    """

    bounded = True

    def __init__(self, roster: Roster, *, run: str, ahead: int = AHEAD) -> None:
        check_count("ahead", ahead, "Pass 1 or more.")
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
        self._lost: set[str] = set()

    def agree(self, limits: Limits) -> None:
        """Set the limits that the sites have agreed on, from which bounds follow."""
        self.limits = limits

    def error(self, bound: Bound) -> Array:
        """Return the largest fixed-point error of a sum whose entries have this bound."""
        return fixed_point.error(bound, len(self._roster), noisy=True)

    def __call__(self, call: Call[R]) -> Protocol[R]:
        """Send a call, and return the securely aggregated sum of the replies.

        Parameters
        ----------
        call : Call
            To all sites, the same for each. Its `quorum` is the number of sites that must be in
            the sum; None means the whole roster.

        Raises
        ------
        InputError
            If the call cannot be aggregated.
        SiteLost
            If too few sites reply. Nothing is opened then.
        ProtocolError
            If the result is not the sum of replies to this request.
        """
        bounds = self._check_call(call)
        # Operations that declare no bounds have replies that leave unmasked.
        if not bounds and call.largest is None:
            replies = yield replace(call, to=self._roster.sites, summed=True)
            return read_reply(call, "", replies[TOTAL])
        needed = len(self._roster) if call.quorum is None else call.quorum
        if needed > len(self._roster) - len(self._lost):
            raise ProtocolError(
                f"{', '.join(sorted(self._lost))} missed an earlier sum of this run, and "
                f"{call.op!r} needs {needed} sites. Run again, or allow for more dropouts."
            )
        # Rounds 1 and 2, for several sums at a time: each sum has keys of its own, but making and
        # sharing them is independent of the request.
        keys = self._keys
        if keys is None or self._number >= keys.end or len(keys.present) < needed:
            keys = self._keys = yield from self._make_keys(call, needed)
        # Round 3: the replies, masked. Which sites are in the sum is known only after it.
        masked = yield from self._collect_masked(call, keys, needed)
        # Round 4: no site opens a sum before enough sites have signed the same list for the same
        # request; round 5 carries their signatures.
        digest, signatures = yield from self._collect_signatures(call, masked)
        shares = yield from self._collect_shares(call, masked, signatures)
        self._unmask(masked, digest, shares)
        self.summed = masked.survivors
        return read_reply(call, "", self._decode(masked, call, bounds))

    def _check_call(self, call: Call[Any]) -> Mapping[str, Bound]:
        """Check that a call can be aggregated; return the bounds of its reply, empty if noised."""
        if call.to is not None or call.differs:
            raise InputError(
                f"{call.op!r} goes to some sites only, or differs between sites: its sum would "
                "reveal single sites. Send all sites the same request."
            )
        least, most = self._roster.threshold, len(self._roster)
        if call.quorum is not None and not least <= call.quorum <= most:
            raise InputError(
                f"quorum={call.quorum} must be from {least} to {most}: more than two thirds of the "
                "roster's sites, and no more than all. Pass None for all."
            )
        if call.largest is not None:
            fixed_point.check_bound("largest", call.largest, most)
            return {}
        if self.limits is None:
            raise InputError(
                f"{call.op!r} is summed before limits were agreed on. Call agree first."
            )
        bounds = call.request.bounds(self.limits)
        for name, bound in bounds.items():
            fixed_point.check_bound(name, bound, most)
        return bounds

    def _send(
        self, call: Call[Any], request: Request[R], to: Iterable[str], quorum: int
    ) -> Protocol[dict[str, R]]:
        """Send a request of secure aggregation itself, and return the replies by site."""
        part = Call(request, to=tuple(to), quorum=quorum, deadline_s=call.deadline_s)
        return (yield from call_each(part))

    def _make_keys(self, call: Call[Any], needed: int) -> Protocol[_Keys]:
        """Have the sites make keys for the next sums, and seal secret shares for one another."""
        first = self._number = self._keyed
        self._keyed += self._ahead
        wanted = KeysRequest(first=first, count=self._ahead)
        remaining = [name for name in self._roster.sites if name not in self._lost]
        replies = yield from self._send(call, wanted, remaining, needed)
        size = form.keys_bytes(self._ahead)
        shown = {
            name: _read_bytes(name, "keys", reply.keys, size) for name, reply in replies.items()
        }
        signatures = {
            name: _read_bytes(name, "signature", reply.signature, SIGNATURE_BYTES)
            for name, reply in replies.items()
        }
        # The sites check these signatures too; checked here, the error names the site.
        for name, keys in shown.items():
            statement = self._purpose.keys(name, first, keys)
            if not self._roster.signed(name, statement, signatures[name]):
                raise _not_signed(name, "keys")
        request = SharesRequest(
            present=form.encode_sites(replies, self._roster),
            keys=form.stack_rows(list(shown.values())),
            signatures=form.stack_rows(list(signatures.values())),
        )
        shared = yield from self._send(call, request, replies, needed)
        public = {n: PublicKeys.from_bytes(keys, self._ahead) for n, keys in shown.items()}
        shape = (len(public), form.sealed_bytes(self._ahead))
        for name, reply in shared.items():
            if reply.shares.shape != shape:
                raise _malformed(name, "shares")
        shares = {name: reply.shares for name, reply in shared.items()}
        return _Keys(first, first + self._ahead, public, shares)

    def _collect_masked(self, call: Call[Any], keys: _Keys, needed: int) -> Protocol[_Masked]:
        """Send the call itself, and collect the sum of the masked replies."""
        number, present = self._number, keys.present
        self._number += 1
        envelope = Envelope(number=number, present=form.encode_sites(present, self._roster))
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
                f"The sum of {call.op!r} does not have the arrays of a masked reply. "
                "Use the same release of eigenfed everywhere."
            )
        survivors = self._read_survivors(words.pop(form.PLACE), present, needed)
        keys.delivered |= set(survivors)
        self._leave_out(set(self._roster.sites) - set(survivors), keys)
        return _Masked(number, keys, words, present, survivors)

    def _leave_out(self, lost: set[str], keys: _Keys) -> None:
        """Send lost sites no further calls: they missed a step of the study's script."""
        self._lost |= lost
        for name in lost & keys.shares.keys():
            del keys.shares[name]

    def _read_survivors(
        self, flags: Array, present: tuple[str, ...], needed: int
    ) -> tuple[str, ...]:
        """Return the sites in a sum: each has added 1 at its own place of the roster."""
        try:
            survivors = form.decode_sites(flags, self._roster)
        except DataError:
            survivors = ()
        if len(survivors) < needed or not set(survivors) <= set(present):
            raise ProtocolError(
                "The flags of the sites in a sum are inconsistent. "
                "Use the same release of eigenfed everywhere."
            )
        return survivors

    def _collect_signatures(
        self, call: Call[Any], masked: _Masked
    ) -> Protocol[tuple[bytes, dict[str, bytes]]]:
        """Have the survivors sign who they are; return the request's digest and the signatures."""
        request = SurvivorsRequest(
            number=masked.number, survivors=form.encode_sites(masked.survivors, self._roster)
        )
        least = self._roster.threshold
        replies = yield from self._send(call, request, masked.survivors, least)
        digests = {_read_bytes(name, "asked", reply.asked, 32) for name, reply in replies.items()}
        if len(digests) > 1:
            raise ProtocolError(
                f"Sites received different requests for {call.op!r}. Send all of them the same."
            )
        digest = digests.pop()
        signatures = {
            name: _read_bytes(name, "signature", reply.signature, SIGNATURE_BYTES)
            for name, reply in replies.items()
        }
        survivors = frozenset(masked.survivors)
        statement = self._purpose.survivors(masked.number, digest, survivors)
        for name, signature in signatures.items():
            if not self._roster.signed(name, statement, signature):
                raise _not_signed(name, "list of survivors")
        return digest, signatures

    def _collect_shares(
        self, call: Call[Any], masked: _Masked, signatures: dict[str, bytes]
    ) -> Protocol[dict[str, list[bytes]]]:
        """Collect, from each site that signed, one secret share of each site present."""
        request = UnmaskRequest(
            number=masked.number,
            survivors=form.encode_sites(masked.survivors, self._roster),
            signers=form.encode_sites(signatures, self._roster),
            signatures=form.stack_rows(list(signatures.values())),
        )
        replies = yield from self._send(call, request, signatures, self._roster.threshold)
        owners = masked.present
        found: dict[str, list[bytes]] = {}
        for name, reply in replies.items():
            try:
                found[name] = form.read_rows(reply.shares, len(owners), SHARE_BYTES)
            except DataError:
                raise _malformed(name, "shares") from None
        return found

    def _unmask(self, masked: _Masked, digest: bytes, shares: dict[str, list[bytes]]) -> None:
        """Subtract the masks, in place.

        Pairwise masks of two survivors cancel in the sum. What is left are the own mask of each
        survivor, and the pairwise masks of survivors with lost sites. A recovered secret is
        compared with the public key or digest that its owner signed, so that a wrong share is
        detected and its owner named.
        """
        number, index = masked.number, masked.number - masked.keys.first
        masks = []
        for i, owner in enumerate(masked.present):
            public = masked.keys.public[owner]
            secret = self._recover_secret(owner, {name: parts[i] for name, parts in shares.items()})
            if owner in masked.survivors:
                if form.seed_digest(secret) != public.seals[index]:
                    raise _wrong_shares(owner)
                own = self._purpose.own(number, digest, owner)
                masks.append(Mask(derive_key(secret, own), -1))
                continue
            pair = KeyPair(secret)
            if pair.public != public.masks[index]:
                raise _wrong_shares(owner)
            for name in self._ring.of(owner):
                if name in masked.survivors:
                    agreed = pair.agreed(masked.keys.public[name].masks[index])
                    key = derive_key(agreed, self._purpose.pair(number, digest, owner, name))
                    # The survivor added its half of the pair, and the lost site did not.
                    masks.append(Mask(key, -form.mask_sign(name, owner)))
        add_masks(masks, form.masked_fields(masked.words))

    def _recover_secret(self, owner: str, shares: dict[str, bytes]) -> bytes:
        by_point = {self._roster.place(name) + 1: share for name, share in shares.items()}
        try:
            return recover_secret(by_point, self._roster.threshold)
        except DataError:
            raise _wrong_shares(owner) from None

    def _decode(self, masked: _Masked, call: Call[Any], bounds: Mapping[str, Bound]) -> Arrays:
        """Return the sum as numbers, or raise ProtocolError if masks are left in it."""
        words, parties = dict(masked.words), len(self._roster)
        check = words.pop(form.CHECK)
        limits: Mapping[str, Bound] = bounds
        if call.largest is not None:
            limits = dict.fromkeys(words, call.largest)
        try:
            if check.any() or limits.keys() != words.keys():
                raise InputError("masks are left")
            return {
                name: fixed_point.decode_fixed_point(words[name], limit, parties)
                for name, limit in limits.items()
            }
        except InputError:
            raise ProtocolError(
                "The aggregated sum is not a sum of replies within their bounds: a site sent "
                "garbage, or received another request than the others. Run again without it."
            ) from None


def _read_bytes(site: str, field: str, array: Bytes, size: int) -> bytes:
    """Return an array of `size` bytes of a reply as bytes."""
    if array.shape != (size,):
        raise _malformed(site, field)
    return array.tobytes()


def _malformed(site: str, field: str) -> ProtocolError:
    return ProtocolError(
        f"The field {field!r} of site {site!r} in secure aggregation is malformed. "
        "Use the same release of eigenfed everywhere."
    )


def _not_signed(site: str, what: str) -> ProtocolError:
    return ProtocolError(
        f"Site {site!r} has not signed its {what} for this run with its key in the roster. "
        "Use one roster everywhere, and the transport's name of the run."
    )


def _wrong_shares(owner: str) -> ProtocolError:
    return ProtocolError(
        f"The secret of site {owner!r} cannot be recovered from its shares: that site or a holder "
        "of a share sent garbage. Run again without it."
    )
