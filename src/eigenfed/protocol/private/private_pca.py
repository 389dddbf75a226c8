"""Differentially private PCA of rows that are split over sites: the coordinator's half.

===========  ==================================================================================
coordinator  numbers of rows, if public; then noised sums: counts of rows within radii, sums of
             rows, one second moment (or two products with it, if features are many), squared
             lengths along the components
site         radii, the noisy mean, directions
===========  ==================================================================================

Everything after the noise is post-processing and costs no privacy. Each step spends a fixed
fraction of the budget (`budget_schedule`, `Privacy.shares`); the sites' ledgers enforce it. The
five sums of a run with the default settings:

1. *radius* and a first *mean*: counts of the rows within a wide range of radii about the public
   centre (or 0), and the sum of their directions. Times the radius within which half of the rows
   lie, the mean direction is a first mean. It needs no radius to clip to, and is nearly unbiased
   both for rows far from the centre and for rows spread about it;
2. *clip*: counts within radii about the first mean;
3. *mean*: the mean of rows clipped about the first mean, to a radius within which a third of them
   lie, or nearly all of them if that is hardly larger. Its noise is small relative to the spread of
   the rows, however far they lie from the centre;
4. *covariance*: the second moment about that mean, of rows clipped to a radius that few of them lie
   within. Longer rows are shortened to it and keep their direction. A larger radius would add more
   noise than signal;
5. *scree*: the variances along the components, of rows clipped to a much larger radius.

Numbers that the study declares public shift and scale the rows before all of this; the mean and
the scale of the result are in the units of the rows.
"""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from eigenfed.arrays import Array
from eigenfed.errors import Argument, Name, ProtocolError
from eigenfed.linalg.orthonormal import flip_signs
from eigenfed.linalg.spiked import estimate_cosines_beside
from eigenfed.privacy.dp.clipping import choose_grid
from eigenfed.privacy.dp.discrete_gaussian import Draw, discrete_gaussian
from eigenfed.privacy.dp.norm_counts import near_radii, wide_radii
from eigenfed.privacy.dp.sensitivity import COUNT_UNIT
from eigenfed.privacy.guarantee import state_guarantee
from eigenfed.protocol.core import Call, Protocol, Total, call_each
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.spectrum import decompose_covariance, unpack_symmetric
from eigenfed.protocol.private.budget_schedule import (
    FIRST_MEAN,
    REACH_FRACTION,
    list_spends,
    split_budget,
    split_start,
)
from eigenfed.protocol.private.noisy_sums import Norms, Spender
from eigenfed.protocol.private.private_site import (
    MomentRequest,
    NormsRequest,
    RowsRequest,
    ScreeRequest,
    SketchRequest,
    StartRequest,
    TotalRequest,
)
from eigenfed.protocol.private.reply_noise import (
    SCREE_UNIT,
    START_GRID,
    noise_of_norms,
    noise_of_product,
    noise_of_scatter,
    noise_of_scree,
    noise_of_start,
    noise_of_total,
    update_clip_of,
)
from eigenfed.protocol.private.signal_estimate import (
    discount_mean,
    estimate_signal,
    limit_length,
    normalize,
)
from eigenfed.protocol.study import Study

_RADIUS_QUANTILE, _MEAN_QUANTILE, _CLIP_QUANTILE, _REACH_QUANTILE = 0.5, 0.3, 0.1, 0.95
_LEAST_CLIP = 1 / 16
"""Least radius of the covariance, relative to that of the mean. A radius that is too small does no
harm (directions are kept), and one that is too large adds noise."""
_SLIGHTLY = 1.25
_MOST_SHORT = 0.8
_MOVED = 2.0
"""Squared error of a mean that a public clip has moved, relative to the variance in its direction:
above 1, as hardly anything else is left in that direction."""
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
    missed : float
        Expected squared distance of the mean from that of the rows, after clipping, in a random
        direction.
    short : ndarray of shape (d,)
        Expected distance of the mean from that of the rows, after clipping, in a known direction.
    reach : float or None
        Radius within which nearly all rows lie; None if it was not found on the way.
    growth : float
        Estimated mean squared distance of the rows, relative to that after clipping; 1 if it is not
        known.
    """

    mean: Array
    clip: float
    missed: float
    short: Array
    reach: float | None = None
    growth: float = 1.0

    @property
    def toward(self) -> Array:
        """Direction of the mean, of length 1; 0 if the mean is 0."""
        return normalize(self.mean)

    def judged_by(self, variance: float) -> "_Ball":
        """Return the ball with the error of a mean that a public clip has surely moved.

        Numbers from -C to C with mean m have a variance of at most ``(C - m) (C + m)``. If that of
        the rows in the direction of their mean is larger, most rows are longer than the clip.

        Parameters
        ----------
        variance : float
            Variance of the clipped rows in the direction of the mean.
        """
        most = self.clip**2 - max(float(self.mean @ self.mean) - self.missed, 0.0)
        if self.reach is not None or variance <= most:
            return self
        return self._replace(missed=self.missed + _MOVED * variance)


def private_pca(
    study: Study,
    *,
    rng: np.random.Generator,
    total: Total,
    draw: Draw = discrete_gaussian,
    weigh: bool = True,
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
    weigh : bool
        Whether to weigh features by how far their variances exceed the noise (`_weigh_features`).
        A forecast, whose features are the components themselves, must not.
    """
    split = split_budget(study)
    replies = yield from call_each(Call(RowsRequest()))
    held = {site: reply.n for site, reply in replies.items() if reply.n is not None}
    spender = Spender(study, total, held, draw)
    d = next(iter(replies.values())).d
    center, scale = spender.privacy.frame(d)
    if spender.privacy.count == "public":
        spender.privacy.check_rows(spender.n)
    ball = yield from _find_ball(spender, split, d)
    if study.chosen.name == "power":
        found = yield from _iterate_products(spender, study.k, ball, rng)
    else:
        found = yield from _decompose_covariance(
            spender, split["covariance"], study, ball, weigh=weigh
        )
    if split.get("scree", 0.0) > 0.0:
        found = yield from _measure_variances(spender, split["scree"], found, ball)
    found = replace(found, mean=center + scale * found.mean, scale=scale * found.scale)
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


def _find_ball(spender: Spender, split: dict[str, float], d: int) -> Protocol[_Ball]:
    """Find the mean and the radius about it to which rows are clipped."""
    origin, public = np.zeros(d), spender.privacy.clip
    if public is not None:
        if "count" in split:
            yield from spender.count_rows(split["count"])
            spender.privacy.check_rows(spender.n)
        if not spender.study.center:
            return _Ball(origin, public, 0.0, origin)
        mean, noise = yield from _find_mean(spender, split["mean"], origin, public)
        return _Ball(mean, public, d * noise**2, origin)
    start, direction = yield from _start(spender, d)
    if direction is None:
        clip, reach = start.quantile(_CLIP_QUANTILE), start.reach(_REACH_QUANTILE)
        return _Ball(origin, clip, 0.0, origin, reach, start.growth(clip))
    radius = start.quantile(_RADIUS_QUANTILE)
    first = radius * direction
    norms = yield from _count_norms(spender, split["clip"], first, radius)
    # Where counts are noisy, few rows cannot be told from none: then half of them are taken.
    part = min(max(_MEAN_QUANTILE, 2.0 * norms.sd / spender.n), _RADIUS_QUANTILE)
    wide = norms.quantile_or_end(part)
    # Where rows lie far from the first mean, they are about equally far, and on one side of it: a
    # slightly larger radius then holds nearly all of them, and shortening none is worth more noise.
    nearly_all = norms.quantile_or_end(_REACH_QUANTILE)
    if nearly_all <= _SLIGHTLY * wide:
        wide = max(wide, nearly_all)
    fraction = (1 - FIRST_MEAN) * split["mean"]
    mean, noise = yield from _find_mean(spender, fraction, first, wide)
    # About the first mean, squared norms are larger by the squared distance of the two means, of
    # which the noise of the second is a part.
    apart = max(float(np.sum((mean - first) ** 2)) - d * noise**2, 0.0)
    clip = _shorten(norms.quantile_or_end(_CLIP_QUANTILE), apart, _LEAST_CLIP * wide)
    reach = _shorten(norms.reach(_REACH_QUANTILE), apart, wide)
    # Clipping shortened the step from the first mean to the second by about this proportion, give
    # or take the noise of the counts.
    shrinkage = min(norms.shrinkage(wide), _MOST_SHORT)
    whole = apart / (1.0 - shrinkage) ** 2
    usual = _shorten(norms.quantile_or_end(_RADIUS_QUANTILE), whole, clip)
    lost = min(shrinkage + norms.sd / spender.n, _MOST_SHORT)
    step = math.sqrt(apart) * normalize(mean - first)
    # Clipping will also shrink these errors, which are part of the centred rows.
    kept = clip / usual
    short = step * (kept * lost / (1.0 - lost))
    return _Ball(mean, clip, d * (kept * noise) ** 2, short, reach, norms.growth(clip, apart))


def _shorten(radius: float, apart: float, least: float) -> float:
    """Return a radius about a centre that is closer to the rows, by a squared distance."""
    return math.sqrt(max(radius**2 - apart, least**2))


def _start(spender: Spender, d: int) -> Protocol[tuple[Norms, Array | None]]:
    """Return the norms of the rows, and their mean direction if they are to be centred."""
    parts, noise = split_start(spender.study), noise_of_start(spender.study, d)
    whole = sum(parts.values())
    reply = yield from spender.start(StartRequest(), noise, whole, float(START_GRID))
    if "count" in reply:
        spender.set_count(reply["count"])
        spender.privacy.check_rows(spender.n)
    sd = spender.noise_sd(noise, whole) * float(noise.relative["counts"][0])
    norms = Norms.of(reply["counts"], wide_radii(), spender.n, sd)
    total = reply.get("total")
    return norms, None if total is None else total / START_GRID / spender.n


def _count_norms(
    spender: Spender, fraction: float, center: Array, radius: float
) -> Protocol[Norms]:
    """Count the rows within radii about a known one."""
    noise = noise_of_norms(spender.privacy.relation)
    request = NormsRequest(center=center, radius=radius)
    # An entry of the factor is at most one row in units of counts.
    encoded = yield from spender.request_sum(request, noise, fraction, float(COUNT_UNIT))
    return Norms.of(encoded, near_radii(radius), spender.n, spender.noise_sd(noise, fraction))


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
    spender: Spender, fraction: float, study: Study, ball: _Ball, *, weigh: bool
) -> Protocol[Decomposition]:
    """Request one noised covariance, and return its leading components."""
    mean, clip, d, k = ball.mean, ball.clip, len(ball.mean), study.k
    grid = choose_grid(spender.n, d)
    noise = noise_of_scatter(grid, d, spender.privacy.relation)
    request = MomentRequest(center=mean, radius=clip, n=spender.n)
    triangle = yield from spender.request_sum(request, noise, fraction, float(grid) ** 2)
    unit = (clip / grid) ** 2 / max(spender.n - 1, 1)
    matrix, scales = unpack_symmetric(triangle * unit, d), np.ones(d)
    sd = spender.noise_sd(noise, fraction) * unit
    ball = ball.judged_by(float(ball.toward @ matrix @ ball.toward))
    if study.scale:
        scales = _find_scales(matrix, sd)
        matrix = matrix / np.outer(scales, scales)
        sd *= float(np.mean(scales**-2.0))
    # The diagonal has more noise than this, but it is a small part of all entries.
    entry_sd = float(noise.relative["triangle"].min()) * sd
    noisy = matrix
    if weigh:
        matrix = _weigh_features(matrix, k, entry_sd)
    clipped = scales
    if study.scale:
        # They are standard deviations of clipped rows, and nearly all rows are clipped.
        scales = scales * math.sqrt(ball.growth)
    found = decompose_covariance(
        matrix, k, mean=mean, scale=scales, n=float(spender.n), tol=study.tol
    )
    missed, short = ball.missed * float(np.mean(clipped**-2.0)), ball.short / clipped
    return replace(found, signal=estimate_signal(noisy, found.components, missed, short, entry_sd))


def _weigh_features(matrix: Array, k: int, sd: float) -> Array:
    """Shrink the rows and columns of features whose variances are lost in noise.

    A feature of variance v has a loading of at most sqrt(v / l) on a component of variance l, and
    noise of standard deviation sd on the entries of the matrix changes loadings by about sd / l. So
    loadings are best shrunk by about v / (v + sd^2 / l). The variances are those of the noisy
    diagonal, moved towards their mean by as much as noise spreads them; l is the variance of the
    last component, corrected for noise. Features with equal variances are shrunk alike, which
    changes no component. The constant 2 was found best, by little, on simulated data.
    """
    # In units of the largest, so that no square overflows.
    unit, d = float(np.abs(matrix.diagonal()).max()), len(matrix)
    diagonal, sd = matrix.diagonal() / unit, sd / unit
    spread = max(float(diagonal.var()) - 2.0 * sd**2, 0.0)
    kept = spread / (spread + 2.0 * sd**2) if spread else 0.0
    middle = float(diagonal.mean())
    variances = np.maximum(middle + kept * (diagonal - middle), sd)
    last = float(np.linalg.eigvalsh(matrix)[-k]) / unit
    # Noise lifts an eigenvalue l to l + d sd^2 / l (Benaych-Georges and Nadakuditi, 2011).
    last = (last + math.sqrt(max(last**2 - 4.0 * d * sd**2, 0.0))) / 2.0
    if not last > 0.0:
        return matrix
    weights = variances / (variances + 2.0 * sd**2 / last)
    weighed: Array = matrix * np.outer(weights, weights)
    return weighed


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
    # Noise of standard deviation sd on d entries lifts a squared singular value by d sd^2.
    sd = spender.noise_sd(noise, fraction) * unit
    cosines = np.maximum(1.0 - d * (sd / np.maximum(values, np.finfo(float).tiny)) ** 2, 0.0)
    ball = ball.judged_by(float(values @ (ball.toward @ left[:, :k]) ** 2))
    # The other values are not known: features beyond the components are taken for constant.
    clear = values * np.sqrt(cosines)
    short = limit_length(ball.short, float(values @ (normalize(ball.short) @ left[:, :k]) ** 2))
    cosines = cosines * discount_mean(clear, left[:, :k].T, ball.missed, short)
    return Decomposition(
        flip_signs(left[:, :k].T),
        values,
        mean,
        np.ones(d),
        float(spender.n),
        float(values.sum()),
        products=len(fractions),
        signal=cosines,
    )


def _discount_clipped(found: Decomposition, ball: _Ball, norms: Norms) -> Decomposition:
    """Lower the signal by the error of a mean of rows that a public clip has shortened.

    Rows that are farther from the mean than the clip and the mean together were surely longer than
    the clip. Of these, what is summed is mostly their direction, about the mean as about 0, so that
    the mean counts as part of their spread.
    """
    size = float(np.linalg.norm(ball.mean))
    if found.signal is None or not size:
        return found
    shortened = norms.beyond(ball.clip + size) * size
    d, added = len(ball.mean), shortened**2
    background = max(found.total_variance - added, 0.0) / d
    beside = estimate_cosines_beside(found.variances, added, d, background=background)
    return replace(found, signal=found.signal * beside)


def _measure_variances(
    spender: Spender, fraction: float, found: Decomposition, ball: _Ball
) -> Protocol[Decomposition]:
    """Replace the variances by those of rows clipped to a large radius.

    Rows clipped to the small radius of the covariance have the right directions but too small
    variances.
    """
    reach = ball.reach
    if reach is None:
        norms = yield from _count_norms(spender, REACH_FRACTION * fraction, found.mean, ball.clip)
        reach = max(norms.reach(_REACH_QUANTILE), ball.clip)
        fraction *= 1 - REACH_FRACTION
        found = _discount_clipped(found, ball, norms)
    request = ScreeRequest(center=found.mean, radius=reach, components=found.components)
    noise = noise_of_scree(spender.privacy.relation)
    parts = yield from spender.request_sum(request, noise, fraction, float(SCREE_UNIT))
    variances = np.maximum(parts * (reach**2 / SCREE_UNIT / max(spender.n - 1, 1)), 0.0)
    from scipy.optimize import isotonic_regression  # loaded on use: sites import this module too

    # Noise may disturb the order; the closest falling sequence is post-processing.
    falling: Array = isotonic_regression(variances[:-1], increasing=False).x
    return replace(found, variances=falling, total_variance=float(variances.sum()))
