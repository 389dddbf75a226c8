"""Memory of a coordinator during a whole run with very many features.

The coordinator is a process of its own with the real run: signed bundles, spooled replies, a
transcript and block Lanczos. The sites are another process, which computes replies with the
operations of real sites, one after the other, without their ledgers and meters. The two are
connected by a socket.
"""

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.table import Line
from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.privacy.secagg.identity import Identity
from eigenfed.protocol.gate.admission import read_opening
from eigenfed.protocol.gate.run_state import OpenRun
from eigenfed.protocol.messages import Message, pack, unpack
from eigenfed.protocol.method import Method
from eigenfed.study.config import read_study
from eigenfed.study.network.coordinator_run import Coordinator
from eigenfed.study.network.roster_file import NetworkAddress, NetworkRoster
from eigenfed.transport.nvflare.wire import FrameSocket, connect_to, listen_at
from eigenfed.transport.signed import SignedSite

Rows = npt.NDArray[np.float32]

_SITES = tuple(f"site{i}" for i in range(10))
_ROWS = 150
_COMPONENTS = 18
_MOST_BYTES = 4e9


def lines() -> Iterator[Line]:
    yield measure(1_000_000)


def measure(d: int) -> Line:
    """Run a study of ten sites, and return the peak memory of its coordinator."""
    with tempfile.TemporaryDirectory() as home:
        _write_study(Path(home), d)
        rows = _make_rows(d)
        with listen_at(Path(home, "socket")) as listener:
            begun = time.perf_counter()
            coordinator = subprocess.Popen(
                [sys.executable, "-m", "bench.network_memory", home], stdout=subprocess.PIPE
            )
            far = FrameSocket(listener.accept()[0])
            _serve(far, {site: rows[i : i + _ROWS] for i, site in enumerate(_SITES)})
            out, _ = coordinator.communicate()
            seconds = time.perf_counter() - begun
        found = json.loads(out)
        right = _is_right(rows, np.load(Path(home, "components.npy")))
    return Line(
        f"GB of the coordinator's memory, d={d}, 10 sites, a whole run",
        found["peak"] / 1e9,
        "at most",
        _MOST_BYTES / 1e9,
        right,
        f"{found['anonymous'] / 1e9:.2f} GB besides files; blocks of 20 directions, "
        f"{found['rounds']} rounds, {found['bytes_up'] / 1e9:.1f} GB up, {seconds:.0f} s",
    )


def _make_rows(d: int) -> Rows:
    """Draw rows with a spectrum that falls slowly, of which each site has a part."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((_ROWS + len(_SITES) - 1, d), dtype=np.float32)
    rows *= (0.97 ** np.arange(len(rows), dtype=np.float32))[:, None]
    return rows


def _is_right(rows: Rows, components: Array) -> bool:
    """Compare with the eigenvectors of the whole, by way of the matrix of inner products."""
    counts = np.zeros(len(rows))
    for i in range(len(_SITES)):
        counts[i : i + _ROWS] += 1.0
    gram, blocks = np.zeros((len(rows),) * 2), range(0, rows.shape[1], 50_000)
    whole = [rows[:, start : start + 50_000].astype(np.float64) for start in blocks]
    for block in whole:
        block -= counts @ block / counts.sum()
        block *= np.sqrt(counts)[:, None]
        gram += block @ block.T
    values, vectors = np.linalg.eigh(gram)
    last = slice(None, -_COMPONENTS - 1, -1)
    exact = np.vstack([block.T @ vectors[:, last] for block in whole]) / np.sqrt(values[last])
    return bool(np.abs(np.einsum("kd,dk->k", components, exact)).min() > 1.0 - 1e-9)


def _write_study(home: Path, d: int) -> None:
    (home / "features.txt").write_text("\n".join(f"x{i}" for i in range(d)) + "\n")
    (home / "study.toml").write_text(
        f'name = "bench"\nsites = {json.dumps(_SITES)}\ncomponents = {_COMPONENTS}\nseed = 7\n'
        f'method = "krylov"\nmanifest = "features.txt"\nengine = "files"\n'
        f'[network]\ndrop = "{home}"\n'
    )


def _identify(who: str) -> Identity:
    """Return a key that both processes have without an exchange."""
    return Identity.from_bytes(who.encode().ljust(32))


class _PlainSite:
    """Answers the requests of a run with nothing but their operations."""

    def __init__(self, name: str, rows: Rows) -> None:
        self._source = Source.of(rows)
        self._run: OpenRun | None = None
        self.signed = SignedSite(
            self,
            name=name,
            identity=_identify(name),
            coordinator=_identify("coordinator").public,
        )

    def answer(self, data: bytes) -> bytes:
        message = Message.from_bytes(data, "request", "open", "close")
        if message.kind == "open":
            study, method = read_opening(message, _identify("coordinator").public, None)
            if isinstance(method, Method):
                self._run = OpenRun.start(study.with_method(method), self._source)
        reply: dict[str, Any] = {}
        if message.kind == "request" and self._run is not None:
            run, op = self._run, self._run.ops[message.label]
            request = unpack(op.request, message.arrays)
            state = request.apply_to(run.terms_at(run.state), run.state)
            answer = op.run(run.rows_at(state, self._source), request, state, run.terms_at(state))
            reply, run.state = pack(answer.reply), answer.state
        return Message("reply", message.run, message.round_, message.label, reply).to_bytes()


def _serve(far: FrameSocket, rows: dict[str, Rows]) -> None:
    """Answer as all sites, until the coordinator hangs up."""
    sites = {name: _PlainSite(name, part) for name, part in rows.items()}
    try:
        while True:
            header, data = far.receive()
            far.send(header, sites[header["site"]].signed.answer(bytes(data)))
    except ConnectionError:
        far.close()


class _Connection:
    def __init__(self, far: FrameSocket, lock: threading.Lock, site: str) -> None:
        self._far, self._lock, self._site = far, lock, site

    def answer(self, data: bytes) -> bytes:
        with self._lock:
            self._far.send({"site": self._site}, data)
            return bytes(self._far.receive()[1])


def coordinate(home: Path) -> None:
    """Be the coordinator, and print what it took."""
    study = read_study(home / "study.toml")
    roster = NetworkRoster(
        study="bench",
        engine="files",
        address=NetworkAddress(drop=str(home)),
        coordinator=_identify("coordinator").public,
        sites={name: _identify(name).public for name in _SITES},
    )
    far, lock = connect_to(home / "socket"), threading.Lock()
    connect: Callable[[str], _Connection] = lambda site: _Connection(far, lock, site)  # noqa: E731
    run = Coordinator(study, roster, _identify("coordinator"), home / "network", connect).run(
        _SITES
    )
    np.save(home / "components.npy", run.estimator.components_)
    far.close()
    print(
        json.dumps(
            {
                "peak": _read_status("VmHWM"),
                "anonymous": _read_status("RssAnon"),
                "rounds": run.estimator.n_rounds_,
                "bytes_up": run.estimator.bytes_up_,
            }
        )
    )


def _read_status(name: str) -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{name}:")[1].split()[0]) * 1024


if __name__ == "__main__":
    coordinate(Path(sys.argv[1]))
