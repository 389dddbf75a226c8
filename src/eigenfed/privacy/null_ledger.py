"""What stands in for a ledger at a site that has none."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from eigenfed.errors import Refusal
from eigenfed.privacy.accounts import Book
from eigenfed.privacy.events import BEFORE_FIRST, Budgeted, Event, What
from eigenfed.privacy.keys import Budget, Key, refusal
from eigenfed.privacy.release import Release
from eigenfed.privacy.site_ledger import SiteLedger, Spending

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
    >>> key = Key("cohort", "run 1", 0, "scatter", ask_digest="5d41")
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
        key: Key,
        mu: float,
        *,
        sensitivity: float,
        sd: float,
        relation: str,
        mechanism: str,
    ) -> Spending:
        """Refuse, with the code ``ledger``."""
        raise Refusal("ledger", _WHY)

    def spend_unsound(self, key: Key, *, mechanism: str, allowed: bool) -> Spending:
        """Refuse, with the code ``ledger``."""
        raise Refusal("ledger", _WHY)

    def commit(
        self,
        key: Key,
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

    def reply(self, key: Key) -> bytes | None:
        """Return None: no reply is kept."""
        return None

    def forget_replies(self, run: str, *, before: int | None = None) -> int:
        """Return 0: no reply is kept."""
        return 0

    def meter(self, dataset: str) -> bytes | None:
        """Return None: no meter is kept."""
        return None
