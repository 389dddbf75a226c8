"""Sums that nobody can open: the coordinator's half.

===========  ==================================================================================
coordinator  masked words of each site, which tell nothing; their sum over the sites that were
             there; who those are
site         see `sealing`
===========  ==================================================================================

Each sum takes three asks: for masked replies, for signatures of who is in the sum, and for the
shares that open it. Two more asks bring the keys for some sums ahead. The masked ask keeps the name
of the operation, so that logs and transcripts say what left.

A site that drops out after its keys were shared is left out of the sum, and its masks with others
are opened. Down to the roster's threshold any losses are survived at any stage; below it the run
ends with `SiteLost` and nothing is opened. Sites that were asked different things, or send garbage,
make a sum of random words. That is found out, except for a site that masks a false reply within its
bounds: nobody can tell that from a true one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from eigenfed.arrays import Array, Arrays
from eigenfed.errors import DataError, InputError, ProtocolError
from eigenfed.linalg.checks import check_count
from eigenfed.privacy import fixed_point
from eigenfed.privacy.fixed_point import Bound
from eigenfed.privacy.identity import SIGNATURE_BYTES, Roster
from eigenfed.privacy.masks import KeyPair, Mask, add_masks, derived
from eigenfed.privacy.neighbours import Ring
from eigenfed.privacy.shamir import SHARE_BYTES, recovered
from eigenfed.protocol import sum_format as form
from eigenfed.protocol.core import TOTAL, Ask, Protocol, Replies
from eigenfed.protocol.sum_format import PublicKeys

AHEAD = 8
"""For how many sums keys are made at a time."""


@dataclass(eq=False)
class _Keys:
    """Public keys for the sums from `first` to before `end`, and shares on their way."""

    first: int
    end: int
    public: dict[str, PublicKeys]
    shares: dict[str, form.Bytes] = field(default_factory=dict)
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
                form.SHARES: np.stack([shared[places[holder]] for shared in self.shares.values()])
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

    Examples
    --------
    >>> from eigenfed.data.source import Source
    >>> from eigenfed.privacy.identity import Identity
    >>> from eigenfed.protocol.core import drive
    >>> from eigenfed.protocol.site import Site
    >>> from eigenfed.transport.local import LocalTransport
    >>> identities = {name: Identity.generate() for name in "abc"}
    >>> roster = Roster.of(identities)
    >>> rows = Source.of(np.ones((2, 1)))
    >>> sites = {n: Site(n, rows, identity=identities[n], roster=roster) for n in "abc"}
    >>> total = SecureSum(roster, run="first")
    >>> ask = Ask("moments", bounds={"n": 4.0, "count": 4.0, "total": 8.0})
    >>> drive(total(ask), LocalTransport(sites, run="first"))["total"]
    array([6.])
    """

    bounded = True

    def __init__(self, roster: Roster, *, run: str, ahead: int = AHEAD) -> None:
        check_count("ahead", ahead, "Make keys for one sum at a time, or for more.")
        if ahead > form.MOST_AHEAD:
            raise InputError(f"ahead={ahead} must be at most {form.MOST_AHEAD}. Lower it.")
        self.summed: tuple[str, ...] = ()
        self._roster = roster
        self._ring = Ring(roster)
        self._purpose = form.Purpose(run, roster)
        self._ahead = ahead
        self._keyed = 0
        self._number = 0
        self._keys: _Keys | None = None

    def error(self, bound: Bound) -> Array:
        """Return the most by which an entry so bounded differs from the sum of the entries."""
        return fixed_point.error(bound, len(self._roster))

    def __call__(self, ask: Ask) -> Protocol[Arrays]:
        """Ask for masked replies, and open their sum.

        Parameters
        ----------
        ask : Ask
            To all sites, the same for each, with bounds. Its `quorum` says how many sites must be
            in the sum; None wants all of the roster.

        Raises
        ------
        InputError
            If the ask cannot be summed so.
        SiteLost
            If too few sites answer. Nothing is opened then.
        ProtocolError
            If what came back is not the sum of what sites were asked for.
        """
        bounds = self._checked(ask)
        if not bounds:
            return (yield replace(ask, to=self._roster.sites, summed=True))[TOTAL]
        needed = len(self._roster) if ask.quorum is None else ask.quorum
        keys = self._keys
        if keys is None or self._number >= keys.end or len(keys.present) < needed:
            keys = self._keys = yield from self._made(ask, needed)
        masked = yield from self._masked(ask, keys, bounds, needed)
        asked, signers = yield from self._signed(ask, masked)
        shares = yield from self._shares(ask, masked, signers)
        self._unmask(masked, asked, shares)
        self.summed = masked.survivors
        return self._decoded(masked, bounds)

    def _checked(self, ask: Ask) -> Mapping[str, Bound]:
        if ask.to is not None or ask.each:
            raise InputError(
                f"{ask.op!r} is addressed to some sites, or brings one site what others do not "
                "get: a secure sum of that would tell of single sites. Ask all alike."
            )
        if ask.bounds is None:
            raise InputError(
                f"{ask.op!r} states no bounds, which a secure sum needs. "
                "State the largest magnitude of each array of the reply."
            )
        least, most = self._roster.threshold, len(self._roster)
        if ask.quorum is not None and not least <= ask.quorum <= most:
            raise InputError(
                f"quorum={ask.quorum} must be from {least} to {most}: more than two thirds of the "
                "roster's sites, and no more than all. Pass None to want all."
            )
        for name, bound in ask.bounds.items():
            fixed_point.check_bound(name, bound, most)
        return ask.bounds

    def _part(self, ask: Ask, op: str, payload: Arrays, to: Iterable[str], quorum: int) -> Ask:
        """Make an ask of the sum's own."""
        return Ask(op, payload, to=tuple(to), quorum=quorum, deadline_s=ask.deadline_s)

    def _made(self, ask: Ask, needed: int) -> Protocol[_Keys]:
        """Have keys made for some sums ahead, and shared."""
        first = self._number = self._keyed
        self._keyed += self._ahead
        wanted = {"first": np.array([first]), "count": np.array([self._ahead])}
        replies = yield self._part(ask, "sum_keys", wanted, self._roster.sites, needed)
        shown = _rows(replies, "keys", form.keys_bytes(self._ahead))
        signatures = _rows(replies, "signature", SIGNATURE_BYTES)
        for name, keys in shown.items():
            statement = self._purpose.keys(name, first, keys)
            if not self._roster.signed(name, statement, signatures[name]):
                raise _not_theirs(name, "keys")
        payload: Arrays = {
            "present": form.written(replies, self._roster),
            "keys": form.as_rows(list(shown.values())),
            "signatures": form.as_rows(list(signatures.values())),
        }
        shared = yield self._part(ask, "sum_shares", payload, replies, needed)
        public = {n: PublicKeys.from_bytes(keys, self._ahead) for n, keys in shown.items()}
        shape = (len(public), form.sealed_bytes(self._ahead))
        for name, reply in shared.items():
            if reply.keys() != {"shares"} or reply["shares"].shape != shape:
                raise _malformed(name, "shares")
        shares = {name: reply["shares"] for name, reply in shared.items()}
        return _Keys(first, first + self._ahead, public, shares)

    def _masked(
        self, ask: Ask, keys: _Keys, bounds: Mapping[str, Bound], needed: int
    ) -> Protocol[_Masked]:
        number = self._number
        self._number += 1
        envelope = form.with_bounds(bounds) | {
            form.NUMBER: np.array([number]),
            form.PRESENT: form.written(keys.present, self._roster),
        }
        replies = yield Ask(
            ask.op,
            {**ask.payload, **envelope},
            each=keys.for_holders(),
            to=keys.present,
            summed=True,
            quorum=needed,
            deadline_s=ask.deadline_s,
            residual=ask.residual,
        )
        words = {name: np.array(array) for name, array in replies[TOTAL].items()}
        fields = {*bounds, form.PLACE, form.CHECK}
        if words.keys() != fields or any(array.dtype != np.int64 for array in words.values()):
            raise ProtocolError(
                f"The sum of {ask.op!r} does not have the arrays that its bounds are of, as words. "
                "Use the same release of eigenfed everywhere."
            )
        survivors = self._placed(words.pop(form.PLACE), keys.present, needed)
        keys.delivered |= set(survivors)
        return _Masked(number, keys, words, survivors)

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

    def _signed(self, ask: Ask, masked: _Masked) -> Protocol[tuple[bytes, dict[str, bytes]]]:
        """Have the survivors sign that they are, and learn the digest of what they were asked."""
        payload: Arrays = {
            "number": np.array([masked.number]),
            "survivors": form.written(masked.survivors, self._roster),
        }
        least = self._roster.threshold
        replies = yield self._part(ask, "sum_survivors", payload, masked.survivors, least)
        digests = set(_rows(replies, "asked", 32).values())
        if len(digests) > 1:
            raise ProtocolError(
                f"Sites were asked different things as {ask.op!r}. Send all of them the same."
            )
        asked = digests.pop()
        signatures = _rows(replies, "signature", SIGNATURE_BYTES)
        survivors = frozenset(masked.survivors)
        statement = self._purpose.survivors(masked.number, asked, survivors)
        for name, signature in signatures.items():
            if not self._roster.signed(name, statement, signature):
                raise _not_theirs(name, "signature of the survivors")
        return asked, signatures

    def _shares(
        self, ask: Ask, masked: _Masked, signatures: dict[str, bytes]
    ) -> Protocol[dict[str, list[bytes]]]:
        """Have shares brought by those who signed: of each site present, one from each of them."""
        payload: Arrays = {
            "number": np.array([masked.number]),
            "survivors": form.written(masked.survivors, self._roster),
            "signers": form.written(signatures, self._roster),
            "signatures": form.as_rows(list(signatures.values())),
        }
        least = self._roster.threshold
        replies = yield self._part(ask, "sum_unmask", payload, signatures, least)
        owners = masked.keys.present
        found: dict[str, list[bytes]] = {}
        for name, reply in replies.items():
            try:
                found[name] = form.rows_of(reply["shares"], len(owners), SHARE_BYTES)
            except (DataError, KeyError):
                raise _malformed(name, "shares") from None
        return found

    def _unmask(self, masked: _Masked, asked: bytes, shares: dict[str, list[bytes]]) -> None:
        """Take the masks away, in place."""
        number, index = masked.number, masked.number - masked.keys.first
        masks = []
        for i, owner in enumerate(masked.keys.present):
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

    def _decoded(self, masked: _Masked, bounds: Mapping[str, Bound]) -> Arrays:
        try:
            if masked.words[form.CHECK].any():
                raise InputError("masks are left")
            parties = len(self._roster)
            return {
                name: fixed_point.decoded(masked.words[name], bound, parties)
                for name, bound in bounds.items()
            }
        except InputError:
            raise ProtocolError(
                "A secure sum is no sum of replies within their bounds: a site sent garbage, or "
                "was asked something else than the others. Run again without it."
            ) from None


def _rows(replies: Replies, field: str, size: int) -> dict[str, bytes]:
    """Read one row of bytes from each reply."""
    found = {}
    for name, reply in replies.items():
        array = reply.get(field)
        if array is None or array.dtype != np.uint8 or array.shape != (size,):
            raise _malformed(name, field)
        found[name] = array.tobytes()
    return found


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
