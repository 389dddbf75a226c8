"""Files that come late, twice, in another order, under another name, or altered."""

import logging
import os
import threading
from pathlib import Path

import pytest

from eigenfed.errors import DataError
from eigenfed.privacy.secagg.identity import Identity
from eigenfed.protocol.messages import Message
from eigenfed.transport.bundles import COORDINATOR, Bundle, name_site, sign_bundle
from eigenfed.transport.filedrop import DropConnection, DropInbox, from_site, to_site
from eigenfed.transport.signed import SignedConnection, SignedSite

MINE, THEIRS = Identity.generate(), Identity.generate()


class Counter:
    """A site that answers each message with its label, or refuses, and counts."""

    def __init__(self) -> None:
        self.answered: list[str] = []
        self.code = ""

    def answer(self, data: bytes) -> bytes:
        message = Message.from_bytes(data, "open", "request", "close")
        self.answered.append(f"{message.kind} {message.round_}")
        if self.code:
            return Message("refusal", message.run, message.round_, self.code, {}).to_bytes()
        return Message("reply", message.run, message.round_, message.label, {}).to_bytes()


def ask(round_: int, kind: str = "request", run: str = "r1") -> bytes:
    label = {"open": "open", "close": "close"}.get(kind, "product")
    message = Message(kind, run, round_, label, {}).to_bytes()
    return sign_bundle(message, MINE, sender=COORDINATOR, recipient=name_site("north"))


@pytest.fixture
def site() -> Counter:
    return Counter()


@pytest.fixture
def inbox(tmp_path: Path, site: Counter) -> DropInbox:
    signed = SignedSite(site, name="north", identity=THEIRS, coordinator=MINE.public)
    return DropInbox(tmp_path, "north", signed)


def near(tmp_path: Path) -> DropConnection:
    return DropConnection(tmp_path, "north", threading.Event(), wait=False)


def test_a_reply_is_taken_when_it_is_there(tmp_path: Path, inbox: DropInbox) -> None:
    coordinator = near(tmp_path)
    with pytest.raises(ConnectionError, match=r"has not replied to r1-00000-product.request yet"):
        coordinator.answer(ask(0))
    assert inbox.answer_all() == 1
    reply = Bundle.from_bytes(coordinator.answer(ask(0)))
    assert reply.manifest.kind == "reply"
    assert reply.is_signed_by(THEIRS.public)


def test_requests_are_answered_in_order_and_once(
    tmp_path: Path, inbox: DropInbox, site: Counter
) -> None:
    folder = to_site(tmp_path, "north")
    named = {"a": ask(2), "b": ask(0), "c": ask(1), "d": ask(0, "open"), "e": ask(0, "close")}
    for name, data in named.items():
        (folder / f"{name}.request").write_bytes(data)
    (folder / "again.request").write_bytes(named["b"])
    assert inbox.answer_all() == 5
    assert site.answered == ["open 0", "request 0", "request 1", "request 2", "close 0"]
    assert inbox.answer_all() == 0


def test_a_restarted_site_answers_again_only_what_has_no_reply(
    tmp_path: Path, inbox: DropInbox, site: Counter
) -> None:
    folder = to_site(tmp_path, "north")
    for round_ in range(3):
        (folder / f"{round_}.request").write_bytes(ask(round_))
    inbox.answer_all()
    replies = sorted(from_site(tmp_path, "north").iterdir())
    replies[1].write_bytes(replies[1].read_bytes()[:-1])
    site.answered.clear()
    signed = SignedSite(site, name="north", identity=THEIRS, coordinator=MINE.public)
    assert DropInbox(tmp_path, "north", signed).answer_all() == 1
    assert site.answered == ["request 1"]


def test_an_altered_request_is_reported_once_and_counts_when_it_comes_again(
    tmp_path: Path, inbox: DropInbox, caplog: pytest.LogCaptureFixture
) -> None:
    path = to_site(tmp_path, "north") / "x.request"
    path.write_bytes(ask(0)[:-3])
    with caplog.at_level(logging.WARNING):
        assert inbox.answer_all() == inbox.answer_all() == 0
    assert caplog.messages == ["x.request is incomplete or was altered, and is ignored"]
    path.write_bytes(ask(0))
    assert inbox.answer_all() == 1


def test_a_reply_may_have_any_name_and_an_altered_one_is_waited_for(
    tmp_path: Path, inbox: DropInbox
) -> None:
    coordinator = near(tmp_path)
    with pytest.raises(ConnectionError):
        coordinator.answer(ask(0))
    inbox.answer_all()
    (reply,) = from_site(tmp_path, "north").iterdir()
    data = reply.read_bytes()
    reply.unlink()
    other = reply.with_name("by courier.reply")
    other.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(ConnectionError):
        coordinator.answer(ask(0))
    other.write_bytes(data + b"")
    assert coordinator.answer(ask(0)) == data


def test_waiting_ends_when_it_is_told_to(tmp_path: Path) -> None:
    stop = threading.Event()
    coordinator = DropConnection(tmp_path, "north", stop)
    threading.Timer(0.3, stop.set).start()
    with pytest.raises(ConnectionError):
        coordinator.answer(ask(0))


def test_files_of_a_run_that_is_over_are_removed(tmp_path: Path, inbox: DropInbox) -> None:
    coordinator = near(tmp_path)
    for run in ("r1", "r2"):
        with pytest.raises(ConnectionError):
            coordinator.answer(ask(0, run=run))
    inbox.answer_all()
    coordinator.clear("r1")
    left = [path.name for path in sorted(tmp_path.rglob("*")) if path.is_file()]
    assert left == ["r2-00000-product.reply", "r2-00000-product.request"]


def test_a_site_serves_until_it_is_stopped_and_outlives_a_folder_that_is_away(
    tmp_path: Path, site: Counter
) -> None:
    failures = [OSError(28, "No space left on device")]

    class Flaky:
        def answer(self, data: bytes) -> bytes:
            if failures:
                raise failures.pop()
            stop.set()
            return SignedSite(site, name="north", identity=THEIRS, coordinator=MINE.public).answer(
                data
            )

    inbox, stop = DropInbox(tmp_path, "north", Flaky()), threading.Event()
    (to_site(tmp_path, "north") / "x.request").write_bytes(ask(0))
    inbox.serve(stop)
    assert [path.name for path in from_site(tmp_path, "north").iterdir()] == [
        "r1-00000-product.reply"
    ]


def test_names_of_files_hold_nothing_but_run_round_and_operation(tmp_path: Path) -> None:
    with pytest.raises(ConnectionError):
        near(tmp_path).answer(ask(7, run="../../../etc/x y"))
    (path,) = to_site(tmp_path, "north").iterdir()
    assert path.name == "_________etc_x_y-00007-product.request"


def test_a_forged_operation_leads_to_no_other_folder(tmp_path: Path, inbox: DropInbox) -> None:
    message = Message("request", "r1", 0, "../../../escape", {}).to_bytes()
    forged = sign_bundle(
        message, Identity.generate(), sender=COORDINATOR, recipient=name_site("north")
    )
    (to_site(tmp_path, "north") / "x.request").write_bytes(forged)
    assert inbox.answer_all() == 1
    (reply,) = from_site(tmp_path, "north").iterdir()
    assert Bundle.from_bytes(reply.read_bytes()).manifest.operation == "unsigned"
    assert not list(tmp_path.parent.glob("escape*"))


@pytest.mark.parametrize("name", ["a", "z"])
def test_another_signature_on_a_request_is_no_answer_to_it(
    name: str, tmp_path: Path, inbox: DropInbox, site: Counter
) -> None:
    coordinator = SignedConnection(
        near(tmp_path), site="north", identity=MINE, public=THEIRS.public
    )
    bundle = Bundle.from_bytes(ask(0))
    with pytest.raises(ConnectionError):
        coordinator.answer(bundle.message)
    copy = to_site(tmp_path, "north") / f"{name}.request"
    copy.write_bytes(Bundle(bundle.manifest, bytes(64), bundle.message).to_bytes())
    assert inbox.answer_all() == (2 if name == "a" else 1)
    assert inbox.answer_all() == 0
    answer = coordinator.answer(bundle.message)
    assert Message.from_bytes(answer, "reply", "refusal").kind == "reply"
    assert site.answered == ["request 0"]


def test_a_coordinator_with_another_key_is_told_so(tmp_path: Path, inbox: DropInbox) -> None:
    stranger = Identity.generate()
    coordinator = SignedConnection(
        near(tmp_path), site="north", identity=stranger, public=THEIRS.public
    )
    message = Bundle.from_bytes(ask(0)).message
    with pytest.raises(ConnectionError):
        coordinator.answer(message)
    assert inbox.answer_all() == 1
    refused = Message.from_bytes(coordinator.answer(message), "reply", "refusal")
    assert (refused.kind, refused.label) == ("refusal", "unsigned")


def test_a_refused_request_is_answered_when_it_comes_again(
    tmp_path: Path, inbox: DropInbox, site: Counter
) -> None:
    coordinator = near(tmp_path)
    signed = SignedSite(site, name="north", identity=THEIRS, coordinator=MINE.public)
    site.code = "unapproved"
    with pytest.raises(ConnectionError):
        coordinator.answer(ask(0))
    assert inbox.answer_all() == 1
    site.code = ""
    # Nobody asks again, and what is there is the answer.
    for end in (inbox, DropInbox(tmp_path, "north", signed)):
        assert end.answer_all() == 0
    assert Bundle.from_bytes(coordinator.answer(ask(0))).manifest.kind == "refusal"
    coordinator.forget_refusal()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    with pytest.raises(ConnectionError):
        coordinator.answer(ask(0))
    assert inbox.answer_all() == 1
    assert Bundle.from_bytes(coordinator.answer(ask(0))).manifest.kind == "reply"
    coordinator.forget_refusal()
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 2


def test_a_courier_brings_a_refused_request_again(
    tmp_path: Path, inbox: DropInbox, site: Counter
) -> None:
    request = to_site(tmp_path, "north") / "a.request"
    request.write_bytes(ask(0))
    site.code = "unready"
    assert inbox.answer_all() == 1
    site.code = ""
    (reply,) = from_site(tmp_path, "north").iterdir()
    later = reply.stat().st_mtime_ns + 1_000_000
    os.utime(request, ns=(later, later))
    assert inbox.answer_all() == 1
    assert Bundle.from_bytes(reply.read_bytes()).manifest.kind == "reply"
    os.utime(request, ns=(later + 1, later + 1))
    assert inbox.answer_all() == 0


def test_a_reply_that_cannot_be_written_holds_up_no_other(
    tmp_path: Path, inbox: DropInbox, site: Counter
) -> None:
    folder = to_site(tmp_path, "north")
    (folder / "a.request").write_bytes(ask(0))
    (folder / "b.request").write_bytes(ask(1))
    (from_site(tmp_path, "north") / "r1-00000-product.reply").mkdir()
    with pytest.raises(IsADirectoryError):
        inbox.answer_all()
    assert site.answered == ["request 0", "request 1"]
    assert (from_site(tmp_path, "north") / "r1-00001-product.reply").is_file()


def test_no_name_of_a_run_makes_a_file_that_a_folder_cannot_hold(
    tmp_path: Path, inbox: DropInbox
) -> None:
    folder = to_site(tmp_path, "north")
    (folder / "a.request").write_bytes(ask(0, run="\U0001d400" * 5000))
    (folder / "b.request").write_bytes(ask(1))
    assert inbox.answer_all() == 2
    names = {path.name for path in from_site(tmp_path, "north").iterdir()}
    assert names == {f"{'_' * 64}-00000-product.reply", "r1-00001-product.reply"}


def test_a_pipe_in_the_folder_is_not_waited_for(tmp_path: Path, inbox: DropInbox) -> None:
    here, there = to_site(tmp_path, "north"), from_site(tmp_path, "north")
    os.mkfifo(here / "a.request")
    os.mkfifo(there / "a.reply")
    os.mkfifo(there / "r1-00000-product.reply")
    coordinator = near(tmp_path)
    with pytest.raises(ConnectionError):
        coordinator.answer(ask(0))
    assert inbox.answer_all() == 1
    assert Bundle.from_bytes(coordinator.answer(ask(0))).manifest.kind == "reply"


def test_what_is_no_bundle_is_not_carried(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        near(tmp_path).answer(b"no bundle")
