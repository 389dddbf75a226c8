"""Sums with noise, each for a share of the budget, and radii found by counting with noise."""

import math
from dataclasses import dataclass, replace

import numpy as np

from eigenfed.arrays import Array, Arrays
from eigenfed.errors import ProtocolError
from eigenfed.privacy.gaussian import discrete_gaussian
from eigenfed.privacy.noise import Draw, Noise
from eigenfed.privacy.radii import COUNT_UNIT, edge
from eigenfed.privacy.sensitivity import RELATIONS
from eigenfed.privacy.terms import Privacy
from eigenfed.protocol.core import Ask, Protocol
from eigenfed.protocol.private_site import noise_of_count
from eigenfed.protocol.totals import Total

_MOST_DEVIATIONS = 40.0
_UNLIKELY_DEVIATIONS = 12.0


@dataclass(eq=False)
class Spender:
    """Asks for noised sums, each for a share of the budget.

    Attributes
    ----------
    privacy : Privacy
    total : Total
    rows : dict of str to int
        Number of rows of each site, as it says.
    present : tuple of str
        The sites in the last sum.
    draw : callable
        Noise of a coordinator that is trusted to add it.
    """

    privacy: Privacy
    total: Total
    rows: dict[str, int]
    draw: Draw = discrete_gaussian
    present: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """Number of rows of the sites that are there."""
        return sum(self.rows[site] for site in self.present or self.rows)

    @property
    def parties(self) -> int:
        """Over how many sites noise is split; 0 where the coordinator adds it."""
        match self.privacy.trust:
            case "secure_sum":
                return len(self.rows) - self.privacy.tolerate
            case "local":
                return 1
            case _:
                return 0

    def deviation(self, noise: Noise, share: float) -> float:
        """Return the standard deviation of the noise on a sum over all sites."""
        parts = len(self.rows) / self.parties if self.parties else 1.0
        return noise.sensitivity / (self.privacy.mu * math.sqrt(share)) * math.sqrt(parts)

    def count_deviation(self, share: float) -> float:
        """Return the standard deviation of the noise on a number of rows."""
        return self.deviation(noise_of_count(self.privacy.relation), share) / COUNT_UNIT

    def sum_of(
        self, op: str, name: str, payload: Arrays, noise: Noise, share: float, per_row: float
    ) -> Protocol[Array]:
        """Return one noised sum over the sites.

        Parameters
        ----------
        op, name : str
            The operation and the array of its reply.
        payload : mapping of str to ndarray
        noise : Noise
            What the reply needs.
        share : float
            Of mu squared.
        per_row : float
            Largest magnitude that one row brings to an entry.

        Raises
        ------
        ProtocolError
            If the sum is beyond what the sites' numbers of rows allow.
        """
        mu = self.privacy.mu * math.sqrt(share)
        terms = {
            "privacy.mu": np.array([mu]),
            "privacy.parties": np.array([self.parties]),
            "privacy.relation": np.array([RELATIONS.index(self.privacy.relation)]),
        }
        deviation = self.deviation(noise, share)
        bound = math.ceil(sum(self.rows.values()) * per_row + _MOST_DEVIATIONS * deviation)
        ask = Ask(op, payload | terms, bounds={name: bound})
        if self.privacy.tolerate:
            ask = replace(ask, quorum=self.parties)
        answer = yield from self.total(ask)
        self.present = self.total.summed
        if not self.parties:
            answer = noise.added({name: answer[name]}, mu, 1, self.draw)
        found = answer[name].astype(np.float64)
        if np.abs(found).max() > self.n * per_row + _UNLIKELY_DEVIATIONS * deviation:
            raise ProtocolError(
                f"The noised sum of {op!r} is beyond what {self.n} rows can give: a site has said "
                "a wrong number of rows, or sent garbage. Ask the sites to check."
            )
        return found


def radius_about(
    spender: Spender,
    share: float,
    center: Array,
    quantile: float,
    low: float,
    high: float,
    asks: int,
    *,
    open_ended: bool = False,
    upper: bool = False,
) -> Protocol[float]:
    """Search for the radius about the centre that holds a part of the rows.

    Parameters
    ----------
    low, high : float
        Between which powers of two.
    open_ended : bool
        Whether an end of the range is an answer; otherwise it says that the range is wrong.
    upper : bool
        Whether to return the end of the last cell, which holds that part at least, or its middle.
    """
    noise, each = noise_of_count(spender.privacy.relation), share / asks
    deviation = spender.count_deviation(each)
    if deviation > spender.n / 2:
        raise ProtocolError(
            f"{spender.n} rows are too few to be counted privately at this epsilon: counts would "
            f"have noise of {deviation:.0f}. Raise epsilon, or leave no search to be made: pass a "
            "public clip and shares={'scree': 0.0}."
        )
    below, above = 0, 1 << asks
    while above - below > 1:
        middle = (below + above) // 2
        payload = {"center": center, "radius": np.array([edge(middle, low, high, asks)])}
        count = yield from spender.sum_of(
            "private_within", "count", payload, noise, each, float(COUNT_UNIT)
        )
        if count[0] >= quantile * spender.n * COUNT_UNIT:
            above = middle
        else:
            below = middle
    if not open_ended and (below == 0 or above == 1 << asks):
        raise ProtocolError(
            f"The norms of the rows are not between 2^{low:g} and 2^{high:g}, as far as noisy "
            "counts tell. Pass a public clip, or rows in other units."
        )
    return edge(above if upper else below + 0.5, low, high, asks)
