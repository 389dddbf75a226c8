"""A site's end and the coordinator's, with no engine: what they do when it comes and goes."""

import select
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eigenfed.errors import ProtocolError
from eigenfed.transport.nvflare import hub as hubs
from eigenfed.transport.nvflare import kits
from eigenfed.transport.nvflare import node as nodes
from eigenfed.transport.nvflare.handshake import Unreachable
from eigenfed.transport.nvflare.hub import NvflareHub
from eigenfed.transport.nvflare.node import NvflareNode
from eigenfed.transport.nvflare.wire import FrameSocket, connect_to


class Engine:
    """Stands for FLARE's server or client."""

    def __init__(self) -> None:
        self.running = True
        self.ended = False

    def is_running(self) -> bool:
        return self.running

    def end(self) -> None:
        self.running, self.ended = False, True


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ends")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    where: dict[str, Any] = {"study": "Herz", "host": "127.0.0.1", "port": port}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kits, "KEY_BITS", 2048)
        kits.create_authority(folder / "authority", study="Herz")
        kits.create_server_kit(folder / "authority", folder / "server", **where)
        request = kits.create_certificate_request(folder / "north", site="north")
        kits.create_site_kit(
            folder / "north",
            folder / "north/kit",
            site="north",
            certificate=kits.sign_certificate_request(folder / "authority", request, site="north"),
            root=kits.root_certificate(folder / "authority"),
            **where,
        )
    return folder


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[Engine]:
    """The engines that are started, one after the other; all waits are short."""
    started: list[Engine] = []

    def start(*_: object, **__: object) -> Engine:
        started.append(Engine())
        return started[-1]

    for module in (hubs, nodes):
        monkeypatch.setattr(module, "start_engine", start)
        monkeypatch.setattr(module, "_TICK_S", 0.01)
    monkeypatch.setattr(nodes, "_RETRY_S", 0.01)
    return started


def wait_until(condition: Any) -> None:
    until = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.fixture
def notices() -> list[str]:
    return []


@pytest.fixture
def node(
    folder: Path,
    tmp_path: Path,
    engines: list[Engine],
    notices: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[NvflareNode]:
    monkeypatch.setattr(nodes, "check_connection", lambda kit: None)

    def answer(data: bytes) -> bytes:
        return bytes([1 // len(data)]) + data

    node = NvflareNode(
        folder / "north/kit",
        answer,
        home=tmp_path / "home",
        log=tmp_path / "log",
        notice=notices.append,
    )
    with node:
        yield node
    assert all(engine.ended for engine in engines)


def test_a_node_answers_and_is_there_while_it_works(node: NvflareNode, tmp_path: Path) -> None:
    assert node.state() == "not started"
    far = connect_to(tmp_path / "home/node.sock", 5.0)
    far.send({"do": "ping", "heard": False})
    assert far.receive()[0] == {"is": "here"}
    assert node.state() == "not started"
    far.send({"do": "ping", "heard": True})
    far.receive()
    assert node.state().startswith("connected to 127.0.0.1:")
    for data, kind, reply in ((b"a", "answer", b"\1a"), (b"", "failure", b"")):
        far.send({"do": "ask"}, data)
        header, body = far.receive()
        assert (header, bytes(body)) == ({"is": kind}, reply)
    far.send({"what": 1})
    with pytest.raises(ConnectionError):
        far.receive()
    far.close()


def test_a_client_that_ends_is_started_again_until_the_node_is_stopped(
    node: NvflareNode, engines: list[Engine], notices: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = threading.Event()
    running = threading.Thread(target=node.run, args=(stop,))
    running.start()
    wait_until(lambda: len(engines) == 1)
    wait_until(lambda: node.state().startswith("connecting to"))
    engines[0].running = False
    wait_until(lambda: len(engines) == 2)
    assert notices == ["The client of FLARE ended, and is started again."]
    monkeypatch.setattr(nodes, "_STUCK_S", 0.0)
    wait_until(lambda: len(engines) > 2)
    assert "Nothing is heard of the coordinator" in notices[-1]
    monkeypatch.setattr(nodes, "_STUCK_S", 99.0)

    def refuse(kit: Path) -> None:
        raise Unreachable("The coordinator is away.")

    # A client that has lost its server is ended; the server is waited for.
    monkeypatch.setattr(nodes, "check_connection", refuse)
    monkeypatch.setattr(nodes, "_HEARD_S", 0.0)
    monkeypatch.setattr(nodes, "_PROBE_S", 0.0)
    wait_until(lambda: node.state() == "The coordinator is away.")
    assert engines[-1].ended
    assert notices.count("The coordinator is away.") == 1
    # Nor does a full disk end the node.
    monkeypatch.setattr(nodes, "check_connection", lambda kit: None)
    monkeypatch.setattr(nodes, "prepare_home", fill_disk)
    wait_until(lambda: notices[-1] == "The client of FLARE cannot be started (No space left).")
    stop.set()
    running.join(10.0)
    assert not running.is_alive()


@pytest.mark.parametrize(
    "said",
    [b"CLIENT: finished connection\n", b"re-challenge after 2.0 seconds\n" * 3],
    ids=["hung up on", "not answered"],
)
def test_a_client_that_is_never_registered_is_reported(
    node: NvflareNode, engines: list[Engine], notices: list[str], tmp_path: Path, said: bytes
) -> None:
    stop = threading.Event()
    running = threading.Thread(target=node.run, args=(stop,))
    running.start()
    try:
        wait_until(lambda: len(engines) == 1)
        (tmp_path / "log").write_bytes(said)
        wait_until(lambda: notices)
        assert notices[0].startswith("The coordinator does not register site 'north': ")
        assert node.state() == notices[0]
    finally:
        stop.set()
        running.join(60.0)


def fill_disk(*_: object) -> None:
    raise OSError(28, "No space left")


def test_a_node_that_is_refused_gives_up(
    node: NvflareNode, engines: list[Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(kit: Path) -> None:
        raise ConnectionError("The coordinator refused the certificate of this kit.")

    monkeypatch.setattr(nodes, "check_connection", refuse)
    with pytest.raises(ConnectionError, match="refused the certificate"):
        node.run(threading.Event())
    assert engines == []


class Launcher:
    """Connects to the hub as the server's launcher and its controllers do."""

    def __init__(self, home: Path) -> None:
        self.path = home / "hub.sock"
        wait_until(self._is_connected)
        self.socket.send({"from": "launcher"})

    def _is_connected(self) -> bool:
        try:
            self.socket = connect_to(self.path, 10.0)
        except ConnectionError:
            return False
        return True

    def controller(self) -> FrameSocket:
        far = connect_to(self.path, 10.0)
        far.send({"from": "controller"})
        return far


@pytest.fixture
def hub(folder: Path, tmp_path: Path, engines: list[Engine], notices: list[str]) -> NvflareHub:
    return NvflareHub(
        folder / "server",
        ["north"],
        home=tmp_path / "home",
        log=tmp_path / "log",
        notice=notices.append,
    )


def launched(hub: NvflareHub, home: Path) -> Launcher:
    """Enter a hub, whose server must answer for that."""
    found: list[Launcher] = []
    thread = threading.Thread(target=lambda: found.append(Launcher(home)))
    thread.start()
    hub.__enter__()
    thread.join()
    return found[0]


def test_a_hub_asks_for_a_relay_and_of_two_uses_the_newer(
    hub: NvflareHub, tmp_path: Path, notices: list[str]
) -> None:
    server = launched(hub, tmp_path / "home")
    try:
        server.socket.send({"is": "connected", "sites": {"north": 0.5, "west": 0.5}})
        assert server.socket.receive()[0] == {"sites": ["north"]}
        assert notices == ["Site 'west' is connected, but is no site of this study."]
        old = server.controller()
        old.send({"is": "beat", "site": "north"})
        old.send({"is": "beat", "site": "west"})
        assert hub.wait_for(["north"], timeout_s=10.0) == {"north"}
        replies: list[bytes] = []
        asking = threading.Thread(
            target=lambda: replies.append(hub.connect("north").answer(b"data"))
        )
        asking.start()
        header, body = old.receive()
        assert bytes(body) == b"data"
        new = server.controller()
        new.send({"is": "beat", "site": "north"})
        with pytest.raises(ConnectionError):  # it serves nobody any more
            old.receive()
        again, body = new.receive()
        assert (again, bytes(body)) == (header, b"data")
        new.send({"is": "unreached"} | header)
        new.send({"is": "beat", "site": "north"})
        assert new.receive()[0] == header
        new.send({"is": "answered"} | header, b"reply")
        asking.join(10.0)
        assert replies == [b"reply"]
        for far in (old, new):
            far.close()
        # FLARE's client may be gone as well: it has to be heard of after the loss.
        wait_until(lambda: hub.present() == frozenset())
        server.socket.send({"is": "connected", "sites": {"north": 5.0}})
        assert select.select([server.socket._socket], [], [], 0.2)[0] == []
        server.socket.send({"is": "connected", "sites": {"north": 0.0}})
        assert server.socket.receive()[0] == {"sites": ["north"]}
    finally:
        hub.__exit__()
    server.socket.close()


def test_a_hub_tells_a_fault_from_silence_and_its_own_end(
    hub: NvflareHub,
    tmp_path: Path,
    engines: list[Engine],
    notices: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = launched(hub, tmp_path / "home")
    controller = server.controller()
    controller.send({"is": "beat", "site": "north"})
    assert hub.wait_for(["north"], timeout_s=10.0) == {"north"}
    said: list[str] = []

    def ask() -> None:
        try:
            hub.connect("north").answer(b"data")
        except ConnectionError as error:
            said.append(str(error))

    asking = threading.Thread(target=ask)
    asking.start()
    controller.send({"is": "failed"} | controller.receive()[0])
    asking.join(10.0)
    controller.close()
    server.socket.close()
    wait_until(lambda: hub.present() == frozenset())
    monkeypatch.setattr(hub, "_silence_s", 0.0)
    ask()
    monkeypatch.setattr(hub, "_silence_s", 99.0)
    with monkeypatch.context() as full:
        full.setattr(hubs, "prepare_home", fill_disk)
        full.setattr(hubs, "_RETRY_S", 0.01)
        engines[0].running = False
        wait_until(lambda: "The server of FLARE cannot be started (No space left)." in notices)
    wait_until(lambda: len(engines) == 2)
    asking = threading.Thread(target=ask)
    asking.start()
    hub.__exit__()
    asking.join(10.0)
    assert said[0] == "Site 'north' could not answer."
    assert said[1].startswith("Nothing was heard of site 'north' for ")
    assert said[2] == "The connection to all sites is closed."


def test_a_server_that_does_not_start_leaves_nothing_behind(
    hub: NvflareHub, tmp_path: Path, engines: list[Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hubs, "_START_S", 0.05)
    with pytest.raises(ProtocolError, match=r"did not start\. log has its last words"):
        hub.__enter__()
    assert engines[0].ended
    assert not (tmp_path / "home/hub.sock").exists()
