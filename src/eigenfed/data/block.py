"""What readers of files hand on: some rows at a time, and what becomes of all of them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.errors import EigenfedError

BLOCK_BYTES = 4 << 20


@dataclass(frozen=True, eq=False, repr=False)
class Block:
    """Some rows of a file, in their order.

    Attributes
    ----------
    rows : ndarray or csr_array of shape (rows, d)
    ids : sequence of str, or None
    places : ndarray of shape (rows,) or None
        Where the rows stand in the file, counted from 0; None where none were left out.
    """

    rows: Any
    ids: Sequence[str] | None = None
    places: npt.NDArray[np.intp] | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Stored:
    """All rows of a file.

    Attributes
    ----------
    X : ndarray or csr_array of shape (n, d)
        float64.
    ids : tuple of str, Path or None
        The rows' ids, or the file that has them.
    place : Path or None
        The parsed copy, where there is one.
    """

    X: Any
    ids: tuple[str, ...] | Path | None
    place: Path | None


def guarded(
    blocks: Iterable[Block], kinds: tuple[type[Exception], ...], fault: EigenfedError
) -> Iterator[Block]:
    """Pass blocks on, and tell of a fault in reading them by `fault` alone.

    Its cause is dropped, not chained: a reader's own message may quote what stands in the file.
    """
    remaining = iter(blocks)
    while True:
        failed = False
        try:
            block = next(remaining, None)
        except EigenfedError:
            raise
        except kinds:
            failed = True
        if failed:
            raise fault
        if block is None:
            return
        yield block
