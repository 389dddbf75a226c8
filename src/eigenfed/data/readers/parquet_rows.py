"""Rows that stay in their parquet file: one pass over them needs no parsed copy.

A parquet file is about as fast to read again as a copy is to write. Where one pass over few columns
is all that a method needs, the rows come straight from the file, some thousands at a time. Any
other access to them stores a parsed copy first, as for other kinds of files, and reads that.

The footer must show that all entries are finite and present: the entries themselves are not looked
at before they are used, and a table that cannot be used has to be refused when it is opened.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.data.readers.csv_cells import fill_column
from eigenfed.data.readers.parquet import ParquetHeader, check_types, damaged_error, open_parquet
from eigenfed.data.source import LazyTable

_MOST_FEATURES = 200
_LEAST_ROWS_PER_FEATURE = 1000
_BATCH_BYTES = 10 << 20


class ParquetRows(LazyTable):
    """A dense float64 table in a parquet file.

    Parameters
    ----------
    path : Path
    header : ParquetHeader
    features : sequence of str
        The columns, in this order.
    store : callable
        Stores a parsed copy, and returns its rows, (n, d), and what its user should know of it.
    check_state : callable
        Raises DataError if the file is no longer the one that was opened.

    Attributes
    ----------
    shape : tuple of int
    notes : tuple of str
        About the parsed copy; none while there is none.
    """

    dtype = np.dtype(np.float64)

    def __init__(
        self,
        path: Path,
        header: ParquetHeader,
        features: Sequence[str],
        store: Callable[[], tuple[npt.NDArray[Any], tuple[str, ...]]],
        check_state: Callable[[], None],
    ) -> None:
        self._path, self._header, self._features = path, header, list(features)
        self._store, self._check_state = store, check_state
        self.shape = (int(header.metadata.num_rows), len(self._features))
        self.notes: tuple[str, ...] = ()

    @cached_property
    def stored(self) -> npt.NDArray[Any]:
        """The rows of the parsed copy, which is made when they are first asked for."""
        rows, self.notes = self._store()
        return rows

    @property
    def is_stored(self) -> bool:
        """Whether there is a parsed copy."""
        return "stored" in self.__dict__

    def __getitem__(self, place: Any) -> npt.NDArray[Any]:
        found: npt.NDArray[Any] = self.stored[place]
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.array(self.stored, dtype=dtype, copy=copy)

    def read_first(self, n: int) -> npt.NDArray[Any]:
        """Return the first `n` rows, or all if there are fewer, without a parsed copy."""
        if self.is_stored:
            return self.stored[:n]
        first = np.empty((min(n, len(self)), len(self._features)))
        start = 0
        for columns in self.read_columns():
            stop = min(start + len(columns[0]), len(first))
            for place, column in enumerate(columns):
                first[start:stop, place] = column[: stop - start]
            start = stop
            if start == len(first):
                break
        return first

    def read_columns(self) -> Iterator[list[Array]]:
        """Yield the columns of some rows at a time, straight from the file, in order.

        Raises
        ------
        DataError
            If the file is damaged, or changed since it was opened.
        """
        import pyarrow as pa

        d, double = len(self._features), pa.float64()
        self._check_state()
        try:
            with open_parquet(self._path, d, self._header.metadata) as file:
                batches = file.iter_batches(
                    max(1, _BATCH_BYTES // (8 * d)), columns=self._features, use_threads=False
                )
                for batch in batches:
                    places = map(batch.schema.get_field_index, self._features)
                    yield [_view_column(batch.column(place), double) for place in places]
        except (OSError, pa.ArrowException):
            raise damaged_error(self._path) from None
        self._check_state()


def can_stay(path: Path, header: ParquetHeader, features: Sequence[str]) -> bool:
    """Return whether rows may stay in their file: few columns, many rows, no entry to refuse."""
    metadata, d = header.metadata, len(features)
    if not 0 < d <= _MOST_FEATURES or metadata.num_rows < _LEAST_ROWS_PER_FEATURE * d:
        return False
    check_types(path, header.schema, features, None)
    places = {metadata.schema.column(j).path: j for j in range(metadata.num_columns)}
    return all(
        name in places and _is_complete(metadata.row_group(group).column(places[name]).statistics)
        for group in range(metadata.num_row_groups)
        for name in features
    )


def _is_complete(statistics: Any) -> bool:
    """Return whether a part of a column is known to have no missing and no infinite entry."""
    if statistics is None or not (statistics.has_min_max and statistics.has_null_count):
        return False
    bounds = statistics.min, statistics.max
    return statistics.null_count == 0 and all(math.isfinite(bound) for bound in bounds)


def _view_column(column: Any, double: Any) -> Array:
    """Return a column of a batch as float64, without a copy where it is of that type."""
    if column.type == double and not column.null_count:
        return np.frombuffer(column.buffers()[1], np.float64, len(column), 8 * column.offset)
    from pyarrow import compute

    values = np.empty(len(column))
    fill_column(compute.cast(column, double, safe=False), values)
    return values
