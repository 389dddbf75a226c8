"""What live pages show, collected while a command runs: a run, and a site.

A run is watched between the coordinator and its carrier, a site between the carrier and its gate:
there, messages are bundles whose manifest says what they are. Their content is not read.
"""

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import click

from eigenfed.cli.progress import Rounds
from eigenfed.cli.watch_server import serve_page
from eigenfed.errors import DataError, EigenfedError
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.ledger.ledger import Totals
from eigenfed.report.live_page import LiveView
from eigenfed.report.live_run import LiveSite, Phase, RunSnapshot, SiteState, view_run
from eigenfed.report.live_site import LiveReply, SitePhase, SiteSnapshot, view_site
from eigenfed.report.wording import join_names
from eigenfed.study.config import SiteFile, StudyFile
from eigenfed.study.network.coordinator_run import RUNS
from eigenfed.study.network.engines import Carrier
from eigenfed.study.network.roster_file import NetworkRoster
from eigenfed.study.network.site_service import ServedStudy, SiteService
from eigenfed.transport.bundles import Manifest, read_manifest
from eigenfed.transport.engine import Callback
from eigenfed.transport.local import Answering
from eigenfed.transport.remote import RoundJournal
from eigenfed.transport.rounds import RoundRecord

_LINES, _LONGEST_LINE = 300, 400
_CHANGE_OF_LEVEL = threading.Lock()


class LogLines(logging.Handler):
    """Keeps the last lines of the log, without tracebacks: their text may quote data.

    Parameters
    ----------
    level_before : int
        The level that the logger had before any of its lines were kept.
    """

    def __init__(self, level_before: int = logging.NOTSET) -> None:
        super().__init__(logging.INFO)
        self.level_before = level_before
        self._lines: deque[str] = deque(maxlen=_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        at = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        text = " ".join(record.getMessage().split())
        self._lines.append(f"{at} {text[:_LONGEST_LINE]}")

    @property
    def lines(self) -> tuple[str, ...]:
        """The last lines, the earliest first."""
        self.acquire()
        try:
            return tuple(self._lines)
        finally:
            self.release()


@contextmanager
def keep_log() -> Iterator[LogLines]:
    """Keep the log lines of eigenfed while the context lasts.

    Contexts may overlap in any order: the level of the log is lowered by the first
    and restored by the last.
    """
    log = logging.getLogger("eigenfed")
    with _CHANGE_OF_LEVEL:
        others = _find_kept(log)
        kept = LogLines(others[0].level_before if others else log.level)
        log.addHandler(kept)
        if not log.isEnabledFor(logging.INFO):
            log.setLevel(logging.INFO)
    try:
        yield kept
    finally:
        with _CHANGE_OF_LEVEL:
            log.removeHandler(kept)
            if not _find_kept(log):
                log.setLevel(kept.level_before)


def _find_kept(log: logging.Logger) -> list[LogLines]:
    return [handler for handler in log.handlers if isinstance(handler, LogLines)]


class WatchedRun:
    """A run as its coordinator sees it; used by several threads.

    Parameters
    ----------
    study : StudyFile
    runs : Path
        The folder with the journals of runs.
    log : LogLines
    """

    def __init__(self, study: StudyFile, runs: Path, log: LogLines) -> None:
        self._study, self._runs, self._log = study, runs, log
        self._lock = threading.Lock()
        self._phase: Phase = "starting"
        self._words = "The engine is being started."
        self._carrier: Carrier | None = None
        self._present: frozenset[str] = frozenset()
        self._heard: set[str] = set()
        self._asked: dict[str, Manifest] = {}
        self._lost: set[str] = set()
        self._last: Manifest | None = None
        self._run = ""
        self._rounds: dict[int, RoundRecord] = {}
        self._progress = Rounds(study.tol)

    def connect(self, carrier: Carrier) -> Callable[[str], Answering]:
        """Return the carrier's connections, watched."""
        with self._lock:
            self._carrier, self._phase = carrier, "waiting"
        return lambda site: _WatchedConnection(self, site, carrier.connect(site))

    def follow(self, callback: Callback | None) -> Callback:
        """Return a callback that takes account of finished rounds, and then calls another."""

        def add(record: RoundRecord) -> None:
            with self._lock:
                self._rounds[record.round] = record
                self._progress.add(record)
                self._lost = (self._lost - record.received.keys()) | set(record.lost)
            if callback is not None:
                callback(record)

        return add

    def begin_request(self, site: str, manifest: Manifest) -> None:
        """Note that a site is being asked."""
        with self._lock:
            self._phase, self._last = "running", manifest
            self._asked[site] = manifest
            if manifest.run != self._run and not self._study.merges_streams:
                self._run = manifest.run
                journal = RoundJournal(self._runs / f"{manifest.run}.jsonl")
                self._rounds = {record.round: record for record in journal.rounds}
                self._progress = Rounds(self._study.tol)

    def end_request(self, site: str, *, answered: bool) -> None:
        """Note that a site has answered, or cannot be reached."""
        with self._lock:
            self._asked.pop(site, None)
            self._heard |= {site} if answered else set()

    def finish(self, result: Path) -> None:
        """Note that the result has been written."""
        self.end("done", f"The result is in {result}.")

    def end(self, phase: Phase, words: str) -> None:
        """Note that nothing more will happen."""
        self._look_for_sites()
        with self._lock:
            if self._phase != "done":
                self._phase, self._words = phase, words
            self._carrier = None

    def _look_for_sites(self) -> None:
        carrier = self._carrier
        if carrier is not None:
            # Somebody carries the files: only a reply shows that a site is there.
            by_files = self._study.engine == "files"
            self._present = frozenset(self._heard) if by_files else carrier.present()

    def view(self) -> LiveView:
        """Return the live page as it is now."""
        self._look_for_sites()
        with self._lock:
            rounds = tuple(record for _, record in sorted(self._rounds.items()))
            snapshot = RunSnapshot(
                study=self._study.name,
                engine=self._study.engine,
                run=self._run,
                phase=self._phase,
                words=self._describe(),
                quorum=self._study.quorum,
                tol=self._study.tol,
                sites=tuple(self._describe_site(site, rounds) for site in self._study.sites),
                rounds=rounds,
                left_s=self._progress.left_s,
                log=self._log.lines,
            )
        return view_run(snapshot)

    def _describe(self) -> str:
        if self._phase == "waiting":
            return "The run begins when its sites are here."
        if self._phase != "running" or self._last is None:
            return self._words
        what = {
            "open": "Opening the run",
            "close": "Sending the result",
        }.get(self._last.kind, f"Round {self._last.round + 1}, {self._last.operation}")
        waiting = sorted(self._asked)
        return f"{what}: waiting for {join_names(waiting)}." if waiting else f"{what}."

    def _describe_site(self, site: str, rounds: tuple[RoundRecord, ...]) -> LiveSite:
        state: SiteState = "asked" if site in self._asked else "in"
        if site in self._lost:
            state = "lost"
        elif site not in self._present:
            state = "missing"
        answered = [record for record in rounds if site in record.received]
        return LiveSite(
            site,
            state,
            len(answered),
            sum(record.received[site] for record in answered),
            sum(record.sent.get(site, 0) for record in answered),
            sum(site in record.lost for record in rounds),
        )


class _WatchedConnection:
    """A connection that notes when it is used."""

    def __init__(self, run: WatchedRun, site: str, connection: Answering) -> None:
        self._run, self._site, self._connection = run, site, connection

    def answer(self, data: bytes) -> bytes:
        """Carry a bundle to the site and back."""
        self._run.begin_request(self._site, read_manifest(data))
        answered = False
        try:
            reply = self._connection.answer(data)
            answered = True
        finally:
            self._run.end_request(self._site, answered=answered)
        return reply


class WatchedSite:
    """A site that answers, and what leaves it; used by several threads.

    Parameters
    ----------
    site : SiteFile
    log : LogLines
    """

    def __init__(self, site: SiteFile, log: LogLines) -> None:
        self._site, self._log = site, log
        self._lock, self._reading = threading.Lock(), threading.Lock()
        self._since = datetime.now().strftime("%Y-%m-%d %H:%M:%S")
        self._phase: SitePhase = "starting"
        self._words = "The rows are being read."
        self._network = self._engine = ""
        self._service: SiteService | None = None
        self._inner: Answering | None = None
        self._sent_bytes = 0
        self._refused: Counter[str] = Counter()
        self._account: tuple[Totals, bool] | None = None
        self._leakage: tuple[float, float] | None = None
        self._metered, self._meter_due = -1, 0.0

    def connect(self, service: SiteService, roster: NetworkRoster, inner: Answering) -> Answering:
        """Return `inner`, watched."""
        with self._lock:
            self._service, self._inner = service, inner
            self._network, self._engine = roster.study, roster.engine
            self._phase, self._words = "up", "Answering runs."
        return self

    def answer(self, data: bytes) -> bytes:
        """Answer a bundle, and note what leaves."""
        if self._inner is None:
            raise ConnectionError("The site is not up yet.")
        reply = self._inner.answer(data)
        try:
            manifest = read_manifest(reply)
        except DataError:  # an answer to a name so long that no manifest has room for it
            code = ""
        else:
            code = manifest.operation if manifest.kind == "refusal" else ""
            code = "" if code == "waiting" else code
        with self._lock:
            self._sent_bytes += len(reply)
            if code:
                self._refused[code] += 1
        return reply

    def end(self, words: str) -> None:
        """Note that the site has stopped."""
        with self._lock:
            self._phase, self._words = "stopped", words

    def view(self) -> LiveView:
        """Return the live page as it is now."""
        served = () if self._service is None else self._service.served
        replies = tuple(reply for study in served for reply in _list_replies(study))
        with self._reading:
            self._read_ledger(len(replies))
            totals, is_held = self._account or (None, False)
        with self._lock:
            snapshot = SiteSnapshot(
                site=self._site.name,
                network=self._network,
                engine=self._engine,
                phase=self._phase,
                words=self._words,
                since=self._since,
                approved=tuple(study.study.name for study in served),
                replies=replies,
                sent_bytes=self._sent_bytes,
                refused=dict(self._refused),
                totals=totals,
                is_held=is_held,
                leakage=self._leakage,
                log=self._log.lines,
            )
        return view_site(snapshot)

    def _read_ledger(self, replies: int) -> None:
        """Read the account of the rows; the meter only if it may have changed, and rarely if large.

        A ledger that cannot be read stops the site; the page then keeps what it had.
        """
        if self._service is None or self._phase == "stopped":
            return
        ledger, dataset = self._service.ledger, self._site.dataset
        try:
            self._account = ledger.totals(dataset), ledger.held(dataset)
            began = time.monotonic()
            if replies == self._metered or began < self._meter_due:
                return
            kept = ledger.meter(dataset)
        except EigenfedError:
            return
        meter = None if kept is None else Meter.from_bytes(kept)
        if meter is not None:
            self._leakage = meter.rank_fraction, meter.variance_fraction
        self._metered = replies
        self._meter_due = began + 20.0 * (time.monotonic() - began)


def _list_replies(served: ServedStudy) -> list[LiveReply]:
    privacy = served.study.privacy
    central = privacy is not None and privacy.trust == "central"
    return [LiveReply(served.study.name, central, left) for left in tuple(served.site.egress)]


@contextmanager
def watch_run(study: StudyFile, folder: Path, port: int) -> Iterator[WatchedRun]:
    """Serve the live page of a run while the context lasts.

    Parameters
    ----------
    study : StudyFile
    folder : Path
        The coordinator's network folder.
    port : int
        0 chooses a free one.
    """
    with keep_log() as log:
        watched = WatchedRun(study, folder / RUNS, log)
        with serve_page(watched.view, port) as url:
            _print_address(url)
            try:
                yield watched
            except BaseException as error:
                watched.end("stopped", _describe_end(error))
                raise
            watched.end("stopped", "The command has ended.")


@contextmanager
def watch_site(site: SiteFile, port: int) -> Iterator[WatchedSite]:
    """Serve the live page of a site while the context lasts.

    Parameters
    ----------
    site : SiteFile
    port : int
        0 chooses a free one.
    """
    with keep_log() as log:
        watched = WatchedSite(site, log)
        with serve_page(watched.view, port) as url:
            _print_address(url)
            try:
                yield watched
            except BaseException as error:
                watched.end(_describe_end(error))
                raise
            watched.end("The site was stopped.")


def _print_address(url: str) -> None:
    # Printed also with --quiet: without its address nobody could see the page.
    click.echo(f"eigenfed: Live page, for this machine only: {url}", err=True)


def _describe_end(error: BaseException) -> str:
    """Return why a command ended; the text of an unexpected error may quote data."""
    if isinstance(error, EigenfedError):
        return str(error)
    return "It was interrupted." if isinstance(error, KeyboardInterrupt) else "It failed."
