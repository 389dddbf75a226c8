"""Results of earlier releases, read with the keys of this one."""

from typing import Any

_RENAMED = {"clarity": "signal"}
"""Keys of release 0.1, and their names since 0.2."""

_LATER: dict[str, dict[str, Any]] = {
    "asked": {"options": {}},
    "certificate": {"angles": None, "failure": None},
    "privacy": {"epsilon_outsiders": None, "epsilon_participants": None},
}
"""Entries that results of releases 0.1 and 0.2 may lack, and their values there."""

_EARLIER_TOL = 2e-8
"""Default of `tol` until 0.2, when it was a residual relative to the largest eigenvalue."""
_DEFAULT_TOL = 1e-4


_ADDED: dict[str, Any] = {
    "date": None,
    "run": None,
    "missing": None,
    "further": [],
    "further_exact": False,
    "noise_edge": None,
    "remaining_noise_edge": None,
    "sampling_angles": None,
    "confidence_angles": None,
}
"""Facts that results of releases up to 0.2 lack, and their values there."""


def upgrade_facts(facts: dict[str, Any]) -> dict[str, Any]:
    """Return facts with the keys of this release, also for a result of an earlier one."""
    upgraded = _ADDED | {_RENAMED.get(name, name): value for name, value in facts.items()}
    for name, added in _LATER.items():
        if isinstance(upgraded.get(name), dict):
            upgraded[name] = added | upgraded[name]
    upgraded.setdefault("prepare", None)
    asked = upgraded.get("asked")
    terms = asked.get("privacy") if isinstance(asked, dict) else None
    if isinstance(asked, dict) and (
        asked.get("certify") is True or asked.get("tol") == _EARLIER_TOL
    ):
        # A residual says nothing of degrees: repeat such a run with the default.
        asked["tol"] = _DEFAULT_TOL
        asked["certify"] = asked.get("certify") and "auto"
    if isinstance(terms, dict) and "tolerate" in terms:
        # In 0.1 one number counted colluders and dropouts together; the noise was the same.
        terms["colluders"] = terms.pop("tolerate")
        terms |= {"dropouts": 0, "count": "public"}
    return upgraded
