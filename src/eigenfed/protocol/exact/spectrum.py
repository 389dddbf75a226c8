"""Components of a covariance matrix that is known whole, and their certificate."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.linalg.eigen import top_eigh
from eigenfed.linalg.orthonormal import column_norms, signed_rows
from eigenfed.protocol.decomposition import Certificate, Decomposition
from eigenfed.protocol.exact.certificate import angle


@lru_cache(maxsize=4)
def upper_triangle(d: int) -> npt.NDArray[np.bool_]:
    """Say which entries of a matrix belong to its upper triangle, (d, d)."""
    return np.triu(np.ones((d, d), dtype=bool))


def symmetric(triangle: Array, d: int) -> Array:
    """Make a symmetric matrix of its upper triangle, row by row.

    Examples
    --------
    >>> import numpy as np
    >>> symmetric(np.array([1.0, 2.0, 3.0]), d=2)
    array([[1., 2.],
           [2., 3.]])
    """
    matrix, upper = np.zeros((d, d)), upper_triangle(d)
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
    rough: float = 0.0,
    exact_on: Array | None = None,
    variance: float | None = None,
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
    rough : float, default=0.0
        How much farther it may be outside the directions of `exact_on`.
    exact_on : ndarray of shape (d, m), optional
        Orthonormal columns.
    variance : float, optional
        The total variance, where it is known better than by the trace.
    """
    variance = max(float(matrix.trace()), 0.0) if variance is None else variance
    values, vectors = top_eigh(matrix, min(k + 1, len(matrix)))
    values, vt = np.maximum(values, 0.0), signed_rows(vectors[:, :k].T)
    off = _Off.of(vt, rounding, rough, exact_on)
    return Decomposition(
        vt,
        values[:k],
        mean,
        scale,
        n,
        variance,
        products=1,
        certificate=_certificate(matrix, values, vt, tol, variance, off=off),
    )


@dataclass(frozen=True, eq=False)
class _Off:
    """How far, in norm, the matrix may be from the covariance.

    Attributes
    ----------
    each : ndarray of shape (k,)
        On each component.
    all : float
        On the span of the components.
    anywhere : float
    """

    each: Array
    all: float
    anywhere: float

    @classmethod
    def of(cls, vt: Array, rounding: float, rough: float, exact_on: Array | None) -> "_Off":
        outside = vt.T if exact_on is None else vt.T - exact_on @ (exact_on.T @ vt.T)
        return cls(
            rounding + rough * column_norms(outside),
            rounding + rough * float(np.linalg.norm(outside, 2)),
            rounding + rough,
        )


def _certificate(
    matrix: Array, values: Array, vt: Array, tol: float, variance: float, *, off: _Off
) -> Certificate:
    """All of the matrix is known, so that bound and estimate are one."""
    k = len(vt)
    left = matrix @ vt.T - vt.T * values[:k]
    largest = values[0] if values[0] > 0 else 1.0
    residuals = (column_norms(left) + off.each) / largest
    following = (values[k] + off.anywhere) if k < len(values) else 0.0
    sure = angle(float(np.linalg.norm(left, 2)) + off.all, values[k - 1] - following)
    return Certificate(
        residuals,
        sure,
        sure,
        residuals <= tol,
        variance,
        float(np.abs(vt @ vt.T - np.eye(k)).max()),
    )
