"""A server and three sites in processes of their own, over real TLS on this machine.

One network serves all tests here, which kill its parts one after the other.
"""

import json
import os
import re
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from eigenfed.errors import ProtocolError
from eigenfed.transport.nvflare import kits
from eigenfed.transport.nvflare.handshake import TIMEOUT_S, Unreachable, check_connection
from eigenfed.transport.nvflare.hub import NvflareHub
from eigenfed.transport.nvflare.node import NvflareNode
from eigenfed.transport.nvflare.warden import Ward, descendants

SITES = ("east", "north", "south")
TOLD_S = 10.0
"""People are to be told of a refusal within so many seconds, on a machine that is not busy."""
NOT_TAKEN = (
    "The coordinator does not register site 'south': it does not take a site of this name from "
    "here. Ask there whom the certificate is for."
)
SITE = """
import logging, sys, threading
from pathlib import Path
from eigenfed.transport.nvflare.node import NvflareNode

def answer(data):
    if data == b"fault":
        raise ValueError("a secret of the site")
    return bytes(24 << 20) if data == b"flood" else data[::-1]

logging.basicConfig()
folder = Path(sys.argv[1])
where = {"home": folder / "home", "log": folder / "log"}
with NvflareNode(folder / "kit", answer, largest=lambda: 16 << 20, **where) as node:
    node.run(threading.Event())
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def create_kits(folder: Path, sites: tuple[str, ...], port: int) -> None:
    where = {"study": "Herz", "host": "127.0.0.1", "port": port}
    kits.create_authority(folder / "authority", study="Herz")
    kits.create_server_kit(folder / "authority", folder / "server", **where)  # type: ignore[arg-type]
    for site in sites:
        request = kits.create_certificate_request(folder / site, site=site)
        kits.create_site_kit(
            folder / site,
            folder / site / "kit",
            site=site,
            certificate=kits.sign_certificate_request(folder / "authority", request, site=site),
            root=kits.root_certificate(folder / "authority"),
            **where,  # type: ignore[arg-type]
        )


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def mentioning(text: str) -> list[str]:
    """Commands of all processes of this machine with a text in them."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [command for pid in pids if text in (command := command_of(pid))]


@dataclass
class Network:
    """A hub and its sites."""

    folder: Path
    hub: NvflareHub
    notices: list[str]
    wards: dict[str, Ward] = field(default_factory=dict)

    def start(self, site: str) -> None:
        """Start a site, which does not outlive this process."""
        if site in self.wards:
            self.wards[site].end()
        folder = self.folder / site
        self.wards[site] = Ward(
            [sys.executable, "-c", SITE, str(folder)],
            environment=os.environ,
            folder=folder,
            log=folder / "out",
        )

    def kill(self, program: str, site: str | None = None) -> None:
        """Kill a process of FLARE, at a site or at the coordinator."""
        top = os.getpid() if site is None else self.wards[site].pid
        for pid in descendants(top):
            command = command_of(pid)
            if f"app.{program}" in command and "warden" not in command:
                os.kill(pid, signal.SIGKILL)

    def has_said(self, site: str, text: str) -> bool:
        """Return whether a site has told its people something, or does so in a moment."""
        return wait_until(lambda: text in (self.folder / site / "out").read_text())

    def ask_all(self, data: bytes) -> dict[str, bytes | str]:
        """Ask all sites at once; an error stands for the answer of a site that has none."""
        with ThreadPoolExecutor(len(SITES)) as pool:
            return dict(zip(SITES, pool.map(lambda site: self.ask(site, data), SITES), strict=True))

    def ask(self, site: str, data: bytes) -> bytes | str:
        try:
            return self.hub.connect(site).answer(data)
        except ConnectionError as error:
            return str(error)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    folder = tmp_path_factory.mktemp("net")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kits, "KEY_BITS", 2048)
        create_kits(folder, SITES, free_port())
    notices: list[str] = []
    hub = NvflareHub(
        folder / "server",
        SITES,
        home=folder / "home",
        log=folder / "log",
        silence_s=45.0,
        largest=16 << 20,
        notice=notices.append,
    )
    network = Network(folder, hub, notices)
    try:
        for site in SITES:
            network.start(site)
        with hub:
            assert hub.wait_for(SITES, timeout_s=60.0) == frozenset(SITES)
            yield network
    finally:
        for ward in network.wards.values():
            ward.end()
    assert mentioning(str(folder)) == []


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    until = time.monotonic() + seconds
    while not (met := condition()) and time.monotonic() < until:
        time.sleep(0.1)
    return met


def everyone(reply: bytes | str) -> dict[str, bytes | str]:
    return dict.fromkeys(SITES, reply)


def test_bytes_of_any_size_come_back(network: Network) -> None:
    large = os.urandom(8 << 20)
    for data in (b"", b"hello", large):
        assert network.ask_all(data) == everyone(data[::-1])
    assert (network.folder / "home/hub.sock").stat().st_mode & 0o777 == 0o600
    assert (network.folder / "north/home/node.sock").stat().st_mode & 0o777 == 0o600


def test_what_a_site_raises_stays_there(network: Network) -> None:
    assert network.ask("north", b"fault") == "Site 'north' could not answer."
    assert network.has_said("north", "a secret of the site")
    for file in ("log", "south/log"):
        assert "a secret of the site" not in (network.folder / file).read_text()
    assert network.ask("north", b"ab") == b"ba"


def test_what_is_longer_than_the_study_needs_is_not_read_at_either_end(network: Network) -> None:
    assert network.ask("north", b"flood") == "Site 'north' could not answer."
    said = f"Site 'north' sent {24 << 20} bytes, which were not read: the study needs at most"
    assert [notice for notice in network.notices if notice.startswith(said)]
    assert network.ask("south", bytes(24 << 20)) == "Site 'south' could not answer."
    assert network.has_said("south", f"A message of {24 << 20} bytes was not read")
    assert network.ask_all(b"ab") == everyone(b"ba")
    # What FLARE puts together before we see it is bounded by the memory of its processes.
    for top in (os.getpid(), network.wards["north"].pid):
        found = [pid for pid in descendants(top) if " -m nvflare." in command_of(pid)]
        assert found
        for pid in found:
            limits = Path(f"/proc/{pid}/limits").read_text()
            assert re.search(r"^Max data size +\d+ +\d+ +bytes", limits, re.MULTILINE), limits


def test_a_certificate_of_another_authority_is_refused_on_both_ends(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kits, "KEY_BITS", 2048)
    port = json.loads((network.folder / "north/kit/startup/fed_client.json").read_text())
    create_kits(tmp_path, ("north",), int(port["servers"][0]["service"]["target"].split(":")[1]))
    kit = tmp_path / "north/kit"
    with pytest.raises(ConnectionError, match=r"^The certificate of the coordinator at .* is not"):
        check_connection(kit)
    # With the right root it trusts the server, which does not trust it.
    shutil.copy(network.folder / "authority/authority.pem", kit / "startup/rootCA.pem")
    with pytest.raises(ConnectionError, match="refused the certificate of this kit") as refused:
        check_connection(kit)
    assert "\n" not in str(refused.value)
    assert wait_until(lambda: any("not from this study's authority" in n for n in network.notices))


def test_a_server_that_is_silent_is_given_up_in_time(network: Network, tmp_path: Path) -> None:
    assert TIMEOUT_S < TOLD_S
    shutil.copytree(network.folder / "north/kit", tmp_path / "kit")
    startup = tmp_path / "kit/startup/fed_client.json"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        startup.write_text(startup.read_text().replace(f":{_port_of(startup)}", f":{port}"))
        with pytest.raises(Unreachable, match=r"^The coordinator at .* does not answer"):
            check_connection(tmp_path / "kit", timeout_s=0.4)


def test_a_site_that_is_refused_says_so_and_ends(network: Network, tmp_path: Path) -> None:
    kit = network.folder / "north/kit"
    check_connection(kit)
    shutil.copytree(kit, tmp_path / "kit")
    other = tmp_path / "kit/startup/fed_client.json"
    closed = free_port()
    other.write_text(other.read_text().replace(f":{_port_of(other)}", f":{closed}"))
    with pytest.raises(Unreachable, match=rf"^The coordinator at 127\.0\.0\.1:{closed} cannot be"):
        check_connection(tmp_path / "kit")
    notices: list[str] = []
    stop = threading.Event()

    def note(text: str) -> None:
        notices.append(text)
        stop.set()

    with NvflareNode(
        tmp_path / "kit",
        bytes,
        home=tmp_path / "home",
        log=tmp_path / "log",
        notice=note,
    ) as node:
        node.run(stop)
        assert "cannot be reached" in node.state()
    assert len(notices) == 1


def _port_of(file: Path) -> int:
    target = json.loads(file.read_text())["servers"][0]["service"]["target"]
    return int(target.rpartition(":")[2])


def test_a_site_cannot_take_the_name_of_another(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = tmp_path / "kit"
    shutil.copytree(network.folder / "north/kit", kit)
    startup = kit / "startup/fed_client.json"
    startup.write_text(startup.read_text().replace('"north"', '"south"'))
    with pytest.raises(ProtocolError, match=r"client\.crt must be for 'south'"):
        NvflareNode(kit, bytes, home=tmp_path / "home", log=tmp_path / "log")
    # A site that leaves our check out is refused by the server, and both ends are told.
    monkeypatch.setattr("eigenfed.transport.nvflare.node.check_hardened", lambda kit: None)
    told: list[str] = []
    home, log, stop = tmp_path / "home", tmp_path / "log", threading.Event()
    with NvflareNode(kit, bytes, home=home, log=log, notice=told.append) as thief:
        serving = threading.Thread(target=thief.run, args=(stop,))
        serving.start()
        assert wait_until(lambda: b"created secure channel" in read_if_any(log))
        said = "has the certificate of site 'north', and claimed to be 'south'."
        assert wait_until(lambda: any(said in notice for notice in network.notices))
        assert wait_until(lambda: told == [NOT_TAKEN])
        stop.set()
        serving.join()
    assert network.ask_all(b"ab") == everyone(b"ba")


def read_if_any(file: Path) -> bytes:
    return file.read_bytes() if file.exists() else b""


def test_a_silent_connection_keeps_nobody_out(network: Network) -> None:
    port = _port_of(network.folder / "north/kit/startup/fed_client.json")
    with socket.create_connection(("127.0.0.1", port)):
        check_connection(network.folder / "north/kit")


def test_a_port_that_is_taken_is_named(network: Network, tmp_path: Path) -> None:
    second = NvflareHub(
        network.folder / "server", SITES, home=tmp_path / "home", log=tmp_path / "log"
    )
    with pytest.raises(ProtocolError, match=r"^Port \d+ cannot be used"), second:
        pass


def test_a_killed_job_is_submitted_again(network: Network) -> None:
    network.kill("client.worker_process", "north")
    assert network.ask_all(b"ab") == everyone(b"ba")


def test_a_killed_client_is_started_again_and_others_do_not_notice(network: Network) -> None:
    network.kill("client.client_train", "south")
    assert network.ask("east", b"ab") == network.ask("north", b"ab") == b"ba"
    assert network.ask("south", b"ab") == b"ba"


def test_a_killed_server_is_started_again_and_sites_come_back(network: Network) -> None:
    network.kill("server.server_train")
    assert network.ask_all(b"ab") == everyone(b"ba")
    assert "The server of FLARE ended, and is started again." in network.notices


def test_a_site_that_is_gone_is_lost_alone_and_may_return(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network.hub, "_silence_s", 4.0)
    os.kill(network.wards["east"].pid, signal.SIGKILL)
    assert wait_until(lambda: not mentioning(str(network.folder / "east"))), "it left processes"
    replies = network.ask_all(b"ab")
    assert str(replies.pop("east")).startswith("Nothing was heard of site 'east' for ")
    assert replies == {"north": b"ba", "south": b"ba"}
    assert network.hub.present() == {"north", "south"}
    network.start("east")
    assert network.hub.wait_for(SITES, timeout_s=60.0) == frozenset(SITES)
    assert network.ask_all(b"ab") == everyone(b"ba")
