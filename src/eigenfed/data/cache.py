"""Where the parsed copy of a file is kept, so that text is parsed once and not once a round.

A copy holds the site's records. It lies beside the file, in a folder ``<file>.eigenfed`` that only
its owner can enter, or in a folder that the caller names; it goes nowhere else. A copy belongs to
one state of the file (path, size, times of change) and one choice of columns. It is built under
another name and renamed when it is whole and on the disk: a crash leaves no half copy that could
be taken for a whole one. `forget_cache` removes the copies of a file.

The files of a parsed copy: written as rows come, mapped when they are read.

A copy is a folder of ``.npy`` files (``X``, or ``data``, ``indices`` and ``indptr``), with
``row_ids.jsonl`` where rows have ids, and ``about.json``. Nothing is ever pickled.

Blocks of rows brought together: in memory while they are small, else in files to be mapped.
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
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy import sparse

from eigenfed.data.readers.npy import mapped
from eigenfed.data.safe_files import strict_json
from eigenfed.data.source import Block, Stored
from eigenfed.errors import DataError, InputError, Pass

VERSION = 1
_ENTRY = re.compile(r"[0-9a-f]{16}-[0-9a-f]{16}(\.part.*)?")


@dataclass(frozen=True)
class CacheSlot:
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
    def of(cls, path: Path, wanted: Any, cache: str | os.PathLike[str] | None) -> "CacheSlot":
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


_INT32_ENTRIES = (1 << 31) - 1
_PART_ENTRIES = 1 << 20


def write_copy(folder: Path, blocks: Iterator[Block]) -> None:
    """Write blocks, all dense or all sparse and of float64, into an empty folder."""
    first = next(blocks)
    with _Lines(folder / "row_ids.jsonl", first.ids is not None) as ids:
        all_blocks = ids.noting(chain([first], blocks))
        is_sparse: bool = sparse.issparse(first.rows)
        shape = (_write_sparse if is_sparse else _write_dense)(folder, all_blocks)
    about = {"version": VERSION, "shape": shape, "sparse": is_sparse, "ids": ids.wanted}
    with (folder / "about.json").open("w", encoding="utf-8") as file:
        json.dump(about, file)
        _to_disk(file)


def _write_dense(folder: Path, blocks: Iterator[Block]) -> tuple[int, int]:
    first = next(blocks).rows
    d = first.shape[1]
    with _Growing(folder / "X.npy", np.float64, (d,)) as X:
        X.extend(first)
        for block in blocks:
            X.extend(block.rows)
    return X.length, d


def _write_sparse(folder: Path, blocks: Iterator[Block]) -> tuple[int, int]:
    counts, d = [np.zeros(1, np.int64)], 0
    with (
        _Growing(folder / "data.npy", np.float64) as data,
        _Growing(folder / "indices.npy", np.int32) as indices,
    ):
        for block in blocks:
            counts.append(np.diff(block.rows.indptr))
            data.extend(block.rows.data)
            indices.extend(block.rows.indices)
            d = block.rows.shape[1]
    indptr = np.cumsum(np.concatenate(counts), dtype=np.int64)
    # scipy copies what it is given where the two kinds of index differ in width.
    width: type[np.int32] | type[np.int64] = np.int32
    if indptr[-1] > _INT32_ENTRIES:
        width = np.int64
        _widen(folder / "indices.npy")
    with _Growing(folder / "indptr.npy", width) as starts:
        starts.extend(indptr)
    return len(indptr) - 1, d


def _widen(path: Path) -> None:
    narrow = mapped(path)
    wide = path.with_suffix(".wide")
    with _Growing(wide, np.int64) as indices:
        for start in range(0, len(narrow), _PART_ENTRIES):
            indices.extend(narrow[start : start + _PART_ENTRIES])
    del narrow
    wide.replace(path)


def mapped_copy(place: Path) -> Stored:
    """Map what `write_copy` wrote; ValueError, KeyError or TypeError where it is not sound."""
    about = strict_json((place / "about.json").read_text(encoding="utf-8"))
    shape = tuple(about["shape"])
    X: Any
    if about["sparse"]:
        stored = tuple(mapped(place / f"{part}.npy") for part in ("data", "indices", "indptr"))
        X = sparse.csr_array(stored, shape=shape)
    else:
        X = mapped(place / "X.npy")
    if X.shape != shape or about["version"] != VERSION:
        raise ValueError
    return Stored(X, place / "row_ids.jsonl" if about["ids"] else None, place)


def _to_disk(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


class _Growing:
    """An ``.npy`` file that grows along its first axis; its header says the length at the end."""

    def __init__(self, path: Path, dtype: npt.DTypeLike, rest: tuple[int, ...] = ()) -> None:
        self._dtype, self._rest = np.dtype(dtype), rest
        self.length = 0
        self._file = path.open("xb")
        self._write_header()

    def extend(self, part: npt.NDArray[Any]) -> None:
        self._file.write(np.ascontiguousarray(part, self._dtype).data)
        self.length += len(part)

    def _write_header(self) -> None:
        # The format pads its header for the digits of a longer first axis.
        described = {
            "descr": np.lib.format.dtype_to_descr(self._dtype),
            "fortran_order": False,
            "shape": (self.length, *self._rest),
        }
        np.lib.format.write_array_header_1_0(self._file, described)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._file:
            if kind is None:
                self._file.seek(0)
                self._write_header()
                _to_disk(self._file)


class _Lines:
    """Ids of rows, a JSON string a line; no file where rows have none."""

    def __init__(self, path: Path, wanted: bool) -> None:
        self.wanted = wanted
        self._file = path.open("x", encoding="utf-8") if wanted else None

    def noting(self, blocks: Iterable[Block]) -> Iterator[Block]:
        for block in blocks:
            if self._file is not None:
                self._file.writelines(f"{json.dumps(row_id)}\n" for row_id in block.ids or ())
            yield block

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            with self._file:
                _to_disk(self._file)


_SMALL_BYTES = 64 << 20


def store(blocks: Iterable[Block], slot: CacheSlot, names: Sequence[str] | None) -> Stored:
    """Bring blocks together, in the slot's place where they outgrow 64 MB.

    Parameters
    ----------
    blocks : iterable of Block
        All dense, or all sparse.
    slot : Slot
    names : sequence of str or None
        Of the columns, for messages.

    Raises
    ------
    DataError
        If there are no rows, or some entry is infinite.
    """
    checked = _checked(blocks, slot.path, names)
    held, size = [], 0
    for block in checked:
        held.append(block)
        size += _bytes_of(block)
        if size > _SMALL_BYTES:
            with slot.building() as folder:
                write_copy(folder, chain(_drained(held), checked))
            found = kept(slot)
            if found is None:
                raise DataError(f"The parsed copy of {slot.path} was changed. Read it again.")
            return found
    if not held:
        raise DataError(f"{slot.path} has no rows. Pass a file with records.")
    return _joined(held)


def kept(slot: CacheSlot) -> Stored | None:
    """Return the copy in a slot's place; None where there is none, or none that is sound."""
    if not slot.place.is_dir():
        return None
    try:
        return mapped_copy(slot.place)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        slot.discard()
        return None
    except OSError as error:
        raise InputError(
            f"The parsed copy of {slot.path} in {slot.place} cannot be mapped: {error.strerror}. "
            "Allow this process more address space and files."
        ) from None


def check_unique(blocks: Iterable[Block], path: Path, column: str) -> Iterator[Block]:
    """Pass blocks on, and refuse a file at its end if two rows have the same id.

    16 bytes are held for each row, whatever the length of its id, and 8 where rows are left out.
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


def _checked(blocks: Iterable[Block], path: Path, names: Sequence[str] | None) -> Iterator[Block]:
    before = 0
    for block in blocks:
        rows = block.rows
        if rows.dtype != np.float64:
            rows = rows.astype(np.float64)
        place = _infinity(rows)
        if place is not None:
            where, column = place
            row = before + where if block.places is None else int(block.places[where])
            called = f"column {column + 1}" if names is None else repr(names[column])
            raise DataError(
                f"{path} holds infinity in row {row + 1} of {called}, and entries must be finite "
                "or missing. Leave that entry empty."
            )
        before += rows.shape[0]
        if rows.shape[0]:
            yield Block(rows, block.ids)


def _infinity(rows: Any) -> tuple[int, int] | None:
    """Row and column of the first infinite entry."""
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


def _bytes_of(block: Block) -> int:
    rows = block.rows
    if _is_sparse(rows):
        return int(rows.data.nbytes + rows.indices.nbytes + rows.indptr.nbytes)
    return int(rows.nbytes)


def _drained(held: list[Block]) -> Iterator[Block]:
    """Let go of each block as it is taken."""
    held.reverse()
    while held:
        yield held.pop()


def _joined(held: list[Block]) -> Stored:
    rows = [block.rows for block in held]
    ids = None if held[0].ids is None else tuple(i for block in held for i in block.ids or ())
    X: Any = rows[0] if len(rows) == 1 else None
    if X is None:
        X = sparse.vstack(rows, format="csr") if _is_sparse(rows[0]) else np.concatenate(rows)
    return Stored(X, ids, None)


def _is_sparse(rows: Any) -> bool:
    return bool(sparse.issparse(rows))
