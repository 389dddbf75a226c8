"""The files of a parsed copy: written as blocks arrive, and memory-mapped.

A copy is a folder of ``.npy`` files (``X``, or ``data``, ``indices`` and ``indptr``), with
``row_ids.jsonl`` if rows have ids, and ``about.json``. Nothing is ever pickled.
"""

import json
import os
from collections.abc import Iterable, Iterator
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

VERSION = 1
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


def read_row_ids(path: Path) -> tuple[str, ...]:
    """Read the row ids of a copy."""
    with path.open(encoding="utf-8") as lines:
        return tuple(json.loads(line) for line in lines)
