"""The primitive of the exact methods: the scatter of all rows times a few directions.

===========  ==================================================================================
coordinator  the sum over sites of D'W D Q, d x l, and the total squared deviation
site         Q, the directions asked about
===========  ==================================================================================
"""

from dataclasses import dataclass

import numpy as np

from eigenfed.arrays import Array, Arrays
from eigenfed.data.prepared import Prepared
from eigenfed.data.source import Source
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.core import Ask, Protocol
from eigenfed.protocol.moments import Moments
from eigenfed.protocol.ops import Answer, op
from eigenfed.protocol.totals import Total


def prepared(source: Source, payload: Arrays, state: Arrays) -> tuple[Prepared, Arrays]:
    """Return the rows through the run's mean and scale, which come with the first ask."""
    kept = {name: payload.get(name, state.get(name)) for name in ("mean", "scale")}
    state = {**state, **{name: array for name, array in kept.items() if array is not None}}
    view = Prepared(source, state["mean"], state["scale"])
    if "trace" not in state:
        state = {**state, "trace": np.array([view.squares().sum()])}
    return view, state


@op(Release("scatter times directions", "d x l + 1", Leaves.SUM_ONLY, Reveals.DIRECTIONS))
def product(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Return the site's scatter times the directions, and its trace."""
    view, state = prepared(source, payload, state)
    basis = payload["basis"]
    images = view.product(basis)
    reply = {"product": images, "trace": state["trace"]}
    return Answer(reply, state, basis, images, float(state["trace"][0]))


OPS = (product,)


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
    """

    moments: Moments
    total: Total
    rounds: int = 0
    trace: float = 0.0

    @property
    def divisor(self) -> float:
        """What turns scatter into covariance."""
        return max(self.moments.n - 1.0, np.finfo(float).tiny) if self.moments.n > 1 else 1.0

    def of(self, basis: Array) -> Protocol[Array]:
        """Return the covariance of all rows times `basis`, (d, l)."""
        payload = {"basis": basis} | ({} if self.rounds else self.moments.arrays)
        answer = yield from self.total(Ask("product", payload))
        self.rounds += 1
        self.trace = float(answer["trace"][0])
        image: Array = answer["product"] / self.divisor
        return image
