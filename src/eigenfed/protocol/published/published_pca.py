"""Runs of the papers' mechanisms as published: for science, never for protection."""

from dataclasses import replace

import numpy as np

from eigenfed.errors import InputError
from eigenfed.privacy.published_claims import CovarianceNoise, Published
from eigenfed.protocol.core import Protocol
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.gate.script import Script, either, repeat, sequence
from eigenfed.protocol.published import (
    DPdisPCA,
    NoisyFedPower,
    StreamingModSuLQ,
    bounded,
    dpdispca,
    fedpower,
    sulq,
)
from eigenfed.protocol.published.bounded import Bounded, published_value
from eigenfed.protocol.study import Study

OPS = (*bounded.OPS, *dpdispca.OPS, *sulq.OPS, *fedpower.OPS)


def published_script(study: Study) -> Script:
    """Return what a site is asked in a run of a published mechanism."""
    value = published_value(study)
    first = sequence("moments", "bounded_rows") if study.center else sequence("bounded_rows")
    match value:
        case NoisyFedPower():
            steps = either("noisy_step", "bare_walk", "bare_basis")
            return sequence(first, repeat(steps, 0, 2 * value.averages + 2))
        case StreamingModSuLQ():
            return sequence(first, "masked_stream")
        case DPdisPCA() if value.where != "pooled":
            return sequence(first, either("noisy_covariance", "noisy_factor"))
        case _:
            return sequence(first, "bounded_scatter")


def published_pca(study: Study, *, rng: np.random.Generator) -> Protocol[Decomposition]:
    """Run a federated PCA with a published mechanism.

    What it protects, if anything, is in ``value.truth``. Noise comes from the operating
    system's randomness: the sites' own, and for a curator's what follows from the sites' keys.

    Parameters
    ----------
    study : Study
        With a published mechanism for its privacy. Where it centres, the mean of all rows leaves
        the sites without noise.
    rng : numpy Generator
        For public starts and for drawing sites.

    Returns
    -------
    Decomposition
        Its total variance is that of the noisy matrix, and NaN where no such matrix is formed.

    Examples
    --------
    >>> import numpy as np
    >>> from eigenfed.protocol.published import AnalyzeGauss
    >>> study = Study(("a",), 3, privacy=AnalyzeGauss(1.0, 1e-5, clip=2.0), center=False)
    >>> next(published_pca(study, rng=np.random.default_rng(0))).op
    'bounded_rows'
    """
    value, k = published_value(study), study.components
    if isinstance(value, NoisyFedPower):
        value.check_sites(len(study.sites))
    ground = yield from bounded.bounded(study)
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
            return fedpower.noisy_power(ground, k, value, rng=rng)
        case StreamingModSuLQ():
            return sulq.tracked_stream(ground, k, value)
        case DPdisPCA() if value.where != "pooled":
            return dpdispca.distributed_noise(ground, k, value)
        case CovarianceNoise():
            return dpdispca.pooled_noise(ground, k, value)
        case _:
            raise InputError(
                f"value={value!r} must be a mechanism of eigenfed.protocol.published. Pass one."
            )
