"""``eigenfed coordinate``: run a study with sites on other machines."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eigenfed.cli import options
from eigenfed.cli.option_types import Real
from eigenfed.cli.options import example
from eigenfed.cli.output import CommandResult, Console, print_result
from eigenfed.cli.result_writer import format_run, write_run
from eigenfed.cli.site_run import note_warnings

if TYPE_CHECKING:
    from eigenfed.cli.watching import WatchedRun
    from eigenfed.errors import SiteLost
    from eigenfed.study.config import StudyFile
    from eigenfed.study.network.coordinator_run import CoordinatedRun, Coordinator
    from eigenfed.study.network.engines import Carrier


_DELIVERY_S = 20.0
"""Time for sites to take the result, if it is carried by files."""


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
    from eigenfed.errors import SiteLost
    from eigenfed.study.config import read_study
    from eigenfed.study.network.coordinator_run import Coordinator
    from eigenfed.study.network.engines import open_carrier
    from eigenfed.study.network.key_files import read_identity
    from eigenfed.study.network.network_folder import COORDINATOR_KEY, coordinator_folder
    from eigenfed.study.network.roster_file import ROSTER, read_roster
    from eigenfed.study.network.site_service import lock_folder
    from eigenfed.study.network.summary_collection import SummaryCollection
    from eigenfed.study.results.result_folder import check_free

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
        note_warnings(console),
        lock_folder(folder),
        watching as watched,
        open_carrier(asked, folder, stop, wait=not once) as carrier,
    ):
        connect = carrier.connect if watched is None else watched.connect(carrier)
        if asked.merges_streams:
            collecting = Collecting(
                console,
                SummaryCollection(asked, roster, identity, folder, connect),
                carrier,
                asked,
                out=out,
                summary=summary,
                stop=stop,
                patience_s=patience_s,
                callback=None if watched is None else watched.follow(None),
            )
            result = collecting.take_waiting() if once else collecting.run(follow=follow)
        else:
            coordinator = Coordinator(asked, roster, identity, folder, connect)
            if new:
                coordinator.abandon_begun()
            try:
                run = _run(
                    console,
                    coordinator,
                    carrier,
                    asked,
                    stop,
                    watched,
                    patience_s=patience_s,
                    restarts=not once,
                )
            except SiteLost as lost:
                if not once:
                    raise
                return _describe_waiting(lost)
            facts = _write(run, asked, out, force=force)
            # Sites that are away get the result when they are back: with files nobody waits.
            delivery = threading.Timer(0.0 if once else _DELIVERY_S, stop.set)
            delivery.daemon = True
            delivery.start()
            _deliver(console, coordinator, run, carrier, out)
            result = format_run(facts, out, resumed=run.resumed)
        if watched is not None:
            watched.finish(out)
    return result


@contextmanager
def _stopping(stop: threading.Event) -> Iterator[None]:
    """Let threads that wait for sites end with the command."""
    try:
        yield
    except BaseException:
        stop.set()
        raise


def _list_present(study: "StudyFile", present: frozenset[str]) -> str:
    missing = sorted(set(study.sites) - present)
    there = f"{len(present)} of {len(study.sites)} sites are here"
    return f"{there}; waiting for {', '.join(missing)}." if missing else f"{there}."


def _describe_waiting(lost: "SiteLost") -> CommandResult:
    names = ", ".join(lost.sites)
    return CommandResult(
        {"waiting": list(lost.sites), "round": lost.round_},
        f"Round {lost.round_} waits for: {names}. Run this again when their replies have come.",
    )


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


def _run(
    console: Console,
    coordinator: "Coordinator",
    carrier: "Carrier",
    study: "StudyFile",
    stop: threading.Event,
    watched: "WatchedRun | None",
    *,
    patience_s: float,
    restarts: bool,
) -> "CoordinatedRun":
    """Wait for sites, and run the study with those that are there."""
    from eigenfed.study.network.engines import wait_for_sites

    present = wait_for_sites(
        carrier,
        study,
        stop,
        patience_s=patience_s,
        note=lambda found: console.note(_list_present(study, found)),
    )
    with _stopping(stop), console.rounds(study.tol) as callback:
        followed = watched.follow(callback) if watched else callback
        return coordinator.run(present, followed, restarts=restarts)


def _write(run: "CoordinatedRun", study: "StudyFile", out: Path, *, force: bool) -> dict[str, Any]:
    """Write the result of a run, with the variants of its components."""
    variants, selected = study.read_variants(), run.estimator.selected_features_
    if variants is not None and selected is not None:
        variants = variants.take(selected)
    return write_run(
        out, run.estimator, sites=run.sites, study=study.name, variants=variants, force=force
    )


def _deliver(
    console: Console,
    coordinator: "Coordinator",
    run: "CoordinatedRun",
    carrier: "Carrier",
    out: Path,
) -> None:
    """Send the result to the sites, and note those that have not taken it."""
    from eigenfed.study.network.engines import FileCarrier
    from eigenfed.study.network.results_sent import read_sent_files

    missed = coordinator.finish(run, read_sent_files(out))
    for site, reason in missed.items():
        console.note(f"Site {site} has not taken the result: {reason}")
    if isinstance(carrier, FileCarrier):
        carrier.clear(run.run, missed)
