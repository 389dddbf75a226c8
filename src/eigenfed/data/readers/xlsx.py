"""The first sheet of an Excel workbook, with the names of its columns in the first row.

Reading needs python-calamine, which the extra ``eigenfed[excel]`` installs. A workbook is read
into memory as a whole. Cells with numbers and truth values are numbers; an empty cell and text
that is a code for a missing entry are missing. Dates and times are refused.
"""

from collections.abc import Iterator, Sequence
from datetime import date, time, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from eigenfed.data.column_names import (
    name_columns,
    names_as_row_error,
    non_numeric_error,
    quote_names,
    text_cell_error,
)
from eigenfed.data.dialect import Dialect, check_first_line
from eigenfed.data.readers.npy import count_block_rows
from eigenfed.data.readers.xlsx_extent import check_extent
from eigenfed.data.source import Block
from eigenfed.errors import DataError, InputError, Pass

_DATES = (date, time, timedelta)


class XlsxHeader(NamedTuple):
    """The first row of a sheet.

    Attributes
    ----------
    names : tuple of str
    rows : list of list
        The rows below it.
    dialect : Dialect
        Which codes stand for missing entries.
    """

    names: tuple[str, ...]
    rows: list[list[Any]]
    dialect: Dialect


def read_xlsx_header(path: Path, dialect: Dialect) -> XlsxHeader:
    """Read a workbook, and the names of its columns.

    Parameters
    ----------
    path : Path
    dialect : Dialect
        Whether the first row has names, and which codes stand for missing entries.

    Raises
    ------
    DataError
        If the file is damaged, empty, has names but no rows, or data in its first row.
    """
    rows = _read_rows(path)
    # A row that is empty is no record; sheets often end with some.
    rows = [row for row in rows if any(cell != "" for cell in row)]
    if not rows:
        raise DataError(f"{path} has an empty first sheet. Put the table there.")
    if dialect.header is False:
        return XlsxHeader(name_columns(len(rows[0])), rows, dialect)
    names = tuple(cell if isinstance(cell, str) else _format_name(cell) for cell in rows[0])
    if dialect.header is None:
        check_first_line(path, names, dialect)
    if len(rows) == 1:
        raise DataError(f"{path} has a line of names and no rows. Pass a file with records.")
    return XlsxHeader(names, rows[1:], dialect)


def read_xlsx_blocks(
    path: Path, header: XlsxHeader, features: Sequence[str], id_column: str | None
) -> Iterator[Block]:
    """Yield the rows of a sheet.

    Parameters
    ----------
    path : Path
    header : XlsxHeader
        From `read_xlsx_header`.
    features : sequence of str
        Columns to read as numbers, in this order.
    id_column : str or None
        The column of row ids.

    Raises
    ------
    InputError
        If a feature does not hold numbers. No message quotes a cell.
    """
    places = {name: place for place, name in enumerate(header.names)}
    _check_columns(path, header, features)
    step = count_block_rows(len(features))
    for start in range(0, len(header.rows), step):
        part = header.rows[start : start + step]
        rows = np.empty((len(part), len(features)))
        for column, name in enumerate(features):
            rows[:, column] = [_to_number(row[places[name]]) for row in part]
        ids = None
        if id_column is not None:
            ids = [_format_name(row[places[id_column]]) for row in part]
            if "" in ids:
                raise DataError(
                    f"{path} lacks the id of row {start + ids.index('') + 1}. Give each row an id."
                )
        yield Block(rows, ids)


def _check_columns(path: Path, header: XlsxHeader, features: Sequence[str]) -> None:
    """Refuse features with cells that are not numbers."""
    nulls = frozenset(header.dialect.null_values)
    places = {name: place for place, name in enumerate(header.names)}
    found: list[tuple[str, int]] = []
    text = []
    for name in features:
        cells = [row[places[name]] for row in header.rows]
        wrong = [i for i, cell in enumerate(cells) if not _is_value(cell, nulls)]
        if not wrong:
            continue
        numbers = [i for i, cell in enumerate(cells) if isinstance(cell, int | float)]
        found.append((name, wrong[0]))
        if not numbers or (wrong[0] < numbers[0] and len(numbers) <= len(wrong)):
            text.append(name)
    dates = [name for name, row in found if isinstance(header.rows[row][places[name]], _DATES)]
    if dates:
        raise InputError(
            f"{path} has dates or times in {quote_names(dates)}, which have no unit of their own",
            remedy=(
                "Replace them by numbers, such as days since a date that all sites agree on, or ",
                *(Pass("exclude", [...]), " to leave them out."),
            ),
        )
    if header.dialect.header is False and sum(row == 0 for _, row in found) == len(features):
        raise names_as_row_error(path)
    if text:
        raise non_numeric_error(path, text, len(features))
    if found:
        name, row = found[0]
        raise text_cell_error(path, row + 1, name)


def _is_value(cell: Any, nulls: frozenset[str]) -> bool:
    return isinstance(cell, int | float) or (isinstance(cell, str) and cell.strip() in nulls)


def _to_number(cell: Any) -> float:
    return float("nan") if isinstance(cell, str) else float(cell)


def _format_name(cell: Any) -> str:
    """Return a cell as text; Excel stores integers as floats."""
    whole = isinstance(cell, float) and cell.is_integer()
    return str(int(cell)) if whole else str(cell)


def _read_rows(path: Path) -> list[list[Any]]:
    try:
        from python_calamine import CalamineWorkbook
    except ImportError:
        raise InputError(
            f"{path} needs the package python-calamine, which is not installed. "
            "Run pip install 'eigenfed[excel]'."
        ) from None
    check_extent(path)
    rows: list[list[Any]] | None = None
    try:
        with CalamineWorkbook.from_path(str(path)) as workbook:
            rows = workbook.get_sheet_by_index(0).to_python(skip_empty_area=True)
    except Exception:  # python-calamine has a class for each fault, and its texts quote the file
        pass
    if rows is None:
        raise DataError(f"{path} is not a complete .xlsx workbook. Save it again.")
    return rows
