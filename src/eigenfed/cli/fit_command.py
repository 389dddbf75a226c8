"""``eigenfed fit``: files as sites, in one process."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from eigenfed.cli import options
from eigenfed.cli.options import example
from eigenfed.cli.output import CommandResult, Voice, answering
from eigenfed.cli.result_writer import ResultWriter

_BESIDE_STUDY = (
    *("files", "study", "out", "write_back", "force", "transport", "transcript"),
    *("as_json", "quiet", "debug"),
)


@click.command(
    epilog=example(
        "Exact, with a certificate; the result goes to a folder:",
        "  eigenfed fit north.csv south.csv island.csv -k 4 -o result",
        "Sums that nobody can open:",
        "  eigenfed fit north.csv south.csv island.csv -k 4 --secure",
        "Differentially private:",
        "  eigenfed fit north.csv south.csv island.csv -k 4 --epsilon 1 --delta 1e-6",
        "A rehearsal of a study, on the sites' own files:",
        "  eigenfed fit --study study.toml north.toml south.toml island.toml -o result",
    ),
    short_help="Fit a PCA over files, each of them a site.",
)
@click.argument("files", nargs=-1, required=True, type=options.FILE)
@click.option(
    "-k", "k", type=click.IntRange(min=1), help="Number of components; needed without --study."
)
@click.option(
    "--study",
    type=options.FILE,
    help="Rehearse this study: FILES are then its sites' own files, and say all the rest.",
)
@click.option("-o", "--out", type=options.NEW, help="Folder to write the result to.")
@options.method_option()
@options.secure
@options.epsilon
@options.delta
@options.clip
@options.colluders
@options.dropouts
@options.count
@options.trust
@options.scale
@click.option("--no-center", is_flag=True, help="Take rows as they are, not about their mean.")
@click.option(
    "--features",
    type=click.Choice(("same", "common")),
    default="same",
    show_default=True,
    help="Whether sites must have the same features, or those are used that all have.",
)
@click.option("--column", "column", multiple=True, help="A feature to take; all without this.")
@click.option("--id-column", help="Column of csv and parquet files that names the rows.")
@options.seed
@options.transport
@options.transcript
@click.option(
    "--share-scores",
    multiple=True,
    help="A site whose rows the page for everybody may show as points.",
)
@options.write_back
@options.force
@answering
def fit(
    voice: Voice,
    files: tuple[Path, ...],
    k: int | None,
    study: Path | None,
    out: Path | None,
    method: str | None,
    method_options: tuple[str, ...],
    secure: bool,
    epsilon: float | None,
    delta: float | None,
    clip: float | None,
    colluders: int | None,
    dropouts: int | None,
    count: str | None,
    trust: str | None,
    scale: bool,
    no_center: bool,
    features: str,
    column: tuple[str, ...],
    id_column: str | None,
    seed: int | None,
    transport: str | None,
    transcript: Path | None,
    share_scores: tuple[str, ...],
    write_back: bool,
    force: bool,
) -> CommandResult:
    """Fit a PCA over FILES as if their rows were in one place.

    Each file is a site of its own, named after the file. Sites live in this process, and every
    message between them and the coordinator still crosses as bytes through the site's gate.
    """
    writer = ResultWriter(out, force=force, write_back=write_back)
    if study is not None:
        running = {"transport": transport, "transcript": transcript}
        return _rehearsed(voice, study, files, writer, running)
    if k is None:
        raise click.UsageError("Missing option '-k'.")
    sites = options.site_names(files)
    privacy = options.privacy_of(
        epsilon,
        delta,
        clip=clip,
        colluders=colluders,
        dropouts=dropouts,
        count=count,
        trust=trust,
    )
    chosen = options.method_of(method, method_options)
    _check_shared(share_scores, sites, out, private=privacy is not None)
    from eigenfed.estimators.federated import FederatedPCA

    writer.check(sites.values())
    pca = FederatedPCA(
        k,
        method=chosen,
        center=not no_center,
        scale=scale,
        secure=secure,
        privacy=privacy,
        transport=transport,
        transcript=transcript,
        random_state=seed,
    )
    with voice.rounds(pca.tol) as callback:
        tables = _open_tables(sites, column, id_column, features)
        pca.fit_sites(
            tables,
            features=features,
            by_site=writer.tells_sites_apart(pca),
            callback=callback,
        )
    return writer.answer(voice, pca, tables, share_scores=share_scores)


def _check_shared(
    share_scores: tuple[str, ...], sites: dict[str, Path], out: Path | None, *, private: bool
) -> None:
    strange = next((site for site in share_scores if site not in sites), None)
    if strange is not None:
        raise click.UsageError(
            f"--share-scores {strange} must be one of the sites {', '.join(sites)}. Name one of "
            "them."
        )
    if share_scores and private:
        raise click.UsageError(
            "--share-scores shows single rows and does not go with --epsilon. Drop one."
        )
    if share_scores and out is None:
        raise click.UsageError("--share-scores goes with -o only. Name a folder.")


def _open_tables(
    sites: dict[str, Path], columns: tuple[str, ...], id_column: str | None, features: str
) -> dict[str, Any]:
    """Open each file once, for the fit and for scores, with the same features in the same order.

    Where the sites' features do not match, only headers are read, for the fit to refuse.
    """
    from eigenfed.data.files import open_table, read_feature_names
    from eigenfed.estimators.inputs import NamedFile

    wanted: list[str] | None = list(columns) or None
    if wanted is None:
        names: dict[str, list[str] | None] = {}
        for site in sorted(sites):
            with _naming(site):
                names[site] = read_feature_names(sites[site], id_column)
        known = [found for found in names.values() if found is not None]
        wanted = [name for name in known[0] if all(name in f for f in known)] if known else None
        differ = wanted is not None and any(len(found) > len(wanted) for found in known)
        if 0 < len(known) < len(names) or wanted == [] or (differ and features == "same"):
            return {
                site: sites[site] if found is None else NamedFile(sites[site], tuple(found))
                for site, found in names.items()
            }
    tables = {}
    for site, path in sites.items():
        with _naming(site):
            tables[site] = open_table(path, columns=wanted, id_column=id_column)
    return tables


@contextmanager
def _naming(site: str) -> Iterator[None]:
    """Say in an error which site it is about."""
    from eigenfed.errors import DataError, InputError

    try:
        yield
    except (InputError, DataError) as error:
        raise error.prefixed(f"Site {site!r}: ") from None


def _rehearsed(
    voice: Voice,
    study: Path,
    files: tuple[Path, ...],
    writer: ResultWriter,
    running: dict[str, Any],
) -> CommandResult:
    _check_beside_study(files)
    from eigenfed.study.rehearsal import rehearsal_of

    rehearsal = rehearsal_of(study, files)
    records = rehearsal.records
    filtered = [rehearsal.sites[name].path for name, rows in records.items() if rows.where]
    if writer.write_back and filtered:
        raise click.UsageError(
            f"--write-back needs the scores of all rows, and {filtered[0]} has where. Drop one."
        )
    writer.check(rows.path for rows in records.values())
    if rehearsal.absent:
        voice.say(f"The quorum is there; {', '.join(rehearsal.absent)} did not come.")
    pca = rehearsal.estimator().set_params(**running)
    with voice.rounds(pca.tol) as callback:
        run = rehearsal.fit(pca, callback)
    return writer.answer(
        voice,
        pca,
        run.tables,
        share_scores=rehearsal.sharing,
        ledgers=run.ledgers or None,
        study=rehearsal.study.name,
    )


def _check_beside_study(files: tuple[Path, ...]) -> None:
    """Refuse options that the study or a site's file decides, and files that are no site's."""
    context = click.get_current_context()
    for option in context.command.params:
        default = click.core.ParameterSource.DEFAULT
        given = context.get_parameter_source(option.name or "") is not default
        if given and option.name not in _BESIDE_STUDY:
            raise click.UsageError(
                f"{option.opts[0]} does not go with --study: the study and the sites' own files "
                "say it. Change it there."
            )
    other = next((path for path in files if path.suffix.lower() != ".toml"), None)
    if other is not None:
        raise click.UsageError(
            f"{other} is no .toml file, and with --study each of FILES is a site's own file. Pass "
            "the file that names it as data."
        )
