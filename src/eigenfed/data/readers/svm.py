"""Rows in the format of libsvm: ``label index:value index:value # comment``, indices from 1.

scikit-learn parses them, a part of the file at a time, so that memory does not grow with the file
and a fault is found by its line. Labels and ``qid:`` are not features and are left out. Features
that a row does not name are zero.
"""

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from eigenfed.data.source import Block
from eigenfed.errors import DataError, InputError

_PART_BYTES = 1 << 20
_LONGEST = 256 << 20
_WIDEST = (1 << 31) - 1


class _SvmLine(NamedTuple):
    number: int
    text: bytes


def read_svm_blocks(path: Path, n_features: int | None) -> Iterator[Block]:
    """Yield a file's rows, sparse and float64.

    Parameters
    ----------
    path : Path
    n_features : int or None
        Number of columns; a row with a larger index is refused. Without it each block is as wide
        as the largest index so far, and the last block as wide as the file.

    Raises
    ------
    DataError
        If a line is not a row of the format, or no row has a feature.
    InputError
        If an index is above `n_features`.
    """
    d = n_features or 0
    for lines in _split_lines(path):
        rows = _parse_lines(path, lines)
        widest = int(rows.indices.max(initial=-1)) + 1
        if n_features is not None and widest > n_features:
            raise InputError(
                f"{path} has the index {widest}, which is above n_features={n_features}. "
                "Pass the largest index of all sites."
            )
        d = max(d, widest)
        rows.resize(rows.shape[0], d)
        yield Block(rows)
    if not d:
        raise DataError(f"{path} names no feature in any row. Pass a file with records.")


def _split_lines(path: Path) -> Iterator[list[_SvmLine]]:
    """Yield the lines that are not blank, without comments, in parts of about 1 MB."""
    part, size = [], 0
    for line in _read_lines(path):
        part.append(line)
        size += len(line.text)
        if size > _PART_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def _read_lines(path: Path) -> Iterator[_SvmLine]:
    with path.open("rb") as file:
        number = 0
        while line := file.readline(_LONGEST):
            if len(line) == _LONGEST:
                raise DataError(
                    f"{path} has a line of more than {_LONGEST >> 20} MB. Check that it is text."
                )
            number += 1
            text = line.partition(b"#")[0].strip()
            if text:
                yield _SvmLine(number, text)


def _parse_lines(path: Path, lines: list[_SvmLine]) -> Any:
    """Return lines as a csr_array, or raise an error with the number of the first wrong line."""
    rows = _load(b"\n".join(line.text for line in lines))
    if rows is not None:
        return rows
    wrong = _find_wrong_line(lines)
    raise DataError(
        f"{path} has no row of the form 'label index:value ...', with indices that increase from "
        f"1 to at most {_WIDEST}, in line {wrong.number}. Correct that line."
    )


def _find_wrong_line(lines: list[_SvmLine]) -> _SvmLine:
    """Return the first line that is refused, by bisection: all lines together are refused."""
    valid, refused = 0, len(lines)
    while refused - valid > 1:
        middle = (valid + refused) // 2
        if _load(b"\n".join(line.text for line in lines[valid:middle])) is None:
            refused = middle
        else:
            valid = middle
    return lines[refused - 1]


def _load(text: bytes) -> Any | None:
    """Return the rows of a text, or None where scikit-learn refuses it: its message quotes it."""
    from sklearn.datasets import load_svmlight_file

    # Python reads 1_0 as 10; in this format it is not a number.
    if b"_" in text:
        return None
    try:
        # Rows may have several labels or none, as in files for multi-label problems.
        rows, _ = load_svmlight_file(
            BytesIO(text), dtype=np.float64, multilabel=True, zero_based=False
        )
    except (ValueError, OverflowError):
        return None
    return sparse.csr_array(rows)
