"""What readers of csv files and of csv streams share; it imports little, for small devices."""

import zlib
from pathlib import Path
from typing import Any

import numpy as np

from eigenfed.arrays import Array
from eigenfed.errors import DataError

LONGEST_LINE = 256 << 20
BROKEN = (OSError, EOFError, zlib.error)


def get_usual_delimiter(path: Path | str) -> str:
    """Return the delimiter that the name of a file promises."""
    name = str(path).lower().removesuffix(".gz")
    return "\t" if name.endswith(".tsv") else ","


def to_array(table: Any, d: int) -> Array:
    """Return the first d columns of a pyarrow table or batch of float64, (n, d), NaN for null."""
    rows = np.empty((table.num_rows, d))
    for place in range(d):
        fill_column(table.column(place), rows[:, place])
    return rows


def fill_column(column: Any, values: Array) -> None:
    """Copy a pyarrow column of float64 into an array, with NaN for null.

    From the buffers themselves: the conversions of pyarrow import pandas where it is installed.
    """
    start = 0
    for part in getattr(column, "chunks", [column]):
        validity, data = part.buffers()
        taken = values[start : start + len(part)]
        if len(part):
            taken[:] = np.frombuffer(data, np.float64, len(part), 8 * part.offset)
        if part.null_count:
            valid = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")
            taken[valid[part.offset : part.offset + len(part)] == 0] = np.nan
        start += len(part)


def damaged_error(name: Path | str) -> DataError:
    """Return the error for a file that ends early or cannot be decompressed."""
    return DataError(f"{name} is damaged or incomplete. Fetch or write it again.")


def long_line_error(name: Path | str, limit: int) -> DataError:
    """Return the error for a line that is longer than any row can be."""
    return DataError(f"{name} has a line of more than {limit >> 20} MB. Check that it is text.")
