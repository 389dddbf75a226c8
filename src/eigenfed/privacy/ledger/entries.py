"""What a ledger's entries are about: one ask, a budget, a declaration; and how it says no."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from eigenfed.errors import Argument, BudgetExceeded, InputError, Refusal
from eigenfed.linalg.checks import check_count
from eigenfed.privacy.dp.accounting import check_delta, check_epsilon, mu_of
from eigenfed.privacy.dp.sensitivity import RELATIONS
from eigenfed.privacy.release import Release

_LONGEST_NAME = 200
_LAST_ROUND = 2**31 - 1
TEXTS = {
    "budget": "The data set's budget does not allow this spend. Wait for a larger budget, or ask "
    "for less.",
    "no_guarantee": "Nothing holds for this mechanism, and the site's policy does not allow that. "
    "Use a sound one.",
    "answered": "This round was answered, or paid for, with another ask. Ask in a new round.",
    "forgotten": "This round was answered and its reply is no longer kept. Ask in a new round.",
    "unspent": "What pays for the reply is not what its declaration says. Spend first, and only "
    "for a reply with noise.",
    "roster": "A sum over these sites would give a few of them away beside earlier sums. Run "
    "with the sites of an earlier run.",
    "runs": "The data set has taken part in as many runs as the site allows. Ask the people there.",
    "reopened": "The run is known with another study or coordinator. Open a new run.",
    "held": "Too many runs on the data set were aborted, and a person must look into it. Then: "
    "eigenfed ledger release FILE --dataset NAME --reason TEXT.",
}


@dataclass(frozen=True)
class ReplyKey:
    """Which ask an entry belongs to. A site answers a round of a run on a data set once.

    Attributes
    ----------
    dataset : str
        The site's name for the rows.
    run : str
    round_ : int
    op : str
    ask_digest : str
        Of all that was asked.
    roster_digest : str
        Of the sites that take part; empty where the ask names none.

    Examples
    --------
    >>> ReplyKey("cohort", "run 1", 0, "scatter", ask_digest="5d41").slot
    ('cohort', 'run 1', 0)
    """

    dataset: str
    run: str
    round_: int
    op: str
    ask_digest: str
    roster_digest: str = ""

    def __post_init__(self) -> None:
        for name in ("dataset", "run", "op", "ask_digest"):
            check_name(name, getattr(self, name))
        if self.roster_digest != "":
            check_name("roster_digest", self.roster_digest)
        check_count("round_", self.round_, "Count rounds from 0.", least=0)
        if self.round_ > _LAST_ROUND:
            raise InputError(
                Argument("round_", self.round_),
                f" must be at most {_LAST_ROUND}",
                remedy="Count rounds from 0.",
            )

    @property
    def slot(self) -> tuple[str, str, int]:
        """What can be answered once: data set, run and round."""
        return self.dataset, self.run, self.round_


@dataclass(frozen=True)
class Budget:
    """The most that may be spent on a data set, over all runs.

    Attributes
    ----------
    epsilon, delta : float
    relation : {"replace_one", "zero_out"}, default="replace_one"
        Which data sets must be hard to tell apart.

    Examples
    --------
    >>> round(Budget(epsilon=1.0, delta=1e-5).mu, 4)
    0.2681
    """

    epsilon: float
    delta: float
    relation: str = "replace_one"

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        check_relation(self.relation)
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "delta", float(self.delta))
        _ = self.mu

    @cached_property
    def mu(self) -> float:
        """The total mu that is (epsilon, delta)-DP."""
        return mu_of(self.epsilon, self.delta)


@dataclass(frozen=True)
class Declared:
    """A reply's declaration as text, which outlives changes of the code.

    Examples
    --------
    >>> from eigenfed.privacy.release import Leaves, Reveals
    >>> Declared.of(Release("totals", "d", Leaves.EXACT, Reveals.MEANS)).leaves
    'exact'
    """

    kind: str
    shape: str
    leaves: str
    reveals: str

    def __post_init__(self) -> None:
        for name in ("kind", "shape", "leaves", "reveals"):
            check_name(name, getattr(self, name))

    @classmethod
    def of(cls, release: Release) -> "Declared":
        """Write a declaration down."""
        return cls(release.kind, release.shape, release.leaves.value, release.reveals.value)


def refusal(code: str, *, recorded: bool = False) -> Refusal:
    """Make the refusal of a ledger, with what its code means.

    Parameters
    ----------
    code : str
        One of those of `TEXTS`.
    recorded : bool, default=False
        Whether the ledger has written it down already.

    Examples
    --------
    >>> raise refusal("forgotten")
    Traceback (most recent call last):
    eigenfed.errors.Refusal: This round was answered and its reply is no longer kept. Ask in ...
    """
    kind = BudgetExceeded if code == "budget" else Refusal
    return kind(code, TEXTS[code], recorded=recorded)


def check_name(name: str, value: object) -> None:
    """Refuse what is not a short text that can be shown as it is."""
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_NAME:
        size = f"of {len(value)} characters" if isinstance(value, str) else type(value).__name__
        raise InputError(
            f"{name} is {size} and must be text of 1 to {_LONGEST_NAME} characters. Shorten it, "
            "or name what it is about."
        )
    if not value.isprintable():
        raise InputError(
            Argument(name, value),
            " must hold printable characters only",
            remedy="Take the others out.",
        )


def check_positive(name: str, value: Any) -> None:
    """Refuse what is not a finite number above 0."""
    real = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (real and 0.0 < float(value) < math.inf):
        raise InputError(
            Argument(name, value),
            " must be a finite number above 0",
            remedy="Take it from the noise that is drawn; what has no guarantee goes through "
            "spend_unsound.",
        )


def check_relation(relation: str) -> None:
    """Refuse a relation that nothing is accounted under."""
    if relation not in RELATIONS:
        raise InputError(
            Argument("relation", relation),
            " must be 'replace_one' or 'zero_out'",
            remedy="Pass one of them.",
        )
