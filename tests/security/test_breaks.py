"""The eleven breaks of the first gate, each played again by a hostile coordinator over bytes."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eigenfed.arrays import Array
from eigenfed.audit.hostile_coordinator import observe
from eigenfed.data.source import Source
from eigenfed.data.steps import as_steps
from eigenfed.errors import InputError, PrivacyError, ProtocolError
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.ledger.ledger import Budget, Ledger
from eigenfed.privacy.ledger.ledger_state import ABORTS_ALLOWED
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.privacy.release import Leaves
from eigenfed.privacy.revealed_products import RevealedProducts
from eigenfed.privacy.secagg import fixed_point
from eigenfed.privacy.secagg.identity import Identity
from eigenfed.protocol.core import Call, call_each, drive
from eigenfed.protocol.exact.by_site import LevelRequest
from eigenfed.protocol.exact.certificate import RemainderRequest
from eigenfed.protocol.exact.covariance import ScatterRequest
from eigenfed.protocol.exact.magnitude import MagnitudeRequest, compute_limits
from eigenfed.protocol.exact.merge import SummaryRequest
from eigenfed.protocol.exact.moments import (
    MomentsRequest,
    SpreadRequest,
    SquaresRequest,
    collect_moments,
    request_totals,
)
from eigenfed.protocol.exact.power_site import WalkRequest, WeightRequest
from eigenfed.protocol.exact.preparation import collect_stage
from eigenfed.protocol.exact.products import ProductRequest
from eigenfed.protocol.exact.vertical import LoadingsRequest, RowProductRequest
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.messages import Message, pack
from eigenfed.protocol.method import all_methods, find_method
from eigenfed.protocol.method_registry import list_operations
from eigenfed.protocol.operations import Request, State, Terms
from eigenfed.protocol.private.private_site import NormsRequest, RowsRequest, StartRequest
from eigenfed.protocol.study import Study, open_message
from hostile import COORDINATOR, RUN, Lone, identities_of, roster_of
from secured import secured

N, D, K = 40, 6, 2
SITES = ("a", "b", "c")
PRIVATE = Privacy(1.0, 1e-5, trust="local")
BUDGET = Budget(1.0, 1e-5)


def table(seed: int = 0, n: int = N) -> Array:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, D)) * np.geomspace(3.0, 0.3, D) + 1.0


def basis(width: int, seed: int = 1) -> Array:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((D, width))).Q


def frame(rows: Array | None = None) -> dict[str, Any]:
    mean = np.zeros(D) if rows is None else rows.mean(axis=0)
    return {"mean": mean, "scale": np.ones(D)}


def study(method: str = "krylov", **settings: Any) -> Study:
    return Study(("a",), K, method, **settings)


def opened(rows: Any, of: Study, **settings: Any) -> Lone:
    lone = Lone.of(rows, of, **settings)
    assert lone.open().kind == "reply"
    return lone


# 1. An overflow that only some rows cause told, by bisection, what a row is.


def test_1_under_a_budget_nothing_exact_is_even_opened() -> None:
    lone = Lone.of(table(), study(), policy=Policy(budget=BUDGET), ledger=Ledger(None))
    assert lone.open().code == "exact"
    for request in (MomentsRequest(), ProductRequest(basis=basis(K), **frame())):
        assert lone.request(request).code == "closed"
    assert lone.site.spent == 0


def test_1_what_overflows_for_some_rows_ends_the_run_with_one_code() -> None:
    of = study(scale=True)
    codes = set()
    for rows in (table(), 1e200 * table(), -1e140 * table()):
        lone = opened(rows, of)
        lone.reply(MomentsRequest())
        small: dict[str, Any] = {"mean": np.zeros(D), "scale": np.full(D, 1e-149)}
        outcome = lone.request(ProductRequest(basis=basis(K), **small))
        if outcome.kind == "refusal":
            codes.add(outcome)
            assert lone.request(ProductRequest(basis=basis(K), **frame())).code == "aborted"
    assert {outcome.code for outcome in codes} == {"aborted"}
    assert len(codes) == 1


def test_1_a_few_aborted_runs_hold_the_rows_until_a_person_releases_them() -> None:
    ledger = Ledger(None)
    lone = Lone.of(1e200 * table(), study(scale=True), ledger=ledger)
    bits = 0
    for i in range(ABORTS_ALLOWED + 5):
        if lone.open(f"run {i}").code == "held":
            break
        lone.round_ = -1
        lone.reply(MomentsRequest())
        small: dict[str, Any] = {"mean": np.zeros(D), "scale": np.full(D, 1e-149)}
        bits += lone.request(ProductRequest(basis=basis(K), **small)).code == "aborted"
    assert bits == ABORTS_ALLOWED + 1
    ledger.release("data", "the scale was a test")
    assert lone.open("afterwards").kind == "reply"


def test_1_runs_that_are_open_already_are_held_with_the_others() -> None:
    """Each of them could be aborted too, and told a bit."""
    ledger = Ledger(None)
    lone = Lone.of(1e200 * table(), study(scale=True), ledger=ledger)
    names = [f"run {i}" for i in range(ABORTS_ALLOWED + 4)]
    for name in names:
        assert lone.open(name).kind == "reply"
    codes = []
    for lone.run in names:
        lone.round_ = -1
        lone.request(MomentsRequest())
        small: dict[str, Any] = {"mean": np.zeros(D), "scale": np.full(D, 1e-149)}
        codes.append(lone.request(ProductRequest(basis=basis(K), **small)).code)
    assert codes == ["aborted"] * (ABORTS_ALLOWED + 1) + ["held"] * 3
    ledger.release("data", "the scale was a test")
    assert lone.request(MomentsRequest()).kind == "reply"


# 2. A mean or a scale with a value for each row filtered rows.


@pytest.mark.parametrize("name", ["mean", "scale"])
@pytest.mark.parametrize("shape", [(N, D), (N, 1), (1, D), (1,), (D + 1,), ()])
def test_2_a_mean_or_scale_has_one_value_for_each_feature(
    name: str, shape: tuple[int, ...]
) -> None:
    wrong = {name: np.full(shape, 1.0)}
    requests: list[Request[Any]] = [
        ProductRequest(basis=basis(K), **frame() | wrong),
        ScatterRequest(**frame() | wrong),
    ]
    if name == "mean":
        requests.append(SquaresRequest(mean=wrong["mean"]))
    for request in requests:
        method = "covariance" if isinstance(request, ScatterRequest) else "krylov"
        lone = opened(table(), study(method, scale=True))
        lone.reply(MomentsRequest())
        assert lone.request(request).code in ("invalid", "malformed")


# 3. `loadings` with an identity returned all rows.


def test_3_operations_of_another_split_have_no_place_in_the_script() -> None:
    ledger = Ledger(None)
    lone = opened(table(), study(), ledger=ledger)
    lone.reply(MomentsRequest())
    assert lone.request(LoadingsRequest(sided=np.eye(N)[:, :K])).code == "script"
    assert lone.request(RowProductRequest(basis=np.eye(N)[:, :K])).code == "script"
    again = Site("a", Source.of(table()), coordinator=COORDINATOR.public, ledger=ledger)
    assert again.meter.d == D


def test_3_loadings_are_of_what_the_products_led_to_and_nothing_else() -> None:
    of = replace(study(), split="features", components=2)
    lone = opened(table(), of, meter=None)
    lone.site.meter = type(lone.site.meter).empty(N)
    lone.reply(RowProductRequest(basis=np.linalg.qr(table(3)[:, :K]).Q))
    assert lone.request(LoadingsRequest(sided=np.eye(N)[:, :K])).code == "invalid"
    assert lone.request(LoadingsRequest(sided=np.eye(N))).code == "invalid"


# 4 and 5. Bounds in secure aggregation were chosen by the coordinator.


def masked(rows: Array) -> Lone:
    of = Study(SITES, K, "krylov", secure=True)
    identity = identities_of(SITES)["a"]
    return opened(rows, of, identity=identity, roster=roster_of(SITES))


def test_4_bounds_are_no_fields_of_a_request() -> None:
    lone = masked(table())
    lone.reply(MagnitudeRequest())
    arrays = pack(MomentsRequest(entry=4, weight=6))
    for name in ("secure.bound.n", "secure.bound.total"):
        sent = {
            **arrays,
            "secure.number": np.array([0]),
            "secure.present": np.ones(3, dtype=np.uint8),
            name: np.array([1e-3]),
        }
        assert observe(lone.send("moments", sent)).code == "malformed"


def test_4_magnitudes_below_what_the_site_declared_are_refused_without_the_rows() -> None:
    envelope = {"secure.number": np.array([0]), "secure.present": np.ones(3, dtype=np.uint8)}
    for seed in (0, 1):
        lone = masked(table(seed))
        own = lone.reply(MagnitudeRequest())
        entry, weight = int(own["entry"][0]), int(own["weight"][0])
        for told in ((entry - 1, weight), (entry, weight - 1), (-1074, -1074)):
            request = MomentsRequest(entry=told[0], weight=told[1])
            assert observe(lone.send("moments", pack(request) | envelope)).code == "invalid"


def test_5_no_magnitude_makes_the_step_so_coarse_that_single_values_are_rounded_away() -> None:
    envelope = {"secure.number": np.array([0]), "secure.present": np.ones(3, dtype=np.uint8)}
    lone = masked(table())
    own = lone.reply(MagnitudeRequest())
    entry, weight = int(own["entry"][0]), int(own["weight"][0])
    for told in ((59, weight), (entry + 21, weight), (entry, weight + 41), (1023, 1023)):
        request = MomentsRequest(entry=told[0], weight=told[1])
        assert observe(lone.send("moments", pack(request) | envelope)).code == "invalid"


def test_4_a_mean_beyond_the_magnitudes_agreed_on_is_refused_without_the_rows() -> None:
    """About such a mean, whether the reply fits its bounds would tell of the rows."""
    of = Study(SITES, K, "krylov", secure=True, scale=True)
    terms, state = Terms(of, N, D, parties=3), State(limits=compute_limits(4, 6, 3, D))
    SquaresRequest(mean=np.full(D, 16.0)).check(terms, state)
    for mean in (np.full(D, 17.0), np.full(D, -17.0), np.eye(D)[0] * 1e9):
        for request in (SquaresRequest(mean=mean), SpreadRequest(mean=mean, scale=np.ones(D))):
            with pytest.raises(InputError, match="largest entry"):
                request.check(terms, state)


def test_4_replies_leave_a_secure_study_inside_sums_only() -> None:
    lone = masked(table())
    lone.reply(MagnitudeRequest())
    assert lone.request(MomentsRequest(entry=4, weight=6)).code == "unmasked"
    assert lone.request(SpreadRequest(**frame())).code == "script"


def test_4_no_site_shows_its_own_basis_in_secure_sums() -> None:
    """Without alignment no baseline is chosen, and any site could be told that it was the one."""
    federation = secured({name: table(seed) for seed, name in enumerate(SITES)})
    of = federation.study(find_method("power", {"local_steps": 4, "align": "none"}), K)
    transport = federation.transport(of)

    def ask_for_a_basis() -> Any:
        yield from collect_moments(federation.total(transport), of)
        yield from call_each(Call(WalkRequest(start=basis(K), steps=3, shown=True)))

    with pytest.raises(ProtocolError, match="script"):
        drive(ask_for_a_basis(), transport)


@pytest.mark.parametrize("name", sorted(all_methods()))
def test_4_of_secure_sums_only_sizes_and_magnitudes_leave_each_site_by_itself(name: str) -> None:
    told = {
        op.name
        for op in list_operations(Study(SITES, K, name, secure=True)).values()
        if op.release.leaves is Leaves.EXACT
    }
    assert told <= {"magnitude", "sided_close"}


# 6. Noise was as much as the coordinator said, and without a budget nothing was charged.


def test_6_the_level_of_privacy_is_no_field_of_a_request() -> None:
    policy, ledger = Policy(budget=BUDGET), Ledger(None)
    lone = opened(table(), study("covariance", privacy=PRIVATE), policy=policy, ledger=ledger)
    lone.reply(RowsRequest())
    for request in (StartRequest(), NormsRequest(center=np.zeros(D), radius=1.0)):
        spends = ledger.totals("data").spends
        for name in ("privacy.mu", "privacy.parties", "privacy.relation", "mu", "grid", "radii"):
            sent = {**pack(request), name: np.array([1e9])}
            assert observe(lone.send(request.op, sent)).code == "malformed"
        assert ledger.totals("data").spends == spends
        lone.reply(request)
        assert ledger.totals("data").spends == spends + 1
    assert ledger.totals("data").mu < PRIVATE.mu / 3


def test_6_without_a_budget_no_reply_with_noise_leaves() -> None:
    lone = Lone.of(table(), study("covariance", privacy=PRIVATE), ledger=Ledger(None))
    assert lone.open().code == "no_budget"


def test_6_the_whole_study_is_charged_at_most_what_it_says() -> None:
    policy, ledger = Policy(budget=Budget(1.0, 1e-5)), Ledger(None)
    lone = opened(table(), study("covariance", privacy=PRIVATE), policy=policy, ledger=ledger)
    lone.reply(RowsRequest())
    counts = NormsRequest(center=np.zeros(D), radius=1.0)
    assert lone.request(counts).code == "script"
    assert lone.request(StartRequest()).kind == "reply"
    assert lone.request(StartRequest()).code == "script"
    assert lone.request(counts).kind == "reply"
    assert lone.request(counts).code == "script"


# 7. Directions that differ by 5e-11 were not counted.


def test_7_directions_must_be_orthonormal() -> None:
    lone = opened(table(), study())
    lone.reply(MomentsRequest())
    near = basis(1)
    twice = np.hstack([near, near + 5e-11 * basis(1, seed=2)])
    assert lone.request(ProductRequest(basis=twice, **frame())).code == "invalid"


def test_7_nothing_is_learnt_from_directions_next_to_known_ones() -> None:
    rows, limit = table(), Policy(max_rank_fraction=0.5)
    lone = opened(rows, replace(study(), max_rounds=50), policy=limit)
    lone.reply(MomentsRequest())
    q, hidden = basis(D)[:, :1], basis(D)[:, 1:]
    known = lone.reply(ProductRequest(basis=q, **frame()))["product"]
    for i in range(hidden.shape[1]):
        off = q + 5e-11 * hidden[:, i : i + 1]
        image = lone.reply(ProductRequest(basis=off / np.linalg.norm(off)))["product"]
        scatter = rows.T @ rows
        guess = (image - known) / 5e-11
        truth = scatter @ hidden[:, i : i + 1]
        # What is left is rounding: the guess has nothing to do with the truth.
        assert np.linalg.norm(guess) < 0.05 * np.linalg.norm(truth)
    assert lone.site.meter.rank_fraction == 1 / D


def test_7_nor_where_the_scale_makes_such_directions_short() -> None:
    """Next to a long direction a short one passed for orthogonal to all, with all that it hid."""
    rows = np.random.default_rng(0).standard_normal((N, D)) * [1.0, 1e6, 1.0, 1e6, 1.0, 1.0]
    scale, eye, hidden = np.array([1e12, 1.0, 1e12, 1.0, 1.0, 1.0]), np.eye(D), 5e-15
    lone = Lone.of(rows, study(scale=True), policy=Policy(max_rank_fraction=3 / D))
    replies = []
    for run, other in (("first", 0.0), ("second", hidden)):
        lone.open(run)
        lone.round_ = -1
        lone.reply(MomentsRequest())
        lone.reply(SquaresRequest(mean=np.zeros(D)))
        # In the units of the rows: a feature, and a little of one with large entries.
        near = eye[:, [0, 2]] + other * 1e-12 * eye[:, [1, 3]]
        basis = near if run == "first" else np.hstack([near, eye[:, [4]]])
        sent = ProductRequest(basis=basis, mean=np.zeros(D), scale=scale)
        replies.append(lone.reply(sent)["product"][:, :2])
        assert lone.site.meter.rank == basis.shape[1]
    np.testing.assert_array_equal(replies[0], replies[1])


def test_7_nor_from_directions_of_one_request_that_the_scale_makes_nearly_parallel() -> None:
    rows = np.random.default_rng(0).standard_normal((N, D)) * [1.0, 1e6, 1.0, 1.0, 1.0, 1.0]
    scale = np.array([1.0, 1e15, 1.0, 1.0, 1.0, 1.0])
    lone = opened(rows, study(scale=True), policy=Policy(max_rank_fraction=0.5))
    lone.reply(MomentsRequest())
    lone.reply(SquaresRequest(mean=np.zeros(D)))
    basis = np.array([[1.0, 1.0], [1.0, -1.0]]) / np.sqrt(2.0)
    sent = ProductRequest(basis=np.vstack([basis, np.zeros((4, 2))]), mean=np.zeros(D), scale=scale)
    images = lone.reply(sent)["product"] * scale[:, None]
    shown = (images[:, 0] - images[:, 1]) / np.sqrt(2.0) * scale[1]
    truth = (rows.T @ rows)[:, 1]
    assert lone.site.meter.rank == 1
    assert np.linalg.norm(shown - truth) > 0.5 * np.linalg.norm(truth)


def test_7_nor_once_the_meter_has_reached_its_memory_limit() -> None:
    meter = replace(Meter.empty(D), limit=2 * 8 * D * 3)
    meter = meter.answered(RevealedProducts(basis(1), table().T @ table() @ basis(1), 1.0))
    meter = meter.answered(RevealedProducts(basis(4), basis(4), 1.0)).settled()
    assert meter.uncounted == 4
    near = basis(1) + 5e-15 * basis(2)[:, 1:]
    np.testing.assert_allclose(meter.counted(near, None), basis(1), rtol=0, atol=1e-15)


def test_7_without_a_limit_such_directions_are_counted() -> None:
    lone = opened(table(), replace(study(), max_rounds=50))
    lone.reply(MomentsRequest())
    q, hidden = basis(D)[:, :1], basis(D)[:, 1:]
    lone.reply(ProductRequest(basis=q, **frame()))
    for i in range(3):
        off = q + 5e-11 * hidden[:, i : i + 1]
        lone.reply(ProductRequest(basis=off / np.linalg.norm(off)))
    assert lone.site.meter.rank_fraction == 4 / D


def test_7_the_limit_on_directions_is_decided_before_a_row_is_touched() -> None:
    for seed in (0, 1):
        lone = opened(table(seed), study(), policy=Policy(max_rank_fraction=0.4))
        lone.reply(MomentsRequest())
        lone.reply(ProductRequest(basis=basis(2), **frame()))
        assert lone.request(ProductRequest(basis=basis(2, seed=3))).code == "leakage"


# 8. One number for dropouts and colluders: tests/protocol/private/test_colluders.py has the noise.


def test_8_a_site_wants_noise_for_as_many_colluders_as_it_fears() -> None:
    private = Privacy(1.0, 1e-5, colluders=1)
    of = Study(("a", "b", "c", "d"), K, "covariance", privacy=private)
    names = of.sites
    for feared, code in ((1, ""), (2, "collusion")):
        lone = Lone.of(
            table(),
            of,
            policy=Policy(budget=BUDGET, colluders=feared),
            ledger=Ledger(None),
            identity=identities_of(names)["a"],
            roster=roster_of(names),
        )
        assert lone.open().code == code


# 9. Ledgers that were rolled back, deleted or replaced.


def spend_once(lone: Lone) -> None:
    lone.reply(RowsRequest())
    lone.reply(StartRequest())


def roll_back(path: Path, old: Path) -> None:
    shutil.copyfile(old, path)


def replace_file(path: Path, old: Path) -> None:
    os.replace(old, path)


def delete(path: Path, old: Path) -> None:
    path.unlink()


def truncate(path: Path, old: Path) -> None:
    os.truncate(path, 0)


TAMPERING = [roll_back, replace_file, delete, truncate]


@pytest.mark.parametrize("tamper", TAMPERING)
@pytest.mark.parametrize("running", [True, False])
def test_9_a_ledger_that_is_not_the_one_it_was_stops_the_site_for_good(
    tmp_path: Path, tamper: Callable[[Path, Path], None], running: bool
) -> None:
    path, old = tmp_path / "a.ledger", tmp_path / "old"
    of = study("covariance", privacy=PRIVATE)
    ledger = Ledger(path, create=True)
    shutil.copyfile(path, old)
    lone = opened(table(), of, policy=Policy(budget=BUDGET), ledger=ledger)
    spend_once(lone)
    if not running:
        ledger.close()
    tamper(path, old)
    if running:
        counts = NormsRequest(center=np.zeros(D), radius=1.0)
        assert [lone.request(counts).code for _ in range(3)] == ["stopped"] * 3
        assert lone.open("again").code == "stopped"
    else:
        with pytest.raises((PrivacyError, ValueError)):
            Ledger(path)


def test_9_a_mistyped_path_begins_no_ledger(tmp_path: Path) -> None:
    with pytest.raises(PrivacyError, match="ledger create"):
        Ledger(tmp_path / "mistyped.ledger")
    assert not list(tmp_path.iterdir())


# 10. The number of rows that pass a filter told of a row.


def test_10_a_site_that_filters_its_rows_does_not_publish_how_many_are_left() -> None:
    policy = Policy(budget=BUDGET)
    of = study("covariance", privacy=PRIVATE)
    lone = Lone.of(table(), of, policy=policy, ledger=Ledger(None), filtered=True)
    assert lone.open().code == "count"
    noised = study("covariance", privacy=Privacy(1.0, 1e-5, trust="local", count="private"))
    lone = opened(table(), noised, policy=policy, ledger=Ledger(None), filtered=True)
    assert "n" not in lone.reply(RowsRequest())


# 11. Work without bounds, and a ledger that grew with every refusal.


@pytest.mark.parametrize("steps", [4, 1000, 2**62])
def test_11_local_steps_are_those_of_the_study(steps: int) -> None:
    of = study("power")
    lone = opened(table(), of)
    lone.reply(MomentsRequest())
    lone.reply(WeightRequest(**frame()))
    assert lone.request(WalkRequest(start=basis(D), steps=steps)).code == "invalid"


def test_11_no_more_directions_than_the_method_has() -> None:
    lone = opened(table(), study("covariance"))
    lone.reply(MomentsRequest())
    assert lone.request(ProductRequest(basis=basis(D), **frame())).code == "script"
    lone = opened(table(), Study(("a",), K, find_method("power", {"local_steps": 1})))
    lone.reply(MomentsRequest())
    wide = np.linalg.qr(np.random.default_rng(0).standard_normal((D, D))).Q
    assert lone.request(ProductRequest(basis=np.hstack([wide, wide]), **frame())).code == "invalid"


def test_11_a_run_that_is_refused_too_often_is_closed_and_the_ledger_stays_small() -> None:
    ledger = Ledger(None)
    lone = opened(table(), study(), ledger=ledger)
    codes = [lone.request(LoadingsRequest(sided=np.eye(N)[:, :1])).code for _ in range(500)]
    assert codes.count("script") == 20
    assert codes.count("closed") == 480
    assert len(ledger.events) < 30


def test_11_messages_outside_of_any_run_leave_no_trace() -> None:
    ledger = Ledger(None)
    lone = opened(table(), study(), ledger=ledger)
    before = len(ledger.events)
    for i in range(200):
        lone.run = f"made up {i}"
        assert lone.request(MomentsRequest()).code == "closed"
    assert len(ledger.events) == before
    assert len(lone.site._runs) == 1


def test_11_a_site_takes_part_in_as_many_runs_as_its_policy_says() -> None:
    lone = Lone.of(table(), study(), policy=Policy(max_runs=3), ledger=Ledger(None))
    codes = [lone.open(f"run {i}").code for i in range(5)]
    assert codes == ["", "", "", "runs", "runs"]


# The rule itself: a site answers a study, not a coordinator.


def test_a_study_that_nobody_signed_or_somebody_else_did_opens_nothing() -> None:
    lone = Lone.of(table(), study())
    stranger = open_message(RUN, lone.study, lone.study.method, Identity.generate())
    assert observe(lone.site.answer(stranger)).code == "unsigned"
    message = Message.from_bytes(
        open_message(RUN, lone.study, lone.study.method, COORDINATOR), "open"
    )
    for name in ("study", "method"):
        other = Study(("a",), 3, "covariance").to_bytes()
        swapped = other if name == "study" else b'{"name": "covariance", "options": {}}'
        arrays = {**message.arrays, name: np.frombuffer(swapped, np.uint8)}
        assert (
            observe(lone.site.answer(replace(message, arrays=arrays).to_bytes())).code == "unsigned"
        )
    # A signature is for one run.
    assert observe(lone.site.answer(replace(message, run="other").to_bytes())).code == "unsigned"


def test_only_approved_studies_are_answered() -> None:
    of = study()
    lone = Lone.of(table(), of, approved=frozenset({of.digest}))
    for other in (replace(of, components=1), replace(of, scale=True), replace(of, name="other")):
        assert lone.open("other", other).code == "unapproved"
    assert lone.open().kind == "reply"


def test_the_method_of_a_run_is_the_one_of_its_study() -> None:
    lone = Lone.of(table(), study("krylov"))
    other = open_message(RUN, lone.study, find_method("covariance"), COORDINATOR)
    assert observe(lone.site.answer(other)).code == "method"


def test_nothing_is_asked_twice_or_out_of_order() -> None:
    lone = opened(table(), study(by_site=True, certify="rigorous"))
    assert lone.request(ProductRequest(basis=basis(K), **frame())).code == "script"
    lone.reply(MomentsRequest())
    assert lone.request(MomentsRequest()).code == "script"
    assert lone.request(RemainderRequest(products=1)).code == "script"
    lone.reply(ProductRequest(basis=basis(K), **frame()))
    assert lone.request(ProductRequest(basis=basis(K, seed=2), **frame())).code == "invalid"
    lone.reply(RemainderRequest(products=1))
    assert lone.request(RemainderRequest(products=1)).code == "script"
    lone.reply(LevelRequest(basis=basis(K)))
    assert lone.request(LevelRequest(basis=basis(K))).code == "script"


def test_how_far_rows_of_few_directions_fill_the_meter_does_not_show_in_refusals() -> None:
    """A summary of rows of rank 1 counts as many directions as one of any other rows."""
    of = Study(("a",), 1, "merge")
    codes = set()
    for rows in (table(), np.outer(np.arange(N), np.ones(D))):
        lone = opened(rows, of, policy=Policy(max_rank_fraction=0.5))
        lone.reply(MomentsRequest())
        lone.reply(SummaryRequest(**frame()))
        assert lone.site.meter.rank_fraction == 2 / D
        codes.add(lone.request(ProductRequest(basis=basis(2))).code)
    assert codes == {"leakage"}


def test_5_how_single_numbers_are_rounded_does_not_show_in_their_sum() -> None:
    """Parts of directions as small as a step told one site's variance of a feature."""
    rng = np.random.default_rng(0)
    sizes = {"a": 3.0, "b": 5.0, "c": 2.0}
    tables = {name: rng.standard_normal((30, D)) * size for name, size in sizes.items()}
    for rows in tables.values():
        rows[:, 0] = 0.0
    federation = secured(tables)
    study = federation.study("krylov", K)
    transport = federation.transport(study)
    total = federation.total(transport)

    def ask_about_steps() -> Any:
        moments = yield from collect_moments(total, study)
        fields, shown = moments.frame, []
        step = 2.0 * float(fixed_point.error(moments.most, len(SITES))) / len(SITES)
        for _ in range(24):
            basis = np.zeros((D, 1))
            # The sums of squares are 270, 750 and 120: only the second is above half a step.
            basis[0], basis[3] = 1.0, (0.5 + 0.01 * rng.random()) * step / 700.0
            answer = yield from total(Call(ProductRequest(basis=basis, **fields)))
            fields = {}
            shown.append(round(float(answer.product[3, 0]) / step))
        return shown

    shown = drive(ask_about_steps(), transport)
    # Without noise each of them is 1.
    assert len(set(shown)) > 4
    assert np.abs(shown).max() < 30


def test_5_nor_where_the_same_numbers_are_rounded_in_two_steps() -> None:
    """With the same noise the difference showed that one site had all of a sum, and two nothing."""
    tables = {name: np.zeros((4, 200)) for name in SITES}
    for rows in tables.values():
        rows[:, 0] = 2.0**20
    tables["a"][:2, 1:] = 2.0**-8
    federation = secured(tables)
    study = federation.study("krylov", K, scale=True)
    transport = federation.transport(study)
    total = federation.total(transport)

    def ask_twice() -> Any:
        _, limits = yield from request_totals(total, study, {})
        assert limits is not None
        mean, shown = np.zeros(200), []
        for found in (None, np.full(200, 0.4 * limits.squares)):
            request = SquaresRequest(mean=mean, found=found)
            squares = (yield from total(Call(request))).squares[1:]
            bound = float(np.max(request.bounds(limits)["squares"]))
            shown.append(np.rint(squares * 2.0 ** (60 - np.ceil(np.log2(bound)))))
        return shown

    coarse, fine = drive(ask_twice(), transport)
    # The sum is 1 step and then 4: with the same noise, the difference is 3 everywhere.
    assert len(set(fine - coarse)) > 10
    assert np.abs(fine - coarse).max() < 60


def test_5_scales_of_a_standardisation_do_not_show_how_totals_are_rounded() -> None:
    """With spreads as large, totals are as small as a step, and each bound told one of them."""
    rng = np.random.default_rng(0)
    tables = {name: rng.standard_normal((30, 60)) for name in SITES}
    federation = secured(tables)
    study = federation.study("krylov", K, prepare=as_steps(["standardize"]))
    transport = federation.transport(study)
    total = federation.total(transport)

    def ask_about_steps() -> Any:
        yield from collect_stage(total, study, {})
        figures = {"center": np.zeros(60), "spread": np.full(60, 1e16)}
        found, limits = yield from request_totals(total, study, figures)
        assert limits is not None
        step = 2.0 * fixed_point.error(limits.weight * limits.entry, len(SITES)) / len(SITES)
        return found, found.total / step

    found, shown = drive(ask_about_steps(), transport)
    np.testing.assert_array_equal(found.count, np.full(60, 90.0))
    # Without noise each of them is a sum of three numbers that are rounded to 0, 1 or -1.
    assert len(set(np.rint(shown))) > 7
    assert np.abs(shown).max() < 30
