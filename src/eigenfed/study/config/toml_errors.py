"""Errors of study and site files, with the file, the line, the key, the rule and the remedy.

pydantic finds what is wrong; here it is put into words. Errors of the library itself, which speak
of arguments, are put into the words of these files too: keys instead of arguments.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Literal, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from eigenfed.errors import DataError, EigenfedError, InputError, PrivacyError, Refusal, Wording
from eigenfed.privacy.guarantee import Privacy
from eigenfed.protocol.method import Method
from eigenfed.study.config.conflicts import find_value
from eigenfed.study.config.fields import (
    TomlTable,
    advise,
    describe_rule,
    find_table,
    get_example,
    list_keys,
)
from eigenfed.study.config.toml_text import Document, KeyPath, format_value

_Table = TypeVar("_Table", bound=TomlTable)
_LONGEST_SHOWN = 80
_MOST_SHOWN = 3
_READERS_CHOICE = {
    "columns": "list the features to use in the study file",
    "id_column": "set id_column in the site's file",
}
"""Advice about keys with a value that the reader must choose."""


@dataclass(frozen=True)
class KeyWording(Wording):
    """Mentions keys instead of arguments.

    Attributes
    ----------
    keys : mapping of str to str
        The key that stands for an argument; others have the name of theirs.

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
    """Let errors that pass speak of keys, after `about`: what breaks a rule is then in a file."""
    try:
        yield
    except Refusal:
        raise
    except PrivacyError as error:
        raise PrivacyError(about + error.worded(STUDY_KEYS)) from error
    except (InputError, DataError) as error:
        raise DataError(about + error.worded(STUDY_KEYS)) from error


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong in a file.

    Attributes
    ----------
    text : str
        The rule that is broken, and the remedy.
    key : tuple of str
        The key of which the line is shown; empty if no line is to blame.
    kind : {"wrong", "unknown", "missing"}
    about : tuple of str
        The key that is missing, or that an unknown one was probably meant to be.
    """

    text: str
    key: KeyPath = ()
    kind: Literal["wrong", "unknown", "missing"] = "wrong"
    about: KeyPath = ()


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
        return table.model_validate(document.data)
    except ValidationError as error:
        details = error.errors(include_url=False)
    raise make_error(document, find_problems(table, document, details))


def make_error(document: Document, problems: Sequence[Problem]) -> DataError:
    """Return the error that tells of problems, each with the file and the line."""
    lines = [f"{_locate(document, problem.key)}: {problem.text}" for problem in problems]
    more = len(lines) - _MOST_SHOWN
    if more > 0:
        plural = "s" if more > 1 else ""
        lines[_MOST_SHOWN:] = [f"{document.path}: {more} more problem{plural}. Fix these first."]
    return DataError("\n".join(lines))


@contextmanager
def reporting(document: Document, *key: str) -> Iterator[None]:
    """Say of an error of the library which file and line it is about."""
    problem = None
    try:
        yield
    except EigenfedError as error:
        argument = () if error.argument is None else (error.argument,)
        problem = Problem(error.worded(STUDY_KEYS), (*key, *argument))
    if problem is not None:
        raise make_error(document, [problem])


def find_problems(
    table: type[TomlTable], document: Document, details: Sequence[ErrorDetails]
) -> list[Problem]:
    """Return what is wrong in a file: unknown keys first, and nothing twice.

    A required key is not reported as missing where an unknown key was probably meant to be it.
    """
    found = [problem for detail in details for problem in _explain(table, document, detail)]
    unknown = [problem for problem in found if problem.kind == "unknown"]
    meant = {problem.about for problem in unknown if problem.about}
    others = [
        p for p in found if p.kind == "wrong" or (p.kind == "missing" and p.about not in meant)
    ]
    return list(dict.fromkeys([*unknown, *others]))


@dataclass(frozen=True)
class _Place:
    """Where pydantic found an error: at a key of a table, or at the table itself."""

    key: KeyPath
    table: type[TomlTable]
    is_table: bool

    @property
    def label(self) -> str:
        dotted = ".".join(self.key)
        return f"[{dotted}]" if self.is_table and dotted else dotted


def _explain(table: type[TomlTable], document: Document, detail: ErrorDetails) -> Iterator[Problem]:
    place = _find_place(table, detail["loc"])
    context = detail.get("ctx", {})
    cause = context.get("error")
    if detail["type"] == "conflict":
        for conflict in context["conflicts"]:
            yield Problem(conflict.text, (*place.key, *conflict.conditions[0].key.split(".")))
    elif detail["type"] == "extra_forbidden":
        yield _explain_unknown(table, place, str(detail["loc"][-1]))
    elif detail["type"] == "missing":
        yield from _explain_missing(place)
    elif isinstance(cause, EigenfedError):
        key = (*place.key, cause.argument or "") if place.is_table else place.key
        yield Problem(f"in {place.label}, {cause.worded(TABLE_KEYS)}", key)
    else:
        yield _explain_wrong(document, place)


def _find_place(table: type[TomlTable], location: tuple[int | str, ...]) -> _Place:
    """Follow the way to an error through tables, and no further into the value of a key."""
    key: KeyPath = ()
    for part in location:
        entry = table.model_fields.get(str(part))
        if entry is None:
            break
        key = (*key, str(part))
        inner = find_table(entry)
        if inner is None:
            return _Place(key, table, is_table=False)
        table = inner
    return _Place(key, table, is_table=True)


def _explain_wrong(document: Document, place: _Place) -> Problem:
    dotted = ".".join(place.key)
    shown = f"{dotted} = {_show(find_value(document.data, dotted))}"
    if place.is_table:
        return Problem(f"{shown} must be a table. Write its keys below [{dotted}].", place.key)
    name = place.key[-1]
    text = f"{shown} must be {describe_rule(place.table, name)}. {advise(place.table, name)}"
    return Problem(text, place.key)


def _explain_missing(place: _Place) -> Iterator[Problem]:
    if place.is_table:
        for name, entry in place.table.model_fields.items():
            if entry.is_required():
                yield from _explain_missing(_Place((*place.key, name), place.table, False))
        return
    *above, name = place.key
    below = f" below [{'.'.join(above)}]" if above else ""
    example = format_value(get_example(place.table.model_fields[name]))
    text = (
        f"{'.'.join(place.key)} is required and must be {describe_rule(place.table, name)}. "
        f"Set {name} = {example}{below}, for example."
    )
    yield Problem(text, (), "missing", place.key)


def _explain_unknown(top: type[TomlTable], place: _Place, name: str) -> Problem:
    where = place.label or "this file"
    if len(name) > _LONGEST_SHOWN:
        text = f"a name of {len(name)} characters is not a key of {where}. Remove it."
        return Problem(text, place.key, "unknown")
    text = f"{name!r} is not a key of {where}."
    key = (*place.key, name)
    homes = [found[:-1] for found, _ in list_keys(top) if found[-1] == name]
    if homes:
        below = f"below [{'.'.join(homes[0])}]" if homes[0] else "above the first [table]"
        return Problem(f"{text} Move it {below}.", key, "unknown", (*homes[0], name))
    known = list(place.table.model_fields)
    close = get_close_matches(name, known, n=1, cutoff=0.5)
    if close:
        text += f" Did you mean {close[0]!r}? Rename it, or remove it."
        return Problem(text, key, "unknown", (*place.key, close[0]))
    return Problem(f"{text} Remove it; the keys are {', '.join(known)}.", key, "unknown")


def _locate(document: Document, key: KeyPath) -> str:
    line = document.find_line(key)
    return str(document.path) if line is None else f"{document.path}:{line}"


def _show(value: Any) -> str:
    try:
        text = format_value(value)
    except (RecursionError, ValueError):
        return "what is too long or too deep to show"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
