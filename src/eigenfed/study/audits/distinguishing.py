"""Audits of the noise that sites add, and of published mechanisms, on worst-case neighbours.

Replacing a row e1 by e2 changes two entries of the second moment, and no other pair of neighbours
changes it more. The noise of the entries is independent, so entries that do not change carry no
information. Only the changed entries are drawn, which makes the cost independent of the number of
features.
"""

from collections.abc import Callable

import numpy as np

from eigenfed.arrays import Array, Integers
from eigenfed.audit.epsilon import Audit, Mechanism, audit_epsilon, likelihood_ratio
from eigenfed.data.source import Source
from eigenfed.errors import Argument, InputError
from eigenfed.linalg.checks import check_count
from eigenfed.privacy.dp.accounting import epsilon_of, mu_of
from eigenfed.privacy.dp.clipping import choose_grid
from eigenfed.privacy.dp.discrete_gaussian import Noise
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.privacy.published_claims import CovarianceNoise, Truth
from eigenfed.protocol.operations import State, Terms
from eigenfed.protocol.private.private_site import MomentRequest, private_scatter
from eigenfed.protocol.private.reply_noise import noise_of_scatter
from eigenfed.protocol.published import AnalyzeGauss, DPdisPCA, ModSuLQ, StreamingModSuLQ, SuLQ
from eigenfed.protocol.published.continuous_noise import draw_normal
from eigenfed.protocol.study import Study

_ROWS = 2


def audit_own_noise(epsilon: float, delta: float, *, trials: int, parties: int = 3) -> Audit:
    """Audit the noise of eigenfed's own sites, drawn with their code.

    Parameters
    ----------
    epsilon, delta : float
        The claimed guarantee.
    trials : int
        Number of runs on each data set.
    parties : int, default=3
        Number of sites that each add a part of the noise.

    Examples
    --------
    >>> found = audit_own_noise(1.0, 1e-3, trials=2000)
    >>> found.refutes, round(found.theory, 3)
    (False, 1.0)
    """
    check_count("parties", parties, "At least one site adds noise.")
    values = [_compute_moment(np.eye(2)[[place]]) for place in range(2)]
    noise = noise_of_scatter(choose_grid(_ROWS, 2), 2, "replace_one")
    mu = mu_of(epsilon, delta)
    relative = noise.relative["triangle"]

    def mechanism(which: int, count: int) -> Array:
        shape = (count, len(relative))
        many = Noise(noise.sensitivity, {"triangle": np.broadcast_to(relative, shape)})
        release = np.broadcast_to(values[which], shape)
        for _ in range(parties):
            part = {"triangle": np.zeros(shape, dtype=np.int64)}
            release = release + many.add_to(part, mu, parties)["triangle"]
        return release.astype(np.float64)

    distance = float(np.linalg.norm((values[1] - values[0]) / relative)) / noise.sensitivity
    first, second = (value.astype(np.float64) for value in values)
    return audit_epsilon(
        mechanism,
        delta,
        trials=trials,
        score=likelihood_ratio(first, second, noise.sensitivity * relative),
        claimed=epsilon,
        theory=epsilon_of(delta, mu * distance),
    )


def _compute_moment(row: Array) -> Integers:
    """Return the second moment of a row and a row of zeros, as a site computes it."""
    rows = np.vstack([np.zeros((_ROWS - 1, 2)), row])
    study = Study(("a",), 1, "covariance", privacy=Privacy(1.0, 1e-6, trust="local"))
    request = MomentRequest(center=np.zeros(2), radius=1.0, n=_ROWS)
    answer = private_scatter.run(Source.of(rows), request, State(), Terms(study, _ROWS, 2))
    triangle: Integers = answer.reply.triangle
    return triangle


PUBLISHED: dict[str, Callable[[float, float, int], CovarianceNoise]] = {
    "SuLQ": lambda epsilon, delta, n: SuLQ(epsilon, delta, clip=1.0),
    "ModSuLQ": lambda epsilon, delta, n: ModSuLQ(epsilon, delta, clip=1.0),
    "AnalyzeGauss": lambda epsilon, delta, n: AnalyzeGauss(epsilon, delta, clip=1.0),
    "DPdisPCA": lambda epsilon, delta, n: DPdisPCA(epsilon, delta, clip=1.0),
    "StreamingModSuLQ": lambda epsilon, delta, n: StreamingModSuLQ(
        epsilon, delta, batch=n, clip=1.0
    ),
}
"""Published mechanisms that add noise to a second moment, for n rows of norm at most 1."""


def audit_published(
    name: str, epsilon: float, delta: float, *, n: int, d: int, trials: int
) -> tuple[Audit, Truth]:
    """Audit a published mechanism as printed, on its worst-case neighbours.

    Parameters
    ----------
    name : str
        One of `PUBLISHED`.
    epsilon, delta : float
        Parameters of the paper's formula.
    n, d : int
        Numbers of rows and of features; `d` is at least 2.
    trials : int
        Number of runs on each data set.

    Returns
    -------
    Audit
        Audit of the noise alone.
    Truth
        What is proven about the mechanism.

    Examples
    --------
    >>> found, truth = audit_published("DPdisPCA", 2.0, 1e-5, n=1000, d=20, trials=2000)
    >>> truth.holds, round(truth.true_epsilon, 3)
    (False, 2.371)
    """
    check_count("features", d, "The worst-case neighbours need two features.", least=2)
    if name not in PUBLISHED:
        raise InputError(
            Argument("name", name),
            f" must be one of {', '.join(PUBLISHED)}",
            remedy="Pass one of them.",
        )
    value = PUBLISHED[name](epsilon, delta, n)
    truth = value.truth([n], d, k=1, center=False)
    released = value.released_rows([n], d)
    sd = value.noise_sd(released, d)
    replaced = value.relation == "replace_one"
    first = np.array([1.0, 0.0] if replaced else [1.0]) / released
    second = np.array([0.0, 1.0] if replaced else [0.0]) / released
    found = audit_epsilon(
        _gaussian((first, second), sd),
        truth.claimed_delta,
        trials=trials,
        score=likelihood_ratio(first, second, sd),
        claimed=truth.claimed_epsilon,
        theory=truth.true_epsilon,
    )
    return found, truth


def _gaussian(values: tuple[Array, Array], sd: float) -> Mechanism:
    def mechanism(which: int, count: int) -> Array:
        return values[which] + draw_normal((count, len(values[which])), sd)

    return mechanism
