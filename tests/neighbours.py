"""Neighbouring tables, and how far the operations of a private PCA move between them."""

from dataclasses import dataclass

import numpy as np

from eigenfed.arrays import Array, Arrays
from eigenfed.data.source import Source
from eigenfed.privacy.grid import grid_for
from eigenfed.privacy.sensitivity import RELATIONS
from eigenfed.protocol.ops import Answer, Op
from eigenfed.protocol.private_site import (
    private_product,
    private_scatter,
    private_scree,
    private_total,
    private_within,
)

D, RADIUS = 3, 2.0
CENTER = np.array([0.3, -1.1, 0.7])
REST = CENTER + np.random.default_rng(0).standard_normal((20, D))
E1, E2, E3 = np.eye(D)


def payload_of(relation: str, **arrays: object) -> Arrays:
    """A private ask about the common centre and radius."""
    terms = {
        "center": CENTER,
        "radius": np.array([RADIUS]),
        "grid": np.array([grid_for(len(REST) + 1, D)]),
        "privacy.relation": np.array([RELATIONS.index(relation)]),
    }
    return terms | {name: np.atleast_1d(np.asarray(a)) for name, a in arrays.items()}


@dataclass(frozen=True, eq=False)
class Pair:
    """Two tables that differ in one row: replaced, or (None) taken out of every sum."""

    op: Op
    payload: Arrays
    row: Array
    other: Array | None

    @property
    def answers(self) -> tuple[Answer, Answer]:
        tables = (np.vstack([REST, r[None]]) if r is not None else REST for r in self.rows)
        one, other = (self.op.run(Source.of(X), self.payload, {}) for X in tables)
        return one, other

    @property
    def rows(self) -> tuple[Array, Array | None]:
        return CENTER + self.row, None if self.other is None else CENTER + self.other


def moved(one: Answer, other: Answer) -> float:
    """How far apart two replies are, as a part of the sensitivity that they declare."""
    assert one.noise is not None
    assert other.noise is not None
    assert one.noise.sensitivity == other.noise.sensitivity
    square = 0.0
    for name, values in one.reply.items():
        relative = one.noise.relative.get(name, np.ones(values.shape))
        square += float(np.sum(((values - other.reply[name]) / relative) ** 2))
    return float(np.sqrt(square)) / one.noise.sensitivity


def worst_pairs(relation: str) -> dict[str, Pair]:
    """For each operation, the neighbours that theory says are worst."""
    far = 5.0 * RADIUS
    thin, wide = 0.05 * RADIUS, RADIUS
    plain = payload_of(relation)
    every = payload_of(relation, basis=np.eye(D)[:, :2], update_clip=1.0)
    clipped = payload_of(relation, basis=np.eye(D)[:, :1], update_clip=0.05)
    parts = payload_of(relation, components=np.eye(D)[:2])
    replaced = {
        "private_within": Pair(private_within, plain, 0.5 * RADIUS * E1, far * E2),
        "private_total": Pair(private_total, plain, far * E1, -far * E1),
        "private_scatter": Pair(private_scatter, plain, far * E1, far * E2),
        "private_product": Pair(private_product, every, far * E1, far * E2),
        "clipped private_product": Pair(
            private_product, clipped, thin * E1 + wide * E3, -thin * E1 + wide * E3
        ),
        "private_scree": Pair(private_scree, parts, far * E1, far * E2),
    }
    if relation == "replace_one":
        return replaced
    return {name: Pair(p.op, p.payload, p.row, None) for name, p in replaced.items()}
