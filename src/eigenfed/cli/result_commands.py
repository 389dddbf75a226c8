"""``eigenfed project`` and ``eigenfed report``: scores and pages of a result that was written."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eigenfed.cli import options
from eigenfed.cli.options import example
from eigenfed.cli.output import CommandResult, Voice, answering
from eigenfed.cli.result_writer import check_annotated

if TYPE_CHECKING:
    import numpy.typing as npt


@click.command(
    epilog=example(
        "Records that came after the fit:",
        "  eigenfed project result newcomers.csv -o scores.npy",
    ),
    short_help="Project new records onto a result.",
)
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("file", type=options.FILE)
@click.option("-o", "--out", type=options.NEW, help="Write the scores to this .npy file.")
@options.write_back
@options.force
@answering
def project(
    voice: Voice, folder: Path, file: Path, out: Path | None, write_back: bool, force: bool
) -> CommandResult:
    """Project the records of FILE onto the components in FOLDER.

    Features are aligned by name where they have names. Missing entries count as the mean. Scores
    go to standard output as csv, or with -o to a .npy file.
    """
    if out is not None:
        options.check_new(out, force=force)
    elif force and not write_back:
        raise click.UsageError("--force goes with -o or --write-back only. Name what to replace.")
    if write_back:
        check_annotated([file], force=force)
    from eigenfed.study.results.result_folder import read_result
    from eigenfed.study.scores import Rows, project_file

    result = read_result(folder)
    pca = result.estimator()
    with voice.progress("projecting the records"):
        scores = project_file(pca, Rows(file)).scores
    if result.facts["privacy"] is not None:
        voice.say("These scores are not private: only the components are.")
    shape = {"n": scores.shape[0], "k": scores.shape[1]}
    if write_back:
        from eigenfed.study.scores import write_back as write_into

        write_into(file, pca, scores)
        if out is None:
            said = f"{shape['n']} records x {shape['k']} scores written into {file}"
            return CommandResult(shape | {"file": str(file)}, said)
    if out is None:
        return CommandResult(shape | {"scores": scores}, _csv(scores))
    _save(out, scores)
    return CommandResult(
        shape | {"file": str(out)}, f"{shape['n']} records x {shape['k']} scores in {out}"
    )


def _csv(scores: "npt.NDArray[Any]") -> str:
    head = ",".join(f"PC{place}" for place in range(1, scores.shape[1] + 1))
    return "\n".join([head, *(",".join(map(repr, row)) for row in scores.tolist())])


def _save(path: Path, scores: "npt.NDArray[Any]") -> None:
    from io import BytesIO

    import numpy as np

    from eigenfed.data.safe_files import write_at_once

    held = BytesIO()
    np.save(held, scores)
    write_at_once(path, held.getvalue())


@click.command(
    epilog=example(
        "eigenfed report result",
    ),
    short_help="Write the pages of a result again.",
)
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@answering
def report(voice: Voice, folder: Path) -> CommandResult:
    """Write the pages of the result in FOLDER again, from what is in it.

    report.html is for everybody: what was computed, how well, what left each site, and how to
    repeat it. Pages in sites/ are for a site alone, as they show its rows. run.json and multiqc/
    have the shared page for programs.
    """
    from eigenfed.report.html import write_pages

    with voice.progress("writing the pages"):
        pages = write_pages(folder)
    data = {
        "report": str(pages.shared),
        "sites": {site: str(path) for site, path in pages.own.items()},
        "exports": [str(path) for path in pages.exports],
    }
    lines = [f"report       {pages.shared}"]
    lines += [f"for {site} alone: {path}" for site, path in pages.own.items()]
    lines += [f"for programs: {path}" for path in pages.exports]
    return CommandResult(data, "\n".join(lines))
