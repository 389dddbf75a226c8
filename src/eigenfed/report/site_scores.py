"""The scores of a site and what belongs to them, for the pages that show its rows."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.data.readers.npy import map_npy
from eigenfed.data.safe_files import LARGEST_PART, parse_strict_json, read_part
from eigenfed.errors import DataError

POINTS_SHOWN = 4000
DIRECTIONS_SHOWN = 6
FAR_SHOWN = 10
GROUPS_SHOWN = 8
OTHER_LABELS = "other labels"
_BLOCK_ROWS = 65536


@dataclass(frozen=True, eq=False)
class SiteScores:
    """The scores of a site's rows.

    Attributes
    ----------
    rows : int
        Number of rows.
    mean, sd : ndarray of shape (k,)
        Mean and standard deviation of the scores.
    points : ndarray of shape (m, l)
        The scores of some rows, evenly spaced, on the first components.
    far : tuple of (int, float)
        The rows farthest from the mean of all rows, and their distances in standard deviations of
        all rows.
    ids : tuple of str or None
        The identifiers of all rows.
    missing : dict of str to int
        Number of missing entries of each feature that has some.
    means : dict of str to float
        Features whose mean differs most from that of all rows: by how much, in standard deviations.
    groups : dict of str to SiteScores
        The same by the label of the rows, if they have labels.
    """

    rows: int
    mean: Array
    sd: Array
    points: Array
    far: tuple[tuple[int, float], ...] = ()
    ids: tuple[str, ...] | None = None
    missing: dict[str, int] = field(default_factory=dict)
    means: dict[str, float] = field(default_factory=dict)
    groups: dict[str, "SiteScores"] = field(default_factory=dict)


def read_scores(
    folder: Path, sites: Iterable[str], variances: Sequence[float]
) -> dict[str, SiteScores]:
    """Read the scores of those sites whose scores are in a result folder.

    Parameters
    ----------
    folder : Path
    sites : iterable of str
    variances : sequence of float
        Of the k components.

    Raises
    ------
    DataError
        If a file is damaged or has another number of components.
    """
    paths = {site: folder / "scores" / f"{site}.npy" for site in sites}
    return {
        site: replace(
            _read(path, variances),
            ids=_read_texts(path, "rows"),
            missing=_read_by_feature(path, "missing", int),
            means=_read_by_feature(path, "means", float),
            groups=_read_groups(path),
        )
        for site, path in paths.items()
        if path.exists()
    }


def _read_texts(scores: Path, part: str) -> tuple[str, ...] | None:
    path = scores.with_name(f"{scores.stem}.{part}.json")
    # Without identifiers the page has numbers of rows.
    if not path.exists() or path.stat().st_size > LARGEST_PART:
        return None
    texts = _parse(path)
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise _unreadable(path)
    return tuple(texts)


def _read_by_feature(scores: Path, part: str, kind: type) -> dict[str, Any]:
    path = scores.with_name(f"{scores.stem}.{part}.json")
    if not path.exists():
        return {}
    found = _parse(path)
    if not isinstance(found, dict) or not all(type(value) is kind for value in found.values()):
        raise _unreadable(path)
    return found


def _read_groups(scores: Path) -> dict[str, SiteScores]:
    """Return the scores by label: the most frequent labels, and the rest together."""
    labels = _read_texts(scores, "labels")
    if labels is None:
        return {}
    table, found = map_npy(scores), np.asarray(labels, dtype=object)
    if len(found) != len(table):
        raise _unreadable(scores)
    counts = Counter(labels)
    names = [name for name, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    if len(names) > GROUPS_SHOWN:
        names, rest = names[: GROUPS_SHOWN - 1], names[GROUPS_SHOWN - 1 :]
        found = np.where(np.isin(found, rest), OTHER_LABELS, found)
        names.append(OTHER_LABELS)
    groups = {}
    for name in names:
        rows = table[found == name]
        mean, sd = _compute_moments(rows)
        groups[name] = SiteScores(len(rows), mean, sd, take_evenly(rows, POINTS_SHOWN))
    return groups


def _parse(path: Path) -> Any:
    try:
        return parse_strict_json(read_part(path).decode("utf-8"))
    except (OSError, ValueError):
        raise _unreadable(path) from None


def _read(path: Path, variances: Sequence[float]) -> SiteScores:
    k = len(variances)
    try:
        scores = map_npy(path)
    except (OSError, DataError):
        raise _unreadable(path) from None
    if scores.dtype not in (np.float64, np.float32) or scores.ndim != 2 or scores.shape[1] != k:
        raise _unreadable(path)
    with np.errstate(all="ignore"):
        mean, sd = _compute_moments(scores)
    if not (np.isfinite(mean).all() and np.isfinite(sd).all()):
        raise _unreadable(path)
    far = _find_far_rows(scores, np.asarray(variances))
    return SiteScores(len(scores), mean, sd, take_evenly(scores, POINTS_SHOWN), far)


def _find_far_rows(scores: npt.NDArray[Any], variances: Array) -> tuple[tuple[int, float], ...]:
    # A component without variance would put all rows at infinity.
    used = variances > 1e-12 * variances[0]
    best = np.zeros((0, 2))
    for start in range(0, len(scores), _BLOCK_ROWS):
        block = np.asarray(scores[start : start + _BLOCK_ROWS, used], dtype=np.float64)
        distances = np.sqrt((block**2 / variances[used]).sum(axis=1))
        best = np.vstack([best, np.column_stack([np.arange(start, start + len(block)), distances])])
        best = best[np.lexsort((best[:, 0], -best[:, 1]))][:FAR_SHOWN]
    return tuple((int(row), float(distance)) for row, distance in best)


def _compute_moments(scores: npt.NDArray[Any]) -> tuple[Array, Array]:
    # In blocks, and the mean first: the file is mapped and may be larger than memory.
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


def take_evenly(scores: npt.NDArray[Any], most: int) -> Array:
    """Return at most `most` rows, evenly spaced, on the first components.

    Examples
    --------
    >>> take_evenly(np.arange(10.0).reshape(10, 1), 4).ravel()
    array([0., 3., 6., 9.])
    """
    step = max(-(-len(scores) // most), 1)
    return np.array(scores[::step, :DIRECTIONS_SHOWN], dtype=np.float64)


def _unreadable(path: Path) -> DataError:
    return DataError(
        f"{path} cannot be read, or does not belong to this result. Fit again, or remove the file."
    )
