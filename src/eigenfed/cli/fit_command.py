"""``eigenfed fit``: PCA over files as sites, or a rehearsal of a study, in one process."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from eigenfed.cli import options
from eigenfed.cli.input_options import Inputs, file_options, open_tables
from eigenfed.cli.option_types import ComponentCount
from eigenfed.cli.options import example
from eigenfed.cli.output import CommandResult, Console, print_result
from eigenfed.cli.result_writer import ResultWriter
from eigenfed.cli.table_notes import note_tables, noting_copies

_ALLOWED_WITH_STUDY = (
    *("files", "study", "out", "write_back", "force", "transport", "transcript"),
    *("as_json", "quiet", "debug"),
)
"""Parameters that a study file does not decide."""


@click.command(
    epilog=example(
        "Exact, with an accuracy certificate; result and report go to a folder:",
        "  eigenfed fit north.csv south.csv island.csv -k 4 -o result",
        "With secure aggregation:",
        "  eigenfed fit north.csv south.csv island.csv -k 4 --secure",
        "Differentially private:",
        "  eigenfed fit north.csv south.csv island.csv -k 4 --epsilon 1 --delta 1e-6",
        "Counts of single cells, prepared by the usual recipe:",
        "  eigenfed fit a.h5ad b.h5ad c.h5ad -k 50 --prepare normalize:10000 \\",
        "    --prepare select:2000 --prepare log1p --prepare standardize:10",
        "Components of ancestry from PLINK files, without relatives, which are projected:",
        "  eigenfed fit a.bed b.bed c.bed -k 10 --secure --no-fit relatives.txt -o ancestry",
        "Rehearse a study of eigenfed init with the files of its sites:",
        "  eigenfed fit --study study.toml sites/*/site.toml -o result",
    ),
    short_help="Fit a PCA over files, one per site.",
)
@click.argument("files", nargs=-1, required=True, type=options.FILE)
@click.option(
    "-k",
    "k",
    type=ComponentCount(),
    help="Number of components; a fraction of the variance such as 0.95; all; or auto, for those "
    "that stand out from noise. Required without --study.",
)
@click.option(
    "--study",
    type=options.FILE,
    help="Rehearse this study: FILES are then the site files, which define everything else.",
)
@click.option("-o", "--out", type=options.NEW, help="Folder for the result and its report.")
@options.method_option()
@options.secure
@options.privacy_terms
@options.scale
@options.prepare
@options.center
@options.no_center
@click.option(
    "--features",
    type=click.Choice(("same", "common")),
    default="same",
    show_default=True,
    help="Require all sites to have the same features, or use those that all sites have.",
)
@click.option(
    "--column",
    "column",
    multiple=True,
    help="A feature to use; may be repeated. By default all features are used.",
)
@options.id_column
@options.tol
@options.certify
@options.seed
@options.transport
@options.transcript
@click.option(
    "--share-scores",
    multiple=True,
    help="A site whose rows the shared report may show as points; may be repeated.",
)
@click.option(
    "--color-by",
    metavar="COLUMN",
    help="With -o: colour the rows on each site's own page by this column, of obs in .h5ad files. "
    "It is not a feature, and no label leaves the site or is shown on the shared report.",
)
@options.write_back
@options.force
@print_result
@file_options
def fit(
    console: Console,
    files: tuple[Path, ...],
    k: int | float | str | None,
    study: Path | None,
    out: Path | None,
    method: str | None,
    method_options: tuple[str, ...],
    secure: bool | None,
    terms: dict[str, Any],
    scale: bool,
    prepare: tuple[str, ...],
    center: str,
    features: str,
    column: tuple[str, ...],
    id_column: str | None,
    tol: float | None,
    certify: str,
    seed: int | None,
    transport: str | None,
    transcript: Path | None,
    share_scores: tuple[str, ...],
    color_by: str | None,
    write_back: bool,
    force: bool,
    inputs: Inputs,
) -> CommandResult:
    """Fit a PCA over FILES as if all rows were in one table.

    Each file is one site, named after the file. All sites run in this process, but exchange the
    same messages with the coordinator as sites on separate machines would.
    """
    writer = ResultWriter(out, force=force, write_back=write_back)
    if color_by is not None and (out is None or study is not None or terms["epsilon"] is not None):
        raise click.UsageError(
            "--color-by requires -o, and cannot be combined with --study or --epsilon: a private "
            "result has no pages with single rows. Name a folder with -o, or drop it."
        )
    if study is not None:
        running = {"transport": transport, "transcript": transcript}
        return _rehearse(console, study, files, writer, running)
    site_file = next((path for path in files if path.suffix.lower() == ".toml"), None)
    if site_file is not None:
        raise click.UsageError(
            f"{site_file} is not a file of rows. Pass --study STUDY to rehearse a study with its "
            "site files, or pass the file that it names as data."
        )
    if k is None:
        raise click.UsageError("Missing option '-k'.")
    sites = options.name_sites(files)
    privacy = options.parse_privacy(**terms)
    chosen = options.parse_method(method, method_options)
    plain = inputs
    if color_by is not None:
        inputs = inputs.without(color_by)
    _check_shared(share_scores, sites, out, private=privacy is not None)
    from eigenfed.estimators.pca_fit import PCAFit

    writer.check(sites.values())
    plain.check(list(sites.values()))
    plain.check_columns(list(sites.values()), color_by)
    prepare = _match_at_least(prepare, inputs)
    pca = PCAFit(
        k,
        method=chosen,
        center=options.CENTERS[center],
        scale=scale or "auto",
        prepare=prepare or None,
        secure="auto" if secure is None else secure,
        privacy=privacy,
        transport=transport,
        transcript=transcript,
        tol="auto" if tol is None else tol,
        certify=certify if certify != "no" else False,
        random_state=seed,
    )
    tables: dict[str, Any] = {}
    with noting_copies(console, tables):
        with _noting_warnings(console), console.rounds(tol or _find_tol(sites)) as callback:
            tables.update(open_tables(sites, inputs, column, id_column, features))
            note_tables(console, tables, prepared=bool(prepare))
            labels = {} if color_by is None else _read_labels(tables, color_by, plain)
            pca.fit_sites(
                tables,
                features=features,
                by_site=writer.compares_sites(pca, len(sites)),
                callback=callback,
            )
        return writer.write(console, pca, tables, share_scores=share_scores, labels=labels)


def _read_labels(tables: dict[str, Any], column: str, inputs: Inputs) -> dict[str, tuple[str, ...]]:
    from eigenfed.data.files import FileTable, read_labels

    # The others were not opened, as the sites' features differ, and the fit refuses them.
    opened = {site: table for site, table in tables.items() if isinstance(table, FileTable)}
    return {
        site: read_labels(table.path, column, table.source.names[0], inputs.get_options(table.path))
        for site, table in opened.items()
        if table.source.names
    }


def _check_shared(
    share_scores: tuple[str, ...], sites: dict[str, Path], out: Path | None, *, private: bool
) -> None:
    unknown = next((site for site in share_scores if site not in sites), None)
    if unknown is not None:
        raise click.UsageError(
            f"--share-scores {unknown} must be one of the sites: {', '.join(sites)}."
        )
    if share_scores and private:
        raise click.UsageError(
            "--share-scores shows single rows and cannot be combined with --epsilon. Drop one."
        )
    if share_scores and out is None:
        raise click.UsageError("--share-scores requires -o. Name a folder.")


def _match_at_least(prepare: tuple[str, ...], inputs: Inputs) -> tuple[str, ...]:
    """Return the steps, with one that keeps the variants of a manifest that every site has."""
    from eigenfed.data.steps import as_steps, filters_variants

    is_needed = inputs.options.filters.manifest is not None
    return (
        prepare if not is_needed or filters_variants(as_steps(prepare)) else (*prepare, "matched")
    )


def _find_tol(sites: dict[str, Path]) -> float:
    """Return the default tolerance for files of this kind, towards which progress is shown."""
    return 0.05 if all(path.suffix.lower() == ".bed" for path in sites.values()) else 1e-4


@contextmanager
def _noting_warnings(console: Console) -> Iterator[None]:
    """Print warnings as notes, without the lines of code that Python adds.

    That a result is mostly noise is left out, as the output has it anyway.
    """
    import warnings

    from eigenfed.errors import NoiseWarning

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.simplefilter("ignore", NoiseWarning)
        # Not recorded, as others would be shown only once the run has ended.
        warnings.showwarning = lambda message, *_, **__: console.note(str(message))
        yield


def _rehearse(
    console: Console,
    study: Path,
    files: tuple[Path, ...],
    writer: ResultWriter,
    running: dict[str, Any],
) -> CommandResult:
    _check_with_study(files)
    from eigenfed.study.rehearsal import read_rehearsal

    rehearsal = read_rehearsal(study, files)
    if rehearsal.study.privacy is not None and writer.out is None and not writer.write_back:
        raise click.UsageError(
            f"{study} has [privacy]: a run spends the sites' budgets, and without -o its result "
            "would be lost. Pass -o FOLDER."
        )
    records = rehearsal.records
    filtered = [rehearsal.sites[name].path for name, rows in records.items() if rows.where]
    if writer.write_back and filtered:
        raise click.UsageError(
            f"--write-back writes scores for all rows, and {filtered[0]} selects some with where. "
            "Drop one of them."
        )
    writer.check(rows.path for rows in records.values())
    if rehearsal.absent:
        console.note(f"Quorum reached; absent sites: {', '.join(rehearsal.absent)}.")
    pca = rehearsal.estimator(**running)
    with _noting_warnings(console), console.rounds(rehearsal.study.tol) as callback:
        run = rehearsal.fit(pca, callback)
    prepared = bool(rehearsal.study.prepare)
    with noting_copies(console, run.tables):
        note_tables(console, dict(run.tables), prepared=prepared, in_study=True)
        return writer.write(
            console,
            pca,
            run.tables,
            share_scores=rehearsal.sharing,
            ledgers=run.ledgers or None,
            study=rehearsal.study.name,
        )


def _check_with_study(files: tuple[Path, ...]) -> None:
    """Refuse options that study and site files decide, and files that are not site files."""
    context = click.get_current_context()
    for option in context.command.params:
        default = click.core.ParameterSource.DEFAULT
        given = context.get_parameter_source(option.name or "") is not default
        if given and option.name not in _ALLOWED_WITH_STUDY:
            raise click.UsageError(
                f"{option.opts[0]} cannot be combined with --study. Set it in the study file or "
                "the site files."
            )
    other = next((path for path in files if path.suffix.lower() != ".toml"), None)
    if other is not None:
        raise click.UsageError(
            f"{other} is not a .toml file, and with --study each of FILES must be a site file. "
            "Pass the site file that names it as data."
        )
