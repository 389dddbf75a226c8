"""TOML files read by a table of keys: every fault names the file, the key, the rule, the remedy."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from eigenfed.errors import DataError, InputError
from eigenfed.study.keys import Key, Table
from eigenfed.study.toml import toml
from eigenfed.study.wording import TABLE_KEYS

_LARGEST = 1 << 20
_LONGEST_SHOWN = 80
_QUOTED = re.compile(
    r"""
      \#[^\n]*+
    | "{3}(?:[^"\\]|\\.|"(?!""))*+(?:"{3,5}|\Z)
    | '{3}(?:[^']|'(?!''))*+(?:'{3,5}|\Z)
    | "(?:[^"\\\n]|\\.)*+"?
    | '[^'\n]*+'?
    """,
    re.VERBOSE | re.DOTALL,
)
_LONG_KEY = re.compile(r"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){32}")
"""The time that a key takes grows with the square of its parts."""


def read_toml(path: Path) -> dict[str, Any]:
    """Read a file of TOML.

    Raises
    ------
    InputError
        If it cannot be opened.
    DataError
        If it is no TOML. Nothing of it is quoted: it may be a data file, passed by mistake.

    Examples
    --------
    >>> read_toml(Path("nowhere.toml"))
    Traceback (most recent call last):
    eigenfed.errors.InputError: nowhere.toml cannot be read: No such file or directory. Check ...
    """
    text = read_text(path)
    if _LONG_KEY.search(_QUOTED.sub("q", text)):
        raise DataError(f"{path} has a key of more than 32 parts. Take it out.")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # Before Python 3.14 the error has no attribute for the line: only its text tells.
        line = re.search(r"at line (\d+)", str(error))
        where = f"line {line.group(1)} cannot be read" if line else "it ends too early"
    except RecursionError:
        where = "its lists or tables are nested too deeply"
    except ValueError:
        where = "a number has too many digits"
    raise DataError(
        f"{path} is no TOML: {where}. Write a key = value a line, text in quotes, each key once."
    )


def read_text(path: Path) -> str:
    """Read a small file of UTF-8 text."""
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        why = error.strerror or "the disk refuses"
        raise InputError(f"{path} cannot be read: {why}. Check the path.") from None
    if len(data) > _LARGEST:
        raise DataError(f"{path} has more than {_LARGEST >> 20} MB. Name a file of settings.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        pass
    raise DataError(f"{path} is not UTF-8 text. Save it in that encoding.")


def checked(path: Path, data: Mapping[str, Any], table: Table) -> dict[str, Any]:
    """Return a file's values, with defaults for those that are absent.

    Parameters
    ----------
    path : Path
        For messages.
    data : mapping
        As `read_toml` gives it.
    table : Table

    Returns
    -------
    dict
        A value for each key, None where there is neither one nor a default; for each inner table
        such a dict, or None.

    Raises
    ------
    DataError
        On the first fault.
    """
    values = _checked(path, data, table, "", table)
    for bar in table.barred:
        if bar.applies(data):
            raise DataError(f"{path}: {bar.text}")
    return values


def _checked(
    path: Path, data: Mapping[str, Any], table: Table, above: str, top: Table
) -> dict[str, Any]:
    known = [key.name for key in table.keys] + [inner.name for inner in table.tables]
    for name in data:
        if name not in known:
            raise DataError(f"{path}: {_unknown(name, above, known, top)}")
    values = {key.name: _value(path, data, key, above) for key in table.keys}
    for inner in table.tables:
        full = above + inner.name
        found = data.get(inner.name)
        if found is not None and not isinstance(found, Mapping):
            raise DataError(
                f"{path}: {full} = {_shown(found)} must be a table. Write its keys below [{full}]."
            )
        if found is None and inner.required:
            found = {}
        values[inner.name] = (
            None if found is None else _checked(path, found, inner, f"{full}.", top)
        )
    return values


def _value(path: Path, data: Mapping[str, Any], key: Key, above: str) -> Any:
    full = above + key.name
    if key.name not in data:
        if key.required:
            place = f" below [{above[:-1]}]" if above else ""
            raise DataError(
                f"{path}: {full} is needed and must be {key.rule.words}. Write "
                f"{key.name} = {toml(key.example)}{place}, for example."
            )
        return key.default
    fault = ""
    try:
        return key.rule.taken(data[key.name])
    except InputError as error:
        fault = error.worded(TABLE_KEYS)
    except ValueError:
        pass
    if fault:
        raise DataError(f"{path}: in {full}, {fault}")
    raise DataError(
        f"{path}: {full} = {_shown(data[key.name])} must be {key.rule.words}. {key.remedy}"
    )


def _unknown(name: str, above: str, known: list[str], top: Table) -> str:
    where = f"of [{above[:-1]}]" if above else "of this file"
    if len(name) > _LONGEST_SHOWN:
        return f"A key of {len(name)} letters is no key {where}. Take it out."
    text = f"{name!r} is no key {where}."
    homes = [header for key, header in top.places() if key == name]
    if homes:
        home = f"below [{homes[0]}]" if homes[0] else "at the top, above every [table]"
        return f"{text} Write it {home}."
    close = get_close_matches(name, known, n=1, cutoff=0.5)
    if close:
        return f"{text} Write {close[0]!r} if that is meant, or take it out."
    return f"{text} Take it out; it may have {', '.join(known)}."


def _shown(value: Any) -> str:
    try:
        text = toml(value)
    except (RecursionError, ValueError):
        return "what is too long or too deep to show"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


@contextmanager
def at_key(path: Path, key: str) -> Iterator[None]:
    """Say of an error which file and key it is about."""
    fault = ""
    try:
        yield
    except (InputError, DataError) as error:
        fault = error.worded(TABLE_KEYS)
    if fault:
        raise DataError(f"{path}: in {key}, {fault}")
