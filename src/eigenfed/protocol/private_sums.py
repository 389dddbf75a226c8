"""Sums with noise, each for a share of the budget, and radii found by counting with noise."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eigenfed.arrays import Array
from eigenfed.errors import Name, ProtocolError
from eigenfed.privacy.gaussian import discrete_gaussian
from eigenfed.privacy.noise import Draw, Noise
from eigenfed.privacy.radii import COUNT_UNIT, edge
from eigenfed.privacy.terms import Privacy
from eigenfed.protocol.codec import pack
from eigenfed.protocol.core import Ask, Protocol
from eigenfed.protocol.ops import Request
from eigenfed.protocol.private_schedule import Spend, spending, terms_of
from eigenfed.protocol.private_site import CountRequest, WithinRequest, noise_of_count
from eigenfed.protocol.study import Study
from eigenfed.protocol.totals import Total

_MOST_DEVIATIONS = 40.0
_UNLIKELY_DEVIATIONS = 12.0


@dataclass(eq=False)
class Spender:
    """Asks for noised sums by the run's schedule, each for its part of the budget.

    Attributes
    ----------
    study : Study
    total : Total
    rows : dict of str to int
        Number of rows of each site, as it says, where it is public.
    draw : callable
        Noise of a coordinator that is trusted to add it.
    present : tuple of str
        The sites in the last sum.
    counted : int or None
        Number of all rows, as found with noise, where it is not public.
    """

    study: Study
    total: Total
    rows: dict[str, int]
    draw: Draw = discrete_gaussian
    present: tuple[str, ...] = ()
    counted: int | None = None
    _steps: Iterator[Spend] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._steps = iter(spending(self.study))

    @property
    def privacy(self) -> Privacy:
        """The terms of the study."""
        return terms_of(self.study)

    @property
    def n(self) -> int:
        """Number of rows of the sites that are there."""
        if self.counted is not None:
            return self.counted
        return sum(self.rows[site] for site in self.present or self.rows)

    @property
    def sites(self) -> int:
        """Number of sites of the study."""
        return len(self.study.sites)

    @property
    def parties(self) -> int:
        """Over how many sites noise is split; 0 where the coordinator adds it."""
        return self.privacy.parties(self.sites)

    def deviation(self, noise: Noise, share: float) -> float:
        """Return the standard deviation of the noise on a sum over all sites."""
        parts = self.sites / self.parties if self.parties else 1.0
        return noise.sensitivity / (self.privacy.mu * math.sqrt(share)) * math.sqrt(parts)

    def count_deviation(self, share: float) -> float:
        """Return the standard deviation of the noise on a number of rows."""
        return self.deviation(noise_of_count(self.privacy.relation), share) / COUNT_UNIT

    def count_rows(self, share: float) -> Protocol[None]:
        """Find the number of all rows, with noise."""
        noise = noise_of_count(self.privacy.relation)
        most = float(1 << 40) * COUNT_UNIT
        count = yield from self._noised(CountRequest(), noise, share, most)
        self.counted = max(round(float(count[0]) / COUNT_UNIT), 1)

    def sum_of(
        self, request: Request[Any], noise: Noise, share: float, per_row: float
    ) -> Protocol[Array]:
        """Return one noised sum over the sites.

        Parameters
        ----------
        request : Request
            Its reply has one array.
        noise : Noise
            What the reply needs.
        share : float
            Of mu squared, as the schedule has it.
        per_row : float
            Largest magnitude that one row brings to an entry.

        Raises
        ------
        ProtocolError
            If the sum is beyond what the sites' numbers of rows allow.
        """
        rows = sum(self.rows.values()) if self.counted is None else 2 * self.counted
        found = yield from self._noised(request, noise, share, rows * per_row)
        limit = _UNLIKELY_DEVIATIONS * self.deviation(noise, share)
        limit += (self.n if self.counted is None else rows) * per_row
        if np.abs(found).max() > limit:
            raise ProtocolError(
                f"The noised sum of {request.op!r} is beyond what {self.n} rows can give: a site "
                "has said a wrong number of rows, or sent garbage. Ask the sites to check."
            )
        return found

    def _noised(
        self, request: Request[Any], noise: Noise, share: float, most: float
    ) -> Protocol[Array]:
        step = next(self._steps, None)
        if step is None or step.op != request.op or not math.isclose(step.fraction, share):
            raise ProtocolError(f"{request.op!r} is not what the schedule of the run has next.")
        mu = self.privacy.mu * math.sqrt(step.fraction)
        largest = math.ceil(most + _MOST_DEVIATIONS * self.deviation(noise, share))
        quorum = self.sites - self.privacy.dropouts if self.privacy.dropouts else None
        ask: Ask[Any] = Ask(request, quorum=quorum, largest=largest, mu=mu)
        answer = pack((yield from self.total(ask)))
        self.present = self.total.summed
        if not self.parties:
            answer = noise.added(answer, mu, 1, self.draw)
        (found,) = answer.values()
        return np.asarray(found, dtype=np.float64)


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
            f"have noise of {deviation:.0f}",
            remedy=(
                *("Raise ", Name("epsilon"), ", or leave no search to be made: pass a public "),
                *(Name("clip"), " and shares={'scree': 0.0}."),
            ),
        )
    below, above = 0, 1 << asks
    while above - below > 1:
        middle = (below + above) // 2
        request = WithinRequest(center=center, radius=edge(middle, low, high, asks))
        count = yield from spender.sum_of(request, noise, each, float(COUNT_UNIT))
        if count[0] >= quantile * spender.n * COUNT_UNIT:
            above = middle
        else:
            below = middle
    if not open_ended and (below == 0 or above == 1 << asks):
        raise ProtocolError(
            f"The norms of the rows are not between 2^{low:g} and 2^{high:g}, as far as noisy "
            "counts tell",
            remedy=("Pass a public ", Name("clip"), ", or rows in other units."),
        )
    return edge(above if upper else below + 0.5, low, high, asks)
