"""A study over NVIDIA FLARE on loopback: four programs, which are killed on the way."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from eigenfed.linalg.summary import Summary
from network_parties import NAMES
from network_programs import count_rounds, keep_programs, read_facts, wait_for_file, wait_until
from network_runs import Network
from network_streams import StreamNetwork

pytest.importorskip("nvflare", reason="eigenfed[nvflare] is not installed")


def find_free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def list_processes(folder: Path) -> Iterator[str]:
    """Yield the command lines of processes that work in a folder."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            where = os.readlink(entry / "cwd")
        except OSError:
            continue
        if str(folder) in words or where.startswith(str(folder)):
            yield words


def test_a_study_over_flare_outlives_a_killed_site_and_a_killed_coordinator(
    tmp_path: Path,
) -> None:
    engine = f'engine = "nvflare"\n[network]\nhost = "localhost"\nport = {find_free_port()}\n'
    network = Network(tmp_path, method="krylov", study="secure = true\n", engine=engine)
    home = tmp_path / "coordinator"
    coordinate = ("coordinate", "study.toml", "-o", "result", "--json")
    with keep_programs() as start:
        sites = {name: start(tmp_path / name, "site", "site.toml") for name in NAMES}
        first = start(home, *coordinate)
        wait_until(lambda: count_rounds(home) >= 2, "the second round")
        sites["south"].kill_alone()
        first.kill_alone()
        sites["south"] = start(tmp_path / "south", "site", "site.toml")
        second = start(home, *coordinate)
        code, _ = second.finish()
        assert code == 0, second.log
        together = network.fit_together()
        found = np.load(home / "result/components.npy")
        assert found.tobytes() == together.components_.tobytes()
        assert read_facts(home / "result")["engine"] == "nvflare"
        for name, site in sites.items():
            folder = tmp_path / name / "results"
            wait_for_file(folder, "*/sites/*.html")
            assert site.stop() == 0, site.log
            assert network.sites[name].ledger.verify().intact
        wait_until(lambda: not list(list_processes(tmp_path)), "the end of all processes")


def test_streams_are_followed_over_flare(tmp_path: Path) -> None:
    engine = f'engine = "nvflare"\n[network]\nhost = "localhost"\nport = {find_free_port()}\n'
    network = StreamNetwork(tmp_path, engine=engine)
    home = tmp_path / "coordinator"
    follow = ("coordinate", "study.toml", "-o", "result", "--follow", "--force")

    def has(rows: int) -> bool:
        path = home / "all.summary"
        return path.exists() and Summary.from_bytes(path.read_bytes()).n == rows

    with keep_programs() as start:
        sites = {name: start(tmp_path / name, "site", "site.toml") for name in NAMES}
        coordinator = start(home, *follow, "--summary", "all.summary")
        wait_until(lambda: has(60), "the first result")
        network.grow("north", 30)
        network.grow("south", 35)
        wait_until(lambda: has(85), "a result with more of north and south")
        assert coordinator.stop() == 0, coordinator.log
        assert read_facts(home / "result")["engine"] == "nvflare"
        for name, site in sites.items():
            assert site.stop() == 0, site.log
            assert network.sites[name].ledger.verify().intact
        assert network.released("north") == [(1, 20.0), (2, 30.0)]
        wait_until(lambda: not list(list_processes(tmp_path)), "the end of all processes")
