"""Tables that break naive code, and ways to cut them up."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from eigenfed.arrays import Array

KINDS = (
    "plain",
    "offset",
    "low_rank",
    "constant_column",
    "duplicate_rows",
    "graded",
    "zeros",
    "integer",
    "float32",
)


class Case(NamedTuple):
    """Rows and their weights, in pieces."""

    X: Array
    weights: Array
    cuts: list[int]

    @property
    def pieces(self) -> list[tuple[Array, Array]]:
        """The rows and weights between the cuts; some pieces may be empty."""
        edges = [0, *self.cuts, len(self.X)]
        spans = [slice(a, b) for a, b in pairwise(edges)]
        return [(self.X[span], self.weights[span]) for span in spans]


def table(kind: str, n: int, d: int, rng: np.random.Generator) -> Array:
    """Make n rows of d features of one kind."""
    X = rng.standard_normal((n, d))
    match kind:
        case "offset":
            X += 1e4 * rng.standard_normal(d)
        case "low_rank":
            r = max(1, min(n, d) // 3)
            X = rng.standard_normal((n, r)) @ rng.standard_normal((r, d))
        case "constant_column":
            X[:, 0] = 7.0
        case "duplicate_rows":
            X = X[rng.integers(0, max(1, n // 4), n)]
        case "graded":
            X *= 10.0 ** -np.linspace(0, 6, d)
        case "zeros":
            X[:] = 0.0
        case "integer":
            X = rng.integers(-9, 10, (n, d)).astype(np.float64)
        case "float32":
            X = X.astype(np.float32).astype(np.float64)
    return X


@st.composite
def cases(draw: st.DrawFn, *, scales: tuple[float, ...] = (1.0, 1e-100, 1e100)) -> Case:
    """Draw rows, weights and cuts."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d = draw(st.integers(1, 60)), draw(st.integers(1, 12))
    X = draw(st.sampled_from(scales)) * table(draw(st.sampled_from(KINDS)), n, d, rng)
    weights = np.ones(n)
    if draw(st.booleans()):
        weights = rng.integers(0, 4, n) * rng.uniform(0.5, 1.5, n)
        weights[draw(st.integers(0, n - 1))] = 1.0
    return Case(X, weights, sorted(draw(st.lists(st.integers(0, n), max_size=6))))
