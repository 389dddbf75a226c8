"""The primitive of the exact methods: the scatter of all rows times a few directions.

===========  ==================================================================================
coordinator  the sum over sites of D'W D Q, d x l, and the total sum of squares
site         Q, the directions requested
===========  ==================================================================================
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.privacy.secagg.fixed_point import Bound
from eigenfed.protocol.core import Call, Protocol, Total
from eigenfed.protocol.decomposition import Certificate, Decomposition
from eigenfed.protocol.exact.frame import FramedRequest
from eigenfed.protocol.exact.frame_rows import prepare_rows
from eigenfed.protocol.exact.moments import Moments
from eigenfed.protocol.operations import Answer, Limits, Request, State, Terms, op


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ProductReply:
    """The scatter times directions, and its trace."""

    product: Array
    trace: float


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ProductRequest(FramedRequest):
    """Request the scatter times directions.

    Attributes
    ----------
    basis : ndarray of shape (d, l)
        Orthonormal columns, at most as many as the study's method sends at a time.
    """

    basis: Array

    op, reply = "product", ProductReply

    def check(self, terms: Terms, state: State) -> None:
        """Refuse too many directions, of another shape, or not orthonormal."""
        super().check(terms, state)
        most = terms.study.chosen.width(terms.block, terms.d)
        terms.check_directions("basis", self.basis, most)

    def directions(self) -> Array:
        """Return the directions."""
        return self.basis

    def with_directions(self, directions: Array) -> "ProductRequest":
        """Return the same request about other directions."""
        return replace(self, basis=directions)

    def bounds(self, limits: Limits) -> Mapping[str, Bound]:
        """Return the trace: no entry of the product exceeds the largest eigenvalue."""
        return {"product": limits.most, "trace": limits.most}


@op(Release("scatter times directions", "d x l + 1", Leaves.SUM_ONLY, Reveals.DIRECTIONS))
def product(
    source: Source, request: ProductRequest, state: State, terms: Terms
) -> Answer[ProductReply]:
    """Return the site's scatter times the directions, and its trace."""
    view, frame, state = prepare_rows(source, state)
    images = view.product(request.basis)
    if terms.study.chosen.keeps_directions(terms.study):
        state = replace(state, blocks=(*state.blocks, request.basis))
    reply = ProductReply(product=images, trace=frame.trace)
    return Answer(reply, state, frame.answered(request.basis, images))


OPS = (product,)


@dataclass(eq=False)
class Products:
    """Requests products with the covariance, and counts them.

    Attributes
    ----------
    moments : Moments
    total : Total
    first : callable
        Returns the fields that the first request brings besides directions; nothing after that.
    outside, product : callable
        Make the request for the largest eigenvalue outside known directions, and for a product.
    rounds : int
        Number of products so far.
    trace : float
        Total sum of squares of all rows, known after the first product.
    angle : float or None
        Largest estimated angle of a component after the last product, in degrees, if the method
        computes it.
    """

    moments: Moments
    total: Total
    first: Callable[[], dict[str, Any]]
    outside: Callable[..., Request[Any]]
    product: Callable[..., Request[Any]] = ProductRequest
    rounds: int = 0
    trace: float = 0.0
    angle: float | None = None

    @property
    def divisor(self) -> float:
        """Divisor that turns the scatter into the covariance."""
        return self.moments.divisor

    @property
    def variance(self) -> float:
        """Total variance, known after the first product."""
        return self.trace / self.divisor

    def of(self, basis: Array) -> Protocol[Array]:
        """Request the covariance of all rows times `basis`, (d, l)."""
        request = self.product(basis=basis, **self.first())
        answer = yield from self.total(Call(request, angle=self.angle))
        self.rounds += 1
        self.trace = max(answer.trace, 0.0)  # a sum in fixed point may come out below
        image: Array = answer.product / self.divisor
        return image

    def describe(
        self, vt: Array, values: Array, further: Array, certificate: Certificate | None
    ) -> Decomposition:
        """Return components (k, d), their variances and `further` ones, with what else is known."""
        moments = self.moments
        return Decomposition(
            vt,
            np.maximum(values, 0.0),
            moments.mean,
            moments.scale,
            moments.n,
            self.variance,
            self.rounds,
            certificate,
            further=np.maximum(further, 0.0),
        )
