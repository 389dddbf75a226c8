"""The coordinator of a study that merges streams: the newest summary of each site, and their merge.

Each site is asked on its own, and answers when it has a summary: nobody waits for another. What has
come is kept, so that the coordinator may be stopped and started at any time, and a site that is
away counts with what it has sent last.

::

    network/summaries/<study>/<site>.report      the newest summary of a site
    network/summaries/<study>/<site>.asked       the run in which the site is being asked
    network/summaries/<study>/rounds.jsonl       what was asked, and what left each site

A region is a coordinator of its own sites, whose merged summary is the data of a site upstream.
"""

import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from eigenfed.data.safe_files import write_at_once
from eigenfed.errors import DataError, InputError, ProtocolError
from eigenfed.estimators.network_fit import take_outcome
from eigenfed.estimators.pca_fit import PCAFit
from eigenfed.estimators.resumable_run import RunOutcome
from eigenfed.linalg.summary import Summary
from eigenfed.privacy.secagg.identity import Identity
from eigenfed.protocol.core import Call, read_reply
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.stream_summary import (
    ASK,
    StreamSummaryRequest,
    ask_message,
    decompose_stream,
    report_stream,
    start_region,
    summarise_stream,
)
from eigenfed.protocol.exact.tree import RegionReport
from eigenfed.protocol.gate.records import Egress
from eigenfed.protocol.messages import Message
from eigenfed.study.config import StudyFile
from eigenfed.study.network.coordinator_run import connect_members
from eigenfed.study.network.key_files import create_private_folder
from eigenfed.study.network.results_sent import close_message, send_close
from eigenfed.study.network.roster_file import NetworkRoster
from eigenfed.study.rehearsal import make_estimator
from eigenfed.transport.local import Answering
from eigenfed.transport.remote import RoundJournal
from eigenfed.transport.rounds import RoundRecord
from eigenfed.transport.run_account import Leakage

SUMMARIES = "summaries"


@dataclass(frozen=True)
class Arrival:
    """The answer of a site that was asked for its next summary.

    Attributes
    ----------
    site, run : str
    code : str
        With which it refused; empty if it sent a summary.
    is_new : bool
        Whether the summary is newer than the one before.
    """

    site: str
    run: str
    code: str = ""
    is_new: bool = False


class SummaryCollection:
    """Asks sites for summaries of their streams, and merges the newest ones.

    Different sites may be asked by different threads.

    Parameters
    ----------
    study : StudyFile
        Its method merges streams.
    roster : NetworkRoster
    identity : Identity
        The coordinator's key.
    folder : Path
        The coordinator's network folder.
    connect : callable
        Returns what carries bundles to a site and back.
    """

    def __init__(
        self,
        study: StudyFile,
        roster: NetworkRoster,
        identity: Identity,
        folder: Path,
        connect: Callable[[str], Answering],
    ) -> None:
        self._connections = connect_members(study, roster, identity, connect)
        if not study.merges_streams:
            raise InputError(f"{study.path}: method has no max_summaries. Add it to merge streams.")
        self._file = study
        self._identity = identity
        self._d = len(study.features)
        self._lock = threading.Lock()
        self._folder = folder / SUMMARIES / study.study.digest[:16]
        create_private_folder(folder / SUMMARIES)
        create_private_folder(self._folder)
        self._journal = RoundJournal(self._folder / "rounds.jsonl")
        self._region = start_region(study.study, self._d)
        self._weights: dict[str, float] = {}
        for site in self._connections:
            report = self._read_report(site)
            if report is not None:
                self._region.receive(report)
                self._weights[site] = report.summary.n

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites that have sent a summary, sorted."""
        with self._lock:
            return self._region.leaves

    @property
    def rounds(self) -> tuple[RoundRecord, ...]:
        """What was asked so far, in order."""
        with self._lock:
            return self._journal.rounds

    def ask(self, site: str) -> Arrival:
        """Ask a site for its next summary, and keep what it sends.

        Raises
        ------
        ConnectionError
            If the site cannot be reached, or has not answered yet.
        ProtocolError
            If the answer is not by this site, or not a summary.
        """
        run = self._find_asked(site)
        known = self._weights.get(site, 0.0)
        message = ask_message(run, self._file.study, self._identity, known=known)
        data = self._connections[site].answer(message)
        try:
            answer = Message.from_bytes(data, "reply", "refusal")
        except DataError:
            raise ProtocolError(
                f"The answer of site {site!r} is not a message. Use the same release everywhere."
            ) from None
        if answer.kind == "refusal":
            if answer.label != "waiting":
                self.forget(site)
            return Arrival(site, run, answer.label)
        reply = read_reply(Call(StreamSummaryRequest()), site, answer.arrays)
        report = report_stream(self._file.study, site, reply, self._d)
        shapes = {name: array.shape for name, array in answer.arrays.items()}
        left = Egress(run, 0, ASK, summarise_stream.release, shapes, len(data), "")
        with self._lock:
            is_new = self._region.receive(report)
            if is_new:
                self._write_down(site, left, len(message), len(data))
                write_at_once(self._path(site, "report"), report.to_bytes())
                self._weights[site] = report.summary.n
        return Arrival(site, run, "", is_new)

    def forget(self, site: str) -> None:
        """Ask a site in another run the next time."""
        self._path(site, "asked").unlink(missing_ok=True)

    def close(self, arrival: Arrival, result: Mapping[str, bytes]) -> str:
        """Send a result to a site, which forgets the run; return why it did not take it.

        Parameters
        ----------
        arrival : Arrival
            A summary that has come.
        result : mapping of str to bytes
            Files of the result folder by name.
        """
        message = close_message(arrival.run, result)
        return send_close(self._connections[arrival.site], message)

    def merge(self) -> tuple[Summary, PCAFit, tuple[str, ...]]:
        """Merge the newest summaries.

        Returns
        -------
        summary : Summary
            Of all rows, with names of features: what a region has for its own coordinator.
        estimator : PCAFit
            With the result.
        sites : tuple of str
            The sites whose summaries it has.

        Raises
        ------
        ProtocolError
            If no site has sent a summary yet.
        """
        study = self._file.study
        with self._lock:
            sites = self._region.leaves
            summary = self._region.summary()
            rounds, left = self._journal.rounds, self._journal.list_egress(sites)
        found = decompose_stream(study, summary)
        leakage = _estimate_leakage(found, left)
        names = tuple(map(str, self._file.features))
        estimator = take_outcome(
            make_estimator(self._file),
            study,
            RunOutcome(found, rounds, left, {}, leakage),
            names,
            engine=self._file.engine,
        )
        return summary.with_names(names), estimator, sites

    def _path(self, site: str, suffix: str) -> Path:
        return self._folder / f"{site}.{suffix}"

    def _read_report(self, site: str) -> RegionReport | None:
        """Return the last summary that has come from a site, if one has."""
        path = self._path(site, "report")
        if not path.exists():
            return None
        try:
            return RegionReport.from_bytes(path.read_bytes())
        except DataError:
            raise DataError(
                f"{path} is damaged. Remove it: the site sends its last summary again."
            ) from None

    def _find_asked(self, site: str) -> str:
        """Return the run in which a site is being asked; a new one if there is none."""
        path = self._path(site, "asked")
        if not path.exists():
            write_at_once(path, uuid.uuid4().hex.encode("ascii"))
        return path.read_text("ascii")

    def _write_down(self, site: str, left: Egress, sent: int, received: int) -> None:
        """Add an exchange to the journal, unless a crash has come between it and the report.

        The first summaries of all sites are the first round, and so on.
        """
        known = self._journal.list_egress(tuple(self._connections))
        if left.run in {entry.run for entry in known[site]}:
            return
        place, rounds = len(known[site]), self._journal.rounds
        others = {
            name: (entries[place],) for name, entries in known.items() if len(entries) > place
        }
        down, up = {site: sent}, {site: received}
        if place < len(rounds):
            down, up = rounds[place].sent | down, rounds[place].received | up
        self._journal.add(RoundRecord(place, ASK, down, up), others | {site: (left,)})


def _estimate_leakage(found: Decomposition, left: Mapping[str, tuple[Egress, ...]]) -> Leakage:
    """Return what the coordinator knows of the covariance, as far as it can tell.

    Directions of all summaries of a site are counted as different ones.
    """
    directions = max(sum(entry.shapes["vt"][0] for entry in entries) for entries in left.values())
    known = float(found.variances.sum() + found.further.sum())
    part = min(known / found.total_variance, 1.0) if found.total_variance > 0.0 else 1.0
    return Leakage(min(directions / len(found.mean), 1.0), part)
