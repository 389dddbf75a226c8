"""Differentially private PCA of rows that are split over sites.

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
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression

from eigenfed.arrays import Array
from eigenfed.errors import Argument, Name, ProtocolError
from eigenfed.linalg.orthonormal import signed_rows
from eigenfed.linalg.spiked import cosines_beside, cosines_under_noise
from eigenfed.privacy.gaussian import discrete_gaussian
from eigenfed.privacy.grid import grid_for
from eigenfed.privacy.noise import Draw, Noise
from eigenfed.privacy.radii import NARROW_ASKS, WIDE_ASKS, WIDEST
from eigenfed.privacy.statement import sound_statement
from eigenfed.protocol.core import Ask, Protocol, ask_each
from eigenfed.protocol.private_schedule import FIRST_MEAN, REACH_SHARE, budget_split, spending
from eigenfed.protocol.private_site import (
    SHARE_UNIT,
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
from eigenfed.protocol.private_sums import Spender, radius_about
from eigenfed.protocol.result import Decomposition
from eigenfed.protocol.spectrum import symmetric, whole_spectrum
from eigenfed.protocol.study import Study
from eigenfed.protocol.totals import Total

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
    replies = yield from ask_each(Ask(RowsRequest()))
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
    return replace(found, clarity=_clarity(matrix, k, ball, noise, deviation, scales))


def _clarity(
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
    """Multiply twice with the noisy second moment: 004 with one local step and noise that holds."""
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
