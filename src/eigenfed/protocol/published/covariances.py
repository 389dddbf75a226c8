"""Noise on second moments: a curator's on that of all rows, or each site's on its own.

===========  ==================================================================================
coordinator  pooled: the sum over sites of the second moments of bounded rows, without noise, to
             which it adds noise as a curator whom all trust; else of each site on its own its
             noisy second moment, d (d + 1) / 2 numbers, or a factor of it, d x R
site         the mean, the bound, and the standard deviation of its noise
===========  ==================================================================================
"""

import numpy as np

from eigenfed.arrays import Array, Arrays
from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.linalg.eigen import leading_eigh
from eigenfed.privacy.published import CovarianceNoise, DPdisPCA
from eigenfed.privacy.published.noise import normal, symmetric
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.core import Ask, Protocol
from eigenfed.protocol.ops import Answer, op
from eigenfed.protocol.published.bounded import Bounded, bounded_moment
from eigenfed.protocol.result import Decomposition
from eigenfed.protocol.totals import plain_sum


@op(Release("second moment, bare", "d (d + 1) / 2", Leaves.PUBLISHED, Reveals.SCATTER))
def bounded_scatter(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Return the upper triangle of the second moment of the site's bounded rows."""
    return Answer({"triangle": _triangle(bounded_moment(source, payload))}, state)


@op(Release("noisy second moment", "d (d + 1) / 2", Leaves.PUBLISHED, Reveals.SCATTER))
def noisy_covariance(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Return the upper triangle of the site's second moment with noise (002, sending A)."""
    return Answer({"triangle": _triangle(_noisy(source, payload))}, state)


@op(Release("factor of noisy second moment", "d x l", Leaves.PUBLISHED, Reveals.SCATTER))
def noisy_factor(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Return ``U sqrt(S)`` of the noisy second moment, its rank cut (002 Alg. 1, lines 5-7).

    By singular values, as printed: strongly negative eigenvalues, which are noise, count as
    positive ones.
    """
    u, s, _ = np.linalg.svd(_noisy(source, payload), hermitian=True)
    rank = int(payload["rank"][0])
    return Answer({"factor": u[:, :rank] * np.sqrt(s[:rank])}, state)


OPS = (bounded_scatter, noisy_covariance, noisy_factor)


def checked_sd(payload: Arrays) -> float:
    """Return the standard deviation that a site is sent; without noise nothing leaves."""
    sd = float(payload["sd"][0])
    if not 0.0 < sd < np.inf:
        raise InputError(f"sd={sd} must be a finite number above 0. Ask with the paper's.")
    return sd


def pooled_noise(ground: Bounded, k: int, value: CovarianceNoise) -> Protocol[Decomposition]:
    """Sum the second moments of all sites and add a trusted curator's noise.

    Symmetric noise goes with leading eigenvectors, other noise with leading left singular
    vectors.
    """
    summed = yield from plain_sum(Ask("bounded_scatter", ground.arrays))
    matrix = _whole(summed["triangle"], ground.d) / ground.n
    sd = value.noise_sd(ground.n, ground.d)
    if value.is_symmetric:
        matrix += symmetric(ground.d, sd, ground.bits())
        return _leading(ground, matrix, k)
    matrix += normal(matrix.shape, sd, ground.bits())
    u, s, _ = np.linalg.svd(matrix)
    return ground.decomposition(u[:, :k], s[:k], total=float(np.trace(matrix)), products=1)


def distributed_noise(ground: Bounded, k: int, value: DPdisPCA) -> Protocol[Decomposition]:
    """Average what sites send of their noisy second moments (002 Alg. 1).

    All sites have the same weight, as printed, whatever their numbers of rows. The average is
    decomposed by eigenvalues, ``V L V'``.
    """
    asked = ground.rows
    if value.where == "one_site":
        largest = max(asked, key=asked.__getitem__)
        asked = {largest: asked[largest]}
    each = {site: {"sd": np.array([value.noise_sd(n, ground.d)])} for site, n in asked.items()}
    payload, op_name = ground.arrays, "noisy_covariance"
    if value.release == "factor":
        payload |= {"rank": np.array([value.rank_for(k, ground.d)])}
        op_name = "noisy_factor"
    replies = yield Ask(op_name, payload, each=each, to=tuple(asked))
    matrices = [_matrix(replies[site], ground.d) for site in asked]
    average: Array = sum(matrices, np.zeros((ground.d, ground.d))) / len(matrices)
    return _leading(ground, average, k)


def _leading(ground: Bounded, matrix: Array, k: int) -> Decomposition:
    values, vectors = leading_eigh(matrix, k)
    return ground.decomposition(vectors, values, total=float(np.trace(matrix)), products=1)


def _noisy(source: Source, payload: Arrays) -> Array:
    sd = checked_sd(payload)
    return bounded_moment(source, payload) / source.n + symmetric(source.d, sd)


def _matrix(reply: Arrays, d: int) -> Array:
    if "factor" in reply:
        gram: Array = reply["factor"] @ reply["factor"].T
        return gram
    return _whole(reply["triangle"], d)


def _triangle(matrix: Array) -> Array:
    upper: Array = matrix[np.triu_indices(len(matrix))]
    return upper


def _whole(triangle: Array, d: int) -> Array:
    rows, columns = np.triu_indices(d)
    matrix = np.zeros((d, d))
    matrix[rows, columns] = matrix[columns, rows] = triangle
    return matrix
