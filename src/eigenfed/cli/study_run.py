"""A study that ends with a result: what ``eigenfed coordinate`` does with it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from eigenfed.cli.coordination import DELIVERY_S, Coordination
from eigenfed.cli.output import CommandResult
from eigenfed.cli.result_writer import format_run, write_run
from eigenfed.report.wording import things

if TYPE_CHECKING:
    from eigenfed.errors import SiteLost
    from eigenfed.study.config import StudyFile
    from eigenfed.study.network.coordinator_run import CoordinatedRun, Coordinator


def run_study(
    session: Coordination, coordinator: "Coordinator", *, once: bool, force: bool
) -> CommandResult:
    """Run a study, or go on with a run of it, write its result and send it to the sites.

    Parameters
    ----------
    session : Coordination
    coordinator : Coordinator
    once : bool
        Whether the command ends where replies have to be waited for.
    force : bool
        Whether an earlier result may be replaced.
    """
    from eigenfed.errors import SiteLost, SiteRefused
    from eigenfed.study.network.engines import FileCarrier

    try:
        run = _run(session, coordinator, restarts=not once)
    except SiteLost as lost:
        if not once:
            raise
        return _describe_waiting(lost)
    except SiteRefused:
        if isinstance(session.carrier, FileCarrier):
            session.carrier.forget_refusals()
        raise
    facts = _write(session, run, force=force)
    # Sites that are away get the result when they are back: with files nobody waits.
    delivery = threading.Timer(0.0 if once else DELIVERY_S, session.stop.set)
    delivery.daemon = True
    delivery.start()
    _deliver(session, coordinator, run)
    return format_run(facts, session.out, resumed=run.resumed)


def _run(session: Coordination, coordinator: "Coordinator", *, restarts: bool) -> "CoordinatedRun":
    """Wait for sites, and run the study with those that are there."""
    from eigenfed.study.network.engines import wait_for_sites

    console, study = session.console, session.study
    present = wait_for_sites(
        session.carrier,
        study,
        session.stop,
        patience_s=session.patience_s,
        note=lambda found: console.note(_list_present(study, found)),
    )
    with _stopping(session.stop), console.rounds(study.tol) as callback:
        return coordinator.run(present, session.follow(callback), restarts=restarts)


@contextmanager
def _stopping(stop: threading.Event) -> Iterator[None]:
    """Let threads that wait for sites end with the command."""
    try:
        yield
    except BaseException:
        stop.set()
        raise


def _list_present(study: "StudyFile", present: frozenset[str]) -> str:
    if study.engine == "files":
        asked = things(len(study.sites), "site")
        return f"Requests go to {asked} by files: whether a site is there shows when it replies."
    missing = sorted(set(study.sites) - present)
    there = f"{len(present)} of {len(study.sites)} sites are here"
    return f"{there}; waiting for {', '.join(missing)}." if missing else f"{there}."


def _describe_waiting(lost: "SiteLost") -> CommandResult:
    names = ", ".join(lost.sites)
    return CommandResult(
        {"waiting": list(lost.sites), "round": lost.round_},
        f"Round {lost.round_} waits for: {names}. Run this again when their replies have come.",
    )


def _write(session: Coordination, run: "CoordinatedRun", *, force: bool) -> dict[str, Any]:
    """Write the result of a run, with the variants of its components."""
    study = session.study
    variants, selected = study.read_variants(), run.estimator.selected_features_
    if variants is not None and selected is not None:
        variants = variants.take(selected)
    return write_run(
        session.out,
        run.estimator,
        sites=run.sites,
        study=study.name,
        variants=variants,
        force=force,
    )


def _deliver(session: Coordination, coordinator: "Coordinator", run: "CoordinatedRun") -> None:
    """Send the result to the sites, and note those that have not taken it."""
    from eigenfed.study.network.engines import FileCarrier
    from eigenfed.study.network.results_sent import read_sent_files

    missed = coordinator.finish(run, read_sent_files(session.out))
    for site, reason in missed.items():
        session.console.note(f"Site {site} has not taken the result: {reason}")
    if isinstance(session.carrier, FileCarrier):
        session.carrier.clear(run.run, missed)
