"""Differentially private PCA of rows that are split over sites.

===========  ==================================================================================
coordinator  numbers of rows; then sums with noise: counts within radii, a total, and one second
             moment (or, where features are many, two products); squared lengths along components
site         radii, the noisy mean, directions
===========  ==================================================================================

Everything after the noise is post-processing. What each step may spend is a share of the budget
(`Privacy.shares`); the sites' ledgers see to it that it is not exceeded.

1. *radius*: a radius that holds half of the rows, by a binary search on noisy counts;
2. *mean*: the mean of rows clipped to it;
3. *clip*: a radius about that mean that holds a fifth of the rows. Shorter rows keep their length,
   longer ones their direction: at a given noise, more are worth less than they cost;
4. *covariance*: the second moment about the mean of rows clipped to it, once;
5. *scree*: the variances along the components, of rows clipped far out.
"""

import math
from dataclasses import replace

import numpy as np
from scipy.optimize import isotonic_regression

from eigenfed.arrays import Array
from eigenfed.errors import InputError, ProtocolError
from eigenfed.linalg.orthonormal import signed_rows
from eigenfed.privacy.gaussian import discrete_gaussian
from eigenfed.privacy.grid import grid_for
from eigenfed.privacy.noise import Draw
from eigenfed.privacy.radii import NARROW_ASKS, WIDE_ASKS, WIDEST
from eigenfed.privacy.statement import sound_statement
from eigenfed.privacy.terms import Privacy
from eigenfed.protocol.core import Ask, Protocol
from eigenfed.protocol.private_site import (
    SHARE_UNIT,
    noise_of_product,
    noise_of_scatter,
    noise_of_scree,
    noise_of_total,
)
from eigenfed.protocol.private_sums import Spender, radius_about
from eigenfed.protocol.result import Decomposition
from eigenfed.protocol.spectrum import symmetric, whole_spectrum
from eigenfed.protocol.totals import Total

METHODS = ("auto", "covariance", "power")

_FEW_FEATURES = 2000
_RADIUS_QUANTILE, _CLIP_QUANTILE, _REACH_QUANTILE = 0.5, 0.2, 0.95
_REACH_SHARE = 0.3
_POWER_SHARES = (0.3, 0.7)
_UPDATE_MARGIN = 1.5
_LEAST_SIGNAL = 3.0


def private_pca(
    privacy: Privacy,
    k: int,
    *,
    method: str,
    center: bool,
    scale: bool,
    tol: float,
    sites: tuple[str, ...],
    rng: np.random.Generator,
    total: Total,
    draw: Draw = discrete_gaussian,
) -> Protocol[Decomposition]:
    """Run a differentially private PCA.

    Parameters
    ----------
    privacy : Privacy
    k : int
        Number of components.
    method : {"auto", "covariance", "power"}
        "auto" takes "covariance" up to 2000 features. "power" is two noisy products.
    center, scale : bool
        `scale` divides the noisy covariance by its own diagonal.
    tol : float
        Residual at which a component of the released matrix counts as converged.
    sites : tuple of str
    rng : numpy Generator
        For public starts; noise never comes from it.
    total : Total
    draw : callable
        Noise of a trusted coordinator.
    """
    counted = yield Ask("rows")
    held = {site: int(reply["n"][0]) for site, reply in counted.items()}
    spender = Spender(privacy, total, held, draw)
    privacy.check_rows(spender.n)
    d = int(next(iter(counted.values()))["d"][0])
    chosen, why = privately_chosen(method, d)
    if scale and chosen == "power":
        raise InputError(
            "scale=True under privacy needs method='covariance'. Scale by public "
            "numbers beforehand, or pass scale=False."
        )
    split = privacy.split(_needed(privacy, center=center, scale=scale))
    mean, clip = yield from _prepared(spender, split, d, center=center)
    grid = grid_for(spender.n, d)
    if chosen == "covariance":
        found = yield from _covariance(
            spender, split["covariance"], k, mean, clip, grid, tol, scale
        )
    else:
        found = yield from _power(spender, split["covariance"], k, mean, clip, grid, rng)
    if split.get("scree", 0.0) > 0.0:
        found = yield from _scree(spender, split["scree"], found, clip)
    said = sound_statement(
        privacy, n=spender.n, sites=len(sites), mechanism=_MECHANISMS[chosen], budget=split
    )
    return replace(found, method=chosen, why=why, privacy=said)


_MECHANISMS = {
    "covariance": "one noised second moment of clipped rows",
    "power": "two noised products of the second moment of clipped rows",
}


def privately_chosen(method: str, d: int) -> tuple[str, str]:
    """Return the method of a private run and the reason, in words.

    Examples
    --------
    >>> privately_chosen("auto", 64)[0], privately_chosen("auto", 10**5)[0]
    ('covariance', 'power')
    """
    if method != "auto":
        return method, "asked for by name"
    if d <= _FEW_FEATURES:
        return "covariance", f"{d} features: one noised covariance beats noised products"
    return "power", f"{d} features: a covariance of {d * (d + 1) // 2} numbers is too many"


def _needed(privacy: Privacy, *, center: bool, scale: bool) -> list[str]:
    """Name what the budget must buy."""
    names = ["radius"] if center and privacy.clip is None else []
    names += ["mean"] if center else []
    names += ["clip"] if privacy.clip is None else []
    return [*names, "covariance", *([] if scale else ["scree"])]


def _prepared(
    spender: Spender, split: dict[str, float], d: int, *, center: bool
) -> Protocol[tuple[Array, float]]:
    """Find the mean and the radius about it to which rows are clipped."""
    origin, public = np.zeros(d), spender.privacy.clip
    if not center:
        if public is not None:
            return origin, public
        clip = yield from radius_about(
            spender, split["clip"], origin, _CLIP_QUANTILE, *WIDEST, WIDE_ASKS
        )
        return origin, clip
    radius = public
    if radius is None:
        radius = yield from radius_about(
            spender, split["radius"], origin, _RADIUS_QUANTILE, *WIDEST, WIDE_ASKS
        )
    mean = yield from _mean(spender, split["mean"], origin, radius)
    if public is not None:
        return mean, public
    low, high = math.log2(radius) - 3, math.log2(radius) + 1
    clip = yield from radius_about(
        spender, split["clip"], mean, _CLIP_QUANTILE, low, high, NARROW_ASKS, open_ended=True
    )
    return mean, clip


def _mean(spender: Spender, share: float, center: Array, radius: float) -> Protocol[Array]:
    grid = grid_for(spender.n, len(center))
    noise = noise_of_total(grid, spender.privacy.relation)
    payload = {"center": center, "radius": np.array([radius]), "grid": np.array([grid])}
    total = yield from spender.sum_of("private_total", "total", payload, noise, share, float(grid))
    mean: Array = total * (radius / grid / spender.n)
    return mean


def _covariance(
    spender: Spender,
    share: float,
    k: int,
    mean: Array,
    clip: float,
    grid: int,
    tol: float,
    scale: bool,
) -> Protocol[Decomposition]:
    d = len(mean)
    noise = noise_of_scatter(grid, d, spender.privacy.relation)
    payload = {"center": mean, "radius": np.array([clip]), "grid": np.array([grid])}
    triangle = yield from spender.sum_of(
        "private_scatter", "triangle", payload, noise, share, float(grid) ** 2
    )
    unit = (clip / grid) ** 2 / max(spender.n - 1, 1)
    matrix, scales = symmetric(triangle * unit, d), np.ones(d)
    if scale:
        scales = _scales(matrix, spender.deviation(noise, share) * unit)
        matrix = matrix / np.outer(scales, scales)
    return whole_spectrum(matrix, k, mean=mean, scale=scales, n=float(spender.n), tol=tol)


def _scales(matrix: Array, deviation: float) -> Array:
    """Take standard deviations from the noisy diagonal, where that stands out of its noise."""
    diagonal = matrix.diagonal()
    hidden = int(np.count_nonzero(diagonal < _LEAST_SIGNAL * deviation))
    if hidden:
        raise ProtocolError(
            f"scale=True: the noisy variance of {hidden} features is under three deviations of its "
            "noise. Scale by public numbers beforehand, or raise epsilon."
        )
    return np.sqrt(diagonal)


def _power(
    spender: Spender,
    share: float,
    k: int,
    mean: Array,
    clip: float,
    grid: int,
    rng: np.random.Generator,
) -> Protocol[Decomposition]:
    """Multiply twice with the noisy second moment: 004 with one local step and noise that holds.

    Through random directions a row is about ``sqrt(l / d)`` of its length, which needs no look at
    the data: updates are clipped there in the first product, whose noise falls accordingly.
    """
    d = len(mean)
    width = min(2 * k, d)
    basis = np.linalg.qr(rng.standard_normal((d, width))).Q
    clips = (min(1.0, _UPDATE_MARGIN * math.sqrt(width / d)), 1.0)
    image = basis
    for part, update_clip in zip(_POWER_SHARES, clips, strict=True):
        basis = np.linalg.qr(image).Q
        noise = noise_of_product(grid, width, update_clip * grid**2, spender.privacy.relation)
        payload = {
            "center": mean,
            "radius": np.array([clip]),
            "grid": np.array([grid]),
            "basis": basis,
            "update_clip": np.array([update_clip]),
        }
        image = yield from spender.sum_of(
            "private_product", "product", payload, noise, part * share, float(grid) ** 2
        )
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
        products=len(_POWER_SHARES),
    )


def _scree(
    spender: Spender, share: float, found: Decomposition, clip: float
) -> Protocol[Decomposition]:
    """Measure variances along the components, of rows that are clipped far out only."""
    low = math.log2(clip)
    reach = yield from radius_about(
        spender,
        _REACH_SHARE * share,
        found.mean,
        _REACH_QUANTILE,
        low,
        low + 4,
        NARROW_ASKS,
        open_ended=True,
    )
    payload = {
        "center": found.mean,
        "radius": np.array([reach]),
        "components": found.components,
    }
    parts = yield from spender.sum_of(
        "private_scree",
        "parts",
        payload,
        noise_of_scree(spender.privacy.relation),
        (1 - _REACH_SHARE) * share,
        float(SHARE_UNIT),
    )
    variances = np.maximum(parts * (reach**2 / SHARE_UNIT / max(spender.n - 1, 1)), 0.0)
    falling: Array = isotonic_regression(variances[:-1], increasing=False).x
    return replace(found, variances=falling, total_variance=float(variances.sum()))
