"""The gate with a ledger: paid first, written down, the same after a restart."""

from pathlib import Path

import numpy as np
import pytest

from eigenfed.arrays import Array, Arrays
from eigenfed.data.source import Source
from eigenfed.privacy.events import Kind
from eigenfed.privacy.keys import Budget
from eigenfed.privacy.ledger import Ledger
from eigenfed.privacy.policy import Policy
from eigenfed.protocol.messages import Message
from eigenfed.protocol.site import Site

ROWS: Array = np.random.default_rng(0).standard_normal((200, 4))


def private_ask(
    run: str, round_: int, *, mu: float = 0.1, parties: int = 1, **more: float
) -> bytes:
    payload: Arrays = {
        "center": np.zeros(4),
        "radius": np.array([more.get("radius", 1.0)]),
        "privacy.mu": np.array([mu]),
        "privacy.parties": np.array([parties]),
        "privacy.relation": np.array([0]),
    }
    return Message("ask", run, round_, "private_within", payload).to_bytes()


def exact_ask(run: str, round_: int) -> bytes:
    payload = {"mean": np.zeros(4), "scale": np.ones(4), "basis": np.eye(4)[:, :2]}
    return Message("ask", run, round_, "product", payload).to_bytes()


def site_with(path: Path | None, policy: Policy | None = None) -> Site:
    return Site("a", Source.of(ROWS), ledger=Ledger(path), policy=policy)


def label(data: bytes) -> tuple[str, str]:
    message = Message.from_bytes(data, "reply", "refusal")
    return message.kind, message.label


def test_a_restarted_site_repeats_its_reply_and_pays_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    first = site_with(path).answer(private_ask("run", 0))
    again = site_with(path).answer(private_ask("run", 0))
    assert label(first) == ("reply", "private_within")
    assert again == first
    assert Ledger(path).totals("data").spends == 1


def test_a_restarted_site_refuses_another_ask_in_an_answered_round(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    site_with(path).answer(private_ask("run", 0))
    other = site_with(path).answer(private_ask("run", 0, radius=2.0))
    assert label(other) == ("refusal", "answered")
    assert Ledger(path).totals("data").spends == 1


def test_a_budget_holds_over_runs_and_restarts(tmp_path: Path) -> None:
    path, policy = tmp_path / "ledger", Policy(budget=Budget(1.0, 1e-5))
    mu = 0.6 * Budget(1.0, 1e-5).mu
    answers = [site_with(path, policy).answer(private_ask(f"run {i}", 0, mu=mu)) for i in range(3)]
    assert [label(answer)[0] for answer in answers] == ["reply", "reply", "refusal"]
    assert label(answers[2])[1] == "budget"
    refusals = [event for event in Ledger(path).events if event.kind is Kind.REFUSED]
    assert len(refusals) == 1


def test_what_leaves_exactly_is_written_down_with_the_meter(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    site = site_with(path)
    assert label(site.answer(exact_ask("run", 0)))[0] == "reply"
    assert site.meter.rank_fraction == 0.5
    later = site_with(path, Policy(max_rank_fraction=0.6))
    assert later.meter.rank_fraction == 0.5
    directions = {"mean": np.zeros(4), "scale": np.ones(4), "basis": np.eye(4)[:, 2:]}
    more = Message("ask", "other", 0, "product", directions).to_bytes()
    assert label(later.answer(more)) == ("refusal", "leakage")
    kinds = [event.kind for event in Ledger(path).events]
    assert kinds == [Kind.OPENED, Kind.REPLIED, Kind.REFUSED]


def test_only_the_last_reply_of_a_run_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    site = site_with(path)
    for round_ in range(3):
        site.answer(private_ask("run", round_))
    fresh = site_with(path)
    assert label(fresh.answer(private_ask("run", 2)))[0] == "reply"
    assert label(site_with(path).answer(private_ask("run", 1))) == ("refusal", "forgotten")


def test_no_noise_leaves_a_site_without_a_ledger() -> None:
    site = Site("a", Source.of(ROWS))
    assert label(site.answer(private_ask("run", 0))) == ("refusal", "ledger")


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"parties": 0}, "untrusted"),
        ({"parties": 3}, "unmasked"),
        ({"mu": float("nan")}, "malformed"),
        ({"mu": 0.0}, "malformed"),
        ({"mu": float("inf")}, "malformed"),
        ({"parties": -1}, "malformed"),
    ],
)
def test_terms_that_would_weaken_the_noise_are_refused_and_cost_nothing(
    more: dict[str, float], code: str
) -> None:
    ledger = Ledger(None)
    site = Site("a", Source.of(ROWS), ledger=ledger)
    assert label(site.answer(private_ask("run", 0, **more))) == ("refusal", code)  # type: ignore[arg-type]
    assert ledger.totals("data").spends == 0


def test_a_ledger_that_cannot_be_written_lets_nothing_out(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    Ledger(path).close()
    site = Site("a", Source.of(ROWS), ledger=Ledger(path, readonly=True))
    assert label(site.answer(private_ask("run", 0))) == ("refusal", "ledger")
    assert label(site.answer(exact_ask("run", 1))) == ("refusal", "ledger")
