"""The relay's two halves, with an engine between them that loses and delays as it is told."""

import os
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from eigenfed.transport.nvflare import kits, launch, relay
from eigenfed.transport.nvflare.launch import RelayLauncher
from eigenfed.transport.nvflare.relay import RelayController, RelayExecutor
from eigenfed.transport.nvflare.wire import FrameSocket, listen_at


class Engine:
    """An engine of one site, in one process: it calls the other end's handler."""

    def __init__(self) -> None:
        self.handlers: dict[str, Any] = {}
        self.lost: list[str] = []
        self.sizes: list[int] = []

    @contextmanager
    def new_context(self) -> Iterator[Any]:
        peer = SimpleNamespace(get_identity_name=lambda: "north")
        yield SimpleNamespace(get_peer_context=lambda: peer, get_engine=lambda: self)

    def register_aux_message_handler(self, topic: str, handler: Any) -> None:
        self.handlers[topic] = handler

    def send_aux_request(self, topic: str, request: Shareable, fl_ctx: Any, **_: Any) -> Any:
        if self.lost:
            kind = self.lost.pop(0)
            if kind == "request":
                return {"north": make_reply(ReturnCode.TIMEOUT)}
            self.handlers[topic](topic=topic, request=request, fl_ctx=fl_ctx)
            if kind == "reply":
                return {}
        self.sizes.append(len(request.get("data", b"")))
        return {"north": self.handlers[topic](topic=topic, request=request, fl_ctx=fl_ctx)}


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """An engine with an executor, whose node reverses bytes after a while."""
    monkeypatch.setenv(relay.SOCKET, str(tmp_path / "node"))
    monkeypatch.setattr(relay, "_SLICE_S", 0.05)
    engine = Engine()
    listener = listen_at(tmp_path / "node")

    def serve(far: FrameSocket) -> None:
        data = bytes(far.receive()[1])
        if data == b"hang up":
            far.close()
            return
        time.sleep(0.2 if data == b"slow" else 0.0)
        kind = "failure" if data == b"fault" else "answer"
        far.send({"is": kind}, data[::-1])
        far.close()

    def accept() -> None:
        while True:
            try:
                connected, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(FrameSocket(connected),), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    monkeypatch.setattr(RelayExecutor, "_beat", lambda *_: None)
    monkeypatch.setattr(relay, "_exit_without", lambda *_: None)
    with engine.new_context() as context:
        RelayExecutor().handle_event(EventType.START_RUN, context)
        RelayExecutor().handle_event(EventType.END_RUN, context)
    yield engine
    listener.close()


def asked(engine: Engine, data: bytes) -> tuple[str, bytes]:
    controller = RelayController()
    controller._engine = engine
    outcome, reply = controller._ask("north", "key", bytearray(data), Signal())
    return outcome, bytes(reply)


def test_a_slow_answer_is_asked_for_in_slices_without_sending_the_data_again(
    engine: Engine,
) -> None:
    assert asked(engine, b"slow") == ("answered", b"wols")
    assert engine.sizes[0] == 4
    assert len(engine.sizes) > 2
    assert not any(engine.sizes[1:])


def test_a_large_answer_is_announced_and_fetched(engine: Engine) -> None:
    data = os.urandom((4 << 20) + 1)
    assert asked(engine, data) == ("answered", data[::-1])
    assert engine.sizes[0] == len(data)
    assert len(engine.sizes) > 1
    assert not any(engine.sizes[1:])


def test_outcomes_are_codes(engine: Engine) -> None:
    assert asked(engine, b"fault") == ("failed", b"")
    assert asked(engine, b"hang up") == ("unreached", b"")
    for kind in ("request", "reply"):
        engine.lost = [kind]
        assert asked(engine, b"ab") == ("unreached", b"")
        assert asked(engine, b"ab") == ("answered", b"ba")  # asked again, with the same key
    engine.lost = ["twice"]
    assert asked(engine, b"ab") == ("answered", b"ba")


def test_an_executor_that_was_started_again_is_sent_the_data_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = engine.handlers["eigenfed.ask"]

    def forget(**message: Any) -> Shareable:
        reply: Shareable = first(**message)
        with engine.new_context() as context:
            RelayExecutor().handle_event(EventType.START_RUN, context)
        return reply

    engine.handlers["eigenfed.ask"] = forget
    assert asked(engine, b"slow") == ("answered", b"wols")
    assert engine.sizes[:3] == [4, 0, 4]


def test_what_an_executor_raises_is_a_code(engine: Engine) -> None:
    with engine.new_context() as context:
        reply = engine.handlers["eigenfed.ask"](topic="", request=Shareable(), fl_ctx=context)
    assert reply["state"] == "failed"
    assert "key" not in str(reply)
    task = RelayExecutor().execute("any", Shareable(), context, Signal())
    assert task.get_return_code() == ReturnCode.TASK_UNKNOWN


def test_a_controller_passes_on_what_the_hub_asks_until_it_is_gone(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = os.environ[relay.SOCKET]
    monkeypatch.setenv(relay.SOCKET, str(tmp_path / "hub"))
    with listen_at(tmp_path / "hub") as listener, engine.new_context() as context:
        controller = RelayController()
        controller.start_controller(context)
        monkeypatch.setenv(relay.SOCKET, node)
        accepted, _ = listener.accept()
        hub = FrameSocket(accepted)
        assert hub.receive()[0] == {"from": "controller"}
        stop = Signal()
        flow = threading.Thread(target=controller.control_flow, args=(stop, context))
        flow.start()
        hub.send({"site": "north", "key": "k"}, b"ab")
        header, body = hub.receive()
        assert (header, bytes(body)) == ({"is": "answered", "site": "north", "key": "k"}, b"ba")
        monkeypatch.setattr(controller, "_ask", lambda *_: 1 / 0)
        hub.send({"site": "north", "key": "l"}, b"ab")
        header, body = hub.receive()
        assert (header, bytes(body)) == ({"is": "unreached", "site": "north", "key": "l"}, b"")
        assert RelayExecutor()._send_beat(engine)
        assert hub.receive()[0] == {"is": "beat", "site": "north"}
        engine.handlers.clear()
        assert not RelayExecutor()._send_beat(engine)
        hub.close()
        flow.join(10.0)
        assert not flow.is_alive()
        assert stop.triggered
        controller.process_result_of_unknown_task(None, "", "", Shareable(), context)
        controller.stop_controller(context)


def test_a_node_is_asked_whether_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(relay.SOCKET, str(tmp_path / "node"))
    assert relay._ping(None, heard=False) is None
    pings: list[bool] = []
    with listen_at(tmp_path / "node") as listener:

        def serve() -> None:
            accepted, _ = listener.accept()
            far = FrameSocket(accepted)
            for _ in range(2):
                pings.append(far.receive()[0]["heard"])
                far.send({"is": "here"})
            far.close()

        server = threading.Thread(target=serve)
        server.start()
        node = relay._ping(None, heard=False)
        assert node is not None
        assert relay._ping(node, heard=True) is node
        server.join()
        assert relay._ping(node, heard=True) is None
    assert pings == [False, True]


def test_a_job_process_ends_without_the_process_that_started_it() -> None:
    child = os.fork()
    if child == 0:
        relay._exit_without(os.getppid() + 1, lambda _: None)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 1
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) > 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        relay._exit_without(os.getppid(), wait)


def test_jobs_name_our_classes_and_are_signed_by_the_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nvflare.lighter.utils import verify_folder_signature_and_get_signers

    monkeypatch.setattr(kits, "KEY_BITS", 2048)
    kits.create_authority(tmp_path / "authority", study="Herz")
    kits.create_server_kit(
        tmp_path / "authority", tmp_path / "kit", study="Herz", host="localhost", port=8102
    )
    monkeypatch.setenv(relay.SOCKET, str(tmp_path / "hub"))
    monkeypatch.setattr(launch, "_EVERY_S", 0.01)
    created: list[tuple[dict[str, Any], bytes]] = []
    now = time.time()
    engine = Engine()
    engine.args = SimpleNamespace(workspace=str(tmp_path / "kit"))  # type: ignore[attr-defined]
    engine.get_clients = lambda: [  # type: ignore[attr-defined]
        SimpleNamespace(name="north", last_connect_time=now + 60),
        SimpleNamespace(name="south", last_connect_time=now - 60),
    ]
    engine.job_def_manager = SimpleNamespace(  # type: ignore[attr-defined]
        create=lambda meta, data, context: created.append((meta, data))
    )
    with listen_at(tmp_path / "hub") as listener, engine.new_context() as context:
        RelayLauncher().handle_event(EventType.SYSTEM_START, context)
        accepted, _ = listener.accept()
        hub = FrameSocket(accepted)
        assert hub.receive()[0] == {"from": "launcher"}
        assert hub.receive()[0] == {"is": "connected", "sites": {"north": 0.0}}
        hub.send({"sites": ["north"]})
        while not created:
            hub.receive()
        hub.close()
    [(meta, data)] = created
    assert meta["deploy_map"] == {"coordinator": ["server"], "site": ["north"]}
    assert (meta["submitter_role"], meta["min_clients"]) == ("lead", 1)
    zipfile.ZipFile(BytesIO(data)).extractall(tmp_path / "job")
    root = str(tmp_path / "kit/startup/rootCA.pem")
    assert verify_folder_signature_and_get_signers(str(tmp_path / "job/relay/site"), root) == (
        True,
        [("lead@eigenfed.invalid", "", "lead")],
    )
    named = (tmp_path / "job/relay/site/config/config_fed_client.json").read_text()
    assert '"eigenfed.transport.nvflare.relay.RelayExecutor"' in named
