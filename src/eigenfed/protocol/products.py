"""The primitive of the exact methods: the scatter of all rows times a few directions.

===========  ==================================================================================
coordinator  the sum over sites of D'W D Q, d x l, and the total squared deviation
site         Q, the directions asked about
===========  ==================================================================================
"""

import math
from dataclasses import dataclass

import numpy as np

from eigenfed.arrays import Array, Arrays
from eigenfed.data.prepared import Prepared
from eigenfed.data.source import Source
from eigenfed.errors import ProtocolError
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.core import Ask, Protocol
from eigenfed.protocol.moments import Moments, known_totals
from eigenfed.protocol.ops import Answer, op
from eigenfed.protocol.totals import Total


def prepared(source: Source, payload: Arrays, state: Arrays) -> tuple[Prepared, Arrays]:
    """Return the rows through the run's mean and scale, which come with the first ask."""
    for name in ("mean", "scale"):
        if name in payload and not np.array_equal(payload[name], state.get(name, payload[name])):
            raise ProtocolError(f"The {name} of a run cannot change. Start another run.")
    if "scale" not in state:
        state = {**state, "mean": payload["mean"], "scale": payload["scale"]}
        n, count, total = known_totals(source, state)
        # The meter counts about the site's own mean: what an asker sends as a mean must neither
        # dwarf the share of the variance nor pass for some of it.
        own_mean = total / np.where(count > 0, count, 1.0)
        raw = Prepared(source, own_mean, np.ones(source.d)).squares()
        away = own_mean - state["mean"]
        squares = (raw + count * away**2) / state["scale"] ** 2
        state |= {
            "trace": np.array([squares.sum()]),
            "raw_trace": np.array([raw.sum()]),
            "shift": np.sqrt(n) * away,
        }
    return Prepared(source, state["mean"], state["scale"]), state


@op(Release("scatter times directions", "d x l + 1", Leaves.SUM_ONLY, Reveals.DIRECTIONS))
def product(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Return the site's scatter times the directions, and its trace."""
    view, state = prepared(source, payload, state)
    basis = payload["basis"]
    images = view.product(basis)
    reply = {"product": images, "trace": state["trace"]}
    return Answer(reply, state, basis, images, float(state["trace"][0]))


@op(Release("total squared deviation", "1", Leaves.SUM_ONLY, Reveals.BOUND))
def spread(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Return the trace alone, by which sums that need bounds are bounded from then on."""
    _, state = prepared(source, payload, state)
    return Answer({"spread": state["trace"]}, state)


OPS = (product, spread)


def relative(sizes: Array, largest: float) -> float:
    """Return the largest of some residuals, relative to the first eigenvalue.

    Examples
    --------
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
    rounds : int
        Products had.
    trace : float
        Total squared deviation of all rows, known after the first.
    op, outside : str
        The operations that answer with a product, and with the largest eigenvalue outside
        directions.
    residual : float or None
        Largest residual of the components after the last product, relative to the first
        eigenvalue, where the method works it out.
    first : mapping of str to ndarray, optional
        What the first ask brings besides; the mean and scale by default.
    """

    moments: Moments
    total: Total
    rounds: int = 0
    trace: float = 0.0
    op: str = "product"
    outside: str = "remainder"
    first: Arrays | None = None
    residual: float | None = None

    @property
    def divisor(self) -> float:
        """What turns scatter into covariance."""
        return self.moments.divisor

    def of(self, basis: Array) -> Protocol[Array]:
        """Return the covariance of all rows times `basis`, (d, l)."""
        first = self.moments.arrays if self.first is None else self.first
        payload = {"basis": basis} | ({} if self.rounds else first)
        # With orthonormal directions no entry exceeds the largest eigenvalue, nor that the trace.
        most = self.moments.most
        bounds = {"product": most, "trace": most}
        answer = yield from self.total(Ask(self.op, payload, bounds=bounds, residual=self.residual))
        self.rounds += 1
        self.trace = float(answer["trace"][0])
        image: Array = answer["product"] / self.divisor
        return image
