"""Keys that cannot be combined: each rule is checked in Python and written as JSON schema."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

Schema = dict[str, Any]


@dataclass(frozen=True)
class Condition:
    """A key is present, with a value that passes a test.

    Attributes
    ----------
    key : str
        Dotted from the table on that has the conflict.
    test : callable
        Takes the value as TOML has it.
    schema : callable
        Returns the JSON schema of the values that pass the test. It is called when a schema is
        made, as the methods that are registered may change.
    negated : bool
        Whether the key must be absent, or have another value, instead.

    Examples
    --------
    >>> is_secure = equals("secure", True)
    >>> is_secure.holds({"secure": True}), (~is_secure).holds({})
    (True, True)
    """

    key: str
    test: Callable[[Any], bool]
    schema: Callable[[], Schema]
    negated: bool = False

    def __invert__(self) -> "Condition":
        return replace(self, negated=not self.negated)

    def holds(self, data: Mapping[str, Any]) -> bool:
        """Tell whether the content of a table fulfils the condition."""
        value = find_value(data, self.key)
        return (value is not None and self.test(value)) != self.negated

    def to_schema(self) -> Schema:
        """Return the condition as JSON schema of that table."""
        schema = _nest_schema(self.key, self.schema())
        return {"not": schema} if self.negated else schema


@dataclass(frozen=True)
class Conflict:
    """Conditions that must not all hold, and the message if they do.

    Examples
    --------
    >>> both = Conflict((given("decay"), given("spectrum")), "Both are given. Keep one of them.")
    >>> both.applies({"decay": 0.5}), both.applies({"decay": 0.5, "spectrum": "a.txt"})
    (False, True)
    """

    conditions: tuple[Condition, ...]
    text: str

    def applies(self, data: Mapping[str, Any]) -> bool:
        """Tell whether the content of a table has the conflict."""
        return all(condition.holds(data) for condition in self.conditions)

    def to_schema(self) -> Schema:
        """Return the JSON schema of the tables that do not have the conflict."""
        schemas = [condition.to_schema() for condition in self.conditions]
        return {"description": self.text, "not": {"allOf": schemas}}


def given(key: str) -> Condition:
    """Return the condition that a key is present."""
    return Condition(key, lambda value: True, dict)


def equals(key: str, *values: str | bool) -> Condition:
    """Return the condition that a key has one of some values."""
    return Condition(key, values.__contains__, lambda: {"enum": list(values)})


def below(key: str, limit: int) -> Condition:
    """Return the condition that a number is below a limit, or that a list has fewer entries."""

    def is_below(value: Any) -> bool:
        return bool((len(value) if isinstance(value, list) else value) < limit)

    # Each of the two keywords ignores values of the other kind.
    return Condition(key, is_below, lambda: {"exclusiveMaximum": limit, "maxItems": limit - 1})


def find_value(data: Mapping[str, Any], key: str) -> Any:
    """Return the value of a dotted key; None if the key is absent.

    Examples
    --------
    >>> find_value({"privacy": {"epsilon": 1.0}}, "privacy.epsilon")
    1.0
    """
    value: Any = data
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value


def _nest_schema(key: str, schema: Schema) -> Schema:
    first, _, rest = key.partition(".")
    inner = _nest_schema(rest, schema) if rest else schema
    return {"required": [first]} | ({"properties": {first: inner}} if inner else {})
