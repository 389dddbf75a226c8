"""The whole covariance in one round: exact, and best where features are few.

===========  ==================================================================================
coordinator  the sum over sites of the upper triangle of D'W D, d (d + 1) / 2 numbers; after single
             precision with a certificate, also the sum of D'W D Q
site         the mean and scale of all rows; the directions Q
===========  ==================================================================================

In single precision a site takes half the time and sends half the bytes. The relative error of its
scatter is 1e-8 to about 1e-6 of the largest eigenvalue, largest where entries have few distinct
values, so that rounding errors do not average out. A round of products in double precision with
the components found makes the matrix exact on them. Its remaining error elsewhere then turns them
only by the product of that error and the angle by which they were off: after one round, or a few
if the angle was not small, the result is exact to double precision.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.data.prepared import single_error
from eigenfed.data.source import Source
from eigenfed.errors import InputError, Parts, Pass
from eigenfed.linalg.block_scatter import MANY_FEATURES
from eigenfed.linalg.eigen import top_eigh
from eigenfed.linalg.threads import limit_threads
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.privacy.secagg.fixed_point import Bound
from eigenfed.protocol.core import Call, Protocol
from eigenfed.protocol.cost_rates import time_eigen, time_scatter
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.certificate import make_products
from eigenfed.protocol.exact.frame import FramedRequest
from eigenfed.protocol.exact.frame_rows import find_divisor, view_site
from eigenfed.protocol.exact.products import OPS as PRODUCT_OPS
from eigenfed.protocol.exact.rounding import (
    bound_fixed_point,
    bound_rounding,
    bound_wire_error,
)
from eigenfed.protocol.exact.spectrum import (
    count_components,
    decompose_covariance,
    pack_symmetric,
    unpack_symmetric,
)
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
"""Directions beyond k that a correction multiplies, for components tied with the last one."""
_MOST_CORRECTIONS = 3
_SETTLED = 1e-14


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ScatterReply:
    """The upper triangle of a scatter, row by row."""

    triangle: Array


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ScatterRequest(FramedRequest):
    """Request the whole scatter, in the precision of the study's method."""

    op, reply = "scatter", ScatterReply

    def bounds(self, limits: Limits) -> Mapping[str, Bound]:
        """Return the trace, which bounds every entry."""
        return {"triangle": limits.most}


@op(Release("covariance", "d (d + 1) / 2", Leaves.SUM_ONLY, Reveals.SCATTER))
def scatter(
    source: Source, request: ScatterRequest, state: State, terms: Terms
) -> Answer[ScatterReply]:
    """Return the upper triangle of the site's scatter about the mean of all sites."""
    method, kept = terms.study.method, state.scatter
    whole: npt.NDArray[Any] | None = None
    if isinstance(method, Covariance) and method.is_single:
        view, state = view_site(source, state)
        whole = view.single_scatter()
    if whole is None and kept is not None:
        mean = kept.mean if state.centers_itself else state.sent_frame[0]
        whole = kept.about(mean, find_divisor(state))
    elif whole is None:
        view, state = view_site(source, state)
        whole = view.scatter()
    # The kept scatter has served its purpose: free its d x d numbers.
    reply = ScatterReply(triangle=pack_symmetric(whole))
    return Answer(reply, replace(state, scatter=None))


OPS = (scatter,)


@dataclass(frozen=True, repr=False)
class Covariance(Method):
    """The whole covariance in one round.

    Attributes
    ----------
    precision : {"double", "single"}
        In single precision sites take about half the time and send half the bytes. Without a
        certificate the components' residuals are then 1e-8 to 1e-6; with one, one to three further
        rounds of k + 2 directions in double precision make them as small as with "double", unless
        more than two components are tied with the last one within such a residual. Cannot be
        combined with secure aggregation, which has its own precision.

    Examples
    --------
    >>> Covariance().precision
    'double'
    """

    name: ClassVar[str] = "covariance"
    summary: ClassVar[str] = "the whole covariance in one round: exact, best where features are few"
    ops = (*OPS, *PRODUCT_OPS)
    private: ClassVar[bool] = True
    automatic: ClassVar[bool] = True

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
        """Whether secure aggregation can carry it: only in double precision."""
        return not self.is_single

    def instead_of(self) -> Parts:
        """Return what to do if only sums over sites are available."""
        return Pass("method", "covariance"), "."

    def keeps_scatter(self) -> bool:
        """Whether a site computes its scatter when it first reads its rows: in double precision."""
        return not self.is_single

    def finds_count(self) -> bool:
        """Whether the number of components may depend on the rows: only in double precision."""
        return not self.is_single

    def width(self, k: int, d: int) -> int:
        """Return the number of directions of a correction."""
        return min(k + _GUARDS, d)

    def script(self, study: Study, d: int) -> Script:
        """Return the script: the scatter, and corrections after single precision."""
        corrections = _MOST_CORRECTIONS if self.is_single and study.certify else 0
        return sequence("scatter", repeat("product", 0, corrections))

    def run(self, run: Run) -> Protocol[Decomposition]:
        """Sum the covariance over the sites and decompose it."""
        if self.is_single:
            return (yield from _run_single(run))
        moments, total = run.moments, run.total
        answer = yield from total(Call(ScatterRequest(**run.frame())))
        matrix = unpack_symmetric(answer.triangle / moments.divisor, run.d)
        variance = float(matrix.trace())
        rounding = bound_rounding(moments, variance) + bound_wire_error(moments, variance, 1)
        rounding += bound_fixed_point(moments, total, float(matrix.size))
        return decompose_covariance(
            matrix,
            count_components(run, matrix),
            mean=moments.mean,
            scale=moments.scale,
            n=moments.n,
            tol=run.tol,
            rounding=rounding,
        )

    def cost(self, shape: Shape) -> Cost:
        """Return the cost of a d x d matrix, at the sites and at the coordinator."""
        d, square = float(shape.features), shape.square_bytes
        block = block_bytes(shape)
        parts = min(block_count(shape), shape.cores + 3) if d <= MANY_FEATURES else 1
        held = parts * square + 2.0 * block
        return Cost(
            1,
            shape.features,
            d * (d + 1) / 2,
            max(held, 2.2 * square),
            (1.0 + 0.5 * replies_in_hand(shape)) * square,
            time_scatter(shape.rows, d, shape.density) + 3e-9 * d * d,
            time_eigen(d, shape.components) + 5e-9 * d * d,
        )


def _run_single(run: Run) -> Protocol[Decomposition]:
    """Decompose a single-precision covariance, corrected by double-precision products."""
    moments, total, k, d = run.moments, run.total, run.k, run.d
    answer = yield from total(Call(ScatterRequest(**run.frame())))
    matrix = unpack_symmetric(answer.triangle / moments.divisor, d)
    variance, directions = float(matrix.trace()), _MOST_CORRECTIONS * (k + _GUARDS)
    decompose = partial(
        decompose_covariance,
        matrix,
        k,
        mean=moments.mean,
        scale=moments.scale,
        n=moments.n,
        tol=run.tol,
        rounding=bound_rounding(moments, variance)
        + bound_wire_error(moments, variance, directions),
        rough=single_error(variance),
    )
    if not run.certify:
        return replace(decompose(), certificate=None)
    products, known, error = make_products(run), np.zeros((d, 0)), 0.0
    while True:
        # `matrix` is corrected in place, so that each pass decomposes a better one.
        leading = top_eigh(matrix, min(k + _GUARDS, d))[1]
        fresh = np.linalg.qr(np.hstack([known, leading])).Q[:, known.shape[1] :]
        missed = correct_matrix(fresh, (yield from products.of(fresh)), matrix)
        known, error = np.hstack([known, fresh]), max(error, missed)
        found = decompose(exact_on=known, variance=products.trace / products.divisor)
        found = replace(found, products=1 + products.rounds)
        if (
            known.shape[1] == d
            or products.rounds == _MOST_CORRECTIONS
            or _has_settled(found, known, error)
        ):
            return found


def _has_settled(found: Decomposition, known: Array, error: float) -> bool:
    """Return whether the error outside known directions no longer turns the components."""
    outside = found.components - (found.components @ known) @ known.T
    remaining = error * float(np.linalg.norm(outside, 2))
    return remaining <= _SETTLED * float(found.variances[0])


def correct_matrix(basis: Array, image: Array, matrix: Array) -> float:
    """Correct a symmetric matrix, in place, so that its products with some directions are right.

    Parameters
    ----------
    basis : ndarray of shape (d, l)
        Orthonormal columns.
    image : ndarray of shape (d, l)
        The product of the true matrix with them.
    matrix : ndarray of shape (d, d)
        Not changed between directions that are orthogonal to all of them.

    Returns
    -------
    float
        Norm of the error on the directions before the correction.

    Examples
    --------
    >>> matrix = np.array([[2.25, 0.0], [0.0, 1.0]])
    >>> correct_matrix(np.array([[1.0], [0.0]]), np.array([[2.0], [0.0]]), matrix)
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
