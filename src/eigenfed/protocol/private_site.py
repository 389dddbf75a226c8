"""What a site computes for a private PCA: whole numbers whose noise the gate adds.

===========  ==================================================================================
leaves site  the number of its rows; then whole-number sums of clipped rows, with noise
stays        everything else; without noise nothing below leaves but the number of rows
===========  ==================================================================================

The sensitivity is computed here, of what is summed here, and never taken from who asks. Asked for
are only how much privacy to spend (``privacy.mu``), over how many sites the noise is split
(``privacy.parties``; 0 leaves it to a coordinator that the site's policy trusts) and which tables
are neighbours (``privacy.relation``).
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array, Arrays
from eigenfed.data.source import Source
from eigenfed.errors import ProtocolError
from eigenfed.privacy.grid import (
    LARGEST,
    about,
    coarsest,
    grid_for,
    lengths,
    on_grid,
    sketch_slack,
    sketched,
)
from eigenfed.privacy.noise import Noise
from eigenfed.privacy.radii import COUNT_UNIT
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.privacy.sensitivity import (
    RELATIONS,
    of_count,
    of_second_moment,
    of_sketch,
    of_total,
)
from eigenfed.protocol.ops import Answer, op

SHARE_UNIT = 1 << 30
"""What all of a row's squared length becomes in `private_scree`."""

_ORTHONORMAL = 1e-9
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


@op(Release("numbers of rows and features, public", "2", Leaves.EXACT, Reveals.SIZE))
def rows(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Return the numbers of rows and of features, which the guarantee takes as known."""
    return Answer({"n": np.array([source.n]), "d": np.array([source.d])}, state)


@op(Release("rows within a radius", "1", Leaves.NOISED, Reveals.NOISE))
def private_within(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Count the rows whose norm about the centre is at most a radius."""
    radius = _radius(payload)
    count = sum(int((lengths(block) <= radius).sum()) for block in _blocks(source, payload))
    noise = noise_of_count(_relation(payload))
    return Answer({"count": np.array([count * COUNT_UNIT])}, state, noise=noise)


@op(Release("total of clipped rows", "d", Leaves.NOISED, Reveals.NOISE))
def private_total(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Add up the rows, clipped about the centre."""
    grid, total = _grid(source, payload), np.zeros(source.d)
    for block in _whole(source, payload, grid):
        total += block.sum(axis=0)
    noise = noise_of_total(grid, _relation(payload))
    return Answer({"total": _int64(total)}, state, noise=noise)


@op(Release("second moment of clipped rows", "d (d + 1) / 2", Leaves.NOISED, Reveals.NOISE))
def private_scatter(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Return the upper triangle of the second moment of rows clipped about the centre."""
    grid, moment = _grid(source, payload), np.zeros((source.d, source.d))
    for block in _whole(source, payload, grid):
        moment += block.T @ block
    noise = noise_of_scatter(grid, source.d, _relation(payload))
    return Answer({"triangle": _int64(moment[np.triu_indices(source.d)])}, state, noise=noise)


@op(
    Release("second moment of clipped rows times directions", "d x l", Leaves.NOISED, Reveals.NOISE)
)
def private_product(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Return the second moment of clipped rows times directions, each row's part clipped too."""
    grid, basis = _grid(source, payload), _orthonormal(payload["basis"], source.d)
    update_clip = _update_clip(payload) * grid**2
    image = np.zeros(basis.shape)
    for block in _whole(source, payload, grid):
        image += block.T @ sketched(block, basis, update_clip)
    noise = noise_of_product(grid, basis.shape[1], update_clip, _relation(payload))
    return Answer({"product": _int64(image)}, state, noise=noise)


@op(Release("squared lengths of rows along components", "k + 1", Leaves.NOISED, Reveals.NOISE))
def private_scree(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Return the rows' squared lengths along each component and outside them."""
    radius, vt = _radius(payload), payload["components"]
    _orthonormal(vt.T, source.d)
    parts = np.zeros(len(vt) + 1)
    for block in _blocks(source, payload):
        along = block @ vt.T / radius
        size = lengths(block) / radius
        short = 1.0 / np.maximum(size, 1.0)
        squares = (along * short[:, None]) ** 2
        rest = np.maximum((size * short) ** 2 - squares.sum(axis=1), 0.0)
        whole = np.floor(np.column_stack([squares, rest]) * (SHARE_UNIT * (1 - _MARGIN)))
        parts += whole.sum(axis=0)
    noise = noise_of_scree(_relation(payload))
    return Answer({"parts": _int64(parts)}, state, noise=noise)


OPS = (rows, private_within, private_total, private_scatter, private_product, private_scree)


def _relation(payload: Arrays) -> str:
    code = int(payload["privacy.relation"][0])
    if code not in (0, 1):
        raise ProtocolError("The relation of an ask must be 0 or 1. Use one release of eigenfed.")
    return RELATIONS[code]


def _grid(source: Source, payload: Arrays) -> int:
    """Take the grid of all sites, on which the site's own sums must be exact."""
    grid = int(payload["grid"][0])
    if not coarsest(source.d) <= grid <= grid_for(source.n, source.d):
        raise ProtocolError("The grid of an ask does not fit this many rows and features.")
    return grid


def _radius(payload: Arrays) -> float:
    radius = float(payload["radius"][0])
    if not 1.0 / LARGEST <= radius <= LARGEST:
        raise ProtocolError("The radius of a private ask must be a number above 0.")
    return radius


def _update_clip(payload: Arrays) -> float:
    """Take the part of a row's squared norm to which its update is clipped."""
    clip = float(payload["update_clip"][0])
    if not 0.0 < clip <= 1.0:
        raise ProtocolError("The clip of updates must be above 0 and at most 1.")
    return clip


def _center(payload: Arrays, d: int) -> Array:
    """Refuse a centre of another shape, under which a row could count more than once."""
    center: Array = payload["center"]
    if center.shape != (d,) or not np.abs(center).max() <= LARGEST:
        raise ProtocolError("The centre of a private ask must be one number for each feature.")
    return center


def _orthonormal(basis: Array, d: int) -> Array:
    """Refuse directions with which the sensitivity would not hold."""
    fits = basis.ndim == 2 and len(basis) == d and 0 < basis.shape[1] <= d
    # Written so that NaN, which is not at most anything, is refused.
    if not fits or not np.abs(basis.T @ basis - np.eye(basis.shape[1])).max() <= _ORTHONORMAL:
        raise ProtocolError("The directions of a private ask must be orthonormal.")
    return basis


def _blocks(source: Source, payload: Arrays) -> Iterator[Array]:
    """Yield rows about the centre."""
    if source.weights is not None or source.has_missing:
        raise ProtocolError("Rows of a private ask must be whole and of equal weight.")
    center = _center(payload, source.d)
    for rows, _ in source.blocks():
        yield about(rows, center)


def _whole(source: Source, payload: Arrays, grid: int) -> Iterator[Array]:
    """Yield rows about the centre, clipped, in whole numbers."""
    radius = _radius(payload)
    for block in _blocks(source, payload):
        yield on_grid(block, radius, grid)


def _int64(values: Array) -> npt.NDArray[np.int64]:
    return values.astype(np.int64)
