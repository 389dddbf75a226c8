"""Events in a file, one after the other, tied together by hashes and folded into a book."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Self

from eigenfed.privacy.ledger.accounts import Book
from eigenfed.privacy.ledger.events import Event, Opened, Upgraded, What, chained
from eigenfed.privacy.ledger.storage import (
    VERSION,
    Broken,
    ChainVerdict,
    LedgerFile,
    Missing,
    PathLike,
    Row,
    digest,
    links,
)
from eigenfed.privacy.ledger.witness import Guard, Head, Last, Mismatch, Unguarded, Witness


def _now() -> datetime:
    return datetime.now(UTC)


class EventLog:
    """What a ledger is apart from its rules: events that are added, read and verified.

    Parameters
    ----------
    path : str, path or None
        The file. None keeps everything in memory.
    readonly : bool, default=False
        Open for looking and verifying only; a broken ledger can be opened this way.
    create : bool, default=False
        Whether to begin a ledger where there is none, with mode 0600.
    witness : str or path, optional
        The head file; by default, beside the ledger with ``.head`` added to its name.
    timeout_s : float, default=30.0
        How long to wait for another process that is writing.
    clock : callable, optional
        Gives the time, with its zone.
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
        where = None if path is None else _text(path)
        beside = _text(f"{where}.head" if witness is None else witness)
        self._witness = None if where is None else Witness(beside, where, timeout_s)
        self._where = where
        self._guard = Unguarded()
        if where is not None and self._witness is not None and not readonly:
            self._guard = Guard(where, self._witness, timeout_s)
        self._clock = clock
        self._book = Book()
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
        with self._file.transaction(write=not readonly):
            is_new = not self._file.recognised()
            if readonly:
                return
            if not is_new:
                self._catch_up()
            self._guard.compare(self._book, self._file.hash_of, Last())
            if is_new:
                self._append(Opened(VERSION, secrets.token_hex(16)))
            elif self._book.version < VERSION:
                self._append(Upgraded(VERSION))
        self._guard.keep(self._book)

    def close(self) -> None:
        """Close the file, once nobody is writing. Whatever was promised is on disk already."""
        with self._file.lock:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _transaction(self, *, write: bool) -> Iterator[Book]:
        """Give the book as the file stands, and keep both together or change neither.

        One event may be added: the head file may be one behind, not two.
        """
        with self._file.lock, self._latching():
            last = self._guard.look()
            try:
                with self._file.transaction(write=write):
                    self._catch_up()
                    self._guard.compare(self._book, self._file.hash_of, last)
                    yield self._book
            except BaseException:
                if write:  # the book may hold what the file does not: read it anew
                    self._book = Book()
                raise
            if write:
                self._guard.keep(self._book)

    @contextmanager
    def _latching(self) -> Iterator[None]:
        """Refuse for good once the ledger was found broken, whatever is in its place later."""
        if self._broken is not None:
            raise Broken(self._broken.number, self._broken.why, str(self._broken))
        try:
            yield
        except Broken as broken:
            self._broken = Broken(broken.number, broken.why, str(broken))
            raise

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """Let the file be read from its first event on, whatever the book has."""
        with self._file.lock, self._latching():
            self._guard.look()
            with self._file.transaction(write=False):
                yield

    def _catch_up(self) -> None:
        """Take in what any process has written since; what was seen before must still be there."""
        book = self._book
        with self._file.rows(since=max(book.number, 1)) as rows:
            if book.number:
                seen = next(rows, None)
                if seen is None or (seen.number, seen.hash) != (book.number, book.head):
                    raise Broken(book.number, "it was there before and is not any more")
            for link in links(rows, book.number, book.head):
                book.add(*link)
        if not book.number:
            raise Broken(1, "it is not there")

    def _append(self, what: What) -> None:
        when = self._clock().astimezone(UTC).isoformat(timespec="seconds")
        event = Event(self._book.number + 1, when, what)
        body = event.to_bytes()
        row = Row(event.number, body, chained(self._book.head, body))
        self._file.append(row)
        self._book.add(event, row.hash)

    @property
    def events(self) -> tuple[Event, ...]:
        """All events, in order."""
        with self._looking(), self._file.rows(since=1) as rows:
            return tuple(link.event for link in links(rows))

    @property
    def head(self) -> str:
        """Hash of the last event. Noted elsewhere, it lets `verify` find a cut end."""
        with self._transaction(write=False) as book:
            return book.head.hex()

    def verify(self, head: str | None = None) -> ChainVerdict:
        """Check every event, kept reply and kept meter.

        Parameters
        ----------
        head : str, optional
            A head that this ledger had at some time. Only against one, this or the head file's,
            can it be found that the last events were cut off, or that all of the chain was
            written anew.
        """
        book, heads, kept = Book(), set[str](), None
        with self._looking(), self._file.rows(since=1) as rows:
            try:
                for link in links(rows):
                    book.add(*link)
                    heads.add(link.hash.hex())
                if not book.number:
                    raise Broken(1, "it is not there")
                if head is not None and head not in heads:
                    raise Broken(book.number + 1, "the head that was noted is not in the chain")
                kept = None if self._witness is None else self._witness.peek()
                _check_head(kept, book, heads)
                self._check_kept(book)
            except Broken as broken:
                found = book.number, book.head.hex(), broken.number, broken.why
                return ChainVerdict(*found, witnessed=kept is not None)
        return ChainVerdict(book.number, book.head.hex(), witnessed=kept is not None)

    def _check_kept(self, book: Book) -> None:
        replied = {slot.key.slot: slot for slot in book.slots if slot.replied is not None}
        for where in sorted(self._file.reply_slots()):
            slot = replied.get(where)
            if slot is None or slot.replied is None:
                raise Broken(book.number, "a reply is kept that no event is about")
            if self._file.reply_digest(where) != slot.replied.digest:
                raise Broken(slot.replied_at, "the reply kept with it was changed")
        kept = {dataset: digest(meter) for dataset, meter in self._file.meters()}
        if any(kept.get(dataset) != book.meter(dataset) for dataset in {*kept, *book.datasets}):
            raise Broken(book.number, "a kept meter is not the one that was committed")


def _check_head(kept: Head | None, book: Book, heads: set[str]) -> None:
    if kept is not None and (kept.ledger != book.ledger or kept.hash.hex() not in heads):
        raise Broken(book.number + 1, "the head in the head file is not in the chain")


def _text(path: str | PathLike) -> str:
    return path if isinstance(path, str) else path.__fspath__()
