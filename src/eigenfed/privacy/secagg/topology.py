"""Which sites mask with which: all with all where they are few, a ring of neighbours where many.

A mask costs each of two sites a stream as long as the reply, so its number is bounded; shares are
small and go to all. Sites stand on a ring, in an order that follows from the roster alone, and
each masks with its ``width`` next ones on either side. What a coordinator can tell is the sum over
each piece into which the ring falls when it is cut at the sites that dropped out, whose masks are
opened, and at those that collude with it. A cut takes two gaps of `width` places. So with
``2 width`` neighbours and d dropouts no ``2 width - d - 1`` colluding sites can tell more than the
sum over all others: this holds for every choice of them and needs no randomness in the ring.

The degree is chosen so that this covers a third colluding beside as many dropouts as the threshold
lets pass, up to 48 sites; then it stays at 32. Sites look at who dropped out all the same, and
refuse where fewer than eight colluding sites might cut what is left, which up to 74 sites no
dropouts above the threshold can bring about. A random graph of the same degree, as in
Bell et al. 2020, promises more for many thousands of sites; for tens, the chance that all of a
site's 16 neighbours are bad would be no small one, and whoever names the runs could draw again
until it happens.
"""

from hashlib import sha256

import numpy as np

from eigenfed.privacy.secagg.identity import Roster
from eigenfed.privacy.secagg.masking import context

FEW_SITES = 16
_MOST_NEIGHBOURS = 32
_LEAST_TO_CUT = 8


class Ring:
    """The neighbours of each site of a roster.

    Parameters
    ----------
    roster : Roster

    Attributes
    ----------
    degree : int
        With how many others each site masks.

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
        self.degree = size - 1
        if size > FEW_SITES:
            enough = (size - roster.threshold) + size // 3 + 1
            self.degree = min(enough + enough % 2, _MOST_NEIGHBOURS, size - 1)
        self._is_whole = self.degree == size - 1
        self._order = sorted(roster.sites, key=lambda name: _mark(roster, name))
        self._where = {name: i for i, name in enumerate(self._order)}

    def of(self, site: str) -> tuple[str, ...]:
        """Return the sites that a site masks with, sorted."""
        if self._is_whole:
            return tuple(sorted(name for name in self._order if name != site))
        here, size, width = self._where[site], len(self._order), self.degree // 2
        steps = [step for step in range(-width, width + 1) if step != 0]
        return tuple(sorted(self._order[(here + step) % size] for step in steps))

    def holds(self, survivors: frozenset[str]) -> bool:
        """Say whether what is left hides single sites from a few that collude.

        The fewest sites whose collusion could cut the ring are those left in the two emptiest
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


def _mark(roster: Roster, site: str) -> bytes:
    return sha256(context("ring", roster.digest, site)).digest()
