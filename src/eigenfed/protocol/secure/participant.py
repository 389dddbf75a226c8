"""A site's half of a secure sum: keys, shares, masks, and what it takes to open a sum.

===========  ==================================================================================
site sees    the others' public keys, shares sealed for it, who is in a sum, who has signed that
leaves site  public keys, shares that only their holders can read, masked words; for each site of
             a sum that is opened, one share: of its own mask if it is in the sum, of its key for
             the masks with others if it is not
stays        the signing key, all other secrets
===========  ==================================================================================

After Bonawitz et al. 2017, with its round against a coordinator that tells sites different things.
What may follow what is in the table `_ORDER`; whatever it is asked, a site

- makes keys for a sum once, shares them once, masks one reply with them, signs one list of
  survivors, and opens that list once;
- takes part in the sum that it masked last, and in no earlier one;
- opens a list only if more sites than two thirds of the roster have signed it for the same
  request.

Secrets are kept in memory: a site that is started again has to begin another run.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple
from typing import Protocol as TypingProtocol

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Arrays
from eigenfed.errors import DataError, InputError
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.privacy.secagg.differencing import isolated_by
from eigenfed.privacy.secagg.fixed_point import Bound, encoded
from eigenfed.privacy.secagg.identity import LEAST_SITES, SIGNATURE_BYTES, Identity, Roster
from eigenfed.privacy.secagg.masking import Mask, add_masks, derived
from eigenfed.privacy.secagg.topology import Ring
from eigenfed.protocol.messages import refusal, unpack
from eigenfed.protocol.secure import sum_format as form
from eigenfed.protocol.secure.sum_format import (
    Envelope,
    KeysReply,
    KeysRequest,
    PublicKeys,
    Purpose,
    SharesReply,
    SharesRequest,
    SurvivorsReply,
    SurvivorsRequest,
    UnmaskRequest,
)
from eigenfed.protocol.secure.sum_keys import Batch, DrawKey, fresh_key

RELEASES = {
    KeysRequest.op: Release("public keys, signed", "2 sums + 1", Leaves.EXACT, Reveals.NOTHING),
    SharesRequest.op: Release(
        "shares of secrets, sealed for each site", "sites x 2 sums", Leaves.EXACT, Reveals.NOTHING
    ),
    SurvivorsRequest.op: Release(
        "signature of who is in a sum", "1", Leaves.EXACT, Reveals.NOTHING
    ),
    UnmaskRequest.op: Release(
        "one share of a secret of each site", "sites", Leaves.EXACT, Reveals.NOTHING
    ),
}
"""What the messages of a secure sum are; none of them has to do with the rows."""

_MASK = "mask"


class _Keyed(Enum):
    """What has become of the keys for the next sums."""

    NONE = auto()
    MADE = auto()
    SHARED = auto()


class _Summed(Enum):
    """What has become of the last sum."""

    NONE = auto()
    MASKED = auto()
    SIGNED = auto()
    OPEN = auto()


class _Step(NamedTuple):
    """When a request has its place, and with which code it is refused otherwise."""

    keyed: dict[_Keyed, str]
    summed: dict[_Summed, str]


_ANY_SUM: dict[_Summed, str] = dict.fromkeys(_Summed, "")
_ANY_KEYS: dict[_Keyed, str] = dict.fromkeys(_Keyed, "")
_ORDER = {
    KeysRequest.op: _Step(_ANY_KEYS, _ANY_SUM),
    SharesRequest.op: _Step(
        {_Keyed.NONE: "sum", _Keyed.MADE: "", _Keyed.SHARED: "sum_again"}, _ANY_SUM
    ),
    _MASK: _Step({_Keyed.NONE: "sum", _Keyed.MADE: "sum", _Keyed.SHARED: ""}, _ANY_SUM),
    SurvivorsRequest.op: _Step(
        _ANY_KEYS,
        {
            _Summed.NONE: "sum",
            _Summed.MASKED: "",
            _Summed.SIGNED: "",
            _Summed.OPEN: "sum_again",
        },
    ),
    UnmaskRequest.op: _Step(
        _ANY_KEYS,
        {
            _Summed.NONE: "sum",
            _Summed.MASKED: "survivors",
            _Summed.SIGNED: "",
            _Summed.OPEN: "sum_again",
        },
    ),
}
"""For each request: in which states it is taken (an empty code), and the code in the others."""


class Sums(TypingProtocol):
    """Which sets of sites a data set was summed over, where no noise was added."""

    def seen(self) -> set[frozenset[str]]:
        """Return all sets so far."""

    def add(self, sites: frozenset[str]) -> None:
        """Write one down, before the sum can be opened."""


@dataclass(eq=False, repr=False)
class _Sum:
    """The sum that was masked last."""

    number: int
    batch: Batch
    asked: bytes
    present: tuple[str, ...]
    noised: bool
    least: int
    survivors: frozenset[str] | None = None


@dataclass(eq=False, repr=False)
class _SumRun:
    """What a participant knows of one run."""

    keyed: _Keyed = _Keyed.NONE
    summed: _Summed = _Summed.NONE
    made: int = 0
    batch: Batch | None = None
    last: _Sum | None = None

    def check(self, op: str) -> None:
        """Refuse a request that has no place now."""
        step = _ORDER[op]
        code = step.keyed[self.keyed] or step.summed[self.summed]
        if code:
            raise refusal(code)


@dataclass(frozen=True, eq=False, repr=False)
class Place:
    """A site's place in a sum that it is about to mask a reply for."""

    run: str
    number: int
    batch: Batch
    present: tuple[str, ...]


class Participant:
    """What a site needs to take part in secure sums.

    Parameters
    ----------
    site : str
    identity : Identity
        The site's own signing key.
    roster : Roster
        All sites, as this site has pinned them.
    least_change : int
        By how many sites the sets of two exact sums over the same data must differ, if they do;
        0 allows all.
    sums : Sums
        The sets so far.
    draw_key : callable
        Source of keys: `fresh_key`, except where copies of a site must make the same ones again.
    """

    def __init__(
        self,
        site: str,
        identity: Identity,
        roster: Roster,
        *,
        least_change: int,
        sums: Sums,
        draw_key: DrawKey = fresh_key,
    ) -> None:
        if roster.keys.get(site) != identity.public:
            raise InputError(
                f"The roster does not have site {site!r} with the key of its identity. "
                "Put its public key there, or pass the identity that belongs to it."
            )
        self._site = site
        self._identity = identity
        self.roster = roster
        self._ring = Ring(roster)
        self._least_change = least_change
        self._sums = sums
        self._draw_key = draw_key
        self._runs: dict[str, _SumRun] = {}

    def forget(self, run: str) -> None:
        """Drop the secrets of a run that is over."""
        self._runs.pop(run, None)

    def answer(self, op: str, run: str, arrays: Arrays) -> object:
        """Answer a request for keys, shares, a signature or what opens a sum.

        Raises
        ------
        Refusal
            With the code that leaves the site.
        """
        answers: dict[str, tuple[type[Any], Callable[[Purpose, _SumRun, Any], object]]] = {
            KeysRequest.op: (KeysRequest, self._make_keys),
            SharesRequest.op: (SharesRequest, self._share),
            SurvivorsRequest.op: (SurvivorsRequest, self._sign),
            UnmaskRequest.op: (UnmaskRequest, self._open),
        }
        kind, answer = answers[op]
        try:
            request = unpack(kind, arrays)
            known = self._of(run)
            known.check(op)
            return answer(self._purpose(run), known, request)
        except (DataError, KeyError, IndexError):
            raise refusal("malformed") from None

    def prepare(self, run: str, envelope: Envelope) -> Place:
        """Take a place in a sum, before the reply to be masked is computed.

        Raises
        ------
        Refusal
            If the sum was masked before, or keys or shares are missing.
        """
        known = self._of(run)
        try:
            if known.last is not None and envelope.number <= known.last.number:
                raise refusal("sum_again")
            known.check(_MASK)
            if known.batch is None or envelope.number not in known.batch.secrets:
                raise refusal("sum")
            present = self._check_group(form.read(envelope.present, self.roster))
            self._receive(self._purpose(run), known.batch, present, envelope.shares)
        except (DataError, KeyError, IndexError):
            raise refusal("malformed") from None
        return Place(run, envelope.number, known.batch, present)

    def mask(
        self,
        place: Place,
        asked: bytes,
        reply: Arrays,
        bounds: Mapping[str, Bound] | None,
        *,
        least: int,
    ) -> Arrays:
        """Turn a reply into words that only a sum over all sites makes sense of.

        Parameters
        ----------
        place : Place
        asked : bytes
            Digest of the request and of everything that follows from it: sites with another one
            have masks that do not cancel.
        reply : mapping of str to ndarray
            What the operation answers.
        bounds : mapping of str to Bound, or None
            Largest magnitude of each array; None for integers with noise, which go into the sum as
            they are.
        least : int
            How many sites must be in the sum before it is opened.

        Raises
        ------
        InputError
            If an entry is beyond its bound.
        """
        fields = self._words(reply, bounds)
        last = _Sum(place.number, place.batch, asked, place.present, bounds is None, least)
        self._add_masks(self._purpose(place.run), last, fields)
        known = self._of(place.run)
        known.last, known.summed = last, _Summed.MASKED
        place.batch.forget(place.number - 1)
        return fields | {form.PLACE: form.written({self._site}, self.roster).astype(np.int64)}

    def _of(self, run: str) -> _SumRun:
        return self._runs.setdefault(run, _SumRun())

    def _purpose(self, run: str) -> Purpose:
        return Purpose(run, self.roster)

    def _make_keys(self, purpose: Purpose, run: _SumRun, request: KeysRequest) -> KeysReply:
        first, count = request.first, request.count
        if first < run.made:
            raise refusal("sum_again")
        if not 1 <= count <= form.MOST_AHEAD or first > form.LAST_SUM:
            raise refusal("malformed")
        batch = Batch(self._site, first, count, self._draw_key)
        keys = batch.public.to_bytes()
        signature = self._identity.sign(purpose.keys(self._site, first, keys))
        run.made, run.batch, run.keyed = first + count, batch, _Keyed.MADE
        return KeysReply(keys=form.flat(keys), signature=form.flat(signature))

    def _share(self, purpose: Purpose, run: _SumRun, request: SharesRequest) -> SharesReply:
        batch = _batch(run)
        names = self._check_group(form.read(request.present, self.roster))
        shown = form.rows_of(request.keys, len(names), form.keys_bytes(batch.count))
        statements = {
            name: purpose.keys(name, batch.first, keys)
            for name, keys in zip(names, shown, strict=True)
        }
        self._check_signed(statements, request.signatures)
        peers = {
            name: PublicKeys.from_bytes(keys, batch.count)
            for name, keys in zip(names, shown, strict=True)
        }
        if peers[self._site] != batch.public:
            raise refusal("signature")
        shares = form.as_rows(batch.shared(purpose, peers))
        run.keyed = _Keyed.SHARED
        return SharesReply(shares=shares)

    def _receive(
        self,
        purpose: Purpose,
        batch: Batch,
        present: tuple[str, ...],
        shares: npt.NDArray[Any] | None,
    ) -> None:
        """Take the shares that others have sealed for this site, and see that none is missing."""
        if not set(present) <= set(batch.peers):
            raise refusal("sum")
        if shares is not None:
            texts = form.rows_of(shares, len(present), form.sealed_bytes(batch.count))
            for owner, text in zip(present, texts, strict=True):
                try:
                    batch.receive(purpose, owner, text)
                except DataError:
                    raise refusal("shares") from None
        if not all(set(present) <= set(held) for held in batch.held.values()):
            raise refusal("shares")

    def _check_group(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Refuse a group that is too small, or without this site."""
        if len(names) < max(self.roster.threshold, LEAST_SITES):
            raise refusal("few_sites")
        if self._site not in names:
            raise refusal("survivors")
        return names

    def _words(self, reply: Arrays, bounds: Mapping[str, Bound] | None) -> Arrays:
        """Return the reply in fixed point, and zeros by which masks that do not cancel show.

        A site's own part of the noise is not enough for a refusal to hang on it: what is noised is
        of integers already and goes into the sum, which wraps, whatever it is.
        """
        fields: Arrays = {form.CHECK: np.zeros(form.CHECK_WORDS, dtype=np.int64)}
        if bounds is None:
            return fields | {name: values.copy() for name, values in reply.items()}
        for name, values in reply.items():
            fields[name] = encoded(values, bounds[name], len(self.roster))
        return fields

    def _add_masks(self, purpose: Purpose, last: _Sum, fields: Arrays) -> None:
        secret = last.batch.secrets[last.number]
        own = purpose.own(last.number, last.asked, self._site)
        masks = [Mask(derived(secret.seed, own), 1)]
        for name in self._ring.of(self._site):
            if name in last.present:
                public = last.batch.peers[name].masks[last.number - last.batch.first]
                pair = purpose.pair(last.number, last.asked, self._site, name)
                key = derived(secret.pair.agreed(public), pair)
                masks.append(Mask(key, form.sign(self._site, name)))
        add_masks(masks, form.masked_fields(fields))

    def _sign(self, purpose: Purpose, run: _SumRun, request: SurvivorsRequest) -> SurvivorsReply:
        last = _current(run, request.number)
        survivors = frozenset(self._check_group(form.read(request.survivors, self.roster)))
        if not survivors <= set(last.present) or last.survivors not in (None, survivors):
            raise refusal("survivors")
        if not self._ring.holds(survivors):
            raise refusal("thin")
        if len(survivors) < last.least:
            raise refusal("few_sites")
        self._check_change(last, survivors)
        last.survivors, run.summed = survivors, _Summed.SIGNED
        signature = self._identity.sign(purpose.survivors(last.number, last.asked, survivors))
        return SurvivorsReply(asked=form.flat(last.asked), signature=form.flat(signature))

    def _open(self, purpose: Purpose, run: _SumRun, request: UnmaskRequest) -> SharesReply:
        last = _current(run, request.number)
        survivors = frozenset(form.read(request.survivors, self.roster))
        if survivors != last.survivors:
            raise refusal("survivors")
        signers = form.read(request.signers, self.roster)
        if len(signers) < self.roster.threshold or not survivors.issuperset(signers):
            raise refusal("few_sites")
        statement = purpose.survivors(last.number, last.asked, survivors)
        self._check_signed(dict.fromkeys(signers, statement), request.signatures)
        self._check_change(last, survivors)
        if not last.noised:
            self._sums.add(survivors)
        held = last.batch.held[last.number]
        rows = [
            held[owner].seed if owner in survivors else held[owner].key for owner in last.present
        ]
        run.summed = _Summed.OPEN
        last.batch.forget(last.number)
        return SharesReply(shares=form.as_rows(rows))

    def _check_signed(self, statements: dict[str, bytes], signatures: npt.NDArray[Any]) -> None:
        rows = form.rows_of(signatures, len(statements), SIGNATURE_BYTES)
        for (name, statement), signature in zip(statements.items(), rows, strict=True):
            if not self.roster.signed(name, statement, signature):
                raise refusal("signature")

    def _check_change(self, last: _Sum, survivors: frozenset[str]) -> None:
        """Refuse a set whose sum, combined with earlier ones, would be about few sites."""
        if not last.noised and isolated_by(survivors, self._sums.seen(), self._least_change):
            raise refusal("isolates")


def _batch(run: _SumRun) -> Batch:
    if run.batch is None:
        raise refusal("sum")
    return run.batch


def _current(run: _SumRun, number: int) -> _Sum:
    """Find the sum that was masked last."""
    if run.last is None or run.last.number != number:
        raise refusal("sum")
    return run.last
