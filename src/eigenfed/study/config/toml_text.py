"""TOML files as text: reading them with limits, finding the line of a key, writing values.

The standard library reads TOML but neither writes it nor finds the line of a key.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from eigenfed.errors import DataError, InputError

_LARGEST = 1 << 20
_MOST_PARTS = 32
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
# The time that tomllib takes for a key grows with the square of its parts.
_LONG_KEY = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{_MOST_PARTS}}}")
_DOTTED = r"[\w-]+(?:[ \t]*\.[ \t]*[\w-]+)*"
_HEADER = re.compile(rf"[ \t]*\[[ \t]*({_DOTTED})[ \t]*\]")
_ASSIGNED = re.compile(rf"[ \t]*({_DOTTED})[ \t]*=")

KeyPath = tuple[str, ...]
"""A key by its parts, as ``("privacy", "epsilon")``."""


@dataclass(frozen=True)
class Document:
    """A TOML file that was read.

    Attributes
    ----------
    path : Path
        For messages.
    data : mapping
        The content, as `tomllib` returns it.
    text : str
        The text from which lines are counted; empty if it is not known.
    """

    path: Path
    data: Mapping[str, Any]
    text: str = ""

    def find_line(self, key: KeyPath) -> int | None:
        r"""Return the line of a key, or of the innermost table around it that is written.

        Examples
        --------
        >>> text = "[privacy]\nepsilon = 1\nshares = { mean = 2 }\n"
        >>> document = Document(Path("study.toml"), tomllib.loads(text), text)
        >>> document.find_line(("privacy", "epsilon"))
        2
        >>> document.find_line(("privacy", "shares", "mean"))
        3
        """
        for end in range(len(key), 0, -1):
            if key[:end] in self._lines:
                return self._lines[key[:end]]
        return None

    @cached_property
    def _lines(self) -> dict[KeyPath, int]:
        """Lines of bare keys and headers; keys in quotes are left out."""
        lines: dict[KeyPath, int] = {}
        header: KeyPath = ()
        depth = 0
        for number, line in enumerate(_blank_strings(self.text).split("\n"), start=1):
            if depth == 0:
                if found := _HEADER.match(line):
                    header = _split_key(found[1])
                    lines.setdefault(header, number)
                elif found := _ASSIGNED.match(line):
                    lines.setdefault(header + _split_key(found[1]), number)
            depth += len(re.findall(r"[\[{]", line)) - len(re.findall(r"[\]}]", line))
        return lines


def read_document(path: Path) -> Document:
    """Read a TOML file.

    Raises
    ------
    InputError
        If it cannot be opened.
    DataError
        If it is not TOML. Nothing of it is quoted: it may be a data file, passed by mistake.

    Examples
    --------
    >>> read_document(Path("nowhere.toml"))
    Traceback (most recent call last):
    eigenfed.errors.InputError: nowhere.toml cannot be read: No such file or directory. Check ...
    """
    text = read_text(path)
    if _LONG_KEY.search(_QUOTED.sub("q", text)):
        raise DataError(f"{path} has a key of more than {_MOST_PARTS} parts. Remove it.")
    try:
        return Document(path, tomllib.loads(text), text)
    except tomllib.TOMLDecodeError as error:
        # Before Python 3.14 the error has no attribute for the line: only its text tells.
        line = re.search(r"at line (\d+)", str(error))
        where = f"line {line.group(1)} cannot be read" if line else "the file ends too early"
    except RecursionError:
        where = "its lists or tables are nested too deeply"
    except ValueError:
        where = "a number has too many digits"
    raise DataError(
        f"{path} is not valid TOML: {where}. Write one key = value per line, strings in quotes, "
        "and each key once."
    )


def read_text(path: Path, largest: int = _LARGEST) -> str:
    """Read a small file of UTF-8 text.

    Parameters
    ----------
    path : Path
    largest : int, optional
        Largest size in bytes.

    Raises
    ------
    InputError
        If it cannot be opened.
    DataError
        If it is too large or not UTF-8.
    """
    try:
        with path.open("rb") as file:
            data = file.read(largest + 1)
    except OSError as error:
        why = error.strerror or "the disk refuses"
        raise InputError(f"{path} cannot be read: {why}. Check the path.") from None
    if len(data) > largest:
        raise DataError(
            f"{path} has more than {largest >> 20} MB. Pass a file of settings, not of data."
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        pass
    raise DataError(f"{path} is not UTF-8 text. Save it in that encoding.")


def format_value(value: Any) -> str:
    """Write a value as TOML, on one line.

    Examples
    --------
    >>> format_value({"north": [1, 2.5, True, "a"]})
    '{ north = [1, 2.5, true, "a"] }'
    """
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case list() | tuple():
            return f"[{', '.join(map(format_value, value))}]"
        case Mapping():
            entries = (f"{_format_key(key)} = {format_value(v)}" for key, v in value.items())
            return f"{{ {', '.join(entries)} }}"
        case _:
            return str(value)


def _format_key(key: str) -> str:
    bare = key.replace("-", "").replace("_", "")
    return key if bare.isalnum() and bare.isascii() else format_value(key)


def _blank_strings(text: str) -> str:
    """Replace strings and comments by spaces, with the line breaks within them kept."""
    return _QUOTED.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def _split_key(dotted: str) -> KeyPath:
    return tuple(part.strip() for part in dotted.split("."))
