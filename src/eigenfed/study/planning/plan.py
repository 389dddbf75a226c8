"""From a study file to the question of a forecast, and from a forecast to a verdict in words."""

from dataclasses import replace
from typing import Any

import numpy as np

from eigenfed.data.steps import as_steps, filters_variants
from eigenfed.errors import Argument, InputError, Name, PrivacyError
from eigenfed.privacy.release import Reveals
from eigenfed.privacy.secagg.identity import LEAST_SITES
from eigenfed.protocol.component_count import ALL, Components, find_count, is_open
from eigenfed.protocol.exact.krylov import Krylov
from eigenfed.protocol.messages import MAX_BYTES
from eigenfed.protocol.private.noise_verdict import LEAST_SIGNAL
from eigenfed.protocol.study import GENOTYPE, GENOTYPE_TOL
from eigenfed.study.config import Expected, StudyFile
from eigenfed.study.planning.forecast import Forecast, Question, list_spectra

_GOOD, _POOR = 0.9, 0.5
_SIZES = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
_TIMES = (("h", 3600.0), ("min", 60.0), ("s", 1.0))


def make_study_question(study: StudyFile, **overrides: Any) -> Question:
    """Return the question that a study file defines, with some fields overridden.

    Parameters
    ----------
    study : StudyFile
    **overrides
        Fields of `Question`; those that are None keep the value of the file.

    Raises
    ------
    InputError
        If neither gives the numbers of rows and features.
    """
    expected = study.expected or Expected()
    given = {name: value for name, value in overrides.items() if value is not None}
    if {"spectrum", "decay"} & given.keys():
        expected = replace(expected, spectrum=None, decay=None)
    features = expected.features
    if features is None and not isinstance(study.features, str):
        features = len(study.features)
    variants = study.read_variants()
    fields: dict[str, Any] = {
        "rows": expected.rows,
        "features": features,
        "components": study.components,
        "method": study.study.method,
        "center": study.center,
        "scale": study.scale,
        "prepare": study.prepare,
        "tol": study.tol,
        "stop": study.study.stop,
        "loci": None if variants is None else variants.loci,
        "secure": study.secure,
        "by_site": study.by_site and not study.secure and study.privacy is None,
        "privacy": study.privacy,
        "latency_ms": expected.latency_ms,
        "bandwidth_mbps": expected.bandwidth_mbps,
        "decay": expected.decay,
        "spectrum": expected.spectrum,
    } | given
    for name in ("rows", "features"):
        if fields[name] is None:
            raise InputError(
                f"{study.path} does not give the number of {name}. Add {name} to its [expected], "
                f"or pass --{name}."
            )
    missing = sorted(set(study.sites) - fields["rows"].keys())
    if missing and "rows" not in given:
        raise InputError(
            f"{study.path}: expected.rows does not name {missing[0]!r}. Name every site."
        )
    if fields["secure"] or fields["privacy"] is not None:
        fields["by_site"] = False
    return make_question(**fields)


def make_question(*, components: Components, **fields: Any) -> Question:
    """Return a question in which the number of components may follow from the data.

    A forecast reads no data. It takes the number that the expected eigenvalues give, or without
    them eigenvalues proportional to 1/i; `Question.rule` keeps what was asked for.

    Parameters
    ----------
    components : int, float, "all" or "auto"
    **fields
        The other fields of `Question`.

    Raises
    ------
    PrivacyError
        For a number that follows from the data, under privacy.

    Examples
    --------
    >>> question = make_question(rows={"a": 500, "b": 400}, features=20, components=0.9, decay=0.5)
    >>> question.components, question.rule
    (4, 0.9)
    """
    fields = _suit_genotypes(fields)
    if isinstance(components, int):
        return Question(components=components, **fields)
    if is_open(components) and fields.get("privacy") is not None:
        raise PrivacyError(
            Argument("n_components", components),
            " cannot be combined with privacy, whose noise is shared out for a number of "
            "components that is known beforehand",
            remedy=("Pass an integer as ", Name("n_components"), "."),
        )
    plain = Question(components=1, **fields)
    d, rank = plain.width, max(min(plain.n - bool(plain.center), plain.width), 1)
    if components == ALL:
        return replace(plain, components=min(plain.n, d))
    assumed = list_spectra(plain)
    spectrum = assumed[min(1, len(assumed) - 1)]
    values = spectrum.at(np.arange(min(spectrum.rank, rank)))
    count = find_count(components, values, total=spectrum.trace, n=float(plain.n), d=d)
    return replace(plain, components=count or rank, rule=components)


def _suit_genotypes(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with the defaults of a fit of genotypes, if steps filter variants."""
    if not filters_variants(as_steps(fields.get("prepare"))):
        return fields
    suits = {"scale": GENOTYPE, "tol": GENOTYPE_TOL, "stop": "separated", "method": Krylov.name}
    suits["secure"] = len(fields["rows"]) >= LEAST_SITES
    return suits | fields


def write_verdict(found: Forecast) -> str:
    """Return a forecast and a recommendation in a few sentences.

    Examples
    --------
    >>> from eigenfed.study.planning.forecast import forecast
    >>> question = Question({"north": 3000, "south": 900}, 120, 4, method="merge", decay=0.9)
    >>> print(write_verdict(forecast(question)))
    4 rounds, 19 kB sent per site. Exact: the most exposed site reveals its covariance along ...
    """
    parts = [_describe_course(found)]
    largest = max(case.traffic.largest for case in found.cases)
    if largest > MAX_BYTES:
        parts.append(
            f"It may fail: a message would have {largest / 1e9:.0f} GB, and the limit is "
            f"{MAX_BYTES / 1e9:.0f} GB. Use fewer features or components."
        )
    private = found.question.privacy is not None
    parts.append(_describe_private(found) if private else _describe_exact(found))
    return " ".join(parts)


def _describe_course(found: Forecast) -> str:
    # Twice the cases, so that one case is both the first and the last.
    first, *_, last = sorted(found.cases * 2, key=lambda case: case.traffic.up)
    question = found.question
    up = _format_range(*(_format_unit(case.traffic.up, _SIZES) for case in (first, last)))
    rounds = "round" if found.rounds == (1, 1) else "rounds"
    text = f"{_format_range(*map(str, found.rounds))} {rounds}, {up} sent per site"
    if question.latency_ms is not None and question.bandwidth_mbps is not None:
        times = _format_range(*(_format_unit(case.seconds, _TIMES) for case in (first, last)))
        text += f", about {times} over this network"
    reason = ", depending on how fast the eigenvalues fall" * (first.traffic != last.traffic)
    return f"{text}{reason}."


def _format_unit(value: float, units: tuple[tuple[str, float], ...]) -> str:
    """Format a quantity in its largest unit not above it.

    Examples
    --------
    >>> _format_unit(3.5e6, _SIZES), _format_unit(0.2, _TIMES), _format_unit(5400, _TIMES)
    ('3.5 MB', '0.2 s', '1.5 h')
    """
    unit, length = next((u for u in units if value >= u[1]), units[-1])
    count = value / length
    return f"{count:.0f} {unit}" if count >= 10.0 else f"{count:.1f} {unit}"


def _format_range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _describe_exact(found: Forecast) -> str:
    secure = found.question.secure
    if any(op.release.reveals is Reveals.SCATTER for op in found.method.ops):
        whose = "the full covariance of all sites together, not of a single site"
        if not secure:
            whose = "each site's full covariance"
        return f"Exact: the coordinator can reconstruct {whose}."
    rank = max(case.rank_fraction for case in found.cases)
    variance = max(case.variance_fraction for case in found.cases)
    seen = ", in sums over all sites only" if secure else ""
    return (
        f"Exact: the most exposed site reveals its covariance along {100.0 * rank:.2g}% of "
        f"directions ({variance:.0%} of its variance){seen}."
    )


def _describe_private(found: Forecast) -> str:
    effects = [case.kept for case in found.cases if case.kept is not None]
    problem = next((effect.problem for effect in effects if effect.problem), "")
    if problem:
        return f"Do not use differential privacy here: the run would fail. {problem}"
    captured = [effect.captured for effect in effects if effect.captured is not None]
    ratio = min(effect.ratio for effect in effects if effect.ratio is not None)
    low, high = min(captured), max(captured)
    size = f"d={found.question.width} and n={found.question.n}"
    signal = max(effect.signal for effect in effects if effect.signal is not None)
    if signal < LEAST_SIGNAL and high >= _POOR:
        return (
            f"Do not use differential privacy here: at {size} the first component would be mostly "
            f"noise (its squared cosine with the true one is {signal:.2f}). Its place is taken by "
            "the error of the mean, or by other components: give a rough public_center, more rows, "
            "or a larger epsilon."
        )
    if high < _POOR:
        loss = (
            f"the noise is {ratio:.{0 if ratio >= 10.0 else 1}f} times the signal"
            if ratio >= 1.0
            else f"the components would capture {high:.0%} of the variance of the best components"
        )
        best = " at best" if len(captured) > 1 else ""
        return (
            f"Do not use differential privacy here: at {size} {loss}{best}. Use secure "
            "aggregation, fewer features (selected or projected without looking at the rows), or "
            "more rows."
        )
    epsilon = found.question.privacy.epsilon if found.question.privacy else 0.0
    text = (
        f"Private: at epsilon {epsilon:g} the components capture "
        f"{_format_range(f'{low:.0%}', f'{high:.0%}')} of the variance of the best components."
    )
    if low >= _GOOD:
        return text
    if high < _GOOD or len(captured) == 1:
        return f"{text} More rows, fewer features or a larger epsilon would capture more."
    return (
        f"{text} This depends on how fast the eigenvalues fall: give a spectrum or a decay from "
        "public data before the budget is spent."
    )
