"""Rounds between machines over NVIDIA FLARE, relative to the engine's own bare rounds."""

import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.table import Line
from eigenfed.transport.nvflare import hardening, kits
from eigenfed.transport.nvflare.hub import NvflareHub
from eigenfed.transport.nvflare.node import NvflareNode
from eigenfed.transport.nvflare.warden import Ward

_SITES = ("east", "north", "south")
_CLASSES = ["bench.bare_engine.BareController", "bench.bare_engine.BareExecutor"]
_SMALL, _LARGE = 1_000, 80_000_000
_SITE = """
import sys, threading
from pathlib import Path
import numpy as np
from eigenfed.transport.nvflare import hardening
from eigenfed.transport.nvflare.node import NvflareNode

hardening._CLASSES[:] = {classes!r}
folder = Path(sys.argv[1])
reverse = lambda data: np.frombuffer(data, np.uint8)[::-1].tobytes()
with NvflareNode(folder / "kit", reverse, home=folder / "home", log=folder / "log") as node:
    node.run(threading.Event())
"""


@dataclass(frozen=True)
class _Network:
    """A hub with its sites, their folder, and what the people at the hub are told."""

    hub: NvflareHub
    folder: Path
    notices: list[str]


def lines() -> Iterator[Line]:
    with _network() as network:
        hub = network.hub
        begun = time.perf_counter()
        present = hub.wait_for(_SITES, timeout_s=120.0)
        start = time.perf_counter() - begun
        everybody = present == frozenset(_SITES)
        ours, bare, right = _compare(hub, _SMALL, repeats=20) if everybody else (0.0, 1.0, False)
        yield Line(
            "seconds of a small round over FLARE beyond its bare one",
            ours - bare,
            "at most",
            0.1,
            right,
            f"{1e3 * ours:.0f} ms against {1e3 * bare:.0f} ms, {len(_SITES)} sites, mTLS; "
            f"sites were there after {start:.0f} s",
        )
        ours, bare, right = _compare(hub, _LARGE, repeats=4) if everybody else (0.0, 1.0, False)
        yield Line(
            "80 MB each way, 3 sites, over FLARE / its bare transfer",
            ours / bare,
            "at most",
            1.3,
            right,
            f"{ours:.1f} s against {bare:.1f} s",
        )
        thefts = (("north", "south"), ("east", "south"), ("north", "east"))
        seconds = [_time_refusal(network, *theft) for theft in thefts]
        yield Line(
            "seconds until both ends are told of a site with the name of another",
            max(seconds),
            "at most",
            10.0,
            hub.connect("south").answer(b"ab") == b"ba",
            f"{len(seconds)} times, from {min(seconds):.1f} s, once it is connected",
        )


def _time_refusal(network: _Network, own: str, claimed: str) -> float:
    """Return the seconds until a site that leaves our checks out, and the server, are told."""
    folder = network.folder / f"{own}-as-{claimed}"
    shutil.copytree(network.folder / own / "kit", folder / "kit")
    startup = folder / "kit" / "startup" / "fed_client.json"
    startup.write_text(startup.read_text().replace(f'"{own}"', f'"{claimed}"'))
    log, told, stop = folder / "log", list[str](), threading.Event()
    said = f"certificate of site {own!r}, and claimed to be {claimed!r}"
    with (
        patch("eigenfed.transport.nvflare.node.check_hardened"),
        NvflareNode(
            folder / "kit", bytes, home=folder / "home", log=log, notice=told.append
        ) as node,
    ):
        serving = threading.Thread(target=node.run, args=(stop,), daemon=True)
        serving.start()
        _wait_until(lambda: log.exists() and b"created secure channel" in log.read_bytes())
        begun = time.perf_counter()
        _wait_until(lambda: any(said in text for text in network.notices))
        _wait_until(lambda: any(f"not register site {claimed!r}" in text for text in told))
        seconds = time.perf_counter() - begun
        stop.set()
        serving.join()
    return seconds


def _wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60.0
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)


def _compare(hub: NvflareHub, size: int, repeats: int) -> tuple[float, float, bool]:
    """Return the shortest times of our round and of the bare one, in turn; and if all was right."""
    data = os.urandom(size)
    ours = bare = float("inf")
    right = True
    with ThreadPoolExecutor(len(_SITES)) as pool:
        for _ in range(repeats):
            start = time.perf_counter()
            replies = list(pool.map(lambda site: hub.connect(site).answer(data), _SITES))
            ours = min(ours, time.perf_counter() - start)
            right &= all(reply[::-1] == data for reply in replies)
            seconds, good = hub.connect(_SITES[0]).answer(f"bare {size}".encode()).split()
            bare = min(bare, float(seconds))
            right &= int(good) == len(_SITES)
    return ours, bare, right


@contextmanager
def _network() -> Iterator[_Network]:
    """Start a server and three sites on this machine, whose jobs can also do without the relay."""
    allowed = list(hardening._CLASSES)
    hardening._CLASSES[:] = _CLASSES
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        stack.callback(hardening._CLASSES.__setitem__, slice(None), allowed)
        folder = Path(name)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            where: dict[str, Any] = {
                "study": "bench",
                "host": "127.0.0.1",
                "port": probe.getsockname()[1],
            }
        kits.create_authority(folder / "authority", study="bench")
        kits.create_server_kit(folder / "authority", folder / "server", **where)
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
        os.environ["PYTHONPATH"] = environment["PYTHONPATH"]  # FLARE's server needs our classes too
        for site in _SITES:
            request = kits.create_certificate_request(folder / site, site=site)
            kits.create_site_kit(
                folder / site,
                folder / site / "kit",
                site=site,
                certificate=kits.sign_certificate_request(folder / "authority", request, site=site),
                root=kits.root_certificate(folder / "authority"),
                **where,
            )
            ward = Ward(
                [sys.executable, "-c", _SITE.format(classes=_CLASSES), str(folder / site)],
                environment=environment,
                folder=folder / site,
                log=folder / site / "out",
            )
            stack.callback(ward.end)
        notices: list[str] = []
        where = {"home": folder / "home", "log": folder / "log", "notice": notices.append}
        hub = stack.enter_context(NvflareHub(folder / "server", _SITES, **where))
        yield _Network(hub, folder, notices)
