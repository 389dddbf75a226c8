"""Commands and Python code that repeat a run."""

import shlex
from dataclasses import MISSING, fields
from typing import Any

import eigenfed
from eigenfed.data.steps import as_steps, filters_variants
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.privacy.secagg.identity import LEAST_SITES
from eigenfed.protocol.method import AUTO, all_methods, find_method
from eigenfed.protocol.study import GENOTYPE
from eigenfed.report.model import Report
from eigenfed.report.page_elements import Code, PageTable, Part, Section

_DEFAULTS = {"tol": 1e-4, "stop": "all", "max_rounds": 50, "certify": "auto"}
_WIRE = "float64"
_GENOTYPE_DEFAULTS = _DEFAULTS | {"tol": 0.05, "stop": "separated"}
_TERMS = {term.name: term.default for term in fields(Privacy) if term.default is not MISSING}
"""Defaults of the terms of a guarantee."""
_OPTIONS = {
    name: f"--{name.replace('_', '-')}"
    for name in (
        *("clip", "trust", "colluders", "dropouts", "count"),
        *("if_missing", "public_center", "public_scale"),
    )
}
"""The option for each term that has one."""


def show_commands(report: Report) -> Section:
    """Show how to repeat the run, and the versions of the packages."""
    facts = report.facts
    words = [
        "With the same rows at the same sites, this gives the same result"
        + (", except for new noise, which spends budget again." if facts["privacy"] else ".")
    ]
    if facts["seed"] is None and _starts_at_random(facts["method"]):
        words.append(
            "No seed was set: the random start differs from run to run, the converged result does "
            "not."
        )
    parts: list[Part] = []
    line = write_command(facts)
    if facts["command"] is not None:
        label = "On the command line, in the folder where its paths start"
        parts.append(Code(label, shlex.join(facts["command"])))
    elif line is not None:
        parts.append(Code("On the command line, with a file for each site", line))
    parts.append(Code("In Python, with a table for each site", write_python(facts)))
    parts.append(
        PageTable(
            "version-table",
            "Versions",
            ("package", "version"),
            tuple(facts["versions"].items()),
        )
    )
    parts.append(
        PageTable(
            "digest-table",
            "SHA-256 of the files of this result, without those about single rows",
            ("file", "digest"),
            tuple(report.digests.items()),
            folded=True,
        )
    )
    return Section("repeat", "How to repeat the run", tuple(words), tuple(parts))


def _starts_at_random(method: str) -> bool:
    known = all_methods().get(method)
    return known is None or known.random_start


def write_command(facts: dict[str, Any]) -> str | None:
    """Return the command that repeats a run, or None if no command can.

    Examples
    --------
    >>> asked = {"method": "power", "options": {"decay": False}, "privacy": None, **_DEFAULTS}
    >>> facts = {"sites": ["a", "b"], "k": 2, "asked": asked, "secure": False, "scale": False}
    >>> write_command(facts | {"center": True, "split": "samples", "seed": 7})
    'eigenfed fit a.csv b.csv -k 2 --method power --option decay=false --seed 7 -o result'
    """
    asked, terms = facts["asked"], facts["asked"]["privacy"]
    defaults, suffix = _find_defaults(facts)
    if any(asked[name] != defaults[name] for name in ("stop", "max_rounds")):
        return None
    if facts["split"] != "samples" or _find_wire(asked) != _WIRE:
        return None
    if terms is not None and (terms["name"] != "Privacy" or _needs_python(terms)):
        return None
    words = [
        "eigenfed",
        "fit",
        *(f"{site}{suffix}" for site in facts["sites"]),
        "-k",
        str(facts["k"]),
    ]
    words += [] if asked["method"] == AUTO else ["--method", asked["method"]]
    for option, value in asked["options"].items():
        words += ["--option", f"{option}={_format_option(value)}"]
    flags = {"--secure": facts["secure"], "--scale": facts["scale"] is True}
    words += [flag for flag, given in flags.items() if given]
    words += ["--no-secure"] if _is_open(facts) else []
    if any(n for name, n in _list_matches(facts).items() if name != "same"):
        words += ["--manifest", "manifest.bim"]
    words += [] if facts["center"] is True else ["--center", facts["center"] or "none"]
    for step in _list_steps(facts):
        words += ["--prepare", step]
    if terms is not None:
        words += ["--epsilon", _exactly(terms["epsilon"]), "--delta", _exactly(terms["delta"])]
        for name, value in _list_changed(terms).items():
            words += [_OPTIONS[name], _format_term(value)]
    words += [] if asked["tol"] == defaults["tol"] else ["--tol", _exactly(asked["tol"])]
    if asked["certify"] != defaults["certify"]:
        words += ["--certify", asked["certify"] or "no"]
    words += [] if facts["seed"] is None else ["--seed", str(facts["seed"])]
    return shlex.join([*words, "-o", "result"])


def _find_wire(asked: dict[str, Any]) -> str:
    """Return the precision of messages, which results of earlier releases lack."""
    wire: str = asked.get("wire", _WIRE)
    return wire


def _exactly(number: float) -> str:
    """Return a number as short as it can be typed: a rounded epsilon may exceed a budget."""
    short = f"{number:g}"
    return short if float(short) == number else repr(number)


def _find_defaults(facts: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the defaults for the kind of rows, and the suffix of their files."""
    is_packed = facts["scale"] == GENOTYPE
    return (_GENOTYPE_DEFAULTS, ".bed") if is_packed else (_DEFAULTS, ".csv")


def _list_steps(facts: dict[str, Any]) -> list[str]:
    prepare = facts.get("prepare")
    return [] if prepare is None else prepare["steps"]


def _list_matches(facts: dict[str, Any]) -> dict[str, int]:
    """Return how variants were matched to a manifest; nothing for other features."""
    found: dict[str, int] = (facts.get("prepare") or {}).get("matched", {})
    return found


def _is_open(facts: dict[str, Any]) -> bool:
    """Return whether secure aggregation was left out where it is the default."""
    few = len(facts["sites"]) < LEAST_SITES
    return filters_variants(as_steps(_list_steps(facts))) and not (facts["secure"] or few)


def _format_option(value: Any) -> str:
    """Return the value of a method's option as typed on the command line."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _list_changed(terms: dict[str, Any]) -> dict[str, Any]:
    """Return the terms of a guarantee that differ from their defaults.

    Results of earlier releases lack terms that were added since.
    """
    known = {name: terms.get(name, default) for name, default in _TERMS.items()}
    return {name: value for name, value in known.items() if value != _TERMS[name]}


def _format_term(value: Any) -> str:
    """Return a term as typed on the command line."""
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _needs_python(terms: dict[str, Any]) -> bool:
    """Return whether a term differs from its default that has no option."""
    return not _list_changed(terms).keys() <= _OPTIONS.keys()


def write_python(facts: dict[str, Any]) -> str:
    """Return the Python code that repeats a run.

    Examples
    --------
    >>> asked = {"method": "power", "options": {"local_steps": 2}, "privacy": None}
    >>> asked |= {**_DEFAULTS, "tol": 1e-6}
    >>> facts = {"sites": ["a", "b"], "k": 2, "asked": asked, "secure": False, "scale": False}
    >>> facts |= {"center": True, "split": "samples", "seed": None, "by_site": None}
    >>> print(write_python(facts))
    from eigenfed import FederatedPCA, Power
    <BLANKLINE>
    pca = FederatedPCA(2, method=Power(local_steps=2), tol=1e-06)
    pca.fit_sites({"a": ..., "b": ...})
    """
    asked, terms = facts["asked"], facts["asked"]["privacy"]
    names, lines, arguments = ["FederatedPCA"], [], [str(facts["k"])]
    name, method = asked["method"], all_methods().get(asked["method"])
    if asked["options"] and method is not None:
        arguments.append(f"method={find_method(name, asked['options'])!r}")
        if method.__name__ in eigenfed.__all__:
            names.append(method.__name__)
        else:
            lines.append(f"from {method.__module__} import {method.__name__}")
    elif name != AUTO:
        arguments.append(f'method="{name}"')
    arguments += [f'split="{facts["split"]}"'] if facts["split"] != "samples" else []
    arguments += [] if facts["center"] is True else [f"center={facts['center']!r}"]
    arguments += [f"{name}=True" for name in ("scale", "secure") if facts[name] is True]
    arguments += ["secure=False"] if _is_open(facts) else []
    if steps := _list_steps(facts):
        arguments.append(f"prepare={steps!r}")
    if terms is not None:
        given = {name: value for name, value in terms.items() if name != "name"}
        shown = ", ".join(f"{n}={v!r}" for n, v in given.items() if v != _TERMS.get(n, ...))
        arguments.append(f"privacy={terms['name']}({shown})")
        if terms["name"] == "Privacy":
            names.append("Privacy")
        else:
            lines.append(f"from eigenfed.protocol.published import {terms['name']}")
    arguments += [
        f"{n}={asked[n]!r}" for n, value in _find_defaults(facts)[0].items() if asked[n] != value
    ]
    if (wire := _find_wire(asked)) != _WIRE:
        arguments.append(f'transport=Local(wire="{wire}")')
        lines.append("from eigenfed.transport import Local")
    arguments += [] if facts["seed"] is None else [f"random_state={facts['seed']}"]
    sites = ", ".join(f"{_quote(site)}: ..." for site in facts["sites"])
    return "\n".join(
        [
            f"from eigenfed import {', '.join(sorted(names))}",
            *lines,
            "",
            f"pca = FederatedPCA({', '.join(arguments)})",
            f"pca.fit_sites({{{sites}}}{', by_site=True' if facts['by_site'] else ''})",
        ]
    )


def _quote(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
