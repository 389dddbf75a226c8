"""Kinds of values in study and site files: what holds, in words, in Python and as JSON schema.

A rule takes a value as TOML gives it. As in JSON schema, 4.0 is a whole number, and true is none.
"""

import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Schema = dict[str, Any]

_LARGEST = sys.float_info.max


class Rule(Protocol):
    """What a value must be."""

    @property
    def words(self) -> str:
        """What goes after "must be"."""

    @property
    def schema(self) -> Schema:
        """The same as JSON schema."""

    def taken(self, value: object) -> Any:
        """Return the value as it is used; ValueError where it breaks the rule."""


@dataclass(frozen=True)
class Flag:
    """True or false."""

    words = "true or false"

    @property
    def schema(self) -> Schema:
        """As JSON schema."""
        return {"type": "boolean"}

    def taken(self, value: object) -> bool:
        """Return the flag."""
        if not isinstance(value, bool):
            raise ValueError
        return value


@dataclass(frozen=True)
class Whole:
    """A whole number within bounds that are part of it.

    Examples
    --------
    >>> Whole(1, 9).words, Whole(1).taken(4.0)
    ('a whole number from 1 to 9', 4)
    """

    least: int
    most: int | None = None

    @property
    def words(self) -> str:
        """What goes after "must be"."""
        if self.most is None:
            return f"a whole number of at least {self.least}"
        return f"a whole number from {self.least} to {self.most}"

    @property
    def schema(self) -> Schema:
        """As JSON schema."""
        most = {} if self.most is None else {"maximum": self.most}
        return {"type": "integer", "minimum": self.least} | most

    def taken(self, value: object) -> int:
        """Return the number."""
        number = _real(value)
        if number != math.floor(number) or number < self.least:
            raise ValueError
        if self.most is not None and number > self.most:
            raise ValueError
        return int(number)


@dataclass(frozen=True)
class Real:
    """A finite number within bounds: some part of it, some not.

    Examples
    --------
    >>> Real(above=0, most=1).words
    'a number above 0 and at most 1'
    """

    above: float | None = None
    least: float | None = None
    below: float | None = None
    most: float | None = None

    @property
    def words(self) -> str:
        """What goes after "must be"."""
        bounds = {
            "above": self.above,
            "of at least": self.least,
            "below": self.below,
            "at most": self.most,
        }
        told = " and ".join(f"{text} {b:g}" for text, b in bounds.items() if b is not None)
        return f"a number {told}".rstrip()

    @property
    def schema(self) -> Schema:
        """As JSON schema."""
        bounds = {
            "exclusiveMinimum": self.above,
            "minimum": self.least,
            "exclusiveMaximum": self.below,
            "maximum": self.most,
        }
        return {"type": "number"} | {name: b for name, b in bounds.items() if b is not None}

    def taken(self, value: object) -> float:
        """Return the number."""
        number = _real(value)
        low = (self.above is None or number > self.above) and (
            self.least is None or number >= self.least
        )
        high = (self.below is None or number < self.below) and (
            self.most is None or number <= self.most
        )
        if not (low and high):
            raise ValueError
        return float(number)


@dataclass(frozen=True)
class Text:
    """Text that a pattern describes, in the syntax that Python and JSON schema share."""

    words: str
    pattern: str

    @property
    def schema(self) -> Schema:
        """As JSON schema."""
        return {"type": "string", "pattern": f"^(?:{self.pattern})$"}

    def taken(self, value: object) -> str:
        """Return the text."""
        if not isinstance(value, str) or not re.fullmatch(self.pattern, value):
            raise ValueError
        return value


@dataclass(frozen=True)
class Choice:
    """One of a few texts."""

    options: tuple[str, ...]

    @property
    def words(self) -> str:
        """What goes after "must be"."""
        shown = ", ".join(f'"{option}"' for option in self.options)
        return shown if len(self.options) == 1 else f"one of {shown}"

    @property
    def schema(self) -> Schema:
        """As JSON schema."""
        return {"enum": list(self.options)}

    def taken(self, value: object) -> str:
        """Return the option."""
        if not isinstance(value, str) or value not in self.options:
            raise ValueError
        return value


@dataclass(frozen=True)
class Listed:
    """A list in which nothing comes twice."""

    each: Rule
    words: str
    least: int = 0

    @property
    def schema(self) -> Schema:
        """As JSON schema."""
        least = {"minItems": self.least} if self.least else {}
        return {"type": "array", "items": self.each.schema, "uniqueItems": True} | least

    def taken(self, value: object) -> tuple[Any, ...]:
        """Return the entries."""
        if not isinstance(value, list) or len(value) < self.least:
            raise ValueError
        entries = tuple(map(self.each.taken, value))
        if len(set(entries)) < len(entries):
            raise ValueError
        return entries


@dataclass(frozen=True)
class ByName:
    """A value for each of some names."""

    name: Text
    each: Rule
    words: str

    @property
    def schema(self) -> Schema:
        """As JSON schema."""
        return {
            "type": "object",
            "propertyNames": {"pattern": self.name.schema["pattern"]},
            "additionalProperties": self.each.schema,
        }

    def taken(self, value: object) -> dict[str, Any]:
        """Return the values."""
        if not isinstance(value, Mapping):
            raise ValueError
        return {self.name.taken(name): self.each.taken(entry) for name, entry in value.items()}


@dataclass(frozen=True)
class Either:
    """What one rule or the other allows."""

    one: Rule
    other: Rule

    @property
    def words(self) -> str:
        """What goes after "must be"."""
        return f"{self.one.words}, or {self.other.words}"

    @property
    def schema(self) -> Schema:
        """As JSON schema."""
        return {"anyOf": [self.one.schema, self.other.schema]}

    def taken(self, value: object) -> Any:
        """Return the value."""
        try:
            return self.one.taken(value)
        except ValueError:
            return self.other.taken(value)


def _real(value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError
    if not -_LARGEST <= value <= _LARGEST:
        raise ValueError
    return value
