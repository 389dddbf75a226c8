"""The gate: what it lets out, what it refuses and with which code, and what it writes down."""

import logging

import numpy as np
import pytest

from eigenfed import FederatedPCA
from eigenfed.arrays import Array, Arrays, checksum
from eigenfed.data.source import Source
from eigenfed.errors import DataError, SiteRefused
from eigenfed.privacy.events import Replied
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.ledger import Budget, Ledger
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.published import DPdisPCA
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.messages import Message
from eigenfed.protocol.ops import Answer, Op, op
from eigenfed.protocol.registry import OPS
from eigenfed.protocol.site import Site

D = 4
ROWS = np.random.default_rng(0).standard_normal((9, D)) * [4.0, 2.0, 1.0, 0.5]
MOMENTS = {"mean": ROWS.mean(axis=0), "scale": np.ones(D)}
SECRET = "patient 4711 has 12345.678901"


@op(Release("a count of asks", "1", Leaves.EXACT, Reveals.COUNTS))
def counting(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Count the answers in this run; fail after counting where told to."""
    count = state.get("count", np.zeros(1)) + 1
    if "fail" in payload:
        raise ERRORS[int(payload["fail"][0])](SECRET)
    return Answer({"count": count}, {"count": count})


@op(Release("directions without saying which", "1", Leaves.EXACT, Reveals.DIRECTIONS))
def undeclared(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Reveal directions and hide which."""
    return Answer({"product": np.ones(1)}, state)


ERRORS: tuple[type[Exception], ...] = (
    ValueError,
    KeyError,
    ZeroDivisionError,
    MemoryError,
    np.linalg.LinAlgError,
    DataError,
)
KNOWN = {**OPS, "counting": counting, "undeclared": undeclared}


def make_site(
    policy: Policy | None = None, *, meter: Meter | None = None, wire: str = "float64"
) -> Site:
    return Site("a", Source.of(ROWS), policy=policy, meter=meter, ops=KNOWN, wire=wire)


def ask(op_name: str, payload: Arrays | None = None, *, run: str = "r", round_: int = 0) -> bytes:
    return Message("ask", run, round_, op_name, payload or {}).to_bytes()


def about(basis: Array) -> Arrays:
    return {**MOMENTS, "basis": basis}


def reply_of(data: bytes) -> Message:
    return Message.from_bytes(data, "reply")


def code_of(data: bytes) -> str:
    refusal = Message.from_bytes(data, "refusal")
    assert refusal.arrays == {}
    return refusal.label


def test_a_reply_carries_run_round_and_operation() -> None:
    reply = reply_of(make_site().answer(ask("moments", run="r7", round_=3)))
    assert (reply.run, reply.round_, reply.label) == ("r7", 3, "moments")
    np.testing.assert_allclose(reply.arrays["total"], ROWS.sum(axis=0), rtol=1e-14)


def test_bytes_that_are_no_ask_are_malformed() -> None:
    site = make_site()
    whole = ask("moments")
    for data in (b"", b"GET /", whole[:-1], Message("reply", "r", 0, "moments", {}).to_bytes()):
        refusal = Message.from_bytes(site.answer(data), "refusal")
        assert (refusal.label, refusal.run, refusal.round_) == ("malformed", "", -1)
    assert site.egress == []


def test_an_unknown_operation() -> None:
    assert code_of(make_site().answer(ask("drop_tables"))) == "unknown_op"


def test_a_forbidden_operation() -> None:
    site = make_site(Policy(forbidden=frozenset({"scatter"})))
    assert code_of(site.answer(ask("scatter", MOMENTS))) == "forbidden"
    assert site.egress == []
    assert site.meter.rank_fraction == 0.0


def test_the_same_ask_twice_brings_the_same_bytes_and_counts_once() -> None:
    site = make_site(Policy(max_rounds=1))
    data = ask("product", about(np.eye(D)[:, :1]))
    first = site.answer(data)
    meter = site.meter
    assert site.answer(data) == first
    assert site.meter is meter
    assert len(site.egress) == 1


def test_another_ask_in_an_answered_round_is_refused() -> None:
    site = make_site()
    site.answer(ask("product", about(np.eye(D)[:, :1]), round_=2))
    before = site.meter.to_bytes()
    assert code_of(site.answer(ask("product", about(np.eye(D)[:, 1:2]), round_=2))) == "answered"
    assert code_of(site.answer(ask("moments", round_=1))) == "answered"
    assert site.meter.to_bytes() == before
    assert len(site.egress) == 1


def test_runs_are_apart() -> None:
    site = make_site()
    for run in ("one", "two"):
        reply = reply_of(site.answer(ask("counting", run=run)))
        np.testing.assert_array_equal(reply.arrays["count"], [1.0])


def test_rounds_are_limited_in_a_run_and_refusals_do_not_count() -> None:
    site = make_site(Policy(max_rounds=2))
    assert code_of(site.answer(ask("drop_tables"))) == "unknown_op"
    for round_ in range(2):
        reply_of(site.answer(ask("counting", round_=round_)))
    assert code_of(site.answer(ask("counting", round_=2))) == "rounds"
    reply_of(site.answer(ask("counting", run="another")))


@pytest.mark.parametrize("which", range(len(ERRORS)))
def test_a_failure_leaves_as_a_code_and_its_text_stays(
    which: int, caplog: pytest.LogCaptureFixture
) -> None:
    site = make_site()
    with caplog.at_level(logging.ERROR):
        data = site.answer(ask("counting", {"fail": np.array([which])}, run="r9", round_=5))
    assert data == Message("refusal", "r9", 5, "failed", {}).to_bytes()
    assert site.egress == []
    (record,) = caplog.records
    assert record.getMessage() == "op counting of round 5 failed"
    assert SECRET in caplog.text


def test_refusals_hold_a_code_the_run_and_the_round_and_nothing_else() -> None:
    site = make_site(Policy(max_rank_fraction=0.25, forbidden=frozenset({"moments"})))
    asked = {
        "unknown_op": ask("nothing", round_=1),
        "forbidden": ask("moments", round_=1),
        "leakage": ask("product", about(np.eye(D)), round_=1),
        "undeclared": ask("undeclared", round_=1),
        "failed": ask("product", {}, round_=1),
    }
    for code, data in asked.items():
        assert site.answer(data) == Message("refusal", "r", 1, code, {}).to_bytes()
    assert site.egress == []


def test_state_is_kept_only_when_a_reply_leaves() -> None:
    site = make_site()
    for round_, fails in enumerate([False, True, True, False]):
        payload = {"fail": np.array([0])} if fails else {}
        data = site.answer(ask("counting", payload, round_=round_))
        assert (code_of(data) == "failed") if fails else reply_of(data).arrays
    reply = reply_of(site.answer(ask("counting", round_=4)))
    np.testing.assert_array_equal(reply.arrays["count"], [3.0])


def test_a_refused_product_leaves_no_state_behind() -> None:
    site = make_site(Policy(max_rank_fraction=0.25))
    assert code_of(site.answer(ask("product", about(np.eye(D))))) == "leakage"
    # Mean and scale came with the refused ask: without them the next one cannot be answered.
    assert code_of(site.answer(ask("product", {"basis": np.eye(D)[:, :1]}, round_=1))) == "failed"


def test_a_failed_round_may_be_asked_again() -> None:
    site = make_site()
    assert code_of(site.answer(ask("counting", {"fail": np.array([1])}))) == "failed"
    assert reply_of(site.answer(ask("counting"))).arrays["count"] == 1.0


def test_an_answer_that_hides_its_directions_is_undeclared() -> None:
    site = make_site()
    assert code_of(site.answer(ask("undeclared"))) == "undeclared"
    assert site.egress == []


def test_the_egress_log_says_all_of_what_left() -> None:
    site = make_site()
    basis = np.eye(D)[:, :3]
    replies = [
        site.answer(ask("moments", run="r1", round_=0)),
        site.answer(ask("product", about(basis), run="r1", round_=1)),
        site.answer(ask("scatter", MOMENTS, run="r2", round_=0)),
    ]
    assert [(line.run, line.round_, line.op) for line in site.egress] == [
        ("r1", 0, "moments"),
        ("r1", 1, "product"),
        ("r2", 0, "scatter"),
    ]
    assert [line.shapes for line in site.egress] == [
        {"n": (1,), "count": (D,), "total": (D,)},
        {"product": (D, 3), "trace": (1,)},
        {"triangle": (D * (D + 1) // 2,)},
    ]
    for line, reply in zip(site.egress, replies, strict=True):
        assert line.sent_bytes == len(reply)
        assert line.digest == checksum(reply)
        assert line.release is OPS[line.op].release


def test_the_wire_sets_the_precision_of_what_leaves() -> None:
    double = make_site().answer(ask("moments"))
    single = make_site(wire="float32").answer(ask("moments"))
    assert len(single) < len(double)
    exact, rounded = (reply_of(data).arrays["total"] for data in (double, single))
    np.testing.assert_array_equal(rounded, exact.astype(np.float32))
    assert (rounded != exact).any()


def test_the_meter_follows_products_the_scatter_and_the_diagonal() -> None:
    around = ROWS - ROWS.mean(axis=0)
    variances = np.sum(around**2, axis=0)
    site = make_site()
    site.answer(ask("product", about(np.eye(D)[:, :2])))
    assert site.meter.rank_fraction == 0.5
    images = around.T @ around[:, :2]
    share = np.trace(images @ np.linalg.inv(images[:2]) @ images.T) / variances.sum()
    assert site.meter.variance_fraction == pytest.approx(share, rel=1e-12)
    assert not site.meter.diagonal
    site.answer(ask("squares", {"mean": MOMENTS["mean"]}, round_=1))
    assert site.meter.diagonal
    assert site.meter.rank_fraction == 0.5
    site.answer(ask("scatter", MOMENTS, round_=2))
    assert (site.meter.rank_fraction, site.meter.variance_fraction) == (1.0, 1.0)


def test_the_meter_goes_on_over_runs_and_over_a_restart() -> None:
    site = make_site()
    site.answer(ask("product", about(np.eye(D)[:, :1]), run="one"))
    site.answer(ask("product", about(np.eye(D)[:, :2]), run="two"))
    assert site.meter.rank_fraction == 0.5
    later = make_site(Policy(max_rank_fraction=0.75), meter=Meter.from_bytes(site.meter.to_bytes()))
    reply_of(later.answer(ask("product", about(np.eye(D)[:, 1:3]), run="three")))
    assert later.meter.rank_fraction == 0.75
    refused = later.answer(ask("product", about(np.eye(D)[:, 3:]), run="four"))
    assert code_of(refused) == "leakage"
    assert later.meter.rank_fraction == 0.75


LIMITS = [Policy(max_rank_fraction=0.5), Policy(max_variance_fraction=0.5)]


@pytest.mark.parametrize("policy", LIMITS, ids=["rank", "variance"])
@pytest.mark.parametrize("op_name", ["product", "scatter"])
def test_limits_refuse_before_anything_leaves(policy: Policy, op_name: str) -> None:
    site = make_site(policy)
    # The last feature holds a quarter of the directions and little of the variance.
    reply_of(site.answer(ask("product", about(np.eye(D)[:, 3:]), run="small")))
    before = site.meter
    payload = about(np.eye(D)[:, :3]) if op_name == "product" else MOMENTS
    for run in ("r", "s"):
        assert code_of(site.answer(ask(op_name, payload, run=run))) == "leakage"
    assert site.meter is before
    assert [line.run for line in site.egress] == ["small"]
    reply_of(site.answer(ask("moments", run="t")))


def test_a_limit_may_be_reached_but_not_passed() -> None:
    site = make_site(Policy(max_rank_fraction=0.5))
    reply_of(site.answer(ask("product", about(np.eye(D)[:, :2]))))
    reply_of(site.answer(ask("product", about(np.eye(D)[:, :2] @ np.ones((2, 1))), round_=1)))
    assert code_of(site.answer(ask("product", about(np.eye(D)[:, 2:3]), round_=2))) == "leakage"


def test_a_site_knows_all_operations_of_the_package_unless_told_otherwise() -> None:
    site = Site("a", Source.of(ROWS))
    reply_of(site.answer(ask("moments")))
    none: dict[str, Op] = {}
    assert code_of(Site("a", Source.of(ROWS), ops=none).answer(ask("moments"))) == "unknown_op"


def test_rows_with_a_budget_of_privacy_leave_nothing_exact() -> None:
    budget = Policy(budget=Budget(epsilon=1.0, delta=1e-6))
    for settings in ({}, {"method": "krylov"}, {"secure": True}):
        with pytest.raises(SiteRefused, match="'exact'"):
            FederatedPCA(2, **settings).fit_sites(
                dict.fromkeys("abc", np.eye(9)), policies={"b": budget}
            )
    with pytest.raises(SiteRefused, match="'no_guarantee'"):
        FederatedPCA(2, privacy=DPdisPCA(1.0, 1e-6, clip=1.0), center=False).fit_sites(
            dict.fromkeys("abc", np.eye(9)), policies={"b": budget}
        )


def test_what_left_has_the_digest_that_the_ledger_has() -> None:
    ledger = Ledger(None)
    pca = FederatedPCA(1).fit_sites({"a": np.eye(4)}, ledgers={"a": ledger})
    replied = [event.what.digest for event in ledger.events if isinstance(event.what, Replied)]
    assert [left.digest for left in pca.egress_["a"]] == replied
