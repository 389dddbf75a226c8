"""The program ``eigenfed``: its commands, its error output and its exit codes."""

import gc
import os
import sys
from typing import Any

import click

from eigenfed.cli.audit_command import audit
from eigenfed.cli.cache_command import cache
from eigenfed.cli.coordinate_command import coordinate
from eigenfed.cli.demo_command import demo
from eigenfed.cli.drop_command import drop
from eigenfed.cli.fit_command import fit
from eigenfed.cli.init_command import init
from eigenfed.cli.ledger_command import ledger
from eigenfed.cli.merge_command import merge
from eigenfed.cli.network_command import network
from eigenfed.cli.options import example
from eigenfed.cli.output import print_failure
from eigenfed.cli.plan_command import plan
from eigenfed.cli.result_commands import project, report
from eigenfed.cli.site_command import site
from eigenfed.cli.stream_command import stream
from eigenfed.errors import FAILED


class Program(click.Group):
    """A command group that prints an error as one line on standard error."""

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run a command and exit with its code."""
        settings.setdefault("prog_name", "eigenfed")
        if not settings.pop("standalone_mode", True):
            return self._run(*args, **settings)
        given = args[0] if args else settings.get("args")
        # Wrong usage is found before options are parsed, and scripts read JSON of it too.
        as_json = "--json" in (sys.argv[1:] if given is None else given)
        try:
            sys.exit(self._run(*args, **settings) or 0)
        except click.exceptions.NoArgsIsHelpError as error:
            # A group without a command: the message is the help text, not an error.
            click.echo(error.format_message(), err=True)
            sys.exit(error.exit_code)
        except click.ClickException as error:
            context = getattr(error, "ctx", None)
            hint = f" See '{context.command_path} --help'." if context else ""
            # click ends some messages without a full stop.
            wrong = error.format_message()
            stop = "" if wrong.endswith((".", "?", "!")) else "."
            print_failure(f"{wrong}{stop}{hint}", error.exit_code, as_json=as_json)
            sys.exit(error.exit_code)
        except click.Abort:
            print_failure("Interrupted; nothing more was written.", FAILED, as_json=as_json)
            sys.exit(FAILED)
        except OSError as error:
            # Commands handle errors of the files that they open: only the output is left.
            why = error.strerror or type(error).__name__
            click.echo(f"eigenfed: The output cannot be written: {why}.", err=True)
            # What was not written would be tried again, and fail, as the interpreter ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(FAILED)

    def _run(self, *args: Any, **settings: Any) -> Any:
        settings["standalone_mode"] = False
        return super().main(*args, **settings)


@click.group(
    "eigenfed",
    epilog=example(
        "Try it on generated data:",
        "  eigenfed demo",
        "Exact PCA of three files as three sites, with an accuracy certificate:",
        "  eigenfed fit north.csv south.csv island.csv -k 4 -o result",
        "The same with differential privacy:",
        "  eigenfed fit north.csv south.csv island.csv -k 4 --epsilon 1 --delta 1e-6",
        "Shell completion for bash (replace bash by zsh or fish):",
        '  eval "$(_EIGENFED_COMPLETE=bash_source eigenfed)"',
    ),
    cls=Program,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="eigenfed", message="%(prog)s %(version)s")
def cli() -> None:
    """Principal components of data that cannot be pooled.

    Exit codes: 0 success, 1 failure, 2 wrong usage, 3 refused by privacy or by a site's policy, 4
    done, but the result is mostly noise.
    """


for command in (
    *(init, plan, fit, project, report, stream, merge),
    *(network, site, coordinate, drop, ledger, cache, audit, demo),
):
    cli.add_command(command)


def main() -> None:
    """Run the program."""
    try:
        cli()
    finally:
        # The interpreter's last collections, a tenth of a short run, would find nothing to reuse.
        gc.freeze()
