"""The loop that runs a protocol: sums, losses, quorums, records, and the digest of a call."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from eigenfed.arrays import Array, Arrays
from eigenfed.errors import InputError, ProtocolError, SiteLost, SiteRefused
from eigenfed.privacy.policy import Policy
from eigenfed.protocol.core import TOTAL, Call, Protocol, Replies, call_each, drive, plain_sum
from eigenfed.protocol.exact.moments import MomentsRequest, collect_moments
from eigenfed.protocol.messages import Message
from eigenfed.protocol.operations import Request
from eigenfed.transport.local import LocalTransport
from federation import gate, gates, opened, study_of

# Their sum depends on the order: 1 is lost beside 1e16 unless the large ones meet first.
VALUES = {"a": 1e16, "b": 1.0, "c": -1e16, "d": 1.0}
IN_ORDER = ((1e16 + 1.0) - 1e16) + 1.0


@dataclass(frozen=True, eq=False)
class Numbers:
    """Some numbers."""

    x: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class Plain(Request[Numbers]):
    """Carries numbers, or none, and requests some."""

    x: Array | None = None
    y: Array | None = None

    op, reply = "x", Numbers


class Scripted:
    """A transport that answers from a table, or raises what the table holds."""

    def __init__(self, *rounds: Replies | Exception) -> None:
        self.rounds = rounds
        self.asked: list[tuple[int, Call[Any]]] = []

    @property
    def sites(self) -> tuple[str, ...]:
        return ("a", "b")

    def exchange(self, round_: int, call: Call[Any]) -> Iterator[tuple[str, Arrays]]:
        self.asked.append((round_, call))
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
        call = Message.from_bytes(data, "request")
        if self.name in self.chained.before:
            assert self.chained.done[self.chained.before[self.name]].wait(30)
        self.chained.finished.append(self.name)
        self.chained.done[self.name].set()
        value = {"x": np.array([VALUES[self.name]])}
        return Message("reply", call.run, call.round_, call.label, value).to_bytes()


class Fixed:
    """A site that always replies the same, or cannot be reached."""

    def __init__(self, reply: Arrays | None) -> None:
        self.reply = reply
        self.calls: list[Message] = []

    def answer(self, data: bytes) -> bytes:
        call = Message.from_bytes(data, "request")
        self.calls.append(call)
        if self.reply is None:
            raise ConnectionError
        return Message("reply", call.run, call.round_, call.label, self.reply).to_bytes()


def one(value: float) -> Arrays:
    return {"x": np.array([float(value)])}


def x(value: float | None = None, **how: Any) -> Call[Numbers]:
    """A call for numbers, which may carry one."""
    return Call(Plain(x=None if value is None else np.array([value])), **how)


def summing(call: Call[Numbers]) -> Protocol[Array]:
    return (yield from plain_sum(call)).x


def replying(call: Call[Numbers]) -> Protocol[dict[str, Numbers]]:
    return (yield from call_each(call))


@pytest.mark.parametrize("order", ["abcd", "dcba", "cadb"])
def test_sums_are_made_in_sorted_order_whatever_finishes_first(order: str) -> None:
    chained = Chained(order)
    transport = LocalTransport({name: chained.site(name) for name in "dbca"}, workers=4)
    total = drive(summing(x()), transport)
    assert chained.finished == list(order)
    np.testing.assert_array_equal(total, [IN_ORDER])
    assert sum(VALUES.values()) == IN_ORDER != np.sort(list(VALUES.values())).sum()


def test_replies_come_by_site_in_sorted_order() -> None:
    transport = LocalTransport({name: Fixed(one(VALUES[name])) for name in "cadb"})
    replies = drive(replying(x()), transport)
    assert list(replies) == ["a", "b", "c", "d"]
    assert {name: reply.x[0] for name, reply in replies.items()} == VALUES


def test_a_sum_does_not_change_the_replies_it_is_made_of() -> None:
    first, second = one(1.0), one(2.0)
    assert drive(summing(x()), Scripted({"a": first, "b": second})) == 3.0
    assert [float(reply["x"][0]) for reply in (first, second)] == [1.0, 2.0]


def test_rounds_count_up_and_the_result_is_returned() -> None:
    def thrice() -> Protocol[list[float]]:
        found = []
        for i in range(3):
            total = yield from plain_sum(x(i))
            found.append(float(total.x[0]))
        return found

    transport = Scripted(*({"a": one(i), "b": one(10 * i)} for i in range(3)))
    assert drive(thrice(), transport) == [0.0, 11.0, 22.0]
    assert [round_ for round_, _ in transport.asked] == [0, 1, 2]
    assert all(call.summed for _, call in transport.asked)


def test_a_protocol_that_asks_nothing_ends() -> None:
    def silent() -> Protocol[str]:
        if TOTAL:
            yield x()
        return "done"

    assert drive(silent(), Scripted()) == "done"


def test_a_lost_site_is_thrown_in_and_survived() -> None:
    def surviving() -> Protocol[tuple[tuple[str, ...], float]]:
        try:
            yield from plain_sum(x())
        except SiteLost as lost:
            rest = yield from plain_sum(x(to=("a",)))
            return lost.sites, float(rest.x[0])
        raise AssertionError

    transport = LocalTransport({"a": Fixed(one(5.0)), "b": Fixed(None)})
    assert drive(surviving(), transport) == (("b",), 5.0)


def test_a_lost_site_that_is_not_survived_ends_the_run() -> None:
    transport = LocalTransport({"a": Fixed(one(5.0)), "b": Fixed(None), "c": Fixed(None)})
    with pytest.raises(SiteLost, match="No answer from b, c to 'x' in round 0") as caught:
        drive(summing(x()), transport)
    assert caught.value.sites == ("b", "c")


@pytest.mark.parametrize(("quorum", "enough"), [(1, True), (2, True), (3, False), (None, False)])
def test_a_quorum_says_how_many_are_enough(quorum: int | None, enough: bool) -> None:
    sites = {"a": Fixed(one(1.0)), "b": Fixed(None), "c": Fixed(one(4.0))}
    call = x(quorum=quorum)
    if enough:
        assert drive(summing(call), LocalTransport(sites)) == 5.0
        assert list(drive(replying(call), LocalTransport(sites))) == ["a", "c"]
    else:
        with pytest.raises(SiteLost, match="No answer from b"):
            drive(summing(call), LocalTransport(sites))


def test_a_site_past_its_deadline_is_lost() -> None:
    chained = Chained("ab")
    transport = LocalTransport({name: chained.site(name) for name in "ab"}, workers=2)
    # The first waits for ever: nobody sets what it waits for until the end of the test.
    chained.before["a"] = "never"
    chained.done["never"] = threading.Event()
    try:
        with pytest.raises(SiteLost, match="No answer from a, b"):
            drive(summing(x(deadline_s=0.05)), transport)
    finally:
        chained.done["never"].set()


class Threaded(Fixed):
    """A site that notes on which threads it answers."""

    def __init__(self, threads: set[threading.Thread]) -> None:
        super().__init__(one(1.0))
        self.threads = threads

    def answer(self, data: bytes) -> bytes:
        self.threads.add(threading.current_thread())
        return super().answer(data)


def test_rounds_share_their_threads_which_end_with_the_transport() -> None:
    threads: set[threading.Thread] = set()
    transport = LocalTransport({name: Threaded(threads) for name in "abc"}, workers=2)

    def add_up() -> Protocol[float]:
        total = 0.0
        for _ in range(20):
            total += float((yield from summing(x()))[0])
        return total

    assert drive(add_up(), transport) == 60.0
    assert 1 <= len(threads) <= 2
    transport.close()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert drive(summing(x()), transport) == 3.0
    transport.close()


def test_only_those_named_are_asked_and_each_gets_its_own() -> None:
    sites = {name: Fixed(one(1.0)) for name in "abc"}
    own = Plain(x=np.array([7.0]), y=np.array([8.0]))
    call = replace(x(7.0, to=("a", "c")), each={"c": own}, each_envelope={"c": one(9.0)})
    assert list(drive(replying(call), LocalTransport(sites))) == ["a", "c"]
    assert sites["b"].calls == []
    assert list(sites["a"].calls[0].arrays) == ["x"]
    assert list(sites["c"].calls[0].arrays) == ["x", "y"]
    np.testing.assert_array_equal(sites["c"].calls[0].arrays["x"], [9.0])
    np.testing.assert_array_equal(call.for_site("c")["y"], [8.0])


class Ending:
    """A protocol that notes how it ended."""

    def __init__(self) -> None:
        self.ended = ""

    def run(self) -> Protocol[None]:
        try:
            yield x()
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
        yield x()
        raise ZeroDivisionError

    protocol = failing()
    with pytest.raises(ZeroDivisionError):
        drive(protocol, Scripted({"a": one(1.0)}))
    with pytest.raises(StopIteration):
        next(protocol)


def test_a_refusal_names_site_code_operation_and_round() -> None:
    sites = gates({"a": np.eye(3), "b": np.eye(3)}, policies={"b": Policy(max_rounds=1)})
    transport = opened(sites, study_of("ab", 1, scale=True))
    with pytest.raises(SiteRefused, match=r"Site 'b' refused 'squares' in round 1.*'rounds'"):
        drive(collect_moments(plain_sum, study_of("ab", 1, scale=True)), transport)


def test_a_study_that_a_site_does_not_take_is_refused_before_anything_is_asked() -> None:
    policies = {"b": Policy(methods=frozenset({"krylov"}))}
    sites = gates({"a": np.eye(3), "b": np.eye(3)}, policies=policies)
    transport = opened(sites, study_of("ab", 1, "covariance"))
    with pytest.raises(SiteRefused, match=r"Site 'b' refused 'open' in round 0.*'method'"):
        drive(replying(Call(MomentsRequest())), transport)  # type: ignore[arg-type]
    assert sites["b"].egress == []


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"x": np.zeros(3)}, r"'b' has 'x' of shape \(3,\) where others have \(2,\)"),
        ({"y": np.zeros(2)}, "'b' has different fields"),
        ({"x": np.zeros(2), "y": np.zeros(2)}, "'b' has different fields"),
        ({}, "'b' has different fields"),
    ],
)
def test_replies_that_do_not_fit_are_refused(second: Arrays, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        drive(summing(x()), Scripted({"a": {"x": np.zeros(2)}, "b": second}))


def test_a_scalar_does_not_spread_over_a_sum() -> None:
    with pytest.raises(ProtocolError, match="shape"):
        drive(summing(x()), Scripted({"a": {"x": np.zeros(2)}, "b": {"x": np.zeros(())}}))


class Notes:
    """A record in memory."""

    def __init__(self) -> None:
        self.kept: dict[int, tuple[str, Replies | SiteLost]] = {}

    def replay(self, round_: int, call: Call[Any]) -> Replies | SiteLost | None:
        if round_ not in self.kept:
            return None
        digest, outcome = self.kept[round_]
        assert digest == call.digest()
        return outcome

    def keep(self, round_: int, call: Call[Any], outcome: Replies | SiteLost) -> None:
        self.kept[round_] = call.digest(), outcome


def test_a_record_is_replayed_with_its_losses_and_continued() -> None:
    def three() -> Protocol[list[float]]:
        found = []
        for i in range(3):
            try:
                total = yield from plain_sum(x(i))
            except SiteLost:
                found.append(-1.0)
            else:
                found.append(float(total.x[0]))
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Other(Plain):
    """The same under another name."""

    op = "y"


def some_calls() -> list[Call[Any]]:
    v: Array = np.array([1.0, 2.0])
    plain = Call(Plain(x=v))
    same, turned = Plain(x=v), Plain(x=-v)
    return [
        plain,
        replace(plain, request=Other(x=v)),
        replace(plain, request=Plain()),
        replace(plain, request=Plain(y=v)),
        replace(plain, request=Plain(x=v + 1e-15)),
        replace(plain, request=Plain(x=v.astype(np.float32))),
        replace(plain, request=Plain(x=v[:, None])),
        replace(plain, request=Plain(x=v, y=v)),
        replace(plain, each={"a": same}),
        replace(plain, each={"b": same}),
        replace(plain, each={"a": turned}),
        replace(plain, each={"a": same, "b": same}),
        replace(plain, request=Plain(), each={"a": same}),
        replace(plain, envelope={"secure.number": v}),
        replace(plain, envelope={"secure.number": -v}),
        replace(plain, each_envelope={"a": {"secure.shares": v}}),
        replace(plain, each_envelope={"b": {"secure.shares": v}}),
        replace(plain, to=("a",)),
        replace(plain, to=("a", "b")),
        replace(plain, to=()),
        replace(plain, summed=True),
    ]


def test_the_digest_changes_with_everything_that_is_asked() -> None:
    digests = [call.digest() for call in some_calls()]
    assert len(set(digests)) == len(digests)
    assert digests == [call.digest() for call in some_calls()]


def test_the_digest_does_not_change_with_what_is_never_sent() -> None:
    plain = some_calls()[0]
    kept = replace(plain, quorum=2, deadline_s=5.0, angle=0.1, mu=1.0, largest=8)
    assert kept.digest() == plain.digest()


def test_a_transport_without_sites_is_refused() -> None:
    with pytest.raises(InputError, match="at least one site"):
        LocalTransport({})


def test_a_transport_counts_what_crosses() -> None:
    sites = {"a": Fixed({"x": np.zeros((2, 3))}), "b": Fixed({"x": np.zeros((2, 3))})}
    transport = LocalTransport(sites)
    drive(summing(x(1.0)), transport)
    assert (transport.rounds, transport.floats_up) == (1, 12)
    run = sites["a"].calls[0].run
    reply = Message("reply", run, 0, "x", {"x": np.zeros((2, 3))}).to_bytes()
    call = Message("request", run, 0, "x", one(1.0)).to_bytes()
    assert (transport.bytes_up, transport.bytes_down) == (2 * len(reply), 2 * len(call))


def test_sites_that_are_not_there_cannot_be_asked() -> None:
    transport = LocalTransport({"a": Fixed(one(1.0))})
    with pytest.raises(ProtocolError, match=r"'x' is addressed to \['z'\], which are not sites"):
        drive(replying(x(to=("a", "z"))), transport)


class Elsewhere:
    """Answers another round than it was asked."""

    def answer(self, data: bytes) -> bytes:
        call = Message.from_bytes(data, "request")
        return Message("reply", call.run, call.round_ + 1, call.label, one(1.0)).to_bytes()


def test_a_reply_to_another_request_is_refused() -> None:
    with pytest.raises(
        ProtocolError, match="Site 'a' answered a request other than 'x' of round 0"
    ):
        drive(replying(x()), LocalTransport({"a": Elsewhere()}))


def test_no_rows_at_all_are_refused() -> None:
    study = study_of("a", 1)
    site = gate("a", np.zeros((0, 3)), policy=Policy(min_rows=0))
    with pytest.raises(ProtocolError, match="no rows of positive weight"):
        drive(collect_moments(plain_sum, study), opened({"a": site}, study))


@pytest.mark.parametrize(
    ("reply", "who"),
    [
        ({"y": np.zeros(1)}, "The reply of site 'a'"),
        ({"x": np.array([1])}, "The reply of site 'a'"),
    ],
)
def test_a_reply_of_another_type_is_refused_by_its_site(reply: Arrays, who: str) -> None:
    with pytest.raises(ProtocolError, match=f"{who} to 'x' does not have fields of the expected"):
        drive(replying(x()), Scripted({"a": reply, "b": one(1.0)}))
    with pytest.raises(ProtocolError, match="The sum of the replies to 'x' does not have"):
        drive(summing(x()), Scripted({"a": reply}))


def test_a_loss_is_recorded_only_once_it_was_survived() -> None:
    lost = SiteLost(("b",), "x", 0)

    class Losing:
        sites = ("a", "b")

        def exchange(self, round_: int, call: Call[Any]) -> Iterator[tuple[str, Arrays]]:
            raise lost

    class Kept:
        def __init__(self) -> None:
            self.outcomes: list[Replies | SiteLost] = []

        def replay(self, round_: int, call: Call[Any]) -> Replies | SiteLost | None:
            return None

        def keep(self, round_: int, call: Call[Any], outcome: Replies | SiteLost) -> None:
            self.outcomes.append(outcome)

    def surviving() -> Protocol[str]:
        try:
            yield x()
        except SiteLost:
            return "went on"
        return "lost nobody"

    ended, survived = Kept(), Kept()
    with pytest.raises(SiteLost):
        drive(replying(x()), Losing(), ended)
    assert ended.outcomes == []
    assert drive(surviving(), Losing(), survived) == "went on"
    assert survived.outcomes == [lost]
