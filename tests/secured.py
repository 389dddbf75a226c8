"""Sites with identities, sites that fail on purpose, and a coordinator of its own mind."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from eigenfed.arrays import Array, Arrays, Integers
from eigenfed.data.source import Source
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.privacy.secagg.identity import Identity, Roster
from eigenfed.protocol.core import Call, Protocol, call_each, drive
from eigenfed.protocol.exact.magnitude import MagnitudeRequest, compute_limits
from eigenfed.protocol.exact.moments import (
    MomentsReply,
    MomentsRequest,
    SpreadRequest,
    collect_moments,
)
from eigenfed.protocol.exact.products import OPS as PRODUCT_OPS
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.gate.script import either, repeat
from eigenfed.protocol.messages import Message, pack
from eigenfed.protocol.method import Method
from eigenfed.protocol.operations import Answer, Limits, Request, State, Terms, op
from eigenfed.protocol.secure.aggregation import SecureSum
from eigenfed.protocol.secure.sum_format import Envelope, encode_sites, stack_rows
from eigenfed.protocol.study import Study
from eigenfed.transport.local import Answering, LocalTransport
from federation import Testing, gate, opened, opening, study_of

Change = Callable[[Message], Message]


@dataclass(frozen=True, eq=False)
class Shown:
    """Numbers."""

    x: Array


@dataclass(frozen=True, eq=False)
class Whole:
    """Whole numbers."""

    x: Integers


def _bound(bound: Array) -> Any:
    return float(bound[0]) if len(bound) == 1 else bound


@dataclass(frozen=True, kw_only=True, eq=False)
class ShownRequest(Request[Shown]):
    """Ask for a site's first row in some form, with a bound of the test's choice."""

    form: int
    bound: Array

    op, reply = "shown", Shown

    def bounds(self, limits: Limits) -> Mapping[str, Any]:
        return {"x": _bound(self.bound)}


@dataclass(frozen=True, kw_only=True, eq=False)
class WholeRequest(Request[Whole]):
    """Ask for a site's first row in whole numbers."""

    bound: int

    op, reply = "whole", Whole

    def bounds(self, limits: Limits) -> Mapping[str, Any]:
        return {"x": self.bound}


@dataclass(frozen=True, kw_only=True, eq=False)
class EchoRequest(Request[Shown]):
    """Ask for the numbers that the request brings."""

    x: Array
    bound: Array

    op, reply = "echo", Shown

    def bounds(self, limits: Limits) -> Mapping[str, Any]:
        return {"x": _bound(self.bound)}


@op(Release("numbers of the rows", "any", Leaves.SUM_ONLY, Reveals.MEANS))
def shown(source: Source, request: ShownRequest, state: State, terms: Terms) -> Answer[Shown]:
    """Return the site's first row, in the form that is asked for."""
    row = np.asarray(source.X[0])
    forms = (row, row.reshape(2, -1), row[0].reshape(()), row[:0], np.trunc(row))
    return Answer(Shown(forms[request.form]), state)


@op(Release("whole numbers of the rows", "any", Leaves.SUM_ONLY, Reveals.MEANS))
def whole(source: Source, request: WholeRequest, state: State, terms: Terms) -> Answer[Whole]:
    """Return the site's first row, in whole numbers."""
    return Answer(Whole(np.asarray(source.X[0]).astype(np.int64)), state)


@op(Release("numbers that tests choose", "any", Leaves.SUM_ONLY, Reveals.MEANS))
def echo(source: Source, request: EchoRequest, state: State, terms: Terms) -> Answer[Shown]:
    """Return what was asked, as it is."""
    return Answer(Shown(request.x), state)


class Showing(Testing):
    """Sums of numbers that a test chooses, and products."""

    name = "showing"
    ops = (shown, whole, echo, *PRODUCT_OPS)
    asked = repeat(either("shown", "whole", "echo", "product"), 0, 100)


@dataclass
class Failing:
    """A site that is out of reach from one operation on, or whose answers are changed."""

    site: Answering
    from_op: str = ""
    change: Change | None = None
    is_gone: bool = False
    replied: list[Message] = field(default_factory=list)

    def answer(self, data: bytes) -> bytes:
        call = Message.from_bytes(data, "request", "open")
        self.is_gone |= call.label == self.from_op
        if self.is_gone:
            raise ConnectionError
        answered = self.site.answer(data)
        reply = Message.from_bytes(answered, "reply", "refusal")
        if self.change is not None:
            reply = self.change(reply)
            answered = reply.to_bytes()
        self.replied.append(reply)
        return answered

    def come_back(self) -> None:
        self.from_op, self.is_gone = "", False


@dataclass
class Remembered:
    """Sets of sites that a data set was summed over."""

    sets: set[frozenset[str]] = field(default_factory=set)

    def seen(self) -> set[frozenset[str]]:
        return set(self.sets)

    def add(self, sites: frozenset[str]) -> None:
        self.sets.add(sites)


@dataclass
class Federation:
    """Sites that share a roster, and what it takes to sum over them."""

    identities: dict[str, Identity]
    roster: Roster
    sites: dict[str, Site]

    def study(self, method: Method | str = "covariance", k: int = 1, **settings: Any) -> Study:
        """A study of these sites, in secure sums."""
        return study_of(self.sites, k, method, **{"secure": True, **settings})

    def transport(self, study: Study | None = None, /, **failing: Failing) -> LocalTransport:
        """A run that is opened at the sites, some of which may fail."""
        return opened({**self.sites, **failing}, study or self.study())

    def total(self, transport: LocalTransport, ahead: int = 8) -> SecureSum:
        return SecureSum(self.roster, run=transport.run, ahead=ahead)


@contextmanager
def fixed_keys(identities: Mapping[str, Identity]) -> Iterator[None]:
    """Give the sites of fits in this process these keys, on which the last bits of sums depend.

    The noise that a site adds before it rounds follows from its key.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "eigenfed.estimators.in_process.make_identities",
            lambda sites: {site: identities[site] for site in sites},
        )
        yield


def identified(names: Iterable[str]) -> dict[str, Identity]:
    return {name: Identity.generate() for name in names}


def secured(tables: Mapping[str, Any], *, policy: Policy | None = None, **more: Any) -> Federation:
    """Put tables behind the gates of sites that know one another."""
    identities = identified(tables)
    roster = Roster.of(identities)
    policy = policy or Policy(secure_only=True)
    sites = {
        name: gate(name, table, policy=policy, identity=identities[name], roster=roster, **more)
        for name, table in tables.items()
    }
    return Federation(identities, roster, sites)


def moments_sum(total: SecureSum, quorum: int | None = None) -> Protocol[MomentsReply]:
    """Agree on magnitudes, and make the first secure sum of a run."""
    request = yield from agreed(total)
    return (yield from total(Call(request, quorum=quorum)))


def agreed(total: SecureSum) -> Protocol[MomentsRequest]:
    """Agree on magnitudes, and return the request for moments that follows from them."""
    replies = yield from call_each(Call(MagnitudeRequest()))
    entry = max(reply.entry for reply in replies.values())
    weight = max(reply.weight for reply in replies.values())
    total.agree(compute_limits(entry, weight, len(replies), 1))
    return MomentsRequest(entry=entry, weight=weight)


def summing(total: SecureSum, study: Study, *asks: Call[Any]) -> Protocol[list[Any]]:
    """Bring a run past the moments, and sum each ask in turn."""
    yield from collect_moments(total, study)
    found = []
    for call in asks:
        found.append((yield from total(call)))
    return found


def summed(federation: Federation, *asks: Call[Any], **failing: Failing) -> list[Any]:
    """Sum numbers that a test chooses over the sites, each ask in turn."""
    study = federation.study(Showing())
    transport = federation.transport(study, **failing)
    return drive(summing(federation.total(transport), study, *asks), transport)


@dataclass
class Coordinator:
    """Asks sites whatever it likes, one by one, by their messages."""

    federation: Federation
    method: Method | str = field(default_factory=Showing)
    run: str = "run"
    round_: int = 0
    moments: MomentsRequest = field(init=False)

    def __post_init__(self) -> None:
        self.begin(self.run)

    def begin(self, run: str) -> None:
        """Open a run at all sites, and bring it to its first sum."""
        self.run = run
        study = self.federation.study(self.method, 3)
        for site in self.federation.sites.values():
            Message.from_bytes(site.answer(opening(run, study)), "reply")
        told = [self.reply(name, "magnitude", {}) for name in self.names]
        entry, weight = (max(int(t[what][0]) for t in told) for what in ("entry", "weight"))
        self.moments = MomentsRequest(entry=entry, weight=weight)

    @property
    def limits(self) -> Limits:
        """What the sites have agreed on."""
        entry, weight = self.moments.entry, self.moments.weight
        assert entry is not None
        assert weight is not None
        return compute_limits(entry, weight, len(self.names), 1)

    def request(self, site: str, op: str, payload: Arrays) -> Message:
        self.round_ += 1
        data = Message("request", self.run, self.round_, op, payload).to_bytes()
        return Message.from_bytes(self.federation.sites[site].answer(data), "reply", "refusal")

    def reply(self, site: str, op: str, payload: Arrays) -> Arrays:
        message = self.request(site, op, payload)
        assert message.kind == "reply", message.label
        return message.arrays

    def code(self, site: str, op: str, payload: Arrays) -> str:
        message = self.request(site, op, payload)
        assert message.kind == "refusal"
        return message.label

    @property
    def names(self) -> tuple[str, ...]:
        return self.federation.roster.sites

    def flags(self, names: Iterable[str]) -> Any:
        return encode_sites(names, self.federation.roster)

    def keyed(self, first: int = 0, count: int = 2) -> Arrays:
        """Have keys made by all, and return what all are to be sent of them."""
        wanted = {"first": np.array([first]), "count": np.array([count])}
        replies = [self.reply(name, "sum_keys", wanted) for name in self.names]
        return {
            "present": self.flags(self.names),
            "keys": np.stack([reply["keys"] for reply in replies]),
            "signatures": np.stack([reply["signature"] for reply in replies]),
        }

    def shared(self, keys: Arrays) -> dict[str, Arrays]:
        """Have shares made by all, and return what each is to be sent of them."""
        made = [self.reply(name, "sum_shares", keys)["shares"] for name in self.names]
        return {
            name: {"secure.shares": np.stack([rows[i] for rows in made])}
            for i, name in enumerate(self.names)
        }

    def wanted(self, number: int = 0) -> Request[Any]:
        """The request that the script has for a sum: moments, the spread, then numbers."""
        if number == 0:
            return self.moments
        d = next(iter(self.federation.sites.values()))._source.d
        if number == 1:
            return SpreadRequest(mean=np.zeros(d), scale=np.ones(d))
        return EchoRequest(x=np.ones(4), bound=np.array([2.0]))

    def envelope(self, number: int = 0, present: Iterable[str] | None = None) -> Arrays:
        """Return what a masked ask brings besides its request and shares."""
        there = self.flags(self.names if present is None else present)
        return Envelope(number=number, present=there).to_arrays()

    def asked(self, number: int = 0) -> Arrays:
        """Return the request of a sum and its envelope, without shares."""
        return pack(self.wanted(number)) | self.envelope(number)

    def masked(self, shares: Mapping[str, Arrays], number: int = 0) -> dict[str, Arrays]:
        name = self.wanted(number).op
        return {n: self.reply(n, name, self.asked(number) | shares[n]) for n in self.names}

    def begun(self) -> dict[str, Arrays]:
        """Lead a first sum to where all have sent masked replies, and return those."""
        return self.masked(self.shared(self.keyed()))

    def survivors(self, names: Iterable[str], number: int = 0) -> Arrays:
        return {"number": np.array([number]), "survivors": self.flags(names)}

    def signed(self, names: Iterable[str], number: int = 0) -> dict[str, bytes]:
        payload = self.survivors(names, number)
        return {
            name: self.reply(name, "sum_survivors", payload)["signature"].tobytes()
            for name in names
        }

    def opening(
        self, names: Iterable[str], signatures: Mapping[str, bytes], number: int = 0
    ) -> Arrays:
        return self.survivors(names, number) | {
            "signers": self.flags(signatures),
            "signatures": stack_rows(list(signatures.values())),
        }
