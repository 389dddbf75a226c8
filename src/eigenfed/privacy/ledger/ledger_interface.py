"""The ledger interface that a site's gate uses, and `NullLedger` for sites without a ledger.

`SiteLedger` has the rules on runs, refusals and secure aggregation, which all ledgers share.
`Ledger` keeps its events in a file; `NullLedger` keeps in memory what those rules need.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from enum import Enum

from eigenfed.errors import DataError, Refusal
from eigenfed.linalg.checks import check_count
from eigenfed.privacy.ledger.entries import Budget, ReplyKey, check_name, make_refusal
from eigenfed.privacy.ledger.events import (
    BEFORE_FIRST,
    Aborted,
    Budgeted,
    Event,
    Refused,
    RefusedMore,
    Released,
    RunOpened,
    Summarised,
    Summed,
    What,
)
from eigenfed.privacy.ledger.ledger_state import LedgerState
from eigenfed.privacy.ledger.run_memory import RememberedRun
from eigenfed.privacy.release import Release
from eigenfed.privacy.secagg.differencing import find_isolated_groups

RUNS_ALLOWED = 1000
"""Default limit on the number of runs on a data set."""
REFUSALS_RECORDED = 20
"""Number of refusals that are recorded for each run on a data set."""


class Spending(Enum):
    """Whether a spend was recorded now or had been recorded before."""

    NEW = "new"
    KNOWN = "known"


class SiteLedger(ABC):
    """Decides what may leave a site, and records what has left."""

    @abstractmethod
    def _transaction(self, *, write: bool) -> AbstractContextManager[LedgerState]:
        """Yield the current state; keep all appended events, or none if an error is raised."""

    @abstractmethod
    def _append(self, what: What) -> None:
        """Append an event."""

    @abstractmethod
    def set_budget(self, dataset: str, budget: Budget) -> None:
        """Set the total budget of a data set, over all runs."""

    @abstractmethod
    def budget(self, dataset: str) -> Budget | None:
        """Return the current budget of a data set."""

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
        """Allow a reply without a privacy guarantee, or refuse."""

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
        request: bytes | None = None,
    ) -> bytes:
        """Record a reply, remember its request if it is given, and return what to send."""

    @abstractmethod
    def reply(self, key: ReplyKey) -> bytes | None:
        """Return the reply that was committed for this key, if it is stored."""

    @abstractmethod
    def forget_replies(self, run: str, *, before: int | None = None) -> int:
        """Delete the stored replies of a run, or of its rounds before one; return how many."""

    @abstractmethod
    def meter(self, dataset: str) -> bytes | None:
        """Return the leakage meter of a data set as of the last commit, if it is stored."""

    @abstractmethod
    def _remember(self, dataset: str, run: str, opening: bytes, secret: bytes) -> None:
        """Remember, inside a transaction, how a run was opened."""

    @abstractmethod
    def recall(self, dataset: str, run: str) -> RememberedRun | None:
        """Return a run that was opened with `remember` and has not ended."""

    @abstractmethod
    def recall_names(self, dataset: str) -> tuple[str, ...]:
        """Return the names of the runs that `recall` would find."""

    @abstractmethod
    def forget_run(self, dataset: str, run: str) -> None:
        """Delete what is remembered of a run that has ended, and its stored replies."""

    def refuse(self, key: ReplyKey, code: str) -> None:
        """Record that the site refused a request for a reason outside the ledger.

        The first `REFUSALS_RECORDED` of a run are recorded, then one event that no more are: a
        refused coordinator must not be able to fill the disk.
        """
        refused = Refused(key, code)
        with self._transaction(write=True) as state:
            self._record(refused, state)

    def _record(self, refused: Refused, state: LedgerState) -> None:
        dataset, run = refused.key.dataset, refused.key.run
        in_run, in_all = state.refusals(dataset, run)
        # The coordinator chooses the names of runs, so there is a limit over all of them too.
        if in_run > REFUSALS_RECORDED or in_all >= RUNS_ALLOWED * (REFUSALS_RECORDED + 1):
            return
        self._append(refused if in_run < REFUSALS_RECORDED else RefusedMore(dataset, run))

    def summed(self, key: ReplyKey, sites: frozenset[str], *, fewest: int = 3) -> None:
        """Record that the site takes part in a secure aggregation, before its reply leaves.

        Sums over different rosters can be combined into a sum over a few sites only (see
        `differencing`): that is refused. Sums within one run are not compared, because their
        rosters differ when a site drops out.

        Parameters
        ----------
        key : ReplyKey
        sites : frozenset of str
            All sites of the sum.
        fewest : int, default=3
            Least number of sites that a combination of sums may cover; 0 sets no limit.

        Raises
        ------
        Refusal
            With the code ``roster`` or ``answered``.
        """
        check_count("fewest", fewest, "Pass 0 to set no limit.", least=0)
        what = Summed(key, sites)
        with self._transaction(write=True) as state:
            slot = state.slot(key)
            if slot is not None and slot.summed == what:
                return
            taken = slot is not None and (slot.key != key or slot.summed or slot.replied)
            others = {past.sites for past in state.sums(key.dataset) if past.key.run != key.run}
            code = "answered" if taken else ""
            if not code and find_isolated_groups(sites, others, fewest):
                code = "roster"
            if code:
                self._record(Refused(key, code), state)
            else:
                self._append(what)
        refuse_with(code)

    def sums(self, dataset: str) -> tuple[Summed, ...]:
        """Return the secure aggregations that a data set was part of, in order."""
        with self._transaction(write=False) as state:
            return state.sums(dataset)

    def affords(self, dataset: str, mu: float, relation: str) -> bool:
        """Return whether a data set's budget allows spends with a total of `mu`.

        Without a budget any total is allowed.
        """
        with self._transaction(write=False) as state:
            return state.affords(dataset, mu, relation)

    def has_exact(self, dataset: str) -> bool:
        """Return whether exact sums of a data set have left: then no epsilon holds for it."""
        with self._transaction(write=False) as state:
            return state.totals(dataset, None, None).exact > 0

    def open_run(
        self,
        dataset: str,
        run: str,
        *,
        study: str,
        coordinator: str,
        most: int = RUNS_ALLOWED,
        remember: tuple[bytes, bytes] | None = None,
    ) -> bool:
        """Join a run, before any of its requests is answered.

        Parameters
        ----------
        dataset, run : str
        study : str
            Digest of the study.
        coordinator : str
            The coordinator's key, in hexadecimal.
        most : int, default=1000
            Largest number of runs on the data set.
        remember : tuple of bytes, optional
            The opening and a secret, with which the run can go on after a restart.

        Returns
        -------
        bool
            True if the run is new, False if it was opened before: the site was restarted.

        Raises
        ------
        Refusal
            With the code ``held`` if the data set is on hold, ``reopened`` if the run was opened
            with another study or coordinator, or ``runs`` if the limit is reached. It is not
            recorded.
        """
        check_count("most", most, "Pass the largest number of runs on the data set.", least=0)
        what = RunOpened(dataset, run, study, coordinator)
        with self._transaction(write=True) as state:
            known = state.runs(dataset).get(run)
            code = _check_run(what, state, most)
            if not code and known is None:
                self._append(what)
                if remember is not None:
                    self._remember(dataset, run, *remember)
        if code:
            raise make_refusal(code)
        return known is None

    def summarise(self, what: Summarised) -> None:
        """Record which summary of a stream leaves in a run, before it does.

        Recording the same again changes nothing.

        Raises
        ------
        DataError
            If another summary was recorded for the run.
        """
        with self._transaction(write=True) as state:
            known = [found for found in state.summaries(what.dataset) if found.run == what.run]
            if known and known != [what]:
                raise DataError("Another summary was recorded for the run. Begin another run.")
            if not known:
                self._append(what)

    def summaries(self, dataset: str) -> tuple[Summarised, ...]:
        """Return which summaries of a stream have left, or may have, in order."""
        with self._transaction(write=False) as state:
            return state.summaries(dataset)

    def abort(self, dataset: str, run: str, round_: int, op: str) -> None:
        """Record that a run ended because an operation failed after it had read rows.

        Aborting a run again changes nothing.
        """
        what = Aborted(dataset, run, round_, op)
        with self._transaction(write=True) as state:
            if not state.is_aborted(dataset, run):
                self._append(what)

    def is_aborted(self, dataset: str, run: str) -> bool:
        """Return whether a run was aborted, whether or not the hold was released since."""
        with self._transaction(write=False) as state:
            return state.is_aborted(dataset, run)

    def has_sent(self, dataset: str, run: str, round_: int, digest: str) -> bool:
        """Return whether a reply with this SHA-256 was recorded for a round."""
        with self._transaction(write=False) as state:
            slot = state.slot(ReplyKey(dataset, run, round_, "any", "any"))
            return slot is not None and slot.replied is not None and slot.replied.digest == digest

    def held(self, dataset: str) -> bool:
        """Return whether a data set is on hold until a person reviews its aborted runs.

        That is so when more than `ledger_state.ABORTS_ALLOWED` of its runs were aborted since the
        last release: whether an operation fails after it has read rows may depend on the rows, so
        each abort can reveal a bit about them.
        """
        with self._transaction(write=False) as state:
            return state.is_held(dataset)

    def release(self, dataset: str, reason: str) -> tuple[Aborted, ...]:
        """Release the hold on a data set, so that new runs may be opened.

        Parameters
        ----------
        dataset : str
        reason : str
            The reason, in the words of the person who reviewed the aborted runs.

        Returns
        -------
        tuple of Aborted
            The aborted runs that no longer count. They remain aborted.

        Raises
        ------
        DataError
            If no run was aborted since the last release.
        """
        check_name("reason", reason)
        what = Released(dataset, reason)
        with self._transaction(write=True) as state:
            forgiven = state.unforgiven(dataset)
            if not forgiven:
                raise DataError(
                    f"No run on the data set {dataset!r} was aborted since it was last released. "
                    "Check its name: eigenfed ledger show lists the data sets."
                )
            self._append(what)
        return forgiven


def _check_run(what: RunOpened, state: LedgerState, most: int) -> str:
    """Return the code with which a run is refused; empty if it is not."""
    runs = state.runs(what.dataset)
    if state.is_held(what.dataset):
        return "held"
    if what.run in runs:
        return "" if runs[what.run] == what else "reopened"
    return "runs" if len(runs) >= most else ""


def refuse_with(code: str) -> None:
    """Raise the refusal of a code that was recorded; do nothing if the code is empty."""
    if code:
        raise make_refusal(code, recorded=True)


_NO_LEDGER = "Replies with noise must be paid for in a ledger, and the site has none."


class NullLedger(SiteLedger):
    """Stands in for a ledger at a site without one; keeps runs and rosters in memory.

    Nothing can be spent, so no reply with noise leaves. Exact replies pass unchanged: they are not
    stored, copied or hashed, and neither is the meter, which the site has in memory. Rosters of
    secure aggregations, runs and aborted runs are remembered for the lifetime of the object; a
    data set on hold stays so until the site is restarted.

    Examples
    --------
    >>> ledger = NullLedger()
    >>> ledger.open_run("cohort", "run 1", study="9f86", coordinator="d75a")
    True
    >>> key = ReplyKey("cohort", "run 1", 0, "scatter", ask_digest="5d41")
    >>> ledger.spend_unsound(key, mechanism="DPdisPCA", allowed=True)
    Traceback (most recent call last):
    ...
    eigenfed.errors.Refusal: Replies with noise must be paid for in a ledger, and the site has none.
    """

    def __init__(self) -> None:
        self._state = LedgerState()
        self._lock = threading.RLock()

    @contextmanager
    def _transaction(self, *, write: bool) -> Iterator[LedgerState]:
        # Every method appends its one event last, so there is never anything to undo.
        with self._lock:
            yield self._state

    def _append(self, what: What) -> None:
        self._state.add(Event(self._state.number + 1, "", what), BEFORE_FIRST)

    def set_budget(self, dataset: str, budget: Budget) -> None:
        """Remember a budget; nothing can be spent of it."""
        with self._transaction(write=True):
            self._append(Budgeted(dataset, budget))

    def budget(self, dataset: str) -> Budget | None:
        """Return the budget that was set."""
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
        """Refuse, with the code ``ledger``."""
        raise Refusal("ledger", _NO_LEDGER)

    def spend_unsound(self, key: ReplyKey, *, mechanism: str, allowed: bool) -> Spending:
        """Refuse, with the code ``ledger``."""
        raise Refusal("ledger", _NO_LEDGER)

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
        """Return an exact reply unchanged; refuse one that requires payment."""
        if paid:
            raise make_refusal("unspent")
        return reply

    def reply(self, key: ReplyKey) -> bytes | None:
        """Return None: no reply is stored."""
        return None

    def forget_replies(self, run: str, *, before: int | None = None) -> int:
        """Return 0: no reply is stored."""
        return 0

    def meter(self, dataset: str) -> bytes | None:
        """Return None: no meter is stored."""
        return None

    def _remember(self, dataset: str, run: str, opening: bytes, secret: bytes) -> None:
        """Do nothing: after a restart there is no memory."""

    def recall(self, dataset: str, run: str) -> RememberedRun | None:
        """Return None: no run is remembered."""
        return None

    def recall_names(self, dataset: str) -> tuple[str, ...]:
        """Return no name: no run is remembered."""
        return ()

    def forget_run(self, dataset: str, run: str) -> None:
        """Do nothing: no run is remembered."""
