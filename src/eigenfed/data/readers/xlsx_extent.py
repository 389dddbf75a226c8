"""How large the first sheet of a workbook is, found before it is read into memory.

A sheet is read as a rectangle around all cells that hold something. One forgotten cell in the last
row and column makes that 17 billion entries, for which no machine has memory: the process would
end without a word. So the places of cells are looked up in the text of the sheet first.
"""

import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from eigenfed.errors import DataError

_PART_BYTES = 1 << 20
_LONGEST_TAG = 1 << 16
_MOST_UNPACKED = 1 << 31
_MOST_SPARSE = 1 << 24
"""Entries from which on most of a sheet must hold something."""
_EMPTY_FOR_EACH = 8
_BROKEN = (OSError, KeyError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)

_ROW = re.compile(rb'<(?:\w+:)?row\s[^>]*?\br="(\d+)"')
_COLUMN = re.compile(rb'\sr="([A-Z]+)\d')
_FILLED = re.compile(rb'<(?:\w+:)?c\s[^>]*?\br="([A-Z]+)(\d+)"(?:[^>]*[^/>])?>(?!</)')
_SHEET = re.compile(rb'<(?:\w+:)?sheet\s[^>]*?\b\w+:id="([^"]+)"')
_RELATION = re.compile(rb"<(?:\w+:)?Relationship\s[^>]*>")
_ID, _TARGET = re.compile(rb'\bId="([^"]+)"'), re.compile(rb'\bTarget="([^"]+)"')


class _Extent(NamedTuple):
    """The last row and column, and the number of cells that were counted."""

    rows: int
    columns: int
    cells: int


def check_extent(path: Path) -> None:
    """Refuse a workbook whose first sheet is far larger than what it holds.

    A file that cannot be looked into is left to its reader to refuse.

    Raises
    ------
    DataError
        If a cell lies far from the others, or the workbook has more than 2 GB when it is unpacked.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(part.file_size for part in archive.infolist())
            name = _find_first_sheet(archive)
            found = None if unpacked > _MOST_UNPACKED else _measure(archive, name)
    except _BROKEN:
        return
    if unpacked > _MOST_UNPACKED:
        raise DataError(
            f"{path} has {unpacked / 1e9:.1f} GB when it is unpacked, and a workbook is read into "
            "memory as a whole. Save the table as csv."
        )
    if found is None:
        return
    rows, columns, cells = found
    if rows * columns > _EMPTY_FOR_EACH * cells:
        raise DataError(
            f"{path} reaches to row {rows} and column {columns} in its first sheet, where only "
            f"{cells} cells hold something: one lies far from the table. Clear what is outside "
            "the table, and save it again."
        )


def _find_first_sheet(archive: zipfile.ZipFile) -> str:
    """Return the name of the first sheet's part."""
    first = _SHEET.search(archive.read("xl/workbook.xml"))
    if first is None:
        raise ValueError
    for relation in _RELATION.findall(archive.read("xl/_rels/workbook.xml.rels")):
        key, target = _ID.search(relation), _TARGET.search(relation)
        if key is not None and target is not None and key[1] == first[1]:
            place = target[1].decode("utf-8")
            return place[1:] if place.startswith("/") else f"xl/{place}"
    raise ValueError


def _measure(archive: zipfile.ZipFile, name: str) -> _Extent | None:
    """Return the extent of the cells that hold something; None for a sheet that is not large."""
    rows = columns = 0
    with archive.open(name) as sheet:
        for text in _split_text(sheet):
            rows = max([rows, *map(int, _ROW.findall(text))])
            columns = max([columns, *map(_number_column, set(_COLUMN.findall(text)))])
    if rows * columns <= _MOST_SPARSE:
        return None
    # Cells that have only a format may lie anywhere: they are not read.
    rows = columns = cells = 0
    with archive.open(name) as sheet:
        for text in _split_text(sheet):
            for column, row in _FILLED.findall(text):
                rows, columns = max(rows, int(row)), max(columns, _number_column(column))
                cells += 1
    return _Extent(rows, columns, cells) if rows * columns > _MOST_SPARSE else None


def _split_text(sheet: IO[bytes]) -> Iterator[bytes]:
    """Yield the text of a sheet in parts that end where a tag begins, and split none."""
    held = b""
    while part := sheet.read(_PART_BYTES):
        held += part
        if held.endswith(b"<"):  # whether a cell is empty shows in the beginning of the next tag
            held += sheet.read(1)
        last = held.rfind(b"<")
        if last > 0:
            yield held[: last + 2]
            held = held[last:]
        elif len(held) > _PART_BYTES + _LONGEST_TAG:
            held = held[-_LONGEST_TAG:]
    yield held


def _number_column(letters: bytes) -> int:
    """Return the number of a column by its letters.

    Examples
    --------
    >>> _number_column(b"A"), _number_column(b"XFD")
    (1, 16384)
    """
    number = 0
    for letter in letters[:8]:
        number = 26 * number + letter - ord("A") + 1
    return number
