"""A site's ledger: what left, what it cost, and what may still be spent.

One file for each site, over all runs and data sets. The gate asks it in this order, and sends
nothing but what `Ledger.commit` or `Ledger.reply` returned::

    ledger.open_run(dataset, run, ...) once, before anything of a run is answered
    kept = ledger.reply(key)          the same ask again brings the same bytes
    ledger.summed(key, sites)         where the reply goes into a secure sum
    ledger.spend(key, mu, ...)        before the reply is computed, for a reply with noise
    reply = ledger.commit(key, ...)   reply, event and meter, or none of them
    ledger.abort(dataset, run, ...)   where something failed after rows were touched

Killed at any instant, the ledger counts at least what has left. A spend without a reply was never
sent, so a retry may draw its noise anew under the same spend; a reply that was committed is never
computed again, not even after its bytes were forgotten.

A ledger that was put back to an older copy, replaced or removed is noticed by its head file (see
`witness`) when it is opened and in every call. Then nothing may leave any more: every call of the
object fails, until a person has restored the file and started the site again.
"""

from collections.abc import Callable, Mapping

from eigenfed.errors import DataError, Refusal
from eigenfed.privacy.dp.accounting import check_delta
from eigenfed.privacy.ledger.accounts import Book, Slot, Totals
from eigenfed.privacy.ledger.entries import Budget, Declared, ReplyKey, check_name, refusal
from eigenfed.privacy.ledger.event_log import EventLog
from eigenfed.privacy.ledger.events import Budgeted, Refused, Replied, Spent, Unsound
from eigenfed.privacy.ledger.site_ledger import SiteLedger, Spending, refuse_with
from eigenfed.privacy.ledger.storage import ChainVerdict, digest
from eigenfed.privacy.release import Release

__all__ = ["Budget", "ChainVerdict", "Ledger", "Refusal", "ReplyKey", "Spending", "Totals"]


class Ledger(EventLog, SiteLedger):
    """The append-only record of a site's releases, and the judge of what may be released.

    It may be used by several threads, and by several processes that each open the file. It must
    not be carried into a forked process. A ledger with a broken chain does not open for writing,
    nor does one that does not go together with its head file. A ledger of release 0.1 has no head
    file: it gets one when it is first opened for writing, and then must have it.

    Parameters
    ----------
    path : str, path or None
        The file. None keeps everything in memory.
    readonly : bool, default=False
        Open for looking and verifying only; a broken ledger can be opened this way.
    create : bool, default=False
        Whether to begin a ledger where there is none, with mode 0600. A mistyped path would count
        from zero: sites begin theirs with ``eigenfed ledger create``, once.
    witness : str or path, optional
        The head file; by default, beside the ledger with ``.head`` added to its name. On another
        disk it also shows where ledger and folder are put back together.
    timeout_s : float, default=30.0
        How long to wait for another process that is writing.
    clock : callable, optional
        Gives the time, with its zone.

    Raises
    ------
    Refusal
        With the code ``ledger``, if the file is not there or cannot be read or written.
    Broken
        If its chain is broken, or it does not go together with its head file: a `DataError`.
    DataError
        If the file is another program's, or of another format.

    Examples
    --------
    >>> from eigenfed.privacy.release import Leaves, Release, Reveals
    >>> ledger = Ledger(None)
    >>> ledger.set_budget("cohort", Budget(epsilon=1.0, delta=1e-5))
    >>> key = ReplyKey("cohort", "run 1", 0, "scatter", ask_digest="5d41")
    >>> terms = dict(sensitivity=1.0, sd=5.0, relation="replace_one", mechanism="gaussian")
    >>> ledger.spend(key, 0.2, **terms)
    <Spending.NEW: 'new'>
    >>> release = Release("scatter", "d x d", Leaves.EXACT, Reveals.SCATTER)
    >>> ledger.commit(key, b"noisy", release, {"scatter": (2, 2)}, paid=True)
    b'noisy'
    >>> ledger.totals("cohort").text
    '1 spend comes to mu=0.2, rho=0.02 and epsilon=0.726 at delta=1e-05 under replace_one.'
    >>> ledger.spend(ReplyKey("cohort", "run 2", 0, "scatter", ask_digest="7d79"), 0.2, **terms)
    Traceback (most recent call last):
    ...
    eigenfed.errors.BudgetExceeded: The data set's budget does not allow this spend. ...
    >>> ledger.verify().sound
    True
    """

    def set_budget(self, dataset: str, budget: Budget) -> None:
        """Set the most that may be spent on a data set, over all runs.

        A budget that is in force already is not written again; another one, higher or lower,
        replaces it, and the ledger shows that. Without a budget the ledger adds up what is spent
        and refuses nothing for its cost.
        """
        with self._transaction(write=True) as book:
            if book.budget(dataset) != budget:
                self._append(Budgeted(dataset, budget))

    def budget(self, dataset: str) -> Budget | None:
        """Return the budget in force on a data set."""
        with self._transaction(write=False) as book:
            return book.budget(dataset)

    def spend(
        self,
        key: ReplyKey,
        mu: float,
        *,
        sensitivity: float,
        sd: float,
        relation: str,
        mechanism: str,
    ) -> Spending:
        """Pay for a reply with noise, before it is computed; on disk when this returns.

        Parameters
        ----------
        key : Key
        mu : float
            The reply will be mu-Gaussian-DP.
        sensitivity, sd : float
            In the same units. mu is at least their ratio.
        relation : {"replace_one", "zero_out"}
        mechanism : str

        Returns
        -------
        Spending
            KNOWN if the same spend stands already and its reply was never committed: the reply
            may be computed, and nothing is counted twice.

        Raises
        ------
        Refusal
            With the code ``budget`` if the total would exceed the budget, or ``answered`` if the
            round was used by another ask, on other terms, or has its reply. It is recorded.
        InputError
            If an argument breaks its rule.
        """
        spent = Spent(key, mu, sensitivity, sd, relation, mechanism)
        return self._pay(spent, lambda book: "budget" if book.exceeds(spent) else "")

    def spend_unsound(self, key: ReplyKey, *, mechanism: str, allowed: bool) -> Spending:
        """Let a reply through for which nothing holds, as some mechanisms are published.

        The data set has no guarantee from then on, and no later spend fits a budget.

        Parameters
        ----------
        key : Key
        mechanism : str
        allowed : bool
            What the site's policy says.

        Raises
        ------
        Refusal
            With the code ``no_guarantee`` if it is not allowed, or ``answered`` as in `spend`.
        """
        unsound = Unsound(key, mechanism)
        return self._pay(unsound, lambda _: "" if allowed else "no_guarantee")

    def _pay(self, what: Spent | Unsound, objection: Callable[[Book], str]) -> Spending:
        with self._transaction(write=True) as book:
            slot = book.slot(what.key)
            if _waits_for_reply(slot, what):
                return Spending.KNOWN
            taken = slot is not None and (slot.key != what.key or slot.paid or slot.replied)
            code = "answered" if taken else objection(book)
            if code:
                self._record(Refused(what.key, code), book)
            else:
                self._append(what)
        refuse_with(code)
        return Spending.NEW

    def commit(
        self,
        key: ReplyKey,
        reply: bytes,
        release: Release,
        shapes: Mapping[str, tuple[int, ...]],
        *,
        paid: bool,
        meter: Callable[[bytes | None], bytes] | None = None,
    ) -> bytes:
        """Put a reply on file, with its event and the meter after it: all of them or none.

        Parameters
        ----------
        key : Key
        reply : bytes
        release : Release
            What the operation declares.
        shapes : mapping of str to tuple of int
            Of the reply's arrays.
        paid : bool
            Whether a spend stands for the reply; False for a reply that leaves as it is.
        meter : callable, optional
            Given the data set's meter as bytes (None: there is none yet), returns the one after
            this reply. It runs under the lock, so that no answer of another process is lost, and
            what it raises undoes the commit.

        Returns
        -------
        bytes
            What is to be sent: the reply, or the one that was committed for this key before.

        Raises
        ------
        Refusal
            With the code ``answered``, ``forgotten`` or ``unspent``.
        """
        with self._transaction(write=True) as book:
            slot = book.slot(key)
            if slot is not None and slot.replied is not None and slot.key == key:
                return self._kept(slot)
            code = _objection_to_reply(slot, key, paid)
            if code:
                self._record(Refused(key, code), book)
            else:
                self._keep(key, slot, reply, release, shapes, meter)
        refuse_with(code)
        return reply

    def _keep(
        self,
        key: ReplyKey,
        slot: Slot | None,
        reply: bytes,
        release: Release,
        shapes: Mapping[str, tuple[int, ...]],
        meter: Callable[[bytes | None], bytes] | None,
    ) -> None:
        after = None if meter is None else meter(self._kept_meter(key.dataset))
        if after is not None:
            self._file.keep_meter(key.dataset, after)
        self._file.keep_reply(key.slot, reply)
        payment = slot.paid if slot is not None else None
        self._append(
            Replied(
                key,
                Declared.of(release),
                {name: tuple(map(int, shape)) for name, shape in shapes.items()},
                len(reply),
                digest(reply),
                None if payment is None else payment.number,
                payment.what.mu if payment and isinstance(payment.what, Spent) else None,
                None if after is None else digest(after),
            )
        )

    def reply(self, key: ReplyKey) -> bytes | None:
        """Return the reply that was committed for this key.

        Returns
        -------
        bytes or None
            None if the round is open, or was only paid for.

        Raises
        ------
        Refusal
            With the code ``answered`` if the round was used by another ask, or ``forgotten`` if
            its reply is no longer kept.
        """
        with self._transaction(write=False) as book:
            slot = book.slot(key)
            if slot is not None and slot.key != key:
                raise refusal("answered")
            return None if slot is None or slot.replied is None else self._kept(slot)

    def _kept(self, slot: Slot) -> bytes:
        reply = self._file.reply(slot.key.slot)
        if reply is None:
            raise refusal("forgotten")
        if slot.replied is None or digest(reply) != slot.replied.digest:
            raise DataError("A kept reply was changed in the ledger. Ask in a new round.")
        return reply

    def forget_replies(self, run: str, *, before: int | None = None) -> int:
        """Remove the kept replies of a run, or of its rounds before one; return how many.

        Their events stay, so that those rounds are refused and never answered anew.
        """
        with self._transaction(write=True):
            return self._file.forget_replies(run, before)

    def meter(self, dataset: str) -> bytes | None:
        """Return the leakage meter of a data set, as the last commit left it."""
        with self._transaction(write=False):
            return self._kept_meter(dataset)

    def _kept_meter(self, dataset: str) -> bytes | None:
        meter = self._file.meter(dataset)
        if (None if meter is None else digest(meter)) != self._book.meter(dataset):
            raise DataError("The kept meter was changed. Restore the last copy that verifies.")
        return meter

    def totals(
        self, dataset: str, *, delta: float | None = None, relation: str | None = None
    ) -> Totals:
        """Add up what was spent on a data set, over all runs.

        Parameters
        ----------
        dataset : str
        delta : float, optional
            Where to state epsilon; the budget's by default.
        relation : {"replace_one", "zero_out"}, optional
            What to state it under; the budget's by default, else ``replace_one``.
        """
        check_name("dataset", dataset)
        if delta is not None:
            check_delta(delta)
        with self._transaction(write=False) as book:
            return book.totals(dataset, delta, relation)

    @property
    def datasets(self) -> tuple[str, ...]:
        """The data sets that the ledger knows of."""
        with self._transaction(write=False) as book:
            return book.datasets


def _waits_for_reply(slot: Slot | None, what: Spent | Unsound) -> bool:
    if slot is None or slot.paid is None or slot.replied is not None:
        return False
    return slot.paid.what == what


def _objection_to_reply(slot: Slot | None, key: ReplyKey, paid: bool) -> str:
    if slot is not None and slot.key != key:
        return "answered"
    return "" if paid == (slot is not None and slot.paid is not None) else "unspent"
