"""The method that "auto" chooses against the fastest one, over a grid of shapes.

``python -m bench.choice`` runs the whole grid, dense rows first and large tables last, and begins
no cell after an hour; ``python -m bench.choice 1e7 600`` runs the cells of at most so many stored
entries and stops after so many seconds. The benchmark itself has those of at most 2e5 entries.
Every cell is in the table: one that is not run says why. A method is left out of a cell, by name,
if it is predicted to take 20 times as long as the best (6 times where the best takes seconds) or
more memory than 4 GB.
"""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from typing import Any

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from bench.table import Line, least_cpu
from eigenfed import FederatedPCA
from eigenfed.linalg.orthonormal import sines
from eigenfed.protocol.method import Method, Shape, all_methods
from eigenfed.protocol.method_registry import predict_seconds

_ROWS = (100, 1_000, 10_000, 100_000)
_FEATURES = (20, 200, 2_000, 20_000)
_COMPONENTS = (2, 10, 100)
_SITES = (3, 50)
_DENSITY = 0.01
_MOST_ENTRIES = 4e8
_QUICK_ENTRIES = 2e5
_SECONDS = 3600.0
_METHODS: tuple[Method, ...] = tuple(m() for m in all_methods().values() if m.automatic)
_MOST_BYTES = 4e9
_FAR_FROM_BEST, _FAR_IF_LONG, _LONG_S = 20.0, 6.0, 2.0
_WRONG_SINE = 1e-4


@dataclass(frozen=True)
class Cell:
    """One shape of the grid."""

    n: int
    d: int
    k: int
    sites: int
    is_sparse: bool

    @property
    def entries(self) -> float:
        """Stored entries of the rows."""
        return self.n * self.d * (_DENSITY if self.is_sparse else 1.0)

    @property
    def shape(self) -> Shape:
        """What the choice is made from."""
        rows, density = -(-self.n // self.sites), _DENSITY if self.is_sparse else 1.0
        return Shape(rows, self.d, self.k, self.sites, certify=False, density=density)

    @property
    def impossible(self) -> str:
        """Why the cell is no cell of anybody's; empty if it is one."""
        if self.k > min(self.n, self.d) // 2:
            return "more components than half the smaller side"
        if self.is_sparse and self.d < 200:
            return "one percent of 20 features is no sparse table"
        if self.entries > _MOST_ENTRIES:
            return f"{8e-9 * self.entries:.0f} GB of rows"
        return ""

    def __str__(self) -> str:
        kind = "sparse" if self.is_sparse else "dense"
        return f"{self.n}x{self.d} {kind}, k={self.k}, {self.sites} sites"


def list_cells() -> list[Cell]:
    """Return all cells: dense rows first, and small tables before large ones."""
    every = product((False, True), _ROWS, _FEATURES, _COMPONENTS, _SITES)
    cells = [Cell(n, d, k, sites, is_sparse) for is_sparse, n, d, k, sites in every]
    return sorted(cells, key=lambda cell: (cell.is_sparse, cell.n * cell.d, cell.d))


@lru_cache(maxsize=1)
def make_rows(n: int, d: int, is_sparse: bool) -> Any:
    """Rows whose variances decay, with signal in every component asked for."""
    rng = np.random.default_rng(0)
    rank = min(n, d, 200)
    spread = 3.0 / np.arange(1, rank + 1) ** 0.75
    if not is_sparse:
        rows = rng.standard_normal((n, d))
        loadings = rng.standard_normal((rank, d))
        for start in range(0, n, 1000):
            part = rows[start : start + 1000]
            part += (rng.standard_normal((len(part), rank)) * spread) @ loadings + 1.0
        return rows
    table: Any = sparse.random_array((n, d), density=_DENSITY, rng=rng, format="csr")
    by_row, by_column = np.exp(0.3 * rng.standard_normal(n)), 1.0 + 9.0 * 0.985 ** np.arange(d)
    table.data *= np.repeat(by_row, np.diff(table.indptr)) * by_column[table.indices]
    return table


def leave_out(cell: Cell) -> dict[str, str]:
    """Return the methods that are not run in a cell, by name, with the reason."""
    seconds = {method.name: predict_seconds(method, cell.shape) for method in _METHODS}
    best, found = min(seconds.values()), {}
    far = _FAR_IF_LONG if best > _LONG_S else _FAR_FROM_BEST
    for method in _METHODS:
        cost = method.cost(cell.shape)
        if seconds[method.name] > far * best:
            found[method.name] = f"predicted {seconds[method.name] / best:.0f} times the best"
        elif cost.coordinator_bytes + cost.site_bytes > _MOST_BYTES:
            found[method.name] = "too much memory"
    return found


def time_once_or_more(job: Callable[[], object]) -> float:
    """Return the least processor time of a job, repeated the more the shorter it is."""
    (first,) = least_cpu(job, repeats=1)
    repeats = 3 if first < 0.5 else 1 if first < 10.0 else 0
    return min([first, *(least_cpu(job, repeats=1)[0] for _ in range(repeats))])


def measure(cell: Cell) -> Line:
    """Compare the times of the methods, and refuse if their results differ."""
    X = make_rows(cell.n, cell.d, cell.is_sparse)
    groups = np.arange(cell.n) * cell.sites // cell.n
    found: dict[str, FederatedPCA] = {}

    def fit(method: str) -> None:
        pca = FederatedPCA(cell.k, method=method, certify=False, random_state=0)
        found[method] = pca.fit(X, groups=groups)

    out = leave_out(cell)
    fit("auto")
    chosen = found["auto"].method_
    out.pop(chosen, None)
    names = [method.name for method in _METHODS if method.name not in out]
    # "auto" may choose a method with other options than its default ones, and is timed itself.
    times = {name: time_once_or_more(partial(fit, name)) for name in ("auto", *names)}
    exact = found["auto"].components_
    apart = max(float(sines(found[name].components_, exact)[0]) for name in names)
    shown = [f"{name} {1e3 * s:.0f} ms" for name, s in times.items()]
    shown += [f"no {name}: {reason}" for name, reason in out.items()]
    return Line(
        f"auto / best, {cell}",
        times["auto"] / min(times.values()),
        "at most",
        1.5,
        apart < _WRONG_SINE,
        f"{chosen}; {', '.join(shown)}; sine {apart:.0e}",
    )


def lines(
    most: float = _QUICK_ENTRIES, seconds: float = _SECONDS, *, all_cells: bool = False
) -> Iterator[Line]:
    """Yield a line for each cell, and for those that are not run if `all_cells`."""
    end = time.monotonic() + seconds
    with threadpool_limits(1):
        for cell in list_cells():
            reason = cell.impossible
            if not reason and cell.entries > most:
                reason = f"more than {most:g} entries"
            elif not reason and time.monotonic() > end:
                reason = f"not begun within {seconds:g} seconds"
            if not reason:
                yield measure(cell)
            elif all_cells:
                yield Line(f"auto / best, {cell}", 0.0, "skipped", 0.0, True, reason)


if __name__ == "__main__":
    given = [float(argument) for argument in sys.argv[1:3]]
    limits = given + [_MOST_ENTRIES, _SECONDS][len(given) :]
    for line in lines(*limits, all_cells=True):
        print(line, flush=True)
