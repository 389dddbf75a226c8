"""Pages that are written from commands and methods are what these say of themselves."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from command_line import eigenfed
from eigenfed.cli.main import cli

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "cli.md"


def commands(
    command: click.Command = cli, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from commands(inner, (*path, name))


ALL = dict(commands())


def is_up_to_date(page: Path) -> bool:
    check = [sys.executable, "-m", "cogapp", "--check", str(page)]
    return subprocess.run(check, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("name", ["cli.md", "choose.md"])
def test_page_is_up_to_date(name: str) -> None:
    assert is_up_to_date(DOCS / name), f"Run cog -r docs/{name}."


def test_check_finds_a_page_that_is_not(tmp_path: Path) -> None:
    old = tmp_path / "cli.md"
    old.write_text(PAGE.read_text(encoding="utf-8").replace("--quiet", "--silent"))
    assert not is_up_to_date(old)


@pytest.mark.parametrize("path", ALL, ids=lambda path: " ".join(["eigenfed", *path]))
def test_every_command_teaches(path: tuple[str, ...]) -> None:
    command, name = ALL[path], " ".join(["eigenfed", *path])
    assert command.help
    assert len(command.get_short_help_str(limit=200)) <= 60
    assert f"# {name}\n" in PAGE.read_text(encoding="utf-8")
    examples = eigenfed(*path, "--help").stdout.partition("Example")[2]
    assert f"{name} " in examples
    assert all(option.help for option in command.params if isinstance(option, click.Option))
