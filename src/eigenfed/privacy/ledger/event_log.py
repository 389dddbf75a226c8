"""An append-only log of events, linked by hashes, with the state that follows from them."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Self

from eigenfed.privacy.ledger.events import Event, Opened, Upgraded, What, chain_hash
from eigenfed.privacy.ledger.ledger_state import LedgerState
from eigenfed.privacy.ledger.storage import (
    VERSION,
    Broken,
    ChainVerdict,
    LedgerFile,
    Missing,
    PathLike,
    Row,
    digest,
    verify_chain,
)
from eigenfed.privacy.ledger.witness import Guard, Head, Last, Mismatch, Unguarded, Witness


def _now() -> datetime:
    return datetime.now(UTC)


class EventLog:
    """The storage half of a ledger: appends, reads and verifies events.

    Parameters are those of `Ledger`.
    """

    def __init__(
        self,
        path: str | PathLike | None,
        *,
        readonly: bool = False,
        create: bool = False,
        witness: str | PathLike | None = None,
        timeout_s: float = 30.0,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        where = None if path is None else _to_text(path)
        beside = _to_text(f"{where}.head" if witness is None else witness)
        self._witness = None if where is None else Witness(beside, where, timeout_s)
        self._where = where
        self._guard = Unguarded()
        if where is not None and self._witness is not None and not readonly:
            self._guard = Guard(where, self._witness, timeout_s)
        self._clock = clock
        self._state = LedgerState()
        self._broken: Broken | None = None
        head = None if self._witness is None or readonly else self._witness.read()
        try:
            self._file = LedgerFile(
                where, readonly=readonly, create=create and head is None, timeout_s=timeout_s
            )
            self._begin(readonly)
        except Missing:
            self._discard()
            if head is None:
                raise
            # Creating a new ledger here would reset its totals: a head file proves there was one.
            raise Mismatch(str(where), beside, head.number, "the ledger was deleted") from None
        except BaseException:
            self._discard()
            raise

    @property
    def files(self) -> tuple[str, str] | None:
        """The ledger's file and its head file; None where everything is in memory."""
        if self._where is None or self._witness is None:
            return None
        return self._where, self._witness.path

    def _discard(self) -> None:
        if hasattr(self, "_file"):
            self.close()

    def _begin(self, readonly: bool) -> None:
        """Create or check the file; upgrade an older format, and write the head file."""
        with self._file.transaction(write=not readonly):
            is_new = not self._file.recognise()
            if readonly:
                return
            if not is_new:
                self._catch_up()
            self._guard.compare(self._state, self._file.hash_of, Last())
            if is_new:
                self._append(Opened(VERSION, secrets.token_hex(16)))
            elif self._state.version < VERSION:
                self._append(Upgraded(VERSION))
        self._guard.keep(self._state)

    def close(self) -> None:
        """Close the file when nobody is writing; everything committed is on disk already."""
        with self._file.lock:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _transaction(self, *, write: bool) -> Iterator[LedgerState]:
        """Yield the current state in a transaction; file and state change together or not at all.

        At most one event may be appended, as the head file may lag by one event, not two. The
        order matters for crashes: the event is on disk before the head file is written, and both
        before the caller may send anything.
        """
        with self._file.lock, self._stop_if_broken():
            last = self._guard.look()
            try:
                with self._file.transaction(write=write):
                    self._catch_up()
                    self._guard.compare(self._state, self._file.hash_of, last)
                    yield self._state
            except BaseException:
                if write:  # the state may have what the file has not: read it again next time
                    self._state = LedgerState()
                raise
            if write:
                self._guard.keep(self._state)

    @contextmanager
    def _stop_if_broken(self) -> Iterator[None]:
        """Once the ledger was found broken, fail every later call, whatever the file is then."""
        if self._broken is not None:
            raise Broken(self._broken.number, self._broken.why, str(self._broken))
        try:
            yield
        except Broken as broken:
            self._broken = Broken(broken.number, broken.why, str(broken))
            raise

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Open a read transaction on all events, without the current state."""
        with self._file.lock, self._stop_if_broken():
            self._guard.look()
            with self._file.transaction(write=False):
                yield

    def _catch_up(self) -> None:
        """Read events that other processes have appended; those seen before must be unchanged."""
        state = self._state
        with self._file.rows(since=max(state.number, 1)) as rows:
            if state.number:
                seen = next(rows, None)
                if seen is None or (seen.number, seen.hash) != (state.number, state.head):
                    raise Broken(state.number, "it was present before and is missing now")
            for link in verify_chain(rows, state.number, state.head):
                state.add(*link)
        if not state.number:
            raise Broken(1, "it is missing")

    def _append(self, what: What) -> None:
        when = self._clock().astimezone(UTC).isoformat(timespec="seconds")
        event = Event(self._state.number + 1, when, what)
        body = event.to_bytes()
        row = Row(event.number, body, chain_hash(self._state.head, body))
        self._file.append(row)
        self._state.add(event, row.hash)

    @property
    def events(self) -> tuple[Event, ...]:
        """All events, in order."""
        with self._reading(), self._file.rows(since=1) as rows:
            return tuple(link.event for link in verify_chain(rows))

    @property
    def head(self) -> str:
        """Hash of the last event. Stored elsewhere, it lets `verify` detect removed events."""
        with self._transaction(write=False) as state:
            return state.head.hex()

    def verify(self, head: str | None = None) -> ChainVerdict:
        """Check every event, stored reply and stored meter.

        Parameters
        ----------
        head : str, optional
            A head that this ledger had at some time. Only with one, this or that of the head
            file, can it be detected that the last events were removed or the whole chain was
            rewritten.
        """
        state, heads, noted = LedgerState(), set[str](), None
        with self._reading(), self._file.rows(since=1) as rows:
            try:
                for link in verify_chain(rows):
                    state.add(*link)
                    heads.add(link.hash.hex())
                if not state.number:
                    raise Broken(1, "it is missing")
                if head is not None and head not in heads:
                    raise Broken(state.number + 1, "the given head is not in the chain")
                noted = None if self._witness is None else self._witness.peek()
                _check_head(noted, state, heads)
                self._check_stored(state)
            except Broken as broken:
                found = state.number, state.head.hex(), broken.number, broken.why
                return ChainVerdict(*found, witnessed=noted is not None)
        return ChainVerdict(state.number, state.head.hex(), witnessed=noted is not None)

    def _check_stored(self, state: LedgerState) -> None:
        replied = {slot.key.slot: slot for slot in state.slots if slot.replied is not None}
        for where in sorted(self._file.reply_slots()):
            slot = replied.get(where)
            if slot is None or slot.replied is None:
                raise Broken(state.number, "a reply is stored that has no event")
            if self._file.reply_digest(where) != slot.replied.digest:
                raise Broken(slot.replied_at, "the reply stored with it was changed")
        stored = {dataset: digest(meter) for dataset, meter in self._file.meters()}
        datasets = {*stored, *state.datasets}
        if any(stored.get(dataset) != state.meter(dataset) for dataset in datasets):
            raise Broken(state.number, "a stored meter is not the one that was committed")


def _check_head(noted: Head | None, state: LedgerState, heads: set[str]) -> None:
    if noted is not None and (noted.ledger != state.ledger or noted.hash.hex() not in heads):
        raise Broken(state.number + 1, "the head in the head file is not in the chain")


def _to_text(path: str | PathLike) -> str:
    return path if isinstance(path, str) else path.__fspath__()
