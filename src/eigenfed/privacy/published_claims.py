"""Published mechanisms: the privacy that a paper claims, and the privacy that is proven.

`Published` is the base class of the mechanisms in `eigenfed.protocol.published`, which run as
printed; `Truth` sets a paper's claim beside the guarantee that holds.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from eigenfed.errors import Argument, InputError, Name
from eigenfed.privacy.dp.accounting import check_delta, check_epsilon, epsilon_of
from eigenfed.privacy.dp.sensitivity import second_moment_sensitivity

_NEIGHBOURS = {
    "replace_one": "one row replaced",
    "zero_out": "one row removed, the number of rows public",
    "entry": "one diagonal entry of X'X changed by at most 1",
}


@dataclass(frozen=True)
class Truth:
    """A paper's claim and the guarantee that holds.

    Attributes
    ----------
    mechanism : str
    claimed_epsilon, claimed_delta : float
        The paper's claim for the whole run.
    true_epsilon : float
        Least epsilon proven at the claimed delta; infinite if there is no guarantee.
    noise_epsilon : float
        The same for the noise alone, if rows were bounded by public numbers only.
    relation : {"replace_one", "zero_out", "entry"}
        The paper's neighbouring relation.
    holds : bool
        Whether the true epsilon is at most the claimed one.
    why : str
        The reason, in sentences.

    Examples
    --------
    >>> from eigenfed.protocol.published import DPdisPCA
    >>> truth = DPdisPCA(2.0, 1e-5, clip=1.0).truth([500, 500], 20, k=3, center=False)
    >>> truth.holds, round(truth.true_epsilon, 3)
    (False, 2.371)
    """

    mechanism: str
    claimed_epsilon: float
    claimed_delta: float
    true_epsilon: float
    noise_epsilon: float
    relation: str
    holds: bool
    why: str

    @property
    def text(self) -> str:
        """The claim, the guarantee that holds and the reason, in sentences."""
        proven = (
            "no guarantee holds"
            if math.isinf(self.true_epsilon)
            else f"epsilon {self.true_epsilon:.4g} holds at that delta"
        )
        return (
            f"{self.mechanism} claims epsilon {self.claimed_epsilon:g} at delta "
            f"{self.claimed_delta:g} (neighbours: {_NEIGHBOURS[self.relation]}); {proven}. "
            f"{self.why}"
        )


PUBLISHED: dict[str, type["Published"]] = {}
"""The published mechanisms by the name used in study files; each class registers itself."""


@dataclass(frozen=True)
class Published(ABC):
    """Base class of the published mechanisms.

    Attributes
    ----------
    epsilon, delta : float
        Arguments of the paper's formula.
    clip : float or None
        None scales rows as the papers do, by the largest norm among them, which reveals that norm
        and is not private. A public number clips rows to that norm and divides by it, so that no
        norm exceeds 1, as the proofs assume.
    """

    epsilon: float
    delta: float
    _: KW_ONLY
    clip: float | None = None

    relation: ClassVar[str] = "replace_one"

    def __init_subclass__(cls) -> None:
        PUBLISHED[cls.__name__] = cls

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        if self.clip is not None:
            check_positive("clip", self.clip, "Pass None to divide by the largest norm.")

    @property
    def claim(self) -> tuple[float, float]:
        """Epsilon and delta that the paper claims for the whole run."""
        return self.epsilon, self.delta

    @abstractmethod
    def noise_epsilon(self, rows: Sequence[int], d: int, k: int) -> float:
        """Return the least epsilon of the noise alone at the claimed delta."""

    @abstractmethod
    def reason(self, rows: Sequence[int], d: int, k: int) -> str:
        """Return the reason for that epsilon, in one or two sentences."""

    def truth(self, rows: Sequence[int], d: int, *, k: int, center: bool = True) -> Truth:
        """Return the guarantee that holds for a run, beside the paper's claim.

        Parameters
        ----------
        rows : sequence of int
            Number of rows of each site.
        d : int
            Number of features.
        k : int
            Number of components.
        center : bool, default=True
            Whether the mean of all rows is subtracted, which is not private.

        Returns
        -------
        Truth
        """
        epsilon, delta = self.claim
        noise = self.noise_epsilon(rows, d, k)
        exact = ["the mean"] * center + ["the largest norm"] * (self.clip is None)
        why = self.reason(rows, d, k)
        if exact:
            why += (
                f" In addition, the run uses {' and '.join(exact)} of the rows without noise, so "
                "there is no guarantee, whatever noise is added later."
            )
        if delta >= 1.0 / sum(rows):
            why += f" A delta of {delta:g} for {sum(rows)} rows permits publishing one of them."
        true = math.inf if exact else noise
        return Truth(
            type(self).__name__, epsilon, delta, true, noise, self.relation, true <= epsilon, why
        )


@dataclass(frozen=True)
class CovarianceNoise(Published):
    """Base class of mechanisms that add noise to the second moment of rows of norm at most 1."""

    @property
    @abstractmethod
    def is_symmetric(self) -> bool:
        """Whether the noise matrix is symmetric; otherwise its entries are independent."""

    @abstractmethod
    def noise_sd(self, n: int, d: int) -> float:
        """Return the standard deviation of the noise on ``X'X / n``, as published."""

    def released_rows(self, rows: Sequence[int], d: int) -> int:
        """Return the number of rows that one release covers."""
        return sum(rows)

    def noise_epsilon(self, rows: Sequence[int], d: int, k: int) -> float:
        """Return the least epsilon of the noise, tight for every d.

        With symmetric noise only the upper triangle counts. Its change is at most that of the
        whole matrix, with equality if a row e1 becomes e2. With one feature there is no e2, and
        replacing a row changes the moment as much as removing one.
        """
        n = self.released_rows(rows, d)
        sensitivity = second_moment_sensitivity(1.0, self.relation if d > 1 else "zero_out")
        return epsilon_of(self.delta, sensitivity / (n * self.noise_sd(n, d)))


def check_positive(name: str, value: object, remedy: str) -> None:
    """Raise InputError unless the value is a finite number above 0."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0.0 < value < math.inf:
        raise InputError(Argument(name, value), " must be a finite number above 0", remedy=remedy)


def check_one_of(name: str, value: object, known: tuple[str | None, ...]) -> None:
    """Raise InputError unless the value is one of the known ones."""
    if value not in known:
        shown = ", ".join(map(repr, known))
        raise InputError(Argument(name, value), f" must be one of {shown}", remedy="Choose one.")


def root_of_log(argument: float, delta: float) -> float:
    """Return ``sqrt(2 log(argument))``, refusing a delta for which the formula has no value."""
    if not argument > 1.0:
        raise InputError(
            Argument("delta", delta),
            " makes the paper's formula take the square root of the logarithm of "
            f"{argument:.3g}, which must be above 1",
            remedy=("Lower ", Name("delta"), "."),
        )
    return math.sqrt(2.0 * math.log(argument))


def choose_rank(rank: int | None, k: int, d: int) -> int:
    """Return the intermediate rank: by default twice the number of components, at most d."""
    if rank is None:
        return min(2 * k, d)
    if not k <= rank <= d:
        raise InputError(
            Argument("rank", rank),
            f" must be at least {k}, the number of components, and at most {d}, the number of "
            "features",
            remedy="Pass None for twice the number of components.",
        )
    return rank
