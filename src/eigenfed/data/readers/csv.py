"""Tables in text, in one dialect for every command: pyarrow's csv.

UTF-8 with or without a byte order mark, cells in double quotes or bare, plain or gzipped. The
delimiter, the decimal mark and the codes of missing entries are those of a `Dialect`, detected
where they are not stated. Blank lines are skipped. Here the first line names the columns unless
the dialect says otherwise; `eigenfed.data.readers.csv_stream` reads rows as they arrive.

Rows are numbered from 1, after the names. Memory is some 32 blocks of 1 MB that are read ahead,
and 10 KB for each column.
"""

import codecs
import csv
import gzip
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from eigenfed.data.column_names import (
    name_columns,
    names_as_row_error,
    non_numeric_error,
    quote_name,
    text_cell_error,
)
from eigenfed.data.dialect import (
    Dialect,
    check_first_line,
    complete_dialect,
    describe_dialect,
    is_number,
)
from eigenfed.data.readers.csv_cells import (
    BROKEN,
    LONGEST_LINE,
    damaged_error,
    get_usual_delimiter,
    long_line_error,
    to_array,
)
from eigenfed.data.source import Block
from eigenfed.errors import DataError, EigenfedError, InputError, Pass

_BLOCK_BYTES = 1 << 20
_SAMPLE_LINES, _SAMPLE_BYTES = 50, 1 << 18
_ROW_FAULT = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")


class CsvHeader(NamedTuple):
    """The line of names.

    Attributes
    ----------
    names : tuple of str
    lines : int
        Lines of the file before the first row.
    widest : int
        Bytes of the longest of the first lines.
    dialect : Dialect
        With nothing left to detect.
    note : str or None
        What was detected, if it is not the usual.
    """

    names: tuple[str, ...]
    lines: int
    widest: int
    dialect: Dialect
    note: str | None


def read_csv_header(path: Path, dialect: Dialect | None = None) -> CsvHeader:
    """Read the names of a table's columns, and detect its dialect.

    Parameters
    ----------
    path : Path
    dialect : Dialect, optional
        What is known of the dialect.

    Raises
    ------
    InputError
        If the decimal mark is ambiguous.
    DataError
        If the file is empty, has names but no rows, is not UTF-8, is a damaged gzip file, or has
        data in its first line.
    """
    given = dialect or Dialect()
    damaged = False
    try:
        with _open_text(path) as file:
            before, first = _next_line(file)
            lines = [first, *_take_sample(file)]
    except BROKEN:
        damaged = True
    if damaged:
        raise damaged_error(path)
    widest = max(map(len, lines))
    if widest >= LONGEST_LINE:
        raise long_line_error(path, LONGEST_LINE)
    if not first:
        raise DataError(f"{path} is empty. Pass a file with a line of names and rows.")
    usual = get_usual_delimiter(path)
    # Columns that are not read need not be UTF-8.
    texts = [_decode(path, first), *(line.decode("utf-8", "replace") for line in lines[1:])]
    found = complete_dialect(path, texts, given, usual)
    names = _parse_names(path, texts[0], found)
    if given.header is False:
        return _make_header(path, name_columns(len(names)), before - 1, widest, found, given)
    if len(lines) == 1:
        raise DataError(f"{path} has a line of names and no rows. Pass a file with records.")
    return _make_header(path, names, before, widest, found, given)


def _make_header(
    path: Path,
    names: tuple[str, ...],
    lines: int,
    widest: int,
    found: Dialect,
    given: Dialect,
) -> CsvHeader:
    clause = describe_dialect(found, given, get_usual_delimiter(path))
    note = None if clause is None else f"{path} {clause}, as detected from its first lines."
    return CsvHeader(names, lines, widest, found, note)


def read_csv_blocks(
    path: Path, header: CsvHeader, features: Sequence[str], id_column: str | None
) -> Iterator[Block]:
    """Yield the rows of a table.

    Parameters
    ----------
    path : Path
    header : CsvHeader
        From `read_csv_header`.
    features : sequence of str
        Columns to read as numbers, in this order.
    id_column : str or None
        The column of row ids.

    Raises
    ------
    InputError
        If a feature does not hold numbers.
    DataError
        If a row is too short or too long, or the file is damaged. No message quotes a cell.
    """
    import pyarrow as pa

    columns = [*features, *(() if id_column is None else (id_column,))]
    types = [*(pa.float64() for _ in features), pa.string()][: len(columns)]
    before, failed, damaged = 0, False, False
    try:
        for batch in _read_batches(path, header, columns, types):
            rows = to_array(batch, len(features))
            ids = None
            if id_column is not None:
                ids = _check_ids(path, batch.column(len(features)).to_pylist(), before)
            before += batch.num_rows
            yield Block(rows, ids)
    except EigenfedError:
        raise
    except ValueError:
        failed = True
    except BROKEN:
        damaged = True
    # Raised out here, our error has no __context__: pyarrow's message quotes the cell.
    if failed:
        raise _diagnose_file(path, header, columns, len(features))
    if damaged:
        raise damaged_error(path)


def _read_batches(
    path: Path, header: CsvHeader, columns: Sequence[str], types: Sequence[Any]
) -> Iterator[Any]:
    """Yield batches of these columns, as these types, in this order."""
    import pyarrow as pa
    from pyarrow import csv as pyarrow_csv

    # Of two columns with one name pyarrow reads the last: columns are named by position here.
    keys = {name: f"c{place}" for place, name in enumerate(header.names)}
    wanted = [keys[name] for name in columns]
    dialect = header.dialect
    fault = None
    try:
        # Without a handler of invalid rows: pyarrow would keep a Python object in threads of its
        # own, and abort the process if one of them still ran when the interpreter ends.
        with pyarrow_csv.open_csv(
            pa.input_stream(str(path), compression="gzip" if _is_gzip(path) else None),
            read_options=pyarrow_csv.ReadOptions(
                # pyarrow numbers rows only where one thread reads.
                use_threads=False,
                block_size=max(_BLOCK_BYTES, 8 * header.widest),
                skip_rows=header.lines,
                column_names=[f"c{place}" for place in range(len(header.names))],
            ),
            parse_options=pyarrow_csv.ParseOptions(delimiter=dialect.delimiter),
            convert_options=pyarrow_csv.ConvertOptions(
                column_types=dict(zip(wanted, types, strict=True)),
                include_columns=wanted,
                null_values=dialect.null_values,
                decimal_point=dialect.decimal,
            ),
        ) as batches:
            yield from batches
    except ValueError as error:
        fault = _ROW_FAULT.search(str(error))
        if fault is None:
            raise
    # Raised out here, our error has no __context__: pyarrow's message quotes the row.
    if fault is not None:
        row, expected, found = map(int, fault.groups())
        raise DataError(
            f"{path} has {found} cell{'s' * (found != 1)} in row {row - header.lines}, and "
            f"{expected} column{'s' * (expected != 1)}",
            remedy=(
                "Correct that row, or remove lines above the names of the columns."
                if row == header.lines + 1
                else "Correct that row."
            ),
        )


def _check_ids(path: Path, ids: list[str], before: int) -> list[str]:
    for place, row_id in enumerate(ids):
        if not row_id or "\n" in row_id:
            what = "has a line break in" if row_id else "lacks"
            raise DataError(
                f"{path} {what} the id of row {before + place + 1}. Give each row an id, and "
                "close every quote."
            )
    return ids


def _diagnose_file(
    path: Path, header: CsvHeader, columns: Sequence[str], count: int
) -> EigenfedError:
    """Find what pyarrow refused, reading the file again as text: its own message quotes the cell.

    The first `count` of the columns must hold numbers.
    """
    import pyarrow as pa

    before = 0
    try:
        for batch in _read_batches(path, header, columns, [pa.string()] * len(columns)):
            found = (
                _find_text(batch.column(place).to_pylist(), header.dialect)
                for place in range(count)
            )
            wrong = {name: text for name, text in zip(columns, found, strict=False) if text}
            if wrong:
                return _text_error(path, wrong, before, count, header.dialect)
            before += batch.num_rows
    except EigenfedError as error:
        return error
    except ValueError:
        if not _is_utf8(path):
            return DataError(f"{path} is not UTF-8 text. Save it in that encoding.")
    return DataError(
        f"{path} cannot be read as a table. Check it for open quotes and for rows that are far "
        "longer than the first."
    )


class _Text(NamedTuple):
    """The first cell of a column that is not a number.

    Attributes
    ----------
    place : int
    is_among_numbers : bool
        Whether a number precedes it, or most cells of its block are numbers.
    has_other_mark : bool
        Whether it is a number with the other decimal mark.
    """

    place: int
    is_among_numbers: bool
    has_other_mark: bool


def _find_text(cells: list[str | None], dialect: Dialect) -> _Text | None:
    own, other = dialect.decimal or ".", "," if dialect.decimal == "." else "."
    missing = set(dialect.null_values)
    known = [
        (place, cell)
        for place, cell in enumerate(cells)
        if cell is not None and cell not in missing
    ]
    text = [(place, cell) for place, cell in known if not is_number(cell, own)]
    if not text:
        return None
    first, cell = text[0]
    is_among_numbers = known[0] != text[0] or 2 * len(text) < len(known)
    return _Text(first, is_among_numbers, is_number(cell, other))


def _text_error(
    path: Path, wrong: dict[str, _Text], before: int, count: int, dialect: Dialect
) -> InputError:
    """Tell columns of text from columns of numbers with some text among them."""
    marked = [(text.place, name) for name, text in wrong.items() if text.has_other_mark]
    if marked:
        place, name = min(marked)
        mark, other = ("comma", ".") if dialect.decimal == "," else ("point", ",")
        return InputError(
            f"{path} has decimal {mark}s, and another decimal mark in row {before + place + 1} of "
            f"{quote_name(name)}",
            remedy=(
                *(Pass("decimal", other), " if that is the mark of all numbers; separators of "),
                "thousands must be removed.",
            ),
        )
    in_first = 0 if before else sum(first.place == 0 for first in wrong.values())
    if dialect.header is False and in_first == count:
        return names_as_row_error(path)
    text = [name for name, first in wrong.items() if not (before or first.is_among_numbers)]
    if text:
        return non_numeric_error(path, text, count)
    name, first = min(wrong.items(), key=lambda item: item[1])
    return text_cell_error(path, before + first.place + 1, name)


def _next_line(file: IO[bytes]) -> tuple[int, bytes]:
    """Return how many lines were read, and the last: the first that is not blank."""
    lines = 1
    while (line := file.readline(LONGEST_LINE)) and not line.strip():
        lines += 1
    return lines, line


def _take_sample(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the next lines that are not blank, as far as they tell the dialect."""
    count = held = 0
    while count < _SAMPLE_LINES and held < _SAMPLE_BYTES:
        _, line = _next_line(file)
        if not line:
            return
        yield line
        count, held = count + 1, held + len(line)


def _decode(path: Path, line: bytes) -> str:
    text = line.decode("utf-8-sig", "replace").rstrip("\r\n")
    if "\0" in text or "\ufffd" in text:
        raise DataError(f"{path} is not UTF-8 text. Save it in that encoding.")
    return text


def _parse_names(path: Path, text: str, dialect: Dialect) -> tuple[str, ...]:
    try:
        names = tuple(dialect.split(text))
    except csv.Error:
        raise DataError(
            f"{path} has an open quote or a carriage return in its line of names. Write all names "
            "on one line, and end every line with a line feed."
        ) from None
    if dialect.header is None:
        check_first_line(path, names, dialect)
    return names


@contextmanager
def _open_text(path: Path) -> Iterator[IO[bytes]]:
    with path.open("rb") as file:
        if not _is_gzip(path):
            yield file
            return
        with gzip.GzipFile(fileobj=file) as plain:
            yield cast(IO[bytes], plain)


def _is_gzip(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def _is_utf8(path: Path) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    with _open_text(path) as file:
        try:
            while part := file.read(_BLOCK_BYTES):
                decoder.decode(part)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
    return True
