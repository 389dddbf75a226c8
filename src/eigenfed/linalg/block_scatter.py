"""The scatter of rows that come in blocks, summed without a second d x d matrix.

Few features have a small scatter: the blocks are multiplied in threads and their scatters added in
order. With many features the scatters of some blocks would take several times the memory of their
sum, so the blocks are taken one after the other and each is multiplied in tiles of the sum, the
tiles in threads. Either way the result is the same for any number of threads.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.linalg.threads import map_in_order

MANY_FEATURES, _LARGEST_TILE = 1024, 768
"""Features above which a scatter is summed in tiles, and the largest side of a tile."""


def sum_scatters(
    make_block: Callable[[slice], npt.NDArray[Any]], spans: Sequence[slice], d: int
) -> Array:
    """Return the sum of B'B over blocks B of rows, (d, d), in double precision.

    Where products of entries overflow, it is infinite or NaN.

    Parameters
    ----------
    make_block : callable
        Returns the block of a span, (m, d), multiplied in the precision that it has. It is called
        from several threads.
    spans : sequence of slice
        The rows of each block.
    d : int
        Number of features.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[1.0, 0.0], [1.0, 2.0]])
    >>> sum_scatters(lambda span: rows[span], [slice(0, 1), slice(1, 2)], 2)
    array([[2., 2.],
           [2., 4.]])
    """
    if d > MANY_FEATURES:
        return _sum_in_tiles(map(make_block, spans), d)

    def multiply_block(span: slice) -> Any:
        block = make_block(span)
        with np.errstate(over="ignore", invalid="ignore"):
            return block.T @ block

    total = np.zeros((d, d))
    rows = sum(span.stop - span.start for span in spans)
    for part in map_in_order(multiply_block, spans, flops=float(rows) * d * d):
        with np.errstate(over="ignore", invalid="ignore"):
            total += part
    return total


def _sum_in_tiles(blocks: Iterable[npt.NDArray[Any]], d: int) -> Array:
    total, tiles = np.zeros((d, d)), _cut_triangle(d)

    def add_tile(block: npt.NDArray[Any], tile: tuple[slice, slice]) -> None:
        down, across = tile
        with np.errstate(over="ignore", invalid="ignore"):
            total[tile] += block[:, down].T @ block[:, across]

    for block in blocks:
        flops = float(block.size) * d
        deque(map_in_order(partial(add_tile, block), tiles, flops=flops), maxlen=0)
    for down, across in tiles:
        if down != across:
            total[across, down] = total[down, across].T
    return total


def _cut_triangle(d: int) -> list[tuple[slice, slice]]:
    """Return tiles of even sizes that cover the lower triangle of a d x d matrix."""
    count = -(-d // _LARGEST_TILE)
    edges = [i * d // count for i in range(count + 1)]
    spans = [slice(start, stop) for start, stop in pairwise(edges)]
    return [(down, across) for i, down in enumerate(spans) for across in spans[: i + 1]]
