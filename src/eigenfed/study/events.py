"""A run that tells of every ask as it happens, for the log beside a result."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from eigenfed.errors import SiteLost
from eigenfed.estimators.federated import FederatedPCA
from eigenfed.protocol.core import TOTAL, Ask, Protocol, Replies
from eigenfed.protocol.pca import Plan
from eigenfed.protocol.result import Decomposition
from eigenfed.protocol.totals import Total


@dataclass(frozen=True)
class Asked:
    """One ask of a run. When it happened is not told: noise does not cover how long answers take.

    Attributes
    ----------
    round : int
        From 0.
    op : str
    sites : int
        How many were asked.
    payload_bytes_down, payload_bytes_up : int
        Of the arrays in all messages to and from the sites, without their envelopes.
    lost : tuple of str
        Sites that did not answer, where too few did.

    Examples
    --------
    >>> Asked(0, "moments", 3, 0, 4824).op
    'moments'
    """

    round: int
    op: str
    sites: int
    payload_bytes_down: int
    payload_bytes_up: int
    lost: tuple[str, ...] = ()


class ToldPCA(FederatedPCA):
    """A `FederatedPCA` that keeps an account of its asks.

    Attributes
    ----------
    events_ : list of Asked
        The asks of the last fit, in order.
    on_ask : callable or None
        Called with each of them.

    Examples
    --------
    >>> import numpy as np
    >>> pca = ToldPCA(1).fit_sites({"a": np.eye(3), "b": 2 * np.eye(3)})
    >>> [event.op for event in pca.events_]
    ['moments', 'scatter']
    """

    events_: list[Asked]
    on_ask: Callable[[Asked], None] | None = None

    def _run(self, plan: Plan, sites: tuple[str, ...], total: Total) -> Protocol[Decomposition]:
        self.events_ = []
        return self._told(super()._run(plan, sites, total), sites)

    def _told(
        self, protocol: Protocol[Decomposition], sites: tuple[str, ...]
    ) -> Protocol[Decomposition]:
        try:
            ask = next(protocol)
            while True:
                asked = sites if ask.to is None else tuple(ask.to)
                try:
                    replies = yield ask
                except SiteLost as lost:
                    self._tell(ask, asked, {}, lost.sites)
                    ask = protocol.throw(lost)
                else:
                    self._tell(ask, asked, replies, ())
                    ask = protocol.send(replies)
        except StopIteration as end:
            found: Decomposition = end.value
            return found
        finally:
            protocol.close()

    def _tell(
        self, ask: Ask, asked: tuple[str, ...], replies: Replies, lost: tuple[str, ...]
    ) -> None:
        down = sum(_payload_bytes(ask.for_site(site)) for site in asked)
        up = sum(map(_payload_bytes, replies.values()))
        # A sum has the shapes and types of every reply in it.
        times = len(asked) if TOTAL in replies else 1
        event = Asked(len(self.events_), ask.op, len(asked), down, times * up, lost)
        self.events_.append(event)
        if self.on_ask is not None:
            self.on_ask(event)


def _payload_bytes(arrays: Mapping[str, npt.NDArray[Any]]) -> int:
    return sum(array.nbytes for array in arrays.values())
