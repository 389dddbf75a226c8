"""A site's ledger: the replies that have left, their privacy cost, and the remaining budget.

Each site has one file for all runs and data sets. The gate calls it in this order, and sends only
what `Ledger.commit` or `Ledger.reply` returned::

    ledger.open_run(dataset, run, ...)  once, before any request of a run is answered
    stored = ledger.reply(key)          a repeated request gets the same bytes
    ledger.summed(key, sites)           if the reply goes into a secure aggregation
    ledger.spend(key, mu, ...)          for a reply with noise, before it is computed
    reply = ledger.commit(key, ...)     stores reply, event and meter together, or nothing
    ledger.abort(dataset, run, ...)     if an operation failed after it had read rows

If the process is killed at any moment, the ledger counts at least what has left. A spend without a
reply was never sent, so a retry may draw new noise under the same spend; a committed reply is never
computed again, not even after its bytes were deleted.

The head file (see `witness`) reveals whether a ledger was rolled back to an older copy, replaced or
removed; it is checked on opening and in every call. If so, nothing may leave: every later call of
the object fails, until a person has restored the file and restarted the site.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from itertools import takewhile

from eigenfed.errors import DataError, Refusal
from eigenfed.privacy.dp.accounting import check_delta
from eigenfed.privacy.ledger.entries import Budget, Declared, ReplyKey, check_name, make_refusal
from eigenfed.privacy.ledger.event_log import EventLog
from eigenfed.privacy.ledger.events import Budgeted, Refused, Replied, RunOpened, Spent, Unsound
from eigenfed.privacy.ledger.ledger_interface import SiteLedger, Spending, refuse_with
from eigenfed.privacy.ledger.ledger_state import LedgerState, Slot, Totals
from eigenfed.privacy.ledger.run_memory import RememberedRun
from eigenfed.privacy.ledger.storage import ChainVerdict, digest
from eigenfed.privacy.release import Release

__all__ = ["Budget", "ChainVerdict", "Ledger", "Refusal", "ReplyKey", "Spending", "Totals"]


class Ledger(EventLog, SiteLedger):
    """The append-only record of a site's releases, which decides what may be released.

    It may be used by several threads, and by several processes that each open the file, but not
    across a fork. A ledger with a broken chain, or one that does not match its head file, does not
    open for writing. A ledger of release 0.1 has no head file: one is created when it is first
    opened for writing, and required from then on.

    Parameters
    ----------
    path : str, path or None
        The file. None keeps everything in memory.
    readonly : bool, default=False
        Open for reading and verifying only; a broken ledger can be opened this way.
    create : bool, default=False
        Whether to create a ledger if there is none, with mode 0600. Off by default because a
        mistyped path would start from zero: a site creates its ledger once, with
        ``eigenfed ledger create``.
    witness : str or path, optional
        The head file; by default, beside the ledger with ``.head`` added to its name. On another
        disk, it also reveals whether the ledger's whole folder was rolled back.
    timeout_s : float, default=30.0
        How long to wait for another process that is writing.
    clock : callable, optional
        Returns the current time, with time zone.

    Raises
    ------
    Refusal
        With the code ``ledger``, if the file is missing or cannot be read or written.
    Broken
        If its chain is broken, or it does not match its head file: a `DataError`.
    DataError
        If the file belongs to another program or has another format.

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
    >>> ledger.verify().intact
    True
    """

    def set_budget(self, dataset: str, budget: Budget) -> None:
        """Set the total budget of a data set, over all runs.

        Setting the current budget again records nothing; another one, higher or lower, replaces
        it, and the change is recorded. Without a budget, the ledger composes spends and refuses
        none for its cost.
        """
        with self._transaction(write=True) as state:
            if state.budget(dataset) != budget:
                self._append(Budgeted(dataset, budget))

    def budget(self, dataset: str) -> Budget | None:
        """Return the current budget of a data set."""
        with self._transaction(write=False) as state:
            return state.budget(dataset)

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
        key : ReplyKey
        mu : float
            The reply will be mu-Gaussian-DP.
        sensitivity, sd : float
            In the same units; mu is at least their ratio.
        relation : {"replace_one", "zero_out"}
        mechanism : str

        Returns
        -------
        Spending
            KNOWN if the same spend was recorded before and its reply was never committed: the
            reply may be computed, and nothing is counted twice.

        Raises
        ------
        Refusal
            With the code ``budget`` if the total would exceed the budget, or ``answered`` if the
            round was used by another request, on other terms, or has its reply. It is recorded.
        InputError
            If an argument is invalid.
        """
        spent = Spent(key, mu, sensitivity, sd, relation, mechanism)
        return self._pay(spent, lambda state: "budget" if state.exceeds(spent) else "")

    def spend_unsound(self, key: ReplyKey, *, mechanism: str, allowed: bool) -> Spending:
        """Allow a reply without a privacy guarantee, as some published mechanisms are.

        The data set has no guarantee from then on, and no later spend fits a budget.

        Parameters
        ----------
        key : ReplyKey
        mechanism : str
        allowed : bool
            Whether the site's policy allows it.

        Raises
        ------
        Refusal
            With the code ``no_guarantee`` if it is not allowed, or ``answered`` as in `spend`.
        """
        unsound = Unsound(key, mechanism)
        return self._pay(unsound, lambda _: "" if allowed else "no_guarantee")

    def _pay(self, what: Spent | Unsound, objection: Callable[[LedgerState], str]) -> Spending:
        with self._transaction(write=True) as state:
            slot = state.slot(what.key)
            if _awaits_reply(slot, what):
                return Spending.KNOWN
            taken = slot is not None and (slot.key != what.key or slot.paid or slot.replied)
            code = "answered" if taken else objection(state)
            if code:
                self._record(Refused(what.key, code), state)
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
        request: bytes | None = None,
    ) -> bytes:
        """Store a reply with its event and the meter after it, all of them or none.

        Parameters
        ----------
        key : ReplyKey
        reply : bytes
        release : Release
            What the operation declares.
        shapes : mapping of str to tuple of int
            Shapes of the reply's arrays.
        paid : bool
            Whether the reply has noise that was paid for; False for an exact reply.
        meter : callable, optional
            Takes the data set's meter as bytes (None: there is none yet) and returns the meter
            after this reply. It runs under the lock, so that no reply of another process is lost,
            and an exception in it undoes the commit.
        request : bytes, optional
            The request, remembered until the run ends (see `recall`).

        Returns
        -------
        bytes
            What to send: the reply, or the one that was committed for this key before.

        Raises
        ------
        Refusal
            With the code ``answered``, ``forgotten`` or ``unspent``.
        """
        with self._transaction(write=True) as state:
            slot = state.slot(key)
            if slot is not None and slot.replied is not None and slot.key == key:
                return self._load_reply(slot)
            code = _check_reply(slot, key, paid)
            if code:
                self._record(Refused(key, code), state)
            else:
                self._store(key, slot, reply, release, shapes, meter)
                if request is not None:
                    self._file.memory.add(*key.slot, request)
        refuse_with(code)
        return reply

    def _store(
        self,
        key: ReplyKey,
        slot: Slot | None,
        reply: bytes,
        release: Release,
        shapes: Mapping[str, tuple[int, ...]],
        meter: Callable[[bytes | None], bytes] | None,
    ) -> None:
        after = None if meter is None else meter(self._load_meter(key.dataset))
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
            None if the round was not used, or was only paid for.

        Raises
        ------
        Refusal
            With the code ``answered`` if the round was used by another request, or ``forgotten``
            if its reply is no longer stored.
        """
        with self._transaction(write=False) as state:
            slot = state.slot(key)
            if slot is not None and slot.key != key:
                raise make_refusal("answered")
            return None if slot is None or slot.replied is None else self._load_reply(slot)

    def _load_reply(self, slot: Slot) -> bytes:
        reply = self._file.reply(slot.key.slot)
        if reply is None:
            raise make_refusal("forgotten")
        if slot.replied is None or digest(reply) != slot.replied.digest:
            raise DataError("A stored reply was changed in the ledger. Use a new round.")
        return reply

    def forget_replies(self, run: str, *, before: int | None = None) -> int:
        """Delete the stored replies of a run, or of its rounds before one; return how many.

        Their events stay, so that those rounds are refused and never answered again.
        """
        with self._transaction(write=True):
            return self._file.forget_replies(run, before)

    def meter(self, dataset: str) -> bytes | None:
        """Return the leakage meter of a data set, as the last commit left it."""
        with self._transaction(write=False):
            return self._load_meter(dataset)

    def _load_meter(self, dataset: str) -> bytes | None:
        meter = self._file.meter(dataset)
        if (None if meter is None else digest(meter)) != self._state.meter(dataset):
            raise DataError("The stored meter was changed. Restore the last copy that verifies.")
        return meter

    def _remember(self, dataset: str, run: str, opening: bytes, secret: bytes) -> None:
        self._file.memory.open(dataset, run, opening, secret)

    def recall(self, dataset: str, run: str) -> RememberedRun | None:
        """Return a run that was opened with `remember` and has not ended."""
        with self._transaction(write=False):
            return self._file.memory.find(dataset, run)

    def recall_names(self, dataset: str) -> tuple[str, ...]:
        """Return the names of the runs that `recall` would find."""
        with self._transaction(write=False):
            return self._file.memory.runs(dataset)

    def list_superseded(self, dataset: str, run: str) -> tuple[str, ...]:
        """Return the remembered runs of the study of `run` that were opened before it.

        A coordinator has one run of a study at a time: the earlier ones are not resumed any more.

        Examples
        --------
        >>> ledger = Ledger(None)
        >>> terms = dict(study="5d", coordinator="7d", remember=(b"opening", b"secret"))
        >>> [ledger.open_run("cohort", run, **terms) for run in ("run 1", "run 2")]
        [True, True]
        >>> ledger.list_superseded("cohort", "run 2")
        ('run 1',)
        """
        with self._transaction(write=False) as state:
            opened = state.runs(dataset)
            last = opened.get(run)
            if last is None:
                return ()
            remembered = set(self._file.memory.runs(dataset))
            return tuple(
                earlier
                for earlier in takewhile(lambda name: name != run, opened)
                if earlier in remembered and _has_origin_of(opened[earlier], last)
            )

    def list_idle(self, dataset: str, days: float) -> tuple[str, ...]:
        """Return the remembered runs of which nothing was recorded for so many days."""
        last: dict[str, str] = {}
        for event in self.events:
            run = getattr(getattr(event.what, "key", event.what), "run", None)
            if run is not None:
                last[run] = event.when
        before = self._clock() - timedelta(days=days)
        return tuple(
            run
            for run in self.recall_names(dataset)
            if run in last and datetime.fromisoformat(last[run]) < before
        )

    def forget_run(self, dataset: str, run: str) -> None:
        """Delete what is remembered of a run that has ended, and its stored replies."""
        with self._transaction(write=True):
            self._file.memory.forget(dataset, run)
            self._file.forget_replies(run, None)

    def totals(
        self, dataset: str, *, delta: float | None = None, relation: str | None = None
    ) -> Totals:
        """Return the total privacy loss of a data set, over all runs.

        Parameters
        ----------
        dataset : str
        delta : float, optional
            The delta at which epsilon is stated; by default that of the budget.
        relation : {"replace_one", "zero_out"}, optional
            The neighbouring relation; by default that of the budget, else ``replace_one``.
        """
        check_name("dataset", dataset)
        if delta is not None:
            check_delta(delta)
        with self._transaction(write=False) as state:
            return state.totals(dataset, delta, relation)

    @property
    def datasets(self) -> tuple[str, ...]:
        """The data sets with events in the ledger."""
        with self._transaction(write=False) as state:
            return state.datasets


def _has_origin_of(opened: RunOpened, other: RunOpened) -> bool:
    return (opened.study, opened.coordinator) == (other.study, other.coordinator)


def _awaits_reply(slot: Slot | None, what: Spent | Unsound) -> bool:
    if slot is None or slot.paid is None or slot.replied is not None:
        return False
    return slot.paid.what == what


def _check_reply(slot: Slot | None, key: ReplyKey, paid: bool) -> str:
    """Return the code with which a commit is refused; empty if it is not."""
    if slot is not None and slot.key != key:
        return "answered"
    return "" if paid == (slot is not None and slot.paid is not None) else "unspent"
