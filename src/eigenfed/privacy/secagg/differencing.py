"""Differencing attacks: which sites are isolated by sums over different rosters.

The difference of two sums whose rosters differ by one site is that site's own term. Comparing pairs
is not enough: with {1..7}, {1, 2, 3} and {5, 6, 7}, of which any two differ by at least three
sites, the first sum minus the other two is that of site 4 alone. Linear combinations of the sums
form the span of the rosters' indicator vectors, and a small group of sites is isolated if a vector
of that span is zero outside the group.
"""

from collections.abc import Collection, Iterator
from fractions import Fraction
from itertools import combinations

Sites = frozenset[str]
_Vector = dict[str, Fraction]


def find_isolated_groups(roster: Sites, earlier: Collection[Sites], fewest: int) -> list[Sites]:
    """Return the small groups of sites that a sum over `roster` would newly isolate.

    Parameters
    ----------
    roster : frozenset of str
        The sites of the requested sum.
    earlier : collection of frozenset of str
        The rosters of earlier sums.
    fewest : int
        Least size of a group over which a sum may be known.

    Returns
    -------
    list of frozenset of str
        Groups of fewer sites for which the new sum permits a combination that the earlier sums
        did not.

    Examples
    --------
    >>> find_isolated_groups(frozenset("abc"), [frozenset("abcd")], fewest=3)
    [frozenset({'d'})]
    >>> find_isolated_groups(frozenset("abcd"), [frozenset("abcd")], fewest=3)
    []
    """
    rosters = {roster, *earlier}
    before, after = _reduce_rosters(set(earlier)), _reduce_rosters(rosters)
    groups = _small_groups(rosters, fewest)
    return [
        group
        for group in groups
        if _count_combinations(after, group) > _count_combinations(before, group)
    ]


def _small_groups(rosters: Collection[Sites], fewest: int) -> Iterator[Sites]:
    """Yield the groups of fewer than `fewest` sites that a combination could isolate.

    Sites that are in the same rosters have the same weight in every combination, so groups are
    unions of such classes.
    """
    classes: dict[tuple[bool, ...], set[str]] = {}
    for site in sorted(frozenset().union(*rosters)):
        classes.setdefault(tuple(site in roster for roster in rosters), set()).add(site)
    small = [sites for sites in classes.values() if len(sites) < fewest]
    for count in range(1, fewest):
        for chosen in combinations(small, count):
            group = frozenset().union(*chosen)
            if len(group) < fewest:
                yield group


def _count_combinations(reduced: dict[str, _Vector], group: Sites) -> int:
    """Return the number of independent combinations that are zero outside a group.

    In reduced echelon form, the entry of a combination at a pivot is the weight of that row. A
    combination that is zero outside the group thus uses only rows whose pivots are inside it.
    """
    inside = [row for pivot, row in reduced.items() if pivot in group]
    outside = [{s: x for s, x in row.items() if s not in group} for row in inside]
    return len(inside) - len(_row_reduce(outside))


def _reduce_rosters(rosters: Collection[Sites]) -> dict[str, _Vector]:
    return _row_reduce([dict.fromkeys(roster, Fraction(1)) for roster in rosters])


def _row_reduce(vectors: Collection[_Vector]) -> dict[str, _Vector]:
    """Return the rows of the reduced echelon form by pivot, in exact rational arithmetic."""
    reduced: dict[str, _Vector] = {}
    for vector in vectors:
        row = vector
        for pivot, known in reduced.items():
            row = _subtract(row, known, row.get(pivot))
        if row:
            pivot = min(row)
            row = {site: x / row[pivot] for site, x in row.items()}
            reduced = {p: _subtract(known, row, known.get(pivot)) for p, known in reduced.items()}
            reduced[pivot] = row
    return reduced


def _subtract(row: _Vector, other: _Vector, times: Fraction | None) -> _Vector:
    """Return ``row - times * other`` without the entries that become zero."""
    if times is None:
        return row
    zero = Fraction(0)
    result = {s: row.get(s, zero) - times * other.get(s, zero) for s in {*row, *other}}
    return {site: x for site, x in result.items() if x}
