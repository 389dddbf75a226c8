"""The state that follows from a ledger's events: every round, and the totals of every data set.

Totals are stated under one neighbouring relation. Leaving a row out changes no sum by more than
replacing it can (see `sensitivity`), so a spend under ``replace_one`` counts unchanged under
``zero_out``. The converse takes two steps, from the row to none and from none to the other row: by
group privacy a ``zero_out`` spend of mu counts as 2 mu under ``replace_one`` (Dong, Roth and Su,
2019, theorem 2.14). All spends are then mu-Gaussian-DP under the same relation, and they compose.
"""

import math
from collections import Counter
from dataclasses import dataclass, field

from eigenfed.privacy.dp.accounting import compose, epsilon_of, format_loss
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
    Summarised,
    Summed,
    Unsound,
    Upgraded,
)

ABORTS_ALLOWED = 3
"""Number of aborted runs on a data set after which one more puts it on hold for review."""
_ROUNDING = 1e-9
_NOT_EXACT = {"size", "nothing", "noise"}


@dataclass(frozen=True)
class Totals:
    """The total privacy loss of a data set, over all runs.

    Attributes
    ----------
    relation : {"replace_one", "zero_out"}
        The neighbouring relation of the totals.
    mu : float
        All replies together are mu-Gaussian-DP; infinite without a guarantee.
    epsilon : float or None
        At `delta`, by the tight curve; None if no delta is given.
    delta : float or None
    spends : int
        Number of replies with noise.
    unsound : int
        Number of replies by a mechanism without a guarantee; one of them voids the total.
    budget : Budget or None
    exact : int
        Number of replies without noise that depend on the rows; one of them voids the total.

    Examples
    --------
    >>> Totals("replace_one", mu=0.5, delta=1e-6, spends=3, unsound=0, budget=None).text
    '3 spends come to mu=0.5, rho=0.125 and epsilon=2.26 at delta=1e-06 under replace_one.'
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
        """Epsilon of the total at delta, by the tight Gaussian curve."""
        return None if self.delta is None else epsilon_of(self.delta, self.mu)

    @property
    def rho(self) -> float:
        """The total in zero-concentrated differential privacy, ``mu^2 / 2``."""
        return self.mu**2 / 2

    @property
    def text(self) -> str:
        """The totals as a sentence."""
        if self.exact:
            replies = "1 reply" if self.exact == 1 else f"{self.exact} replies"
            return f"No epsilon holds: exact sums of these rows have left, in {replies}."
        if self.unsound:
            return (
                f"No epsilon holds: {self.unsound} of {self.spends + self.unsound} replies came "
                "from a mechanism without a guarantee."
            )
        at = ""
        if self.epsilon is not None:
            at = f" and epsilon={format_loss(self.epsilon)} at delta={self.delta}"
        figures = f"mu={format_loss(self.mu, 4)}, rho={format_loss(self.rho, 4)}{at}"
        spends = "1 spend comes" if self.spends == 1 else f"{self.spends} spends come"
        return f"{spends} to {figures} under {self.relation}."


@dataclass
class Slot:
    """One round of a run on a data set: what was charged, replied and summed."""

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
    summaries: list[Summarised] = field(default_factory=list)


class LedgerState:
    """The state of a ledger after its events so far.

    Attributes
    ----------
    number : int
        Number of the last event.
    head : bytes
        Hash of the last event.
    ledger : str
        The ledger's identity.
    version : int
        The ledger's format.
    may_lack_head : bool
        Whether there may be no head file yet: format 1 has none, and an upgrade writes it last.
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
        """Update the state with the next event."""
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
                self._slot_of(what.key).paid = event
                self._account(what.key.dataset).spent.append(what)
            case Unsound():
                self._slot_of(what.key).paid = event
                self._account(what.key.dataset).unsound += 1
            case Replied():
                slot = self._slot_of(what.key)
                slot.replied, slot.replied_at = what, event.number
                account = self._account(what.key.dataset)
                account.meter = what.meter or account.meter
                account.exact += _is_exact(what)
            case Summed():
                self._slot_of(what.key).summed = what
                self._account(what.key.dataset).sums.append(what)
            case RunOpened():
                self._account(what.dataset).runs[what.run] = what
            case Aborted():
                self._account(what.dataset).aborted.add(what.run)
                self._account(what.dataset).unforgiven[what.run] = what
            case Released():
                self._account(what.dataset).unforgiven = {}
            case Summarised():
                self._account(what.dataset).summaries.append(what)
            case Refused():
                self._count_refusal(what.key.dataset, what.key.run)
            case RefusedMore():
                self._count_refusal(what.dataset, what.run)

    def _count_refusal(self, dataset: str, run: str) -> None:
        self._refusals[dataset, run] += 1
        self._refused[dataset] += 1

    def _account(self, dataset: str) -> _Account:
        return self._accounts.setdefault(dataset, _Account())

    def _existing(self, dataset: str) -> _Account:
        return self._accounts.get(dataset, _Account())

    def _slot_of(self, key: ReplyKey) -> Slot:
        return self._slots.setdefault(key.slot, Slot(key))

    def slot(self, key: ReplyKey) -> Slot | None:
        """Return what happened in the key's round, whatever its request was."""
        return self._slots.get(key.slot)

    @property
    def slots(self) -> tuple[Slot, ...]:
        """All rounds with an event."""
        return tuple(self._slots.values())

    def budget(self, dataset: str) -> Budget | None:
        """Return the budget in force."""
        return self._existing(dataset).budget

    def sums(self, dataset: str) -> tuple[Summed, ...]:
        """Return the secure aggregations that the data set was part of."""
        return tuple(self._existing(dataset).sums)

    def meter(self, dataset: str) -> str | None:
        """Return the SHA-256 of the data set's leakage meter."""
        return self._existing(dataset).meter

    def summaries(self, dataset: str) -> tuple[Summarised, ...]:
        """Return the summaries of a stream that were chosen to leave, in order."""
        return tuple(self._existing(dataset).summaries)

    def refusals(self, dataset: str, run: str) -> tuple[int, int]:
        """Return the number of recorded refusals, in the run and on the data set."""
        return self._refusals[dataset, run], self._refused[dataset]

    def runs(self, dataset: str) -> dict[str, RunOpened]:
        """Return the runs that were opened on the data set, by name."""
        return self._existing(dataset).runs

    def is_aborted(self, dataset: str, run: str) -> bool:
        """Return whether the run was aborted."""
        return run in self._existing(dataset).aborted

    def unforgiven(self, dataset: str) -> tuple[Aborted, ...]:
        """Return the aborted runs since the hold was last released."""
        return tuple(self._existing(dataset).unforgiven.values())

    def is_held(self, dataset: str) -> bool:
        """Return whether the data set is on hold: too many aborted runs since the last release."""
        return len(self.unforgiven(dataset)) > ABORTS_ALLOWED

    @property
    def datasets(self) -> tuple[str, ...]:
        """The data sets with events, in the order of their first event."""
        return tuple(self._accounts)

    def totals(self, dataset: str, delta: float | None, relation: str | None) -> Totals:
        """Compose a data set's spends; delta and relation default to those of its budget."""
        account = self._existing(dataset)
        if account.budget is not None:
            delta = account.budget.delta if delta is None else delta
            relation = account.budget.relation if relation is None else relation
        relation = relation or "replace_one"
        check_relation(relation)
        mu = compose(spent_mu(spent, relation) for spent in account.spent)
        mu = math.inf if account.unsound or account.exact else mu
        spends = len(account.spent)
        return Totals(relation, mu, delta, spends, account.unsound, account.budget, account.exact)

    def exceeds(self, spent: Spent) -> bool:
        """Return whether one more spend would exceed its data set's budget.

        An excess of one part in 1e9 is taken for rounding and allowed.
        """
        budget = self.budget(spent.key.dataset)
        if budget is None:
            return False
        return not self._fits(spent.key.dataset, budget, spent_mu(spent, budget.relation))

    def affords(self, dataset: str, mu: float, relation: str) -> bool:
        """Return whether the budget, if there is one, allows spends with a total of `mu`."""
        budget = self.budget(dataset)
        if budget is None:
            return True
        return self._fits(dataset, budget, convert_mu(mu, relation, budget.relation))

    def _fits(self, dataset: str, budget: Budget, mu: float) -> bool:
        total = self.totals(dataset, None, None).mu
        return compose([total, mu]) <= budget.mu * (1.0 + _ROUNDING)


def _is_exact(replied: Replied) -> bool:
    return replied.spend is None and replied.release.reveals not in _NOT_EXACT


def spent_mu(spent: Spent, relation: str) -> float:
    """Return the mu of a spend under a relation, its own or the other one.

    Examples
    --------
    >>> key = ReplyKey("cohort", "run 1", 0, "scatter", ask_digest="5d41")
    >>> spent = Spent(key, 0.5, 1.0, 2.0, "zero_out", "gaussian")
    >>> spent_mu(spent, "zero_out"), spent_mu(spent, "replace_one")
    (0.5, 1.0)
    """
    return convert_mu(spent.mu, spent.relation, relation)


def convert_mu(mu: float, from_relation: str, relation: str) -> float:
    """Convert a mu that holds under one relation to another."""
    return (2 if (from_relation, relation) == ("zero_out", "replace_one") else 1) * mu
