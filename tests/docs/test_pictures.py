"""The pictures of the documentation are those that the report draws now, and all are shown."""

import re
from pathlib import Path

import pytest

from pictures import FOLDER, SHOWN, draw_pictures

PAGES = Path(__file__).parents[2] / "docs"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def test_pictures_are_those_of_the_report() -> None:
    """To rounding, which differs between machines: run ``python tests/pictures.py`` otherwise."""
    stored = {path.stem: path.read_text("utf-8") for path in FOLDER.glob("*.svg")}
    drawn = draw_pictures()
    assert set(stored) == set(drawn) == set(SHOWN.values())
    for name, text in drawn.items():
        assert NUMBER.sub("#", text) == NUMBER.sub("#", stored[name]), name
        numbers = [[float(x) for x in NUMBER.findall(t)] for t in (text, stored[name])]
        assert numbers[0] == pytest.approx(numbers[1], abs=0.11), name
        assert len(text) < 20_000


def test_each_picture_is_on_a_page_with_a_description() -> None:
    pages = "".join(path.read_text("utf-8") for path in PAGES.glob("*.md"))
    shown = re.findall(r"!\[(.+?)\]\(pictures/(\w+)\.svg\)", pages.replace("\n", " "))
    assert {name for _, name in shown} == set(SHOWN.values())
    assert all(len(words) > 20 for words, _ in shown)
