"""Validation of ``result.json`` and ``run.jsonl``, which anybody may have edited.

The type of each field is checked, and that lists have one entry per component. Other fields are
ignored.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

Rule = Callable[[Any], bool]

_MOST = 2.0**63


def check_facts(facts: Mapping[str, Any]) -> None:
    """Refuse facts that the pages cannot show.

    Parameters
    ----------
    facts : mapping
        From `eigenfed.study.results.result_folder.read_result`, which has checked k, d and the
        lists of variances.

    Raises
    ------
    ValueError

    Examples
    --------
    >>> check_facts({"k": 1, "method": ["power"]})
    Traceback (most recent call last):
    ValueError: method
    """
    for name, rule in _list_rules(facts["k"]).items():
        if name not in facts or not rule(facts[name]):
            raise ValueError(name)
    sites = facts["sites"]
    named = [facts["shown_scores"], facts["ledgers"] or ()]
    by_site = facts["by_site"]
    if len(set(sites)) < len(sites) or any(name not in sites for names in named for name in names):
        raise ValueError("sites")
    if by_site is not None and by_site["sites"].keys() != set(sites):
        raise ValueError("by_site")


def check_events(events: list[dict[str, Any]], sites: list[str]) -> None:
    """Refuse a log that the pages cannot show, or one that names other sites.

    Raises
    ------
    ValueError

    Examples
    --------
    >>> check_events([{"event": "left", "site": "north"}], ["north"])
    Traceback (most recent call last):
    ValueError: left
    """
    for event in events:
        kind = event["event"]
        if kind in _EVENTS and not _EVENTS[kind](event):
            raise ValueError(kind)
        if not _list_sites(event) <= set(sites):
            raise ValueError(kind)


def _list_sites(event: dict[str, Any]) -> set[str]:
    match event["event"]:
        case "request":
            return {*event["bytes_down"], *event["bytes_up"], *event["lost"]}
        case "left":
            return {event["site"]}
        case _:
            return set()


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MOST


def _scalar(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)


def _maybe(rule: Rule) -> Rule:
    return lambda value: value is None or rule(value)


def _list(rule: Rule, length: int | None = None, *, least: int = 0) -> Rule:
    return lambda value: (
        isinstance(value, list)
        and (len(value) >= least if length is None else len(value) == length)
        and all(map(rule, value))
    )


def _by_name(rule: Rule) -> Rule:
    return lambda value: isinstance(value, dict) and all(map(rule, value.values()))


def _table(**rules: Rule) -> Rule:
    return partial(_has, rules)


def _has(rules: Mapping[str, Rule], value: Any) -> bool:
    return isinstance(value, dict) and all(
        name in value and rule(value[name]) for name, rule in rules.items()
    )


def _terms(value: Any) -> bool:
    """Return whether this describes a privacy argument: a class name and its settings."""
    return (
        isinstance(value, dict)
        and _text(value.get("name"))
        and value["name"].isidentifier()
        and all(
            _scalar(entry) or _by_name(_scalar)(entry) or _list(_scalar)(entry)
            for entry in value.values()
        )
    )


def _is_preparation(value: Any) -> bool:
    """Return whether these are steps, with what they removed if they filter variants."""
    row = _list(_table(step=_text, removed=_count, left=_count))
    return (
        _table(steps=_list(_text, least=1), features=_count)(value)
        and row(value.get("attrition", []))
        and _by_name(_count)(value.get("matched", {}))
    )


def _list_rules(k: int) -> dict[str, Rule]:
    by_component = _list(_number, k)
    known = _maybe(_number)
    edge = _table(variance=_number, noise=_number, above=_count, all_above=_flag)
    return {
        "method": _text,
        "reason": _text,
        "sites": _list(_text, least=1),
        "n": _number,
        "secure": _flag,
        "prepare": _maybe(_is_preparation),
        "split": _text,
        "engine": _text,
        "seed": _maybe(_count),
        "study": _maybe(_text),
        "command": _maybe(_list(_text)),
        "date": _maybe(_text),
        "run": _maybe(_text),
        "missing": _maybe(_table(fraction=_number, features=_count, most=_number, most_in=_text)),
        "eigenvalues": by_component,
        "total_variance": known,
        "further": _list(_number),
        "further_exact": _flag,
        "noise_edge": _maybe(edge),
        "remaining_noise_edge": _maybe(edge),
        "sampling_angles": _maybe(by_component),
        "confidence_angles": _maybe(by_component),
        "rounds": _count,
        "bytes_up": _count,
        "bytes_down": _count,
        "scores": _flag,
        "shown_scores": _list(_text),
        "signal": _maybe(by_component),
        "versions": lambda value: _by_name(_text)(value) and "eigenfed" in value,
        "leakage": _table(rank_fraction=_number, variance_fraction=_number),
        "asked": _table(
            method=_text,
            options=_by_name(_scalar),
            tol=_number,
            stop=_scalar,
            max_rounds=_count,
            certify=_scalar,
            privacy=_maybe(_terms),
        ),
        "certificate": _maybe(
            _table(
                residuals=_list(known, k),
                angles=_maybe(_list(known, k)),
                converged=_list(_flag, k),
                angle_bound=known,
                angle_estimate=known,
                failure=known,
                orthonormality=_number,
            )
        ),
        "privacy": _maybe(
            _table(
                epsilon=known,
                delta=_number,
                unit=_text,
                relation=_text,
                mechanism=_text,
                trust=_text,
                budget=_by_name(_number),
                claimed_epsilon=known,
                epsilon_outsiders=known,
                epsilon_participants=known,
                text=_text,
            )
        ),
        "ledgers": _maybe(
            _by_name(_table(epsilon=known, delta=known, mu=known, spends=_count, text=_text))
        ),
        "by_site": _maybe(
            _table(
                explained=by_component,
                sites=_by_name(_table(rows=_number, contribution=by_component, shift=by_component)),
            )
        ),
    }


_EVENTS = {
    "request": _table(
        round=_count,
        op=_text,
        bytes_down=_by_name(_count),
        bytes_up=_by_name(_count),
        lost=_list(_text),
        angle=_maybe(_number),
    ),
    "left": _table(
        site=_text,
        round=_count,
        op=_text,
        what=_text,
        leaves=_text,
        reveals=_text,
        masked=_flag,
        shapes=_by_name(_list(_count)),
        bytes=_count,
    ),
}
