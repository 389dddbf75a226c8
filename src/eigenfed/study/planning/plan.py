"""A plan in words: a verdict on a forecast, and the question that a study file asks."""

from dataclasses import replace
from typing import Any

from eigenfed.errors import InputError
from eigenfed.privacy.release import Reveals
from eigenfed.protocol.messages import MAX_BYTES
from eigenfed.study.config import Expected, StudyFile
from eigenfed.study.planning.forecast import Forecast, Question

_GOOD, _POOR = 0.9, 0.5
_SIZES = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
_TIMES = (("h", 3600.0), ("min", 60.0), ("s", 1.0))


def question_of(study: StudyFile, **instead: Any) -> Question:
    """Return what a study file asks, with some of it replaced.

    Parameters
    ----------
    study : StudyFile
    **instead
        Fields of `Question`; those that are None keep what the file says.

    Raises
    ------
    InputError
        If neither says how many rows and features there are.
    """
    expected = study.expected or Expected()
    given = {name: value for name, value in instead.items() if value is not None}
    if {"spectrum", "decay"} & given.keys():
        expected = replace(expected, spectrum=None, decay=None)
    features = expected.features
    if features is None and not isinstance(study.features, str):
        features = len(study.features)
    said: dict[str, Any] = {
        "rows": expected.rows,
        "features": features,
        "components": study.components,
        "method": study.method,
        "center": study.center,
        "scale": study.scale,
        "secure": study.secure,
        "by_site": study.by_site and not study.secure and study.privacy is None,
        "privacy": study.privacy,
        "latency_ms": expected.latency_ms,
        "bandwidth_mbps": expected.bandwidth_mbps,
        "decay": expected.decay,
        "spectrum": expected.spectrum,
    } | given
    for name in ("rows", "features"):
        if said[name] is None:
            raise InputError(
                f"{study.path} does not say what {name} to expect. Add {name} to its [expected], "
                f"or pass --{name}."
            )
    missing = sorted(set(study.sites) - said["rows"].keys())
    if missing and "rows" not in given:
        raise InputError(
            f"{study.path}: expected.rows does not name {missing[0]!r}. Name every site."
        )
    if said["secure"] or said["privacy"] is not None:
        said["by_site"] = False
    return Question(**said)


def verdict(found: Forecast) -> str:
    """Say in a few sentences what to make of a forecast.

    Examples
    --------
    >>> from eigenfed.study.planning.forecast import forecast
    >>> question = Question({"north": 3000, "south": 900}, 120, 4, method="merge", decay=0.9)
    >>> print(verdict(forecast(question)))
    4 rounds, 19 kB up a site. Exact: the most open site answers about 0.13 of its ...
    """
    parts = [_course(found)]
    largest = max(case.traffic.largest for case in found.cases)
    if largest > MAX_BYTES:
        parts.append(
            f"It may not run: a message of {largest / 1e9:.0f} GB would be refused, and "
            f"{MAX_BYTES / 1e9:.0f} GB are the most. Take fewer features or components."
        )
    parts.append(_exact(found) if found.question.privacy is None else _private(found))
    return " ".join(parts)


def _course(found: Forecast) -> str:
    first, *_, last = sorted(found.cases * 2, key=lambda case: case.traffic.up)
    asked = found.question
    up = _from_to(*(_scaled(case.traffic.up, _SIZES) for case in (first, last)))
    text = f"{_from_to(*map(str, found.rounds))} rounds, {up} up a site"
    if asked.latency_ms is not None and asked.bandwidth_mbps is not None:
        times = _from_to(*(_scaled(case.seconds, _TIMES) for case in (first, last)))
        text += f", about {times} on this link"
    falls = ", by how fast the eigenvalues fall" if first.traffic != last.traffic else ""
    return f"{text}{falls}."


def _scaled(value: float, units: tuple[tuple[str, float], ...]) -> str:
    """Write a number in the largest unit of which there is one at least.

    Examples
    --------
    >>> _scaled(3_500_000, _SIZES), _scaled(0.2, _TIMES), _scaled(5400, _TIMES)
    ('3.5 MB', '0.2 s', '1.5 h')
    """
    unit, length = next((u for u in units if value >= u[1]), units[-1])
    count = value / length
    return f"{count:.0f} {unit}" if count >= 10.0 else f"{count:.1f} {unit}"


def _from_to(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _exact(found: Forecast) -> str:
    case = max(found.cases, key=lambda case: case.rank_fraction)
    if any(op.release.reveals is Reveals.SCATTER for op in found.method.ops):
        told = "every site tells all of its covariance"
    else:
        most = max(case.variance_fraction for case in found.cases)
        told = (
            f"the most open site answers about {case.rank_fraction:.2g} of its directions, "
            f"{most:.0%} of its variance"
        )
    seen = "inside sums that hide whose it is" if found.question.secure else "by itself"
    return f"Exact: {told}, {seen}."


def _private(found: Forecast) -> str:
    left = [case.kept for case in found.cases if case.kept is not None]
    problem = next((kept.problem for kept in left if kept.problem), "")
    if problem:
        return f"Do not use differential privacy here: the run would end early. {problem}"
    held = [kept.captured for kept in left if kept.captured is not None]
    ratio = min(kept.ratio for kept in left if kept.ratio is not None)
    low, high = min(held), max(held)
    size = f"d={found.question.features} and n={found.question.n}"
    if high < _POOR:
        lost = (
            f"the noise is {ratio:.{0 if ratio >= 10.0 else 1}f} times the signal"
            if ratio >= 1.0
            else f"noise leaves {high:.0%} of the variance that the best components hold"
        )
        best = " at best" if len(held) > 1 else ""
        return (
            f"Do not use differential privacy here: at {size} {lost}{best}. Use secure sums, fewer "
            "features (chosen or projected without a look at the rows), or more rows."
        )
    epsilon = found.question.privacy.epsilon if found.question.privacy else 0.0
    shown = f"{low:.0%}" if f"{low:.0%}" == f"{high:.0%}" else f"{low:.0%} to {high:.0%}"
    text = (
        f"Private: at epsilon {epsilon:g} the components hold {shown} of the variance that the "
        "best hold."
    )
    if low >= _GOOD:
        return text
    if high < _GOOD or len(held) == 1:
        return f"{text} More rows, fewer features or a larger epsilon would bring more."
    return (
        f"{text} It depends on how fast the eigenvalues fall: give a spectrum or a decay from "
        "public data before the budget is spent."
    )
