"""Block Lanczos with full reorthogonalisation: few rounds, nothing of size d x d.

===========  ==================================================================================
coordinator  sums over sites of D'W D Q, one block of directions Q each round
site         the blocks Q
===========  ==================================================================================

The coordinator knows the products with all blocks so far, so Ritz values and their true residuals
follow without further rounds: the run stops as soon as each component is within the tolerance.

A block usually holds all components. Narrower blocks take more rounds and fewer directions in all:
about 3 k / b rounds more for blocks of b directions, and as many columns less as b is narrower in
each of the others. That saves time where directions cost more than rounds, as with sparse rows and
with many components. But such a start holds no more than b directions of an eigenvalue that is
repeated: the run is believed only if the bound of `eigenfed.linalg.krylov_bound` sets its
components apart from all other directions, and otherwise begins again with a whole block. When most
of the rounds are used and the others will not do, random directions make the block whole, so that
they bring as much as they would have with whole blocks. If too few rounds are left for the second
run, it may find worse components than the first: those of the first are then returned, and called
converged only if a bound is finite. With ``certify="rigorous"`` those of the last run are returned,
which its certificate needs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.errors import Argument, InputError, Name, Pass
from eigenfed.linalg.krylov_bound import FAILURE
from eigenfed.linalg.lanczos import FIRST_ROOM_BYTES, LARGE_ROOM_BYTES, BlockLanczos
from eigenfed.linalg.orthonormal import column_norms
from eigenfed.linalg.sparse_products import LANES
from eigenfed.linalg.threads import one_blas_thread
from eigenfed.protocol.component_count import BY_RULE, count_per_request, is_open
from eigenfed.protocol.core import Protocol
from eigenfed.protocol.cost_rates import time_lanczos
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.accuracy import RitzValues
from eigenfed.protocol.exact.certificate import OPS as CERTIFICATE_OPS
from eigenfed.protocol.exact.certificate import bound_error, make_products
from eigenfed.protocol.exact.lanczos_run import LanczosRun, finish_lanczos, withdraw_claim
from eigenfed.protocol.exact.products import OPS as PRODUCT_OPS
from eigenfed.protocol.exact.products import Products
from eigenfed.protocol.gate.script import Script, optional, repeat, sequence
from eigenfed.protocol.method import (
    Cost,
    Method,
    Run,
    Shape,
    product_s,
    product_site_bytes,
    replies_in_hand,
)
from eigenfed.protocol.study import Study

_LEAST_BLOCK = 8
_NEARLY_FINAL = 0.01
"""Relative residual at which an eigenvalue can be compared with the edge of noise."""
_APART = 1.05
_RESOLVED = 0.2
"""Relative residual of a Ritz value at which it shows whether it is apart from its neighbours."""
_SPARE = 2
"""Directions of a block beyond k: the probable bound on the next eigenvalue needs some."""
_USUAL_ROUNDS, _FEWER_ROUNDS = 10, 6
"""Rounds until a block has converged, and until half of one has: values beyond it are far below.
Not so with sparse rows, whose variances usually decay slowly."""
_NARROWEST = 3
_DENSE_STEP = 8
"""Directions that dense rows are multiplied by at once: five take as long, ten a fifth longer."""
_MANY_FEATURES, _MANY_COMPONENTS = 2000, 40
"""Numbers from which "auto" chooses narrow blocks for dense rows: either is enough."""
_PATIENCE = 4
"""Rounds that narrow blocks may take beyond convergence to set the components apart."""
_SLOWEST = 0.99
"""Ratio of the angles of two rounds above which an angle does not decrease."""
_LATE = 0.6
"""Fraction of the rounds after which narrow blocks become whole ones, unless they converge so soon
that the rounds also suffice to begin again."""
_LESS = 1e-9
"""Relative loss of variance from which components of a second run are worse than those before."""


@dataclass(frozen=True, repr=False)
class Krylov(Method):
    """Block Lanczos: one new block of directions each round until the residuals are small.

    Attributes
    ----------
    block : int or None, default=None
        Number of directions in a request, at least 3. Fewer than the components take more rounds,
        and less time where rows are sparse; if they do not suffice, the run begins again with None.
        None means as many as components, two more with ``certify="auto"``, and at least 8.

    Examples
    --------
    >>> Krylov().width(3, 100), Krylov(block=4).width(20, 1000)
    (8, 22)
    """

    block: int | None = None

    name: ClassVar[str] = "krylov"
    summary: ClassVar[str] = "block Lanczos on products: few rounds, nothing of size d x d"
    ops = (*PRODUCT_OPS, *CERTIFICATE_OPS)
    iterates: ClassVar[bool] = True
    random_start: ClassVar[bool] = True
    automatic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.block is not None and self.block < _NARROWEST:
            raise InputError(
                Argument("block", self.block),
                f" must be at least {_NARROWEST} directions, or None",
                remedy="Pass None for as many as there are components.",
            )

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
        return max(_choose_width(k, d, "auto"), min(self.block or 0, d))

    def may_become(self, method: Method) -> bool:
        """Return whether "auto" may choose this method in the form of another value: any block."""
        return type(method) is type(self)

    def fit_to(self, shape: Shape) -> Method:
        """Return blocks of a quarter of the components, and of as many as are multiplied at once.

        They take a few more rounds, and fewer directions in all. Dense rows of few features take as
        long to read for a few directions as to multiply by all.
        """
        is_sparse, k = shape.density < 1.0, shape.components
        if not is_sparse and shape.features < _MANY_FEATURES and k < _MANY_COMPONENTS:
            return self
        step = LANES[0] if is_sparse else _DENSE_STEP
        # Beside products, rounds cost more where rows are dense: hence the nearest multiple there.
        narrow = max((k // 4 + (0 if is_sparse else step // 2)) // step, 1) * step
        return Krylov(block=narrow) if narrow < k else self

    def run(self, run: Run) -> Protocol[Decomposition]:
        """Request products until the residuals are within the tolerance."""
        block = count_per_request(run.study.components, max(min(int(run.moments.n), run.d), 1))
        count = run.find_count if is_open(run.study.components) else None
        products = make_products(run)
        return (yield from lanczos(products, block, run.study, run.rng, count, self.block))

    def cost(self, shape: Shape) -> Cost:
        """Count the products, their directions, and the basis that the coordinator keeps."""
        d = shape.features
        k = shape.components
        width = min(self.block or _choose_width(k, d, shape.certify), d)
        # A space that holds all rows is invariant: no more directions are needed.
        full = -(-min(d, shape.rows * shape.sites) // width)
        usual = _FEWER_ROUNDS if 2 * k <= width and shape.density == 1.0 else _USUAL_ROUNDS
        usual += math.ceil(3.0 * max(k / width - 1.0, 0.0))
        rounds = shape.products or min(usual, full)
        answered = rounds * width
        held = shape.column_bytes(_estimate_room(shape, width, answered))
        return Cost(
            rounds + (shape.certify == "rigorous"),
            answered,
            float(d) * answered,
            product_site_bytes(shape, answered, answered if shape.certify == "rigorous" else width),
            held + (5.5 + replies_in_hand(shape)) * shape.column_bytes(width),
            product_s(shape, answered, rounds),
            time_lanczos(d, answered, width),
        )


def _choose_width(k: int, d: int, certify: str | bool) -> int:
    """Return the size of a block, with spare directions if a probable bound rests on the start."""
    return min(max(k + _SPARE if certify == "auto" else k, _LEAST_BLOCK), d)


def _estimate_room(shape: Shape, width: int, answered: int) -> int:
    """Return the allocated columns of a Lanczos basis, which double until they are many."""
    one = int(shape.column_bytes(1))
    room = max(2 * width, FIRST_ROOM_BYTES // one)
    while room < answered and room * one < LARGE_ROOM_BYTES:
        room = 2 * (room // width) * width
    return min(max(room, answered), shape.features)


def lanczos(
    products: Products,
    k: int,
    study: Study,
    rng: np.random.Generator,
    count: Callable[[Array, float], int | None] | None = None,
    block: int | None = None,
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
    block : int, optional
        Number of directions in a block; by default as many as the study needs.
    """
    d = len(products.moments.mean)
    width = _choose_width(k, d, study.certify)
    failure, is_believed = FAILURE, True
    # Half of the rounds must leave room for all components: the other half may begin again.
    if block is None or 2 * k > block * study.max_rounds:
        found = yield from _iterate(products, k, study, _draw_start(rng, d, width), count)
    else:
        narrow = _draw_start(rng, d, min(block, d))
        missing = (d, max(width - block, 0))
        found = yield from _iterate(
            products, k, study, narrow, count, lambda: rng.standard_normal(missing)
        )
        # Either start may fail.
        failure = 2.0 * FAILURE
        is_believed = block >= width or found.is_apart
        if not is_believed and products.rounds < study.max_rounds:
            again = yield from _iterate(products, k, study, _draw_start(rng, d, width), count)
            # A rigorous certificate is about the directions of the last products.
            is_better = again.held >= (1.0 - _LESS) * found.held
            is_believed = is_better or study.certify == "rigorous"
            found = again if is_believed else found
    result = yield from finish_lanczos(products, found, study, failure)
    return result if is_believed and found.is_plausible else withdraw_claim(result)


def _iterate(
    products: Products,
    k: int,
    study: Study,
    drawn: tuple[Array, float],
    count: Callable[[Array, float], int | None] | None,
    more: Callable[[], Array] | None = None,
) -> Protocol[LanczosRun]:
    """Request products with one block after another, until the components have converged.

    Parameters
    ----------
    products, k, study, count
        As for `lanczos`.
    drawn : tuple
        The start: orthonormal directions (d, l), and the spectral norm of the Gaussian matrix.
    more : callable, optional
        If the start is narrow, draws random directions, (d, r), that join it when rounds run short.
        The run then also waits some rounds for a bound that sets the components apart.
    """
    space, start = BlockLanczos(drawn[0]), drawn[1]
    d = len(drawn[0])
    patience = 0 if more is None else _PATIENCE
    while True:
        space.take((yield from products.of(space.block)))
        is_known = True
        if count is not None:
            k, is_known = _find_count(space, products, study, count)
        values, vectors = space.ritz(k + 1)
        residual = space.residuals(vectors)
        rounding = bound_error(products, space.basis.shape[1]) + space.negligible
        ritz = RitzValues(values, column_norms(residual), k, rounding)
        found = LanczosRun(space, ritz, vectors, start, products.variance)
        if len(values) < k:
            if not space.room:
                break
            space.extend()
            continue
        required = _select_required(values, k, study.stop)
        before, products.angle = products.angle, ritz.largest_angle(required)
        # Without a next value nothing is known of the gap, unless there are no other directions.
        has_next = len(values) > k or k == d
        # Of a component that need not converge it must be known that it lies within the bulk.
        rough = ritz.norms[:k][~required] > _RESOLVED * values[:k][~required]
        can_stop = has_next and is_known and not rough.any()
        is_final = can_stop and ritz.reaches(study.tol, required) and found.is_plausible
        left = study.max_rounds - products.rounds
        # Waiting must not use up the rounds to begin again.
        if is_final and patience and left != _USUAL_ROUNDS and not found.is_apart:
            is_final, patience = False, patience - 1
        if is_final or not space.room:
            break
        if left <= 0:
            if not is_known:
                raise _make_count_error(study, values, products.variance)
            break
        is_late = products.rounds >= _LATE * study.max_rounds
        needed = _count_rounds(before, products.angle, study.tol)
        is_late = is_late and needed > left - _USUAL_ROUNDS
        space.extend(more() if more is not None and is_late else None)
        more = None if is_late else more
    return found


def _count_rounds(before: float | None, angle: float | None, tol: float) -> float:
    """Return in how many rounds an angle reaches the tolerance if it decreases as in the last."""
    if angle is not None and angle <= tol:
        return 0.0
    if before is None or angle is None or tol <= 0.0 or not angle < _SLOWEST * before:
        return math.inf
    return math.log(angle / tol) / math.log(before / angle)


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
    held = float(values.sum()) / total if total > 0.0 else 0.0
    wanted = "number of components of 'auto'"
    if isinstance(study.components, float):
        wanted = f"{study.components:g} of the variance"
    return InputError(
        f"{wanted} was not reached in {study.max_rounds} rounds, in which the directions sent "
        f"hold {held:.0%} of the variance",
        remedy=("Raise ", Name("max_rounds"), ", or ", Pass("method", "covariance"), "."),
    )


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
