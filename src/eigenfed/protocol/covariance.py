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

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array, Arrays
from eigenfed.data.prepared import Prepared, single_error
from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.linalg.eigen import top_eigh
from eigenfed.linalg.threads import threads_for
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.certificate import wire_error
from eigenfed.protocol.core import Ask, Protocol
from eigenfed.protocol.moments import Moments, kept_scatter
from eigenfed.protocol.ops import Answer, op
from eigenfed.protocol.products import Products
from eigenfed.protocol.result import Decomposition
from eigenfed.protocol.spectrum import symmetric, upper_triangle, whole_spectrum
from eigenfed.protocol.totals import Total

_PRECISIONS = ("double", "single")
_GUARDS = 2
_MOST_CORRECTIONS = 3
_SETTLED = 1e-14


@op(Release("covariance", "d (d + 1) / 2", Leaves.SUM_ONLY, Reveals.SCATTER))
def scatter(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Return the upper triangle of the site's scatter about the mean of all sites."""
    mean, scale = payload["mean"], payload["scale"]
    whole: npt.NDArray[np.floating] | None = None
    if "single" in payload:
        whole = Prepared(source, mean, scale).single_scatter()
    if whole is None:
        kept = kept_scatter(state)
        whole = Prepared(source, mean, scale).scatter() if kept is None else kept.about(mean, scale)
    # It is as large as many rows and has served its purpose.
    state = {name: array for name, array in state.items() if not name.startswith("kept_")}
    return Answer({"triangle": whole[upper_triangle(source.d)]}, state)


OPS = (scatter,)


@dataclass(frozen=True)
class Covariance:
    """Options of the method that brings the whole covariance together.

    Attributes
    ----------
    precision : {"double", "single"}
        In single precision sites take about half the time and send half the bytes. Without a
        certificate the components' residuals are then 1e-8 to 1e-6; with one, a further round of
        k + 2 directions in double precision, or up to three, makes them as good as those of
        "double" unless more than two components tie with the last to such a residual. Not with
        secure sums, which have a precision of their own.

    Examples
    --------
    >>> Covariance().precision
    'double'
    """

    precision: str = "double"

    def __post_init__(self) -> None:
        if self.precision not in _PRECISIONS:
            listed = " or ".join(map(repr, _PRECISIONS))
            raise InputError(f"precision={self.precision!r} must be {listed}. Pass one of them.")

    @property
    def is_single(self) -> bool:
        """Whether sites multiply in single precision."""
        return self.precision == "single"


_DOUBLE = Covariance()


def covariance(
    moments: Moments,
    k: int,
    *,
    options: Covariance = _DOUBLE,
    tol: float,
    certify: bool = True,
    total: Total,
) -> Protocol[Decomposition]:
    """Bring the covariance together and decompose it.

    Parameters
    ----------
    moments : Moments
    k : int
        Number of components.
    options : Covariance
    tol : float
        Residual at which a component counts as converged.
    certify : bool
        Make the certificate. It costs rounds after single precision, and nothing otherwise.
    total : Total
        How sums are made.
    """
    if options.is_single:
        return (yield from _single(moments, k, tol=tol, certify=certify, total=total))
    answer = yield from total(Ask("scatter", moments.arrays, bounds={"triangle": moments.most}))
    matrix = symmetric(answer["triangle"] / moments.divisor, len(moments.mean))
    rounding = wire_error(moments, float(matrix.trace()), 1)
    rounding += len(matrix) * float(np.max(total.error(moments.most))) / moments.divisor
    return whole_spectrum(
        matrix,
        k,
        mean=moments.mean,
        scale=moments.scale,
        n=moments.n,
        tol=tol,
        rounding=rounding,
    )


def _single(
    moments: Moments, k: int, *, tol: float, certify: bool, total: Total
) -> Protocol[Decomposition]:
    answer = yield from total(Ask("scatter", {**moments.arrays, "single": np.ones(1)}))
    d = len(moments.mean)
    matrix = symmetric(answer["triangle"] / moments.divisor, d)
    decomposed = partial(
        whole_spectrum,
        matrix,
        k,
        mean=moments.mean,
        scale=moments.scale,
        n=moments.n,
        tol=tol,
        rounding=wire_error(moments, float(matrix.trace()), _MOST_CORRECTIONS * (k + _GUARDS)),
        rough=single_error(float(matrix.trace())),
    )
    if not certify:
        return replace(decomposed(), certificate=None)
    products, known, error = Products(moments, total), np.zeros((d, 0)), 0.0
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
    with threads_for(6.0 * matrix.size * basis.shape[1]):
        missed = image - matrix @ basis
        inner = basis.T @ missed
        half = (missed - basis @ ((inner + inner.T) / 4)) @ basis.T
    matrix += half
    matrix += half.T
    return float(np.linalg.norm(missed, 2))
