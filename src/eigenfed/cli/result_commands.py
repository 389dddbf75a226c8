"""``eigenfed project`` and ``eigenfed report``: commands on the result of a fit."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eigenfed.cli import options
from eigenfed.cli.options import example
from eigenfed.cli.output import CommandResult, Console, print_result
from eigenfed.cli.result_writer import check_annotated

if TYPE_CHECKING:
    import numpy.typing as npt


@click.command(
    epilog=example(
        "Project records that were not fitted:",
        "  eigenfed project result newcomers.csv -o scores.npy",
    ),
    short_help="Project new records onto a result.",
)
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("file", type=options.FILE)
@click.option("-o", "--out", type=options.NEW, help="Write the scores to this .npy file.")
@options.write_back
@options.force
@print_result
def project(
    console: Console, folder: Path, file: Path, out: Path | None, write_back: bool, force: bool
) -> CommandResult:
    """Project the records of FILE onto the components in FOLDER.

    Features are matched by name if they have names. Missing entries are replaced by the mean.
    Scores are printed as csv, or written to a .npy file with -o.
    """
    if out is not None:
        options.check_new(out, force=force)
    elif force and not write_back:
        raise click.UsageError("--force requires -o or --write-back. Name the file to replace.")
    if write_back:
        check_annotated([file], force=force)
    from eigenfed.study.results.result_folder import read_result
    from eigenfed.study.scores import Rows, project_file

    result = read_result(folder)
    pca = result.estimator()
    with console.progress("projecting the records"):
        scores = project_file(pca, Rows(file)).scores
    if result.facts["privacy"] is not None:
        console.note("These scores are not private; only the components are.")
    shape = {"n": scores.shape[0], "k": scores.shape[1]}
    if write_back:
        from eigenfed.study.scores import write_back as write_into

        write_into(file, pca, scores)
        if out is None:
            text = f"{shape['n']} records x {shape['k']} scores written to {file}"
            return CommandResult(shape | {"file": str(file)}, text)
    if out is None:
        return CommandResult(shape | {"scores": scores}, _format_csv(scores))
    _save(out, scores)
    return CommandResult(
        shape | {"file": str(out)}, f"{shape['n']} records x {shape['k']} scores written to {out}"
    )


def _format_csv(scores: "npt.NDArray[Any]") -> str:
    head = ",".join(f"PC{place}" for place in range(1, scores.shape[1] + 1))
    return "\n".join([head, *(",".join(map(repr, row)) for row in scores.tolist())])


def _save(path: Path, scores: "npt.NDArray[Any]") -> None:
    from io import BytesIO

    import numpy as np

    from eigenfed.data.safe_files import write_at_once

    buffer = BytesIO()
    np.save(buffer, scores)
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
