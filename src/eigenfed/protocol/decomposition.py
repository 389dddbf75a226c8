"""What a federated PCA brings home."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.privacy.guarantee import Statement


@dataclass(frozen=True, eq=False)
class Certificate:
    """How good the components are, in three grades that are never mixed.

    Attributes
    ----------
    residuals : ndarray of shape (k,)
        ``|M v - lambda v| / lambda_1``. Rigorous: the components are exact for a matrix that
        near to M.
    angle_bound : float
        No principal angle to the true subspace exceeds it, in radians; infinite where nothing can
        be said. Rigorous given each site's largest remaining eigenvalue, which above 200 features
        a site finds by an iteration from a random start.
    angle_estimate : float
        The same with the next Ritz value for the next eigenvalue: an estimate, not a bound.
    converged : ndarray of bool, shape (k,)
        Whether each residual is within the tolerance.
    total_variance : float
    orthonormality : float
        Largest departure of the components' inner products from those of an orthonormal set.
    """

    residuals: Array
    angle_bound: float
    angle_estimate: float
    converged: npt.NDArray[np.bool_]
    total_variance: float
    orthonormality: float


@dataclass(frozen=True, eq=False)
class SiteLevel:
    """Where one site's rows lie on the components.

    Attributes
    ----------
    weight : float
    mean : ndarray of shape (k,)
        Mean score of its rows, about the mean of all rows.
    square : ndarray of shape (k,)
        Mean square of the scores.
    """

    weight: float
    mean: Array
    square: Array


@dataclass(frozen=True, eq=False)
class Decomposition:
    """Leading components of all sites' rows.

    Attributes
    ----------
    components : ndarray of shape (k, d)
        Orthonormal, by falling variance.
    variances : ndarray of shape (k,)
    mean, scale : ndarray of shape (d,)
    n : float
        Sum of the weights.
    total_variance : float
    products : int
        Rounds of products.
    certificate : Certificate or None
    method : str
    why : str
        Why that method.
    privacy : Statement or None
        What noise guarantees, where there is any.
    signal : ndarray of shape (k,), or None
        Estimated squared cosine of each component with the one without noise, from a noisy matrix;
        None where too little is known.
    by_site : dict of str to SiteLevel, or None
        Where each site's rows lie, if that was asked for.
    """

    components: Array
    variances: Array
    mean: Array
    scale: Array
    n: float
    total_variance: float
    products: int
    certificate: Certificate | None = None
    method: str = ""
    why: str = ""
    privacy: Statement | None = None
    signal: Array | None = None
    by_site: dict[str, SiteLevel] | None = None
