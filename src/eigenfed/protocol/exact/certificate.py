"""How good components are, from products that were had anyway and one number from each site.

===========  ==================================================================================
coordinator  the sum over sites of the largest eigenvalue of each site's scatter outside the
             directions that it has answered about
site         nothing: it knows the directions that it was asked about
===========  ==================================================================================

Davis and Kahan's theorem needs a bound from above on the first unwanted eigenvalue. Ritz values
bound it from below: with them the "bound" fails. The largest eigenvalue of a sum is at most the
sum of the largest, so one number from each site does it.

From a subspace to components: Rayleigh and Ritz, and the certificate.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.linalg.orthonormal import column_norms, signed_rows
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.privacy.secagg.fixed_point import Bound
from eigenfed.protocol.core import Call, Protocol
from eigenfed.protocol.decomposition import Certificate, Decomposition
from eigenfed.protocol.exact.moments import FramedRequest, Moments, framed
from eigenfed.protocol.exact.products import Products
from eigenfed.protocol.method import Run
from eigenfed.protocol.operations import Answer, Limits, State, Terms, op

_DENSE_FEATURES = 200
_ARNOLDI_TOL = 1e-7
_MARGIN = 1e-6


@dataclass(frozen=True, kw_only=True)
class RemainderReply:
    """Largest eigenvalue outside directions."""

    largest: float


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RemainderRequest(FramedRequest):
    """Ask for the largest eigenvalue outside directions that the site has answered about.

    Which ones is for the site to know: outside all directions but v it would be v'Mv.

    Attributes
    ----------
    last : bool
        Whether those of the last product are meant, or those of all products of the run.
    """

    last: bool

    op, reply = "remainder", RemainderReply

    def check(self, terms: Terms, state: State) -> None:
        """Refuse where no product was answered yet."""
        super().check(terms, state)
        if not state.blocks:
            raise InputError("A remainder is asked for after products.")

    def bounds(self, limits: Limits) -> Mapping[str, Bound]:
        """Bound it by the trace."""
        return {"largest": limits.most}


@op(Release("largest remaining eigenvalue", "1", Leaves.SUM_ONLY, Reveals.BOUND))
def remainder(
    source: Source, request: RemainderRequest, state: State, terms: Terms
) -> Answer[RemainderReply]:
    """Largest eigenvalue of the site's scatter outside directions answered about."""
    view, frame, state = framed(source, state)
    known = outside_of(state, last=request.last)
    return Answer(RemainderReply(largest=largest_outside(view.product, known, frame.trace)), state)


def outside_of(state: State, *, last: bool) -> Array:
    """Return the directions of the last product, or of all products of the run."""
    return state.blocks[-1] if last else np.hstack(state.blocks)


OPS = (remainder,)


def products_of(run: Run) -> Products:
    """Return what asks for the products of a run, and for what is outside of them."""
    return Products(run.moments, run.total, run.frame, RemainderRequest)


def largest_outside(apply: Callable[[Array], Array], known: Array, trace: float) -> float:
    """Bound the largest eigenvalue of a positive matrix outside the span of `known`.

    Parameters
    ----------
    apply : callable
        Multiplies the matrix with an array of shape (d, l).
    known : ndarray of shape (d, m)
        Orthonormal columns.
    trace : float
        The matrix's trace: the bound where the iteration does not converge.
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
    # The residual exceeds what the iteration has left over, which is of its square.
    left = outside(vectors)[:, 0] - values[0] * vectors[:, 0]
    largest = max(float(values[0]), 0.0) + float(column_norms(left[:, None])[0])
    return min(largest * (1.0 + _MARGIN), trace)


def certificate(
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
    """Grade components by their residual and what may be outside the directions known.

    Parameters
    ----------
    products : Products
        Through which the run asked.
    values : ndarray of shape (k,)
        Ritz values.
    residual : ndarray of shape (p, k)
        ``M v - value v`` for each component, in any orthonormal basis.
    vt : ndarray of shape (k, d)
        The components.
    known : ndarray of shape (d, m)
        All directions answered about, orthonormal; they span the components.
    last : bool
        Whether they are those of the last product, or of all products.
    next_value : float or None
        The largest Ritz value on `known` beyond the components, if there is one.
    coupling : float
        Norm of M between `known` and its complement.
    tol : float
    """
    request = products.outside(last=last, **products.first())  # type: ignore[call-arg]
    answer = yield from products.total(Call(request, residual=products.residual))
    variance = products.trace / products.divisor
    rounding = wire_error(products.moments, variance, known.shape[1])
    # Sums in fixed point are off by a little in each entry.
    step = float(np.max(products.total.error(products.moments.most)))
    rounding += step * math.sqrt(known.size) / products.divisor
    outside = answer.largest / products.divisor + rounding
    largest = values[0] if values[0] > 0 else 1.0
    size = rounding + (float(np.linalg.norm(residual, 2)) if residual.size else 0.0)
    # With no Ritz value beyond the components, what is outside them is all there is to go by.
    above = following = outside
    if next_value is not None:
        following = next_value
        half = (next_value - outside) / 2
        above = (next_value + outside) / 2 + math.hypot(half, coupling)
    residuals = (column_norms(residual) + rounding) / largest
    return Certificate(
        residuals,
        angle(size, values[-1] - above),
        angle(size, values[-1] - following),
        residuals <= tol,
        variance,
        float(np.abs(vt @ vt.T - np.eye(len(vt))).max()),
    )


def wire_error(moments: Moments, variance: float, directions: int) -> float:
    """Bound how far the covariance is from the one that products over a narrow wire are of.

    With u the rounding of one number: the directions sent are off by u each, and so are the
    replies of the sites, whose norms add up to the total variance at most. Likewise the mean and
    the scale that the sites are sent: the first adds the square of its error, the second twice u.

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
    >>> wire_error(Moments(9.0, np.zeros(2), np.ones(2)), 1.0, 3)
    0.0
    >>> f"{wire_error(Moments(9.0, np.zeros(2), np.ones(2), wire='float32'), 1.0, 4):.1e}"
    '4.8e-07'
    """
    if moments.wire == "float64":
        return 0.0
    u = float(np.finfo(np.float32).eps) / 2
    away = u * float(column_norms((moments.mean / moments.scale)[:, None])[0])
    share = moments.n / moments.divisor
    return 2 * u * variance * (math.sqrt(directions) + 2.0) + share * away**2


def angle(residual: float, gap: float) -> float:
    """Return the angle whose sine is at most residual / gap, infinite where there is none."""
    if gap <= 0.0:
        return math.inf
    sine = residual / gap
    return math.asin(sine) if sine < 1.0 else math.inf


def finished(
    products: Products, basis: Array, k: int, *, tol: float, certify: bool
) -> Protocol[Decomposition]:
    """Ask for one more product, with the basis itself, and make the components of it.

    Parameters
    ----------
    products : Products
        Through which the run asked so far.
    basis : ndarray of shape (d, m)
        Orthonormal columns, ``m >= k``.
    k : int
        Number of components.
    tol : float
        Residual at which a component counts as converged.
    certify : bool
        Ask once more for the bound on the angle.
    """
    image = yield from products.of(basis)
    return (yield from ritz(products, basis, image, k, tol=tol, certify=certify))


def ritz(
    products: Products, basis: Array, image: Array, k: int, *, tol: float, certify: bool
) -> Protocol[Decomposition]:
    """Make components of a basis whose product with the covariance is known already.

    Parameters
    ----------
    basis, image : ndarray of shape (d, m)
        Orthonormal columns of the last product, and the covariance times them.
    """
    onto = basis.T @ image
    values, vectors = np.linalg.eigh((onto + onto.T) / 2)
    values, vectors = values[::-1], vectors[:, ::-1]
    vt = signed_rows((basis @ vectors[:, :k]).T)
    shown = np.maximum(values[:k], 0.0)
    grade = None
    if certify:
        grade = yield from certificate(
            products,
            values=shown,
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
        shown,
        products.moments.mean,
        products.moments.scale,
        products.moments.n,
        products.trace / products.divisor,
        products.rounds,
        grade,
    )
