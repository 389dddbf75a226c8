"""Sums with noise, each for a share of the budget, and radii found by counting with noise.

Differentially private PCA of rows that are split over sites.

===========  ==================================================================================
coordinator  numbers of rows; then sums with noise: counts within radii, a total, and one second
             moment (or, where features are many, two products); squared lengths along components
site         radii, the noisy mean, directions
===========  ==================================================================================

Everything after the noise is post-processing. What each step may spend is a share of the budget
(`Privacy.shares`); the sites' ledgers see to it that it is not exceeded.

1. *radius*: a radius that holds half of the rows, by a binary search on noisy counts;
2. *mean*: the mean of rows clipped to it; then, about that one, the mean of rows clipped to a
   radius that holds half of them. The first is short where rows lie far from zero, and has noise
   that is large beside their spread; the second has neither fault;
3. *clip*: that radius, and one about the second mean that holds a fifth of the rows. Shorter rows
   keep their length, longer ones their direction: at a given noise, more are worth less than they
   cost;
4. *covariance*: the second moment about the mean of rows clipped to it, once;
5. *scree*: the variances along the components, of rows clipped far out.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression

from eigenfed.arrays import Array
from eigenfed.errors import Argument, Name, ProtocolError
from eigenfed.linalg.orthonormal import signed_rows
from eigenfed.linalg.spiked import cosines_beside, cosines_under_noise
from eigenfed.privacy.dp.clipping import grid_for
from eigenfed.privacy.dp.discrete_gaussian import Draw, Noise, discrete_gaussian
from eigenfed.privacy.dp.sensitivity import COUNT_UNIT, NARROW_ASKS, WIDE_ASKS, WIDEST, edge
from eigenfed.privacy.guarantee import Privacy, sound_statement
from eigenfed.protocol.core import Call, Protocol, Total, call_each
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.spectrum import symmetric, whole_spectrum
from eigenfed.protocol.messages import pack
from eigenfed.protocol.operations import Request
from eigenfed.protocol.private.budget_schedule import (
    FIRST_MEAN,
    REACH_SHARE,
    Spend,
    budget_split,
    spending,
    terms_of,
)
from eigenfed.protocol.private.private_site import (
    SHARE_UNIT,
    CountRequest,
    MomentRequest,
    RowsRequest,
    ScreeRequest,
    SketchRequest,
    TotalRequest,
    WithinRequest,
    noise_of_count,
    noise_of_product,
    noise_of_scatter,
    noise_of_scree,
    noise_of_total,
    update_clip_of,
)
from eigenfed.protocol.study import Study

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
        call: Call[Any] = Call(request, quorum=quorum, largest=largest, mu=mu)
        answer = pack((yield from self.total(call)))
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


_RADIUS_QUANTILE, _CLIP_QUANTILE, _REACH_QUANTILE = 0.5, 0.2, 0.95
_SURE = 10.0
"""With how many times as many rows as the deviation of a count a search ends where it should."""
_LEAST_SIGNAL = 3.0


class _Ball(NamedTuple):
    """Where rows are clipped: about which mean, to which radius; how noisy and sure that is."""

    mean: Array
    clip: float
    noise: float
    sure: bool = True


def private_pca(
    study: Study,
    *,
    rng: np.random.Generator,
    total: Total,
    draw: Draw = discrete_gaussian,
) -> Protocol[Decomposition]:
    """Run a differentially private PCA.

    Parameters
    ----------
    study : Study
        With privacy, and with its method: "covariance", or "power", which is two noisy products.
        `scale` divides the noisy covariance by its own diagonal.
    rng : numpy Generator
        For public starts; noise never comes from it.
    total : Total
    draw : callable
        Noise of a trusted coordinator.
    """
    split = budget_split(study)
    replies = yield from call_each(Call(RowsRequest()))
    held = {site: reply.n for site, reply in replies.items() if reply.n is not None}
    spender = Spender(study, total, held, draw)
    if "count" in split:
        yield from spender.count_rows(split["count"])
    spender.privacy.check_rows(spender.n)
    d = next(iter(replies.values())).d
    ball = yield from _prepared(spender, split, d, center=study.center)
    if study.chosen.name == "power":
        found = yield from _power(spender, study.components, ball, rng)
    else:
        found = yield from _covariance(spender, split["covariance"], study, ball)
    if split.get("scree", 0.0) > 0.0:
        found = yield from _scree(spender, split["scree"], found, ball.clip)
    said = sound_statement(
        spender.privacy,
        n=spender.n,
        sites=len(study.sites),
        mechanism=_MECHANISMS[study.chosen.name],
        budget=split,
    )
    return replace(found, privacy=said)


_MECHANISMS = {
    "covariance": "one noised second moment of clipped rows",
    "power": "two noised products of the second moment of clipped rows",
}


def _prepared(
    spender: Spender, split: dict[str, float], d: int, *, center: bool
) -> Protocol[_Ball]:
    """Find the mean and the radius about it to which rows are clipped."""
    origin, public = np.zeros(d), spender.privacy.clip
    if not center:
        if public is not None:
            return _Ball(origin, public, 0.0)
        clip = yield from radius_about(
            spender, split["clip"], origin, _CLIP_QUANTILE, *WIDEST, WIDE_ASKS
        )
        return _Ball(origin, clip, 0.0)
    if public is not None:
        mean, noise = yield from _mean(spender, split["mean"], origin, public)
        return _Ball(mean, public, noise)
    radius = yield from radius_about(
        spender, split["radius"], origin, _RADIUS_QUANTILE, *WIDEST, WIDE_ASKS, upper=True
    )
    first, _ = yield from _mean(spender, FIRST_MEAN * split["mean"], origin, radius)
    reach = yield from _narrowed(spender, split["clip"] / 2, first, _RADIUS_QUANTILE, radius)
    mean, noise = yield from _mean(spender, (1 - FIRST_MEAN) * split["mean"], first, reach)
    clip = yield from _narrowed(spender, split["clip"] / 2, mean, _CLIP_QUANTILE, reach)
    # Clipping shortens what the mean's noise adds to rows as it shortens them.
    sure = spender.n > _SURE * spender.count_deviation(split["radius"] / WIDE_ASKS)
    return _Ball(mean, clip, noise * min(clip / reach, 1.0), sure)


def _narrowed(
    spender: Spender, share: float, center: Array, quantile: float, radius: float
) -> Protocol[float]:
    """Search within four octaves, of which a known radius is near the upper end."""
    low, high = math.log2(radius) - 3, math.log2(radius) + 1
    return (
        yield from radius_about(
            spender, share, center, quantile, low, high, NARROW_ASKS, open_ended=True
        )
    )


def _mean(
    spender: Spender, share: float, center: Array, radius: float
) -> Protocol[tuple[Array, float]]:
    """Return the mean of rows clipped about a centre, and the deviation of its noise."""
    grid = grid_for(spender.n, len(center))
    noise = noise_of_total(grid, spender.privacy.relation)
    request = TotalRequest(center=center, radius=radius, n=spender.n)
    total = yield from spender.sum_of(request, noise, share, float(grid))
    unit = radius / grid / spender.n
    return center + total * unit, spender.deviation(noise, share) * unit


def _covariance(
    spender: Spender, share: float, study: Study, ball: _Ball
) -> Protocol[Decomposition]:
    mean, clip, d, k = ball.mean, ball.clip, len(ball.mean), study.components
    grid = grid_for(spender.n, d)
    noise = noise_of_scatter(grid, d, spender.privacy.relation)
    request = MomentRequest(center=mean, radius=clip, n=spender.n)
    triangle = yield from spender.sum_of(request, noise, share, float(grid) ** 2)
    unit = (clip / grid) ** 2 / max(spender.n - 1, 1)
    matrix, scales = symmetric(triangle * unit, d), np.ones(d)
    deviation = spender.deviation(noise, share) * unit
    if study.scale:
        scales = _scales(matrix, deviation)
        matrix = matrix / np.outer(scales, scales)
        deviation *= float(np.mean(scales**-2.0))
    found = whole_spectrum(matrix, k, mean=mean, scale=scales, n=float(spender.n), tol=study.tol)
    return replace(found, signal=_signal(matrix, k, ball, noise, deviation, scales))


def _signal(
    matrix: Array, k: int, ball: _Ball, noise: Noise, deviation: float, scales: Array
) -> Array | None:
    """Estimate what noise has left of each component; None where too little is known."""
    if not ball.sure:
        return None
    # On the diagonal there is more noise, which is nothing among so many entries.
    beside = float(noise.relative["triangle"].min()) * deviation
    values: Array = np.linalg.eigvalsh(matrix)[::-1].astype(np.float64)
    left = cosines_under_noise(values, k, beside)
    # Rows about a mean that is off by e also vary along e, by its squared length.
    return left * cosines_beside(
        values[:k], ball.noise**2 * float(np.sum(scales**-2.0)), len(matrix)
    )


def _scales(matrix: Array, deviation: float) -> Array:
    """Take standard deviations from the noisy diagonal, where that stands out of its noise."""
    diagonal = matrix.diagonal()
    hidden = int(np.count_nonzero(diagonal < _LEAST_SIGNAL * deviation))
    if hidden:
        raise ProtocolError(
            Argument("scale", True),
            f": the noisy variance of {hidden} features is under three deviations of its noise",
            remedy=("Scale by public numbers beforehand, or raise ", Name("epsilon"), "."),
        )
    return np.sqrt(diagonal)


def _power(
    spender: Spender, k: int, ball: _Ball, rng: np.random.Generator
) -> Protocol[Decomposition]:
    """Multiply twice by the noisy second moment: [Guo2024], one local step, with proven noise."""
    mean, clip, d = ball.mean, ball.clip, len(ball.mean)
    grid, width = grid_for(spender.n, d), min(2 * k, d)
    image = np.linalg.qr(rng.standard_normal((d, width))).Q
    fractions = [step.fraction for step in spending(spender.study) if step.op == SketchRequest.op]
    for i, fraction in enumerate(fractions):
        basis = np.linalg.qr(image).Q
        update_clip = update_clip_of(width, d, first=i == 0) * grid**2
        noise = noise_of_product(grid, width, update_clip, spender.privacy.relation)
        request = SketchRequest(center=mean, radius=clip, n=spender.n, basis=basis)
        image = yield from spender.sum_of(request, noise, fraction, float(grid) ** 2)
    left, s, _ = np.linalg.svd(image, full_matrices=False)
    unit = (clip / grid) ** 2 / max(spender.n - 1, 1)
    values = s[:k] * unit
    return Decomposition(
        signed_rows(left[:, :k].T),
        values,
        mean,
        np.ones(d),
        float(spender.n),
        float(values.sum()),
        products=len(fractions),
    )


def _scree(
    spender: Spender, share: float, found: Decomposition, clip: float
) -> Protocol[Decomposition]:
    """Measure variances along the components, of rows that are clipped far out only."""
    low = math.log2(clip)
    reach = yield from radius_about(
        spender,
        REACH_SHARE * share,
        found.mean,
        _REACH_QUANTILE,
        low,
        low + 4,
        NARROW_ASKS,
        open_ended=True,
        upper=True,
    )
    request = ScreeRequest(center=found.mean, radius=reach, components=found.components)
    noise = noise_of_scree(spender.privacy.relation)
    parts = yield from spender.sum_of(request, noise, (1 - REACH_SHARE) * share, float(SHARE_UNIT))
    variances = np.maximum(parts * (reach**2 / SHARE_UNIT / max(spender.n - 1, 1)), 0.0)
    falling: Array = isotonic_regression(variances[:-1], increasing=False).x
    return replace(found, variances=falling, total_variance=float(variances.sum()))
