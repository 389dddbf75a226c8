"""Runs of the papers' mechanisms as published: for science, never for protection."""

from dataclasses import replace

import numpy as np

from eigenfed.errors import InputError
from eigenfed.privacy.published import (
    CovarianceNoise,
    DPdisPCA,
    NoisyFedPower,
    Published,
    StreamingModSuLQ,
)
from eigenfed.protocol.core import Protocol
from eigenfed.protocol.published import bounded as _bounded
from eigenfed.protocol.published import covariances, power, stream
from eigenfed.protocol.published.bounded import Bounded
from eigenfed.protocol.result import Decomposition

OPS = (*_bounded.OPS, *covariances.OPS, *stream.OPS, *power.OPS)


def published_pca(
    value: Published,
    k: int,
    *,
    sites: tuple[str, ...],
    rng: np.random.Generator,
    center: bool = True,
) -> Protocol[Decomposition]:
    """Run a federated PCA with a published mechanism.

    What it protects, if anything, is in ``value.truth``. Noise comes from the operating
    system's randomness: the sites' own, and for a curator's what follows from the sites' keys.

    Parameters
    ----------
    value : Published
    k : int
        Number of components, d at most.
    sites : tuple of str
        Names of the sites, sorted.
    rng : numpy Generator
        For public starts and for drawing sites.
    center : bool, default=True
        Subtract the mean of all rows, which leaves the sites without noise.

    Returns
    -------
    Decomposition
        Its total variance is that of the noisy matrix, and NaN where no such matrix is formed.

    Examples
    --------
    >>> import numpy as np
    >>> from eigenfed.privacy.published import AnalyzeGauss
    >>> value = AnalyzeGauss(1.0, 1e-5, clip=2.0)
    >>> run = published_pca(value, 3, sites=("a",), rng=np.random.default_rng(0), center=False)
    >>> next(run).op
    'bounded_rows'
    """
    if isinstance(value, NoisyFedPower):
        value.check_sites(len(sites))
    ground = yield from _bounded.bounded(value.clip, center=center)
    if k > ground.d:
        raise InputError(
            f"k={k} must be at most {ground.d}, the number of features. Ask for fewer components."
        )
    found = yield from _run(value, ground, k, rng)
    name = type(value).__name__
    return replace(found, method=name, why=f"asked for by name: {name} as published")


def _run(
    value: Published, ground: Bounded, k: int, rng: np.random.Generator
) -> Protocol[Decomposition]:
    match value:
        case NoisyFedPower():
            return power.noisy_power(ground, k, value, rng=rng)
        case StreamingModSuLQ():
            return stream.tracked_stream(ground, k, value)
        case DPdisPCA() if value.where != "pooled":
            return covariances.distributed_noise(ground, k, value)
        case CovarianceNoise():
            return covariances.pooled_noise(ground, k, value)
        case _:
            raise InputError(
                f"value={value!r} must be a mechanism of eigenfed.privacy.published. Pass one."
            )
