"""What a run promises, in words that a review board can read."""

import math
from dataclasses import dataclass, replace

from eigenfed.privacy.calibration import epsilon_of
from eigenfed.privacy.published.truth import Truth
from eigenfed.privacy.terms import Privacy

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
    >>> from eigenfed.privacy.published import DPdisPCA
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
