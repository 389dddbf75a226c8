"""Values in ledger events (reply keys, budgets, declarations), and the texts of refusals."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from eigenfed.errors import Argument, BudgetExceeded, InputError, Refusal
from eigenfed.linalg.checks import check_count
from eigenfed.privacy.dp.accounting import check_delta, check_epsilon, is_number, mu_of
from eigenfed.privacy.dp.sensitivity import RELATIONS
from eigenfed.privacy.release import Release

_LONGEST_NAME = 200
_LAST_ROUND = 2**31 - 1
TEXTS = {
    "budget": "The data set's budget does not allow this spend. Wait for a larger budget, or "
    "request less.",
    "no_guarantee": "The mechanism has no privacy guarantee, and the site's policy requires one. "
    "Use a proven mechanism.",
    "answered": "This round was answered, or paid for, for another request. Use a new round.",
    "forgotten": "This round was answered and its reply is no longer stored. Use a new round.",
    "unspent": "The payment for the reply does not match its declaration. Spend first, and only "
    "for a reply with noise.",
    "roster": "Together with earlier sums, a sum over these sites would reveal a few of them. Use "
    "the sites of an earlier run.",
    "runs": "The data set has taken part in as many runs as the site allows. Raise max_runs in the "
    "site's policy.",
    "reopened": "The run is already open with another study or coordinator. Open a new run.",
    "held": "Too many runs on the data set were aborted, and a person must review them. Then run: "
    "eigenfed ledger release FILE --dataset NAME --reason TEXT.",
}
"""Why a ledger refuses, by code."""


@dataclass(frozen=True)
class ReplyKey:
    """Identifies a request. A site answers each round of a run on a data set once.

    Attributes
    ----------
    dataset : str
        The site's name for the rows.
    run : str
    round_ : int
    op : str
    ask_digest : str
        Digest of the whole request.
    roster_digest : str
        Digest of the participating sites; empty if the request has no roster.

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
        """Data set, run and round: what can be answered only once."""
        return self.dataset, self.run, self.round_


@dataclass(frozen=True)
class Budget:
    """The total privacy budget of a data set, over all runs.

    Attributes
    ----------
    epsilon, delta : float
    relation : {"replace_one", "zero_out"}, default="replace_one"
        The neighbouring relation.

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
    """A release declaration as text, so that recorded events do not depend on the code.

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
        """Convert a declaration to text."""
        return cls(release.kind, release.shape, release.leaves.value, release.reveals.value)


def make_refusal(code: str, *, recorded: bool = False) -> Refusal:
    """Return the exception for a refusal code, with its text.

    Parameters
    ----------
    code : str
        A key of `TEXTS`.
    recorded : bool, default=False
        Whether the ledger has recorded the refusal already.

    Examples
    --------
    >>> raise make_refusal("forgotten")
    Traceback (most recent call last):
    eigenfed.errors.Refusal: This round was answered and its reply is no longer stored. Use a ...
    """
    kind = BudgetExceeded if code == "budget" else Refusal
    return kind(code, TEXTS[code], recorded=recorded)


def check_name(name: str, value: object) -> None:
    """Raise InputError unless the value is a short printable text."""
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_NAME:
        size = f"of {len(value)} characters" if isinstance(value, str) else type(value).__name__
        raise InputError(
            f"{name} is {size} and must be text of 1 to {_LONGEST_NAME} characters. Pass such a "
            "text."
        )
    if not value.isprintable():
        raise InputError(
            Argument(name, value),
            " must contain printable characters only",
            remedy="Remove the others.",
        )


def check_positive(name: str, value: Any) -> None:
    """Raise InputError unless the value is a finite number above 0."""
    if not (is_number(value) and 0.0 < float(value) < math.inf):
        raise InputError(
            Argument(name, value),
            " must be a finite number above 0",
            remedy="Derive it from the noise that is drawn; for a mechanism without a guarantee, "
            "use spend_unsound.",
        )


def check_relation(relation: str) -> None:
    """Raise InputError unless the relation is one that spends are accounted under."""
    if relation not in RELATIONS:
        raise InputError(
            Argument("relation", relation),
            " must be 'replace_one' or 'zero_out'",
            remedy="Pass one of them.",
        )
