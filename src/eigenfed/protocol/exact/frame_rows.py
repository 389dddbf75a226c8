"""A site's rows as a run centres and scales them.

Where each site centres by its own mean, the coordinator knows nothing of how far that mean lies
from zero, and its bounds cannot count the digits that this costs. So the site loses none: it
subtracts the mean in two parts.
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.data.feature_totals import FeatureTotals
from eigenfed.data.own_center import split_own_mean
from eigenfed.data.packed_rows import view_rows
from eigenfed.data.prepared import Prepared
from eigenfed.data.shifted_rows import ShiftedRows
from eigenfed.data.source import Source
from eigenfed.protocol.exact.stages import bound_mean_error
from eigenfed.protocol.operations import Frame, State

_DISTANT = 2.0**20
"""Squared distance of the run's mean, relative to the spread of a feature, that costs digits."""
_AS_LARGE = 4.0
"""Distance of two means, relative to that of the rows, at which they are about as large."""


def view_site(source: Source, state: State) -> tuple[Prepared, State]:
    """Return a site's rows, centred and scaled, for an operation that reveals all of them."""
    if _may_be_distant(source, state):
        _, frame, state = prepare_rows(source, state)
        if frame.shifted is not None:
            return frame.shifted, state
    mean, rest = _find_center(source, state)
    return view_rows(source, mean, find_divisor(state), rest=rest), state


def prepare_rows(source: Source, state: State) -> tuple[Prepared, Frame, State]:
    """Return a site's rows, centred and scaled as the run does, without copying them."""
    frame = state.frame
    if frame is None:
        frame = _compute_frame(source, state)
        state = replace(state, frame=frame)
    if frame.shifted is not None:
        return frame.shifted, frame, state
    view = view_rows(
        source,
        frame.mean,
        find_divisor(state),
        near=frame.near,
        rest=frame.rest,
        single=state.single,
    )
    return view, frame, state


def view_about_own_mean(source: Source, state: State) -> tuple[Prepared, Array]:
    """Return rows about the site's own mean, scaled, and that mean about the run's.

    Subtracting a distant mean rounds entries to few numbers: those below a bound become one and
    those above it another, so that their scatter counts rows. Rows about their own mean keep their
    digits wherever the run's mean lies. Missing entries lie at the run's mean, so that rows with
    missing entries are viewed about that.
    """
    if state.centers_itself or source.has_missing:
        return prepare_rows(source, state)[0], np.zeros(source.d)
    own_mean, divisor = _read_totals(source, state).mean, find_divisor(state)
    away: Array = (own_mean - state.sent_frame[0]) / divisor
    return view_rows(source, own_mean, divisor, single=state.single), away


def find_divisor(state: State) -> Array:
    """Return what features are divided by: infinity where the site has called them constant.

    Bounds of sums follow from its sums of squares, which are 0 for these features.
    """
    _, scale = state.sent_frame
    return scale if state.constant is None else np.where(state.constant, np.inf, scale)


def sum_squares(source: Source, state: State, mean: Array | None) -> tuple[Array, Array]:
    """Return a mean and the sums of squares about it, (d,) each; None is the site's own mean."""
    if state.scatter is not None:
        mean = state.scatter.mean if mean is None else mean
        return mean, state.scatter.squares(mean)
    mean, rest = split_own_mean(source) if mean is None else (mean, None)
    return mean, view_rows(source, mean, np.ones(source.d), rest=rest).squares()


def find_varying(
    source: Source, state: State, mean: Array, squares: Array, *, narrow: bool
) -> npt.NDArray[np.bool_]:
    """Return which features vary at the site by more than the rounding of their mean, (d,).

    A mean that was sent in single precision is rounded by more: whether a feature varies by less
    than that is seen from the site's own mean.
    """
    count = _read_totals(source, state).observed
    varies = squares > count * bound_mean_error(mean, source.n) ** 2
    if narrow and mean.any():
        rounded = squares <= count * bound_mean_error(mean, source.n, narrow=True) ** 2
        if (varies & rounded).any():
            own, about = sum_squares(source, state, None)
            varies &= ~rounded | (about > count * bound_mean_error(own, source.n) ** 2)
    found: npt.NDArray[np.bool_] = varies
    return found


def _read_totals(source: Source, state: State) -> FeatureTotals:
    return source.totals() if state.totals is None else state.totals


def _may_be_distant(source: Source, state: State) -> bool:
    """Return whether the run's mean may be distant, without reading rows whose totals are known.

    It is not where it is about as large as that of the rows: they have no more digits themselves.
    """
    if state.centers_itself:
        return False
    own_mean = _read_totals(source, state).mean
    return bool((np.abs(own_mean - state.sent_frame[0]) > _AS_LARGE * np.abs(own_mean)).any())


def _find_center(source: Source, state: State) -> tuple[Array, Array | None]:
    return split_own_mean(source) if state.centers_itself else (state.sent_frame[0], None)


def _compute_frame(source: Source, state: State) -> Frame:
    """Compute what the leakage meter needs, which counts about the site's own mean.

    Otherwise a coordinator could send a mean far from the rows: its square would dominate the
    variance, so that the fraction revealed looks small, or would itself be counted as revealed.
    """
    scale, divisor = state.sent_frame[1], find_divisor(state)
    totals = _read_totals(source, state)
    n, count, own_mean = totals.n, totals.observed, totals.mean
    mean, rest = _find_center(source, state)
    away = np.zeros(source.d) if state.centers_itself else own_mean - mean
    about = (mean, rest) if state.centers_itself else (own_mean, None)
    raw = view_rows(source, about[0], np.ones(source.d), rest=about[1]).squares()
    inside = (raw + count * away**2) / divisor**2
    trace = float(inside.sum())
    near = n * float(np.sum((mean / divisor) ** 2)) <= trace
    # About a mean in two parts, rows that do not vary have no sum of squares.
    error = 0.0 if rest is not None else bound_mean_error(own_mean, source.n)
    spread = np.where(raw > count * error**2, raw, 0.0)
    if near and rest is not None:
        mean, rest = own_mean, None
    around, shifted, shift = None, None, np.sqrt(n) * away
    least = count * bound_mean_error(own_mean, source.n) ** 2
    distant = count * away**2 > _DISTANT * np.maximum(raw, least)
    if distant.any():
        shifted = _shift_rows(source, state, own_mean)
        has_gaps = shifted.near_rows.mean != own_mean
        shift = np.where(has_gaps, shift, 0.0)
        if (distant & has_gaps).any():
            around = view_rows(source, own_mean, divisor, single=state.single)
    return Frame(mean, scale, trace, spread, shift, near, rest, around, shifted)


def _shift_rows(source: Source, state: State, own_mean: Array) -> ShiftedRows:
    """Return rows about the run's mean without subtracting it, where a feature has no gaps.

    Missing entries are at the run's mean, and not at that of the rows.
    """
    mean, divisor = state.sent_frame[0], find_divisor(state)
    totals = _read_totals(source, state)
    complete = (totals.observed == totals.n) | (not source.has_missing)
    middle = np.where(complete, own_mean, mean)
    rows = view_rows(source, middle, divisor, single=state.single)
    shift: Array = (middle - mean) / divisor
    return ShiftedRows(source, mean, divisor, near_rows=rows, shift=shift)
