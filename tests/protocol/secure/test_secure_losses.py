"""Sites that drop out of secure sums, and sites that send garbage into them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eigenfed.arrays import Array, Arrays
from eigenfed.data.source import Source
from eigenfed.errors import ProtocolError, SiteLost
from eigenfed.privacy.policy import Policy
from eigenfed.protocol.core import Call, Protocol, drive
from eigenfed.protocol.exact.moments import MomentsReply, collect_moments
from eigenfed.protocol.messages import Message
from eigenfed.protocol.method import registered
from federation import in_sites
from secured import Failing, Federation, Showing, ShownRequest, moments_sum, secured

S, D, THRESHOLD = 7, 4, 5
ROWS = np.random.default_rng(0).standard_normal((40, D))
TABLES = in_sites(ROWS, S)
STAGES = ["sum_keys", "sum_shares", "moments", "sum_survivors", "sum_unmask"]


@pytest.fixture(autouse=True)
def methods() -> Iterator[None]:
    with registered(Showing):
        yield


def summed(
    federation: Federation, quorum: int | None = None, /, **failing: Failing
) -> MomentsReply:
    """Make the first sum of a run over sites some of which fail."""
    transport = federation.transport(**failing)
    return drive(moments_sum(federation.total(transport), quorum), transport)


def exact(names: tuple[str, ...]) -> Array:
    total: Array = sum((TABLES[name].sum(axis=0) for name in names), np.zeros(D))
    return total


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
    found = drive(moments_sum(total, THRESHOLD), transport)
    names = federation.roster.sites
    there = names if STAGES.index(stage) > 2 else names[: S - count]
    assert total.summed == there
    np.testing.assert_allclose(found.total, exact(there), atol=1e-13)
    assert found.n == sum(len(TABLES[name]) for name in there)


@pytest.mark.parametrize("quorum", [None, THRESHOLD])
@pytest.mark.parametrize("stage", STAGES)
def test_one_loss_more_ends_the_run_and_nothing_is_opened(stage: str, quorum: int | None) -> None:
    federation = secured(TABLES)
    failing = losing(federation, stage, S - THRESHOLD + 1)
    with pytest.raises(SiteLost) as caught:
        summed(federation, quorum, **failing)
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
        found = summed(federation, **failing)
        np.testing.assert_allclose(found.total, ROWS.sum(axis=0), atol=1e-13)
    else:
        with pytest.raises(SiteLost, match=f"No answer from s06 to '{stage}'"):
            summed(federation, **failing)


@pytest.mark.parametrize("size", [17, 30, 50])
def test_many_sites_survive_as_many_losses_as_the_threshold_allows(size: int) -> None:
    """Each masks with its neighbours only, and the masks with those lost are opened."""
    tables = in_sites(np.random.default_rng(size).standard_normal((size, 5)), size)
    federation = secured(tables)
    lost = federation.roster.sites[::3][: size - federation.roster.threshold]
    failing = {name: Failing(federation.sites[name], "moments") for name in lost}
    transport = federation.transport(**failing)
    total = federation.total(transport, ahead=1)
    found = drive(moments_sum(total, federation.roster.threshold), transport)
    there = tuple(name for name in tables if name not in lost)
    assert total.summed == there
    wanted = np.sum([tables[name].sum(axis=0) for name in there], axis=0)
    np.testing.assert_allclose(found.total, wanted, atol=1e-12)


def row(quorum: int | None = None) -> Call[Any]:
    """A call for the sum of the sites' first rows."""
    return Call(ShownRequest(form=0, bound=np.array([8.0])), quorum=quorum)


def first_rows(names: Iterable[str]) -> Array:
    total: Array = np.sum([TABLES[name][0] for name in names], axis=0)
    return total


@pytest.mark.parametrize("stage", ["shown", "sum_survivors", "sum_unmask"])
def test_a_site_that_is_back_takes_part_in_the_next_sum_if_it_missed_none(stage: str) -> None:
    """A sum is opened without its help; one that it was not part of leaves it behind the script."""
    federation = secured(TABLES, policy=Policy(secure_only=True, least_roster_change=0))
    study = federation.study(Showing())
    away = Failing(federation.sites["s03"])
    transport = federation.transport(study, s03=away)
    total = federation.total(transport)

    def protocol() -> Protocol[list[tuple[tuple[str, ...], Array]]]:
        found = []
        yield from collect_moments(total, study)
        away.from_op = stage
        for _ in range(2):
            answer = yield from total(row(THRESHOLD))
            found.append((total.summed, answer.x))
            away.come_back()
        return found

    (first, one), (second, two) = drive(protocol(), transport)
    there = [name for name in TABLES if stage != "shown" or name != "s03"]
    assert first == tuple(there)
    np.testing.assert_allclose(one, first_rows(there), atol=1e-13)
    assert second == tuple(there)
    np.testing.assert_allclose(two, first_rows(there), atol=1e-13)


@pytest.mark.parametrize("stage", ["sum_keys", "shown"])
def test_a_site_that_missed_a_sum_is_asked_no_more(stage: str) -> None:
    federation = secured(TABLES, policy=Policy(least_roster_change=0))
    study = federation.study(Showing())
    away = Failing(federation.sites["s03"])
    transport = federation.transport(study, s03=away)
    total = federation.total(transport, ahead=2)
    others = tuple(name for name in TABLES if name != "s03")

    def protocol() -> Protocol[None]:
        yield from collect_moments(total, study)
        away.from_op = stage
        # The third sum makes keys, and so does the fifth.
        for _ in range(3):
            yield from total(row(THRESHOLD))
            assert total.summed == others
            away.come_back()
        yield from total(row())

    with pytest.raises(ProtocolError, match="s03 missed an earlier sum"):
        drive(protocol(), transport)


def test_a_loss_that_a_protocol_survives_leaves_later_sums_whole() -> None:
    federation = secured(TABLES)
    study = federation.study(Showing())
    away = Failing(federation.sites["s03"])
    transport = federation.transport(study, s03=away)
    total = federation.total(transport)

    def protocol() -> Protocol[Array]:
        yield from collect_moments(total, study)
        away.from_op = "shown"
        with pytest.raises(SiteLost):
            yield from total(row())
        away.come_back()
        whole: Array = (yield from total(row())).x
        return whole

    found = drive(protocol(), transport)
    np.testing.assert_allclose(found, first_rows(TABLES), atol=1e-13)


def changed(label: str, arrays: Callable[[Arrays], Arrays]) -> Callable[[Message], Message]:
    def change(reply: Message) -> Message:
        return replace(reply, arrays=arrays(reply.arrays)) if reply.label == label else reply

    return change


def random_words(arrays: Arrays) -> Arrays:
    """Put random words in the place of all masked ones."""
    rng = np.random.default_rng(0)
    made = {name: rng.integers(-(2**63), 2**63, array.shape) for name, array in arrays.items()}
    return {**made, "secure.place": arrays["secure.place"]}


LAST_BIT = np.eye(1, 33, 32, dtype=np.uint8)
GARBAGE: list[tuple[str, Callable[[Arrays], Arrays], str]] = [
    (
        "sum_keys",
        lambda a: {**a, "keys": a["keys"][:-1]},
        "The field 'keys' of site 's03'.*malformed",
    ),
    ("sum_keys", lambda a: {**a, "keys": a["keys"] ^ 1}, "Site 's03' has not signed its keys"),
    ("sum_keys", lambda a: {}, "The reply of site 's03' to 'sum_keys' does not have"),
    ("sum_shares", lambda a: {"shares": a["shares"][:, :-1]}, "The field 'shares' of site 's03'"),
    ("sum_shares", lambda a: {}, "The reply of site 's03' to 'sum_shares' does not have"),
    ("sum_shares", lambda a: {"shares": a["shares"] ^ 1}, "'shares'"),
    ("moments", lambda a: {**a, "n": a["n"].astype(float)}, "'s03' has 'n' of type float64"),
    ("moments", lambda a: {**a, "n": np.append(a["n"], 1)}, r"'s03' has 'n' of shape \(2,\)"),
    ("moments", lambda a: {"n": a["n"]}, "'s03' has different fields"),
    (
        "moments",
        lambda a: {**a, "secure.place": 2 * a["secure.place"]},
        "flags of the sites in a sum are inconsistent",
    ),
    (
        "moments",
        lambda a: {**a, "secure.place": 0 * a["secure.place"]},
        "flags of the sites in a sum are inconsistent",
    ),
    (
        "moments",
        lambda a: {**a, "secure.place": np.roll(a["secure.place"], 1)},
        "flags of the sites",
    ),
    ("moments", random_words, "not a sum of replies within their bounds"),
    ("moments", lambda a: {**a, "secure.check": 1 + a["secure.check"]}, "not a sum of replies"),
    (
        "sum_survivors",
        lambda a: {**a, "signature": a["signature"] ^ 1},
        "Site 's03' has not signed its list of survivors",
    ),
    ("sum_survivors", lambda a: {**a, "asked": a["asked"] ^ 1}, "received different requests"),
    (
        "sum_unmask",
        lambda a: {"shares": a["shares"][:2]},
        "The field 'shares' of site 's03'.*malformed",
    ),
    ("sum_unmask", lambda a: {"shares": a["shares"] ^ 1}, "cannot be recovered"),
    ("sum_unmask", lambda a: {"shares": np.full_like(a["shares"], 255)}, "cannot be recovered"),
    ("sum_unmask", lambda a: {"shares": a["shares"] ^ LAST_BIT}, "cannot be recovered"),
]


@pytest.mark.parametrize(("stage", "garbage", "message"), GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_of_a_site_is_found_out(
    stage: str, garbage: Callable[[Arrays], Arrays], message: str
) -> None:
    federation = secured(TABLES)
    bad = Failing(federation.sites["s03"], change=changed(stage, garbage))
    with pytest.raises(ProtocolError, match=message):
        summed(federation, s03=bad)


def test_wrong_shares_of_the_key_of_a_lost_site_are_found_out() -> None:
    federation = secured(TABLES)

    def spoiled(arrays: Arrays) -> Arrays:
        shares = arrays["shares"].copy()
        shares[-1] ^= LAST_BIT[0]
        return {"shares": shares}

    bad = Failing(federation.sites["s01"], change=changed("sum_unmask", spoiled))
    away = Failing(federation.sites["s06"], "moments")
    with pytest.raises(ProtocolError, match="The secret of site 's06' cannot be recovered"):
        summed(federation, THRESHOLD, s01=bad, s06=away)


@pytest.mark.parametrize(
    ("spoiled", "message"),
    [
        (lambda a: {**a, "n": a["n"].astype(float)}, "have the arrays of a masked reply"),
        (lambda a: {n: a[n] for n in a if n != "n"}, "not a sum of replies within their bounds"),
    ],
    ids=["floats", "a field less"],
)
def test_sites_that_all_answer_as_another_release_would_are_found_out(
    spoiled: Callable[[Arrays], Arrays], message: str
) -> None:
    federation = secured(TABLES)
    change = changed("moments", spoiled)
    bad = {name: Failing(site, change=change) for name, site in federation.sites.items()}
    with pytest.raises(ProtocolError, match=message):
        summed(federation, **bad)


def test_a_false_reply_within_its_bounds_shifts_the_sum_and_cannot_be_told() -> None:
    """The limit of the method, stated: a site may lie about its own rows, masked or not."""
    federation = secured(TABLES)
    federation.sites["s03"]._source = Source.of(TABLES["s03"] + 1.0)
    found = summed(federation)
    shift = len(TABLES["s03"]) * np.ones(D)
    np.testing.assert_allclose(found.total, ROWS.sum(axis=0) + shift, atol=1e-13)
