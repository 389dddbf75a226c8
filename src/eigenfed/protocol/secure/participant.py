"""Secure aggregation: the site's half.

===========  ==================================================================================
site sees    the other sites' public keys, secret shares sealed for it, which sites are in a sum
             and which have signed that
leaves site  public keys; secret shares that only their holders can read; masked words; and for
             each site of a sum that is opened, one share: of the seed of its own mask if it is in
             the sum, of the key of its pairwise masks if it is not
stays        the signing key and all other secrets
===========  ==================================================================================

After Bonawitz et al. (2017), "Practical secure aggregation", with its consistency round against a
coordinator that tells sites different things. `sum_order` has the table of which message may follow
which. Whatever the coordinator sends, a site

- makes keys for a sum once, shares them once, masks one reply with them, signs one list of
  survivors, and opens that list once;
- takes part in the sum that it masked last, and in no earlier one;
- opens a list only if more than two thirds of the roster have signed it for the same request.
  Two such majorities share more than a third of the roster, so that with fewer colluding sites an
  honest one would have to sign both lists: no two lists of one sum are ever opened.

Secrets are kept in memory. All of them follow from the keys that `draw_keys` gives for a run and
from the messages of the run: a site that keeps both can be restarted, and replays the messages.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from typing import Protocol as TypingProtocol

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Arrays
from eigenfed.errors import DataError, InputError
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.privacy.secagg.differencing import find_isolated_groups
from eigenfed.privacy.secagg.fixed_point import Bound, encode_fixed_point
from eigenfed.privacy.secagg.identity import LEAST_SITES, SIGNATURE_BYTES, Identity, Roster
from eigenfed.privacy.secagg.masking import Mask, add_masks, context, derive_key
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
from eigenfed.protocol.secure.sum_order import MASK, KeyProgress, Progress, SumProgress

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
"""Declarations of the messages of secure aggregation; all are independent of the rows."""


class Sums(TypingProtocol):
    """The sets of sites over which a data set was summed without noise."""

    def seen(self) -> set[frozenset[str]]:
        """Return all sets so far."""

    def add(self, sites: frozenset[str]) -> None:
        """Record a set, before the sum can be opened."""


class _RecordedSums:
    """Stands in for `Sums` where the sums were checked and recorded before a restart."""

    def seen(self) -> set[frozenset[str]]:
        return set()

    def add(self, sites: frozenset[str]) -> None:
        pass


@dataclass(eq=False, repr=False)
class _Sum:
    """The sum that was masked last."""

    number: int
    batch: Batch
    digest: bytes
    present: tuple[str, ...]
    noised: bool
    least: int
    survivors: frozenset[str] | None = None


@dataclass(eq=False, repr=False)
class _SumRun(Progress):
    """State of one run."""

    made: int = 0
    batch: Batch | None = None
    last: _Sum | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Place:
    """A site's place in the sum that it is about to mask a reply for."""

    run: str
    number: int
    batch: Batch
    present: tuple[str, ...]


class Participant:
    """A site's part in the secure aggregations of its runs.

    Parameters
    ----------
    site : str
    identity : Identity
        The site's own signing key.
    roster : Roster
        All sites and their public keys, as this site has pinned them.
    least_change : int
        Size of the smallest group of sites that exact sums over the same data may isolate, alone
        or combined; 0 allows all.
    sums : Sums
        The sets of sites summed over so far.
    draw_keys : callable
        Returns the source of keys of a run: `fresh_key`, except where a restarted site or a copy of
        it must make the same keys.
    """

    def __init__(
        self,
        site: str,
        identity: Identity,
        roster: Roster,
        *,
        least_change: int,
        sums: Sums,
        draw_keys: Callable[[str], DrawKey] = lambda run: fresh_key,
    ) -> None:
        if roster.keys.get(site) != identity.public:
            raise InputError(
                f"The roster does not list site {site!r} with the public key of its identity. "
                "Add that key to the roster, or pass the identity that belongs to it."
            )
        self._site = site
        self._identity = identity
        self.roster = roster
        self._ring = Ring(roster)
        self._least_change = least_change
        self._sums = sums
        self._draw_keys = draw_keys
        self._runs: dict[str, _SumRun] = {}

    def forget(self, run: str) -> None:
        """Delete the secrets of a run that is over."""
        self._runs.pop(run, None)

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """Answer messages again that were answered before a restart: their sums are recorded."""
        kept, self._sums = self._sums, _RecordedSums()
        try:
            yield
        finally:
            self._sums = kept

    def answer(self, op: str, run: str, arrays: Arrays) -> object:
        """Answer a request for keys, secret shares, a signature, or the opening of a sum.

        Raises
        ------
        Refusal
            With the code that leaves the site.
        """
        handlers: dict[str, tuple[type[Any], Callable[[Purpose, _SumRun, Any], object]]] = {
            KeysRequest.op: (KeysRequest, self._make_keys),
            SharesRequest.op: (SharesRequest, self._share),
            SurvivorsRequest.op: (SurvivorsRequest, self._sign),
            UnmaskRequest.op: (UnmaskRequest, self._open),
        }
        kind, handle = handlers[op]
        try:
            request = unpack(kind, arrays)
            known = self._find_run(run)
            known.check(op)
            return handle(self._purpose(run), known, request)
        except (DataError, KeyError, IndexError):
            raise refusal("malformed") from None

    def prepare(self, run: str, envelope: Envelope) -> Place:
        """Take a place in a sum, before the reply to be masked is computed.

        Raises
        ------
        Refusal
            If the sum was masked before, or keys or secret shares are missing.
        """
        known = self._find_run(run)
        try:
            # A mask is used once: two replies under one mask would reveal their difference.
            if known.last is not None and envelope.number <= known.last.number:
                raise refusal("sum_again")
            known.check(MASK)
            if known.batch is None or envelope.number not in known.batch.secrets:
                raise refusal("sum")
            present = self._check_group(form.decode_sites(envelope.present, self.roster))
            self._receive(self._purpose(run), known.batch, present, envelope.shares)
        except (DataError, KeyError, IndexError):
            raise refusal("malformed") from None
        return Place(run, envelope.number, known.batch, present)

    def mask(
        self,
        place: Place,
        digest: bytes,
        reply: Arrays,
        bounds: Mapping[str, Bound] | None,
        *,
        least: int,
        noisy: Collection[str] = (),
    ) -> Arrays:
        """Turn a reply into words that are random unless summed over all sites.

        Parameters
        ----------
        place : Place
        digest : bytes
            Digest of the request and its bounds (`Envelope.digest`): the masks of sites with
            different digests do not cancel.
        reply : mapping of str to ndarray
            Reply of the operation.
        bounds : mapping of str to Bound, or None
            Largest magnitude of each array; None for noised integers, which are summed as they
            are.
        least : int
            Number of sites that must be in the sum before it is opened.
        noisy : collection of str
            Arrays to which noise is added before their numbers are rounded.

        Raises
        ------
        InputError
            If an entry exceeds its bound.
        """
        fields = self._encode_reply(reply, bounds, noisy=noisy)
        last = self.enter_sum(place, digest, noised=bounds is None, least=least)
        self._add_masks(self._purpose(place.run), last, fields)
        # Not masked: the coordinator has to know whose replies are in the sum.
        return fields | {form.PLACE: form.encode_sites({self._site}, self.roster).astype(np.int64)}

    def enter_sum(self, place: Place, digest: bytes, *, noised: bool, least: int) -> _Sum:
        """Make a sum the current one, for which the site has a masked reply or is about to."""
        last = _Sum(place.number, place.batch, digest, place.present, noised, least)
        known = self._find_run(place.run)
        known.last, known.summed = last, SumProgress.MASKED
        # Earlier sums cannot be opened any more, so their secrets are of use to an intruder only.
        place.batch.forget(place.number - 1)
        return last

    def _find_run(self, run: str) -> _SumRun:
        return self._runs.setdefault(run, _SumRun())

    def _purpose(self, run: str) -> Purpose:
        return Purpose(run, self.roster)

    # Round 1, keys. The two sites of a pairwise mask need a common secret. The signature stops a
    # coordinator from replacing the keys by its own, with which it could compute every mask.

    def _make_keys(self, purpose: Purpose, run: _SumRun, request: KeysRequest) -> KeysReply:
        first, count = request.first, request.count
        if first < run.made:
            raise refusal("sum_again")
        if not 1 <= count <= form.MOST_AHEAD or first > form.LAST_SUM:
            raise refusal("malformed")
        batch = Batch(self._site, first, count, self._draw_keys(purpose.run))
        keys = batch.public.to_bytes()
        signature = self._identity.sign(purpose.keys(self._site, first, keys))
        run.made, run.batch, run.keyed = first + count, batch, KeyProgress.MADE
        return KeysReply(keys=form.as_bytes_array(keys), signature=form.as_bytes_array(signature))

    # Round 2, secret shares. If a site drops out later, the masks that others share with it stay in
    # the sum, and enough of the others must be able to reconstruct them. Shares are sealed for
    # their holders: the coordinator carries them, and could otherwise reconstruct every secret.

    def _share(self, purpose: Purpose, run: _SumRun, request: SharesRequest) -> SharesReply:
        batch = _require_batch(run)
        names = self._check_group(form.decode_sites(request.present, self.roster))
        shown = form.read_rows(request.keys, len(names), form.keys_bytes(batch.count))
        statements = {
            name: purpose.keys(name, batch.first, keys)
            for name, keys in zip(names, shown, strict=True)
        }
        self._check_signed(statements, request.signatures)
        peers = {
            name: PublicKeys.from_bytes(keys, batch.count)
            for name, keys in zip(names, shown, strict=True)
        }
        # The site's own keys must be among them, or the others mask with keys of someone else.
        if peers[self._site] != batch.public:
            raise refusal("signature")
        shares = form.stack_rows(batch.share(purpose, peers))
        run.keyed = KeyProgress.SHARED
        return SharesReply(shares=shares)

    # Round 3, masking: `prepare` and `mask` above, which the gate calls for each request of the
    # method. Masks hide a reply from the coordinator; the pairwise ones cancel in the sum.

    def _receive(
        self,
        purpose: Purpose,
        batch: Batch,
        present: tuple[str, ...],
        shares: npt.NDArray[Any] | None,
    ) -> None:
        """Open the secret shares sealed for this site, and refuse if any is missing."""
        if not set(present) <= set(batch.peers):
            raise refusal("sum")
        if shares is not None:
            texts = form.read_rows(shares, len(present), form.sealed_bytes(batch.count))
            for owner, text in zip(present, texts, strict=True):
                try:
                    batch.receive(purpose, owner, text)
                except DataError:
                    raise refusal("shares") from None
        if not all(set(present) <= set(held) for held in batch.held.values()):
            raise refusal("shares")

    def _check_group(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Refuse a group that is too small or does not include this site.

        In a small group the colluding sites could subtract their own parts and be left with few.
        """
        if len(names) < max(self.roster.threshold, LEAST_SITES):
            raise refusal("few_sites")
        if self._site not in names:
            raise refusal("survivors")
        return names

    def _encode_reply(
        self, reply: Arrays, bounds: Mapping[str, Bound] | None, *, noisy: Collection[str]
    ) -> Arrays:
        """Return the reply in fixed point, with zeros that reveal masks that do not cancel.

        A noised reply consists of integers already and is summed as it is, modulo 2**64, without
        a check against bounds: one site's part of the noise is not enough to protect a refusal
        that would depend on its reply.
        """
        fields: Arrays = {form.CHECK: np.zeros(form.CHECK_WORDS, dtype=np.int64)}
        if bounds is None:
            return fields | {name: values.copy() for name, values in reply.items()}
        for name, values in reply.items():
            key = self._rounding_key(name, values, bounds[name]) if name in noisy else None
            fields[name] = encode_fixed_point(values, bounds[name], len(self.roster), key)
        return fields

    def _rounding_key(self, name: str, values: npt.NDArray[Any], bound: Bound) -> bytes:
        """Return a key that follows from the numbers to be rounded, and that nobody else knows.

        It follows from their bound too, as their step does: the same noise in two steps would
        cancel, and leave how each number is rounded.
        """
        of = (sha256(a.tobytes()).digest() for a in (values, np.asarray(bound, dtype=np.float64)))
        return self._identity.derive_secret(context("rounding", name, *of))

    def _add_masks(self, purpose: Purpose, last: _Sum, fields: Arrays) -> None:
        secret = last.batch.secrets[last.number]
        # The own mask protects a reply that arrives late: by then the coordinator may have had
        # the pairwise masks opened, because it reported the site as lost.
        own = purpose.own(last.number, last.digest, self._site)
        masks = [Mask(derive_key(secret.seed, own), 1)]
        for name in self._ring.of(self._site):
            if name in last.present:
                public = last.batch.peers[name].masks[last.number - last.batch.first]
                pair = purpose.pair(last.number, last.digest, self._site, name)
                key = derive_key(secret.pair.agreed(public), pair)
                masks.append(Mask(key, form.mask_sign(self._site, name)))
        add_masks(masks, form.masked_fields(fields))

    # Round 4, signatures of the survivors. Without it, a coordinator could show different lists to
    # different holders. It would open a set of sites that no site has checked, or, with colluding
    # holders, collect both secrets of one site, remove both of its masks and read its reply.

    def _sign(self, purpose: Purpose, run: _SumRun, request: SurvivorsRequest) -> SurvivorsReply:
        last = _require_current(run, request.number)
        survivors = frozenset(self._check_group(form.decode_sites(request.survivors, self.roster)))
        if not survivors <= set(last.present) or last.survivors not in (None, survivors):
            raise refusal("survivors")
        # Sites mask with neighbours on a ring: if too many of them are lost, colluding sites could
        # cut it, and the coordinator would get the sums of the two parts.
        if not self._ring.holds(survivors):
            raise refusal("thin")
        # Each site adds its part of the noise: with fewer of them the sum would have too little.
        if len(survivors) < last.least:
            raise refusal("few_sites")
        self._check_change(last, survivors)
        last.survivors, run.summed = survivors, SumProgress.SIGNED
        signature = self._identity.sign(purpose.survivors(last.number, last.digest, survivors))
        return SurvivorsReply(
            asked=form.as_bytes_array(last.digest), signature=form.as_bytes_array(signature)
        )

    # Round 5, opening. For each site the holders reveal a share of one secret only: the seed if it
    # survived, so that its own mask can be removed, or the key if it was lost, so that what is
    # left of its pairwise masks can be. With enough shares the coordinator gets the sum.

    def _open(self, purpose: Purpose, run: _SumRun, request: UnmaskRequest) -> SharesReply:
        last = _require_current(run, request.number)
        survivors = frozenset(form.decode_sites(request.survivors, self.roster))
        if survivors != last.survivors:
            raise refusal("survivors")
        signers = form.decode_sites(request.signers, self.roster)
        if len(signers) < self.roster.threshold or not survivors.issuperset(signers):
            raise refusal("few_sites")
        statement = purpose.survivors(last.number, last.digest, survivors)
        self._check_signed(dict.fromkeys(signers, statement), request.signatures)
        # Checked again, because another run may have opened a sum since the signature, and
        # recorded before the shares leave.
        self._check_change(last, survivors)
        if not last.noised:
            self._sums.add(survivors)
        held = last.batch.held[last.number]
        rows = [
            held[owner].seed if owner in survivors else held[owner].key for owner in last.present
        ]
        run.summed = SumProgress.OPEN
        last.batch.forget(last.number)
        return SharesReply(shares=form.stack_rows(rows))

    def _check_signed(self, statements: dict[str, bytes], signatures: npt.NDArray[Any]) -> None:
        rows = form.read_rows(signatures, len(statements), SIGNATURE_BYTES)
        for (name, statement), signature in zip(statements.items(), rows, strict=True):
            if not self.roster.signed(name, statement, signature):
                raise refusal("signature")

    def _check_change(self, last: _Sum, survivors: frozenset[str]) -> None:
        """Refuse a set whose sum, combined with earlier ones, would isolate few sites.

        Two exact sums over sets that differ by one site give that site's reply away.
        """
        if not last.noised and find_isolated_groups(
            survivors, self._sums.seen(), self._least_change
        ):
            raise refusal("isolates")


def _require_batch(run: _SumRun) -> Batch:
    if run.batch is None:
        raise refusal("sum")
    return run.batch


def _require_current(run: _SumRun, number: int) -> _Sum:
    """Return the sum that was masked last, if it has this number."""
    if run.last is None or run.last.number != number:
        raise refusal("sum")
    return run.last
