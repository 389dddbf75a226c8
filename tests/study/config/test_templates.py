"""Schemas and templates: made of the same models, and of the same opinion."""

import json
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from pydantic import ValidationError

from eigenfed.study.config.fields import Schema, describe_schema, get_example, list_keys
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
Settings = dict[tuple[str, ...], Any]
NVFLARE: Settings = {("engine",): "nvflare", ("features",): ["x"], ("network", "host"): "a.example"}
FILES: Settings = {("engine",): "files", ("features",): ["x"]}
NETWORKS: dict[tuple[str, ...], Settings] = {
    ("network", "host"): NVFLARE,
    ("network", "port"): NVFLARE,
    ("network", "drop"): FILES,
}


def keys_of(name: str) -> list[tuple[tuple[str, ...], Schema]]:
    return list(list_keys(schema_of(name)))


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
    """Say whether each key is valid by itself, which is all that a schema tells."""
    try:
        TABLES[name].model_validate(data)
    except ValidationError as error:
        return all(detail["type"] == "conflict" for detail in error.errors())
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
    for path, field in keys_of(name):
        for value in (*VALUES, get_example(field)):
            data = placed(name, {path: value})
            accepted = is_accepted(name, data)
            assert accepted == oracle.is_valid(data), (path, value)
            seen.add((path, accepted))
    assert {path for path, accepted in seen if not accepted} == {p for p, _ in keys_of(name)}


@pytest.mark.parametrize("name", TABLES)
def test_both_refuse_keys_that_there_are_not(name: str) -> None:
    for data in ({**BASES[name], "more": 1}, {}, {"name": "a"}):
        assert not is_accepted(name, data)
        assert not validator(name).is_valid(data)


@pytest.mark.parametrize("name", TABLES)
def test_every_example_and_default_holds_and_a_template_shows_it(name: str) -> None:
    required = {("name",), ("sites",), ("components",), ("data",), ("policy", "min_rows")}
    keys = keys_of(name)
    needed = {".".join(path): get_example(key) for path, key in keys if path in required}
    text = fill_template(schema_of(name), needed, {})
    around: dict[tuple[str, ...], Any] = {("ledger",): "a.ledger"}
    if name == "study":
        around = {("sites",): ["a", "b", "c"]}
    for path, key in keys:
        example = get_example(key)
        for value in (example, key.get("default", example)):
            written = tomllib.loads(f"v = {format_value(value)}")["v"]
            data = placed(name, around | NETWORKS.get(path, {}) | {path: written})
            if path != ("expected", "rows"):
                validate(TABLES[name], Document(Path("a.toml"), data))
        assert tomllib.loads(f"v = {format_value(example)}") == {"v": example}
        assert f"{path[-1]} = {format_value(example)}\n" in text
        assert key["description"].endswith(".")
        assert describe_schema(key)
    assert max(map(len, text.splitlines())) <= 100
    assert set(tomllib.loads(text)) == {name.partition(".")[0] for name in needed}
