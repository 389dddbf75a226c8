"""GROUSE: one rotation of the subspace for each row, complete or with missing entries."""

import math
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.baselines.tracker import SubspaceTracker, check_seed, draw_basis
from eigenfed.errors import InputError

# A fit or residual smaller than this, relative to the other, consists of rounding errors.
_ROUNDING = 1e-14


class Grouse(SubspaceTracker):
    """Subspace tracking by rank-one steps along geodesics of the Grassmannian.

    With the least-squares weights w of the observed entries of a row, the fit p = U w and the
    residual r, which is 0 at missing entries, each row rotates the basis U by an angle in the
    plane of p and r ([1]_, Algorithm 1)::

        U <- U + ((cos(angle) - 1) p / ||p|| + sin(angle) r / ||r||) w' / ||w||

    NaN marks a missing entry. Rows are taken as given and are not centred. The basis vectors are
    in no particular order: the result is their span.

    Parameters
    ----------
    n_components : int
        Directions to track, k.
    step_size : float, optional
        By default the step is greedy, angle = arctan(||r|| / ||p||) ([3]_): the span then fits the
        observed entries exactly. Suitable for rows without noise; with noise the error does not
        fall below the noise of one row. If given, row number t rotates by
        angle = step_size * ||r|| * ||p|| / t. The experiments of [Grammenos2020, supplement]
        section D.1 use a step of 2 in this way: the text does not mention the division by t, the
        published program does it. The unit is one over squared data: rescale the step when
        rescaling X.
    random_state : int, optional
        Seed of the initial basis.

    Notes
    -----
    A row is skipped if p or r is zero up to rounding, where the step is not defined, and if its
    angle reaches pi / 2, as in the authors' program: such a step would overshoot. The residual is
    projected twice, which keeps the basis orthonormal without re-orthonormalisation.

    The step that makes GROUSE equivalent to an incremental SVD with all singular values reset to
    one ([2]_) is smaller than the greedy one, which is its limit for rows of large norm.

    References
    ----------
    .. [1] L. Balzano, R. Nowak, B. Recht. Online identification and tracking of subspaces from
       highly incomplete information. Allerton 2010.
    .. [2] L. Balzano, S. J. Wright. On GROUSE and incremental SVD. CAMSAP 2013.
    .. [3] D. Zhang, L. Balzano. Global convergence of a Grassmannian gradient descent algorithm
       for subspace estimation. AISTATS 2016.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.standard_normal((400, 1)) @ [[3.0, 0.0, 4.0]]
    >>> rows[rng.random(rows.shape) < 0.3] = np.nan
    >>> Grouse(n_components=1, random_state=0).partial_fit(rows).components_.round(6) + 0.0
    array([[0.6, 0. , 0.8]])
    """

    _takes_missing: ClassVar[bool] = True

    def __init__(
        self,
        n_components: int,
        *,
        step_size: float | None = None,
        random_state: int | None = None,
    ) -> None:
        super().__init__(n_components)
        if step_size is not None and not 0 < step_size < math.inf:
            raise InputError(
                f"step_size={step_size} must be positive and finite. Pass None for greedy steps."
            )
        self.step_size = step_size
        self.random_state = check_seed(random_state)

    def _start(self, d: int) -> None:
        self._rows = draw_basis(self.n_components, d, self.random_state)

    def _absorb(self, block: Array) -> None:
        for count, row in enumerate(block, start=self.n_rows_ + 1):
            self._step(row, count)

    def _basis(self) -> Array:
        return self._rows

    def _step(self, row: Array, count: int) -> None:
        weights, residual = _fit(self._rows, row)
        fit = weights @ self._rows
        fit_norm, residual_norm = float(np.linalg.norm(fit)), float(np.linalg.norm(residual))
        if min(fit_norm, residual_norm) <= _ROUNDING * max(fit_norm, residual_norm):
            return
        angle = self._angle(fit_norm, residual_norm, count)
        if angle < math.pi / 2:
            turn = (math.cos(angle) - 1) / fit_norm * fit
            turn += math.sin(angle) / residual_norm * residual
            self._rows += np.outer(weights / np.linalg.norm(weights), turn)

    def _angle(self, fit_norm: float, residual_norm: float, count: int) -> float:
        if self.step_size is None:
            return math.atan2(residual_norm, fit_norm)
        return self.step_size * residual_norm * fit_norm / count


def _fit(basis: Array, row: Array) -> tuple[Array, Array]:
    observed = ~np.isnan(row)
    weights = _weights(basis, row, observed)
    residual = np.where(observed, row - weights @ basis, 0.0)
    # already orthogonal to the basis, up to the rounding that this removes
    return weights, residual - (basis @ residual) @ basis


def _weights(basis: Array, row: Array, observed: npt.NDArray[np.bool_]) -> Array:
    if observed.all():
        return basis @ row
    weights, *_ = np.linalg.lstsq(basis[:, observed].T, row[observed], rcond=None)
    return weights.astype(np.float64, copy=False)
