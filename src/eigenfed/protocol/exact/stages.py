"""Figures of a preparation, as requests bring them to the sites.

A study may prepare rows by steps that depend on all sites: which features vary most, and their
means and standard deviations. Each such step ends a stage of the run. The first request of the next
stage brings the step's figures, and from then on the site's rows are those after that step. How
many features are selected, and the clip, are the study's and not the request's.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array, Integers
from eigenfed.data.steps import SelectVariable, Standardize, count_features
from eigenfed.data.variant_steps import PruneLd, VariantStep
from eigenfed.errors import InputError
from eigenfed.protocol.core import Total
from eigenfed.protocol.gate.script import Script, optional, repeat, sequence
from eigenfed.protocol.operations import R, Request, State, Terms
from eigenfed.protocol.study import Study

Figures = dict[str, Any]
"""Fields of a request that bring the figures of a preparation."""

_MOST_TILES = 1 << 20
"""At least as many requests for products of variants as any site has tiles, which bound them."""
SINGLE_ROUNDOFF = float(np.finfo(np.float32).eps) / 2
LEAST_SINGLE = float(np.finfo(np.float32).smallest_subnormal)
LEAST_SCALE = 1e-153
"""Least divisor of features: squares of smaller numbers would vanish."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StageRequest(Request[R]):
    """Base of requests that may begin a stage, and then bring figures.

    Attributes
    ----------
    selected : ndarray of int64 or None
        Positions of the selected features, in increasing order.
    center, spread : ndarray of shape (d,) or None
        Mean and standard deviation of each feature, for a standardisation.
    """

    selected: Integers | None = None
    center: Array | None = None
    spread: Array | None = None

    def begins_stage(self, terms: Terms, state: State) -> bool:
        """Return whether this request begins another stage than the first."""
        raise NotImplementedError

    def check(self, terms: Terms, state: State) -> None:
        """Refuse figures unless they are due, and those that the study does not allow."""
        due = state.preparation.missing if self.begins_stage(terms, state) else None
        selects = isinstance(due, SelectVariable | VariantStep)
        standardizes = isinstance(due, Standardize)
        given = self.center is not None, self.spread is not None
        if (self.selected is not None) != selects or given != (standardizes, standardizes):
            raise InputError("Figures are sent once, by the first request that relies on them.")
        if isinstance(due, VariantStep) and self.selected is not None:
            check_subset("selected", self.selected, terms.d)
            passed = None if state.variants is None else state.variants.passed
            if passed is not None and not np.isin(self.selected, passed).all():
                raise InputError("selected must be among the variants whose products were sent.")
        elif self.selected is not None:
            _check_selected(terms, self.selected)
        if self.center is not None and self.spread is not None:
            terms.check_vector("center", self.center)
            terms.check_vector("spread", self.spread)
            if not (self.spread > LEAST_SCALE).all():
                raise InputError("spread must be above 0.")

    def apply_to(self, terms: Terms, state: State) -> State:
        """Return the state with the figures: with some, a new stage begins."""
        known = state.preparation
        if self.selected is not None:
            return State(preparation=known.with_selected(self.selected))
        if self.center is not None and self.spread is not None:
            return State(preparation=known.with_moments(self.center, self.spread))
        return state


def _check_selected(terms: Terms, selected: Integers) -> None:
    count = count_features(terms.study.prepare, terms.d)
    if selected.shape != (count,):
        raise InputError(f"selected must name {count} features.")
    check_subset("selected", selected, terms.d)


def check_subset(name: str, places: Integers, d: int) -> None:
    """Refuse what is not a list of distinct features in increasing order."""
    if places.ndim != 1 or not 1 <= len(places) <= d:
        raise InputError(f"{name} must name 1 to {d} features.")
    # All entries are compared with the range first: differences of others could overflow.
    in_range = places.min() >= 0 and places.max() < d
    if not in_range or not (np.diff(places) > 0).all():
        raise InputError(f"{name} must be distinct features in increasing order.")


def bound_mean_error(mean: Array, n: npt.ArrayLike, *, narrow: bool = False) -> Array:
    """Bound the rounding error of means of `n` rows, which a spread must exceed.

    The error of a constant feature must not be mistaken for its spread. Equal numbers are rounded
    alike, so that their errors add up. `StandardScaler` of scikit-learn has the same rule. In
    messages in single precision (`narrow`) totals are rounded, and the mean that is sent back.
    """
    relative = np.maximum(n, 10.0) * np.finfo(float).eps
    error: Array = (relative + 4.0 * SINGLE_ROUNDOFF if narrow else relative) * np.abs(mean)
    return error


def bound_sent_mean(mean: Array, count: Array, total: Total, study: Study) -> Array | None:
    """Bound the errors that messages leave in the mean that rows are centred at.

    None is returned for a mean of 0, and where only arithmetic rounds.

    Parameters
    ----------
    mean, count : ndarray of shape (d,)
        Means and observed weights.
    total : Total
        How sums over sites are made.
    study : Study
    """
    limits = total.limits
    if study.center is not True or (limits is None and study.wire == "float64"):
        return None
    # The rounding of totals, of weights, and of the mean that is sent.
    error: Array = (3.0 * SINGLE_ROUNDOFF if study.wire == "float32" else 0.0) * np.abs(mean)
    if limits is not None:
        off = total.error(limits.weight * limits.entry) + np.abs(mean) * total.error(limits.weight)
        error = error + off / np.where(count > 0, count, np.inf)
    return error


def find_scale(mean: Array, squares: Array, count: Array, ddof: int = 0) -> Array:
    """Return standard deviations; 1 for features that are constant up to rounding.

    Standard deviations that are too small to divide by are 1 as well.

    Parameters
    ----------
    mean, squares, count : ndarray of shape (d,)
        Means, sums of squares about them, and observed weights.
    ddof : {0, 1}
        Sums of squares are divided by the weight less this.

    Examples
    --------
    >>> find_scale(np.array([1.0, 0.1]), np.array([4e4, 1e-22]), np.full(2, 1e4))
    array([2., 1.])
    """
    divisor = count - ddof
    scale = np.sqrt(squares / np.where(divisor > 0, divisor, 1.0))
    least = np.maximum(bound_mean_error(mean, count), LEAST_SCALE)
    found: Array = np.where(scale > least, scale, 1.0)
    return found


def moments_script(study: Study) -> Script:
    """Return the script of the requests before the method begins.

    Each step of the preparation that needs figures over all sites has a stage of its own.
    """
    stages = [_stage_script(study)] * len(study.federated_steps)
    if study.filters_variants:
        stages = [_variants_script(study)]
    first = "weights" if study.centers_by_site else "moments"
    if not study.masked:
        last = sequence(first, optional("squares") if study.scale is True else sequence())
    else:
        sums = repeat("squares", 1, 2) if study.scale is True else sequence("spread")
        last = sequence("magnitude", first, sums)
    return sequence(*stages, last)


def _variants_script(study: Study) -> Script:
    """Return the requests from which all filters of variants are decided together."""
    first = sequence("magnitude") if study.masked else sequence()
    prunes = any(isinstance(step, PruneLd) for step in study.prepare)
    products = repeat("variant_products", 0, _MOST_TILES) if prunes else sequence()
    return sequence(first, "variant_counts", products)


def _stage_script(study: Study) -> Script:
    if not study.masked:
        return sequence("moments", "squares")
    return sequence("magnitude", "moments", repeat("squares", 1, 2))
