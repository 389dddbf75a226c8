"""Sites that drop out of secure sums, and sites that send garbage into them."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from eigenfed.arrays import Array, Arrays
from eigenfed.data.source import Source
from eigenfed.errors import ProtocolError, SiteLost
from eigenfed.privacy.fixed_point import Bound
from eigenfed.privacy.policy import Policy
from eigenfed.protocol.core import Ask, Protocol, drive
from eigenfed.protocol.messages import Message
from federation import in_sites
from secured import Failing, Federation, secured, summed, summing

S, D, THRESHOLD = 7, 4, 5
ROWS = np.random.default_rng(0).standard_normal((40, D))
TABLES = in_sites(ROWS, S)
BOUNDS: dict[str, Bound] = {"n": 64.0, "count": 64.0, "total": 256.0}
MOMENTS = Ask("moments", bounds=BOUNDS)
STAGES = ["sum_keys", "sum_shares", "moments", "sum_survivors", "sum_unmask"]


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
    ("moments", random_words, "no sum of replies within their bounds"),
    ("moments", lambda a: {**a, "secure.check": 1 + a["secure.check"]}, "no sum of replies"),
    ("sum_survivors", lambda a: {**a, "signature": a["signature"] ^ 1}, "'s03' are not signed"),
    ("sum_survivors", lambda a: {**a, "asked": a["asked"] ^ 1}, "asked different things"),
    ("sum_unmask", lambda a: {"shares": a["shares"][:2]}, "The shares of site 's03'.*malformed"),
    ("sum_unmask", lambda a: {"shares": a["shares"] ^ 1}, "do not bring it back"),
    ("sum_unmask", lambda a: {"shares": np.full_like(a["shares"], 255)}, "do not bring it back"),
    ("sum_unmask", lambda a: {"shares": a["shares"] ^ LAST_BIT}, "do not bring it back"),
]


@pytest.mark.parametrize(("stage", "garbage", "message"), GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_of_a_site_is_found_out(
    stage: str, garbage: Callable[[Arrays], Arrays], message: str
) -> None:
    federation = secured(TABLES)
    bad = Failing(federation.sites["s03"], change=changed(stage, garbage))
    with pytest.raises(ProtocolError, match=message):
        summed(federation, MOMENTS, s03=bad)


def test_wrong_shares_of_the_key_of_a_lost_site_are_found_out() -> None:
    federation = secured(TABLES)

    def spoiled(arrays: Arrays) -> Arrays:
        shares = arrays["shares"].copy()
        shares[-1] ^= LAST_BIT[0]
        return {"shares": shares}

    bad = Failing(federation.sites["s01"], change=changed("sum_unmask", spoiled))
    away = Failing(federation.sites["s06"], "moments")
    with pytest.raises(ProtocolError, match="of site 's06' do not bring it back"):
        summed(federation, replace(MOMENTS, quorum=THRESHOLD), s01=bad, s06=away)


@pytest.mark.parametrize(
    "spoiled",
    [lambda a: {**a, "n": a["n"].astype(float)}, lambda a: {n: a[n] for n in a if n != "n"}],
    ids=["floats", "a field less"],
)
def test_sites_that_all_answer_as_another_release_would_are_found_out(
    spoiled: Callable[[Arrays], Arrays],
) -> None:
    federation = secured(TABLES)
    change = changed("moments", spoiled)
    bad = {name: Failing(site, change=change) for name, site in federation.sites.items()}
    with pytest.raises(ProtocolError, match="does not have the arrays that its bounds are of"):
        summed(federation, MOMENTS, **bad)


def test_a_false_reply_within_its_bounds_shifts_the_sum_and_cannot_be_told() -> None:
    """The limit of the method, stated: a site may lie about its own rows, masked or not."""
    federation = secured(TABLES)
    federation.sites["s03"]._source = Source.of(TABLES["s03"] + 1.0)
    (found,) = summed(federation, MOMENTS)
    shift = len(TABLES["s03"]) * np.ones(D)
    np.testing.assert_allclose(found["total"], ROWS.sum(axis=0) + shift, atol=1e-13)
