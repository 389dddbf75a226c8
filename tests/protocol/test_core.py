"""The loop that runs a protocol: sums, losses, quorums, records, and the digest of an ask."""

import threading
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from eigenfed.arrays import Array, Arrays
from eigenfed.data.source import Source
from eigenfed.errors import InputError, ProtocolError, SiteLost, SiteRefused
from eigenfed.privacy.policy import Policy
from eigenfed.protocol.core import TOTAL, Ask, Protocol, Replies, drive
from eigenfed.protocol.messages import Message
from eigenfed.protocol.moments import all_moments
from eigenfed.protocol.site import Site
from eigenfed.protocol.totals import plain_sum
from eigenfed.transport.local import LocalTransport

# Their sum depends on the order: 1 is lost beside 1e16 unless the large ones meet first.
VALUES = {"a": 1e16, "b": 1.0, "c": -1e16, "d": 1.0}
IN_ORDER = ((1e16 + 1.0) - 1e16) + 1.0


class Scripted:
    """A transport that answers from a table, or raises what the table holds."""

    def __init__(self, *rounds: Replies | Exception) -> None:
        self.rounds = rounds
        self.asked: list[tuple[int, Ask]] = []

    @property
    def sites(self) -> tuple[str, ...]:
        return ("a", "b")

    def ask(self, round_: int, ask: Ask) -> Iterator[tuple[str, Arrays]]:
        self.asked.append((round_, ask))
        outcome = self.rounds[round_]
        if isinstance(outcome, Exception):
            raise outcome
        yield from outcome.items()


class Chained:
    """Sites that answer in the order given: each waits for the one before it."""

    def __init__(self, order: str) -> None:
        self.done = {name: threading.Event() for name in order}
        self.before = {name: order[i - 1] for i, name in enumerate(order) if i}
        self.finished: list[str] = []

    def site(self, name: str) -> "_Chain":
        return _Chain(self, name)


class _Chain:
    def __init__(self, chained: Chained, name: str) -> None:
        self.chained, self.name = chained, name

    def answer(self, data: bytes) -> bytes:
        ask = Message.from_bytes(data, "ask")
        if self.name in self.chained.before:
            assert self.chained.done[self.chained.before[self.name]].wait(30)
        self.chained.finished.append(self.name)
        self.chained.done[self.name].set()
        value = {"x": np.array([VALUES[self.name]])}
        return Message("reply", ask.run, ask.round_, ask.label, value).to_bytes()


class Fixed:
    """A site that always replies the same, or cannot be reached."""

    def __init__(self, reply: Arrays | None) -> None:
        self.reply = reply
        self.asks: list[Message] = []

    def answer(self, data: bytes) -> bytes:
        ask = Message.from_bytes(data, "ask")
        self.asks.append(ask)
        if self.reply is None:
            raise ConnectionError
        return Message("reply", ask.run, ask.round_, ask.label, self.reply).to_bytes()


def one(value: float) -> Arrays:
    return {"x": np.array([value])}


def summing(ask: Ask) -> Protocol[Arrays]:
    return (yield from plain_sum(ask))


def replying(ask: Ask) -> Protocol[Replies]:
    return (yield ask)


@pytest.mark.parametrize("order", ["abcd", "dcba", "cadb"])
def test_sums_are_made_in_sorted_order_whatever_finishes_first(order: str) -> None:
    chained = Chained(order)
    transport = LocalTransport({name: chained.site(name) for name in "dbca"}, workers=4)
    total = drive(summing(Ask("x")), transport)
    assert chained.finished == list(order)
    np.testing.assert_array_equal(total["x"], [IN_ORDER])
    assert sum(VALUES.values()) == IN_ORDER != np.sort(list(VALUES.values())).sum()


def test_replies_come_by_site_in_sorted_order() -> None:
    transport = LocalTransport({name: Fixed(one(VALUES[name])) for name in "cadb"})
    replies = drive(replying(Ask("x")), transport)
    assert list(replies) == ["a", "b", "c", "d"]
    assert {name: reply["x"][0] for name, reply in replies.items()} == VALUES


def test_a_sum_does_not_change_the_replies_it_is_made_of() -> None:
    first, second = one(1.0), one(2.0)
    assert drive(summing(Ask("x")), Scripted({"a": first, "b": second}))["x"] == 3.0
    assert [float(reply["x"][0]) for reply in (first, second)] == [1.0, 2.0]


def test_rounds_count_up_and_the_result_is_returned() -> None:
    def thrice() -> Protocol[list[float]]:
        found = []
        for i in range(3):
            total = yield from plain_sum(Ask("x", one(i)))
            found.append(float(total["x"][0]))
        return found

    transport = Scripted(*({"a": one(i), "b": one(10 * i)} for i in range(3)))
    assert drive(thrice(), transport) == [0.0, 11.0, 22.0]
    assert [round_ for round_, _ in transport.asked] == [0, 1, 2]
    assert all(ask.summed for _, ask in transport.asked)


def test_a_protocol_that_asks_nothing_ends() -> None:
    def silent() -> Protocol[str]:
        if TOTAL:
            yield Ask("never")
        return "done"

    assert drive(silent(), Scripted()) == "done"


def test_a_lost_site_is_thrown_in_and_survived() -> None:
    def surviving() -> Protocol[tuple[tuple[str, ...], float]]:
        try:
            yield from plain_sum(Ask("x"))
        except SiteLost as lost:
            rest = yield from plain_sum(Ask("x", to=("a",)))
            return lost.sites, float(rest["x"][0])
        raise AssertionError

    transport = LocalTransport({"a": Fixed(one(5.0)), "b": Fixed(None)})
    assert drive(surviving(), transport) == (("b",), 5.0)


def test_a_lost_site_that_is_not_survived_ends_the_run() -> None:
    transport = LocalTransport({"a": Fixed(one(5.0)), "b": Fixed(None), "c": Fixed(None)})
    with pytest.raises(SiteLost, match="No answer from b, c to 'x' in round 0") as caught:
        drive(summing(Ask("x")), transport)
    assert caught.value.sites == ("b", "c")


@pytest.mark.parametrize(("quorum", "enough"), [(1, True), (2, True), (3, False), (None, False)])
def test_a_quorum_says_how_many_are_enough(quorum: int | None, enough: bool) -> None:
    sites = {"a": Fixed(one(1.0)), "b": Fixed(None), "c": Fixed(one(4.0))}
    asking = Ask("x", quorum=quorum)
    if enough:
        assert drive(summing(asking), LocalTransport(sites))["x"] == 5.0
        assert list(drive(replying(asking), LocalTransport(sites))) == ["a", "c"]
    else:
        with pytest.raises(SiteLost, match="No answer from b"):
            drive(summing(asking), LocalTransport(sites))


def test_a_site_past_its_deadline_is_lost() -> None:
    chained = Chained("ab")
    transport = LocalTransport({name: chained.site(name) for name in "ab"}, workers=2)
    # The first waits for ever: nobody sets what it waits for until the end of the test.
    chained.before["a"] = "never"
    chained.done["never"] = threading.Event()
    try:
        with pytest.raises(SiteLost, match="No answer from a, b"):
            drive(summing(Ask("x", deadline_s=0.05)), transport)
    finally:
        chained.done["never"].set()


def test_only_those_named_are_asked_and_each_gets_its_own() -> None:
    sites = {name: Fixed(one(1.0)) for name in "abc"}
    shared, own = one(7.0), {"y": np.array([8.0])}
    ask = Ask("x", shared, each={"c": own}, to=("a", "c"))
    assert list(drive(replying(ask), LocalTransport(sites))) == ["a", "c"]
    assert sites["b"].asks == []
    assert list(sites["a"].asks[0].arrays) == ["x"]
    assert list(sites["c"].asks[0].arrays) == ["x", "y"]
    assert ask.for_site("c") == {**shared, **own}


class Ending:
    """A protocol that notes how it ended."""

    def __init__(self) -> None:
        self.ended = ""

    def run(self) -> Protocol[None]:
        try:
            yield Ask("x")
            raise AssertionError
        except GeneratorExit:
            self.ended = "closed"
            raise


@pytest.mark.parametrize("error", [RuntimeError("broken"), SiteRefused("a", "no", "x", 0)])
def test_a_protocol_is_closed_when_its_transport_fails(error: Exception) -> None:
    ending = Ending()
    with pytest.raises(type(error)):
        drive(ending.run(), Scripted(error))
    assert ending.ended == "closed"


def test_an_error_in_the_protocol_passes_through_and_closes_it() -> None:
    def failing() -> Protocol[None]:
        yield Ask("x")
        raise ZeroDivisionError

    protocol = failing()
    with pytest.raises(ZeroDivisionError):
        drive(protocol, Scripted({"a": one(1.0)}))
    with pytest.raises(StopIteration):
        next(protocol)


def test_a_refusal_names_site_code_operation_and_round() -> None:
    source = Source.of(np.eye(3))
    sites = {
        "a": Site("a", source),
        "b": Site("b", source, policy=Policy(forbidden=frozenset({"moments"}))),
    }
    with pytest.raises(SiteRefused, match=r"Site 'b' refused 'moments' in round 0.*'forbidden'"):
        drive(summing(Ask("moments")), LocalTransport(sites))


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"x": np.zeros(3)}, r"'b' has 'x' of shape \(3,\) where others have \(2,\)"),
        ({"y": np.zeros(2)}, "'b' has other fields"),
        ({"x": np.zeros(2), "y": np.zeros(2)}, "'b' has other fields"),
        ({}, "'b' has other fields"),
    ],
)
def test_replies_that_do_not_fit_are_refused(second: Arrays, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        drive(summing(Ask("x")), Scripted({"a": {"x": np.zeros(2)}, "b": second}))


def test_a_scalar_does_not_spread_over_a_sum() -> None:
    with pytest.raises(ProtocolError, match="shape"):
        drive(summing(Ask("x")), Scripted({"a": {"x": np.zeros(2)}, "b": {"x": np.zeros(())}}))


class Notes:
    """A record in memory."""

    def __init__(self) -> None:
        self.kept: dict[int, tuple[str, Replies | SiteLost]] = {}

    def replay(self, round_: int, ask: Ask) -> Replies | SiteLost | None:
        if round_ not in self.kept:
            return None
        digest, outcome = self.kept[round_]
        assert digest == ask.digest()
        return outcome

    def keep(self, round_: int, ask: Ask, outcome: Replies | SiteLost) -> None:
        self.kept[round_] = ask.digest(), outcome


def test_a_record_is_replayed_with_its_losses_and_continued() -> None:
    def three() -> Protocol[list[float]]:
        found = []
        for i in range(3):
            try:
                total = yield from plain_sum(Ask("x", one(i)))
            except SiteLost:
                found.append(-1.0)
            else:
                found.append(float(total["x"][0]))
        return found

    notes = Notes()
    outcomes: list[Replies | Exception] = [
        {"a": one(1.0), "b": one(2.0)},
        SiteLost(("b",), "x", 1),
        {"a": one(3.0), "b": one(4.0)},
    ]
    first = drive(three(), Scripted(*outcomes), notes)
    assert first == [3.0, -1.0, 7.0]
    assert list(notes.kept) == [0, 1, 2]
    untouched = Scripted()
    assert drive(three(), untouched, notes) == first
    assert untouched.asked == []
    del notes.kept[2]
    resumed = Scripted(*outcomes)
    assert drive(three(), resumed, notes) == first
    assert [round_ for round_, _ in resumed.asked] == [2]


def asks() -> list[Ask]:
    x: Array = np.array([1.0, 2.0])
    plain = Ask("x", {"p": x})
    return [
        plain,
        replace(plain, op="y"),
        replace(plain, payload={}),
        replace(plain, payload={"q": x}),
        replace(plain, payload={"p": x + 1e-15}),
        replace(plain, payload={"p": x.astype(np.float32)}),
        replace(plain, payload={"p": x[:, None]}),
        replace(plain, payload={"p": x, "q": x}),
        replace(plain, each={"a": {"p": x}}),
        replace(plain, each={"b": {"p": x}}),
        replace(plain, each={"a": {"p": -x}}),
        replace(plain, each={"a": {"p": x}, "b": {"p": x}}),
        replace(plain, payload={}, each={"a": {"p": x}}),
        replace(plain, to=("a",)),
        replace(plain, to=("a", "b")),
        replace(plain, to=()),
        replace(plain, summed=True),
    ]


def test_the_digest_changes_with_everything_that_is_asked() -> None:
    digests = [ask.digest() for ask in asks()]
    assert len(set(digests)) == len(digests)
    assert digests == [ask.digest() for ask in asks()]


def test_the_digest_does_not_change_with_how_long_to_wait() -> None:
    plain = asks()[0]
    assert replace(plain, quorum=2, deadline_s=5.0).digest() == plain.digest()


def test_a_transport_without_sites_is_refused() -> None:
    with pytest.raises(InputError, match="at least one site"):
        LocalTransport({})


def test_a_transport_counts_what_crosses() -> None:
    sites = {"a": Fixed({"x": np.zeros((2, 3))}), "b": Fixed({"x": np.zeros((2, 3))})}
    transport = LocalTransport(sites)
    drive(summing(Ask("x", one(1.0))), transport)
    assert (transport.rounds, transport.floats_up) == (1, 12)
    run = sites["a"].asks[0].run
    reply = Message("reply", run, 0, "x", {"x": np.zeros((2, 3))}).to_bytes()
    ask = Message("ask", run, 0, "x", one(1.0)).to_bytes()
    assert (transport.bytes_up, transport.bytes_down) == (2 * len(reply), 2 * len(ask))


def test_sites_that_are_not_there_cannot_be_asked() -> None:
    transport = LocalTransport({"a": Fixed(one(1.0))})
    with pytest.raises(ProtocolError, match=r"'x' is addressed to \['z'\], which are no sites"):
        drive(replying(Ask("x", to=("a", "z"))), transport)


class Elsewhere:
    """Answers another round than it was asked."""

    def answer(self, data: bytes) -> bytes:
        ask = Message.from_bytes(data, "ask")
        return Message("reply", ask.run, ask.round_ + 1, ask.label, one(1.0)).to_bytes()


def test_a_reply_to_another_ask_is_refused() -> None:
    with pytest.raises(ProtocolError, match="Site 'a' answered another ask than 'x' of round 0"):
        drive(replying(Ask("x")), LocalTransport({"a": Elsewhere()}))


def test_no_rows_at_all_are_refused() -> None:
    site = Site("a", Source.of(np.zeros((0, 3))))
    with pytest.raises(ProtocolError, match="no rows of positive weight"):
        drive(all_moments(plain_sum, center=True, scale=False), LocalTransport({"a": site}))


def test_a_loss_is_recorded_only_once_it_was_survived() -> None:
    lost = SiteLost(("b",), "x", 0)

    class Losing:
        sites = ("a", "b")

        def ask(self, round_: int, ask: Ask) -> Iterator[tuple[str, Arrays]]:
            raise lost

    class Kept:
        def __init__(self) -> None:
            self.outcomes: list[Replies | SiteLost] = []

        def replay(self, round_: int, ask: Ask) -> Replies | SiteLost | None:
            return None

        def keep(self, round_: int, ask: Ask, outcome: Replies | SiteLost) -> None:
            self.outcomes.append(outcome)

    def surviving() -> Protocol[str]:
        try:
            yield Ask("x")
        except SiteLost:
            return "went on"
        return "lost nobody"

    ended, survived = Kept(), Kept()
    with pytest.raises(SiteLost):
        drive(replying(Ask("x")), Losing(), ended)
    assert ended.outcomes == []
    assert drive(surviving(), Losing(), survived) == "went on"
    assert survived.outcomes == [lost]
