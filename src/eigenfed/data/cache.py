"""Parsed copies of files, so that text is parsed once and not once a round.

Rows that fit into 64 MB stay in memory. Larger tables are written, as they are parsed, to a copy
that is memory-mapped. The copy lies beside the file, in a folder ``<file>.eigenfed`` that only its
owner can enter, or in a folder that the caller names. It belongs to one state of the file (path,
size, times of change) and one choice of columns. It is built under a temporary name and renamed
when it is complete and on disk: a crash leaves no partial copy that could pass for a complete one.
`forget_cache` removes the copies of a file.

A copy is a folder of ``.npy`` files (``X``, or ``data``, ``indices`` and ``indptr``), with
``row_ids.jsonl`` if rows have ids, and ``about.json``. Nothing is ever pickled.
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

from eigenfed.data.readers.npy import map_npy
from eigenfed.data.safe_files import parse_strict_json
from eigenfed.data.source import Block, StoredRows
from eigenfed.errors import DataError, InputError, Pass

VERSION = 1
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
    """

    path: Path
    folder: Path
    state: str
    choice: str

    @classmethod
    def of(cls, path: Path, wanted: Any, cache: str | os.PathLike[str] | None) -> "CacheSlot":
        """Return the slot for a file read with the options `wanted`, any JSON value."""
        return cls(path, cache_folder(path, cache), _digest_state(path), _digest(wanted))

    @property
    def place(self) -> Path:
        """The folder of this copy."""
        return self.folder / f"{self.state}-{self.choice}"

    @contextmanager
    def build(self) -> Iterator[Path]:
        """Yield a temporary folder for the copy, and put it in place if no exception is raised."""
        part = self._make_part()
        try:
            try:
                yield part
            except OSError as error:
                raise self._write_error(error) from None
            if _digest_state(self.path) != self.state:
                raise DataError(
                    f"{self.path} changed while it was read. Read it when nobody writes to it."
                )
            self._put_in_place(part)
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def discard(self) -> None:
        """Remove this copy, which is damaged."""
        shutil.rmtree(self.place, ignore_errors=True)

    def _make_part(self) -> Path:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return Path(tempfile.mkdtemp(prefix=f"{self.place.name}.part", dir=self.folder))
        except OSError as error:
            raise self._write_error(error) from None

    def _write_error(self, error: OSError) -> InputError:
        return InputError(
            f"{self.path} is too large for memory, and its parsed copy cannot be written to "
            f"{self.folder}: {error.strerror or 'input/output error'}. Pass cache= a folder that "
            "can be written and has room."
        )

    def _put_in_place(self, part: Path) -> None:
        self._drop_outdated()
        try:
            part.rename(self.place)
        except OSError as error:
            # Another process may have built the same copy meanwhile, which is then used.
            if not self.place.is_dir():
                raise self._write_error(error) from None

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
        The folder passed to `open_source`.

    Returns
    -------
    int
        Number of copies removed.

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


def _digest_state(path: Path) -> str:
    """Digest what changes with a file. Setting mtime by hand still changes ctime."""
    status = path.stat()
    return _digest(
        [VERSION, str(path.resolve()), status.st_size, status.st_mtime_ns, status.st_ctime_ns]
    )


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


_INT32_ENTRIES = (1 << 31) - 1
_PART_ENTRIES = 1 << 20


def write_copy(folder: Path, blocks: Iterator[Block]) -> None:
    """Write float64 blocks, all dense or all sparse, into an empty folder."""
    first = next(blocks)
    with _Lines(folder / "row_ids.jsonl", first.ids is not None) as ids:
        all_blocks = ids.record(chain([first], blocks))
        is_sparse: bool = sparse.issparse(first.rows)
        shape = (_write_sparse if is_sparse else _write_dense)(folder, all_blocks)
    about = {"version": VERSION, "shape": shape, "sparse": is_sparse, "ids": ids.wanted}
    with (folder / "about.json").open("w", encoding="utf-8") as file:
        json.dump(about, file)
        _sync(file)


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
            d = max(d, block.rows.shape[1])
    indptr = np.cumsum(np.concatenate(counts), dtype=np.int64)
    # scipy copies indices and indptr unless both have the same width.
    width: type[np.int32] | type[np.int64] = np.int32
    if indptr[-1] > _INT32_ENTRIES:
        width = np.int64
        _widen(folder / "indices.npy")
    with _Growing(folder / "indptr.npy", width) as starts:
        starts.extend(indptr)
    return len(indptr) - 1, d


def _widen(path: Path) -> None:
    narrow = map_npy(path)
    wide = path.with_suffix(".wide")
    with _Growing(wide, np.int64) as indices:
        for start in range(0, len(narrow), _PART_ENTRIES):
            indices.extend(narrow[start : start + _PART_ENTRIES])
    del narrow
    wide.replace(path)


def map_copy(place: Path) -> StoredRows:
    """Map a copy; raise ValueError, KeyError or TypeError if it is damaged."""
    about = parse_strict_json((place / "about.json").read_text(encoding="utf-8"))
    shape = tuple(about["shape"])
    X: Any
    if about["sparse"]:
        stored = tuple(map_npy(place / f"{part}.npy") for part in ("data", "indices", "indptr"))
        X = sparse.csr_array(stored, shape=shape)
    else:
        X = map_npy(place / "X.npy")
    if X.shape != shape or about["version"] != VERSION:
        raise ValueError
    return StoredRows(X, place / "row_ids.jsonl" if about["ids"] else None, place)


def _sync(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


class _Growing:
    """An ``.npy`` file that grows along its first axis; closing it completes the header."""

    def __init__(self, path: Path, dtype: npt.DTypeLike, rest: tuple[int, ...] = ()) -> None:
        self._dtype, self._rest = np.dtype(dtype), rest
        self.length = 0
        self._file = path.open("xb")
        self._write_header()

    def extend(self, part: npt.NDArray[Any]) -> None:
        self._file.write(np.ascontiguousarray(part, self._dtype).data)
        self.length += len(part)

    def _write_header(self) -> None:
        # The format pads its header, so that a longer first axis fits into the same bytes.
        header = {
            "descr": np.lib.format.dtype_to_descr(self._dtype),
            "fortran_order": False,
            "shape": (self.length, *self._rest),
        }
        np.lib.format.write_array_header_1_0(self._file, header)

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
                _sync(self._file)


class _Lines:
    """Ids of rows, one JSON string per line; no file if rows have none."""

    def __init__(self, path: Path, wanted: bool) -> None:
        self.wanted = wanted
        self._file = path.open("x", encoding="utf-8") if wanted else None

    def record(self, blocks: Iterable[Block]) -> Iterator[Block]:
        for block in blocks:
            if self._file is not None:
                self._file.writelines(f"{json.dumps(row_id)}\n" for row_id in block.ids or ())
            yield block

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            with self._file:
                _sync(self._file)


_SMALL_BYTES = 64 << 20


def store_blocks(
    blocks: Iterable[Block], slot: CacheSlot, names: Sequence[str] | None
) -> StoredRows:
    """Join blocks in memory, or beyond 64 MB in the slot's folder.

    Parameters
    ----------
    blocks : iterable of Block
        All dense and of one width, or all sparse; the table is as wide as the widest.
    slot : CacheSlot
    names : sequence of str or None
        Names of the columns, for messages.

    Raises
    ------
    DataError
        If there are no rows, or some entry is infinite.
    """
    checked = _check_blocks(blocks, slot.path, names)
    held, size = [], 0
    for block in checked:
        held.append(block)
        size += _count_bytes(block)
        if size > _SMALL_BYTES:
            with slot.build() as folder:
                write_copy(folder, chain(_drain(held), checked))
            stored = load_copy(slot)
            if stored is None:
                raise DataError(f"The parsed copy of {slot.path} was changed. Read it again.")
            return stored
    if not held:
        raise DataError(f"{slot.path} has no rows. Pass a file with records.")
    return _join(held)


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
    before = 0
    for block in blocks:
        rows = block.rows
        if rows.dtype != np.float64:
            rows = rows.astype(np.float64)
        place = _find_infinity(rows)
        if place is not None:
            where, column = place
            row = before + where if block.places is None else int(block.places[where])
            label = f"column {column + 1}" if names is None else repr(names[column])
            raise DataError(
                f"{path} holds infinity in row {row + 1} of {label}, and entries must be finite "
                "or missing. Leave that entry empty."
            )
        before += rows.shape[0]
        if rows.shape[0]:
            yield Block(rows, block.ids)


def _find_infinity(rows: Any) -> tuple[int, int] | None:
    """Return row and column of the first infinite entry."""
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
