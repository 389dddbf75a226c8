"""The method that "auto" chooses against the fastest one, over a grid of shapes.

``python -m bench.choice`` prints the whole grid, which takes hours, and ``python -m bench.choice
1e7`` the cells of at most so many stored entries; the benchmark itself has those of at most 2e5.
Cells of more than 4e8 are left out, as are more components than half the smaller side, and sparse
rows of 20 features.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from bench.table import Line, least_cpu
from eigenfed import FederatedPCA
from eigenfed.linalg.orthonormal import sines
from eigenfed.protocol.method import all_methods

_ROWS = (100, 1_000, 10_000, 100_000)
_FEATURES = (20, 200, 2_000, 20_000)
_COMPONENTS = (2, 10, 100)
_SITES = (3, 50)
_DENSITY = 0.01
_MOST_ENTRIES = 4e8
_QUICK_ENTRIES = 2e5
_METHODS = tuple(name for name, method in all_methods().items() if method.automatic)
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

    def __str__(self) -> str:
        kind = "sparse" if self.is_sparse else "dense"
        return f"{self.n}x{self.d} {kind}, k={self.k}, {self.sites} sites"


def grid(most: float) -> Iterator[Cell]:
    """Yield the cells of at most so many entries."""
    for n, d, is_sparse, k, sites in product(_ROWS, _FEATURES, (False, True), _COMPONENTS, _SITES):
        cell = Cell(n, d, k, sites, is_sparse)
        # One percent of 20 features is no sparse table.
        is_one = k <= min(n, d) // 2 and not (is_sparse and d < 200)
        if is_one and cell.entries <= min(most, _MOST_ENTRIES):
            yield cell


def make_rows(cell: Cell) -> Any:
    """Rows whose variances decay, with signal in every component asked for."""
    rng = np.random.default_rng(0)
    n, d, rank = cell.n, cell.d, min(cell.n, cell.d, 200)
    spread = 3.0 / np.arange(1, rank + 1) ** 0.75
    if not cell.is_sparse:
        rows = rng.standard_normal((n, d))
        rows += (rng.standard_normal((n, rank)) * spread) @ rng.standard_normal((rank, d))
        return rows + 1.0
    table: Any = sparse.random_array((n, d), density=_DENSITY, rng=rng, format="csr")
    by_row, by_column = np.exp(0.3 * rng.standard_normal(n)), 1.0 + 9.0 * 0.97 ** np.arange(d)
    table.data *= np.repeat(by_row, np.diff(table.indptr)) * by_column[table.indices]
    return table


def measure(cell: Cell, repeats: int) -> tuple[dict[str, float], str, float]:
    """Return the processor seconds of each method, the choice, and the worst sine between them."""
    X = make_rows(cell)
    groups = np.arange(cell.n) * cell.sites // cell.n

    def fit(method: str) -> FederatedPCA:
        pca = FederatedPCA(cell.k, method=method, certify=False, random_state=0)
        return pca.fit(X, groups=groups)

    found = {"auto": fit("auto")}
    times = {}
    for name in _METHODS:
        # A matrix of 20000 x 20000 takes minutes and 6 GB, and is never the best of these.
        if name == "covariance" and cell.d > 2_000:
            continue
        found[name] = fit(name)
        (times[name],) = least_cpu(partial(fit, name), repeats=repeats)
    exact = found["krylov"].components_
    apart = max(float(sines(pca.components_, exact)[0]) for pca in found.values())
    return times, found["auto"].method_, apart


def lines(most: float = _QUICK_ENTRIES) -> Iterator[Line]:
    with threadpool_limits(1):
        for cell in grid(most):
            times, chosen, apart = measure(cell, repeats=3)
            best = min(times, key=lambda name: times[name])
            shown = ", ".join(f"{name} {1e3 * s:.0f} ms" for name, s in times.items())
            yield Line(
                f"auto / best, {cell}",
                times[chosen] / times[best],
                "at most",
                1.5,
                apart < _WRONG_SINE,
                f"{chosen}; {shown}; sine {apart:.0e}",
            )


if __name__ == "__main__":
    for line in lines(float(sys.argv[1]) if len(sys.argv) > 1 else _MOST_ENTRIES):
        print(line, flush=True)
