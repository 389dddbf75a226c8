"""Results as text for a terminal."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from eigenfed.report.wording import (
    MOSTLY,
    describe_basis,
    describe_clear,
    describe_missing,
    expect_between,
    explain_no_bound,
    explain_no_variance,
    is_partly,
    size,
    things,
)

if TYPE_CHECKING:
    from eigenfed.protocol.private.noise_verdict import NoiseVerdict

_SHOWN = 20
_NAMED = 5


def fit_text(facts: dict[str, Any]) -> str:
    """Format the result of a fit: components, cost, accuracy, leakage and privacy.

    Parameters
    ----------
    facts : dict
        The content of ``result.json``.
    """
    head = study_size(facts["k"], facts["n"], facts["d"], len(facts["sites"]))
    head = f"{head}, by {facts['method']}"
    lines = [
        *_list_warnings(facts),
        head,
        "",
        *_format_spectrum(facts["eigenvalues"], facts["ratios"]),
        "",
    ]
    lines += [
        f"rounds       {facts['rounds']}",
        f"sent         {size(facts['bytes_up'])} by the sites, {size(facts['bytes_down'])} to them",
        f"certificate  {_describe_certificate(facts)}",
        f"leakage      {_describe_leakage(facts)}",
        f"privacy      {_describe_privacy(facts)}",
    ]
    if facts["prepare"] is not None:
        lines[-5:-5] = [f"prepared     {_describe_preparation(facts)}", *_list_attrition(facts)]
    if (missing := describe_missing(facts, spaced=False)) is not None:
        lines[-5:-5] = [f"missing      {missing}"]
    if facts["by_site"] is not None and len(facts["sites"]) > 1:
        lines.insert(-2, f"sites        {_describe_sites(facts)}")
    if facts["privacy"] is not None:
        lines.insert(-1, f"signal kept  {_describe_signal(facts['signal'])}")
        lines[-6:-6] = _list_hidden(facts)
    return "\n".join(lines)


def judge_facts(facts: dict[str, Any]) -> "NoiseVerdict":
    """Return what noise has done to a private result; nothing without privacy."""
    from eigenfed.protocol.private.noise_verdict import NoiseVerdict, judge_noise

    if facts["privacy"] is None:
        return NoiseVerdict(False, ())
    return judge_noise(facts["signal"], facts["ratios"], facts["d"])


def _list_hidden(facts: dict[str, Any]) -> list[str]:
    """Return a line about fractions whose total noise has hidden, if it has."""
    from eigenfed.protocol.private.noise_verdict import hides_rest

    if not hides_rest(facts["ratios"], facts["d"]):
        return []
    return ["fractions    of the variance of the components alone: noise hides that of the rest"]


def study_size(k: int, n: float, d: int, sites: int) -> str:
    """Format the size of a study.

    Examples
    --------
    >>> study_size(1, 4050, 120, 3)
    '1 component of 4050 rows x 120 features at 3 sites'
    """
    return (
        f"{things(k, 'component')} of {n} row{'s' * (n != 1)} x {d} feature{'s' * (d != 1)} at "
        f"{things(sites, 'site')}"
    )


def _describe_preparation(facts: dict[str, Any]) -> str:
    """List the steps, and how many features a selection has kept."""
    steps, features = facts["prepare"]["steps"], facts["prepare"]["features"]
    kept = f"; {facts['d']} of {features} features kept" if features != facts["d"] else ""
    return ", ".join(steps) + kept


def _list_attrition(facts: dict[str, Any]) -> list[str]:
    """List how many variants each step has removed, if steps filter variants."""
    if "attrition" not in facts["prepare"]:
        return []
    from eigenfed.data.variant_filters import Attrition, format_attrition

    table = [Attrition(**row) for row in facts["prepare"]["attrition"]]
    return [f"             {line}" for line in format_attrition(table)]


def _describe_signal(signal: list[float] | None) -> str:
    """Format how much signal noise has left, and how many components are mostly noise."""
    if signal is None:
        return "unknown: see eigenfed plan for a forecast"
    kept = ", ".join(f"PC{place} {part:.0%}" for place, part in enumerate(signal, start=1))
    if len(signal) > _NAMED:
        kept = f"PC1 {signal[0]:.0%} to PC{len(signal)} {signal[-1]:.0%}"
    text = f"{kept} (estimated squared cosine with the component without noise)"
    noisy = sum(part < MOSTLY for part in signal)
    if not noisy:
        return text
    verb = "is" if noisy == 1 else "are"
    which = "all are" if noisy == len(signal) else f"{noisy} of {len(signal)} {verb}"
    return f"{text}; {which} mostly noise (see eigenfed plan for what would help)"


def _describe_sites(facts: dict[str, Any]) -> str:
    """Name the components that mostly reflect differences between sites."""
    explained: list[float] = facts["by_site"]["explained"]
    by_chance = expect_between(facts["n"], len(facts["sites"]))
    large = [f"PC{place}" for place, part in enumerate(explained, start=1) if part >= MOSTLY]
    if facts["center"] == "site":
        return "each site subtracted its own mean, so that their means do not differ"
    if not large:
        most = max(explained)
        if is_partly(most, by_chance):
            place = explained.index(most) + 1
            where = f"{most:.0%} of the variance of PC{place} lies between sites"
            return f"{where}: check how they differ"
        amount = "less than 1%" if most < 0.01 else f"at most {most:.0%}"
        return f"{amount} of a component's variance lies between sites"
    more = f" and {len(large) - _NAMED} more" if len(large) > _NAMED else ""
    verb = "reflects" if len(large) == 1 else "reflect"
    causes = "ancestry and genotyping" if facts["scale"] == "genotype" else "units and batches"
    return (
        f"{', '.join(large[:_NAMED])}{more} mostly {verb} differences between sites (up to "
        f"{max(explained):.0%} of the variance): check {causes} first"
    )


def _format_spectrum(values: list[float | None], ratios: list[float | None]) -> list[str]:
    lines = [f"{'':<6}{'variance':>14}{'fraction':>10}{'cumulative':>12}"]
    total = 0.0
    for place, (value, ratio) in enumerate(zip(values, ratios, strict=True), start=1):
        total += math.nan if ratio is None else ratio
        if place <= _SHOWN:
            cells = f"{number(value):>14}{percentage(ratio):>10}{percentage(total):>12}"
            lines.append(f"{f'PC{place}':<6}{cells}")
    if len(values) > _SHOWN:
        lines.append(
            f"and {len(values) - _SHOWN} more; all {len(values)} together explain "
            f"{percentage(total)}"
        )
    return lines


def _describe_certificate(facts: dict[str, Any]) -> str:
    grade = facts["certificate"]
    if grade is None:
        return "none"
    of = "for the matrix with noise: " if facts["privacy"] else ""
    converged, bound = sum(grade["converged"]), grade["angle_bound"]
    angle = "no bound on the angle"
    if bound is not None:
        angle = f"angle at most {degrees(bound)}, {describe_basis(grade['failure'])}"
    return f"{of}{converged} of {things(facts['k'], 'component')} converged, {angle}"


def _list_warnings(facts: dict[str, Any]) -> list[str]:
    """Return the first lines of a result whose accuracy is not certified."""
    grade = facts["certificate"]
    if facts["total_variance"] == 0.0:
        return [f"NOT CERTIFIED: {explain_no_variance(facts)}", ""]
    clear = describe_clear(facts)
    if clear is not None:
        return [f"PARTLY CONVERGED: {clear}", ""]
    reason = explain_no_bound(grade, facts["k"])
    return [] if reason is None else [f"NOT CERTIFIED: {reason}", ""]


def _describe_leakage(facts: dict[str, Any]) -> str:
    if facts["privacy"]:
        trusted = facts["privacy"]["trust"] == "central"
        place = "the trusted coordinator" if trusted else "a site"
        terms = facts["asked"]["privacy"]
        public = "" if terms.get("count") == "private" else ", except numbers of rows"
        return f"nothing left {place} without noise{public}"
    from eigenfed.study.results.facts import sends_covariance

    if facts["split"] == "samples" and sends_covariance(facts["method"]):
        if facts["secure"]:
            return (
                "the coordinator can reconstruct the full covariance of all sites together, not of "
                "a single site"
            )
        return "the coordinator can reconstruct each site's full covariance"
    rank, variance = (facts["leakage"][name] for name in ("rank_fraction", "variance_fraction"))
    along = "less than 1%" if 0.0 < rank < 0.01 else f"{rank:.0%}"
    text = (
        f"the most exposed site revealed its covariance along {along} of directions "
        f"({variance:.0%} of its variance)"
    )
    return f"{text}, in sums over all sites only" if facts["secure"] else text


def _describe_privacy(facts: dict[str, Any]) -> str:
    if facts["privacy"] is None:
        return "none: what was released is exact, without noise"
    text: str = facts["privacy"]["text"]
    return text.replace("\n", "\n" + 13 * " ")


def number(value: float | None) -> str:
    """Format a number with six digits, or as unknown.

    Examples
    --------
    >>> number(1234.5678), number(None)
    ('1234.57', 'unknown')
    """
    return "unknown" if value is None else f"{value:.6g}"


def percentage(value: float | None) -> str:
    """Format a fraction in percent, or as unknown."""
    return "unknown" if value is None or math.isnan(value) else f"{value:.2%}"


def degrees(radians: float) -> str:
    """Format an angle in degrees.

    Examples
    --------
    >>> degrees(math.pi / 6), degrees(0.0)
    ('3.0e+01 degrees', '0 degrees')
    """
    if radians == 0.0:
        return "0 degrees"
    return f"{math.degrees(radians):.1e} degrees"


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Align rows of text in columns, two spaces apart.

    Examples
    --------
    >>> print(columns([("a", "long"), ("bb", "x")]))
    a   long
    bb  x
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def summary_text(facts: dict[str, Any]) -> str:
    """Format a summary: its size, its spectrum and the error of its components."""
    from eigenfed.study.results.json_types import to_json_types

    shown = to_json_types(facts)
    n, d = shown["n"], shown["d"]
    rows = [f"{n:.12g} row{'s' * (n != 1)} x {d} feature{'s' * (d != 1)}", ""]
    rows += _format_spectrum(shown["eigenvalues"], shown["ratios"])
    bound = shown["sine_bound"]
    if bound is None or bound >= 1.0:
        angle = "unknown: the gap after the last component is too small for a bound"
    else:
        angle = f"at most {degrees(math.asin(bound))} from the components of all rows"
    return "\n".join([*rows, "", f"angle        {angle}"])
