"""Parsed copies of files, so that text is parsed once and not once a round.

Rows that fit into 64 MB stay in memory. Larger tables are written, as they are parsed, to a copy
that is memory-mapped. The copy lies beside the file, in a folder ``<file>.eigenfed`` that only its
owner can enter, or in a folder that the caller names. It belongs to one state of the file (path,
size, times of change) and one choice of columns. It is built under a temporary name and renamed
when it is complete and on disk: a crash leaves no partial copy that could pass for a complete one.
`forget_cache` removes the copies of a file.

Where no copy is to be kept, or none can be (a read-only folder), rows stay in memory if they fit
into a third of what is available, and otherwise go to a temporary copy that is deleted as soon as
it is mapped.
"""

import hashlib
import json
import os
import re
import shutil
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from eigenfed.data.copy_files import VERSION, map_copy, read_row_ids, write_copy
from eigenfed.data.dialect import looks_like_value
from eigenfed.data.source import Block, StoredRows
from eigenfed.errors import DataError, InputError, Pass

_ENTRY = re.compile(r"[0-9a-f]{16}-[0-9a-f]{16}(\.part.*)?")


@dataclass(frozen=True)
class CacheSlot:
    """Where one parsed copy of a file is, or would be.

    Attributes
    ----------
    path : Path
        The file.
    folder : Path
        The folder of all of its copies.
    state, choice : str
        Digests of the state of the file and of the options it is read with.
    is_stated : bool
        Whether the caller named the folder.
    """

    path: Path
    folder: Path
    state: str
    choice: str
    is_stated: bool = False

    @classmethod
    def of(cls, path: Path, wanted: Any, cache: str | os.PathLike[str] | None) -> "CacheSlot":
        """Return the slot for a file read with the options `wanted`, any JSON value."""
        folder, state = cache_folder(path, cache), _digest_state(path)
        return cls(path, folder, state, _digest(wanted), cache is not None)

    @property
    def place(self) -> Path:
        """The folder of this copy."""
        return self.folder / f"{self.state}-{self.choice}"

    def start(self) -> Path | None:
        """Return a temporary folder for the copy; None if the folder beside the file is read-only.

        Raises
        ------
        InputError
            If a folder that the caller named cannot be written.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return Path(tempfile.mkdtemp(prefix=f"{self.place.name}.part", dir=self.folder))
        except OSError as error:
            if self.is_stated:
                raise self.write_error(error) from None
            return None

    @contextmanager
    def build(self, part: Path) -> Iterator[Path]:
        """Yield the folder from `start`, and put it in place if no exception is raised."""
        try:
            try:
                yield part
            except OSError as error:
                raise self.write_error(error) from None
            self.check_state()
            self._put_in_place(part)
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def check_state(self) -> None:
        """Raise DataError if the file is no longer the one that the slot is for."""
        if _digest_state(self.path) != self.state:
            raise DataError(
                f"{self.path} changed while it was read. Read it when nobody writes to it."
            )

    def discard(self) -> None:
        """Remove this copy, which is damaged."""
        shutil.rmtree(self.place, ignore_errors=True)

    def write_error(self, error: OSError) -> InputError:
        """Return the error for a copy that cannot be written."""
        return InputError(
            f"{self.path} is large, and its parsed copy cannot be written to {self.folder}: "
            f"{error.strerror or 'input/output error'}",
            remedy=(Pass("cache", ...), ", a folder that can be written and has room."),
        )

    def _put_in_place(self, part: Path) -> None:
        self._drop_outdated()
        try:
            part.rename(self.place)
        except OSError as error:
            # Another process may have built the same copy meanwhile, which is then used.
            if not self.place.is_dir():
                raise self.write_error(error) from None

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
        A folder for the copies of any files; None for a folder beside the file.

    Examples
    --------
    >>> cache_folder(Path("a.csv"), None).name
    'a.csv.eigenfed'
    """
    full = path.resolve()
    if cache is None:
        return full.with_name(f"{full.name}.eigenfed")
    return Path(cache) / f"{full.name}.{_digest(str(full))[:8]}.eigenfed"


def forget_cache(
    path: str | os.PathLike[str], *, cache: str | os.PathLike[str] | None = None
) -> int:
    """Remove the parsed copies of a file, also those left over from a crash.

    Parameters
    ----------
    path : path
        The file, which need not exist any more.
    cache : path, optional
        The folder passed to `open_table`.

    Returns
    -------
    int
        Number of copies removed.

    Examples
    --------
    >>> forget_cache("never_read.csv")
    0
    """
    entries = find_copies(path, cache=cache)
    for entry in entries:
        shutil.rmtree(entry)
    with suppress(OSError):
        cache_folder(Path(path), cache).rmdir()
    return len(entries)


def find_copies(
    path: str | os.PathLike[str], *, cache: str | os.PathLike[str] | None = None
) -> list[Path]:
    """Return the folders of the parsed copies of a file, also those left over from a crash."""
    folder = cache_folder(Path(path), cache)
    if not folder.is_dir():
        return []
    return sorted(entry for entry in folder.iterdir() if _ENTRY.fullmatch(entry.name))


def _digest_state(path: Path) -> str:
    """Digest what changes with a file. Setting mtime by hand still changes ctime."""
    status = path.stat()
    return _digest(
        [VERSION, str(path.resolve()), status.st_size, status.st_mtime_ns, status.st_ctime_ns]
    )


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


_SMALL_BYTES = 64 << 20
"""Size of a table up to which its rows are held in memory."""


def is_small(size: int) -> bool:
    """Return whether a table of so many bytes is held in memory and has no copy on disk."""
    return size <= _SMALL_BYTES


def store_blocks(
    blocks: Iterable[Block],
    slot: CacheSlot,
    names: Sequence[str] | None,
    *,
    keep: bool = True,
    may_be_empty: bool = False,
) -> StoredRows:
    """Join blocks in memory, or beyond 64 MB in the slot's folder.

    Parameters
    ----------
    blocks : iterable of Block
        All dense and of one width, or all sparse; the table is as wide as the widest.
    slot : CacheSlot
    names : sequence of str or None
        Names of the columns, for messages.
    keep : bool, default=True
        Whether a copy on disk stays there.
    may_be_empty : bool, default=False
        Whether there may be no rows, but only a block that has none.

    Raises
    ------
    DataError
        If there are no rows, or some entry is infinite.
    """
    checked = _check_blocks(blocks, slot.path, names)
    held, is_small = _take_blocks(checked, _SMALL_BYTES)
    if not held or not (held[0].rows.shape[0] or may_be_empty):
        raise DataError(f"{slot.path} has no rows. Pass a file with records.")
    if is_small:
        return _join(held)
    part = slot.start() if keep else None
    if part is None:
        return _store_briefly(held, checked, slot)
    with slot.build(part) as folder:
        write_copy(folder, chain(_drain(held), checked))
    stored = load_copy(slot)
    if stored is None:
        raise DataError(f"The parsed copy of {slot.path} was changed. Read it again.")
    return stored


def _take_blocks(blocks: Iterator[Block], limit: int) -> tuple[list[Block], bool]:
    """Return blocks up to the first that exceeds the limit, and whether none does."""
    held, size = [], 0
    for block in blocks:
        held.append(block)
        size += _count_bytes(block)
        if size > limit:
            return held, False
    return held, True


def _store_briefly(held: list[Block], blocks: Iterator[Block], slot: CacheSlot) -> StoredRows:
    """Join blocks in memory if they fit, or else in files that are gone once they are mapped."""
    # Joining them takes as much again.
    room = find_spare_bytes() // 3 - sum(map(_count_bytes, held))
    more, fits = _take_blocks(blocks, room) if room >= 0 else ([], False)
    held += more
    if fits:
        return _join(held)
    try:
        part = (slot.start() if slot.is_stated else None) or Path(
            tempfile.mkdtemp(prefix="eigenfed-")
        )
    except OSError as error:
        raise slot.write_error(error) from None
    try:
        write_copy(part, chain(_drain(held), blocks))
        return _load_ids(map_copy(part))
    except OSError as error:
        raise slot.write_error(error) from None
    finally:
        # What is mapped stays readable after its files are deleted.
        shutil.rmtree(part, ignore_errors=True)
        if slot.is_stated:
            with suppress(OSError):
                slot.folder.rmdir()


def _load_ids(stored: StoredRows) -> StoredRows:
    ids = read_row_ids(stored.ids) if isinstance(stored.ids, Path) else stored.ids
    return StoredRows(stored.X, ids, None)


def take_copy(slot: CacheSlot, stored: StoredRows) -> StoredRows:
    """Delete the copy that rows are mapped from; they stay readable."""
    if stored.place is None:
        return stored
    loaded = _load_ids(stored)
    slot.discard()
    with suppress(OSError):
        slot.folder.rmdir()
    return loaded


def find_spare_bytes() -> int:
    """Return how much memory this process can still have, as far as the system tells."""
    found = [1 << 62]
    with suppress(OSError, ValueError, IndexError):
        fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        found.append(int(fields["MemAvailable"].split()[0]) << 10)
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        most = int((group / "memory.max").read_text())
        found.append(most - int((group / "memory.current").read_text()))
    if len(found) == 1:
        with suppress(OSError, ValueError, AttributeError):
            found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
    return max(0, min(found)) if len(found) > 1 else 0


def load_copy(slot: CacheSlot) -> StoredRows | None:
    """Return the copy in a slot; None if there is none, or a damaged one, which is removed."""
    if not slot.place.is_dir():
        return None
    try:
        return map_copy(slot.place)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        slot.discard()
        return None
    except OSError as error:
        raise InputError(
            f"The parsed copy of {slot.path} in {slot.place} cannot be mapped: {error.strerror}. "
            "Allow this process more address space and open files."
        ) from None


def check_unique(blocks: Iterable[Block], path: Path, column: str) -> Iterator[Block]:
    """Yield blocks, and refuse the file at its end if two rows have the same id.

    Memory is 16 bytes for each row, whatever the length of its id, and 8 more if rows are left out.
    """
    digests, places = array("Q"), array("Q")
    for block in blocks:
        if block.places is not None:
            places.extend(block.places.tolist())
        for row_id in block.ids or ():
            digests.frombytes(blake2b(row_id.encode(), digest_size=16).digest())
        yield block
    halves = np.frombuffer(digests, np.uint64).reshape(-1, 2)
    order = np.lexsort(halves.T)
    repeated = np.flatnonzero((halves[order[1:]] == halves[order[:-1]]).all(axis=1))
    if len(repeated):
        pair = order[repeated[0] : repeated[0] + 2].tolist()
        first, again = sorted((places[row] if places else row) + 1 for row in pair)
        raise DataError(
            f"{path} has the same id in {column!r} in the rows {first} and {again}",
            remedy=("Give each row its own id, or ", Pass("id_column", None), "."),
        )


def _check_blocks(
    blocks: Iterable[Block], path: Path, names: Sequence[str] | None
) -> Iterator[Block]:
    before, empty = 0, None
    for block in blocks:
        rows = block.rows
        if rows.dtype != np.float64:
            rows = rows.astype(np.float64)
        place = _find_infinity(rows)
        if place is not None:
            where, column = place
            row = before + where if block.places is None else int(block.places[where])
            is_shown = names is not None and not looks_like_value(names[column])
            label = repr(names[column]) if is_shown and names else f"column {column + 1}"
            raise DataError(
                f"{path} holds infinity in row {row + 1} of {label}, and entries must be finite "
                "or missing. Leave that entry empty."
            )
        before += rows.shape[0]
        if rows.shape[0]:
            yield Block(rows, block.ids)
        else:
            empty = Block(rows, block.ids)
    if not before and empty is not None:
        yield empty


def _find_infinity(rows: Any) -> tuple[int, int] | None:
    """Return row and column of the first infinite entry."""
    # A finite sum shows at once that no entry is infinite.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite((rows.data if _is_sparse(rows) else rows).sum()):
            return None
    if not _is_sparse(rows):
        infinite = np.isinf(rows)
        if not infinite.any():
            return None
        place = np.unravel_index(np.argmax(infinite), infinite.shape)
        return int(place[0]), int(place[1])
    entries = np.flatnonzero(np.isinf(rows.data))
    if not len(entries):
        return None
    row = np.searchsorted(rows.indptr, entries[0], side="right") - 1
    return int(row), int(rows.indices[entries[0]])


def _count_bytes(block: Block) -> int:
    rows = block.rows
    if _is_sparse(rows):
        return int(rows.data.nbytes + rows.indices.nbytes + rows.indptr.nbytes)
    return int(rows.nbytes)


def _drain(held: list[Block]) -> Iterator[Block]:
    """Yield blocks, keeping no reference to those already yielded."""
    held.reverse()
    while held:
        yield held.pop()


def _join(held: list[Block]) -> StoredRows:
    rows = [block.rows for block in held]
    ids = None if held[0].ids is None else tuple(i for block in held for i in block.ids or ())
    X: Any = rows[0] if len(rows) == 1 else None
    if X is None:
        X = _stack_sparse(rows) if _is_sparse(rows[0]) else np.concatenate(rows)
    return StoredRows(X, ids, None)


def _stack_sparse(rows: list[Any]) -> Any:
    d = max(part.shape[1] for part in rows)
    for part in rows:
        part.resize(part.shape[0], d)
    return sparse.vstack(rows, format="csr")


def _is_sparse(rows: Any) -> bool:
    return bool(sparse.issparse(rows))
