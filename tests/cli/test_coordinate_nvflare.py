"""A study over NVIDIA FLARE on loopback: four programs, which are killed on the way."""

import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from eigenfed.linalg.summary import Summary
from eigenfed.transport.nvflare.warden import descendants
from network_parties import NAMES
from network_programs import Program, keep_programs, read_facts, wait_for_file, wait_until
from network_runs import Network
from network_streams import StreamNetwork

pytest.importorskip("nvflare", reason="eigenfed[nvflare] is not installed")

ALL = "EIGENFED_ALL_FAULTS" in os.environ


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


class Victims:
    """The parts of a network of programs, any of which can be killed."""

    def __init__(self, home: Path, start: Callable[..., Program]) -> None:
        self._home, self._start = home, start
        self.sites = {name: self._start_site(name) for name in NAMES}
        self.coordinator = self._start_coordinator()

    def _start_site(self, name: str) -> Program:
        return self._start(self._home / name, "site", "site.toml")

    def _start_coordinator(self) -> Program:
        words = ("coordinate", "study.toml", "-o", "result", "--json")
        return self._start(self._home / "coordinator", *words, pauses=True)

    def kill(self, victim: str, site: str) -> None:
        """Kill a part, and start again what nobody else would."""
        if victim == "site":
            self.sites[site].kill_alone()
            self.sites[site] = self._start_site(site)
        elif victim == "coordinator":
            self.coordinator.kill_alone()
            self.coordinator = self._start_coordinator()
        else:
            program = self.coordinator if victim == "server.server_train" else self.sites[site]
            killed = [pid for pid in descendants(program.pid) if is_engine(pid, victim)]
            assert killed, f"there is no {victim} to kill"
            for pid in killed:
                os.kill(pid, signal.SIGKILL)


def is_engine(pid: int, program: str) -> bool:
    """Return whether a process is one of FLARE's."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return False
    return f"app.{program}" in words and "warden" not in words


JOB = "client.worker_process"
PARTS = (JOB, "coordinator", "site", "server.server_train", "client.client_train")
TURNS = [
    0,
    *(
        pytest.param(turn, marks=pytest.mark.skipif(not ALL, reason="set EIGENFED_ALL_FAULTS"))
        for turn in range(1, len(PARTS) + 1)
    ),
]
"""At the first turn it is mostly jobs that are killed, which come back in a moment. Over all other
turns every part is killed at every round, which takes minutes."""


def choose_victim(turn: int, number: int) -> str:
    """Return what is killed at a round."""
    if turn == 0:
        return PARTS[number // 2 + 1] if number in (1, 3, 5, 7) else JOB
    return PARTS[(number + turn) % len(PARTS)]


def test_every_part_has_its_turn_at_every_round() -> None:
    for number in range(12):
        assert {choose_victim(turn, number) for turn in range(1, 6)} == set(PARTS)
    assert {choose_victim(0, number) for number in range(12)} == set(PARTS)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("turn", TURNS)
def test_whatever_is_killed_at_any_round_of_a_study_over_flare_the_bits_are_the_same(
    tmp_path: Path, turn: int
) -> None:
    calm = Network(tmp_path / "calm", method="krylov", study="secure = true\n")
    rounds = calm.run().estimator.n_rounds_
    home = tmp_path / "rough"
    engine = f'engine = "nvflare"\n[network]\nhost = "localhost"\nport = {find_free_port()}\n'
    network = Network(home, method="krylov", study="secure = true\n", engine=engine)
    killed: dict[int, str] = {}
    with keep_programs() as start:
        parts = Victims(home, start)
        while (number := parts.coordinator.wait_for_round()) is not None:
            if number not in killed:
                killed[number] = choose_victim(turn, number)
                parts.kill(killed[number], NAMES[number % len(NAMES)])
                if killed[number] == "coordinator":
                    continue
            parts.coordinator.go_on()
        code, _ = parts.coordinator.finish()
        assert code == 0, parts.coordinator.log
        assert list(killed) == list(range(rounds)), "something was killed at every round"
        found = np.load(home / "coordinator/result/components.npy")
        assert found.tobytes() == network.fit_together().components_.tobytes()
        facts = read_facts(home / "coordinator/result")
        assert (facts["engine"], facts["rounds"]) == ("nvflare", rounds)
        for name, site in parts.sites.items():
            wait_for_file(home / name / "results", "*/sites/*.html")
            assert site.stop() == 0, site.log
            ledgers = [each.sites[name].ledger for each in (calm, network)]
            assert ledgers[1].verify().intact
            calm_kinds, kinds = ([event.kind for event in one.events] for one in ledgers)
            assert kinds == calm_kinds, "nothing was answered, paid or opened twice"
            assert ledgers[1].recall_names("data") == ()
        wait_until(lambda: not list(list_processes(home)), "the end of all processes")


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
