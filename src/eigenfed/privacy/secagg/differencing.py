"""Which sites can be told apart from the others by sums over different sets of sites.

Two sums over sets that differ by one site give that site away. So do three sums that differ by
three sites or more from one another: over {1..7}, {1, 2, 3} and {5, 6, 7} the first less the two
others is site 4 alone. What weighted combinations of the sums reach is the span of the sets'
indicator vectors, and a few sites are exposed when a vector of that span is zero everywhere else.
"""

from collections.abc import Collection, Iterator
from fractions import Fraction
from itertools import combinations

Sites = frozenset[str]
_Vector = dict[str, Fraction]


def isolated_by(roster: Sites, earlier: Collection[Sites], fewest: int) -> list[Sites]:
    """Return the groups of few sites about which a sum over `roster` tells more than there is.

    Parameters
    ----------
    roster : frozenset of str
        The sites of the sum that is asked for.
    earlier : collection of frozenset of str
        Those of the sums before.
    fewest : int
        The size from which on a group is large enough to be summed over.

    Returns
    -------
    list of frozenset of str
        Groups of fewer sites, over which some combination of all sums can be formed that could
        not be formed before.

    Examples
    --------
    >>> isolated_by(frozenset("abc"), [frozenset("abcd")], fewest=3)
    [frozenset({'d'})]
    >>> isolated_by(frozenset("abcd"), [frozenset("abcd")], fewest=3)
    []
    """
    rosters = {roster, *earlier}
    before, after = _reduced(set(earlier)), _reduced(rosters)
    groups = _small_groups(rosters, fewest)
    return [group for group in groups if _reach(after, group) > _reach(before, group)]


def _small_groups(rosters: Collection[Sites], fewest: int) -> Iterator[Sites]:
    """Give the groups of fewer than `fewest` sites that a combination can be about.

    Sites that are always summed over together stay together in every combination.
    """
    always: dict[tuple[bool, ...], set[str]] = {}
    for site in sorted(frozenset().union(*rosters)):
        always.setdefault(tuple(site in roster for roster in rosters), set()).add(site)
    small = [sites for sites in always.values() if len(sites) < fewest]
    for count in range(1, fewest):
        for together in combinations(small, count):
            group = frozenset().union(*together)
            if len(group) < fewest:
                yield group


def _reach(reduced: dict[str, _Vector], group: Sites) -> int:
    """Return how many independent combinations are zero outside a group.

    In reduced form a combination shows the weight of each row at that row's pivot. One that is
    zero outside the group thus takes only rows whose pivots are inside.
    """
    inside = [row for pivot, row in reduced.items() if pivot in group]
    outside = [{s: x for s, x in row.items() if s not in group} for row in inside]
    return len(inside) - len(_echelon(outside))


def _reduced(rosters: Collection[Sites]) -> dict[str, _Vector]:
    return _echelon([dict.fromkeys(roster, Fraction(1)) for roster in rosters])


def _echelon(vectors: Collection[_Vector]) -> dict[str, _Vector]:
    """Return the rows of the reduced echelon form by their pivots, exactly."""
    found: dict[str, _Vector] = {}
    for vector in vectors:
        row = vector
        for pivot, known in found.items():
            row = _less(row, known, row.get(pivot))
        if row:
            pivot = min(row)
            row = {site: x / row[pivot] for site, x in row.items()}
            found = {p: _less(known, row, known.get(pivot)) for p, known in found.items()}
            found[pivot] = row
    return found


def _less(row: _Vector, other: _Vector, times: Fraction | None) -> _Vector:
    """Return a row less so many times another, without the entries that become zero."""
    if times is None:
        return row
    less = {s: row.get(s, Fraction(0)) - times * other.get(s, Fraction(0)) for s in {*row, *other}}
    return {site: x for site, x in less.items() if x}
