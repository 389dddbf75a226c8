"""Differentially private PCA of rows that are split over sites: the coordinator's half.

===========  ==================================================================================
coordinator  numbers of rows, if public; then noised sums: counts of rows within radii, sums of
             rows, one second moment (or two products with it, if features are many), squared
             lengths along the components
site         radii, the noisy mean, directions
===========  ==================================================================================

Everything after the noise is post-processing and costs no privacy. Each step spends a fixed
fraction of the budget (`budget_schedule`, `Privacy.shares`); the sites' ledgers enforce it.

1. *radius*: a radius within which half of the rows lie, by binary search on noisy counts;
2. *mean*: the mean of rows clipped to that radius about zero; then the mean of rows clipped about
   the first mean, to a radius within which half of them lie. If rows lie far from zero, the first
   mean is biased towards zero and its noise is large relative to their spread; the second mean has
   neither defect;
3. *clip*: the radius for the second mean, and a radius about the second mean within which a fifth
   of the rows lie. Longer rows are shortened to it and keep their direction. A larger radius would
   add more noise than signal;
4. *covariance*: the second moment about the mean of rows clipped to that radius, once;
5. *scree*: the variances along the components, of rows clipped to a much larger radius.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression

from eigenfed.arrays import Array
from eigenfed.errors import Argument, Name, ProtocolError
from eigenfed.linalg.orthonormal import flip_signs
from eigenfed.linalg.spiked import estimate_cosines_beside, estimate_cosines_under_noise
from eigenfed.privacy.dp.clipping import choose_grid
from eigenfed.privacy.dp.discrete_gaussian import Draw, Noise, discrete_gaussian
from eigenfed.privacy.dp.sensitivity import (
    COUNT_UNIT,
    NARROW_STEPS,
    WIDE_STEPS,
    WIDEST,
    search_radius,
)
from eigenfed.privacy.guarantee import Privacy, state_guarantee
from eigenfed.protocol.core import Call, Protocol, Total, call_each
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.spectrum import decompose_covariance, unpack_symmetric
from eigenfed.protocol.messages import pack
from eigenfed.protocol.operations import Request
from eigenfed.protocol.private.budget_schedule import (
    FIRST_MEAN,
    REACH_FRACTION,
    Spend,
    list_spends,
    require_privacy,
    split_budget,
)
from eigenfed.protocol.private.private_site import (
    SCREE_UNIT,
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


_RADIUS_QUANTILE, _CLIP_QUANTILE, _REACH_QUANTILE = 0.5, 0.2, 0.95
_SURE = 10.0
"""A search is reliable with this many times as many rows as the standard deviation of a count."""
_LEAST_SIGNAL = 3.0
"""A noisy variance below so many standard deviations of its noise is not used as a scale."""


class _Ball(NamedTuple):
    """The ball that rows are clipped to.

    Attributes
    ----------
    mean : ndarray of shape (d,)
        Its centre.
    clip : float
        Its radius.
    noise : float
        Standard deviation of the noise of the mean, per feature.
    sure : bool
        Whether there are enough rows for the searches to be reliable.
    """

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
        For public random starts; never used for noise.
    total : Total
    draw : callable
        Source of noise, for a trusted coordinator.
    """
    split = split_budget(study)
    replies = yield from call_each(Call(RowsRequest()))
    held = {site: reply.n for site, reply in replies.items() if reply.n is not None}
    spender = Spender(study, total, held, draw)
    if "count" in split:
        yield from spender.count_rows(split["count"])
    spender.privacy.check_rows(spender.n)
    d = next(iter(replies.values())).d
    ball = yield from _find_ball(spender, split, d, center=study.center)
    if study.chosen.name == "power":
        found = yield from _iterate_products(spender, study.components, ball, rng)
    else:
        found = yield from _decompose_covariance(spender, split["covariance"], study, ball)
    if split.get("scree", 0.0) > 0.0:
        found = yield from _measure_variances(spender, split["scree"], found, ball.clip)
    statement = state_guarantee(
        spender.privacy,
        n=spender.n,
        sites=len(study.sites),
        mechanism=_MECHANISMS[study.chosen.name],
        budget=split,
    )
    return replace(found, privacy=statement)


_MECHANISMS = {
    "covariance": "one noised second moment of clipped rows",
    "power": "two noised products of the second moment of clipped rows",
}


def _find_ball(
    spender: Spender, split: dict[str, float], d: int, *, center: bool
) -> Protocol[_Ball]:
    """Find the mean and the radius about it to which rows are clipped."""
    origin, public = np.zeros(d), spender.privacy.clip
    if not center:
        if public is not None:
            return _Ball(origin, public, 0.0)
        clip = yield from find_radius(
            spender, split["clip"], origin, _CLIP_QUANTILE, *WIDEST, WIDE_STEPS
        )
        return _Ball(origin, clip, 0.0)
    if public is not None:
        mean, noise = yield from _find_mean(spender, split["mean"], origin, public)
        return _Ball(mean, public, noise)
    radius = yield from find_radius(
        spender, split["radius"], origin, _RADIUS_QUANTILE, *WIDEST, WIDE_STEPS, upper=True
    )
    first, _ = yield from _find_mean(spender, FIRST_MEAN * split["mean"], origin, radius)
    reach = yield from _find_radius_near(
        spender, split["clip"] / 2, first, _RADIUS_QUANTILE, radius
    )
    mean, noise = yield from _find_mean(spender, (1 - FIRST_MEAN) * split["mean"], first, reach)
    clip = yield from _find_radius_near(spender, split["clip"] / 2, mean, _CLIP_QUANTILE, reach)
    # Clipping also shrinks the error that the noise of the mean adds to the centred rows.
    sure = spender.n > _SURE * spender.count_sd(split["radius"] / WIDE_STEPS)
    return _Ball(mean, clip, noise * min(clip / reach, 1.0), sure)


def _find_radius_near(
    spender: Spender, fraction: float, center: Array, quantile: float, radius: float
) -> Protocol[float]:
    """Search within four octaves around a known radius, three of them below it."""
    low, high = math.log2(radius) - 3, math.log2(radius) + 1
    return (
        yield from find_radius(
            spender, fraction, center, quantile, low, high, NARROW_STEPS, open_ended=True
        )
    )


def _find_mean(
    spender: Spender, fraction: float, center: Array, radius: float
) -> Protocol[tuple[Array, float]]:
    """Return the mean of rows clipped about a centre, and the standard deviation of its noise."""
    grid = choose_grid(spender.n, len(center))
    noise = noise_of_total(grid, spender.privacy.relation)
    request = TotalRequest(center=center, radius=radius, n=spender.n)
    total = yield from spender.request_sum(request, noise, fraction, float(grid))
    unit = radius / grid / spender.n
    return center + total * unit, spender.noise_sd(noise, fraction) * unit


def _decompose_covariance(
    spender: Spender, fraction: float, study: Study, ball: _Ball
) -> Protocol[Decomposition]:
    """Request one noised covariance, and return its leading components."""
    mean, clip, d, k = ball.mean, ball.clip, len(ball.mean), study.components
    grid = choose_grid(spender.n, d)
    noise = noise_of_scatter(grid, d, spender.privacy.relation)
    request = MomentRequest(center=mean, radius=clip, n=spender.n)
    triangle = yield from spender.request_sum(request, noise, fraction, float(grid) ** 2)
    unit = (clip / grid) ** 2 / max(spender.n - 1, 1)
    matrix, scales = unpack_symmetric(triangle * unit, d), np.ones(d)
    sd = spender.noise_sd(noise, fraction) * unit
    if study.scale:
        scales = _find_scales(matrix, sd)
        matrix = matrix / np.outer(scales, scales)
        sd *= float(np.mean(scales**-2.0))
    found = decompose_covariance(
        matrix, k, mean=mean, scale=scales, n=float(spender.n), tol=study.tol
    )
    return replace(found, signal=_estimate_signal(matrix, k, ball, noise, sd, scales))


def _estimate_signal(
    matrix: Array, k: int, ball: _Ball, noise: Noise, sd: float, scales: Array
) -> Array | None:
    """Estimate each squared cosine with the noiseless component; None if radii are unreliable."""
    if not ball.sure:
        return None
    # The diagonal has more noise than this, but it is a small part of all entries.
    off_diagonal_sd = float(noise.relative["triangle"].min()) * sd
    values: Array = np.linalg.eigvalsh(matrix)[::-1].astype(np.float64)
    cosines = estimate_cosines_under_noise(values, k, off_diagonal_sd)
    # An error e of the mean adds e e' to the covariance: a variance of |e|^2 along e.
    return cosines * estimate_cosines_beside(
        values[:k], ball.noise**2 * float(np.sum(scales**-2.0)), len(matrix)
    )


def _find_scales(matrix: Array, sd: float) -> Array:
    """Return the square roots of the noisy variances, if all of them exceed their noise."""
    diagonal = matrix.diagonal()
    hidden = int(np.count_nonzero(diagonal < _LEAST_SIGNAL * sd))
    if hidden:
        raise ProtocolError(
            Argument("scale", True),
            f": the noisy variance of {hidden} features is below three standard deviations of its "
            "noise",
            remedy=("Scale by public numbers beforehand, or raise ", Name("epsilon"), "."),
        )
    return np.sqrt(diagonal)


def _iterate_products(
    spender: Spender, k: int, ball: _Ball, rng: np.random.Generator
) -> Protocol[Decomposition]:
    """Multiply twice by the noisy second moment: [Guo2024] with one local step and proven noise."""
    mean, clip, d = ball.mean, ball.clip, len(ball.mean)
    grid, width = choose_grid(spender.n, d), min(2 * k, d)
    image = np.linalg.qr(rng.standard_normal((d, width))).Q
    fractions = [
        step.fraction for step in list_spends(spender.study) if step.op == SketchRequest.op
    ]
    for i, fraction in enumerate(fractions):
        basis = np.linalg.qr(image).Q
        update_clip = update_clip_of(width, d, first=i == 0) * grid**2
        noise = noise_of_product(grid, width, update_clip, spender.privacy.relation)
        request = SketchRequest(center=mean, radius=clip, n=spender.n, basis=basis)
        image = yield from spender.request_sum(request, noise, fraction, float(grid) ** 2)
    left, s, _ = np.linalg.svd(image, full_matrices=False)
    unit = (clip / grid) ** 2 / max(spender.n - 1, 1)
    values = s[:k] * unit
    return Decomposition(
        flip_signs(left[:, :k].T),
        values,
        mean,
        np.ones(d),
        float(spender.n),
        float(values.sum()),
        products=len(fractions),
    )


def _measure_variances(
    spender: Spender, fraction: float, found: Decomposition, clip: float
) -> Protocol[Decomposition]:
    """Replace the variances by those of rows clipped to a large radius.

    Rows clipped to the small radius of the covariance have the right directions but too small
    variances.
    """
    low = math.log2(clip)
    reach = yield from find_radius(
        spender,
        REACH_FRACTION * fraction,
        found.mean,
        _REACH_QUANTILE,
        low,
        low + 4,
        NARROW_STEPS,
        open_ended=True,
        upper=True,
    )
    request = ScreeRequest(center=found.mean, radius=reach, components=found.components)
    noise = noise_of_scree(spender.privacy.relation)
    parts = yield from spender.request_sum(
        request, noise, (1 - REACH_FRACTION) * fraction, float(SCREE_UNIT)
    )
    variances = np.maximum(parts * (reach**2 / SCREE_UNIT / max(spender.n - 1, 1)), 0.0)
    # Noise may disturb the order; the closest falling sequence is post-processing.
    falling: Array = isotonic_regression(variances[:-1], increasing=False).x
    return replace(found, variances=falling, total_variance=float(variances.sum()))
