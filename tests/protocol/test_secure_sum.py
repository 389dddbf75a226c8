"""Secure sums end to end: equal to plain ones, through losses, and nothing of single sites shows."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from eigenfed.arrays import Array, Arrays
from eigenfed.data.source import Source
from eigenfed.errors import InputError, ProtocolError, SiteLost, SiteRefused
from eigenfed.privacy.fixed_point import Bound, error
from eigenfed.privacy.identity import Roster
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.core import Ask, Protocol, drive
from eigenfed.protocol.messages import Message
from eigenfed.protocol.moments import all_moments
from eigenfed.protocol.one_shot import Merge
from eigenfed.protocol.ops import Answer, op
from eigenfed.protocol.orthonormalise import cholesky_qr2, gram_schmidt
from eigenfed.protocol.pca import Method, Plan, pca
from eigenfed.protocol.power import Power
from eigenfed.protocol.registry import OPS
from eigenfed.protocol.result import Decomposition
from eigenfed.protocol.secure_sum import SecureSum
from eigenfed.protocol.site import Site
from eigenfed.protocol.subspace import Subspace
from eigenfed.protocol.totals import Total, plain_sum
from eigenfed.transport.local import LocalTransport
from eigenfed.transport.processes import ProcessTransport
from eigenfed.transport.transcript import Transcript
from federation import in_sites, local
from oracles import power_law
from secured import Failing, Federation, identified, secured, summed, summing

S, D, THRESHOLD = 7, 4, 5
ROWS = np.random.default_rng(0).standard_normal((40, D))
TABLES = in_sites(ROWS, S)
BOUNDS: dict[str, Bound] = {"n": 64.0, "count": 64.0, "total": 256.0}
MOMENTS = Ask("moments", bounds=BOUNDS)
STAGES = ["sum_keys", "sum_shares", "moments", "sum_survivors", "sum_unmask"]


@op(Release("numbers of the rows", "any", Leaves.SUM_ONLY, Reveals.MEANS))
def shown(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Return the site's first row, in the form that is asked for."""
    row = np.asarray(source.X[0])
    forms = {0: row, 1: row.reshape(2, -1), 2: row[0].reshape(()), 3: row[:0], 4: row.astype(int)}
    return Answer({"x": forms[int(payload["form"][0])]}, state)


@op(Release("nothing", "0", Leaves.SUM_ONLY, Reveals.COUNTS))
def put(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Take the rows themselves as the vectors on the rows' side."""
    return Answer({}, {**state, "sided": np.array(source.X)})


KNOWN = {**OPS, shown.name: shown, put.name: put}


def form(which: int, bound: Bound) -> Ask:
    return Ask("shown", {"form": np.array([which])}, bounds={"x": bound})


def exact(names: tuple[str, ...]) -> Array:
    total: Array = sum((TABLES[name].sum(axis=0) for name in names), np.zeros(D))
    return total


# ------------------------------------------------------------------------------- exact to the step


@pytest.mark.parametrize("size", [3, 4, 10, 16, 17, 30, 50])
def test_a_secure_sum_is_the_sum_to_half_a_step_for_each_site(size: int) -> None:
    tables = in_sites(np.random.default_rng(size).standard_normal((2 * size, 300)), size)
    federation = secured(tables, ops=KNOWN)
    transport = federation.transport()
    total = federation.total(transport, ahead=1)
    (found,) = drive(summing(total, form(0, 8.0)), transport)
    wanted = np.sum([table[0] for table in tables.values()], axis=0)
    assert np.abs(found["x"] - wanted).max() <= error(8.0, size) + 1e-14
    # Beyond rounding of the floats themselves, the sum is that of the sites' whole steps.
    step = 2.0 * error(8.0, size) / size
    whole = np.sum([np.rint(table[0] / step) for table in tables.values()], axis=0)
    np.testing.assert_array_equal(found["x"], whole * step)
    assert total.summed == tuple(tables)


def test_every_shape_is_summed_and_whole_numbers_stay_whole() -> None:
    tables = in_sites(10 * np.random.default_rng(1).standard_normal((5, 6)), 5)
    federation = secured(tables, ops=KNOWN)
    plain = np.stack([table[0] for table in tables.values()])
    asks = [form(0, 64.0), form(1, 64.0), form(2, 64.0), form(3, 64.0), form(4, 64), form(4, 64.0)]
    found = [answer["x"] for answer in summed(federation, *asks)]
    np.testing.assert_allclose(found[0], plain.sum(axis=0), atol=1e-14)
    np.testing.assert_array_equal(found[1], found[0].reshape(2, 3))
    assert found[2].shape == ()
    assert found[2] == found[0][0]
    assert found[3].shape == (0,)
    assert found[4].dtype == np.int64
    np.testing.assert_array_equal(found[4], plain.astype(int).sum(axis=0))
    np.testing.assert_array_equal(found[5], found[4])


def test_bounds_by_entry_keep_the_digits_of_small_entries() -> None:
    tables = in_sites(np.array([[1e9, 1e-9]] * 3), 3)
    federation = secured(tables, ops=KNOWN)
    one, each = summed(federation, form(0, 2e9), form(0, np.array([2e9, 2e-9])))
    assert one["x"][1] == 0.0
    np.testing.assert_allclose(each["x"], [3e9, 3e-9], rtol=1e-16)


# ------------------------------------------------------------------------------ protocols under it

METHODS: list[Method] = [
    "covariance",
    "krylov",
    "randomized",
    "subspace",
    Subspace(orthonormalise="each"),
    Subspace(by="gram_schmidt", criterion="change"),
    Power(local_steps=1),
    Power(local_steps=3, align="none"),
]
DENSE = power_law(90, 14, 1.0) + 5.0
SPARSE = sparse.random_array((90, 14), density=0.3, rng=np.random.default_rng(2), format="csr")
MISSING = np.where(np.random.default_rng(3).random(DENSE.shape) < 0.1, np.nan, DENSE)
DATA = {"dense": DENSE, "sparse": SPARSE, "missing": MISSING, "few rows": DENSE[:6]}


def fitted(
    plan: Plan, tables: dict[str, Any], *, secure: bool
) -> tuple[Decomposition, LocalTransport]:
    federation = secured(tables, policy=Policy(secure_only=secure))
    transport = federation.transport()
    total: Total = federation.total(transport) if secure else plain_sum
    rng = np.random.default_rng(1)
    return drive(pca(plan, sites=transport.sites, rng=rng, total=total), transport), transport


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize(
    ("kind", "scale"), [("dense", False), ("dense", True), ("sparse", False), ("sparse", True)]
)
def test_every_method_that_sums_gives_the_same_under_secure_sums(
    method: Method, kind: str, scale: bool
) -> None:
    plan = Plan(3, method, scale=scale, max_rounds=4)
    tables = in_sites(DATA[kind], 4)
    plain, _ = fitted(plan, tables, secure=False)
    safe, _ = fitted(plan, tables, secure=True)
    np.testing.assert_allclose(safe.variances, plain.variances, rtol=1e-12)
    np.testing.assert_allclose(safe.components, plain.components, atol=1e-11)
    np.testing.assert_allclose(safe.mean, plain.mean, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(safe.scale, plain.scale, rtol=1e-13)
    assert safe.products == plain.products
    assert safe.total_variance == pytest.approx(plain.total_variance, rel=1e-12)
    if plain.certificate is not None:
        assert safe.certificate is not None
        np.testing.assert_allclose(
            safe.certificate.residuals, plain.certificate.residuals, atol=1e-11
        )


@pytest.mark.parametrize("kind", ["missing", "few rows"])
@pytest.mark.parametrize("method", ["covariance", "krylov"])
def test_missing_entries_and_small_sites_change_nothing(kind: str, method: str) -> None:
    plan = Plan(3, method, scale=True)
    tables = in_sites(DATA[kind], 3)
    plain, safe = (fitted(plan, tables, secure=secure)[0] for secure in (False, True))
    np.testing.assert_allclose(safe.variances, plain.variances, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("unit", [1e-100, 1e100])
def test_units_do_not_matter(unit: float) -> None:
    plan = Plan(3, "krylov")
    tables = in_sites(unit * DENSE, 3)
    plain, safe = (fitted(plan, tables, secure=secure)[0] for secure in (False, True))
    np.testing.assert_allclose(safe.variances, plain.variances, rtol=1e-11)


def test_features_of_very_different_size_keep_their_scales() -> None:
    """The small ones are asked for again, within bounds of their own."""
    sizes = 10.0 ** -np.arange(0, 14)
    tables = in_sites(DENSE * sizes, 4)
    plan = Plan(3, "covariance", scale=True)
    (plain, _), (safe, transport) = (fitted(plan, tables, secure=s) for s in (False, True))
    np.testing.assert_allclose(safe.scale, plain.scale, rtol=1e-12)
    np.testing.assert_allclose(safe.variances, plain.variances, rtol=1e-11)
    even, fewer = fitted(plan, in_sites(DENSE, 4), secure=True)
    assert transport.rounds == fewer.rounds + 3
    np.testing.assert_allclose(safe.variances, even.variances, rtol=1e-9)


def test_plain_runs_ask_what_they_always_did() -> None:
    tables = in_sites(DENSE, 4)
    for method, rounds in (("covariance", 2), ("krylov", 4)):
        transport, sites = local(tables)
        plan = Plan(3, method, max_rounds=2)
        drive(pca(plan, sites=transport.sites, rng=np.random.default_rng(1)), transport)
        assert transport.rounds == rounds
        asked = {line.op for line in next(iter(sites.values())).egress}
        assert asked <= {"moments", "scatter", "product", "remainder"}


@pytest.mark.parametrize(
    ("method", "remedy"),
    [
        ("merge", "method='covariance' or 'krylov'"),
        (Merge(), "method='covariance' or 'krylov'"),
        ("power", r"Power\(local_steps=1\)"),
        (Power(), r"Power\(local_steps=1\)"),
        (Power(local_steps=2, align="sign"), r"Power\(local_steps=1\)"),
        (Power(1, participation="scheme1", sites_per_round=3), "all sites in each average"),
        (Subspace(start="merge"), r"Subspace\(start='random'\)"),
    ],
    ids=str,
)
def test_methods_that_need_single_replies_are_refused_by_name(method: Method, remedy: str) -> None:
    with pytest.raises(InputError, match=rf"method=.*needs replies of single sites.*{remedy}"):
        fitted(Plan(2, method), in_sites(DENSE, 3), secure=True)


def conditioned(n: int, k: int, condition: float) -> Array:
    rng = np.random.default_rng(4)
    left, right = (np.linalg.qr(rng.standard_normal((m, k))).Q for m in (n, k))
    vectors: Array = (left * np.geomspace(1.0, 1.0 / condition, k)) @ right.T
    return vectors


def graded(n: int, k: int, condition: float) -> Array:
    """Orthogonal columns of very different length."""
    left = np.linalg.qr(np.random.default_rng(5).standard_normal((n, k))).Q
    vectors: Array = left * np.geomspace(1.0, 1.0 / condition, k)
    return vectors


def orthonormalised(
    vectors: Array, size: int, most: float, by: str = "cholesky"
) -> tuple[Array, Array]:
    """Return the vectors that sites are left with, and the triangle."""
    federation = secured(in_sites(vectors, size), ops=KNOWN)
    transport = federation.transport()
    total = federation.total(transport)

    def protocol() -> Protocol[Array]:
        yield Ask("put")
        if by == "cholesky":
            return (yield from cholesky_qr2(total, most=most))
        return (yield from gram_schmidt(vectors.shape[1], total, most=most))

    triangle = drive(protocol(), transport)
    found = [site._runs[transport.run].state["sided"] for site in federation.sites.values()]
    return np.vstack(found), triangle


@pytest.mark.parametrize("made", [conditioned, graded])
@pytest.mark.parametrize("condition", [1e3, 1e6, 1e12])
@pytest.mark.parametrize("size", [3, 10])
def test_cholesky_qr2_is_orthonormal_whatever_the_condition(
    made: Callable[[int, int, float], Array], condition: float, size: int
) -> None:
    vectors = made(300, 8, condition)
    # The bound is a thousand times too wide, as bounds may be.
    found, triangle = orthonormalised(vectors, size, most=1000.0 * float(np.sum(vectors**2)))
    assert np.abs(found.T @ found - np.eye(8)).max() < 1e-13
    np.testing.assert_allclose(found @ triangle, vectors, rtol=0, atol=1e-15)


def test_gram_schmidt_sums_securely_and_sees_dependence() -> None:
    vectors = conditioned(300, 6, 1e3)
    found, triangle = orthonormalised(vectors, 5, most=2.0, by="gram_schmidt")
    assert np.abs(found.T @ found - np.eye(6)).max() < 1e-9
    np.testing.assert_allclose(found @ triangle, vectors, rtol=0, atol=1e-14)
    vectors[:, 3] = vectors[:, 0] + vectors[:, 1]
    with pytest.raises(ProtocolError, match="Column 3 of the vectors at the sites depends"):
        orthonormalised(vectors, 5, most=10.0, by="gram_schmidt")


def test_magnitudes_leave_to_a_factor_of_two_and_nothing_else_of_single_sites() -> None:
    tables = in_sites(DENSE, 4)
    federation = secured(tables)
    transport = federation.transport()
    total = federation.total(transport)
    drive(all_moments(total, center=True, scale=False), transport)
    for site in federation.sites.values():
        bare = [line for line in site.egress if not line.masked]
        assert {line.op for line in bare} == {"magnitude", *(s for s in STAGES if s != "moments")}
        assert {line.release.reveals for line in bare} == {Reveals.RANGE, Reveals.NOTHING}
    for name, table in tables.items():
        answer = OPS["magnitude"].run(Source.of(table), {}, {}).reply
        assert {array.dtype for array in answer.values()} == {np.dtype(np.int64)}
        largest, weight = np.abs(table).max(), len(table)
        assert 2.0 ** (answer["entry"][0] - 1) < largest <= 2.0 ** answer["entry"][0], name
        assert 2.0 ** (answer["weight"][0] - 1) < weight <= 2.0 ** answer["weight"][0]


@pytest.mark.parametrize(
    ("X", "entry", "weight"),
    [
        (np.zeros((2, 3)), -1074, 1),
        (np.full((1, 1), -8.0), 3, 0),
        (np.array([[np.nan, 0.3]]), -1, 0),
        (np.full((3, 1), np.nan), -1074, 2),
        (np.zeros((0, 2)), -1074, -1074),
        (sparse.csr_array((5, 4)), -1074, 3),
        (np.array([[5e-324]]), -1074, 0),
        (np.array([[1.7e308]]), 1024, 0),
    ],
    ids=range(8),
)
def test_the_magnitude_of_odd_tables(X: Any, entry: int, weight: int) -> None:
    answer = OPS["magnitude"].run(Source.of(X), {}, {}).reply
    assert (int(answer["entry"][0]), int(answer["weight"][0])) == (entry, weight)


# ---------------------------------------------------------------------------------------- dropouts


def losing(federation: Federation, stage: str, count: int) -> dict[str, Failing]:
    """Let the last sites be out of reach from a stage on."""
    names = federation.roster.sites[S - count :] if count else ()
    return {name: Failing(federation.sites[name], stage) for name in names}


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("stage", STAGES)
def test_losses_down_to_the_threshold_are_survived_at_any_stage(stage: str, count: int) -> None:
    federation = secured(TABLES)
    failing = losing(federation, stage, count)
    transport = federation.transport(**failing)
    total = federation.total(transport)
    (found,) = drive(summing(total, replace(MOMENTS, quorum=THRESHOLD)), transport)
    names = federation.roster.sites
    there = names if STAGES.index(stage) > 2 else names[: S - count]
    assert total.summed == there
    np.testing.assert_allclose(found["total"], exact(there), atol=1e-13)
    assert found["n"] == sum(len(TABLES[name]) for name in there)


@pytest.mark.parametrize("quorum", [None, THRESHOLD])
@pytest.mark.parametrize("stage", STAGES)
def test_one_loss_more_ends_the_run_and_nothing_is_opened(stage: str, quorum: int | None) -> None:
    federation = secured(TABLES)
    failing = losing(federation, stage, S - THRESHOLD + 1)
    with pytest.raises(SiteLost) as caught:
        summed(federation, replace(MOMENTS, quorum=quorum), **failing)
    assert caught.value.sites == tuple(failing)
    opened = [
        name
        for name, site in federation.sites.items()
        if "sum_unmask" in [line.op for line in site.egress]
    ]
    # At the last stage some sites have given a share: fewer than bring any secret back.
    assert len(opened) == (THRESHOLD - 1 if stage == "sum_unmask" else 0)


@pytest.mark.parametrize("stage", STAGES)
def test_without_a_quorum_all_must_be_in_the_sum_but_need_not_open_it(stage: str) -> None:
    federation = secured(TABLES)
    failing = losing(federation, stage, 1)
    if STAGES.index(stage) > 2:
        (found,) = summed(federation, MOMENTS, **failing)
        np.testing.assert_allclose(found["total"], ROWS.sum(axis=0), atol=1e-13)
    else:
        with pytest.raises(SiteLost, match=f"No answer from s06 to '{stage}'"):
            summed(federation, MOMENTS, **failing)


@pytest.mark.parametrize("size", [17, 30, 50])
def test_many_sites_survive_as_many_losses_as_the_threshold_allows(size: int) -> None:
    """Each masks with its neighbours only, and the masks with those lost are opened."""
    tables = in_sites(np.random.default_rng(size).standard_normal((size, 5)), size)
    federation = secured(tables)
    lost = federation.roster.sites[::3][: size - federation.roster.threshold]
    failing = {name: Failing(federation.sites[name], "moments") for name in lost}
    transport = federation.transport(**failing)
    total = federation.total(transport, ahead=1)
    ask = replace(MOMENTS, quorum=federation.roster.threshold)
    (found,) = drive(summing(total, ask), transport)
    there = tuple(name for name in tables if name not in lost)
    assert total.summed == there
    wanted = np.sum([tables[name].sum(axis=0) for name in there], axis=0)
    np.testing.assert_allclose(found["total"], wanted, atol=1e-12)


def test_a_site_that_is_back_takes_part_in_the_next_sum() -> None:
    """It has missed the shares, which it is then sent again."""
    federation = secured(TABLES, policy=Policy(secure_only=True, least_roster_change=0))
    away = Failing(federation.sites["s03"], "moments")
    transport = federation.transport(s03=away)
    total = federation.total(transport)
    ask = replace(MOMENTS, quorum=THRESHOLD)

    def protocol() -> Protocol[list[tuple[str, ...]]]:
        found = []
        for _ in range(2):
            yield from total(ask)
            found.append(total.summed)
            away.from_op, away.is_gone = "", False
        return found

    first, second = drive(protocol(), transport)
    assert first == tuple(name for name in TABLES if name != "s03")
    assert second == tuple(TABLES)


def test_new_keys_are_made_where_all_are_wanted_and_one_had_none() -> None:
    federation = secured(TABLES, policy=Policy(least_roster_change=0))
    away = Failing(federation.sites["s03"], "sum_keys")
    transport = federation.transport(s03=away)
    total = federation.total(transport)

    def protocol() -> Protocol[Arrays]:
        yield from total(replace(MOMENTS, quorum=THRESHOLD))
        away.from_op, away.is_gone = "", False
        return (yield from total(MOMENTS))

    found = drive(protocol(), transport)
    assert total.summed == tuple(TABLES)
    np.testing.assert_allclose(found["total"], ROWS.sum(axis=0), atol=1e-13)


def test_a_loss_that_a_protocol_survives_leaves_later_sums_whole() -> None:
    federation = secured(TABLES)
    away = Failing(federation.sites["s03"], "moments")
    transport = federation.transport(s03=away)
    total = federation.total(transport)

    def protocol() -> Protocol[Arrays]:
        with pytest.raises(SiteLost):
            yield from total(MOMENTS)
        away.from_op, away.is_gone = "", False
        return (yield from total(MOMENTS))

    found = drive(protocol(), transport)
    np.testing.assert_allclose(found["total"], ROWS.sum(axis=0), atol=1e-13)


# -------------------------------------------------------------------------- transcripts, transports


def run_once(federation: Federation, record: Transcript, **failing: Failing) -> Decomposition:
    transport = LocalTransport({**federation.sites, **failing}, run=record.run)
    total = federation.total(transport)
    plan = Plan(2, "krylov", max_rounds=2)
    rng = np.random.default_rng(0)
    return drive(pca(plan, sites=transport.sites, rng=rng, total=total), transport, record)


@pytest.mark.parametrize("stage", ["sum_shares", "product", "sum_survivors", "sum_unmask"])
def test_a_run_is_taken_up_where_a_site_was_lost(stage: str) -> None:
    federation, record = secured(TABLES), Transcript(None)
    failing = {name: Failing(federation.sites[name], stage) for name in ("s00", "s03", "s06")}
    with pytest.raises(SiteLost):
        run_once(federation, record, **failing)
    kept = record.rounds
    resumed = run_once(federation, record)
    assert record.rounds > kept
    plain, _ = fitted(Plan(2, "krylov", max_rounds=2), TABLES, secure=False)
    np.testing.assert_allclose(resumed.variances, plain.variances, rtol=0.5)
    # Replayed from its record alone, with no site at hand, it is the same to the bit.
    again = run_once(
        federation, record, **{n: Failing(s, "magnitude") for n, s in federation.sites.items()}
    )
    np.testing.assert_array_equal(again.components, resumed.components)
    np.testing.assert_array_equal(again.variances, resumed.variances)


def test_the_transcript_holds_no_masked_reply_of_a_single_site() -> None:
    """Single masked replies and what opens the sum must not lie together."""
    federation = secured(TABLES)
    tapped = {name: Failing(site) for name, site in federation.sites.items()}
    transport = federation.transport(**tapped)
    kept: list[Any] = []

    class Kept:
        def replay(self, round_: int, ask: Ask) -> None:
            return None

        def keep(self, round_: int, ask: Ask, outcome: Any) -> None:
            kept.append((ask, outcome))

    drive(summing(federation.total(transport), MOMENTS), transport, Kept())
    masked = {
        array.tobytes()
        for tap in tapped.values()
        for reply in tap.replied
        if reply.label == "moments"
        for name, array in reply.arrays.items()
        if name != "secure.place"
    }
    assert len(masked) == 4 * S
    (held,) = [outcome for ask, outcome in kept if ask.op == "moments"]
    assert list(held) == [""]
    assert not masked & {array.tobytes() for array in held[""].values()}


def test_what_leaves_a_site_without_masks_is_nowhere_in_what_it_sends() -> None:
    federation = secured(TABLES)
    tapped = {name: Failing(site) for name, site in federation.sites.items()}
    transport = federation.transport(**tapped)
    drive(summing(federation.total(transport), MOMENTS), transport)
    for name, tap in tapped.items():
        sent = b"".join(array.tobytes() for reply in tap.replied for array in reply.arrays.values())
        steps = np.rint(TABLES[name].sum(axis=0) / (2 * error(256.0, S) / S)).astype(np.int64)
        for part in (*TABLES[name].sum(axis=0), *steps):
            assert part.tobytes() not in sent


@pytest.mark.parametrize("wire", ["float64", "float32"])
def test_processes_and_threads_sum_alike_at_either_precision_of_the_wire(wire: str) -> None:
    """What is asked may be rounded on its way to the sites; masks still cancel."""
    identities = identified(("a", "b", "c"))
    tables = dict(zip("abc", np.array_split(DENSE, 3), strict=True))
    sources = {name: Source.of(table) for name, table in tables.items()}
    policies = {name: Policy(secure_only=True) for name in tables}
    plan, rng = Plan(2, "krylov", max_rounds=3), np.random.default_rng(1)
    roster = Roster.of(identities)
    with ProcessTransport(
        sources, policies=policies, identities=identities, wire=wire
    ) as transport:
        total = SecureSum(roster, run=transport.run)
        safe = drive(pca(plan, sites=transport.sites, rng=rng, total=total), transport)
    plain, _ = fitted(plan, tables, secure=False)
    close = 1e-12 if wire == "float64" else 1e-4
    np.testing.assert_allclose(safe.variances, plain.variances, rtol=close)


def test_children_need_an_identity_each() -> None:
    sources = {name: Source.of(np.ones((2, 2))) for name in "abcd"}
    with pytest.raises(InputError, match="identities must name the sites of sources"):
        ProcessTransport(sources, identities=identified("abc"))


# ----------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (Ask("moments"), "'moments' states no bounds"),
        (replace(MOMENTS, to=("s00",)), "addressed to some sites"),
        (replace(MOMENTS, each={"s00": {"x": np.ones(1)}}), "brings one site what others do not"),
        (replace(MOMENTS, quorum=4), "quorum=4 must be from 5 to 7"),
        (replace(MOMENTS, quorum=8), "quorum=8 must be from 5 to 7"),
        (replace(MOMENTS, bounds={**BOUNDS, "n": np.inf}), "bound of 'n' must be finite"),
        (replace(MOMENTS, bounds={**BOUNDS, "n": -1.0}), "bound of 'n' must be finite"),
    ],
)
def test_asks_that_cannot_be_summed_are_refused_before_anything_is_asked(
    ask: Ask, message: str
) -> None:
    federation = secured(TABLES)
    with pytest.raises(InputError, match=message):
        summed(federation, ask)
    assert all(site.egress == [] for site in federation.sites.values())


@pytest.mark.parametrize(
    ("ahead", "message"), [(0, "ahead=0"), (65, "at most 64"), (1.5, "ahead=1.5")]
)
def test_keys_are_made_for_one_to_64_sums(ahead: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        SecureSum(secured(TABLES).roster, run="r", ahead=ahead)


def test_two_sites_cannot_sum_securely() -> None:
    with pytest.raises(InputError, match="The roster has 2 sites and secure sums need 3"):
        secured(in_sites(ROWS, 2))


def test_a_site_whose_reply_is_out_of_range_refuses() -> None:
    federation = secured(TABLES)
    with pytest.raises(SiteRefused, match="refused 'moments'.*'range'") as caught:
        summed(federation, replace(MOMENTS, bounds={**BOUNDS, "n": 4.0}))
    assert caught.value.code == "range"


def test_another_roster_at_a_site_ends_the_run() -> None:
    federation = secured(TABLES)
    keys = {**federation.roster.keys, "s06": identified("x")["x"].public}
    identity = federation.identities["s00"]
    federation.sites["s00"] = Site(
        "s00", Source.of(TABLES["s00"]), identity=identity, roster=Roster(keys)
    )
    with pytest.raises(ProtocolError, match="said to be of site 's00' are not signed with its key"):
        summed(federation, MOMENTS)


def test_another_name_of_the_run_ends_it() -> None:
    federation = secured(TABLES)
    with pytest.raises(ProtocolError, match="name the run as the transport does"):
        drive(summing(SecureSum(federation.roster, run="x"), MOMENTS), federation.transport())


def test_a_payload_that_differs_between_sites_is_found_out_and_isolates_nobody() -> None:
    """All but one site are asked about nothing, so that the sum would be that site's alone."""

    @dataclass
    class Sending:
        site: Site
        basis: Array

        def answer(self, data: bytes) -> bytes:
            ask = Message.from_bytes(data, "ask")
            arrays = ask.arrays | ({"basis": self.basis} if "basis" in ask.arrays else {})
            return self.site.answer(replace(ask, arrays=arrays).to_bytes())

    federation = secured(TABLES)
    cut = {
        name: Sending(site, np.eye(D)[:, :1] if name == "s00" else np.zeros((D, 1)))
        for name, site in federation.sites.items()
    }
    transport = LocalTransport(dict(cut))
    payload = {"basis": np.eye(D)[:, :1], "mean": np.zeros(D), "scale": np.ones(D)}
    ask = Ask("product", payload, bounds={"product": 1e4, "trace": 1e4})
    with pytest.raises(ProtocolError, match="Sites were asked different things as 'product'"):
        drive(summing(federation.total(transport), ask), transport)
    # A coordinator that does not care is left with words that have nothing to do with s00.
    assert all(
        "sum_unmask" not in [line.op for line in site.egress] for site in federation.sites.values()
    )


# ------------------------------------------------------------------------------------------ garbage


def changed(label: str, arrays: Callable[[Arrays], Arrays]) -> Callable[[Message], Message]:
    def change(reply: Message) -> Message:
        return replace(reply, arrays=arrays(reply.arrays)) if reply.label == label else reply

    return change


def noisy(array: Array, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-(2**63), 2**63, array.shape)


GARBAGE: list[tuple[str, Callable[[Arrays], Arrays], str]] = [
    ("sum_keys", lambda a: {**a, "keys": a["keys"][:-1]}, "The keys of site 's03'.*malformed"),
    ("sum_keys", lambda a: {**a, "keys": a["keys"] ^ 1}, "said to be of site 's03' are not signed"),
    ("sum_keys", lambda a: {}, "The keys of site 's03'.*malformed"),
    ("sum_shares", lambda a: {"shares": a["shares"][:, :-1]}, "The shares of site 's03'"),
    ("sum_shares", lambda a: {}, "The shares of site 's03'"),
    ("sum_shares", lambda a: {"shares": a["shares"] ^ 1}, "'shares'"),
    ("moments", lambda a: {**a, "n": a["n"].astype(float)}, "'s03' has 'n' of type float64"),
    ("moments", lambda a: {**a, "n": np.append(a["n"], 1)}, r"'s03' has 'n' of shape \(2,\)"),
    ("moments", lambda a: {"n": a["n"]}, "'s03' has other fields"),
    (
        "moments",
        lambda a: {**a, "secure.place": 2 * a["secure.place"]},
        "each written their own place",
    ),
    (
        "moments",
        lambda a: {**a, "secure.place": 0 * a["secure.place"]},
        "each written their own place",
    ),
    ("moments", lambda a: {**a, "secure.place": np.roll(a["secure.place"], 1)}, "their own place"),
    (
        "moments",
        lambda a: {**a, "total": noisy(np.zeros(D))},
        "no sum of replies within their bounds",
    ),
    ("moments", lambda a: {**a, "secure.check": 1 + a["secure.check"]}, "no sum of replies"),
    ("sum_survivors", lambda a: {**a, "signature": a["signature"] ^ 1}, "'s03' are not signed"),
    ("sum_survivors", lambda a: {**a, "asked": a["asked"] ^ 1}, "asked different things"),
    ("sum_unmask", lambda a: {"shares": a["shares"][:2]}, "The shares of site 's03'.*malformed"),
    ("sum_unmask", lambda a: {"shares": a["shares"] ^ 1}, "do not bring it back"),
    ("sum_unmask", lambda a: {"shares": np.full_like(a["shares"], 255)}, "do not bring it back"),
]


@pytest.mark.parametrize(("stage", "garbage", "message"), GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_of_a_site_is_found_out(
    stage: str, garbage: Callable[[Arrays], Arrays], message: str
) -> None:
    federation = secured(TABLES)
    bad = Failing(federation.sites["s03"], change=changed(stage, garbage))
    with pytest.raises(ProtocolError, match=message):
        summed(federation, MOMENTS, s03=bad)


@pytest.mark.parametrize("stage", ["moments", "sum_unmask"])
def test_garbage_in_the_recovery_of_a_lost_site_is_found_out(stage: str) -> None:
    federation = secured(TABLES)
    spoil = GARBAGE[-2][1] if stage == "sum_unmask" else GARBAGE[-7][1]
    bad = Failing(federation.sites["s01"], change=changed(stage, spoil))
    away = Failing(federation.sites["s06"], "moments")
    with pytest.raises(ProtocolError):
        summed(federation, replace(MOMENTS, quorum=THRESHOLD), s01=bad, s06=away)


def test_a_false_reply_within_its_bounds_shifts_the_sum_and_cannot_be_told() -> None:
    """The limit of the method, stated: a site may lie about its own rows, masked or not."""
    federation = secured(TABLES)
    federation.sites["s03"]._source = Source.of(TABLES["s03"] + 1.0)
    (found,) = summed(federation, MOMENTS)
    shift = len(TABLES["s03"]) * np.ones(D)
    np.testing.assert_allclose(found["total"], ROWS.sum(axis=0) + shift, atol=1e-13)


# -------------------------------------------------------------------------------- rounds and bytes


def test_a_sum_takes_three_rounds_and_keys_two_for_some_sums_ahead() -> None:
    for ahead, rounds in ((1, 5 * 6), (2, 3 * 6 + 2 * 3), (4, 3 * 6 + 2 * 2), (8, 3 * 6 + 2)):
        federation = secured(TABLES)
        transport = federation.transport()
        drive(summing(federation.total(transport, ahead), *[MOMENTS] * 6), transport)
        assert transport.rounds == rounds


@pytest.mark.parametrize("size", [5, 20])
def test_bytes_up_are_those_of_packed_integers_and_keys(size: int) -> None:
    width = 20_000
    tables = in_sites(np.ones((size, width)), size)
    federation = secured(tables, ops=KNOWN)
    transport = federation.transport()
    drive(summing(federation.total(transport, ahead=1), form(0, 2.0)), transport)
    packed = 8 * width * size
    keys = size * (3 * 32 + 64 + size * (66 + 16) + 32 + 64 + size * 33)
    assert packed < transport.bytes_up < 1.1 * packed + keys
    assert transport.bytes_up - packed - keys < 3000 * size


def test_a_sum_of_nothing_is_one_plain_round() -> None:
    federation = secured(TABLES, ops=KNOWN)
    transport = federation.transport()
    (found,) = drive(summing(federation.total(transport), Ask("put", bounds={})), transport)
    assert found == {}
    assert transport.rounds == 1


def test_neighbours_bound_the_masks_of_each_site(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def counted(key: bytes, words: Any, *, sign: int) -> None:
        made.append(sign)

    monkeypatch.setattr("eigenfed.protocol.sealing.add_mask", counted)
    for size, masks in ((16, 16), (17, 13), (30, 21), (50, 33)):
        made.clear()
        federation = secured(in_sites(np.ones((size, 2)), size))
        with pytest.raises(ProtocolError, match="no sum of replies"):
            drive(summing(federation.total(t := federation.transport(), 1), MOMENTS), t)
        assert len(made) == masks * size


@dataclass
class Counting:
    """A site that counts what it is asked."""

    site: Site
    ops: list[str] = field(default_factory=list)

    def answer(self, data: bytes) -> bytes:
        self.ops.append(Message.from_bytes(data, "ask").label)
        return self.site.answer(data)


def test_a_second_run_over_nearly_the_same_sites_is_refused_by_the_sites() -> None:
    """The difference of two sums is the part of the site that is in one of them only."""
    federation = secured(TABLES)
    summed(federation, replace(MOMENTS, quorum=THRESHOLD))
    away = {"s06": Failing(federation.sites["s06"], "moments")}
    with pytest.raises(SiteRefused, match="'isolates'"):
        summed(federation, replace(MOMENTS, quorum=THRESHOLD), **away)
    summed(federation, MOMENTS)
