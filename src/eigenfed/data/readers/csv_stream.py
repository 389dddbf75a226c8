"""Rows of numbers in text, read as they arrive from standard input, a pipe or a file.

The dialect is that of `eigenfed.data.readers.csv`, with two liberties: a stream may begin with its
first row instead of names, and a row without a delimiter may have blanks between its numbers. What
has arrived goes to pyarrow as it is; only lines that are not plain rows are looked at one by one.
Memory is one batch.
"""

import codecs
import csv
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import IO, NamedTuple

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.column_names import find_repeated, quote_name
from eigenfed.data.dialect import Dialect, complete_dialect, describe_dialect, looks_like_value
from eigenfed.data.readers.csv_cells import (
    BROKEN,
    LONGEST_LINE,
    damaged_error,
    get_usual_delimiter,
    long_line_error,
    to_array,
)
from eigenfed.errors import DataError, Pass

_CHUNK_BYTES = 1 << 20
_SAMPLE_LINES = 50
_FEW_BYTES = 1 << 14
_PLAIN = {
    mark: re.compile(rf"-?[0-9]+({re.escape(mark)}[0-9]+)?([eE][+-]?[0-9]+)?") for mark in ".,"
}


class _Line(NamedTuple):
    """A line of a stream that is not blank, and its number, counted from 1."""

    number: int
    text: bytes


class _Chunk(NamedTuple):
    """Whole lines, as they arrived, and the number of the first."""

    number: int
    text: bytes


@dataclass(frozen=True, eq=False, repr=False)
class CsvStream:
    """A stream whose first lines were read.

    Attributes
    ----------
    name : str
        For messages.
    names : tuple of str or None
        Of the columns; None where the stream begins with its first row.
    d : int
        Number of columns; 0 where there are no rows.
    dialect : Dialect
    notes : tuple of str
        What was detected about the dialect, if it is not the usual, and why names are not kept.
    """

    name: str
    names: tuple[str, ...] | None
    d: int
    dialect: Dialect
    notes: tuple[str, ...]
    _chunks: Iterator[_Chunk]
    _by_blanks: bool

    def read_batches(self, size: int | None = None) -> Iterator[Array]:
        """Yield rows as they arrive, in batches of which one ends at each multiple of `size`.

        Yields
        ------
        ndarray of shape (b, d)
            NaN where an entry is missing.

        Raises
        ------
        DataError
            If a line holds an infinite number, anything other than numbers, or more or fewer cells
            than the first row. The message has the number of the line and nothing of its content.
        """
        room = size
        for chunk in self._chunks:
            rows = self._parse_chunk(chunk)
            while size is not None and room is not None and len(rows) >= room:
                yield rows[:room]
                rows, room = rows[room:], size
            if len(rows):
                room = None if room is None else room - len(rows)
                yield rows

    def _parse_chunk(self, chunk: _Chunk) -> Array:
        # Quotes may hide line breaks, and the numbers of lines must be right in messages.
        plain = not self._by_blanks and b'"' not in chunk.text
        rows = _parse_text(chunk.text, self.d, self.dialect) if plain else None
        lines = chunk.text.count(b"\n") + (not chunk.text.endswith(b"\n"))
        if rows is None or len(rows) != lines:
            rows = self._parse_lines(list(_split_lines(chunk)))
        if np.isinf(rows).any():
            place = int(np.flatnonzero(np.isinf(rows).any(axis=1))[0])
            number = list(_split_lines(chunk))[place].number
            raise DataError(
                f"{self.name} has an infinite number in line {number}. Correct or drop that line."
            )
        return _drop_codes(rows, self.dialect.numeric_codes)

    def _parse_lines(self, lines: list[_Line]) -> Array:
        mark = (self.dialect.delimiter or ",").encode()
        texts = [mark.join(line.text.split()) if self._by_blanks else line.text for line in lines]
        rows = _parse_text(b"\n".join(texts) + b"\n", self.d, self.dialect)
        # A line break inside quotes joins two lines into one row.
        if rows is None or len(rows) != len(lines):
            raise self._diagnose_lines(lines)
        return rows

    def _is_text(self, place: int, lines: list[_Line]) -> bool:
        """Return whether a column has no number in lines; a single line tells nothing."""
        try:
            rows = [_split_cells(self.name, line, self.dialect, self._by_blanks) for line in lines]
        except DataError:
            return False
        cells = [row[place] for row in rows if len(row) == self.d]
        return len(cells) > 1 and not any(map(self.dialect.holds_value, cells))

    def _diagnose_lines(self, lines: list[_Line]) -> DataError:
        """Find the first line that is not a row: pyarrow's own message quotes the cell."""
        for line in lines:
            try:
                cells = _split_cells(self.name, line, self.dialect, self._by_blanks)
            except DataError as error:
                return error
            if len(cells) != self.d:
                return _wrong_count_error(self.name, line.number, len(cells), self.d)
            if not all(map(self.dialect.holds_value, cells)):
                place = next(i for i, c in enumerate(cells) if not self.dialect.holds_value(c))
                if self._is_text(place, lines):
                    column = f"column {place + 1}"
                    if self.names is not None:
                        column = f"{column}, {quote_name(self.names[place])}"
                    return DataError(
                        f"{self.name} has no numbers in {column}, in the lines {lines[0].number} "
                        f"to {lines[-1].number}. Correct them, or send the other columns only: a "
                        "program such as cut leaves one out."
                    )
                return DataError(
                    f"{self.name} has something other than numbers in line {line.number}",
                    remedy=(
                        *("Correct or drop that line, or ", Pass("missing", [...])),
                        " if it has a code for missing entries.",
                    ),
                )
        return DataError(
            f"{self.name} cannot be read as rows of numbers in the lines {lines[0].number} to "
            f"{lines[-1].number}. Check them for quotes and line breaks inside cells."
        )


def open_csv_stream(
    file: IO[bytes], name: str, dialect: Dialect | None = None, *, low_memory: bool = False
) -> CsvStream:
    r"""Read the first lines of a stream: its names, if it has some, and its dialect.

    Parameters
    ----------
    file : binary file
        Standard input, a pipe or a file.
    name : str
        Of the stream, for messages.
    dialect : Dialect, optional
        What is known of the dialect. Without `header`, the first line names the columns if it
        holds text and no number.
    low_memory : bool, default=False
        Read so few lines at a time that plain numbers are parsed without pyarrow: slowly, and with
        30 MB less.

    Returns
    -------
    CsvStream

    Examples
    --------
    >>> from io import BytesIO
    >>> stream = open_csv_stream(BytesIO(b"a,b\n1,2\n3,\n\n5,6\n"), "stdin")
    >>> stream.names
    ('a', 'b')
    >>> [rows.tolist() for rows in stream.read_batches(2)]
    [[[1.0, 2.0], [3.0, nan]], [[5.0, 6.0]]]
    """
    given = dialect or Dialect()
    chunks = _read_chunks(file, name, _FEW_BYTES // 2 if low_memory else _CHUNK_BYTES)
    # Of a pipe two lines are awaited, and no more: the next row may come tomorrow.
    sample, chunks = _take_sample(chunks, _SAMPLE_LINES if _is_seekable(file) else 2)
    if not sample:
        return CsvStream(name, None, 0, given, (), iter(()), False)
    texts = [_decode(name, line) for line in sample]
    usual = get_usual_delimiter(name)
    # A first row counts for the decimal mark too.
    found = complete_dialect(name, [texts[0], *texts], given, usual)
    by_blanks = (
        given.delimiter is None and len(found.split(texts[0])) == 1 and len(texts[0].split()) > 1
    )
    first = _split_cells(name, sample[0], found, by_blanks)
    names = tuple(first) if _are_names(name, sample[0].number, first, found) else None
    if names is not None:
        chunks = _skip_line(chunks)
        if len(sample) > 1:
            width = len(_split_cells(name, sample[1], found, by_blanks))
            if width != len(names):
                raise _wrong_count_error(name, sample[1].number, width, len(names))
    clause = describe_dialect(found, given, usual)
    notes = [] if clause is None else [f"{name} {clause}, as detected from its first lines."]
    if names is not None and (find_repeated(names) or "" in names):
        fault = "has a column without a name" if "" in names else "names a column twice"
        notes.append(f"{name} {fault}, so that the summary keeps no names of features.")
        names = None
    return CsvStream(name, names, len(first), found, tuple(notes), chunks, by_blanks)


def _is_seekable(file: IO[bytes]) -> bool:
    try:
        return file.seekable()
    except (OSError, ValueError):
        return False


def _read_chunks(file: IO[bytes], name: str, most: int) -> Iterator[_Chunk]:
    """Yield whole lines, as many as have arrived, from at most so many bytes at a time."""
    read = getattr(file, "read1", file.read)
    number, held, size, damaged = 1, [], 0, False
    while True:
        try:
            part = read(most)
        except BROKEN:
            damaged = True
            break
        if not part:
            break
        cut = part.rfind(b"\n") + 1
        size += len(part)
        if not cut:
            held.append(part)
            if size >= LONGEST_LINE:
                raise long_line_error(name, LONGEST_LINE)
            continue
        text = b"".join([*held, part[:cut]])
        if number == 1:
            text = text.removeprefix(codecs.BOM_UTF8)
        yield _Chunk(number, text)
        number += text.count(b"\n")
        held, size = [part[cut:]], len(part) - cut
    if damaged:
        raise damaged_error(name)
    rest = b"".join(held)
    if rest.strip():
        yield _Chunk(number, rest.removeprefix(codecs.BOM_UTF8) if number == 1 else rest)


def _take_sample(chunks: Iterator[_Chunk], count: int) -> tuple[list[_Line], Iterator[_Chunk]]:
    """Return the first lines that are not blank, and all chunks."""
    taken: list[_Chunk] = []
    lines: list[_Line] = []
    for chunk in chunks:
        taken.append(chunk)
        lines += islice(_split_lines(chunk), count - len(lines))
        if len(lines) >= count:
            break
    return lines, chain(taken, chunks)


def _skip_line(chunks: Iterator[_Chunk]) -> Iterator[_Chunk]:
    """Yield chunks without the first line that is not blank."""
    for chunk in chunks:
        first = next(_split_lines(chunk), None)
        if first is None:
            continue
        lines = chunk.text.split(b"\n", first.number - chunk.number + 1)
        if len(lines) > first.number - chunk.number + 1 and lines[-1].strip():
            yield _Chunk(first.number + 1, lines[-1])
        break
    yield from chunks


def _split_lines(chunk: _Chunk) -> Iterator[_Line]:
    """Yield the lines of a chunk that are not blank, without their ends."""
    for place, line in enumerate(chunk.text.split(b"\n")):
        text = line.strip(b" \r\n\v\f")
        if text.strip():
            yield _Line(chunk.number + place, text)


def _are_names(name: str, number: int, cells: list[str], dialect: Dialect) -> bool:
    """Return whether a first line holds names, and refuse one that holds text beside numbers.

    Such a line may be a row with a fault, or names such as "2020": the caller must decide.
    """
    if dialect.header is not None:
        return dialect.header
    texts = [not dialect.holds_value(cell) for cell in cells]
    if any(texts) and any(map(looks_like_value, cells)):
        raise DataError(
            f"{name} has numbers and text in line {number}, the first",
            remedy=(
                *(Pass("header", True), " if the line names the columns, and correct it if it is "),
                "a row.",
            ),
        )
    return any(texts)


def _decode(name: str, line: _Line) -> str:
    try:
        return line.text.decode("utf-8")
    except UnicodeDecodeError:
        fault = f"{name} is not UTF-8 text: see line {line.number}. Convert it to that encoding."
    # Raised out here, the error has no __context__, whose message would quote the line.
    raise DataError(fault)


def _split_cells(name: str, line: _Line, dialect: Dialect, by_blanks: bool) -> list[str]:
    text = _decode(name, line)
    try:
        return text.split() if by_blanks else dialect.split(text)
    except csv.Error:
        fault = (
            f"{name} has an open quote or a line break inside a cell in line {line.number}. "
            "Correct that line."
        )
    raise DataError(fault)


def _parse_text(text: bytes, d: int, dialect: Dialect) -> Array | None:
    """Return the rows of whole lines; None where something is not a number."""
    rows = _parse_few(text, d, dialect) if len(text) <= _FEW_BYTES else None
    return _parse_with_pyarrow(text, d, dialect) if rows is None else rows


def _parse_few(text: bytes, d: int, dialect: Dialect) -> Array | None:
    """Return the rows of a few lines of plain numbers; None where anything else is in them.

    What pyarrow would return, to the last bit, without loading it: 30 MB, on a device that has 64.
    """
    if b'"' in text:
        return None
    decimal, missing, cells = dialect.decimal or ".", set(dialect.null_values), []
    is_plain = _PLAIN[decimal].fullmatch
    for line in text.decode("utf-8", "replace").split("\n"):
        parts = line.removesuffix("\r").split(dialect.delimiter or ",")
        if parts == [""]:
            continue
        if len(parts) != d:
            return None
        for part in parts:
            if part in missing:
                cells.append(math.nan)
            elif is_plain(part):
                cells.append(float(part.replace(decimal, ".")))
            else:
                return None
    return np.array(cells, dtype=np.float64).reshape(-1, d)


def _parse_with_pyarrow(text: bytes, d: int, dialect: Dialect) -> Array | None:
    import pyarrow as pa
    from pyarrow import csv as pyarrow_csv

    columns = [f"c{place}" for place in range(d)]
    # In memory of pyarrow's own: one of its threads may hold the last reference when the
    # interpreter ends, and freeing a Python object there would abort the process.
    own = pa.allocate_buffer(len(text))
    memoryview(own).cast("B")[:] = text
    try:
        table = pyarrow_csv.read_csv(
            pa.BufferReader(own),
            # A row must lie in one block.
            read_options=pyarrow_csv.ReadOptions(
                use_threads=False, block_size=len(text) + 1, column_names=columns
            ),
            parse_options=pyarrow_csv.ParseOptions(delimiter=dialect.delimiter),
            convert_options=pyarrow_csv.ConvertOptions(
                column_types=dict.fromkeys(columns, pa.float64()),
                null_values=dialect.null_values,
                decimal_point=dialect.decimal,
            ),
        )
        return to_array(table, d)
    except (ValueError, pa.ArrowException):
        return None


def _drop_codes(rows: Array, codes: tuple[float, ...]) -> Array:
    if codes:
        rows[np.isin(rows, codes)] = np.nan
    return rows


def _wrong_count_error(name: str, number: int, found: int, d: int) -> DataError:
    return DataError(
        f"{name} has {found} cell{'s' * (found != 1)} in line {number} and {d} in the first line. "
        "Give every line the same number of cells."
    )
