"""The site's half of a secure sum: keys, shares, masks, and what it takes to open a sum.

===========  ==================================================================================
site sees    the others' public keys, shares sealed for it, who is in a sum, who has signed that
leaves site  public keys, shares that only their holders can read, masked words; for each site of
             a sum that is opened, one share: of its own mask if it is in the sum, of its key for
             the masks with others if it is not
stays        the signing key, all other secrets
===========  ==================================================================================

After Bonawitz et al. 2017, with its round against a coordinator that tells sites different things.
Whatever it is asked, in whatever order, a site

- makes keys for a sum once, shares them once, masks one reply with them, signs one list of
  survivors, and opens that list once;
- takes part in the sum that it masked last, and in no earlier one;
- opens a list only if more sites than two thirds of the roster have signed it for the same ask.

Secrets are kept in memory: a site that is started again has to begin another run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from typing import Protocol as TypingProtocol

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Arrays
from eigenfed.data.source import Source
from eigenfed.errors import DataError, InputError
from eigenfed.privacy.fixed_point import check_bound, encoded
from eigenfed.privacy.identity import LEAST_SITES, SIGNATURE_BYTES, Identity, Roster
from eigenfed.privacy.ledger import Refusal
from eigenfed.privacy.masks import Mask, add_masks, derived
from eigenfed.privacy.neighbours import Ring
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.privacy.rosters import isolated_by
from eigenfed.protocol import sum_format as form
from eigenfed.protocol.codes import WHY
from eigenfed.protocol.ops import Answer, Op
from eigenfed.protocol.sum_format import PublicKeys, Purpose
from eigenfed.protocol.sum_keys import Batch


class Sums(TypingProtocol):
    """Which sets of sites a data set was summed over, where no noise was added."""

    def seen(self) -> set[frozenset[str]]:
        """Return all sets so far."""

    def add(self, sites: frozenset[str]) -> None:
        """Write one down, before the sum can be opened."""


def _without_identity(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Refuse: a site with an identity answers by its `Sealer`, and not from its rows."""
    raise _refusal("no_identity")


def _declared(name: str, kind: str, shape: str) -> Op:
    return Op(name, _without_identity, Release(kind, shape, Leaves.EXACT, Reveals.NOTHING))


OPS = (
    _declared("sum_keys", "public keys, signed", "2 sums + 1"),
    _declared("sum_shares", "shares of secrets, sealed for each site", "sites x 2 sums"),
    _declared("sum_survivors", "signature of who is in a sum", "1"),
    _declared("sum_unmask", "one share of a secret of each site", "sites"),
)


@dataclass(eq=False, repr=False)
class _Sum:
    """The sum that was masked last."""

    number: int
    batch: Batch
    asked: bytes
    present: tuple[str, ...]
    parties: int
    survivors: frozenset[str] | None = None
    is_open: bool = False


@dataclass(eq=False, repr=False)
class _SealedRun:
    keyed: int = 0
    batch: Batch | None = None
    last: _Sum | None = None


class Sealer:
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

    Examples
    --------
    >>> from eigenfed.privacy.policy import Policy
    >>> from eigenfed.protocol.books import Books
    >>> identities = {name: Identity.generate() for name in "abc"}
    >>> roster, books = Roster.of(identities), Books(None, "rows", Policy())
    >>> sealer = Sealer("a", identities["a"], roster, least_change=3, sums=books)
    >>> reply = sealer.answer("sum_keys", "run", {"first": np.array([0]), "count": np.array([2])})
    >>> {name: array.shape for name, array in reply.items()}
    {'keys': (160,), 'signature': (64,)}
    """

    def __init__(
        self, site: str, identity: Identity, roster: Roster, *, least_change: int, sums: Sums
    ) -> None:
        if roster.keys.get(site) != identity.public:
            raise InputError(
                f"The roster does not have site {site!r} with the key of its identity. "
                "Put its public key there, or pass the identity that belongs to it."
            )
        self._site = site
        self._identity = identity
        self._roster = roster
        self._ring = Ring(roster)
        self._least_change = least_change
        self._sums = sums
        self._runs: dict[str, _SealedRun] = {}

    def answer(self, op: str, run: str, payload: Arrays) -> Arrays:
        """Answer an ask for keys, shares, a signature or what opens a sum.

        Raises
        ------
        Refusal
            With the code that leaves the site.
        """
        answers: dict[str, Callable[[Purpose, _SealedRun, Arrays], Arrays]] = {
            "sum_keys": self._keys,
            "sum_shares": self._shares,
            "sum_survivors": self._signed,
            "sum_unmask": self._opened,
        }
        try:
            return answers[op](*self._of(run), payload)
        except (DataError, KeyError, IndexError):
            raise _refusal("malformed") from None

    def masked(
        self,
        run: str,
        op: str,
        payload: Arrays,
        envelope: Arrays,
        reply: Arrays,
        *,
        parties: int = 0,
    ) -> Arrays:
        """Turn a reply into words that only a sum over all sites makes sense of.

        Parameters
        ----------
        run, op : str
        payload : mapping of str to ndarray
            What the operation was asked.
        envelope : mapping of str to ndarray
            What came with it for the sum.
        reply : mapping of str to ndarray
            What the operation answers.
        parties : int, default=0
            How many sites' noise the sum must hold before it is opened. 0 says that there is no
            noise, so that sums over different sites must not be compared.

        Raises
        ------
        Refusal
            If the reply does not fit its bounds, the sum was masked before, or keys are missing.
        """
        purpose, sealed = self._of(run)
        try:
            number = int(envelope[form.NUMBER][0])
            batch = _keyed(sealed, number)
            present = self._enough(form.read(envelope[form.PRESENT], self._roster))
            self._receive(purpose, batch, present, envelope.get(form.SHARES))
        except (DataError, KeyError, IndexError):
            raise _refusal("malformed") from None
        fields = self._whole(reply, envelope, noised=parties > 0)
        last = _Sum(number, batch, form.digest_of(op, payload, envelope), present, parties)
        self._add_masks(purpose, last, fields)
        sealed.last = last
        batch.forget(number - 1)
        return fields | {form.PLACE: form.written({self._site}, self._roster).astype(np.int64)}

    def _of(self, run: str) -> tuple[Purpose, _SealedRun]:
        return Purpose(run, self._roster), self._runs.setdefault(run, _SealedRun())

    def _keys(self, purpose: Purpose, run: _SealedRun, payload: Arrays) -> Arrays:
        first, count = int(payload["first"][0]), int(payload["count"][0])
        if first < run.keyed:
            raise _refusal("sum_again")
        if not 1 <= count <= form.MOST_AHEAD:
            raise _refusal("malformed")
        batch = Batch(self._site, first, count)
        keys = batch.public.to_bytes()
        signature = self._identity.sign(purpose.keys(self._site, first, keys))
        run.keyed, run.batch = first + count, batch
        return {"keys": form.flat(keys), "signature": form.flat(signature)}

    def _shares(self, purpose: Purpose, run: _SealedRun, payload: Arrays) -> Arrays:
        batch = run.batch
        if batch is None:
            raise _refusal("sum")
        if batch.peers:
            raise _refusal("sum_again")
        names = self._enough(form.read(payload["present"], self._roster))
        shown = form.rows_of(payload["keys"], len(names), form.keys_bytes(batch.count))
        statements = {
            name: purpose.keys(name, batch.first, keys)
            for name, keys in zip(names, shown, strict=True)
        }
        self._check_signed(statements, payload["signatures"])
        peers = {
            name: PublicKeys.from_bytes(keys, batch.count)
            for name, keys in zip(names, shown, strict=True)
        }
        if peers[self._site] != batch.public:
            raise _refusal("signature")
        return {"shares": form.as_rows(batch.shared(purpose, peers))}

    def _receive(
        self,
        purpose: Purpose,
        batch: Batch,
        present: tuple[str, ...],
        shares: npt.NDArray[Any] | None,
    ) -> None:
        """Take the shares that others have sealed for this site, and see that none is missing."""
        if not set(present) <= set(batch.peers):
            raise _refusal("sum")
        if shares is not None:
            texts = form.rows_of(shares, len(present), form.sealed_bytes(batch.count))
            for owner, text in zip(present, texts, strict=True):
                try:
                    batch.receive(purpose, owner, text)
                except DataError:
                    raise _refusal("shares") from None
        if not all(set(present) <= set(held) for held in batch.held.values()):
            raise _refusal("shares")

    def _enough(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Refuse a group that is too small, or without this site."""
        if len(names) < max(self._roster.threshold, LEAST_SITES):
            raise _refusal("few_sites")
        if self._site not in names:
            raise _refusal("survivors")
        return names

    def _whole(self, reply: Arrays, envelope: Arrays, *, noised: bool) -> Arrays:
        """Return the reply in fixed point, and zeros by which masks that do not cancel show.

        A site's own part of the noise is not enough for a refusal to hang on it: what is noised
        is whole already and goes into the sum, which wraps, whatever its bound is.
        """
        bounds, parties = form.bounds_in(envelope), len(self._roster)
        if bounds.keys() != reply.keys():
            raise _refusal("bounds")
        fields: Arrays = {form.CHECK: np.zeros(form.CHECK_WORDS, dtype=np.int64)}
        try:
            for name, bound in bounds.items():
                check_bound(name, bound, parties)
                if noised and isinstance(bound, int):
                    fields[name] = reply[name].copy()
                elif noised:
                    raise _refusal("bounds")
                else:
                    fields[name] = encoded(reply[name], bound, parties)
        except InputError:
            raise _refusal("range") from None
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

    def _signed(self, purpose: Purpose, run: _SealedRun, payload: Arrays) -> Arrays:
        last = _current(run, payload)
        survivors = frozenset(self._enough(form.read(payload["survivors"], self._roster)))
        if not survivors <= set(last.present) or last.survivors not in (None, survivors):
            raise _refusal("survivors")
        if not self._ring.holds(survivors):
            raise _refusal("thin")
        if len(survivors) < last.parties:
            raise _refusal("few_sites")
        self._check_change(last, survivors)
        last.survivors = survivors
        signature = self._identity.sign(purpose.survivors(last.number, last.asked, survivors))
        return {"asked": form.flat(last.asked), "signature": form.flat(signature)}

    def _opened(self, purpose: Purpose, run: _SealedRun, payload: Arrays) -> Arrays:
        last = _current(run, payload)
        survivors = frozenset(form.read(payload["survivors"], self._roster))
        if last.survivors is None or survivors != last.survivors:
            raise _refusal("survivors")
        signers = form.read(payload["signers"], self._roster)
        if len(signers) < self._roster.threshold or not survivors.issuperset(signers):
            raise _refusal("few_sites")
        statement = purpose.survivors(last.number, last.asked, survivors)
        self._check_signed(dict.fromkeys(signers, statement), payload["signatures"])
        self._check_change(last, survivors)
        if not last.parties:
            self._sums.add(survivors)
        held = last.batch.held[last.number]
        rows = [
            held[owner].seed if owner in survivors else held[owner].key for owner in last.present
        ]
        last.is_open = True
        last.batch.forget(last.number)
        return {"shares": form.as_rows(rows)}

    def _check_signed(self, statements: dict[str, bytes], signatures: npt.NDArray[Any]) -> None:
        rows = form.rows_of(signatures, len(statements), SIGNATURE_BYTES)
        for (name, statement), signature in zip(statements.items(), rows, strict=True):
            if not self._roster.signed(name, statement, signature):
                raise _refusal("signature")

    def _check_change(self, last: _Sum, survivors: frozenset[str]) -> None:
        """Refuse a set whose sum, combined with earlier ones, would be about few sites."""
        if not last.parties and isolated_by(survivors, self._sums.seen(), self._least_change):
            raise _refusal("isolates")


def _refusal(code: str) -> Refusal:
    return Refusal(code, WHY[code])


def _keyed(run: _SealedRun, number: int) -> Batch:
    """Find the keys of a sum that was not masked yet."""
    if run.last is not None and number <= run.last.number:
        raise _refusal("sum_again")
    if run.batch is None or number not in run.batch.secrets:
        raise _refusal("sum")
    return run.batch


def _current(run: _SealedRun, payload: Arrays) -> _Sum:
    """Find the sum that was masked last and is not open yet."""
    if run.last is None or run.last.number != int(payload["number"][0]):
        raise _refusal("sum")
    if run.last.is_open:
        raise _refusal("sum_again")
    return run.last
