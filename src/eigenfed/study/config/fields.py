"""Types of the values in study and site files, the base class of their models, JSON schemas.

A field of a model is a key of a file. Checks, error messages, JSON schemas and templates follow
from its type, its docstring and its `pydantic.Field`:

- the docstring below a field, its examples and its default are shown in templates;
- ``title`` completes the sentence "must be ...", if the type does not suffice for that;
- ``$comment`` is the advice about a wrong value, if an example does not suffice.

As in JSON schema, 4.0 is an integer and true is not.
"""

import ast
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PlainValidator,
    TypeAdapter,
    ValidationInfo,
    model_validator,
)
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import PydanticCustomError, core_schema

from eigenfed.data.prepare_step import PrepareStep
from eigenfed.data.steps import MOST_STEPS, STEPS, as_steps
from eigenfed.protocol.method import AUTO, Method, all_methods, find_method, option_types
from eigenfed.study.config.toml_text import KeyPath, format_value

Schema = dict[str, Any]

_Item = TypeVar("_Item")
_LARGEST = sys.float_info.max
_BOUNDS = {
    "exclusiveMinimum": "above",
    "minimum": "of at least",
    "exclusiveMaximum": "below",
    "maximum": "at most",
}


@cache
def _read_docstrings(module: str) -> dict[tuple[str, str], str]:
    """Return the docstrings below fields, by the names of their class and of the field.

    The option `use_attribute_docstrings` of pydantic reads them when a class is defined, which
    takes longer than everything else that is done on import.
    """
    found = {}
    for node in ast.walk(ast.parse(inspect.getsource(sys.modules[module]))):
        for pair in pairwise(node.body if isinstance(node, ast.ClassDef) else ()):
            match node, *pair:
                case (
                    ast.ClassDef(name=table),
                    ast.AnnAssign(target=ast.Name(id=field)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[table, field] = " ".join(text.split())
    return found


def _add_descriptions(schema: Schema, table: type[Any]) -> None:
    schema["description"] = " ".join((table.__doc__ or "").split())
    for (name, field), text in _read_docstrings(table.__module__).items():
        if name == table.__name__:
            schema["properties"][field]["description"] = text


class TomlTable(BaseModel):
    """The keys of a table."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, defer_build=True, json_schema_extra=_add_descriptions
    )

    def find_conflicts(self, data: Mapping[str, Any]) -> Iterator[str]:
        """Yield an error message for each key that cannot be combined with others.

        The first word of a message is the key, dotted from this table on.

        Parameters
        ----------
        data : mapping
            The table as TOML has it, with the keys that are present.
        """
        yield from ()

    @model_validator(mode="wrap")
    @classmethod
    def check_conflicts(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Refuse keys that cannot be combined, once each of them is valid by itself."""
        table = handler(data)
        conflicts = list(table.find_conflicts(data))
        if conflicts:
            raise PydanticCustomError("conflict", "Keys conflict.", {"conflicts": conflicts})
        return table


class TomlFile(TomlTable):
    """The keys of a file; its path is the context of the validation."""

    _path: Path = Path()

    def model_post_init(self, context: Any) -> None:
        """Remember the path."""
        self._path = context or Path()

    @property
    def path(self) -> Path:
        """The file."""
        return self._path


def read_as(table: type[TomlTable], build: Callable[..., Any]) -> PlainValidator:
    """Return a validator of tables from which objects of another class are made.

    Parameters
    ----------
    table : subclass of TomlTable
        The keys.
    build : callable
        Called with the keys as keyword arguments; raises ValueError if they break a rule.
    """

    def read(data: Any, info: ValidationInfo) -> Any:
        return build(**dict(table.model_validate(data, context=info.context)))

    return PlainValidator(read, json_schema_input_type=table)


def _take_integer(value: Any) -> Any:
    """Return 4 for 4.0, and leave to pydantic what is not a number."""
    if isinstance(value, int | float) and not -_LARGEST <= value <= _LARGEST:
        raise ValueError
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _check_unique(items: tuple[_Item, ...]) -> tuple[_Item, ...]:
    if len(set(items)) < len(items):
        raise ValueError
    return items


NAME_PATTERN = "[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
NAME_RULE = "1 to 64 letters from a to z, digits, - and _, starting with a letter or digit"

_AS_INTEGER = BeforeValidator(_take_integer)

_UNIQUE: Schema = {"uniqueItems": True}
_BARE: Schema = {"$comment": "Write true or false, without quotes."}

Flag = Annotated[bool, Field(strict=True, json_schema_extra=_BARE)]
Positive = Annotated[int, Field(strict=True, ge=1), _AS_INTEGER]
NotNegative = Annotated[int, Field(strict=True, ge=0), _AS_INTEGER]
AtLeastTwo = Annotated[int, Field(strict=True, ge=2), _AS_INTEGER]
Port = Annotated[int, Field(strict=True, ge=1, le=65535), _AS_INTEGER]
Seed = Annotated[int, Field(strict=True, ge=0, le=2**32 - 1), _AS_INTEGER]
PositiveNumber = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0)]
NotNegativeNumber = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0)]
FiniteNumber = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Fraction = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0, le=1)]
Share = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0, lt=1)]
Ratio = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0, le=1)]
Epsilon = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0, lt=1e6)]
Delta = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0, lt=1)]
Name = Annotated[str, Field(strict=True, pattern=f"^{NAME_PATTERN}$", title=NAME_RULE)]
Relation = Literal["replace_one", "zero_out"]
UniqueList = Annotated[
    tuple[_Item, ...], Field(json_schema_extra=_UNIQUE), AfterValidator(_check_unique)
]
NonEmptyList = Annotated[
    tuple[_Item, ...],
    Field(min_length=1, json_schema_extra=_UNIQUE),
    AfterValidator(_check_unique),
]

_FileName = Annotated[str, Field(pattern="^[^\\u0000]+$", title="the path of a file, in quotes")]


def _resolve_path(name: Any, info: ValidationInfo) -> Path:
    if not isinstance(name, str) or name == "" or "\0" in name:
        raise ValueError
    return (info.context or Path()).parent / name


FilePath = Annotated[Path, PlainValidator(_resolve_path, json_schema_input_type=_FileName)]
"""A path, which is relative to the folder of the file that it is written in."""


def check_method_name(name: str) -> str:
    """Return the name of a method that is registered."""
    if name not in all_methods():
        raise ValueError
    return name


def read_method(value: Any) -> Method | str:
    """Return the method that a value of a study file describes, or "auto".

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
    options = dict(value) if isinstance(value, Mapping) else {"name": value}
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise ValueError
    kinds = option_types(all_methods()[check_method_name(name)])
    for option, given in options.items():
        if int in kinds.get(option, ()) and float not in kinds[option]:
            options[option] = _take_integer(given)
    return find_method(name, options)


def _check_step_name(name: str) -> str:
    if name not in STEPS:
        raise ValueError
    return name


def _read_steps(value: Any) -> tuple[PrepareStep, ...]:
    if not isinstance(value, list) or not all(isinstance(step, str) for step in value):
        raise ValueError
    return as_steps(value)


def _add_name_schema(schema: Schema) -> None:
    schema["enum"] = list(all_methods())


def _add_method_schema(schema: Schema) -> None:
    names = {"enum": [AUTO, *all_methods()]}
    schema["title"] = f"{describe_schema(names)}, or a table of a name and options"
    schema["anyOf"] = [names]
    for name, method in all_methods().items():
        table = TypeAdapter(method).json_schema(schema_generator=_TomlSchema)
        table["properties"] = {"name": {"const": name}} | table["properties"]
        schema["anyOf"].append(
            {
                "description": method.summary,
                "type": "object",
                "properties": table["properties"],
                "required": ["name"],
                "additionalProperties": False,
            }
        )


# Methods may be registered later: the schemas are made when they are asked for.
MethodName = Annotated[
    str,
    Field(strict=True, json_schema_extra=_add_name_schema),
    AfterValidator(check_method_name),
]
MethodOption = Annotated[
    Method | str, PlainValidator(read_method), Field(json_schema_extra=_add_method_schema)
]


_STEP_SCHEMA: Schema = {
    "type": "array",
    "items": {"type": "string", "pattern": f"^({'|'.join(STEPS)})(:[^:]+){{0,2}}$"},
    "maxItems": MOST_STEPS,
}
Steps = Annotated[
    tuple[PrepareStep, ...],
    PlainValidator(_read_steps),
    Field(json_schema_extra=_STEP_SCHEMA, title='a list of steps in quotes, such as "select:2000"'),
]
StepName = Annotated[
    str, Field(strict=True, json_schema_extra={"enum": [*STEPS]}), AfterValidator(_check_step_name)
]


class _TomlSchema(GenerateJsonSchema):
    """JSON schemas of TOML files, which have no null; keys have no title but their own."""

    def sort(self, value: JsonSchemaValue, parent_key: str | None = None) -> JsonSchemaValue:
        """Keep the order of the keys in the models."""
        return value

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        """Return the schema of a value that may be left out."""
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Return the schema of a value with its default, if it has one."""
        found = super().default_schema(schema)
        return {key: value for key, value in found.items() if (key, value) != ("default", None)}

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Add no titles."""
        return False


def get_schema(table: type[TomlTable]) -> Schema:
    """Return the JSON schema (draft 2020-12) of a table, without references.

    Examples
    --------
    >>> class Site(TomlTable):
    ...     min_rows: Positive = 20
    >>> get_schema(Site)["properties"]["min_rows"]["minimum"]
    1
    """
    schema = table.model_json_schema(schema_generator=_TomlSchema)
    found: Schema = _inline(schema, schema.pop("$defs", {}))
    first = {"title": found["title"], "description": found["description"]}
    return {"$schema": _TomlSchema.schema_dialect} | first | found


def _inline(value: Any, definitions: Schema) -> Any:
    match value:
        case {"$ref": str(reference)}:
            return _inline(definitions[reference.removeprefix("#/$defs/")], definitions)
        case dict():
            return {key: _inline(inner, definitions) for key, inner in value.items()}
        case list():
            return [_inline(inner, definitions) for inner in value]
        case _:
            return value


def list_keys(schema: Schema, above: KeyPath = ()) -> Iterator[tuple[KeyPath, Schema]]:
    """Yield the path and the schema of each key of a file, including those of inner tables.

    Examples
    --------
    >>> class Shares(TomlTable):
    ...     mean: NotNegativeNumber = 0.5
    >>> [key for key, _ in list_keys(get_schema(Shares), ("privacy", "shares"))]
    [('privacy', 'shares', 'mean')]
    """
    for name, inner in schema["properties"].items():
        if "properties" in inner:
            yield from list_keys(inner, (*above, name))
        else:
            yield (*above, name), inner


def get_example(schema: Schema) -> Any:
    """Return a value that a key may have: its first example, or else its default."""
    return schema["examples"][0] if "examples" in schema else schema["default"]


def describe_schema(schema: Schema) -> str:
    """Return which values the JSON schema of a key allows, in words that follow "must be".

    Examples
    --------
    >>> describe_schema({"type": "number", "exclusiveMinimum": 0, "maximum": 1})
    'a number above 0 and at most 1'
    >>> describe_schema({"enum": ["public", "private"]})
    'one of "public", "private"'
    """
    match schema:
        case {"title": str(title)}:
            return title
        case {"const": value}:
            return format_value(value)
        case {"enum": values}:
            return f"one of {', '.join(map(format_value, values))}"
        case {"type": "boolean"}:
            return "true or false"
        case {"type": "integer", "minimum": least, "maximum": most}:
            return f"an integer from {least} to {most}"
    kind = "an integer" if schema["type"] == "integer" else "a number"
    bounds = " and ".join(f"{_BOUNDS[b]} {schema[b]:g}" for b in _BOUNDS if b in schema)
    return f"{kind} {bounds}".rstrip()
