"""A site that answers: what ``eigenfed site run`` does."""

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eigenfed.cli.output import CommandResult, Console, escape_controls, note_log_warnings
from eigenfed.cli.stop_signals import stop_at_signals
from eigenfed.report.wording import things

if TYPE_CHECKING:
    from eigenfed.study.config import SiteFile
    from eigenfed.study.network.roster_file import NetworkRoster
    from eigenfed.study.network.site_service import SiteService
    from eigenfed.transport.signed import SignedSite

_HOUR_S = 3600.0


def serve_until_stopped(console: Console, path: Path, watch_port: int | None) -> CommandResult:
    """Answer requests until the process is stopped."""
    from eigenfed.cli.watching import watch_site
    from eigenfed.study.network.engines import serve_site
    from eigenfed.study.network.network_folder import lock_folder

    site = _read(path)
    stop = threading.Event()
    logging_to = nullcontext() if console.quiet else _log_to_standard_error()
    watching = nullcontext() if watch_port is None else watch_site(site, watch_port)
    with logging_to, stop_at_signals(stop), lock_folder(site.network), watching as watched:
        roster, service, signed = _open(console, site)
        for study, reason in service.open_all().items():
            console.note(f"The study {study} cannot be answered: {reason}")
        threading.Thread(target=_end_idle_runs, args=(service, stop), daemon=True).start()
        names = ", ".join(served.study.name for served in service.served) or "none"
        console.note(f"Site {site.name} of the network {roster.study} is up; it answers: {names}.")
        answering = signed if watched is None else watched.connect(service, roster, signed)
        serve_site(site, roster, answering, stop, largest=service.bound_request)
    return CommandResult({"site": site.name, "stopped": True}, f"Site {site.name} has stopped.")


def _end_idle_runs(service: "SiteService", stop: threading.Event) -> None:
    """End runs that nobody goes on with, now and every hour."""
    while True:
        service.end_idle()
        if stop.wait(_HOUR_S):
            return


def answer_waiting(console: Console, path: Path) -> CommandResult:
    """Answer the requests that are in the drop folder now."""
    from eigenfed.study.network.engines import answer_once
    from eigenfed.study.network.network_folder import lock_folder

    site = _read(path)
    with note_log_warnings(console), lock_folder(site.network):
        roster, service, signed = _open(console, site)
        service.end_idle()
        count = answer_once(site, roster, signed, largest=service.bound_request)
    return CommandResult(
        {"site": site.name, "answered": count},
        f"Site {site.name} answered {things(count, 'request')}.",
    )


def _read(path: Path) -> "SiteFile":
    from eigenfed.study.config import read_site

    return read_site(path)


def _open(console: Console, site: "SiteFile") -> "tuple[NetworkRoster, SiteService, SignedSite]":
    from eigenfed.study.network.key_files import read_identity
    from eigenfed.study.network.network_folder import SITE_KEY
    from eigenfed.study.network.roster_file import ROSTER, read_roster
    from eigenfed.study.network.site_service import SiteService
    from eigenfed.transport.signed import SignedSite

    roster, identity = read_roster(site.network / ROSTER), read_identity(site.network / SITE_KEY)
    service = SiteService(site, roster, identity, lambda folder: _write_page(console, folder))
    signed = SignedSite(service, name=site.name, identity=identity, coordinator=roster.coordinator)
    return roster, service, signed


def _write_page(console: Console, folder: Path) -> None:
    """Write the pages of a result that has arrived; the result is there without them too."""
    from eigenfed.report.html import write_pages

    try:
        page = write_pages(folder).shared
    except Exception:  # the site goes on, whatever facts a coordinator has sent
        logging.getLogger(__name__).exception("the pages of %s were not written", folder.name)
        return
    console.note(f"A result has arrived: {page}")


class _LogFormatter(logging.Formatter):
    """Writes each message on one line: it may hold a name that a coordinator has chosen."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line, without what comes from an exception."""
        return escape_controls(super().formatMessage(record), kept="")

    def formatException(self, ei: Any) -> str:
        """Return the lines of a traceback."""
        return escape_controls(super().formatException(ei))


@contextmanager
def _log_to_standard_error() -> Iterator[None]:
    """Log what happens at the site, to its own terminal or log file."""
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_LogFormatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    log: Any = logging.getLogger("eigenfed")
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
