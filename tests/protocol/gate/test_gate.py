"""The gate: which runs it opens, what it lets out, with which code it refuses, what it records."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from counting import ERRORS, SECRET, Counting, CountRequest
from eigenfed import FederatedPCA
from eigenfed.arrays import Array, checksum
from eigenfed.data.source import Source
from eigenfed.errors import SiteRefused
from eigenfed.privacy.dp.accounting import epsilon_of
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.ledger.events import Kind, Replied
from eigenfed.privacy.ledger.ledger import Budget, Ledger
from eigenfed.privacy.ledger.ledger_state import ABORTS_ALLOWED
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.privacy.secagg.identity import Identity
from eigenfed.protocol.core import drive
from eigenfed.protocol.exact.covariance import Covariance, ScatterRequest
from eigenfed.protocol.exact.krylov import Krylov
from eigenfed.protocol.exact.merge import Merge
from eigenfed.protocol.exact.moments import MomentsRequest, SquaresRequest
from eigenfed.protocol.exact.power import Power
from eigenfed.protocol.exact.products import ProductRequest
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.gate.script import repeat
from eigenfed.protocol.messages import REFUSAL_TEXTS, Message, pack
from eigenfed.protocol.method import Method, registered
from eigenfed.protocol.method_registry import all_operations
from eigenfed.protocol.operations import Answer, Request, State, Terms, op
from eigenfed.protocol.private.private_site import MomentRequest, RowsRequest, TotalRequest
from eigenfed.protocol.published import DPdisPCA
from eigenfed.protocol.secure.sum_format import Envelope, KeysRequest
from eigenfed.protocol.study import Study, open_message
from federation import (
    COORDINATOR,
    Talk,
    Testing,
    coordinated,
    gate,
    opened,
    opening,
    study_of,
    talk,
)

D = 4
ROWS = np.random.default_rng(0).standard_normal((9, D)) * [4.0, 2.0, 1.0, 0.5]
FRAME = {"mean": ROWS.mean(axis=0), "scale": np.ones(D)}
KRYLOV, WHOLE = study_of("a", D, "krylov"), study_of("a", 2, "covariance")


@dataclass(frozen=True)
class HiddenReply:
    """One number."""

    product: float


@dataclass(frozen=True, kw_only=True)
class HiddenRequest(Request[HiddenReply]):
    """Request for directions without saying which."""

    op, reply = "undeclared", HiddenReply


@op(Release("directions without saying which", "1", Leaves.EXACT, Reveals.DIRECTIONS))
def undeclared(
    source: Source, request: HiddenRequest, state: State, terms: Terms
) -> Answer[HiddenReply]:
    """Reveal directions and hide which."""
    return Answer(HiddenReply(1.0), state)


class Hiding(Testing):
    """Has an operation that hides what it reveals."""

    name = "hiding"
    ops = (undeclared,)
    asked = repeat("undeclared", 0, 9)


@pytest.fixture(autouse=True)
def methods() -> Iterator[None]:
    with registered(Counting), registered(Hiding):
        yield


def site_of(policy: Policy | None = None, **more: Any) -> Site:
    return gate("a", ROWS, policy=policy, **more)


def begun(site: Site, method: Method | str = "krylov", run: str = "r", **settings: Any) -> Talk:
    """Open a run and bring it past the moments."""
    talking = talk(site, D, method, run, **settings)
    talking.reply(MomentsRequest())
    return talking


def about(basis: Array) -> ProductRequest:
    return ProductRequest(basis=basis, mean=FRAME["mean"], scale=FRAME["scale"])


def code_of(data: bytes) -> str:
    refusal = Message.from_bytes(data, "refusal")
    assert refusal.arrays == {}
    return refusal.label


# Opening ----------------------------------------------------------------------------------------


def test_a_run_is_opened_by_the_pinned_coordinator_only() -> None:
    site, other = site_of(), Identity.generate()
    assert code_of(site.answer(open_message("r", WHOLE, WHOLE.method, other))) == "unsigned"
    assert Talk(site, WHOLE).opens() == ""


def changed(name: str, array: Array) -> bytes:
    """An opening with one of its fields replaced."""
    message = Message.from_bytes(opening("r", WHOLE), "open")
    return replace(message, arrays={**message.arrays, name: array}).to_bytes()


def flat(data: bytes) -> Any:
    return np.frombuffer(data, np.uint8)


def test_a_signature_is_for_one_run_study_and_method() -> None:
    site = site_of()
    message = Message.from_bytes(opening("r", WHOLE), "open")
    forged = {
        "run": replace(message, run="s").to_bytes(),
        "study": changed("study", flat(replace(WHOLE, components=3).to_bytes())),
        "method": changed("method", flat(b'{"name": "krylov", "options": {}}')),
        "key": changed("coordinator", flat(Identity.generate().public)),
        "signature": changed("signature", flat(bytes(64))),
    }
    assert {what: code_of(site.answer(data)) for what, data in forged.items()} == dict.fromkeys(
        forged, "unsigned"
    )
    assert code_of(site.answer(Message("request", "r", 0, "moments", {}).to_bytes())) == "closed"


@pytest.mark.parametrize(
    "data",
    [
        changed("study", flat(b"{}")),
        changed("study", flat(b"[" * 10_000)),
        changed("study", flat(WHOLE.to_bytes() + b" ")),
        changed("method", flat(b'{"name": "none"}')),
        changed("method", flat(b"null")),
        changed("more", flat(b"x")),
        changed("study", np.zeros(3)),
        Message("open", "r", 0, "open", {}).to_bytes(),
    ],
    ids=range(8),
)
def test_an_opening_that_is_no_study_is_malformed(data: bytes) -> None:
    assert code_of(site_of().answer(data)) == "malformed"


def test_only_approved_studies_are_opened() -> None:
    site = site_of(approved=frozenset({WHOLE.digest}))
    assert Talk(site, KRYLOV).opens() == "unapproved"
    assert Talk(site, replace(WHOLE, tol=1e-9)).opens() == "unapproved"
    assert Talk(site, WHOLE).opens() == ""


SECURE = study_of("abc", 2, "krylov", secure=True)
NOISED = Privacy(1.0, 1e-6, clip=1.0, trust="local")
BUDGET = Budget(1.0, 1e-6)


@pytest.mark.parametrize(
    ("study", "policy", "code"),
    [
        (study_of("bc", 1), Policy(), "other_sites"),
        (WHOLE, Policy(methods=frozenset({"krylov"})), "method"),
        (WHOLE, Policy(methods=frozenset()), "method"),
        (WHOLE, Policy(min_rows=10), "few_rows"),
        (WHOLE, Policy(secure_only=True), "unmasked"),
        (WHOLE, Policy(budget=BUDGET), "exact"),
        (WHOLE, Policy(max_runs=0), "runs"),
        (SECURE, Policy(), "no_identity"),
        (study_of("a", 1, privacy=NOISED), Policy(), "no_budget"),
        (study_of("a", 1, privacy=NOISED), Policy(budget=Budget(0.9, 1e-6)), "budget"),
        (study_of("a", 1, "krylov", privacy=NOISED), Policy(budget=BUDGET), "method"),
        (study_of("a", 1, Power(2), privacy=NOISED), Policy(budget=BUDGET), "method"),
        (
            study_of("a", 1, privacy=replace(NOISED, trust="central")),
            Policy(budget=BUDGET),
            "untrusted",
        ),
        (study_of("a", 1, by_site=True, privacy=NOISED), Policy(budget=BUDGET), "unmasked"),
        (
            study_of("a", 1, "auto", privacy=DPdisPCA(1.0, 1e-6, clip=1.0)),
            Policy(sound_only=True),
            "no_guarantee",
        ),
        (
            study_of("a", 1, "auto", privacy=DPdisPCA(1.0, 1e-6, clip=1.0)),
            Policy(budget=BUDGET),
            "no_guarantee",
        ),
    ],
    ids=range(16),
)
def test_a_study_that_the_policy_does_not_take_is_refused_at_the_door(
    study: Study, policy: Policy, code: str
) -> None:
    site = site_of(policy, ledger=Ledger(None))
    assert Talk(site, study).opens() == code
    assert code in REFUSAL_TEXTS
    assert site.egress == []
    assert code_of(site.answer(Message("request", "r", 0, "moments", {}).to_bytes())) == "closed"


def test_rows_with_weights_or_chosen_by_what_is_in_them_are_not_noised_as_they_are() -> None:
    study, policy = study_of("a", 1, privacy=NOISED), Policy(budget=BUDGET)
    weighted = gate("a", ROWS, weights=np.ones(9), policy=policy, ledger=Ledger(None))
    assert Talk(weighted, study).opens() == "weights"
    chosen = site_of(policy, ledger=Ledger(None), filtered=True)
    assert Talk(chosen, study).opens() == "count"
    counted = replace(study, privacy=replace(NOISED, count="private"))
    assert Talk(chosen, counted).opens() == ""


@pytest.mark.parametrize(
    ("study", "method", "code"),
    [
        (study_of("a", 2, "auto"), Covariance(), ""),
        (study_of("a", 2, "auto"), Krylov(), ""),
        (study_of("a", 2, "auto"), Covariance(precision="single"), "method"),
        (study_of("a", 2, "auto"), Merge(), "method"),
        (study_of("a", 2, "auto"), "auto", "method"),
        (WHOLE, Krylov(), "method"),
        (WHOLE, Covariance(precision="single"), "method"),
        (study_of("a", 2, Power(3)), Power(4), "method"),
        (study_of("a", 2, "auto", privacy=DPdisPCA(1.0, 1e-6, clip=1.0)), Krylov(), "method"),
    ],
    ids=range(9),
)
def test_a_run_uses_the_study_s_method_or_one_that_auto_stands_for(
    study: Study, method: Method | str, code: str
) -> None:
    data = site_of(ledger=Ledger(None)).answer(open_message("r", study, method, COORDINATOR))
    message = Message.from_bytes(data, "reply", "refusal")
    assert (message.label if message.kind == "refusal" else "") == code


def test_opening_a_run_again_changes_nothing() -> None:
    talking = begun(site_of(Policy(max_runs=1)))
    talking.reply(about(np.eye(D)[:, :1]))
    assert talking.opens() == ""
    assert talking.code(about(np.eye(D)[:, :1])) == "invalid"
    assert Talk(talking.site, KRYLOV, "another").opens() == "runs"


def test_a_site_keeps_eight_runs_open_and_closes_the_oldest() -> None:
    site = site_of()
    talks = [talk(site, 2, "covariance", f"r{i}") for i in range(9)]
    assert talks[0].code(MomentsRequest()) == "closed"
    for talking in talks[1:]:
        talking.reply(MomentsRequest())


# Answering --------------------------------------------------------------------------------------


def test_a_reply_carries_run_round_and_operation() -> None:
    talking = talk(site_of(), 1, "covariance", "r7")
    reply = talking.request(MomentsRequest(), round_=3)
    assert (reply.kind, reply.run, reply.round_, reply.label) == ("reply", "r7", 3, "moments")
    np.testing.assert_allclose(reply.arrays["total"], ROWS.sum(axis=0), rtol=1e-14)


def test_bytes_that_are_not_a_request_are_malformed() -> None:
    site = site_of()
    whole = Message("request", "r", 0, "moments", {}).to_bytes()
    for data in (b"", b"GET /", whole[:-1], Message("reply", "r", 0, "moments", {}).to_bytes()):
        refusal = Message.from_bytes(site.answer(data), "refusal")
        assert (refusal.label, refusal.run, refusal.round_) == ("malformed", "", -1)
    assert site.egress == []


@pytest.mark.parametrize("name", ["", "x" * 300])
@pytest.mark.parametrize("round_", [-1, 2**40])
def test_names_and_rounds_that_cannot_be_recorded_are_malformed(name: str, round_: int) -> None:
    talking = talk(site_of(), 1, "covariance")
    assert talking.send("moments", {}, round_).label in ("malformed", "answered")
    assert talking.send(name, {}, 0).label in ("malformed", "script")
    data = talking.site.answer(Message("request", name, 0, "moments", {}).to_bytes())
    assert code_of(data) == "malformed"


def test_an_operation_that_does_not_exist_or_not_now_is_no_part_of_the_script() -> None:
    talking = talk(site_of(), D, "krylov")
    for name in ("drop_tables", "scatter", "product", "sum_keys"):
        assert talking.send(name, {}).label == "script"
    talking.reply(MomentsRequest())
    assert talking.code(MomentsRequest()) == "script"
    assert talking.code(SquaresRequest(mean=np.zeros(D))) == "script"


@pytest.mark.parametrize(
    "arrays",
    [
        {"entry": np.array([3])},
        {"more": np.array([3])},
        {"privacy.mu": np.array([1e9])},
        {"mean": np.zeros(D)},
    ],
    ids=str,
)
def test_foreign_fields_are_refused(arrays: dict[str, Array]) -> None:
    talking = talk(site_of(), D, "krylov")
    assert talking.send("moments", arrays).label in ("malformed", "invalid")
    talking.reply(MomentsRequest())


def test_secure_sums_have_no_place_in_a_run_of_plain_ones() -> None:
    talking = talk(site_of(), D, "krylov")
    envelope = Envelope(number=0, present=np.ones(3, np.uint8)).to_arrays()
    assert talking.send("moments", envelope).label == "script"
    assert talking.code(KeysRequest(first=0, count=1)) == "script"


def test_the_same_request_twice_brings_the_same_bytes_and_counts_once() -> None:
    talking = begun(site_of(Policy(max_rounds=2)))
    data = talking.written(about(np.eye(D)[:, :1]), 1)
    first = talking.site.answer(data)
    meter = talking.site.meter
    assert talking.site.answer(data) == first
    assert talking.site.meter is meter
    assert len(talking.site.egress) == 2


def test_a_reply_that_has_arrived_may_be_forgotten_and_is_then_not_repeated() -> None:
    talking = begun(site_of())
    request = about(np.eye(D)[:, :1])
    talking.reply(request, round_=1)
    talking.site.forget_reply(talking.run)
    talking.site.forget_reply("another run")
    assert talking.code(request, round_=1) == "answered"
    talking.reply(ProductRequest(basis=np.eye(D)[:, 1:2]), round_=2)
    assert len(talking.site.egress) == 3


def test_another_request_in_an_answered_round_is_refused() -> None:
    talking = begun(site_of())
    talking.request(about(np.eye(D)[:, :1]), round_=2)
    before = talking.site.meter.to_bytes()
    assert talking.code(ProductRequest(basis=np.eye(D)[:, 1:2]), round_=2) == "answered"
    assert talking.code(ProductRequest(basis=np.eye(D)[:, 1:2]), round_=1) == "answered"
    assert talking.site.meter.to_bytes() == before
    assert len(talking.site.egress) == 2


def test_runs_are_apart() -> None:
    site = site_of()
    for run in ("one", "two"):
        assert begun(site, Counting(), run).reply(CountRequest()).count == 1


def test_rounds_are_limited_in_a_run_and_refusals_do_not_count() -> None:
    site = site_of(Policy(max_rounds=3))
    talking = begun(site, Counting())
    assert talking.send("drop_tables", {}).label == "script"
    for count in (1, 2):
        assert talking.reply(CountRequest()).count == count
    assert talking.code(CountRequest()) == "rounds"
    begun(site, Counting(), "another").reply(CountRequest())


def test_a_run_of_too_many_refusals_is_closed() -> None:
    ledger = Ledger(None)
    talking = begun(site_of(ledger=ledger), Counting())
    for _ in range(20):
        assert talking.send("drop_tables", {}).label == "script"
    assert talking.code(CountRequest()) == "closed"
    size = len(ledger.events)
    for _ in range(20):
        assert talking.send("drop_tables", {}).label == "closed"
    assert len(ledger.events) == size


@pytest.mark.parametrize("which", range(len(ERRORS)))
def test_a_failure_ends_the_run_with_one_code_and_its_text_stays(
    which: int, caplog: pytest.LogCaptureFixture
) -> None:
    talking = begun(site_of(), Counting(), "r9")
    with caplog.at_level(logging.ERROR):
        data = talking.site.answer(talking.written(CountRequest(fails=which), 5))
    assert data == Message("refusal", "r9", 5, "aborted", {}).to_bytes()
    assert SECRET.encode() not in data
    assert len(talking.site.egress) == 1
    (record,) = caplog.records
    assert record.getMessage() == "op counting of round 5 failed; the run is aborted"
    assert SECRET in caplog.text
    assert talking.code(CountRequest(), round_=6) == "aborted"
    assert talking.code(CountRequest(fails=which), round_=5) == "aborted"
    assert begun(talking.site, Counting(), "other").reply(CountRequest()).count == 1


def test_aborted_runs_count_and_then_need_a_person(tmp_path: Path) -> None:
    """Also where the site is started again in between."""
    path = tmp_path / "ledger"
    Ledger(path, create=True).close()
    for i in range(ABORTS_ALLOWED + 1):
        talking = begun(site_of(ledger=Ledger(path)), Counting(), f"r{i}")
        assert talking.code(CountRequest(fails=0)) == "aborted"
    ledger = Ledger(path)
    held = Talk(site_of(ledger=ledger), study_of("a", D, Counting()), "next")
    assert held.opens() == "held"
    ledger.release("data", "somebody looked")
    assert held.opens() == ""


def test_refusals_hold_a_code_the_run_and_the_round_and_nothing_else() -> None:
    site = site_of(Policy(max_rank_fraction=0.25))
    talking = begun(site)
    asked = {
        "script": ("nothing", {}),
        "malformed": ("product", {}),
        "invalid": ("product", {"basis": np.eye(D)}),
        "leakage": ("product", pack(about(np.eye(D)))),
    }
    for code, (name, arrays) in asked.items():
        data = site.answer(Message("request", "r", 1, name, arrays).to_bytes())
        assert data == Message("refusal", "r", 1, code, {}).to_bytes()
    assert len(talking.site.egress) == 1


def test_a_refused_product_leaves_no_state_behind() -> None:
    talking = begun(site_of(Policy(max_rank_fraction=0.25)))
    assert talking.code(about(np.eye(D))) == "leakage"
    # Mean and scale came with the refused request: without them the next one cannot be answered.
    assert talking.code(ProductRequest(basis=np.eye(D)[:, :1])) == "invalid"
    talking.reply(about(np.eye(D)[:, :1]))


def test_an_answer_that_hides_its_directions_does_not_leave() -> None:
    talking = begun(site_of(), Hiding())
    assert talking.code(HiddenRequest()) == "aborted"
    assert [line.op for line in talking.site.egress] == ["moments"]


def test_the_egress_log_says_all_of_what_left() -> None:
    site = site_of()
    first, second = talk(site, D, "krylov", "r1"), talk(site, D, "covariance", "r2")
    asked = [
        (first, MomentsRequest(), 0),
        (first, about(np.eye(D)[:, :3]), 1),
        (second, MomentsRequest(), 0),
        (second, ScatterRequest(mean=FRAME["mean"], scale=FRAME["scale"]), 1),
    ]
    replies = [site.answer(t.written(request, round_)) for t, request, round_ in asked]
    assert [(line.run, line.round_, line.op) for line in site.egress] == [
        ("r1", 0, "moments"),
        ("r1", 1, "product"),
        ("r2", 0, "moments"),
        ("r2", 1, "scatter"),
    ]
    totals = {"n": (1,), "count": (D,), "total": (D,)}
    assert [line.shapes for line in site.egress] == [
        totals,
        {"product": (D, 3), "trace": (1,)},
        totals,
        {"triangle": (D * (D + 1) // 2,)},
    ]
    for line, reply in zip(site.egress, replies, strict=True):
        assert line.sent_bytes == len(reply)
        assert line.digest == checksum(reply)
        assert line.release is all_operations()[line.op].release


def test_the_wire_sets_the_precision_of_what_leaves() -> None:
    double, single = (
        talk(site_of(wire=wire), 1, "covariance").site.answer(
            Message("request", "r", 0, "moments", {}).to_bytes()
        )
        for wire in ("float64", "float32")
    )
    assert len(single) < len(double)
    exact, rounded = (
        Message.from_bytes(data, "reply").arrays["total"] for data in (double, single)
    )
    np.testing.assert_array_equal(rounded, exact.astype(np.float32))
    assert (rounded != exact).any()


def test_the_meter_follows_moments_products_the_scatter_and_the_diagonal() -> None:
    around = ROWS - ROWS.mean(axis=0)
    variances = np.sum(around**2, axis=0)
    site = site_of()
    talking = talk(site, D, "krylov", scale=True)
    assert not site.meter.means
    talking.reply(MomentsRequest())
    assert site.meter.means
    assert not site.meter.diagonal
    talking.reply(SquaresRequest(mean=FRAME["mean"]))
    assert site.meter.diagonal
    assert site.meter.rank_fraction == 0.0
    talking.reply(about(np.eye(D)[:, :2]))
    assert site.meter.rank_fraction == 0.5
    images = around.T @ around[:, :2]
    share = np.trace(images @ np.linalg.inv(images[:2]) @ images.T) / variances.sum()
    assert site.meter.variance_fraction == pytest.approx(share, rel=1e-12)
    whole = begun(site, "covariance", "other")
    whole.reply(ScatterRequest(mean=FRAME["mean"], scale=FRAME["scale"]))
    assert (site.meter.rank_fraction, site.meter.variance_fraction) == (1.0, 1.0)


def test_the_meter_goes_on_over_runs_and_over_a_restart() -> None:
    site = site_of()
    begun(site, run="one").reply(about(np.eye(D)[:, :1]))
    begun(site, run="two").reply(about(np.eye(D)[:, :2]))
    assert site.meter.rank_fraction == 0.5
    kept = Meter.from_bytes(site.meter.to_bytes())
    later = site_of(Policy(max_rank_fraction=0.75), meter=kept)
    begun(later, run="three").reply(about(np.eye(D)[:, 1:3]))
    assert later.meter.rank_fraction == 0.75
    assert begun(later, run="four").code(about(np.eye(D)[:, 3:])) == "leakage"
    assert later.meter.rank_fraction == 0.75


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        (Policy(max_rank_fraction=0.5), "leakage"),
        (Policy(max_variance_fraction=0.5), "aborted"),
    ],
    ids=["rank", "variance"],
)
@pytest.mark.parametrize("method", ["krylov", "covariance"])
def test_limits_refuse_before_anything_leaves(policy: Policy, code: str, method: str) -> None:
    """How many directions is known before the rows are read; how much of the variance is not."""
    site = site_of(policy)
    # The last feature holds a quarter of the directions and little of the variance.
    begun(site, run="small").reply(about(np.eye(D)[:, 3:]))
    before = site.meter.to_bytes()
    request: Request[Any] = about(np.eye(D)[:, :3])
    if method == "covariance":
        request = ScatterRequest(mean=FRAME["mean"], scale=FRAME["scale"])
    for run in ("r", "s"):
        assert begun(site, method, run).code(request) == code
    assert site.meter.to_bytes() == before
    assert [line.op for line in site.egress] == ["moments", "product", "moments", "moments"]


def test_a_limit_may_be_reached_but_not_passed() -> None:
    talking = begun(site_of(Policy(max_rank_fraction=0.5)))
    talking.reply(about(np.eye(D)[:, :2]))
    within = np.eye(D)[:, :2] @ np.full((2, 1), np.sqrt(0.5))
    talking.reply(ProductRequest(basis=within))
    assert talking.code(ProductRequest(basis=np.eye(D)[:, 2:3])) == "leakage"


def test_rows_with_a_budget_of_privacy_leave_nothing_exact() -> None:
    budget = Policy(budget=Budget(epsilon=1.0, delta=1e-6))
    tables = dict.fromkeys("abc", np.eye(9))
    settings: list[dict[str, Any]] = [{}, {"method": "krylov"}, {"secure": True}]
    for given in settings:
        with pytest.raises(SiteRefused, match="'exact'"):
            FederatedPCA(2, **given).fit_sites(tables, policies={"b": budget})
    with pytest.raises(SiteRefused, match="'no_guarantee'"):
        FederatedPCA(2, privacy=DPdisPCA(1.0, 1e-6, clip=1.0), center=False).fit_sites(
            tables, policies={"b": budget}
        )


# With a ledger ----------------------------------------------------------------------------------

MANY = np.random.default_rng(0).standard_normal((200, D))
PRIVATE = study_of("a", 1, privacy=NOISED)


def books(path: Path | None, policy: Policy | None = None) -> Site:
    """A site with a ledger in a file, which is made where there is none."""
    fresh = path is None or not path.exists()
    return gate("a", MANY, policy=policy, ledger=Ledger(path, create=fresh))


def total(radius: float = 1.0) -> TotalRequest:
    return TotalRequest(center=np.zeros(D), radius=radius, n=200)


def private(site: Site, run: str = "r") -> Talk:
    """Open a private run and bring it to its first request with noise."""
    talking = Talk(site, PRIVATE, run)
    assert talking.opens() == ""
    talking.reply(RowsRequest())
    return talking


PAYING = Policy(budget=BUDGET)


def test_what_left_has_the_digest_that_the_ledger_has() -> None:
    ledger = Ledger(None)
    pca = FederatedPCA(1).fit_sites({"a": np.eye(4)}, ledgers={"a": ledger})
    replied = [event.what.digest for event in ledger.events if isinstance(event.what, Replied)]
    assert [left.digest for left in pca.egress_["a"]] == replied


def test_a_restarted_site_repeats_its_reply_and_pays_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    talking = private(books(path, PAYING))
    asked = talking.written(total(), 1)
    first = talking.site.answer(asked)
    assert Message.from_bytes(first, "reply").label == "private_total"
    assert books(path, PAYING).answer(asked) == first
    assert Ledger(path).totals("data").spends == 1


def test_a_restarted_site_goes_on_with_no_run_that_it_had_begun(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ample = Policy(budget=Budget(9.0, 1e-6))
    private(books(path, ample)).reply(total())
    later = Talk(books(path, ample), PRIVATE)
    assert later.code(total(2.0), round_=1) == "answered"
    assert later.code(total(), round_=2) == "closed"
    assert later.opens() == "restarted"
    assert Ledger(path).totals("data").spends == 1


def test_a_budget_holds_over_runs_and_restarts(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    epsilon = epsilon_of(1e-6, 0.6 * BUDGET.mu)
    part = replace(NOISED, epsilon=epsilon, shares={"scree": 0.0})
    study = study_of("a", 1, privacy=part)
    for _ in range(2):
        drive(coordinated(study), opened({"a": books(path, PAYING)}, study))
    assert Talk(books(path, PAYING), study, "third").opens() == "budget"
    totals = Ledger(path).totals("data")
    assert totals.epsilon == pytest.approx(epsilon_of(1e-6, np.sqrt(0.72) * BUDGET.mu), rel=1e-6)


def test_noise_is_paid_for_in_the_parts_that_the_study_says() -> None:
    ledger = Ledger(None)
    site = gate("a", MANY, policy=PAYING, ledger=ledger)
    drive(coordinated(PRIVATE), opened({"a": site}, PRIVATE))
    assert ledger.totals("data").epsilon == pytest.approx(1.0, rel=1e-6)


def test_the_order_of_noised_requests_is_that_of_the_study() -> None:
    talking = private(gate("a", MANY, policy=PAYING, ledger=Ledger(None)))
    scatter = MomentRequest(center=np.zeros(D), radius=1.0, n=200)
    assert talking.code(scatter) == "script"
    talking.reply(total())
    assert talking.code(total()) == "script"
    talking.reply(scatter)


def test_what_leaves_exactly_is_written_down_with_the_meter(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    site = books(path)
    begun(site).reply(about(np.eye(D)[:, :2]))
    assert site.meter.rank_fraction == 0.5
    later = books(path, Policy(max_rank_fraction=0.6))
    assert later.meter.rank_fraction == 0.5
    assert begun(later, run="other").code(about(np.eye(D)[:, 2:])) == "leakage"
    kinds = [event.kind for event in Ledger(path).events]
    opened_ = [Kind.RUN_OPENED, Kind.REPLIED]
    assert kinds == [Kind.OPENED, *opened_, Kind.REPLIED, *opened_, Kind.REFUSED]


def test_only_the_last_reply_of_a_run_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    talking = private(books(path, PAYING))
    rows, asked = talking.written(RowsRequest(), 0), talking.written(total(), 1)
    talking.site.answer(asked)
    fresh = books(path, PAYING)
    assert Message.from_bytes(fresh.answer(asked), "reply").label == "private_total"
    assert code_of(fresh.answer(rows)) == "forgotten"


def test_no_noise_leaves_a_site_without_a_ledger() -> None:
    talking = private(gate("a", MANY, policy=PAYING))
    assert talking.code(total()) == "ledger"
    assert [line.op for line in talking.site.egress] == ["rows"]


@pytest.mark.parametrize("name", ["privacy.mu", "privacy.parties", "privacy.relation", "grid"])
def test_what_makes_the_noise_is_no_field_of_a_request(name: str) -> None:
    ledger = Ledger(None)
    talking = private(gate("a", MANY, policy=PAYING, ledger=ledger))
    spoilt = pack(total()) | {name: np.array([1.0])}
    assert talking.send("private_total", spoilt).label == "malformed"
    assert ledger.totals("data").spends == 0


@pytest.mark.parametrize(
    "request_",
    [
        TotalRequest(center=np.zeros((200, D)), radius=1.0, n=200),
        TotalRequest(center=np.full(D, np.nan), radius=1.0, n=200),
        TotalRequest(center=np.zeros(D), radius=0.0, n=200),
        TotalRequest(center=np.zeros(D), radius=np.nan, n=200),
        TotalRequest(center=np.zeros(D), radius=np.inf, n=200),
        TotalRequest(center=np.zeros(D), radius=1.0, n=0),
        TotalRequest(center=np.zeros(D), radius=1.0, n=2**62),
    ],
    ids=range(7),
)
def test_requests_that_would_weaken_the_noise_are_refused_and_cost_nothing(
    request_: TotalRequest,
) -> None:
    ledger = Ledger(None)
    talking = private(gate("a", MANY, policy=PAYING, ledger=ledger))
    assert talking.code(request_) == "invalid"
    assert ledger.totals("data").spends == 0


def test_a_ledger_that_cannot_be_written_lets_nothing_out(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    Ledger(path, create=True).close()
    site = gate("a", MANY, ledger=Ledger(path, readonly=True))
    message = Message.from_bytes(site.answer(opening("r", KRYLOV)), "reply", "refusal")
    assert (message.kind, message.label) == ("refusal", "ledger")
    assert site.egress == []


def test_every_code_that_leaves_has_its_meaning_written_down() -> None:
    assert all(text.endswith(".") and text[0].isupper() for text in REFUSAL_TEXTS.values())
