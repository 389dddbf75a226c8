"""Ranking of features by how much they vary, from their means and variances.

The two recipes of single-cell analysis compare the dispersion, variance over mean, of features with
similar means, since counts with larger means vary more for no reason of interest. Constant factors
of the variances do not change a ranking, so the divisor n or n - 1 does not matter.
"""

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.errors import InputError

FLAVORS = ("variance", "seurat", "cell_ranger")
"""Known rankings."""

_BINS = 20
_NORMAL_MAD = 0.6744897501960817
"""Median absolute deviation of a standard normal variable."""


def select_variable(
    mean: Array, variance: Array, n_features: int, flavor: str
) -> npt.NDArray[np.int64]:
    """Return the positions of the most variable features, in increasing order.

    Parameters
    ----------
    mean, variance : ndarray of shape (d,)
    n_features : int
        How many to select; all if there are no more.
    flavor : {"variance", "seurat", "cell_ranger"}
        "variance" ranks by variance. "seurat" ranks by the logarithm of the dispersion,
        standardised among features of similar mean, in 20 bins of equal width of log(1 + mean)
        (Satija et al., 2015). "cell_ranger" ranks by the dispersion minus the median, over the
        median absolute deviation, in 20 bins between percentiles of the mean (Zheng et al., 2017).

    Raises
    ------
    InputError
        If a mean is negative and the flavor is for counts.

    Examples
    --------
    >>> select_variable(np.zeros(4), np.array([1.0, 3.0, 0.0, 2.0]), 2, "variance")
    array([1, 3])
    """
    score = _score(mean, variance, flavor)
    # A stable sort: of equally variable features the first ones are selected.
    order = np.argsort(-score, kind="stable")
    return np.sort(order[:n_features]).astype(np.int64)


def _score(mean: Array, variance: Array, flavor: str) -> Array:
    """Return a score that is larger for more variable features; -inf for constant ones."""
    variance = np.maximum(variance, 0.0)
    if flavor == "variance":
        return np.where(variance > 0.0, variance, -np.inf)
    if (mean < 0.0).any():
        raise InputError(
            f"flavor={flavor!r} compares variances with means and needs entries of at least 0. "
            "Select before other steps, or pass flavor='variance'."
        )
    varies = (variance > 0.0) & (mean > 0.0)
    dispersion = np.where(varies, variance / np.where(mean > 0.0, mean, 1.0), 0.0)
    if flavor == "seurat":
        score = _score_seurat(np.log1p(mean), dispersion, varies)
    else:
        score = _score_cell_ranger(mean, dispersion)
    return np.where(varies, score, -np.inf)


def _score_seurat(level: Array, dispersion: Array, varies: npt.NDArray[np.bool_]) -> Array:
    logs = np.log(np.where(varies, dispersion, 1.0))
    lowest, highest = float(level.min()), float(level.max())
    edges = np.linspace(lowest, highest, _BINS + 1)
    bins = np.searchsorted(edges[1:-1], level, side="left")
    score = np.zeros_like(logs)
    for place in np.unique(bins):
        inside = (bins == place) & varies
        found = logs[inside]
        if len(found) < 2:
            # One feature has nothing to be compared with: a score of one standard deviation.
            score[inside] = 1.0
            continue
        sd = float(found.std(ddof=1))
        score[inside] = (found - found.mean()) / sd if sd > 0.0 else 0.0
    return score


def _score_cell_ranger(mean: Array, dispersion: Array) -> Array:
    edges = np.unique(np.percentile(mean, np.arange(10, 105, 5)))
    bins = np.searchsorted(edges, mean, side="left")
    score = np.zeros_like(dispersion)
    for place in np.unique(bins):
        inside = bins == place
        away = dispersion[inside] - np.median(dispersion[inside])
        mad = float(np.median(np.abs(away))) / _NORMAL_MAD
        score[inside] = away / mad if mad > 0.0 else 0.0
    return score
