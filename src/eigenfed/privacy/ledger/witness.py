"""The head file, which reveals whether a ledger was rolled back, replaced or removed.

The hash chain cannot tell an older copy of a ledger from the current one. A second, small file can.
It has the ledger's identity and the number and hash of its last event, and is beside the ledger by
default.

- It is written after an event is on disk, and before the call that appended the event returns. So
  it covers everything that has left the site.
- Before another event is appended, it is brought up to date. So after a crash it is at most one
  event behind the ledger, and never ahead.
- Its number never decreases.

In every transaction the ledger is compared with it, and with the file that has the ledger's name at
that time. Rolling back both files together is not detected: place the head file on another disk, or
store the head elsewhere.
"""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

from eigenfed.errors import Refusal
from eigenfed.privacy.ledger.events import BEFORE_FIRST
from eigenfed.privacy.ledger.ledger_state import LedgerState
from eigenfed.privacy.ledger.storage import Broken, connect, error_name, is_absent, translate_errors

_UPDATE = "UPDATE head SET ledger = ?, number = ?, hash = ? WHERE number < ?"
_TABLE = "CREATE TABLE IF NOT EXISTS head (ledger TEXT, number INTEGER, hash BLOB)"


class Head(NamedTuple):
    """Identity of a ledger, and number and hash of its last event."""

    ledger: str
    number: int
    hash: bytes


class Mismatch(Broken):
    """A ledger does not match its head file.

    Examples
    --------
    >>> print(Mismatch("l", "l.head", 9, "it is missing"))
    The ledger at l does not match its head file l.head at event 9: it is missing. One of them \
was rolled back, replaced or removed. Nothing may leave. Find out by whom, restore the right file, \
and restart.
    """

    def __init__(self, path: str, witness: str, number: int, why: str) -> None:
        super().__init__(
            number,
            why,
            f"The ledger at {path} does not match its head file {witness} at event {number}: "
            f"{why}. One of them was rolled back, replaced or removed. Nothing may leave. Find out "
            "by whom, restore the right file, and restart.",
        )


class Witness:
    """A head file.

    Parameters
    ----------
    path : str
    ledger : str
        Path of the ledger; the head file gets its mode.
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
        """Return the head, or None if there is no head file.

        Raises
        ------
        Broken
            If the file is not a head file.
        Refusal
            If it cannot be read.
        """
        with translate_errors(f"at {self.path}"):
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
            raise Broken(1, "its head file is not a valid head file")
        return Head(*rows[0])

    def peek(self) -> Head | None:
        """Return the head if it exists and can be read, without writing to the file."""
        try:
            return self.read(mode="ro")
        except Refusal:
            return None

    def keep(self, head: Head) -> None:
        """Write a head, unless the file has a later one; on disk when this returns.

        Raises
        ------
        Refusal
            If it cannot be written.
        """
        opened = {"mode": "rwc", "modeof": self._ledger}
        with (
            translate_errors(f"at {self.path}"),
            closing(connect(self.path, self._timeout_s, **opened)) as connection,
        ):
            connection.execute("PRAGMA synchronous = EXTRA")
            if not _rows(connection):
                _begin(connection, head)
            # The two 512-byte pages lie in one block of the disk, and the file is valid whichever
            # of them is written: a journal would cost time without adding safety.
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
    """No protection: for a ledger in memory, or one that is only read."""

    def look(self) -> Last:
        """Return an empty ledger's last event."""
        return Last()

    def compare(
        self, state: LedgerState, hash_of: Callable[[int], bytes | None], last: Last
    ) -> None:
        """Do nothing."""

    def keep(self, state: LedgerState) -> None:
        """Do nothing."""


class Guard(Unguarded):
    """Checks in every transaction that a ledger still has all its events.

    Parameters
    ----------
    path : str
        Path of the ledger.
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

        It may be another file than the one that is open, if the ledger was renamed or deleted. To
        be called before the ledger is locked: a second read lock, requested while a writer waits
        for the first to be released, would be a deadlock.

        Raises
        ------
        Mismatch
            If it lacks an event that was seen before.
        """
        with translate_errors(f"at {self._path}"):
            try:
                with closing(connect(self._path, self._timeout_s, mode="ro")) as connection:
                    sql = "SELECT number, hash FROM events ORDER BY number DESC LIMIT 1"
                    found = connection.execute(sql).fetchone()
            except sqlite3.Error as error:
                if is_absent(self._path, error):
                    raise self._mismatch(self._seen.number, "the ledger is missing") from error
                raise
        last = Last() if found is None else Last._make(found)
        if last != self._seen and last.number <= self._seen.number:
            raise self._mismatch(self._seen.number, "it was present before and is missing now")
        return last

    def compare(
        self, state: LedgerState, hash_of: Callable[[int], bytes | None], last: Last
    ) -> None:
        """Compare a locked ledger with the file that has its name, and with its head file.

        Parameters
        ----------
        state : LedgerState
            The state after all its events.
        hash_of : callable
            Returns the hash of an event, given its number.
        last : Last
            The result of `look`.

        Raises
        ------
        Mismatch
            If they do not match.
        """
        if last.number and hash_of(last.number) != last.hash:
            raise self._mismatch(last.number, "another file has replaced the ledger")
        head = self._witness.read()
        if head is None:
            if self._kept or not state.may_lack_head:
                raise self._mismatch(state.number, "the head file is missing")
        else:
            self._check(head, state, hash_of)
            self._kept = head.number
        self._seen = Last(state.number, state.head)
        if state.version > 1:
            self.keep(state)

    def _check(
        self, head: Head, state: LedgerState, hash_of: Callable[[int], bytes | None]
    ) -> None:
        if head.ledger != state.ledger:
            raise self._mismatch(1, "the head file belongs to another ledger")
        if hash_of(head.number) != head.hash:
            raise self._mismatch(head.number, "it is in the head file but not in the ledger")
        if head.number < max(self._kept, state.number - 1):
            raise self._mismatch(head.number, "the head file is out of date")

    def keep(self, state: LedgerState) -> None:
        """Write the head file for the state on disk."""
        self._seen = Last(state.number, state.head)
        if state.number > self._kept:
            self._witness.keep(Head(state.ledger, *self._seen))
            self._kept = state.number

    def _mismatch(self, number: int, why: str) -> Mismatch:
        return Mismatch(self._path, self._witness.path, number, why)
