"""004: FedPower with noise."""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from scipy.optimize import brentq
from scipy.stats import binom

from eigenfed.errors import Argument, InputError
from eigenfed.linalg.checks import check_count
from eigenfed.privacy.calibration import delta_of, epsilon_of
from eigenfed.privacy.published.truth import Published, check_one_of, root_of_log, wanted_rank


@dataclass(frozen=True)
class NoisyFedPower(Published):
    """FedPower with noise, 004 Alg. 2 (all sites) and Alg. 3 (some sites an average).

    Sites take p steps ``Z = orth(M Z)`` between averages and add noise of standard deviation
    ``max|Z| sigma`` to what they send, the coordinator ``max|Z| sigma'`` to the average.
    Neighbours: X'X differs in one entry by at most 1, which for symmetric matrices is a diagonal
    one; nothing is claimed about rows. Theorems 4 and 7 claim (2 epsilon, 2 delta).

    For p = 1 the sensitivity is the largest norm of Z's rows, not its largest entry: up to
    sqrt(r) times more for r columns. Basic composition leaves slack, so that the claim holds
    while r is at most about 7 times the number of averages, and fails beyond. For p > 1 nothing
    holds: what is sent depends on rows through Z too, without noise; so do max|Z| and the
    baseline's Z that sites are aligned to. Where T is no multiple of p, the output has no noise.
    Theorem 7 takes the probability of one draw for that of taking part at all.

    Parameters
    ----------
    epsilon, delta : float
        Half of what is claimed.
    iterations : int
        T, all steps together.
    local_steps : int, default=1
        p, steps up to and with each average.
    rank : int, optional
        r, columns of Z; twice the components by default.
    align : {"procrustes", "none"}, default="procrustes"
        Whether sites turn their Z to the baseline's before an average (004 eq. 3.2).
    participation : {"full", "scheme1", "scheme2"}, default="full"
        All sites in each average; some, drawn with replacement by their share of the rows; or
        some, drawn evenly without replacement.
    sites_per_round : int, optional
        K, how many are drawn.
    clip : float, optional
        Public bound on norms; without it rows are divided by their largest norm.

    Examples
    --------
    >>> single = NoisyFedPower(1.0, 1e-5, iterations=1, rank=16, clip=1.0)
    >>> truth = single.truth([100], 16, k=4, center=False)
    >>> truth.claimed_epsilon, round(truth.true_epsilon, 2)
    (2.0, 3.37)
    >>> local = NoisyFedPower(1.0, 1e-5, iterations=16, local_steps=4, clip=1.0)
    >>> local.truth([100] * 10, 64, k=10, center=False).true_epsilon
    inf
    """

    _: KW_ONLY
    iterations: int
    local_steps: int = 1
    rank: int | None = None
    align: str = "procrustes"
    participation: str = "full"
    sites_per_round: int | None = None

    relation: ClassVar[str] = "entry"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.delta < 0.5:
            raise InputError(
                Argument("delta", self.delta),
                " must be below 0.5, since the claim is about twice as much",
                remedy="Pass much less than one over the number of rows.",
            )
        check_count("local_steps", self.local_steps, "Pass 1 to average after each step.")
        remedy = "One average at least needs that many."
        check_count("iterations", self.iterations, remedy, least=self.local_steps)
        check_one_of("align", self.align, ("procrustes", "none"))
        check_one_of("participation", self.participation, ("full", "scheme1", "scheme2"))
        if self.rank is not None:
            check_count("rank", self.rank, "Pass None for twice the components.")
        if self.participation != "full":
            check_count("sites_per_round", self.sites_per_round, "Say how many sites to draw.")
        elif self.sites_per_round is not None:
            raise InputError(
                f"sites_per_round={self.sites_per_round!r} must be None with full participation. "
                "Leave it out, or choose participation='scheme1' or 'scheme2'."
            )

    @property
    def claim(self) -> tuple[float, float]:
        """The epsilon and delta that Theorems 4 and 7 claim: twice the formula's."""
        return 2.0 * self.epsilon, 2.0 * self.delta

    @property
    def averages(self) -> int:
        """How often sites send."""
        return self.iterations // self.local_steps

    def rank_for(self, k: int, d: int) -> int:
        """Return the columns of Z."""
        return wanted_rank(self.rank, k, d)

    def noise_factors(self, rows: Sequence[int]) -> tuple[float, float]:
        """Return sigma of the sites' noise and sigma' of the coordinator's, as printed.

        Both are to be multiplied by the largest entry of Z.
        """
        times = self.averages / (self.epsilon * min(rows))
        share, drawn = max(rows) / sum(rows), self.sites_per_round or 1
        argument = 1.25 * self.averages / self.delta
        at_server = times * root_of_log(argument, self.delta)
        match self.participation:
            case "full":
                return at_server, share * at_server
            case "scheme1":
                at_site = times * root_of_log(argument * share, self.delta)
                return at_site, at_server / drawn
            case _:
                at_site = times * root_of_log(argument / len(rows), self.delta)
                return at_site, share * at_server / drawn

    def taking_part(self, rows: Sequence[int]) -> list[float]:
        """Return for each site the probability that it takes part in an average."""
        match self.participation:
            case "full":
                return [1.0] * len(rows)
            case "scheme1":
                total, drawn = sum(rows), self.sites_per_round or 1
                return [1.0 - (1.0 - n / total) ** drawn for n in rows]
            case _:
                self.check_sites(len(rows))
                return [(self.sites_per_round or 1) / len(rows)] * len(rows)

    def check_sites(self, m: int) -> None:
        """Refuse to draw more sites without replacement than there are."""
        if self.participation == "scheme2" and (self.sites_per_round or 1) > m:
            raise InputError(
                f"sites_per_round={self.sites_per_round} must be at most {m}, the number of "
                "sites, where they are drawn without replacement. Draw fewer."
            )

    def noise_epsilon(self, rows: Sequence[int], d: int, k: int) -> float:
        """Return the least epsilon of the noise, for the site that fares worst.

        A site's row norm over its largest entry is sqrt(r) at most, and is that for a Hadamard
        matrix. Who takes part is public and does not depend on rows, so that delta is the mean
        over how often a site does. The coordinator's noise comes after and adds nothing.
        """
        if self.local_steps > 1:
            return math.inf
        sigma, _ = self.noise_factors(rows)
        root = math.sqrt(self.rank_for(k, d))
        return max(
            _sampled_epsilon(self.claim[1], root / (n * sigma), self.averages, q)
            for n, q in zip(rows, self.taking_part(rows), strict=True)
        )

    def reason(self, rows: Sequence[int], d: int, k: int) -> str:
        """Return what is behind the true epsilon."""
        if self.iterations % self.local_steps:
            return "The last steps follow the last average, and their result leaves without noise."
        if self.local_steps > 1:
            return (
                "After local steps Z itself depends on the rows, without noise, and so do the "
                "scale of the noise and the baseline's Z."
            )
        return (
            f"The sensitivity of {self.rank_for(k, d)} columns is up to the root of that number "
            "times what the noise is made for; basic composition leaves slack. A symmetric pair "
            "of entries would change sqrt(2) times as much, and of rows nothing is said."
        )


def _sampled_epsilon(delta: float, mu: float, times: int, probability: float) -> float:
    """Return the epsilon of releases of `mu` each, of which each happens with a probability."""
    most = epsilon_of(delta, mu * math.sqrt(times))
    if probability >= 1.0 or most in (0.0, math.inf):
        return most
    chances = [float(binom.pmf(j, times, probability)) for j in range(1, times + 1)]

    def excess(epsilon: float) -> float:
        curves = (delta_of(epsilon, mu * math.sqrt(j)) for j in range(1, times + 1))
        return sum(map(float.__mul__, chances, curves)) - delta

    return 0.0 if excess(0.0) <= 0.0 else float(brentq(excess, 0.0, most, rtol=1e-12))
