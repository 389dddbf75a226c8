"""How the files of a ledger are opened by SQLite, and how SQLite's errors are told."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from shlex import quote as quoted
from urllib.parse import quote

from eigenfed.errors import Refusal
from eigenfed.privacy.chain import Broken

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
