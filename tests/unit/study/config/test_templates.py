"""Schemas and templates: made of the same models, and of the same opinion."""

import json
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from pydantic.fields import FieldInfo

from eigenfed.errors import DataError
from eigenfed.study.config.fields import advise, describe_rule, get_example, list_keys
from eigenfed.study.config.templates import TABLES, fill_template, schema_of
from eigenfed.study.config.toml_errors import validate
from eigenfed.study.config.toml_text import Document, format_value

BASES: dict[str, dict[str, Any]] = {
    "study": {"name": "heart", "sites": ["a", "b"], "components": 2},
    "site": {"name": "a", "data": "a.csv", "policy": {"min_rows": 20}},
}
VALUES: tuple[Any, ...] = (
    *(True, False, 0, 1, 2, 4.0, -1, 0.5, 1.0, 1e-6, 2.5, 2**40),
    *("", "a", "auto", "merge", "same", "local", "zero_out", "a b", "-a", "age > 3", "a\nb"),
    *([], ["a"], ["a", "a"], ["a", "b", "c"], ["scatter"], ["age > 3"], ["age"], [1], [["a"]]),
    *({"name": "power"}, {"name": "power", "local_steps": 2.0}, {"name": "auto"}),
    *({"name": "power", "local_steps": "2"}, {"name": "power", "steps": 2}, {"local_steps": 2}),
    *(["krylov"], ["magic"], ["f" * 64], ["F" * 64], "power"),
    *({}, {"a": 3}, {"a": 0}, {"a b": 3}, {"epsilon": 1, "delta": 1e-6}, {"epsilon": 1}),
)


def fields_of(name: str) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    for path, table in list_keys(TABLES[name]):
        yield path, table.model_fields[path[-1]]


def placed(name: str, settings: dict[tuple[str, ...], Any]) -> dict[str, Any]:
    """Put values into a file that has what is needed around them."""
    data: dict[str, Any] = json.loads(json.dumps(BASES[name]))
    for (*headers, last), value in settings.items():
        inner = data
        for header in headers:
            inner = inner.setdefault(header, {})
            if header in ("privacy", "budget"):
                inner |= {"epsilon": 1.0, "delta": 1e-6} | inner
        inner[last] = value
    return data


def is_accepted(name: str, data: dict[str, Any]) -> bool:
    try:
        validate(TABLES[name], Document(Path("a.toml"), data))
    except DataError:
        return False
    return True


def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(schema_of(name))


@pytest.mark.parametrize("name", TABLES)
def test_the_shipped_schema_is_up_to_date(name: str) -> None:
    shipped = files("eigenfed.study").joinpath("schemas", f"{name}.json").read_text("utf-8")
    schema = schema_of(name)
    Draft202012Validator.check_schema(schema)
    assert json.loads(shipped) == schema, (
        f"Run eigenfed init --schema {name} > src/eigenfed/study/schemas/{name}.json"
    )


@pytest.mark.parametrize("name", TABLES)
def test_both_say_the_same_of_every_key_with_many_values(name: str) -> None:
    oracle, seen = validator(name), set()
    for path, field in fields_of(name):
        for value in (*VALUES, get_example(field)):
            data = placed(name, {path: value})
            accepted = is_accepted(name, data)
            assert accepted == oracle.is_valid(data), (path, value)
            seen.add((path, accepted))
    assert {path for path, accepted in seen if not accepted} == {p for p, _ in fields_of(name)}


@pytest.mark.parametrize("name", TABLES)
def test_both_say_the_same_of_every_two_keys_together(name: str) -> None:
    oracle = validator(name)
    choices: list[tuple[tuple[str, ...], Any]] = [
        (path, get_example(field)) for path, field in fields_of(name)
    ]
    choices += [
        (("secure",), True),
        (("method",), "merge"),
        (("method",), "krylov"),
        (("sites",), ["a", "b", "c"]),
        (("quorum",), 2),
        (("privacy", "trust"), "local"),
        (("privacy", "colluders"), 1),
        (("privacy", "dropouts"), 1),
        (("method",), {"name": "merge"}),
        (("method",), {"name": "power", "local_steps": 1}),
    ] * (name == "study")
    verdicts = set()
    for one, other in combinations(choices, 2):
        data = placed(name, dict([one, other]))
        accepted = is_accepted(name, data)
        assert accepted == oracle.is_valid(data), (one, other)
        verdicts.add(accepted)
    assert verdicts == {True, False}


@pytest.mark.parametrize("name", TABLES)
def test_both_refuse_keys_that_there_are_not(name: str) -> None:
    for data in ({**BASES[name], "more": 1}, {}, {"name": "a"}):
        assert not is_accepted(name, data)
        assert not validator(name).is_valid(data)


@pytest.mark.parametrize("name", TABLES)
def test_every_example_and_default_holds_and_a_template_shows_it(name: str) -> None:
    needed = {
        ".".join(path): get_example(field) for path, field in fields_of(name) if field.is_required()
    }
    text = fill_template(TABLES[name], needed, {})
    ledger: dict[tuple[str, ...], Any] = {("ledger",): "a.ledger"} if name == "site" else {}
    sites: dict[tuple[str, ...], Any] = {("sites",): ["a", "b", "c"]} if name == "study" else {}
    for path, table in list_keys(TABLES[name]):
        field = table.model_fields[path[-1]]
        example = get_example(field)
        values = [example] if field.get_default() is None else [example, field.get_default()]
        for value in values if not field.is_required() else [example]:
            written = tomllib.loads(f"v = {format_value(value)}")["v"]
            assert is_accepted(name, placed(name, ledger | sites | {path: written})), path
        assert tomllib.loads(f"v = {format_value(example)}") == {"v": example}
        assert f"{path[-1]} = {format_value(example)}\n" in text
        assert field.description is not None
        assert field.description.endswith(".")
        assert advise(table, path[-1]).endswith(".")
        assert describe_rule(table, path[-1])
    assert max(map(len, text.splitlines())) <= 100
    assert set(tomllib.loads(text)) == {name.partition(".")[0] for name in needed}
