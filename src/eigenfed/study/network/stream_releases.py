"""When a site whose data are a summary of a stream sends one, and which.

Two summaries of a stream differ by the rows between them, and reveal the mean and the scatter of
these rows alone. So a site fixes which summaries leave, whatever it is asked for:

- A summary that leaves is *kept*, and has a version. All studies get the same versions: two studies
  that were sent different states of a stream would reveal the rows between these.
- The next version has at least ``min_rows`` of the site's policy more rows than the one before, as
  everything that leaves about rows; and a study gets it if it has at least ``min_new_rows`` of the
  study more than the last one that the study got.
- A study gets at most ``max_summaries`` versions. The same version again, in another run,
  reveals nothing new, and does not count.

Versions, their weights and digests are in the ledger before they leave. What is decided depends on
the weight of the rows, which is sent anyway, and not on their content.

::

    network/streams/<digest>.summary      the versions that may be asked for again
"""

import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path

from eigenfed.data.safe_files import write_at_once
from eigenfed.data.summarized_rows import SUFFIX, SummarizedRows, read_summary
from eigenfed.errors import DataError
from eigenfed.linalg.summary import Summary
from eigenfed.privacy.ledger.events import Summarised
from eigenfed.privacy.ledger.ledger import Ledger
from eigenfed.protocol.exact.merge import Merge
from eigenfed.protocol.messages import refusal
from eigenfed.study.config import SiteFile, StudyFile
from eigenfed.study.network.key_files import create_private_folder

_log = logging.getLogger(__name__)

STREAMS = "streams"
_SAME = 1e-9
"""Relative difference of weights up to which they are the same."""


@dataclass(frozen=True, eq=False)
class ChosenSummary:
    """A summary that is to leave in a run.

    Attributes
    ----------
    what : Summarised
        For the ledger.
    data : bytes or None
        The summary, if it is not kept yet.
    """

    what: Summarised
    data: bytes | None


class StreamReleases:
    """Decides which summaries of a site's stream leave, and keeps them.

    Parameters
    ----------
    site : SiteFile
        Its data are a summary.
    ledger : Ledger
    """

    def __init__(self, site: SiteFile, ledger: Ledger) -> None:
        self._site = site
        self._ledger = ledger
        self._folder = site.network / STREAMS
        self._seen: tuple[tuple[int, int, int], float] | None = None
        self._reported = ""

    def choose(self, study: StudyFile, run: str, known: float) -> ChosenSummary:
        """Choose the summary for a run: the one that it had before, a new one, or the last one.

        Parameters
        ----------
        study : StudyFile
            An approved study that merges summaries of streams.
        run : str
        known : float
            Weight of the last summary that the coordinator says it has. It decides only whether
            one that has left before is sent again.

        Raises
        ------
        Refusal
            With the code ``waiting`` if the stream has not grown enough, ``used_up`` if the study
            allows no more summaries, or ``unready`` if the file is not what it was.
        """
        method, digest = study.method, study.study.digest
        if not isinstance(method, Merge) or method.max_summaries is None:
            raise refusal("not_a_stream")
        sent = self._ledger.summaries(self._site.dataset)
        for what in sent:
            if what.run == run:
                return ChosenSummary(what, None)
        ours = {what.version: what for what in sent if what.study == digest}
        last = ours[max(ours)] if ours else None
        least = max(method.min_new_rows or 0, self._site.policy.min_rows)
        if len(ours) < method.max_summaries:
            found = self._find_new(sent)
            before = 0.0 if last is None else last.weight
            if found is not None and found.what.weight - before >= least:
                return self._name(found, run, digest)
        if last is not None and last.weight > known:
            return self._name(ChosenSummary(last, None), run, digest)
        raise refusal("waiting" if len(ours) < method.max_summaries else "used_up")

    def list_others(self, chosen: ChosenSummary) -> list[str]:
        """Return the other runs of the study that are open: a coordinator asks in one at a time.

        They are ended, so that what a site remembers of open runs does not grow.
        """
        dataset, what = self._site.dataset, chosen.what
        open_runs = set(self._ledger.recall_names(dataset)) - {what.run}
        sent = self._ledger.summaries(dataset)
        return [one.run for one in sent if one.study == what.study and one.run in open_runs]

    def record(self, chosen: ChosenSummary) -> None:
        """Keep a summary, and write in the ledger that it leaves in a run."""
        if chosen.data is not None:
            create_private_folder(self._folder)
            write_at_once(self._place(chosen.what), chosen.data)
        self._ledger.summarise(chosen.what)
        self._remove_old()

    def open(self, chosen: ChosenSummary, study: StudyFile) -> SummarizedRows:
        """Return a chosen summary, with the features of the study.

        Raises
        ------
        Refusal
            With the code ``unready``, if it is not kept any more, or has other features.
        """
        place = self._place(chosen.what)
        try:
            data = place.read_bytes() if chosen.data is None else chosen.data
            if hash_summary(data) != chosen.what.digest:
                raise DataError(f"{place} was changed. Restore it from a backup.")
            return read_summary(data, self._site.data, list(study.features))
        except (DataError, OSError) as error:
            self._report(f"The summary for {study.name} cannot be used: {error}")
            raise refusal("unready") from None

    def _find_new(self, sent: tuple[Summarised, ...]) -> ChosenSummary | None:
        """Return the next version, if the stream has grown enough, or else the last one."""
        newest = max(sent, key=lambda what: what.version, default=None)
        before = 0.0 if newest is None else newest.weight
        weight = self._weigh()
        if weight is not None and weight < before * (1.0 - _SAME):
            self._report(
                f"{self._site.data} has fewer rows than were sent before, so that it is not the "
                "same stream. Restore the file, or give the new stream another dataset in "
                f"{self._site.path}."
            )
            raise refusal("unready")
        least = before + self._site.policy.min_rows
        if weight is None or weight < least:
            return None if newest is None else ChosenSummary(newest, None)
        data, weight = self._read()
        if weight < least:  # the file was replaced since
            raise refusal("waiting")
        version = 1 if newest is None else newest.version + 1
        mark = hash_summary(data)
        what = Summarised(self._site.dataset, "-", "-", version, weight, mark)
        return ChosenSummary(what, data)

    def _name(self, chosen: ChosenSummary, run: str, study: str) -> ChosenSummary:
        """Return a chosen summary for a run of a study."""
        of = chosen.what
        what = Summarised(of.dataset, run, study, of.version, of.weight, of.digest)
        return ChosenSummary(what, chosen.data)

    def _weigh(self) -> float | None:
        """Return the weight of the stream's rows; None if its file is not there yet."""
        try:
            status = self._site.data.stat()
        except FileNotFoundError:
            return None
        stamp = status.st_ino, status.st_mtime_ns, status.st_size
        if self._seen is None or self._seen[0] != stamp:
            self._seen = stamp, self._read()[1]
        return self._seen[1]

    def _read(self) -> tuple[bytes, float]:
        """Return the stream's file, and the weight of its rows."""
        path = self._site.data
        try:
            data = path.read_bytes()
            return data, Summary.from_bytes(data).n
        except (DataError, OSError):
            self._report(f"{path} is not a summary that can be read. Write it again.")
            raise refusal("unready") from None

    def _place(self, what: Summarised) -> Path:
        return self._folder / f"{what.digest}{SUFFIX}"

    def _remove_old(self) -> None:
        """Remove kept summaries that nobody can ask for again."""
        dataset = self._site.dataset
        sent, runs = self._ledger.summaries(dataset), self._ledger.recall_names(dataset)
        last = {what.study: what.digest for what in sorted(sent, key=lambda what: what.version)}
        wanted = {*last.values(), *(what.digest for what in sent if what.run in runs)}
        for path in self._folder.glob(f"*{SUFFIX}"):
            if path.stem not in wanted:
                path.unlink(missing_ok=True)

    def _report(self, text: str) -> None:
        """Log something for the people at the site, once in a row."""
        if text != self._reported:
            _log.warning("%s", text)
            self._reported = text


def hash_summary(data: bytes) -> str:
    """Return the SHA-256 of a summary, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()
