"""The site's half of a secure sum, against a coordinator that does as it likes."""

from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from eigenfed.arrays import Array, Arrays
from eigenfed.errors import InputError
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.release import Reveals
from eigenfed.privacy.secagg.fixed_point import encode_fixed_point
from eigenfed.privacy.secagg.identity import Identity, Roster
from eigenfed.privacy.secagg.masking import KeyPair, Mask, add_masks, derive_key
from eigenfed.privacy.secagg.shamir import SHARE_BYTES, recover_secret
from eigenfed.privacy.secagg.topology import Ring
from eigenfed.protocol.exact.moments import moments
from eigenfed.protocol.exact.products import ProductRequest
from eigenfed.protocol.messages import Message, pack
from eigenfed.protocol.method import registered
from eigenfed.protocol.secure.participant import Participant
from eigenfed.protocol.secure.sum_format import (
    Envelope,
    PublicKeys,
    Purpose,
    as_bytes_array,
    mask_sign,
    seed_digest,
    stack_rows,
)
from federation import Talk, gate, in_sites, opening, study_of
from secured import (
    Coordinator,
    EchoRequest,
    Federation,
    Remembered,
    Showing,
    identified,
    secured,
)

S, D = 7, 3
TABLES = in_sites(np.random.default_rng(0).standard_normal((35, D)), S)
THRESHOLD = 5


@pytest.fixture(autouse=True)
def methods() -> Iterator[None]:
    with registered(Showing):
        yield


Words = npt.NDArray[np.int64]


def coordinator(policy: Policy | None = None) -> Coordinator:
    return Coordinator(secured(TABLES, policy=policy))


def participant(it: Coordinator, site: str) -> Participant:
    """A site's half of the sums, from its own memory."""
    found = it.federation.sites[site]._participant
    assert found is not None
    return found


def keys_of(keys: Arrays, place: int, count: int = 2) -> PublicKeys:
    return PublicKeys.from_bytes(keys["keys"][place].tobytes(), count)


def test_an_honest_sum_opens_with_self_mask_shares_of_all() -> None:
    it = coordinator()
    keys = it.keyed()
    it.masked(it.shared(keys))
    signatures = it.signed(it.names)
    opening = it.opening(it.names, signatures)
    shares = {name: it.reply(name, "sum_unmask", opening)["shares"] for name in it.names}
    for i in range(S):
        held = {j + 1: shares[name][i].tobytes() for j, name in enumerate(it.names)}
        assert seed_digest(recover_secret(held, THRESHOLD)) == keys_of(keys, i).seals[0]


def test_masked_replies_change_with_every_sum_and_look_random() -> None:
    """The same reply in two sums: all words differ, and their bits are even."""
    it = coordinator()
    shares = it.shared(it.keyed(count=4))
    it.masked(shares)
    it.masked(shares, number=1)
    request = EchoRequest(x=np.ones(3000), bound=np.array([2.0]))
    first, second = (
        {name: it.reply(name, "echo", pack(request) | it.envelope(number)) for name in it.names}
        for number in (2, 3)
    )
    for name in it.names:
        one, two = (reply[name]["x"] for reply in (first, second))
        assert (one != two).all()
        for words in (one, two, one - two):
            bits = np.unpackbits(words.view(np.uint8))
            assert abs(bits.mean() - 0.5) < 6 * 0.5 / np.sqrt(bits.size)


def test_what_opens_a_sum_holds_one_kind_of_share_for_each_site() -> None:
    """A lost site's key comes back and its seed does not; for all others it is the other way."""
    it = coordinator()
    keys = it.keyed()
    it.masked(it.shared(keys))
    there, gone = it.names[:THRESHOLD], it.names[THRESHOLD:]
    opening = it.opening(there, it.signed(there))
    shares = {name: it.reply(name, "sum_unmask", opening) for name in there}
    for i, owner in enumerate(it.names):
        held = {
            it.names.index(name) + 1: reply["shares"][i].tobytes() for name, reply in shares.items()
        }
        assert {reply["shares"].shape for reply in shares.values()} == {(S, SHARE_BYTES)}
        secret, public = recover_secret(held, THRESHOLD), keys_of(keys, i)
        assert (KeyPair(secret).public == public.masks[0]) == (owner in gone)
        assert (seed_digest(secret) == public.seals[0]) == (owner in there)


def both_kinds(it: Coordinator, site: str, steps: tuple[str, ...]) -> list[Arrays]:
    """Ask a site to sign and open two lists, in some order, and return all that it gives."""
    lists = {"all": it.names, "some": it.names[:THRESHOLD]}
    statements = {
        which: Purpose(it.run, it.federation.roster).survivors(
            0, asked_digest(it, site), frozenset(names)
        )
        for which, names in lists.items()
    }
    given = []
    for step in steps:
        verb, which = step.split()
        names = lists[which]
        payload = it.survivors(names)
        if verb == "open":
            # Signatures as they would be if the others had been told so: the worst case.
            signatures = {n: it.federation.identities[n].sign(statements[which]) for n in names}
            payload = it.opening(names, signatures)
        message = it.request(site, "sum_survivors" if verb == "sign" else "sum_unmask", payload)
        if message.kind == "reply" and verb == "open":
            given.append(message.arrays)
    return given


def asked_digest(it: Coordinator, site: str) -> bytes:
    """What the site holds to have been asked, read from its own memory."""
    last = participant(it, site)._runs[it.run].last
    assert last is not None
    return last.digest


STEPS = ["sign all", "sign some", "open all", "open some"]


@pytest.mark.parametrize("steps", list(permutations(STEPS)), ids=" > ".join)
def test_a_site_never_gives_both_kinds_of_shares_in_any_order(steps: tuple[str, ...]) -> None:
    """Even if all others collude and sign whatever is wanted."""
    it = coordinator(Policy(least_roster_change=0))
    it.begun()
    given = both_kinds(it, it.names[0], steps * 2)
    assert len(given) <= 1


def test_the_same_list_may_be_signed_again_in_another_round_but_opened_once() -> None:
    it = coordinator()
    it.begun()
    first, again = it.signed(it.names), it.signed(it.names)
    assert first == again
    opening = it.opening(it.names, first)
    it.reply(it.names[0], "sum_unmask", opening)
    assert it.code(it.names[0], "sum_unmask", opening) == "sum_again"
    assert it.code(it.names[0], "sum_survivors", it.survivors(it.names)) == "sum_again"


def test_a_retry_of_the_same_round_brings_the_same_bytes() -> None:
    it = coordinator()
    site = it.federation.sites[it.names[0]]
    payload = {"first": np.array([0]), "count": np.array([1])}
    data = Message("request", "run", it.round_ + 1, "sum_keys", payload).to_bytes()
    assert site.answer(data) == site.answer(data)


def test_swapped_keys_are_refused() -> None:
    """The coordinator puts a key of its own in the place of a site's."""
    it = coordinator()
    keys = it.keyed()
    own = keys["keys"].copy()
    own[2, 32:64] = as_bytes_array(KeyPair.generate().public)
    assert it.code(it.names[0], "sum_shares", keys | {"keys": own}) == "signature"


def test_keys_of_two_sites_cannot_change_places() -> None:
    it = coordinator()
    keys = it.keyed()
    turned = {name: keys[name][[0, 2, 1, 3, 4, 5, 6]] for name in ("keys", "signatures")}
    assert it.code(it.names[0], "sum_shares", keys | turned) == "signature"


def test_a_coordinator_cannot_play_a_site() -> None:
    """It signs keys with an identity that is not in the roster."""
    it = coordinator()
    keys = it.keyed()
    false, played = Identity.generate(), it.names[3]
    made = PublicKeys(KeyPair.generate().public, (b"m" * 32,) * 2, (b"s" * 32,) * 2)
    statement = Purpose(it.run, it.federation.roster).keys(played, 0, made.to_bytes())
    shown, signatures = keys["keys"].copy(), keys["signatures"].copy()
    shown[3], signatures[3] = as_bytes_array(made.to_bytes()), as_bytes_array(false.sign(statement))
    forged = keys | {"keys": shown, "signatures": signatures}
    assert it.code(it.names[0], "sum_shares", forged) == "signature"


def test_own_keys_of_an_earlier_time_are_not_taken_for_the_present_ones() -> None:
    it = coordinator()
    first, later = it.keyed(0), it.keyed(2)
    assert it.code(it.names[0], "sum_shares", first) == "signature"
    mixed = later["keys"].copy()
    mixed[0] = first["keys"][0]
    assert it.code(it.names[0], "sum_shares", later | {"keys": mixed}) == "signature"


def test_a_site_that_was_started_again_does_not_take_its_old_keys_for_its_own() -> None:
    """The coordinator brings back keys of the same sums, signed by the site before it ended."""
    it = coordinator()
    old, name = it.keyed(), it.names[0]
    identity, roster = it.federation.identities[name], it.federation.roster
    again = gate(name, TABLES[name], identity=identity, roster=roster)
    it.federation.sites[name] = again
    again.answer(opening(it.run, it.federation.study(Showing(), 3)))
    wanted = {"first": np.array([0]), "count": np.array([2])}
    new = it.reply(name, "sum_keys", wanted)
    assert it.code(name, "sum_shares", old) == "signature"
    fresh = {
        "keys": np.concatenate([new["keys"][None], old["keys"][1:]]),
        "signatures": np.concatenate([new["signature"][None], old["signatures"][1:]]),
    }
    it.reply(name, "sum_shares", old | fresh)


def test_keys_of_another_run_are_refused() -> None:
    it = coordinator()
    here = it.keyed()
    it.begin("another")
    there = it.keyed()
    stolen = {
        name: np.concatenate([there[name][:1], here[name][1:]]) for name in ("keys", "signatures")
    }
    assert it.code(it.names[0], "sum_shares", there | stolen) == "signature"


def test_keys_signed_under_another_roster_are_refused() -> None:
    """One site has pinned another key for a member; its keys are then of no use to the others."""
    it = coordinator()
    keys, name = it.keyed(), it.names[1]
    other = Roster({**it.federation.roster.keys, it.names[6]: Identity.generate().public})
    statement = Purpose(it.run, other).keys(name, 0, keys["keys"][1].tobytes())
    signatures = keys["signatures"].copy()
    signatures[1] = as_bytes_array(it.federation.identities[name].sign(statement))
    refused = it.code(it.names[0], "sum_shares", keys | {"signatures": signatures})
    assert refused == "signature"


def test_keys_for_a_sum_are_made_once_and_shared_once() -> None:
    it = coordinator()
    keys = it.keyed(0, 2)
    again = {"first": np.array([1]), "count": np.array([2])}
    assert it.code(it.names[0], "sum_keys", again) == "sum_again"
    it.shared(keys)
    assert it.code(it.names[0], "sum_shares", keys) == "sum_again"
    fewer = keys | {"present": it.flags(it.names[:-1])}
    cut = {name: keys[name][:-1] for name in ("keys", "signatures")}
    assert it.code(it.names[0], "sum_shares", fewer | cut) == "sum_again"


def test_a_sum_is_masked_once_whatever_is_asked() -> None:
    it = coordinator()
    shares = it.shared(it.keyed())
    it.masked(shares)
    first = it.names[0]
    spread = pack(it.wanted(1))
    assert it.code(first, "moments", it.asked() | shares[first]) == "script"
    assert it.code(first, "spread", spread | it.envelope(0)) == "sum_again"
    it.reply(first, "spread", spread | it.envelope(1))
    echo = pack(it.wanted(2))
    assert it.code(first, "echo", echo | it.envelope(1)) == "sum_again"
    assert it.code(first, "echo", echo | it.envelope(0)) == "sum_again"


def test_an_earlier_sum_is_closed_for_good_once_a_later_one_is_masked() -> None:
    it = coordinator()
    shares = it.shared(it.keyed())
    it.masked(shares)
    signatures = it.signed(it.names)
    it.masked(shares, number=1)
    opening = it.opening(it.names, signatures)
    assert it.code(it.names[0], "sum_unmask", opening) == "survivors"
    it.signed(it.names, number=1)
    assert it.code(it.names[0], "sum_unmask", opening) == "sum"
    assert it.code(it.names[0], "sum_survivors", it.survivors(it.names)) == "sum"
    assert it.code(it.names[0], "echo", pack(it.wanted(2)) | it.envelope(0)) == "sum_again"


def test_numbers_without_keys_are_refused() -> None:
    it = coordinator()
    first = it.names[0]
    assert it.code(first, "moments", it.asked()) == "sum"
    keys = {name: np.zeros((S, 1), np.uint8) for name in ("keys", "signatures")}
    assert it.code(first, "sum_shares", {"present": it.flags(it.names), **keys}) == "sum"
    assert it.code(first, "sum_unmask", it.opening(it.names, {first: bytes(64)})) == "sum"
    made = it.keyed()
    assert it.code(first, "moments", it.asked()) == "sum"
    shares = it.shared(made)
    beyond = pack(it.moments) | it.envelope(2) | shares[first]
    assert it.code(first, "moments", beyond) == "sum"
    assert it.code(first, "sum_survivors", it.survivors(it.names)) == "sum"


def test_shares_sealed_for_another_site_or_changed_are_refused() -> None:
    it = coordinator()
    shares = it.shared(it.keyed())
    a, b = it.names[:2]
    assert it.code(a, "moments", it.asked() | shares[b]) == "shares"
    changed = shares[a]["secure.shares"].copy()
    changed[3, 5] ^= 1
    assert it.code(a, "moments", it.asked() | {"secure.shares": changed}) == "shares"
    assert it.code(a, "moments", it.asked()) == "shares"
    it.reply(a, "moments", it.asked() | shares[a])


def test_sealed_shares_tell_the_coordinator_nothing() -> None:
    it = coordinator()
    keys = it.keyed()
    sealed = {name: it.reply(name, "sum_shares", keys)["shares"] for name in it.names}
    texts = {
        row.tobytes()
        for name in it.names
        for i, row in enumerate(sealed[name])
        if it.names[i] != name
    }
    assert len(texts) == S * (S - 1)
    bits = np.unpackbits(np.frombuffer(b"".join(texts), np.uint8))
    assert abs(bits.mean() - 0.5) < 6 * 0.5 / np.sqrt(bits.size)
    own = {sealed[name][i].tobytes() for i, name in enumerate(it.names)}
    assert own == {bytes(len(next(iter(own))))}


def test_different_lists_to_different_sites_open_nothing() -> None:
    """Three sites are told that one is gone, four that all are there: neither has a quorum."""
    it = coordinator(Policy(least_roster_change=0))
    it.begun()
    without = tuple(name for name in it.names if name != it.names[6])
    told_all, told_less = it.names[:4], it.names[4:6]
    of_all = {
        n: it.reply(n, "sum_survivors", it.survivors(it.names))["signature"].tobytes()
        for n in told_all
    }
    of_less = {
        n: it.reply(n, "sum_survivors", it.survivors(without))["signature"].tobytes()
        for n in told_less
    }
    assert it.code(it.names[0], "sum_unmask", it.opening(it.names, of_all)) == "few_sites"
    assert it.code(it.names[4], "sum_unmask", it.opening(without, of_less)) == "few_sites"
    assert it.code(it.names[0], "sum_unmask", it.opening(it.names, of_all | of_less)) == "signature"
    assert it.code(it.names[4], "sum_unmask", it.opening(without, of_all | of_less)) == "signature"


def test_the_quorum_must_be_of_survivors_and_each_counts_once() -> None:
    it = coordinator(Policy(least_roster_change=0))
    it.begun()
    there = it.names[:THRESHOLD]
    signatures = it.signed(there)
    site = it.names[0]
    few = dict(list(signatures.items())[: THRESHOLD - 1])
    assert it.code(site, "sum_unmask", it.opening(there, few)) == "few_sites"
    copied = few | {it.names[THRESHOLD - 1]: signatures[site]}
    assert it.code(site, "sum_unmask", it.opening(there, copied)) == "signature"
    statement = Purpose(it.run, it.federation.roster).survivors(
        0, asked_digest(it, site), frozenset(there)
    )
    outside = few | {it.names[6]: it.federation.identities[it.names[6]].sign(statement)}
    assert it.code(site, "sum_unmask", it.opening(there, outside)) == "few_sites"
    it.reply(site, "sum_unmask", it.opening(there, signatures))


def test_signatures_of_another_sum_open_nothing() -> None:
    it = coordinator()
    shares = it.shared(it.keyed())
    it.masked(shares)
    old = it.signed(it.names)
    it.masked(shares, number=1)
    it.signed(it.names, number=1)
    assert it.code(it.names[0], "sum_unmask", it.opening(it.names, old, number=1)) == "signature"


def test_sites_that_were_asked_different_things_sign_different_statements() -> None:
    """One site is asked something else than all others, to have its part stand alone."""
    it = coordinator()
    shares = it.shared(it.keyed(count=3))
    it.masked(shares)
    it.masked(shares, number=1)
    victim, others = it.names[0], it.names[1:]
    masked = {}
    for name in it.names:
        x = np.ones(4) if name == victim else np.zeros(4)
        request = EchoRequest(x=x, bound=np.array([2.0]))
        masked[name] = it.reply(name, "echo", pack(request) | it.envelope(2))
    signatures = it.signed(it.names, number=2)
    for name in (victim, others[0]):
        opening = it.opening(it.names, signatures, number=2)
        assert it.code(name, "sum_unmask", opening) == "signature"
    agreed = {name: signatures[name] for name in others}
    opening = it.opening(it.names, agreed, number=2)
    assert it.code(victim, "sum_unmask", opening) == "signature"
    # The others do open the sum. Whatever digest the coordinator takes for the own mask of the
    # victim, the masks of the victim with the others are left, and the reply stays hidden.
    opened = {name: it.reply(name, "sum_unmask", opening)["shares"] for name in others}
    digests = {name: asked_digest(it, name) for name in it.names}
    total = np.sum([masked[name]["x"] for name in it.names], axis=0)
    for name in it.names:
        take_own_mask(it, total, name, brought_back(it, opened, name), digests[name], 2)
    assert not set(total) & set(encode_fixed_point(np.ones(4), 2.0, S))


def brought_back(it: Coordinator, shares: Arrays, owner: str) -> bytes:
    """Put together the secret that sites have opened of one of them."""
    i = it.names.index(owner)
    rows = {it.names.index(name) + 1: array[i].tobytes() for name, array in shares.items()}
    return recover_secret(rows, THRESHOLD)


def take_own_mask(
    it: Coordinator, words: Words, owner: str, seed: bytes, asked: bytes, number: int = 0
) -> None:
    purpose = Purpose(it.run, it.federation.roster).own(number, asked, owner)
    add_masks([Mask(derive_key(seed, purpose), -1)], [words])


def take_pair_masks(it: Coordinator, words: Words, owner: str, key: bytes, keys: Arrays) -> None:
    """Take away the masks of one site with all others, by its key."""
    for i, name in enumerate(it.names):
        if name != owner:
            agreed = KeyPair(key).agreed(keys_of(keys, i).masks[0])
            asked = asked_digest(it, owner)
            purpose = Purpose(it.run, it.federation.roster).pair(0, asked, owner, name)
            add_masks([Mask(derive_key(agreed, purpose), -mask_sign(owner, name))], [words])


def test_a_site_that_is_said_to_be_gone_stays_hidden_by_its_own_mask() -> None:
    """The coordinator has the reply of a site, says it dropped out, and is given its key."""
    it = coordinator()
    keys = it.keyed()
    masked = it.masked(it.shared(keys))
    victim, there = it.names[6], it.names[:6]
    opening = it.opening(there, it.signed(there))
    shares = {name: it.reply(name, "sum_unmask", opening)["shares"] for name in there}
    key = brought_back(it, shares, victim)
    hidden = masked[victim]["count"].copy()
    take_pair_masks(it, hidden, victim, key, keys)
    wanted = encode_fixed_point(np.full(D, float(len(TABLES[victim]))), it.limits.weight, S)
    assert not set(hidden) & set(wanted)
    # The site's own mask is all that is left: with its seed, which nobody gave, it is the reply.
    run = participant(it, victim)._runs[it.run]
    assert run.batch is not None
    seed = run.batch.secrets[0].seed
    take_own_mask(it, hidden, victim, seed, asked_digest(it, victim))
    np.testing.assert_array_equal(hidden, wanted)


def test_a_site_in_the_sum_stays_hidden_by_its_masks_with_others() -> None:
    it = coordinator()
    keys = it.keyed()
    masked = it.masked(it.shared(keys))
    opening = it.opening(it.names, it.signed(it.names))
    shares = {name: it.reply(name, "sum_unmask", opening)["shares"] for name in it.names}
    for name in it.names:
        words = masked[name]["count"].copy()
        take_own_mask(it, words, name, brought_back(it, shares, name), asked_digest(it, name))
        assert not set(words) & set(
            encode_fixed_point(np.full(D, float(len(TABLES[name]))), it.limits.weight, S)
        )
    words = np.sum([masked[name]["count"] for name in it.names], axis=0)
    for name in it.names:
        take_own_mask(it, words, name, brought_back(it, shares, name), asked_digest(it, name))
    np.testing.assert_array_equal(
        words, S * encode_fixed_point(np.full(D, 5.0), it.limits.weight, S)
    )


@pytest.mark.parametrize("count", range(THRESHOLD))
def test_lists_below_the_threshold_are_not_signed(count: int) -> None:
    it = coordinator()
    it.begun()
    assert it.code(it.names[0], "sum_survivors", it.survivors(it.names[:count])) == "few_sites"


def test_losses_that_leave_a_ring_which_few_could_cut_are_not_signed() -> None:
    """80 sites: the coordinator says that 26 are gone, side by side in two places of the ring."""
    size = 80
    federation = secured(in_sites(np.ones((size, 1)), size))
    it = Coordinator(federation)
    order, half = Ring(federation.roster)._order, 16
    gone = {*order[1:14], *order[2 * half : 2 * half + 13]}
    there = [name for name in it.names if name not in gone]
    assert len(there) == federation.roster.threshold
    site = order[0]
    keys = it.keyed(count=1)
    shares = it.shared(keys)
    it.reply(site, "moments", it.asked() | shares[site])
    assert it.code(site, "sum_survivors", it.survivors(there)) == "thin"
    spread = sorted(order[::3])
    kept = [name for name in it.names if name not in set(spread[1:]) or name == site]
    it.reply(site, "sum_survivors", it.survivors(kept))


def test_a_list_without_the_site_itself_is_not_signed() -> None:
    it = coordinator()
    it.begun()
    assert it.code(it.names[0], "sum_survivors", it.survivors(it.names[1:])) == "survivors"


def test_groups_below_the_threshold_get_no_shares_and_no_reply() -> None:
    it = coordinator()
    keys = it.keyed()
    few = {"present": it.flags(it.names[:4])} | {n: keys[n][:4] for n in ("keys", "signatures")}
    assert it.code(it.names[0], "sum_shares", few) == "few_sites"
    shares = it.shared(keys)
    present = {"secure.present": it.flags(it.names[:4])}
    asked = it.asked() | shares[it.names[0]] | present
    assert it.code(it.names[0], "moments", asked) == "few_sites"


@pytest.mark.parametrize(
    ("earlier", "now", "refused"),
    [
        ("abcdefg", "abcdefg", False),
        ("abcdefg", "abcdef", True),
        ("abcdefg", "abcde", True),
        ("abcdef", "abcdeg", True),
        ("abcdefgh", "abcdefgh", False),
    ],
)
def test_sums_over_nearly_the_same_sites_are_refused(earlier: str, now: str, refused: bool) -> None:
    sums = Remembered({frozenset(earlier)})
    it = Coordinator(lettered(now if len(now) > 7 else "abcdefg", sums, Policy()))
    it.begun()
    message = it.request("a", "sum_survivors", it.survivors(now))
    assert (message.label == "isolates") == refused
    assert (message.kind == "reply") != refused


def lettered(letters: str, sums: Remembered, policy: Policy) -> Federation:
    """Sites of which each remembers these sums."""
    federation = secured({name: np.ones((3, 2)) for name in letters}, policy=policy)
    for site in federation.sites.values():
        assert site._participant is not None
        site._participant._sums = sums
    return federation


def test_a_roster_change_may_be_allowed_by_policy() -> None:
    sums = Remembered({frozenset("abcdefg")})
    it = Coordinator(lettered("abcdefg", sums, Policy(least_roster_change=0)))
    it.begun()
    it.reply("a", "sum_survivors", it.survivors("abcdef"))


def test_three_sums_that_differ_by_many_may_isolate_a_site_too() -> None:
    """All, less the first three, less the last three is the one in the middle."""
    sums = Remembered({frozenset("abc"), frozenset("efg")})
    it = Coordinator(lettered("abcdefg", sums, Policy()))
    it.begun()
    assert it.code("a", "sum_survivors", it.survivors("abcdefg")) == "isolates"


def test_a_set_is_written_down_when_the_sum_is_opened_and_not_before() -> None:
    it = coordinator()
    sums = Remembered()
    name = it.names[0]
    participant(it, name)._sums = sums
    it.begun()
    signatures = it.signed(it.names)
    assert sums.seen() == set()
    it.reply(name, "sum_unmask", it.opening(it.names, signatures))
    assert sums.seen() == {frozenset(it.names)}


def test_two_runs_at_once_cannot_open_neighbouring_sets() -> None:
    """Both lists were signed before either was opened; the second opening is refused."""
    it = coordinator()
    it.begun()
    of_all = it.signed(it.names)
    it.begin("second")
    it.begun()
    there = it.names[:6]
    of_some = it.signed(there)
    site = it.names[0]
    it.reply(site, "sum_unmask", it.opening(there, of_some))
    it.run = "run"
    assert it.code(site, "sum_unmask", it.opening(it.names, of_all)) == "isolates"


Spoil = Callable[[Arrays], Arrays]


def without(name: str) -> Spoil:
    return lambda payload: {n: a for n, a in payload.items() if n != name}


def swapped(name: str, array: Array | object) -> Spoil:
    return lambda payload: {**payload, name: np.asarray(array)}


@pytest.mark.parametrize(
    ("op_name", "spoil"),
    [
        ("sum_keys", without("first")),
        ("sum_keys", swapped("count", [0])),
        ("sum_keys", swapped("count", [65])),
        ("sum_keys", swapped("first", [2**62])),
        ("sum_keys", swapped("more", [1])),
        ("sum_keys", swapped("first", np.zeros(0, dtype=np.int64))),
        ("sum_shares", without("keys")),
        ("sum_shares", swapped("present", np.ones(S + 1, dtype=np.uint8))),
        ("sum_shares", swapped("present", np.full(S, 2, dtype=np.uint8))),
        ("sum_shares", swapped("keys", np.zeros((S, 5), dtype=np.uint8))),
        ("sum_shares", swapped("signatures", np.zeros((S - 1, 64), dtype=np.uint8))),
        ("moments", without("secure.present")),
        ("moments", without("secure.number")),
        ("moments", swapped("secure.bound.n", [1.0])),
        ("moments", swapped("secure.shares", np.zeros((S, 5), dtype=np.uint8))),
        ("moments", swapped("secure.shares", np.zeros((S, 148)))),
        ("sum_survivors", without("survivors")),
        ("sum_survivors", swapped("survivors", np.ones(2, dtype=np.uint8))),
        ("sum_unmask", without("signers")),
        ("sum_unmask", swapped("signatures", np.zeros((2, 64), dtype=np.uint8))),
    ],
)
def test_malformed_requests_are_refused_and_change_nothing(op_name: str, spoil: Spoil) -> None:
    it = coordinator()
    site = it.names[0]

    def tried(name: str, payload: Arrays) -> None:
        if name == op_name:
            assert it.code(site, name, spoil(payload)) == "malformed"

    tried("sum_keys", {"first": np.array([0]), "count": np.array([2])})
    keys = it.keyed()
    tried("sum_shares", keys)
    shares = it.shared(keys)
    tried("moments", it.asked() | shares[site])
    it.masked(shares)
    tried("sum_survivors", it.survivors(it.names))
    signatures = it.signed(it.names)
    tried("sum_unmask", it.opening(it.names, signatures))
    it.reply(site, "sum_unmask", it.opening(it.names, signatures))


@pytest.mark.parametrize(
    ("x", "bounds"),
    [
        (np.array([1.0, 3.0]), {"x": 2.0}),
        (np.array([1.0, np.nan]), {"x": 2.0}),
        (np.array([1.0, np.inf]), {"x": 1e300}),
        (np.array([5]), {"x": 4}),
        (np.array([1.0]), {"x": 4}),
        (np.array([1.0, 2.0]), {"x": np.array([2.0, 1.0])}),
        (np.array([1.0]), {"y": 2.0}),
        (np.array([1.0]), {}),
    ],
    ids=range(8),
)
def test_replies_that_do_not_fit_their_bounds_are_not_masked(x: Array, bounds: Any) -> None:
    it = coordinator()
    shares = it.shared(it.keyed())
    half, present = participant(it, it.names[0]), it.flags(it.names)
    envelope = Envelope(number=0, present=present, shares=shares[it.names[0]]["secure.shares"])
    place = half.prepare(it.run, envelope)
    with pytest.raises((InputError, KeyError)):
        half.mask(place, b"asked", {"x": x}, bounds, least=0)
    # Nothing left under this number.
    assert half._runs[it.run].last is None
    half.mask(place, b"asked", {"x": np.array([1.0])}, {"x": 2.0}, least=0)


def test_a_reply_beyond_its_bound_ends_the_run_and_nothing_leaves() -> None:
    it = coordinator()
    shares = it.shared(it.keyed(count=4))
    it.masked(shares)
    it.masked(shares, number=1)
    site = it.names[0]
    beyond = pack(EchoRequest(x=np.array([3.0]), bound=np.array([2.0])))
    left = len(it.federation.sites[site].egress)
    assert it.code(site, "echo", beyond | it.envelope(2)) == "aborted"
    good = pack(EchoRequest(x=np.array([1.0]), bound=np.array([2.0])))
    assert it.code(site, "echo", good | it.envelope(3)) == "aborted"
    assert len(it.federation.sites[site].egress) == left


def test_a_bound_that_is_told_too_low_ends_the_run_and_still_counts_in_the_meter() -> None:
    """It depends on the product: repeated requests must not get past the meter."""
    it = coordinator()
    shares = it.shared(it.keyed(count=4))
    it.masked(shares)
    it.masked(shares, number=1)
    site = it.federation.sites[it.names[0]]
    assert site.meter.rank_fraction == 0.0
    asked = pack(ProductRequest(basis=np.eye(D)[:, :1], most=1e-9)) | it.envelope(2)
    assert it.code(it.names[0], "product", asked) == "aborted"
    assert site.meter.rank_fraction == pytest.approx(1 / D)


@pytest.mark.parametrize("off", [(-1, 0), (0, -1), (50, 0), (0, 50), (2000, 0)])
def test_magnitudes_below_the_site_s_own_or_far_above_are_refused(off: tuple[int, int]) -> None:
    """Bounds follow from them: wide ones would round a sum so that single sites show."""
    it = coordinator()
    shares = it.shared(it.keyed())
    site = it.names[0]
    entry, weight = (own + more for own, more in zip(declared(it, site), off, strict=True))
    told = {"entry": np.array([entry]), "weight": np.array([weight])}
    assert it.code(site, "moments", told | it.envelope() | shares[site]) == "invalid"
    assert it.code(site, "moments", it.envelope() | shares[site]) == "invalid"
    it.reply(site, "moments", it.asked() | shares[site])


def declared(it: Coordinator, site: str) -> tuple[int, int]:
    """The powers of two that a site has answered in this run."""
    found = it.federation.sites[site]._runs[it.run].state.declared
    assert found is not None
    return found


def test_only_what_is_meant_for_a_sum_goes_into_one() -> None:
    it = coordinator()
    it.begin("other")
    site = it.federation.sites[it.names[0]]
    study = it.federation.study(Showing(), 3)
    site.answer(opening("third", study))
    asked = Message("request", "third", 0, "magnitude", it.envelope()).to_bytes()
    assert Message.from_bytes(site.answer(asked), "refusal").label == "script"
    assert it.code(it.names[0], "sum_keys", it.envelope()) == "malformed"


def test_a_site_that_wants_secure_sums_lets_nothing_else_leave() -> None:
    it = coordinator()
    site = it.federation.sites[it.names[0]]
    plain = study_of(it.names, 1, "krylov")
    assert Talk(site, plain, "plain").opens() == "unmasked"
    open_site = secured(TABLES, policy=Policy()).sites[it.names[0]]
    assert Talk(open_site, plain, "plain").opens() == ""


def test_in_a_run_of_secure_sums_nothing_leaves_without_a_mask() -> None:
    """Also at a site whose policy would not mind."""
    for policy in (Policy(), Policy(secure_only=True)):
        it = coordinator(policy)
        site = it.names[0]
        assert it.code(site, "moments", pack(it.moments)) == "unmasked"
        shares = it.shared(it.keyed())
        it.masked(shares)
        assert it.code(site, "spread", pack(it.wanted(1))) == "unmasked"
        it.masked(shares, number=1)
        asked = ProductRequest(basis=np.eye(D)[:, :1], most=1.0)
        assert it.code(site, "product", pack(asked)) == "unmasked"
        left = [line for line in it.federation.sites[site].egress if not line.masked]
        assert {line.op for line in left} == {"magnitude", "sum_keys", "sum_shares"}
        assert it.federation.sites[site].meter.rank_fraction == 0.0


def test_a_site_without_an_identity_says_so() -> None:
    bare = gate("a", np.ones((3, 2)))
    assert Talk(bare, study_of("abc", 1, secure=True)).opens() == "no_identity"


def test_a_study_of_other_sites_than_the_roster_s_is_refused() -> None:
    site = secured(TABLES).sites["s00"]
    for names in (["s00", "s01", "s02"], [*TABLES, "s07"], [f"t{name}" for name in TABLES]):
        assert Talk(site, study_of(names, 1, secure=True)).opens() == "other_sites"
    assert Talk(site, study_of(TABLES, 1, secure=True)).opens() == ""


def test_methods_that_need_single_replies_are_refused_at_the_door() -> None:
    site = secured(TABLES).sites["s00"]
    for method in ("merge", "power"):
        assert Talk(site, study_of(TABLES, 1, method, secure=True)).opens() == "not_a_sum"
    told = study_of(TABLES, 1, secure=True, by_site=True)
    assert Talk(site, told).opens() == "unmasked"


def test_identity_and_roster_go_together_and_fit() -> None:
    identities = identified("abc")
    roster, rows = Roster.of(identities), np.ones((3, 2))
    with pytest.raises(InputError, match="'a' has only one of identity and roster"):
        gate("a", rows, identity=identities["a"])
    with pytest.raises(InputError, match="'a' has only one of identity and roster"):
        gate("a", rows, roster=roster)
    with pytest.raises(InputError, match="does not list site 'a' with the public key"):
        gate("a", rows, identity=identities["b"], roster=roster)
    with pytest.raises(InputError, match="does not list site 'd' with the public key"):
        gate("d", rows, identity=identities["a"], roster=roster)


def test_requests_for_keys_do_not_count_as_rounds() -> None:
    it = coordinator(Policy(secure_only=True, max_rounds=2))
    it.begun()
    signatures = it.signed(it.names)
    it.reply(it.names[0], "sum_unmask", it.opening(it.names, signatures))
    assert it.code(it.names[0], "spread", it.asked(1)) == "rounds"


def test_the_egress_log_says_what_left_masked() -> None:
    it = coordinator()
    it.begun()
    size, keys, shares, sums = it.federation.sites[it.names[0]].egress
    assert [line.masked for line in (size, keys, shares, sums)] == [False, False, False, True]
    assert sums.release is moments.release
    assert keys.release.reveals is Reveals.NOTHING
    assert sums.shapes["total"] == (D,)


def test_secrets_are_forgotten_once_a_sum_is_open() -> None:
    it = coordinator()
    it.begun()
    half = participant(it, it.names[0])
    batch = half._runs["run"].batch
    assert batch is not None
    assert sorted(batch.secrets) == sorted(batch.held) == [0, 1]
    it.reply(it.names[0], "sum_unmask", it.opening(it.names, it.signed(it.names)))
    assert sorted(batch.secrets) == sorted(batch.held) == [1]


def test_no_secret_shows_in_what_python_prints() -> None:
    it = coordinator()
    it.begun()
    half = participant(it, it.names[0])
    run = half._runs["run"]
    assert run.batch is not None
    shown = repr([half, run, run.batch, run.last, run.batch.secrets, run.batch.held])
    for secret in run.batch.secrets.values():
        assert repr(secret.seed)[2:-1] not in shown
        assert secret.seed.hex() not in shown


def test_rows_of_signatures_are_read_in_the_order_of_the_roster() -> None:
    it = coordinator()
    it.begun()
    signatures = it.signed(it.names)
    turned = stack_rows(list(reversed(signatures.values())))
    opening = {**it.opening(it.names, signatures), "signatures": turned}
    assert it.code(it.names[0], "sum_unmask", opening) == "signature"
