"""The SQLite file of a ledger: the hash chain, error translation, and durable storage.

**Chain.** Events are linked by hashes. Changing, removing, inserting or swapping events breaks the
chain there or one event later. The chain alone does not detect events removed at the end, or a
whole chain rewritten by somebody with write access. Both are detected against a head stored
elsewhere, such as the head file (see `witness`): a ledger only grows, so every head it ever had
stays in it.

**Durability.** The journal is SQLite's rollback journal with ``synchronous=EXTRA``: a transaction
is on disk, including its directory entry, before COMMIT returns, so that not even a power failure
undoes it. A write-ahead log would be faster, but leaves three files at rest, needs shared memory,
and cannot always be read from a read-only folder. Writers take their lock before they read (BEGIN
IMMEDIATE), so that the state they decide on cannot change meanwhile.

**Append-only.** Triggers refuse to change or delete an event, or to insert one out of order. They
prevent accidents; the hash chain detects what bypasses them.
"""

import hashlib
import sqlite3
import tempfile
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from shlex import quote as quote_for_shell
from typing import NamedTuple, Protocol
from urllib.parse import quote

from eigenfed.errors import DataError, Refusal
from eigenfed.privacy.ledger.events import BEFORE_FIRST, Event, Opened, chain_hash
from eigenfed.privacy.ledger.run_memory import TABLE, RunMemory


class Row(NamedTuple):
    """An event as stored in the file."""

    number: int
    body: bytes
    hash: bytes


class Link(NamedTuple):
    """An event whose place in the chain was verified, and its hash."""

    event: Event
    hash: bytes


@dataclass(frozen=True)
class ChainVerdict:
    """The result of verifying a ledger.

    Attributes
    ----------
    events : int
        Number of intact events, from the first on.
    head : str
        Hash of the last of them, to be stored elsewhere.
    broken_at : int or None
        Number of the first event that is not intact.
    why : str
        The defect; empty if the ledger is intact.
    witnessed : bool
        Whether it was compared with a head file.

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
    def intact(self) -> bool:
        """Whether the ledger is intact."""
        return not self.why

    @property
    def text(self) -> str:
        """The verdict as a sentence."""
        if self.intact:
            return f"{self.events} events, intact, up to head {self.head}."
        return f"Broken at event {self.broken_at}: {self.why}."


class Broken(DataError):
    """The ledger was damaged or altered: nothing may leave until a person has restored it.

    Attributes
    ----------
    number : int
        Number of the first defective event.
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


def verify_chain(
    rows: Iterable[Row], number: int = 0, head: bytes = BEFORE_FIRST
) -> Iterator[Link]:
    """Verify events in order, beginning after event `number` with hash `head`, and yield them.

    Raises
    ------
    Broken
        At the first defective event.

    Examples
    --------
    >>> body = Event(1, "2026-11-15T12:00:00+00:00", Opened(1, "an id")).to_bytes()
    >>> row = Row(1, body, chain_hash(BEFORE_FIRST, body))
    >>> [link.event.number for link in verify_chain([row])]
    [1]
    """
    for row in rows:
        number += 1
        if row.number != number:
            raise Broken(number, "it is missing")
        try:
            event = Event.from_bytes(row.body)
        except DataError as error:
            raise Broken(number, "its bytes are not a valid event") from error
        if event.number != number:
            raise Broken(number, f"it was written as event {event.number}")
        if chain_hash(head, row.body) != row.hash:
            raise Broken(number, "it, or the event before it, was changed")
        if isinstance(event.what, Opened) != (number == 1):
            raise Broken(number, "only the first event may create a ledger")
        head = row.hash
        yield Link(event, head)


def digest(data: bytes) -> str:
    """Return the SHA-256 of a stored reply or meter, in hexadecimal, as events record it.

    Examples
    --------
    >>> digest(b"reply")[:8]
    '5782b186'
    """
    return hashlib.sha256(data).hexdigest()


_NOT_OURS = ("SQLITE_NOTADB", "SQLITE_CORRUPT", "SQLITE_ERROR")


class Missing(Refusal):
    """There is no ledger at the given path.

    Examples
    --------
    >>> str(Missing("/books/north.ledger"))
    'There is no ledger at /books/north.ledger. Check the path; a new ledger is created with: \
eigenfed ledger create /books/north.ledger'
    """

    def __init__(self, path: str) -> None:
        super().__init__(
            "ledger",
            f"There is no ledger at {path}. Check the path; a new ledger is created with: "
            f"eigenfed ledger create {quote_for_shell(path)}",
        )


def connect(path: str | None, timeout_s: float, **parameters: str) -> sqlite3.Connection:
    """Open an SQLite file, or a database in memory, without implicit transactions.

    Parameters
    ----------
    path : str or None
    timeout_s : float
        How long to wait for another process that is writing.
    **parameters : str
        Query parameters of the SQLite URI: ``mode="ro"``, ``modeof=...``.
    """
    query = "&".join(f"{name}={quote(value)}" for name, value in parameters.items())
    uri = ":memory:" if path is None else f"file:{'//' * path.startswith('/')}{quote(path)}?{query}"
    return sqlite3.connect(
        uri, uri=True, timeout=timeout_s, isolation_level=None, check_same_thread=False
    )


@contextmanager
def translate_errors(shown: str) -> Iterator[None]:
    """Translate SQLite's errors: `Broken` for an invalid file, `Refusal` for any other.

    Parameters
    ----------
    shown : str
        Location of the file, for the message.
    """
    try:
        yield
    except sqlite3.Error as error:
        name = error_name(error)
        if name.startswith(_NOT_OURS):
            why = f"the file is not a valid SQLite file ({name})"
            text = (
                f"The file {shown} is not a valid SQLite file ({name}). Pass the ledger's path, or "
                "restore the last copy that verifies."
            )
            raise Broken(1, why, text) from error
        raise Refusal(
            "ledger",
            f"The ledger {shown} cannot be used ({name}), so nothing may leave. Check that it "
            "exists, that its folder is writable and not full, and that no other process locks it.",
        ) from error


def error_name(error: sqlite3.Error) -> str:
    """Return SQLite's name of an error, or the Python class if it has none."""
    return str(getattr(error, "sqlite_errorname", type(error).__name__))


def is_absent(path: str, error: sqlite3.Error) -> bool:
    """Return whether SQLite could not open a file because it does not exist.

    The file is opened only after SQLite failed to: closing a file that SQLite has open in the same
    process would release SQLite's POSIX locks.
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
VERSION = 3
_READ = (1, 2, 3)
_FIRST_WITH_MEMORY = 3
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
    "memory": TABLE,
}


class PathLike(Protocol):
    """An object with a file system path."""

    def __fspath__(self) -> str: ...


class LedgerFile:
    """Events, stored replies and stored meters in one SQLite file, or in memory.

    Parameters
    ----------
    path : str or None
    readonly : bool
    create : bool
        Whether to create a ledger if there is none.
    timeout_s : float
        How long to wait for another process that is writing.

    Attributes
    ----------
    lock : RLock
        Held by the thread that is in a transaction.
    memory : RunMemory
        What is remembered of open runs.
    """

    def __init__(self, path: str | None, *, readonly: bool, create: bool, timeout_s: float) -> None:
        self._path = path
        self._shown = "in memory" if path is None else f"at {path}"
        self.lock = threading.RLock()
        self._readonly = readonly
        self._create = create or path is None
        with translate_errors(self._shown):
            self._connection = _open_connection(path, readonly, create, timeout_s)
            self.close = weakref.finalize(self, self._connection.close)
            for pragma in ("trusted_schema = OFF", "secure_delete = ON", "synchronous = EXTRA"):
                self._connection.execute(f"PRAGMA {pragma}")
        self.memory = RunMemory(self._connection)

    def recognise(self) -> bool:
        """Create the tables in an empty file, or check that the file is a ledger we can read.

        To be called inside a transaction.

        Returns
        -------
        bool
            False if the file was empty.

        Raises
        ------
        DataError
            If the file is not a ledger that this release reads.
        """
        schema = self._schema()
        if not (schema or self._pragma("application_id") or self._readonly):
            self._build()
            return False
        version = self._check_identity()
        (journal,) = self._connection.execute("PRAGMA journal_mode").fetchone()
        expected = {name: sql for name, sql in _SCHEMA.items() if name != "memory"}
        expected = _SCHEMA if version >= _FIRST_WITH_MEMORY else expected
        if schema != expected or journal not in ("delete", "memory"):
            raise DataError(
                f"The tables or the journal of the ledger {self._shown} are not those of format "
                f"{version}: they were changed. Restore the last copy that verifies."
            )
        if not self._readonly:
            for name in _SCHEMA.keys() - expected.keys():
                self._connection.execute(_SCHEMA[name])
            self._connection.execute(f"PRAGMA user_version = {VERSION}")
        return True

    def _build(self) -> None:
        if not self._create:
            raise Missing(str(self._path))
        for statement in _SCHEMA.values():
            self._connection.execute(statement)
        self._connection.execute(f"PRAGMA application_id = {APPLICATION}")
        self._connection.execute(f"PRAGMA user_version = {VERSION}")

    def _check_identity(self) -> int:
        found = self._pragma("application_id"), self._pragma("user_version")
        if found[0] != APPLICATION:
            raise DataError(
                f"The file {self._shown} has the application id {found[0]:#x} and a ledger has "
                f"{APPLICATION:#x}. It belongs to another program; pass the ledger's path."
            )
        if found[1] not in _READ:
            raise DataError(
                f"The ledger {self._shown} has format {found[1]} and this release reads formats "
                f"{', '.join(map(str, _READ))}. Use the release that wrote it."
            )
        return found[1]

    def _schema(self) -> dict[str, str]:
        rows = self._connection.execute("SELECT name, sql FROM sqlite_master WHERE sql NOT NULL")
        return dict(rows.fetchall())

    def _pragma(self, name: str) -> int:
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[None]:
        """Run the body on a consistent state of the file, and commit all of it or nothing.

        Raises
        ------
        Refusal
            If the file cannot be read, locked or written.
        """
        if write and self._readonly:
            raise Refusal("ledger", f"The ledger {self._shown} was opened for reading only.")
        with self.lock, translate_errors(self._shown):
            self._connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            try:
                yield
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    @contextmanager
    def rows(self, since: int) -> Iterator[Iterator[Row]]:
        """Yield an iterator over the events from number `since` on, in order.

        It is a context manager because an open cursor would hold its lock beyond the transaction.
        """
        sql = "SELECT number, body, hash FROM events WHERE number >= ? ORDER BY number"
        with closing(self._connection.execute(sql, (since,))) as cursor:
            yield map(Row._make, cursor)

    def hash_of(self, number: int) -> bytes | None:
        """Return the hash of an event, if it exists."""
        sql = "SELECT hash FROM events WHERE number = ?"
        found = self._connection.execute(sql, (number,)).fetchone()
        return None if found is None else bytes(found[0])

    def append(self, row: Row) -> None:
        """Append an event."""
        self._connection.execute("INSERT INTO events VALUES (?, ?, ?)", row)

    def keep_reply(self, slot: tuple[str, str, int], reply: bytes) -> None:
        """Store a reply, in parts below SQLite's size limit."""
        view = memoryview(reply)
        for part, start in enumerate(range(0, len(reply), _PART_BYTES) or [0]):
            row = (*slot, part, view[start : start + _PART_BYTES])
            self._connection.execute("INSERT INTO replies VALUES (?, ?, ?, ?, ?)", row)

    def reply(self, slot: tuple[str, str, int]) -> bytes | None:
        """Return a stored reply, if there is one."""
        parts = list(self._parts(slot))
        return b"".join(parts) if parts else None

    def reply_digest(self, slot: tuple[str, str, int]) -> str | None:
        """Return the SHA-256 of a stored reply without loading all of it."""
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
        """Delete a run's stored replies, or those of its earlier rounds; return how many."""
        where = "WHERE run = ? AND round < coalesce(?, round + 1)"
        sql = f"SELECT count(*) FROM (SELECT DISTINCT dataset, round FROM replies {where})"
        (count,) = self._connection.execute(sql, (run, before)).fetchone()
        self._connection.execute(f"DELETE FROM replies {where}", (run, before))
        return int(count)

    def keep_meter(self, dataset: str, meter: bytes) -> None:
        """Store a data set's meter, replacing the previous one."""
        self._connection.execute("REPLACE INTO meters VALUES (?, ?)", (dataset, meter))

    def meters(self) -> Iterator[tuple[str, bytes]]:
        """Yield the stored meter of every data set."""
        yield from self._connection.execute("SELECT dataset, data FROM meters")

    def meter(self, dataset: str) -> bytes | None:
        """Return a data set's stored meter, if there is one."""
        sql = "SELECT data FROM meters WHERE dataset = ?"
        found = self._connection.execute(sql, (dataset,)).fetchone()
        return None if found is None else bytes(found[0])


def _open_connection(
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
    # modeof: a new file gets the mode of a temporary one, 0600, and so do its journals. SQLite
    # creates it on the first read, which must happen while the temporary file exists.
    with tempfile.NamedTemporaryFile() as private:
        connection = connect(path, timeout_s, mode="rwc", modeof=private.name)
        try:
            connection.execute("PRAGMA schema_version")
        except sqlite3.Error:
            connection.close()
            raise
    return connection
