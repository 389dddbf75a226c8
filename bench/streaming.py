"""StreamingPCA against scikit-learn's IncrementalPCA."""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pandas as pd
from sklearn.decomposition import IncrementalPCA
from threadpoolctl import threadpool_limits

from bench.table import Line, fastest
from eigenfed import StreamingPCA
from eigenfed.arrays import Array

_BLOCK = 100


def data(n: int, d: int) -> Array:
    """Rows with singular values that fall as 1/i."""
    return np.random.default_rng(0).standard_normal((n, d)) / np.arange(1, d + 1)


def stream(estimator: Any, X: Any, step: int = _BLOCK, threads: int | None = 1) -> Any:
    with threadpool_limits(threads) if threads else nullcontext():
        for start in range(0, len(X), step):
            estimator.partial_fit(X[start : start + step])
    return estimator


def above_optimal(X: Array, k: int, *fitted: Any) -> list[float]:
    """Relative excess of each residual over the best one of rank k."""
    around = X - X.mean(axis=0)
    small = around @ around.T if len(X) < X.shape[1] else around.T @ around
    values = np.linalg.eigvalsh(small)
    total, best = values.sum(), values[:-k].sum()
    return [(total - np.sum((around @ f.components_.T) ** 2)) / best - 1 for f in fitted]


def against_incremental(
    n: int, d: int, *, rule: str, target: float, threads: int | None, repeats: int
) -> Line:
    X, k = data(n, d), 20

    def ours() -> Any:
        return stream(StreamingPCA(k, memory="low_rank"), X, threads=threads)

    def peer() -> Any:
        return stream(IncrementalPCA(k), X, threads=threads)

    time_ours, time_peer = fastest(ours, peer, repeats=repeats)
    excess, excess_peer = above_optimal(X, k, ours(), peer())
    return Line(
        f"IncrementalPCA / ours, d={d}, n={n}, k={k}, "
        + ("one thread" if threads else "default threads"),
        time_peer / time_ours,
        rule,
        target,
        excess_peer > 100 * excess,
        f"{time_peer:.2f} s / {time_ours:.2f} s; residual above optimal "
        f"{excess_peer:.1e} / {excess:.1e}",
    )


def default_threads() -> Line:
    X = data(20_000, 1000)
    many, one = fastest(
        lambda: stream(StreamingPCA(20, memory="low_rank"), X, threads=None),
        lambda: stream(StreamingPCA(20, memory="low_rank"), X),
    )
    a, b = (
        stream(StreamingPCA(20, memory="low_rank"), X, threads=t).components_ for t in (None, 1)
    )
    return Line(
        "default threads / one thread, d=1000, n=20000, k=20",
        many / one,
        "at most",
        1.1,
        bool(np.array_equal(a, b)),
        f"{many:.2f} s / {one:.2f} s; the same bits",
    )


def single_rows(memory: str, rule: str) -> Iterator[Line]:
    """Rows one at a time against blocks of 100, d=100, k=20."""
    X = data(10_000, 100)
    kinds = {
        "float64 array": (X, 2.0),
        "lists": (X.tolist(), 12.0),
        "float32 array": (X.astype(np.float32), 12.0),
        "data frame": (pd.DataFrame(X, columns=[f"x{i}" for i in range(100)])[:1000], 12.0),
    }
    for kind, (rows, target) in kinds.items():
        n = len(rows)
        blocks = stream(StreamingPCA(20, memory=memory), rows)
        single = stream(StreamingPCA(20, memory=memory), rows, step=1)
        time_blocks, time_single = fastest(
            lambda n=n: stream(StreamingPCA(20, memory=memory), X[:n]),  # type: ignore[misc]
            lambda rows=rows: stream(StreamingPCA(20, memory=memory), rows, step=1),  # type: ignore[misc]
            repeats=3,
        )
        yield Line(
            f"single rows / blocks, d=100, k=20, {memory}, {kind}",
            time_single / time_blocks,
            rule,
            target,
            bool(np.array_equal(blocks.components_, single.components_)),
            f"{1e6 * time_single / n:.1f} us / {1e6 * time_blocks / n:.1f} us a row",
        )


def lines() -> Iterator[Line]:
    yield against_incremental(20_000, 1000, rule="at least", target=4.0, threads=1, repeats=5)
    yield against_incremental(3000, 10_000, rule="at least", target=10.0, threads=None, repeats=3)
    yield against_incremental(3000, 10_000, rule="report", target=10.0, threads=1, repeats=3)
    yield default_threads()
    yield from single_rows("low_rank", "at most")
    yield from single_rows("gram", "report")
