"""``eigenfed project`` and ``eigenfed report``: commands on the result of a fit."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eigenfed.cli import options
from eigenfed.cli.input_options import Inputs, file_options
from eigenfed.cli.options import example
from eigenfed.cli.output import CommandResult, Console, print_result
from eigenfed.cli.result_writer import check_annotated
from eigenfed.report.wording import things

if TYPE_CHECKING:
    from eigenfed.data.files import FileTable
    from eigenfed.estimators.pca_fit import PCAFit
    from eigenfed.study.scores import Projected


@click.command(
    epilog=example(
        "Project records that were not fitted:",
        "  eigenfed project result newcomers.csv --id-column patient -o scores.csv",
        "Project a sensor's readings onto the merged summary of all sensors:",
        "  eigenfed project all.summary readings.csv -k 3",
        "Project people who were genotyped later:",
        "  eigenfed project ancestry newcomers.bed -o newcomers.csv",
    ),
    short_help="Project new records onto a result.",
)
@click.argument("result", type=click.Path(exists=True, path_type=Path))
@click.argument("file", type=options.FILE)
@click.option(
    "-k",
    "k",
    type=click.IntRange(min=1),
    help="Number of components of a summary; by default all that it holds.",
)
@click.option(
    "-o", "--out", type=options.NEW, help="Write the scores to this .csv, .tsv or .npy file."
)
@options.id_column
@options.write_back
@options.force
@print_result
@file_options
def project(
    console: Console,
    result: Path,
    file: Path,
    k: int | None,
    out: Path | None,
    id_column: str | None,
    write_back: bool,
    force: bool,
    inputs: Inputs,
) -> CommandResult:
    """Project the records of FILE onto the components in RESULT.

    RESULT is a folder of eigenfed fit, or a summary of eigenfed stream or merge. Features are
    matched by name if they have names. Missing entries are replaced by the mean. Scores are printed
    as csv, or written to a file with -o. With --id-column the lines of csv and tsv begin with the
    identifiers; those of an .h5ad file are always included.
    """
    if out is not None:
        _check_suffix(out, id_column)
        options.check_new(out, force=force)
    elif force and not write_back:
        raise click.UsageError("--force requires -o or --write-back. Name the file to replace.")
    if write_back:
        check_annotated([file], force=force)
    pca, private = _read_components(result, k)
    from eigenfed.study.scores import Rows, keep_loaded, open_fitted, project_table

    pca = keep_loaded(pca)
    with console.progress("projecting the records"):
        rows = Rows(file, id_column, (), inputs.options, inputs.cache, inputs.keep)
        table = open_fitted(pca, rows)
        projected = project_table(pca, table)
    for note in (*table.notes, *table.late_notes):
        console.note(note)
    scores = projected.scores
    shape: dict[str, Any] = {"n": scores.shape[0], "k": scores.shape[1]}
    if table.plink is not None:
        shape |= _describe_new_people(console, pca, table)
    if private:
        console.note("These scores are not private; only the components are.")
    if write_back:
        from eigenfed.study.scores import write_back as write_into

        write_into(file, pca, scores)
        if out is None:
            return CommandResult(shape | {"file": str(file)}, _describe_saved(shape, file))
    if out is None:
        from eigenfed.study.results.csv_tables import format_scores

        data = shape | {"ids": projected.row_ids, "scores": scores}
        return CommandResult(data, format_scores(projected).rstrip("\n"))
    _save(out, projected)
    return CommandResult(shape | {"file": str(out)}, _describe_saved(shape, out))


def _describe_saved(shape: dict[str, Any], path: Path) -> str:
    return f"{things(shape['n'], 'record')} x {things(shape['k'], 'score')} written to {path}"


def _describe_new_people(console: Console, pca: "PCAFit", table: "FileTable") -> dict[str, Any]:
    """Note how scores of people who were not fitted differ from those of people who were."""
    from eigenfed.study.scores import count_absent, find_shrinkage

    absent, factors = count_absent(table), find_shrinkage(pca).tolist()
    if absent:
        console.note(
            f"The file lacks {absent} of the {table.source.d} variants of the components, which "
            "count as the mean: this too moves scores towards 0."
        )
    shown = ", ".join(f"{factor:.2f}" for factor in factors)
    console.note(
        "Scores of people who were not fitted are closer to 0 than those of fitted people, by "
        f"factors of about {shown} if variants are independent; 0 is a component within noise."
    )
    return {"shrinkage": factors, "absent": absent}


def _read_components(result: Path, k: int | None) -> "tuple[PCAFit, bool]":
    """Return the components of a result folder or a summary, and whether they are private."""
    if result.is_file():
        from eigenfed.study.scores import restore_summary

        return restore_summary(options.read_summary(result), k), False
    if k is not None:
        raise click.UsageError("-k is for summaries, and a result folder has its own. Drop it.")
    from eigenfed.study.results.result_folder import read_result

    found = read_result(result)
    return found.projector(), found.facts["privacy"] is not None


_SEPARATORS = {".csv": ",", ".tsv": "\t"}


def _check_suffix(out: Path, id_column: str | None) -> None:
    suffix = out.suffix.lower()
    if suffix not in (*_SEPARATORS, ".npy"):
        raise click.UsageError(
            f"-o {out} must end in .csv, .tsv or .npy, which decides the format. Rename it."
        )
    if suffix == ".npy" and id_column is not None:
        raise click.UsageError(
            "A .npy file has no place for identifiers. Name a .csv file, or drop --id-column."
        )


def _save(path: Path, projected: "Projected") -> None:
    from io import BytesIO

    import numpy as np

    from eigenfed.data.safe_files import write_at_once
    from eigenfed.study.results.csv_tables import format_scores

    separator = _SEPARATORS.get(path.suffix.lower())
    if separator is not None:
        write_at_once(path, format_scores(projected, separator).encode("utf-8"))
        return
    buffer = BytesIO()
    np.save(buffer, projected.scores)
    write_at_once(path, buffer.getvalue())


@click.command(
    epilog=example("eigenfed report result"),
    short_help="Write the report of a result again.",
)
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@print_result
def report(console: Console, folder: Path) -> CommandResult:
    """Write the report of the result in FOLDER again, from the files in FOLDER.

    report.html is shared by all sites: what was computed, how accurately, what left each site, and
    how to repeat it. The pages in sites/ show single rows and are for one site each. run.json and
    multiqc/ hold the content of report.html for programs.
    """
    from eigenfed.report.html import write_pages

    with console.progress("writing the report"):
        pages = write_pages(folder)
    data = {
        "report": str(pages.shared),
        "sites": {site: str(path) for site, path in pages.own.items()},
        "exports": [str(path) for path in pages.exports],
    }
    lines = [f"report       {pages.shared}"]
    lines += [f"only for {site}: {path}" for site, path in pages.own.items()]
    lines += [f"for programs: {path}" for path in pages.exports]
    return CommandResult(data, "\n".join(lines))
