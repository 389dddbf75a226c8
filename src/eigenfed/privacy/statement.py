"""What a run promises, in words that a review board can read."""

from dataclasses import dataclass, replace

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
    text = "\n".join(
        [
            f"Everything released is (epsilon={privacy.epsilon:g}, delta={privacy.delta:g})-"
            "differentially private.",
            f"Neighbouring tables: {_RELATIONS[privacy.relation]}; the number of rows ({n}) is "
            "public.",
            "What is protected is one row. Someone with several rows is protected less, and a "
            "record held by two sites is not covered.",
            f"Mechanism: {mechanism}, with discrete Gaussian noise from the operating system's "
            f"randomness. {_trusted(privacy, sites)}",
            f"Rows are clipped to a norm that is {clip}.",
            f"The budget was spent on: {shares} (shares of mu squared).",
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
    )


def _trusted(privacy: Privacy, sites: int) -> str:
    if privacy.trust == "secure_sum":
        lost = (
            f"at most {privacy.tolerate} of them drop" if privacy.tolerate else "none of them drops"
        )
        return (
            f"Each of {sites} sites adds a part of it inside a sum that nobody can open; it is "
            f"enough while {lost} out or collude{'' if privacy.tolerate else 's'}."
        )
    if privacy.trust == "local":
        return "Each site adds all of it before anything leaves; nobody else is trusted."
    return "The coordinator adds it: the coordinator sees sums without noise and is trusted."


def stream_statement(privacy: Privacy, *, n: int, budget: dict[str, float]) -> Statement:
    """State the guarantee of a stream that is released once."""
    mechanism = "one noised sketch of clipped rows"
    said = sound_statement(
        replace(privacy, trust="local", tolerate=0),
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
