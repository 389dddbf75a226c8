"""Sums over different sites give nobody away, whatever is combined with what."""

from collections.abc import Collection
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenfed.privacy.secagg.differencing import Sites, find_isolated_groups

SITES = "abcdefgh"


def reach(rosters: Collection[Sites], group: Sites) -> int:
    """How many combinations are about the group alone: the rank that goes with its columns."""
    if not rosters:
        return 0
    whole = np.array([[float(s in roster) for s in SITES] for roster in rosters])
    rest = whole[:, [s not in group for s in SITES]]
    return int(np.linalg.matrix_rank(whole) - np.linalg.matrix_rank(rest))


@given(
    rosters=st.lists(st.frozensets(st.sampled_from(SITES), min_size=1), min_size=1, max_size=5),
    fewest=st.integers(0, 4),
)
def test_groups_that_are_isolated_are_those_whose_columns_hold_rank(
    rosters: list[Sites], fewest: int
) -> None:
    new, *earlier = rosters
    found = find_isolated_groups(new, earlier, fewest)
    gained = {
        frozenset(group)
        for size in range(1, fewest)
        for group in combinations(SITES, size)
        if reach(rosters, frozenset(group)) > reach(earlier, frozenset(group))
    }
    assert set(found) <= gained
    assert all(any(small <= group for small in found) for group in gained)
    assert bool(found) == bool(gained)


@pytest.mark.parametrize(
    ("new", "earlier", "isolated"),
    [
        ("abc", [], []),
        ("ab", [], ["ab"]),
        ("abcd", ["abc"], ["d"]),
        ("abcde", ["abc"], ["de"]),
        ("abcdef", ["abc"], []),
        ("abcd", ["abcf"], ["df"]),
        ("abcdefg", ["abc", "efg"], ["d"]),
        ("abcd", ["abcd"], []),
        ("abcd", ["abcd", "abc"], []),
        ("efgh", ["abcd", "abc"], []),
    ],
)
def test_a_site_or_a_pair_is_isolated_by(new: str, earlier: list[str], isolated: list[str]) -> None:
    found = find_isolated_groups(frozenset(new), [frozenset(e) for e in earlier], fewest=3)
    assert found == [frozenset(group) for group in isolated]


def test_many_sites_and_runs_are_judged_without_going_through_all_pairs() -> None:
    sites = [f"site {i:03}" for i in range(200)]
    blocks = [frozenset(sites[i : i + 10]) for i in range(0, 200, 10)]
    assert find_isolated_groups(frozenset(sites), blocks, fewest=3) == []
    assert find_isolated_groups(frozenset(sites[1:]), blocks, fewest=3) == [frozenset({sites[0]})]
