"""What a site's gate needs of a ledger, whether it is a file or nothing but memory.

`Ledger` is one, and `NullLedger` stands in at sites without. The rules on runs, refusals and
secure sums are the same for both and are here; what is kept, and where, is theirs.

What stands in for a ledger at a site that has none.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from enum import Enum

from eigenfed.errors import DataError, Refusal
from eigenfed.linalg.checks import check_count
from eigenfed.privacy.ledger.accounts import Book
from eigenfed.privacy.ledger.entries import Budget, ReplyKey, check_name, refusal
from eigenfed.privacy.ledger.events import (
    BEFORE_FIRST,
    Aborted,
    Budgeted,
    Event,
    Refused,
    RefusedMore,
    Released,
    RunOpened,
    Summed,
    What,
)
from eigenfed.privacy.release import Release
from eigenfed.privacy.secagg.differencing import isolated_by

RUNS_ALLOWED = 1000
"""How many runs a data set may take part in, where nothing else is said."""
REFUSALS_RECORDED = 20
"""How many refusals are written down for each run on a data set."""


class Spending(Enum):
    """Whether a spend was written now or stood in the ledger already."""

    NEW = "new"
    KNOWN = "known"


class SiteLedger(ABC):
    """The judge of what may leave a site, and the record of what did."""

    @abstractmethod
    def _transaction(self, *, write: bool) -> AbstractContextManager[Book]:
        """Give the book as it stands, and keep what is added, or nothing."""

    @abstractmethod
    def _append(self, what: What) -> None:
        """Add an event."""

    @abstractmethod
    def set_budget(self, dataset: str, budget: Budget) -> None:
        """Set the most that may be spent on a data set, over all runs."""

    @abstractmethod
    def budget(self, dataset: str) -> Budget | None:
        """Return the budget in force on a data set."""

    @abstractmethod
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
        """Pay for a reply with noise, before it is computed, or refuse."""

    @abstractmethod
    def spend_unsound(self, key: ReplyKey, *, mechanism: str, allowed: bool) -> Spending:
        """Let a reply through for which nothing holds, or refuse."""

    @abstractmethod
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
        """Put a reply on record and return what is to be sent."""

    @abstractmethod
    def reply(self, key: ReplyKey) -> bytes | None:
        """Return the reply that was committed for this key, if it is kept."""

    @abstractmethod
    def forget_replies(self, run: str, *, before: int | None = None) -> int:
        """Remove the kept replies of a run, or of its rounds before one; return how many."""

    @abstractmethod
    def meter(self, dataset: str) -> bytes | None:
        """Return the leakage meter of a data set, as the last commit left it, if it is kept."""

    def refuse(self, key: ReplyKey, code: str) -> None:
        """Record that the site refused an ask for a reason of its own.

        Of each run, the first `REFUSALS_RECORDED` are written down, and then one event that says
        that no more are: whoever is refused must not be able to fill the disk.
        """
        refused = Refused(key, code)
        with self._transaction(write=True) as book:
            self._record(refused, book)

    def _record(self, refused: Refused, book: Book) -> None:
        dataset, run = refused.key.dataset, refused.key.run
        in_run, in_all = book.refusals(dataset, run)
        # Names of runs are the asker's to choose: all of them together have a limit too.
        if in_run > REFUSALS_RECORDED or in_all >= RUNS_ALLOWED * (REFUSALS_RECORDED + 1):
            return
        self._append(refused if in_run < REFUSALS_RECORDED else RefusedMore(dataset, run))

    def summed(self, key: ReplyKey, sites: frozenset[str], *, fewest: int = 3) -> None:
        """Record that the site takes part in a secure sum, before its share leaves.

        Beside the sums of other runs on the data set, a sum over other sites may give a few of
        them away: that is refused. Sums of the same run are not compared, as a site that is lost
        changes them.

        Parameters
        ----------
        key : Key
        sites : frozenset of str
            All sites of the sum.
        fewest : int, default=3
            No combination of the sums may be about fewer sites; 0 sets no limit.

        Raises
        ------
        Refusal
            With the code ``roster`` or ``answered``.
        """
        check_count("fewest", fewest, "Pass 0 to set no limit.", least=0)
        what = Summed(key, sites)
        with self._transaction(write=True) as book:
            slot = book.slot(key)
            if slot is not None and slot.summed == what:
                return
            taken = slot is not None and (slot.key != key or slot.summed or slot.replied)
            others = {past.sites for past in book.sums(key.dataset) if past.key.run != key.run}
            code = "answered" if taken else ""
            if not code and isolated_by(sites, others, fewest):
                code = "roster"
            if code:
                self._record(Refused(key, code), book)
            else:
                self._append(what)
        refuse_with(code)

    def sums(self, dataset: str) -> tuple[Summed, ...]:
        """Return the secure sums that a data set was part of, in order."""
        with self._transaction(write=False) as book:
            return book.sums(dataset)

    def affords(self, dataset: str, mu: float, relation: str) -> bool:
        """Tell whether a data set's budget allows spends that come to `mu` in all.

        Without a budget nothing is too much.
        """
        with self._transaction(write=False) as book:
            return book.affords(dataset, mu, relation)

    def open_run(
        self, dataset: str, run: str, *, study: str, coordinator: str, most: int = RUNS_ALLOWED
    ) -> bool:
        """Begin to take part in a run, before anything of it is answered.

        Parameters
        ----------
        dataset, run : str
        study : str
            Digest of the study.
        coordinator : str
            The coordinator's key, in hexadecimal.
        most : int, default=1000
            How many runs the data set may take part in.

        Returns
        -------
        bool
            True if the run is new, False if it was opened before: the site was restarted.

        Raises
        ------
        Refusal
            With the code ``held`` if the data set is held, ``reopened`` if the run is known with
            another study or coordinator, or ``runs`` if there were as many runs as may be. It is
            not recorded.
        """
        check_count("most", most, "Pass how many runs the data set may take part in.", least=0)
        what = RunOpened(dataset, run, study, coordinator)
        with self._transaction(write=True) as book:
            known = book.runs(dataset).get(run)
            code = _objection_to_run(what, book, most)
            if not code and known is None:
                self._append(what)
        if code:
            raise refusal(code)
        return known is None

    def abort(self, dataset: str, run: str, round_: int, op: str) -> None:
        """Record that a run ended because something failed after rows were touched.

        A run is aborted once; another time changes nothing.
        """
        what = Aborted(dataset, run, round_, op)
        with self._transaction(write=True) as book:
            if not book.is_aborted(dataset, run):
                self._append(what)

    def is_aborted(self, dataset: str, run: str) -> bool:
        """Say whether a run was aborted, released or not."""
        with self._transaction(write=False) as book:
            return book.is_aborted(dataset, run)

    def held(self, dataset: str) -> bool:
        """Say whether a data set waits for a person.

        It does once more than `accounts.ABORTS_ALLOWED` of its runs were aborted since the last
        release: what fails or not after rows were touched may tell of the rows.
        """
        with self._transaction(write=False) as book:
            return book.is_held(dataset)

    def release(self, dataset: str, reason: str) -> tuple[Aborted, ...]:
        """Forgive a data set's aborted runs, so that new ones may begin.

        Parameters
        ----------
        dataset : str
        reason : str
            Why, in the words of the person who looked into it.

        Returns
        -------
        tuple of Aborted
            What was forgiven. Those runs stay ended.

        Raises
        ------
        DataError
            If no run was aborted since the last release.
        """
        check_name("reason", reason)
        what = Released(dataset, reason)
        with self._transaction(write=True) as book:
            forgiven = book.unforgiven(dataset)
            if not forgiven:
                raise DataError(
                    f"No run on the data set {dataset!r} was aborted since it was last released. "
                    "Check its name: eigenfed ledger show lists what there is."
                )
            self._append(what)
        return forgiven


def _objection_to_run(what: RunOpened, book: Book, most: int) -> str:
    runs = book.runs(what.dataset)
    if book.is_held(what.dataset):
        return "held"
    if what.run in runs:
        return "" if runs[what.run] == what else "reopened"
    return "runs" if len(runs) >= most else ""


def refuse_with(code: str) -> None:
    """Refuse with a code that is recorded, unless it is empty."""
    if code:
        raise refusal(code, recorded=True)


_WHY = "Noise is paid for in a ledger, and the site has none."


class NullLedger(SiteLedger):
    """A ledger of nothing but what the rules on runs and secure sums need, in memory.

    Nothing can be spent, so that no reply with noise leaves. Exact replies pass as they are: they
    are not kept, copied or hashed, and neither is the meter, which the site has in memory. Sets of
    sites that were summed over, runs, and how many of them were aborted are remembered while the
    object lives; a data set that is held stays so until the site is started again.

    Examples
    --------
    >>> ledger = NullLedger()
    >>> ledger.open_run("cohort", "run 1", study="9f86", coordinator="d75a")
    True
    >>> key = ReplyKey("cohort", "run 1", 0, "scatter", ask_digest="5d41")
    >>> ledger.spend_unsound(key, mechanism="DPdisPCA", allowed=True)
    Traceback (most recent call last):
    ...
    eigenfed.errors.Refusal: Noise is paid for in a ledger, and the site has none.
    """

    def __init__(self) -> None:
        self._book = Book()
        self._lock = threading.RLock()

    @contextmanager
    def _transaction(self, *, write: bool) -> Iterator[Book]:
        # Every rule adds its one event last: there is nothing to undo.
        with self._lock:
            yield self._book

    def _append(self, what: What) -> None:
        self._book.add(Event(self._book.number + 1, "", what), BEFORE_FIRST)

    def set_budget(self, dataset: str, budget: Budget) -> None:
        """Remember a budget, of which nothing can be spent."""
        with self._transaction(write=True):
            self._append(Budgeted(dataset, budget))

    def budget(self, dataset: str) -> Budget | None:
        """Return the budget that was set."""
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
        """Refuse, with the code ``ledger``."""
        raise Refusal("ledger", _WHY)

    def spend_unsound(self, key: ReplyKey, *, mechanism: str, allowed: bool) -> Spending:
        """Refuse, with the code ``ledger``."""
        raise Refusal("ledger", _WHY)

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
        """Return an exact reply itself; refuse one that should be paid for."""
        if paid:
            raise refusal("unspent")
        return reply

    def reply(self, key: ReplyKey) -> bytes | None:
        """Return None: no reply is kept."""
        return None

    def forget_replies(self, run: str, *, before: int | None = None) -> int:
        """Return 0: no reply is kept."""
        return 0

    def meter(self, dataset: str) -> bytes | None:
        """Return None: no meter is kept."""
        return None
