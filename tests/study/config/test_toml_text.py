"""TOML as text: where keys stand, and values that read back as they were."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenfed.study.config.toml_text import Document, format_value

TEXT = '''\
name = "heart" # sites = 1
sites = [
  "north", # components = 3
  "south",
  """
components = 4
""",
]
components = 2
privacy.epsilon = 1.0
expected = { rows = { north = 3 } }
list = [
  [1],
  [2],
]
after = 1
[ method ]
name = "power"
"local_steps" = 4
[a.b]
c = [{ d = 1 }]
'''


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("name", 1),
        ("sites", 2),
        ("components", 9),
        ("privacy.epsilon", 10),
        ("expected", 11),
        ("expected.rows.north", 11),
        ("list", 12),
        ("after", 16),
        ("method", 17),
        ("method.name", 18),
        ("method.local_steps", 17),
        ("a.b", 20),
        ("a.b.c", 21),
        ("a.b.c.d", 21),
        ("nowhere", None),
    ],
)
def test_the_line_of_a_key_is_found(key: str, line: int | None) -> None:
    document = Document(Path("a.toml"), tomllib.loads(TEXT), TEXT)
    assert document.find_line(tuple(key.split("."))) == line


def test_without_a_text_there_are_no_lines() -> None:
    assert Document(Path("a.toml"), {"name": "a"}).find_line(("name",)) is None


def test_a_value_is_read_back_as_it_was_written() -> None:
    value = {"a-b": [1, 2.5, 1e-6, True], "x y": 'say "hi"\\ \n\t\u00e9\U0001f600', "t": {"u": []}}
    assert tomllib.loads(f"v = {format_value(value)}") == {"v": value}


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.from_regex(r"[\w -]+", fullmatch=True), inner)
    ),
    max_leaves=8,
)


@given(VALUES)
def test_any_value_is_read_back_as_it_was_written(value: Any) -> None:
    assert tomllib.loads(f"v = {format_value(value)}") == {"v": value}
