"""From a subspace to components: Rayleigh and Ritz, and the certificate."""

import numpy as np

from eigenfed.arrays import Array
from eigenfed.linalg.orthonormal import signed_rows
from eigenfed.protocol.certificate import certificate
from eigenfed.protocol.core import Protocol
from eigenfed.protocol.products import Products
from eigenfed.protocol.result import Decomposition


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
