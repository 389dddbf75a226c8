"""A whole study between machines over NVIDIA FLARE, from the command to the report.

All programs run on this machine, each site in a process of its own. Times are of the clock, since
most of them is waiting, and are reported without a bound; a line is refused if the components
differ from those of the same rows in one process.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from bench.federated import images
from bench.table import Line
from eigenfed import FederatedPCA
from eigenfed.arrays import Array
from eigenfed.privacy.ledger.ledger import Ledger
from eigenfed.study.config import read_site, read_study
from eigenfed.study.network.approvals import approve_study
from eigenfed.study.network.inviting import admit_sites, invite_sites
from eigenfed.study.network.joining import accept_invitation, pin_roster

_PATIENCE_S = 900.0


def lines() -> Iterator[Line]:
    yield measure("3 sites of 20000x784, k=10", images(60_000, 784), 3, 10)
    yield measure("20 sites of 100x60, k=4", images(2_000, 60), 20, 4)


def measure(name: str, rows: Array, sites: int, k: int) -> Line:
    with tempfile.TemporaryDirectory() as home, ExitStack() as stack:
        names = [f"site{i:02d}" for i in range(sites)]
        tables = dict(zip(names, np.array_split(rows, sites), strict=True))
        study = prepare(Path(home), tables, k)
        for site in names:
            start(stack, Path(home, site), "site", "site.toml")
        begun = time.time()
        out = study.parent / "result"
        done = start(stack, study.parent, "coordinate", "study.toml", "-o", "result", "--json")
        first = watch_first_round(done, study.parent / "network/runs")
        code = done.wait(_PATIENCE_S)
        ended = time.time()
        whole = FederatedPCA(k, method="krylov", random_state=7).fit_sites(tables)
        right = code == 0 and np.array_equal(np.load(out / "components.npy"), whole.components_)
        (journal,) = (study.parent / "network/runs").glob("*.jsonl")
        last = journal.stat().st_mtime
        rounds = len(journal.read_text().splitlines())
        facts = json.loads((out / "result.json").read_text()) if code == 0 else {"bytes_up": 0}
    return Line(
        f"seconds of a study over FLARE, {name}",
        ended - begun,
        "report",
        0.0,
        right,
        f"{first - begun:.0f} s to the first round, {last - first:.1f} s for {rounds} rounds "
        f"({facts['bytes_up'] / 1e6:.1f} MB up), {ended - last:.1f} s to the end",
    )


def watch_first_round(process: "subprocess.Popen[bytes]", runs: Path) -> float:
    """Return the time at which the first round of a run was over."""
    while process.poll() is None and not list(runs.glob("*.jsonl")):
        time.sleep(0.02)
    return time.time()


def prepare(home: Path, tables: dict[str, Array], k: int) -> Path:
    """Write the files of a study and its sites, exchange the keys, and approve the study."""
    d = len(next(iter(tables.values()))[0])
    features = [f"x{i}" for i in range(d)]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    lead = home / "lead"
    lead.mkdir()
    (lead / "features.txt").write_text("\n".join(features) + "\n")
    (lead / "study.toml").write_text(
        f'name = "bench"\nsites = {json.dumps(list(tables))}\ncomponents = {k}\nseed = 7\n'
        'method = "krylov"\nmanifest = "features.txt"\nengine = "nvflare"\n'
        f'[network]\nhost = "localhost"\nport = {port}\n'
    )
    study = read_study(lead / "study.toml")
    told = invite_sites(study)[0].fingerprint
    requests = {}
    for name, table in tables.items():
        folder = home / name
        folder.mkdir()
        write_rows(folder / "rows.parquet", table, features)
        (folder / "site.toml").write_text(
            f'name = "{name}"\ndata = "rows.parquet"\nledger = "{name}.ledger"\n'
            "[policy]\nmin_rows = 5\n"
        )
        Ledger(folder / f"{name}.ledger", create=True).close()
        request, path = accept_invitation(
            lead / "bench.invitation.json", read_site(folder / "site.toml"), told
        )
        requests[path] = name, request.fingerprint
    admitted = admit_sites(study, list(requests), dict(requests.values()))
    if admitted.roster is None:
        raise RuntimeError("a site is missing")
    for name in tables:
        site = read_site(home / name / "site.toml")
        pin_roster(lead / "bench.roster.json", site, admitted.roster.fingerprint)
        approve_study(study, site)
    return study.path


def write_rows(path: Path, table: Array, features: Sequence[str]) -> None:
    import pyarrow
    from pyarrow import parquet

    columns = {name: table[:, place] for place, name in enumerate(features)}
    parquet.write_table(pyarrow.table(columns), path)


def start(stack: ExitStack, folder: Path, *words: str) -> "subprocess.Popen[bytes]":
    """Start a command of eigenfed, which ends with the benchmark."""
    log = stack.enter_context((folder / "log").open("wb"))
    process = subprocess.Popen(
        [sys.executable, "-m", "eigenfed", *words],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=log,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    stack.callback(process.wait)
    stack.callback(process.terminate)
    return process
