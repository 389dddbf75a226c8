"""Single files, written whole or not at all, and read up to a length that they may have."""

import errno
import os
import secrets
import stat
from pathlib import Path

_LARGEST = 64 << 20


def write_at_once(path: Path, data: bytes) -> None:
    """Write a file beside the one that is wanted, and put it there when it is whole.

    Whoever reads `path` meanwhile finds what was there before, or all of what is new.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_at_once(Path(folder, "summary"), b"whole")
    ...     [path.read_bytes() for path in Path(folder).iterdir()]
    [b'whole']
    """
    new = path.with_name(f".{path.name}.new-{secrets.token_hex(4)}")
    try:
        with new.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def read_part(path: Path) -> bytes:
    """Read a file of a result, which may be somebody else's.

    Raises
    ------
    OSError
        If it cannot be read, is no plain file, or has more than 64 MB.

    Examples
    --------
    >>> read_part(Path("/dev/zero"))
    Traceback (most recent call last):
    OSError: [Errno 22] Invalid argument: '/dev/zero'
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
    with open(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode) or about.st_size > _LARGEST:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(path))
        return file.read(about.st_size)
