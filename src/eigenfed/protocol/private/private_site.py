"""Differentially private PCA: the site's half. Integer sums, to which the gate adds the noise.

===========  ==================================================================================
site sees    radii, the noisy mean, directions and components, the number of all rows
leaves site  the number of its rows, if public; then integer sums of clipped rows, with noise
stays        everything else; without noise nothing leaves but the public number of rows
===========  ==================================================================================

The sensitivity is computed here, from what is summed here, and never taken from a request. What
each request spends, over how many sites its noise is split, and which data sets are neighbours
follow from the study (`budget_schedule`). Sums are of integers because discrete noise is exact:
floating-point noise can leak the value it hides through its low bits (Mironov, 2012).

Rows are first moved by the study's public centre and divided by its public scale. A row with
missing entries is completed, or left out of every sum, as the study says and for that row alone. So
what one row adds to a sum never depends on another row.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eigenfed.arrays import Array, Integers
from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.privacy.dp.clipping import (
    LARGEST,
    choose_grid,
    compute_coefficients,
    max_exact_rows,
    round_to_grid,
    row_norms,
    subtract_center,
)
from eigenfed.privacy.dp.discrete_gaussian import Noise
from eigenfed.privacy.dp.norm_counts import (
    encode_counts,
    near_radii,
    wide_radii,
)
from eigenfed.privacy.dp.sensitivity import (
    COUNT_UNIT,
)
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.exact.spectrum import pack_symmetric
from eigenfed.protocol.operations import Answer, Request, State, Terms, check_integer, op
from eigenfed.protocol.private.budget_schedule import require_privacy, split_start
from eigenfed.protocol.private.reply_noise import (
    SCREE_UNIT,
    START_GRID,
    noise_of_count,
    noise_of_norms,
    noise_of_product,
    noise_of_scatter,
    noise_of_scree,
    noise_of_start,
    noise_of_total,
    update_clip_of,
)

_ORTHONORMAL = 1e-9
_MOST_ROWS = 1 << 40
_MARGIN = 1e-6


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
    held = sum(len(block) for block in _framed_blocks(source, terms))
    return Answer(CountReply(count=np.array([held * COUNT_UNIT])), state)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StartReply:
    """What is released about rows of which nothing is known.

    Attributes
    ----------
    counts : ndarray of shape (m,)
        Rows within the widest range of radii, as `encode_counts` has them.
    total : ndarray of shape (d,), optional
        Sum of the rows divided by their norms; only if rows are to be centred.
    count : ndarray of shape (1,), optional
        Number of rows, in units of ``1 / COUNT_UNIT``; only if it is private.
    """

    counts: Integers
    total: Integers | None = None
    count: Integers | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StartRequest(Request[StartReply]):
    """Request for norms and directions of the rows about the public centre."""

    op, reply = "private_start", StartReply

    def noise(self, terms: Terms, state: State) -> Noise:
        """Return the noise of all parts of the reply."""
        return noise_of_start(terms.study, terms.d)


@op(Release("norms and directions of rows", "m + d + 1", Leaves.NOISED, Reveals.NOISE))
def private_start(
    source: Source, request: StartRequest, state: State, terms: Terms
) -> Answer[StartReply]:
    """Count the rows within a wide range of radii, and sum their directions."""
    radii, origin = wide_radii(), np.zeros(source.d)
    counts, held = np.zeros(len(radii), dtype=np.int64), 0
    total = np.zeros(source.d, dtype=np.int64)
    for block in _centred_blocks(source, origin, terms):
        norms = row_norms(block)
        counts += encode_counts(norms, radii)
        held += len(block)
        if terms.study.center:
            units = block / np.where(norms > 0.0, norms, 1.0)[:, None]
            total += _to_int64(round_to_grid(units, 1.0, START_GRID).sum(axis=0))
    parts = split_start(terms.study)
    reply = StartReply(
        counts=counts,
        total=total if "total" in parts else None,
        count=np.array([held * COUNT_UNIT]) if "count" in parts else None,
    )
    return Answer(reply, state)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BallRequest(Request[Any]):
    """A request about rows in a ball.

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
class NormsReply:
    """Rows within radii, as `encode_counts` has them."""

    counts: Integers


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NormsRequest(BallRequest):
    """Request for the numbers of rows within radii about the given one, about the centre."""

    op, reply = "private_norms", NormsReply

    def noise(self, terms: Terms, state: State) -> Noise:
        """Return the noise of the counts."""
        return noise_of_norms(require_privacy(terms.study).relation)


@op(Release("rows within radii", "m", Leaves.NOISED, Reveals.NOISE))
def private_norms(
    source: Source, request: NormsRequest, state: State, terms: Terms
) -> Answer[NormsReply]:
    """Count the rows within each of the radii about the centre."""
    radii = near_radii(request.radius)
    counts = np.zeros(len(radii), dtype=np.int64)
    for block in _centred_blocks(source, request.center, terms):
        counts += encode_counts(row_norms(block), radii)
    return Answer(NormsReply(counts=counts), state)


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
    for block in _grid_blocks(source, request, terms):
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
    for block in _grid_blocks(source, request, terms):
        moment += _to_int64(block.T @ block)
    return Answer(MomentReply(triangle=pack_symmetric(moment)), state)


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
    for block in _grid_blocks(source, request, terms):
        image += _to_int64(block.T @ compute_coefficients(block, request.basis, clip))
    return Answer(SketchReply(product=image), replace(state, own=Sketched()))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ScreeReply:
    """Squared lengths along components, and outside them, in units of ``1 / SCREE_UNIT``."""

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
    for block in _centred_blocks(source, request.center, terms):
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
    private_start,
    private_norms,
    private_total,
    private_scatter,
    private_product,
    private_scree,
)


def _framed_blocks(source: Source, terms: Terms) -> Iterator[Array]:
    """Yield blocks of rows relative to the public centre and scale.

    Of rows with missing entries, those that the study leaves out are not there, and entries that it
    replaces by the public centre are 0. The others are still NaN.
    """
    privacy = require_privacy(terms.study)
    center, scale = privacy.frame(terms.d)
    for block, _ in source.blocks():
        framed = subtract_center(block, center) / scale
        if privacy.if_missing == "drop":
            framed = framed[~np.isnan(framed).any(axis=1)]
        elif privacy.if_missing == "public":
            framed = np.where(np.isnan(framed), 0.0, framed)
        yield framed


def _centred_blocks(source: Source, center: Array, terms: Terms) -> Iterator[Array]:
    """Yield blocks of rows minus the centre, with 0 for entries that are still missing."""
    for block in _framed_blocks(source, terms):
        centred = subtract_center(block, center)
        yield np.where(np.isnan(centred), 0.0, centred)


def _grid_blocks(source: Source, request: GridRequest, terms: Terms) -> Iterator[Array]:
    """Yield blocks of clipped rows on the grid, small enough that float64 sums are exact.

    There may be more rows than the grid was made for, if their number was found with noise, and
    that must not show as an error. Sums of blocks are kept in int64, which wraps around.
    """
    grid = request.grid(source.d)
    most = max_exact_rows(grid)
    for block in _centred_blocks(source, request.center, terms):
        for start in range(0, len(block), most):
            yield round_to_grid(block[start : start + most], request.radius, grid)


def _to_int64(values: Array) -> Integers:
    return values.astype(np.int64)
