"""No pair of neighbours moves a sum further than its stated sensitivity, and some move it as far.

First a search in real numbers by numeric optimisation from many starts; then the operations of a
site themselves, in whole numbers, on the worst neighbours known and on random and hostile ones.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.privacy.dp.clipping import choose_grid, least_grid, max_exact_rows
from eigenfed.privacy.dp.sensitivity import (
    RELATIONS,
    count_sensitivity,
    second_moment_sensitivity,
    sketch_sensitivity,
    sum_sensitivity,
)
from eigenfed.privacy.ledger.ledger import Ledger
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.protocol.messages import pack
from eigenfed.protocol.operations import Op, State, Terms
from eigenfed.protocol.private.private_site import (
    BallRequest,
    GridRequest,
    MomentRequest,
    ScreeRequest,
    Sketched,
    SketchRequest,
    private_product,
    private_scatter,
    private_scree,
    private_total,
)
from eigenfed.protocol.private.reply_noise import update_clip_of
from eigenfed.protocol.study import Study
from private_runs import (
    BALL,
    CENTER,
    COUNTING,
    GRID,
    OPS,
    RADIUS,
    REST,
    ROWS,
    WIDTH,
    D,
    Pair,
    apart,
    asking,
    fitting,
    terms_of,
    walked,
    worst_pairs,
)

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


def largest_change(part: Part, clip: float, relation: str, *, starts: int = 8) -> float:
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
        (itself, sum_sensitivity),
        (second_moment, second_moment_sensitivity),
        (triangle, second_moment_sensitivity),
        (shares, second_moment_sensitivity),
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
    stated = sketch_sensitivity(1.0, update_clip, relation)
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
        assert apart <= sketch_sensitivity(1.0, c, "replace_one")


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_count_changes_by_one(relation: str) -> None:
    assert count_sensitivity(relation) == 1.0


def test_another_relation_is_refused() -> None:
    for stated in (sum_sensitivity, second_moment_sensitivity):
        with pytest.raises(InputError, match="'zero_out'"):
            stated(1.0, "add_remove")
    with pytest.raises(InputError, match="'zero_out'"):
        count_sensitivity("")
    with pytest.raises(InputError, match="'zero_out'"):
        sketch_sensitivity(1.0, 1.0, "entry")


# The operations themselves ----------------------------------------------------------------------


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", worst_pairs("replace_one"))
def test_the_worst_neighbours_move_an_operation_as_far_as_it_says(name: str, relation: str) -> None:
    assert 0.98 <= worst_pairs(relation)[name].moved <= 1.0


entries = st.one_of(
    st.floats(-3 * RADIUS, 3 * RADIUS),
    st.sampled_from([0.0, 5e-324, -1e-300, 1e-8, 1e120, -1e300, 1.7e308, -1.7e308]),
)
some_row = st.lists(entries, min_size=D, max_size=D).map(np.array)


@given(
    row=some_row,
    other=some_row,
    update_clip=st.sampled_from([1e-9, 0.01, 0.3, 1.0]),
    op=st.sampled_from(COUNTING),
    relation=st.sampled_from(RELATIONS),
)
def test_no_neighbours_move_an_operation_further_than_it_says(
    row: Array, other: Array, update_clip: float, op: Op[Any, Any], relation: str
) -> None:
    """In whole numbers, through the code that runs at a site; also where rows would overflow."""
    second = other if relation == "replace_one" else None
    assert Pair(op, fitting(op, update_clip), row, second, relation).moved <= 1.0


@pytest.mark.parametrize("op", COUNTING, ids=lambda op: str(op.name))
def test_many_random_neighbours_stay_within(op: Op[Any, Any]) -> None:
    rng = np.random.default_rng(5)
    for update_clip in (0.02, 0.4, 1.0):
        request = fitting(op, update_clip)
        rows = rng.standard_normal((60, D)) * np.exp(2 * rng.standard_normal((60, 1)))
        pairs = (Pair(op, request, *two) for two in rows.reshape(30, 2, D))
        assert max(pair.moved for pair in pairs) <= 1.0


@pytest.mark.parametrize("d", [3, 50, 400])
@pytest.mark.parametrize("relation", RELATIONS)
def test_the_updates_of_a_first_product_are_clipped_and_its_noise_is_made_for_that(
    d: int, relation: str
) -> None:
    """Nobody is told to which part; it follows from the shape. Later ones are not clipped."""
    privacy = Privacy(1.0, 1e-5, relation=relation, trust="local")
    terms = Terms(Study(("a",), 1, "power", privacy=privacy), 3, d)
    request = SketchRequest(center=np.zeros(d), radius=1.0, n=3, basis=np.eye(d)[:, :2])
    part = update_clip_of(2, d, first=True)
    assert part == min(1.0, 1.5 * math.sqrt(2 / d))
    row = np.zeros((1, d))
    row[0, [0, d - 1]] = part, math.sqrt(1 - part**2)
    other = row * np.where(np.arange(d) == 0, -1.0, 1.0)
    rest = np.random.default_rng(d).standard_normal((2, d)) / math.sqrt(d)
    second = other if relation == "replace_one" else np.zeros((0, d))
    tables = [Source.of(np.vstack([rest, rows])) for rows in (row, second)]
    for state, clip in ((State(), part), (State(own=Sketched()), 1.0)):
        noise = request.noise(terms, state)
        assert noise is not None
        assert request.update_clip(state) == clip
        grid = choose_grid(3, d)
        assert noise.sensitivity == pytest.approx(
            sketch_sensitivity(grid, clip * grid**2, relation), 1e-4
        )
        answers = [private_product.run(table, request, state, terms) for table in tables]
        one, two = (pack(answer.reply) for answer in answers)
        assert apart(one, two, noise) <= 1.0
        assert answers[0].state.own == Sketched()
    if part < 1.0:
        # Rows within the directions are the ones that are clipped: whole, they would move it more.
        inside = [np.eye(d)[[0]], np.eye(d)[[1]] if len(second) else second]
        whole = [Source.of(np.vstack([rest, rows])) for rows in inside]
        first = request.noise(terms, State())
        assert first is not None
        for state, fits in ((State(), True), (State(own=Sketched()), False)):
            one, two = (pack(private_product.run(t, request, state, terms).reply) for t in whole)
            assert (apart(one, two, first) <= 1.0) == fits


@pytest.mark.parametrize("op", OPS, ids=lambda op: str(op.name))
def test_a_row_counts_once_whatever_the_shape_of_the_centre(op: Op[Any, Any]) -> None:
    """A centre for each of many rows would make one row count as many times."""
    request = fitting(op)
    assert isinstance(request, BallRequest)
    for shape in ((500, D), (1, D), (D, 1), ()):
        with pytest.raises(InputError, match="center must have the shape"):
            replace(request, center=np.zeros(shape)).check(terms_of("replace_one"), State())


@pytest.mark.parametrize(
    ("changed", "about"),
    [
        ({"center": np.array([0.0, np.nan, 0.0])}, "center"),
        ({"center": np.array([0.0, 1e308, 0.0])}, "center"),
        ({"center": np.array([0.0, 1e101, 0.0])}, "centre"),
        ({"radius": 0.0}, "radius"),
        ({"radius": -1.0}, "radius"),
        ({"radius": np.nan}, "radius"),
        ({"radius": np.inf}, "radius"),
        ({"radius": 1e-101}, "radius"),
    ],
)
@pytest.mark.parametrize("op", OPS, ids=lambda op: str(op.name))
def test_what_would_void_the_sensitivity_is_refused(
    op: Op[Any, Any], changed: dict[str, Any], about: str
) -> None:
    request, terms = fitting(op), terms_of("replace_one")
    request.check(terms, State())
    with pytest.raises(InputError, match=about):
        replace(request, **changed).check(terms, State())


@pytest.mark.parametrize("n", [-1, 0, (1 << 40) + 1])
@pytest.mark.parametrize("op", [private_total, private_scatter, private_product])
def test_a_number_of_rows_without_a_grid_is_refused_before_any_row_is_looked_at(
    op: Op[Any, Any], n: int
) -> None:
    request = fitting(op)
    assert isinstance(request, GridRequest)
    with pytest.raises(InputError, match="n must be"):
        replace(request, n=n).check(terms_of("replace_one"), State())


def test_more_rows_than_the_grid_of_so_many_features_carries_are_refused() -> None:
    request = MomentRequest(center=np.zeros(3000), radius=1.0, n=1 << 39)
    terms = replace(terms_of("replace_one"), d=3000)
    assert least_grid(3000) > 1 << 6
    with pytest.raises(InputError, match="too many to be summed exactly"):
        request.check(terms, State())
    replace(request, n=1 << 33).check(terms, State())


@pytest.mark.parametrize("op", [private_total, private_scatter, private_product])
def test_sums_are_exact_however_few_rows_the_grid_is_made_for(op: Op[Any, Any]) -> None:
    """In Python's own integers, of more rows than float64 could add up on that grid."""
    X = np.tile(CENTER + RADIUS * np.array([[0.6, 0.8, 0.0]]), (3 * max_exact_rows(1 << 20), 1))
    request = fitting(op)
    assert isinstance(request, GridRequest)
    pair = Pair(op, replace(request, n=1), REST[0], None)
    many, one = pair.reply(X), pair.reply(X[:1])
    for name, values in one.items():
        exact = [int(value) * len(X) for value in values.ravel()]
        assert max(map(abs, exact)) > (1 << 53) or op is private_total
        assert [int(value) for value in many[name].ravel()] == exact


BASES = [
    1.01 * np.eye(D)[:, :2],
    np.ones((D, 2)),
    np.full((D, 2), np.nan),
    np.full((D, 2), np.inf),
    np.eye(D + 1)[:, :2],
    np.eye(D)[0],
    np.zeros((D, 0)),
    np.eye(D, D + 1),
]


@pytest.mark.parametrize("basis", BASES)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_directions_that_are_not_orthonormal_are_refused(basis: Array) -> None:
    terms = terms_of("replace_one")
    for request in (
        SketchRequest(basis=basis, **GRID),
        ScreeRequest(components=basis.T, **BALL),
    ):
        with pytest.raises(InputError, match=r"basis|components"):
            request.check(terms, State())


def test_more_directions_than_the_study_has_are_refused() -> None:
    terms = replace(terms_of("replace_one"), d=8)
    ball: dict[str, Any] = {"center": np.zeros(8), "radius": 1.0}
    SketchRequest(basis=np.eye(8)[:, : 2 * WIDTH], n=ROWS, **ball).check(terms, State())
    with pytest.raises(InputError, match="1 to 4 columns"):
        SketchRequest(basis=np.eye(8)[:, : 2 * WIDTH + 1], n=ROWS, **ball).check(terms, State())
    with pytest.raises(InputError, match="1 to 2 columns"):
        ScreeRequest(components=np.eye(8)[: WIDTH + 1], **ball).check(terms, State())


def test_rows_of_unequal_weight_are_refused_before_a_run_begins() -> None:
    study = terms_of("replace_one").study
    for weights in (np.ones(len(REST)), np.arange(1.0, len(REST) + 1)):
        weighted = asking(study, Source.of(REST, weights=weights), ledger=Ledger(None))
        assert weighted.opened().label == "weights"
        assert weighted.code(fitting(private_scree)) == "closed"
    assert walked(asking(study, Source.of(REST), ledger=Ledger(None)), "private_start", D)
