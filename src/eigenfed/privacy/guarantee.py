"""The statement that a private run ends with.

`Statement` is the guarantee in numbers and in sentences for a review board: epsilon and delta, the
neighbouring relation, the unit of privacy, which adversary sees what, and what is not covered.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from eigenfed.arrays import Array
from eigenfed.privacy.dp.accounting import epsilon_of, format_loss
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.privacy.published_claims import Truth

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
            f"Statement(epsilon={_format(self.epsilon)}, delta={_format(self.delta)}, "
            f"unit={self.unit!r}{claim})"
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
            f"Everything released is (epsilon={_format(privacy.epsilon)}, "
            f"delta={_format(privacy.delta)})-differentially private.",
            *_describe_adversary(privacy, sites, outsiders, participants),
            f"Neighbouring data sets {_RELATIONS[privacy.relation]}; {_describe_count(privacy, n)}",
            "The unit of privacy is one row. A person with several rows is protected less, and a "
            "record held by two sites is not covered.",
            f"Mechanism: {mechanism}, with discrete Gaussian noise from the operating system's "
            f"random number generator. {_describe_trust(privacy, sites)}",
            _describe_clip(privacy),
            *_describe_public(privacy),
            _MISSING[privacy.if_missing],
            f"The budget was spent on: {fractions} (fractions of mu squared).",
            "Not covered: the time that replies take, and other releases of the same rows, which "
            f"add to epsilon.{_LEDGERS}",
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


_LEDGERS = " The sites' ledgers have the totals of all runs."


def _format(value: float) -> str:
    return format_loss(value, digits=6)


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
        f"{format_loss(outsiders)}; against {count} of the {sites} sites, {known} of the noise, "
        f"epsilon is {format_loss(participants)}."
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


def _describe_public(privacy: Privacy) -> list[str]:
    """List the public numbers, which a reader must be able to judge as such."""
    given = {"centre": privacy.public_center, "scale": privacy.public_scale}
    return [
        f"Public {name} of the features, not taken from the rows: {_list_numbers(value)}."
        for name, value in given.items()
        if value is not None
    ]


def _list_numbers(value: float | Sequence[float] | Array) -> str:
    return ", ".join(f"{number:g}" for number in np.atleast_1d(value))


_MISSING = {
    "mean": "Missing entries, if any, are replaced by the private mean.",
    "public": "Missing entries, if any, are replaced by the public centre.",
    "drop": "Rows with missing entries, if any, are left out of every sum.",
}


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
    lines = statement.text.replace(_LEDGERS, "").splitlines()
    kept = [line for line in lines if line not in _MISSING.values()]
    # Parallel composition: see `private_stream`.
    first = (
        "The first rows of the stream were used only to find the clipping norm and the mean; each "
        "of them was used in one step, which spent the whole budget on it."
    )
    return replace(statement, text="\n".join([*kept, first]))


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
