"""Merging summaries against the one-SVD merge of [Grammenos2020, supplement] Alg. 4."""

from collections.abc import Iterator
from functools import reduce

import numpy as np
from threadpoolctl import threadpool_limits

from bench.table import Line, fastest
from eigenfed import Summary
from eigenfed.arrays import Array
from eigenfed.linalg.orthonormal import sines

_COUNT, _D, _RANK, _K = 1000, 1000, 40, 20


def summaries() -> list[Summary]:
    rng = np.random.default_rng(0)
    spread = 1.0 / np.arange(1, _D + 1)
    empty = Summary.empty(_D, _RANK, centered=False)
    return [empty.update(rng.standard_normal((80, _D)) * spread) for _ in range(_COUNT)]


def merge_as_printed(parts: list[Summary]) -> Array:
    """Merge one after the other by a full SVD of the stacked, scaled bases."""
    kept = parts[0].s[:, None] * parts[0].vt
    for part in parts[1:]:
        _, s, vt = np.linalg.svd(np.vstack([kept, part.s[:, None] * part.vt]), full_matrices=False)
        kept = s[:_RANK, None] * vt[:_RANK]
    normed: Array = kept / np.sqrt(np.sum(kept**2, axis=1, keepdims=True))
    return normed


def lines() -> Iterator[Line]:
    parts = summaries()
    few = parts[:200]
    with threadpool_limits(1):
        ours, peer = fastest(
            lambda: reduce(Summary.merge, few), lambda: merge_as_printed(few), repeats=3
        )
        (whole,) = fastest(lambda: reduce(Summary.merge, parts), repeats=3)
    apart = sines(reduce(Summary.merge, few).vt[:_K], merge_as_printed(few)[:_K])[0]
    yield Line(
        f"SVD merge of [Grammenos2020, supplement] Alg. 4 / ours, d={_D}, rank {_RANK}",
        peer / ours,
        "report",
        0.0,
        bool(apart < 0.05),
        f"{_COUNT} summaries at {_COUNT / whole:.0f} merges/s; sine between the two {apart:.1e}",
    )
