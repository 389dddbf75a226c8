"""002: differentially private distributed PCA, and Analyze Gauss on which it stands."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from eigenfed.errors import InputError
from eigenfed.linalg.checks import check_count
from eigenfed.privacy.calibration import epsilon_of
from eigenfed.privacy.published.truth import (
    CovarianceNoise,
    check_one_of,
    root_of_log,
    wanted_rank,
)
from eigenfed.privacy.sensitivity import of_second_moment


@dataclass(frozen=True)
class AnalyzeGauss(CovarianceNoise):
    """Analyze Gauss, as 002 cites it: a trusted curator adds symmetric noise to ``X'X / n``.

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
    """DPdisPCA, 002 Alg. 1, and the three settings that its Table 1 compares it with.

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
        Public bound on norms; without it rows are divided by their largest norm, as in 002.

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
