"""Noise on second moments: a curator's on that of all rows, or each site's on its own.

===========  ==================================================================================
coordinator  pooled: the sum over sites of the second moments of bounded rows, without noise, to
             which it adds noise as a curator whom all trust; else of each site on its own its
             noisy second moment, d (d + 1) / 2 numbers, or a factor of it, d x R
site         the mean and the bound; its noise follows from the study and its number of rows
===========  ==================================================================================
"""

from dataclasses import dataclass

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.linalg.eigen import leading_eigh
from eigenfed.privacy.published import CovarianceNoise, DPdisPCA
from eigenfed.privacy.published.noise import normal, symmetric
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.core import Ask, Protocol, ask_each
from eigenfed.protocol.ops import Answer, State, Terms, op
from eigenfed.protocol.published.bounded import (
    Bounded,
    BoundedRequest,
    bounded_moment,
    published_value,
)
from eigenfed.protocol.result import Decomposition
from eigenfed.protocol.totals import plain_sum


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TriangleReply:
    """Upper triangle of a second moment."""

    triangle: Array


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BoundedScatterRequest(BoundedRequest):
    """Ask for the second moment of bounded rows, without noise."""

    op, reply = "bounded_scatter", TriangleReply


@op(Release("second moment, bare", "d (d + 1) / 2", Leaves.PUBLISHED, Reveals.SCATTER))
def bounded_scatter(
    source: Source, request: BoundedScatterRequest, state: State, terms: Terms
) -> Answer[TriangleReply]:
    """Return the upper triangle of the second moment of the site's bounded rows."""
    moment = bounded_moment(source, request.mean, request.bound)
    return Answer(TriangleReply(triangle=_triangle(moment)), state)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NoisyCovarianceRequest(BoundedRequest):
    """Ask for the second moment of bounded rows, with noise."""

    op, reply = "noisy_covariance", TriangleReply


@op(Release("noisy second moment", "d (d + 1) / 2", Leaves.PUBLISHED, Reveals.SCATTER))
def noisy_covariance(
    source: Source, request: NoisyCovarianceRequest, state: State, terms: Terms
) -> Answer[TriangleReply]:
    """Return the upper triangle of the site's second moment with noise (002, sending A)."""
    return Answer(TriangleReply(triangle=_triangle(_noisy(source, request, terms))), state)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FactorReply:
    """A factor of a second moment, (d, r)."""

    factor: Array


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NoisyFactorRequest(BoundedRequest):
    """Ask for a factor of the noisy second moment, of the rank that the mechanism says."""

    op, reply = "noisy_factor", FactorReply


@op(Release("factor of noisy second moment", "d x l", Leaves.PUBLISHED, Reveals.SCATTER))
def noisy_factor(
    source: Source, request: NoisyFactorRequest, state: State, terms: Terms
) -> Answer[FactorReply]:
    """Return ``U sqrt(S)`` of the noisy second moment, its rank cut (002 Alg. 1, lines 5-7).

    By singular values, as printed: strongly negative eigenvalues, which are noise, count as
    positive ones.
    """
    u, s, _ = np.linalg.svd(_noisy(source, request, terms), hermitian=True)
    value = published_value(terms.study)
    rank = value.rank_for(terms.k, terms.d) if isinstance(value, DPdisPCA) else terms.k
    return Answer(FactorReply(factor=u[:, :rank] * np.sqrt(s[:rank])), state)


OPS = (bounded_scatter, noisy_covariance, noisy_factor)


def pooled_noise(ground: Bounded, k: int, value: CovarianceNoise) -> Protocol[Decomposition]:
    """Sum the second moments of all sites and add a trusted curator's noise.

    Symmetric noise goes with leading eigenvectors, other noise with leading left singular
    vectors.
    """
    summed = yield from plain_sum(Ask(BoundedScatterRequest(**ground.fields)))
    matrix = _whole(summed.triangle, ground.d) / ground.n
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
    to = tuple(asked)
    if value.release == "factor":
        factors = yield from ask_each(Ask(NoisyFactorRequest(**ground.fields), to=to))
        matrices = [factors[site].factor @ factors[site].factor.T for site in asked]
    else:
        whole = yield from ask_each(Ask(NoisyCovarianceRequest(**ground.fields), to=to))
        matrices = [_whole(whole[site].triangle, ground.d) for site in asked]
    average: Array = sum(matrices, np.zeros((ground.d, ground.d))) / len(matrices)
    return _leading(ground, average, k)


def _leading(ground: Bounded, matrix: Array, k: int) -> Decomposition:
    values, vectors = leading_eigh(matrix, k)
    return ground.decomposition(vectors, values, total=float(np.trace(matrix)), products=1)


def _noisy(source: Source, request: BoundedRequest, terms: Terms) -> Array:
    value = published_value(terms.study)
    sd = value.noise_sd(source.n, source.d) if isinstance(value, CovarianceNoise) else np.inf
    return bounded_moment(source, request.mean, request.bound) / source.n + symmetric(source.d, sd)


def _triangle(matrix: Array) -> Array:
    upper: Array = matrix[np.triu_indices(len(matrix))]
    return upper


def _whole(triangle: Array, d: int) -> Array:
    rows, columns = np.triu_indices(d)
    matrix = np.zeros((d, d))
    matrix[rows, columns] = matrix[columns, rows] = triangle
    return matrix
