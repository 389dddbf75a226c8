"""Runs, aborts, holds and refusals: by a ledger on disk, in memory, and at a site without one."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from eigenfed.errors import DataError, InputError
from eigenfed.privacy.ledger.entries import ReplyKey
from eigenfed.privacy.ledger.events import Aborted, Kind, Refused, RefusedMore, Released, RunOpened
from eigenfed.privacy.ledger.ledger import Budget, Ledger, Refusal
from eigenfed.privacy.ledger.ledger_interface import REFUSALS_RECORDED, NullLedger, SiteLedger
from eigenfed.privacy.ledger.ledger_state import ABORTS_ALLOWED
from eigenfed.privacy.release import Leaves, Release, Reveals

BOTH: list[Callable[[], SiteLedger]] = [lambda: Ledger(None), NullLedger]
EXACT = Release("totals", "d", Leaves.EXACT, Reveals.MEANS)
TERMS: dict[str, Any] = {"sensitivity": 1.0, "sd": 10.0, "mechanism": "gaussian"}


def key(round_: int = 0, run: str = "run", dataset: str = "cohort") -> ReplyKey:
    return ReplyKey(dataset, run, round_, "scatter", ask_digest="ask")


def open_run(ledger: SiteLedger, run: str, **new: Any) -> bool:
    given: dict[str, Any] = {"study": "9f86", "coordinator": "d75a"}
    return ledger.open_run("cohort", run, **(given | new))


def refused(do: Callable[[], object]) -> str:
    with pytest.raises(Refusal) as refusal:
        do()
    return refusal.value.code


@pytest.mark.parametrize("made", BOTH)
def test_a_run_is_opened_once_for_one_study_and_coordinator(made: Callable[[], SiteLedger]) -> None:
    ledger = made()
    assert [open_run(ledger, "a"), open_run(ledger, "a"), open_run(ledger, "b")] == [
        True,
        False,
        True,
    ]
    assert refused(lambda: open_run(ledger, "a", study="other")) == "reopened"
    assert refused(lambda: open_run(ledger, "a", coordinator="other")) == "reopened"
    assert ledger.open_run("other", "a", study="other", coordinator="d75a")


@pytest.mark.parametrize("made", BOTH)
def test_runs_on_a_data_set_are_limited(made: Callable[[], SiteLedger]) -> None:
    ledger = made()
    for run in range(5):
        assert open_run(ledger, f"{run}", most=5)
    assert refused(lambda: open_run(ledger, "5", most=5)) == "runs"
    assert not open_run(ledger, "4", most=5)
    assert open_run(ledger, "5", most=6)
    assert ledger.open_run("other", "5", study="s", coordinator="c", most=1)
    with pytest.raises(InputError, match="most=-1"):
        open_run(ledger, "6", most=-1)


@pytest.mark.parametrize("made", BOTH)
def test_too_many_aborted_runs_hold_the_data_set_until_a_person_releases_it(
    made: Callable[[], SiteLedger],
) -> None:
    ledger = made()
    with pytest.raises(DataError, match="No run on the data set 'cohort' was aborted"):
        ledger.release("cohort", "nothing")
    for run in range(ABORTS_ALLOWED + 1):
        assert not ledger.held("cohort")
        open_run(ledger, f"{run}")
        assert not ledger.is_aborted("cohort", f"{run}")
        for _ in range(5):
            ledger.abort("cohort", f"{run}", 2, "scatter")
        assert ledger.is_aborted("cohort", f"{run}")
    assert ledger.held("cohort")
    assert not ledger.held("other")
    assert refused(lambda: open_run(ledger, "new")) == "held"
    assert refused(lambda: open_run(ledger, "0")) == "held"
    forgiven = ledger.release("cohort", "The disk was full.")
    assert forgiven == tuple(Aborted("cohort", f"{run}", 2, "scatter") for run in range(4))
    assert not ledger.held("cohort")
    assert ledger.is_aborted("cohort", "0")
    assert open_run(ledger, "new")
    for reason in ("", "x" * 201, "a\nb"):
        with pytest.raises(InputError, match=r"^reason"):
            ledger.release("cohort", reason)


def test_all_of_it_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with Ledger(path, create=True) as ledger:
        open_run(ledger, "a")
    for run in range(ABORTS_ALLOWED + 1):
        with Ledger(path) as ledger:
            assert not open_run(ledger, "a")
            assert not ledger.held("cohort")
            ledger.abort("cohort", f"{run}", 0, "scatter")
    with Ledger(path) as ledger:
        assert ledger.held("cohort")
        assert refused(lambda: open_run(ledger, "a")) == "held"
        assert len(ledger.release("cohort", "looked into")) == 4
    with Ledger(path) as ledger:
        assert not ledger.held("cohort")
        assert ledger.is_aborted("cohort", "3")
        kinds = [event.kind for event in ledger.events]
        assert kinds == [Kind.OPENED, Kind.RUN_OPENED, *[Kind.ABORTED] * 4, Kind.RELEASED]
        assert ledger.events[1].what == RunOpened("cohort", "a", "9f86", "d75a")
        assert ledger.events[-1].what == Released("cohort", "looked into")
        assert ledger.datasets == ("cohort",)


def test_refusals_are_written_down_up_to_a_limit_for_each_run(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with Ledger(path, create=True) as ledger:
        for round_ in range(REFUSALS_RECORDED + 5):
            ledger.refuse(key(round_), "forbidden")
    with Ledger(path) as ledger:
        size = path.stat().st_size
        for round_ in range(50):
            ledger.refuse(key(round_), "forbidden")
        assert path.stat().st_size == size
        ledger.refuse(key(run="later"), "forbidden")
        ledger.refuse(key(dataset="other"), "forbidden")
        whats = [event.what for event in ledger.events][1:]
    first = [Refused(key(round_), "forbidden") for round_ in range(REFUSALS_RECORDED)]
    assert whats[:REFUSALS_RECORDED] == first
    assert whats[REFUSALS_RECORDED:] == [
        RefusedMore("cohort", "run"),
        Refused(key(run="later"), "forbidden"),
        Refused(key(dataset="other"), "forbidden"),
    ]


def test_refused_spends_replies_and_sums_count_among_them() -> None:
    ledger = Ledger(None)
    ledger.set_budget("cohort", Budget(0.1, 1e-6))
    for asked in map(key, range(3 * REFUSALS_RECORDED)):
        spend = partial(ledger.spend, asked, 0.5, relation="replace_one", **TERMS)
        assert refused(spend) == "budget"
        assert refused(partial(ledger.commit, asked, b"", EXACT, {}, paid=True)) == "unspent"
        assert refused(partial(ledger.summed, asked, frozenset("ab"))) == "roster"
    assert len(ledger.events) == 2 + REFUSALS_RECORDED + 1


def test_names_of_runs_that_are_made_up_do_not_grow_the_ledger_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eigenfed.privacy.ledger.ledger_interface.RUNS_ALLOWED", 2)
    ledger = Ledger(None)
    for run in range(100):
        ledger.refuse(key(run=f"{run}"), "forbidden")
    assert len(ledger.events) == 1 + 2 * (REFUSALS_RECORDED + 1)


@pytest.mark.parametrize("reveals", Reveals)
def test_after_exact_replies_no_epsilon_holds(reveals: Reveals) -> None:
    ledger = Ledger(None)
    release = Release("sums", "d", Leaves.EXACT, reveals)
    ledger.commit(key(), b"reply", release, {}, paid=False)
    totals = ledger.totals("cohort", delta=1e-6)
    if reveals in (Reveals.SIZE, Reveals.NOTHING, Reveals.NOISE):
        assert (totals.mu, totals.epsilon, totals.exact) == (0.0, 0.0, 0)
        assert totals.text.startswith("0 spends come to mu=0")
        return
    assert (totals.mu, totals.rho, totals.epsilon) == (math.inf, math.inf, math.inf)
    assert totals.exact == 1
    assert totals.text == "No epsilon holds: exact sums of these rows have left, in 1 reply."
    ledger.set_budget("cohort", Budget(8.0, 1e-6))
    spend = partial(ledger.spend, key(1), 0.1, relation="replace_one", **TERMS)
    assert refused(spend) == "budget"
    assert math.isfinite(ledger.totals("other").mu)


def test_a_reply_that_was_paid_for_is_not_exact() -> None:
    ledger = Ledger(None)
    ledger.spend(key(), 0.1, relation="replace_one", **TERMS)
    ledger.commit(key(), b"reply", EXACT, {}, paid=True)
    assert (ledger.totals("cohort").exact, ledger.totals("cohort").mu) == (0, 0.1)


def test_without_a_ledger_nothing_can_be_spent_and_exact_replies_pass_as_they_are() -> None:
    ledger = NullLedger()
    spend = partial(ledger.spend, key(), 0.1, relation="replace_one", **TERMS)
    assert refused(spend) == "ledger"
    assert refused(lambda: ledger.spend_unsound(key(), mechanism="m", allowed=True)) == "ledger"
    reply = bytes(1000)

    def measure(kept: bytes | None) -> bytes:
        raise AssertionError

    assert ledger.commit(key(), reply, EXACT, {}, paid=False, meter=measure) is reply
    assert refused(lambda: ledger.commit(key(1), reply, EXACT, {}, paid=True)) == "unspent"
    assert ledger.reply(key()) is None
    assert ledger.meter("cohort") is None
    assert ledger.forget_replies("run") == 0
    ledger.refuse(key(), "forbidden")
    assert ledger.budget("cohort") is None
    ledger.set_budget("cohort", Budget(1.0, 1e-6))
    assert ledger.budget("cohort") == Budget(1.0, 1e-6)


@pytest.mark.parametrize("made", BOTH)
def test_sums_are_remembered_and_compared_over_runs(made: Callable[[], SiteLedger]) -> None:
    ledger, sites = made(), frozenset("abcdefg")
    ledger.summed(key(run="first"), sites)
    ledger.summed(key(run="first"), sites)
    assert refused(lambda: ledger.summed(key(run="first"), sites - {"a"})) == "answered"
    assert refused(lambda: ledger.summed(key(run="second"), sites - {"a"})) == "roster"
    ledger.summed(key(run="second"), sites - {"a"}, fewest=0)
    assert [past.sites for past in ledger.sums("cohort")] == [sites, sites - {"a"}]
    assert ledger.sums("other") == ()
