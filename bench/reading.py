"""Fits and streams from files against pyarrow reading the same file, in CPU time of one thread.

``python -m bench.reading 10000000`` measures the full size, with 4 GB of temporary files.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from bench.table import Line
from eigenfed.arrays import Array

_ROWS = 1_000_000
_STEP = 250_000
_COMPONENTS = 4
_REPEATS = 3

_PEAK = """
import json, resource, threading, time
peak, end = [0], threading.Event()
def watch():
    while not end.wait(0.02):
        with open("/proc/self/status") as status:
            held = next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))
        peak[0] = max(peak[0], held)
def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
threading.Thread(target=watch, daemon=True).start()
start = cpu()
{work}
end.set()
print(json.dumps({{"cpu": cpu() - start, "peak": peak[0] << 10, "found": found}}))
"""

_ALONE = {
    "csv": """
from pyarrow import csv
options = csv.ReadOptions(use_threads=False)
found = sum(batch.num_rows for batch in csv.open_csv({path!r}, read_options=options))
""",
    "parquet": """
from pyarrow import parquet
batches = parquet.ParquetFile({path!r}, pre_buffer=False).iter_batches(use_threads=False)
found = sum(batch.num_rows for batch in batches)
""",
}
_OURS = """
from eigenfed.data.files import open_table
pca = FederatedPCA({k}).fit_sites({{"a": open_table({path!r})}})
found = pca.components_.tolist()
"""
_STREAM = """
runner = CliRunner()
found = json.loads(runner.invoke(cli, ["stream", {path!r}, "-k", "{k}", "--json"]).stdout)["n"]
"""
_IMPORTS = {
    "alone": "import pyarrow.csv, pyarrow.parquet",
    "ours": "import pyarrow.parquet, eigenfed.data.files; from eigenfed import FederatedPCA",
    "stream": "from click.testing import CliRunner; from eigenfed.cli.main import cli; "
    "import eigenfed.linalg.stream, pyarrow.csv",
}


def write_file(path: Path, n: int, d: int) -> Array:
    """Write rows in parts, and return their components, computed on the way."""
    rng = np.random.default_rng(0)
    spread = np.linspace(1.0, 4.0, d)
    total, matrix = np.zeros(d), np.zeros((d, d))
    writer: Any = None
    for start in range(0, n, _STEP):
        rows = (rng.standard_normal((min(_STEP, n - start), d)) * spread).round(5)
        total += rows.sum(axis=0)
        matrix += rows.T @ rows
        table = pa.table({f"x{j}": rows[:, j].copy() for j in range(d)})
        if writer is None:
            kind = pa.parquet.ParquetWriter if path.suffix == ".parquet" else pa.csv.CSVWriter
            writer = kind(path, table.schema)
        (writer.write_table if path.suffix == ".parquet" else writer.write)(table)
    writer.close()
    vectors: Array = np.linalg.eigh(matrix - np.outer(total, total) / n)[1]
    return vectors[:, : -_COMPONENTS - 1 : -1].T


def measure(imports: str, work: str) -> dict[str, Any]:
    """Run work in a process of its own, with one thread; imports do not count."""
    code = f"{imports}\n{_PEAK.format(work=work)}"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def measure_least(path: Path, *jobs: tuple[str, str]) -> list[dict[str, Any]]:
    """Run jobs (imports and work) in turn, and return for each the run that took the least time.

    The parsed copy of the file is deleted each time: no run finds that of another one.
    """
    runs = []
    for _ in range(_REPEATS):
        runs.append([measure(*job) for job in jobs])
        shutil.rmtree(f"{path}.eigenfed", ignore_errors=True)
    return [min(of_job, key=lambda run: float(run["cpu"])) for of_job in zip(*runs, strict=True)]


def fit_from_file(folder: Path, kind: str, n: int, d: int = 20) -> Line:
    path = folder / f"rows.{kind}"
    wanted = write_file(path, n, d)
    alone, ours = measure_least(
        path,
        (_IMPORTS["alone"], _ALONE[kind].format(path=str(path))),
        (_IMPORTS["ours"], _OURS.format(path=str(path), k=_COMPONENTS)),
    )
    size = path.stat().st_size
    path.unlink()
    cosines = np.abs(np.sum(np.array(ours["found"]) * wanted, axis=1))
    return Line(
        f"fit from {kind} / pyarrow reading it, n={n}, d={d}",
        ours["cpu"] / alone["cpu"],
        "at most",
        1.5,
        alone["found"] == n and bool((cosines > 1.0 - 1e-9).all()),
        f"{ours['cpu']:.1f} s / {alone['cpu']:.1f} s of CPU, {size >> 20} MB; peak memory "
        f"{ours['peak'] >> 20} MB / {alone['peak'] >> 20} MB",
    )


def stream_from_file(folder: Path, n: int = 500_000, d: int = 50) -> Line:
    path = folder / "rows.csv"
    write_file(path, n, d)
    alone, ours = measure_least(
        path,
        (_IMPORTS["alone"], _ALONE["csv"].format(path=str(path))),
        (_IMPORTS["stream"], _STREAM.format(path=str(path), k=_COMPONENTS)),
    )
    path.unlink()
    return Line(
        f"eigenfed stream / pyarrow reading the csv, n={n}, d={d}",
        ours["cpu"] / alone["cpu"],
        "at most",
        1.5,
        alone["found"] == ours["found"] == n,
        f"{ours['cpu']:.1f} s / {alone['cpu']:.1f} s of CPU; peak memory "
        f"{ours['peak'] >> 20} MB / {alone['peak'] >> 20} MB",
    )


def lines(n: int = _ROWS) -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind in _ALONE:
            yield fit_from_file(folder, kind, n)
        yield stream_from_file(folder)


if __name__ == "__main__":
    for line in lines(int(sys.argv[1]) if len(sys.argv) > 1 else _ROWS):
        print(line, flush=True)
