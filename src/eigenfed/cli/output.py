"""Messages of the library in the words of the command line: options instead of arguments.

What every command shares: how it answers, speaks on the side, fails, and with which code.

A command is a function from its options to a `CommandResult`. It prints nothing itself: results
go to standard output, as text or with ``--json`` as one object, and everything else to standard
error.

====  =============================================================================
code  it
====  =============================================================================
0     is done
1     failed
2     was called wrongly
3     was refused: privacy or a site's policy forbids it
====  =============================================================================
"""

import functools
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
} | {
    name: f"--{name}"
    for name in (
        *("method", "features", "epsilon", "delta", "clip", "trust"),
        *("colluders", "dropouts", "count", "transport", "transcript"),
        *("record", "rows", "size", "spectrum", "decay", "trials"),
    )
}
"""The option that stands for an argument; others keep their name."""

_FLAGS = {
    "secure": ("--secure", True),
    "scale": ("--scale", True),
    "center": ("--no-center", False),
}
"""The flag that gives an argument a value, and the value."""

_OF_CHOICE = {"columns": "--column NAME --column NAME ...", "id_column": "--id-column NAME"}
"""Options with a value that is the reader's to choose."""


class OptionWording(Wording):
    """Mentions options.

    Examples
    --------
    >>> from eigenfed.errors import Argument, InputError, Name
    >>> lower = ("Lower ", Name("n_components"), ".")
    >>> error = InputError(Argument("n_components", 9), " must be at most 8", remedy=lower)
    >>> error.worded(OPTIONS)
    '-k 9 must be at most 8. Lower -k.'
    """

    def name(self, name: str) -> str:
        """Return the option or the flag."""
        return _FLAGS[name][0] if name in _FLAGS else _OPTIONS.get(name, name)

    def setting(self, name: str, value: object) -> str:
        """Return the option with its value, as it is typed.

        Examples
        --------
        >>> OPTIONS.setting("method", "krylov"), OPTIONS.setting("center", False)
        ('--method krylov', '--no-center')
        """
        if name in _FLAGS:
            flag, given = _FLAGS[name]
            return flag if value is given else f"no {flag}"
        if name not in _OPTIONS:
            return super().setting(name, value)
        if name == "method" and not isinstance(value, str):
            return _method(value)
        return f"{_OPTIONS[name]} {quote(value) if isinstance(value, str) else shown(value)}"

    def passing(self, name: str, value: object) -> str:
        """Return the advice to pass an option, or to drop one.

        Examples
        --------
        >>> OPTIONS.passing("trust", "central"), OPTIONS.passing("scale", False)
        ('pass --trust central', 'drop --scale')
        """
        if value in (..., [...]) and name in _OF_CHOICE:
            return f"pass {_OF_CHOICE[name]}"
        left_out = value is not _FLAGS[name][1] if name in _FLAGS else value is None
        return f"drop {self.name(name)}" if left_out else super().passing(name, value)

    def aside(self, text: str) -> str:
        """Leave it out."""
        return ""


def _method(method: object) -> str:
    """Write a method with options, as it is typed; without importing what a method is."""
    options = getattr(method, "options", {})
    words = [f"--option {quote(f'{option}={value}')}" for option, value in options.items()]
    return " ".join([f"--method {getattr(method, 'name', method)}", *words])


OPTIONS = OptionWording()


DONE = 0


@dataclass(frozen=True)
class CommandResult:
    """What a command found.

    Attributes
    ----------
    data : dict
        For ``--json``; may hold arrays, NaN and infinity.
    text : str
        For people.
    code : int
        What the process exits with.
    """

    data: dict[str, Any]
    text: str
    code: int = DONE


@dataclass(frozen=True)
class Voice:
    """Speaks on standard error, or not at all."""

    quiet: bool = False

    def say(self, text: str) -> None:
        """Say something that is no result."""
        if not self.quiet:
            click.echo(f"eigenfed: {text}", err=True)

    @contextmanager
    def progress(self, begin: str = "starting") -> Iterator[Callable[[str], None] | None]:
        """Give what shows how far something is, on a terminal that listens; None elsewhere."""
        if not self._is_heard:
            yield None
            return
        from eigenfed.cli.progress import shown

        said = [begin]

        def show(text: str) -> None:
            said[0] = text

        with shown(lambda: said[0]):
            yield show

    @contextmanager
    def rounds(self, tol: float) -> Iterator["Callable[[RoundRecord], None] | None"]:
        """Give what a run tells of its asks, on a terminal that listens; None elsewhere."""
        if not self._is_heard:
            yield None
            return
        from eigenfed.cli.progress import Rounds, shown

        rounds = Rounds(tol)
        with shown(lambda: rounds.text, lambda: rounds.done):
            yield rounds.take

    @property
    def _is_heard(self) -> bool:
        return not self.quiet and sys.stderr.isatty()


def answering(function: Callable[..., CommandResult]) -> Callable[..., None]:
    """Make a command's callback of a function that returns an `CommandResult`.

    It gains the options ``--json``, ``--quiet`` and ``--debug``; the function gets a `Voice` first.
    """

    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
    @click.option("--quiet", "-q", is_flag=True, help="Say nothing but the result and errors.")
    @click.option("--debug", is_flag=True, help="Show a traceback where something fails.")
    @functools.wraps(function)
    def run(as_json: bool, quiet: bool, debug: bool, **options: Any) -> None:
        try:
            answer = function(Voice(quiet), **options)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            answer = _failure(error)
            if debug:
                click.echo(traceback.format_exc(), err=True, nl=False)
            click.echo(f"eigenfed: {answer.text}", err=True)
            answer = CommandResult(answer.data, "", answer.code)
        if as_json:
            click.echo(_as_json(answer.data))
        elif answer.text:
            click.echo(answer.text)
        click.get_current_context().exit(answer.code)

    return run


def _as_json(data: dict[str, Any]) -> str:
    import json

    from eigenfed.study.results.facts import plain

    return json.dumps(plain(data), allow_nan=False)


def _failure(error: Exception) -> CommandResult:
    code = FAILED
    if isinstance(error, EigenfedError):
        code, text = error.exit_code, error.worded(OPTIONS)
    elif isinstance(error, OSError) and error.strerror:
        where = "" if error.filename is None else f"{error.filename}: "
        text = f"{where}{error.strerror}. Check the path, and that it may be read or written."
    else:
        # Any other text may quote the data.
        text = (
            f"It failed with a {type(error).__name__} that was not expected. Run it again with "
            "--debug to see where."
        )
    return CommandResult({"error": text, "exit": code}, text, code)
