"""Ways past the leakage meter that a coordinator might try, and the gate that stops them."""

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eigenfed.arrays import Array
from eigenfed.errors import InputError
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.release import Reveals
from eigenfed.privacy.revealed_products import RevealedProducts
from eigenfed.protocol.exact.certificate import RemainderRequest
from eigenfed.protocol.exact.frame import FramedRequest
from eigenfed.protocol.exact.moments import MomentsRequest, SquaresRequest
from eigenfed.protocol.exact.orthonormalise import GramRequest, NormRequest
from eigenfed.protocol.exact.products import ProductRequest
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.messages import Message, pack
from federation import Talk, gate, study_of, talk

D = 6
ROWS = np.random.default_rng(0).standard_normal((40, D)) * np.arange(1, D + 1) + 3.0
MEAN, ONES = ROWS.mean(axis=0), np.ones(D)
HALF = Policy(max_rank_fraction=0.5)


def begun(site: Site, run: str = "r", method: str = "krylov", **settings: Any) -> Talk:
    """Open a run and bring it past the moments."""
    talking = talk(site, D, method, run, **settings)
    talking.reply(MomentsRequest())
    return talking


def about(basis: Array, scale: Array = ONES, mean: Array = MEAN) -> ProductRequest:
    return ProductRequest(basis=basis, mean=mean, scale=scale)


def test_a_scale_that_changes_within_a_run_is_refused() -> None:
    talking = begun(gate("a", ROWS), scale=True)
    column = np.eye(D)[:, :1]
    talking.reply(about(column))
    assert talking.code(about(column, scale=2 * ONES)) == "invalid"
    assert talking.code(about(column)) == "invalid"
    talking.reply(ProductRequest(basis=column))


@pytest.mark.parametrize(
    ("mean", "scale"),
    [
        (MEAN, 2 * ONES),
        (np.zeros((40, D)), ONES),
        (MEAN, np.ones((40, D))),
        (np.zeros(D + 1), ONES),
        (np.full(D, np.nan), ONES),
        (np.full(D, 1e200), ONES),
        (MEAN, np.zeros(D)),
        (MEAN, None),
        (None, ONES),
        (None, None),
    ],
    ids=range(10),
)
@pytest.mark.parametrize("scaled", [False, True])
def test_a_frame_that_is_not_one_number_a_feature_as_the_study_says_is_refused(
    mean: Array | None, scale: Array | None, scaled: bool
) -> None:
    """A mean or a scale for each row would pick rows out."""
    talking = begun(gate("a", ROWS), scale=scaled)
    request = ProductRequest(basis=np.eye(D)[:, :1], mean=mean, scale=scale)
    if scaled and scale is not None and mean is MEAN and (scale == 2 * ONES).all():
        talking.reply(request)
    else:
        assert talking.code(request) == "invalid"
        assert talking.site.meter.rank_fraction == 0.0


@pytest.mark.parametrize("mean", [np.zeros((40, D)), np.zeros(D - 1), np.full(D, np.inf)])
def test_squares_are_about_one_mean_for_all_rows(mean: Array) -> None:
    talking = begun(gate("a", ROWS), scale=True)
    assert talking.code(SquaresRequest(mean=mean)) == "invalid"
    assert talking.code(SquaresRequest(mean=MEAN, found=ONES)) == "invalid"
    assert not talking.site.meter.diagonal


def test_rows_that_are_not_centred_have_no_mean_of_the_coordinator_s_choice() -> None:
    talking = begun(gate("a", ROWS), center=False)
    assert talking.code(about(np.eye(D)[:, :1])) == "invalid"
    talking.reply(about(np.eye(D)[:, :1], mean=np.zeros(D)))


def test_directions_count_in_the_units_of_the_rows_whatever_the_scale() -> None:
    site = gate("a", ROWS, policy=HALF)
    rng = np.random.default_rng(1)
    labels = []
    for i in range(D):
        talking = begun(site, f"r{i}", scale=True)
        column = np.ones((D, 1)) / np.sqrt(D)
        labels.append(talking.request(about(column, rng.uniform(0.5, 2.0, D))).label)
    assert labels == ["product"] * 3 + ["leakage"] * 3
    assert site.meter.rank_fraction == 0.5


def test_a_far_mean_does_not_dwarf_the_share() -> None:
    site, honest = gate("a", ROWS), gate("a", ROWS)
    far = MEAN + 1e4 * np.eye(D)[0]
    begun(site).reply(about(np.eye(D)[:, 3:], mean=far))
    begun(honest).reply(about(np.eye(D)[:, 3:]))
    assert site.meter.variance_fraction == pytest.approx(honest.meter.variance_fraction, abs=1e-6)


@pytest.mark.parametrize("factor", [1e200, 1e-200, np.inf, np.nan, 1.0 + 1e-7])
def test_directions_of_another_length_than_one_are_refused(factor: float) -> None:
    talking = begun(gate("a", ROWS))
    basis = np.eye(D)
    basis[0, 0] = factor
    assert talking.code(about(basis)) == "invalid"
    assert talking.site.meter.rank_fraction == 0.0


def test_directions_that_are_nearly_known_tell_nothing_new() -> None:
    """Their difference from those known is too small to be counted, and is taken away instead."""
    site = gate("a", ROWS, policy=HALF)
    talking = begun(site)
    first = np.eye(D)[:, :3]
    known = talking.reply(about(first)).product
    tilted = first.copy()
    tilted[3:, :] = 5e-11 * np.eye(3)
    seen = talking.reply(ProductRequest(basis=tilted)).product
    assert site.meter.rank_fraction == 0.5
    np.testing.assert_allclose(seen, known, rtol=0, atol=1e-12 * np.abs(known).max())
    scatter = (ROWS - MEAN).T @ (ROWS - MEAN)
    hidden = scatter[:, 3:]
    assert np.abs((seen - known) / 5e-11 - hidden).max() > 0.5 * np.abs(hidden).max()


def test_bounds_are_given_once_a_run_and_outside_answered_directions_only() -> None:
    talking = begun(gate("a", ROWS), certify="rigorous")
    basis = np.linalg.qr(np.random.default_rng(2).standard_normal((D, 3))).Q
    first = RemainderRequest(products=1, mean=MEAN, scale=ONES)
    assert talking.code(first) == "script"
    talking.reply(about(basis))
    chosen = pack(RemainderRequest(products=1)) | {"known": np.eye(D)[:, :5]}
    assert talking.send("remainder", chosen).label == "malformed"
    for count in (0, 2, -1):
        assert talking.code(RemainderRequest(products=count)) == "invalid"
    outside = np.eye(D) - basis @ basis.T
    scatter = (ROWS - MEAN).T @ (ROWS - MEAN)
    largest = talking.reply(RemainderRequest(products=1)).largest
    assert largest == pytest.approx(np.linalg.eigvalsh(outside @ scatter @ outside)[-1])
    assert talking.code(RemainderRequest(products=1)) == "script"
    assert talking.code(ProductRequest(basis=basis)) == "script"


def test_a_site_of_few_rows_may_stay_out() -> None:
    site = gate("a", ROWS[:4], policy=Policy(min_rows=5))
    assert Talk(site, study_of("a", 1)).opens() == "few_rows"
    assert Talk(gate("a", ROWS[:0]), study_of("a", 1)).opens() == "few_rows"


def test_rows_without_weight_are_not_counted_as_rows_to_hide_among() -> None:
    """Sums over a single row of weight above 0 are that row, however many others there are."""

    def opens(weighted: int) -> str:
        weights = (np.arange(len(ROWS)) < weighted).astype(np.float64)
        site = gate("a", ROWS, weights=weights, policy=Policy(min_rows=5))
        return Talk(site, study_of("a", 1)).opens()

    assert [opens(weighted) for weighted in (1, 4, 5, 0)] == ["few_rows", "few_rows", "", ""]


def test_requests_at_the_same_time_are_answered_one_after_the_other() -> None:
    site = gate("a", ROWS)
    talks = [begun(site, f"r{i}") for i in range(D)]
    threads = [
        threading.Thread(target=talking.request, args=(about(np.eye(D)[:, [i]]),))
        for i, talking in enumerate(talks)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert site.meter.rank_fraction == 1.0
    assert len(site.egress) == 2 * D


def test_a_meter_of_other_data_is_refused() -> None:
    with pytest.raises(
        InputError, match="The leakage meter of 'data' has 3 features and the rows have 6"
    ):
        gate("a", ROWS, meter=Meter.empty(3))


def test_directions_answered_twice_in_other_units_are_settled_together() -> None:
    """Enough answers to outgrow the memory are settled first, and only then left uncounted."""
    meter = Meter.empty(3)
    column = np.array([[1.0], [2.0], [0.0]])
    for factor in (1.0, 1e-8, 1e8):
        meter = meter.answered(RevealedProducts(factor * column, factor * column, 3.0))
    assert meter.rank_fraction == pytest.approx(1 / 3)
    assert meter.rank_with(5.0 * column, None) == pytest.approx(1 / 3)
    assert meter.rank_with(np.eye(3)[:, 2:], None) == pytest.approx(2 / 3)
    assert meter.count_reply(Reveals.SCATTER, None).rank_with(np.eye(3), None) == 1.0


SIDED: list[FramedRequest] = [
    GramRequest(basis=np.eye(D), mean=MEAN, scale=ONES),
    NormRequest(basis=np.eye(D), mean=MEAN, scale=ONES, onto=np.zeros(0)),
]


@pytest.mark.parametrize("request_", SIDED, ids=["sided_gram", "sided_norm"])
def test_inner_products_of_chosen_row_vectors_count_as_directions(request_: Any) -> None:
    """With G = D they are the whole scatter."""
    site = gate("a", ROWS, policy=HALF)
    assert begun(site, method="subspace").code(request_) == "leakage"
    begun(site, "other", "subspace").reply(replace(request_, basis=np.eye(D)[:, :3]))
    assert site.meter.rank_fraction == 0.5


@pytest.mark.parametrize("op", ["loadings", "summarise", "scatter", "reduced", "own_level", "rows"])
def test_operations_of_other_methods_and_splits_have_no_place_in_a_run(op: str) -> None:
    talking = begun(gate("a", ROWS))
    refused = talking.send(op, {"mean": MEAN, "scale": ONES, "basis": np.eye(D)})
    assert (refused.kind, refused.label) == ("refusal", "script")
    assert talking.site.meter.rank_fraction == 0.0


def test_nothing_is_answered_outside_a_run() -> None:
    site = gate("a", ROWS)
    for op in ("moments", "product", "scatter", "sum_keys", "nothing"):
        data = site.answer(Message("request", "never opened", 0, op, {}).to_bytes())
        assert Message.from_bytes(data, "refusal").label == "closed"
    assert site.egress == []
