"""The noise of each reply of a private run, from the sensitivity of what the reply sums."""

import numpy as np

from eigenfed.privacy.dp.clipping import sketch_slack
from eigenfed.privacy.dp.discrete_gaussian import Noise
from eigenfed.privacy.dp.norm_counts import NEAR_CELLS, WIDE_CELLS, norm_counts_sensitivity
from eigenfed.privacy.dp.sensitivity import (
    COUNT_UNIT,
    count_sensitivity,
    second_moment_sensitivity,
    sketch_sensitivity,
    sum_sensitivity,
)
from eigenfed.protocol.private.budget_schedule import require_privacy, split_start
from eigenfed.protocol.study import Study

SCREE_UNIT = 1 << 30
"""Integer that represents a squared length of 1 (the radius) in `private_scree`."""

START_GRID = 1 << 14
"""Integer that represents the length 1 of a direction in `private_start`."""

_UPDATE_MARGIN = 1.5


def noise_of_count(relation: str) -> Noise:
    """Return the noise of a count, in units of ``1 / COUNT_UNIT``."""
    return Noise(COUNT_UNIT * count_sensitivity(relation))


def noise_of_norms(relation: str) -> Noise:
    """Return the noise of counts within radii about a known one."""
    return Noise(norm_counts_sensitivity(NEAR_CELLS, relation))


def noise_of_start(study: Study, d: int) -> Noise:
    """Return the noise of the first reply, whose parts spend fractions of their own.

    Divided by its relative standard deviation, a part with a proportion p of the reply's budget
    changes by at most sqrt(p), and all parts together by at most 1.
    """
    relation = require_privacy(study).relation
    parts = {
        "count": (COUNT_UNIT * count_sensitivity(relation), 1),
        "counts": (norm_counts_sensitivity(WIDE_CELLS, relation), WIDE_CELLS),
        "total": (sum_sensitivity(START_GRID, relation), d),
    }
    fractions = split_start(study)
    whole = sum(fractions.values())
    return Noise(
        1.0,
        {
            name: np.full(parts[name][1], parts[name][0] * float(np.sqrt(whole / fraction)))
            for name, fraction in fractions.items()
        },
    )


def noise_of_total(grid: int, relation: str) -> Noise:
    """Return the noise of a sum of rows on the grid."""
    return Noise(sum_sensitivity(grid, relation))


def noise_of_scatter(grid: int, d: int, relation: str) -> Noise:
    """Return the noise of the upper triangle of a second moment of rows on the grid.

    Off the diagonal its standard deviation is 1 / sqrt(2) times that on the diagonal. An entry off
    the diagonal counts twice in the Frobenius norm, so this noise is isotropic in the space of
    symmetric matrices with that norm, and the sensitivity in Frobenius norm applies.
    """
    i, j = np.triu_indices(d)
    return Noise(
        second_moment_sensitivity(grid, relation), {"triangle": np.where(i == j, 1.0, np.sqrt(0.5))}
    )


def noise_of_product(grid: int, width: int, update_clip: float, relation: str) -> Noise:
    """Return the noise of a second moment on the grid times directions; the clip is on the grid."""
    return Noise(sketch_sensitivity(grid, update_clip, relation) + sketch_slack(grid, width))


def noise_of_scree(relation: str) -> Noise:
    """Return the noise of squared lengths along components.

    One row contributes nonnegative numbers with a sum of at most 1 (the squared radius), so the
    contributions of two rows are at most sqrt(2) apart.
    """
    return Noise(second_moment_sensitivity(1.0, relation) * SCREE_UNIT)


def update_clip_of(width: int, d: int, *, first: bool) -> float:
    """Return the clip of a row's update, as a fraction of the squared radius.

    The projection of a row onto l random directions has about ``sqrt(l / d)`` of its length,
    whatever the data. In the first product, whose directions are random, updates are clipped near
    there, and the noise is smaller accordingly.
    """
    return min(1.0, _UPDATE_MARGIN * float(np.sqrt(width / d))) if first else 1.0
