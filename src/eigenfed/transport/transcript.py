"""The record of a run, from which it resumes: append-only, checked, as sensitive as the replies.

A transcript holds what sites replied, unencrypted: totals where only sums were asked for, single
replies elsewhere. Whoever reads it knows what the coordinator knows. It belongs to the coordinator
alone, is readable by its owner only, and should be deleted when the run no longer needs it.

Layout of the file: one record after another. The first names the run and what it is about, each
further one is a round, and the last, of a finished run, is its account::

    8 bytes   length of the container, little-endian
    8 bytes   BLAKE2b of that length, so that a wrong one is not taken for a file cut short
    container of kind "transcript", version 1

A record that the end of the file cuts short was being written when the run was interrupted. It is
removed and its round is asked again, which a site answers with the reply that it has stored.
Anything else that does not fit is refused.
"""

import hashlib
import io
import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Arrays, Container, Scalar
from eigenfed.data.safe_files import parse_strict_json, write_at_once
from eigenfed.errors import DataError, ProtocolError, SiteLost
from eigenfed.protocol.core import TOTAL, Call, Replies

_KIND, _VERSION = "transcript", 1
_PREFIX_BYTES = 16
_MOST_DIGITS = 9
_Fields = dict[str, type[Any]]
_HEADER: _Fields = {"run": str}
_END: _Fields = {"rounds": int}
_ROUND: _Fields = {"round": int, "op": str, "request": str, "outcome": str, "sites": str}


class _Entry(NamedTuple):
    """Where the record of a round lies, and what was requested in it."""

    op: str
    digest: str
    start: int
    size: int


class Transcript:
    """The outcome of each round of a run, written as the run goes; one writer at a time.

    Parameters
    ----------
    path : str, PathLike or None
        The file, which is created if it does not exist; None keeps the record in memory.
    run : str, optional
        Name of the run. A new transcript takes a fresh name without it; the transcript of another
        run is refused.
    about : dict, optional
        What to write into a new transcript about its run, as JSON can hold it.

    Attributes
    ----------
    run : str
    about : dict
        What the transcript says about its run.
    account : object
        What `finish` wrote; None for a run that is not finished.

    Raises
    ------
    DataError
        If the file is not a transcript, is corrupt, or is of another version.

    Examples
    --------
    >>> import numpy as np
    >>> from eigenfed.protocol.exact.moments import MomentsRequest
    >>> record, call = Transcript(None), Call(MomentsRequest(), summed=True)
    >>> record.keep(0, call, {TOTAL: {"n": np.array([3.0])}})
    >>> record.replay(0, call)
    {'': {'n': array([3.])}}
    >>> record.replay(1, call) is None
    True
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        *,
        run: str | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        self._path = None if path is None else Path(path)
        if self._path is None:
            self._file: BinaryIO = io.BytesIO(_encode_first(run, about))
        else:
            if not self._path.exists() or self._path.stat().st_size == 0:
                # All of it or nothing: a file cut short here could belong to another program.
                write_at_once(self._path, _encode_first(run, about), mode=0o600)
            self._file = open(self._path, "r+b")  # noqa: SIM115
        self._rounds: list[_Entry] = []
        self._end = 0
        self.account: Any = None
        try:
            size = self._file.seek(0, io.SEEK_END)
            self.run, self.about = self._read_through(size, run)
        except BaseException:
            self._file.close()
            raise

    @property
    def rounds(self) -> int:
        """Number of rounds recorded."""
        return len(self._rounds)

    def __enter__(self) -> "Transcript":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def replay(self, round_: int, call: Call[Any]) -> Replies | SiteLost | None:
        """Return the outcome of a recorded round, or None where the round is new.

        Raises
        ------
        ProtocolError
            If the recorded round has another request.
        """
        if round_ >= len(self._rounds):
            return None
        kept = self._rounds[round_]
        if (kept.op, kept.digest) != (call.op, call.digest()):
            same = ", with other arrays or of other sites" if kept.op == call.op else ""
            raise ProtocolError(
                f"The run departs from its transcript: in round {round_} that has {kept.op!r} and "
                f"the run requests {call.op!r}{same}. Resume with the same data, settings and "
                "release on the same machine, or begin a new transcript."
            )
        record = self._container(kept.start, kept.size)
        try:
            return _decode_outcome(record)
        except (IndexError, ValueError):
            pass
        raise self._corrupt("what sites replied cannot be read", kept.start)

    def keep(self, round_: int, call: Call[Any], outcome: Replies | SiteLost) -> None:
        """Record the outcome of the next round; it is on disk when this returns.

        Raises
        ------
        ProtocolError
            If it is not the next round, if the run is finished, or if single replies are given
            where a sum was requested.
        """
        if round_ != len(self._rounds) or self.account is not None:
            raise ProtocolError(
                f"Round {round_} cannot follow the {len(self._rounds)} rounds of the transcript. "
                "Keep every round once, in order, before the run is finished."
            )
        if call.summed and not isinstance(outcome, SiteLost) and outcome.keys() != {TOTAL}:
            raise ProtocolError(
                f"Round {round_} requested a sum of {call.op!r} and is given single replies, which "
                "a transcript does not keep. Give it the total."
            )
        data = _encode_round(round_, call, outcome).to_bytes()
        # A record that could not be read again would make the whole file corrupt.
        fields = _decode_container(data, _ROUND).scalars
        start = self._append(data)
        self._rounds.append(_Entry(call.op, str(fields["request"]), start, len(data)))

    def finish(self, account: Mapping[str, Any]) -> None:
        """Record that the run is finished, with an account of it as JSON can hold it."""
        self._append(_encode_end(len(self._rounds), account))
        self.account = dict(account)

    def close(self) -> None:
        """Close the file; a record that is kept in memory is gone."""
        self._file.close()

    def _read_through(self, size: int, run: str | None) -> tuple[str, dict[str, Any]]:
        """Read all records, cut off one that is incomplete; return the run's name and topic."""
        first = self._next(size)
        if first is None:
            raise self._corrupt("the first record is cut short")
        header = self._container(*first, _HEADER)
        name, about = str(header.scalars["run"]), self._decode_json(header, "about")
        if run is not None and run != name:
            raise ProtocolError(
                f"{self._path} is the transcript of the run {name!r} and not of {run!r}. "
                "Pass the one that was meant."
            )
        self._end = sum(first)
        while (found := self._next(size)) is not None:
            record = self._container(*found, _ROUND, _END)
            if self.account is not None:
                raise self._corrupt("a record follows the end of the run")
            if "rounds" in record.scalars:
                self.account = self._decode_json(record, "account")
                self._end = sum(found)
                continue
            fields = record.scalars
            if fields["round"] != len(self._rounds):
                raise self._corrupt("a round is missing or doubled")
            self._rounds.append(_Entry(str(fields["op"]), str(fields["request"]), *found))
            self._end = sum(found)
        if self._end < size:
            self._file.truncate(self._end)
            self._sync()
        return name, about

    def _decode_json(self, record: Container, name: str) -> dict[str, Any]:
        try:
            values = parse_strict_json(record.arrays[name].tobytes().decode())
            if isinstance(values, dict):
                return values
        except (KeyError, ValueError):
            pass
        raise self._corrupt(f"{name!r} cannot be read")

    def _next(self, size: int) -> tuple[int, int] | None:
        """Return start and length of the next container, or None where the file ends first."""
        start = self._end + _PREFIX_BYTES
        if start > size:
            return None
        prefix = self._read(self._end, _PREFIX_BYTES)
        length = int.from_bytes(prefix[:8], "little")
        if prefix != _prefix(length):
            raise self._corrupt("no record begins")
        return (start, length) if start + length <= size else None

    def _container(self, start: int, size: int, *fields: _Fields) -> Container:
        try:
            return _decode_container(self._read(start, size), *(fields or (_ROUND,)))
        except DataError as error:
            raise self._corrupt(f"a record cannot be read ({error})") from error

    def _corrupt(self, why: str, place: int | None = None) -> DataError:
        at = self._end if place is None else place
        return DataError(
            f"{self._path} is not a transcript, or a corrupt one: {why} at byte {at}. "
            "Restore an intact copy, or begin a new one at another path."
        )

    def _read(self, start: int, size: int) -> bytes:
        self._file.seek(start)
        return self._file.read(size)

    def _append(self, data: bytes) -> int:
        """Write a record over the remains of a failed attempt, and return where it starts."""
        self._file.seek(self._end)
        self._file.truncate()
        self._file.write(_prefix(len(data)) + data)
        self._sync()
        start = self._end + _PREFIX_BYTES
        self._end = start + len(data)
        return start

    def _sync(self) -> None:
        self._file.flush()
        if self._path is not None:
            os.fsync(self._file.fileno())


def _encode_first(run: str | None, about: Mapping[str, Any] | None) -> bytes:
    """Return the beginning of a new transcript."""
    fields: dict[str, Scalar] = {"run": uuid.uuid4().hex if run is None else run}
    data = Container(_KIND, _VERSION, fields, {"about": _as_bytes(dict(about or {}))}).to_bytes()
    return _prefix(len(data)) + data


def _encode_round(round_: int, call: Call[Any], outcome: Replies | SiteLost) -> Container:
    """Name arrays by the site's place in the list: a site's name may hold any character."""
    scalars: dict[str, Scalar] = {"round": round_, "op": call.op, "request": call.digest()}
    if isinstance(outcome, SiteLost):
        lost = {"outcome": "lost", "sites": json.dumps(outcome.sites)}
        return Container(_KIND, _VERSION, scalars | lost, {})
    kind = {"outcome": "total" if call.summed else "replies", "sites": json.dumps(list(outcome))}
    arrays = {
        f"{i}/{name}": array
        for i, reply in enumerate(outcome.values())
        for name, array in reply.items()
    }
    return Container(_KIND, _VERSION, scalars | kind, arrays)


def _decode_outcome(record: Container) -> Replies | SiteLost:
    """Read what sites replied; ValueError or IndexError where the record is not valid."""
    fields = record.scalars
    sites = parse_strict_json(str(fields["sites"]))
    if not isinstance(sites, list) or not all(isinstance(site, str) for site in sites):
        raise ValueError
    if len(set(sites)) < len(sites) or fields["outcome"] not in ("lost", "total", "replies"):
        raise ValueError
    if fields["outcome"] == "lost":
        return SiteLost(tuple(sites), str(fields["op"]), int(fields["round"]))
    replies: list[Arrays] = [{} for _ in sites]
    for label, array in record.arrays.items():
        i, name = label.split("/", 1)
        if not (i.isascii() and i.isdigit() and len(i) <= _MOST_DIGITS):
            raise ValueError
        replies[int(i)][name] = array.copy()  # a total that comes from sites can be written to
    return dict(zip(sites, replies, strict=True))


def _encode_end(rounds: int, account: Mapping[str, Any]) -> bytes:
    arrays = {"account": _as_bytes(account)}
    return Container(_KIND, _VERSION, {"rounds": rounds}, arrays).to_bytes()


def _decode_container(data: bytes, *fields: _Fields) -> Container:
    container = Container.from_bytes(data, kind=_KIND, version=_VERSION)
    if {name: type(value) for name, value in container.scalars.items()} not in fields:
        raise DataError("It lacks a field or has an unknown one. Use one release.")
    return container


def _as_bytes(values: Mapping[str, Any]) -> npt.NDArray[np.uint8]:
    return np.frombuffer(json.dumps(values, allow_nan=False).encode(), np.uint8)


def _prefix(length: int) -> bytes:
    size = length.to_bytes(8, "little")
    return size + hashlib.blake2b(size, digest_size=_PREFIX_BYTES - 8).digest()
