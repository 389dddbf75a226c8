"""What a differentially private run promises, as its user states it.

What a run promises, in words that a review board can read.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, replace

from eigenfed.errors import Argument, InputError, Name, Pass, PrivacyError
from eigenfed.privacy.dp.accounting import check_delta, check_epsilon, epsilon_of, mu_of
from eigenfed.privacy.dp.sensitivity import RELATIONS
from eigenfed.privacy.published_claims import Truth

TRUSTS = ("secure_sum", "local", "central")

COUNTS = ("public", "private")

SHARES = {
    "count": 0.02,
    "radius": 0.03,
    "mean": 0.15,
    "clip": 0.02,
    "covariance": 0.75,
    "scree": 0.05,
}
"""Parts of the budget (of mu squared) by what they buy: the number of rows, the norm to which rows
are clipped for the mean, the mean, the norm about the mean to which they are clipped, the
covariance, and the variances along the components."""


@dataclass(frozen=True)
class Privacy:
    """Differential privacy of one row, with noise that holds.

    Attributes
    ----------
    epsilon, delta : float
        The guarantee for everything that the run releases. `delta` must be below one over the
        number of rows.
    relation : {"replace_one", "zero_out"}
        What neighbouring tables are: one row is another one, or is left out of every sum. The
        number of rows is public in both.
    clip : float or None
        Public bound to which the norm of rows is clipped, known without looking at the rows. None
        finds one privately and pays for it.
    trust : {"secure_sum", "local", "central"}
        Who sees what before noise: nobody (each site adds a part of the noise, inside secure
        aggregation; three sites at least), nobody (each site adds all of the noise), or the
        coordinator (who adds the noise).
    colluders : int
        With "secure_sum", how many sites may show the coordinator what they know without loss of
        privacy: the others add more noise for them. With 0 the guarantee is one against people
        outside the study, and `Statement` also tells what is left of it against a site.
    dropouts : int
        With "secure_sum", how many other sites may be lost from a sum.
    count : {"public", "private"}
        Whether the number of rows is known to all, or found with noise: what a site needs that
        takes only some of its rows, chosen by what is in them.
    shares : mapping of str to float or None
        How the budget is split over "radius", "mean", "clip", "covariance" and "scree"; what is
        not named keeps its default, and what a run does not need falls to the others.
    mode : {"sound"}
        The papers' own mechanisms are values of ``eigenfed.protocol.published``.

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
                remedy="A paper's own mechanism is a value of eigenfed.privacy.published: pass "
                "that as privacy.",
            )
        if self.clip is not None and not (_is_real(self.clip) and 0 < self.clip < math.inf):
            raise InputError(
                Argument("clip", self.clip),
                " must be a finite number above 0 that is known without the rows",
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
        """Return over how many sites the noise is split; 0 where the coordinator adds it.

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
        """Refuse more dropouts than a sum survives, or fewer honest sites than carry its noise.

        Parameters
        ----------
        sites : int
        least : int
            How many sites a secure sum must have at its end.
        """
        if self.trust != "secure_sum":
            return
        if self.dropouts > sites - least:
            raise PrivacyError(
                Argument("dropouts", self.dropouts),
                f" must be at most {sites - least} with {sites} sites: a sum needs more than two "
                "thirds of them",
                remedy="Lower it.",
            )
        most = sites - self.dropouts - 2
        if self.colluders > most:
            raise PrivacyError(
                Argument("colluders", self.colluders),
                f" must be at most {most} with {sites} sites and ",
                Argument("dropouts", self.dropouts),
                ": two honest sites at least must be in every sum",
                remedy="Lower one of them.",
            )

    @property
    def mu(self) -> float:
        """The whole budget, as Gaussian DP."""
        return mu_of(self.epsilon, self.delta)

    def split(self, needed: Iterable[str]) -> dict[str, float]:
        """Return the part of mu squared that each thing needed gets; they add up to 1.

        Examples
        --------
        >>> Privacy(1.0, 1e-6).split(["covariance"])
        {'covariance': 1.0}
        """
        given = SHARES | dict(self.shares or {})
        wanted = {name: given[name] for name in needed}
        whole = sum(wanted.values())
        for name, share in wanted.items():
            if share == 0.0 and name != "scree":
                raise InputError(
                    Name("shares"),
                    f" gives {name!r} 0, and there is no PCA without",
                    remedy="Raise it: only 'scree' may be 0.",
                )
        return {name: share / whole for name, share in wanted.items()}

    def check_rows(self, n: int) -> None:
        """Refuse a delta that lets whole rows be given away."""
        if self.delta >= 1.0 / max(n, 1):
            raise InputError(
                Argument("delta", float(self.delta)),
                f" must be below 1/n = {1.0 / max(n, 1):.3g}: otherwise giving away some rows "
                "whole would pass for private",
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
    for name, share in (shares or {}).items():
        if name not in SHARES:
            raise InputError(
                Name("shares"),
                f" has {name!r} and may have {', '.join(map(repr, SHARES))}",
                remedy="Drop it.",
            )
        if not _is_real(share) or not 0.0 <= share < math.inf:
            raise InputError(
                Argument(f"shares[{name!r}]", share),
                " must be a finite number of at least 0",
                remedy="Pass 0.1, for example.",
            )


def _is_real(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_RELATIONS = {
    "replace_one": "one row is replaced by any other",
    "zero_out": "one row is left out of every sum",
}


@dataclass(frozen=True)
class Statement:
    """The guarantee of a run.

    Attributes
    ----------
    epsilon, delta : float
        What holds; `epsilon` is infinite where nothing does.
    relation : str
        Between which tables.
    unit : str
        What is protected.
    mechanism : str
    trust : str
    budget : dict of str to float
        Share of the budget (of mu squared) by what it bought.
    claimed_epsilon : float or None
        What a paper claims, where its own mechanism was asked for.
    text : str
        All of it in words.
    epsilon_outsiders : float or None
        What holds against people outside the study, who see its results only; None where no claim
        is made for them apart from `epsilon`.
    epsilon_participants : float or None
        What holds against the sites that may collude, or against one site where none is reckoned
        with: a site knows its own part of the noise.
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


def sound_statement(
    privacy: Privacy, *, n: int, sites: int, mechanism: str, budget: dict[str, float]
) -> Statement:
    """State the guarantee of a run with sound noise.

    Examples
    --------
    >>> said = sound_statement(
    ...     Privacy(1.0, 1e-6, trust="local"), n=1000, sites=3, mechanism="covariance",
    ...     budget={"covariance": 1.0})
    >>> print(said.text.splitlines()[0])
    Everything released is (epsilon=1, delta=1e-06)-differentially private.
    """
    shares = ", ".join(f"{name} {share:.1%}" for name, share in budget.items())
    clip = "found privately and paid for" if privacy.clip is None else f"{privacy.clip:g}, public"
    outsiders, participants = epsilons_against(privacy, sites)
    text = "\n".join(
        [
            f"Everything released is (epsilon={privacy.epsilon:g}, delta={privacy.delta:g})-"
            "differentially private.",
            *_against(privacy, sites, outsiders, participants),
            f"Neighbouring tables: {_RELATIONS[privacy.relation]}; {_counted(privacy, n)}",
            "What is protected is one row. Someone with several rows is protected less, and a "
            "record held by two sites is not covered.",
            f"Mechanism: {mechanism}, with discrete Gaussian noise from the operating system's "
            f"randomness. {_trusted(privacy, sites)}",
            f"Rows are clipped to a norm that is {clip}.",
            f"The budget was spent on: {shares} (fractions of mu squared).",
            "Not covered: how long answers take, and other releases of the same rows that the "
            "sites' ledgers do not know of.",
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
    """Return the epsilon that holds against outsiders, and against participants.

    Each site adds the variance ``s^2 / (S - c - l)`` of noise: S sites, c that may collude, l that
    may be lost. A sum holds at least S - l such parts. Whoever took part in it knows his own and
    those of the sites that collude with him.

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
    parts = privacy.parties(sites)
    hidden = sites - privacy.dropouts - max(privacy.colluders, 1)
    outside = math.sqrt(parts / (sites - privacy.dropouts))
    inside = math.sqrt(parts / hidden) if hidden else math.inf
    return (
        epsilon_of(privacy.delta, privacy.mu * outside),
        epsilon_of(privacy.delta, privacy.mu * inside),
    )


def _against(privacy: Privacy, sites: int, outsiders: float, participants: float) -> list[str]:
    if privacy.trust == "local":
        return []
    if privacy.trust == "central":
        return ["That holds against everybody but the coordinator, who sees the sums bare."]
    who = f"{max(privacy.colluders, 1)} of the {sites} sites"
    return [
        f"Against people outside the study epsilon is {outsiders:.3g}; against {who}, who know "
        f"their own part of the noise, it is {participants:.3g}."
    ]


def _counted(privacy: Privacy, n: int) -> str:
    if privacy.count == "private":
        return f"the number of rows was found with noise ({n})."
    return (
        f"the number of rows ({n}) is public. Where a site takes only some of its rows, the table "
        "that is protected is the one of those rows."
    )


def _trusted(privacy: Privacy, sites: int) -> str:
    if privacy.trust == "secure_sum":
        return (
            f"Each of {sites} sites adds a part of it inside secure aggregation; it is enough "
            f"while at most {privacy.dropouts} sites are lost from a sum and at most "
            f"{privacy.colluders} collude."
        )
    if privacy.trust == "local":
        return "Each site adds all of it before anything leaves; nobody else is trusted."
    return "The coordinator adds it: the coordinator sees sums without noise and is trusted."


def stream_statement(privacy: Privacy, *, n: int, budget: dict[str, float]) -> Statement:
    """State the guarantee of a stream that is released once."""
    mechanism = "one noised sketch of clipped rows"
    said = sound_statement(
        replace(privacy, trust="local", colluders=0, dropouts=0),
        n=n,
        sites=1,
        mechanism=mechanism,
        budget=budget,
    )
    first = "The first rows of the stream were used for the clip and the mean only, at full budget."
    return replace(said, text=f"{said.text}\n{first}")


def published_statement(truth: Truth) -> Statement:
    """State what is true of a paper's own mechanism, beside what it claims.

    Examples
    --------
    >>> from eigenfed.protocol.published import DPdisPCA
    >>> said = published_statement(DPdisPCA(2.0, 1e-5).truth([500, 500], 20, k=3))
    >>> said.claimed_epsilon, said.epsilon
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
