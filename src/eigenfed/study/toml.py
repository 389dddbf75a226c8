"""Values and tables of keys written as TOML: the standard library reads it and does not write."""

import json
from collections.abc import Iterator, Mapping
from textwrap import wrap
from typing import Any

from eigenfed.study.keys import Key, Table

_WIDTH = 96


def toml(value: Any) -> str:
    """Write a value on one line.

    Examples
    --------
    >>> toml({"north": [1, 2.5, True, "a"]})
    '{ north = [1, 2.5, true, "a"] }'
    """
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list() | tuple():
            return f"[{', '.join(map(toml, value))}]"
        case Mapping():
            return f"{{ {', '.join(f'{_name(key)} = {toml(v)}' for key, v in value.items())} }}"
        case _:
            return str(value)


def template(table: Table, values: Mapping[str, Any], examples: Mapping[str, Any]) -> str:
    """Write a file with every key that it may have, and what each is for.

    Parameters
    ----------
    table : Table
    values : mapping of str to value
        By dotted key. Keys that are not here stand in comments, with an example.
    examples : mapping of str to value
        Better examples than the table's own, for some of them.

    Examples
    --------
    >>> from eigenfed.study.rules import Flag
    >>> key = Key("on", Flag(), "Whether.", "Set it.", True, False)
    >>> print(template(Table("", "All of it.", (key,)), {}, {}), end="")
    # All of it.
    <BLANKLINE>
    # Whether. Default: false.
    # on = true
    """
    return "\n".join(_table(table, values, examples, "")) + "\n"


def _table(
    table: Table, values: Mapping[str, Any], examples: Mapping[str, Any], above: str
) -> Iterator[str]:
    full = above + table.name
    inside = f"{full}." if full else ""
    yield from _comment(table.comment)
    if full:
        is_used = any(name.startswith(inside) for name in values)
        yield f"[{full}]" if is_used else f"# [{full}]"
    for key in table.keys:
        yield ""
        yield from _comment(_explained(key))
        name = inside + key.name
        if name in values:
            yield f"{key.name} = {toml(values[name])}"
        else:
            yield f"# {key.name} = {toml(examples.get(name, key.example))}"
    for inner in table.tables:
        yield ""
        yield ""
        yield from _table(inner, values, examples, inside)


def _explained(key: Key) -> str:
    if key.required:
        return f"{key.comment} Needed."
    return key.comment if key.default is None else f"{key.comment} Default: {toml(key.default)}."


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in wrap(text, _WIDTH)]


def _name(key: str) -> str:
    bare = key.replace("-", "").replace("_", "")
    return key if bare.isalnum() and bare.isascii() else toml(key)
