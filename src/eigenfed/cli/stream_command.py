"""``eigenfed stream``: rows, each read once, into a summary of a few kilobytes."""

from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

import click

from eigenfed.cli import options
from eigenfed.cli.input_options import dialect_options
from eigenfed.cli.options import example
from eigenfed.cli.output import CommandResult, Console, print_result
from eigenfed.cli.tables import summary_text
from eigenfed.report.wording import size

if TYPE_CHECKING:
    from eigenfed.data.dialect import Dialect
    from eigenfed.estimators.streaming import StreamingPCA


@click.command(
    epilog=example(
        "A sensor's readings, with a summary on disk that is at most 1000 rows behind:",
        "  tail -n +1 -f readings.csv | eigenfed stream -k 5 -o harbour.summary --every 1000",
    ),
    short_help="Turn a stream of rows into a summary.",
)
@click.argument("file", type=click.File("rb"), default="-")
@options.components
@click.option("-o", "--out", type=options.NEW, help="Write the summary to this file.")
@click.option(
    "--every", type=click.IntRange(min=1), help="Write it after every so many rows, and at the end."
)
@click.option(
    "--forgetting",
    type=click.FloatRange(0.0, 1.0, min_open=True),
    default=1.0,
    show_default=True,
    help="Weight of a row that is t rows old: this to the power of t.",
)
@click.option("--no-center", is_flag=True, help="Do not subtract the mean.")
@options.force
@print_result
@dialect_options
def stream(
    console: Console,
    file: IO[bytes],
    k: int,
    out: Path | None,
    every: int | None,
    forgetting: float,
    no_center: bool,
    force: bool,
    dialect: "Dialect",
) -> CommandResult:
    """Read rows from FILE, or from standard input, and keep only a summary.

    FILE is csv as for eigenfed fit, plain or .gz: UTF-8, commas, a first line of names, and an
    empty cell, NA, N/A, NaN or null where an entry is missing. A stream may also begin with its
    first row, and have blanks instead of commas. Names are not kept: summaries match features by
    position.

    The summary has the mean, the leading directions and a bound on the variance it dropped.
    Summaries of several streams can be merged: see eigenfed merge.
    """
    if out is None and (every is not None or force):
        raise click.UsageError("--every and --force require -o. Name the file to write.")
    if out is not None:
        options.check_new(out, force=force)
    from eigenfed.data.readers.csv_stream import open_csv_stream
    from eigenfed.errors import DataError
    from eigenfed.estimators.streaming import StreamingPCA

    pca = StreamingPCA(k, forgetting=forgetting, center=not no_center)
    name = _get_name(file)
    written = 0
    with console.progress() as show:
        plain = _decompress(file) if name.lower().endswith(".gz") else file
        rows_in = open_csv_stream(plain, name, dialect)
        if rows_in.note is not None:
            console.note(rows_in.note)
        for rows in rows_in.read_batches(every):
            pca.partial_fit(rows)
            if show is not None:
                show(f"{pca.n_samples_seen_:,} rows")
            if every is not None and pca.n_samples_seen_ >= written + every:
                written = pca.n_samples_seen_
                _write(out, pca)
    if not hasattr(pca, "n_features_in_"):
        raise DataError(f"{name} has no rows. Send at least one.")
    sent = _write(out, pca)
    missing = int(pca.n_missing_.sum())
    if missing:
        console.note(f"{missing} missing entries count as the mean of the rows before them.")
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


def _get_name(file: IO[bytes]) -> str:
    name = str(getattr(file, "name", "<stdin>"))
    return "Standard input" if name == "<stdin>" else name


def _decompress(file: IO[bytes]) -> IO[bytes]:
    import gzip

    return cast(IO[bytes], gzip.GzipFile(fileobj=file))


def _write(out: Path | None, pca: "StreamingPCA") -> int:
    from eigenfed.data.safe_files import write_at_once

    data = pca.summary_.to_bytes()
    if out is not None:
        write_at_once(out, data)
    return len(data)
