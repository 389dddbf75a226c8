"""Events in a file, one after the other, tied together by hashes and folded into a book."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Self

from eigenfed.privacy.accounts import Book
from eigenfed.privacy.chain import Broken, Row, Verdict, digest, links
from eigenfed.privacy.events import Event, Opened, What, chained
from eigenfed.privacy.ledger_file import VERSION, LedgerFile, PathLike


def _now() -> datetime:
    return datetime.now(UTC)


class EventLog:
    """What a ledger is apart from its rules: events that are added, read and verified.

    Parameters
    ----------
    path : str, path or None
        The file, made with mode 0600 where there is none. None keeps everything in memory.
    readonly : bool, default=False
        Open for looking and verifying only; a broken ledger can be opened this way.
    create : bool, default=True
        Whether to begin a ledger where there is none. A site that has one should pass False: a
        mistyped path would count from zero.
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
        create: bool = True,
        timeout_s: float = 30.0,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        where = path if path is None or isinstance(path, str) else path.__fspath__()
        self._file = LedgerFile(where, readonly=readonly, create=create, timeout_s=timeout_s)
        self._clock = clock
        self._book = Book()
        try:
            self._begin(readonly)
        except BaseException:
            self.close()
            raise

    def _begin(self, readonly: bool) -> None:
        with self._file.transaction(write=not readonly):
            if not self._file.recognised():
                self._append(Opened(VERSION, secrets.token_hex(16)))
            elif not readonly:
                self._catch_up()

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
        """Give the book as the file stands, and keep both together or change neither."""
        with self._file.lock:
            try:
                with self._file.transaction(write=write):
                    self._catch_up()
                    yield self._book
            except BaseException:
                if write:  # the book may hold what the file does not: read it anew
                    self._book = Book()
                raise

    def _catch_up(self) -> None:
        """Take in what any process has written since; what was seen before must still be there."""
        book = self._book
        rows = self._file.rows(since=max(book.number, 1))
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
        with self._file.transaction(write=False):
            return tuple(link.event for link in links(self._file.rows(since=1)))

    @property
    def head(self) -> str:
        """Hash of the last event. Noted elsewhere, it lets `verify` find a cut end."""
        with self._transaction(write=False) as book:
            return book.head.hex()

    def verify(self, head: str | None = None) -> Verdict:
        """Check every event, kept reply and kept meter.

        Parameters
        ----------
        head : str, optional
            A head that this ledger had at some time. Only against one can it be found that the
            last events were cut off, or that all of the chain was written anew.
        """
        book, heads = Book(), set()
        with self._file.transaction(write=False):
            try:
                for link in links(self._file.rows(since=1)):
                    book.add(*link)
                    heads.add(link.hash.hex())
                if not book.number:
                    raise Broken(1, "it is not there")
                if head is not None and head not in heads:
                    raise Broken(book.number + 1, "the head that was noted is not in the chain")
                self._check_kept(book)
            except Broken as broken:
                return Verdict(book.number, book.head.hex(), broken.number, broken.why)
        return Verdict(book.number, book.head.hex())

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
