"""Tables in text: UTF-8, a line of names, then rows, with commas between; plain or gzipped.

An empty cell, NA, N/A, NaN, nan, null and NULL are missing entries. Blank lines are skipped. Rows
are numbered from 1, after the names. Memory is some 32 blocks of 1 MB that are read ahead, and
10 KB for each column.
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

from eigenfed.data.column_names import no_numbers
from eigenfed.data.readers.optional import needed
from eigenfed.data.source import Block
from eigenfed.errors import DataError, EigenfedError, InputError, Pass

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")
_BLOCK_BYTES = 1 << 20
_LONGEST = 256 << 20
_BROKEN = (OSError, EOFError, zlib.error)
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
        How many lines it ends after.
    widest : int
        Bytes of the longer of this line and the next.
    """

    names: tuple[str, ...]
    lines: int
    widest: int


def read_header(path: Path) -> CsvHeader:
    """Read the names of a table's columns.

    Parameters
    ----------
    path : Path

    Raises
    ------
    DataError
        If the file is empty or has names alone, is not UTF-8, is a damaged gzip, or its first line
        is a row of data.
    """
    damaged = False
    try:
        with _opened(path) as file:
            lines, first = _next_line(file)
            _, second = _next_line(file)
    except _BROKEN:
        damaged = True
    if damaged:
        raise _damaged(path)
    if max(len(first), len(second)) >= _LONGEST:
        raise DataError(f"{path} has a line of more than {_LONGEST >> 20} MB. Check the file.")
    names = _names(path, first)
    if not second:
        raise DataError(f"{path} has a line of names and no rows. Pass a file with records.")
    return CsvHeader(names, lines, max(len(first), len(second)))


def csv_blocks(path: Path, features: Sequence[str], id_column: str | None) -> Iterator[Block]:
    """Yield the rows of a table.

    Parameters
    ----------
    path : Path
    features : sequence of str
        Columns to take as numbers, in this order.
    id_column : str or None
        The column that names the rows.

    Raises
    ------
    InputError
        If a feature does not hold numbers.
    DataError
        If a row is too short or too long, or the file is damaged. No message quotes a cell.
    """
    pa = needed("pyarrow", extra="tables", path=path)
    header = read_header(path)
    asked = [*features, *(() if id_column is None else (id_column,))]
    types = [*(pa.float64() for _ in features), pa.string()][: len(asked)]
    before, failed, damaged = 0, False, False
    try:
        for batch in _batches(path, header, asked, types):
            rows = np.empty((batch.num_rows, len(features)))
            for place in range(len(features)):
                rows[:, place] = batch.column(place).to_numpy(zero_copy_only=False)
            ids = None
            if id_column is not None:
                ids = _ids(path, batch.column(len(features)).to_pylist(), before)
            before += batch.num_rows
            yield Block(rows, ids)
    except EigenfedError:
        raise
    except ValueError:
        failed = True
    except _BROKEN:
        damaged = True
    # Out here no message of pyarrow, which quotes the cell, hangs on to ours.
    if failed:
        raise _diagnosis(path, header, asked, len(features))
    if damaged:
        raise _damaged(path)


def _batches(
    path: Path, header: CsvHeader, asked: Sequence[str], types: Sequence[Any]
) -> Iterator[Any]:
    """Yield batches of the columns asked for, as these types, in this order."""
    pa = needed("pyarrow", extra="tables", path=path)
    reader = needed("pyarrow.csv", extra="tables", path=path)
    # pyarrow takes the last of two columns of one name: positions name them here.
    keys = {name: f"c{place}" for place, name in enumerate(header.names)}
    wanted = [keys[name] for name in asked]
    wrong: list[DataError] = []

    def refuse(row: Any) -> str:
        wrong.append(
            DataError(
                f"{path} has {row.actual_columns} cells in row {row.number - header.lines}, and "
                f"{row.expected_columns} columns. Mend that row."
            )
        )
        return "error"

    try:
        yield from reader.open_csv(
            pa.input_stream(str(path), compression="gzip" if _is_gzip(path) else None),
            read_options=reader.ReadOptions(
                # Rows are numbered only where one thread reads.
                use_threads=False,
                block_size=max(_BLOCK_BYTES, 8 * header.widest),
                skip_rows=header.lines,
                column_names=list(keys.values()),
            ),
            parse_options=reader.ParseOptions(invalid_row_handler=refuse),
            convert_options=reader.ConvertOptions(
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


def _ids(path: Path, ids: list[str], before: int) -> list[str]:
    for place, row_id in enumerate(ids):
        if not row_id or "\n" in row_id:
            what = "has a line break in" if row_id else "lacks"
            raise DataError(
                f"{path} {what} the id of row {before + place + 1}. Give each row an id, and "
                "close every quote."
            )
    return ids


def _diagnosis(path: Path, header: CsvHeader, asked: Sequence[str], count: int) -> EigenfedError:
    """Find what pyarrow stumbled over, reading again as text: its own message quotes the cell.

    The first `count` columns asked for must be numbers.
    """
    pa = needed("pyarrow", extra="tables", path=path)
    before = 0
    try:
        for batch in _batches(path, header, asked, [pa.string()] * len(asked)):
            found = (_first_text(batch.column(place).to_pylist()) for place in range(count))
            wrong = {name: text for name, text in zip(asked, found, strict=False) if text}
            if wrong:
                return _text_found(path, wrong, before, count)
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
    """The first cell of a column that is no number, and whether a number comes before it."""

    place: int
    is_late: bool


def _first_text(cells: list[str | None]) -> _Text | None:
    is_late = False
    for place, cell in enumerate(cells):
        if cell is None or cell in MISSING:
            continue
        if not _NUMBER.fullmatch(cell):
            return _Text(place, is_late)
        is_late = True
    return None


def _text_found(path: Path, wrong: dict[str, _Text], before: int, count: int) -> InputError:
    """Tell columns of text from columns of numbers with some text among them."""
    text = [name for name, first in wrong.items() if not (before or first.is_late)]
    if text:
        return no_numbers(path, text, count)
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
    while (line := file.readline(_LONGEST)) and not line.strip():
        lines += 1
    return lines, line


def _names(path: Path, line: bytes) -> tuple[str, ...]:
    if not line:
        raise DataError(f"{path} is empty. Pass a file with a line of names and rows.")
    text = line.decode("utf-8-sig", errors="replace").rstrip("\r\n")
    if "\0" in text or "\ufffd" in text:
        raise DataError(f"{path} is not UTF-8 text. Save it in that encoding.")
    try:
        names = tuple(next(csv.reader([text], strict=True)))
    except csv.Error:
        raise DataError(f"{path} has a first line that is no list of names. Mend it.") from None
    for mark, called in ((";", "semicolons"), ("\t", "tabs")):
        if len(names) == 1 and mark in names[0]:
            raise DataError(f"{path} has {called} between its cells. Write it with commas.")
    if all(name in MISSING or _NUMBER.fullmatch(name) for name in names):
        raise DataError(
            f"{path} has numbers in its first line where the columns' names must be. Add a line "
            "of names."
        )
    return names


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
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
    with _opened(path) as file:
        try:
            while part := file.read(_BLOCK_BYTES):
                decoder.decode(part)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
    return True


def _damaged(path: Path) -> DataError:
    return DataError(f"{path} is damaged or cut short. Fetch or write it again.")
