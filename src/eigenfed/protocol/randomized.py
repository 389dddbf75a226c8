"""Federated randomized SVD: 003 Alg. 5.

===========  ==================================================================================
coordinator  sums over sites of D'W G, d x k, in each of I' + 1 rounds, and of P' D'W D P,
             (k I') x (k I'), in one
site         the iterates H_1 .. H_I', the orthonormal basis P of all of them, and the leading
             directions in it; its rows of G, which never leave
===========  ==================================================================================

We depart from the printed algorithm in one place: G = D P y is not orthonormalised by Alg. 2. Its
inner products are y' (P' S P) y, the eigenvalues just found, so each site divides by their roots.
"""

import numpy as np

from eigenfed.arrays import Array, Arrays
from eigenfed.data.source import Source
from eigenfed.linalg.checks import check_count
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.core import Ask, Protocol
from eigenfed.protocol.finish import finished, ritz
from eigenfed.protocol.moments import Moments
from eigenfed.protocol.ops import Answer, op
from eigenfed.protocol.orthonormalise import orthonormal_columns
from eigenfed.protocol.products import Products, prepared
from eigenfed.protocol.result import Decomposition
from eigenfed.protocol.subspace import random_rows, sided_total
from eigenfed.protocol.totals import Total

_EPS = float(np.finfo(float).eps)


@op(Release("scatter on directions", "l x l", Leaves.SUM_ONLY, Reveals.DIRECTIONS))
def reduced(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Return P' D'W D P. The meter counts it as if D'W D P had left, which is more."""
    view, state = prepared(source, payload, state)
    basis = payload["known"]
    images = view.product(basis)
    return Answer({"inner": basis.T @ images}, state, basis, images, float(state["trace"][0]))


OPS = (reduced,)


def randomized(
    moments: Moments,
    k: int,
    *,
    iterations: int = 10,
    tol: float,
    certify: bool,
    rng: np.random.Generator,
    total: Total,
) -> Protocol[Decomposition]:
    """Iterate a few times, and find the components in the span of all iterates.

    Parameters
    ----------
    moments : Moments
    k : int
        Number of components; at most d are made.
    iterations : int, default=10
        I', the number of blocks H_1 .. H_I'. There are I' + 2 rounds of sums.
    tol : float
        Residual at which a component counts as converged.
    certify : bool
        Ask for one more product and for the bound on the angle.
    rng : numpy Generator
        For the seed of the random start.
    total : Total
        How sums are made.
    """
    check_count("iterations", iterations, "Ask for one iteration or more.")
    k = min(k, len(moments.mean))
    products = Products(moments, total)
    blocks: list[Array] = []
    opening = moments.arrays | random_rows(k, rng)
    for _ in range(iterations):
        product = yield from sided_total(products, opening)
        blocks.append(orthonormal_columns(product))
        opening = {"basis": blocks[-1]}
    stack = _orthonormal_stack(blocks)
    ask = Ask("reduced", {"known": stack}, bounds={"inner": moments.most})
    inner = (yield from total(ask))["inner"]
    products.rounds += 1
    directions, lengths = _leading(stack, inner, k)
    product = yield from sided_total(products, {"basis": directions, "triangle": lengths})
    left, s, _ = np.linalg.svd(product, full_matrices=False)
    if certify:
        return (yield from finished(products, left, k, tol=tol, certify=True))
    # G is orthonormal, so that the squares are the Ritz values of the rows' side.
    image = left * (s**2 / products.divisor)
    return (yield from ritz(products, left, image, k, tol=tol, certify=False))


def _orthonormal_stack(blocks: list[Array]) -> Array:
    """Return P, (d, m): what the iterates span, without what is rounding (line 3)."""
    left, s, _ = np.linalg.svd(np.hstack(blocks), full_matrices=False)
    return left[:, s > 10 * len(left) * _EPS * s[0]]


def _leading(stack: Array, inner: Array, k: int) -> tuple[Array, Array]:
    """Return P y for the leading eigenvectors y (line 9), and the lengths of D P y, diagonal."""
    values, vectors = np.linalg.eigh((inner + inner.T) / 2)
    values, vectors = values[::-1][:k], vectors[:, ::-1][:, :k]
    sure = np.where(values > len(inner) * _EPS * values[0], values, 0.0)
    return stack @ vectors, np.diag(np.sqrt(sure))
