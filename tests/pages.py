"""Pages whose commands run: what they tell to type, what comes of it, and how to write that down.

A ``console`` block has commands after ``$`` (and ``>`` for the lines that go on) with their output
below. The title of a block says how its last command ends: ``title="exit code 3"``. Another block
with a title is a file of that name. A page's commands run in its order, in an empty folder.

``python tests/pages.py docs/study.md`` writes what commands print now into a page; output that
still matches, ``...`` and all, is left as it is.
"""

import glob
import os
import re
import shlex
import subprocess
import sys
import tempfile
from doctest import ELLIPSIS, OutputChecker
from pathlib import Path
from typing import NamedTuple

from command_line import eigenfed

_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_TINY = re.compile(r"\b\d(\.\d+)?e-(09|[1-9]\d)\b")
_SHELL = set("|<>;&$`\\\n")
_QUOTES = set("'\"")


class Command(NamedTuple):
    """What a page tells to type, and what it says that this prints."""

    line: str
    printed: str


class Block(NamedTuple):
    """A fenced part of a page."""

    language: str
    title: str
    text: str

    @property
    def commands(self) -> list[Command]:
        """What to type, in a console."""
        assert self.text.startswith("$ "), f"a console block begins with a command: {self.text}"
        found = []
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            first, *rest = part.splitlines()
            more = next((n for n, line in enumerate(rest) if not line.startswith("> ")), len(rest))
            typed = "\n".join([first, *(line[2:] for line in rest[:more])])
            found.append(Command(typed, "".join(f"{line}\n" for line in rest[more:])))
        return found

    @property
    def ends(self) -> list[int]:
        """With which code each command ends."""
        last = int(self.title.removeprefix("exit code ")) if self.title else 0
        return [*(0 for _ in self.commands[1:]), last]


def blocks(text: str) -> list[Block]:
    """Return the fenced parts of a page."""
    return [Block(*found) for found in _BLOCK.findall(text)]


def typed(text: str) -> list[str]:
    """Return all commands of a page."""
    consoles = [block for block in blocks(text) if block.language == "console"]
    return [command.line for block in consoles for command in block.commands]


def run(line: str) -> tuple[str, int]:
    """Run a line: in this process if it is our program alone, and by the shell otherwise."""
    if line.startswith("eigenfed ") and not _SHELL & set(line):
        words = shlex.split(line)[1:]
        if not _QUOTES & set(line):
            words = [file for word in words for file in sorted(glob.glob(word)) or [word]]
        here = eigenfed(*words)
        return here.output, here.exit_code
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    there = subprocess.run(
        ["bash", "-c", line],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env={**os.environ, "PATH": programs},
    )
    return there.stdout, there.returncode


def is_as_printed(printed: str, found: str) -> bool:
    """Compare as a doctest does; numbers as small as rounding errors differ by machine."""
    want, got = (_TINY.sub("tiny", _stripped(text)) for text in (printed, found))
    return OutputChecker().check_output(want, got, ELLIPSIS)


def refreshed(text: str) -> str:
    """Return a page with what its commands print now, run in the folder that one is in."""

    def write(match: re.Match[str]) -> str:
        block = Block(match[1], match[2] or "", match[3])
        if block.language != "console":
            if block.title:
                Path(block.title).write_text(block.text, encoding="utf-8")
            return match[0]
        shown, code = "", 0
        for command in block.commands:
            found, code = run(command.line)
            same = is_as_printed(command.printed, found)
            asked = command.line.replace("\n", "\n> ")
            shown += f"$ {asked}\n{command.printed if same else _stripped(found)}"
        title = f' title="exit code {code}"' if code else ""
        return f"```console{title}\n{shown}```"

    return _BLOCK.sub(write, text)


def _stripped(text: str) -> str:
    return re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)


if __name__ == "__main__":
    for page in [Path(name).resolve() for name in sys.argv[1:]]:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            page.write_text(refreshed(page.read_text(encoding="utf-8")), encoding="utf-8")
