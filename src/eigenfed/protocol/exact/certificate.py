"""Components from a subspace by Rayleigh-Ritz, and the certificate of their accuracy.

===========  ==================================================================================
coordinator  the sum over sites of the largest eigenvalue of each site's scatter outside the
             directions that it has revealed
site         nothing: it knows the directions that it was sent
===========  ==================================================================================

Residuals follow from products that the run has made anyway. The bound on the angle (Davis-Kahan)
also needs an upper bound on the first eigenvalue that is not wanted. Ritz values are lower bounds:
with them the "bound" fails. The largest eigenvalue of a sum is at most the sum of the largest
eigenvalues, so one number from each site is enough, and secure aggregation can carry it.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.linalg.orthonormal import column_norms, flip_signs
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.privacy.secagg.fixed_point import Bound
from eigenfed.protocol.core import Call, Protocol
from eigenfed.protocol.decomposition import FURTHER, Certificate, Decomposition
from eigenfed.protocol.exact.moments import FramedRequest, Moments, prepare_rows
from eigenfed.protocol.exact.products import Products
from eigenfed.protocol.method import Run
from eigenfed.protocol.operations import Answer, Limits, State, Terms, op

_DENSE_FEATURES = 200
"""Up to so many features a full eigenproblem is faster than ARPACK."""
_ARNOLDI_TOL = 1e-7
_MARGIN = 1e-6


@dataclass(frozen=True, kw_only=True)
class RemainderReply:
    """Largest eigenvalue outside known directions."""

    largest: float


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RemainderRequest(FramedRequest):
    """Request the largest eigenvalue outside directions that the site has revealed.

    The site uses its own record of them: with directions of the coordinator's choice, such as all
    but v, the reply would be v'Mv.

    Attributes
    ----------
    last : bool
        Use the directions of the last product only, instead of all products of the run.
    """

    last: bool

    op, reply = "remainder", RemainderReply

    def check(self, terms: Terms, state: State) -> None:
        """Refuse a request before the first product."""
        super().check(terms, state)
        if not state.blocks:
            raise InputError("A remainder is requested after products.")

    def bounds(self, limits: Limits) -> Mapping[str, Bound]:
        """Return the trace."""
        return {"largest": limits.most}


@op(Release("largest remaining eigenvalue", "1", Leaves.SUM_ONLY, Reveals.BOUND))
def remainder(
    source: Source, request: RemainderRequest, state: State, terms: Terms
) -> Answer[RemainderReply]:
    """Return the largest eigenvalue of the site's scatter outside the directions revealed."""
    view, frame, state = prepare_rows(source, state)
    known = select_known(state, last=request.last)
    return Answer(
        RemainderReply(largest=bound_largest_outside(view.product, known, frame.trace)), state
    )


def select_known(state: State, *, last: bool) -> Array:
    """Return the directions of the last product, or of all products of the run."""
    return state.blocks[-1] if last else np.hstack(state.blocks)


OPS = (remainder,)


def make_products(run: Run) -> Products:
    """Return the object that requests the products of a run, and the eigenvalue outside them."""
    return Products(run.moments, run.total, run.frame, RemainderRequest)


def bound_largest_outside(apply: Callable[[Array], Array], known: Array, trace: float) -> float:
    """Bound the largest eigenvalue of a positive matrix outside the span of `known`.

    Parameters
    ----------
    apply : callable
        Multiplies the matrix by an array of shape (d, l).
    known : ndarray of shape (d, m)
        Orthonormal columns.
    trace : float
        Trace of the matrix, which is the bound if the iteration does not converge.
    """
    d = len(known)
    if known.shape[1] >= d or trace == 0.0:
        return 0.0

    def outside(x: Array) -> Array:
        inside: Array = x.reshape(d, -1)
        inside = inside - known @ (known.T @ inside)
        image = apply(inside)
        return image - known @ (known.T @ image)

    if d <= _DENSE_FEATURES:
        matrix = outside(np.eye(d))
        return max(float(np.linalg.eigvalsh((matrix + matrix.T) / 2)[-1]), 0.0)

    start = np.random.default_rng(0).standard_normal(d)
    try:
        values, vectors = eigsh(
            LinearOperator((d, d), matvec=outside, dtype=np.float64),
            k=1,
            which="LA",
            v0=start,
            tol=_ARNOLDI_TOL,
        )
    except ArpackNoConvergence:
        return trace
    # A converged Ritz value is too small by about the squared residual over a gap: adding the
    # residual itself, and a margin, makes it an upper bound.
    residual = outside(vectors)[:, 0] - values[0] * vectors[:, 0]
    largest = max(float(values[0]), 0.0) + float(column_norms(residual[:, None])[0])
    return min(largest * (1.0 + _MARGIN), trace)


def request_certificate(
    products: Products,
    *,
    values: Array,
    residual: Array,
    vt: Array,
    known: Array,
    last: bool,
    next_value: float | None,
    coupling: float,
    tol: float,
) -> Protocol[Certificate]:
    """Certify components by their residuals and by the spectrum outside the known directions.

    With a the next Ritz value, c the bound on the spectrum outside `known` and b the coupling, the
    first unwanted eigenvalue is at most the larger eigenvalue of ``[[a, b], [b, c]]``. The angle
    follows from the residual over the gap to it.

    Parameters
    ----------
    products : Products
        The products of the run.
    values : ndarray of shape (k,)
        Ritz values.
    residual : ndarray of shape (p, k)
        ``M v - value v`` for each component, in any orthonormal basis.
    vt : ndarray of shape (k, d)
        The components.
    known : ndarray of shape (d, m)
        All directions revealed, orthonormal; they span the components.
    last : bool
        Whether they are those of the last product, or of all products.
    next_value : float or None
        The largest Ritz value on `known` beyond the components, if there is one.
    coupling : float
        Norm of M between `known` and its complement.
    tol : float
        Residual, relative to the first eigenvalue, up to which a component has converged.
    """
    request = products.outside(last=last, **products.first())
    answer = yield from products.total(Call(request, residual=products.residual))
    variance = products.trace / products.divisor
    rounding = bound_wire_error(products.moments, variance, known.shape[1])
    # Fixed-point sums have an error in each entry: all of them, in Frobenius norm.
    step = float(np.max(products.total.error(products.moments.most)))
    rounding += step * math.sqrt(known.size) / products.divisor
    outside = answer.largest / products.divisor + rounding
    largest = values[0] if values[0] > 0 else 1.0
    size = rounding + (float(np.linalg.norm(residual, 2)) if residual.size else 0.0)
    # Without a Ritz value beyond the components, only the spectrum outside them is unwanted.
    above = following = outside
    if next_value is not None:
        following = next_value
        half = (next_value - outside) / 2
        above = (next_value + outside) / 2 + math.hypot(half, coupling)
    residuals = (column_norms(residual) + rounding) / largest
    return Certificate(
        residuals,
        bound_angle(size, values[-1] - above),
        bound_angle(size, values[-1] - following),
        residuals <= tol,
        variance,
        float(np.abs(vt @ vt.T - np.eye(len(vt))).max()),
    )


def bound_wire_error(moments: Moments, variance: float, directions: int) -> float:
    """Bound the error of the covariance due to messages in single precision.

    With u the relative rounding error of one number: the directions sent have the relative error u,
    and so have the replies of the sites, whose norms add up to at most the total variance. The mean
    sent to the sites adds the square of its error, and the scale adds 2 u.

    Parameters
    ----------
    moments : Moments
    variance : float
        The total variance.
    directions : int
        How many directions were multiplied.

    Examples
    --------
    >>> import numpy as np
    >>> bound_wire_error(Moments(9.0, np.zeros(2), np.ones(2)), 1.0, 3)
    0.0
    >>> f"{bound_wire_error(Moments(9.0, np.zeros(2), np.ones(2), wire='float32'), 1.0, 4):.1e}"
    '4.8e-07'
    """
    if moments.wire == "float64":
        return 0.0
    u = float(np.finfo(np.float32).eps) / 2
    away = u * float(column_norms((moments.mean / moments.scale)[:, None])[0])
    ratio = moments.n / moments.divisor
    return 2 * u * variance * (math.sqrt(directions) + 2.0) + ratio * away**2


def bound_angle(residual: float, gap: float) -> float:
    """Return the angle whose sine is residual / gap, infinite if that is not below 1."""
    if gap <= 0.0:
        return math.inf
    sine = residual / gap
    return math.asin(sine) if sine < 1.0 else math.inf


def finish_with_product(
    products: Products, basis: Array, k: int, *, tol: float, certify: bool
) -> Protocol[Decomposition]:
    """Multiply the basis once more, and return its Ritz vectors as components.

    Parameters
    ----------
    products : Products
        The products of the run so far.
    basis : ndarray of shape (d, m)
        Orthonormal columns, ``m >= k``.
    k : int
        Number of components.
    tol : float
        Residual, relative to the first eigenvalue, up to which a component has converged.
    certify : bool
        Request the bound on the angle in one more round.
    """
    image = yield from products.of(basis)
    return (yield from rayleigh_ritz(products, basis, image, k, tol=tol, certify=certify))


def rayleigh_ritz(
    products: Products, basis: Array, image: Array, k: int, *, tol: float, certify: bool
) -> Protocol[Decomposition]:
    """Return the Ritz vectors of a basis whose product with the covariance is known.

    Parameters
    ----------
    products : Products
        The products of the run so far.
    basis, image : ndarray of shape (d, m)
        Orthonormal columns of the last product, and the covariance times them.
    k : int
        Number of components.
    tol : float
        Residual, relative to the first eigenvalue, up to which a component has converged.
    certify : bool
        Request the bound on the angle in one more round.
    """
    onto = basis.T @ image
    values, vectors = np.linalg.eigh((onto + onto.T) / 2)
    values, vectors = values[::-1], vectors[:, ::-1]
    vt = flip_signs((basis @ vectors[:, :k]).T)
    variances = np.maximum(values[:k], 0.0)
    grade = None
    if certify:
        grade = yield from request_certificate(
            products,
            values=variances,
            residual=image @ vectors[:, :k] - (basis @ vectors[:, :k]) * values[:k],
            vt=vt,
            known=basis,
            last=True,
            next_value=float(values[k]) if len(values) > k else None,
            coupling=float(np.linalg.norm(image - basis @ onto, 2)),
            tol=tol,
        )
    return Decomposition(
        vt,
        variances,
        products.moments.mean,
        products.moments.scale,
        products.moments.n,
        products.trace / products.divisor,
        products.rounds,
        grade,
        further=np.maximum(values[k : k + FURTHER], 0.0),
    )
