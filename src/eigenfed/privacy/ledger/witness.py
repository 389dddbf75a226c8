"""A ledger's head, kept in a file of its own: what shows that a ledger was put back or replaced.

The chain of hashes cannot tell an older copy of a ledger from the ledger. A second file can: small,
by default beside the first, with the ledger's identity and the number and hash of its last event.

- It is written after every event is on disk, and before the call that added the event returns. So
  whatever has left the site is covered.
- Before another event is added it is brought up to the last. So a crash leaves it at most one event
  behind the ledger, and never ahead.
- It never goes back.

In every transaction the ledger is compared with it, and with whatever file has the ledger's name
now. Whoever puts back both files at once is not found this way: place the head file on another
disk, or note the head elsewhere.
"""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

from eigenfed.errors import Refusal
from eigenfed.privacy.ledger.accounts import Book
from eigenfed.privacy.ledger.events import BEFORE_FIRST
from eigenfed.privacy.ledger.storage import Broken, connect, error_name, is_absent, refusing

_UPDATE = "UPDATE head SET ledger = ?, number = ?, hash = ? WHERE number < ?"
_TABLE = "CREATE TABLE IF NOT EXISTS head (ledger TEXT, number INTEGER, hash BLOB)"


class Head(NamedTuple):
    """Which ledger, and its last event."""

    ledger: str
    number: int
    hash: bytes


class Mismatch(Broken):
    """A ledger is not the one that its head file is about, or not all of it.

    Examples
    --------
    >>> print(Mismatch("l", "l.head", 9, "it is not there any more"))
    The ledger at l and its head in l.head do not go together: of event 9, it is not there any \
more. One of them was put back, replaced or removed. Nothing may leave. Find out by whom, restore \
the right file, and start again.
    """

    def __init__(self, path: str, witness: str, number: int, why: str) -> None:
        super().__init__(
            number,
            why,
            f"The ledger at {path} and its head in {witness} do not go together: of event "
            f"{number}, {why}. One of them was put back, replaced or removed. Nothing may leave. "
            "Find out by whom, restore the right file, and start again.",
        )


class Witness:
    """A head file.

    Parameters
    ----------
    path : str
    ledger : str
        Path of the ledger, whose mode the file gets.
    timeout_s : float

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     open(f"{folder}/l", "wb").close()
    ...     witness = Witness(f"{folder}/l.head", ledger=f"{folder}/l", timeout_s=1.0)
    ...     for number in (1, 2, 1):
    ...         witness.keep(Head("an id", number, bytes(32)))
    ...     witness.read().number
    2
    """

    def __init__(self, path: str, ledger: str, timeout_s: float) -> None:
        self.path = path
        self._ledger = ledger
        self._timeout_s = timeout_s

    def read(self, mode: str = "rw") -> Head | None:
        """Return the head, or None where there is none.

        Raises
        ------
        Broken
            If the file is something else.
        Refusal
            If it cannot be read.
        """
        with refusing(f"at {self.path}"):
            try:
                connection = connect(self.path, self._timeout_s, mode=mode)
            except sqlite3.Error as error:
                if is_absent(self.path, error):
                    return None
                raise
            with closing(connection):
                rows = _rows(connection)
        if not rows:
            return None
        if [tuple(map(type, row)) for row in rows] != [(str, int, bytes)]:
            raise Broken(1, "its head file is something else")
        return Head(*rows[0])

    def peek(self) -> Head | None:
        """Return the head if there is one that may be read, and leave the file as it is."""
        try:
            return self.read(mode="ro")
        except Refusal:
            return None

    def keep(self, head: Head) -> None:
        """Write a head that is further on than the one that is there; on disk when this returns.

        Raises
        ------
        Refusal
            If it cannot be written.
        """
        opened = {"mode": "rwc", "modeof": self._ledger}
        with (
            refusing(f"at {self.path}"),
            closing(connect(self.path, self._timeout_s, **opened)) as connection,
        ):
            connection.execute("PRAGMA synchronous = EXTRA")
            if not _rows(connection):
                _begin(connection, head)
            # Two small pages lie in one block of the disk, and whichever of them is written the
            # file is sound: a journal would cost time and save nothing.
            connection.execute("PRAGMA journal_mode = MEMORY")
            connection.execute(_UPDATE, (*head, head.number))


def _rows(connection: sqlite3.Connection) -> list[tuple[str, int, bytes]]:
    try:
        return connection.execute("SELECT ledger, number, hash FROM head").fetchall()
    except sqlite3.OperationalError as error:
        if error_name(error) != "SQLITE_ERROR":
            raise
        return []  # no table: nothing was ever committed here


def _begin(connection: sqlite3.Connection, head: Head) -> None:
    connection.execute("PRAGMA page_size = 512")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(_TABLE)
    connection.execute(
        "INSERT INTO head SELECT ?, ?, ? WHERE NOT EXISTS (SELECT * FROM head)", head
    )
    connection.execute("COMMIT")


class Last(NamedTuple):
    """A ledger's last event."""

    number: int = 0
    hash: bytes = BEFORE_FIRST


class Unguarded:
    """Lets everything pass: for a ledger in memory, or one that is only looked at."""

    def look(self) -> Last:
        """Find nothing."""
        return Last()

    def compare(self, book: Book, hash_of: Callable[[int], bytes | None], last: Last) -> None:
        """Compare with nothing."""

    def keep(self, book: Book) -> None:
        """Write nothing."""


class Guard(Unguarded):
    """Sees to it that a ledger is all of what it was, in every transaction.

    Parameters
    ----------
    path : str
        Of the ledger.
    witness : Witness
    timeout_s : float
    """

    def __init__(self, path: str, witness: Witness, timeout_s: float) -> None:
        self._path = path
        self._witness = witness
        self._timeout_s = timeout_s
        self._seen = Last()
        self._kept = 0

    def look(self) -> Last:
        """Return the last event of the file that has the ledger's name now.

        To be called before the ledger is locked: a reader that is let in and then wants to come
        in a second time would wait for the writer that waits for it to leave.

        Raises
        ------
        Mismatch
            If it has not all that was seen before.
        """
        with refusing(f"at {self._path}"):
            try:
                with closing(connect(self._path, self._timeout_s, mode="ro")) as connection:
                    sql = "SELECT number, hash FROM events ORDER BY number DESC LIMIT 1"
                    found = connection.execute(sql).fetchone()
            except sqlite3.Error as error:
                if is_absent(self._path, error):
                    raise self._mismatch(self._seen.number, "the file is gone") from error
                raise
        last = Last() if found is None else Last._make(found)
        if last != self._seen and last.number <= self._seen.number:
            raise self._mismatch(self._seen.number, "it was there before and is not any more")
        return last

    def compare(self, book: Book, hash_of: Callable[[int], bytes | None], last: Last) -> None:
        """Compare a ledger that is locked with what has its name, and with its head.

        Parameters
        ----------
        book : Book
            Of all its events.
        hash_of : callable
            Gives the hash of the event of a number.
        last : Last
            What `look` found.

        Raises
        ------
        Mismatch
            If they do not go together.
        """
        if last.number and hash_of(last.number) != last.hash:
            raise self._mismatch(last.number, "another file has the ledger's name")
        head = self._witness.read()
        if head is None:
            if self._kept or not book.may_lack_head:
                raise self._mismatch(book.number, "the head file is gone")
        else:
            self._check(head, book, hash_of)
            self._kept = head.number
        self._seen = Last(book.number, book.head)
        if book.version > 1:
            self.keep(book)

    def _check(self, head: Head, book: Book, hash_of: Callable[[int], bytes | None]) -> None:
        if head.ledger != book.ledger:
            raise self._mismatch(1, "the head is another ledger's")
        if hash_of(head.number) != head.hash:
            raise self._mismatch(head.number, "the head has it, and the ledger has not")
        if head.number < max(self._kept, book.number - 1):
            raise self._mismatch(head.number, "it was the last long ago, and the head has it still")

    def keep(self, book: Book) -> None:
        """Write the head of a ledger as it is on disk."""
        self._seen = Last(book.number, book.head)
        if book.number > self._kept:
            self._witness.keep(Head(book.ledger, *self._seen))
            self._kept = book.number

    def _mismatch(self, number: int, why: str) -> Mismatch:
        return Mismatch(self._path, self._witness.path, number, why)
