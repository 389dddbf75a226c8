"""Where the parsed copy of a file is kept, so that text is parsed once and not once a round.

A copy holds the site's records. It lies beside the file, in a folder ``<file>.eigenfed`` that only
its owner can enter, or in a folder that the caller names; it goes nowhere else. A copy belongs to
one state of the file (path, size, times of change) and one choice of columns. It is built under
another name and renamed when it is whole and on the disk: a crash leaves no half copy that could
be taken for a whole one. `forget_cache` removes the copies of a file.
"""

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eigenfed.errors import DataError, InputError

VERSION = 1
_ENTRY = re.compile(r"[0-9a-f]{16}-[0-9a-f]{16}(\.part.*)?")


@dataclass(frozen=True)
class Slot:
    """The place of one parsed copy, there or not.

    Attributes
    ----------
    path : Path
        The file that is parsed.
    folder : Path
        All copies of the file.
    state, choice : str
        What the file was like, and what was asked of it.
    """

    path: Path
    folder: Path
    state: str
    choice: str

    @classmethod
    def of(cls, path: Path, wanted: Any, cache: str | os.PathLike[str] | None) -> "Slot":
        """Find the place for what is `wanted`, any value that JSON can write, of a file."""
        return cls(path, cache_folder(path, cache), _state(path), _digest(wanted))

    @property
    def place(self) -> Path:
        """The folder of this copy."""
        return self.folder / f"{self.state}-{self.choice}"

    @contextmanager
    def building(self) -> Iterator[Path]:
        """Give a folder to build the copy in; put it in place when the block ends well."""
        part = self._new_part()
        try:
            try:
                yield part
            except OSError as error:
                raise self._no_room(error) from None
            if _state(self.path) != self.state:
                raise DataError(
                    f"{self.path} changed while it was read. Read it when nobody writes to it."
                )
            self._put_in_place(part)
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def discard(self) -> None:
        """Remove this copy, which is not sound."""
        shutil.rmtree(self.place, ignore_errors=True)

    def _new_part(self) -> Path:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return Path(tempfile.mkdtemp(prefix=f"{self.place.name}.part", dir=self.folder))
        except OSError as error:
            raise self._no_room(error) from None

    def _no_room(self, error: OSError) -> InputError:
        return InputError(
            f"{self.path} is too large for memory, and its parsed copy cannot be written to "
            f"{self.folder}: {error.strerror or 'the disk refuses'}. Pass cache= a folder that "
            "can be written and has room."
        )

    def _put_in_place(self, part: Path) -> None:
        self._drop_outdated()
        try:
            part.rename(self.place)
        except OSError as error:
            # Another process may have built the same copy meanwhile: then that one serves.
            if not self.place.is_dir():
                raise self._no_room(error) from None

    def _drop_outdated(self) -> None:
        for entry in self.folder.iterdir():
            if _ENTRY.fullmatch(entry.name) and not entry.name.startswith(self.state):
                shutil.rmtree(entry, ignore_errors=True)


def cache_folder(path: Path, cache: str | os.PathLike[str] | None) -> Path:
    """Return the folder of all parsed copies of a file.

    Parameters
    ----------
    path : Path
    cache : path or None
        A folder for the copies of any files; None is beside the file.

    Examples
    --------
    >>> cache_folder(Path("a.csv"), None).name
    'a.csv.eigenfed'
    """
    whole = path.resolve()
    if cache is None:
        return whole.with_name(f"{whole.name}.eigenfed")
    return Path(cache) / f"{whole.name}.{_digest(str(whole))[:8]}.eigenfed"


def forget_cache(
    path: str | os.PathLike[str], *, cache: str | os.PathLike[str] | None = None
) -> int:
    """Remove the parsed copies of a file, whole or left over from a crash.

    Parameters
    ----------
    path : path
        The file; it need not be there any more.
    cache : path, optional
        The folder that `open_source` was given.

    Returns
    -------
    int
        How many copies were removed.

    Examples
    --------
    >>> forget_cache("never_read.csv")
    0
    """
    folder = cache_folder(Path(path), cache)
    if not folder.is_dir():
        return 0
    entries = [entry for entry in folder.iterdir() if _ENTRY.fullmatch(entry.name)]
    for entry in entries:
        shutil.rmtree(entry)
    with suppress(OSError):
        folder.rmdir()
    return len(entries)


def _state(path: Path) -> str:
    """Digest what changes when a file does: who sets one time of change moves the other."""
    told = path.stat()
    return _digest([VERSION, str(path.resolve()), told.st_size, told.st_mtime_ns, told.st_ctime_ns])


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]
