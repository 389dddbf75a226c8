"""``eigenfed project``: new records onto a result."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eigenfed.cli import options
from eigenfed.cli.answers import Answer, Voice, answering
from eigenfed.cli.helping import example

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
@options.force
@answering
def project(voice: Voice, folder: Path, file: Path, out: Path | None, force: bool) -> Answer:
    """Project the records of FILE onto the components in FOLDER.

    Features are aligned by name where they have names. Missing entries count as the mean. Scores
    go to standard output as csv, or with -o to a .npy file.
    """
    if out is not None:
        options.check_new(out, force=force)
    elif force:
        raise click.UsageError("--force goes with -o only. Name the file to replace.")
    from eigenfed.study.results import read_result
    from eigenfed.study.rows import projected

    result = read_result(folder)
    scores = projected(result.estimator(), file)
    if result.facts["privacy"] is not None:
        voice.say("These scores are not private: only the components are.")
    shape = {"n": scores.shape[0], "k": scores.shape[1]}
    if out is None:
        return Answer(shape | {"scores": scores}, _csv(scores))
    _save(out, scores)
    return Answer(
        shape | {"file": str(out)}, f"{shape['n']} records x {shape['k']} scores in {out}"
    )


def _csv(scores: "npt.NDArray[Any]") -> str:
    head = ",".join(f"PC{place}" for place in range(1, scores.shape[1] + 1))
    return "\n".join([head, *(",".join(map(repr, row)) for row in scores.tolist())])


def _save(path: Path, scores: "npt.NDArray[Any]") -> None:
    from io import BytesIO

    import numpy as np

    from eigenfed.study.files import write_at_once

    held = BytesIO()
    np.save(held, scores)
    write_at_once(path, held.getvalue())
