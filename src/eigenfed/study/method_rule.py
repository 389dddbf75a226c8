"""The method of a study file, by the registry: a name, or a table of a name and options."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any

from eigenfed.errors import InputError
from eigenfed.protocol.method import (
    AUTO,
    Method,
    all_methods,
    method_named,
    option_types,
)
from eigenfed.study.rules import Choice, Schema

_TYPES: dict[type[Any], str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
}


@dataclass(frozen=True)
class MethodName:
    """The name of a method."""

    @property
    def words(self) -> str:
        """What goes after "must be"."""
        return self._choice.words

    @property
    def schema(self) -> Schema:
        """As JSON schema."""
        return self._choice.schema

    def taken(self, value: object) -> str:
        """Return the name."""
        return self._choice.taken(value)

    @property
    def _choice(self) -> Choice:
        return Choice(tuple(all_methods()))


@dataclass(frozen=True)
class MethodRule:
    """The name of a method, "auto", or a table with the name and options.

    Examples
    --------
    >>> MethodRule().taken({"name": "power", "local_steps": 2})
    Power(local_steps=2)
    """

    @property
    def words(self) -> str:
        """What goes after "must be"."""
        return f"{_names().words}, or a table of a name and options"

    @property
    def schema(self) -> Schema:
        """As JSON schema; of an option it tells the type only."""
        tables = [_table(name, method) for name, method in all_methods().items()]
        return {"anyOf": [_names().schema, *tables]}

    def taken(self, value: object) -> Method | str:
        """Return the method, or "auto".

        Raises
        ------
        InputError
            If the method does not have an option or does not take its value.
        """
        if not isinstance(value, Mapping):
            name = _names().taken(value)
            return name if name == AUTO else method_named(name)
        options = dict(value)
        name = MethodName().taken(options.pop("name", None))
        return method_named(
            name, {option: _whole(name, option, v) for option, v in options.items()}
        )


def _names() -> Choice:
    return Choice((AUTO, *all_methods()))


def _whole(name: str, option: str, value: Any) -> Any:
    """Take 4.0 as an integer where one is wanted, as JSON schema does."""
    kinds = option_types(all_methods()[name]).get(option, ())
    is_whole = isinstance(value, float) and value.is_integer()
    return int(value) if is_whole and int in kinds and float not in kinds else value


def _table(name: str, method: type[Method]) -> Schema:
    options = {
        option: {"type": sorted({_TYPES[kind] for kind in kinds if kind is not NoneType})}
        for option, kinds in option_types(method).items()
    }
    return {
        "description": method.summary,
        "type": "object",
        "properties": {"name": {"const": name}, **options},
        "required": ["name"],
        "additionalProperties": False,
    }


@dataclass(frozen=True)
class NeedsSingleReplies:
    """The method needs replies of single sites, which secure aggregation does not give."""

    def holds(self, data: Mapping[str, Any]) -> bool:
        """Tell whether the data of a file are so."""
        method = _method(data)
        return method is not None and not method.sums_only()

    @property
    def schema(self) -> Schema:
        """As JSON schema, for methods without options: with options, only the method can tell."""
        return _named(tuple(n for n, cls in all_methods().items() if not cls().sums_only()))


@dataclass(frozen=True)
class CannotBePrivate:
    """The method cannot be made private, or is given options, which do not apply under privacy."""

    def holds(self, data: Mapping[str, Any]) -> bool:
        """Tell whether the data of a file are so."""
        method, given = _method(data), data.get("method")
        has_options = isinstance(given, Mapping) and len(given) > 1
        return method is not None and (not method.private or has_options)

    @property
    def schema(self) -> Schema:
        """As JSON schema."""
        named = _named(tuple(n for n, cls in all_methods().items() if not cls.private))
        with_options = {"properties": {"method": {"type": "object", "minProperties": 2}}}
        return {"required": ["method"], "anyOf": [named, with_options]}


def _named(names: tuple[str, ...]) -> Schema:
    plain = {"properties": {"name": {"enum": list(names)}}, "maxProperties": 1}
    table = {"type": "object", "required": ["name"], **plain}
    return {
        "required": ["method"],
        "properties": {"method": {"anyOf": [{"enum": list(names)}, table]}},
    }


def _method(data: Mapping[str, Any]) -> Method | None:
    try:
        found = MethodRule().taken(data.get("method", AUTO))
    except (InputError, ValueError):
        return None
    return None if isinstance(found, str) else found
