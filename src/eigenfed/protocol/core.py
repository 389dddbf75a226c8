"""Requests and replies of a federated run: how they are yielded, carried, recorded and summed.

A protocol is a generator. It yields a `Call` and is sent the replies of the sites, in sorted order
of their names. It does no input or output, reads no clock and draws only from generators that it
is given. The same replies therefore always lead to the same state, and an interrupted run resumes
by replaying its transcript.

- `Call`: one request, the sites it goes to, and how many replies are needed.
- `Transport` and `Record`: what carries calls to the sites, and what stores the outcome of rounds.
- `drive`: the loop that runs a protocol over a transport.
- `Total`: a way to sum replies over sites. An algorithm is handed one and works with any:
  `plain_sum` here, `eigenfed.protocol.secure.aggregation.SecureSum` for secure aggregation.
"""

import json
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, TypeVar
from typing import Protocol as TypingProtocol

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array, Arrays, Container, checksum
from eigenfed.errors import DataError, ProtocolError, SiteLost
from eigenfed.privacy.secagg.fixed_point import Bound
from eigenfed.protocol.messages import pack, unpack
from eigenfed.protocol.operations import Limits, R, Request

T = TypeVar("T")
Replies = dict[str, Arrays]
Protocol = Generator["Call[Any]", Replies, T]

TOTAL = ""
"""Key of the sum, in the replies to a call with ``summed=True``."""


@dataclass(frozen=True, eq=False)
class Call(Generic[R]):
    """One request to the sites, and how their replies are collected.

    Attributes
    ----------
    request : Request
        Sent to every site that `each` does not name.
    each : mapping of site to Request
        Requests sent to some sites instead of `request`.
    envelope : mapping of str to ndarray
        Arrays that secure aggregation adds to the request.
    each_envelope : mapping of site to mapping of str to ndarray
        Arrays that it adds for one site only.
    to : tuple of str or None
        The sites that receive the call; None means all.
    summed : bool
        Whether only the sum of the replies is needed. Replies are then added up as they arrive and
        the protocol is sent ``{TOTAL: sum}``.
    fold : callable or None
        With `summed`, how replies are added up, if not entry by entry: a function of the sites and
        replies, which it takes as they arrive. Never sent.
    quorum : int or None
        Number of replies that suffices; None means all.
    deadline_s : float or None
        How long to wait for them, in seconds.
    largest : int or None
        For a noised sum: the largest magnitude of any entry. Never sent.
    mu : float or None
        For a noised sum: the budget it spends. Never sent; the sites derive it themselves.
    angle : float or None
        Largest estimated angle of the components so far, in degrees, where known.
        Shown to whoever watches the run; never sent.
    """

    request: Request[R]
    each: Mapping[str, Request[R]] = field(default_factory=dict)
    envelope: Arrays = field(default_factory=dict)
    each_envelope: Mapping[str, Arrays] = field(default_factory=dict)
    to: tuple[str, ...] | None = None
    summed: bool = False
    fold: Callable[[Iterator[tuple[str, Arrays]]], Arrays] | None = None
    quorum: int | None = None
    deadline_s: float | None = None
    largest: int | None = None
    mu: float | None = None
    angle: float | None = None

    @property
    def op(self) -> str:
        """Name of the operation."""
        return self.request.op

    @property
    def differs(self) -> bool:
        """Whether some sites are sent something that others are not."""
        return bool(self.each or self.each_envelope)

    @cached_property
    def _packed(self) -> Arrays:
        return pack(self.request)

    def for_site(self, site: str) -> Arrays:
        """Return the arrays that are sent to one site."""
        packed = pack(self.each[site]) if site in self.each else self._packed
        return {**packed, **self.envelope, **self.each_envelope.get(site, {})}

    def digest(self) -> str:
        """Return a fingerprint of everything that is sent to any site."""
        parts: list[tuple[str | None, str, npt.NDArray[Any]]]
        parts = [(None, name, array) for name, array in (self._packed | self.envelope).items()]
        for site in sorted({*self.each, *self.each_envelope}):
            parts += [(site, name, array) for name, array in self.for_site(site).items()]
        places = [(site, name) for site, name, _ in parts]
        label = json.dumps([self.op, self.to, self.summed, places])
        arrays = {str(i): array for i, (_, _, array) in enumerate(parts)}
        return checksum(Container("request", 1, {"label": label}, arrays).to_bytes())


def call_each(call: Call[R]) -> Generator[Call[Any], Replies, dict[str, R]]:
    """Send a call, and return the reply of each site.

    Raises
    ------
    ProtocolError
        If a reply does not have the fields of its type.
    """
    replies = yield call
    return {site: read_reply(call, site, reply) for site, reply in replies.items()}


def read_reply(call: Call[R], site: str, reply: Arrays) -> R:
    """Read a reply, or a sum of replies where `site` is empty, as the type of the request's reply.

    Raises
    ------
    ProtocolError
        If it does not have the fields of that type.
    """
    try:
        found: R = unpack(call.request.reply, reply)
    except DataError:
        who = f"The reply of site {site!r}" if site else "The sum of the replies"
        raise ProtocolError(
            f"{who} to {call.op!r} does not have fields of the expected names and types. Use the "
            "same release of eigenfed everywhere."
        ) from None
    return found


class Transport(TypingProtocol):
    """Carries calls to the sites, and their replies back."""

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, sorted."""

    def exchange(self, round_: int, call: Call[Any]) -> Iterator[tuple[str, Arrays]]:
        """Send a call, and yield the replies in sorted order of sites.

        Raises
        ------
        SiteLost
            If fewer sites than the quorum reply.
        SiteRefused
            If a site refuses the request.
        """


class Record(TypingProtocol):
    """Stores the outcome of each round, so that a run can be resumed."""

    def replay(self, round_: int, call: Call[Any]) -> Replies | SiteLost | None:
        """Return the stored outcome of a round, or None if the round is new."""

    def keep(self, round_: int, call: Call[Any], outcome: Replies | SiteLost) -> None:
        """Store the outcome of a round."""


def drive(protocol: Protocol[T], transport: Transport, record: Record | None = None) -> T:
    """Run a protocol to its end over a transport.

    Parameters
    ----------
    protocol : generator
    transport : Transport
    record : Record, optional
        Rounds that it holds are replayed; new ones are added to it.

    Returns
    -------
    object
        The return value of the protocol.
    """
    try:
        call = next(protocol)
        round_ = 0
        while True:
            known = None if record is None else record.replay(round_, call)
            outcome = _exchange_round(transport, round_, call) if known is None else known
            if record is None or known is not None:
                call = _step(protocol, outcome)
            else:
                call = _step_and_record(protocol, record, round_, call, outcome)
            round_ += 1
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        protocol.close()


def _step(protocol: Protocol[T], outcome: Replies | SiteLost) -> Call[Any]:
    return protocol.throw(outcome) if isinstance(outcome, SiteLost) else protocol.send(outcome)


def _step_and_record(
    protocol: Protocol[T], record: Record, round_: int, call: Call[Any], outcome: Replies | SiteLost
) -> Call[Any]:
    """Advance the protocol by a new round, and record the round.

    Replies are recorded before the protocol sees them. The loss of a site is recorded only once
    the protocol has survived it: a loss that ends the run is not, so that the run can be resumed
    when the site is back.
    """
    if not isinstance(outcome, SiteLost):
        record.keep(round_, call, outcome)
        return protocol.send(outcome)
    try:
        next_call = protocol.throw(outcome)
    except StopIteration:
        record.keep(round_, call, outcome)
        raise
    record.keep(round_, call, outcome)
    return next_call


def _exchange_round(transport: Transport, round_: int, call: Call[Any]) -> Replies | SiteLost:
    try:
        answers = transport.exchange(round_, call)
        if not call.summed:
            return dict(answers)
        return {TOTAL: (call.fold or _sum_replies)(answers)}
    except SiteLost as lost:
        return lost


def _sum_replies(answers: Iterator[tuple[str, Arrays]]) -> Arrays:
    total: Arrays | None = None
    owned = False
    for site, reply in answers:
        if total is None:
            total = dict(reply)
            continue
        if total.keys() != reply.keys():
            raise ProtocolError(
                f"The reply of site {site!r} has different fields from those of other sites. "
                "Use the same release of eigenfed everywhere."
            )
        for name, array in reply.items():
            if array.shape != total[name].shape:
                raise ProtocolError(
                    f"The reply of site {site!r} has {name!r} of shape {array.shape} where others "
                    f"have {total[name].shape}. Use the same features at all sites."
                )
            if array.dtype != total[name].dtype:
                raise ProtocolError(
                    f"The reply of site {site!r} has {name!r} of type {array.dtype} where others "
                    f"have {total[name].dtype}. Use the same release of eigenfed everywhere."
                )
            # Masked words are meant to wrap around; np.add does so silently at any shape, where
            # the operator on a numpy scalar would warn. `owned` keeps the first reply unmodified.
            into = total[name] if owned else np.empty_like(array)
            total[name] = np.add(total[name], array, out=into)
        owned = True
    return total or {}


class Total(TypingProtocol):
    """A way to sum replies over sites; an algorithm is handed one and works with any."""

    @property
    def bounded(self) -> bool:
        """Whether sums need a bound on the entries of one site's reply."""

    @property
    def summed(self) -> tuple[str, ...]:
        """The sites in the last sum; empty if every sum is over all sites."""

    @property
    def limits(self) -> Limits | None:
        """Agreed limits from which the bounds follow; None if none are needed."""

    def agree(self, limits: Limits) -> None:
        """Set the limits that the sites have agreed on."""

    def error(self, bound: Bound) -> Array:
        """Return the largest rounding error of a sum whose entries have this bound."""

    def __call__(self, call: Call[R]) -> Protocol[R]:
        """Send a call and return the sum of the replies."""


class PlainSum:
    """Sums that the coordinator computes from the replies, each of which it could read.

    Examples
    --------
    >>> import numpy as np
    >>> from eigenfed.protocol.exact.moments import SquaresRequest
    >>> protocol = plain_sum(Call(SquaresRequest(mean=np.zeros(2))))
    >>> next(protocol).summed
    True
    >>> try:
    ...     protocol.send({TOTAL: {"squares": np.array([3.0, 4.0])}})
    ... except StopIteration as end:
    ...     print(end.value.squares)
    [3. 4.]
    """

    bounded = False
    limits: Limits | None = None
    summed: tuple[str, ...] = ()

    def agree(self, limits: Limits) -> None:
        """Ignore the limits: plain sums need none."""

    def error(self, bound: Bound) -> Array:
        """Return 0: nothing is rounded beyond double precision."""
        return np.zeros(np.shape(bound))

    def __call__(self, call: Call[R]) -> Protocol[R]:
        """Send a call and return the sum of the replies."""
        replies = yield replace(call, summed=True)
        return read_reply(call, "", replies[TOTAL])


plain_sum = PlainSum()
