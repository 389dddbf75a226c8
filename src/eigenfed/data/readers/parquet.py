"""Parquet tables, streamed: whole numbers, floats, decimals and booleans are numbers.

Memory is some pages of each column, whatever the size of a row group.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eigenfed.data.column_names import listed, no_numbers
from eigenfed.data.readers.npy import rows_of_a_block
from eigenfed.data.readers.optional import needed
from eigenfed.data.source import Block, guarded
from eigenfed.errors import DataError, InputError, Pass

_BUFFERS_BYTES = 32 << 20
_BUFFER_BYTES = (1 << 12, 1 << 16)


def parquet_names(path: Path) -> tuple[str, ...]:
    """Return the names of all columns of a table."""
    return tuple(_schema(path).names)


def parquet_blocks(path: Path, features: Sequence[str], id_column: str | None) -> Iterator[Block]:
    """Yield the rows of a table.

    Parameters
    ----------
    path : Path
    features : sequence of str
        Columns to take as numbers, in this order.
    id_column : str or None
        The column that names the rows: text or whole numbers.

    Raises
    ------
    InputError
        If a feature does not hold numbers, or is the index of a pandas frame.
    DataError
        If the file is damaged.
    """
    pa = needed("pyarrow", extra="tables", path=path)
    schema = _schema(path)
    _check_types(path, schema, features, id_column)
    blocks = _blocks(path, list(features), id_column)
    return guarded(blocks, (OSError, pa.ArrowException), _damaged(path))


def check_pandas_index(path: Path, features: Sequence[str]) -> None:
    """Refuse to take the index of a pandas frame, which names rows, for a feature."""
    about = _schema(path).pandas_metadata or {}
    # An index that is a range is described, by a mapping, and is no column.
    named = {name for name in about.get("index_columns", []) if isinstance(name, str)}
    kept = [name for name in features if name in named]
    if kept:
        raise InputError(
            f"{path} keeps the index of a pandas frame in {listed(kept)}",
            remedy=(
                *(Pass("id_column", ...), " for it, or "),
                *(Pass("columns", [...]), " without it."),
            ),
        )


def _check_types(path: Path, schema: Any, features: Sequence[str], id_column: str | None) -> None:
    pa = needed("pyarrow", extra="tables", path=path)
    of = pa.types
    kinds = (of.is_integer, of.is_floating, of.is_boolean, of.is_decimal, of.is_null)
    types = dict(zip(schema.names, schema.types, strict=True))
    text = [name for name in features if not any(kind(types[name]) for kind in kinds)]
    if text:
        raise no_numbers(path, text, len(features))
    if id_column is None:
        return
    kind = types[id_column]
    kind = kind.value_type if of.is_dictionary(kind) else kind
    named = (of.is_string, of.is_large_string, of.is_string_view, of.is_integer)
    if not any(check(kind) for check in named):
        raise InputError(
            f"{path} has neither text nor whole numbers in the id_column {id_column!r}. Name a "
            "column that has."
        )


def _blocks(path: Path, features: list[str], id_column: str | None) -> Iterator[Block]:
    pa = needed("pyarrow", extra="tables", path=path)
    compute = needed("pyarrow.compute", extra="tables", path=path)
    asked = [*features, *(() if id_column is None else (id_column,))]
    before = 0
    with _opened(path, len(asked)) as file:
        for batch in file.iter_batches(
            batch_size=rows_of_a_block(len(asked)), columns=asked, use_threads=False
        ):
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            rows = np.empty((batch.num_rows, len(features)))
            for place, name in enumerate(features):
                numbers = compute.cast(columns[name], pa.float64(), safe=False)
                rows[:, place] = numbers.to_numpy(zero_copy_only=False)
            ids = None
            if id_column is not None:
                ids = _ids(path, columns[id_column].to_pylist(), before)
            before += batch.num_rows
            yield Block(rows, ids)


def _ids(path: Path, values: list[Any], before: int) -> list[str]:
    for place, value in enumerate(values):
        if value is None or value == "":
            raise DataError(
                f"{path} lacks the id of row {before + place + 1}. Give each row an id."
            )
    return [str(value) for value in values]


def _schema(path: Path) -> Any:
    pa = needed("pyarrow", extra="tables", path=path)
    try:
        with _opened(path, 1) as file:
            schema = file.schema_arrow
    except (OSError, pa.ArrowException):
        schema = None
    if schema is None:
        raise _damaged(path)
    return schema


def _opened(path: Path, count: int) -> Any:
    """Open a table with buffers that are small all together: there is one for each column."""
    least, most = _BUFFER_BYTES
    return needed("pyarrow.parquet", extra="tables", path=path).ParquetFile(
        path, pre_buffer=False, buffer_size=min(max(_BUFFERS_BYTES // count, least), most)
    )


def _damaged(path: Path) -> DataError:
    return DataError(f"{path} is no whole parquet file. Fetch or write it again.")
