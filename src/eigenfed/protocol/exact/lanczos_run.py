"""The end of a block Lanczos run: its components and their certificate."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from eigenfed.arrays import Array
from eigenfed.linalg.krylov_bound import bound_next_eigenvalue
from eigenfed.linalg.lanczos import BlockLanczos
from eigenfed.linalg.orthonormal import flip_signs
from eigenfed.linalg.remainder import UpperBound
from eigenfed.protocol.core import Protocol
from eigenfed.protocol.decomposition import FURTHER, Decomposition
from eigenfed.protocol.exact.accuracy import RitzValues, bound_unwanted, make_certificate
from eigenfed.protocol.exact.certificate import request_remainder
from eigenfed.protocol.exact.products import Products
from eigenfed.protocol.study import Study


@dataclass(frozen=True, eq=False)
class LanczosRun:
    """A block Lanczos run that has ended.

    Attributes
    ----------
    space : BlockLanczos
    ritz : RitzValues
    vectors : ndarray of shape (m, k + 1)
        The Ritz vectors on the basis of the space.
    start : float
        Spectral norm of the Gaussian start.
    variance : float
        The total variance.
    """

    space: BlockLanczos
    ritz: RitzValues
    vectors: Array
    start: float
    variance: float

    @property
    def held(self) -> float:
        """Variance that the components hold; minus infinity if there are too few of them."""
        values, k = self.ritz.values, self.ritz.k
        return float(values[:k].sum()) if len(values) >= k else -math.inf

    @property
    def is_apart(self) -> bool:
        """Whether all other eigenvalues are below those of the components."""
        values, k = self.ritz.values, self.ritz.k
        if len(values) <= k:
            return len(values) == k == len(self.space.basis)
        return bool(self.next_bound + self.ritz.rounding < values[k - 1])

    @property
    def is_plausible(self) -> bool:
        """Whether the components can be taken for the first ones.

        A single block spans an arbitrary subspace, and so does nearly any space that leaves out
        fewer directions than a block has: of eigenvectors that are nearly tied it may contain one
        combination and miss the others. A bound must then exclude that.
        """
        space = self.space
        left = len(space.basis) - space.basis.shape[1]
        is_spread = space.blocks > 1 and left >= space.start_size
        return is_spread or not space.room or self.is_apart

    @cached_property
    def next_bound(self) -> float:
        """Bound on the next eigenvalue, except with the probability of `krylov_bound`."""
        ritz, k = self.ritz, self.ritz.k
        next_value = float(ritz.values[k]) + ritz.rounding
        # A twentieth of the gap more or less does not change the bound on the angle.
        enough = next_value + 0.05 * (float(ritz.values[k - 1]) - next_value)
        described = self.space.describe(self.start, ritz.rounding)
        most = self.variance + ritz.rounding
        return bound_next_eigenvalue(described, k, most, enough=enough)


def finish_lanczos(
    products: Products, found: LanczosRun, study: Study, failure: float
) -> Protocol[Decomposition]:
    """Return the components of a run that has ended, with their certificate."""
    space, ritz, k = found.space, found.ritz, found.ritz.k
    d, values, residual = len(space.basis), ritz.values, space.residuals(found.vectors)
    components = flip_signs(space.components(found.vectors[:, :k]))
    grade = None
    if study.certify:
        if study.split == "features":
            residual, ritz = _map_to_features(products, space, residual, ritz)
            found = replace(found, ritz=ritz)
        above = yield from _bound_unwanted(products, found, study, failure)
        if len(ritz.values) == k < d:
            # Nothing is known of the next eigenvalue but its bound.
            values_known, norms = np.append(ritz.values, above.value), np.append(ritz.norms, 0.0)
            ritz = replace(ritz, values=values_known, norms=norms)
        grade = make_certificate(
            ritz,
            span=float(np.linalg.norm(residual[:, :k], 2)) if residual.size else 0.0,
            above=above,
            vt=components,
            variance=products.variance,
            tol=study.tol,
        )
    further = space.ritz_values(k + FURTHER)[k:]
    return products.describe(components, values[:k], further, grade)


def withdraw_claim(found: Decomposition) -> Decomposition:
    """Return components without a claim to be the first: too narrow a block may have missed some.

    Rounds did not suffice to begin again with a whole block.
    """
    grade = found.certificate
    if grade is None or math.isfinite(grade.angle_bound):
        return found
    unknown = np.full(len(grade.angles), math.inf)
    grade = replace(grade, angles=unknown, converged=np.zeros(len(unknown), dtype=bool))
    return replace(found, certificate=grade)


def _map_to_features(
    products: Products, space: BlockLanczos, residual: Array, ritz: RitzValues
) -> tuple[Array, RitzValues]:
    """Return residuals of the components from those of row-side vectors u.

    The component is ``v = D'u / |D'u|``, its residual D' times that of u over the root of its Ritz
    value. Residuals of u are outside the basis, where the squared norm of D' is at most what the
    basis leaves of the trace; rounding may lie anywhere. Features without variance may follow the
    last component.
    """
    left = products.variance - space.trace + (space.basis.shape[1] + 1) * ritz.rounding
    roots = np.sqrt(np.maximum(ritz.values, max(ritz.rounding, np.finfo(float).tiny)))
    factors = math.sqrt(max(left, ritz.rounding)) / roots
    values, norms = ritz.values, ritz.norms * factors
    if len(values) == ritz.k == len(space.basis):
        values, norms = np.append(values, 0.0), np.append(norms, 0.0)
    # The factor of the last component is the largest, so it serves for all.
    rounding = ritz.rounding * (math.sqrt(max(products.variance, 0.0)) / float(roots[ritz.k - 1]))
    return residual * factors, replace(ritz, values=values, norms=norms, rounding=rounding)


def _bound_unwanted(
    products: Products, found: LanczosRun, study: Study, failure: float
) -> Protocol[UpperBound]:
    """Bound the first unwanted eigenvalue: rigorously if that is possible, else with a probability.

    What the whole basis leaves of the total variance is known for nothing. It decides where few
    directions hold nearly all variance. Otherwise the sites are asked, if the study requests a
    rigorous certificate, or the bound rests on the random start.
    """
    space, ritz = found.space, found.ritz
    d, k, count = len(products.moments.mean), ritz.k, space.basis.shape[1]
    if k == d and len(ritz.values) == k:
        return UpperBound(-math.inf, 0.0)
    next_value = float(ritz.values[k]) + ritz.rounding if len(ritz.values) > k else None
    # The block that would come next is all of M between the basis and its complement.
    coupling = space.coupling + ritz.rounding
    left = products.variance - space.trace + (count + 1) * ritz.rounding if count < d else 0.0
    free = UpperBound(bound_unwanted(next_value, max(left, 0.0), coupling), 0.0)
    if free.value + ritz.rounding < ritz.values[k - 1]:
        return free
    if study.certify == "rigorous":
        rest = yield from request_remainder(products, space.blocks, rounding=ritz.rounding)
        asked = bound_unwanted(next_value, min(rest.value, max(left, 0.0)), coupling)
        return UpperBound(asked, rest.failure)
    if next_value is None or count <= k:
        return free
    return UpperBound(found.next_bound, failure)
