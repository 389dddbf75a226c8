"""Secure sums end to end: exact to the step, resumable, and with nothing of single sites."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.errors import InputError, ProtocolError, SiteLost, SiteRefused
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.secagg.fixed_point import error
from eigenfed.privacy.secagg.identity import Roster
from eigenfed.privacy.secagg.masking import Mask
from eigenfed.protocol.core import Call, Protocol, drive
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.moments import (
    MomentsReply,
    MomentsRequest,
    SpreadRequest,
    SquaresRequest,
    collect_moments,
)
from eigenfed.protocol.exact.orthonormalise import NoReply
from eigenfed.protocol.exact.products import ProductRequest
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.messages import Message
from eigenfed.protocol.method import registered
from eigenfed.protocol.operations import Limits
from eigenfed.protocol.secure.aggregation import SecureSum
from eigenfed.transport.engine import SiteSetup
from eigenfed.transport.processes import ProcessTransport
from eigenfed.transport.transcript import Transcript
from federation import COORDINATOR, coordinated, gate, in_sites, opened, opening, study_of
from oracles import power_law
from secured import (
    EchoRequest,
    Failing,
    Federation,
    Showing,
    ShownRequest,
    WholeRequest,
    agreed,
    identified,
    moments_sum,
    secured,
    summed,
    summing,
)
from sides import Given, PutRequest

S, D, THRESHOLD = 7, 4, 5
ROWS = np.random.default_rng(0).standard_normal((40, D))
TABLES = in_sites(ROWS, S)
DENSE = power_law(90, 14, 1.0) + 5.0


@pytest.fixture(autouse=True)
def methods() -> Iterator[None]:
    with registered(Showing), registered(Given):
        yield


def form(which: int, *bound: float) -> Call[Any]:
    return Call(ShownRequest(form=which, bound=np.array(bound)))


def first_sum(federation: Federation, **failing: Failing) -> MomentsReply:
    transport = federation.transport(**failing)
    return drive(moments_sum(federation.total(transport)), transport)


@pytest.mark.parametrize("size", [3, 4, 16, 17, 40])
def test_a_secure_sum_is_the_sum_to_half_a_step_for_each_site(size: int) -> None:
    tables = in_sites(np.random.default_rng(size).standard_normal((2 * size, 300)), size)
    federation = secured(tables)
    study = federation.study(Showing())
    transport = federation.transport(study)
    total = federation.total(transport, ahead=1)
    (found,) = drive(summing(total, study, form(0, 8.0)), transport)
    wanted = np.sum([table[0] for table in tables.values()], axis=0)
    assert np.abs(found.x - wanted).max() <= error(8.0, size) + 1e-14
    # Beyond rounding of the floats themselves, the sum is that of the sites' whole steps.
    step = 2.0 * error(8.0, size) / size
    whole = sum(np.rint(table[0] / step).astype(np.int64) for table in tables.values())
    np.testing.assert_array_equal(found.x, whole * step)
    assert total.summed == tuple(tables)


def test_every_shape_is_summed_and_whole_numbers_stay_whole() -> None:
    tables = in_sites(10 * np.random.default_rng(1).standard_normal((5, 6)), 5)
    federation = secured(tables)
    plain = np.stack([table[0] for table in tables.values()])
    calls = [*(form(which, 64.0) for which in range(5)), Call(WholeRequest(bound=64))]
    found = [answer.x for answer in summed(federation, *calls)]
    np.testing.assert_allclose(found[0], plain.sum(axis=0), atol=1e-14)
    np.testing.assert_array_equal(found[1], found[0].reshape(2, 3))
    assert found[2].shape == ()
    assert found[2] == found[0][0]
    assert found[3].shape == (0,)
    assert found[5].dtype == np.int64
    np.testing.assert_array_equal(found[5], plain.astype(int).sum(axis=0))
    np.testing.assert_array_equal(found[4], found[5])


def test_bounds_by_entry_keep_the_digits_of_small_entries() -> None:
    federation = secured(in_sites(np.array([[1e9, 1e-9]] * 3), 3))
    one, each = summed(federation, form(0, 2e9), form(0, 2e9, 2e-9))
    assert abs(one.x[1] - 3e-9) > 1e-9
    np.testing.assert_allclose(each.x, [3e9, 3e-9], rtol=1e-15)


def run_once(federation: Federation, record: Transcript, **failing: Failing) -> Decomposition:
    study = federation.study("krylov", 2, max_rounds=2)
    transport = opened({**federation.sites, **failing}, study, run=record.run)
    total = federation.total(transport)
    return drive(coordinated(study, total=total), transport, record)


@pytest.mark.parametrize("stage", ["sum_shares", "product", "sum_survivors", "sum_unmask"])
def test_a_run_is_taken_up_where_a_site_was_lost(stage: str) -> None:
    federation, record = secured(TABLES), Transcript(None)
    failing = {name: Failing(federation.sites[name], stage) for name in ("s00", "s03", "s06")}
    with pytest.raises(SiteLost):
        run_once(federation, record, **failing)
    kept = record.rounds
    resumed = run_once(federation, record)
    assert record.rounds > kept
    wanted = np.linalg.eigvalsh(np.cov(ROWS.T))[:-3:-1]
    np.testing.assert_allclose(resumed.variances, wanted, rtol=1e-12)
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
        def replay(self, round_: int, call: Call[Any]) -> None:
            return None

        def keep(self, round_: int, call: Call[Any], outcome: Any) -> None:
            kept.append((call, outcome))

    drive(moments_sum(federation.total(transport)), transport, Kept())
    masked = {
        array.tobytes()
        for tap in tapped.values()
        for reply in tap.replied
        if reply.label == "moments"
        for name, array in reply.arrays.items()
        if name != "secure.place"
    }
    assert len(masked) == 4 * S
    (held,) = [outcome for call, outcome in kept if call.op == "moments"]
    assert list(held) == [""]
    assert not masked & {array.tobytes() for array in held[""].values()}


def test_what_leaves_a_site_without_masks_is_nowhere_in_what_it_sends() -> None:
    federation = secured(TABLES)
    tapped = {name: Failing(site) for name, site in federation.sites.items()}
    transport = federation.transport(**tapped)
    total = federation.total(transport)
    drive(moments_sum(total), transport)
    assert total.limits is not None
    bound = float(total.limits.weight * total.limits.entry)
    for name, tap in tapped.items():
        sent = b"".join(array.tobytes() for reply in tap.replied for array in reply.arrays.values())
        steps = np.rint(TABLES[name].sum(axis=0) / (2 * error(bound, S) / S)).astype(np.int64)
        for part in (*TABLES[name].sum(axis=0), *steps):
            assert part.tobytes() not in sent


def test_processes_sum_as_threads_do() -> None:
    identities = identified("abc")
    tables = dict(zip("abc", np.array_split(DENSE, 3), strict=True))
    sources = {name: Source.of(table) for name, table in tables.items()}
    roster = Roster.of(identities)
    sites = {
        name: SiteSetup(
            name,
            source,
            COORDINATOR.public,
            policy=Policy(secure_only=True),
            identity=identities[name],
            roster=roster,
        )
        for name, source in sources.items()
    }
    study = study_of(sources, 1, scale=True, secure=True)
    with ProcessTransport(sites) as transport:
        transport.open_with(opening(transport.run, study))
        total = SecureSum(roster, run=transport.run)
        safe = drive(collect_moments(total, study), transport)
    np.testing.assert_allclose(safe.mean, DENSE.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(safe.scale, DENSE.std(axis=0), rtol=1e-13)


def test_masks_cancel_where_the_wire_rounds_what_is_asked() -> None:
    policy = Policy(secure_only=True, least_roster_change=0)
    federation = secured(in_sites(DENSE, 4), policy=policy, wire="float32")
    away = Failing(federation.sites["s03"], "squares")
    study = federation.study(scale=True, wire="float32")
    transport = opened({**federation.sites, "s03": away}, study)
    total = federation.total(transport)

    def protocol() -> Protocol[Array]:
        request = yield from agreed(total)
        yield from total(Call(request))
        mean = np.full(DENSE.shape[1], 0.1)
        return (yield from total(Call(SquaresRequest(mean=mean), quorum=3))).squares

    found = drive(protocol(), transport)
    around = np.vstack([site._source.X for site in list(federation.sites.values())[:3]])
    wanted = np.sum((around - np.float32(0.1)) ** 2, axis=0)
    np.testing.assert_allclose(found, wanted, rtol=1e-13)


MOMENTS = Call(MomentsRequest(entry=2, weight=3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (replace(MOMENTS, to=("s00",)), "goes to some sites only"),
        (
            replace(MOMENTS, each={"s00": MomentsRequest(entry=3, weight=3)}),
            "differs between sites",
        ),
        (replace(MOMENTS, quorum=4), "quorum=4 must be from 5 to 7"),
        (replace(MOMENTS, quorum=8), "quorum=8 must be from 5 to 7"),
        (Call(EchoRequest(x=np.ones(1), bound=np.array([np.inf]))), "bound of 'x' must be finite"),
        (Call(EchoRequest(x=np.ones(1), bound=np.array([-1.0]))), "bound of 'x' must be finite"),
        (replace(MOMENTS, largest=2**62), "of 'largest' times 7 sites must stay below"),
    ],
    ids=range(7),
)
def test_calls_that_cannot_be_summed_are_refused_before_anything_is_sent(
    call: Call[Any], message: str
) -> None:
    federation = secured(TABLES)
    transport = federation.transport()
    total = federation.total(transport)
    with pytest.raises(InputError, match="summed before limits were agreed on"):
        drive(total(MOMENTS), transport)
    total.agree(Limits(4.0, 8.0, S, D))
    with pytest.raises(InputError, match=message):
        drive(total(call), transport)
    assert all(site.egress == [] for site in federation.sites.values())


@pytest.mark.parametrize(
    ("ahead", "message"), [(0, "ahead=0"), (65, "at most 64"), (1.5, "ahead=1.5")]
)
def test_keys_are_made_for_one_to_64_sums(ahead: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        SecureSum(secured(TABLES).roster, run="r", ahead=ahead)


def test_two_sites_cannot_sum_securely() -> None:
    with pytest.raises(
        InputError, match="The roster has 2 sites and secure aggregation needs at least 3"
    ):
        secured(in_sites(ROWS, 2))


def test_a_site_whose_reply_is_out_of_range_ends_the_run() -> None:
    federation = secured(TABLES)
    with pytest.raises(SiteRefused, match=r"refused 'shown'.*'aborted'") as caught:
        summed(federation, form(0, 1e-3))
    assert caught.value.code == "aborted"


def test_another_roster_at_a_site_ends_the_run() -> None:
    federation = secured(TABLES)
    keys = {**federation.roster.keys, "s06": identified("x")["x"].public}
    identity = federation.identities["s00"]
    federation.sites["s00"] = gate("s00", TABLES["s00"], identity=identity, roster=Roster(keys))
    with pytest.raises(ProtocolError, match="Site 's00' has not signed its keys for this run"):
        first_sum(federation)


def test_another_name_of_the_run_ends_it() -> None:
    federation = secured(TABLES)
    with pytest.raises(ProtocolError, match="the transport's name of the run"):
        drive(moments_sum(SecureSum(federation.roster, run="x")), federation.transport())


def test_a_request_that_differs_between_sites_is_found_out_and_isolates_nobody() -> None:
    """All but one site are asked about another direction, to have that site's part stand alone."""

    @dataclass
    class Sending:
        site: Site
        basis: Array

        def answer(self, data: bytes) -> bytes:
            call = Message.from_bytes(data, "request", "open")
            arrays = call.arrays | ({"basis": self.basis} if "basis" in call.arrays else {})
            return self.site.answer(replace(call, arrays=arrays).to_bytes())

    federation = secured(TABLES)
    study = federation.study(Showing())
    cut = {
        name: Sending(site, np.eye(D)[:, :1] if name == "s00" else np.eye(D)[:, 1:2])
        for name, site in federation.sites.items()
    }
    transport = opened(cut, study)
    total = federation.total(transport)

    def protocol() -> Protocol[None]:
        moments = yield from collect_moments(total, study)
        yield from total(Call(ProductRequest(basis=np.eye(D)[:, :1], **moments.frame)))

    with pytest.raises(ProtocolError, match="Sites received different requests for 'product'"):
        drive(protocol(), transport)
    # A coordinator that does not care is left with words that have nothing to do with s00.
    for site in federation.sites.values():
        left = [line.op for line in site.egress]
        assert "sum_unmask" not in left[left.index("product") :]


def test_a_sum_takes_three_rounds_and_keys_two_for_some_sums_ahead() -> None:
    """Of six sums: moments, spread and four more; magnitudes take a round before."""
    for ahead, rounds in ((1, 5 * 6), (2, 3 * 6 + 2 * 3), (4, 3 * 6 + 2 * 2), (8, 3 * 6 + 2)):
        federation = secured(TABLES)
        study = federation.study(Showing())
        transport = federation.transport(study)
        total = federation.total(transport, ahead)
        drive(summing(total, study, *[form(0, 8.0)] * 4), transport)
        assert transport.rounds == 1 + rounds


@pytest.mark.parametrize("size", [5, 20])
def test_bytes_up_are_those_of_packed_integers_and_keys(size: int) -> None:
    width = 20_000
    tables = in_sites(np.ones((size, width)), size)
    federation = secured(tables)
    study = federation.study(Showing())
    transport = federation.transport(study)
    total = federation.total(transport, ahead=1)

    def protocol() -> Protocol[int]:
        yield from collect_moments(total, study)
        before = transport.bytes_up
        yield from total(form(0, 2.0))
        return transport.bytes_up - before

    up = drive(protocol(), transport)
    packed = 8 * width * size
    keys = size * (3 * 32 + 64 + size * (66 + 16) + 32 + 64 + size * 33)
    assert packed < up < 1.1 * packed + keys
    assert up - packed - keys < 3000 * size


def test_a_sum_of_nothing_is_one_plain_round() -> None:
    federation = secured(TABLES)
    study = federation.study(Given())
    transport = federation.transport(study)
    total = federation.total(transport)

    def protocol() -> Protocol[int]:
        yield from collect_moments(total, study)
        before = transport.rounds
        found = yield from total(Call(PutRequest(most=1.0)))
        assert found == NoReply()
        return transport.rounds - before

    assert drive(protocol(), transport) == 1


def test_neighbours_bound_the_masks_of_each_site(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def counted(masks: list[Mask], words: Any) -> None:
        made.append(len(masks))

    monkeypatch.setattr("eigenfed.protocol.secure.participant.add_masks", counted)
    for size, masks in ((16, 16), (17, 13), (30, 21), (50, 33)):
        made.clear()
        federation = secured(in_sites(np.ones((size, 2)), size))
        with pytest.raises(ProtocolError, match="not a sum of replies"):
            drive(moments_sum(federation.total(t := federation.transport(), 1)), t)
        assert made == [masks] * size


def test_a_second_run_over_nearly_the_same_sites_is_refused_by_the_sites() -> None:
    """The difference of two sums is the part of the site that is in one of them only."""
    federation = secured(TABLES)
    some = federation.transport()
    drive(moments_sum(federation.total(some), THRESHOLD), some)
    away = {"s06": Failing(federation.sites["s06"], "moments")}
    fewer = federation.transport(**away)
    with pytest.raises(SiteRefused, match="'isolates'"):
        drive(moments_sum(federation.total(fewer), THRESHOLD), fewer)
    first_sum(federation)


def test_a_site_that_missed_a_sum_which_its_script_wants_has_no_part_in_the_rest() -> None:
    """It has not seen what the others were asked: to go on without it is for the coordinator."""
    federation = secured(TABLES, policy=Policy(secure_only=True, least_roster_change=0))
    away = Failing(federation.sites["s03"], "moments")
    transport = federation.transport(s03=away)
    total = federation.total(transport)

    def protocol() -> Protocol[None]:
        found = yield from moments_sum(total, THRESHOLD)
        away.come_back()
        yield from total(Call(SpreadRequest(mean=found.total / found.count, scale=np.ones(D))))

    with pytest.raises(ProtocolError, match="s03 missed an earlier sum"):
        drive(protocol(), transport)
