"""The file format of a summary: every rule that its fields obey is checked when they are read."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from eigenfed.arrays import Container
from eigenfed.errors import DataError

_KIND = "summary"
_VERSION = 2
_WITHOUT_NAMES = 1
"""Version of files without names, which releases before 0.3 read."""
LONGEST_NAME = 1000
_SCALARS = {"n": float, "energy": float, "lost": float, "rank": int, "centered": bool}
_ARRAYS = ("mean", "s", "vt")
_ROUNDING = 1e-9


def write_fields(fields: Mapping[str, Any]) -> bytes:
    """Serialise the fields of a summary."""
    names, arrays = fields.get("names"), {name: fields[name] for name in _ARRAYS}
    if names is not None:
        arrays["names"] = np.frombuffer(json.dumps(names).encode(), np.uint8)
    return Container(
        _KIND,
        _WITHOUT_NAMES if names is None else _VERSION,
        {name: kind(fields[name]) for name, kind in _SCALARS.items()},
        arrays,
    ).to_bytes()


def read_fields(data: bytes) -> dict[str, Any]:
    """Read and check the fields of a summary.

    Raises
    ------
    DataError
        If the bytes are not a summary, are truncated, corrupt, of another version, or hold
        invalid numbers.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise DataError(f"data has type {type(data).__name__}. Pass the output of to_bytes().")
    container = Container.from_bytes(data, kind=_KIND, version=_VERSION, oldest=_WITHOUT_NAMES)
    fields: dict[str, Any] = {**container.scalars, **container.arrays}
    if container.version == _WITHOUT_NAMES:
        fields.setdefault("names", None)
    else:
        fields["names"] = _read_names(fields.get("names"))
    for rule, holds in _RULES.items():
        try:
            with np.errstate(all="ignore"):
                broken = not holds(fields)
        except (AttributeError, KeyError, TypeError, ValueError):
            broken = True
        if broken:
            raise DataError(f"The data are not a valid summary: {rule}. Write them again.")
    return fields


def _read_names(stored: Any) -> Any:
    """Return stored names as a tuple; anything that is not a list of names as it is."""
    try:
        return tuple(json.loads(stored.tobytes()))
    except (AttributeError, TypeError, ValueError, RecursionError):
        return stored


def are_names(names: Any, d: int) -> bool:
    """Return whether these are different texts, one for each of d features."""
    return (
        isinstance(names, tuple)
        and len(names) == d
        and all(isinstance(name, str) and len(name) <= LONGEST_NAME for name in names)
        and len(set(names)) == d
    )


def _has_fields(f: Mapping[str, Any]) -> bool:
    return f.keys() == {*_SCALARS, *_ARRAYS, "names"} and all(
        type(f[name]) is kind for name, kind in _SCALARS.items()
    )


def _has_shapes(f: Mapping[str, Any]) -> bool:
    d, kept = len(f["mean"]), len(f["s"])
    shapes = [f[name].shape for name in _ARRAYS]
    doubles = all(f[name].dtype == np.float64 for name in _ARRAYS)
    fits = shapes == [(d,), (kept,), (kept, d)] and d > 0
    return doubles and fits and kept <= min(d, f["rank"]) and f["rank"] >= 1


def _is_orthonormal(f: Mapping[str, Any]) -> bool:
    gram = f["vt"] @ f["vt"].T
    return bool(np.allclose(gram, np.eye(len(gram)), rtol=0.0, atol=_ROUNDING))


def _has_valid_energy(f: Mapping[str, Any]) -> bool:
    rounding = _ROUNDING * f["energy"]
    missed = f["energy"] - float(f["s"] @ f["s"])
    return bool(missed >= -rounding and 0.0 <= f["lost"] <= max(missed, 0.0) + rounding)


_RULES: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "a field is missing, unknown or of another type": _has_fields,
    "the shapes of mean (d,), s (r,) and vt (r, d) or the rank do not match": _has_shapes,
    "the names are not different texts, one for each feature": lambda f: (
        f["names"] is None or are_names(f["names"], len(f["mean"]))
    ),
    "a number is not finite": lambda f: all(np.isfinite(f[name]).all() for name in _ARRAYS),
    "n is negative": lambda f: f["n"] >= 0.0,
    "s is negative or not in decreasing order": lambda f: (
        np.all(f["s"] >= 0.0) and np.all(np.diff(f["s"]) <= 0.0)
    ),
    "the rows of vt are not orthonormal": _is_orthonormal,
    "energy or lost contradict s": _has_valid_energy,
    "n is 0 but other fields are not": lambda f: (
        f["n"] > 0.0 or not (f["energy"] or len(f["s"]) or f["mean"].any())
    ),
    "centered is false but the mean is not 0": lambda f: f["centered"] or not f["mean"].any(),
}
