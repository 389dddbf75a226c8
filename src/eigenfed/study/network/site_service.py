"""A site that stays up: it answers the runs of every study that it has approved.

Each approved study has a gate of its own, with the rows and features that the study names; all of
them share the site's ledger and policy. A message goes to the gate of its run. Which study a run
belongs to is known from its opening, which the ledger remembers across restarts.
"""

import hashlib
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from eigenfed.data.files import FileTable
from eigenfed.data.source import Source
from eigenfed.data.summarized_rows import assume_summary
from eigenfed.errors import DataError, EigenfedError, InputError, Refusal
from eigenfed.privacy.ledger.ledger import Ledger
from eigenfed.privacy.ledger.storage import Broken
from eigenfed.privacy.secagg.identity import Identity
from eigenfed.protocol.exact.stream_summary import ASK, read_ask
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.messages import Message, refusal, unpack
from eigenfed.protocol.study import Opening
from eigenfed.study.config import SiteFile, StudyFile
from eigenfed.study.network.approvals import find_approved, list_approved, list_digests
from eigenfed.study.network.message_limits import bound_request
from eigenfed.study.network.results_sent import write_sent_result
from eigenfed.study.network.roster_file import NetworkRoster
from eigenfed.study.network.stream_releases import StreamReleases
from eigenfed.study.scores import Rows
from eigenfed.transport.bundles import MOST_START_BYTES

_log = logging.getLogger(__name__)

RESULTS = "results"
_SHORT_BYTES = 2 << 20
"""Length of a message that is always read: the opening of a study that is not approved."""


@dataclass(frozen=True, eq=False)
class ServedStudy:
    """An approved study, ready to be answered.

    Attributes
    ----------
    study : StudyFile
    site : Site
        The gate.
    table : FileTable or None
        The rows, with the features of the study; None if the site has only a summary of them.
    """

    study: StudyFile
    site: Site
    table: FileTable | None


class SiteService:
    """Answers messages of the runs of approved studies.

    Parameters
    ----------
    site : SiteFile
    roster : NetworkRoster
        As the site has pinned it.
    identity : Identity
        The site's key.
    on_result : callable, optional
        Called with the folder of a result that has arrived.

    Raises
    ------
    InputError
        If the site has no ledger, or is not in the roster with this key.
    """

    def __init__(
        self,
        site: SiteFile,
        roster: NetworkRoster,
        identity: Identity,
        on_result: Callable[[Path], None] = lambda folder: None,
    ) -> None:
        if site.ledger is None:
            raise InputError(
                f"{site.path}: ledger is required between machines: it records what leaves, and "
                f'lets runs go on after a restart. Set ledger = "{site.name}.ledger".'
            )
        if roster.sites.get(site.name) != identity.public:
            raise InputError(
                f"The roster does not have {site.name!r} with the key of this site. Join the "
                "network again with eigenfed network join."
            )
        self._file = site
        self._roster = roster
        self._identity = identity
        self._on_result = on_result
        self._ledger = Ledger(site.ledger)
        self._releases = StreamReleases(site, self._ledger)
        self._served: dict[str, ServedStudy] = {}
        self._last: ServedStudy | None = None
        self._lock = threading.Lock()
        self._runs: dict[str, str] = {}
        self._limits: dict[str, int] = {}

    def open_all(self) -> dict[str, str]:
        """Read the rows of all approved studies now, so that no refusal later depends on them.

        Returns
        -------
        dict of str to str
            The studies that cannot be answered, by name, and why.
        """
        failed = {}
        for approval in list_approved(self._file):
            try:
                self._serve(approval.digest, approval.study)
            except (EigenfedError, OSError) as error:
                failed[approval.study.name] = str(error)
        return failed

    @property
    def served(self) -> tuple[ServedStudy, ...]:
        """The studies that are answered."""
        return tuple(self._served.values())

    @property
    def ledger(self) -> Ledger:
        """The site's ledger."""
        return self._ledger

    def bound_request(self) -> int:
        """Return how many bytes a bundle for this site can have, by the studies approved now."""
        limits = [self._bound(digest) for digest in list_digests(self._file)]
        return MOST_START_BYTES + max([_SHORT_BYTES, *limits])

    def _bound(self, digest: str) -> int:
        """Return how many bytes a message of a study can have; few if its copy cannot be read."""
        if digest not in self._limits:
            try:
                study = find_approved(self._file, digest)
            except (EigenfedError, OSError):
                study = None
            self._limits[digest] = _SHORT_BYTES if study is None else bound_request(study)
        return self._limits[digest]

    def answer(self, data: bytes) -> bytes:
        """Answer one message, whose signature was verified."""
        try:
            message = Message.from_bytes(data, "request", "open", "close")
        except DataError:
            return Message("refusal", "", -1, "malformed", {}).to_bytes()
        with self._lock:
            try:
                served = self._find(message, len(data))
                if message.kind == "close":
                    return self._close(message, served)
                if served is not self._last:
                    # Another study may have revealed more of the same rows meanwhile.
                    served.site.reload_meter()
                    self._last = served
                if message.label == ASK:
                    return self._send_summary(message, served)
                if served.study.merges_streams:
                    # Its runs are opened by the request for a summary, and have no other.
                    raise refusal("script")
            except Refusal as refused:
                return _write_refusal(message, refused.code)
            except Broken:
                _log.exception("the ledger is not the one last written")
                return _write_refusal(message, "stopped")
            reply = served.site.answer(data)
            if message.kind == "open" and _is_reply(reply):
                self._runs[message.run] = _read_digest(message)
                self._end_superseded(message.run, served)
            return reply

    def _end_superseded(self, run: str, served: ServedStudy) -> None:
        """End the runs of a study that another one replaces; their coordinator has given them up.

        The ledger still knows them, so that nothing of them is ever answered again.
        """
        for earlier in self._ledger.list_superseded(self._file.dataset, run):
            _log.info("run %s is ended: a newer run of the same study was opened", earlier)
            served.site.close_run(earlier)
            self._runs.pop(earlier, None)

    def end_idle(self) -> int:
        """End the runs of which nothing was heard for `SiteFile.run_days`; return their number."""
        with self._lock:
            idle = self._ledger.list_idle(self._file.dataset, self._file.run_days)
            for run in idle:
                _log.info("run %s is ended: nothing was heard of it for long", run)
                for served in self._served.values():
                    served.site.close_run(run)
                self._ledger.forget_run(self._file.dataset, run)
                self._runs.pop(run, None)
        return len(idle)

    def _send_summary(self, message: Message, served: ServedStudy) -> bytes:
        """Open a run with the summary that the site sends in it, and answer its one request."""
        try:
            ask = read_ask(message)
        except DataError:
            raise refusal("malformed") from None
        try:
            chosen = self._releases.choose(served.study, message.run, ask.known)
            served.site.take_rows(Source(self._releases.open(chosen, served.study)))
            opened = served.site.answer(ask.opening)
            if not _is_reply(opened):
                return opened
            self._runs[message.run] = _read_asked_digest(message)
            for run in self._releases.list_others(chosen):
                served.site.close_run(run)
            self._releases.record(chosen)
        except Broken:
            _log.exception("the ledger is not the one last written")
            raise refusal("stopped") from None
        except (DataError, OSError):
            _log.exception("a summary cannot be kept")
            raise refusal("unready") from None
        return served.site.answer(ask.request)

    def _find(self, message: Message, length: int) -> ServedStudy:
        """Return the study of a message's run, if it is approved and has messages that long.

        Only runs that the gate has opened are noted: their names are short, and their number is
        limited by the policy. A result is taken in no other.
        """
        if message.kind == "open":
            digest = _read_digest(message)
        elif message.label == ASK:
            digest = _read_asked_digest(message)
        elif message.run in self._runs:
            digest = self._runs[message.run]
        else:
            known = self._ledger.recall(self._file.dataset, message.run)
            if known is None:
                raise refusal("closed")
            digest = self._runs[message.run] = _read_digest(
                Message.from_bytes(known.opening, "open")
            )
        try:
            study = find_approved(self._file, digest)
        except (EigenfedError, OSError):
            # Studies whose copies are whole are answered all the same.
            _log.exception("the approved study %s cannot be read", digest)
            raise refusal("unready") from None
        if study is None:
            self._served.pop(digest, None)
            _log.warning("a request was refused: no study with the digest %s is approved", digest)
            raise refusal("unapproved")
        try:
            served = self._serve(digest, study)
        except (EigenfedError, OSError):
            # One code for every cause, which is logged at the site at the start, or here.
            _log.exception("the rows of study %s cannot be opened", study.name)
            raise refusal("unready") from None
        if length > self._bound(digest):
            raise refusal("length")
        return served

    def _serve(self, digest: str, study: StudyFile) -> ServedStudy:
        if digest not in self._served:
            self._served[digest] = self._open(digest, study)
        return self._served[digest]

    def _open(self, digest: str, study: StudyFile) -> ServedStudy:
        site = self._file
        if isinstance(study.features, str):
            raise InputError(f"{study.path}: list the features, or set manifest.")
        table, source = None, assume_summary(0, len(study.features))
        if not site.has_summary:
            table = Rows.of_site(site, study).table(list(study.features))
            source = table.source
        asked = study.study
        gate = Site(
            site.name,
            source,
            coordinator=self._roster.coordinator,
            approved=frozenset({digest}),
            policy=site.policy,
            ledger=self._ledger,
            dataset=site.dataset,
            features=asked.features,
            identity=self._identity if asked.masked else None,
            roster=self._roster.roster_of(asked.sites) if asked.masked else None,
            filtered=bool(site.where),
            wire=asked.wire,
            resumable=True,
        )
        return ServedStudy(study, gate, table)

    def _close(self, message: Message, served: ServedStudy) -> bytes:
        """Keep the result of a run, and forget the run."""
        # The coordinator names runs: its text must not become a path.
        mark = hashlib.sha256(message.run.encode()).hexdigest()[:8]
        if served.study.merges_streams:
            # Each summary that leaves is a run of its own, and brings a newer result.
            mark = served.study.study.digest[:8]
        name = f"{served.study.name}-{mark}"
        folder = self._file.path.parent / RESULTS / name
        if message.arrays:
            try:
                write_sent_result(message, folder, self._file.name, served.table)
            except Exception:  # what a coordinator sends must not end the site
                _log.exception("the result of run %s cannot be kept", message.run)
                raise refusal("malformed") from None
        served.site.close_run(message.run)
        self._runs.pop(message.run, None)
        if message.arrays:
            self._on_result(folder)
        return Message("reply", message.run, message.round_, "close", {}).to_bytes()


def _write_refusal(message: Message, code: str) -> bytes:
    return Message("refusal", message.run, message.round_, code, {}).to_bytes()


def _is_reply(data: bytes) -> bool:
    """Return whether a gate has answered with a reply, and not with a refusal."""
    return Message.from_bytes(data, "reply", "refusal").kind == "reply"


def _read_digest(message: Message) -> str:
    try:
        opening = unpack(Opening, message.arrays)
    except DataError:
        raise refusal("malformed") from None
    return hashlib.sha256(opening.study.tobytes()).hexdigest()


def _read_asked_digest(message: Message) -> str:
    try:
        return hashlib.sha256(read_ask(message).study).hexdigest()
    except DataError:
        raise refusal("malformed") from None


def forget_runs(site: SiteFile, digest: str) -> int:
    """Delete what a site's ledger remembers of the open runs of a study; return how many they were.

    Parameters
    ----------
    site : SiteFile
    digest : str
        Of the study.
    """
    if site.ledger is None or not site.ledger.exists():
        return 0
    count = 0
    with Ledger(site.ledger) as ledger:
        for run in ledger.recall_names(site.dataset):
            known = ledger.recall(site.dataset, run)
            if known is None:
                continue
            if _read_digest(Message.from_bytes(known.opening, "open")) == digest:
                ledger.forget_run(site.dataset, run)
                count += 1
    return count
