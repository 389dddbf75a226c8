"""Components of a covariance matrix that is known completely, and their certificate."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.linalg.eigen import top_eigh
from eigenfed.linalg.orthonormal import column_norms, flip_signs
from eigenfed.linalg.remainder import UpperBound
from eigenfed.protocol.component_count import is_open
from eigenfed.protocol.decomposition import FURTHER, Certificate, Decomposition
from eigenfed.protocol.exact.accuracy import RitzValues, bound_unwanted, make_certificate
from eigenfed.protocol.method import Run

Number = TypeVar("Number", bound=np.generic)


@lru_cache(maxsize=4)
def _triangle_mask(d: int) -> npt.NDArray[np.bool_]:
    """Return the mask of the upper triangle of a matrix, (d, d)."""
    return np.triu(np.ones((d, d), dtype=bool))


def pack_symmetric(matrix: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """Return the upper triangle of a symmetric matrix, row by row.

    Examples
    --------
    >>> import numpy as np
    >>> pack_symmetric(np.array([[1.0, 2.0], [2.0, 3.0]]))
    array([1., 2., 3.])
    """
    return matrix[_triangle_mask(len(matrix))]


def unpack_symmetric(triangle: Array, d: int) -> Array:
    """Build a symmetric matrix from its upper triangle, row by row.

    Examples
    --------
    >>> import numpy as np
    >>> unpack_symmetric(np.array([1.0, 2.0, 3.0]), d=2)
    array([[1., 2.],
           [2., 3.]])
    """
    matrix, upper = np.zeros((d, d)), _triangle_mask(d)
    matrix[upper] = triangle
    matrix.T[upper] = triangle
    return matrix


def count_components(run: Run, matrix: Array) -> int:
    """Return the number of components, from all eigenvalues where it depends on them.

    Parameters
    ----------
    run : Run
    matrix : ndarray of shape (m, m)
        The covariance, or the inner products of rows that have it.
    """
    if not is_open(run.study.components):
        return run.k
    values = np.maximum(np.linalg.eigvalsh(matrix)[::-1], 0.0)
    return run.find_count(values, float(values.sum())) or len(matrix)


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
        Largest angle of a converged component, in degrees.
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
    followed = min(k + 1 if exact_on is None else max(exact_on.shape[1], k) + 1, len(matrix))
    values, vectors = top_eigh(matrix, min(max(followed, k + FURTHER), len(matrix)))
    values, vt = np.maximum(values, 0.0), flip_signs(vectors[:, :k].T)
    error = _Uncertainty.of(vt, vectors[:, k : followed - 1].T, rounding, rough, exact_on)
    return Decomposition(
        vt,
        values[:k],
        mean,
        scale,
        n,
        variance,
        products=1,
        certificate=_certify(matrix, values[:followed], vt, tol, variance, error=error),
        further=values[k : k + FURTHER],
    )


@dataclass(frozen=True, eq=False)
class _Uncertainty:
    """Bounds on the norm of the difference between the matrix and the covariance.

    All but the last are without rounding.

    Attributes
    ----------
    each : ndarray of shape (k,)
        On each component.
    all : float
        On the span of the components.
    next : float
        On the eigenvectors that follow them, of those that are known, together.
    anywhere : float
        On all directions.
    rounding : float
        The part of these that is the same on all directions.
    """

    each: Array
    all: float
    next: float
    anywhere: float
    rounding: float

    @classmethod
    def of(
        cls, vt: Array, following: Array, rounding: float, rough: float, exact_on: Array | None
    ) -> "_Uncertainty":
        outside, after = (_remove_span(rows.T, exact_on) for rows in (vt, following))
        return cls(
            rough * column_norms(outside),
            rough * float(np.linalg.norm(outside, 2)),
            rough * float(np.linalg.norm(after, 2)) if after.size else rough,
            rough,
            rounding,
        )


def _remove_span(columns: Array, basis: Array | None) -> Array:
    return columns if basis is None else columns - basis @ (basis.T @ columns)


def _certify(
    matrix: Array, values: Array, vt: Array, tol: float, variance: float, *, error: _Uncertainty
) -> Certificate:
    """Certify components by Davis-Kahan; the whole spectrum is known, so the bound is the estimate.

    By Weyl's inequality an eigenvalue of the covariance exceeds that of the matrix by at most the
    error, which is why it is added before the gap is taken. Eigenvectors that follow the components
    and are known more precisely than the rest are set apart from it.
    """
    k = len(vt)
    residual = matrix @ vt.T - vt.T * values[:k]
    norms, after = column_norms(residual) + error.each, -math.inf
    if k < len(values):
        rest = float(values[-1]) + error.anywhere
        after = bound_unwanted(float(values[k]) + error.next, rest, error.next)
    return make_certificate(
        RitzValues(values[: k + 1], np.append(norms, error.next)[: len(values)], k, error.rounding),
        span=float(np.linalg.norm(residual, 2)) + error.all,
        above=UpperBound(after, 0.0),
        vt=vt,
        variance=variance,
        tol=tol,
    )
