"""Sites on other machines: what the coordinator sends, receives and writes down.

The coordinator does not see what a site records about itself. It keeps an account of its own: which
replies arrived, what their operations declare, and how many bytes they have. The account is written
round by round beside the transcript, so that a resumed run has all of it.

Large replies wait on the disk until it is their turn to be summed, and only so many large messages
are on their way at a time, so that the coordinator's memory does not grow with the number of sites.
"""

import json
import mmap
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from eigenfed.arrays import Arrays
from eigenfed.data.safe_files import parse_strict_json
from eigenfed.errors import DataError, ProtocolError
from eigenfed.linalg.checks import are_finite
from eigenfed.privacy.release import Leaves, Release
from eigenfed.protocol.core import Call
from eigenfed.protocol.gate.records import Egress
from eigenfed.protocol.method_registry import list_operations
from eigenfed.protocol.secure.participant import RELEASES
from eigenfed.protocol.study import Study
from eigenfed.transport.engine import Callback
from eigenfed.transport.local import Answering, LocalTransport
from eigenfed.transport.rounds import RoundRecord
from eigenfed.transport.run_account import egress_from_json, egress_to_json

_SUMMED = (Leaves.SUM_ONLY, Leaves.NOISED)
_SPOOLED_BYTES = 1 << 20
"""Length from which a reply waits on the disk."""
_MOST_UNDERWAY = 1 << 28
"""Bytes of requests that are on their way at a time; a longer request is alone."""


class RoundJournal:
    r"""The rounds of a run and what left each site in them, one line of JSON each.

    Parameters
    ----------
    path : Path
        The file, which is created if it does not exist.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     journal = RoundJournal(Path(folder, "rounds.jsonl"))
    ...     journal.add(RoundRecord(0, "moments", {"a": 9}, {"a": 70}), {"a": ()})
    ...     RoundJournal(Path(folder, "rounds.jsonl")).rounds[0].op
    'moments'
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: dict[int, tuple[RoundRecord, dict[str, tuple[Egress, ...]]]] = {}
        if path.exists():
            for line in path.read_text("utf-8").splitlines():
                self._read_line(line)

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self._path.parent

    def _read_line(self, line: str) -> None:
        try:
            values = parse_strict_json(line)
            found = values["round"]
            record = RoundRecord(**{**found, "lost": tuple(found["lost"])})
            left = {site: egress_from_json(sent) for site, sent in values["left"].items()}
        except (AttributeError, KeyError, TypeError, ValueError):
            # The last line may be cut short: its round is asked again, and written again.
            return
        self._lines[record.round] = record, left

    def add(self, record: RoundRecord, left: Mapping[str, tuple[Egress, ...]]) -> None:
        """Write a round that is over; a round that was repeated replaces the earlier one."""
        self._lines[record.round] = record, dict(left)
        values = {
            "round": asdict(record),
            "left": {site: egress_to_json(sent) for site, sent in left.items()},
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write("\n" if file.tell() and not _ends_line(self._path) else "")
            file.write(json.dumps(values, allow_nan=False) + "\n")

    @property
    def rounds(self) -> tuple[RoundRecord, ...]:
        """All rounds, in order."""
        return tuple(record for _, (record, _) in sorted(self._lines.items()))

    def list_egress(self, sites: tuple[str, ...]) -> dict[str, tuple[Egress, ...]]:
        """Return what left each site, in order."""
        parts = [left for _, (_, left) in sorted(self._lines.items())]
        return {site: tuple(one for left in parts for one in left.get(site, ())) for site in sites}


def _ends_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1) == b"\n"


def spool_reply(reply: bytes, folder: Path | None = None) -> bytes:
    """Return a long reply as a file without a name, which is mapped and read when it is needed.

    Parameters
    ----------
    reply : bytes
    folder : Path, optional
        Where the file is; by default the system's folder for such files, which may be in memory.

    Examples
    --------
    >>> spool_reply(b"x" * 3_000_000)[:3]
    b'xxx'
    """
    if len(reply) < _SPOOLED_BYTES:
        return reply
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(reply)
        file.flush()
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    # A map has all that messages are read with: a length, slices and a buffer.
    return cast(bytes, mapped)


class ByteBudget:
    """Lets a number of bytes be underway at a time.

    Examples
    --------
    >>> room = ByteBudget(100)
    >>> with room.take(60):
    ...     with room.take(40):
    ...         pass
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._left = most
        self._changed = threading.Condition()

    @contextmanager
    def take(self, count: int) -> Iterator[None]:
        """Wait until there is room for so many bytes, or for nothing else."""
        count = min(count, self._most)
        with self._changed:
            self._changed.wait_for(lambda: self._left >= count)
            self._left -= count
        try:
            yield
        finally:
            with self._changed:
                self._left += count
                self._changed.notify_all()


class RemoteTransport(LocalTransport):
    """Exchanges messages with sites on other machines, all of them at a time.

    Parameters
    ----------
    connections : mapping of str to Answering
    study : Study
        With the method of the run.
    run : str
        Name of the run.
    journal : RoundJournal
    deadline_s, callback
        As in `LocalTransport`.
    """

    def __init__(
        self,
        connections: Mapping[str, Answering],
        *,
        study: Study,
        run: str,
        journal: RoundJournal,
        deadline_s: float | None = None,
        callback: Callback | None = None,
    ) -> None:
        super().__init__(
            connections,
            wire=study.wire,
            workers=len(connections),
            run=run,
            deadline_s=deadline_s,
            callback=callback,
        )
        self._masked = study.masked
        self._releases: dict[str, Release] = {
            **{name: op.release for name, op in list_operations(study).items()},
            **RELEASES,
        }
        self._journal = journal
        self._left: dict[str, list[Egress]] = {}
        self._underway = ByteBudget(_MOST_UNDERWAY)

    def exchange(self, round_: int, call: Call[Any]) -> Iterator[tuple[str, Arrays]]:
        """Send a request, and yield the replies in sorted order of sites."""
        self._left = {}
        return super().exchange(round_, call)

    def _exchange_one(
        self, name: str, round_: int, call: Call[Any], common: bytes | None
    ) -> tuple[int, bytes]:
        with self._underway.take(0 if common is None else len(common)):
            sent_bytes, reply = super()._exchange_one(name, round_, call, common)
            return sent_bytes, spool_reply(reply, self._journal.folder)

    def _decode_reply(
        self, name: str, round_: int, call: Call[Any], sent_bytes: int, data: bytes
    ) -> Arrays:
        arrays = super()._decode_reply(name, round_, call, sent_bytes, data)
        # In a sum nobody could tell any more whose number it was.
        if not all(are_finite(array) for array in arrays.values() if array.dtype.kind == "f"):
            raise ProtocolError(
                f"The reply of site {name!r} to {call.op!r} has a number that is not finite, which "
                "no site of this release sends. Contact the site."
            )
        release = self._releases.get(call.op)
        if release is None:
            raise DataError(f"The study has no operation {call.op!r}.")
        shapes = {part: array.shape for part, array in arrays.items()}
        masked = self._masked and release.leaves in _SUMMED
        entry = Egress(self.run, round_, call.op, release, shapes, len(data), "", masked)
        self._left.setdefault(name, []).append(entry)
        return arrays

    def _record_round(
        self, round_: int, call: Call[Any], sizes: dict[str, tuple[int, int]], lost: list[str]
    ) -> None:
        super()._record_round(round_, call, sizes, lost)
        left = {name: tuple(entries) for name, entries in self._left.items()}
        self._journal.add(self.log[-1], left)
