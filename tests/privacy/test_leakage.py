"""The meter against dense algebra on all directions at once."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenfed.arrays import Array, Container
from eigenfed.errors import DataError, InputError
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.meter_reading import read_answers
from eigenfed.privacy.release import Reveals
from eigenfed.privacy.revealed_products import RevealedEntries, RevealedProducts

KINDS = ("fresh", "repeated", "mixed", "zero", "near", "wide", "unit", "small")


def block(kind: str, so_far: Array, rng: np.random.Generator) -> Array:
    """Make directions of one kind, given those before."""
    d = len(so_far)
    fresh = rng.standard_normal((d, int(rng.integers(1, 4))))
    match kind:
        case "repeated" if so_far.size:
            return so_far[:, rng.integers(0, so_far.shape[1], 2)]
        case "mixed" if so_far.size:
            within: Array = so_far @ rng.standard_normal((so_far.shape[1], 2))
            return np.hstack([within, fresh])
        case "zero":
            return np.hstack([np.zeros((d, 1)), fresh, np.zeros((d, 1))])
        case "near" if so_far.size:
            # One thousandth away from what was asked: independent, though nearly not.
            return so_far[:, :1] + 1e-3 * rng.standard_normal((d, 1))
        case "wide":
            return rng.standard_normal((d, d + 2))
        case "unit":
            return np.eye(d)[:, [int(rng.integers(0, d))]]
        case "small":
            return 1e-9 * fresh
    return fresh


def metered(scatter: Array, blocks: Sequence[Array], meter: Meter | None = None) -> Meter:
    meter = meter or Meter.empty(len(scatter))
    for directions in blocks:
        answer = RevealedProducts(directions, scatter @ directions, float(scatter.trace()))
        meter = meter.answered(answer)
    return meter


def expected(scatter: Array, blocks: Sequence[Array]) -> tuple[int, float]:
    """Rank of all directions stacked, each of length 1, and the trace of the best completion."""
    stacked = np.hstack(blocks)
    sizes = np.linalg.norm(stacked, axis=0)
    stacked = stacked[:, sizes > 0] / sizes[sizes > 0]
    rank = int(np.linalg.matrix_rank(stacked, tol=1e-8)) if stacked.size else 0
    basis = np.linalg.svd(stacked, full_matrices=False)[0][:, :rank]
    images = scatter @ basis
    inverse = np.linalg.pinv(basis.T @ images, rcond=1e-8, hermitian=True)
    return rank, float(np.trace(images @ inverse @ images.T) / np.trace(scatter))


@given(
    seed=st.integers(0, 2**32 - 1),
    d=st.integers(1, 8),
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=6),
    data_rank=st.integers(1, 8),
    size=st.sampled_from([1.0, 1e-50, 1e50]),
)
def test_rank_and_variance_are_those_of_all_directions_at_once(
    seed: int, d: int, kinds: list[str], data_rank: int, size: float
) -> None:
    rng = np.random.default_rng(seed)
    factor = rng.standard_normal((d, data_rank))
    scatter: Array = size * (factor @ factor.T)
    blocks: list[Array] = []
    for kind in kinds:
        blocks.append(block(kind, np.hstack(blocks) if blocks else np.zeros((d, 0)), rng))
    meter = metered(scatter, blocks)
    rank, share = expected(scatter, blocks)
    assert meter.rank_fraction == rank / d
    assert meter.variance_fraction == pytest.approx(share, abs=1e-5)
    np.testing.assert_allclose(meter.basis.T @ meter.basis, np.eye(rank), rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        meter.images,
        scatter @ meter.basis,
        rtol=0,
        atol=1e-7 * size * np.abs(scatter / size).max(),
    )


@given(seed=st.integers(0, 2**32 - 1), cuts=st.lists(st.integers(0, 6), max_size=3))
def test_how_directions_are_cut_into_asks_does_not_matter(seed: int, cuts: list[int]) -> None:
    rng = np.random.default_rng(seed)
    scatter = np.diag(1.0 + np.arange(9))
    directions = rng.standard_normal((9, 6))
    pieces = np.split(directions, sorted(cuts), axis=1)
    once, often = metered(scatter, [directions]), metered(scatter, pieces)
    assert often.rank_fraction == once.rank_fraction == 6 / 9
    assert often.variance_fraction == pytest.approx(once.variance_fraction, abs=1e-10)


def test_the_same_directions_again_change_nothing() -> None:
    rng = np.random.default_rng(0)
    scatter = np.diag([5.0, 4.0, 3.0, 2.0, 1.0, 0.5])
    directions = rng.standard_normal((6, 3))
    once = metered(scatter, [directions])
    again = metered(scatter, [directions[:, ::-1] @ rng.standard_normal((3, 3))] * 20, once)
    assert again.rank_fraction == once.rank_fraction == 0.5
    assert again.variance_fraction == pytest.approx(once.variance_fraction, abs=1e-12)


def test_all_directions_are_all_of_the_variance() -> None:
    scatter = np.diag([5.0, 4.0, 1.0])
    meter = metered(scatter, [np.random.default_rng(1).standard_normal((3, 3))])
    assert meter.rank_fraction == 1.0
    assert meter.variance_fraction == pytest.approx(1.0, abs=1e-14)
    assert meter.variance_fraction <= 1.0


@pytest.mark.parametrize(("apart", "rank"), [(1e-9, 2), (5e-11, 2), (1e-12, 2), (1e-17, 1)])
@pytest.mark.parametrize("at_once", [True, False])
def test_nearly_equal_directions_are_told_apart_down_to_rounding(
    apart: float, rank: int, at_once: bool
) -> None:
    """Their images differ by what rounding leaves; only what is below it counts for nothing."""
    first, second = np.eye(4)[:, :1], np.eye(4)[:, 1:2]
    near = first + apart * second
    blocks = [np.hstack([first, near])] if at_once else [first, near]
    assert metered(np.eye(4), blocks).rank_fraction == rank / 4


@pytest.mark.parametrize("apart", [1e-9, 5e-11, 1e-12])
def test_faint_directions_stay_counted_when_a_meter_is_settled_or_stored(apart: float) -> None:
    first, second = np.eye(4)[:, :1], np.eye(4)[:, 1:2]
    meter = metered(np.eye(4), [first, first + apart * second])
    for kept in (meter.settled(), Meter.from_bytes(meter.to_bytes())):
        assert kept.rank_fraction == 0.5
    again = Meter.from_bytes(Meter.from_bytes(meter.to_bytes()).to_bytes())
    assert again.rank_fraction == 0.5


@pytest.mark.parametrize("scale", [None, np.array([1.0, 2.0, 0.5, 4.0])])
def test_what_would_pass_uncounted_is_taken_out_of_a_request(scale: Array | None) -> None:
    """And what is told of beforehand is what is counted afterwards."""
    units = np.ones(4) if scale is None else scale
    first, second, third = (np.eye(4)[:, [j]] * units[:, None] for j in range(3))
    meter = metered(np.eye(4), [first / units[:, None]]).settled()
    hidden = np.hstack([first + 5e-11 * second, third])
    asked = meter.counted(hidden, scale)
    assert abs(asked[1, 0]) < 1e-16
    np.testing.assert_allclose(asked, hidden, atol=1e-10)
    assert meter.rank_with(asked, scale) == 0.5
    seen = np.eye(4) / np.outer(units, units)
    after = meter.answered(RevealedProducts(asked, seen @ asked, 4.0, scale))
    assert after.rank_fraction == 0.5
    fresh = np.hstack([second, third])
    assert meter.counted(fresh, scale) is fresh


def test_totals_and_single_numbers_are_noted() -> None:
    meter = Meter.empty(3).count_reply(Reveals.MEANS, None)
    meter = meter.count_reply(Reveals.BOUND, None).count_reply(Reveals.COUNTS, None)
    back = Meter.from_bytes(meter.to_bytes())
    assert (back.means, back.numbers) == (meter.means, meter.numbers) == (True, 2)
    assert meter.rank_fraction == 0.0


def test_nothing_and_empty_asks_count_nothing() -> None:
    meter = Meter.empty(3)
    assert (meter.rank_fraction, meter.variance_fraction) == (0.0, 0.0)
    meter = meter.answered(RevealedProducts(np.zeros((3, 0)), np.zeros((3, 0)), 4.0))
    meter = meter.answered(RevealedProducts(np.zeros((3, 2)), np.zeros((3, 2)), 4.0))
    assert (meter.rank_fraction, meter.variance_fraction) == (0.0, 0.0)


def test_data_without_spread_have_no_variance_to_give() -> None:
    meter = Meter.empty(2).answered(RevealedProducts(np.eye(2), np.zeros((2, 2)), 0.0))
    assert (meter.rank_fraction, meter.variance_fraction) == (1.0, 0.0)


def test_the_whole_scatter_is_everything_and_the_diagonal_is_noted() -> None:
    some = metered(np.eye(4), [np.eye(4)[:, :1]])
    whole = some.count_reply(Reveals.SCATTER, None)
    assert (whole.rank_fraction, whole.variance_fraction) == (1.0, 1.0)
    noted = some.count_reply(Reveals.DIAGONAL, None)
    assert noted.diagonal
    assert not some.diagonal
    assert (noted.rank_fraction, noted.variance_fraction) == (0.25, 0.25)
    assert (
        not metered(np.eye(4), [np.eye(4)], whole.count_reply(Reveals.DIAGONAL, None)).rank_fraction
        < 1.0
    )


def test_a_meter_never_changes() -> None:
    before = metered(np.eye(3), [np.eye(3)[:, :1]])
    data = before.to_bytes()
    before.answered(RevealedProducts(np.eye(3), np.eye(3), 3.0))
    before.count_reply(Reveals.SCATTER, None)
    assert before.to_bytes() == data


def test_directions_beyond_the_memory_count_as_independent() -> None:
    scatter = np.diag(np.arange(1.0, 7.0))
    limited = replace(Meter.empty(6), limit=2 * 3 * 6 * 8)
    followed = metered(scatter, [np.eye(6)[:, :2], np.eye(6)[:, 2:3]], limited)
    assert (followed.rank_fraction, followed.uncounted) == (0.5, 0)
    assert followed.variance_fraction == pytest.approx(6 / 21)
    beyond = metered(scatter, [np.eye(6)[:, :1]], followed)
    assert (beyond.rank_fraction, beyond.uncounted) == (4 / 6, 1)
    assert beyond.variance_fraction == 1.0
    assert beyond.basis.nbytes <= 3 * 6 * 8
    full = metered(scatter, [np.eye(6)], beyond)
    assert full.rank_fraction == 1.0


@pytest.mark.parametrize("is_settled", [False, True])
def test_a_meter_of_a_single_run_forgets_what_exceeds_its_memory(is_settled: bool) -> None:
    eye = np.eye(6)
    small = replace(Meter.empty(6), limit=2 * 8 * 6 * 3, forgets=True)
    meter = metered(eye, [eye[:, :1], eye[:, 1:3]], small)
    meter = meter.settled() if is_settled else meter
    assert (meter.rank, meter.uncounted) == (3, 0)
    assert meter.variance_fraction == pytest.approx(0.5)
    for count in (4, 5):
        meter = metered(eye, [eye[:, count - 1 : count]], meter)
        assert (meter.rank, meter.uncounted) == (count, count)
        assert (meter.pending, meter.basis.size, meter.images.size) == ((), 0, 0)
        assert meter.variance_fraction == 1.0


def test_bytes_bring_the_same_meter_back() -> None:
    rng = np.random.default_rng(2)
    factor = rng.standard_normal((5, 5))
    scatter = factor @ factor.T
    meter = metered(scatter, [rng.standard_normal((5, 2))]).count_reply(Reveals.DIAGONAL, None)
    data = meter.to_bytes()
    back = Meter.from_bytes(data)
    assert back.to_bytes() == data
    assert (back.d, back.diagonal, back.whole, back.uncounted) == (5, True, False, 0)
    more = rng.standard_normal((5, 2))
    one, other = metered(scatter, [more], meter), metered(scatter, [more], back)
    assert one.rank_fraction == other.rank_fraction == 4 / 5
    assert one.variance_fraction == pytest.approx(other.variance_fraction, rel=1e-12)
    assert Meter.from_bytes(meter.count_reply(Reveals.SCATTER, None).to_bytes()).whole


def test_an_empty_meter_survives_the_trip() -> None:
    back = Meter.from_bytes(Meter.empty(3).to_bytes())
    assert (back.rank_fraction, back.basis.shape, back.images.shape) == (0.0, (3, 0), (3, 0))


def test_corrupt_bytes_are_refused() -> None:
    data = metered(np.eye(3), [np.eye(3)[:, :2]]).to_bytes()
    for length in range(len(data)):
        with pytest.raises(DataError):
            Meter.from_bytes(data[:length])
    for place in range(0, len(data), 3):
        flipped = bytearray(data)
        flipped[place] ^= 0x10
        with pytest.raises(DataError):
            Meter.from_bytes(bytes(flipped))
    with pytest.raises(DataError):
        Meter.from_bytes(data + b"\0")


@pytest.mark.parametrize(("kind", "version"), [("summary", 1), ("meter", 2)])
def test_another_kind_or_version_is_refused(kind: str, version: int) -> None:
    data = Container(kind, version, {"d": 1}, {}).to_bytes()
    with pytest.raises(DataError, match=f"{kind}"):
        Meter.from_bytes(data)


def test_a_container_that_is_no_meter_is_refused() -> None:
    for arrays in ({}, {"settled_basis": np.zeros((3, 1)), "settled_images": np.zeros((2, 1))}):
        scalars = {"d": 3, "trace": 0.0, "uncounted": 0, "diagonal": False, "whole": False}
        data = Container("meter", 1, scalars, arrays).to_bytes()
        with pytest.raises(DataError, match="not a valid leakage meter"):
            Meter.from_bytes(data)


def test_answers_in_other_units_and_about_another_mean_count_as_those_of_the_rows() -> None:
    rng = np.random.default_rng(3)
    factor = rng.standard_normal((6, 6))
    own = factor @ factor.T
    scale, shift = rng.uniform(0.5, 2.0, 6), rng.standard_normal(6)
    seen = (own + np.outer(shift, shift)) / np.outer(scale, scale)
    asked = rng.standard_normal((6, 3))
    trace = float(own.trace())
    meter = Meter.empty(6).answered(RevealedProducts(asked, seen @ asked, trace, scale, shift))
    plain = metered(own, [asked / scale[:, None]])
    assert meter.rank_fraction == plain.rank_fraction == 0.5
    assert meter.variance_fraction == pytest.approx(plain.variance_fraction, rel=1e-10)
    np.testing.assert_allclose(own @ meter.basis, meter.images, rtol=0, atol=1e-10)


def test_what_is_still_to_be_subtracted_from_images_is_not_counted() -> None:
    rng = np.random.default_rng(3)
    factor, scale = rng.standard_normal((6, 6)), rng.uniform(0.5, 2.0, 6)
    own, asked = factor @ factor.T, rng.standard_normal((6, 3))
    away, along = 1e3 * rng.standard_normal(6), rng.standard_normal(3)
    seen = (own @ (asked / scale[:, None]) + np.outer(away, along)) / scale[:, None]
    trace = float(own.trace())
    answer = RevealedProducts(asked, seen, trace, scale, away, along=along)
    plain = metered(own, [asked / scale[:, None]])
    meter = Meter.empty(6).answered(answer)
    np.testing.assert_allclose(own @ meter.basis, meter.images, rtol=0, atol=1e-10)
    assert meter.variance_fraction == pytest.approx(plain.variance_fraction, rel=1e-9)
    reading = read_answers([answer])
    assert reading is not None
    assert reading.variance / trace == pytest.approx(plain.variance_fraction, rel=1e-7)


def test_blocks_that_are_orthonormal_already_are_the_basis() -> None:
    rng = np.random.default_rng(4)
    frame = np.linalg.qr(rng.standard_normal((8, 4))).Q
    scatter = np.diag(np.arange(1.0, 9.0))
    meter = metered(scatter, [frame[:, :2], frame[:, 2:]])
    np.testing.assert_array_equal(meter.basis, frame)
    np.testing.assert_allclose(meter.images, scatter @ frame, rtol=1e-15)
    assert meter.variance_fraction == pytest.approx(expected(scatter, [frame])[1], abs=1e-12)


@pytest.mark.parametrize(
    ("size", "scale", "shift"),
    [
        (np.nan, 1.0, 0.0),
        (np.inf, 1.0, 0.0),
        (1.0, 0.0, 0.0),
        (1.0, np.nan, 0.0),
        (1e200, 1e-200, 0.0),
        (1.0, -1e-320, 0.0),
        (1.0, 1.0, np.inf),
        (1.0, 1.0, 1e200),
    ],
)
def test_what_is_not_finite_in_the_rows_units_is_refused(
    size: float, scale: float, shift: float
) -> None:
    column = np.full((3, 1), size)
    by = np.array([1.0, scale, 1.0])
    answer = RevealedProducts(column, np.ones((3, 1)), 1.0, by, np.full(3, shift))
    with pytest.raises(InputError, match="must be finite"):
        Meter.empty(3).answered(answer)


def test_what_is_known_of_other_features_is_added_and_survives_the_ledger() -> None:
    eye = np.eye(6)
    meter = Meter.empty(6).answered(RevealedProducts(eye[:, :2], eye[:, :2], 6.0))
    assert meter.of_features("", 6) is meter
    first = meter.of_features("one", 6)
    assert (first.rank, first.mixed, first.features) == (2, False, "one")
    other = Meter.from_bytes(first.of_features("other", 8).to_bytes())
    assert (other.d, other.rank, other.mixed) == (8, 2, True)
    assert (other.rank_fraction, other.variance_fraction) == (0.25, 1.0)
    again = replace(other, whole=True).of_features("one", 6)
    assert (again.other_rank, again.rank_fraction, again.whole) == (10, 1.0, False)
    single = replace(Meter.empty(6), entries=3, features="one").of_features("other", 20)
    assert single.other_rank == RevealedEntries(3).worth(6)
    # Sets of the same size are told apart by their names, and nothing known stays nothing.
    nothing = replace(Meter.empty(6), features="one").of_features("other", 6)
    assert (nothing.rank, nothing.mixed) == (0, False)


def test_two_overlapping_sets_of_features_can_determine_more_than_either_alone() -> None:
    """Why fractions of the variance are neither added nor compared over sets of features."""
    scatter = np.diag([1.0, 1.0, 1000.0])
    near, far = np.array([1.0, 0.0, 0.0]), np.array([1.0, 0.0, 0.005])

    def explain(*directions: Array) -> float:
        meter = Meter.empty(3)
        for one in directions:
            column = one[:, None]
            meter = meter.answered(RevealedProducts(column, scatter @ column, scatter.trace()))
        return meter.variance_fraction

    assert explain(near) + explain(far) < 0.1
    assert explain(near, far) > 0.99
