"""What a ledger lets through, refuses, counts and keeps."""

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import dp_accounting
import pytest
from dp_accounting import NeighboringRelation, pld, rdp

from eigenfed.errors import InputError
from eigenfed.privacy.dp.accounting import compose, mu_of
from eigenfed.privacy.ledger.events import (
    Budgeted,
    Event,
    Kind,
    Refused,
    Replied,
    Spent,
    Summed,
    What,
)
from eigenfed.privacy.ledger.ledger import Budget, Ledger, Refusal, ReplyKey, Spending, Totals
from eigenfed.privacy.release import Leaves, Release, Reveals

EXACT = Release("totals", "d", Leaves.EXACT, Reveals.MEANS)
NOISED = Release("scatter", "d x d", Leaves.NOISED, Reveals.NOISE)
SHAPES = {"scatter": (2, 2)}
SITES = frozenset("abcdefg")


def key(round_: int = 0, run: str = "run", dataset: str = "cohort", **new: Any) -> ReplyKey:
    given: dict[str, Any] = {"op": "scatter", "ask_digest": "ask", "roster_digest": "roster"}
    return ReplyKey(dataset, run, round_, **(given | new))


def spend(
    ledger: Ledger, key: ReplyKey, mu: float = 0.1, relation: str = "replace_one"
) -> Spending:
    return ledger.spend(
        key, mu, sensitivity=1.0, sd=1.0 / mu, relation=relation, mechanism="gaussian"
    )


def refused(do: Callable[[], object]) -> str:
    with pytest.raises(Refusal) as refusal:
        do()
    return refusal.value.code


def whats(ledger: Ledger) -> list[What]:
    return [event.what for event in ledger.events]


def test_a_spend_is_recorded_with_its_terms() -> None:
    ledger = Ledger(None)
    terms = {"sensitivity": 2.0, "sd": 8.0, "relation": "zero_out", "mechanism": "gaussian"}
    assert ledger.spend(key(), 0.3, **terms) is Spending.NEW  # type: ignore[arg-type]
    assert whats(ledger)[1:] == [Spent(key(), 0.3, 2.0, 8.0, "zero_out", "gaussian")]


def test_the_same_spend_again_is_known_and_counts_once() -> None:
    ledger = Ledger(None)
    assert [spend(ledger, key()) for _ in range(3)] == [Spending.NEW, *[Spending.KNOWN] * 2]
    assert ledger.totals("cohort").spends == 1
    assert len(ledger.events) == 2


@pytest.mark.parametrize(
    "other",
    [key(op="moments"), key(ask_digest="another"), key(roster_digest="another")],
)
def test_a_round_is_answered_for_one_ask_only(other: ReplyKey) -> None:
    ledger = Ledger(None)
    spend(ledger, key())
    for do in (
        lambda: spend(ledger, other),
        lambda: ledger.spend_unsound(other, mechanism="old", allowed=True),
        lambda: ledger.summed(other, SITES),
        lambda: ledger.reply(other),
        lambda: commit(ledger, other, paid=True),
        lambda: commit(ledger, other, paid=False),
    ):
        assert refused(do) == "answered"
    assert ledger.totals("cohort").spends == 1
    assert ledger.reply(key()) is None


def commit(ledger: Ledger, key: ReplyKey, reply: bytes = b"reply", paid: bool = True) -> bytes:
    return ledger.commit(key, reply, NOISED if paid else EXACT, SHAPES, paid=paid)


@pytest.mark.parametrize("again", [{"mu": 0.2}, {"relation": "zero_out"}])
def test_a_spend_cannot_be_repeated_on_other_terms(again: dict[str, Any]) -> None:
    ledger = Ledger(None)
    spend(ledger, key())
    assert refused(lambda: spend(ledger, key(), **again)) == "answered"
    assert ledger.totals("cohort").mu == pytest.approx(0.1)


def test_the_same_round_of_another_run_or_data_set_is_another_spend() -> None:
    ledger = Ledger(None)
    keys = [key(), key(run="later"), key(dataset="other"), key(1)]
    assert [spend(ledger, each) for each in keys] == [Spending.NEW] * 4
    assert ledger.totals("cohort").spends == 3
    assert ledger.totals("other").spends == 1
    assert ledger.datasets == ("cohort", "other")


def test_a_reply_is_kept_and_repeated_byte_for_byte() -> None:
    ledger = Ledger(None)
    assert ledger.reply(key()) is None
    spend(ledger, key())
    assert ledger.reply(key()) is None
    assert commit(ledger, key(), b"first") == b"first"
    assert ledger.reply(key()) == b"first"
    assert commit(ledger, key(), b"noise drawn anew") == b"first"
    assert [event.kind for event in ledger.events].count(Kind.REPLIED) == 1


def test_what_was_answered_is_never_paid_or_computed_again_even_when_forgotten() -> None:
    ledger = Ledger(None)
    spend(ledger, key())
    commit(ledger, key())
    assert refused(lambda: spend(ledger, key())) == "answered"
    assert ledger.forget_replies("run") == 1
    assert refused(lambda: ledger.reply(key())) == "forgotten"
    assert refused(lambda: commit(ledger, key(), b"other")) == "forgotten"
    assert refused(lambda: spend(ledger, key())) == "answered"
    assert ledger.verify().intact


def test_what_left_as_it_is_cannot_be_paid_for_later() -> None:
    ledger = Ledger(None)
    commit(ledger, key(), paid=False)
    assert refused(lambda: spend(ledger, key())) == "answered"
    assert ledger.totals("cohort").spends == 0


def test_forgetting_is_by_run_and_round() -> None:
    ledger = Ledger(None)
    for asked in [key(0), key(1), key(2), key(0, run="later"), key(0, dataset="other")]:
        commit(ledger, asked, paid=False)
    assert ledger.forget_replies("run", before=1) == 2
    assert refused(lambda: ledger.reply(key(0))) == "forgotten"
    assert ledger.reply(key(1)) == ledger.reply(key(0, run="later")) == b"reply"
    assert ledger.forget_replies("run") == 2
    assert ledger.forget_replies("run") == 0
    assert ledger.reply(key(0, run="later")) == b"reply"


@pytest.mark.parametrize("size", [0, 1, 10, 11])
def test_long_replies_are_kept_in_parts(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eigenfed.privacy.ledger.storage._PART_BYTES", 5)
    ledger, reply = Ledger(None), bytes(range(size))
    commit(ledger, key(), reply, paid=False)
    assert ledger.reply(key()) == reply
    assert ledger.verify().intact
    assert ledger.forget_replies("run") == 1


def test_every_reply_is_an_event_that_says_what_left_and_what_paid_for_it() -> None:
    ledger = Ledger(None)
    commit(ledger, key(0), b"exact", paid=False)
    spend(ledger, key(1), 0.25)
    ledger.commit(key(1), b"noisy", NOISED, SHAPES, paid=True, meter=lambda kept: b"meter")
    ledger.spend_unsound(key(2), mechanism="fedpower", allowed=True)
    commit(ledger, key(2), b"bare")
    exact, noisy, bare = (what for what in whats(ledger) if isinstance(what, Replied))
    assert (exact.release.leaves, exact.release.reveals) == ("exact", "means")
    assert (noisy.release.kind, noisy.release.shape) == ("scatter", "d x d")
    assert (noisy.shapes, noisy.sent_bytes) == (SHAPES, 5)
    assert noisy.digest == "acd6beff7c3430bfed5d69f86c5c9e6a32ad2a27a2c2a1e8763ce08f6c3da5ec"
    assert [(r.spend, r.mu) for r in (exact, noisy, bare)] == [(None, None), (3, 0.25), (5, None)]
    assert [r.meter is None for r in (exact, noisy, bare)] == [True, False, True]


def test_a_reply_with_noise_needs_its_spend_and_an_exact_one_has_none() -> None:
    ledger = Ledger(None)
    assert refused(lambda: commit(ledger, key(0), paid=True)) == "unspent"
    spend(ledger, key(1))
    assert refused(lambda: commit(ledger, key(1), paid=False)) == "unspent"
    assert ledger.reply(key(0)) is None
    assert ledger.reply(key(1)) is None
    commit(ledger, key(1))


def test_the_budget_is_over_all_runs_and_for_each_data_set() -> None:
    ledger = Ledger(None)
    budget = Budget(epsilon=1.0, delta=1e-6)
    for dataset in ("cohort", "other"):
        ledger.set_budget(dataset, budget)
    mu = budget.mu / math.sqrt(4)
    for run in range(4):
        assert spend(ledger, key(run=f"run {run}"), mu) is Spending.NEW
    assert refused(lambda: spend(ledger, key(run="run 4"), mu)) == "budget"
    assert refused(lambda: spend(ledger, key(run="run 4"), 1e-3)) == "budget"
    assert spend(ledger, key(dataset="other"), mu) is Spending.NEW
    assert ledger.totals("cohort").mu == pytest.approx(budget.mu, rel=1e-12)
    assert ledger.totals("cohort").epsilon == pytest.approx(1.0, rel=1e-9)
    assert [type(what).__name__ for what in whats(ledger)].count("Refused") == 2
    assert Refused(key(run="run 4"), "budget") in whats(ledger)


def test_shares_that_make_up_the_budget_fit_it_whatever_their_rounding() -> None:
    for parts in (3, 7, 49, 300):
        ledger, budget = Ledger(None), Budget(epsilon=0.7, delta=1e-7)
        ledger.set_budget("cohort", budget)
        for round_ in range(parts):
            spend(ledger, key(round_), budget.mu / math.sqrt(parts))
        with pytest.raises(Refusal, match="budget"):
            spend(ledger, key(parts), 1e-4)


def test_a_refused_spend_leaves_its_round_open() -> None:
    ledger = Ledger(None)
    ledger.set_budget("cohort", Budget(epsilon=0.1, delta=1e-6))
    assert refused(lambda: spend(ledger, key(), 0.3)) == "budget"
    assert ledger.reply(key()) is None
    ledger.set_budget("cohort", Budget(epsilon=2.0, delta=1e-6))
    assert spend(ledger, key(), 0.3) is Spending.NEW


def test_budgets_that_are_set_raised_and_lowered_stand_in_the_record() -> None:
    ledger = Ledger(None)
    assert ledger.budget("cohort") is None
    budgets = [Budget(1.0, 1e-6), Budget(2.0, 1e-6), Budget(0.5, 1e-6)]
    for budget in budgets:
        ledger.set_budget("cohort", budget)
        ledger.set_budget("cohort", budget)
        assert ledger.budget("cohort") == budget
    assert whats(ledger)[1:] == [Budgeted("cohort", budget) for budget in budgets]
    assert ledger.budget("other") is None


def test_a_known_spend_stands_when_the_budget_is_lowered_and_no_other_fits() -> None:
    ledger = Ledger(None)
    ledger.set_budget("cohort", Budget(2.0, 1e-6))
    spend(ledger, key(), 0.3)
    ledger.set_budget("cohort", Budget(0.1, 1e-6))
    assert spend(ledger, key(), 0.3) is Spending.KNOWN
    assert refused(lambda: spend(ledger, key(1), 1e-3)) == "budget"
    commit(ledger, key())


def test_relations_are_brought_to_the_one_of_the_budget() -> None:
    ledger = Ledger(None)
    spend(ledger, key(0), 0.3, "replace_one")
    spend(ledger, key(1), 0.2, "zero_out")
    totals = {r: ledger.totals("cohort", relation=r).mu for r in ("replace_one", "zero_out")}
    assert totals["replace_one"] == pytest.approx(math.hypot(0.3, 2 * 0.2))
    assert totals["zero_out"] == pytest.approx(math.hypot(0.3, 0.2))
    assert ledger.totals("cohort").mu == totals["replace_one"]
    ledger.set_budget("cohort", Budget(1.0, 1e-6, "zero_out"))
    assert ledger.totals("cohort").mu == totals["zero_out"]


@pytest.mark.parametrize(("relation", "steps"), [("replace_one", 2), ("zero_out", 1)])
def test_a_spend_under_zero_out_takes_two_steps_of_a_budget_under_replace_one(
    relation: str, steps: int
) -> None:
    ledger, budget = Ledger(None), Budget(1.0, 1e-6, relation)
    ledger.set_budget("cohort", budget)
    assert refused(lambda: spend(ledger, key(), 1.001 * budget.mu / steps, "zero_out")) == "budget"
    assert spend(ledger, key(), budget.mu / steps, "zero_out") is Spending.NEW


def test_nothing_holds_after_a_reply_without_a_guarantee() -> None:
    ledger = Ledger(None)
    ledger.set_budget("cohort", Budget(8.0, 1e-6))
    spend(ledger, key(0))
    unsound = {"mechanism": "fedpower"}
    assert refused(lambda: ledger.spend_unsound(key(1), allowed=False, **unsound)) == "no_guarantee"
    assert ledger.totals("cohort").unsound == 0
    assert ledger.spend_unsound(key(1), allowed=True, **unsound) is Spending.NEW
    assert ledger.spend_unsound(key(1), allowed=True, **unsound) is Spending.KNOWN
    assert refused(lambda: spend(ledger, key(1))) == "answered"
    totals = ledger.totals("cohort")
    assert (totals.mu, totals.rho, totals.epsilon) == (math.inf, math.inf, math.inf)
    assert (totals.spends, totals.unsound) == (1, 1)
    assert totals.text == (
        "No epsilon holds: 1 of 2 replies came from a mechanism without a guarantee."
    )
    assert refused(lambda: spend(ledger, key(2), 1e-6)) == "budget"
    assert spend(ledger, key(dataset="other")) is Spending.NEW
    assert math.isfinite(ledger.totals("other").mu)


@pytest.mark.parametrize("mus", [[0.1], [0.05, 0.2, 0.2, 0.4], [0.01] * 60])
@pytest.mark.parametrize(
    ("spent_under", "stated_under", "relation"),
    [
        ("replace_one", "replace_one", NeighboringRelation.ADD_OR_REMOVE_ONE),
        ("zero_out", "zero_out", NeighboringRelation.REPLACE_SPECIAL),
        ("zero_out", "replace_one", NeighboringRelation.REPLACE_ONE),
    ],
)
def test_totals_are_those_of_dp_accounting(
    mus: list[float], spent_under: str, stated_under: str, relation: NeighboringRelation
) -> None:
    """Its Gaussian event is stated by how far one row's presence moves the value.

    A spend under zero_out is just that, and replacing moves it twice as far. A spend under
    replace_one has both steps in its sensitivity already.
    """
    ledger = Ledger(None)
    for round_, mu in enumerate(mus):
        spend(ledger, key(round_, run=f"run {round_ % 3}"), mu, spent_under)
    events = dp_accounting.ComposedDpEvent([dp_accounting.GaussianDpEvent(1 / mu) for mu in mus])
    tight = pld.PLDAccountant(relation, value_discretization_interval=5e-5).compose(events)
    for delta in (1e-4, 1e-8):
        totals = ledger.totals("cohort", delta=delta, relation=stated_under)
        assert totals.epsilon == pytest.approx(tight.get_epsilon(delta), abs=1e-6)


@pytest.mark.parametrize("mus", [[0.1], [0.05, 0.2, 0.2, 0.4], [0.01] * 60])
def test_totals_in_concentrated_privacy_are_those_of_dp_accounting(mus: list[float]) -> None:
    ledger = Ledger(None)
    for round_, mu in enumerate(mus):
        spend(ledger, key(round_), mu)
    totals = ledger.totals("cohort", delta=1e-6)
    events = dp_accounting.ComposedDpEvent([dp_accounting.GaussianDpEvent(1 / mu) for mu in mus])
    whole = dp_accounting.ZCDpEvent(totals.rho)
    found = [rdp.RdpAccountant().compose(event).get_epsilon(1e-6) for event in (events, whole)]
    assert found[0] == pytest.approx(found[1], rel=1e-9)
    assert totals.rho == pytest.approx(sum(mu**2 for mu in mus) / 2, rel=1e-12)
    assert totals.epsilon is not None
    assert totals.epsilon < found[0]


def test_totals_are_never_rounded_down() -> None:
    totals = Totals("replace_one", mu=0.23671, delta=1e-6, spends=1, unsound=0, budget=None)
    assert totals.epsilon == pytest.approx(1.0000256, abs=1e-6)
    assert "mu=0.2368, rho=0.02802 and epsilon=1.01 at" in totals.text


def test_totals_say_what_they_are_at() -> None:
    ledger = Ledger(None)
    empty = ledger.totals("cohort")
    assert (empty.mu, empty.epsilon, empty.relation, empty.budget) == (
        0.0,
        None,
        "replace_one",
        None,
    )
    assert empty.text == "0 spends come to mu=0, rho=0 under replace_one."
    assert ledger.totals("cohort", delta=1e-6).epsilon == 0.0
    ledger.set_budget("cohort", Budget(1.0, 1e-6, "zero_out"))
    totals = ledger.totals("cohort")
    assert (totals.delta, totals.relation) == (1e-6, "zero_out")
    assert ledger.totals("cohort", delta=1e-3).delta == 1e-3


@pytest.mark.parametrize(
    ("do", "named"),
    [
        (lambda at: at.totals(""), "dataset"),
        (lambda at: at.totals("cohort", delta=2.0), "delta=2.0"),
        (lambda at: at.totals("cohort", relation="add_one"), "relation='add_one'"),
        (lambda at: at.set_budget("", Budget(1.0, 1e-6)), "dataset"),
        (lambda at: spend(at, key(), 0.1, "add_one"), "relation='add_one'"),
        (lambda at: at.refuse(key(), ""), "code"),
        (lambda at: at.summed(key(), frozenset()), "sites"),
        (lambda at: at.summed(key(), SITES, fewest=-1), "fewest=-1"),
        (lambda at: at.spend_unsound(key(), mechanism="", allowed=True), "mechanism"),
    ],
)
def test_arguments_that_break_a_rule_are_named_and_nothing_is_recorded(
    do: Callable[[Ledger], object], named: str
) -> None:
    ledger = Ledger(None)
    with pytest.raises(InputError, match=f"^{named}"):
        do(ledger)
    assert len(ledger.events) == 1
    assert spend(ledger, key()) is Spending.NEW


@pytest.mark.parametrize("mu", [math.nan, math.inf, -0.1, 0.0])
def test_a_spend_that_is_no_cost_is_refused_before_anything_is_recorded(mu: float) -> None:
    ledger = Ledger(None)
    with pytest.raises(InputError, match=r"^mu="):
        ledger.spend(
            key(), mu, sensitivity=1.0, sd=1.0, relation="replace_one", mechanism="gaussian"
        )
    assert len(ledger.events) == 1


def test_refusals_of_the_gate_are_recorded_with_their_code_only() -> None:
    ledger = Ledger(None)
    ledger.refuse(key(), "forbidden")
    assert whats(ledger)[1:] == [Refused(key(), "forbidden")]
    assert spend(ledger, key()) is Spending.NEW


def test_the_meter_goes_with_the_reply_or_not_at_all() -> None:
    ledger = Ledger(None)
    seen: list[bytes | None] = []

    def grown(kept: bytes | None) -> bytes:
        seen.append(kept)
        return (kept or b"") + b"+"

    def over(kept: bytes | None) -> bytes:
        raise ZeroDivisionError

    assert ledger.meter("cohort") is None
    ledger.commit(key(0), b"reply", EXACT, SHAPES, paid=False, meter=grown)
    ledger.commit(key(0), b"reply", EXACT, SHAPES, paid=False, meter=grown)
    commit(ledger, key(1), paid=False)
    ledger.commit(key(2), b"reply", EXACT, SHAPES, paid=False, meter=grown)
    before = ledger.head
    with pytest.raises(ZeroDivisionError):
        ledger.commit(key(3), b"reply", EXACT, SHAPES, paid=False, meter=over)
    assert ledger.head == before
    assert ledger.reply(key(3)) is None
    assert seen == [None, b"+"]
    assert ledger.meter("cohort") == b"++"
    assert ledger.meter("other") is None
    assert ledger.verify().intact


def test_a_commit_that_fails_half_way_leaves_nothing() -> None:
    times = iter([datetime(2026, 11, 15, tzinfo=UTC)])
    ledger = Ledger(None, clock=lambda: next(times))
    with pytest.raises(StopIteration):
        ledger.commit(key(), b"reply", EXACT, SHAPES, paid=False, meter=lambda kept: b"meter")
    assert (ledger.reply(key()), ledger.meter("cohort")) == (None, None)
    times = iter([datetime(2026, 11, 15, tzinfo=UTC)])
    assert commit(ledger, key(), b"another", paid=False) == b"another"
    assert ledger.verify().intact


def test_sums_are_recorded_once_before_anything_leaves() -> None:
    ledger = Ledger(None)
    ledger.summed(key(), SITES)
    ledger.summed(key(), SITES)
    assert ledger.sums("cohort") == (Summed(key(), SITES),)
    assert ledger.sums("other") == ()
    assert refused(lambda: ledger.summed(key(), SITES | {"z"})) == "answered"
    assert spend(ledger, key()) is Spending.NEW
    commit(ledger, key())
    commit(ledger, key(1), paid=False)
    assert refused(lambda: ledger.summed(key(1), SITES)) == "answered"
    assert len(ledger.sums("cohort")) == 1


def test_a_sum_that_would_isolate_sites_beside_those_of_other_runs_is_refused() -> None:
    ledger = Ledger(None)
    ledger.summed(key(run="first"), SITES)
    for lost in (1, 2):
        fewer = frozenset(sorted(SITES)[lost:])
        with pytest.raises(Refusal, match="would reveal a few of them"):
            ledger.summed(key(run="second"), fewer)
        ledger.summed(key(dataset=f"other {lost}", run="second"), fewer)
    ledger.summed(key(run="second"), frozenset("abc"))
    assert refused(lambda: ledger.summed(key(run="third"), frozenset("efg"))) == "roster"
    ledger.summed(key(run="third"), frozenset("efg"), fewest=0)
    assert refused(lambda: ledger.summed(key(dataset="new"), frozenset("ab"))) == "roster"
    assert [what.key.run for what in ledger.sums("cohort")] == ["first", "second", "third"]


def test_a_run_that_loses_a_site_goes_on_and_its_sums_bind_later_runs() -> None:
    ledger = Ledger(None)
    ledger.summed(key(0), SITES)
    ledger.summed(key(1), SITES - {"a"})
    ledger.summed(key(0, run="later"), SITES - {"a"})
    ledger.summed(key(1, run="later"), SITES)
    assert refused(lambda: ledger.summed(key(2, run="later"), SITES - {"b"})) == "roster"


def test_times_are_written_in_utc() -> None:
    east = timezone(timedelta(hours=5, minutes=30))
    ledger = Ledger(None, clock=lambda: datetime(2026, 11, 15, 1, 2, 3, 999999, tzinfo=east))
    assert [event.when for event in ledger.events] == ["2026-11-14T19:32:03+00:00"]
    assert datetime.fromisoformat(Ledger(None).events[0].when).utcoffset() == timedelta(0)


def test_all_of_it_is_there_again_in_another_process_s_eyes(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    first, second = Ledger(path, create=True), Ledger(path)
    first.set_budget("cohort", Budget(1.0, 1e-6))
    spend(second, key(), 0.15)
    assert spend(first, key(), 0.15) is Spending.KNOWN
    second.commit(key(), b"reply", NOISED, SHAPES, paid=True, meter=lambda kept: b"meter")
    first.summed(key(1), SITES)
    for ledger in (first, second, Ledger(path), Ledger(path, readonly=True)):
        assert ledger.budget("cohort") == Budget(1.0, 1e-6)
        assert ledger.reply(key()) == b"reply"
        assert ledger.meter("cohort") == b"meter"
        assert ledger.totals("cohort").mu == pytest.approx(0.15)
        assert len(ledger.sums("cohort")) == 1
        assert ledger.verify().events == 5


def test_a_budget_s_mu_is_the_tight_one_and_totals_compose() -> None:
    assert Budget(1.0, 1e-5).mu == mu_of(1.0, 1e-5)
    ledger = Ledger(None)
    for round_, mu in enumerate([0.3, 0.4]):
        spend(ledger, key(round_), mu)
    assert ledger.totals("cohort").mu == compose([0.3, 0.4]) == 0.5


def test_events_are_numbered_without_a_gap() -> None:
    ledger = Ledger(None)
    for round_ in range(5):
        spend(ledger, key(round_))
    assert all(isinstance(event, Event) for event in ledger.events)
    assert [event.number for event in ledger.events] == [1, 2, 3, 4, 5, 6]


def test_a_text_of_a_refusal_says_what_to_do_and_holds_no_number_of_the_data() -> None:
    ledger = Ledger(None)
    ledger.set_budget("cohort", Budget(0.1, 1e-6))
    with pytest.raises(Refusal, match=r"budget does not allow this spend\. Wait for") as refusal:
        spend(ledger, key(), 0.3125)
    assert "0.3125" not in str(refusal.value)
