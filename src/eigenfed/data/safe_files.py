"""Files that others wrote or are reading: strict JSON, atomic writes, bounded reads."""

import errno
import hashlib
import json
import math
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, NoReturn

from eigenfed.errors import InputError

_MOST_DIGITS = 19


def parse_strict_json(text: str) -> Any:
    """Parse JSON, and refuse what other programs may not be able to read.

    Raises
    ------
    ValueError
        If it is not JSON, is nested too deeply, or has NaN, infinity, an integer of more than 19
        digits or text that is not valid Unicode.

    Examples
    --------
    >>> parse_strict_json('{"a": [1, 2.5, null]}')
    {'a': [1, 2.5, None]}
    >>> for text in ("NaN", "1e999", "9" * 5000, "[" * 100_000, '"' + chr(92) + 'ud800"'):
    ...     try:
    ...         parse_strict_json(text)
    ...     except ValueError as error:
    ...         print(error)
    a number is not finite
    a number is not finite
    a number is too long
    it is nested too deeply
    a text is not valid Unicode
    """
    try:
        value = json.loads(
            text, parse_constant=_refuse, parse_float=_parse_float, parse_int=_parse_int
        )
        if "\\u" in text:
            # An escape can be half of a surrogate pair, which UTF-8 cannot encode.
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("a text is not valid Unicode") from None
    return value


def _refuse(_: str) -> NoReturn:
    raise ValueError("a number is not finite")


def _parse_float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("a number is not finite")
    return number


def _parse_int(digits: str) -> int:
    if len(digits.lstrip("-")) > _MOST_DIGITS:
        raise ValueError("a number is too long")
    return int(digits)


LARGEST_PART = 64 << 20


def check_writable(folder: Path) -> None:
    """Refuse a folder in which no file can be made.

    A command checks this before it begins: what it has read or paid for would be lost at its end.

    Raises
    ------
    InputError
    """
    if not folder.is_dir():
        raise InputError(f"Folder {folder} does not exist. Create it first.")
    probe = folder / f".new-{secrets.token_hex(4)}"
    try:
        # Permissions do not tell what mounts, quotas and lists of access forbid.
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        probe.unlink()
    except OSError as error:
        raise InputError(
            f"No file can be made in the folder {folder}: {error.strerror}. Name another folder, "
            "or check its permissions."
        ) from None


def write_at_once(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    """Write a file under a temporary name in the same folder, and rename it when it is complete.

    A reader of `path` finds either the old content or all of the new.

    Parameters
    ----------
    path : Path
    data : bytes
    mode : int, optional
        Who may read and write the file, within the process's mask.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_at_once(Path(folder, "summary"), b"whole")
    ...     [path.read_bytes() for path in Path(folder).iterdir()]
    [b'whole']
    """
    with _written_beside(path, data, mode) as new:
        new.replace(path)


def write_private(path: Path, data: bytes) -> None:
    """Write a new file that only its owner can read, or nothing.

    Half of a key, after a crash or on a full disk, could neither be used nor be replaced.

    Raises
    ------
    FileExistsError
        If there is a file, which is left as it is.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_private(Path(folder, "key"), b"secret")
    ...     [(path.read_bytes(), oct(path.stat().st_mode)) for path in Path(folder).iterdir()]
    [(b'secret', '0o100600')]
    """
    with _written_beside(path, data, 0o600) as new:
        os.link(new, path)  # a rename would replace a file that is there


@contextmanager
def _written_beside(path: Path, data: bytes, mode: int) -> Iterator[Path]:
    """Yield a complete file under a temporary name in the same folder, which is gone afterwards."""
    new = path.with_name(f".{path.name}.new-{secrets.token_hex(4)}")
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield new
    except OSError as error:
        # Nobody has heard of the temporary name.
        error.filename, error.filename2 = str(path), None
        raise
    finally:
        new.unlink(missing_ok=True)


def digest_part(path: Path) -> str:
    """Return the SHA-256 of a file of a result folder, of any size.

    Raises
    ------
    OSError
        If it cannot be read or is not a regular file.
    """
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_part(path: Path) -> bytes:
    """Read a file of a result folder, which need not be trusted.

    Raises
    ------
    OSError
        If it cannot be read, is not a regular file, or has more than 64 MB.

    Examples
    --------
    >>> read_part(Path("/dev/zero"))
    Traceback (most recent call last):
    OSError: [Errno 22] Invalid argument: '/dev/zero'
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST_PART:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(path))
        return file.read(size)


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file, without waiting for the writer of a pipe.

    Raises
    ------
    OSError
        If it cannot be opened or is not a regular file.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
    file = open(path, "rb", opener=lambda name, _: os.open(name, flags))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(path))
    return file
