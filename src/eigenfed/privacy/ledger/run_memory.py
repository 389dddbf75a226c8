"""What a site must remember of open runs in order to go on after a restart.

The state of a run at a site follows from its rows, from the requests that it has answered, and from
one secret, from which all keys of secure aggregation are derived. Requests and secret are written
in the transaction that records the reply, so that the two never disagree, and are deleted when the
run ends (SQLite overwrites them, with ``secure_delete``). Nothing computed from rows is stored.
"""

import sqlite3
from dataclasses import dataclass

TABLE = """CREATE TABLE memory (
        dataset TEXT, run TEXT, round INTEGER, part INTEGER, data BLOB NOT NULL,
        PRIMARY KEY (dataset, run, round, part)
    )"""
_SECRET, _OPENING = -2, -1
_PART_BYTES = 1 << 26


@dataclass(frozen=True, repr=False)
class RememberedRun:
    """An open run, as it was before a restart.

    Attributes
    ----------
    opening : bytes
        The message that opened it.
    secret : bytes
        The secret from which keys are derived.
    requests : tuple of bytes
        The requests that were answered, in order.
    """

    opening: bytes
    secret: bytes
    requests: tuple[bytes, ...]


class RunMemory:
    """The table of a ledger file that remembers open runs.

    Parameters
    ----------
    connection : sqlite3.Connection
        Of the ledger file; all calls belong into one of its transactions.

    Examples
    --------
    >>> connection = sqlite3.connect(":memory:")
    >>> _ = connection.execute(TABLE)
    >>> memory = RunMemory(connection)
    >>> memory.open("cohort", "run 1", b"opening", b"secret")
    >>> memory.add("cohort", "run 1", 0, b"first request")
    >>> memory.find("cohort", "run 1").requests
    (b'first request',)
    >>> memory.forget("cohort", "run 1")
    >>> memory.find("cohort", "run 1") is None
    True
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def open(self, dataset: str, run: str, opening: bytes, secret: bytes) -> None:
        """Remember that a run was opened."""
        self.add(dataset, run, _OPENING, opening)
        self.add(dataset, run, _SECRET, secret)

    def add(self, dataset: str, run: str, round_: int, data: bytes) -> None:
        """Remember a request of a run, in parts below SQLite's size limit."""
        view = memoryview(data)
        for part, start in enumerate(range(0, len(data), _PART_BYTES) or [0]):
            row = (dataset, run, round_, part, view[start : start + _PART_BYTES])
            self._connection.execute("INSERT INTO memory VALUES (?, ?, ?, ?, ?)", row)

    def find(self, dataset: str, run: str) -> RememberedRun | None:
        """Return a run, if it is remembered."""
        sql = "SELECT round, data FROM memory WHERE dataset = ? AND run = ? ORDER BY round, part"
        parts: dict[int, list[bytes]] = {}
        for round_, data in self._connection.execute(sql, (dataset, run)):
            parts.setdefault(round_, []).append(bytes(data))
        if _OPENING not in parts or _SECRET not in parts:
            return None
        whole = {round_: b"".join(data) for round_, data in parts.items()}
        requests = tuple(data for round_, data in whole.items() if round_ >= 0)
        return RememberedRun(whole[_OPENING], whole[_SECRET], requests)

    def runs(self, dataset: str) -> tuple[str, ...]:
        """Return the names of the remembered runs on a data set, sorted."""
        sql = "SELECT DISTINCT run FROM memory WHERE dataset = ? ORDER BY run"
        return tuple(run for (run,) in self._connection.execute(sql, (dataset,)))

    def forget(self, dataset: str, run: str) -> None:
        """Delete all that is remembered of a run."""
        self._connection.execute("DELETE FROM memory WHERE dataset = ? AND run = ?", (dataset, run))
