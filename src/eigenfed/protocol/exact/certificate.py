"""Components from a subspace by Rayleigh-Ritz, and the certificate of their accuracy.

===========  ==================================================================================
coordinator  the sum over sites of the largest eigenvalue of each site's scatter outside the
             directions that it has revealed
site         nothing: it knows the directions that it was sent
===========  ==================================================================================

Residuals follow from products that the run has made anyway. The bound on the angle (Davis-Kahan)
also needs an upper bound on the first eigenvalue that is not wanted. Ritz values are lower bounds:
with them the "bound" fails. There are three ways to an upper bound:

- from the total variance: what the known directions leave of it bounds every other eigenvalue;
- from a random start (`eigenfed.linalg.krylov_bound`), except with a small probability;
- from the sites: the largest eigenvalue of a sum is at most the sum of the largest eigenvalues, so
  one number from each site is enough, and secure aggregation can carry it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.prepared import Prepared
from eigenfed.data.source import Source
from eigenfed.linalg.orthonormal import column_norms, flip_signs
from eigenfed.linalg.remainder import SHORT_SIDE, Factor, UpperBound, bound_largest_outside
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.privacy.secagg.fixed_point import Bound
from eigenfed.protocol.core import Call, Protocol
from eigenfed.protocol.decomposition import FURTHER, Decomposition
from eigenfed.protocol.exact.accuracy import RitzValues, bound_unwanted, make_certificate
from eigenfed.protocol.exact.frame import FramedRequest
from eigenfed.protocol.exact.frame_rows import prepare_rows
from eigenfed.protocol.exact.products import Products
from eigenfed.protocol.exact.rounding import bound_fixed_point, bound_rounding, bound_wire_error
from eigenfed.protocol.method import Run
from eigenfed.protocol.operations import Answer, Limits, State, Terms, check_integer, op
from eigenfed.protocol.study import Study

_ASSUMED_RATIO = 0.99
"""Ratio of the next eigenvalue to the last wanted one, where a method knows nothing of it."""
_RIGOROUS_SIDE = 3000
"""Length of a site's shorter side up to which a rigorous certificate computes whole matrices."""
_ENTROPY = 0x72656D61696E646572
"""Public seed of a site's random start. A run seeds its own directions otherwise: they would leave
nothing of a start that came from the same numbers."""


@dataclass(frozen=True, kw_only=True)
class RemainderReply:
    """Largest eigenvalue outside known directions, and the probability that it is larger."""

    largest: float
    failure: float


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RemainderRequest(FramedRequest):
    """Request the largest eigenvalue outside directions that the site has revealed.

    The site uses its own record of them: with directions of the coordinator's choice, such as all
    but v, the reply would be v'Mv.

    Attributes
    ----------
    products : int
        How many products count, from the last one backwards: the bound is outside their directions.
    """

    products: int

    op, reply = "remainder", RemainderReply

    def check(self, terms: Terms, state: State) -> None:
        """Refuse a number of products that the run has not had."""
        super().check(terms, state)
        check_integer("products", self.products, 1, len(state.blocks))

    def bounds(self, limits: Limits) -> Mapping[str, Bound]:
        """Return the trace, and 1 for a probability."""
        return {"largest": limits.most, "failure": 1.0}


@op(Release("largest remaining eigenvalue", "2", Leaves.SUM_ONLY, Reveals.REMAINDER))
def remainder(
    source: Source, request: RemainderRequest, state: State, terms: Terms
) -> Answer[RemainderReply]:
    """Return the largest eigenvalue of the site's scatter outside the directions revealed."""
    view, frame, state = prepare_rows(source, state)
    factor = _factor_scatter(view)
    known = select_known(state, request.products)
    return Answer(bound_remainder(factor, known, frame.trace, terms.study), state)


def _factor_scatter(view: Prepared) -> Factor:
    """Return the rows, times the roots of their weights, as a factor of the scatter."""
    source = view.source
    if source.weights is None:
        return Factor(source.n, source.d, view.multiply, view.adjoint, view.product)
    roots = np.sqrt(source.weights)[:, None]
    inverses = np.divide(1.0, roots, out=np.zeros_like(roots), where=roots > 0.0)
    return Factor(
        source.n,
        source.d,
        lambda columns: roots * view.multiply(columns),
        lambda sided: view.adjoint(inverses * sided),
        view.product,
    )


def bound_remainder(factor: Factor, known: Array, trace: float, study: Study) -> RemainderReply:
    """Return the reply of a site to a request for its largest remaining eigenvalue."""
    side = _RIGOROUS_SIDE if study.certify == "rigorous" else SHORT_SIDE
    draw = np.random.default_rng(_ENTROPY).standard_normal
    largest, failure = bound_largest_outside(factor, known, trace, draw, short_side=side)
    return RemainderReply(largest=largest, failure=failure)


def select_known(state: State, products: int) -> Array:
    """Return the directions of the last products, as many as requested."""
    return np.hstack(state.blocks[-products:])


OPS = (remainder,)


def make_products(run: Run) -> Products:
    """Return the object that requests the products of a run, and the eigenvalue outside them."""
    return Products(run.moments, run.total, run.frame, RemainderRequest)


def bound_error(products: Products, directions: int) -> float:
    """Bound the error of the covariance that a run has multiplied by.

    Parameters
    ----------
    products : Products
    directions : int
        How many directions were multiplied.
    """
    moments, variance = products.moments, products.variance
    return (
        bound_rounding(moments, variance)
        + bound_wire_error(moments, variance, directions)
        # Every entry of every product has its own error: all of them, in Frobenius norm.
        + bound_fixed_point(moments, products.total, float(directions) * len(moments.mean))
    )


def request_remainder(products: Products, count: int, *, rounding: float) -> Protocol[UpperBound]:
    """Request a bound on the eigenvalues of the covariance outside directions revealed.

    Parameters
    ----------
    products : Products
    count : int
        How many products have these directions, from the last one backwards.
    rounding : float
        Bound on the error of the covariance.
    """
    request = products.outside(products=count, **products.first())
    answer = yield from products.total(Call(request, angle=products.angle))
    # In fixed point a sum of zeros may come out as a few units of its error.
    failure = answer.failure if answer.failure > 2.0 * float(products.total.error(1.0)) else 0.0
    return UpperBound(answer.largest / products.divisor + rounding, min(failure, 1.0))


def measure_basis(products: Products, basis: Array, image: Array, k: int) -> RitzValues:
    """Return the Ritz values of a basis whose product with the covariance is known.

    Parameters
    ----------
    products : Products
        The products of the run so far.
    basis, image : ndarray of shape (d, m)
        Orthonormal columns, and the covariance times them.
    k : int
        Number of components.
    """
    onto = basis.T @ image
    values, vectors = np.linalg.eigh((onto + onto.T) / 2)
    values, vectors = values[::-1], vectors[:, ::-1]
    norms = column_norms(image @ vectors - (basis @ vectors) * values)
    if len(values) == k < len(basis):
        values, norms = np.append(values, _ASSUMED_RATIO * values[-1]), np.append(norms, 0.0)
    return RitzValues(values, norms, k, bound_error(products, basis.shape[1]))


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
        Largest angle of a converged component, in degrees.
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
        Largest angle of a converged component, in degrees.
    certify : bool
        Request the bound on the angle in one more round.
    """
    onto = basis.T @ image
    values, vectors = np.linalg.eigh((onto + onto.T) / 2)
    values, vectors = values[::-1], vectors[:, ::-1]
    vt = flip_signs((basis @ vectors[:, :k]).T)
    grade = None
    if certify:
        rounding = bound_error(products, basis.shape[1])
        residual = image @ vectors - (basis @ vectors) * values
        above, ceilings = UpperBound(-math.inf, 0.0), None
        known, norms = values, column_norms(residual)
        if k < len(basis):
            outside = yield from request_remainder(products, 1, rounding=rounding)
            next_value = float(values[k]) + rounding if len(values) > k else None
            coupling = float(np.linalg.norm(image - basis @ onto, 2)) + rounding
            above = UpperBound(bound_unwanted(next_value, outside.value, coupling), outside.failure)
            ceilings = _bound_followers(values, residual, k, outside.value, rounding)
        if len(values) == k < len(basis):
            # Nothing is known of the next eigenvalue but its bound.
            known, norms = np.append(values, above.value), np.append(norms, 0.0)
        grade = make_certificate(
            RitzValues(known, norms, k, rounding, ceilings),
            span=float(np.linalg.norm(residual[:, :k], 2)),
            above=above,
            vt=vt,
            variance=products.variance,
            tol=tol,
        )
    return products.describe(vt, values[:k], values[k : k + FURTHER], grade)


def _bound_followers(
    values: Array, residual: Array, k: int, outside: float, rounding: float
) -> Array:
    """Bound the eigenvalue that follows each component, by all that is orthogonal to those before.

    By interlacing, eigenvalue i + 1 is at most the largest one of the matrix on the later Ritz
    vectors and the complement together.
    """
    bounds = []
    for i in range(1, k + 1):
        following = float(values[i]) + rounding if i < len(values) else None
        coupling = float(np.linalg.norm(residual[:, i:], 2)) if i < len(values) else 0.0
        bounds.append(bound_unwanted(following, outside, coupling + rounding))
    return np.array(bounds)
