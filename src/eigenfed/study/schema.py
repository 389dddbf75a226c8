"""A table of keys as JSON schema, for editors and for whoever checks files without eigenfed.

The schemas that are shipped in ``schemas`` are what `schema_of` makes; a test sees to it. It
cannot say what needs counting or other files, such as a quorum above the number of sites.
"""

from typing import Any

from eigenfed.study.keys import Key, Table
from eigenfed.study.rules import Schema

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema_of(table: Table, title: str) -> Schema:
    """Return the JSON schema (draft 2020-12) of a file.

    Parameters
    ----------
    table : Table
        The file's keys.
    title : str
        Such as "study.toml".

    Examples
    --------
    >>> from eigenfed.study.rules import Flag
    >>> table = Table("", "All of it.", (Key("on", Flag(), "Whether.", "Set it.", True),))
    >>> schema_of(table, "a.toml")["properties"]
    {'on': {'description': 'Whether.', 'type': 'boolean'}}
    """
    return {"$schema": _DRAFT, "title": title} | _table(table)


def _table(table: Table) -> Schema:
    properties = {key.name: _key(key) for key in table.keys}
    properties |= {inner.name: _table(inner) for inner in table.tables}
    schema: dict[str, Any] = {
        "description": table.comment,
        "type": "object",
        "properties": properties,
        "required": [
            *(key.name for key in table.keys if key.required),
            *(inner.name for inner in table.tables if inner.required),
        ],
        "additionalProperties": False,
    }
    return schema | ({"allOf": [bar.schema for bar in table.barred]} if table.barred else {})


def _key(key: Key) -> Schema:
    default = {} if key.default is None else {"default": key.default}
    return {"description": key.comment} | key.rule.schema | default
