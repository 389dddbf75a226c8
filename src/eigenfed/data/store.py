"""Blocks of rows brought together: in memory while they are small, else in files to be mapped."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from eigenfed.data.block import Block, Stored
from eigenfed.data.cache import Slot
from eigenfed.data.parsed_copy import mapped_copy, write_copy
from eigenfed.errors import DataError, InputError, Pass

_SMALL_BYTES = 64 << 20


def store(blocks: Iterable[Block], slot: Slot, names: Sequence[str] | None) -> Stored:
    """Bring blocks together, in the slot's place where they outgrow 64 MB.

    Parameters
    ----------
    blocks : iterable of Block
        All dense, or all sparse.
    slot : Slot
    names : sequence of str or None
        Of the columns, for messages.

    Raises
    ------
    DataError
        If there are no rows, or some entry is infinite.
    """
    checked = _checked(blocks, slot.path, names)
    held, size = [], 0
    for block in checked:
        held.append(block)
        size += _bytes_of(block)
        if size > _SMALL_BYTES:
            with slot.building() as folder:
                write_copy(folder, chain(_drained(held), checked))
            found = kept(slot)
            if found is None:
                raise DataError(f"The parsed copy of {slot.path} was changed. Read it again.")
            return found
    if not held:
        raise DataError(f"{slot.path} has no rows. Pass a file with records.")
    return _joined(held)


def kept(slot: Slot) -> Stored | None:
    """Return the copy in a slot's place; None where there is none, or none that is sound."""
    if not slot.place.is_dir():
        return None
    try:
        return mapped_copy(slot.place)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        slot.discard()
        return None
    except OSError as error:
        raise InputError(
            f"The parsed copy of {slot.path} in {slot.place} cannot be mapped: {error.strerror}. "
            "Allow this process more address space and files."
        ) from None


def check_unique(blocks: Iterable[Block], path: Path, column: str) -> Iterator[Block]:
    """Pass blocks on, and refuse a file at its end if two rows have the same id.

    16 bytes are held for each row, whatever the length of its id, and 8 where rows are left out.
    """
    digests, places = array("Q"), array("Q")
    for block in blocks:
        if block.places is not None:
            places.extend(block.places.tolist())
        for row_id in block.ids or ():
            digests.frombytes(blake2b(row_id.encode(), digest_size=16).digest())
        yield block
    halves = np.frombuffer(digests, np.uint64).reshape(-1, 2)
    order = np.lexsort(halves.T)
    repeated = np.flatnonzero((halves[order[1:]] == halves[order[:-1]]).all(axis=1))
    if len(repeated):
        pair = order[repeated[0] : repeated[0] + 2].tolist()
        first, again = sorted((places[row] if places else row) + 1 for row in pair)
        raise DataError(
            f"{path} has the same id in {column!r} in the rows {first} and {again}",
            remedy=("Give each row its own id, or ", Pass("id_column", None), "."),
        )


def _checked(blocks: Iterable[Block], path: Path, names: Sequence[str] | None) -> Iterator[Block]:
    before = 0
    for block in blocks:
        rows = block.rows
        if rows.dtype != np.float64:
            rows = rows.astype(np.float64)
        place = _infinity(rows)
        if place is not None:
            where, column = place
            row = before + where if block.places is None else int(block.places[where])
            called = f"column {column + 1}" if names is None else repr(names[column])
            raise DataError(
                f"{path} holds infinity in row {row + 1} of {called}, and entries must be finite "
                "or missing. Leave that entry empty."
            )
        before += rows.shape[0]
        if rows.shape[0]:
            yield Block(rows, block.ids)


def _infinity(rows: Any) -> tuple[int, int] | None:
    """Row and column of the first infinite entry."""
    if not _is_sparse(rows):
        infinite = np.isinf(rows)
        if not infinite.any():
            return None
        place = np.unravel_index(np.argmax(infinite), infinite.shape)
        return int(place[0]), int(place[1])
    entries = np.flatnonzero(np.isinf(rows.data))
    if not len(entries):
        return None
    row = np.searchsorted(rows.indptr, entries[0], side="right") - 1
    return int(row), int(rows.indices[entries[0]])


def _bytes_of(block: Block) -> int:
    rows = block.rows
    if _is_sparse(rows):
        return int(rows.data.nbytes + rows.indices.nbytes + rows.indptr.nbytes)
    return int(rows.nbytes)


def _drained(held: list[Block]) -> Iterator[Block]:
    """Let go of each block as it is taken."""
    held.reverse()
    while held:
        yield held.pop()


def _joined(held: list[Block]) -> Stored:
    rows = [block.rows for block in held]
    ids = None if held[0].ids is None else tuple(i for block in held for i in block.ids or ())
    X: Any = rows[0] if len(rows) == 1 else None
    if X is None:
        X = sparse.vstack(rows, format="csr") if _is_sparse(rows[0]) else np.concatenate(rows)
    return Stored(X, ids, None)


def _is_sparse(rows: Any) -> bool:
    return bool(sparse.issparse(rows))
