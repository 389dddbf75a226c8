"""Rows in the format of libsvm: ``label index:value index:value # comment``, indices from 1.

The label is no feature and is left out, as is ``qid:``. What is not named in a row is zero.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from eigenfed.arrays import Array
from eigenfed.data.source import Block
from eigenfed.errors import DataError, InputError

_PART_BYTES = 1 << 20
_LONGEST = 256 << 20
_WIDEST = (1 << 31) - 1
_LAST = re.compile(rb"(\d{1,10}):[^\s:]+")
_ROW = re.compile(rb"[^\s:]+(?:\s+qid:\d+)?((?:\s+\d{1,10}:[^\s:_]+)*)")


def svm_blocks(path: Path, n_features: int | None) -> Iterator[Block]:
    """Yield a file's rows, sparse, all as wide as the file's largest index or `n_features`.

    The file is read twice where `n_features` is not given, first for its width.

    Parameters
    ----------
    path : Path
    n_features : int or None
        Columns; what a row names beyond is refused.
    """
    d = _width(path) if n_features is None else n_features
    for lines in _parts(path):
        rows = _rows(path, lines, d)
        if d:
            yield Block(rows)
    if not d:
        raise DataError(f"{path} names no feature in any row. Pass a file with records.")


def _parts(path: Path) -> Iterator[list[tuple[int, bytes]]]:
    """Yield lines some at a time."""
    lines, size = [], 0
    for number, body in _lines(path):
        lines.append((number, body))
        size += len(body)
        if size > _PART_BYTES:
            yield lines
            lines, size = [], 0
    if lines:
        yield lines


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers and without their comments."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(_LONGEST):
            if len(line) == _LONGEST:
                raise DataError(
                    f"{path} has a line of more than {_LONGEST >> 20} MB. Check that it is text."
                )
            number += 1
            body = line.partition(b"#")[0].strip()
            if body:
                yield number, body


def _width(path: Path) -> int:
    """Return the largest index that ends a row; what is no row is told of when rows are read."""
    ends = (_LAST.fullmatch(body.rsplit(maxsplit=1)[-1]) for _, body in _lines(path))
    return max((int(end[1]) for end in ends if end is not None), default=0)


def _rows(path: Path, lines: list[tuple[int, bytes]], d: int) -> Any:
    named = [_named(path, number, body) for number, body in lines]
    indptr = np.cumsum([0, *(len(row) // 2 for row in named)])
    entries = [entry for row in named for entry in row]
    columns = np.array(entries[::2], dtype=np.bytes_).astype(np.int64) - 1
    wrong = _first_wrong(columns, indptr)
    if wrong is not None:
        line = lines[int(np.searchsorted(indptr, wrong, side="right")) - 1][0]
        raise DataError(
            f"{path} has indices in line {line} that do not rise from 1 to at most {_WIDEST}. "
            "Mend that line."
        )
    values = _values(entries[1::2])
    if values is None:
        line = next(lines[i][0] for i, row in enumerate(named) if _values(row[1::2]) is None)
        raise DataError(f"{path} has a value in line {line} that is no number. Mend that line.")
    widest = int(columns.max(initial=-1)) + 1
    if widest > d:
        raise InputError(
            f"{path} has the index {widest}, which is above n_features={d}. "
            "Pass the largest index of all sites."
        )
    return sparse.csr_array((values, columns, indptr), shape=(len(lines), d))


def _named(path: Path, number: int, body: bytes) -> list[bytes]:
    """Return the indices and values of a row, by turns."""
    row = _ROW.fullmatch(body)
    if row is None:
        raise DataError(
            f"{path} has no row of the form 'label index:value ...' in line {number}. "
            "Mend that line."
        )
    return row[1].replace(b":", b" ").split()


def _first_wrong(columns: npt.NDArray[np.int64], indptr: npt.NDArray[np.int64]) -> int | None:
    """Place of the first index that is outside the range, or not above the one before it."""
    sound = (columns >= 0) & (columns < _WIDEST)
    rises = np.diff(columns) > 0
    rises[indptr[(indptr > 0) & (indptr < len(columns))] - 1] = True
    sound[1:] &= rises
    return None if sound.all() else int(np.argmin(sound))


def _values(texts: list[bytes]) -> Array | None:
    try:
        return np.array(texts, dtype=np.bytes_).astype(np.float64)
    except ValueError:
        return None
