"""Identities, rosters, and who masks with whom."""

from itertools import combinations

import numpy as np
import pytest

from eigenfed.errors import InputError
from eigenfed.privacy.secagg.identity import Identity, Roster
from eigenfed.privacy.secagg.topology import Ring


def roster(size: int, seed: int = 0) -> Roster:
    rng = np.random.default_rng([seed, size])
    return Roster.of({f"s{i:03}": Identity.from_bytes(rng.bytes(32)) for i in range(size)})


def pieces(ring: Ring, left: set[str]) -> int:
    """Count the pieces that the neighbours among those left fall into."""
    unseen, found = set(left), 0
    while unseen:
        found, edge = found + 1, {unseen.pop()}
        while edge:
            edge = {near for name in edge for near in ring.of(name)} & unseen
            unseen -= edge
    return found


def test_a_signature_is_good_for_one_site_and_one_statement() -> None:
    identities = {name: Identity.generate() for name in "abc"}
    known = Roster.of(identities)
    signature = identities["a"].sign(b"so")
    assert known.signed("a", b"so", signature)
    assert not known.signed("b", b"so", signature)
    assert not known.signed("a", b"not so", signature)
    assert not known.signed("a", b"so", bytes(64))


def test_an_identity_survives_as_bytes_and_hides_them() -> None:
    mine = Identity.generate()
    again = Identity.from_bytes(mine.to_bytes())
    assert again.sign(b"so") == mine.sign(b"so")
    assert mine.to_bytes().hex() not in repr(mine)
    with pytest.raises(InputError, match="has 31 bytes and must have 32"):
        Identity.from_bytes(bytes(31))


def test_the_digest_tells_rosters_apart_whatever_the_order() -> None:
    keys = roster(4).keys
    names = list(keys)
    same = Roster(dict(reversed(keys.items())))
    assert same.digest == Roster(keys).digest
    assert same.sites == tuple(sorted(names))
    swapped = {**keys, names[0]: keys[names[1]], names[1]: keys[names[0]]}
    others = [
        Roster(swapped),
        Roster({f"x{name}": key for name, key in keys.items()}),
        Roster({name: keys[name] for name in names[1:]}),
        Roster({**keys, names[0]: Identity.generate().public}),
    ]
    assert len({r.digest for r in (same, *others)}) == 5


@pytest.mark.parametrize(("size", "threshold"), [(3, 3), (4, 3), (5, 4), (6, 5), (10, 7), (50, 34)])
def test_more_than_two_thirds_must_be_there(size: int, threshold: int) -> None:
    assert roster(size).threshold == threshold
    assert 3 * threshold > 2 * size >= 3 * (threshold - 1)


def test_rosters_that_protect_nobody_are_refused() -> None:
    key = Identity.generate().public
    with pytest.raises(
        InputError, match="The roster has 2 sites and secure aggregation needs at least 3"
    ):
        Roster({"a": key, "b": Identity.generate().public})
    with pytest.raises(InputError, match="Two sites of the roster have the same key"):
        Roster({"a": key, "b": key, "c": Identity.generate().public})
    with pytest.raises(InputError, match="The key of site 'c' is not a public Ed25519 key"):
        Roster({"a": key, "b": Identity.generate().public, "c": b"no key"})


@pytest.mark.parametrize(
    ("size", "degree"), [(3, 2), (16, 15), (17, 12), (30, 20), (48, 32), (50, 32), (300, 32)]
)
def test_the_number_of_neighbours_is_bounded(size: int, degree: int) -> None:
    members = roster(size)
    ring = Ring(members)
    assert ring.degree == degree
    near = {name: ring.of(name) for name in members.sites}
    for name, others in near.items():
        assert len(others) == len(set(others)) == degree
        assert name not in others
        assert all(name in near[other] for other in others)


@pytest.mark.parametrize("size", [17, 30, 48])
def test_a_third_that_drops_out_and_a_third_that_colludes_do_not_cut_the_ring(size: int) -> None:
    """All places of two gaps are tried, which is how a ring can be cut."""
    members = roster(size)
    ring = Ring(members)
    gone = (size - members.threshold) + size // 3
    order = ring._order
    for first, start in combinations(range(gone + 1), 2):
        gap = {order[i] for i in range(first)}
        gap |= {order[(start + i) % size] for i in range(first, gone)}
        assert pieces(ring, set(order) - gap) == 1


def test_a_ring_is_cut_by_two_gaps_of_half_the_degree_and_sites_would_see_it() -> None:
    members = roster(50)
    ring = Ring(members)
    order, half = ring._order, ring.degree // 2
    gone = {*order[:half], *order[half + 5 : 2 * half + 5]}
    left = frozenset(order) - gone
    assert pieces(ring, set(left)) == 2
    assert not ring.holds(left)
    # With one more in each gap they are one piece, held together by two sites: too few.
    more = left | {order[3], order[half + 9]}
    assert pieces(ring, set(more)) == 1
    assert not ring.holds(more)


@pytest.mark.parametrize("size", [3, 10, 17, 30, 50, 74])
def test_any_dropouts_down_to_the_threshold_leave_a_ring_that_holds(size: int) -> None:
    members = roster(size)
    ring = Ring(members)
    lost = size - members.threshold
    for start in range(size):
        gone = {ring._order[(start + i) % size] for i in range(lost)}
        assert ring.holds(frozenset(members.sites) - gone)


def test_the_ring_follows_from_the_roster_alone() -> None:
    one, again, other = Ring(roster(40)), Ring(roster(40)), Ring(roster(40, seed=1))
    assert one._order == again._order != other._order
