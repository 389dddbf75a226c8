"""What a private stream must know before it can begin: a radius, and a mean, from its first rows.

Each step looks at rows of its own, which nothing else ever sees. A row is in one step only, so
that each step may spend the whole budget (parallel composition; rows are told apart by their
place in the stream, so this holds where a row is replaced, not where one is inserted).
"""

import math

import numpy as np

from eigenfed.arrays import Array
from eigenfed.errors import InputError
from eigenfed.privacy.gaussian import discrete_gaussian
from eigenfed.privacy.grid import about, lengths, on_grid
from eigenfed.privacy.noise import Draw, Noise
from eigenfed.privacy.radii import COUNT_UNIT, edge
from eigenfed.privacy.sensitivity import of_count, of_total

_GRID = 1 << 20
_COUNT_DEVIATIONS = 12.0
_MEAN_DEVIATIONS = 8.0


class RadiusStep:
    """A binary search for the radius that holds a part of the rows, on fresh rows for each count.

    Parameters
    ----------
    center : ndarray of shape (d,)
    low, high : float
        Between which powers of two to look.
    asks : int
        How many counts; they cut the range into ``2**asks``.
    quantile : float
        The part to hold.
    mu : float
        What each count spends.
    relation : str
    draw : callable

    Attributes
    ----------
    room : int
        How many rows it still takes.
    """

    def __init__(
        self,
        center: Array,
        low: float,
        high: float,
        *,
        asks: int,
        quantile: float,
        mu: float,
        relation: str,
        draw: Draw = discrete_gaussian,
    ) -> None:
        self._center, self._low, self._high = center, low, high
        self._asks, self._quantile, self._mu, self._draw = asks, quantile, mu, draw
        self._noise = Noise(COUNT_UNIT * of_count(relation))
        self._block = math.ceil(_COUNT_DEVIATIONS / mu)
        self._below, self._above = 0, 1 << asks
        self._count = 0
        self.room = self._block * asks

    @property
    def radius(self) -> float:
        """The middle of what is left of the range."""
        return self._edge((self._below + self._above) / 2)

    @property
    def upper(self) -> float:
        """The upper end of what is left of the range, which holds the part at least."""
        return self._edge(self._above)

    @property
    def at_end(self) -> bool:
        """Whether the search ended at an end of the range: the range is wrong."""
        return self._below == 0 or self._above == 1 << self._asks

    def take(self, rows: Array) -> None:
        """Look at rows, at most as many as there is room for."""
        while len(rows):
            wanted = (self.room - 1) % self._block + 1
            here, rows = rows[:wanted], rows[wanted:]
            middle = self._edge((self._below + self._above) // 2)
            self._count += int((lengths(about(here, self._center)) <= middle).sum())
            self.room -= len(here)
            if self.room % self._block == 0:
                self._halve()

    def _halve(self) -> None:
        exact = {"count": np.array([self._count * COUNT_UNIT])}
        count = int(self._noise.added(exact, self._mu, 1, self._draw)["count"][0])
        self._count = 0
        middle = (self._below + self._above) // 2
        if count >= self._quantile * self._block * COUNT_UNIT:
            self._above = middle
        else:
            self._below = middle

    def _edge(self, i: float) -> float:
        return edge(i, self._low, self._high, self._asks)


class MeanStep:
    """The noisy mean of rows about a centre, clipped to a radius.

    Parameters
    ----------
    center : ndarray of shape (d,)
    radius : float
    mu : float
    relation : str
    draw : callable

    Attributes
    ----------
    room : int
        How many rows it still takes.
    """

    def __init__(
        self,
        center: Array,
        radius: float,
        *,
        mu: float,
        relation: str,
        draw: Draw = discrete_gaussian,
    ) -> None:
        self._center, self._radius = center, radius
        self._mu, self._relation, self._draw = mu, relation, draw
        d = len(center)
        self._total = np.zeros(d)
        self._n = self.room = math.ceil(_MEAN_DEVIATIONS * math.sqrt(d) / mu)
        if self._n * _GRID >= 1 << 53:
            raise InputError(f"{d} features are too many for a private mean. Centre beforehand.")

    def take(self, rows: Array) -> None:
        """Add rows, at most as many as there is room for."""
        self._total += on_grid(about(rows, self._center), self._radius, _GRID).sum(axis=0)
        self.room -= len(rows)

    def mean(self) -> Array:
        """Draw the noise; called once, when there is no more room."""
        noise = Noise(of_total(_GRID, self._relation))
        exact = {"total": self._total.astype(np.int64)}
        total = noise.added(exact, self._mu, 1, self._draw)["total"]
        mean: Array = self._center + total * (self._radius / _GRID / self._n)
        return mean
