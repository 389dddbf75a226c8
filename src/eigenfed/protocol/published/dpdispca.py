"""[Imtiaz2018]: differentially private distributed PCA, and Analyze Gauss, which it builds on.

===========  ==================================================================================
coordinator  pooled: what a trusted curator sees (`mechanism`); otherwise from each site alone its
             noisy second moment, d (d + 1) / 2 numbers, or a factor of it, d x R
site         the mean and the bound; its noise follows from the study and its number of rows
===========  ==================================================================================
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.linalg.checks import check_count
from eigenfed.privacy.dp.accounting import epsilon_of
from eigenfed.privacy.dp.sensitivity import second_moment_sensitivity
from eigenfed.privacy.published_claims import (
    CovarianceNoise,
    check_one_of,
    choose_rank,
    root_of_log,
)
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.core import Call, Protocol, call_each
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.spectrum import pack_symmetric, unpack_symmetric
from eigenfed.protocol.gate.script import Script, either
from eigenfed.protocol.operations import Answer, Op, State, Terms, op
from eigenfed.protocol.published.bounded import (
    Bounded,
    BoundedRequest,
    compute_bounded_moment,
    get_published,
)
from eigenfed.protocol.published.continuous_noise import draw_symmetric
from eigenfed.protocol.published.mechanism import (
    CuratorMechanism,
    FactorReply,
    TriangleReply,
    decompose_symmetric,
)


@dataclass(frozen=True)
class AnalyzeGauss(CuratorMechanism):
    """Analyze Gauss, as [Imtiaz2018] cites it: a curator adds symmetric noise to ``X'X / n``.

    The noise has standard deviation ``sqrt(2 log(1.25 / delta)) / (n epsilon)`` on and above the
    diagonal. Neighbours: one row removed, n public. The classical formula is proved only for
    epsilon below 1; above, its slack makes it hold until about epsilon 8. If a row is replaced the
    sensitivity is sqrt(2) times larger, and the claim fails much earlier.

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
        """Explain the true epsilon."""
        n = sum(rows)
        mu = second_moment_sensitivity(1.0, "replace_one") / (n * self.noise_sd(n, d))
        return (
            "The classical formula is proved for epsilon below 1; above, it holds for a while by "
            "its slack. If a row is replaced instead of removed, epsilon is "
            f"{epsilon_of(self.delta, mu):.4g}."
        )


@dataclass(frozen=True)
class DPdisPCA(CuratorMechanism):
    """DPdisPCA, [Imtiaz2018] Alg. 1, and the three settings that its Table 1 compares it with.

    Each site adds symmetric noise of standard deviation ``sqrt(2 log(1.25/delta)) / (N epsilon)``
    to its second moment A of N rows. Neighbours: one row replaced. Theorem 1 claims
    (epsilon, delta). It uses the spectral norm 1/N of the change of A as the sensitivity, while
    Gaussian noise needs the Frobenius norm, sqrt(2)/N. The slack of the classical formula hides
    this at small epsilon or large delta: at delta 1e-5 the true epsilon for 0.1, 0.5, 1, 2, 4
    is 0.089, 0.514, 1.098, 2.37, 5.24. This is tight if whole matrices are sent; an attack on
    factors of rank 2 comes within 1 % of it. A record held by two sites is charged twice.

    Parameters
    ----------
    epsilon, delta : float
    release : {"factor", "covariance"}, default="factor"
        What leaves a site: the factor ``U sqrt(S)`` of rank R of the noisy matrix, or the matrix.
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
                "release='factor' is what sites send, and cannot be combined with "
                "where='pooled'. Pass release='covariance'."
            )
        if self.rank is not None:
            check_count("rank", self.rank, "Pass None for twice the components.")
            if self.release == "covariance":
                raise InputError(
                    f"rank={self.rank} must be None with release='covariance', which does not "
                    "truncate. Omit it, or pass release='factor'."
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
        return choose_rank(self.rank, k, d)

    def released_rows(self, rows: Sequence[int], d: int) -> int:
        """Return the number of rows of one release; epsilon is the same for any number."""
        return sum(rows) if self.where == "pooled" else max(rows)

    def reason(self, rows: Sequence[int], d: int, k: int) -> str:
        """Explain the true epsilon."""
        return (
            "The noise is calibrated to a sensitivity of 1/N, the spectral norm; replacing a row "
            "changes the matrix by sqrt(2)/N in Frobenius norm, which Gaussian noise must cover. "
            "Records held by two sites are charged twice."
        )

    @classmethod
    def operations(cls) -> tuple[Op[Any, Any], ...]:
        """Return the operations of all settings."""
        return (*super().operations(), noisy_covariance, noisy_factor)

    def script(self) -> Script:
        """Return the script: one noisy matrix or factor, or a curator's."""
        if self.where == "pooled":
            return super().script()
        return either("noisy_covariance", "noisy_factor")

    def run(self, ground: Bounded, k: int, rng: np.random.Generator) -> Protocol[Decomposition]:
        """Average the sites' noisy second moments ([Imtiaz2018] Alg. 1), or run as a curator.

        All sites have the same weight, as printed (line 9), whatever their numbers of rows.
        """
        if self.where == "pooled":
            return (yield from super().run(ground, k, rng))
        to = tuple(ground.rows)
        if self.where == "one_site":
            to = (max(ground.rows, key=ground.rows.__getitem__),)
        if self.release == "factor":
            factors = yield from call_each(Call(NoisyFactorRequest(**ground.fields), to=to))
            matrices = [factors[site].factor @ factors[site].factor.T for site in to]
        else:
            whole = yield from call_each(Call(NoisyCovarianceRequest(**ground.fields), to=to))
            matrices = [unpack_symmetric(whole[site].triangle, ground.d) for site in to]
        average: Array = sum(matrices, np.zeros((ground.d, ground.d))) / len(matrices)
        return decompose_symmetric(ground, average, k)


def _classical_sd(epsilon: float, delta: float, n: int) -> float:
    """Return the standard deviation of the classical Gaussian mechanism for sensitivity 1/n."""
    return root_of_log(1.25 / delta, delta) / (n * epsilon)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NoisyCovarianceRequest(BoundedRequest):
    """Request the second moment of bounded rows, with noise."""

    op, reply = "noisy_covariance", TriangleReply


@op(Release("noisy second moment", "d (d + 1) / 2", Leaves.PUBLISHED, Reveals.SCATTER))
def noisy_covariance(
    source: Source, request: NoisyCovarianceRequest, state: State, terms: Terms
) -> Answer[TriangleReply]:
    """Return the upper triangle of the noisy second moment ([Imtiaz2018] Table 1, sending A)."""
    noisy = _compute_noisy_moment(source, request, terms)
    return Answer(TriangleReply(triangle=pack_symmetric(noisy)), state)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NoisyFactorRequest(BoundedRequest):
    """Request a factor of the noisy second moment, of the mechanism's rank."""

    op, reply = "noisy_factor", FactorReply


@op(Release("factor of noisy second moment", "d x l", Leaves.PUBLISHED, Reveals.SCATTER))
def noisy_factor(
    source: Source, request: NoisyFactorRequest, state: State, terms: Terms
) -> Answer[FactorReply]:
    """Return ``U sqrt(S)`` of the noisy second moment, truncated ([Imtiaz2018] Alg. 1, lines 5-7).

    By singular values, as printed: large negative eigenvalues, which are noise, count as positive.
    """
    u, s, _ = np.linalg.svd(_compute_noisy_moment(source, request, terms), hermitian=True)
    value = get_published(terms.study)
    rank = value.rank_for(terms.k, terms.d) if isinstance(value, DPdisPCA) else terms.k
    return Answer(FactorReply(factor=u[:, :rank] * np.sqrt(s[:rank])), state)


def _compute_noisy_moment(source: Source, request: BoundedRequest, terms: Terms) -> Array:
    """Return the site's second moment with the noise that its mechanism prescribes, (d, d).

    The standard deviation follows from the approved study and the site's own number of rows: it is
    never taken from a request.
    """
    value = get_published(terms.study)
    sd = value.noise_sd(source.n, source.d) if isinstance(value, CovarianceNoise) else np.inf
    moment = compute_bounded_moment(source, request.mean, request.bound) / source.n
    return moment + draw_symmetric(source.d, sd)
