"""Block Lanczos with full reorthogonalisation: few rounds, nothing of size d x d.

===========  ==================================================================================
coordinator  sums over sites of D'W D Q, one block of directions Q each round
site         the blocks Q
===========  ==================================================================================

The coordinator knows the products with all blocks so far, so Ritz values and their true residuals
follow without further rounds: the run stops as soon as each component is within the tolerance.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.errors import InputError, Name, Pass
from eigenfed.linalg.krylov_bound import FAILURE, bound_next_eigenvalue
from eigenfed.linalg.lanczos import BlockLanczos
from eigenfed.linalg.orthonormal import column_norms, flip_signs
from eigenfed.linalg.remainder import UpperBound
from eigenfed.linalg.threads import one_blas_thread
from eigenfed.protocol.component_count import BY_RULE, count_per_request, is_open
from eigenfed.protocol.core import Protocol
from eigenfed.protocol.cost_rates import time_lanczos
from eigenfed.protocol.decomposition import FURTHER, Decomposition
from eigenfed.protocol.exact.accuracy import RitzValues, bound_unwanted, make_certificate
from eigenfed.protocol.exact.certificate import OPS as CERTIFICATE_OPS
from eigenfed.protocol.exact.certificate import (
    bound_error,
    make_products,
    request_remainder,
)
from eigenfed.protocol.exact.products import OPS as PRODUCT_OPS
from eigenfed.protocol.exact.products import Products
from eigenfed.protocol.gate.script import Script, optional, repeat, sequence
from eigenfed.protocol.method import Cost, Method, Run, Shape, product_s, product_site_bytes
from eigenfed.protocol.study import Study

_LEAST_BLOCK = 8
_NEARLY_FINAL = 0.01
"""Relative residual at which an eigenvalue can be compared with the edge of noise."""
_APART = 1.05
_RESOLVED = 0.2
"""Relative residual of a Ritz value at which it shows whether it is apart from its neighbours."""
_SPARE = 2
"""Directions of a block beyond k: the probable bound on the next eigenvalue needs some."""
_USUAL_ROUNDS = 10
_ROOM_BYTES = 64 << 20


@dataclass(frozen=True, repr=False)
class Krylov(Method):
    """Block Lanczos: one new block of directions each round until the residuals are small.

    Examples
    --------
    >>> Krylov().width(3, 100)
    8
    """

    name: ClassVar[str] = "krylov"
    summary: ClassVar[str] = "block Lanczos on products: few rounds, nothing of size d x d"
    ops = (*PRODUCT_OPS, *CERTIFICATE_OPS)
    iterates: ClassVar[bool] = True
    random_start: ClassVar[bool] = True
    automatic: ClassVar[bool] = True

    def script(self, study: Study, d: int) -> Script:
        """Return products, and what sites add to a rigorous certificate."""
        products = repeat("product", 1, study.max_rounds)
        if study.certify != "rigorous":
            return products
        return sequence(products, optional("remainder"))

    def keeps_directions(self, study: Study) -> bool:
        """Whether a site needs the directions later: only for a rigorous certificate."""
        return study.certify == "rigorous"

    def finds_count(self) -> bool:
        """Whether the number of components may depend on the rows: yes."""
        return True

    def width(self, k: int, d: int) -> int:
        """Return the largest size of a block."""
        return _choose_width(k, d, "auto")

    def run(self, run: Run) -> Protocol[Decomposition]:
        """Request products until the residuals are within the tolerance."""
        block = count_per_request(run.study.components, max(min(int(run.moments.n), run.d), 1))
        count = run.find_count if is_open(run.study.components) else None
        return (yield from lanczos(make_products(run), block, run.study, run.rng, count))

    def cost(self, shape: Shape) -> Cost:
        """Count the products, their directions, and the basis that the coordinator keeps."""
        d = shape.features
        width = _choose_width(shape.components, d, shape.certify)
        # A space that holds all rows is invariant: no more directions are needed.
        full = -(-min(d, shape.rows * shape.sites) // width)
        rounds = shape.products or min(_USUAL_ROUNDS, full)
        answered = rounds * width
        held = shape.column_bytes(_estimate_room(shape, width, answered))
        return Cost(
            rounds + (shape.certify == "rigorous"),
            answered,
            float(d) * answered,
            product_site_bytes(shape, answered, answered if shape.certify == "rigorous" else width),
            held + 2.6 * shape.column_bytes(answered),
            product_s(shape, answered, rounds),
            time_lanczos(d, answered, width),
        )


def _choose_width(k: int, d: int, certify: str | bool) -> int:
    """Return the size of a block, with spare directions if a probable bound rests on the start."""
    return min(max(k + _SPARE if certify == "auto" else k, _LEAST_BLOCK), d)


def _estimate_room(shape: Shape, width: int, answered: int) -> int:
    """Return the allocated columns of a Lanczos basis, which double whenever they run out."""
    room = max(2 * width, _ROOM_BYTES // int(shape.column_bytes(1)))
    while room < answered:
        room = 2 * (room // width) * width
    return min(room, shape.features)


def lanczos(
    products: Products,
    k: int,
    study: Study,
    rng: np.random.Generator,
    count: Callable[[Array, float], int | None] | None = None,
) -> Protocol[Decomposition]:
    """Compute the leading eigenvectors of the matrix that `products` multiplies by.

    Parameters
    ----------
    products : Products
    k : int
        Number of components, or for how many a block is made if `count` finds their number.
    study : Study
        Tolerance, stopping rule and largest number of rounds.
    rng : numpy Generator
        For the first block.
    count : callable, optional
        Returns the number of components from Ritz values and the total variance, or None if more
        values are needed.
    """
    d = len(products.moments.mean)
    block, start = _draw_start(rng, d, _choose_width(k, d, study.certify))
    space = BlockLanczos(block)
    while True:
        space.take((yield from products.of(space.block)))
        is_known = True
        if count is not None:
            k, is_known = _find_count(space, products, study, count)
        values, vectors = space.ritz(k + 1)
        residual = space.residuals(vectors)
        rounding = bound_error(products, space.basis.shape[1]) + space.negligible
        ritz = RitzValues(values, column_norms(residual), k, rounding)
        required = _select_required(values, k, study.stop)
        products.angle = ritz.largest_angle(required)
        # Without a next value nothing is known of the gap, unless there are no other directions.
        has_next = len(values) > k or k == d
        # Of a component that need not converge it must be known that it lies within the bulk.
        rough = ritz.norms[:k][~required] > _RESOLVED * values[:k][~required]
        can_stop = has_next and is_known and not rough.any()
        if (can_stop and ritz.reaches(study.tol, required)) or not space.room:
            break
        if products.rounds >= study.max_rounds:
            if not is_known:
                raise _make_count_error(study, values, products.variance)
            break
        space.extend()
    components = flip_signs(space.components(vectors[:, :k]))
    grade = None
    if study.certify:
        if study.split == "features":
            residual, ritz = _map_to_features(products, space, residual, ritz)
        above = yield from _bound_unwanted(products, space, ritz, start, study)
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
    return Decomposition(
        components,
        np.maximum(values[:k], 0.0),
        products.moments.mean,
        products.moments.scale,
        products.moments.n,
        products.variance,
        products.rounds,
        grade,
        further=np.maximum(space.ritz_values(k + FURTHER)[k:], 0.0),
    )


def _draw_start(rng: np.random.Generator, d: int, width: int) -> tuple[Array, float]:
    """Return an orthonormal basis of a Gaussian matrix, and the spectral norm of the matrix."""
    gaussian = rng.standard_normal((d, width))
    with one_blas_thread:
        largest = float(np.linalg.eigvalsh(gaussian.T @ gaussian)[-1])
        return np.linalg.qr(gaussian).Q, math.sqrt(largest)


def _find_count(
    space: BlockLanczos,
    products: Products,
    study: Study,
    count: Callable[[Array, float], int | None],
) -> tuple[int, bool]:
    """Return the number of components by the Ritz values so far, and whether that is reliable.

    Ritz values grow towards eigenvalues from below. The fraction of those that have converged is
    final. For "auto" the next one, which must not stand out, has to be nearly final too.
    """
    values = space.ritz_values(space.basis.shape[1])
    found = count(np.maximum(values, 0.0), products.trace / products.divisor)
    if found is None or found > len(values):
        return len(values), False
    if study.components == BY_RULE and found < len(values):
        following = space.ritz(found + 1)[1][:, found:]
        missed = float(column_norms(space.residuals(following))[0])
        return found, missed <= _NEARLY_FINAL * float(values[found])
    return found, True


def _make_count_error(study: Study, values: Array, total: float) -> InputError:
    share = float(values.sum()) / total if total > 0.0 else 0.0
    wanted = "number of components of 'auto'"
    if isinstance(study.components, float):
        wanted = f"{study.components:g} of the variance"
    return InputError(
        f"{wanted} was not reached in {study.max_rounds} rounds, in which the directions sent "
        f"hold {share:.0%} of the variance",
        remedy=("Raise ", Name("max_rounds"), ", or ", Pass("method", "covariance"), "."),
    )


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
    products: Products, space: BlockLanczos, ritz: RitzValues, start: float, study: Study
) -> Protocol[UpperBound]:
    """Bound the first unwanted eigenvalue: rigorously if that is possible, else with a probability.

    What the whole basis leaves of the total variance is known for nothing. It decides where few
    directions hold nearly all variance. Otherwise the sites are asked, if the study requests a
    rigorous certificate, or the bound rests on the random start.
    """
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
        rest = yield from request_remainder(products, last=False, rounding=ritz.rounding)
        asked = bound_unwanted(next_value, min(rest.value, max(left, 0.0)), coupling)
        return UpperBound(asked, rest.failure)
    if next_value is None:
        return free
    # A twentieth of the gap more or less does not change the bound on the angle.
    enough = next_value + 0.05 * (float(ritz.values[k - 1]) - next_value)
    described = space.describe(start, ritz.rounding)
    most = products.variance + ritz.rounding
    return UpperBound(bound_next_eigenvalue(described, k, most, enough=enough), FAILURE)


def _select_required(values: Array, k: int, stop: str) -> npt.NDArray[np.bool_]:
    """Return which of the first k components must converge.

    With ``stop="separated"``, those at least 5 % apart from the Ritz values before and after them:
    within the bulk of the spectrum single components are not determined and would take very many
    rounds to converge.
    """
    if stop == "all" or len(values) <= k:
        return np.ones(k, dtype=bool)
    above = values[:k] > _APART * values[1 : k + 1]
    apart: npt.NDArray[np.bool_] = above & np.append(True, above[:-1])
    return apart
