"""No pair of neighbours moves a sum further than its stated sensitivity, and some move it as far.

First a search in real numbers by numeric optimisation from many starts; then the operations of a
site themselves, in whole numbers, on the worst neighbours known and on random and hostile ones.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from eigenfed.arrays import Array, Arrays
from eigenfed.data.source import Source
from eigenfed.errors import InputError, ProtocolError
from eigenfed.privacy.grid import coarsest, grid_for
from eigenfed.privacy.sensitivity import (
    RELATIONS,
    of_count,
    of_second_moment,
    of_sketch,
    of_total,
)
from eigenfed.protocol.ops import Op
from eigenfed.protocol.private_site import (
    private_product,
    private_scatter,
    private_scree,
    private_total,
    private_within,
)
from neighbours import CENTER, RADIUS, REST, D, Pair, moved, payload_of, worst_pairs

WIDTH = 2
Part = Callable[[Array], Array]
"""What a row brings to a sum."""


def in_ball(x: Array, clip: float) -> Array:
    return x * min(1.0, clip / max(float(np.linalg.norm(x)), 1e-300))


def second_moment(x: Array) -> Array:
    return np.outer(x, x)


def triangle(x: Array) -> Array:
    """The upper triangle in units of its noise, 1 on the diagonal and sqrt(1/2) beside."""
    i, j = np.triu_indices(len(x))
    return np.where(i == j, 1.0, math.sqrt(2.0)) * np.outer(x, x)[i, j]


def itself(x: Array) -> Array:
    return x


def shares(x: Array) -> Array:
    """Squared lengths along two components and outside them."""
    return np.append(x[:WIDTH] ** 2, np.sum(x[WIDTH:] ** 2))


def sketch(update_clip: float) -> Part:
    def part(x: Array) -> Array:
        onto = x[:WIDTH]
        size = float(np.linalg.norm(x) * np.linalg.norm(onto))
        return np.outer(x, onto * min(1.0, update_clip / max(size, 1e-300)))

    return part


def largest_change(part: Part, clip: float, relation: str, *, starts: int = 12) -> float:
    """Search for the neighbours between which a sum changes most."""
    rng, d, best = np.random.default_rng(3), 2 * WIDTH, 0.0
    rows = 2 if relation == "replace_one" else 1

    def change(flat: Array) -> float:
        x, *other = (part(in_ball(row, clip)) for row in flat.reshape(rows, d))
        return -float(np.linalg.norm(x - other[0] if other else x))

    for _ in range(starts):
        found = minimize(change, 2 * clip * rng.standard_normal(rows * d), method="L-BFGS-B")
        # The best points are on kinks, where a rough direction search still climbs.
        found = minimize(change, found.x, method="Powell", options={"maxiter": 20})
        best = max(best, -float(found.fun))
    return best


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("clip", [0.2, 3.0])
@pytest.mark.parametrize(
    ("part", "stated"),
    [
        (itself, of_total),
        (second_moment, of_second_moment),
        (triangle, of_second_moment),
        (shares, of_second_moment),
    ],
)
def test_a_search_reaches_the_stated_sensitivity_and_never_more(
    part: Part, stated: Callable[[float, str], float], clip: float, relation: str
) -> None:
    found = largest_change(part, clip, relation)
    assert 0.99 * stated(clip, relation) <= found <= stated(clip, relation) * (1 + 1e-9)


@cache
def largest_change_of_a_sketch(update_clip: float, relation: str) -> float:
    return largest_change(sketch(update_clip), 1.0, relation)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("update_clip", [0.05, 0.3, 0.5, 0.65, 1.0])
def test_a_search_never_exceeds_the_sensitivity_of_a_sketch(
    update_clip: float, relation: str
) -> None:
    found = largest_change_of_a_sketch(update_clip, relation)
    stated = of_sketch(1.0, update_clip, relation)
    assert found <= stated * (1 + 1e-9)
    if relation == "zero_out" or update_clip in (0.05, 1.0):
        assert found >= 0.99 * stated


@pytest.mark.parametrize(("update_clip", "reached"), [(0.5, 0.866), (0.3, 0.572)])
def test_root_2_times_the_clip_of_updates_is_exceeded(update_clip: float, reached: float) -> None:
    found = largest_change_of_a_sketch(update_clip, "replace_one")
    assert found == pytest.approx(reached, abs=1e-3)
    assert found > 1.2 * math.sqrt(2.0) * update_clip


def test_the_worst_update_known_in_closed_form_stays_within_the_bound() -> None:
    """Rows (a, b) and (-a, b) with |x| = 1 and a = c: their updates are 2 c sqrt(1 - c^2) apart."""
    for c in (0.05, 0.3, 0.5, 0.7):
        one, other = (np.array([s * c, 0.0, math.sqrt(1 - c * c), 0.0]) for s in (1, -1))
        apart = float(np.linalg.norm(sketch(c)(one) - sketch(c)(other)))
        assert apart == pytest.approx(2 * c * math.sqrt(1 - c * c), rel=1e-12)
        assert apart <= of_sketch(1.0, c, "replace_one")


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_count_changes_by_one(relation: str) -> None:
    assert of_count(relation) == 1.0


def test_another_relation_is_refused() -> None:
    for stated in (of_total, of_second_moment):
        with pytest.raises(InputError, match="'zero_out'"):
            stated(1.0, "add_remove")
    with pytest.raises(InputError, match="'zero_out'"):
        of_count("")
    with pytest.raises(InputError, match="'zero_out'"):
        of_sketch(1.0, 1.0, "entry")


# The operations themselves ----------------------------------------------------------------------

OPS = (private_within, private_total, private_scatter, private_product, private_scree)


def fitting(relation: str, update_clip: float = 1.0) -> Arrays:
    """An ask that every operation understands."""
    basis = np.linalg.qr(np.random.default_rng(2).standard_normal((D, WIDTH))).Q
    return payload_of(relation, basis=basis, components=basis.T, update_clip=update_clip)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", worst_pairs("replace_one"))
def test_the_worst_neighbours_move_an_operation_as_far_as_it_says(name: str, relation: str) -> None:
    assert 0.98 <= moved(*worst_pairs(relation)[name].answers) <= 1.0


entries = st.one_of(
    st.floats(-3 * RADIUS, 3 * RADIUS),
    st.sampled_from([0.0, 5e-324, -1e-300, 1e-8, 1e120, -1e300, 1.7e308, -1.7e308]),
)
some_row = st.lists(entries, min_size=D, max_size=D).map(np.array)


@given(
    row=some_row,
    other=some_row,
    update_clip=st.sampled_from([1e-9, 0.01, 0.3, 1.0]),
    op=st.sampled_from(OPS),
    relation=st.sampled_from(RELATIONS),
)
def test_no_neighbours_move_an_operation_further_than_it_says(
    row: Array, other: Array, update_clip: float, op: Op, relation: str
) -> None:
    """In whole numbers, through the code that runs at a site; also where rows would overflow."""
    second = other if relation == "replace_one" else None
    pair = Pair(op, fitting(relation, update_clip), row, second)
    assert moved(*pair.answers) <= 1.0


@pytest.mark.parametrize("op", OPS, ids=lambda op: str(op.name))
def test_many_random_neighbours_stay_within(op: Op) -> None:
    rng = np.random.default_rng(5)
    for update_clip in (0.02, 0.4, 1.0):
        payload = fitting("replace_one", update_clip)
        rows = rng.standard_normal((60, D)) * np.exp(2 * rng.standard_normal((60, 1)))
        pairs = (Pair(op, payload, *two) for two in rows.reshape(30, 2, D))
        shifts = [moved(*pair.answers) for pair in pairs]
        assert max(shifts) <= 1.0


@pytest.mark.parametrize("op", OPS, ids=lambda op: str(op.name))
def test_a_row_counts_once_whatever_the_shape_of_the_centre(op: Op) -> None:
    """A centre for each of many rows would make one row count as many times."""
    single = Source.of(CENTER[None])
    for shape in ((500, D), (1, D), (D, 1), ()):
        payload = fitting("replace_one") | {"center": np.zeros(shape)}
        with pytest.raises(ProtocolError, match="centre"):
            op.run(single, payload, {})


@pytest.mark.parametrize(
    ("changed", "about"),
    [
        ({"center": np.array([0.0, np.nan, 0.0])}, "centre"),
        ({"center": np.array([0.0, 1e308, 0.0])}, "centre"),
        ({"radius": np.array([0.0])}, "radius"),
        ({"radius": np.array([-1.0])}, "radius"),
        ({"radius": np.array([np.nan])}, "radius"),
        ({"radius": np.array([np.inf])}, "radius"),
        ({"privacy.relation": np.array([2])}, "relation"),
        ({"privacy.relation": np.array([-1])}, "relation"),
    ],
)
@pytest.mark.parametrize("op", OPS, ids=lambda op: str(op.name))
def test_what_would_void_the_sensitivity_is_refused(op: Op, changed: Arrays, about: str) -> None:
    with pytest.raises(ProtocolError, match=about):
        op.run(Source.of(REST), fitting("replace_one") | changed, {})


@pytest.mark.parametrize("clip", [0.0, -0.9 * math.sqrt(20) / 2**20, 1.5, np.nan, np.inf])
def test_a_clip_of_updates_that_is_none_is_refused(clip: float) -> None:
    with pytest.raises(ProtocolError, match="clip of updates"):
        private_product.run(Source.of(REST), fitting("replace_one", clip), {})


@pytest.mark.parametrize("grid", [-1, 0, 1, int(coarsest(D)) - 1, 2 * grid_for(len(REST), D)])
@pytest.mark.parametrize("op", [private_total, private_scatter, private_product])
def test_a_grid_that_does_not_fit_is_refused_before_any_row_is_looked_at(op: Op, grid: int) -> None:
    payload = fitting("replace_one") | {"grid": np.array([grid])}
    for X in (np.zeros((1, D)), REST):
        with pytest.raises(ProtocolError, match="grid"):
            op.run(Source.of(X), payload, {})


@pytest.mark.parametrize(
    "basis",
    [
        1.01 * np.eye(D)[:, :2],
        np.ones((D, 2)),
        np.full((D, 2), np.nan),
        np.full((D, 2), np.inf),
        np.eye(D + 1)[:, :2],
        np.eye(D)[0],
        np.zeros((D, 0)),
        np.eye(D, D + 1),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_directions_that_are_not_orthonormal_are_refused(basis: Array) -> None:
    for op, name, directions in (
        (private_product, "basis", basis),
        (private_scree, "components", basis.T),
    ):
        with pytest.raises(ProtocolError, match="orthonormal"):
            op.run(Source.of(REST), fitting("replace_one") | {name: directions}, {})


def test_rows_of_unequal_weight_or_with_gaps_are_refused() -> None:
    gap = REST.copy()
    gap[0, 0] = np.nan
    for source in (Source.of(gap), Source.of(REST, weights=np.ones(len(REST)))):
        for op in OPS:
            with pytest.raises(ProtocolError, match="whole and of equal weight"):
                op.run(source, fitting("replace_one"), {})
