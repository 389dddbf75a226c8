"""The whole covariance in one round of products: exact, and best where features are few.

===========  ==================================================================================
coordinator  the sum over sites of the upper triangle of D'W D, d (d + 1) / 2 numbers; after one
             in single precision, where a certificate is wanted, that of D'W D Q also
site         the mean and scale of all rows; the directions Q
===========  ==================================================================================

In single precision a site takes half the time and sends half the bytes. What it sends is off by
1e-8 to some 1e-6 of its largest eigenvalue, most where entries have few distinct values, whose
rounding does not average out. A round of products in double precision with the components found
makes the matrix right on them. What is wrong with it elsewhere, as little as that, then turns them
by as little of the angle that they were off: after one round, or a few where the angle was not
small, nothing is left that double precision could tell.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.data.prepared import Prepared, single_error
from eigenfed.data.source import Source
from eigenfed.errors import InputError, Parts, Pass
from eigenfed.linalg.eigen import top_eigh
from eigenfed.linalg.threads import limit_threads
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.privacy.secagg.fixed_point import Bound
from eigenfed.protocol.core import Call, Protocol
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.certificate import products_of, wire_error
from eigenfed.protocol.exact.moments import FramedRequest
from eigenfed.protocol.exact.products import OPS as PRODUCT_OPS
from eigenfed.protocol.exact.spectrum import symmetric, upper_triangle, whole_spectrum
from eigenfed.protocol.gate.script import Script, repeat, sequence
from eigenfed.protocol.method import (
    Cost,
    Method,
    Run,
    Shape,
    block_bytes,
    block_count,
    replies_in_hand,
)
from eigenfed.protocol.operations import Answer, Limits, State, Terms, op
from eigenfed.protocol.study import Study

_PRECISIONS = ("double", "single")
_GUARDS = 2
_MOST_CORRECTIONS = 3
_SETTLED = 1e-14


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ScatterReply:
    """The upper triangle of a scatter, row by row."""

    triangle: Array


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ScatterRequest(FramedRequest):
    """Ask for the whole scatter, in the precision that the study's method says."""

    op, reply = "scatter", ScatterReply

    def bounds(self, limits: Limits) -> Mapping[str, Bound]:
        """Bound every entry by the trace."""
        return {"triangle": limits.most}


@op(Release("covariance", "d (d + 1) / 2", Leaves.SUM_ONLY, Reveals.SCATTER))
def scatter(
    source: Source, request: ScatterRequest, state: State, terms: Terms
) -> Answer[ScatterReply]:
    """Return the upper triangle of the site's scatter about the mean of all sites."""
    method, kept, (mean, scale) = terms.study.method, state.scatter, state.sent_frame
    whole: npt.NDArray[Any] | None = None
    if isinstance(method, Covariance) and method.is_single:
        whole = Prepared(source, mean, scale).single_scatter()
    if whole is None:
        whole = Prepared(source, mean, scale).scatter() if kept is None else kept.about(mean, scale)
    # It is as large as many rows and has served its purpose.
    reply = ScatterReply(triangle=whole[upper_triangle(source.d)])
    return Answer(reply, replace(state, scatter=None))


OPS = (scatter,)


@dataclass(frozen=True, repr=False)
class Covariance(Method):
    """The whole covariance in one round.

    Attributes
    ----------
    precision : {"double", "single"}
        In single precision sites take about half the time and send half the bytes. Without a
        certificate the components' residuals are then 1e-8 to 1e-6; with one, a further round of
        k + 2 directions in double precision, or up to three, makes them as good as those of
        "double" unless more than two components tie with the last to such a residual. Not with
        secure aggregation, which has a precision of its own.

    Examples
    --------
    >>> Covariance().precision
    'double'
    """

    name: ClassVar[str] = "covariance"
    summary: ClassVar[str] = "the whole covariance in one round: exact, best where features are few"
    ops = (*OPS, *PRODUCT_OPS)
    private: ClassVar[bool] = True

    precision: str = "double"

    def __post_init__(self) -> None:
        if self.precision not in _PRECISIONS:
            listed = " or ".join(map(repr, _PRECISIONS))
            raise InputError(f"precision={self.precision!r} must be {listed}. Pass one of them.")

    @property
    def is_single(self) -> bool:
        """Whether sites multiply in single precision."""
        return self.precision == "single"

    def sums_only(self) -> bool:
        """Whether secure aggregation can carry it: in its own precision only."""
        return not self.is_single

    def instead_of(self) -> Parts:
        """Return what to do where only sums can be had."""
        return Pass("method", "covariance"), "."

    def keeps_scatter(self) -> bool:
        """Whether a site keeps its scatter when it first reads its rows: in double precision."""
        return not self.is_single

    def width(self, k: int, d: int) -> int:
        """Return how many directions a correction takes."""
        return min(k + _GUARDS, d)

    def script(self, study: Study, d: int) -> Script:
        """Return the scatter, and corrections after single precision."""
        corrections = _MOST_CORRECTIONS if self.is_single and study.certify else 0
        return sequence("scatter", repeat("product", 0, corrections))

    def run(self, run: Run) -> Protocol[Decomposition]:
        """Bring the covariance together and decompose it."""
        if self.is_single:
            return (yield from _single(run))
        moments, total = run.moments, run.total
        answer = yield from total(Call(ScatterRequest(**run.frame())))
        matrix = symmetric(answer.triangle / moments.divisor, run.d)
        rounding = wire_error(moments, float(matrix.trace()), 1)
        rounding += len(matrix) * float(np.max(total.error(moments.most))) / moments.divisor
        return whole_spectrum(
            matrix,
            run.k,
            mean=moments.mean,
            scale=moments.scale,
            n=moments.n,
            tol=run.tol,
            rounding=rounding,
        )

    def cost(self, shape: Shape) -> Cost:
        """Count a matrix of features by features, at the sites and at the coordinator."""
        d, square = float(shape.features), shape.square_bytes
        block = block_bytes(shape)
        held = min(block_count(shape), shape.cores + 3) * square + 2.0 * block
        return Cost(
            1,
            shape.features,
            d * (d + 1) / 2,
            max(held, 2.2 * square),
            (1.0 + 0.5 * replies_in_hand(shape)) * square,
            float(shape.rows) * d * d + 4.0 * d**3,
        )


def _single(run: Run) -> Protocol[Decomposition]:
    moments, total, k, d = run.moments, run.total, run.k, run.d
    answer = yield from total(Call(ScatterRequest(**run.frame())))
    matrix = symmetric(answer.triangle / moments.divisor, d)
    decomposed = partial(
        whole_spectrum,
        matrix,
        k,
        mean=moments.mean,
        scale=moments.scale,
        n=moments.n,
        tol=run.tol,
        rounding=wire_error(moments, float(matrix.trace()), _MOST_CORRECTIONS * (k + _GUARDS)),
        rough=single_error(float(matrix.trace())),
    )
    if not run.certify:
        return replace(decomposed(), certificate=None)
    products, known, error = products_of(run), np.zeros((d, 0)), 0.0
    while True:
        leading = top_eigh(matrix, min(k + _GUARDS, d))[1]
        fresh = np.linalg.qr(np.hstack([known, leading])).Q[:, known.shape[1] :]
        missed = agree_on(fresh, (yield from products.of(fresh)), matrix)
        known, error = np.hstack([known, fresh]), max(error, missed)
        found = decomposed(exact_on=known, variance=products.trace / products.divisor)
        found = replace(found, products=1 + products.rounds)
        if (
            known.shape[1] == d
            or products.rounds == _MOST_CORRECTIONS
            or _settled(found, known, error)
        ):
            return found


def _settled(found: Decomposition, known: Array, error: float) -> bool:
    """Say whether components have converged, and an error outside known directions is no more."""
    outside = found.components - (found.components @ known) @ known.T
    left = error * float(np.linalg.norm(outside, 2))
    grade = found.certificate
    converged = grade is not None and bool(grade.converged.all())
    return converged and left <= _SETTLED * found.variances[0]


def agree_on(basis: Array, image: Array, matrix: Array) -> float:
    """Correct a symmetric matrix, in place, by its products with some directions.

    Parameters
    ----------
    basis : ndarray of shape (d, l)
        Orthonormal columns.
    image : ndarray of shape (d, l)
        What the product of the true matrix with them is.
    matrix : ndarray of shape (d, d)
        Stays as it is between directions that are orthogonal to all of them.

    Returns
    -------
    float
        How far it was off on the directions, in norm.

    Examples
    --------
    >>> matrix = np.array([[2.25, 0.0], [0.0, 1.0]])
    >>> agree_on(np.array([[1.0], [0.0]]), np.array([[2.0], [0.0]]), matrix)
    0.25
    >>> matrix
    array([[2., 0.],
           [0., 1.]])
    """
    with limit_threads(6.0 * matrix.size * basis.shape[1]):
        missed = image - matrix @ basis
        inner = basis.T @ missed
        half = (missed - basis @ ((inner + inner.T) / 4)) @ basis.T
    matrix += half
    matrix += half.T
    return float(np.linalg.norm(missed, 2))
