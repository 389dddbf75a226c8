"""Components of a covariance matrix that is known completely, and their certificate."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.linalg.eigen import top_eigh
from eigenfed.linalg.orthonormal import column_norms, flip_signs
from eigenfed.protocol.decomposition import FURTHER, Certificate, Decomposition
from eigenfed.protocol.exact.certificate import bound_angle


@lru_cache(maxsize=4)
def triangle_mask(d: int) -> npt.NDArray[np.bool_]:
    """Return the mask of the upper triangle of a matrix, (d, d)."""
    return np.triu(np.ones((d, d), dtype=bool))


def unpack_symmetric(triangle: Array, d: int) -> Array:
    """Build a symmetric matrix from its upper triangle, row by row.

    Examples
    --------
    >>> import numpy as np
    >>> unpack_symmetric(np.array([1.0, 2.0, 3.0]), d=2)
    array([[1., 2.],
           [2., 3.]])
    """
    matrix, upper = np.zeros((d, d)), triangle_mask(d)
    matrix[upper] = triangle
    matrix.T[upper] = triangle
    return matrix


def decompose_covariance(
    matrix: Array,
    k: int,
    *,
    mean: Array,
    scale: Array,
    n: float,
    tol: float,
    rounding: float = 0.0,
    rough: float = 0.0,
    exact_on: Array | None = None,
    variance: float | None = None,
) -> Decomposition:
    """Compute the leading components of a covariance matrix, and certify them.

    Parameters
    ----------
    matrix : ndarray of shape (d, d)
        Symmetric; negative eigenvalues, which noise can cause, are set to 0.
    k : int
        Number of components.
    mean, scale : ndarray of shape (d,)
    n : float
        Sum of the rows' weights.
    tol : float
        Residual, relative to the first eigenvalue, up to which a component has converged.
    rounding : float, default=0.0
        Bound on the norm of the error of `matrix`.
    rough : float, default=0.0
        Bound on its further error outside the directions of `exact_on`.
    exact_on : ndarray of shape (d, m), optional
        Orthonormal columns.
    variance : float, optional
        The total variance, if it is known more precisely than the trace.
    """
    variance = max(float(matrix.trace()), 0.0) if variance is None else variance
    values, vectors = top_eigh(matrix, min(k + FURTHER, len(matrix)))
    values, vt = np.maximum(values, 0.0), flip_signs(vectors[:, :k].T)
    error = _Uncertainty.of(vt, rounding, rough, exact_on)
    return Decomposition(
        vt,
        values[:k],
        mean,
        scale,
        n,
        variance,
        products=1,
        certificate=_certify(matrix, values[: k + 1], vt, tol, variance, error=error),
        further=values[k:],
    )


@dataclass(frozen=True, eq=False)
class _Uncertainty:
    """Bounds on the norm of the difference between the matrix and the covariance.

    Attributes
    ----------
    each : ndarray of shape (k,)
        On each component.
    all : float
        On the span of the components.
    anywhere : float
        On all directions.
    """

    each: Array
    all: float
    anywhere: float

    @classmethod
    def of(cls, vt: Array, rounding: float, rough: float, exact_on: Array | None) -> "_Uncertainty":
        outside = vt.T if exact_on is None else vt.T - exact_on @ (exact_on.T @ vt.T)
        return cls(
            rounding + rough * column_norms(outside),
            rounding + rough * float(np.linalg.norm(outside, 2)),
            rounding + rough,
        )


def _certify(
    matrix: Array, values: Array, vt: Array, tol: float, variance: float, *, error: _Uncertainty
) -> Certificate:
    """Certify components by Davis-Kahan; the whole spectrum is known, so the bound is the estimate.

    By Weyl's inequality the next eigenvalue of the covariance exceeds that of the matrix by at most
    the error, which is why it is added before the gap is taken.
    """
    k = len(vt)
    residual = matrix @ vt.T - vt.T * values[:k]
    largest = values[0] if values[0] > 0 else 1.0
    residuals = (column_norms(residual) + error.each) / largest
    following = (values[k] + error.anywhere) if k < len(values) else 0.0
    bound = bound_angle(float(np.linalg.norm(residual, 2)) + error.all, values[k - 1] - following)
    return Certificate(
        residuals,
        bound,
        bound,
        residuals <= tol,
        variance,
        float(np.abs(vt @ vt.T - np.eye(k)).max()),
    )
