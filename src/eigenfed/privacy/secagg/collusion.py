"""How many sites may collude with the coordinator before single replies can be unmasked.

Of S sites, any t hold enough secret shares to recover the secrets of a site, and a list of
survivors is opened if t sites have signed it. In a sum with noise, l sites may be lost. With c
colluding sites:

- they recover both masks of every site by themselves if c is at least t;
- if a list may lack sites (l > 0), one part of the honest sites can be shown another list than the
  rest. Both lists are opened if S + c is at least 2 t, and together they reveal both masks of a
  site that is on one of them only;
- on a ring (`topology`), they can cut off a few neighbours if c + l reaches the degree.

A single reply, or the sum over a few sites, has only their part of the noise. So the guarantee
against colluding sites holds for fewer of them only. At least two honest sites must be left, too.
"""

FEW_SITES = 16
_MOST_NEIGHBOURS = 32


def count_neighbours(sites: int, threshold: int) -> int:
    """Return the number of sites that each of the others masks with.

    Examples
    --------
    >>> count_neighbours(10, threshold=7), count_neighbours(50, threshold=34)
    (9, 32)
    """
    if sites <= FEW_SITES:
        return sites - 1
    enough = (sites - threshold) + sites // 3 + 1
    return min(enough + enough % 2, _MOST_NEIGHBOURS, sites - 1)


def count_tolerable(sites: int, threshold: int, dropouts: int) -> int:
    """Return the largest number of colluding sites against which noise holds; it may be negative.

    Parameters
    ----------
    sites : int
    threshold : int
        Number of sites that must complete a sum, and of shares that recover a secret.
    dropouts : int
        Number of other sites that may be lost from a sum.

    Examples
    --------
    >>> [count_tolerable(10, 7, dropouts) for dropouts in (0, 1)], count_tolerable(60, 41, 0)
    ([6, 3], 31)
    """
    by_shares = threshold - 1 if dropouts == 0 else 2 * threshold - sites - 1
    neighbours = count_neighbours(sites, threshold)
    on_ring = neighbours - dropouts - 1 if neighbours < sites - 1 else sites
    return min(by_shares, on_ring, sites - dropouts - 2)
