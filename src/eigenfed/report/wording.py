"""Numbers, sizes and lists of names as text for people."""

import math
from collections.abc import Mapping
from typing import Any

MOSTLY = 0.5
"""Fraction from which a component is called "mostly" an effect."""
_PARTLY = 0.1
"""Fraction from which it is called "partly" one, if that is not what chance alone gives."""


def expect_between(n: float, sites: int) -> float:
    """Return the fraction of a component's variance that lies between sites by chance.

    Examples
    --------
    >>> expect_between(101, 6)
    0.05
    """
    return min((sites - 1) / max(n - 1, 1), 1.0)


def is_partly(part: float, by_chance: float) -> bool:
    """Return whether a fraction between sites is worth a look, and more than chance."""
    return part >= max(_PARTLY, 3 * by_chance)


def count(value: float) -> str:
    """Format a number of things.

    Examples
    --------
    >>> count(4050), count(3.5)
    ('4,050', '3.5')
    """
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.6g}"


def things(number: int, thing: str) -> str:
    """Format a number with a noun.

    Examples
    --------
    >>> things(1, "site"), things(3000, "row"), things(2, "reply"), things(2, "entry")
    ('1 site', '3,000 rows', '2 replies', '2 entries')
    """
    if number == 1:
        return f"1 {thing}"
    several = f"{thing[:-1]}ies" if thing.endswith(("ly", "ry")) else f"{thing}s"
    return f"{number:,} {several}"


def number(value: float | None) -> str:
    """Format a number with four significant digits.

    Examples
    --------
    >>> number(1234.5678), number(3.2e-9), number(None)
    ('1,235', '3.2e-09', 'unknown')
    """
    if value is None:
        return "unknown"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.4g}"


def signed(value: float) -> str:
    """Format a number with its sign and two decimals.

    Examples
    --------
    >>> signed(1.234), signed(-0.5), signed(-0.001)
    ('+1.23', '-0.50', '0.00')
    """
    text = f"{value:+.2f}"
    return text if float(text) else "0.00"


def percent(fraction: float | None) -> str:
    """Format a fraction in percent.

    Examples
    --------
    >>> percent(0.7134), percent(0.0003), percent(0.0), percent(1.0), percent(None)
    ('71 %', '0.03 %', '0 %', '100 %', 'unknown')
    """
    if fraction is None:
        return "unknown"
    hundredths = 100.0 * fraction
    return f"{hundredths:.0f} %" if hundredths >= 10 else f"{hundredths:.2g} %"


def angle(radians: float) -> str:
    """Format an angle in degrees.

    Examples
    --------
    >>> angle(math.pi / 6), angle(1e-10)
    ('30 degrees', '5.7e-09 degrees')
    """
    return f"{math.degrees(radians):.2g} degrees"


def small_angle(radians: float) -> str:
    """Format an angle in degrees; a negligible one as "a millionth of a degree".

    Examples
    --------
    >>> small_angle(1e-10), small_angle(0.01)
    ('a millionth of a degree', '0.57 degrees')
    """
    return "a millionth of a degree" if math.degrees(radians) <= 1e-6 else angle(radians)


def size(number: float) -> str:
    """Format a number of bytes.

    Examples
    --------
    >>> size(512), size(20_480), size(3_500_000)
    ('512 bytes', '20.5 kB', '3.5 MB')
    """
    for unit, limit in (("bytes", 1e3), ("kB", 1e6), ("MB", 1e9)):
        if number < limit:
            return f"{number:g} bytes" if unit == "bytes" else f"{1e3 * number / limit:.1f} {unit}"
    return f"{number / 1e9:.1f} GB"


def duration(seconds: float) -> str:
    """Format a number of seconds with two digits.

    Examples
    --------
    >>> [duration(seconds) for seconds in (0.05, 75.2, 600.0, 9000.0)]
    ['under 0.1 s', '75 s', '10 min', '2.5 h']
    """
    if seconds < 0.1:
        return "under 0.1 s"
    if seconds < 120.0:
        return f"{seconds:.0f} s" if seconds >= 10.0 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200.0 else f"{seconds / 3600:.1f} h"


def join_names(names: list[str], most: int = 6) -> str:
    """Join names in a sentence: the first `most` of them, and how many more there are.

    Examples
    --------
    >>> join_names(["a", "b", "c"]), join_names(["a", "b", "c"], most=1)
    ('a, b and c', 'a and 2 more')
    """
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def shorten(name: str, most: int = 26) -> str:
    """Cut a long name in the middle, as similar names often differ at the ends.

    Examples
    --------
    >>> shorten("a"), shorten("abcdefghij", most=5)
    ('a', 'ab…ij')
    """
    if len(name) <= most:
        return name
    kept = (most - 1) // 2
    return f"{name[: most - 1 - kept]}…{name[-kept:]}"


def name_method(name: str, options: Mapping[str, Any]) -> str:
    """Return the name of a method with its options.

    Examples
    --------
    >>> name_method("power", {"local_steps": 2}), name_method("krylov", {})
    ('power with local_steps = 2', 'krylov')
    """
    given = ", ".join(f"{option} = {value}" for option, value in options.items())
    return f"{name} with {given}" if given else name


def describe_basis(failure: float | None) -> str:
    """Return what a bound on the angle rests on, in words.

    Examples
    --------
    >>> describe_basis(0.0), describe_basis(1e-6), describe_basis(None)
    ('rigorous', 'with probability 1 - 1e-06', 'as an earlier release computed it')
    """
    if failure is None:
        return "as an earlier release computed it"
    return f"with probability 1 - {failure:.0e}" if failure > 0.0 else "rigorous"


def describe_missing(facts: dict[str, Any], *, spaced: bool = True) -> str | None:
    """Return how many entries are missing and where most are, or None if none is known to be.

    Parameters
    ----------
    facts : dict
        As in ``result.json``.
    spaced : bool, default=True
        Whether there is a space before the percent sign, as on a page but not in a terminal.

    Examples
    --------
    >>> missing = {"fraction": 0.004, "features": 2, "most": 0.02, "most_in": "fat %"}
    >>> describe_missing({"d": 6, "missing": missing})
    "0.4 % of the entries, in 2 of 6 features, most in 'fat %' (2 %); they count as the mean"
    >>> describe_missing({"d": 6, "missing": missing}, spaced=False)
    "0.4% of the entries, in 2 of 6 features, most in 'fat %' (2%); they count as the mean"
    """
    found = facts["missing"]
    if found is None or not found["features"]:
        return None
    where = f"{count(found['features'])} of {things(facts['d'], 'feature')}"
    whole, part = (
        percent(found[name]) if spaced else percent(found[name]).replace(" ", "")
        for name in ("fraction", "most")
    )
    most = f"most in {found['most_in']!r} ({part})"
    return f"{whole} of the entries, in {where}, {most}; they count as the mean"


def explain_no_bound(certificate: dict[str, Any] | None, k: int) -> str | None:
    """Return why the accuracy of a result is not certified, or None if it is.

    Parameters
    ----------
    certificate : dict or None
        As in ``result.json``.
    k : int
        Number of components.

    Examples
    --------
    >>> explain_no_bound({"angle_bound": 1e-9, "converged": [True]}, 1)
    >>> explain_no_bound(None, 1)
    'no certificate was computed, so the accuracy of the components is unknown.'
    """
    if certificate is None:
        return "no certificate was computed, so the accuracy of the components is unknown."
    if certificate["angle_bound"] is not None:
        return None
    missing = k - sum(certificate["converged"])
    if missing:
        return (
            f"{missing} of {things(k, 'component')} did not converge, and there is no bound on "
            "the angle to the exact ones."
        )
    return (
        "there is no bound on the angle to the exact components: the next eigenvalue is too close, "
        "so the last component may mix with the next."
    )


def explain_no_variance(facts: dict[str, Any]) -> str:
    """Return why no direction of a result has any variance.

    Parameters
    ----------
    facts : dict
        As in ``result.json``.

    Examples
    --------
    >>> explain_no_variance({"privacy": {"epsilon": 0.1}})
    'noise hides the variance of every direction.'
    """
    if facts["privacy"] is not None:
        return "noise hides the variance of every direction."
    return "all rows are equal, so that no direction explains more variance than another."


def describe_unconverged(facts: dict[str, Any]) -> str:
    """Return what it means that some components have not converged.

    Parameters
    ----------
    facts : dict
        As in ``result.json``, with a certificate.
    """
    certificate = facts["certificate"]
    if facts["total_variance"] == 0.0:
        return f"Not certified: {explain_no_variance(facts)}"
    k, missing = facts["k"], facts["k"] - sum(certificate["converged"])
    no_bound = "Not certified: there is no bound on the angle. "
    return (
        f"{no_bound if certificate['angle_bound'] is None else ''}{missing} of "
        f"{things(k, 'component')} {'is' if missing == 1 else 'are'} not known to be within the "
        f"tolerance of {facts['asked']['tol']:g} degrees. Components of nearly equal variance "
        "never are: only their span is determined. Otherwise allow more rounds, or request fewer "
        "components."
    )


def describe_clear(facts: dict[str, Any]) -> str | None:
    """Return which components of a run converged that stops when those clear of others have.

    Parameters
    ----------
    facts : dict
        As in ``result.json``.

    Returns
    -------
    str or None
        None for other runs, and where all or none of the components have converged.

    Examples
    --------
    >>> asked = {"stop": "separated", "tol": 0.05}
    >>> describe_clear({"asked": asked, "certificate": {"converged": [True, False]}})
    'PC1 is clear of other components, and within 0.05 degrees by estimate. PC2 is not: its variance
    is close to those that follow, as with noise. Do not interpret it.'
    """
    asked, certificate = facts["asked"], facts["certificate"]
    converged = [] if certificate is None else certificate["converged"]
    clear, k = sum(converged), len(converged)
    if asked["stop"] != "separated" or not 0 < clear < k or not all(converged[:clear]):
        return None
    first = f"{_name_range(1, clear)} {'is' if clear == 1 else 'are'}"
    one = k - clear == 1
    rest = f"{_name_range(clear + 1, k)} {'is' if one else 'are'} not: "
    rest += "its variance is" if one else "their variances are"
    return (
        f"{first} clear of other components, and within {asked['tol']:g} degrees by estimate. "
        f"{rest} close to those that follow, as with noise. Do not interpret "
        f"{'it' if one else 'them'}."
    )


def _name_range(first: int, last: int) -> str:
    if first == last:
        return f"PC{first}"
    return f"PC{first} {'and' if last == first + 1 else 'to'} PC{last}"


PLACES = {
    "in_process": "in one process, which had access to the rows of all sites",
    "nvflare": "each site on its own machine; messages by NVIDIA FLARE",
    "files": "each site on its own machine; messages as files",
}
"""Where the sites were, by engine."""
