"""``eigenfed stream``: rows that come once, into a summary of a few kilobytes."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from eigenfed.cli import options
from eigenfed.cli.options import example
from eigenfed.cli.output import CommandResult, Voice, answering
from eigenfed.cli.tables import summary_text
from eigenfed.report.wording import size

if TYPE_CHECKING:
    from eigenfed.estimators.streaming import StreamingPCA


_BATCH = 1024


@click.command(
    epilog=example(
        "A sensor's readings, with a summary on disk that is never older than 1000 rows:",
        "  tail -n +1 -f readings.csv | eigenfed stream -k 5 -o harbour.summary --every 1000",
    ),
    short_help="Turn rows that come once into a summary.",
)
@click.argument("file", type=click.File("r", encoding="utf-8"), default="-")
@options.components
@click.option("-o", "--out", type=options.NEW, help="Write the summary to this file.")
@click.option(
    "--every", type=click.IntRange(min=1), help="Write it anew after so many rows, and at the end."
)
@click.option(
    "--forgetting",
    type=click.FloatRange(0.0, 1.0, min_open=True),
    default=1.0,
    show_default=True,
    help="A row that is t rows old counts with this to the power of t.",
)
@click.option("--no-center", is_flag=True, help="Take rows as they are, not about their mean.")
@click.option("--header", is_flag=True, help="The first line names the columns: pass over it.")
@options.force
@answering
def stream(
    voice: Voice,
    file: TextIO,
    k: int,
    out: Path | None,
    every: int | None,
    forgetting: float,
    no_center: bool,
    header: bool,
    force: bool,
) -> CommandResult:
    """Read rows from FILE, or from standard input, and keep only a summary.

    A row is a line of numbers between commas or blanks; an empty field, NA or NaN is missing. The
    summary has the mean, the leading directions and a bound on what it let go. Summaries of
    several streams merge: see eigenfed merge.
    """
    if out is None and (every is not None or force):
        raise click.UsageError("--every and --force go with -o only. Name the file to write.")
    if out is not None:
        options.check_new(out, force=force)
    from eigenfed.errors import DataError
    from eigenfed.estimators.streaming import StreamingPCA
    from eigenfed.study.lines import batches

    pca = StreamingPCA(k, forgetting=forgetting, center=not no_center)
    written = 0
    with voice.progress() as show:
        for rows in batches(file, _batch_size(every), header=header):
            pca.partial_fit(rows)
            if show is not None:
                show(f"{pca.n_samples_seen_:,} rows")
            if every is not None and pca.n_samples_seen_ >= written + every:
                written = pca.n_samples_seen_
                _write(out, pca)
    if not hasattr(pca, "n_features_in_"):
        raise DataError(f"{file.name} has no rows. Send one at least.")
    sent = _write(out, pca)
    missing = int(pca.n_missing_.sum())
    if missing:
        voice.say(f"{missing} missing entries count as the mean of those seen before.")
    data = {
        "n": pca.n_samples_seen_,
        "d": pca.n_features_in_,
        "k": k,
        "missing": missing,
        "eigenvalues": pca.explained_variance_,
        "ratios": pca.explained_variance_ratio_,
        "sine_bound": pca.sine_bound_,
        "file": None if out is None else str(out),
        "bytes": sent,
    }
    text = summary_text(data)
    return CommandResult(data, text if out is None else f"{text}\nsummary      {out}, {size(sent)}")


def _batch_size(every: int | None) -> int:
    """Return how many rows to read at once, so that a few times that is `every`."""
    if every is None:
        return _BATCH
    parts = math.ceil(every / _BATCH)
    return math.ceil(every / parts)


def _write(out: Path | None, pca: "StreamingPCA") -> int:
    from eigenfed.data.safe_files import write_at_once

    data = pca.summary_.to_bytes()
    if out is not None:
        write_at_once(out, data)
    return len(data)
