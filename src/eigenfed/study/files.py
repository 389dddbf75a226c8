"""Single files, written whole or not at all."""

import os
import secrets
from pathlib import Path


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
