"""Differentially private PCA: the site's half. Integer sums, to which the gate adds the noise.

===========  ==================================================================================
site sees    radii, the noisy mean, directions and components, the number of all rows
leaves site  the number of its rows, if public; then integer sums of clipped rows, with noise
stays        everything else; without noise nothing leaves but the public number of rows
===========  ==================================================================================

The sensitivity is computed here, from what is summed here, and never taken from a request. What
each request spends, over how many sites its noise is split, and which data sets are neighbours
follow from the study (`budget_schedule`). Sums are of integers because discrete noise is exact:
floating-point noise can leak the value it hides through its low bits (Mironov, 2012). A missing
entry is replaced by the centre, so that it adds nothing to a sum.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.privacy.dp.clipping import (
    LARGEST,
    choose_grid,
    compute_coefficients,
    max_exact_rows,
    round_to_grid,
    row_norms,
    sketch_slack,
    subtract_center,
)
from eigenfed.privacy.dp.discrete_gaussian import Noise
from eigenfed.privacy.dp.sensitivity import (
    COUNT_UNIT,
    count_sensitivity,
    second_moment_sensitivity,
    sketch_sensitivity,
    sum_sensitivity,
)
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.messages import Integers
from eigenfed.protocol.operations import Answer, Request, State, Terms, check_integer, op
from eigenfed.protocol.private.budget_schedule import require_privacy

SCREE_UNIT = 1 << 30
"""Integer that represents a squared length of 1 (the radius) in `private_scree`."""

_ORTHONORMAL = 1e-9
_MOST_ROWS = 1 << 40
_UPDATE_MARGIN = 1.5
_MARGIN = 1e-6


def noise_of_count(relation: str) -> Noise:
    """Return the noise of a count, in units of ``1 / COUNT_UNIT``."""
    return Noise(COUNT_UNIT * count_sensitivity(relation))


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


@dataclass(frozen=True, kw_only=True)
class RowsReply:
    """Number of features, and of rows if that is public."""

    d: int
    n: int | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RowsRequest(Request[RowsReply]):
    """Request for the numbers of rows and features, which the guarantee treats as public."""

    op, reply = "rows", RowsReply


@op(Release("numbers of rows and features, public", "2", Leaves.EXACT, Reveals.SIZE))
def rows(source: Source, request: RowsRequest, state: State, terms: Terms) -> Answer[RowsReply]:
    """Return the number of features, and of rows if that is public."""
    public = require_privacy(terms.study).count == "public"
    return Answer(RowsReply(n=source.n if public else None, d=source.d), state)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CountReply:
    """A number of rows, in units of ``1 / COUNT_UNIT``."""

    count: Integers


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CountRequest(Request[CountReply]):
    """Request for the number of rows, with noise."""

    op, reply = "private_count", CountReply

    def noise(self, terms: Terms, state: State) -> Noise:
        """Return the noise of a count."""
        return noise_of_count(require_privacy(terms.study).relation)


@op(Release("number of rows", "1", Leaves.NOISED, Reveals.NOISE))
def private_count(
    source: Source, request: CountRequest, state: State, terms: Terms
) -> Answer[CountReply]:
    """Count the rows."""
    return Answer(CountReply(count=np.array([source.n * COUNT_UNIT])), state)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BallRequest(Request[CountReply]):
    """A request about rows clipped to a ball.

    Attributes
    ----------
    center : ndarray of shape (d,)
    radius : float
    """

    center: Array
    radius: float

    def check(self, terms: Terms, state: State) -> None:
        """Refuse a centre of another shape: broadcasting could count a row more than once."""
        terms.check_vector("center", self.center)
        if not np.abs(self.center).max() <= LARGEST or not 1.0 / LARGEST <= self.radius <= LARGEST:
            raise InputError("The radius must be a positive number, and the centre finite.")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WithinRequest(BallRequest):
    """Request for the number of rows within a radius of the centre."""

    op, reply = "private_within", CountReply

    def noise(self, terms: Terms, state: State) -> Noise:
        """Return the noise of a count."""
        return noise_of_count(require_privacy(terms.study).relation)


@op(Release("rows within a radius", "1", Leaves.NOISED, Reveals.NOISE))
def private_within(
    source: Source, request: WithinRequest, state: State, terms: Terms
) -> Answer[CountReply]:
    """Count the rows whose norm about the centre is at most a radius."""
    count = sum(
        int((row_norms(block) <= request.radius).sum())
        for block in _centred_blocks(source, request)
    )
    return Answer(CountReply(count=np.array([count * COUNT_UNIT])), state)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class GridRequest(BallRequest):
    """A request about clipped rows rounded to an integer grid.

    Attributes
    ----------
    n : int
        Number of rows of all sites, which determines the grid.
    """

    n: int

    def check(self, terms: Terms, state: State) -> None:
        """Refuse a number of rows for which there is no grid."""
        super().check(terms, state)
        check_integer("n", self.n, 1, _MOST_ROWS)
        choose_grid(self.n, terms.d)

    def grid(self, d: int) -> int:
        """Return the grid, the same at all sites: the integer that represents the radius."""
        return choose_grid(self.n, d)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TotalReply:
    """Sum of clipped rows, on the grid."""

    total: Integers


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TotalRequest(GridRequest):
    """Request for the sum of rows clipped about the centre."""

    op, reply = "private_total", TotalReply

    def noise(self, terms: Terms, state: State) -> Noise:
        """Return the noise of a sum."""
        return noise_of_total(self.grid(terms.d), require_privacy(terms.study).relation)


@op(Release("total of clipped rows", "d", Leaves.NOISED, Reveals.NOISE))
def private_total(
    source: Source, request: TotalRequest, state: State, terms: Terms
) -> Answer[TotalReply]:
    """Return the sum of the rows, clipped about the centre."""
    total = np.zeros(source.d, dtype=np.int64)
    for block in _grid_blocks(source, request):
        total += _to_int64(block.sum(axis=0))
    return Answer(TotalReply(total=total), state)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MomentReply:
    """Upper triangle of a second moment, on the grid."""

    triangle: Integers


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MomentRequest(GridRequest):
    """Request for the second moment of rows clipped about the centre."""

    op, reply = "private_scatter", MomentReply

    def noise(self, terms: Terms, state: State) -> Noise:
        """Return the noise of a second moment."""
        return noise_of_scatter(self.grid(terms.d), terms.d, require_privacy(terms.study).relation)


@op(Release("second moment of clipped rows", "d (d + 1) / 2", Leaves.NOISED, Reveals.NOISE))
def private_scatter(
    source: Source, request: MomentRequest, state: State, terms: Terms
) -> Answer[MomentReply]:
    """Return the upper triangle of the second moment of rows clipped about the centre."""
    moment = np.zeros((source.d, source.d), dtype=np.int64)
    for block in _grid_blocks(source, request):
        moment += _to_int64(block.T @ block)
    return Answer(MomentReply(triangle=moment[np.triu_indices(source.d)]), state)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SketchReply:
    """A second moment times directions, on the grid."""

    product: Integers


@dataclass(frozen=True)
class Sketched:
    """State of a site that has answered the first product of a run."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SketchRequest(GridRequest):
    """Request for the second moment of clipped rows times directions.

    Attributes
    ----------
    basis : ndarray of shape (d, l)
        Orthonormal columns.
    """

    basis: Array

    op, reply = "private_product", SketchReply

    def check(self, terms: Terms, state: State) -> None:
        """Refuse directions that are not orthonormal: the sensitivity would not hold."""
        super().check(terms, state)
        terms.check_directions(
            "basis", self.basis, min(2 * terms.k, terms.d), tolerance=_ORTHONORMAL
        )

    def update_clip(self, state: State) -> float:
        """Return the clip of a row's update, as a fraction of the squared radius."""
        d, width = self.basis.shape
        return update_clip_of(width, d, first=state.own is None)

    def noise(self, terms: Terms, state: State) -> Noise:
        """Return the noise of a product."""
        grid, width = self.grid(terms.d), self.basis.shape[1]
        clip = self.update_clip(state) * grid**2
        return noise_of_product(grid, width, clip, require_privacy(terms.study).relation)


@op(
    Release("second moment of clipped rows times directions", "d x l", Leaves.NOISED, Reveals.NOISE)
)
def private_product(
    source: Source, request: SketchRequest, state: State, terms: Terms
) -> Answer[SketchReply]:
    """Return the second moment of clipped rows times directions, each row's update clipped."""
    clip = request.update_clip(state) * request.grid(source.d) ** 2
    image = np.zeros(request.basis.shape, dtype=np.int64)
    for block in _grid_blocks(source, request):
        image += _to_int64(block.T @ compute_coefficients(block, request.basis, clip))
    return Answer(SketchReply(product=image), replace(state, own=Sketched()))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ScreeReply:
    """Squared lengths along components, and outside them, in units of ``1 / SHARE_UNIT``."""

    parts: Integers


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ScreeRequest(BallRequest):
    """Request for the rows' squared lengths along components.

    Attributes
    ----------
    components : ndarray of shape (k, d)
        Orthonormal rows.
    """

    components: Array

    op, reply = "private_scree", ScreeReply

    def check(self, terms: Terms, state: State) -> None:
        """Refuse components that are not orthonormal: the sensitivity would not hold."""
        super().check(terms, state)
        if self.components.ndim != 2:
            raise InputError("components must be a matrix.")
        terms.check_directions("components", self.components.T, min(terms.k, terms.d))

    def noise(self, terms: Terms, state: State) -> Noise:
        """Return the noise of squared lengths."""
        return noise_of_scree(require_privacy(terms.study).relation)


@op(Release("squared lengths of rows along components", "k + 1", Leaves.NOISED, Reveals.NOISE))
def private_scree(
    source: Source, request: ScreeRequest, state: State, terms: Terms
) -> Answer[ScreeReply]:
    """Return the rows' squared lengths along each component and outside them."""
    radius, vt = request.radius, request.components
    parts = np.zeros(len(vt) + 1, dtype=np.int64)
    for block in _centred_blocks(source, request):
        along = block @ vt.T / radius
        size = row_norms(block) / radius
        shrink = 1.0 / np.maximum(size, 1.0)
        squares = (along * shrink[:, None]) ** 2
        rest = np.maximum((size * shrink) ** 2 - squares.sum(axis=1), 0.0)
        # The margin and rounding down keep a row's sum within the unit despite rounding errors.
        units = np.floor(np.column_stack([squares, rest]) * (SCREE_UNIT * (1 - _MARGIN)))
        parts += _to_int64(units.sum(axis=0))
    return Answer(ScreeReply(parts=parts), state)


OPS = (
    rows,
    private_count,
    private_within,
    private_total,
    private_scatter,
    private_product,
    private_scree,
)


def _centred_blocks(source: Source, request: BallRequest) -> Iterator[Array]:
    """Yield blocks of rows minus the centre, with 0 for missing entries."""
    for block, _ in source.blocks():
        filled = np.where(np.isnan(block), request.center, block) if source.has_missing else block
        yield subtract_center(filled, request.center)


def _grid_blocks(source: Source, request: GridRequest) -> Iterator[Array]:
    """Yield blocks of clipped rows on the grid, small enough that float64 sums are exact.

    There may be more rows than the grid was made for, if their number was found with noise, and
    that must not show as an error. Sums of blocks are kept in int64, which wraps around.
    """
    grid = request.grid(source.d)
    most = max_exact_rows(grid)
    for block in _centred_blocks(source, request):
        for start in range(0, len(block), most):
            yield round_to_grid(block[start : start + most], request.radius, grid)


def _to_int64(values: Array) -> Integers:
    return values.astype(np.int64)
