"""Runs of the papers' mechanisms as published: for research, never for protection."""

from dataclasses import replace
from typing import Any

import numpy as np

from eigenfed.errors import InputError
from eigenfed.protocol.core import Protocol
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.gate.script import Script, sequence
from eigenfed.protocol.operations import Op
from eigenfed.protocol.published import bounded
from eigenfed.protocol.published.bounded import get_published
from eigenfed.protocol.published.dpdispca import AnalyzeGauss, DPdisPCA
from eigenfed.protocol.published.fedpower import NoisyFedPower
from eigenfed.protocol.published.mechanism import Mechanism
from eigenfed.protocol.published.sulq import ModSuLQ, StreamingModSuLQ, SuLQ
from eigenfed.protocol.study import Study

MECHANISMS: tuple[type[Mechanism], ...] = (
    AnalyzeGauss,
    DPdisPCA,
    SuLQ,
    ModSuLQ,
    StreamingModSuLQ,
    NoisyFedPower,
)
"""All published mechanisms. A new one is a class in a module of its own and a line here."""

OPS: tuple[Op[Any, Any], ...] = (
    *bounded.OPS,
    *dict.fromkeys(op for mechanism in MECHANISMS for op in mechanism.operations()),
)


def published_script(study: Study) -> Script:
    """Return the script of a site in a run of a published mechanism."""
    mechanism = _get_mechanism(study)
    first = sequence("moments", "bounded_rows") if study.center else sequence("bounded_rows")
    return sequence(first, mechanism.script())


def published_pca(study: Study, *, rng: np.random.Generator) -> Protocol[Decomposition]:
    """Run a federated PCA with a published mechanism.

    What it protects, if anything, is stated by ``mechanism.truth``. Noise comes from the operating
    system's randomness: the sites' own noise directly, and a curator's through the sites' keys.

    Parameters
    ----------
    study : Study
        With a published mechanism as its privacy. If it centres, the mean of all rows leaves the
        sites without noise.
    rng : numpy Generator
        For public starts and for sampling sites.

    Returns
    -------
    Decomposition
        Its total variance is that of the noisy matrix, and NaN if no such matrix is formed.

    Examples
    --------
    >>> import numpy as np
    >>> from eigenfed.protocol.published import AnalyzeGauss
    >>> study = Study(("a",), 3, privacy=AnalyzeGauss(1.0, 1e-5, clip=2.0), center=False)
    >>> next(published_pca(study, rng=np.random.default_rng(0))).op
    'bounded_rows'
    """
    mechanism, k = _get_mechanism(study), study.k
    mechanism.check_sites(len(study.sites))
    ground = yield from bounded.collect_bounds(study)
    if k > ground.d:
        raise InputError(
            f"k={k} must be at most {ground.d}, the number of features. Ask for fewer components."
        )
    found = yield from mechanism.run(ground, k, rng)
    name = type(mechanism).__name__
    return replace(found, method=name, why=f"requested by name: {name} as published")


def _get_mechanism(study: Study) -> Mechanism:
    value = get_published(study)
    if not isinstance(value, Mechanism):
        raise InputError(
            f"privacy={value!r} must be a mechanism of eigenfed.protocol.published. Pass one."
        )
    return value
