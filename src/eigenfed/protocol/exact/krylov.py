"""Block Lanczos with full reorthogonalisation: few rounds, nothing of size d x d.

===========  ==================================================================================
coordinator  sums over sites of D'W D Q, one block of directions Q each round
site         the blocks Q
===========  ==================================================================================

The coordinator knows the products with all blocks so far, so Ritz values and their true residuals
follow without further rounds: the run stops as soon as the residuals are small enough.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.errors import InputError, Name, Pass
from eigenfed.linalg.lanczos import BlockLanczos
from eigenfed.linalg.orthonormal import column_norms, complete_rows, flip_signs
from eigenfed.protocol.component_count import BY_RULE, count_per_request, is_open
from eigenfed.protocol.core import Protocol
from eigenfed.protocol.cost_rates import time_lanczos
from eigenfed.protocol.decomposition import FURTHER, Decomposition
from eigenfed.protocol.exact.certificate import OPS as CERTIFICATE_OPS
from eigenfed.protocol.exact.certificate import make_products, request_certificate
from eigenfed.protocol.exact.products import OPS as PRODUCT_OPS
from eigenfed.protocol.exact.products import Products, relative_residual
from eigenfed.protocol.gate.script import Script, optional, repeat, sequence
from eigenfed.protocol.method import Cost, Method, Run, Shape, product_s, product_site_bytes
from eigenfed.protocol.study import Study

_LEAST_BLOCK = 8
"""Wider blocks need fewer rounds, and find eigenvalues of multiplicity up to their width."""
_NEARLY_FINAL = 0.01
"""Relative residual at which an eigenvalue can be compared with the edge of noise."""
_USUAL_ROUNDS = 12
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
        """Return products, and the bound of the certificate."""
        return sequence(repeat("product", 1, study.max_rounds), optional("remainder"))

    def finds_count(self) -> bool:
        """Whether the number of components may depend on the rows: yes."""
        return True

    def width(self, k: int, d: int) -> int:
        """Return the size of a block."""
        return min(max(k, _LEAST_BLOCK), d)

    def run(self, run: Run) -> Protocol[Decomposition]:
        """Request products until the residuals are within the tolerance."""
        block = count_per_request(run.study.components, max(min(int(run.moments.n), run.d), 1))
        count = run.find_count if is_open(run.study.components) else None
        return (yield from lanczos(make_products(run), block, run.study, run.rng, count))

    def cost(self, shape: Shape) -> Cost:
        """Count the products, their directions, and the basis that the coordinator keeps."""
        d, width = shape.features, self.width(shape.components, shape.features)
        # A space that holds all rows is invariant: no more directions are needed.
        full = -(-min(d, shape.rows * shape.sites) // width)
        rounds = shape.products or min(_USUAL_ROUNDS, full)
        answered = rounds * width
        held = shape.column_bytes(_estimate_room(shape, width, answered))
        return Cost(
            rounds + shape.certify,
            answered,
            float(d) * answered,
            product_site_bytes(shape, answered, answered),
            held + 2.6 * shape.column_bytes(answered),
            product_s(shape, answered, rounds),
            time_lanczos(d, answered, width),
        )


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
    tol, stop = study.tol, study.stop
    d = len(products.moments.mean)
    space = BlockLanczos(np.linalg.qr(rng.standard_normal((d, min(max(k, _LEAST_BLOCK), d)))).Q)
    while True:
        space.take((yield from products.of(space.block)))
        is_known = True
        if count is not None:
            k, is_known = _find_count(space, products, study, count)
        values, vectors = space.ritz(k)
        residual = space.residuals(vectors)
        norms = column_norms(residual)[_select_required(values, k, stop)]
        products.residual = relative_residual(norms, values[0])
        done = vectors.shape[1] == k and bool(np.all(norms <= tol * max(values[0], 0.0)))
        if (done and is_known) or not space.room:
            break
        if products.rounds >= study.max_rounds:
            if not is_known:
                raise _make_count_error(study, values, products.trace / products.divisor)
            break
        space.extend()
    vt = space.components(vectors)
    # Rows of rank below k leave fewer Ritz pairs: complete them with directions of no variance.
    variances, components = np.zeros(k), flip_signs(complete_rows(vt, k))
    variances[: len(vt)] = np.maximum(values[:k], 0.0)
    grade = None
    if study.certify:
        grade = yield from request_certificate(
            products,
            values=variances,
            residual=residual,
            vt=components,
            known=space.basis,
            last=False,
            next_value=float(values[k]) if len(values) > k else None,
            # The block that would come next is all of M between the basis and its complement.
            coupling=float(np.linalg.norm(space.coefficients, 2)) if space.room else 0.0,
            tol=tol,
        )
    return Decomposition(
        components,
        variances,
        products.moments.mean,
        products.moments.scale,
        products.moments.n,
        products.trace / products.divisor,
        products.rounds,
        grade,
        further=np.maximum(space.ritz_values(k + FURTHER)[k:], 0.0),
    )


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


def _select_required(values: Array, k: int, stop: str) -> npt.NDArray[np.bool_]:
    """Return which of the first k components must converge.

    With ``stop="separated"``, those at least 5 % above the next Ritz value: within the bulk of the
    spectrum single components are not determined and would never converge.
    """
    count = min(k, len(values))
    if stop == "all" or len(values) <= k:
        return np.ones(count, dtype=bool)
    clear: npt.NDArray[np.bool_] = values[:count] > 1.05 * values[k]
    return clear
