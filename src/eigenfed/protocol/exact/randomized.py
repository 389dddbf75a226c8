"""Federated randomized SVD: [Hartebrodt2022] Alg. 5.

===========  ==================================================================================
coordinator  sums over sites of D'W G, d x k, in each of I' + 1 rounds, and of P' D'W D P,
             (k I') x (k I'), in one
site         the iterates H_1 .. H_I', the orthonormal basis P of all of them, and the leading
             directions in it; its rows of G, which never leave
===========  ==================================================================================

One departure from the printed algorithm: G = D P y is not orthonormalised by Alg. 2 (line 15). Its
inner products are y' (P' S P) y, S the scatter: the eigenvalues just found, so each site divides by
their roots instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.linalg.checks import check_count
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.privacy.secagg.fixed_point import Bound
from eigenfed.protocol.core import Call, Protocol
from eigenfed.protocol.cost_rates import time_lanczos
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.certificate import OPS as CERTIFICATE_OPS
from eigenfed.protocol.exact.certificate import finish_with_product, make_products, rayleigh_ritz
from eigenfed.protocol.exact.frame import FramedRequest
from eigenfed.protocol.exact.frame_rows import prepare_rows
from eigenfed.protocol.exact.orthonormalise import orthonormalise_columns
from eigenfed.protocol.exact.products import OPS as PRODUCT_OPS
from eigenfed.protocol.exact.subspace import OPS as SUBSPACE_OPS
from eigenfed.protocol.exact.subspace import make_random_opening, request_sided_product
from eigenfed.protocol.gate.script import Script, optional, repeat, sequence
from eigenfed.protocol.method import Cost, Method, Run, Shape, product_s, product_site_bytes
from eigenfed.protocol.operations import Answer, Limits, State, Terms, op
from eigenfed.protocol.study import Study

_EPS = float(np.finfo(float).eps)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ReducedReply:
    """The scatter projected on directions."""

    inner: Array


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ReducedRequest(FramedRequest):
    """Request P' D'W D P.

    Attributes
    ----------
    basis : ndarray of shape (d, l)
        P, orthonormal columns: at most as many as all iterates together.
    """

    basis: Array

    op, reply = "reduced", ReducedReply

    def check(self, terms: Terms, state: State) -> None:
        """Refuse more directions than the iterates span."""
        super().check(terms, state)
        method = terms.study.chosen
        rounds = method.iterations if isinstance(method, Randomized) else 1
        terms.check_directions("basis", self.basis, min(terms.d, rounds * terms.k))

    def directions(self) -> Array:
        """Return the directions."""
        return self.basis

    def with_directions(self, directions: Array) -> "ReducedRequest":
        """Return the same request about other directions."""
        return replace(self, basis=directions)

    def bounds(self, limits: Limits) -> Mapping[str, Bound]:
        """Return the trace, which bounds every entry."""
        return {"inner": limits.most}


@op(Release("scatter on directions", "l x l", Leaves.SUM_ONLY, Reveals.DIRECTIONS))
def reduced(
    source: Source, request: ReducedRequest, state: State, terms: Terms
) -> Answer[ReducedReply]:
    """Return P' D'W D P. The meter counts it as D'W D P, which is more."""
    view, frame, state = prepare_rows(source, state)
    images = view.product(request.basis)
    reply = ReducedReply(inner=request.basis.T @ images)
    return Answer(reply, state, frame.answered(request.basis, images))


OPS = (reduced,)


@dataclass(frozen=True, repr=False)
class Randomized(Method):
    """Randomized SVD: iterate a few times, and find the components in the span of all iterates.

    Attributes
    ----------
    iterations : int
        I', the number of blocks H_1 .. H_I'. There are I' + 2 rounds of sums.

    Examples
    --------
    >>> Randomized().iterations
    10
    """

    name: ClassVar[str] = "randomized"
    summary: ClassVar[str] = "randomized SVD in a fixed number of rounds"
    citation: ClassVar[str | None] = "Hartebrodt et al. 2022, Alg. 5"
    ops = (*OPS, *SUBSPACE_OPS, *PRODUCT_OPS, *CERTIFICATE_OPS)
    random_start: ClassVar[bool] = True

    iterations: int = 10

    def __post_init__(self) -> None:
        check_count("iterations", self.iterations, "Pass 1 or more.")

    def script(self, study: Study, d: int) -> Script:
        """Return the script: iterates, the scatter on their span, a product, the certificate."""
        return sequence(
            repeat("sided_product", self.iterations, self.iterations),
            "reduced",
            "sided_product",
            optional("product"),
            optional("remainder"),
        )

    def run(self, run: Run) -> Protocol[Decomposition]:
        """Iterate, project the scatter on the span of all iterates, and decompose it there."""
        k, products = min(run.k, run.d), make_products(run)
        blocks: list[Array] = []
        opening: dict[str, Any] = make_random_opening(run.rng) | run.frame()
        for _ in range(self.iterations):
            product = yield from request_sided_product(products, opening)
            blocks.append(orthonormalise_columns(product))
            opening = {"basis": blocks[-1]}
        stack = _stack_iterates(blocks)
        inner = (yield from run.total(Call(ReducedRequest(basis=stack)))).inner
        products.rounds += 1
        directions, lengths = _select_leading(stack, inner, k)
        product = yield from request_sided_product(
            products, {"basis": directions, "triangle": lengths}
        )
        left, s, _ = np.linalg.svd(product, full_matrices=False)
        if run.certify:
            return (yield from finish_with_product(products, left, k, tol=run.tol, certify=True))
        # G is orthonormal, so the squared singular values of D'W G are sample-side Ritz values.
        image = left * (s**2 / products.divisor)
        return (yield from rayleigh_ritz(products, left, image, k, tol=run.tol, certify=False))

    def cost(self, shape: Shape) -> Cost:
        """Return the cost of the iterates, of the scatter on their span, and of two products."""
        k, stacked = shape.components, self.iterations * shape.components
        answered = 2 * stacked + 2 * k
        return Cost(
            self.iterations + 2 + 2 * bool(shape.certify),
            answered,
            float(shape.features) * (stacked + 2 * k) + stacked**2,
            product_site_bytes(shape, answered, min(k, shape.features)),
            4.2 * shape.column_bytes(stacked),
            product_s(shape, answered, self.iterations + 2),
            time_lanczos(shape.features, stacked, stacked),
        )


def _stack_iterates(blocks: list[Array]) -> Array:
    """Return P, (d, m): an orthonormal basis of the iterates' span, without rounding (line 3)."""
    left, s, _ = np.linalg.svd(np.hstack(blocks), full_matrices=False)
    return left[:, s > 10 * len(left) * _EPS * s[0]]


def _select_leading(stack: Array, inner: Array, k: int) -> tuple[Array, Array]:
    """Return P y for the leading eigenvectors y (line 9), and the norms of D P y as a diagonal."""
    values, vectors = np.linalg.eigh((inner + inner.T) / 2)
    values, vectors = values[::-1][:k], vectors[:, ::-1][:, :k]
    significant = np.where(values > len(inner) * _EPS * values[0], values, 0.0)
    return stack @ vectors, np.diag(np.sqrt(significant))
