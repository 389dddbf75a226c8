"""What a published mechanism claims, and what holds."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from eigenfed.errors import Argument, InputError, Name
from eigenfed.privacy.dp.accounting import check_delta, check_epsilon, epsilon_of
from eigenfed.privacy.dp.sensitivity import of_second_moment

_NEIGHBOURS = {
    "replace_one": "one row replaced",
    "zero_out": "one row taken out, the number of rows public",
    "entry": "one diagonal entry of X'X changed by at most 1",
}


@dataclass(frozen=True)
class Truth:
    """A claim beside what holds.

    Attributes
    ----------
    mechanism : str
    claimed_epsilon, claimed_delta : float
        Of the whole run, as the paper states it.
    true_epsilon : float
        Least epsilon that is proved at the claimed delta; infinite where nothing holds.
    noise_epsilon : float
        The same for the noise alone, were rows bounded by public numbers only.
    relation : {"replace_one", "zero_out", "entry"}
        Between which data sets, as the paper has it.
    holds : bool
        Whether the true epsilon is within the claimed one.
    why : str
        What is behind it, in words.

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
        """The claim, what holds and why, as sentences."""
        found = (
            "nothing holds"
            if math.isinf(self.true_epsilon)
            else f"epsilon {self.true_epsilon:.4g} holds at that delta"
        )
        return (
            f"{self.mechanism} claims epsilon {self.claimed_epsilon:g} at delta "
            f"{self.claimed_delta:g} ({_NEIGHBOURS[self.relation]}); {found}. {self.why}"
        )


PUBLISHED: dict[str, type["Published"]] = {}
"""The published mechanisms by name, as studies name them: each class adds itself."""


@dataclass(frozen=True)
class Published(ABC):
    """Base of the published mechanisms.

    Attributes
    ----------
    epsilon, delta : float
        As the paper's formula takes them.
    clip : float or None
        None prepares rows as the papers do: all are divided by the largest norm among them,
        which tells that norm and is not private. A public number shortens longer rows to it and
        divides by it, so that no row is longer than 1, as the proofs assume.
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
        """The epsilon and delta that the paper claims for the whole run."""
        return self.epsilon, self.delta

    @abstractmethod
    def noise_epsilon(self, rows: Sequence[int], d: int, k: int) -> float:
        """Return the least epsilon that the noise alone gives at the claimed delta."""

    @abstractmethod
    def reason(self, rows: Sequence[int], d: int, k: int) -> str:
        """Return what is behind that epsilon, as a sentence or two."""

    def truth(self, rows: Sequence[int], d: int, *, k: int, center: bool = True) -> Truth:
        """Return what holds for a run.

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
        taken = ["the mean"] * center + ["the largest norm"] * (self.clip is None)
        why = self.reason(rows, d, k)
        if taken:
            why += (
                f" Besides, {' and '.join(taken)} of the rows went into the run without noise: "
                "whatever noise comes later, nothing holds."
            )
        if delta >= 1.0 / sum(rows):
            why += (
                f" A delta of {delta:g} for {sum(rows)} rows would allow one of them to be shown."
            )
        true = math.inf if taken else noise
        return Truth(
            type(self).__name__, epsilon, delta, true, noise, self.relation, true <= epsilon, why
        )


@dataclass(frozen=True)
class CovarianceNoise(Published):
    """Base of the mechanisms that add noise to the second moment of rows of norm 1 at most."""

    @property
    @abstractmethod
    def is_symmetric(self) -> bool:
        """Whether the noise is a symmetric matrix; its entries are independent otherwise."""

    @abstractmethod
    def noise_sd(self, n: int, d: int) -> float:
        """Return the standard deviation of the noise on ``X'X / n``, as printed."""

    def released_rows(self, rows: Sequence[int], d: int) -> int:
        """Return how many rows one release is about."""
        return sum(rows)

    def noise_epsilon(self, rows: Sequence[int], d: int, k: int) -> float:
        """Return the least epsilon of the noise, tight for every d.

        With symmetric noise only the upper triangle counts. Its change is no larger than that of
        the whole matrix, and as large where a row e1 becomes e2. With one feature there is no e2,
        and a row that is replaced changes as much as one taken out.
        """
        n = self.released_rows(rows, d)
        change = of_second_moment(1.0, self.relation if d > 1 else "zero_out")
        return epsilon_of(self.delta, change / (n * self.noise_sd(n, d)))


def check_positive(name: str, value: object, remedy: str) -> None:
    """Refuse what is not a finite number above 0."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0.0 < value < math.inf:
        raise InputError(Argument(name, value), " must be a finite number above 0", remedy=remedy)


def check_one_of(name: str, value: object, known: tuple[str | None, ...]) -> None:
    """Refuse what is not among the known values."""
    if value not in known:
        shown = ", ".join(map(repr, known))
        raise InputError(Argument(name, value), f" must be one of {shown}", remedy="Choose one.")


def root_of_log(argument: float, delta: float) -> float:
    """Return ``sqrt(2 log(argument))`` where the paper's formula has a value."""
    if not argument > 1.0:
        raise InputError(
            Argument("delta", delta),
            " makes the paper's formula take the root of the logarithm of "
            f"{argument:.3g}, which must be above 1",
            remedy=("Lower ", Name("delta"), "."),
        )
    return math.sqrt(2.0 * math.log(argument))


def wanted_rank(rank: int | None, k: int, d: int) -> int:
    """Return the intermediate rank: twice the components by default, and d at most."""
    if rank is None:
        return min(2 * k, d)
    if not k <= rank <= d:
        raise InputError(
            Argument("rank", rank),
            f" must be at least {k}, the number of components, and at most {d}, the number of "
            "features",
            remedy="Pass None for twice the components.",
        )
    return rank
