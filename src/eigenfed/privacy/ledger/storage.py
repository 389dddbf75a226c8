"""The chain of hashes that ties a ledger's events together, and what checking it can find.

A change, a removal, an insertion or a swap anywhere breaks the chain there or one event later.
Two things it cannot find by itself: events cut off at the end, and a chain written anew by
somebody who may write to the file. Both are found against a head that was noted elsewhere, as the
head file is (see `witness`): a ledger only grows, so every head it ever had stays in it.

How the files of a ledger are opened by SQLite, and how SQLite's errors are told.

A ledger's SQLite file: how it is made, recognised, locked and written.

The journal is SQLite's rollback journal with ``synchronous=EXTRA``: a transaction has reached the
disk, its directory entry included, before COMMIT returns, so that not even a power cut undoes it.
A write-ahead log would be faster, but leaves three files at rest, needs shared memory, and cannot
always be read from a read-only folder. Writers take their lock before they read (BEGIN IMMEDIATE),
so that what they decide on cannot change under them.

Events can be added and nothing else: triggers refuse to change or remove one, or to add one out of
turn. They stop accidents; the chain of hashes finds what goes past them.
"""

import hashlib
import sqlite3
import tempfile
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from shlex import quote as quoted
from typing import NamedTuple, Protocol
from urllib.parse import quote

from eigenfed.errors import DataError, Refusal
from eigenfed.privacy.ledger.events import BEFORE_FIRST, Event, Opened, chained


class Row(NamedTuple):
    """An event as it is stored."""

    number: int
    body: bytes
    hash: bytes


class Link(NamedTuple):
    """An event whose place in the chain was checked, and its hash."""

    event: Event
    hash: bytes


@dataclass(frozen=True)
class ChainVerdict:
    """What checking a ledger found.

    Attributes
    ----------
    events : int
        How many events are sound, from the first on.
    head : str
        Hash of the last of them, to be noted elsewhere.
    broken_at : int or None
        Number of the first event that is not.
    why : str
        Empty if all is sound.
    witnessed : bool
        Whether a head file was there to compare with.

    Examples
    --------
    >>> ChainVerdict(events=4, head="9b2c", broken_at=5, why="it was changed").text
    'Broken at event 5: it was changed.'
    """

    events: int
    head: str
    broken_at: int | None = None
    why: str = ""
    witnessed: bool = False

    @property
    def sound(self) -> bool:
        """Whether nothing was found."""
        return not self.why

    @property
    def text(self) -> str:
        """The verdict as a sentence."""
        if self.sound:
            return f"{self.events} events, sound, up to head {self.head}."
        return f"Broken at event {self.broken_at}: {self.why}."


class Broken(DataError):
    """The ledger is not what it was: nothing may leave until a person has acted.

    Attributes
    ----------
    number : int
        Of the first event that does not fit.
    why : str
    """

    def __init__(self, number: int, why: str, text: str = "") -> None:
        self.number = number
        self.why = why
        super().__init__(
            text
            or f"The ledger is broken at event {number}: {why}. Nothing may be spent on it. "
            "Restore the last copy that verifies, and find out who changed it."
        )


def links(rows: Iterable[Row], number: int = 0, head: bytes = BEFORE_FIRST) -> Iterator[Link]:
    """Check events in order, those that follow event `number` of hash `head`.

    Raises
    ------
    Broken
        At the first that does not fit.

    Examples
    --------
    >>> body = Event(1, "2026-11-15T12:00:00+00:00", Opened(1, "an id")).to_bytes()
    >>> row = Row(1, body, chained(BEFORE_FIRST, body))
    >>> [link.event.number for link in links([row])]
    [1]
    """
    for row in rows:
        number += 1
        if row.number != number:
            raise Broken(number, "it is not there")
        try:
            event = Event.from_bytes(row.body)
        except DataError as error:
            raise Broken(number, "its bytes are not those of an event") from error
        if event.number != number:
            raise Broken(number, f"it was written as event {event.number}")
        if chained(head, row.body) != row.hash:
            raise Broken(number, "it, or the event before it, was changed")
        if isinstance(event.what, Opened) != (number == 1):
            raise Broken(number, "a ledger opens with its first event and no other")
        head = row.hash
        yield Link(event, head)


def digest(data: bytes) -> str:
    """Return SHA-256 of what is kept beside the chain, as events hold it.

    Examples
    --------
    >>> digest(b"reply")[:8]
    '5782b186'
    """
    return hashlib.sha256(data).hexdigest()


_NOT_OURS = ("SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_ERROR")


class Missing(Refusal):
    """There is no ledger where one should be.

    Examples
    --------
    >>> str(Missing("/books/north.ledger"))
    'There is no ledger at /books/north.ledger. Check the path; a new ledger is begun with: \
eigenfed ledger create /books/north.ledger'
    """

    def __init__(self, path: str) -> None:
        super().__init__(
            "ledger",
            f"There is no ledger at {path}. Check the path; a new ledger is begun with: eigenfed "
            f"ledger create {quoted(path)}",
        )


def connect(path: str | None, timeout_s: float, **parameters: str) -> sqlite3.Connection:
    """Open a file, or a database in memory, that begins no transaction by itself.

    Parameters
    ----------
    path : str or None
    timeout_s : float
        How long to wait for another process that is writing.
    **parameters : str
        Of SQLite's address: ``mode="ro"``, ``modeof=...``.
    """
    asked = "&".join(f"{name}={quote(value)}" for name, value in parameters.items())
    uri = ":memory:" if path is None else f"file:{'//' * path.startswith('/')}{quote(path)}?{asked}"
    return sqlite3.connect(
        uri, uri=True, timeout=timeout_s, isolation_level=None, check_same_thread=False
    )


@contextmanager
def refusing(shown: str) -> Iterator[None]:
    """Tell SQLite's errors as ours: a file that is not sound is broken, any other one refuses.

    Parameters
    ----------
    shown : str
        Where the file is, for people.
    """
    try:
        yield
    except sqlite3.Error as error:
        name = error_name(error)
        if name.startswith(_NOT_OURS):
            why = f"the file is no sound SQLite file ({name})"
            text = (
                f"The file {shown} is no sound SQLite file ({name}). Pass the ledger's path, or "
                "restore the last copy that verifies."
            )
            raise Broken(1, why, text) from error
        raise Refusal(
            "ledger",
            f"The ledger {shown} cannot be used ({name}), so nothing may leave. See that it is "
            "there, that its folder is writable and not full, and that no other process holds it.",
        ) from error


def error_name(error: sqlite3.Error) -> str:
    """Return SQLite's own name of an error, or Python's where it has none."""
    return str(getattr(error, "sqlite_errorname", type(error).__name__))


def is_absent(path: str, error: sqlite3.Error) -> bool:
    """Say whether SQLite could not open a file because there is none.

    Only then is the file tried: closing one that SQLite holds too would end SQLite's locks.
    """
    if not error_name(error).startswith("SQLITE_CANTOPEN"):
        return False
    try:
        with open(path, "rb"):
            return False
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False


APPLICATION = 0x45464C47
VERSION = 2
_READ = (1, 2)
_PART_BYTES = 1 << 26
_SCHEMA = {
    "events": """CREATE TABLE events (
        number INTEGER PRIMARY KEY,
        body BLOB NOT NULL CHECK (typeof(body) = 'blob'),
        hash BLOB NOT NULL CHECK (typeof(hash) = 'blob' AND length(hash) = 32)
    )""",
    "replies": """CREATE TABLE replies (
        dataset TEXT, run TEXT, round INTEGER, part INTEGER, data BLOB NOT NULL,
        PRIMARY KEY (dataset, run, round, part)
    )""",
    "meters": "CREATE TABLE meters (dataset TEXT PRIMARY KEY, data BLOB NOT NULL)",
    "no_change": """CREATE TRIGGER no_change BEFORE UPDATE ON events
        BEGIN SELECT RAISE(ABORT, 'an event is never changed'); END""",
    "no_removal": """CREATE TRIGGER no_removal BEFORE DELETE ON events
        BEGIN SELECT RAISE(ABORT, 'an event is never removed'); END""",
    "in_turn": """CREATE TRIGGER in_turn BEFORE INSERT ON events
        WHEN NEW.number IS NOT (SELECT coalesce(max(number), 0) + 1 FROM events)
        BEGIN SELECT RAISE(ABORT, 'an event follows the last'); END""",
}


class PathLike(Protocol):
    """What can be turned into a path."""

    def __fspath__(self) -> str: ...


class LedgerFile:
    """Events, kept replies and kept meters in one SQLite file, or in memory.

    Parameters
    ----------
    path : str or None
    readonly : bool
    create : bool
        Whether to begin a ledger where there is none.
    timeout_s : float
        How long to wait for another process that is writing.

    Attributes
    ----------
    lock : RLock
        Held by the thread that is in a transaction.
    """

    def __init__(self, path: str | None, *, readonly: bool, create: bool, timeout_s: float) -> None:
        self._path = path
        self._shown = "in memory" if path is None else f"at {path}"
        self.lock = threading.RLock()
        self._readonly = readonly
        self._create = create or path is None
        with refusing(self._shown):
            self._connection = _connected(path, readonly, create, timeout_s)
            self.close = weakref.finalize(self, self._connection.close)
            for pragma in ("trusted_schema = OFF", "secure_delete = ON", "synchronous = EXTRA"):
                self._connection.execute(f"PRAGMA {pragma}")

    def recognised(self) -> bool:
        """Make the tables where there is nothing, or check that a ledger that we know is there.

        To be called inside a transaction.

        Returns
        -------
        bool
            False if there was nothing.

        Raises
        ------
        DataError
            If the file is something else.
        """
        schema = self._schema()
        if not (schema or self._pragma("application_id") or self._readonly):
            self._build()
            return False
        self._check_identity()
        (journal,) = self._connection.execute("PRAGMA journal_mode").fetchone()
        if schema != _SCHEMA or journal not in ("delete", "memory"):
            raise DataError(
                f"The tables or the journal of the ledger {self._shown} are not those of format "
                f"{VERSION}: somebody changed them. Restore the last copy that verifies."
            )
        if not self._readonly:
            self._connection.execute(f"PRAGMA user_version = {VERSION}")
        return True

    def _build(self) -> None:
        if not self._create:
            raise Missing(str(self._path))
        for statement in _SCHEMA.values():
            self._connection.execute(statement)
        self._connection.execute(f"PRAGMA application_id = {APPLICATION}")
        self._connection.execute(f"PRAGMA user_version = {VERSION}")

    def _check_identity(self) -> None:
        found = self._pragma("application_id"), self._pragma("user_version")
        if found[0] != APPLICATION:
            raise DataError(
                f"The file {self._shown} has the application id {found[0]:#x} and a ledger has "
                f"{APPLICATION:#x}. It belongs to another program; pass the ledger's path."
            )
        if found[1] not in _READ:
            raise DataError(
                f"The ledger {self._shown} has format {found[1]} and this release reads formats "
                f"{' and '.join(map(str, _READ))}. Use the release that wrote it."
            )

    def _schema(self) -> dict[str, str]:
        rows = self._connection.execute("SELECT name, sql FROM sqlite_master WHERE sql NOT NULL")
        return dict(rows.fetchall())

    def _pragma(self, name: str) -> int:
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[None]:
        """Run what is inside on one state of the file; all of it is kept, or nothing.

        Raises
        ------
        Refusal
            If the file cannot be read, locked or written.
        """
        if write and self._readonly:
            raise Refusal("ledger", f"The ledger {self._shown} was opened for reading only.")
        with self.lock, refusing(self._shown):
            self._connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                yield
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    @contextmanager
    def rows(self, since: int) -> Iterator[Iterator[Row]]:
        """Give the events from number `since` on, in order.

        A reader that is not closed holds its lock beyond the transaction.
        """
        sql = "SELECT number, body, hash FROM events WHERE number >= ? ORDER BY number"
        with closing(self._connection.execute(sql, (since,))) as cursor:
            yield map(Row._make, cursor)

    def hash_of(self, number: int) -> bytes | None:
        """Return the hash of an event, if it is there."""
        sql = "SELECT hash FROM events WHERE number = ?"
        found = self._connection.execute(sql, (number,)).fetchone()
        return None if found is None else bytes(found[0])

    def append(self, row: Row) -> None:
        """Add an event."""
        self._connection.execute("INSERT INTO events VALUES (?, ?, ?)", row)

    def keep_reply(self, slot: tuple[str, str, int], reply: bytes) -> None:
        """Store a reply, in parts that SQLite can hold."""
        view = memoryview(reply)
        for part, start in enumerate(range(0, len(reply), _PART_BYTES) or [0]):
            row = (*slot, part, view[start : start + _PART_BYTES])
            self._connection.execute("INSERT INTO replies VALUES (?, ?, ?, ?, ?)", row)

    def reply(self, slot: tuple[str, str, int]) -> bytes | None:
        """Return a stored reply, if there is one."""
        parts = list(self._parts(slot))
        return b"".join(parts) if parts else None

    def reply_digest(self, slot: tuple[str, str, int]) -> str | None:
        """Return SHA-256 of a stored reply without holding all of it."""
        digest, found = hashlib.sha256(), False
        for part in self._parts(slot):
            digest.update(part)
            found = True
        return digest.hexdigest() if found else None

    def _parts(self, slot: tuple[str, str, int]) -> Iterator[bytes]:
        where = "dataset = ? AND run = ? AND round = ?"
        sql = f"SELECT data FROM replies WHERE {where} ORDER BY part"
        return (bytes(data) for (data,) in self._connection.execute(sql, slot))

    def reply_slots(self) -> set[tuple[str, str, int]]:
        """Return the rounds whose replies are stored."""
        return set(self._connection.execute("SELECT DISTINCT dataset, run, round FROM replies"))

    def forget_replies(self, run: str, before: int | None) -> int:
        """Remove a run's stored replies, or those of its earlier rounds; say how many."""
        where = "WHERE run = ? AND round < coalesce(?, round + 1)"
        sql = f"SELECT count(*) FROM (SELECT DISTINCT dataset, round FROM replies {where})"
        (count,) = self._connection.execute(sql, (run, before)).fetchone()
        self._connection.execute(f"DELETE FROM replies {where}", (run, before))
        return int(count)

    def keep_meter(self, dataset: str, meter: bytes) -> None:
        """Store a data set's meter in place of the one before."""
        self._connection.execute("REPLACE INTO meters VALUES (?, ?)", (dataset, meter))

    def meters(self) -> Iterator[tuple[str, bytes]]:
        """Give every data set's stored meter."""
        yield from self._connection.execute("SELECT dataset, data FROM meters")

    def meter(self, dataset: str) -> bytes | None:
        """Return a data set's stored meter, if there is one."""
        sql = "SELECT data FROM meters WHERE dataset = ?"
        found = self._connection.execute(sql, (dataset,)).fetchone()
        return None if found is None else bytes(found[0])


def _connected(
    path: str | None, readonly: bool, create: bool, timeout_s: float
) -> sqlite3.Connection:
    if path is None:
        return connect(None, timeout_s)
    if readonly or not create:
        try:
            return connect(path, timeout_s, mode="ro" if readonly else "rw")
        except sqlite3.Error as error:
            if is_absent(path, error):
                raise Missing(path) from error
            raise
    # A new file gets the mode of a temporary one, 0600, and so do its journals. SQLite makes it
    # on the first read, which must come while the temporary file is there.
    with tempfile.NamedTemporaryFile() as private:
        connection = connect(path, timeout_s, mode="rwc", modeof=private.name)
        try:
            connection.execute("PRAGMA schema_version")
        except sqlite3.Error:
            connection.close()
            raise
    return connection
