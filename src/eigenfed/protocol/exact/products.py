"""The primitive of the exact methods: the scatter of all rows times a few directions.

===========  ==================================================================================
coordinator  the sum over sites of D'W D Q, d x l, and the total squared deviation
site         Q, the directions asked about
===========  ==================================================================================
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.privacy.secagg.fixed_point import Bound
from eigenfed.protocol.core import Call, Protocol, Total
from eigenfed.protocol.exact.moments import FramedRequest, Moments, framed
from eigenfed.protocol.operations import Answer, Limits, Request, State, Terms, op


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ProductReply:
    """The scatter times directions, and its trace."""

    product: Array
    trace: float


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ProductRequest(FramedRequest):
    """Ask for the scatter times directions.

    Attributes
    ----------
    basis : ndarray of shape (d, l)
        Orthonormal columns, no more than the study's method brings at a time.
    """

    basis: Array

    op, reply = "product", ProductReply

    def check(self, terms: Terms, state: State) -> None:
        """Refuse directions of another shape, or that are not orthonormal."""
        super().check(terms, state)
        most = terms.study.chosen.width(terms.k, terms.d)
        terms.check_directions("basis", self.basis, most)

    def directions(self) -> Array:
        """Return the directions."""
        return self.basis

    def about(self, directions: Array) -> "ProductRequest":
        """Return the same request about other directions."""
        return replace(self, basis=directions)

    def bounds(self, limits: Limits) -> Mapping[str, Bound]:
        """Bound the product: no entry exceeds the largest eigenvalue, nor that the trace."""
        return {"product": limits.most, "trace": limits.most}


@op(Release("scatter times directions", "d x l + 1", Leaves.SUM_ONLY, Reveals.DIRECTIONS))
def product(
    source: Source, request: ProductRequest, state: State, terms: Terms
) -> Answer[ProductReply]:
    """Return the site's scatter times the directions, and its trace."""
    view, frame, state = framed(source, state)
    images = view.product(request.basis)
    state = replace(state, blocks=(*state.blocks, request.basis))
    reply = ProductReply(product=images, trace=frame.trace)
    return Answer(reply, state, frame.answered(request.basis, images))


OPS = (product,)


def relative(sizes: Array, largest: float) -> float:
    """Return the largest of some residuals, relative to the first eigenvalue.

    Examples
    --------
    >>> import numpy as np
    >>> relative(np.array([0.5, 1.0]), 4.0), relative(np.array([1.0]), 0.0)
    (0.25, inf)
    """
    most = float(sizes.max(initial=0.0))
    if most == 0.0:
        return 0.0
    return most / float(largest) if largest > 0.0 else math.inf


@dataclass(eq=False)
class Products:
    """Asks for products, and remembers how many were had.

    Attributes
    ----------
    moments : Moments
    total : Total
    first : callable
        Returns what the first request brings besides directions, once.
    product, outside : type of Request
        Which requests ask for a product, and for the largest eigenvalue outside directions.
    rounds : int
        Products had.
    trace : float
        Total squared deviation of all rows, known after the first.
    residual : float or None
        Largest residual of the components after the last product, relative to the first
        eigenvalue, where the method works it out.
    """

    moments: Moments
    total: Total
    first: Callable[[], dict[str, Any]]
    outside: type[Request[Any]]
    product: type[Request[Any]] = ProductRequest
    rounds: int = 0
    trace: float = 0.0
    residual: float | None = None

    @property
    def divisor(self) -> float:
        """What turns scatter into covariance."""
        return self.moments.divisor

    def of(self, basis: Array) -> Protocol[Array]:
        """Return the covariance of all rows times `basis`, (d, l)."""
        request = self.product(basis=basis, **self.first())  # type: ignore[call-arg]
        answer = yield from self.total(Call(request, residual=self.residual))
        self.rounds += 1
        self.trace = answer.trace
        image: Array = answer.product / self.divisor
        return image
