"""Tables in text, in one dialect for every command: pyarrow's csv.

UTF-8 with or without a byte order mark, commas between cells, cells in double quotes or bare,
plain or gzipped. An empty cell, NA, N/A, NaN, nan, null and NULL are missing entries. Blank lines
are skipped. Here the first line names the columns; `eigenfed.data.readers.csv_stream` reads rows
as they arrive.

Rows are numbered from 1, after the names. Memory is some 32 blocks of 1 MB that are read ahead,
and 10 KB for each column.
"""

import codecs
import csv
import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.column_names import non_numeric_error
from eigenfed.data.source import Block
from eigenfed.errors import DataError, EigenfedError, InputError, Pass

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")
_BLOCK_BYTES = 1 << 20
LONGEST_LINE = 256 << 20
BROKEN = (OSError, EOFError, zlib.error)
_NUMBER = re.compile(
    r"\s*[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|nan|inf|infinity)\s*",
    re.IGNORECASE | re.ASCII,
)


class CsvHeader(NamedTuple):
    """The line of names.

    Attributes
    ----------
    names : tuple of str
    lines : int
        Lines of the file up to and including the names.
    widest : int
        Bytes of the longer of this line and the next.
    """

    names: tuple[str, ...]
    lines: int
    widest: int


def read_csv_header(path: Path) -> CsvHeader:
    """Read the names of a table's columns.

    Parameters
    ----------
    path : Path

    Raises
    ------
    DataError
        If the file is empty, has names but no rows, is not UTF-8, is a damaged gzip file, or has
        data in its first line.
    """
    damaged = False
    try:
        with _open_text(path) as file:
            lines, first = _next_line(file)
            _, second = _next_line(file)
    except BROKEN:
        damaged = True
    if damaged:
        raise damaged_error(path)
    if max(len(first), len(second)) >= LONGEST_LINE:
        raise long_line_error(path)
    names = _parse_names(path, first)
    if not second:
        raise DataError(f"{path} has a line of names and no rows. Pass a file with records.")
    return CsvHeader(names, lines, max(len(first), len(second)))


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


def is_number(cell: str) -> bool:
    """Return whether pyarrow reads a cell as a number, NaN and infinity included.

    Examples
    --------
    >>> [is_number(cell) for cell in ("1e-3", " +.5", "inf", "0x10", "1_0", "")]
    [True, True, True, False, False, False]
    """
    return _NUMBER.fullmatch(cell) is not None


def to_array(table: Any, d: int) -> Array:
    """Return the first d columns of a pyarrow table or batch, (n, d), with NaN for null."""
    rows = np.empty((table.num_rows, d))
    for place in range(d):
        rows[:, place] = table.column(place).to_numpy(zero_copy_only=False)
    return rows


def _read_batches(
    path: Path, header: CsvHeader, columns: Sequence[str], types: Sequence[Any]
) -> Iterator[Any]:
    """Yield batches of these columns, as these types, in this order."""
    import pyarrow as pa
    from pyarrow import csv as pyarrow_csv

    # Of two columns with one name pyarrow reads the last: columns are named by position here.
    keys = {name: f"c{place}" for place, name in enumerate(header.names)}
    wanted = [keys[name] for name in columns]
    wrong: list[DataError] = []

    def refuse(row: Any) -> str:
        wrong.append(
            DataError(
                f"{path} has {row.actual_columns} cells in row {row.number - header.lines}, and "
                f"{row.expected_columns} columns. Correct that row."
            )
        )
        return "error"

    try:
        yield from pyarrow_csv.open_csv(
            pa.input_stream(str(path), compression="gzip" if _is_gzip(path) else None),
            read_options=pyarrow_csv.ReadOptions(
                # pyarrow numbers rows only where one thread reads.
                use_threads=False,
                block_size=max(_BLOCK_BYTES, 8 * header.widest),
                skip_rows=header.lines,
                column_names=list(keys.values()),
            ),
            parse_options=pyarrow_csv.ParseOptions(invalid_row_handler=refuse),
            convert_options=pyarrow_csv.ConvertOptions(
                column_types=dict(zip(wanted, types, strict=True)),
                include_columns=wanted,
                null_values=list(MISSING),
            ),
        )
    except ValueError:
        if not wrong:
            raise
    if wrong:
        raise wrong[0]


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
            found = (_find_text(batch.column(place).to_pylist()) for place in range(count))
            wrong = {name: text for name, text in zip(columns, found, strict=False) if text}
            if wrong:
                return _text_error(path, wrong, before, count)
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
    """The first cell of a column that is not a number, and whether a number precedes it."""

    place: int
    is_late: bool


def _find_text(cells: list[str | None]) -> _Text | None:
    is_late = False
    for place, cell in enumerate(cells):
        if cell is None or cell in MISSING:
            continue
        if not is_number(cell):
            return _Text(place, is_late)
        is_late = True
    return None


def _text_error(path: Path, wrong: dict[str, _Text], before: int, count: int) -> InputError:
    """Tell columns of text from columns of numbers with some text among them."""
    text = [name for name, first in wrong.items() if not (before or first.is_late)]
    if text:
        return non_numeric_error(path, text, count)
    name, first = min(wrong.items(), key=lambda item: item[1])
    return InputError(
        f"{path} has text in row {before + first.place + 1} of {name!r}, a column of numbers",
        remedy=(
            "Correct that cell, leave it empty if it is missing, or ",
            *(Pass("columns", [...]), " without the column."),
        ),
    )


def _next_line(file: IO[bytes]) -> tuple[int, bytes]:
    """Return how many lines were read, and the last: the first that is not blank."""
    lines = 1
    while (line := file.readline(LONGEST_LINE)) and not line.strip():
        lines += 1
    return lines, line


def _parse_names(path: Path, line: bytes) -> tuple[str, ...]:
    if not line:
        raise DataError(f"{path} is empty. Pass a file with a line of names and rows.")
    text = line.decode("utf-8-sig", errors="replace").rstrip("\r\n")
    if "\0" in text or "\ufffd" in text:
        raise DataError(f"{path} is not UTF-8 text. Save it in that encoding.")
    try:
        names = tuple(next(csv.reader([text], strict=True)))
    except csv.Error:
        raise DataError(
            f"{path} has a first line that is not a list of names. Correct it."
        ) from None
    for mark, called in ((";", "semicolons"), ("\t", "tabs")):
        if len(names) == 1 and mark in names[0]:
            raise DataError(f"{path} has {called} between its cells. Write it with commas.")
    # Names that are all numbers are far more often a row of data: nothing is guessed here.
    if all(name in MISSING or is_number(name) for name in names):
        raise DataError(
            f"{path} has numbers in its first line where the columns' names must be. Add a line "
            "of names."
        )
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


def damaged_error(name: Path | str) -> DataError:
    """Return the error for a file that ends early or cannot be decompressed."""
    return DataError(f"{name} is damaged or incomplete. Fetch or write it again.")


def long_line_error(name: Path | str) -> DataError:
    """Return the error for a line that is longer than any row can be."""
    return DataError(
        f"{name} has a line of more than {LONGEST_LINE >> 20} MB. Check that it is text."
    )
