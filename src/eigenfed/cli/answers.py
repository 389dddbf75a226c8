"""What every command shares: how it answers, speaks on the side, fails, and with which code.

A command is a function from its options to an `Answer`. It prints nothing itself: results go to
standard output, as text or with ``--json`` as one object, and everything else to standard error.

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
from typing import TYPE_CHECKING, Any

import click

from eigenfed.cli.wording import in_options
from eigenfed.errors import EigenfedError, InputError, SiteRefused

if TYPE_CHECKING:
    from eigenfed.transport.log import Asked

DONE, FAILED, REFUSED = 0, 1, 3

_REFUSING = ("eigenfed.estimators.protection", "eigenfed.privacy.", "eigenfed.protocol.private")
"""Modules that raise an InputError for the sake of privacy and nothing else."""

_FAULTS = {"failed", "malformed", "unknown_op", "undeclared", "no_identity", "ledger"}
"""Codes with which a site or a ledger says that it cannot, not that it may not."""


@dataclass(frozen=True)
class Answer:
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
    def rounds(self, tol: float) -> Iterator["Callable[[Asked], None] | None"]:
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


def answering(function: Callable[..., Answer]) -> Callable[..., None]:
    """Make a command's callback of a function that returns an `Answer`.

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
            answer = Answer(answer.data, "", answer.code)
        if as_json:
            click.echo(_as_json(answer.data))
        elif answer.text:
            click.echo(answer.text)
        click.get_current_context().exit(answer.code)

    return run


def _as_json(data: dict[str, Any]) -> str:
    import json

    from eigenfed.study.facts import plain

    return json.dumps(plain(data), allow_nan=False)


def _failure(error: Exception) -> Answer:
    code = code_of(error)
    if isinstance(error, EigenfedError):
        text = in_options(str(error))
    elif isinstance(error, OSError) and error.strerror:
        where = "" if error.filename is None else f"{error.filename}: "
        text = f"{where}{error.strerror}. Check the path, and that it may be read or written."
    else:
        # Any other text may quote the data.
        text = (
            f"It failed with a {type(error).__name__} that was not expected. Run it again with "
            "--debug to see where."
        )
    return Answer({"error": text, "exit": code}, text, code)


def code_of(error: Exception) -> int:
    """Return what to exit with: whether something failed, or was refused.

    Examples
    --------
    >>> code_of(SiteRefused("north", "leakage", "product", 3))
    3
    >>> code_of(SiteRefused("north", "failed", "product", 3))
    1
    """
    code = getattr(error, "code", None)
    if isinstance(error, SiteRefused) or _is_refusal(error):
        return FAILED if code in _FAULTS else REFUSED
    if isinstance(error, InputError):
        frames = traceback.walk_tb(error.__traceback__)
        modules = (str(frame.f_globals.get("__name__", "")) for frame, _ in frames)
        if any(module.startswith(_REFUSING) for module in modules):
            return REFUSED
    return FAILED


def _is_refusal(error: Exception) -> bool:
    # What was never imported was never raised.
    keys = sys.modules.get("eigenfed.privacy.keys")
    return keys is not None and isinstance(error, keys.Refusal)


@contextmanager
def option_rules() -> Iterator[None]:
    """Turn a rule that options break among themselves into a usage error."""
    try:
        yield
    except InputError as error:
        raise click.UsageError(in_options(str(error))) from None
