"""The commands on the pages of docs/ run, in the order of the page, and print what it says."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from eigenfed.cli.main import cli
from pages import blocks, is_as_printed, refreshed, run, typed

ROOT = Path(__file__).parents[2]
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}


def leaves(group: click.Group = cli, path: str = "eigenfed") -> Iterator[str]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from leaves(command, f"{path} {name}")
        else:
            yield f"{path} {name}"


@pytest.mark.parametrize("name", sorted(name for name, text in PAGES.items() if typed(text)))
def test_commands_of_a_page_print_what_it_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for block in blocks(PAGES[name]):
        if block.language != "console":
            if block.title:
                Path(block.title).write_text(block.text, encoding="utf-8")
            continue
        for command, end in zip(block.commands, block.ends, strict=True):
            found, code = run(command.line)
            assert code == end, f"$ {command.line}\n{found}"
            assert is_as_printed(command.printed, found), f"$ {command.line}\n{found}"


def test_every_command_is_on_a_page() -> None:
    lines = [line for text in PAGES.values() for line in typed(text)]
    missing = [
        name for name in leaves() if not any(re.search(rf"\b{name}\b", line) for line in lines)
    ]
    assert not missing


def test_comparing_can_fail() -> None:
    assert is_as_printed("off by 1.8e-16, at ...\n", "off by 3.6e-15, at noon\n")
    assert not is_as_printed("off by 1.8e-16\n", "off by 1.8e-06\n")
    assert not is_as_printed("rounds 3\n", "rounds 4\n")
    assert run("eigenfed nonsense")[1] == 2
    assert run("false | false")[1] == 1


def test_a_page_is_refreshed_where_it_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = '```text title="a.txt"\n3\n```\n\n```console\n$ cat a.txt\n{}\n$ echo "a b"\n{}\n```\n'
    assert refreshed(page.format("2", "a ...")) == page.format("3", "a ...")
    assert refreshed("```console\n$ false\n```\n") == (
        '```console title="exit code 1"\n$ false\n```\n'
    )


def test_pages_name_extras_that_exist() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    named = {
        extra
        for text in [*PAGES.values(), (ROOT / "README.md").read_text(encoding="utf-8")]
        for extra in re.findall(r"(?:eigenfed|\.)\[(\w+)\]", text)
    }
    assert named
    assert named <= set(extras)
