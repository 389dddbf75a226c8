"""Components of a covariance matrix that is known whole, and their certificate."""

import numpy as np

from eigenfed.arrays import Array
from eigenfed.linalg.eigen import top_eigh
from eigenfed.linalg.orthonormal import column_lengths, signed_rows
from eigenfed.protocol.certificate import angle
from eigenfed.protocol.result import Certificate, Decomposition


def symmetric(triangle: Array, d: int) -> Array:
    """Make a symmetric matrix of its upper triangle, row by row.

    Examples
    --------
    >>> import numpy as np
    >>> symmetric(np.array([1.0, 2.0, 3.0]), d=2)
    array([[1., 2.],
           [2., 3.]])
    """
    matrix, upper = np.zeros((d, d)), np.triu(np.ones((d, d), dtype=bool))
    matrix[upper] = triangle
    matrix.T[upper] = triangle
    return matrix


def whole_spectrum(
    matrix: Array,
    k: int,
    *,
    mean: Array,
    scale: Array,
    n: float,
    tol: float,
    rounding: float = 0.0,
) -> Decomposition:
    """Decompose a covariance matrix.

    Parameters
    ----------
    matrix : ndarray of shape (d, d)
        Symmetric; eigenvalues below 0, which noise makes, count as 0.
    k : int
        Number of components.
    mean, scale : ndarray of shape (d,)
    n : float
        Sum of the rows' weights.
    tol : float
        Residual at which a component counts as converged.
    rounding : float, default=0.0
        How far, in norm, what was summed may be from it.
    """
    values, vectors = top_eigh(matrix, min(k + 1, len(matrix)))
    values, vt = np.maximum(values, 0.0), signed_rows(vectors[:, :k].T)
    return Decomposition(
        vt,
        values[:k],
        mean,
        scale,
        n,
        max(float(matrix.trace()), 0.0),
        products=1,
        certificate=_certificate(matrix, values, vt, tol, rounding),
    )


def _certificate(
    matrix: Array, values: Array, vt: Array, tol: float, rounding: float
) -> Certificate:
    """All of the matrix is known, so that bound and estimate are one."""
    k = len(vt)
    left = matrix @ vt.T - vt.T * values[:k]
    largest = values[0] if values[0] > 0 else 1.0
    residuals = (column_lengths(left) + rounding) / largest
    following = (values[k] + rounding) if k < len(values) else 0.0
    sure = angle(float(np.linalg.norm(left, 2)) + rounding, values[k - 1] - following)
    return Certificate(
        residuals,
        sure,
        sure,
        residuals <= tol,
        float(matrix.trace()),
        float(np.abs(vt @ vt.T - np.eye(k)).max()),
    )
