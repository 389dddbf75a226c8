"""Conditions that select rows of a file by comparing a column with a number.

Rows are left out block by block, as a file is read. A missing entry fulfils no condition. No
message quotes an entry.
"""

import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.data.column_names import list_columns
from eigenfed.data.source import Block
from eigenfed.errors import InputError

_SIGNS: dict[str, Callable[[Any, float], Any]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?"
# A column does not end in a sign: "age => 18" is a mistake and not about a column "age =".
_COLUMN = r"\S(?:.*[^\s<>=!])?"
PATTERN = rf"\s*{_COLUMN}\s*(?:{'|'.join(_SIGNS)})\s*{_NUMBER}\s*"
"""Regular expression of a condition, in the syntax that Python and JSON schema share."""

_PARTS = re.compile(rf"\s*({_COLUMN})\s*({'|'.join(_SIGNS)})\s*({_NUMBER})\s*")


@dataclass(frozen=True)
class Condition:
    """A column compared with a number.

    Examples
    --------
    >>> condition = Condition.of("age >= 18")
    >>> condition
    Condition(column='age', sign='>=', number=18.0)
    >>> condition.holds(np.array([17.0, 18.0, np.nan])).tolist()
    [False, True, False]
    """

    column: str
    sign: str
    number: float

    @classmethod
    def of(cls, text: object) -> "Condition":
        """Parse a condition."""
        parts = _PARTS.fullmatch(text) if isinstance(text, str) else None
        if parts is None or not math.isfinite(float(parts[3])):
            raise InputError(
                f"where has {text!r}, and a condition is a column, one of {' '.join(_SIGNS)}, and "
                "a number. For example, write 'age >= 18'."
            )
        return cls(parts[1], parts[2], float(parts[3]))

    def holds(self, entries: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return for each entry whether it fulfils the condition; NaN never does."""
        held: npt.NDArray[np.bool_] = _SIGNS[self.sign](entries, self.number) & ~np.isnan(entries)
        return held


def parse_conditions(where: Sequence[str] | None) -> tuple[Condition, ...]:
    """Parse conditions, all of which must hold."""
    if isinstance(where, str):
        raise InputError(f"where={where!r} must be a list of conditions. Pass [{where!r}].")
    return tuple(map(Condition.of, where or ()))


def check_columns(
    path: Path, conditions: Iterable[Condition], names: Iterable[str], id_column: str | None
) -> None:
    """Refuse conditions on columns that do not exist or that hold row ids."""
    compared = {condition.column: None for condition in conditions}
    absent = [name for name in compared if name not in set(names)]
    if absent:
        raise InputError(
            f"{path} lacks {list_columns(absent)} that where compares. Check the spelling."
        )
    if id_column in compared:
        raise InputError(
            f"where compares {id_column!r} in {path}, which is the id_column. Compare another one."
        )


def filter_blocks(
    blocks: Iterable[Block],
    conditions: Sequence[Condition],
    entries: Callable[[Block, int, str], npt.NDArray[Any]],
) -> Iterator[Block]:
    """Yield the rows of blocks that fulfil all conditions, with their positions in the file.

    Parameters
    ----------
    blocks : iterable of Block
    conditions : sequence of Condition
    entries : callable
        ``entries(block, start, column)`` returns the entries of a column for the rows of a block,
        the first of which is row `start` of the file, counted from 0.
    """
    before = 0
    for block in blocks:
        count = block.rows.shape[0]
        holds = np.ones(count, dtype=bool)
        for condition in conditions:
            holds &= condition.holds(entries(block, before, condition.column))
        places = np.flatnonzero(holds)
        ids = None if block.ids is None else [block.ids[place] for place in places.tolist()]
        yield Block(block.rows[places], ids, before + places)
        before += count


def read_filtered(
    read: Callable[..., Iterator[Block]],
    path: Path,
    features: Sequence[str],
    id_column: str | None,
    conditions: Sequence[Condition],
) -> Iterator[Block]:
    """Yield the rows of a table that fulfil conditions on any of its columns.

    Parameters
    ----------
    read : callable
        ``read(columns, id_column)`` yields blocks of these columns of the table.
    path : Path
        For messages.
    features : sequence of str
    id_column : str or None
    conditions : sequence of Condition
    """
    others = dict.fromkeys(c.column for c in conditions if c.column not in features)
    columns = [*features, *others]
    places = {name: place for place, name in enumerate(columns)}
    blocks = _read_or_blame(read, path, columns, id_column, tuple(others))
    chosen = filter_blocks(blocks, conditions, lambda block, _, name: block.rows[:, places[name]])
    for block in chosen:
        yield Block(block.rows[:, : len(features)], block.ids, block.places)


def _read_or_blame(
    read: Callable[..., Iterator[Block]],
    path: Path,
    columns: Sequence[str],
    id_column: str | None,
    others: Sequence[str],
) -> Iterator[Block]:
    """Read blocks; an error names a column of text that only `where` uses."""
    try:
        yield from read(columns, id_column)
        return
    except InputError as error:
        fault = error
    for name in others:
        try:
            for _ in read([name], None):
                pass
        except InputError:
            fault = InputError(
                f"where compares {name!r} in {path} with a number, and the column holds text. "
                "Compare a column of numbers."
            )
            break
    raise fault
