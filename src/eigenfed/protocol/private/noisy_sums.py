"""Noisy sums of a private run, and radii found with them: the coordinator's half.

A `Spender` requests the sums in the order of the budget schedule, and adds the noise itself where
the coordinator is trusted. `find_radius` finds a quantile of the rows' norms by noisy counts.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eigenfed.arrays import Array
from eigenfed.errors import Name, ProtocolError
from eigenfed.privacy.dp.discrete_gaussian import Draw, Noise, discrete_gaussian
from eigenfed.privacy.dp.sensitivity import (
    COUNT_UNIT,
    search_radius,
)
from eigenfed.privacy.guarantee import Privacy
from eigenfed.protocol.core import Call, Protocol, Total
from eigenfed.protocol.messages import pack
from eigenfed.protocol.operations import Request
from eigenfed.protocol.private.budget_schedule import (
    Spend,
    list_spends,
    require_privacy,
)
from eigenfed.protocol.private.private_site import (
    CountRequest,
    WithinRequest,
    noise_of_count,
)
from eigenfed.protocol.study import Study

_MOST_SDS = 40.0
"""Bound on noise in secure aggregation, in standard deviations: never reached in practice."""
_UNLIKELY_SDS = 12.0
"""Noise beyond so many standard deviations is taken for a wrong reply of a site."""


@dataclass(eq=False)
class Spender:
    """Requests noised sums in the order of the run's schedule.

    Attributes
    ----------
    study : Study
    total : Total
    rows : dict of str to int
        Number of rows that each site reports, if it is public.
    draw : callable
        Source of noise, for a coordinator that is trusted to add it.
    present : tuple of str
        The sites in the last sum.
    counted : int or None
        Noisy number of all rows, if it is not public.
    """

    study: Study
    total: Total
    rows: dict[str, int]
    draw: Draw = discrete_gaussian
    present: tuple[str, ...] = ()
    counted: int | None = None
    _steps: Iterator[Spend] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._steps = iter(list_spends(self.study))

    @property
    def privacy(self) -> Privacy:
        """The differential privacy of the study."""
        return require_privacy(self.study)

    @property
    def n(self) -> int:
        """Number of rows of the sites in the last sum."""
        if self.counted is not None:
            return self.counted
        return sum(self.rows[site] for site in self.present or self.rows)

    @property
    def sites(self) -> int:
        """Number of sites of the study."""
        return len(self.study.sites)

    @property
    def parties(self) -> int:
        """Number of sites that the noise is split over; 0 if the coordinator adds it."""
        return self.privacy.parties(self.sites)

    def noise_sd(self, noise: Noise, fraction: float) -> float:
        """Return the standard deviation of the noise on a sum over all sites.

        The noise is split so that `parties` sites together add enough; all sites add more.
        """
        parts = self.sites / self.parties if self.parties else 1.0
        return noise.sensitivity / (self.privacy.mu * math.sqrt(fraction)) * math.sqrt(parts)

    def count_sd(self, fraction: float) -> float:
        """Return the standard deviation of the noise on a number of rows."""
        return self.noise_sd(noise_of_count(self.privacy.relation), fraction) / COUNT_UNIT

    def count_rows(self, fraction: float) -> Protocol[None]:
        """Find the number of all rows, with noise."""
        noise = noise_of_count(self.privacy.relation)
        most = float(1 << 40) * COUNT_UNIT
        count = yield from self._request_noised(CountRequest(), noise, fraction, most)
        self.counted = max(round(float(count[0]) / COUNT_UNIT), 1)

    def request_sum(
        self, request: Request[Any], noise: Noise, fraction: float, per_row: float
    ) -> Protocol[Array]:
        """Request one noised sum over the sites.

        Parameters
        ----------
        request : Request
            Its reply has one array.
        noise : Noise
            Noise of the reply.
        fraction : float
            Fraction of mu squared, as in the schedule.
        per_row : float
            Largest contribution of one row to an entry.

        Raises
        ------
        ProtocolError
            If the sum is larger than the numbers of rows allow.
        """
        rows = sum(self.rows.values()) if self.counted is None else 2 * self.counted
        total = yield from self._request_noised(request, noise, fraction, rows * per_row)
        limit = _UNLIKELY_SDS * self.noise_sd(noise, fraction)
        limit += (self.n if self.counted is None else rows) * per_row
        if np.abs(total).max() > limit:
            raise ProtocolError(
                f"The noised sum of {request.op!r} is larger than {self.n} rows allow: a site "
                "reported a wrong number of rows, or sent garbage. Ask the sites to check."
            )
        return total

    def _request_noised(
        self, request: Request[Any], noise: Noise, fraction: float, most: float
    ) -> Protocol[Array]:
        """Request the next sum of the schedule, whose entries without noise are at most `most`."""
        step = next(self._steps, None)
        if step is None or step.op != request.op or not math.isclose(step.fraction, fraction):
            raise ProtocolError(f"{request.op!r} is not the next step of the run's schedule.")
        mu = self.privacy.mu * math.sqrt(step.fraction)
        largest = math.ceil(most + _MOST_SDS * self.noise_sd(noise, fraction))
        quorum = self.sites - self.privacy.dropouts if self.privacy.dropouts else None
        call: Call[Any] = Call(request, quorum=quorum, largest=largest, mu=mu)
        reply = pack((yield from self.total(call)))
        self.present = self.total.summed
        if not self.parties:
            reply = noise.add_to(reply, mu, 1, self.draw)
        (total,) = reply.values()
        return np.asarray(total, dtype=np.float64)


def find_radius(
    spender: Spender,
    fraction: float,
    center: Array,
    quantile: float,
    low: float,
    high: float,
    steps: int,
    *,
    open_ended: bool = False,
    upper: bool = False,
) -> Protocol[float]:
    """Search for a radius about the centre within which a given proportion of the rows lies.

    Parameters
    ----------
    spender : Spender
    fraction : float
        Budget fraction of the whole search.
    center : ndarray of shape (d,)
    quantile : float
        Proportion of the rows.
    low, high : float
        The radius is searched for between these powers of two.
    steps : int
        Number of noisy counts; the range is divided into ``2**steps`` cells.
    open_ended : bool
        Whether an end of the range is a result; otherwise it is an error.
    upper : bool
        Whether to return the upper end of the last cell, which contains at least that proportion,
        or its middle.
    """
    noise, each = noise_of_count(spender.privacy.relation), fraction / steps
    sd = spender.count_sd(each)
    if sd > spender.n / 2:
        raise ProtocolError(
            f"{spender.n} rows are too few to be counted privately at this epsilon: the noise on "
            f"counts would have a standard deviation of {sd:.0f}",
            remedy=(
                *("Raise ", Name("epsilon"), ", or avoid the search for a radius: pass a public "),
                *(Name("clip"), " and shares={'scree': 0.0}."),
            ),
        )
    below, above = 0, 1 << steps
    while above - below > 1:
        middle = (below + above) // 2
        request = WithinRequest(center=center, radius=search_radius(middle, low, high, steps))
        count = yield from spender.request_sum(request, noise, each, float(COUNT_UNIT))
        if count[0] >= quantile * spender.n * COUNT_UNIT:
            above = middle
        else:
            below = middle
    if not open_ended and (below == 0 or above == 1 << steps):
        raise ProtocolError(
            f"According to noisy counts, the norms of the rows are not between 2^{low:g} and "
            f"2^{high:g}",
            remedy=("Pass a public ", Name("clip"), ", or rows in other units."),
        )
    return search_radius(above if upper else below + 0.5, low, high, steps)
