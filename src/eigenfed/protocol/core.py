"""What a coordinator asks, what sites reply, and the loop that runs a protocol.

A protocol is a generator: it yields an `Call` and is sent the replies by site, in sorted order. It
does no input or output, keeps no clock and draws only from generators that it was given, so the
same replies always bring it to the same place: a run resumes by replaying its transcript.

Sums over sites, as sub-protocols: how a sum is kept private is a choice beside the algorithm.
"""

import json
from collections.abc import Generator, Iterator, Mapping
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
"""Key of the sum where an ask wants only that."""


@dataclass(frozen=True, eq=False)
class Call(Generic[R]):
    """One request to the sites, and how it is to be answered.

    Attributes
    ----------
    request : Request
        The same for every site that is asked.
    each : mapping of site to Request
        What some sites are asked instead.
    envelope : mapping of str to ndarray
        What a secure sum sends along.
    each_envelope : mapping of site to mapping of str to ndarray
        What it sends along to one site only.
    to : tuple of str or None
        The sites to ask; None asks all.
    summed : bool
        Whether only the sum of the replies is wanted. Then the replies are folded one by one and
        what the protocol is sent is ``{TOTAL: sum}``.
    quorum : int or None
        How many replies are enough; None wants all.
    deadline_s : float or None
        How long to wait for them.
    largest : int or None
        Of a noised sum: the largest magnitude that an entry of it can have. It is never sent.
    mu : float or None
        Of a noised sum: what it spends. The sites derive it by themselves; it is never sent.
    residual : float or None
        Largest residual of the components, relative to the first eigenvalue, as far as it was
        known before. It is for whoever watches the run and is never sent.
    """

    request: Request[R]
    each: Mapping[str, Request[R]] = field(default_factory=dict)
    envelope: Arrays = field(default_factory=dict)
    each_envelope: Mapping[str, Arrays] = field(default_factory=dict)
    to: tuple[str, ...] | None = None
    summed: bool = False
    quorum: int | None = None
    deadline_s: float | None = None
    largest: int | None = None
    mu: float | None = None
    residual: float | None = None

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
        """Return what one site is sent."""
        packed = pack(self.each[site]) if site in self.each else self._packed
        return {**packed, **self.envelope, **self.each_envelope.get(site, {})}

    def digest(self) -> str:
        """Return a fingerprint of everything that is asked of everybody."""
        parts: list[tuple[str | None, str, npt.NDArray[Any]]]
        parts = [(None, name, array) for name, array in (self._packed | self.envelope).items()]
        for site in sorted({*self.each, *self.each_envelope}):
            parts += [(site, name, array) for name, array in self.for_site(site).items()]
        places = [(site, name) for site, name, _ in parts]
        label = json.dumps([self.op, self.to, self.summed, places])
        arrays = {str(i): array for i, (_, _, array) in enumerate(parts)}
        return checksum(Container("request", 1, {"label": label}, arrays).to_bytes())


def call_each(call: Call[R]) -> Generator[Call[Any], Replies, dict[str, R]]:
    """Ask sites, and return the reply of each.

    Raises
    ------
    ProtocolError
        If a reply is not of its type.
    """
    replies = yield call
    return {site: read_reply(call, site, reply) for site, reply in replies.items()}


def read_reply(call: Call[R], site: str, reply: Arrays) -> R:
    """Read a reply, or a sum of replies, as the type that it must have."""
    try:
        found: R = unpack(call.request.reply, reply)
    except DataError:
        who = f"The reply of site {site!r}" if site else "The sum of the replies"
        raise ProtocolError(
            f"{who} to {call.op!r} does not have the fields that it must have. Use the same "
            "release of eigenfed everywhere."
        ) from None
    return found


class Transport(TypingProtocol):
    """What carries asks to sites and their replies back."""

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, sorted."""

    def exchange(self, round_: int, call: Call[Any]) -> Iterator[tuple[str, Arrays]]:
        """Yield the replies in sorted order of sites.

        Raises
        ------
        SiteLost
            If fewer sites than the quorum answer.
        SiteRefused
            If a site answers no.
        """


class Record(TypingProtocol):
    """Where a run is written down as it goes."""

    def replay(self, round_: int, call: Call[Any]) -> Replies | SiteLost | None:
        """Return what came of an earlier run's round, or None where it is new."""

    def keep(self, round_: int, call: Call[Any], outcome: Replies | SiteLost) -> None:
        """Write down what came of a round."""


def drive(protocol: Protocol[T], transport: Transport, record: Record | None = None) -> T:
    """Run a protocol to its end.

    Parameters
    ----------
    protocol : generator
    transport : Transport
    record : Record, optional
        Rounds that it holds are replayed; new ones are added to it.

    Returns
    -------
    What the protocol returns.
    """
    try:
        call = next(protocol)
        round_ = 0
        while True:
            known = None if record is None else record.replay(round_, call)
            outcome = _outcome(transport, round_, call) if known is None else known
            if record is None or known is not None:
                call = _step(protocol, outcome)
            else:
                call = _recorded_step(protocol, record, round_, call, outcome)
            round_ += 1
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        protocol.close()


def _step(protocol: Protocol[T], outcome: Replies | SiteLost) -> Call[Any]:
    return protocol.throw(outcome) if isinstance(outcome, SiteLost) else protocol.send(outcome)


def _recorded_step(
    protocol: Protocol[T], record: Record, round_: int, call: Call[Any], outcome: Replies | SiteLost
) -> Call[Any]:
    """Keep replies before the protocol sees them, and a loss once it has survived it.

    A loss that ends the run is not kept: the run can be taken up when the site is back.
    """
    if not isinstance(outcome, SiteLost):
        record.keep(round_, call, outcome)
        return protocol.send(outcome)
    try:
        following = protocol.throw(outcome)
    except StopIteration:
        record.keep(round_, call, outcome)
        raise
    record.keep(round_, call, outcome)
    return following


def _outcome(transport: Transport, round_: int, call: Call[Any]) -> Replies | SiteLost:
    try:
        answers = transport.exchange(round_, call)
        return _folded(answers) if call.summed else dict(answers)
    except SiteLost as lost:
        return lost


def _folded(answers: Iterator[tuple[str, Arrays]]) -> Replies:
    total: Arrays | None = None
    owned = False
    for site, reply in answers:
        if total is None:
            total = dict(reply)
            continue
        if total.keys() != reply.keys():
            raise ProtocolError(
                f"The reply of site {site!r} has other fields than those before it. "
                "Use the same release of eigenfed everywhere."
            )
        for name, array in reply.items():
            if array.shape != total[name].shape:
                raise ProtocolError(
                    f"The reply of site {site!r} has {name!r} of shape {array.shape} where others "
                    f"have {total[name].shape}. Bring the same features everywhere."
                )
            if array.dtype != total[name].dtype:
                raise ProtocolError(
                    f"The reply of site {site!r} has {name!r} of type {array.dtype} where others "
                    f"have {total[name].dtype}. Use the same release of eigenfed everywhere."
                )
            # Masked words are meant to wrap round: the function does so at any shape in silence.
            into = total[name] if owned else np.empty_like(array)
            total[name] = np.add(total[name], array, out=into)
        owned = True
    return {TOTAL: total or {}}


class Total(TypingProtocol):
    """A way to sum replies over sites."""

    @property
    def bounded(self) -> bool:
        """Whether sums need bounds on what one site can bring."""

    @property
    def summed(self) -> tuple[str, ...]:
        """The sites in the last sum; empty where it is always all of them."""

    @property
    def limits(self) -> Limits | None:
        """What the sites have agreed on, from which bounds follow; None where none are needed."""

    def agree(self, limits: Limits) -> None:
        """Take what the sites have agreed on."""

    def error(self, bound: Bound) -> Array:
        """Return the most by which an entry so bounded differs from the sum of the entries."""

    def __call__(self, call: Call[R]) -> Protocol[R]:
        """Ask for replies and return their sum."""


class PlainSum:
    """Sums that the coordinator makes of single replies, so that it could see each one.

    Examples
    --------
    >>> import numpy as np
    >>> from eigenfed.protocol.exact.moments import SquaresRequest
    >>> asking = plain_sum(Call(SquaresRequest(mean=np.zeros(2))))
    >>> next(asking).summed
    True
    >>> try:
    ...     asking.send({TOTAL: {"squares": np.array([3.0, 4.0])}})
    ... except StopIteration as end:
    ...     print(end.value.squares)
    [3. 4.]
    """

    bounded = False
    limits: Limits | None = None
    summed: tuple[str, ...] = ()

    def agree(self, limits: Limits) -> None:
        """Take limits, of which plain sums need none."""

    def error(self, bound: Bound) -> Array:
        """Return 0: only rounding is lost."""
        return np.zeros(np.shape(bound))

    def __call__(self, call: Call[R]) -> Protocol[R]:
        """Ask for replies and return their sum."""
        replies = yield replace(call, summed=True)
        return read_reply(call, "", replies[TOTAL])


plain_sum = PlainSum()
