"""Ways round the leakage meter that an inventive asker might try, and the gate that stops them."""

import threading

import numpy as np
import pytest

from eigenfed.arrays import Array, Arrays
from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.policy import Policy
from eigenfed.protocol.messages import Message
from eigenfed.protocol.ops import Answer, Op
from eigenfed.protocol.registry import OPS
from eigenfed.protocol.site import Site

D = 6
ROWS = np.random.default_rng(0).standard_normal((40, D)) * np.arange(1, D + 1) + 3.0
MEAN, ONES = ROWS.mean(axis=0), np.ones(D)


def ask(site: Site, op: str, arrays: Arrays, *, run: str = "r", round_: int = 0) -> Message:
    data = site.answer(Message("ask", run, round_, op, arrays).to_bytes())
    return Message.from_bytes(data, "reply", "refusal")


def about(basis: Array, scale: Array = ONES, mean: Array = MEAN) -> Arrays:
    return {"basis": basis, "mean": mean, "scale": scale}


def test_a_scale_that_changes_within_a_run_is_refused() -> None:
    site = Site("a", Source.of(ROWS))
    column = np.ones((D, 1))
    assert ask(site, "product", about(column)).kind == "reply"
    refused = ask(site, "product", about(column, scale=2 * ONES), round_=1)
    assert (refused.kind, refused.label) == ("refusal", "failed")


def test_directions_count_in_the_units_of_the_rows_whatever_the_scale() -> None:
    site = Site("a", Source.of(ROWS), policy=Policy(max_rank_fraction=0.5))
    rng = np.random.default_rng(1)
    kinds = []
    for i in range(D):
        scale = rng.uniform(0.5, 2.0, D)
        kinds.append(ask(site, "product", about(np.ones((D, 1)), scale), run=f"r{i}").kind)
    assert kinds == ["reply"] * 3 + ["refusal"] * 3
    assert site.meter.rank_fraction == 0.5


def test_a_far_mean_does_not_dwarf_the_share() -> None:
    site = Site("a", Source.of(ROWS))
    far = MEAN + 1e4 * np.eye(D)[0]
    ask(site, "product", about(np.eye(D)[:, 3:], mean=far))
    honest = Site("b", Source.of(ROWS))
    ask(honest, "product", about(np.eye(D)[:, 3:]))
    assert site.meter.variance_fraction == pytest.approx(honest.meter.variance_fraction, abs=1e-6)


@pytest.mark.parametrize("factor", [1e200, 1e-200, np.inf])
def test_lengths_of_directions_do_not_hide_them(factor: float) -> None:
    site = Site("a", Source.of(ROWS))
    basis = np.eye(D)
    basis[0, 0] = factor
    with np.errstate(all="ignore"):
        answer = ask(site, "product", about(basis))
    assert answer.kind == "refusal" or site.meter.rank_fraction == 1.0


def test_bounds_are_given_once_a_run_and_outside_answered_directions_only() -> None:
    site = Site("a", Source.of(ROWS))
    basis = np.linalg.qr(np.random.default_rng(2).standard_normal((D, 3))).Q
    ask(site, "product", about(basis))
    beyond = ask(site, "remainder", {"known": np.eye(D)[:, :5]}, round_=1)
    assert (beyond.kind, beyond.label) == ("refusal", "bound_beyond")
    assert ask(site, "remainder", {"known": basis}, round_=2).kind == "reply"
    again = ask(site, "remainder", {"known": basis[:, :2]}, round_=3)
    assert (again.kind, again.label) == ("refusal", "bound_again")


def test_a_site_of_few_rows_may_stay_out() -> None:
    site = Site("a", Source.of(ROWS[:4]), policy=Policy(min_rows=5))
    assert ask(site, "moments", {}).label == "few_rows"


def test_an_error_of_any_kind_leaves_as_a_code() -> None:
    def failing(source: Source, payload: Arrays, state: Arrays) -> Answer:
        raise RuntimeError("987654.321")

    op = Op("moments", failing, OPS["moments"].release)
    site = Site("a", Source.of(ROWS), ops={"moments": op})
    data = site.answer(Message("ask", "r", 0, "moments", {}).to_bytes())
    assert b"987654.321" not in data
    assert Message.from_bytes(data, "refusal").label == "failed"


def test_asks_at_the_same_time_are_answered_one_after_the_other() -> None:
    site = Site("a", Source.of(ROWS))
    threads = [
        threading.Thread(
            target=ask, args=(site, "product", about(np.eye(D)[:, [i]])), kwargs={"run": f"r{i}"}
        )
        for i in range(D)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert site.meter.rank_fraction == 1.0
    assert len(site.egress) == D


def test_a_meter_of_other_data_is_refused() -> None:
    with pytest.raises(
        InputError, match="The meter of 'data' is of 3 features and the rows have 6"
    ):
        Site("a", Source.of(ROWS), meter=Meter.empty(3))


def test_directions_answered_twice_in_other_units_are_settled_together() -> None:
    """Enough answers to outgrow the memory are settled first, and only then left uncounted."""
    meter = Meter.empty(3)
    column = np.array([[1.0], [2.0], [0.0]])
    for factor in (1.0, 1e-8, 1e8):
        meter = meter.answered(factor * column, factor * column, 3.0)
    assert meter.rank_fraction == pytest.approx(1 / 3)
    assert meter.covers(5.0 * column)
    assert not meter.covers(np.eye(3)[:, 2:])
    assert meter.all_answered().covers(np.eye(3))


@pytest.mark.parametrize("op", ["sided_gram", "sided_norm"])
def test_inner_products_of_chosen_row_vectors_count_as_directions(op: str) -> None:
    """With G = D they are the whole scatter."""
    site = Site("a", Source.of(ROWS), policy=Policy(max_rank_fraction=0.5))
    payload = {**about(np.eye(D)), "onto": np.zeros(0)}
    refused = ask(site, op, payload)
    assert (refused.kind, refused.label) == ("refusal", "leakage")
    allowed = ask(site, op, {**payload, "basis": np.eye(D)[:, :3]}, run="other")
    assert allowed.kind == "reply"
    assert site.meter.rank_fraction == 0.5
