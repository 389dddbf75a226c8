"""The method in a study file, from the registry: a name, or a table with a name and options."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from eigenfed.protocol.method import (
    AUTO,
    Method,
    all_methods,
    method_named,
    option_defaults,
    option_types,
)
from eigenfed.study.config.conflicts import Condition, Schema
from eigenfed.study.config.fields import Rule, describe_schema

_JSON_TYPES: dict[type[Any], str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
}


@dataclass(frozen=True)
class FromRegistry:
    """A value that is checked against the methods registered at the time.

    Attributes
    ----------
    read : callable
        Takes the value as TOML has it; raises ValueError if it is wrong.
    schema : callable
        Returns the JSON schema.
    """

    read: Callable[[Any], Any]
    schema: Callable[[], Schema]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return how pydantic checks it."""
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the JSON schema."""
        return self.schema()


def read_name(value: Any) -> str:
    """Return the name of a method.

    Raises
    ------
    ValueError
        If there is no method of that name.
    """
    if not isinstance(value, str) or value not in all_methods():
        raise ValueError
    return value


def read_method(value: Any) -> Method | str:
    """Return the method that a value of a study file stands for, or "auto".

    Raises
    ------
    ValueError
        If the value names no method.
    InputError
        If the method does not have an option, or does not accept its value.

    Examples
    --------
    >>> read_method({"name": "power", "local_steps": 2})
    Power(local_steps=2)
    """
    if value == AUTO:
        return AUTO
    if not isinstance(value, Mapping):
        return method_named(read_name(value))
    options = dict(value)
    name = read_name(options.pop("name", None))
    return method_named(name, {key: _take_integer(name, key, v) for key, v in options.items()})


def _take_integer(name: str, option: str, value: Any) -> Any:
    """Return 4 for 4.0 if an integer is required, as everywhere in these files."""
    kinds = option_types(all_methods()[name]).get(option, ())
    is_integer = isinstance(value, float) and value.is_integer()
    return int(value) if is_integer and int in kinds and float not in kinds else value


def get_name_schema() -> Schema:
    """Return the JSON schema of the name of a method."""
    return {"enum": list(all_methods())}


def get_method_schema() -> Schema:
    """Return the JSON schema of a method; of an option it has the type and the default.

    Examples
    --------
    >>> get_method_schema()["anyOf"][0]["enum"][:2]
    ['auto', 'covariance']
    """
    tables = [_get_table_schema(name, method) for name, method in all_methods().items()]
    return {"anyOf": [{"enum": [AUTO, *all_methods()]}, *tables]}


def _get_table_schema(name: str, method: type[Method]) -> Schema:
    defaults = option_defaults(method)
    options: dict[str, Schema] = {}
    for option, kinds in option_types(method).items():
        names = sorted({_JSON_TYPES[kind] for kind in kinds if kind is not NoneType})
        options[option] = {"type": names[0] if len(names) == 1 else names}
        if defaults.get(option) is not None:
            options[option]["default"] = defaults[option]
    return {
        "description": method.summary,
        "type": "object",
        "properties": {"name": {"const": name}, **options},
        "required": ["name"],
        "additionalProperties": False,
    }


def _describe_method() -> str:
    return f"{describe_schema(get_method_schema()['anyOf'][0])}, or a table of a name and options"


MethodName = Annotated[str, FromRegistry(read_name, get_name_schema)]
MethodOption = Annotated[
    Method | str, FromRegistry(read_method, get_method_schema), Rule(_describe_method)
]


def needs_single_replies() -> Condition:
    """Return the condition that a method needs replies of single sites, not only sums.

    Of a method with options the schema says nothing: only the method itself can tell.
    """

    def test(value: Any) -> bool:
        method = read_method(value)
        return isinstance(method, Method) and not method.sums_only()

    def schema() -> Schema:
        return _match_names([n for n, cls in all_methods().items() if not cls().sums_only()])

    return Condition("method", test, schema)


def cannot_be_private() -> Condition:
    """Return the condition that a method has no private form, or is given options.

    Under differential privacy options do not apply.
    """

    def test(value: Any) -> bool:
        method = read_method(value)
        has_options = isinstance(value, Mapping) and len(value) > 1
        return isinstance(method, Method) and (not method.private or has_options)

    def schema() -> Schema:
        named = _match_names([n for n, cls in all_methods().items() if not cls.private])
        return {"anyOf": [*named["anyOf"], {"type": "object", "minProperties": 2}]}

    return Condition("method", test, schema)


def _match_names(names: list[str]) -> Schema:
    """Return the JSON schema of some methods without options."""
    table = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"enum": names}},
        "maxProperties": 1,
    }
    return {"anyOf": [{"enum": names}, table]}
