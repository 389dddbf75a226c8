"""Rows of numbers as lines of text: fields between commas, or between blanks."""

import math
from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np

from eigenfed.arrays import Array
from eigenfed.errors import DataError

_MISSING = {"", "na", "nan"}


def batches(lines: Iterable[str], size: int, *, header: bool = False) -> Iterator[Array]:
    """Read rows, `size` of them at a time; the last batch may have fewer.

    Parameters
    ----------
    lines : iterable of str
        Blank ones are passed over. A field that is empty, NA or NaN is missing.
    size : int
    header : bool, default=False
        Whether the first line names the columns.

    Yields
    ------
    ndarray of shape (b, d)

    Raises
    ------
    DataError
        If a line holds anything but numbers, an infinite one, or more or fewer than the first. It
        says which line, and nothing of what is in it.

    Examples
    --------
    >>> for rows in batches(["1,2", "3,", "", "5 6"], size=2):
    ...     print(rows.tolist())
    [[1.0, 2.0], [3.0, nan]]
    [[5.0, 6.0]]
    """
    numbered = enumerate(lines, start=1)
    if header:
        next(numbered, None)
    rows = _rows(numbered)
    try:
        while batch := list(islice(rows, size)):
            yield np.array(batch)
    except UnicodeDecodeError:
        raise DataError("The rows are no text in UTF-8. Send lines of numbers.") from None


def _rows(numbered: Iterable[tuple[int, str]]) -> Iterator[list[float]]:
    d = None
    for number, line in numbered:
        text = line.strip()
        if not text:
            continue
        row = _row(number, text)
        if d is not None and len(row) != d:
            raise DataError(
                f"Line {number} has {len(row)} fields and the lines before have {d}. "
                "Bring the same number in each line."
            )
        d = len(row)
        yield row


def _row(number: int, text: str) -> list[float]:
    fields = [field.strip() for field in text.split(",")] if "," in text else text.split()
    try:
        row = [math.nan if field.lower() in _MISSING else float(field) for field in fields]
    except ValueError:
        first = " Pass --header if the first line names the columns." if number == 1 else ""
        raise DataError(
            f"Line {number} holds something that is no number, and rows are numbers between commas "
            f"or blanks.{first or ' Mend or drop it.'}"
        ) from None
    if any(map(math.isinf, row)):
        raise DataError(f"Line {number} holds an infinite number. Mend or drop it.")
    return row
