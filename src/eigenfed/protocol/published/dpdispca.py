"""[Imtiaz2018]: differentially private distributed PCA, and Analyze Gauss on which it stands.

Noise on second moments: a curator's on that of all rows, or each site's on its own.

===========  ==================================================================================
coordinator  pooled: the sum over sites of the second moments of bounded rows, without noise, to
             which it adds noise as a curator whom all trust; else of each site on its own its
             noisy second moment, d (d + 1) / 2 numbers, or a factor of it, d x R
site         the mean and the bound; its noise follows from the study and its number of rows
===========  ==================================================================================
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.linalg.checks import check_count
from eigenfed.linalg.eigen import leading_eigh
from eigenfed.privacy.dp.accounting import epsilon_of
from eigenfed.privacy.dp.sensitivity import of_second_moment
from eigenfed.privacy.published_claims import (
    CovarianceNoise,
    check_one_of,
    root_of_log,
    wanted_rank,
)
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.core import Call, Protocol, call_each, plain_sum
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.operations import Answer, State, Terms, op
from eigenfed.protocol.published.bounded import (
    Bounded,
    BoundedRequest,
    bounded_moment,
    published_value,
)
from eigenfed.protocol.published.continuous_noise import normal, symmetric


@dataclass(frozen=True)
class AnalyzeGauss(CovarianceNoise):
    """Analyze Gauss, as [Imtiaz2018] cites it: a curator adds symmetric noise to ``X'X / n``.

    The noise has standard deviation ``sqrt(2 log(1.25 / delta)) / (n epsilon)`` on and above the
    diagonal. Neighbours: one row taken out, n public. The classical formula is proved for
    epsilon below 1 only; beyond, it holds by its slack until about epsilon 8. For a row that is
    replaced the sensitivity is sqrt(2) times larger, and the claim fails much earlier.

    Parameters
    ----------
    epsilon, delta : float
    clip : float, optional
        Public bound on norms; without it rows are divided by their largest norm.

    Examples
    --------
    >>> AnalyzeGauss(1.0, 1e-5, clip=1.0).truth([1000], 64, k=10, center=False).holds
    True
    >>> AnalyzeGauss(8.0, 1e-3, clip=1.0).truth([1000], 64, k=10, center=False).holds
    False
    """

    relation: ClassVar[str] = "zero_out"

    @property
    def is_symmetric(self) -> bool:
        """Whether the noise is a symmetric matrix: yes."""
        return True

    def noise_sd(self, n: int, d: int) -> float:
        """Return the standard deviation of the noise on ``X'X / n``, as printed."""
        return _classical_sd(self.epsilon, self.delta, n)

    def reason(self, rows: Sequence[int], d: int, k: int) -> str:
        """Return what is behind the true epsilon."""
        n = sum(rows)
        mu = of_second_moment(1.0, "replace_one") / (n * self.noise_sd(n, d))
        return (
            "The classical formula is proved below epsilon 1; beyond, its slack carries it for a "
            "while. For a row that is replaced, not taken out, epsilon is "
            f"{epsilon_of(self.delta, mu):.4g}."
        )


@dataclass(frozen=True)
class DPdisPCA(CovarianceNoise):
    """DPdisPCA, [Imtiaz2018] Alg. 1, and the three settings that its Table 1 compares it with.

    Each site adds symmetric noise of standard deviation ``sqrt(2 log(1.25/delta)) / (N epsilon)``
    to its second moment A of N rows. Neighbours: one row replaced. Theorem 1 claims
    (epsilon, delta). It takes the spectral norm 1/N of A's change for the sensitivity, where
    Gaussian noise needs the Frobenius norm, sqrt(2)/N. The classical formula's slack hides
    that at small epsilon or large delta: at delta 1e-5 the true epsilon for 0.1, 0.5, 1, 2, 4
    is 0.089, 0.514, 1.098, 2.37, 5.24. It is tight where whole matrices are sent; an attack on
    factors of rank 2 comes within one part in a hundred. A record that two sites hold pays
    twice.

    Parameters
    ----------
    epsilon, delta : float
    release : {"factor", "covariance"}, default="factor"
        What leaves a site: the factor ``U sqrt(S)`` of rank R of the noisy matrix, or all of it.
    where : {"local", "one_site", "pooled"}, default="local"
        Noise at each site; only the site with most rows (the paper's "local data"); or a
        trusted curator's noise on the second moment of all rows, with "covariance" only.
    rank : int, optional
        R, with "factor"; twice the components by default.
    clip : float, optional
        Public bound on norms; without it rows are divided by their largest norm, as in
        [Imtiaz2018].

    Examples
    --------
    >>> truth = DPdisPCA(4.0, 1e-5, clip=1.0).truth([100] * 10, 64, k=10, center=False)
    >>> truth.claimed_epsilon, round(truth.true_epsilon, 2)
    (4.0, 5.24)
    >>> DPdisPCA(1.0, 1e-5).truth([100] * 10, 64, k=10).true_epsilon
    inf
    """

    _: KW_ONLY
    release: str = "factor"
    where: str = "local"
    rank: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of("release", self.release, ("factor", "covariance"))
        check_one_of("where", self.where, ("local", "one_site", "pooled"))
        if self.where == "pooled" and self.release == "factor":
            raise InputError(
                "release='factor' is what sites send, and with where='pooled' a curator holds "
                "all rows. Pass release='covariance'."
            )
        if self.rank is not None:
            check_count("rank", self.rank, "Pass None for twice the components.")
            if self.release == "covariance":
                raise InputError(
                    f"rank={self.rank} must be None with release='covariance', which cuts "
                    "nothing off. Leave it out, or pass release='factor'."
                )

    @property
    def is_symmetric(self) -> bool:
        """Whether the noise is a symmetric matrix: yes."""
        return True

    def noise_sd(self, n: int, d: int) -> float:
        """Return the standard deviation of the noise on ``X'X / n``, as printed."""
        return _classical_sd(self.epsilon, self.delta, n)

    def rank_for(self, k: int, d: int) -> int:
        """Return the rank R of the factors."""
        return wanted_rank(self.rank, k, d)

    def released_rows(self, rows: Sequence[int], d: int) -> int:
        """Return how many rows one release is about; epsilon is the same for any number."""
        return sum(rows) if self.where == "pooled" else max(rows)

    def reason(self, rows: Sequence[int], d: int, k: int) -> str:
        """Return what is behind the true epsilon."""
        return (
            "The noise is made for a sensitivity of 1/N, the spectral norm; a row that is "
            "replaced changes the matrix by sqrt(2)/N in Frobenius norm, which is what Gaussian "
            "noise must cover. Records at two sites pay twice."
        )


def _classical_sd(epsilon: float, delta: float, n: int) -> float:
    return root_of_log(1.25 / delta, delta) / (n * epsilon)


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
    """Return the upper triangle of the noisy second moment ([Imtiaz2018], sending A)."""
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
    """Return ``U sqrt(S)`` of the noisy second moment, truncated ([Imtiaz2018] Alg. 1, lines 5-7).

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
    summed = yield from plain_sum(Call(BoundedScatterRequest(**ground.fields)))
    matrix = _whole(summed.triangle, ground.d) / ground.n
    sd = value.noise_sd(ground.n, ground.d)
    if value.is_symmetric:
        matrix += symmetric(ground.d, sd, ground.bits())
        return _leading(ground, matrix, k)
    matrix += normal(matrix.shape, sd, ground.bits())
    u, s, _ = np.linalg.svd(matrix)
    return ground.decomposition(u[:, :k], s[:k], total=float(np.trace(matrix)), products=1)


def distributed_noise(ground: Bounded, k: int, value: DPdisPCA) -> Protocol[Decomposition]:
    """Average what sites send of their noisy second moments ([Imtiaz2018] Alg. 1).

    All sites have the same weight, as printed, whatever their numbers of rows. The average is
    decomposed by eigenvalues, ``V L V'``.
    """
    asked = ground.rows
    if value.where == "one_site":
        largest = max(asked, key=asked.__getitem__)
        asked = {largest: asked[largest]}
    to = tuple(asked)
    if value.release == "factor":
        factors = yield from call_each(Call(NoisyFactorRequest(**ground.fields), to=to))
        matrices = [factors[site].factor @ factors[site].factor.T for site in asked]
    else:
        whole = yield from call_each(Call(NoisyCovarianceRequest(**ground.fields), to=to))
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
