"""Rows of numbers in text, read as they arrive from standard input, a pipe or a file.

The dialect is that of `eigenfed.data.readers.csv`, with two liberties, as a stream has no named
features: it may begin with its first row instead of names, and a row without a comma may have
blanks or tabs between its numbers. Memory is one batch.
"""

import codecs
import csv
from collections.abc import Iterator
from itertools import chain
from typing import IO, NamedTuple

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.readers.csv import (
    BROKEN,
    LONGEST_LINE,
    MISSING,
    damaged_error,
    is_number,
    long_line_error,
    to_array,
)
from eigenfed.errors import DataError

_BATCH_BYTES = 4 << 20


def read_csv_stream(
    file: IO[bytes], name: str, size: int, *, header: bool = False
) -> Iterator[Array]:
    r"""Yield rows as they arrive, in batches that together make up `size` rows at a time.

    A batch ends at each multiple of `size` rows, and earlier where its text exceeds 4 MB.

    Parameters
    ----------
    file : binary file
        Read line by line: standard input, a pipe or a file.
    name : str
        Of the stream, for messages.
    size : int
    header : bool, default=False
        Whether the first line names the columns. Without this it does if it holds text and no
        number.

    Yields
    ------
    ndarray of shape (b, d)
        NaN where an entry is missing.

    Raises
    ------
    DataError
        If a line holds an infinite number, anything other than numbers, or more or fewer cells than
        the first row. The message has the number of the line and nothing of its content.

    Examples
    --------
    >>> from io import BytesIO
    >>> for rows in read_csv_stream(BytesIO(b"a,b\n1,2\n3,\n\n5,6\n"), "stdin", 2):
    ...     print(rows.tolist())
    [[1.0, 2.0], [3.0, nan]]
    [[5.0, 6.0]]
    """
    lines = _number_lines(file, name)
    names = None
    first = next(lines, None)
    if first is not None and (header or _are_names(name, first)):
        names, first = first, next(lines, None)
    if first is None:
        return
    by_blanks = b"," not in first.text and len(first.text.split()) > 1
    d = len(_split_cells(name, first, by_blanks))
    named = d if names is None else len(_split_cells(name, names, by_blanks))
    if named != d:
        raise _wrong_count_error(name, first.number, d, named)
    lines, room = chain([first], lines), size
    while batch := _take_batch(lines, room):
        yield _parse_lines(name, batch, d, by_blanks)
        room = room - len(batch) or size


class _Line(NamedTuple):
    """A line of a stream that is not blank, and its number, counted from 1."""

    number: int
    text: bytes


def _number_lines(file: IO[bytes], name: str) -> Iterator[_Line]:
    """Yield the lines of a stream that are not blank, without their ends."""
    number, damaged = 0, False
    while True:
        try:
            line = file.readline(LONGEST_LINE)
        except BROKEN:
            damaged = True
            break
        if not line:
            break
        if len(line) == LONGEST_LINE:
            raise long_line_error(name)
        number += 1
        text = line.strip()
        if number == 1:
            text = text.removeprefix(codecs.BOM_UTF8)
        if text:
            yield _Line(number, text)
    if damaged:
        raise damaged_error(name)


def _are_names(name: str, line: _Line) -> bool:
    """Return whether a first line holds names, and refuse one that holds text beside numbers.

    Such a line may be a row with a fault, or names such as "2020": the caller must decide.
    """
    cells = _split_cells(name, line, by_blanks=b"," not in line.text)
    numbers = [is_number(cell) for cell in cells]
    texts = [
        not number and cell not in MISSING for cell, number in zip(cells, numbers, strict=True)
    ]
    if any(texts) and any(numbers):
        raise DataError(
            f"{name} has numbers and text in line {line.number}, the first. Pass --header if the "
            "line names the columns, and correct it if it is a row."
        )
    return any(texts)


def _split_cells(name: str, line: _Line, by_blanks: bool) -> list[str]:
    try:
        text = line.text.decode("utf-8")
        return text.split() if by_blanks else next(csv.reader([text], strict=True))
    except UnicodeDecodeError:
        fault = f"{name} is not UTF-8 text: see line {line.number}. Convert it to that encoding."
    except csv.Error:
        fault = (
            f"{name} has an open quote or a line break inside a cell in line {line.number}. "
            "Correct that line."
        )
    # Raised out here, the error has no __context__, whose message would quote the line.
    raise DataError(fault)


def _take_batch(lines: Iterator[_Line], room: int) -> list[_Line]:
    """Take at most `room` lines, and no more once they exceed 4 MB."""
    batch, held = [], 0
    for line in lines:
        batch.append(line)
        held += len(line.text)
        if len(batch) == room or held > _BATCH_BYTES:
            break
    return batch


def _parse_lines(name: str, batch: list[_Line], d: int, by_blanks: bool) -> Array:
    import pyarrow as pa
    from pyarrow import csv as pyarrow_csv

    lines = [b",".join(line.text.split()) if by_blanks else line.text for line in batch]
    data = b"\n".join(lines) + b"\n"
    columns = [f"c{place}" for place in range(d)]
    rows = None
    try:
        table = pyarrow_csv.read_csv(
            pa.BufferReader(data),
            # A row must lie in one block.
            read_options=pyarrow_csv.ReadOptions(
                use_threads=False, block_size=len(data) + 1, column_names=columns
            ),
            convert_options=pyarrow_csv.ConvertOptions(
                column_types=dict.fromkeys(columns, pa.float64()), null_values=list(MISSING)
            ),
        )
        rows = to_array(table, d)
    except (ValueError, pa.ArrowException):
        pass
    # A line break inside quotes joins two lines into one row, and would shift the numbers of lines.
    if rows is None or len(rows) != len(batch):
        raise _diagnose_lines(name, batch, d, by_blanks)
    infinite = np.flatnonzero(np.isinf(rows).any(axis=1))
    if len(infinite):
        raise DataError(
            f"{name} has an infinite number in line {batch[infinite[0]].number}. Correct or drop "
            "that line."
        )
    return rows


def _diagnose_lines(name: str, batch: list[_Line], d: int, by_blanks: bool) -> DataError:
    """Find the first line that is not a row: pyarrow's own message quotes the cell."""
    for line in batch:
        try:
            cells = _split_cells(name, line, by_blanks)
        except DataError as error:
            return error
        if len(cells) != d:
            return _wrong_count_error(name, line.number, len(cells), d)
        if not all(cell in MISSING or is_number(cell) for cell in cells):
            return DataError(
                f"{name} has something other than numbers in line {line.number}. Correct or drop "
                "that line."
            )
    return DataError(
        f"{name} cannot be read as rows of numbers in the lines {batch[0].number} to "
        f"{batch[-1].number}. Check them for quotes and line breaks inside cells."
    )


def _wrong_count_error(name: str, number: int, found: int, d: int) -> DataError:
    return DataError(
        f"{name} has {found} cells in line {number} and {d} in the first line. Give every line the "
        "same number of cells."
    )
