"""Result types of a decomposition."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.data.prepared_rows import Preparation
from eigenfed.privacy.guarantee import Statement

FURTHER = 10
"""Most variances after those of the components that a decomposition has."""


@dataclass(frozen=True, eq=False)
class Certificate:
    """Accuracy of the components: residuals, a bound, and an estimate, kept apart.

    Attributes
    ----------
    residuals : ndarray of shape (k,)
        ``|M v - lambda v| / lambda_1``. Rigorous: the components are exact for a matrix at that
        distance from M.
    angle_bound : float
        Upper bound on the principal angles to the true subspace, in radians; infinite if there is
        none. Rigorous given each site's largest remaining eigenvalue, which above 200 features
        a site finds by an iteration from a random start.
    angle_estimate : float
        The same with the next Ritz value in place of the next eigenvalue: an estimate, not a
        bound.
    converged : ndarray of bool, shape (k,)
        Whether each residual is within the tolerance.
    total_variance : float
    orthonormality : float
        Largest error of the components' inner products, compared with an orthonormal set.
    """

    residuals: Array
    angle_bound: float
    angle_estimate: float
    converged: npt.NDArray[np.bool_]
    total_variance: float
    orthonormality: float


@dataclass(frozen=True, eq=False)
class SiteLevel:
    """Mean and mean square of one site's scores on the components.

    Attributes
    ----------
    weight : float
    mean : ndarray of shape (k,)
        Mean score of its rows; rows are centred by the mean of all sites.
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
        Orthonormal rows, by decreasing variance.
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
        Why that method was chosen.
    privacy : Statement or None
        The privacy guarantee, if noise was added.
    signal : ndarray of shape (k,), or None
        Estimated squared cosine of each component with the noiseless component, for a noised
        covariance; None if it cannot be estimated.
    by_site : dict of str to SiteLevel, or None
        Scores of each site, if the study requests them.
    preparation : Preparation
        How the rows were prepared; `mean` is that of prepared rows.
    further : ndarray of shape (m,)
        Variances of some components after the last, as far as the run knows them: lower bounds, and
        exact where the whole covariance is known.
    average : ndarray of shape (d,), or None
        Mean of all rows, also where the run does not centre them; None if it was not collected.
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
    preparation: Preparation = field(default_factory=Preparation)
    further: Array = field(default_factory=lambda: np.zeros(0))
    average: Array | None = None

    def __repr__(self) -> str:
        """Return the sizes in one line."""
        k, d = self.components.shape
        return f"Decomposition(k={k}, d={d}, n={self.n:g}, method={self.method!r})"
