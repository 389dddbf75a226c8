"""``eigenfed stream``: rows, each read once, into a summary of a few kilobytes.

A device runs this with little memory: neither scikit-learn nor scipy is imported here, and pyarrow
only where many rows arrive at once.
"""

import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, Any, Self, cast

import click

from eigenfed.cli import options
from eigenfed.cli.input_options import dialect_options
from eigenfed.cli.option_types import Real
from eigenfed.cli.options import example
from eigenfed.cli.output import DONE, CommandResult, Console, print_result
from eigenfed.cli.tables import summary_text
from eigenfed.data.file_kinds import KINDS, TEXT_KINDS
from eigenfed.errors import FAILED
from eigenfed.report.wording import size, things

if TYPE_CHECKING:
    from eigenfed.arrays import Array
    from eigenfed.data.dialect import Dialect
    from eigenfed.linalg.summary import Summary

_LARGEST = 1e150
_OTHER_KINDS = tuple(kind for kind in KINDS if kind not in (*TEXT_KINDS, ".svm"))


@click.command(
    epilog=example(
        "A sensor's readings, with a summary on disk that is at most 1000 rows behind:",
        "  tail -n +1 -f readings.csv | eigenfed stream -k 5 -o harbour.summary --every 1000",
        "Go on with a summary where an earlier run ended:",
        "  eigenfed stream today.csv -k 5 --resume harbour.summary -o harbour.summary",
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
    "--resume",
    type=options.FILE,
    metavar="SUMMARY",
    help="Begin with the rows of this summary. It may be the file of -o.",
)
@click.option(
    "--forgetting",
    type=Real(0.0, 1.0, min_open=True),
    default=1.0,
    show_default=True,
    help="Weight of a row that is t rows old: this to the power of t.",
)
@click.option("--no-center", is_flag=True, help="Do not subtract the mean.")
@click.option(
    "--low-memory",
    is_flag=True,
    help="Read a few rows at a time: about 42 MB of memory in all, in up to three times the time.",
)
@options.loadings
@options.force
@print_result
@dialect_options
def stream(
    console: Console,
    file: IO[bytes],
    k: int,
    out: Path | None,
    every: int | None,
    resume: Path | None,
    forgetting: float,
    no_center: bool,
    low_memory: bool,
    loadings: Path | None,
    force: bool,
    dialect: "Dialect",
) -> CommandResult:
    """Read rows from FILE, or from standard input, and keep only a summary.

    FILE is csv as for eigenfed fit, plain or .gz. A stream may also begin with its first row
    instead of names, and have blanks between its numbers.

    The summary has the mean, the leading directions, a bound on the variance it dropped, and the
    names of the features if the first line has them. Summaries of several streams can be merged:
    see eigenfed merge. At Ctrl-C, SIGTERM or the end of its terminal, the command writes what it
    has read.
    """
    if out is None and (every is not None or (force and loadings is None)):
        raise click.UsageError("--every and --force require -o. Name the file to write.")
    if out is not None:
        options.check_new(out, force=force or out == resume)
    if loadings is not None:
        options.check_new(loadings, force=force)
    from eigenfed.data.readers.csv_stream import open_csv_stream
    from eigenfed.errors import DataError

    name = _get_name(file)
    if name.lower().endswith(_OTHER_KINDS):
        raise click.UsageError(
            f"{name} is not a text file, and a stream is csv, plain or .gz. Convert it, or pass it "
            "to eigenfed fit."
        )
    start = None if resume is None else options.read_summary(resume)
    state: _State | None = None
    with _Interrupt() as interrupt, console.progress() as show:
        plain = _decompress(file) if name.lower().endswith(".gz") else file
        rows_in = interrupt.wait(
            lambda: open_csv_stream(plain, name, dialect, low_memory=low_memory)
        )
        if rows_in is not None and rows_in.d:
            for note in rows_in.notes:
                console.note(note)
            state = _State(k, rows_in.d, rows_in.names, forgetting, not no_center, start)
            if start is not None and start.names is not None and rows_in.names is None:
                console.note(
                    f"{name} has no names of features, and {resume} has: they are matched by "
                    "position, and the new summary has none."
                )
            for rows in interrupt.take(rows_in.read_batches(every)):
                state.push(rows)
                if show is not None:
                    show(f"{state.n:,} rows")
                if every is not None and state.new >= state.written + every:
                    state.write(out)
    if state is None or not state.new:
        if interrupt.is_stopped:
            raise click.Abort
        raise DataError(f"{name} has no rows. Send at least one.")
    sent = state.write(out)
    if interrupt.is_stopped:
        kept = "and none was written: pass -o" if out is None else "and its summary was written"
        console.note(f"Interrupted: {state.new} rows were read, {kept}.")
    missing = int(state.stream.n_missing.sum())
    if missing:
        count = "1 missing entry counts" if missing == 1 else f"{missing} missing entries count"
        console.note(f"{count} as the mean of the rows before.")
    data = state.describe() | {"file": None if out is None else str(out), "bytes": sent}
    lines = [summary_text(data)]
    if out is not None:
        lines.append(f"summary      {out}, {size(sent)}")
    lines += options.write_loadings(loadings, state.summarize(), state.stream.k)
    return CommandResult(data, "\n".join(lines), FAILED if interrupt.is_stopped else DONE)


class _State:
    """The stream of a command, and how much of it is on disk."""

    def __init__(
        self,
        k: int,
        d: int,
        names: tuple[str, ...] | None,
        forgetting: float,
        centered: bool,
        start: "Summary | None",
    ) -> None:
        from dataclasses import replace

        from eigenfed.errors import Argument, InputError, Name
        from eigenfed.linalg.stream import Stream, StreamSettings, is_scatter_small
        from eigenfed.linalg.summary import Summary

        if k > d:
            raise InputError(
                Argument("n_components", k),
                f" must be at most {d}, the number of features (n_features={d})",
                remedy=("Lower ", Name("n_components"), "."),
            )
        settings = StreamSettings(k=k, centered=centered, forgetting=forgetting)
        self.stream: Stream = Stream(d, replace(settings, exact=is_scatter_small(d, settings)))
        self.names = names
        self.centered = centered
        self.new = self.written = 0
        if start is None:
            return
        if start.d != d:
            raise InputError(
                f"The summary to resume has {things(start.d, 'feature')} and must have {d}, as the "
                "rows have. Pass rows of the same features, or leave --resume out."
            )
        # Checks that both fit, aligns features by name, and keeps names that both have.
        empty = Summary.empty(d, start.rank, centered=centered).with_names(names)
        try:
            self.stream.merge(empty.merge(start))
        except InputError as error:
            raise error.with_prefix("--resume: ") from None
        if start.names is None:
            self.names = None

    @property
    def n(self) -> int:
        """Rows seen, with those of the summary that the stream began with."""
        return self.stream.n_seen

    def push(self, rows: "Array") -> None:
        """Add rows, NaN where an entry is missing."""
        import numpy as np

        from eigenfed.errors import Argument, InputError, Pass
        from eigenfed.linalg.checks import make_range_error, sum_squares

        with np.errstate(over="ignore", invalid="ignore"):
            square = sum_squares(rows)
        is_plain = np.isfinite(square)
        missing = not is_plain and bool(np.isnan(rows).any())
        if missing and not self.centered:
            raise InputError(
                "The rows have missing entries, which count as the mean, and ",
                *(Argument("center", False), " keeps none"),
                remedy=("Impute them first or ", Pass("center", True), "."),
            )
        if not is_plain and bool((np.abs(rows) > _LARGEST).any()):
            raise make_range_error()
        self.stream.push(rows, missing=missing)
        self.new += len(rows)

    def summarize(self) -> "Summary":
        """Return the summary of all rows so far, with names."""
        return self.stream.summary().with_names(self.names)

    def write(self, out: Path | None) -> int:
        """Write the summary, and return its size in bytes."""
        from eigenfed.data.safe_files import write_at_once

        data = self.summarize().to_bytes()
        if out is not None:
            write_at_once(out, data)
        self.written = self.new
        return len(data)

    def describe(self) -> dict[str, Any]:
        """Return the facts of the result."""
        import numpy as np

        summary, k = self.summarize(), self.stream.k
        shown = {"eigenvalues": summary.variance[:k], "ratios": summary.explained[:k]}
        return {
            "n": self.n,
            "d": self.stream.d,
            "k": k,
            "missing": int(self.stream.n_missing.sum()),
            **{name: np.pad(values, (0, k - len(values))) for name, values in shown.items()},
            "sine_bound": self.stream.sine_bound(),
            "features": self.names,
        }


class _Interrupt:
    """Ends a stream at Ctrl-C, SIGTERM and SIGHUP: at once while it waits, or else after its rows.

    The state is never left with half a batch.
    """

    def __init__(self) -> None:
        self.is_stopped = False
        self._is_waiting = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # nohup has the end of a terminal ignored, and that stays.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._stop)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.is_stopped = True
        if self._is_waiting:
            raise KeyboardInterrupt

    def wait(self, task: Any) -> Any:
        """Return what a task returns; None where it was interrupted."""
        self._is_waiting = True
        try:
            return None if self.is_stopped else task()
        except KeyboardInterrupt:
            return None
        finally:
            self._is_waiting = False

    def take(self, batches: "Iterator[Array]") -> "Iterator[Array]":
        """Yield batches until there are no more, or a signal has come."""
        while (rows := self.wait(lambda: next(batches, None))) is not None:
            yield rows


def _get_name(file: IO[bytes]) -> str:
    name = str(getattr(file, "name", "<stdin>"))
    return "Standard input" if name == "<stdin>" else name


def _decompress(file: IO[bytes]) -> IO[bytes]:
    import gzip

    return cast(IO[bytes], gzip.GzipFile(fileobj=file))
