"""Output of every command: results, notes, error messages and exit codes.

A command is a function from its options to a `CommandResult` and prints nothing itself. Results
go to standard output, as text or with ``--json`` as one object; everything else goes to standard
error. Error messages of the library name options instead of Python arguments (`OptionWording`).

====  =============================================================================
code  meaning
====  =============================================================================
0     success
1     failure
2     wrong usage
3     refused by privacy or by a site's policy
4     done, but the result is mostly noise
====  =============================================================================
"""

import errno
import functools
import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from eigenfed.errors import FAILED, EigenfedError, Wording, shown

if TYPE_CHECKING:
    from eigenfed.transport.rounds import RoundRecord


_OPTIONS = {
    "n_components": "-k",
    "random_state": "--seed",
    "columns": "--column",
    "id_column": "--id-column",
    "if_missing": "--if-missing",
    "public_center": "--public-center",
    "public_scale": "--public-scale",
    "no_fit": "--no-fit",
    "exclude_variants": "--exclude-variants",
    "privacy": "--epsilon",
} | {
    name: f"--{name}"
    for name in (
        *("method", "features", "epsilon", "delta", "clip", "trust"),
        *("colluders", "dropouts", "count", "prepare", "transport", "transcript"),
        *("record", "rows", "size", "spectrum", "decay", "trials"),
        *("exclude", "delimiter", "decimal", "missing", "layer", "cache"),
        *("keep", "remove", "extract", "manifest", "ambiguous"),
    )
}
"""The option for each argument; other arguments keep their name."""

_FLAGS = {
    "secure": ("--secure", True),
    "scale": ("--scale", True),
    "center": ("--no-center", False),
    "highly_variable": ("--highly-variable", True),
    "force": ("--force", True),
}
"""The flag for an argument, and the value that the flag gives it."""

_SWITCHES = {"header": ("--header", "--no-header")}
"""The flags for an argument that is True or False."""

_PLACEHOLDERS = {
    "columns": "--column NAME --column NAME ...",
    "id_column": "--id-column NAME",
    "exclude": "--exclude NAME",
    "missing": "--missing CODE",
    "cache": "--cache FOLDER",
    "manifest": "--manifest FILE",
}
"""How to pass options whose value only the user knows."""


class OptionWording(Wording):
    """Names options of the command line where a message refers to arguments.

    Examples
    --------
    >>> from eigenfed.errors import Argument, InputError, Name
    >>> lower = ("Lower ", Name("n_components"), ".")
    >>> error = InputError(Argument("n_components", 9), " must be at most 8", remedy=lower)
    >>> error.worded(OPTIONS)
    '-k 9 must be at most 8. Lower -k.'
    """

    def name(self, name: str) -> str:
        """Return the option or flag."""
        if name in _SWITCHES:
            return " or ".join(_SWITCHES[name])
        return _FLAGS[name][0] if name in _FLAGS else _OPTIONS.get(name, name)

    def setting(self, name: str, value: object) -> str:
        """Return the option with its value, as typed.

        Examples
        --------
        >>> OPTIONS.setting("method", "krylov"), OPTIONS.setting("center", False)
        ('--method krylov', '--no-center')
        """
        if name == "center" and isinstance(value, str):
            return f"--center {quote(value)}"
        if name in _FLAGS:
            flag, given = _FLAGS[name]
            return flag if value is given else f"no {flag}"
        if name in _SWITCHES:
            return _SWITCHES[name][0 if value else 1]
        if name not in _OPTIONS:
            return super().setting(name, value)
        if name == "method" and not isinstance(value, str):
            return _format_method(value)
        values = value if isinstance(value, list) else [value]
        return " ".join(
            f"{_OPTIONS[name]} {quote(part) if isinstance(part, str) else shown(part)}"
            for part in values
        )

    def passing(self, name: str, value: object) -> str:
        """Return the advice to pass an option, or to drop one.

        Examples
        --------
        >>> OPTIONS.passing("trust", "central"), OPTIONS.passing("scale", False)
        ('pass --trust central', 'drop --scale')
        """
        if value in (..., [...]) and name in _PLACEHOLDERS:
            return f"pass {_PLACEHOLDERS[name]}"
        left_out = value is not _FLAGS[name][1] if name in _FLAGS else value is None
        return f"drop {self.name(name)}" if left_out else super().passing(name, value)

    def aside(self, text: str) -> str:
        """Return nothing: the text is about Python only."""
        return ""


def _format_method(method: object) -> str:
    """Write a method and its options as typed, without importing `Method`."""
    options = getattr(method, "options", {})
    words = [f"--option {quote(f'{option}={value}')}" for option, value in options.items()]
    return " ".join([f"--method {getattr(method, 'name', method)}", *words])


OPTIONS = OptionWording()


DONE = 0
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class CommandResult:
    """The result of a command.

    Attributes
    ----------
    data : dict
        Printed with ``--json``; may hold arrays, NaN and infinity.
    text : str
        Printed otherwise.
    code : int
        Exit code.
    """

    data: dict[str, Any]
    text: str
    code: int = DONE


@dataclass(frozen=True)
class Console:
    """Prints notes and progress on standard error, unless `quiet`."""

    quiet: bool = False

    def note(self, text: str) -> None:
        """Print a note that is not part of the result."""
        if not self.quiet:
            click.echo(f"eigenfed: {escape_controls(text)}", err=True)

    def ask(self, question: str, missing: str) -> str:
        """Return what somebody types, or raise a usage error where nobody can be asked."""
        if not is_terminal():
            raise click.UsageError(missing)
        typed: str = click.prompt(question, err=True)
        return typed

    def confirm(self, page: str, question: str, missing: str) -> bool:
        """Show a page, and return whether somebody agrees to it."""
        if not is_terminal():
            raise click.UsageError(missing)
        click.echo(escape_controls(page), err=True)
        return click.confirm(f"\n{question}", err=True)

    @contextmanager
    def progress(self, begin: str = "starting") -> Iterator[Callable[[str], None] | None]:
        """Yield a function that updates a progress line; None if there is no terminal."""
        if not self._shows_progress:
            yield None
            return
        from eigenfed.cli.progress import show_progress

        current = [begin]

        def show(text: str) -> None:
            current[0] = text

        with show_progress(lambda: current[0]):
            yield show

    @contextmanager
    def rounds(self, tol: float) -> Iterator["Callable[[RoundRecord], None] | None"]:
        """Yield a callback that shows the rounds of a run; None if there is no terminal."""
        if not self._shows_progress:
            yield None
            return
        from eigenfed.cli.progress import Rounds, show_progress

        rounds = Rounds(tol)
        with show_progress(lambda: rounds.text, lambda: rounds.done):
            yield rounds.add

    @property
    def _shows_progress(self) -> bool:
        return not self.quiet and sys.stderr.isatty()


def escape_controls(text: str, kept: str = "\n\t") -> str:
    r"""Replace characters that would control a terminal, or hide or reverse what it shows.

    A page or a message may hold a name that somebody else has chosen.

    Parameters
    ----------
    text : str
    kept : str, optional
        Control characters that are left.

    Examples
    --------
    >>> print(escape_controls("a name\x1b[2J of\u202e two\nlines"))
    a name\x1b[2J of\u202e two
    lines
    """
    if text.isprintable():
        return text
    return "".join(
        letter
        if letter.isprintable() or letter in kept
        else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


def is_terminal() -> bool:
    """Return whether somebody can be asked a question."""
    return sys.stdin.isatty()


def print_result(function: Callable[..., CommandResult]) -> Callable[..., None]:
    """Turn a function that returns a `CommandResult` into the callback of a command.

    The callback prints the result and has the options ``--json``, ``--quiet`` and ``--debug``. The
    function is called with a `Console` as its first argument.
    """

    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
    @click.option("--quiet", "-q", is_flag=True, help="Print only the result and errors.")
    @click.option("--debug", is_flag=True, help="Show a traceback if the command fails.")
    @functools.wraps(function)
    def run(as_json: bool, quiet: bool, debug: bool, **options: Any) -> None:
        try:
            result = function(Console(quiet), **options)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            text, code = _describe_failure(error)
            if debug:
                click.echo(traceback.format_exc(), err=True, nl=False)
            print_failure(text, code, as_json=as_json)
            click.get_current_context().exit(code)
        if as_json:
            click.echo(_dump_json(result.data))
        elif result.text:
            click.echo(escape_controls(result.text))
        click.get_current_context().exit(result.code)

    return run


def print_failure(text: str, code: int, *, as_json: bool) -> None:
    """Print an error message, and with ``--json`` the object that has it."""
    click.echo(f"eigenfed: {escape_controls(text)}", err=True)
    if as_json:
        click.echo(_dump_json({"error": text, "exit": code}))


def _dump_json(data: dict[str, Any]) -> str:
    import json

    from eigenfed.study.results.json_types import to_json_types

    return json.dumps(to_json_types(data), allow_nan=False)


def _describe_failure(error: Exception) -> tuple[str, int]:
    """Return the message and the exit code."""
    code = FAILED
    if isinstance(error, EigenfedError):
        code, text = error.exit_code, error.worded(OPTIONS)
    elif isinstance(error, OSError) and error.strerror:
        where = "" if error.filename is None else f"{error.filename}: "
        remedy = "Make room" if error.errno in _FULL else "Check the path and its permissions"
        text = f"{where}{error.strerror}. {remedy}."
    else:
        # The text of any other error may quote the data.
        text = f"Unexpected {type(error).__name__}. Run again with --debug to see where."
    return text, code


class _Notes(logging.Handler):
    """Prints log lines as notes of a command."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        """Print the line without a traceback, which may quote data; our errors do not."""
        text = record.getMessage()
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, EigenfedError):
            text = f"{text}: {error}"
        self._console.note(text[:1].upper() + text[1:])


@contextmanager
def note_log_warnings(console: Console) -> Iterator[None]:
    """Print warnings of the log as notes, in commands that show no log."""
    log, handler = logging.getLogger("eigenfed"), _Notes(console)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
