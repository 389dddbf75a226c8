"""Noisy sums of a private run, and radii found with them: the coordinator's half.

A `Spender` requests the sums in the order of the budget schedule, and adds the noise itself where
the coordinator is trusted. `Norms` finds quantiles of the rows' norms in noisy counts.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eigenfed.arrays import Array, Arrays
from eigenfed.errors import InputError, Name, ProtocolError
from eigenfed.privacy.dp.discrete_gaussian import (
    Draw,
    Noise,
    discrete_gaussian,
    make_too_large_error,
)
from eigenfed.privacy.dp.norm_counts import decode_counts, decoded_sd, find_quantile
from eigenfed.privacy.dp.sensitivity import COUNT_UNIT
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.privacy.secagg.fixed_point import check_bound
from eigenfed.protocol.core import Call, Protocol, Total
from eigenfed.protocol.messages import pack
from eigenfed.protocol.operations import Request
from eigenfed.protocol.private.budget_schedule import (
    Spend,
    list_spends,
    require_privacy,
)
from eigenfed.protocol.private.private_site import CountRequest
from eigenfed.protocol.private.reply_noise import noise_of_count
from eigenfed.protocol.study import Study

_MOST_ROWS, _LARGEST_SUM = float(1 << 40), float(1 << 61)
"""Bounds on the number of rows where it is not known, and on a sum over all sites without noise."""
_MOST_SDS = 40.0
"""Bound on noise in secure aggregation, in standard deviations: never reached in practice."""
_SURE_SDS = 1.5
_QUANTILES = 20
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

    def count_rows(self, fraction: float) -> Protocol[None]:
        """Find the number of all rows, with noise."""
        noise = noise_of_count(self.privacy.relation)
        most = _MOST_ROWS * COUNT_UNIT
        reply = yield from self._request_noised(CountRequest(), noise, fraction, most)
        self.set_count(reply["count"])

    def set_count(self, count: Array) -> None:
        """Set the number of all rows to one that was released with noise."""
        self.counted = max(round(float(count[0]) / COUNT_UNIT), 1)

    def start(
        self, request: Request[Any], noise: Noise, fraction: float, per_row: float
    ) -> Protocol[Arrays]:
        """Request the first noised sums, before which the number of rows may be unknown."""
        rows = float(sum(self.rows.values())) if self.rows else _MOST_ROWS
        return (yield from self._request_noised(request, noise, fraction, rows * per_row))

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
        reply = yield from self._request_noised(request, noise, fraction, rows * per_row)
        (total,) = reply.values()
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
    ) -> Protocol[Arrays]:
        """Request the next sum of the schedule, whose entries without noise are at most `most`."""
        step = next(self._steps, None)
        if step is None or step.op != request.op or not math.isclose(step.fraction, fraction):
            raise ProtocolError(f"{request.op!r} is not the next step of the run's schedule.")
        mu = self.privacy.mu * math.sqrt(step.fraction)
        widest = max([1.0, *(float(sds.max()) for sds in noise.relative.values())])
        # It holds for the replies of single sites: together they may be as large as fits a word.
        most = min(most, _LARGEST_SUM / self.sites)
        largest = math.ceil(most + _MOST_SDS * widest * self.noise_sd(noise, fraction))
        self._check_noise(noise, mu, largest)
        quorum = self.sites - self.privacy.dropouts if self.privacy.dropouts else None
        call: Call[Any] = Call(request, quorum=quorum, largest=largest, mu=mu)
        reply = pack((yield from self.total(call)))
        self.present = self.total.summed
        if not self.parties:
            reply = noise.add_to(reply, mu, 1, self.draw)
        return {name: np.asarray(total, dtype=np.float64) for name, total in reply.items()}

    def _check_noise(self, noise: Noise, mu: float, largest: int) -> None:
        """Refuse noise that sites cannot draw or sum, before they are asked for it."""
        noise.check(mu, max(self.parties, 1))
        if self.study.masked:
            try:
                check_bound("largest", largest, self.sites)
            except InputError:
                raise make_too_large_error() from None


@dataclass(frozen=True, eq=False)
class Norms:
    """Noisy numbers of rows within radii.

    Attributes
    ----------
    radii : ndarray of shape (m,)
    counts : ndarray of shape (m,)
        Rising.
    rows : int
        Number of all rows.
    sd : float
        Largest standard deviation of a count.
    """

    radii: Array
    counts: Array
    rows: int
    sd: float

    @classmethod
    def of(cls, encoded: Array, radii: Array, rows: int, sd: float) -> "Norms":
        """Return what counts say that were released with noise of this standard deviation.

        Raises
        ------
        ProtocolError
            If the rows are too few for counts with that much noise.
        """
        found = cls(radii, decode_counts(encoded), rows, sd * decoded_sd(len(radii)))
        if found.sd > rows / 2:
            raise ProtocolError(
                f"{rows} rows are too few to be counted privately at this epsilon: the noise on "
                f"counts would have a standard deviation of {found.sd:.0f}",
                remedy=(
                    *("Raise ", Name("epsilon"), ", or avoid the search for a radius: give a "),
                    *("public ", Name("clip"), " and set scree = 0.0 among the privacy shares, "),
                    "in Python or in a study file.",
                ),
            )
        return found

    def quantile(self, proportion: float) -> float:
        """Return the radius that holds a proportion of the rows.

        Raises
        ------
        ProtocolError
            If it is not between the radii.
        """
        found = find_quantile(self.radii, self.counts, proportion * self.rows)
        if found is None:
            ends = (math.log2(radius) for radius in self.radii[[0, -1]])
            low, high = (f"2^{math.floor(end):g}" for end in ends)
            raise ProtocolError(
                f"According to noisy counts, the norms of the rows are not between {low} and "
                f"{high}",
                remedy=("Pass a public ", Name("clip"), ", or rows in other units."),
            )
        return found

    def quantile_or_end(self, proportion: float) -> float:
        """Return the radius that holds a proportion of the rows, or the end that is nearest."""
        found = find_quantile(self.radii, self.counts, proportion * self.rows)
        if found is not None:
            return found
        return float(self.radii[0 if self.counts[0] >= proportion * self.rows else -1])

    def shrinkage(self, radius: float) -> float:
        """Return by which proportion clipping to a radius shortens rows, on average.

        Between two radii the logarithms of the norms are taken for evenly distributed.
        """
        held = np.diff(self.counts, prepend=0.0)
        high = np.maximum(self.radii, radius)
        low = np.maximum(self.radii * (self.radii[0] / self.radii[1]), radius)
        lost = np.log(high / low) - radius * (1.0 / low - 1.0 / high)
        shortened = float(held @ lost) / math.log(self.radii[1] / self.radii[0])
        return max(shortened / self.rows, 0.0)

    def beyond(self, radius: float) -> float:
        """Return the proportion of rows that are beyond a radius, as far as noise lets it show."""
        place = min(int(np.searchsorted(self.radii, radius)), len(self.radii) - 1)
        held = float(self.counts[place]) + _SURE_SDS * self.sd
        return max(1.0 - held / self.rows, 0.0)

    def growth(self, clip: float, apart: float = 0.0) -> float:
        """Return the mean squared norm of the rows, relative to that of rows clipped to a radius.

        Norms count as at most twice their median: how many rows are farther is mostly noise.

        Parameters
        ----------
        clip : float
        apart : float
            Squared distance between the centre of the rows and the one that norms were counted
            about.
        """
        parts = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
        found = np.array([self.quantile_or_end(part) for part in parts])
        squares = np.maximum(found**2 - apart, 0.0)
        after = float(np.minimum(squares, clip**2).sum())
        before = float(np.minimum(squares, 4.0 * np.median(squares)).sum())
        return before / after if 0.0 < after < before else 1.0

    def reach(self, proportion: float) -> float:
        """Return a radius that holds nearly all rows: the proportion, or as many as noise allows.

        Counts as close to all rows as their own noise may never be reached, at any radius.
        """
        sure = max(min(proportion, 1.0 - _SURE_SDS * self.sd / self.rows), 0.5)
        found = find_quantile(self.radii, self.counts, sure * self.rows)
        return 2.0 * self.quantile_or_end(0.5) if found is None else found
