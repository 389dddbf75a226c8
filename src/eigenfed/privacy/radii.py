"""Radii that are searched for by counting rows: where to look, in what steps, in what units."""

WIDEST = (-24.0, 40.0)
"""Between which powers of two a radius is looked for when nothing is known."""

WIDE_ASKS, NARROW_ASKS = 7, 4
"""How many counts a search takes in the widest range, and in four octaves."""

COUNT_UNIT = 1024
"""A count is noised in these parts, so that its noise is as good as continuous."""


def edge(i: float, low: float, high: float, asks: int) -> float:
    """Return the i-th of the radii that cut a range of powers of two into ``2**asks`` cells.

    Examples
    --------
    >>> [edge(i, 0.0, 2.0, asks=1) for i in range(3)]
    [1.0, 2.0, 4.0]
    """
    return float(2.0 ** (low + (high - low) * i / (1 << asks)))
