"""The program ``eigenfed``: its commands, and how it ends."""

import sys
from typing import Any

import click

from eigenfed.cli.audit_command import audit
from eigenfed.cli.demo_command import demo
from eigenfed.cli.fit_command import fit
from eigenfed.cli.init_command import init
from eigenfed.cli.ledger_command import ledger
from eigenfed.cli.merge_command import merge
from eigenfed.cli.options import example
from eigenfed.cli.plan_command import plan
from eigenfed.cli.result_commands import project, report
from eigenfed.cli.stream_command import stream
from eigenfed.errors import FAILED


class Program(click.Group):
    """A group whose errors are one sentence on standard error."""

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run a command and leave with its code."""
        settings.setdefault("prog_name", "eigenfed")
        if not settings.pop("standalone_mode", True):
            return self._ran(*args, **settings)
        try:
            sys.exit(self._ran(*args, **settings) or 0)
        except click.ClickException as error:
            context = getattr(error, "ctx", None)
            hint = f" See '{context.command_path} --help'." if context else ""
            click.echo(f"eigenfed: {error.format_message()}{hint}", err=True)
            sys.exit(error.exit_code)
        except click.Abort:
            click.echo("eigenfed: Stopped before the end; nothing more was written.", err=True)
            sys.exit(FAILED)

    def _ran(self, *args: Any, **settings: Any) -> Any:
        settings["standalone_mode"] = False
        return super().main(*args, **settings)


@click.group(
    "eigenfed",
    epilog=example(
        "A first look, on data it makes:",
        "  eigenfed demo",
        "Three files as three sites, exact and certified:",
        "  eigenfed fit north.csv south.csv island.csv -k 4 -o result",
        "The same with differential privacy:",
        "  eigenfed fit north.csv south.csv island.csv -k 4 --epsilon 1 --delta 1e-6",
        "Shell completion, for bash (or zsh, fish):",
        '  eval "$(_EIGENFED_COMPLETE=bash_source eigenfed)"',
    ),
    cls=Program,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="eigenfed", message="%(prog)s %(version)s")
def cli() -> None:
    """Principal components of data that cannot be pooled.

    It exits with 0 if a command is done, 1 if it failed, 2 if it was called wrongly, and 3 if
    privacy or a site's policy forbids it.
    """


for command in (init, plan, fit, project, report, stream, merge, ledger, audit, demo):
    cli.add_command(command)


def main() -> None:
    """Run the program."""
    cli()


if __name__ == "__main__":
    main()
