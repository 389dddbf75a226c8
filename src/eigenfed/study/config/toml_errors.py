"""Errors of study and site files, with the file, the line, the key, the rule and the remedy.

pydantic finds what is wrong; the words follow from the JSON schema. Errors of the library itself,
which mention arguments, are reworded to mention the keys of these files.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from itertools import islice
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from eigenfed.errors import DataError, EigenfedError, InputError, PrivacyError, Refusal, Wording
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.protocol.method import Method
from eigenfed.study.config.fields import (
    Schema,
    TomlTable,
    describe_schema,
    get_example,
    get_schema,
    list_keys,
)
from eigenfed.study.config.toml_text import Document, KeyPath, format_value

_Table = TypeVar("_Table", bound=TomlTable)
_Problem = tuple[KeyPath, str]
_MOST_LISTED = 25
_LONGEST_SHOWN = 80
_MOST_SHOWN = 3
_READERS_CHOICE = {
    "columns": "list the features to use in the study file",
    "id_column": "set id_column in the site's file",
    "exclude": "list names under exclude in the site's file",
    "missing": "list it under missing in the site's file",
    "cache": "set cache in the site's file",
    "datasets": "set dataset in the site's file",
}
"""Advice about keys with a value that the reader must choose."""


@dataclass(frozen=True)
class KeyWording(Wording):
    """Mentions keys instead of arguments.

    Attributes
    ----------
    keys : mapping of str to str
        The key that corresponds to an argument, if its name differs.

    Examples
    --------
    >>> from eigenfed.errors import Argument, Name
    >>> lower = ("Lower ", Name("n_components"), ".")
    >>> error = InputError(Argument("n_components", 9), " must be at most 8", remedy=lower)
    >>> error.worded(STUDY_KEYS)
    'components = 9 must be at most 8. Lower components.'
    """

    keys: Mapping[str, str] = field(default_factory=dict)

    def name(self, name: str) -> str:
        """Return the key."""
        return self.keys.get(name, name)

    def setting(self, name: str, value: object) -> str:
        """Return a line of the file.

        Examples
        --------
        >>> STUDY_KEYS.setting("method", "krylov"), STUDY_KEYS.setting("delta", 0.5)
        ('method = "krylov"', 'privacy.delta = 0.5')
        """
        if isinstance(value, Method):
            value = {"name": value.name, **value.options}
        return f"{self.name(name)} = {format_value(value)}"

    def passing(self, name: str, value: object) -> str:
        """Return the advice to set a key, or to leave it out.

        Examples
        --------
        >>> STUDY_KEYS.passing("scale", False), STUDY_KEYS.passing("id_column", None)
        ('set scale = false', 'leave id_column out')
        """
        if value in (..., [...]) and name in _READERS_CHOICE:
            return _READERS_CHOICE[name]
        if value is None:
            return f"leave {self.name(name)} out"
        return f"set {self.setting(name, value)}"

    def aside(self, text: str) -> str:
        """Leave it out."""
        return ""


TABLE_KEYS = KeyWording()
"""For errors about one table of a file, by the names within it."""

STUDY_KEYS = KeyWording(
    {"n_components": "components", "random_state": "seed"}
    | {term.name: f"privacy.{term.name}" for term in fields(Privacy) if term.name != "mode"}
)
"""For errors about a whole study."""


@contextmanager
def speaking_of_keys(about: str) -> Iterator[None]:
    """Reword errors about arguments as errors about the keys of a file.

    Parameters
    ----------
    about : str
        Put before the message.
    """
    try:
        yield
    except Refusal:
        raise
    except PrivacyError as error:
        raise PrivacyError(about + error.worded(STUDY_KEYS)) from error
    except (InputError, DataError) as error:
        raise DataError(about + error.worded(STUDY_KEYS)) from error


def validate(table: type[_Table], document: Document) -> _Table:
    """Return the content of a file as its model has it, with defaults.

    Raises
    ------
    DataError
        If the file breaks a rule. Each problem is on a line of its own.

    Examples
    --------
    >>> from pathlib import Path
    >>> from eigenfed.study.config.fields import Positive
    >>> class Study(TomlTable):
    ...     components: Positive
    >>> validate(Study, Document(Path("study.toml"), {"components": 4.0}))
    Study(components=4)
    >>> validate(Study, Document(Path("study.toml"), {"component": 4}, "component = 4"))
    Traceback (most recent call last):
    eigenfed.errors.DataError: study.toml:1: 'component' is not a key of this file. Did you ...
    """
    try:
        return table.model_validate(document.data, context=document.path)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
    # Problems are explained one by one, as a hostile file may have very many.
    problems = list(islice(_explain(get_schema(table), document, details), _MOST_SHOWN + 1))
    lines = [f"{_locate(document, key)}: {text}" for key, text in problems]
    if len(lines) > _MOST_SHOWN:
        lines[-1] = f"{document.path}: There are more problems. Fix these first."
    raise DataError("\n".join(lines))


def _explain(
    schema: Schema, document: Document, details: Sequence[ErrorDetails]
) -> Iterator[_Problem]:
    """Yield what is wrong: unknown keys first, and each key once.

    A required key is not reported as missing if an unknown key was probably meant to be it.
    """
    intended = set()
    others: dict[KeyPath, tuple[Schema, ErrorDetails]] = {}
    for detail in details:
        key, inner = _find_place(schema, detail["loc"])
        if detail["type"] == "extra_forbidden":
            name = str(detail["loc"][-1])
            text, guess = _explain_unknown(schema, key, inner, name)
            intended.add(guess)
            yield (*key, name), text
        else:
            others.setdefault(key, (inner, detail))
    for key, (inner, detail) in others.items():
        cause = detail.get("ctx", {}).get("error")
        if detail["type"] == "conflict":
            for text in detail["ctx"]["conflicts"]:
                yield (*key, *text.split()[0].strip("[]").split(".")), text
        elif detail["type"] == "missing":
            yield from _explain_missing(key, inner, intended)
        elif isinstance(cause, EigenfedError):
            yield _explain_cause(key, inner, cause)
        # A default that depends on a wrong value is not a problem of its own.
        elif detail["type"] != "default_factory_not_called":
            yield key, _explain_wrong(document, key, inner)


def _find_place(schema: Schema, location: tuple[int | str, ...]) -> tuple[KeyPath, Schema]:
    """Return the key or table of an error, without its position within the value of a key."""
    key: KeyPath = ()
    for part in location:
        inner = schema.get("properties", {}).get(part)
        if inner is None:
            break
        key, schema = (*key, str(part)), inner
    return key, schema


def _explain_cause(key: KeyPath, schema: Schema, cause: EigenfedError) -> _Problem:
    name, dotted = cause.argument or "", ".".join(key)
    if "properties" in schema:
        return (*key, name), f"in [{dotted}], {cause.worded(TABLE_KEYS)}"
    # The error is about the value of the key, or about an entry of it.
    keys = {} if name == key[-1] else {name: f"{dotted}.{name}"}
    return key, cause.worded(KeyWording(keys))


def _explain_wrong(document: Document, key: KeyPath, schema: Schema) -> str:
    value: Any = document.data
    for part in key:
        value = value[part]
    dotted = ".".join(key)
    shown = f"{dotted} = {_show(value)} must be"
    if "properties" in schema:
        return f"{shown} a table. Write its keys below [{dotted}]."
    example = f"Set {key[-1]} = {format_value(get_example(schema))}, for example."
    return f"{shown} {describe_schema(schema)}. {schema.get('$comment', example)}"


def _explain_missing(key: KeyPath, schema: Schema, intended: set[KeyPath]) -> Iterator[_Problem]:
    if "properties" in schema:
        for name in schema.get("required", ()):
            yield from _explain_missing((*key, name), schema["properties"][name], intended)
    elif key not in intended:
        below = f" below [{'.'.join(key[:-1])}]" if key[1:] else ""
        yield (
            (),
            f"{'.'.join(key)} is required and must be {describe_schema(schema)}. "
            f"Set {key[-1]} = {format_value(get_example(schema))}{below}, for example.",
        )


def _explain_unknown(top: Schema, table: KeyPath, schema: Schema, name: str) -> tuple[str, KeyPath]:
    """Return what to do about an unknown key, and the key that it was probably meant to be."""
    where = f"[{'.'.join(table)}]" if table else "this file"
    if len(name) > _LONGEST_SHOWN:
        return f"a name of {len(name)} characters is not a key of {where}. Remove it.", ()
    text = f"{name!r} is not a key of {where}."
    homes = [key for key, _ in list_keys(top) if key[-1] == name]
    if homes:
        *above, _ = homes[0]
        below = f"below [{'.'.join(above)}]" if above else "above the first [table]"
        return f"{text} Move it {below}.", homes[0]
    known = list(schema["properties"])
    close = get_close_matches(name, known, n=1, cutoff=0.5)
    if close:
        advice = f"Did you mean {close[0]!r}? Rename it, or remove it."
        return f"{text} {advice}", (*table, close[0])
    if len(known) > _MOST_LISTED:
        return f"{text} Remove it; eigenfed init writes files with all keys.", ()
    return f"{text} Remove it; the keys are {', '.join(known)}.", ()


def _locate(document: Document, key: KeyPath) -> str:
    line = document.find_line(key)
    return str(document.path) if line is None else f"{document.path}:{line}"


def _show(value: Any) -> str:
    try:
        text = format_value(value)
    except (RecursionError, ValueError):
        return "what is too long or too deep to show"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
