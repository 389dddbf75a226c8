"""Federated subspace iteration: [Hartebrodt2022] Alg. 3, as published or stopped by the residual.

The paper calls it RI-FULL with a random start and AI-FULL with a merged start.

===========  ==================================================================================
coordinator  sums over sites of D'W G, one block of d x k each round; inner products of G, k x k
site         the iterates H, d x k; its rows of G = D H, which never leave
===========  ==================================================================================

What leaves is D'W G, with G = D H of the round before (divided by a triangle that the coordinator
knows, if G is orthonormalised), so it reveals the scatter along the directions H. The first round
of a random start is different: G is drawn at the site, and D'W G reveals directions of the site's
rows but not the scatter along them. The meter has no finer distinction, and counts that round as
if the scatter on the span of the reply had been revealed.

Sending H and summing the next D'W G is one round here: lines 18 to 21 and 14 to 16 of Alg. 3.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.errors import InputError, Parts
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.privacy.secagg.fixed_point import Bound
from eigenfed.protocol.component_count import bound_count
from eigenfed.protocol.core import Call, Protocol
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.certificate import OPS as CERTIFICATE_OPS
from eigenfed.protocol.exact.certificate import (
    finish_with_product,
    make_products,
    measure_basis,
    rayleigh_ritz,
)
from eigenfed.protocol.exact.frame_rows import prepare_rows
from eigenfed.protocol.exact.merge import OPS as SUMMARY_OPS
from eigenfed.protocol.exact.merge import Merge, request_merged_basis
from eigenfed.protocol.exact.orthonormalise import OPS as SIDED_OPS
from eigenfed.protocol.exact.orthonormalise import (
    GramRequest,
    Orthonormal,
    cholesky_steps,
    close_vectors,
    gram_schmidt_steps,
    orthonormalise_columns,
)
from eigenfed.protocol.exact.products import OPS as PRODUCT_OPS
from eigenfed.protocol.exact.products import ProductReply, Products
from eigenfed.protocol.exact.site_vectors import (
    Sided,
    SidedRequest,
    bound_norm,
    find_images,
    get_sided,
    update_sided,
)
from eigenfed.protocol.gate.script import Script, either, optional, repeat, sequence
from eigenfed.protocol.method import Cost, Method, Run, Shape, iterated_cost
from eigenfed.protocol.operations import Answer, Limits, State, Terms, op
from eigenfed.protocol.study import Study

_LONGEST = 256.0
"""Bound on the norm of orthonormalised columns of G: where rows hardly vary, a column is divided by
a tiny norm, and rounding may leave it longer than 1."""

_CHOICES = {
    "start": ("random", "merge"),
    "orthonormalise": ("final", "each"),
    "by": ("cholesky", "gram_schmidt"),
    "criterion": ("residual", "change"),
}
_USUAL_ROUNDS = 40


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SidedProductRequest(SidedRequest):
    """Request D'W G."""

    op, reply = "sided_product", ProductReply

    def own_directions(self, terms: Terms, state: State) -> int:
        """Return the columns of a G that was drawn: the reply spans directions of the rows."""
        drawn = self.seed is not None
        if not drawn and self.basis is None and isinstance(state.own, Sided):
            drawn = state.own.behind is None
        return self.width(terms, state) if drawn else 0

    def bounds(self, limits: Limits) -> Mapping[str, Bound]:
        """Return the product of bounds on the column norms of D and of G, by Cauchy-Schwarz."""
        if self.triangle is not None:
            most = _LONGEST * math.sqrt(limits.most)
        elif self.seed is not None:
            most = math.sqrt(limits.most * bound_norm(limits, drawn=True))
        else:
            most = limits.most
        return {"product": most, "trace": limits.most}


@op(Release("rows times row vectors", "d x k + 1", Leaves.SUM_ONLY, Reveals.DIRECTIONS))
def sided_product(
    source: Source, request: SidedProductRequest, state: State, terms: Terms
) -> Answer[ProductReply]:
    """Return D'W G and the trace; the directions revealed are those of which G was made."""
    state = update_sided(source, request, state, terms)
    view, frame, state = prepare_rows(source, state)
    state = find_images(view, state)
    own = get_sided(state)
    if own.behind is not None and own.images is not None:
        directions, images = own.behind, own.images
        product = images if own.is_first else own.adjoin(view)
        state = replace(state, blocks=(*state.blocks, directions))
    else:
        product = view.adjoint(own.rows)
        directions = np.linalg.qr(product).Q
        images = view.product(directions)
    reply = ProductReply(product=product, trace=frame.trace)
    return Answer(reply, state, frame.answered(directions, images))


OPS = (sided_product,)


@dataclass(frozen=True, repr=False)
class Subspace(Method):
    """Federated subspace iteration.

    Attributes
    ----------
    start : {"random", "merge"}
        Draw G at the sites (RI-FULL), or start from a one-shot merge (AI-FULL).
    orthonormalise : {"final", "each"}
        Orthonormalise G at the end only, as [Hartebrodt2022] advises, or in each round, as its
        Prop. 2 requires.
    by : {"cholesky", "gram_schmidt"}
        CholeskyQR2, in two sums, or [Hartebrodt2022] Alg. 2, in 2 k - 1 sums.
    criterion : {"residual", "change"}
        Stop on the true residual, or on the change between iterates ([Hartebrodt2022] eq. 5), which
        can stop well before the components are accurate.

    Examples
    --------
    >>> Subspace(criterion="change").by
    'cholesky'
    """

    name: ClassVar[str] = "subspace"
    summary: ClassVar[str] = "subspace iteration, as published or stopped by the residual"
    citation: ClassVar[str | None] = "Hartebrodt et al. 2022, Alg. 3"
    ops = (*OPS, *SIDED_OPS, *PRODUCT_OPS, *CERTIFICATE_OPS, *SUMMARY_OPS)
    iterates: ClassVar[bool] = True
    random_start: ClassVar[bool] = True

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

    def sums_only(self) -> bool:
        """Whether sums over sites are enough: unless it starts from a merge."""
        return self.start == "random"

    def instead_of(self) -> Parts:
        """Return what to do if only sums over sites are available."""
        return "Pass Subspace(start='random')."

    def script(self, study: Study, d: int) -> Script:
        """Return the script: start, iterates, orthonormalisation, certificate, last change of G."""
        k = min(bound_count(study.components, d), d)
        each = 2 * k if self.by == "gram_schmidt" else 14
        steps = either("sided_gram", "sided_norm", "sided_onto")
        iterates = study.max_rounds * (1 + (each if self.orthonormalise == "each" else 1))
        return sequence(
            optional("summarise") if self.start == "merge" else sequence(),
            repeat(either("sided_product", steps), 1, iterates + 2),
            optional("product"),
            optional("remainder"),
            repeat(steps, 0, each),
            optional("sided_close"),
        )

    def run(self, run: Run) -> Protocol[Decomposition]:
        """Multiply a block of k directions by the covariance until it converges.

        Each round is one sum of d x k numbers. At the end every site holds its rows of the
        components' sample vectors, orthonormal over all sites, in its state.
        """
        k, basis = min(run.k, run.d), None
        if self.start == "merge":
            basis = orthonormalise_columns((yield from request_merged_basis(run, k, Merge())))
        products = make_products(run)
        opening = make_random_opening(run.rng) if basis is None else {"basis": basis}
        # Sites do not know how many rows there are. If all components are asked for, they draw a
        # column for each feature, too many to be orthonormalised; the first k of them are used.
        is_wide = basis is None and k < min(bound_count(run.study.components, run.d), run.d)
        options = replace(self, orthonormalise="final") if is_wide else self
        while True:
            opening |= run.frame()
            product, factor = yield from _iterate(products, opening, k, options)
            options = self
            following = orthonormalise_columns(product)
            image = product @ factor / products.divisor
            over = products.rounds >= run.study.max_rounds
            if basis is not None and self.criterion == "residual":
                ritz = measure_basis(products, basis, image, k)
                products.angle = ritz.largest_angle()
                if over or ritz.reaches(run.tol):
                    found = yield from rayleigh_ritz(
                        products, basis, image, k, tol=run.tol, certify=bool(run.certify)
                    )
                    break
            elif over or (basis is not None and _has_settled(following, basis, run.tol)):
                found = yield from _finish_last(
                    products, following, tol=run.tol, certify=bool(run.certify)
                )
                break
            basis = following
            opening = {"basis": basis}
        # Leave orthonormal sample vectors at the sites ([Hartebrodt2022] Alg. 3, line 28).
        closing = {"basis": found.components.T}
        done = yield from _orthonormalise(products, closing, len(found.components), self)
        yield from close_vectors(run.total, done)
        return found

    def cost(self, shape: Shape) -> Cost:
        """Return the cost of one block of directions each round."""
        width = min(shape.components, shape.features)
        return iterated_cost(shape, width, _USUAL_ROUNDS, held=6.3)


def make_random_opening(rng: np.random.Generator) -> dict[str, Any]:
    """Return the fields of a first request that makes sites draw G."""
    return {"seed": int(rng.integers(2**62, size=1)[0])}


def request_sided_product(products: Products, fields: dict[str, Any]) -> Protocol[Array]:
    """Request the sum over sites of D'W G, (d, k), and count it as a product."""
    call = Call(SidedProductRequest(**fields), angle=products.angle)
    answer = yield from products.total(call)
    products.rounds += 1
    products.trace = max(answer.trace, 0.0)
    product: Array = answer.product
    return product


def _iterate(
    products: Products, opening: dict[str, Any], k: int, options: Subspace
) -> Protocol[tuple[Array, Array]]:
    """Return the sum of D'W G, and the triangle T with G T = D H."""
    if options.orthonormalise == "final":
        product = yield from request_sided_product(products, opening)
        return product[:, :k], np.eye(k)
    done = yield from _orthonormalise(products, opening, k, options)
    return (yield from request_sided_product(products, {"triangle": done.closing})), done.triangle


def _orthonormalise(
    products: Products, opening: dict[str, Any], k: int, options: Subspace
) -> Protocol[Orthonormal]:
    if options.by == "cholesky":
        return (yield from cholesky_steps(products.total, opening))
    return (yield from gram_schmidt_steps(k, products.total, opening))


def _has_settled(following: Array, basis: Array, tol: float) -> bool:
    """Return whether diag(H_i' H_{i-1}) >= 1 - t ([Hartebrodt2022] eq. 5), t = 1 - cos(tol)."""
    change = 2.0 * math.sin(math.radians(tol) / 2.0) ** 2
    return bool(np.all(np.sum(following * basis, axis=0) >= 1.0 - change))


def _finish_last(
    products: Products, basis: Array, *, tol: float, certify: bool
) -> Protocol[Decomposition]:
    """Finish with an iterate that has not been multiplied yet."""
    k = basis.shape[1]
    if certify:
        return (yield from finish_with_product(products, basis, k, tol=tol, certify=True))
    # The inner products of D H are H'M H times n - 1: variances without a sum of d x k numbers.
    gram = (yield from products.total(Call(GramRequest(basis=basis)))).gram
    image = basis @ (gram / products.divisor)
    return (yield from rayleigh_ritz(products, basis, image, k, tol=tol, certify=False))
