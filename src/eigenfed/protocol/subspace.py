"""Federated subspace iteration: 003 Alg. 3 (RI-FULL, AI-FULL), as published and with a true stop.

===========  ==================================================================================
coordinator  sums over sites of D'W G, one block of d x k a round; inner products of G, k x k
site         the iterates H, d x k; its rows of G = D H, which never leave
===========  ==================================================================================

What leaves is D'W G, and G = D H of the round before (divided by a triangle that the coordinator
knows, where G is orthonormalised), so it reveals the scatter on the directions H. The first round
of a random start is different: G is drawn at the site, and D'W G tells where the site's rows lie
without telling the scatter there. The meter has no finer grade, so it counts that round as if the
scatter on the span of the reply had been answered.

Sending H and summing the next D'W G is one round here: lines 18 to 21 and 14 to 16 of Alg. 3.
"""

import math
from dataclasses import dataclass

import numpy as np

from eigenfed.arrays import Array, Arrays
from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.linalg.orthonormal import column_lengths
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.core import Ask, Protocol
from eigenfed.protocol.finish import finished, ritz
from eigenfed.protocol.moments import Moments
from eigenfed.protocol.ops import Answer, op
from eigenfed.protocol.orthonormalise import (
    LARGEST_DRAW,
    Orthonormal,
    cholesky_steps,
    closed,
    gram_schmidt_steps,
    opened,
    orthonormal_columns,
)
from eigenfed.protocol.products import Products, prepared, relative
from eigenfed.protocol.result import Decomposition
from eigenfed.protocol.totals import Total

_LONGEST = 256.0
"""Bound on the norm of orthonormal columns of G: those along which rows hardly vary are divided by
next to nothing, and may come out longer than 1."""

_CHOICES = {
    "start": ("random", "merge"),
    "orthonormalise": ("final", "each"),
    "by": ("cholesky", "gram_schmidt"),
    "criterion": ("residual", "change"),
}


@op(Release("rows times row vectors", "d x k + 1", Leaves.SUM_ONLY, Reveals.DIRECTIONS))
def sided_product(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Return D'W G and the trace; the directions revealed are those that G is made of."""
    view, state = prepared(source, payload, state)
    state = opened(source, payload, state)
    product, trace = view.adjoint(state["sided"]), state["trace"]
    if "behind" in state:
        directions, images = state["behind"], product @ state["factor"]
    else:
        directions = np.linalg.qr(product).Q
        images = view.product(directions)
    reply = {"product": product, "trace": trace}
    return Answer(reply, state, directions, images, float(trace[0]))


OPS = (sided_product,)


@dataclass(frozen=True)
class Subspace:
    """Options of subspace iteration.

    Attributes
    ----------
    start : {"random", "merge"}
        Draw G at the sites (RI-FULL), or begin from a one-shot merge (AI-FULL).
    orthonormalise : {"final", "each"}
        Make G orthonormal at the end only, as 003 advises, or in each round, as its Prop. 2 needs.
    by : {"cholesky", "gram_schmidt"}
        Ours in two sums, or 003 Alg. 2 in 2 k - 1.
    criterion : {"residual", "change"}
        Stop on the true residual, or on the change between iterates (003 eq. 5), which can stop
        well before the components are right.

    Examples
    --------
    >>> Subspace(criterion="change").by
    'cholesky'
    """

    start: str = "random"
    orthonormalise: str = "final"
    by: str = "cholesky"
    criterion: str = "residual"

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                listed = ", ".join(map(repr, choices))
                raise InputError(f"{name}={value!r} must be one of {listed}. Pass one of them.")


def subspace(
    moments: Moments,
    k: int,
    *,
    options: Subspace,
    tol: float,
    max_rounds: int,
    certify: bool,
    rng: np.random.Generator,
    total: Total,
    start: Array | None = None,
) -> Protocol[Decomposition]:
    """Multiply a block of k directions by the covariance until it no longer turns.

    Each round is one sum of d x k. At the end every site holds its rows of the components' sample
    vectors, orthonormal over all sites, in its state.

    Parameters
    ----------
    moments : Moments
    k : int
        Number of components; at most d are made.
    options : Subspace
    tol : float
        Largest residual relative to the first eigenvalue, or t of 003 eq. 5.
    max_rounds : int
        Most blocks to ask for.
    certify : bool
        Ask once more for the bound on the angle; with the criterion "change" this takes one more
        product, since the last iterate was not multiplied yet.
    rng : numpy Generator
        For the seed of the random start.
    total : Total
        How sums are made.
    start : ndarray of shape (d, k), optional
        Directions of a one-shot merge; given where, and only where, ``options.start`` is "merge".

    Returns
    -------
    Decomposition
        Its `products` counts the iterates, and the product of the certificate.
    """
    k = min(k, len(moments.mean))
    basis = _checked_start(start, options, (len(moments.mean), k))
    products = Products(moments, total)
    opening = moments.arrays | (random_rows(k, rng) if basis is None else {"basis": basis})
    while True:
        product, factor = yield from _iterated(products, opening, k, options)
        following = orthonormal_columns(product)
        image = product @ factor / products.divisor
        over = products.rounds >= max_rounds
        if basis is not None and options.criterion == "residual":
            products.residual = _largest_residual(basis, image)
            if over or products.residual <= tol:
                found = yield from ritz(products, basis, image, k, tol=tol, certify=certify)
                break
        elif over or (basis is not None and _has_settled(following, basis, tol)):
            found = yield from _last(products, following, tol=tol, certify=certify)
            break
        basis = following
        opening = {"basis": basis}
    # Leave orthonormal sample vectors at the sites (003 Alg. 3, line 28).
    closing = {"basis": found.components.T}
    done = yield from _steps(products, closing, len(found.components), options)
    yield from closed(total, done)
    return found


def random_rows(k: int, rng: np.random.Generator) -> Arrays:
    """Return what makes sites draw k columns of G."""
    return {"seed": rng.integers(2**62, size=1), "width": np.array([k])}


def sided_total(products: Products, payload: Arrays) -> Protocol[Array]:
    """Return the sum over sites of D'W G, (d, k), and count it as a product."""
    bounds = {
        "product": _largest_product(products.moments, payload),
        "trace": products.moments.most,
    }
    ask = Ask("sided_product", payload, bounds=bounds, residual=products.residual)
    answer = yield from products.total(ask)
    products.rounds += 1
    products.trace = float(answer["trace"][0])
    return answer["product"]


def _largest_product(moments: Moments, payload: Arrays) -> float:
    """Bound D'W G by the norms of the columns of D and of G, as the ask makes it."""
    if "triangle" in payload:
        return _LONGEST * math.sqrt(moments.most)
    if "seed" in payload:
        return math.sqrt(moments.most * _largest_norm(moments, payload))
    return moments.most


def _largest_norm(moments: Moments, payload: Arrays) -> float:
    """Bound the squared norm of a column of G that is drawn, or made of orthonormal directions."""
    return LARGEST_DRAW**2 * moments.n if "seed" in payload else moments.most


def _checked_start(start: Array | None, options: Subspace, shape: tuple[int, int]) -> Array | None:
    if (start is None) != (options.start == "random"):
        raise InputError(
            f"start is {'missing' if start is None else 'given'} where options.start is "
            f"{options.start!r}. Pass directions with 'merge' and none with 'random'."
        )
    if start is None:
        return None
    if start.shape != shape:
        raise InputError(f"start has shape {start.shape} and must have {shape}. Cut or fill it.")
    return orthonormal_columns(start)


def _iterated(
    products: Products, opening: Arrays, k: int, options: Subspace
) -> Protocol[tuple[Array, Array]]:
    """Return the sum of D'W G and the factor that leads from G back to D H."""
    if options.orthonormalise == "final":
        return (yield from sided_total(products, opening)), np.eye(k)
    done = yield from _steps(products, opening, k, options)
    return (yield from sided_total(products, done.closing)), done.triangle


def _steps(products: Products, opening: Arrays, k: int, options: Subspace) -> Protocol[Orthonormal]:
    most = _largest_norm(products.moments, opening)
    if options.by == "cholesky":
        return (yield from cholesky_steps(products.total, opening, most))
    return (yield from gram_schmidt_steps(k, products.total, opening, most))


def _largest_residual(basis: Array, image: Array) -> float:
    """Return the largest true residual of the basis's Ritz vectors, relative to the first value."""
    onto = basis.T @ image
    values, vectors = np.linalg.eigh((onto + onto.T) / 2)
    residual = image @ vectors - (basis @ vectors) * values
    return relative(column_lengths(residual), values[-1])


def _has_settled(following: Array, basis: Array, tol: float) -> bool:
    """003 eq. 5: diag(H_i' H_{i-1}) >= 1 - t."""
    return bool(np.all(np.sum(following * basis, axis=0) >= 1.0 - tol))


def _last(
    products: Products, basis: Array, *, tol: float, certify: bool
) -> Protocol[Decomposition]:
    """Finish with an iterate that was not multiplied yet."""
    k = basis.shape[1]
    if certify:
        return (yield from finished(products, basis, k, tol=tol, certify=True))
    # The inner products of D H are the scatter on H: variances without a sum of d x k.
    ask = Ask("sided_gram", {"basis": basis}, bounds={"gram": products.moments.most})
    gram = (yield from products.total(ask))["gram"]
    image = basis @ (gram / products.divisor)
    return (yield from ritz(products, basis, image, k, tol=tol, certify=False))
