"""Block Lanczos with full reorthogonalisation: few rounds, nothing of size d x d.

===========  ==================================================================================
coordinator  sums over sites of D'W D Q, one block of directions Q a round
site         the blocks Q
===========  ==================================================================================
"""

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.linalg.lanczos import BlockLanczos
from eigenfed.linalg.orthonormal import column_lengths, completed_rows, signed_rows
from eigenfed.protocol.certificate import certificate
from eigenfed.protocol.core import Protocol
from eigenfed.protocol.moments import Moments
from eigenfed.protocol.products import Products, relative
from eigenfed.protocol.result import Decomposition
from eigenfed.protocol.totals import Total

_LEAST_BLOCK = 8


def krylov(
    moments: Moments,
    k: int,
    *,
    tol: float,
    stop: str,
    max_rounds: int,
    certify: bool,
    rng: np.random.Generator,
    total: Total,
) -> Protocol[Decomposition]:
    """Ask for products with one new block of directions a round until the residuals are small.

    Parameters
    ----------
    moments : Moments
    k : int
        Number of components.
    tol : float
        Largest residual, relative to the first eigenvalue.
    stop : {"all", "separated"}
        Whether all components must meet it, or only those clearly above the next Ritz value.
    max_rounds : int
        Most products to ask for.
    certify : bool
        Ask once more for the bound on the angle.
    rng : numpy Generator
        For the first block.
    total : Total
        How sums are made.
    """
    products = Products(moments, total)
    return (
        yield from lanczos(
            products, k, tol=tol, stop=stop, max_rounds=max_rounds, certify=certify, rng=rng
        )
    )


def lanczos(
    products: Products,
    k: int,
    *,
    tol: float,
    stop: str,
    max_rounds: int,
    certify: bool,
    rng: np.random.Generator,
) -> Protocol[Decomposition]:
    """Find leading eigenvectors of whatever the products are of; see `krylov`."""
    d = len(products.moments.mean)
    space = BlockLanczos(np.linalg.qr(rng.standard_normal((d, min(max(k, _LEAST_BLOCK), d)))).Q)
    while True:
        space.take((yield from products.of(space.block)))
        values, vectors = space.ritz(k)
        residual = space.residuals(vectors)
        sizes = column_lengths(residual)[_wanted(values, k, stop)]
        products.residual = relative(sizes, values[0])
        done = vectors.shape[1] == k and bool(np.all(sizes <= tol * max(values[0], 0.0)))
        if done or not space.room or products.rounds >= max_rounds:
            break
        space.extend()
    vt = space.components(vectors)
    shown, found = np.zeros(k), signed_rows(completed_rows(vt, k))
    shown[: len(vt)] = np.maximum(values[:k], 0.0)
    grade = None
    if certify:
        grade = yield from certificate(
            products,
            values=shown,
            residual=residual,
            vt=found,
            known=space.basis,
            next_value=float(values[k]) if len(values) > k else None,
            coupling=float(np.linalg.norm(space.coefficients, 2)) if space.room else 0.0,
            tol=tol,
        )
    return Decomposition(
        found,
        shown,
        products.moments.mean,
        products.moments.scale,
        products.moments.n,
        products.trace / products.divisor,
        products.rounds,
        grade,
    )


def _wanted(values: Array, k: int, stop: str) -> npt.NDArray[np.bool_]:
    """Say which of the first k components must converge."""
    count = min(k, len(values))
    if stop == "all" or len(values) <= k:
        return np.ones(count, dtype=bool)
    clear: npt.NDArray[np.bool_] = values[:count] > 1.05 * values[k]
    return clear
