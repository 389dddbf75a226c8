"""Scores of a site's rows, for figures: where they lie, and few enough of them to draw."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.data.npy_header import mapped
from eigenfed.errors import DataError

POINTS_SHOWN = 4000
DIRECTIONS_SHOWN = 6
_BLOCK_ROWS = 65536


@dataclass(frozen=True, eq=False)
class SiteScores:
    """Where a site's rows lie on the components.

    Attributes
    ----------
    rows : int
    mean, deviation : ndarray of shape (k,)
        Of the scores; the deviation is about the site's own mean.
    points : ndarray of shape (m, l)
        The scores of some rows, evenly spaced, on the first components.
    """

    rows: int
    mean: Array
    deviation: Array
    points: Array


def read_scores(folder: Path, sites: Iterable[str], k: int) -> dict[str, SiteScores]:
    """Read the scores of those sites whose scores are in a result folder.

    Raises
    ------
    DataError
        If a file is damaged or has other components.
    """
    paths = {site: folder / "scores" / f"{site}.npy" for site in sites}
    return {site: _read(path, k) for site, path in paths.items() if path.exists()}


def _read(path: Path, k: int) -> SiteScores:
    try:
        scores = mapped(path)
    except (OSError, DataError):
        raise _unreadable(path) from None
    if scores.dtype not in (np.float64, np.float32) or scores.ndim != 2 or scores.shape[1] != k:
        raise _unreadable(path)
    with np.errstate(all="ignore"):
        mean, deviation = _moments(scores)
    if not (np.isfinite(mean).all() and np.isfinite(deviation).all()):
        raise _unreadable(path)
    return SiteScores(len(scores), mean, deviation, spaced(scores, POINTS_SHOWN))


def _moments(scores: npt.NDArray[Any]) -> tuple[Array, Array]:
    n = max(len(scores), 1)
    blocks = range(0, len(scores), _BLOCK_ROWS)
    total = np.zeros(scores.shape[1])
    for start in blocks:
        total += scores[start : start + _BLOCK_ROWS].sum(axis=0, dtype=np.float64)
    mean = total / n
    square = np.zeros(scores.shape[1])
    for start in blocks:
        square += np.square(scores[start : start + _BLOCK_ROWS] - mean).sum(axis=0)
    return mean, np.sqrt(square / n)


def spaced(scores: npt.NDArray[Any], most: int) -> Array:
    """Take at most so many rows, evenly spaced, on the first components.

    Examples
    --------
    >>> spaced(np.arange(10.0).reshape(10, 1), 4).ravel()
    array([0., 3., 6., 9.])
    """
    step = max(-(-len(scores) // most), 1)
    return np.array(scores[::step, :DIRECTIONS_SHOWN], dtype=np.float64)


def _unreadable(path: Path) -> DataError:
    return DataError(
        f"{path} cannot be read, or is not of this result. Fit again, or take the file away."
    )
