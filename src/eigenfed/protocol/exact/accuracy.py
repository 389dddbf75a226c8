"""How accurate components are, from Ritz values and residuals: angles, bounds, and when to stop."""

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.linalg.remainder import UpperBound
from eigenfed.protocol.decomposition import Certificate

_TIED = 1e-3
"""Relative distance of eigenvalues below which a run does not try to separate them."""


@dataclass(frozen=True, eq=False)
class RitzValues:
    """Ritz values in decreasing order with the norms of their residuals.

    Attributes
    ----------
    values, norms : ndarray of shape (m,)
        Those of the k components first, then any others.
    k : int
    rounding : float
        Bound on the error of the matrix, and so of every value and residual.
    ceilings : ndarray of shape (k,), optional
        Upper bounds on the eigenvalues after each component, where they are known. Without them
        each eigenvalue is taken to be within the residual of its own Ritz value, which may be wrong
        if eigenvalues are closer than residuals are small.

    Examples
    --------
    >>> import numpy as np
    >>> ritz = RitzValues(np.array([4.0, 2.0, 1.0]), np.array([1e-3, 1e-3, 1e-3]), 2, 0.0)
    >>> ritz.estimate_angles().round(6)
    array([0.000501, 0.001002])
    """

    values: Array
    norms: Array
    k: int
    rounding: float
    ceilings: Array | None = None

    def gaps(self) -> Array:
        """Return the distance of each component's eigenvalue to its neighbours, (k,).

        Eigenvalues are known up to their residuals, which are subtracted.
        """
        low = self.values - self.norms - self.rounding
        high = self.values + self.norms + self.rounding
        below = np.append(high[1:], -math.inf)
        if self.ceilings is not None:
            below[: self.k] = np.maximum(below[: self.k], self.ceilings)
        above = np.append(math.inf, low[:-1])
        gaps: Array = np.minimum(low - below, above - high)[: self.k]
        return gaps

    def estimate_angles(self) -> Array:
        """Return the estimated angle of each component to its eigenvector, in radians, (k,)."""
        sizes, gaps = self.norms[: self.k] + self.rounding, self.gaps()
        return np.array([bound_angle(*pair) for pair in zip(sizes, gaps, strict=True)])

    def reaches(self, tol: float, required: npt.NDArray[np.bool_] | slice = slice(None)) -> bool:
        """Return whether further work is pointless for the required components.

        Each is within the tolerance, or limited by rounding, or tied with a neighbour so closely
        that only their span can be found.

        Parameters
        ----------
        tol : float
            In degrees.
        required : mask or slice, optional
        """
        k = self.k
        apart = np.maximum(self.gaps(), _TIED * self.values[:k])
        # The certificate adds the rounding to the norms, and must then find them within too.
        within = math.sin(math.radians(tol)) * apart - self.rounding
        enough = np.maximum(within, self.rounding)
        return bool(np.all((self.norms[:k] <= enough)[required]))

    def largest_angle(self, required: npt.NDArray[np.bool_] | slice = slice(None)) -> float | None:
        """Return the largest estimated angle of the required components, in degrees.

        None if there is no estimate for some component.
        """
        largest = float(self.estimate_angles()[required].max(initial=0.0))
        return math.degrees(largest) if math.isfinite(largest) else None


def make_certificate(
    ritz: RitzValues, *, span: float, above: UpperBound, vt: Array, variance: float, tol: float
) -> Certificate:
    """Return the certificate of components, by the theorem of Davis and Kahan.

    Parameters
    ----------
    ritz : RitzValues
    span : float
        Spectral norm of the components' residuals together.
    above : UpperBound
        Upper bound on the first eigenvalue that is not wanted.
    vt : ndarray of shape (k, d)
        The components.
    variance : float
        The total variance.
    tol : float
        Largest angle of a converged component, in degrees.
    """
    k, smallest = ritz.k, float(ritz.values[ritz.k - 1])
    following = float(ritz.values[k]) if len(ritz.values) > k else above.value
    size = span + ritz.rounding
    bound = bound_angle(size, smallest - above.value - ritz.rounding)
    largest = float(ritz.values[0]) if ritz.values[0] > 0.0 else 1.0
    angles = ritz.estimate_angles()
    with np.errstate(over="ignore"):
        residuals = (ritz.norms[:k] + ritz.rounding) / largest
    return Certificate(
        residuals=residuals,
        angles=angles,
        converged=angles <= math.radians(tol),
        angle_bound=bound,
        angle_estimate=bound_angle(size, smallest - following),
        failure=above.failure if math.isfinite(bound) else 0.0,
        total_variance=variance,
        orthonormality=float(np.abs(vt @ vt.T - np.eye(k)).max()),
    )


def widen_certificate(grade: Certificate, factor: float, tol: float) -> Certificate:
    """Return the certificate for errors that are larger by a factor than it was made with.

    With errors e, a residual r and a gap g, a bound was ``s = (r + e) / (g - 2 e)``. With q e it is
    at most ``q s / (1 - 2 (q - 1) s)``.

    Parameters
    ----------
    grade : Certificate
    factor : float
        q, at least 1. With an infinite one nothing is known.
    tol : float
        Largest angle of a converged component, in degrees.
    """

    def widen(angle: float) -> float:
        sine = math.sin(angle) if math.isfinite(angle) and math.isfinite(factor) else math.inf
        return bound_angle(factor * sine, 1.0 - 2.0 * (factor - 1.0) * sine)

    angles = np.array([widen(angle) for angle in grade.angles])
    bound = widen(grade.angle_bound)
    return replace(
        grade,
        residuals=np.where(math.isfinite(factor), grade.residuals, 1.0) * factor,
        angles=angles,
        converged=angles <= math.radians(tol),
        angle_bound=bound,
        angle_estimate=widen(grade.angle_estimate),
        failure=grade.failure if math.isfinite(bound) else 0.0,
    )


def loosen_certificate(grade: Certificate, error: float, tol: float) -> Certificate:
    """Return the certificate about a matrix that exceeds the one it was made for.

    With M the matrix of the certificate and A the other one, ``0 <= A - M <= error * I``, possibly
    after both are shifted by a multiple of I. An angle whose sine was r / g has a sine of at most
    ``(r + error) / (g - error)``: residuals grow by `error`, and gaps shrink by as much.

    Parameters
    ----------
    grade : Certificate
    error : float
        Relative to the largest eigenvalue, as residuals are. With an infinite one nothing is known.
    tol : float
        Largest angle of a converged component, in degrees.
    """

    def loosen(residual: float, angle: float) -> float:
        if not math.isfinite(angle):
            return math.inf
        sine = math.sin(angle)
        gap = residual / sine if sine > 0.0 else math.inf
        return bound_angle(residual + error, gap - error)

    # The residual of all components together is no smaller than that of any, nor is their gap
    # smaller than what follows from it; the larger the gap, the smaller the angle.
    together = float(grade.residuals.max())
    pairs = zip(grade.residuals, grade.angles, strict=True)
    angles = np.array([loosen(float(residual), float(angle)) for residual, angle in pairs])
    bound = loosen(together, grade.angle_bound)
    return replace(
        grade,
        residuals=grade.residuals + error,
        angles=angles,
        converged=angles <= math.radians(tol),
        angle_bound=bound,
        angle_estimate=loosen(together, grade.angle_estimate),
        failure=grade.failure if math.isfinite(bound) else 0.0,
    )


def bound_unwanted(next_value: float | None, outside: float, coupling: float) -> float:
    """Bound the first unwanted eigenvalue by what is known inside and outside a subspace.

    Parameters
    ----------
    next_value : float or None
        The largest Ritz value in the subspace beyond the components, if there is one.
    outside : float
        Bound on the eigenvalues outside the subspace.
    coupling : float
        Norm of the matrix between the subspace and its complement.

    Examples
    --------
    >>> bound_unwanted(3.0, 1.0, 0.0), bound_unwanted(None, 1.0, 0.5)
    (3.0, 1.0)
    """
    if next_value is None:
        return outside
    half = (next_value - outside) / 2
    return (next_value + outside) / 2 + math.hypot(half, coupling)


def bound_angle(residual: float, gap: float) -> float:
    """Return the angle whose sine is residual / gap, infinite if that is not below 1.

    Examples
    --------
    >>> bound_angle(0.0, 1.0), bound_angle(1.0, 0.5)
    (0.0, inf)
    """
    if not gap > 0.0:
        return math.inf
    sine = residual / gap
    return math.asin(sine) if sine < 1.0 else math.inf
