"""``eigenfed coordinate``: run a study with sites on other machines."""

import threading
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eigenfed.cli import options
from eigenfed.cli.coordination import Coordination
from eigenfed.cli.option_types import Real
from eigenfed.cli.options import example
from eigenfed.cli.output import CommandResult, Console, note_log_warnings, print_result
from eigenfed.cli.study_run import run_study

if TYPE_CHECKING:
    from eigenfed.study.config import StudyFile


@click.command(
    epilog=example(
        "Run a study, or go on with a run of it that was interrupted:",
        "  eigenfed coordinate study.toml -o result",
        "With a live page about the run:",
        "  eigenfed coordinate study.toml -o result --watch",
        'With engine = "files", send what is due and take what has come:',
        "  eigenfed coordinate study.toml -o result --once",
        "Merge summaries of streams, and write a new result whenever a site has sent one:",
        "  eigenfed coordinate study.toml -o result --follow --force",
    ),
    short_help="Run a study with sites on other machines.",
)
@click.argument("study", type=options.FILE)
@click.option(
    "-o", "--out", type=options.NEW, required=True, help="Folder for the result and its report."
)
@click.option(
    "--patience",
    "patience_s",
    type=Real(min=0.0),
    default=120.0,
    show_default=True,
    help="Seconds to wait for sites beyond the quorum before a run starts.",
)
@click.option(
    "--once",
    is_flag=True,
    help='With engine = "files": do not wait for replies; exit and go on when called again.',
)
@click.option("--new", is_flag=True, help="Begin a new run instead of one that was interrupted.")
@click.option(
    "--follow",
    is_flag=True,
    help="With summaries of streams: stay up, and replace the result whenever a site has sent one.",
)
@click.option(
    "--summary",
    type=options.NEW,
    help="With summaries of streams: write the merged summary, which may be the data of a site.",
)
@options.watch
@options.force
@print_result
def coordinate(
    console: Console,
    study: Path,
    out: Path,
    patience_s: float,
    once: bool,
    new: bool,
    follow: bool,
    summary: Path | None,
    watch_port: int | None,
    force: bool,
) -> CommandResult:
    """Run STUDY with its sites, on the engine that it names, and write the result.

    The sites must have joined the network of the study (eigenfed network) and approved the study
    (eigenfed site approve). A run that was interrupted goes on where it was: nothing is paid twice.

    If STUDY merges summaries of streams, sites send them when they have them, and the result is of
    the newest of each site. What has come is kept until the next call.
    """
    from eigenfed.cli.collect_run import Collecting
    from eigenfed.cli.watching import watch_run
    from eigenfed.study.config import read_study
    from eigenfed.study.network.coordinator_run import Coordinator
    from eigenfed.study.network.engines import open_carrier
    from eigenfed.study.network.key_files import read_identity
    from eigenfed.study.network.network_folder import (
        COORDINATOR_KEY,
        coordinator_folder,
        lock_folder,
    )
    from eigenfed.study.network.roster_file import ROSTER, read_roster
    from eigenfed.study.network.summary_collection import SummaryCollection
    from eigenfed.study.results.result_folder import check_free

    patience = click.get_current_context().get_parameter_source("patience_s")
    if patience is not click.core.ParameterSource.DEFAULT and (once or follow):
        other = "--once does not wait" if once else "--follow stays up"
        raise click.UsageError(
            f"--patience limits how long sites are waited for, and {other}. Drop one of them."
        )
    asked = read_study(study)
    folder = coordinator_folder(asked)
    check_free(out, force=force)
    if once and asked.engine != "files":
        raise click.UsageError('--once requires engine = "files" in the study. Drop it.')
    if asked.engine == "in_process":
        raise click.UsageError(
            f'{study} has engine = "in_process". Set engine = "nvflare" or engine = "files" for '
            "sites on other machines, or run it here with eigenfed fit --study."
        )
    _check_stream_options(asked, follow=follow, summary=summary, once=once, new=new, force=force)
    roster, identity = read_roster(folder / ROSTER), read_identity(folder / COORDINATOR_KEY)
    stop = threading.Event()
    watching = nullcontext() if watch_port is None else watch_run(asked, folder, watch_port)
    with (
        note_log_warnings(console),
        lock_folder(folder),
        watching as watched,
        open_carrier(asked, folder, stop, wait=not once) as carrier,
    ):
        connect = carrier.connect if watched is None else watched.connect(carrier)
        session = Coordination(console, asked, carrier, out, stop, patience_s, watched)
        if asked.merges_streams:
            collection = SummaryCollection(asked, roster, identity, folder, connect)
            collecting = Collecting(session, collection, summary)
            result = collecting.take_waiting() if once else collecting.run(follow=follow)
        else:
            coordinator = Coordinator(asked, roster, identity, folder, connect)
            if new:
                coordinator.abandon_begun()
            result = run_study(session, coordinator, once=once, force=force)
        if watched is not None and "waiting" in result.data:
            watched.end("stopped", result.text)
        elif watched is not None:
            watched.finish(out)
    return result


def _check_stream_options(
    study: "StudyFile", *, follow: bool, summary: Path | None, once: bool, new: bool, force: bool
) -> None:
    """Refuse options about streams for other studies, and the other way round."""
    if not study.merges_streams and (follow or summary is not None):
        option = "--follow" if follow else "--summary"
        raise click.UsageError(
            f"{option} requires a study that merges summaries of streams: one with max_summaries "
            "in its method. Drop it."
        )
    if study.merges_streams and new:
        raise click.UsageError(
            "--new is about runs that were interrupted, and summaries of streams have none. Drop "
            "it."
        )
    if follow and once:
        raise click.UsageError("--follow stays up, and --once does not. Drop one of them.")
    if summary is not None:
        options.check_new(summary, force=force)
