"""``eigenfed init``: write commented study and site files."""

from pathlib import Path
from typing import Any

import click

from eigenfed.cli import options
from eigenfed.cli.options import example
from eigenfed.cli.output import CommandResult, Console, print_result


@click.command(
    epilog=example(
        "Files for three sites, in the current folder:",
        "  eigenfed init --sites north,south,island -k 4",
        "A differentially private study, in the folder heart:",
        "  eigenfed init heart --epsilon 1 --delta 1e-6",
        "A JSON schema for editors that validate TOML:",
        "  eigenfed init --schema study > study.schema.json",
    ),
    short_help="Write commented files for a new study.",
)
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@click.option(
    "--sites",
    default="north,south,island",
    show_default=True,
    help="Names of the sites, separated by commas.",
)
@click.option(
    "-k",
    "k",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Number of components.",
)
@options.epsilon
@options.delta
@click.option("--force", is_flag=True, help="Overwrite existing study and site files.")
@click.option(
    "--schema",
    type=click.Choice(("study", "site")),
    help="Print the JSON schema of study or site files, and write nothing.",
)
@print_result
def init(
    console: Console,
    folder: Path,
    sites: str,
    k: int,
    epsilon: float | None,
    delta: float | None,
    force: bool,
    schema: str | None,
) -> CommandResult:
    """Write the files of a new study into DIR, with every key explained.

    study.toml is shared: every site reads and approves it. sites/NAME/site.toml belongs to one
    site and stays there: it says where the rows are and what the site allows.
    """
    if schema is not None:
        _check_alone()
        return _schema(schema)
    privacy = options.parse_privacy(epsilon, delta)
    from eigenfed.study.config import start_study

    names = [name.strip() for name in sites.split(",")]
    _check_names(names)
    started = start_study(folder, sites=names, components=k, privacy=privacy, force=force)
    steps = _list_steps(started.study, started.sites, is_private=privacy is not None)
    data = {
        "study": str(started.study),
        "sites": {name: str(path) for name, path in started.sites.items()},
        "next": steps,
    }
    return CommandResult(data, _format_page(data))


def _check_names(names: list[str]) -> None:
    import re

    from eigenfed.study.config.fields import NAME_PATTERN, NAME_RULE

    wrong = next((name for name in names if not re.fullmatch(NAME_PATTERN, name)), None)
    if wrong is not None:
        raise click.UsageError(
            f"--sites has the name {wrong!r}, and a name must be {NAME_RULE}. Pass "
            "--sites north,south,island, for example."
        )
    if len(set(names)) < len(names):
        raise click.UsageError("--sites names a site twice. Name each once.")


def _check_alone() -> None:
    context = click.get_current_context()
    for name in ("folder", "sites", "k", "epsilon", "delta", "force"):
        if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            raise click.UsageError("--schema writes no files. Pass it without other options.")


def _schema(name: str) -> CommandResult:
    import json

    from eigenfed.study.config import schema_of

    schema = schema_of(name)
    return CommandResult(schema, json.dumps(schema, indent=2))


def _list_steps(study: Path, sites: dict[str, Path], *, is_private: bool) -> list[str]:
    from shlex import join

    first, path = next(iter(sites.items()))
    call = ["eigenfed", "fit", "--study", str(study), *map(str, sites.values()), "-o", "result"]
    ledgers = ["eigenfed", "ledger", "create"]
    ledgers += [str(path.parent / f"{name}.ledger") for name, path in sites.items()]
    spends = " A rehearsal spends the sites' budgets like any run." if is_private else ""
    return [
        f"Edit {study}, and have every site approve it.",
        f"Send each site its folder. Each site adds its data: {first} puts its rows into "
        f"{path.parent / f'{first}.csv'}, or sets data in {path} to another file.",
        "Each site creates its ledger, once, where it will stay. For a rehearsal on one machine, "
        f"create all of them:\n  {join(ledgers)}",
        f"Rehearse on one machine, with simulated rows for example.{spends}\n  {join(call)}",
    ]


def _format_page(data: dict[str, Any]) -> str:
    files = [data["study"], *data["sites"].values()]
    steps = [f"{place}. {step}" for place, step in enumerate(data["next"], start=1)]
    return "\n".join(["Wrote", *(f"  {path}" for path in files), "", "Next:", *steps])
