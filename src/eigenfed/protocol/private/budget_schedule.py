"""What a private run asks for, in order, and which part of the budget each step spends.

Both halves of the protocol follow this list: the coordinator asks by it, and a site takes from it
what the next request may spend. So nobody has to be told, and nobody is believed.
"""

from dataclasses import dataclass

from eigenfed.errors import InputError
from eigenfed.privacy.dp.sensitivity import NARROW_ASKS, WIDE_ASKS
from eigenfed.privacy.guarantee import Privacy
from eigenfed.protocol.gate.script import Script, sequence
from eigenfed.protocol.study import Study

FIRST_MEAN = 0.4
"""Part of the share of the mean that the first one gets."""
REACH_SHARE = 0.3
"""Part of the share of the scree that the search for its radius gets."""
_POWER_SHARES = (0.3, 0.7)


@dataclass(frozen=True)
class Spend:
    """One noised request: its operation, and its part of mu squared."""

    op: str
    fraction: float


def budget_split(study: Study) -> dict[str, float]:
    """Return the part of mu squared that each thing needed gets; they add up to 1.

    Examples
    --------
    >>> study = Study(("a",), 2, privacy=Privacy(1.0, 1e-6, clip=1.0, trust="local"), center=False)
    >>> {name: round(part, 4) for name, part in budget_split(study).items()}
    {'covariance': 0.9375, 'scree': 0.0625}
    """
    privacy = terms_of(study)
    names = ["count"] if privacy.count == "private" else []
    names += ["radius"] if study.center and privacy.clip is None else []
    names += ["mean"] if study.center else []
    names += ["clip"] if privacy.clip is None else []
    return privacy.split([*names, "covariance", *([] if study.scale else ["scree"])])


def spending(study: Study) -> tuple[Spend, ...]:
    """Return all noised requests of a run, in order.

    Parameters
    ----------
    study : Study
        With its method, "covariance" or "power".
    """
    split = budget_split(study)
    steps = [Spend("private_count", split["count"])] if "count" in split else []
    steps += _preparing(study, split)
    if study.chosen.name == "power":
        steps += [Spend("private_product", p * split["covariance"]) for p in _POWER_SHARES]
    else:
        steps += [Spend("private_scatter", split["covariance"])]
    scree = split.get("scree", 0.0)
    if scree > 0.0:
        steps += _search(REACH_SHARE * scree, NARROW_ASKS)
        steps += [Spend("private_scree", (1 - REACH_SHARE) * scree)]
    return tuple(steps)


def _preparing(study: Study, split: dict[str, float]) -> list[Spend]:
    """Return the steps that find the mean, and the radius about it to which rows are clipped."""
    searches = "clip" in split
    if not study.center:
        return _search(split["clip"], WIDE_ASKS) if searches else []
    if not searches:
        return [Spend("private_total", split["mean"])]
    return [
        *_search(split["radius"], WIDE_ASKS),
        Spend("private_total", FIRST_MEAN * split["mean"]),
        *_search(split["clip"] / 2, NARROW_ASKS),
        Spend("private_total", (1 - FIRST_MEAN) * split["mean"]),
        *_search(split["clip"] / 2, NARROW_ASKS),
    ]


def _search(share: float, asks: int) -> list[Spend]:
    return [Spend("private_within", share / asks)] * asks


def private_script(study: Study) -> Script:
    """Return what a site is asked in a private run."""
    return sequence("rows", *(step.op for step in spending(study)))


def terms_of(study: Study) -> Privacy:
    """Return the terms of a private study."""
    if not isinstance(study.privacy, Privacy):
        raise InputError("The study has no terms of differential privacy.")
    return study.privacy
