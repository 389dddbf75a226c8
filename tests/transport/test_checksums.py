"""How often messages are checked: not within a process, and on every way out or into a ledger."""

import hashlib

import numpy as np
import pytest

from eigenfed import arrays
from eigenfed.errors import DataError
from eigenfed.privacy.ledger.events import Replied
from eigenfed.privacy.ledger.ledger import Ledger
from eigenfed.protocol.core import Call
from eigenfed.protocol.exact.moments import MomentsRequest
from eigenfed.protocol.messages import Message
from eigenfed.transport.local import Answering, LocalTransport
from federation import gate, opened, study_of, talk

ROWS = np.arange(12.0).reshape(4, 3)
CALL = Call(MomentsRequest())


class Elsewhere:
    """A way to a site, on which a bit of a reply may turn over once the run is open."""

    def __init__(self, *, damaged: bool = False) -> None:
        self._site = gate("a", ROWS)
        self._damaged = damaged

    def answer(self, data: bytes) -> bytes:
        reply = self._site.answer(data)
        is_opening = Message.from_bytes(data, "request", "open", intact=True).kind == "open"
        return turned(reply) if self._damaged and not is_opening else reply


def turned(data: bytes) -> bytes:
    """Turn over a bit of the last number before the checksum."""
    at = len(data) - 17
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The checksums made so far."""
    found: list[bytes] = []

    def digest(*pieces: bytes | memoryview) -> bytes:
        found.append(hashlib.sha256(b"".join(pieces)).digest()[:16])
        return found[-1]

    monkeypatch.setattr(arrays, "_digest", digest)
    return found


def transport(site: Answering, others: int = 0, ledger: Ledger | None = None) -> LocalTransport:
    """A run that is open at the site and at as many others as are wanted."""
    sites = {
        "a": site,
        **{f"b{i}": gate(f"b{i}", ROWS + i + 1, ledger=ledger) for i in range(others)},
    }
    study = study_of(sites, 1)
    run = opened(sites, study)
    opening, run._opening = run._opening, None
    assert opening is not None
    for each in sites.values():
        Message.from_bytes(each.answer(opening), "reply")
    return run


def test_in_one_process_no_message_has_a_checksum(made: list[bytes]) -> None:
    run = transport(gate("a", ROWS), others=3)
    made.clear()
    replies = dict(run.exchange(0, CALL))
    assert len(replies) == 4
    assert not made


def test_a_ledger_records_checksums_of_the_request_and_of_its_own_reply(made: list[bytes]) -> None:
    ledger = Ledger(None)
    run = transport(gate("a", ROWS), others=1, ledger=ledger)
    made.clear()
    dict(run.exchange(0, CALL))
    asked, replied, _meter = made
    (event,) = (event.what for event in ledger.events if isinstance(event.what, Replied))
    assert event.key.ask_digest == asked.hex()
    assert run.gates["a"].egress[0].digest == ""
    assert run.gates["b0"].egress[0].digest == event.digest
    assert asked != replied


def test_a_ledger_gets_the_checksum_of_a_request_that_came_without() -> None:
    ledger = Ledger(None)
    talking = talk(gate("a", ROWS, ledger=ledger), 1, "covariance")
    request = Message("request", talking.run, 0, "moments", {})
    talking.site.answer(request.to_bytes(sealed=False), intact=True)
    (event,) = (event.what for event in ledger.events if isinstance(event.what, Replied))
    assert event.key.ask_digest == arrays.checksum(request.to_bytes())


def test_without_checksums_another_request_in_the_same_round_is_not_taken_for_the_same() -> None:
    talking = talk(gate("a", ROWS), 1, "covariance")
    same, other = (
        Message("request", talking.run, 0, "moments", fields).to_bytes(sealed=False)
        for fields in ({}, {"x": np.ones(1)})
    )
    first = talking.site.answer(same, intact=True)
    assert talking.site.answer(bytes(bytearray(same)), intact=True) == first
    refused = Message.from_bytes(talking.site.answer(other, intact=True), "refusal")
    assert refused.label == "answered"
    assert len(talking.site.egress) == 1


def test_what_left_without_a_checksum_leaves_with_one_if_it_is_asked_for_from_elsewhere() -> None:
    talking = talk(gate("a", ROWS), 1, "covariance")
    call = talking.written(MomentsRequest(), 0)
    within, outside = (talking.site.answer(call, intact=intact) for intact in (True, False))
    with pytest.raises(DataError, match="checksum does not match"):
        Message.from_bytes(within, "reply")
    assert Message.from_bytes(outside, "reply").label == "moments"
    assert within[:-16] == outside[:-16]


def test_what_comes_from_elsewhere_is_checked_on_both_sides(made: list[bytes]) -> None:
    run = transport(Elsewhere())
    made.clear()
    replies = dict(run.exchange(0, CALL))
    np.testing.assert_array_equal(replies["a"]["total"], ROWS.sum(axis=0))
    assert len(made) == 4
    assert len(set(made)) == 2


def test_a_reply_that_was_damaged_on_the_way_is_refused() -> None:
    with pytest.raises(DataError, match="checksum does not match"):
        dict(transport(Elsewhere(damaged=True)).exchange(0, CALL))


def test_a_request_that_was_damaged_on_the_way_is_refused_by_the_site() -> None:
    talking = talk(gate("a", ROWS), 1, "covariance")
    call = Message("request", "r", 0, "moments", {"x": np.ones(1)}).to_bytes()
    refused = talking.answered(turned(call))
    assert (refused.kind, refused.label) == ("refusal", "malformed")
    assert not talking.site.egress


def test_egress_names_the_checksum_that_the_reply_ends_with() -> None:
    talking = talk(gate("a", ROWS), 1, "covariance")
    reply = talking.site.answer(talking.written(MomentsRequest(), 0))
    (left,) = talking.site.egress
    assert left.digest == hashlib.sha256(reply[:-16]).digest()[:16].hex()
