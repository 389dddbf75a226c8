"""``eigenfed init``: commented files for a new study."""

from pathlib import Path
from typing import Any

import click

from eigenfed.cli import options
from eigenfed.cli.options import example
from eigenfed.cli.output import CommandResult, Voice, answering


@click.command(
    epilog=example(
        "Files for three sites, in this folder:",
        "  eigenfed init --sites north,south,island -k 4",
        "The same for a private study, in a folder of its own:",
        "  eigenfed init heart --epsilon 1 --delta 1e-6",
        "A schema for editors that check TOML:",
        "  eigenfed init --schema study > study.schema.json",
    ),
    short_help="Write commented files for a new study.",
)
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@click.option("--sites", default="north,south,island", show_default=True, help="Their names.")
@click.option(
    "-k", "k", type=click.IntRange(min=1), default=4, show_default=True, help="Components."
)
@options.epsilon
@options.delta
@click.option("--force", is_flag=True, help="Replace study and site files that are there.")
@click.option(
    "--schema",
    type=click.Choice(("study", "site")),
    help="Print the JSON schema of study or site files, and write nothing.",
)
@answering
def init(
    voice: Voice,
    folder: Path,
    sites: str,
    k: int,
    epsilon: float | None,
    delta: float | None,
    force: bool,
    schema: str | None,
) -> CommandResult:
    """Write the files of a new study into DIR, with every key explained.

    study.toml is for everybody to read and sign off. sites/NAME/site.toml is that site's own: it
    says where the rows are and what the site allows, and stays there.
    """
    if schema is not None:
        _check_alone()
        return _schema(schema)
    privacy = options.privacy_of(epsilon, delta)
    from eigenfed.study.config import start_study

    names = [name.strip() for name in sites.split(",")]
    started = start_study(folder, sites=names, components=k, privacy=privacy, force=force)
    steps = _steps(started.study, started.sites, is_private=privacy is not None)
    data = {
        "study": str(started.study),
        "sites": {name: str(path) for name, path in started.sites.items()},
        "next": steps,
    }
    return CommandResult(data, _page(data))


def _check_alone() -> None:
    context = click.get_current_context()
    for name in ("folder", "sites", "k", "epsilon", "delta", "force"):
        if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
            raise click.UsageError("--schema prints and writes nothing. Pass it alone.")


def _schema(name: str) -> CommandResult:
    import json

    from eigenfed.study.config import schema_of

    schema = schema_of(name)
    return CommandResult(schema, json.dumps(schema, indent=2))


def _steps(study: Path, sites: dict[str, Path], *, is_private: bool) -> list[str]:
    from shlex import join

    first, path = next(iter(sites.items()))
    call = ["eigenfed", "fit", "--study", str(study), *map(str, sites.values()), "-o", "result"]
    ledgers = ["eigenfed", "ledger", "create"]
    ledgers += [str(path.parent / f"{name}.ledger") for name, path in sites.items()]
    spends = ". It spends the sites' budgets as any run does" if is_private else ""
    return [
        f"Read {study}, change what you like, and have every site sign it off.",
        f"Give each site its folder. The data are not there yet: {first} puts its rows into "
        f"{path.parent / f'{first}.csv'}, or names another file as data in {path}.",
        "Each site begins its ledger, once and where it will stay. For a rehearsal, all of them:\n"
        f"  {join(ledgers)}",
        f"Rehearse on one machine, with made-up rows, say{spends}:\n  {join(call)}",
    ]


def _page(data: dict[str, Any]) -> str:
    files = [data["study"], *data["sites"].values()]
    steps = [f"{place}. {step}" for place, step in enumerate(data["next"], start=1)]
    return "\n".join(["Wrote", *(f"  {path}" for path in files), "", "Next:", *steps])
