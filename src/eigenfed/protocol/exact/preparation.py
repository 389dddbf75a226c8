"""Preparation of rows: the coordinator's half of steps that need figures over all sites.

===========  ==================================================================================
coordinator  for each such step, sums over sites: weight, observed weight, total and sum of
             squares about the mean of each feature, of the rows after the steps before it
site         the positions of the selected features; means and standard deviations
===========  ==================================================================================

The site's half is that of `moments`, with the figures that `stages` describes. Steps within a row
need no round.
"""

from dataclasses import dataclass

import numpy as np

from eigenfed.arrays import Array, Integers
from eigenfed.data.loci import Loci
from eigenfed.data.prepared_rows import Preparation
from eigenfed.data.steps import SelectVariable, Standardize
from eigenfed.errors import InputError, ProtocolError
from eigenfed.linalg.dispersion import select_variable
from eigenfed.protocol.core import Protocol, Total
from eigenfed.protocol.exact.moments import (
    compute_mean,
    request_squares,
    request_totals,
)
from eigenfed.protocol.exact.quality_control import collect_variants
from eigenfed.protocol.exact.stages import Figures, bound_mean_error, find_scale
from eigenfed.protocol.study import Study


@dataclass(frozen=True, eq=False)
class StageMoments:
    """Moments of all rows as far as they are prepared.

    Attributes
    ----------
    count, mean, squares : ndarray of shape (d,)
        Observed weight, mean, and sum of squares about the mean of each feature.
    """

    count: Array
    mean: Array
    squares: Array


def collect_stage(total: Total, study: Study, figures: Figures) -> Protocol[StageMoments]:
    """Collect the moments from which the next step of a preparation takes its figures."""
    first, limits = yield from request_totals(total, study, figures)
    mean = compute_mean(first, limits)
    squares, _ = yield from request_squares(total, mean, limits)
    return StageMoments(first.count, mean, np.maximum(squares, 0.0))


def collect_preparation(
    total: Total, study: Study, loci: Loci | None = None
) -> Protocol[tuple[Preparation, Figures]]:
    """Collect the figures of all steps of a study.

    Parameters
    ----------
    total : Total
        How sums over sites are made.
    study : Study
    loci : Loci or None
        Where the variants of genotypes lie.

    Returns
    -------
    preparation : Preparation
        With all figures.
    figures : dict
        Those of the last step, which the next request must bring to the sites.
    """
    if study.filters_variants:
        known = yield from collect_variants(total, study, loci)
        return known, {"selected": known.selected}
    known, figures = Preparation(study.prepare), Figures()
    while (step := known.missing) is not None:
        moments = yield from collect_stage(total, study, figures)
        if isinstance(step, SelectVariable):
            known = known.with_selected(_choose_features(step, moments))
            figures = {"selected": known.selected}
        elif isinstance(step, Standardize):
            known = _standardize(known, step, moments)
            figures = {"center": known.center, "spread": known.spread}
    return known, figures


def _choose_features(step: SelectVariable, moments: StageMoments) -> Integers:
    variance = moments.squares / np.where(moments.count > 0, moments.count, 1.0)
    # The rounding error of a constant feature must not be ranked as if the feature varied.
    rounding = bound_mean_error(moments.mean, moments.count)
    varying = np.where(np.sqrt(variance) > rounding, variance, 0.0)
    try:
        return select_variable(moments.mean, varying, step.n_features, step.flavor)
    except InputError as error:
        raise ProtocolError(str(error)) from None


def _standardize(known: Preparation, step: Standardize, moments: StageMoments) -> Preparation:
    spread = find_scale(moments.mean, moments.squares, moments.count, step.ddof)
    return known.with_moments(moments.mean, spread)
