"""The mask graph: every pair of sites if they are few, a ring of neighbours if they are many.

A mask costs each of its two sites a key stream as long as the reply, so the number of masks is
limited; secret shares are small and go to all sites. The sites form a ring, in an order that
follows from the roster alone, and each masks with the ``width`` next ones on either side.

A coordinator learns the sum over each piece of the ring that remains connected without the sites
that dropped out, whose masks are opened, and those that collude with it. To cut the ring takes two
gaps of `width` places. So with ``2 width`` neighbours and d dropouts, any ``2 width - d - 1``
colluding sites learn no more than the sum over all others: this holds for every choice of them, and
needs no randomness in the ring.

The degree is chosen so that this covers a third of the sites colluding, in addition to as many
dropouts as the threshold permits, for up to 48 sites; beyond, it stays at 32. Sites also check who
dropped out, and refuse if fewer than eight colluding sites could cut the remaining ring; for up to
74 sites, no dropouts within the threshold can cause that. A random graph of the same degree, as in
Bell et al. (2020), guarantees more for many thousands of sites. For tens of sites, the probability
that all 16 neighbours of a site are corrupt would not be small, and a coordinator that names the
runs could draw again until it happens.
"""

from hashlib import sha256

import numpy as np

from eigenfed.privacy.secagg.collusion import count_neighbours
from eigenfed.privacy.secagg.identity import Roster
from eigenfed.privacy.secagg.masking import context

_LEAST_TO_CUT = 8


class Ring:
    """The neighbours of each site of a roster in the mask graph.

    Parameters
    ----------
    roster : Roster

    Attributes
    ----------
    degree : int
        Number of neighbours of each site.

    Examples
    --------
    >>> from eigenfed.privacy.secagg.identity import Identity
    >>> names = [f"s{i:02}" for i in range(50)]
    >>> ring = Ring(Roster.of({name: Identity.generate() for name in names}))
    >>> ring.degree, len(ring.of("s07")), "s07" in ring.of(ring.of("s07")[0])
    (32, 32, True)
    """

    def __init__(self, roster: Roster) -> None:
        size = len(roster)
        self.degree = count_neighbours(size, roster.threshold)
        self._is_whole = self.degree == size - 1
        self._order = sorted(roster.sites, key=lambda name: _ring_key(roster, name))
        self._index = {name: i for i, name in enumerate(self._order)}

    def of(self, site: str) -> tuple[str, ...]:
        """Return the neighbours of a site, sorted."""
        if self._is_whole:
            return tuple(sorted(name for name in self._order if name != site))
        here, size, width = self._index[site], len(self._order), self.degree // 2
        steps = [step for step in range(-width, width + 1) if step != 0]
        return tuple(sorted(self._order[(here + step) % size] for step in steps))

    def holds(self, survivors: frozenset[str]) -> bool:
        """Return whether the remaining ring hides single sites from a few that collude.

        The fewest sites whose collusion could cut the ring are the survivors in the two emptiest
        stretches of `width` places that do not overlap.
        """
        if self._is_whole:
            return True
        size, width = len(self._order), self.degree // 2
        left = np.array([name in survivors for name in self._order], dtype=np.int64)
        sums = np.concatenate([[0], np.cumsum(np.concatenate([left, left]))])
        stretches = sums[width : width + size] - sums[:size]
        apart = (np.arange(size)[:, None] - np.arange(size)) % size
        pairs = stretches[:, None] + stretches
        least = min(_LEAST_TO_CUT, size // 3 + 1)
        return bool(pairs[(apart >= width) & (apart <= size - width)].min() >= least)


def _ring_key(roster: Roster, site: str) -> bytes:
    return sha256(context("ring", roster.digest, site)).digest()
