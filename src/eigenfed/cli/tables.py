"""Results as short pages that people can read."""

import math
from collections.abc import Sequence
from typing import Any

from eigenfed.report.wording import MOSTLY, size

_SHOWN = 20
_NAMED = 5


def fit_text(facts: dict[str, Any]) -> str:
    """Write what a fit found and what it cost.

    Parameters
    ----------
    facts : dict
        As ``result.json`` has them.
    """
    sites = len(facts["sites"])
    head = (
        f"{facts['k']} components of {facts['n']} rows x {facts['d']} features at {sites} "
        f"site{'s' * (sites != 1)}, by {facts['method']}"
    )
    lines = [head, "", *_spectrum(facts["eigenvalues"], facts["ratios"]), ""]
    lines += [
        f"rounds       {facts['rounds']}",
        f"sent         {size(facts['bytes_up'])} by the sites, {size(facts['bytes_down'])} to them",
        f"certificate  {_certificate(facts)}",
        f"leakage      {_leakage(facts)}",
        f"privacy      {_privacy(facts)}",
    ]
    if facts["by_site"] is not None:
        lines.insert(-2, f"sites        {_between(facts['by_site']['explained'])}")
    if facts["privacy"] is not None:
        lines.insert(-1, f"noise        {_signal(facts['signal'])}")
    return "\n".join(lines)


def _signal(signal: list[float] | None) -> str:
    """Say what noise has left of the components, and which of them are mostly noise."""
    if signal is None:
        return "what it has left of the components is not known: see eigenfed plan"
    kept = ", ".join(f"PC{place} {share:.0%}" for place, share in enumerate(signal, start=1))
    if len(signal) > _NAMED:
        kept = f"PC1 {signal[0]:.0%} to PC{len(signal)} {signal[-1]:.0%}"
    told = f"of its direction without noise a component keeps about: {kept}"
    drowned = sum(share < MOSTLY for share in signal)
    if not drowned:
        return told
    which = "all of them are" if drowned == len(signal) else f"{drowned} of {len(signal)} are"
    return f"{told}; {which} mostly noise (see eigenfed plan for what would help)"


def _between(explained: list[float]) -> str:
    """Say which components tell sites apart: a hospital is easily taken for a finding."""
    apart = [f"PC{place}" for place, share in enumerate(explained, start=1) if share >= MOSTLY]
    if not apart:
        return f"at most {max(explained):.0%} of a component's variance is between sites"
    more = f" and {len(apart) - _NAMED} more" if len(apart) > _NAMED else ""
    tell = "tells" if len(apart) == 1 else "tell"
    return (
        f"{', '.join(apart[:_NAMED])}{more} mostly {tell} sites apart (up to {max(explained):.0%} "
        "between them): look at units and batches first"
    )


def _spectrum(values: list[float | None], ratios: list[float | None]) -> list[str]:
    lines = [f"{'':<6}{'variance':>14}{'share':>10}{'sum':>10}"]
    kept = 0.0
    for place, (value, ratio) in enumerate(zip(values, ratios, strict=True), start=1):
        kept += math.nan if ratio is None else ratio
        if place <= _SHOWN:
            lines.append(f"{f'PC{place}':<6}{number(value):>14}{share(ratio):>10}{share(kept):>10}")
    if len(values) > _SHOWN:
        lines.append(
            f"and {len(values) - _SHOWN} more, which hold {share(kept)} together with these"
        )
    return lines


def _certificate(facts: dict[str, Any]) -> str:
    grade = facts["certificate"]
    if grade is None:
        return "none"
    of = "of the matrix with noise, " if facts["privacy"] else ""
    converged = sum(grade["converged"])
    bound = grade["angle_bound"]
    angle = "no bound on the angle" if bound is None else f"angle at most {degrees(bound)}"
    return (
        f"{of}{converged} of {facts['k']} components converged, largest residual "
        f"{max(grade['residuals']):.1e}, {angle}"
    )


def _leakage(facts: dict[str, Any]) -> str:
    if facts["privacy"]:
        trusted = facts["privacy"]["trust"] == "central"
        place = "the trusted coordinator" if trusted else "a site"
        terms = facts["asked"]["privacy"]
        public = "" if terms.get("count") == "private" else ", but numbers of rows"
        return f"nothing left {place} without noise{public}"
    rank, variance = (facts["leakage"][name] for name in ("rank_fraction", "variance_fraction"))
    seen = "in secure sums, so its own part is hidden" if facts["secure"] else "by itself"
    return (
        f"the most open site answered about {rank:.0%} of the directions, {variance:.0%} of its "
        f"variance, {seen}"
    )


def _privacy(facts: dict[str, Any]) -> str:
    if facts["privacy"] is None:
        return "none: what was released is exact, without noise"
    text: str = facts["privacy"]["text"]
    return text.replace("\n", "\n" + 13 * " ")


def number(value: float | None) -> str:
    """Write a number in six digits, or that it is not known.

    Examples
    --------
    >>> number(1234.5678), number(None)
    ('1234.57', 'unknown')
    """
    return "unknown" if value is None else f"{value:.6g}"


def share(value: float | None) -> str:
    """Write a share in percent, or that it is not known."""
    return "unknown" if value is None or math.isnan(value) else f"{value:.2%}"


def degrees(radians: float) -> str:
    """Write an angle in degrees."""
    return f"{math.degrees(radians):.1e} degrees"


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Set rows of text in columns, two spaces apart.

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
    """Write what a summary knows of its rows."""
    from eigenfed.study.results.facts import plain

    shown = plain(facts)
    rows = [f"{shown['n']:.12g} rows x {shown['d']} features", ""]
    rows += _spectrum(shown["eigenvalues"], shown["ratios"])
    bound = shown["sine_bound"]
    if bound is None or bound >= 1.0:
        angle = "unknown: the spectrum is too flat after the last component"
    elif bound == 0.0:
        angle = "0: nothing of the rows' scatter was let go"
    else:
        angle = f"at most {degrees(math.asin(bound))} to the components of all rows at once"
    return "\n".join([*rows, "", f"angle        {angle}"])
