"""What a ledger's events add up to: the state of every round, and the totals of every data set.

Totals are kept under one relation at a time. Leaving a row out moves no sum further than replacing
it can (see `sensitivity`), so a spend under ``replace_one`` counts as it is under ``zero_out``. The
other way takes two steps, from the row to none and from none to the other row:
by group privacy a ``zero_out`` spend of mu counts as 2 mu under ``replace_one`` (Dong, Roth and
Su, 2019, theorem 2.14). Each is then mu-Gaussian-DP under the same relation, and they compose.
"""

import math
from collections import Counter
from dataclasses import dataclass, field

from eigenfed.privacy.dp.accounting import compose, epsilon_of
from eigenfed.privacy.ledger.entries import Budget, ReplyKey, check_relation
from eigenfed.privacy.ledger.events import (
    BEFORE_FIRST,
    Aborted,
    Budgeted,
    Event,
    Opened,
    Refused,
    RefusedMore,
    Released,
    Replied,
    RunOpened,
    Spent,
    Summed,
    Unsound,
    Upgraded,
)

ABORTS_ALLOWED = 3
"""How many runs on a data set may be aborted before it is held for a person."""
_ROUNDING = 1e-9
_TELLS_NOTHING = {"size", "nothing", "noise"}


@dataclass(frozen=True)
class Totals:
    """What was spent on a data set, over all runs.

    Attributes
    ----------
    relation : {"replace_one", "zero_out"}
        What the figures are under.
    mu : float
        All replies together are mu-Gaussian-DP; infinite without a guarantee.
    epsilon : float or None
        At `delta`, by the tight curve; None where no delta is given.
    delta : float or None
    spends : int
    unsound : int
        Replies let through for which nothing holds; one of them voids the whole.
    budget : Budget or None
    exact : int
        Replies that left without noise and tell of the rows; one of them voids the whole.

    Examples
    --------
    >>> Totals("replace_one", mu=0.5, delta=1e-6, spends=3, unsound=0, budget=None).text
    '3 spends come to mu=0.5, rho=0.125 and epsilon=2.25 at delta=1e-06 under replace_one.'
    """

    relation: str
    mu: float
    delta: float | None
    spends: int
    unsound: int
    budget: Budget | None
    exact: int = 0

    @property
    def epsilon(self) -> float | None:
        """What the total amounts to at delta, by the tight Gaussian curve."""
        return None if self.delta is None else epsilon_of(self.delta, self.mu)

    @property
    def rho(self) -> float:
        """The same total in zero-concentrated privacy, ``mu^2 / 2``."""
        return self.mu**2 / 2

    @property
    def text(self) -> str:
        """The totals as a sentence."""
        if self.exact:
            replies = "1 reply" if self.exact == 1 else f"{self.exact} replies"
            return f"No epsilon holds: exact sums of these rows have left, in {replies}."
        if self.unsound:
            return (
                f"No guarantee: nothing holds for {self.unsound} of "
                f"{self.spends + self.unsound} replies that were paid for."
            )
        at = "" if self.delta is None else f" and epsilon={self.epsilon:.3g} at delta={self.delta}"
        figures = f"mu={self.mu:.4g}, rho={self.rho:.4g}{at}"
        counted = "1 spend comes" if self.spends == 1 else f"{self.spends} spends come"
        return f"{counted} to {figures} under {self.relation}."


@dataclass
class Slot:
    """What happened in one round of a run on a data set."""

    key: ReplyKey
    paid: Event | None = None
    replied: Replied | None = None
    replied_at: int = 0
    summed: Summed | None = None


@dataclass
class _Account:
    spent: list[Spent] = field(default_factory=list)
    unsound: int = 0
    exact: int = 0
    budget: Budget | None = None
    sums: list[Summed] = field(default_factory=list)
    meter: str | None = None
    runs: dict[str, RunOpened] = field(default_factory=dict)
    aborted: set[str] = field(default_factory=set)
    unforgiven: dict[str, Aborted] = field(default_factory=dict)


class Book:
    """The events so far, folded into what the next decision needs.

    Attributes
    ----------
    number : int
        Of the last event.
    head : bytes
        Its hash.
    ledger : str
        The ledger's identity.
    version : int
        Its format.
    may_lack_head : bool
        Whether no head file is there yet: the format has none, or the last event began it.
    """

    def __init__(self) -> None:
        self.number = 0
        self.head = BEFORE_FIRST
        self.ledger = ""
        self.version = 0
        self.may_lack_head = True
        self._refusals: Counter[tuple[str, str]] = Counter()
        self._refused: Counter[str] = Counter()
        self._slots: dict[tuple[str, str, int], Slot] = {}
        self._accounts: dict[str, _Account] = {}

    def add(self, event: Event, hash_: bytes) -> None:
        """Take in the next event."""
        self.number, self.head = event.number, hash_
        what = event.what
        self.may_lack_head = self.version < 2 or isinstance(what, Upgraded)
        match what:
            case Opened():
                self.ledger, self.version = what.ledger, what.version
            case Upgraded():
                self.version = what.version
            case Budgeted():
                self._account(what.dataset).budget = what.budget
            case Spent():
                self._opened(what.key).paid = event
                self._account(what.key.dataset).spent.append(what)
            case Unsound():
                self._opened(what.key).paid = event
                self._account(what.key.dataset).unsound += 1
            case Replied():
                slot = self._opened(what.key)
                slot.replied, slot.replied_at = what, event.number
                account = self._account(what.key.dataset)
                account.meter = what.meter or account.meter
                account.exact += _is_exact(what)
            case Summed():
                self._opened(what.key).summed = what
                self._account(what.key.dataset).sums.append(what)
            case RunOpened():
                self._account(what.dataset).runs[what.run] = what
            case Aborted():
                self._account(what.dataset).aborted.add(what.run)
                self._account(what.dataset).unforgiven[what.run] = what
            case Released():
                self._account(what.dataset).unforgiven = {}
            case Refused():
                self._count_refusal(what.key.dataset, what.key.run)
            case RefusedMore():
                self._count_refusal(what.dataset, what.run)

    def _count_refusal(self, dataset: str, run: str) -> None:
        self._refusals[dataset, run] += 1
        self._refused[dataset] += 1

    def _account(self, dataset: str) -> _Account:
        return self._accounts.setdefault(dataset, _Account())

    def _read(self, dataset: str) -> _Account:
        return self._accounts.get(dataset, _Account())

    def _opened(self, key: ReplyKey) -> Slot:
        return self._slots.setdefault(key.slot, Slot(key))

    def slot(self, key: ReplyKey) -> Slot | None:
        """Return what happened in the key's round, whatever was asked there."""
        return self._slots.get(key.slot)

    @property
    def slots(self) -> tuple[Slot, ...]:
        """All rounds in which something happened."""
        return tuple(self._slots.values())

    def budget(self, dataset: str) -> Budget | None:
        """Return the budget in force."""
        return self._read(dataset).budget

    def sums(self, dataset: str) -> tuple[Summed, ...]:
        """Return the secure sums that the data set was part of."""
        return tuple(self._read(dataset).sums)

    def meter(self, dataset: str) -> str | None:
        """Return SHA-256 of the leakage meter that belongs to the data set."""
        return self._read(dataset).meter

    def refusals(self, dataset: str, run: str) -> tuple[int, int]:
        """Return how many events tell of refusals, in the run and on the data set."""
        return self._refusals[dataset, run], self._refused[dataset]

    def runs(self, dataset: str) -> dict[str, RunOpened]:
        """Return the runs that were opened on the data set."""
        return self._read(dataset).runs

    def is_aborted(self, dataset: str, run: str) -> bool:
        """Say whether the run was aborted."""
        return run in self._read(dataset).aborted

    def unforgiven(self, dataset: str) -> tuple[Aborted, ...]:
        """Return how each run was aborted since the last release."""
        return tuple(self._read(dataset).unforgiven.values())

    def is_held(self, dataset: str) -> bool:
        """Say whether more runs were aborted since the last release than are allowed."""
        return len(self.unforgiven(dataset)) > ABORTS_ALLOWED

    @property
    def datasets(self) -> tuple[str, ...]:
        """The data sets that events are about, in the order of their first."""
        return tuple(self._accounts)

    def totals(self, dataset: str, delta: float | None, relation: str | None) -> Totals:
        """Add up a data set's spends; delta and relation are the budget's where not given."""
        account = self._read(dataset)
        if account.budget is not None:
            delta = account.budget.delta if delta is None else delta
            relation = account.budget.relation if relation is None else relation
        relation = relation or "replace_one"
        check_relation(relation)
        mu = compose(under(spent, relation) for spent in account.spent)
        mu = math.inf if account.unsound or account.exact else mu
        spends = len(account.spent)
        return Totals(relation, mu, delta, spends, account.unsound, account.budget, account.exact)

    def exceeds(self, spent: Spent) -> bool:
        """Say whether one more spend would exceed its data set's budget.

        A total that is over by rounding, one part in 1e9, is not over.
        """
        budget = self.budget(spent.key.dataset)
        if budget is None:
            return False
        return not self._carries(spent.key.dataset, budget, under(spent, budget.relation))

    def affords(self, dataset: str, mu: float, relation: str) -> bool:
        """Tell whether the budget, if there is one, allows spends that come to `mu` in all."""
        budget = self.budget(dataset)
        if budget is None:
            return True
        return self._carries(dataset, budget, mu_under(mu, relation, budget.relation))

    def _carries(self, dataset: str, budget: Budget, mu: float) -> bool:
        total = self.totals(dataset, None, None).mu
        return compose([total, mu]) <= budget.mu * (1.0 + _ROUNDING)


def _is_exact(replied: Replied) -> bool:
    return replied.spend is None and replied.release.reveals not in _TELLS_NOTHING


def under(spent: Spent, relation: str) -> float:
    """Return the mu of a spend under a relation, its own or the other.

    Examples
    --------
    >>> key = ReplyKey("cohort", "run 1", 0, "scatter", ask_digest="5d41")
    >>> spent = Spent(key, 0.5, 1.0, 2.0, "zero_out", "gaussian")
    >>> under(spent, "zero_out"), under(spent, "replace_one")
    (0.5, 1.0)
    """
    return mu_under(spent.mu, spent.relation, relation)


def mu_under(mu: float, spent: str, relation: str) -> float:
    """Return the mu of a spend under `spent` as it counts under a relation."""
    return (2 if (spent, relation) == ("zero_out", "replace_one") else 1) * mu
