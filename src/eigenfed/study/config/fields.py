"""What the models of study and site files are made of: tables, types of values, rules, remedies.

A field of a model is one key of a file. Its type holds the rule, and `pydantic.Field` the
description, the default and an example; from these follow the checks, the messages, the JSON
schemas and the templates. As in JSON schema, 4.0 is an integer, and true is not.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self, TypeVar, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from eigenfed.privacy.dp.sensitivity import RELATIONS
from eigenfed.study.config.conflicts import Conflict, Schema
from eigenfed.study.config.toml_text import KeyPath, format_value

_Marker = TypeVar("_Marker")
_LARGEST = sys.float_info.max
_BOUNDS = {
    "exclusiveMinimum": "above",
    "minimum": "of at least",
    "exclusiveMaximum": "below",
    "maximum": "at most",
}


@dataclass(frozen=True)
class Rule:
    """What a value must be, in words that follow "must be"; for types whose schema cannot tell.

    Attributes
    ----------
    words : str or callable
        A callable is asked when a message is made.
    """

    words: str | Callable[[], str]

    def __str__(self) -> str:
        return self.words if isinstance(self.words, str) else self.words()


@dataclass(frozen=True)
class Remedy:
    """What to do about a wrong value, where an example does not say it."""

    text: str


@dataclass(frozen=True)
class OneOf:
    """One of a few strings."""

    options: tuple[str, ...]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return how pydantic checks it."""
        return core_schema.literal_schema(list(self.options))


@dataclass(frozen=True)
class ReadAs:
    """A table of the file from which an object of another class is made.

    Attributes
    ----------
    table : subclass of TomlTable
        The keys.
    build : callable
        Takes the table, returns the object, and raises `InputError` if it breaks a rule.
    """

    table: type["TomlTable"]
    build: Callable[[Any], Any]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return how pydantic checks it."""
        table = handler.generate_schema(self.table)
        return core_schema.no_info_after_validator_function(self.build, table)


class Unique:
    """A list in which no entry is repeated."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return how pydantic checks it."""
        return core_schema.no_info_after_validator_function(_check_unique, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the JSON schema."""
        return handler(schema) | {"uniqueItems": True}


def _check_unique(entries: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(set(entries)) < len(entries):
        raise ValueError
    return entries


class TomlSchema(GenerateJsonSchema):
    """JSON schemas of TOML files, which have no null and need no titles of keys."""

    def generate(self, schema: CoreSchema, mode: JsonSchemaMode = "validation") -> JsonSchemaValue:
        """Return the schema of a model, with what it is about at the top."""
        found = super().generate(schema, mode)
        first = {name: found[name] for name in ("title", "description") if name in found}
        return {"$schema": self.schema_dialect} | first | found

    def sort(self, value: JsonSchemaValue, parent_key: str | None = None) -> JsonSchemaValue:
        """Keep the order of the keys in the models."""
        return value

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        """Return the schema of a table with free keys, which must match the pattern of names."""
        found = super().dict_schema(schema)
        return found | {"additionalProperties": False} if "patternProperties" in found else found

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        """Return the schema of a value that may be left out."""
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Return the schema of a value with its default, if it has one."""
        found = super().default_schema(schema)
        return found if found.get("default") is not None else _without(found, "default")

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Leave the titles of keys out."""
        return False


def _finish_schema(schema: Schema, table: type[Any]) -> None:
    schema["description"] = describe_table(table)
    if table.conflicts:
        schema["allOf"] = [conflict.to_schema() for conflict in table.conflicts]


class TomlTable(BaseModel):
    """The keys of a file, or of one table of it.

    Attributes
    ----------
    conflicts : tuple of Conflict
        Keys that cannot be combined, dotted from this table on.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra=_finish_schema)

    conflicts: ClassVar[tuple[Conflict, ...]] = ()

    @model_validator(mode="wrap")
    @classmethod
    def check_conflicts(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Refuse keys that cannot be combined, once each of them holds by itself."""
        table = handler(data)
        found = [conflict for conflict in cls.conflicts if conflict.applies(data)]
        if found:
            raise PydanticCustomError("conflict", "Keys conflict.", {"conflicts": found})
        return table


def take_integer(value: Any) -> Any:
    """Return 4 for 4.0, and leave to pydantic what is not a number.

    Examples
    --------
    >>> take_integer(4.0), take_integer("4")
    (4, '4')
    """
    if isinstance(value, int | float) and not -_LARGEST <= value <= _LARGEST:
        raise ValueError
    return int(value) if isinstance(value, float) and value.is_integer() else value


def take_number(value: Any) -> float:
    """Return a finite number as a float.

    Examples
    --------
    >>> take_number(2)
    2.0
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError
    if not -_LARGEST <= value <= _LARGEST:
        raise ValueError
    return float(value)


NAME_RULE = "1 to 64 letters, digits, - and _, starting with a letter or digit"

_AS_INTEGER, _AS_NUMBER = BeforeValidator(take_integer), BeforeValidator(take_number)

Flag = Annotated[bool, Field(strict=True), Remedy("Write true or false, without quotes.")]
Positive = Annotated[int, Field(strict=True, ge=1), _AS_INTEGER]
NotNegative = Annotated[int, Field(strict=True, ge=0), _AS_INTEGER]
AtLeastTwo = Annotated[int, Field(strict=True, ge=2), _AS_INTEGER]
Seed = Annotated[int, Field(strict=True, ge=0, le=2**32 - 1), _AS_INTEGER]
PositiveNumber = Annotated[float, Field(gt=0), _AS_NUMBER]
NotNegativeNumber = Annotated[float, Field(ge=0), _AS_NUMBER]
Fraction = Annotated[float, Field(ge=0, le=1), _AS_NUMBER]
Ratio = Annotated[float, Field(gt=0, le=1), _AS_NUMBER]
Epsilon = Annotated[float, Field(gt=0, lt=1e6), _AS_NUMBER]
Delta = Annotated[float, Field(gt=0, lt=1), _AS_NUMBER]
Name = Annotated[
    str, Field(strict=True, pattern="^(?:[A-Za-z0-9][A-Za-z0-9_-]{0,63})$"), Rule(NAME_RULE)
]
Relation = Annotated[
    str,
    OneOf(RELATIONS),
    Field(
        description="Neighbouring data sets differ in one row, which is either replaced by "
        "another row (replace_one) or left out of every sum (zero_out).",
        examples=[RELATIONS[0]],
    ),
]
FileName = Annotated[
    str, Field(strict=True, pattern=r"^(?:[^\u0000]+)$"), Rule("the path of a file, in quotes")
]


def list_keys(
    table: type[TomlTable], above: KeyPath = ()
) -> Iterator[tuple[KeyPath, type[TomlTable]]]:
    """Yield each key of a file with the table that it stands in, all the way down.

    Examples
    --------
    >>> class Shares(TomlTable):
    ...     mean: NotNegativeNumber = 0.5
    >>> [(key, table.__name__) for key, table in list_keys(Shares, ("privacy", "shares"))]
    [(('privacy', 'shares', 'mean'), 'Shares')]
    """
    for name, field in table.model_fields.items():
        inner = find_table(field)
        if inner is None:
            yield (*above, name), table
        else:
            yield from list_keys(inner, (*above, name))


def find_table(field: FieldInfo) -> type[TomlTable] | None:
    """Return the table that a field stands for; None if it is a single key."""
    found = find_marker(field, ReadAs)
    if found is not None:
        return found.table
    kinds = (field.annotation, *get_args(field.annotation))
    return next((k for k in kinds if isinstance(k, type) and issubclass(k, TomlTable)), None)


def find_marker(field: FieldInfo, kind: type[_Marker]) -> _Marker | None:
    """Return the marker of one kind in the type of a field, the outermost if there are several.

    Examples
    --------
    >>> class Site(TomlTable):
    ...     share_scores: Flag = False
    >>> find_marker(Site.model_fields["share_scores"], Remedy)
    Remedy(text='Write true or false, without quotes.')
    """
    # The markers of X in the type "X | None" are not among those of the field.
    optional = (getattr(part, "__metadata__", ()) for part in get_args(field.annotation))
    for markers in (field.metadata, *optional):
        for marker in reversed(markers):
            if isinstance(marker, kind):
                return marker
    return None


def describe_table(table: type[TomlTable]) -> str:
    """Return what a table is about, which is the docstring of its model, on one line."""
    return " ".join((table.__doc__ or "").split())


def get_example(field: FieldInfo) -> Any:
    """Return a value that a key may have, as TOML has it."""
    return field.examples[0] if field.examples else None


def describe_rule(table: type[TomlTable], name: str) -> str:
    """Return what a key must be, in words that follow "must be".

    Examples
    --------
    >>> class Study(TomlTable):
    ...     components: Positive
    >>> describe_rule(Study, "components")
    'an integer of at least 1'
    """
    rule = find_marker(table.model_fields[name], Rule)
    if rule is not None:
        return str(rule)
    return describe_schema(get_schema(table)["properties"][name])


def describe_schema(schema: Schema) -> str:
    """Return what a JSON schema of a single value allows, in words.

    Examples
    --------
    >>> describe_schema({"type": "number", "exclusiveMinimum": 0, "maximum": 1})
    'a number above 0 and at most 1'
    >>> describe_schema({"enum": ["public", "private"]})
    'one of "public", "private"'
    """
    if "const" in schema:
        return format_value(schema["const"])
    if "enum" in schema:
        return f"one of {', '.join(map(format_value, schema['enum']))}"
    if schema["type"] == "boolean":
        return "true or false"
    kind = "an integer" if schema["type"] == "integer" else "a number"
    if kind == "an integer" and "maximum" in schema:
        return f"an integer from {schema['minimum']} to {schema['maximum']}"
    bounds = " and ".join(f"{_BOUNDS[b]} {schema[b]:g}" for b in _BOUNDS if b in schema)
    return f"{kind} {bounds}".rstrip()


def advise(table: type[TomlTable], name: str) -> str:
    """Return what to do about a wrong value of a key.

    Examples
    --------
    >>> class Study(TomlTable):
    ...     components: Positive = Field(examples=[4])
    >>> advise(Study, "components")
    'Set components = 4, for example.'
    """
    field = table.model_fields[name]
    remedy = find_marker(field, Remedy)
    if remedy is not None:
        return remedy.text
    return f"Set {name} = {format_value(get_example(field))}, for example."


def get_schema(table: type[TomlTable]) -> Schema:
    """Return the JSON schema (draft 2020-12) of a table.

    Examples
    --------
    >>> class Site(TomlTable):
    ...     min_rows: Positive = Field(description="Fewest rows.", examples=[20])
    >>> get_schema(Site)["properties"]["min_rows"]["description"]
    'Fewest rows.'
    """
    return table.model_json_schema(schema_generator=TomlSchema)


def _without(schema: Schema, name: str) -> Schema:
    return {key: value for key, value in schema.items() if key != name}
