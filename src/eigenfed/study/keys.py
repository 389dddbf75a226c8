"""The table of a file's keys, from which its checks, its JSON schema and its template are made."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from eigenfed.study.rules import Rule, Schema


@dataclass(frozen=True)
class Key:
    """One key of a file.

    Attributes
    ----------
    name : str
    rule : Rule
    comment : str
        What it is for, in a sentence or two.
    remedy : str
        What to do about a value that breaks the rule.
    example : object
        A value that holds, as TOML has it.
    default : object or None
        What an absent key stands for; None is nothing.
    required : bool
    """

    name: str
    rule: Rule
    comment: str
    remedy: str
    example: Any
    default: Any = None
    required: bool = False


@dataclass(frozen=True)
class Table:
    """Keys under one header of a file, or at its top.

    Attributes
    ----------
    name : str
        Empty at the top.
    comment : str
    keys : tuple of Key
    tables : tuple of Table
    barred : tuple of Barred
        What does not go together, among all keys below.
    required : bool
        Whether the file must have it, where it is not the whole file.
    """

    name: str
    comment: str
    keys: tuple[Key, ...]
    tables: tuple["Table", ...] = ()
    barred: tuple["Barred", ...] = ()
    required: bool = False

    def places(self) -> Iterator[tuple[str, str]]:
        """Yield each key's name and the header that it belongs under, all the way down."""
        for key in self.keys:
            yield key.name, self.name
        for table in self.tables:
            for name, header in table.places():
                yield name, ".".join(filter(None, (self.name, header)))


class Condition(Protocol):
    """Something that the data of a file may fulfil."""

    def holds(self, data: Mapping[str, Any]) -> bool:
        """Say whether the data of a file are so."""

    @property
    def schema(self) -> Schema:
        """As JSON schema."""


@dataclass(frozen=True)
class Given:
    """A key is there; its name is dotted below the top."""

    key: str

    def holds(self, data: Mapping[str, Any]) -> bool:
        """Say whether the data of a file are so."""
        return found(data, self.key) is not None

    @property
    def schema(self) -> Schema:
        """As JSON schema."""
        return _reached(self.key, None)


@dataclass(frozen=True)
class Is:
    """A key is there with one of these values."""

    key: str
    values: tuple[Any, ...]

    def holds(self, data: Mapping[str, Any]) -> bool:
        """Say whether the data of a file are so."""
        return found(data, self.key) in self.values

    @property
    def schema(self) -> Schema:
        """As JSON schema."""
        return _reached(self.key, {"enum": list(self.values)})


@dataclass(frozen=True)
class Below:
    """A key is there with a number below a limit, or a list of fewer entries."""

    key: str
    limit: int

    def holds(self, data: Mapping[str, Any]) -> bool:
        """Say whether the data of a file are so."""
        value = found(data, self.key)
        if value is None:
            return False
        return bool((len(value) if isinstance(value, list) else value) < self.limit)

    @property
    def schema(self) -> Schema:
        """As JSON schema; each of the two says nothing of values of the other kind."""
        return _reached(self.key, {"exclusiveMaximum": self.limit, "maxItems": self.limit - 1})


@dataclass(frozen=True)
class Not:
    """Something else does not hold."""

    other: Condition

    def holds(self, data: Mapping[str, Any]) -> bool:
        """Say whether the data of a file are so."""
        return not self.other.holds(data)

    @property
    def schema(self) -> Schema:
        """As JSON schema."""
        return {"not": self.other.schema}


@dataclass(frozen=True)
class Barred:
    """What does not go together, and what to say then.

    Examples
    --------
    >>> both = Barred((Given("decay"), Given("spectrum")), "decay and spectrum ... Keep one.")
    >>> both.applies({"decay": 0.5}), both.applies({"decay": 0.5, "spectrum": "a.txt"})
    (False, True)
    """

    conditions: tuple[Condition, ...]
    text: str

    def applies(self, data: Mapping[str, Any]) -> bool:
        """Say whether the data of a file are barred by this."""
        return all(condition.holds(data) for condition in self.conditions)

    @property
    def schema(self) -> Schema:
        """As JSON schema."""
        schemas = [condition.schema for condition in self.conditions]
        return {"description": self.text, "not": {"allOf": schemas}}


def found(data: Mapping[str, Any], key: str) -> Any:
    """Return what stands under a dotted key; None where nothing does."""
    value: Any = data
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value


def _reached(key: str, schema: Schema | None) -> Schema:
    first, _, rest = key.partition(".")
    inner = _reached(rest, schema) if rest else schema
    return {"required": [first]} | ({} if inner is None else {"properties": {first: inner}})
