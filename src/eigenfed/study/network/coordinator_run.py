"""The coordinator of a study between machines: one run, from the first request to the result.

::

    network/runs/<run>.transcript      what the sites replied; the run resumes from it
    network/runs/<run>.jsonl           the rounds, and what left each site in them

A run that was interrupted goes on from its transcript when the study is coordinated again: sites
answer a request that they have answered before with the reply that they have stored. The transcript
is deleted when the result is written and was sent to the sites.
"""

import logging
import secrets
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread

import numpy as np

from eigenfed.errors import EigenfedError, InputError, ProtocolError, SiteLost
from eigenfed.estimators.in_process import total_of
from eigenfed.estimators.network_fit import take_outcome
from eigenfed.estimators.pca_fit import PCAFit
from eigenfed.estimators.resumable_run import RunOutcome
from eigenfed.privacy.release import Reveals
from eigenfed.privacy.secagg.identity import Identity
from eigenfed.protocol.core import Protocol, drive
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.gate.records import Egress
from eigenfed.protocol.pca import pca
from eigenfed.protocol.study import open_message
from eigenfed.study.config import StudyFile
from eigenfed.study.network.key_files import create_private_folder
from eigenfed.study.network.results_sent import close_message, send_close
from eigenfed.study.network.roster_file import NetworkRoster
from eigenfed.study.network.run_method import choose_run_method
from eigenfed.study.rehearsal import make_estimator
from eigenfed.transport.engine import Callback
from eigenfed.transport.local import Answering
from eigenfed.transport.remote import RemoteTransport, RoundJournal
from eigenfed.transport.run_account import Leakage, RunAccount
from eigenfed.transport.signed import SignedConnection
from eigenfed.transport.transcript import Transcript

_log = logging.getLogger(__name__)

RUNS = "runs"


@dataclass(frozen=True)
class CoordinatedRun:
    """A run that is over.

    Attributes
    ----------
    estimator : PCAFit
        With the result.
    run : str
        Name of the run.
    sites : tuple of str
        The sites that took part.
    resumed : bool
        Whether it went on from a transcript.
    """

    estimator: PCAFit
    run: str
    sites: tuple[str, ...]
    resumed: bool


class Coordinator:
    """Runs a study with the sites of a roster.

    Parameters
    ----------
    study : StudyFile
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
        self._file = study
        self._roster = roster
        self._identity = identity
        self._runs = folder / RUNS
        create_private_folder(self._runs)

    def run(
        self,
        present: tuple[str, ...],
        callback: Callback | None = None,
        *,
        restarts: bool = True,
    ) -> CoordinatedRun:
        """Run the study, or go on with a run of it that was interrupted.

        Parameters
        ----------
        present : tuple of str
            The sites that can be reached now; at least as many as the study's quorum.
        callback : callable, optional
            Called with each `RoundRecord` when the round is over.
        restarts : bool, default=True
            Whether a new run begins without a site that is lost, if enough others are left.

        Raises
        ------
        SiteLost
            If too few sites are left. The run can be resumed when they are back.
        SiteRefused
            If a site refuses a request.
        """
        begun = self._find_begun()
        sites = tuple(begun.about["sites"]) if begun is not None else self._choose(present)
        while True:
            try:
                with begun or self._begin(sites) as record:
                    return self._continue(record, sites, callback, resumed=begun is not None)
            except SiteLost as lost:
                left = tuple(site for site in sites if site not in lost.sites)
                if not restarts or self._file.study.masked or len(left) < self._file.quorum:
                    raise
                _log.warning("a new run begins without %s", ", ".join(lost.sites))
                self._abandon(record.run, sites)
                begun, sites = None, left

    def _choose(self, present: tuple[str, ...]) -> tuple[str, ...]:
        """Return the sites of a new run; a secure aggregation names all, and some may drop out."""
        if len(present) < self._file.quorum:
            raise InputError(
                f"{self._file.path}: a run requires quorum = {self._file.quorum} sites, and "
                f"{len(present)} can be reached: {', '.join(present) or 'none'}. Start the others."
            )
        return tuple(sorted(self._file.sites if self._file.study.masked else present))

    def _find_begun(self) -> Transcript | None:
        """Return the transcript of this study's last run, if its result was not written yet."""
        paths = sorted(self._runs.glob("*.transcript"), key=lambda path: path.stat().st_mtime)
        for path in reversed(paths):
            record = Transcript(path)
            if record.about.get("study") == self._file.study.digest:
                return record
            record.close()
        return None

    def _begin(self, sites: tuple[str, ...]) -> Transcript:
        seed = secrets.randbits(31) if self._file.seed is None else self._file.seed
        about = {
            "study": self._file.study.digest,
            "sites": list(sites),
            # What an estimator draws with this seed: the same bits as in one process.
            "seed": int(np.random.RandomState(seed).randint(2**31 - 1)),
        }
        run = uuid.uuid4().hex
        privacy = self._file.privacy
        # A coordinator that is trusted with the noise would draw it again: such a run is not
        # resumed, and sums without noise are not written to a disk.
        is_kept = privacy is None or privacy.trust != "central"
        path = self._runs / f"{run}.transcript" if is_kept else None
        return Transcript(path, run=run, about=about)

    def _continue(
        self,
        record: Transcript,
        sites: tuple[str, ...],
        callback: Callback | None,
        *,
        resumed: bool,
    ) -> CoordinatedRun:
        study, reason = choose_run_method(self._file, len(sites))
        journal = RoundJournal(self._runs / f"{record.run}.jsonl")
        transport = RemoteTransport(
            {site: self._connections[site] for site in sites},
            study=study,
            run=record.run,
            journal=journal,
            deadline_s=self._file.deadline_s,
            callback=callback,
        )
        transport.open_with(
            open_message(record.run, self._file.study, study.method, self._identity)
        )
        roster = self._roster.roster_of(study.sites) if study.masked else None
        rng = np.random.default_rng(int(record.about["seed"]))
        total = total_of(roster, record.run)
        variants = self._file.read_variants()
        loci = None if variants is None else variants.loci
        protocol = pca(study, rng=rng, total=total, loci=loci)
        found = _drive_through(protocol, transport, record)
        found = replace(found, why=found.why or reason)
        left = journal.list_egress(sites)
        leakage = _estimate_leakage(found, left)
        account = RunAccount(journal.rounds, left, leakage)
        if record.account is None:
            record.finish(account.to_json())
        outcome = RunOutcome(found, journal.rounds, left, {}, leakage)
        names = tuple(map(str, self._file.features))
        estimator = take_outcome(
            make_estimator(self._file), study, outcome, names, engine=self._file.engine
        )
        return CoordinatedRun(estimator, record.run, sites, resumed)

    def finish(self, run: CoordinatedRun, result: Mapping[str, bytes]) -> dict[str, str]:
        """Send the result to the sites, which forget the run; return those that did not take it.

        The transcript is deleted. To be called when the result is written.

        Parameters
        ----------
        run : CoordinatedRun
        result : mapping of str to bytes
            Files of the result folder by name.
        """
        message = close_message(run.run, result)
        with ThreadPoolExecutor(len(run.sites)) as pool:
            connections = [self._connections[site] for site in run.sites]
            missed = pool.map(lambda connection: send_close(connection, message), connections)
            reasons = dict(zip(run.sites, missed, strict=True))
        # It holds what the sites replied, and nothing is resumed from it any more.
        (self._runs / f"{run.run}.transcript").unlink(missing_ok=True)
        return {site: reason for site, reason in reasons.items() if reason}

    def abandon_begun(self) -> None:
        """Remove the run that would be resumed, if there is one."""
        begun = self._find_begun()
        if begun is not None:
            begun.close()
            self._abandon(begun.run, tuple(begun.about["sites"]))

    def _abandon(self, run: str, sites: tuple[str, ...]) -> None:
        """Remove a run that is not to be resumed, here and at its sites.

        Nobody waits for that: a site that is away forgets it when a newer run of the study is
        opened, or after the days that its site file allows.
        """
        message = close_message(run, {})
        for site in sites:
            connection = self._connections[site]
            Thread(target=send_close, args=(connection, message), daemon=True).start()
        (self._runs / f"{run}.transcript").unlink(missing_ok=True)
        (self._runs / f"{run}.jsonl").unlink(missing_ok=True)


def _drive_through(
    protocol: Protocol[Decomposition], transport: RemoteTransport, record: Transcript
) -> Decomposition:
    """Run a protocol on what sites reply, and say so if nothing can be computed from that."""
    try:
        return drive(protocol, transport, record)
    except EigenfedError:
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise ProtocolError(
            "Nothing can be computed from what the sites have replied "
            f"({type(error).__name__}): one has sent numbers that no rows have. Find out which, "
            "and begin again without it: eigenfed coordinate --new."
        ) from error


def connect_members(
    study: StudyFile,
    roster: NetworkRoster,
    identity: Identity,
    connect: Callable[[str], Answering],
) -> dict[str, Answering]:
    """Return the sites of a study by name, sorted, with all messages signed and verified.

    Raises
    ------
    InputError
        If its sites, coordinator or features are not those that were agreed on.
    """
    unknown = sorted(set(study.sites) - set(roster.sites))
    if unknown:
        raise InputError(
            f"{study.path} names the site {unknown[0]!r}, which is not in the roster. Admit it "
            "with eigenfed network admit, or leave it out of the study."
        )
    if identity.public != roster.coordinator:
        raise InputError(
            "The coordinator's key is not the one in the roster, so no site would answer it. "
            "Restore the key, or make a new network with eigenfed network init."
        )
    if isinstance(study.features, str):
        raise InputError(f"{study.path}: list the features, or set manifest.")
    return {
        site: SignedConnection(
            connect(site), site=site, identity=identity, public=roster.sites[site]
        )
        for site in sorted(study.sites)
    }


def _estimate_leakage(found: Decomposition, left: Mapping[str, tuple[Egress, ...]]) -> Leakage:
    """Return what the coordinator knows of the covariance, as far as it can tell.

    The fractions are those of the pooled rows. Each site has the exact ones of its own rows.
    """
    replies = [entry for entries in left.values() for entry in entries]
    if any(entry.release.reveals is Reveals.SCATTER for entry in replies):
        return Leakage(1.0, 1.0)
    d = found.components.shape[1]
    columns = max(
        (
            sum(
                shape[1]
                for entry in entries
                if entry.release.reveals is Reveals.DIRECTIONS
                for shape in entry.shapes.values()
                if len(shape) == 2 and shape[0] == d
            )
            for entries in left.values()
        ),
        default=0,
    )
    known = float(found.variances.sum() + found.further.sum())
    total = found.total_variance
    part = min(known / total, 1.0) if total > 0.0 else 1.0
    return Leakage(min(columns / d, 1.0), part)
