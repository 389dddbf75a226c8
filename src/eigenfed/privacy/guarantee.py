"""The differential privacy of a run: the parameters a user sets, and the statement it ends with.

`Privacy` holds the parameters. `Statement` is the guarantee in numbers and in sentences for a
review board: epsilon and delta, the neighbouring relation, the unit of privacy, which adversary
sees what, and what is not covered.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, replace

from eigenfed.errors import Argument, InputError, Name, Pass, PrivacyError
from eigenfed.privacy.dp.accounting import (
    check_delta,
    check_epsilon,
    epsilon_of,
    is_number,
    mu_of,
)
from eigenfed.privacy.dp.sensitivity import RELATIONS
from eigenfed.privacy.published_claims import Truth

TRUSTS = ("secure_sum", "local", "central")

COUNTS = ("public", "private")

BUDGET_FRACTIONS = {
    "count": 0.02,
    "radius": 0.03,
    "mean": 0.15,
    "clip": 0.02,
    "covariance": 0.75,
    "scree": 0.05,
}
"""Default budget fractions (of mu squared), by what they are spent on: the number of rows, the norm
to which rows are clipped for the mean, the mean, the norm to which centred rows are clipped, the
covariance, and the variances along the components."""


@dataclass(frozen=True)
class Privacy:
    """Parameters of row-level differential privacy.

    Attributes
    ----------
    epsilon, delta : float
        The guarantee for everything that the run releases. `delta` must be below one over the
        number of rows.
    relation : {"replace_one", "zero_out"}
        The neighbouring relation: one row is replaced by another, or left out of every sum. The
        number of rows is public in both.
    clip : float or None
        Norm to which rows are clipped; it must be public, that is, known without the rows. None
        finds one privately, at the expense of the budget.
    trust : {"secure_sum", "local", "central"}
        Where the noise is added. "secure_sum": each site adds a part of it within secure
        aggregation (at least three sites), and nobody sees sums without noise. "local": each site
        adds all of it, and nobody sees anything without noise. "central": the coordinator adds
        it, and sees sums without noise.
    colluders : int
        With "secure_sum", the number of sites that may share all they know with the coordinator
        without loss of privacy; the others add more noise to make up for them. With 0 the
        guarantee is against people outside the study, and `Statement` also has the larger epsilon
        against a site.
    dropouts : int
        With "secure_sum", the number of other sites that may drop out of a sum.
    count : {"public", "private"}
        Whether the number of rows is public or released with noise. A site that selects its rows
        by their content needs "private".
    shares : mapping of str to float or None
        Budget fractions of "count", "radius", "mean", "clip", "covariance" and "scree". A missing
        key keeps its default, and the fraction of a step that a run does not need goes to the
        others.
    mode : {"sound"}
        The papers' own mechanisms are in ``eigenfed.protocol.published``.

    Examples
    --------
    >>> from eigenfed import Privacy
    >>> Privacy(epsilon=1.0, delta=1e-6).relation
    'replace_one'
    """

    epsilon: float
    delta: float
    _: KW_ONLY
    relation: str = "replace_one"
    clip: float | None = None
    trust: str = "secure_sum"
    colluders: int = 0
    dropouts: int = 0
    count: str = "public"
    shares: Mapping[str, float] | None = None
    mode: str = "sound"

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        mu_of(self.epsilon, self.delta)
        _check_choice("relation", self.relation, RELATIONS)
        _check_choice("trust", self.trust, TRUSTS)
        if self.mode != "sound":
            raise InputError(
                Argument("mode", self.mode),
                " must be 'sound'",
                remedy="To run a paper's own mechanism, pass one of eigenfed.protocol.published as "
                "privacy.",
            )
        if self.clip is not None and not (is_number(self.clip) and 0 < self.clip < math.inf):
            raise InputError(
                Argument("clip", self.clip),
                " must be a finite number above 0, known without the rows",
                remedy=(Pass("clip", None), " to find one privately."),
            )
        _check_choice("count", self.count, COUNTS)
        for name in ("colluders", "dropouts"):
            self._check_number(name, getattr(self, name))
        _check_shares(self.shares)

    def _check_number(self, name: str, value: object) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise InputError(
                Argument(name, value),
                " must be an integer of at least 0",
                remedy="Pass 1, for example.",
            )
        if value and self.trust != "secure_sum":
            raise InputError(
                Argument(name, value),
                " requires ",
                Argument("trust", "secure_sum"),
                remedy="Drop it.",
            )

    def parties(self, sites: int) -> int:
        """Return the number of sites over which the noise is split; 0 if the coordinator adds it.

        Examples
        --------
        >>> Privacy(1.0, 1e-6, colluders=1, dropouts=1).parties(10)
        8
        """
        match self.trust:
            case "secure_sum":
                return sites - self.colluders - self.dropouts
            case "local":
                return 1
            case _:
                return 0

    def check_sites(self, sites: int, least: int) -> None:
        """Raise PrivacyError if a sum does not survive the dropouts or has too few honest sites.

        Parameters
        ----------
        sites : int
        least : int
            Least number of sites that must complete a secure aggregation.
        """
        if self.trust != "secure_sum":
            return
        if self.dropouts > sites - least:
            raise PrivacyError(
                Argument("dropouts", self.dropouts),
                f" must be at most {sites - least} with {sites} sites: secure aggregation needs "
                "more than two thirds of them",
                remedy="Lower it.",
            )
        most = sites - self.dropouts - 2
        if self.colluders > most:
            raise PrivacyError(
                Argument("colluders", self.colluders),
                f" must be at most {most} with {sites} sites and ",
                Argument("dropouts", self.dropouts),
                ": at least two honest sites must be in every sum",
                remedy="Lower one of them.",
            )

    @property
    def mu(self) -> float:
        """The whole budget as the parameter mu of Gaussian differential privacy."""
        return mu_of(self.epsilon, self.delta)

    def split(self, needed: Iterable[str]) -> dict[str, float]:
        """Return the fraction of mu squared for each of the steps needed; the sum is 1.

        Examples
        --------
        >>> Privacy(1.0, 1e-6).split(["covariance"])
        {'covariance': 1.0}
        """
        weights = BUDGET_FRACTIONS | dict(self.shares or {})
        needed_weights = {name: weights[name] for name in needed}
        total = sum(needed_weights.values())
        for name, weight in needed_weights.items():
            if weight == 0.0 and name != "scree":
                raise InputError(
                    Name("shares"),
                    f" gives {name!r} 0, and the run cannot do without it",
                    remedy="Raise it: only 'scree' may be 0.",
                )
        return {name: weight / total for name, weight in needed_weights.items()}

    def check_rows(self, n: int) -> None:
        """Raise InputError if delta permits publishing a whole row."""
        if self.delta >= 1.0 / max(n, 1):
            raise InputError(
                Argument("delta", float(self.delta)),
                f" must be below 1/n = {1.0 / max(n, 1):.3g}: a larger delta permits publishing "
                "whole rows",
                remedy=("Lower ", Name("delta"), "."),
            )


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(
            Argument(name, value),
            f" must be one of {', '.join(map(repr, choices))}",
            remedy="Pass one of them.",
        )


def _check_shares(shares: Mapping[str, float] | None) -> None:
    known = ", ".join(map(repr, BUDGET_FRACTIONS))
    for name, fraction in (shares or {}).items():
        if name not in BUDGET_FRACTIONS:
            raise InputError(
                Name("shares"),
                f" has the unknown key {name!r}; the keys are {known}",
                remedy="Drop it.",
            )
        if not is_number(fraction) or not 0.0 <= fraction < math.inf:
            raise InputError(
                Argument(f"shares[{name!r}]", fraction),
                " must be a finite number of at least 0",
                remedy="Pass 0.1, for example.",
            )


_RELATIONS = {
    "replace_one": "differ in one row, which is replaced by any other row",
    "zero_out": "differ in that one row is left out of every sum",
}


@dataclass(frozen=True)
class Statement:
    """The privacy guarantee of a run.

    Attributes
    ----------
    epsilon, delta : float
        The guarantee; `epsilon` is infinite if there is none.
    relation : str
        The neighbouring relation.
    unit : str
        The unit of privacy, such as a row.
    mechanism : str
    trust : str
        Where the noise was added, as in `Privacy`.
    budget : dict of str to float
        Budget fractions (of mu squared), by what they were spent on.
    claimed_epsilon : float or None
        The claim of a paper, if its own mechanism was run.
    text : str
        The guarantee in sentences.
    epsilon_outsiders : float or None
        Epsilon against people outside the study, who see its results only; None if no claim is
        made beyond `epsilon`.
    epsilon_participants : float or None
        Epsilon against `colluders` sites together, or against one site if `colluders` is 0: a
        site knows its own part of the noise.
    """

    epsilon: float
    delta: float
    relation: str
    unit: str
    mechanism: str
    trust: str
    budget: dict[str, float]
    claimed_epsilon: float | None
    text: str
    epsilon_outsiders: float | None = None
    epsilon_participants: float | None = None

    def __repr__(self) -> str:
        """Return the guarantee in one line; `text` has it in sentences."""
        claimed = self.claimed_epsilon
        claim = "" if claimed is None else f", claimed_epsilon={claimed:g}"
        return (
            f"Statement(epsilon={self.epsilon:g}, delta={self.delta:g}, unit={self.unit!r}{claim})"
        )


def state_guarantee(
    privacy: Privacy, *, n: int, sites: int, mechanism: str, budget: dict[str, float]
) -> Statement:
    """State the guarantee of a differentially private run.

    Parameters
    ----------
    privacy : Privacy
    n : int
        Number of rows over all sites, as released.
    sites : int
        Number of sites.
    mechanism : str
        What was released, in words.
    budget : dict of str to float
        Budget fractions (of mu squared).

    Examples
    --------
    >>> privacy = Privacy(1.0, 1e-6, trust="local")
    >>> statement = state_guarantee(
    ...     privacy, n=1000, sites=3, mechanism="covariance", budget={"covariance": 1.0})
    >>> print(statement.text.splitlines()[0])
    Everything released is (epsilon=1, delta=1e-06)-differentially private.
    """
    fractions = ", ".join(f"{name} {fraction:.1%}" for name, fraction in budget.items())
    outsiders, participants = epsilons_against(privacy, sites)
    text = "\n".join(
        [
            f"Everything released is (epsilon={privacy.epsilon:g}, delta={privacy.delta:g})-"
            "differentially private.",
            *_describe_adversary(privacy, sites, outsiders, participants),
            f"Neighbouring data sets {_RELATIONS[privacy.relation]}; {_describe_count(privacy, n)}",
            "The unit of privacy is one row. A person with several rows is protected less, and a "
            "record held by two sites is not covered.",
            f"Mechanism: {mechanism}, with discrete Gaussian noise from the operating system's "
            f"random number generator. {_describe_trust(privacy, sites)}",
            _describe_clip(privacy),
            f"The budget was spent on: {fractions} (fractions of mu squared).",
            "Not covered: the time that replies take, and releases of the same rows that are not "
            "in the sites' ledgers.",
        ]
    )
    return Statement(
        privacy.epsilon,
        privacy.delta,
        privacy.relation,
        "row",
        mechanism,
        privacy.trust,
        budget,
        None,
        text,
        outsiders,
        participants,
    )


def epsilons_against(privacy: Privacy, sites: int) -> tuple[float, float]:
    """Return epsilon against people outside the study, and against participating sites.

    Of S sites, c may collude and l may drop out. Each adds noise of variance
    ``s^2 / (S - c - l)``, and a sum has at least S - l such parts. An outsider knows none of them;
    c colluding sites (or a single site, if c is 0) know their own, so the other S - l - max(c, 1)
    parts remain.

    Examples
    --------
    >>> outside, inside = epsilons_against(Privacy(1.0, 1e-6), sites=3)
    >>> round(outside, 3), round(inside, 3)
    (1.0, 1.245)
    """
    if privacy.trust == "central":
        return privacy.epsilon, math.inf
    if privacy.trust == "local":
        return privacy.epsilon, privacy.epsilon
    # mu = sensitivity / sd: less variance than the calibrated s^2 raises mu by the square root.
    parts = privacy.parties(sites)
    hidden = sites - privacy.dropouts - max(privacy.colluders, 1)
    outside = math.sqrt(parts / (sites - privacy.dropouts))
    inside = math.sqrt(parts / hidden) if hidden else math.inf
    return (
        epsilon_of(privacy.delta, privacy.mu * outside),
        epsilon_of(privacy.delta, privacy.mu * inside),
    )


def _describe_adversary(
    privacy: Privacy, sites: int, outsiders: float, participants: float
) -> list[str]:
    if privacy.trust == "local":
        return [
            "This holds against everybody outside the site that holds the row, including the "
            "coordinator and all other sites together."
        ] * (sites > 1)
    if privacy.trust == "central":
        return [
            "This holds against everybody except the coordinator, who sees the sums without noise."
        ]
    count = max(privacy.colluders, 1)
    known = "which knows its own part" if count == 1 else "which together know their own parts"
    return [
        "Against an adversary outside the study, who sees the results only, epsilon is "
        f"{outsiders:.3g}; against {count} of the {sites} sites, {known} of the noise, epsilon is "
        f"{participants:.3g}."
    ]


def _describe_count(privacy: Privacy, n: int) -> str:
    if privacy.count == "private":
        return f"the number of rows was released with noise ({n})."
    return (
        f"the number of rows ({n}) is public. If a site uses only some of its rows, its data set "
        "consists of the rows used."
    )


def _describe_trust(privacy: Privacy, sites: int) -> str:
    if privacy.trust == "secure_sum":
        return (
            f"Each of {sites} sites adds a part of the noise within secure aggregation; the noise "
            f"suffices if at most {privacy.dropouts} sites drop out of a sum and at most "
            f"{privacy.colluders} collude with the coordinator."
        )
    if privacy.trust == "local":
        return (
            "Each site adds all of the noise before anything leaves it: neither the coordinator "
            "nor other sites are trusted."
        )
    return "The coordinator adds the noise: it sees the sums without noise and is trusted."


def _describe_clip(privacy: Privacy) -> str:
    if privacy.clip is None:
        return "Rows are clipped to a norm that was found privately, within the same guarantee."
    return f"Rows are clipped to the public norm {privacy.clip:g}."


def state_stream_guarantee(privacy: Privacy, *, n: int, budget: dict[str, float]) -> Statement:
    """State the guarantee of a stream that is released once."""
    mechanism = "one noised sketch of clipped rows"
    statement = state_guarantee(
        replace(privacy, trust="local", colluders=0, dropouts=0),
        n=n,
        sites=1,
        mechanism=mechanism,
        budget=budget,
    )
    # Parallel composition: see `private_stream`.
    first = (
        "The first rows of the stream were used only to find the clipping norm and the mean; each "
        "of them was used in one step, which spent the whole budget on it."
    )
    return replace(statement, text=f"{statement.text}\n{first}")


def state_published_guarantee(truth: Truth) -> Statement:
    """State the guarantee that holds for a paper's own mechanism, and what the paper claims.

    Examples
    --------
    >>> from eigenfed.protocol.published import DPdisPCA
    >>> statement = state_published_guarantee(DPdisPCA(2.0, 1e-5).truth([500, 500], 20, k=3))
    >>> statement.claimed_epsilon, statement.epsilon
    (2.0, inf)
    """
    return Statement(
        truth.true_epsilon,
        truth.claimed_delta,
        truth.relation,
        "entry" if truth.relation == "entry" else "row",
        truth.mechanism,
        "as published",
        {truth.mechanism: 1.0},
        truth.claimed_epsilon,
        truth.text,
    )
