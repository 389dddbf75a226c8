"""Schedule of a differentially private run: its noised requests and their budget fractions.

Both halves of the protocol follow it: the coordinator sends the requests in this order, and a site
looks up here what the next one may spend. The amount is never sent, so a site need not trust it.

Budget fractions are fractions of mu squared, because the mu of independent Gaussian mechanisms
compose as the square root of the sum of squares.
"""

from dataclasses import dataclass

from eigenfed.errors import InputError
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.protocol.gate.script import Script, sequence
from eigenfed.protocol.study import Study

FIRST_MEAN = 0.2
"""Fraction of the budget of the mean that the first of its two totals spends."""
REACH_FRACTION = 0.5
"""Fraction of the budget of the scree that counts spend, if there are none from a search before."""
_PRODUCT_FRACTIONS = (0.3, 0.7)
"""Fractions of the budget of the covariance that the two products of "power" spend."""


@dataclass(frozen=True)
class Spend:
    """One noised request: its operation, and its fraction of mu squared."""

    op: str
    fraction: float


def split_budget(study: Study) -> dict[str, float]:
    """Return the fraction of mu squared of each quantity of the run; they add up to 1.

    Examples
    --------
    >>> study = Study(("a",), 2, privacy=Privacy(1.0, 1e-6, clip=1.0, trust="local"), center=False)
    >>> {name: round(part, 4) for name, part in split_budget(study).items()}
    {'covariance': 0.9639, 'scree': 0.0361}
    """
    privacy = require_privacy(study)
    names = ["count"] if privacy.count == "private" else []
    names += ["radius"] if study.center and privacy.clip is None else []
    names += ["mean"] if study.center else []
    names += ["clip"] if privacy.clip is None else []
    return privacy.split([*names, "covariance", *([] if study.scale else ["scree"])])


def split_start(study: Study) -> dict[str, float]:
    """Return the fraction of mu squared of each part of the first reply; empty without one.

    The parts are named as in the reply: rows within radii, a first mean and the number of rows.

    Examples
    --------
    >>> study = Study(("a",), 2, privacy=Privacy(1.0, 1e-6, trust="local"))
    >>> {name: round(part, 4) for name, part in split_start(study).items()}
    {'counts': 0.015, 'total': 0.028}
    """
    if require_privacy(study).clip is not None:
        return {}
    split = split_budget(study)
    parts = {"counts": split["radius" if study.center else "clip"]}
    if study.center:
        parts["total"] = FIRST_MEAN * split["mean"]
    if "count" in split:
        parts["count"] = split["count"]
    return parts


def list_spends(study: Study) -> tuple[Spend, ...]:
    """Return all noised requests of a run, in order.

    Parameters
    ----------
    study : Study
        With its method, "covariance" or "power".
    """
    split = split_budget(study)
    steps = _list_preparation(study, split)
    if study.chosen.name == "power":
        steps += [Spend("private_product", p * split["covariance"]) for p in _PRODUCT_FRACTIONS]
    else:
        steps += [Spend("private_scatter", split["covariance"])]
    scree = split.get("scree", 0.0)
    if scree > 0.0 and "clip" in split:
        steps += [Spend("private_scree", scree)]
    elif scree > 0.0:
        steps += [Spend("private_norms", REACH_FRACTION * scree)]
        steps += [Spend("private_scree", (1 - REACH_FRACTION) * scree)]
    return tuple(steps)


def _list_preparation(study: Study, split: dict[str, float]) -> list[Spend]:
    """Return the steps that find the mean, and the radius about it to which rows are clipped."""
    if "clip" not in split:
        counted = [Spend("private_count", split["count"])] if "count" in split else []
        return counted + ([Spend("private_total", split["mean"])] if study.center else [])
    start = Spend("private_start", sum(split_start(study).values()))
    if not study.center:
        return [start]
    return [
        start,
        Spend("private_norms", split["clip"]),
        Spend("private_total", (1 - FIRST_MEAN) * split["mean"]),
    ]


def private_script(study: Study) -> Script:
    """Return the script of a site for a private run."""
    return sequence("rows", *(step.op for step in list_spends(study)))


def require_privacy(study: Study) -> Privacy:
    """Return the differential privacy of a study; InputError if it has none."""
    if not isinstance(study.privacy, Privacy):
        raise InputError("The study has no differential privacy.")
    return study.privacy
