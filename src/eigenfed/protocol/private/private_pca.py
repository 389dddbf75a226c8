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
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from eigenfed.arrays import Array
from eigenfed.errors import Argument, Name, ProtocolError
from eigenfed.linalg.orthonormal import flip_signs
from eigenfed.linalg.spiked import estimate_cosines_beside, estimate_cosines_under_noise
from eigenfed.privacy.dp.clipping import choose_grid
from eigenfed.privacy.dp.discrete_gaussian import Draw, Noise, discrete_gaussian
from eigenfed.privacy.dp.sensitivity import (
    NARROW_STEPS,
    WIDE_STEPS,
    WIDEST,
)
from eigenfed.privacy.guarantee import state_guarantee
from eigenfed.protocol.core import Call, Protocol, Total, call_each
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.spectrum import decompose_covariance, unpack_symmetric
from eigenfed.protocol.private.budget_schedule import (
    FIRST_MEAN,
    REACH_FRACTION,
    list_spends,
    split_budget,
)
from eigenfed.protocol.private.noisy_sums import Spender, find_radius
from eigenfed.protocol.private.private_site import (
    SCREE_UNIT,
    MomentRequest,
    RowsRequest,
    ScreeRequest,
    SketchRequest,
    TotalRequest,
    noise_of_product,
    noise_of_scatter,
    noise_of_scree,
    noise_of_total,
    update_clip_of,
)
from eigenfed.protocol.study import Study

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
    ball = yield from _find_ball(spender, split, d, center=bool(study.center))
    if study.chosen.name == "power":
        found = yield from _iterate_products(spender, study.k, ball, rng)
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
    mean, clip, d, k = ball.mean, ball.clip, len(ball.mean), study.k
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
    from scipy.optimize import isotonic_regression  # loaded on use: sites import this module too

    # Noise may disturb the order; the closest falling sequence is post-processing.
    falling: Array = isotonic_regression(variances[:-1], increasing=False).x
    return replace(found, variances=falling, total_variance=float(variances.sum()))
