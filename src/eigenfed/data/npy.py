"""Arrays of numpy: mapped where their numbers can be used as they are."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.data.block import BLOCK_BYTES, Block
from eigenfed.data.npy_header import mapped
from eigenfed.errors import DataError, InputError


def npy_array(path: Path) -> npt.NDArray[Any]:
    """Map the array of an ``.npy`` file; nothing is read but its header, and nothing unpickled.

    Parameters
    ----------
    path : Path

    Returns
    -------
    ndarray of shape (n, d)
        Of real numbers.
    """
    try:
        X = mapped(path)
    except OSError as error:
        raise InputError(
            f"{path} cannot be mapped: {error.strerror}. Allow this process more address space."
        ) from None
    check_table(path, X.shape, X.dtype)
    return X


def is_ready(X: npt.NDArray[Any]) -> bool:
    """Say whether an array's numbers are float64 or float32 as this machine has them."""
    return X.dtype in (np.float64, np.float32)


def array_blocks(X: npt.NDArray[Any]) -> Iterator[Block]:
    """Yield the rows of a mapped array as blocks."""
    step = rows_of_a_block(X.shape[1])
    for start in range(0, len(X), step):
        yield Block(np.array(X[start : start + step]))


def rows_of_a_block(d: int) -> int:
    """Return how many rows of d numbers are a block of 4 MB, at least one."""
    return max(1, BLOCK_BYTES // (8 * d))


def check_table(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuse what is no table of real numbers with a row and a column."""
    if dtype.kind not in "biuf":
        raise DataError(
            f"{path} holds numbers of dtype {dtype}, and they must be real. Convert them first."
        )
    if len(shape) != 2 or not shape[1]:
        raise DataError(
            f"{path} holds an array of shape {shape}, which must be rows x features. Reshape it."
        )
    if not shape[0]:
        raise DataError(f"{path} has no rows. Pass a file with records.")
