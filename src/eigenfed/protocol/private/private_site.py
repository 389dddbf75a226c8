"""What a site computes for a private PCA: whole numbers whose noise the gate adds.

===========  ==================================================================================
leaves site  the number of its rows; then whole-number sums of clipped rows, with noise
stays        everything else; without noise nothing below leaves but the number of rows
===========  ==================================================================================

The sensitivity is computed here, of what is summed here, and never taken from who asks. What each
request spends, over how many sites its noise is split and which tables are neighbours follow from
the study (`private_schedule`). A missing entry counts as the centre: whether there is one changes
nothing that could be seen.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.privacy.dp.clipping import (
    LARGEST,
    about,
    exact_rows,
    grid_for,
    lengths,
    on_grid,
    sketch_slack,
    sketched,
)
from eigenfed.privacy.dp.discrete_gaussian import Noise
from eigenfed.privacy.dp.sensitivity import (
    COUNT_UNIT,
    of_count,
    of_second_moment,
    of_sketch,
    of_total,
)
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.messages import Integers
from eigenfed.protocol.operations import Answer, Request, State, Terms, check_integer, op
from eigenfed.protocol.private.budget_schedule import terms_of

SHARE_UNIT = 1 << 30
"""What all of a row's squared length becomes in `private_scree`."""

_ORTHONORMAL = 1e-9
_MOST_ROWS = 1 << 40
_UPDATE_MARGIN = 1.5
_MARGIN = 1e-6


def noise_of_count(relation: str) -> Noise:
    """For a count in `COUNT_UNIT` parts."""
    return Noise(COUNT_UNIT * of_count(relation))


def noise_of_total(grid: int, relation: str) -> Noise:
    """For a sum of rows on the grid."""
    return Noise(of_total(grid, relation))


def noise_of_scatter(grid: int, d: int, relation: str) -> Noise:
    """For the upper triangle of a second moment of rows on the grid.

    Noise of one deviation on the diagonal and 1 / sqrt(2) of it beside is of one size in every
    direction of the symmetric matrices, so that the sensitivity is that in Frobenius norm.
    """
    i, j = np.triu_indices(d)
    return Noise(
        of_second_moment(grid, relation), {"triangle": np.where(i == j, 1.0, np.sqrt(0.5))}
    )


def noise_of_product(grid: int, width: int, update_clip: float, relation: str) -> Noise:
    """For a second moment of rows on the grid times directions; the clip is in whole numbers."""
    return Noise(of_sketch(grid, update_clip, relation) + sketch_slack(grid, width))


def noise_of_scree(relation: str) -> Noise:
    """For squared lengths along components.

    A row's part are numbers of at least 0 that add up to at most 1 (the squared radius), so that
    two rows' parts are at most sqrt(2) apart.
    """
    return Noise(of_second_moment(1.0, relation) * SHARE_UNIT)


def update_clip_of(width: int, d: int, *, first: bool) -> float:
    """Return the part of a row's squared norm to which its update is clipped.

    Through random directions a row is about ``sqrt(l / d)`` of its length, which needs no look at
    the data: updates are clipped there in the first product, whose noise falls accordingly.
    """
    return min(1.0, _UPDATE_MARGIN * float(np.sqrt(width / d))) if first else 1.0


@dataclass(frozen=True, kw_only=True)
class RowsReply:
    """Numbers of rows, where it is public, and of features."""

    d: int
    n: int | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RowsRequest(Request[RowsReply]):
    """Ask for the numbers of rows and of features, which the guarantee takes as known."""

    op, reply = "rows", RowsReply


@op(Release("numbers of rows and features, public", "2", Leaves.EXACT, Reveals.SIZE))
def rows(source: Source, request: RowsRequest, state: State, terms: Terms) -> Answer[RowsReply]:
    """Return the numbers of rows, where it is public, and of features."""
    public = terms_of(terms.study).count == "public"
    return Answer(RowsReply(n=source.n if public else None, d=source.d), state)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CountReply:
    """A number of rows, in `COUNT_UNIT` parts."""

    count: Integers


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CountRequest(Request[CountReply]):
    """Ask for the number of rows, with noise."""

    op, reply = "private_count", CountReply

    def noise(self, terms: Terms, state: State) -> Noise:
        """Return the noise of a count."""
        return noise_of_count(terms_of(terms.study).relation)


@op(Release("number of rows", "1", Leaves.NOISED, Reveals.NOISE))
def private_count(
    source: Source, request: CountRequest, state: State, terms: Terms
) -> Answer[CountReply]:
    """Count the rows."""
    return Answer(CountReply(count=np.array([source.n * COUNT_UNIT])), state)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BallRequest(Request[CountReply]):
    """A request about rows clipped about a centre.

    Attributes
    ----------
    center : ndarray of shape (d,)
    radius : float
    """

    center: Array
    radius: float

    def check(self, terms: Terms, state: State) -> None:
        """Refuse a centre of another shape, under which a row could count more than once."""
        terms.check_vector("center", self.center)
        if not np.abs(self.center).max() <= LARGEST or not 1.0 / LARGEST <= self.radius <= LARGEST:
            raise InputError("The radius must be a number above 0, and the centre finite.")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WithinRequest(BallRequest):
    """Ask how many rows lie within a radius of the centre."""

    op, reply = "private_within", CountReply

    def noise(self, terms: Terms, state: State) -> Noise:
        """Return the noise of a count."""
        return noise_of_count(terms_of(terms.study).relation)


@op(Release("rows within a radius", "1", Leaves.NOISED, Reveals.NOISE))
def private_within(
    source: Source, request: WithinRequest, state: State, terms: Terms
) -> Answer[CountReply]:
    """Count the rows whose norm about the centre is at most a radius."""
    count = sum(int((lengths(block) <= request.radius).sum()) for block in _blocks(source, request))
    return Answer(CountReply(count=np.array([count * COUNT_UNIT])), state)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class GridRequest(BallRequest):
    """A request about clipped rows in integers.

    Attributes
    ----------
    n : int
        Number of all sites' rows, from which the grid follows.
    """

    n: int

    def check(self, terms: Terms, state: State) -> None:
        """Refuse a number of rows with which there is no grid."""
        super().check(terms, state)
        check_integer("n", self.n, 1, _MOST_ROWS)
        grid_for(self.n, terms.d)

    def grid(self, d: int) -> int:
        """Return the grid of all sites."""
        return grid_for(self.n, d)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TotalReply:
    """Total of clipped rows, on the grid."""

    total: Integers


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TotalRequest(GridRequest):
    """Ask for the total of rows clipped about the centre."""

    op, reply = "private_total", TotalReply

    def noise(self, terms: Terms, state: State) -> Noise:
        """Return the noise of a total."""
        return noise_of_total(self.grid(terms.d), terms_of(terms.study).relation)


@op(Release("total of clipped rows", "d", Leaves.NOISED, Reveals.NOISE))
def private_total(
    source: Source, request: TotalRequest, state: State, terms: Terms
) -> Answer[TotalReply]:
    """Add up the rows, clipped about the centre."""
    total = np.zeros(source.d, dtype=np.int64)
    for block in _on_grid(source, request):
        total += _int64(block.sum(axis=0))
    return Answer(TotalReply(total=total), state)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MomentReply:
    """Upper triangle of a second moment, on the grid."""

    triangle: Integers


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MomentRequest(GridRequest):
    """Ask for the second moment of rows clipped about the centre."""

    op, reply = "private_scatter", MomentReply

    def noise(self, terms: Terms, state: State) -> Noise:
        """Return the noise of a second moment."""
        return noise_of_scatter(self.grid(terms.d), terms.d, terms_of(terms.study).relation)


@op(Release("second moment of clipped rows", "d (d + 1) / 2", Leaves.NOISED, Reveals.NOISE))
def private_scatter(
    source: Source, request: MomentRequest, state: State, terms: Terms
) -> Answer[MomentReply]:
    """Return the upper triangle of the second moment of rows clipped about the centre."""
    moment = np.zeros((source.d, source.d), dtype=np.int64)
    for block in _on_grid(source, request):
        moment += _int64(block.T @ block)
    return Answer(MomentReply(triangle=moment[np.triu_indices(source.d)]), state)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SketchReply:
    """A second moment times directions, on the grid."""

    product: Integers


@dataclass(frozen=True)
class Sketched:
    """That a first product was answered in this run."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SketchRequest(GridRequest):
    """Ask for the second moment of clipped rows times directions.

    Attributes
    ----------
    basis : ndarray of shape (d, l)
        Orthonormal columns.
    """

    basis: Array

    op, reply = "private_product", SketchReply

    def check(self, terms: Terms, state: State) -> None:
        """Refuse directions with which the sensitivity would not hold."""
        super().check(terms, state)
        terms.check_directions(
            "basis", self.basis, min(2 * terms.k, terms.d), tolerance=_ORTHONORMAL
        )

    def update_clip(self, state: State) -> float:
        """Return the part of a row's squared norm to which its update is clipped."""
        d, width = self.basis.shape
        return update_clip_of(width, d, first=state.own is None)

    def noise(self, terms: Terms, state: State) -> Noise:
        """Return the noise of a product."""
        grid, width = self.grid(terms.d), self.basis.shape[1]
        clip = self.update_clip(state) * grid**2
        return noise_of_product(grid, width, clip, terms_of(terms.study).relation)


@op(
    Release("second moment of clipped rows times directions", "d x l", Leaves.NOISED, Reveals.NOISE)
)
def private_product(
    source: Source, request: SketchRequest, state: State, terms: Terms
) -> Answer[SketchReply]:
    """Return the second moment of clipped rows times directions, each row's part clipped too."""
    clip = request.update_clip(state) * request.grid(source.d) ** 2
    image = np.zeros(request.basis.shape, dtype=np.int64)
    for block in _on_grid(source, request):
        image += _int64(block.T @ sketched(block, request.basis, clip))
    return Answer(SketchReply(product=image), replace(state, own=Sketched()))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ScreeReply:
    """Squared lengths along components, and outside them, in `SHARE_UNIT` parts."""

    parts: Integers


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ScreeRequest(BallRequest):
    """Ask for the rows' squared lengths along components.

    Attributes
    ----------
    components : ndarray of shape (k, d)
        Orthonormal rows.
    """

    components: Array

    op, reply = "private_scree", ScreeReply

    def check(self, terms: Terms, state: State) -> None:
        """Refuse components with which the sensitivity would not hold."""
        super().check(terms, state)
        if self.components.ndim != 2:
            raise InputError("components must be a matrix.")
        terms.check_directions("components", self.components.T, min(terms.k, terms.d))

    def noise(self, terms: Terms, state: State) -> Noise:
        """Return the noise of squared lengths."""
        return noise_of_scree(terms_of(terms.study).relation)


@op(Release("squared lengths of rows along components", "k + 1", Leaves.NOISED, Reveals.NOISE))
def private_scree(
    source: Source, request: ScreeRequest, state: State, terms: Terms
) -> Answer[ScreeReply]:
    """Return the rows' squared lengths along each component and outside them."""
    radius, vt = request.radius, request.components
    parts = np.zeros(len(vt) + 1, dtype=np.int64)
    for block in _blocks(source, request):
        along = block @ vt.T / radius
        size = lengths(block) / radius
        short = 1.0 / np.maximum(size, 1.0)
        squares = (along * short[:, None]) ** 2
        rest = np.maximum((size * short) ** 2 - squares.sum(axis=1), 0.0)
        whole = np.floor(np.column_stack([squares, rest]) * (SHARE_UNIT * (1 - _MARGIN)))
        parts += _int64(whole.sum(axis=0))
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


def _blocks(source: Source, request: BallRequest) -> Iterator[Array]:
    """Yield rows about the centre, 0 where an entry is missing."""
    for block, _ in source.blocks():
        filled = np.where(np.isnan(block), request.center, block) if source.has_missing else block
        yield about(filled, request.center)


def _on_grid(source: Source, request: GridRequest) -> Iterator[Array]:
    """Yield rows about the centre, clipped, in integers, no more at a time than add up exactly.

    However many rows the grid is made for: that there are more must not show, where their number
    is found with noise. Totals of such parts are kept in integers, which wrap.
    """
    grid = request.grid(source.d)
    most = exact_rows(grid)
    for block in _blocks(source, request):
        for start in range(0, len(block), most):
            yield on_grid(block[start : start + most], request.radius, grid)


def _int64(values: Array) -> Integers:
    return values.astype(np.int64)
