"""Memory of a stream, size of a summary, and time of an import."""

import subprocess
import sys
import tracemalloc
from collections.abc import Iterator

import numpy as np

from bench.table import Line, fastest
from eigenfed import StreamingPCA, Summary

_BATCH = 1000


def peak_bytes(n: int, d: int = 100, k: int = 20) -> tuple[int, StreamingPCA]:
    """Return the peak memory beyond one batch while streaming n rows, and the result."""
    rng = np.random.default_rng(0)
    batch = rng.standard_normal((_BATCH, d)) / np.arange(1, d + 1)
    pca = StreamingPCA(k, memory="low_rank")
    tracemalloc.start()
    for _ in range(n // _BATCH):
        pca.partial_fit(batch)
        batch = np.roll(batch, 1, axis=0)
    pca.components_  # noqa: B018
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak, pca


def flat_memory() -> Line:
    (few, _), (many, pca) = peak_bytes(10_000), peak_bytes(1_000_000)
    return Line(
        "peak memory of 1,000,000 rows / 10,000 rows, d=100, k=20",
        many / few,
        "at most",
        1.2,
        pca.n_samples_seen_ == 1_000_000,
        f"{many / 1024:.0f} KiB / {few / 1024:.0f} KiB",
    )


def summary_size() -> Line:
    rng = np.random.default_rng(0)
    summary = Summary.empty(1000, 20).update(rng.standard_normal((200, 1000)))
    data = summary.to_bytes()
    arrays = sum(a.nbytes for a in (summary.mean, summary.s, summary.vt))
    again = Summary.from_bytes(data)
    return Line(
        "bytes of a summary / bytes of its arrays, d=1000, k=20",
        len(data) / arrays,
        "at most",
        1.05,
        bool(np.array_equal(again.vt, summary.vt)),
        f"{len(data)} / {arrays}",
    )


def import_cost() -> Line:
    def importing(module: str) -> None:
        subprocess.run([sys.executable, "-c", f"import {module}"], check=True)

    ours, peer = fastest(
        lambda: importing("eigenfed"), lambda: importing("sklearn.decomposition"), repeats=7
    )
    return Line(
        "import eigenfed / import sklearn.decomposition",
        ours / peer,
        "at most",
        1.3,
        True,
        f"{ours:.2f} s / {peer:.2f} s",
    )


def lines() -> Iterator[Line]:
    yield flat_memory()
    yield summary_size()
    yield import_cost()
