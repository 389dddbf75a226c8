"""Parquet tables, streamed: integers, floats, decimals and booleans are numbers.

Memory is some pages of each column, whatever the size of a row group.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from eigenfed.data.column_names import non_numeric_error, quote_names
from eigenfed.data.readers.csv_cells import fill_column
from eigenfed.data.readers.npy import count_block_rows
from eigenfed.data.source import Block, guard_blocks
from eigenfed.errors import DataError, InputError, Pass

_BUFFERS_BYTES = 32 << 20
_BUFFER_BYTES = (1 << 12, 1 << 16)


class ParquetHeader(NamedTuple):
    """The footer of a parquet file.

    Attributes
    ----------
    names : tuple of str
    schema : pyarrow.Schema
    metadata : pyarrow.parquet.FileMetaData
        To open the file again without parsing it twice.
    """

    names: tuple[str, ...]
    schema: Any
    metadata: Any


def read_parquet_header(path: Path) -> ParquetHeader:
    """Read the names and types of a table's columns.

    Raises
    ------
    DataError
        If the file is damaged.
    """
    import pyarrow as pa

    header = None
    try:
        with open_parquet(path, 1) as file:
            schema = file.schema_arrow
            header = ParquetHeader(tuple(schema.names), schema, file.metadata)
    except (OSError, pa.ArrowException):
        pass
    if header is None:
        raise damaged_error(path)
    return header


def read_parquet_blocks(
    path: Path, header: ParquetHeader, features: Sequence[str], id_column: str | None
) -> Iterator[Block]:
    """Yield the rows of a table.

    Parameters
    ----------
    path : Path
    header : ParquetHeader
        From `read_parquet_header`.
    features : sequence of str
        Columns to read as numbers, in this order.
    id_column : str or None
        The column of row ids: text or integers.

    Raises
    ------
    InputError
        If a feature does not hold numbers.
    DataError
        If the file is damaged.
    """
    import pyarrow as pa

    check_types(path, header.schema, features, id_column)
    blocks = _read_blocks(path, header, list(features), id_column)
    return guard_blocks(blocks, (OSError, pa.ArrowException), damaged_error(path))


def check_pandas_index(path: Path, header: ParquetHeader, features: Sequence[str]) -> None:
    """Refuse the index of a pandas frame, which names rows, as a feature."""
    about = header.schema.pandas_metadata or {}
    # An index that is a range is described by a mapping and is not a column.
    index = {name for name in about.get("index_columns", []) if isinstance(name, str)}
    used = [name for name in features if name in index]
    if used:
        raise InputError(
            f"{path} keeps the index of a pandas frame in {quote_names(used)}",
            remedy=(
                *(Pass("id_column", ...), " for it, or "),
                *(Pass("exclude", [...]), " to leave it out."),
            ),
        )


def check_types(path: Path, schema: Any, features: Sequence[str], id_column: str | None) -> None:
    """Refuse features that are not numbers, and row ids that are neither text nor integers."""
    from pyarrow import types as of

    kinds = (of.is_integer, of.is_floating, of.is_boolean, of.is_decimal, of.is_null)
    types = dict(zip(schema.names, schema.types, strict=True))
    text = [name for name in features if not any(kind(types[name]) for kind in kinds)]
    if text:
        raise non_numeric_error(path, text, len(features))
    if id_column is None:
        return
    kind = types[id_column]
    kind = kind.value_type if of.is_dictionary(kind) else kind
    id_kinds = (of.is_string, of.is_large_string, of.is_string_view, of.is_integer)
    if not any(check(kind) for check in id_kinds):
        raise InputError(
            f"{path} has neither text nor integers in the id_column {id_column!r}. Name a column "
            "that has."
        )


def _read_blocks(
    path: Path, header: ParquetHeader, features: list[str], id_column: str | None
) -> Iterator[Block]:
    import pyarrow as pa
    from pyarrow import compute

    wanted = [*features, *(() if id_column is None else (id_column,))]
    before = 0
    with open_parquet(path, len(wanted), header.metadata) as file:
        for batch in file.iter_batches(
            batch_size=count_block_rows(len(wanted)), columns=wanted, use_threads=False
        ):
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            rows = np.empty((batch.num_rows, len(features)))
            for place, name in enumerate(features):
                numbers = columns[name]
                if numbers.type != pa.float64():
                    numbers = compute.cast(numbers, pa.float64(), safe=False)
                fill_column(numbers, rows[:, place])
            ids = None
            if id_column is not None:
                ids = _check_ids(path, columns[id_column].to_pylist(), before)
            before += batch.num_rows
            yield Block(rows, ids)


def _check_ids(path: Path, values: list[Any], before: int) -> list[str]:
    for place, value in enumerate(values):
        if value is None or value == "":
            raise DataError(
                f"{path} lacks the id of row {before + place + 1}. Give each row an id."
            )
    return [str(value) for value in values]


def open_parquet(path: Path, count: int, metadata: Any = None) -> Any:
    """Open a table with buffers that are small all together: there is one for each column."""
    from pyarrow import parquet

    least, most = _BUFFER_BYTES
    return parquet.ParquetFile(
        path,
        metadata=metadata,
        pre_buffer=False,
        buffer_size=min(max(_BUFFERS_BYTES // count, least), most),
    )


def damaged_error(path: Path) -> DataError:
    """Return the error for a file that cannot be read to its end."""
    return DataError(f"{path} is not a complete parquet file. Fetch or write it again.")
