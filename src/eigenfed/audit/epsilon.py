"""Empirical lower bound on a mechanism's epsilon, from many runs on two neighbouring data sets.

===========  ==================================================================================
attacker     both data sets, the mechanism, and a score of what it releases
truth        the least epsilon at which the mechanism is (epsilon, delta)-DP
===========  ==================================================================================

For every event E, an (epsilon, delta)-DP mechanism has ``P1(E) <= exp(epsilon) P0(E) + delta``, so
epsilon is at least ``log((P1(E) - delta) / P0(E))``. The event is that a score exceeds a threshold.
The threshold is chosen on one half of the runs; on the other half the probabilities are bounded by
Clopper-Pearson intervals, which are exact. Events below and above a threshold are both tried, and
the confidence is split over the four probabilities.

The certified bound holds for any mechanism and any score; a poor score only makes it small. It
cannot exceed about ``log(trials)``, and never proves that a mechanism is private. The same event
also bounds mu of Gaussian DP, which needs far fewer runs. Converted to epsilon, that bound holds
only if the mechanism's privacy curve is Gaussian, as with Gaussian noise and its likelihood ratio.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv, ndtri

from eigenfed.arrays import Array
from eigenfed.errors import Argument, InputError
from eigenfed.linalg.checks import check_count
from eigenfed.privacy.dp.accounting import epsilon_of

Mechanism = Callable[[int, int], Array]
"""``mechanism(which, count)`` returns `count` releases from data set 0 or 1, (count, ...)."""

Score = Callable[[Array], Array]
"""Returns one number per release: the larger, the more it looks like data set 1."""

_LEAST_TRIALS = 100
_BATCH = 1 << 18
_CANDIDATES = 400
_SIDES = 4
_MARGIN = 100.0


@dataclass(frozen=True)
class Audit:
    """Lower bounds on a mechanism's epsilon, from runs.

    Attributes
    ----------
    delta : float
    certified : float
        Lower bound on epsilon, at the given confidence, for any mechanism.
    mu : float
        Lower bound on mu of Gaussian DP, at the given confidence.
    gaussian : float
        Lower bound on epsilon if, in addition, the privacy curve is Gaussian.
    confidence : float
        Confidence of `certified`, and separately of `mu`.
    trials : int
        Runs on each data set; half of them are used for the bounds.
    claimed, theory : float or None
        The claimed epsilon, and the one that theory gives.

    Examples
    --------
    >>> found = Audit(1e-5, certified=2.07, mu=0.58, gaussian=2.36, confidence=0.95,
    ...     trials=1000, claimed=2.0, theory=2.371)
    >>> found.refutes
    True
    >>> print(found.text)
    Certified at least epsilon 2.07 at delta 1e-05 (95% confidence, 1000 runs on each data set).
    If its privacy curve is Gaussian, at least 2.36 (mu at least 0.58).
    Theory: 2.371.
    Claimed: 2, which is refuted.
    """

    delta: float
    certified: float
    mu: float
    gaussian: float
    confidence: float
    trials: int
    claimed: float | None = None
    theory: float | None = None

    @property
    def refutes(self) -> bool:
        """Whether more is certified than is claimed."""
        return self.claimed is not None and self.certified > self.claimed

    @property
    def text(self) -> str:
        """The findings as sentences."""
        lines = [
            f"Certified at least epsilon {self.certified:.4g} at delta {self.delta:g} "
            f"({100 * self.confidence:g}% confidence, {self.trials} runs on each data set).",
            f"If its privacy curve is Gaussian, at least {self.gaussian:.4g} "
            f"(mu at least {self.mu:.4g}).",
        ]
        if self.theory is not None:
            lines.append(f"Theory: {self.theory:.4g}.")
        if self.claimed is not None:
            verdict = "which is refuted" if self.refutes else "which the runs do not refute"
            lines.append(f"Claimed: {self.claimed:.4g}, {verdict}.")
        return "\n".join(lines)


def audit_epsilon(
    mechanism: Mechanism,
    delta: float,
    *,
    trials: int,
    score: Score | None = None,
    confidence: float = 0.95,
    claimed: float | None = None,
    theory: float | None = None,
) -> Audit:
    """Certify a lower bound on a mechanism's epsilon.

    Parameters
    ----------
    mechanism : callable
        ``mechanism(which, count)`` runs on data set `which`, 0 or 1, `count` times, independently.
    delta : float
        The delta of the epsilon to be bounded.
    trials : int
        Runs on each data set, at least 100. They are run in batches, and only scores are kept.
    score : callable, optional
        Maps each release to one number; the log likelihood ratio is best (`likelihood_ratio`).
        None uses the releases themselves.
    confidence : float, default=0.95
    claimed, theory : float, optional
        Shown with the result.

    Returns
    -------
    Audit

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> found = audit_epsilon(
    ...     lambda which, count: which + rng.standard_normal(count), 1e-3, trials=100_000)
    >>> epsilon_of(1e-3, mu=1.0) > found.gaussian > found.certified > 1.0
    True
    """
    _check(delta, trials, confidence)
    half = trials // 2
    chosen, held = [], []
    for which in (0, 1):
        scores = _scores(mechanism, score, which, 2 * half)
        chosen.append(np.sort(scores[:half]))
        held.append(scores[half:])
    level = (1.0 - confidence) / _SIDES
    # Chosen at a stricter level: otherwise the luckiest of many thresholds would win.
    strict = level / _MARGIN
    certified, mu = 0.0, 0.0
    for is_one in (True, False):
        by_loss = _Event.best(chosen, is_one, lambda hit, miss: _loss(hit, miss, delta, strict))
        certified = max(certified, _loss(*by_loss.counts(held), delta, level).item())
        by_gap = _Event.best(chosen, is_one, lambda hit, miss: _gap(hit, miss, strict))
        mu = max(mu, _gap(*by_gap.counts(held), level).item())
    gaussian = epsilon_of(delta, mu) if delta > 0.0 else math.inf if mu else 0.0
    return Audit(delta, certified, mu, gaussian, confidence, 2 * half, claimed, theory)


def likelihood_ratio(first: Array, second: Array, sd: npt.ArrayLike) -> Score:
    """Return the score that is the log likelihood ratio of two values under Gaussian noise.

    Parameters
    ----------
    first, second : ndarray of the same shape
        Release of data set 0 and of data set 1, without noise.
    sd : float or ndarray of that shape
        Standard deviation of the noise.

    Returns
    -------
    callable
        Takes releases (count, *shape) and returns (count,).

    Examples
    --------
    >>> import numpy as np
    >>> score = likelihood_ratio(np.zeros(2), np.array([1.0, 0.0]), sd=0.5)
    >>> score(np.array([[0.5, 3.0], [1.0, 0.0]]))
    array([0., 2.])
    """
    weights = (second - first) / np.square(sd)
    middle = (first + second) / 2.0

    def score(releases: Array) -> Array:
        around = (releases - middle).reshape(len(releases), -1)
        ratios: Array = around @ weights.ravel()
        return ratios

    return score


def lower_bound(hits: npt.ArrayLike, trials: int, level: float) -> Array:
    """Return the Clopper-Pearson lower bound, which fails with probability at most `level`.

    Examples
    --------
    >>> lower_bound([0, 100], trials=100, level=0.05).round(4)
    array([0.    , 0.9705])
    """
    hits = np.asarray(hits, dtype=np.float64)
    found = betaincinv(np.maximum(hits, 1.0), trials - hits + 1.0, level)
    return np.where(hits > 0, found, 0.0)


def upper_bound(hits: npt.ArrayLike, trials: int, level: float) -> Array:
    """Return the Clopper-Pearson upper bound, which fails with probability at most `level`.

    Examples
    --------
    >>> upper_bound([0, 100], trials=100, level=0.05).round(4)
    array([0.0295, 1.    ])
    """
    hits = np.asarray(hits, dtype=np.float64)
    found = betaincinv(hits + 1.0, np.maximum(trials - hits, 1.0), 1.0 - level)
    return np.where(hits < trials, found, 1.0)


_Count = tuple[npt.NDArray[np.int64], int]
"""Number of runs in which an event happened, and number of runs."""


@dataclass(frozen=True)
class _Event:
    """A score at or above a threshold (evidence for data set 1), or at or below it (for 0)."""

    threshold: float
    is_one: bool

    @classmethod
    def best(
        cls, chosen: list[Array], is_one: bool, worth: Callable[[_Count, _Count], Array]
    ) -> "_Event":
        """Choose the threshold with the largest `worth` on sorted scores."""
        zero, one = chosen
        likelier, other = (one, zero) if is_one else (-zero[::-1], -one[::-1])
        thresholds = _candidates(likelier, other)
        seen = [len(s) - np.searchsorted(s, thresholds, side="left") for s in (likelier, other)]
        values = worth((seen[0], len(likelier)), (seen[1], len(other)))
        best = float(thresholds[np.argmax(values)])
        return cls(best if is_one else -best, is_one)

    def counts(self, held: list[Array]) -> tuple[_Count, _Count]:
        """Count the event on the data set that it is evidence for, and on the other one."""
        zero, one = (s >= self.threshold if self.is_one else s <= self.threshold for s in held)
        hit, miss = (one, zero) if self.is_one else (zero, one)
        return (np.array([hit.sum()]), len(hit)), (np.array([miss.sum()]), len(miss))


def _candidates(likelier: Array, other: Array) -> Array:
    """Return candidate thresholds, dense in the tails of both sorted sets of scores."""
    ranks = np.unique(np.geomspace(1, len(likelier), _CANDIDATES).astype(np.int64))
    pooled = [likelier[-ranks], other[-ranks], likelier[ranks - 1]]
    # One candidate is just above the largest score of the other data set.
    return np.concatenate([*pooled, [np.nextafter(other[-1], np.inf)]])


def _loss(hit: _Count, miss: _Count, delta: float, level: float) -> Array:
    """Return the lower bound on epsilon from counts."""
    excess = np.maximum(lower_bound(*hit, level) - delta, 0.0)
    over = upper_bound(*miss, level)
    ratio = np.divide(excess, over, out=np.ones_like(excess), where=excess > over)
    loss: Array = np.log(ratio)
    return loss


def _gap(hit: _Count, miss: _Count, level: float) -> Array:
    """Return the lower bound on mu from counts."""
    quantiles: Array = ndtri(lower_bound(*hit, level))
    gap: Array = np.maximum(quantiles - ndtri(upper_bound(*miss, level)), 0.0)
    return gap


def _scores(mechanism: Mechanism, score: Score | None, which: int, trials: int) -> Array:
    parts = []
    for start in range(0, trials, _BATCH):
        count = min(_BATCH, trials - start)
        releases = mechanism(which, count)
        scores = releases if score is None else score(releases)
        if np.shape(scores) != (count,):
            raise InputError(
                f"{count} runs gave scores of shape {np.shape(scores)}; one number per run is "
                "needed. Pass a score, such as likelihood_ratio(...)."
            )
        if np.isnan(scores).any():
            raise InputError("A score is NaN. Return a number for every release.")
        parts.append(np.asarray(scores, dtype=np.float64))
    return np.concatenate(parts)


def _check(delta: float, trials: int, confidence: float) -> None:
    if not 0.0 <= delta < 1.0:
        raise InputError(
            Argument("delta", delta),
            " must be at least 0 and below 1",
            remedy="Pass the delta of the claim.",
        )
    if not 0.0 < confidence < 1.0:
        raise InputError(
            Argument("confidence", confidence),
            " must be above 0 and below 1",
            remedy="Pass 0.95, for example.",
        )
    remedy = "Fewer runs cannot show anything."
    check_count("trials", trials, remedy, least=_LEAST_TRIALS)
