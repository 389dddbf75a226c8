"""A summary's fields as bytes and back, with every rule they obey checked on the way in."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from eigenfed.arrays import Container
from eigenfed.errors import DataError

_KIND = "summary"
_VERSION = 1
_SCALARS = {"n": float, "energy": float, "lost": float, "rank": int, "centered": bool}
_ARRAYS = ("mean", "s", "vt")
_ROUNDING = 1e-9


def write_fields(fields: Mapping[str, Any]) -> bytes:
    """Serialise the fields of a summary."""
    return Container(
        _KIND,
        _VERSION,
        {name: kind(fields[name]) for name, kind in _SCALARS.items()},
        {name: fields[name] for name in _ARRAYS},
    ).to_bytes()


def read_fields(data: bytes) -> dict[str, Any]:
    """Read the fields of a summary.

    Raises
    ------
    DataError
        If the bytes are foreign, cut short, corrupt, of another version, or hold numbers that no
        summary has.
    """
    container = Container.from_bytes(data, kind=_KIND, version=_VERSION)
    fields = {**container.scalars, **container.arrays}
    for rule, holds in _RULES.items():
        try:
            with np.errstate(all="ignore"):
                broken = not holds(fields)
        except (AttributeError, KeyError, TypeError, ValueError):
            broken = True
        if broken:
            raise DataError(f"The data are not a sound summary: {rule}. Write them again.")
    return fields


def _has_fields(f: Mapping[str, Any]) -> bool:
    return f.keys() == {*_SCALARS, *_ARRAYS} and all(
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


def _has_sound_energy(f: Mapping[str, Any]) -> bool:
    rounding = _ROUNDING * f["energy"]
    missed = f["energy"] - float(f["s"] @ f["s"])
    return bool(missed >= -rounding and 0.0 <= f["lost"] <= max(missed, 0.0) + rounding)


_RULES: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "a field is absent, foreign or of another type": _has_fields,
    "mean (d,), s (r,) and vt (r, d) do not fit each other or the rank": _has_shapes,
    "a number is not finite": lambda f: all(np.isfinite(f[name]).all() for name in _ARRAYS),
    "n is negative": lambda f: f["n"] >= 0.0,
    "s is negative or not in falling order": lambda f: (
        np.all(f["s"] >= 0.0) and np.all(np.diff(f["s"]) <= 0.0)
    ),
    "the rows of vt are not orthonormal": _is_orthonormal,
    "energy or lost contradict s": _has_sound_energy,
    "there are no rows and yet something is known of them": lambda f: (
        f["n"] > 0.0 or not (f["energy"] or len(f["s"]) or f["mean"].any())
    ),
    "rows that are not centred have a mean": lambda f: f["centered"] or not f["mean"].any(),
}
