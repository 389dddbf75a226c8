"""Result types of a decomposition."""

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.data.prepared_rows import Preparation
from eigenfed.privacy.guarantee import Statement

FURTHER = 10
"""Most variances after those of the components that a decomposition has."""


@dataclass(frozen=True, eq=False, repr=False)
class Certificate:
    """Accuracy of the components: residuals, a bound, and estimates, kept apart.

    Attributes
    ----------
    residuals : ndarray of shape (k,)
        ``|M v - lambda v| / lambda_1``, with the error of the arithmetic added. Rigorous: the
        components are exact for a matrix at that distance from M.
    angles : ndarray of shape (k,)
        Estimated angle between each component and the eigenvector that it approximates, in radians:
        its residual over the distance to the neighbouring eigenvalues. Infinite where components
        have equal variances, or none: such a direction is not determined.
    converged : ndarray of bool, shape (k,)
        Whether each of these angles is within the tolerance.
    angle_bound : float
        Upper bound on the principal angles between the span of the components and the true one, in
        radians; infinite if there is none. It holds except with the probability `failure`.
    angle_estimate : float
        The same with the next Ritz value in place of a bound on the next eigenvalue: an estimate,
        not a bound.
    failure : float
        Probability, over random starts, that the bound does not hold; 0 if it is rigorous.
    total_variance : float
    orthonormality : float
        Largest error of the components' inner products, compared with an orthonormal set.

    Examples
    --------
    >>> import numpy as np
    >>> from eigenfed import FederatedPCA
    >>> rows = np.random.default_rng(0).standard_normal((90, 4)) * [8.0, 4.0, 2.0, 1.0]
    >>> FederatedPCA(2).fit_sites({"a": rows[:40], "b": rows[40:]}).certificate_
    <Certificate: 2 of 2 components converged, angle at most ...e-12 degrees, rigorous>
    """

    residuals: Array
    angles: Array
    converged: npt.NDArray[np.bool_]
    angle_bound: float
    angle_estimate: float
    failure: float
    total_variance: float
    orthonormality: float

    @property
    def basis(self) -> str:
        """What the bound rests on: "rigorous", "probable", or "none" if it is infinite."""
        if not math.isfinite(self.angle_bound):
            return "none"
        return "probable" if self.failure > 0.0 else "rigorous"

    def __repr__(self) -> str:
        """Return the main figures in a line."""
        angle = "no bound on the angle"
        if self.basis != "none":
            chance = f" (fails with probability {self.failure:.0e})" if self.failure > 0.0 else ""
            angle = f"angle at most {math.degrees(self.angle_bound):.1e} degrees, {self.basis}"
            angle += chance
        k = len(self.converged)
        reached = f"{np.count_nonzero(self.converged)} of {k} component{'' if k == 1 else 's'}"
        return f"<Certificate: {reached} converged, {angle}>"


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
    observed : ndarray of shape (d,), or None
        Weight of the rows in which each feature is known; None if it was not collected.
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
    observed: Array | None = None

    def __repr__(self) -> str:
        """Return the sizes in one line."""
        k, d = self.components.shape
        return f"Decomposition(k={k}, d={d}, n={self.n:g}, method={self.method!r})"
