"""Sites with identities, sites that fail on purpose, and a coordinator of its own mind."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eigenfed.arrays import Arrays
from eigenfed.data.source import Source
from eigenfed.privacy.identity import Identity, Roster
from eigenfed.privacy.policy import Policy
from eigenfed.protocol.core import Ask, Protocol, drive
from eigenfed.protocol.messages import Message
from eigenfed.protocol.ops import Op
from eigenfed.protocol.registry import OPS
from eigenfed.protocol.secure_sum import SecureSum
from eigenfed.protocol.site import Site
from eigenfed.protocol.sum_format import as_rows, written
from eigenfed.transport.local import Answering, LocalTransport

Change = Callable[[Message], Message]


@dataclass
class Failing:
    """A site that is out of reach from one operation on, or whose answers are changed."""

    site: Answering
    from_op: str = ""
    change: Change | None = None
    is_gone: bool = False
    replied: list[Message] = field(default_factory=list)

    def answer(self, data: bytes) -> bytes:
        ask = Message.from_bytes(data, "ask")
        self.is_gone |= ask.label == self.from_op
        if self.is_gone:
            raise ConnectionError
        answered = self.site.answer(data)
        reply = Message.from_bytes(answered, "reply", "refusal")
        if self.change is not None:
            reply = self.change(reply)
            answered = reply.to_bytes()
        self.replied.append(reply)
        return answered


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

    def transport(self, **failing: Failing) -> LocalTransport:
        return LocalTransport({**self.sites, **failing})

    def total(self, transport: LocalTransport, ahead: int = 8) -> SecureSum:
        return SecureSum(self.roster, run=transport.run, ahead=ahead)


def identified(names: Iterable[str]) -> dict[str, Identity]:
    return {name: Identity.generate() for name in names}


def secured(
    tables: Mapping[str, Any], *, policy: Policy | None = None, ops: Mapping[str, Op] = OPS
) -> Federation:
    """Put tables behind the gates of sites that know one another."""
    identities = identified(tables)
    roster = Roster.of(identities)
    sites = {
        name: Site(
            name,
            Source.of(table),
            policy=policy or Policy(secure_only=True),
            ops=ops,
            identity=identities[name],
            roster=roster,
        )
        for name, table in tables.items()
    }
    return Federation(identities, roster, sites)


def summing(total: SecureSum, *asks: Ask) -> Protocol[list[Arrays]]:
    found = []
    for ask in asks:
        found.append((yield from total(ask)))
    return found


def summed(federation: Federation, *asks: Ask, **failing: Failing) -> list[Arrays]:
    """Sum over the sites, each ask in turn."""
    transport = federation.transport(**failing)
    return drive(summing(federation.total(transport), *asks), transport)


@dataclass
class Coordinator:
    """Asks sites whatever it likes, one by one, by their messages."""

    federation: Federation
    run: str = "run"
    round_: int = 0

    def ask(self, site: str, op: str, payload: Arrays, *, run: str | None = None) -> Message:
        self.round_ += 1
        data = Message("ask", run or self.run, self.round_, op, payload).to_bytes()
        return Message.from_bytes(self.federation.sites[site].answer(data), "reply", "refusal")

    def reply(self, site: str, op: str, payload: Arrays) -> Arrays:
        message = self.ask(site, op, payload)
        assert message.kind == "reply", message.label
        return message.arrays

    def code(self, site: str, op: str, payload: Arrays) -> str:
        message = self.ask(site, op, payload)
        assert message.kind == "refusal"
        return message.label

    @property
    def names(self) -> tuple[str, ...]:
        return self.federation.roster.sites

    def flags(self, names: Iterable[str]) -> Any:
        return written(names, self.federation.roster)

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

    def envelope(self, number: int = 0, bound: float = 1e6) -> Arrays:
        """Return what a masked ask for moments brings besides shares."""
        bounds = {f"secure.bound.{name}": np.array([bound]) for name in ("n", "count", "total")}
        present = self.flags(self.names)
        return {**bounds, "secure.number": np.array([number]), "secure.present": present}

    def masked(self, shares: Mapping[str, Arrays], number: int = 0) -> dict[str, Arrays]:
        envelope = self.envelope(number)
        return {n: self.reply(n, "moments", envelope | shares[n]) for n in self.names}

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
            "signatures": as_rows(list(signatures.values())),
        }
