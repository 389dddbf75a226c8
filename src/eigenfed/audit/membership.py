"""Membership inference: whether released components show that a record was among the rows.

===========  ==================================================================================
attacker     one record, the released components and mean, and own runs on similar data
truth        whether the record was among the rows
===========  ==================================================================================

Components fit the rows they were computed from, so a record that was one of few rows lies closer
to their span than one that was not. The attack answers "in" if the record's score is beyond a
threshold. Its advantage is the probability of a correct "in" minus that of a wrong "in". The
threshold is chosen on one half of the runs, and the advantage is bounded on the other half.

If a run is (epsilon, delta)-DP, no attack has an advantage of more than
``(exp(epsilon) - 1 + 2 delta) / (exp(epsilon) + 1)``.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from eigenfed.arrays import Array
from eigenfed.audit.epsilon import lower_bound, upper_bound
from eigenfed.errors import Argument, InputError
from eigenfed.linalg.checks import check_count

_LEAST_TRIALS = 20


class Fitted(Protocol):
    """What is released, for example a `Decomposition`."""

    @property
    def components(self) -> Array:
        """Orthonormal rows, (k, d)."""

    @property
    def mean(self) -> Array:
        """Mean that was subtracted, (d,)."""


Fit = Callable[[Array], Fitted]
"""Runs a PCA on rows (n, d)."""

Score = Callable[[Fitted, Array], float]
"""How much a record (d,) looks like one of the rows that were fitted."""


@dataclass(frozen=True)
class Membership:
    """Result of a membership inference attack.

    Attributes
    ----------
    advantage : float
        Lower bound on the advantage, at the given confidence.
    estimate : float
        Point estimate of the advantage, which may be off in either direction.
    confidence : float
    trials : int
        Runs with the record, and as many without; half of them are used for the bound.
    allowed : float or None
        Largest advantage that the claimed epsilon and delta allow.

    Examples
    --------
    >>> print(Membership(0.7, 0.8, confidence=0.95, trials=200, allowed=0.4621).text)
    Certified advantage of at least 0.7 (95% confidence, 200 runs with the record and 200 without).
    The claim allows 0.4621, and is refuted.
    """

    advantage: float
    estimate: float
    confidence: float
    trials: int
    allowed: float | None = None

    @property
    def refutes(self) -> bool:
        """Whether more is certified than the claim allows."""
        return self.allowed is not None and self.advantage > self.allowed

    @property
    def text(self) -> str:
        """The findings as sentences."""
        found = (
            f"Certified advantage of at least {self.advantage:.4g} ({100 * self.confidence:g}% "
            f"confidence, {self.trials} runs with the record and {self.trials} without)."
        )
        if self.allowed is None:
            return found
        verdict = "is refuted" if self.refutes else "is not refuted"
        return f"{found}\nThe claim allows {self.allowed:.4g}, and {verdict}."


def max_advantage(epsilon: float, delta: float) -> float:
    """Return the largest advantage of any attack on an (epsilon, delta)-DP run.

    Examples
    --------
    >>> round(max_advantage(1.0, 1e-5), 4)
    0.4621
    """
    odds = math.exp(-epsilon)
    return min((1.0 - odds + 2.0 * delta * odds) / (1.0 + odds), 1.0)


def captured_fraction(fitted: Fitted, record: Array) -> float:
    """Return the fraction of a centred record's squared length that the components capture.

    Examples
    --------
    >>> import numpy as np
    >>> from eigenfed.protocol.decomposition import Decomposition
    >>> found = Decomposition(np.eye(1, 2), np.ones(1), np.zeros(2), np.ones(2), 9.0, 2.0, 1)
    >>> round(captured_fraction(found, np.array([3.0, 4.0])), 12)
    0.36
    """
    around = record - fitted.mean
    whole = float(around @ around)
    inside = fitted.components @ around
    return float(inside @ inside) / whole if whole > 0.0 else 1.0


def audit_membership(
    fit: Fit,
    pool: Array,
    record: Array,
    *,
    size: int,
    trials: int,
    rng: np.random.Generator,
    score: Score = captured_fraction,
    confidence: float = 0.95,
    claimed: tuple[float, float] | None = None,
) -> Membership:
    """Attack the membership of one record in many runs, and bound the attack's advantage.

    Parameters
    ----------
    fit : callable
        The run to attack, including its noise.
    pool : ndarray of shape (m, d)
        Rows similar to the record, without it. Each run draws `size` of them at random; in runs
        with the record, it replaces one of them.
    record : ndarray of shape (d,)
    size : int
        Number of rows of a run.
    trials : int
        Runs with the record, and as many without; at least 20.
    rng : numpy Generator
        Draws rows from the pool.
    score : callable, default=captured_fraction
    confidence : float, default=0.95
    claimed : pair of float, optional
        Epsilon and delta, for neighbours that differ by the replacement of one row.

    Returns
    -------
    Membership

    Examples
    --------
    >>> import numpy as np
    >>> from types import SimpleNamespace
    >>> rng = np.random.default_rng(0)
    >>> def fit(rows):
    ...     mean = rows.mean(axis=0)
    ...     return SimpleNamespace(components=np.linalg.svd(rows - mean).Vh[:3], mean=mean)
    >>> pool = rng.standard_normal((100, 40))
    >>> found = audit_membership(fit, pool[1:], pool[0], size=8, trials=200, rng=rng)
    >>> found.advantage > 0.5
    True
    """
    _check(pool, record, size, trials, confidence)
    half = trials // 2
    scores = np.empty((2, 2 * half))
    for i in range(2 * half):
        for is_in in (0, 1):
            rows = rng.choice(pool, size, replace=False)
            if is_in:
                rows[-1] = record
            scores[is_in, i] = score(fit(rows), record)
    threshold, sign = _choose_threshold(scores[:, :half])
    right, wrong = (
        float(np.sum(sign * s >= threshold)) for s in (scores[1, half:], scores[0, half:])
    )
    level = (1.0 - confidence) / 2.0
    certified = lower_bound(right, half, level) - upper_bound(wrong, half, level)
    allowed = None if claimed is None else max_advantage(*claimed)
    estimate = (right - wrong) / half
    return Membership(max(float(certified), 0.0), estimate, confidence, 2 * half, allowed)


def _choose_threshold(scores: Array) -> tuple[float, float]:
    """Choose a threshold, and whether "in" is above or below it, on half of the runs."""
    best = (-math.inf, 0.0, 1.0)
    for sign in (1.0, -1.0):
        outside, inside = np.sort(sign * scores, axis=1)
        above = np.arange(len(inside), 0, -1) - (
            len(outside) - np.searchsorted(outside, inside, side="left")
        )
        top = int(np.argmax(above))
        best = max(best, (float(above[top]), float(inside[top]), sign))
    return best[1], best[2]


def _check(pool: Array, record: Array, size: int, trials: int, confidence: float) -> None:
    if pool.ndim != 2 or record.shape != pool.shape[1:]:
        raise InputError(
            f"pool has shape {pool.shape} and record {record.shape}; pool must have shape (m, d) "
            "and record (d,). Pass a record with the pool's features."
        )
    check_count("size", size, "A run needs at least one row.")
    if size > len(pool):
        raise InputError(
            Argument("size", size),
            f" must be at most {len(pool)}, the rows of the pool",
            remedy="Lower it.",
        )
    check_count("trials", trials, "Fewer runs cannot show anything.", least=_LEAST_TRIALS)
    if not 0.0 < confidence < 1.0:
        raise InputError(
            Argument("confidence", confidence),
            " must be above 0 and below 1",
            remedy="Pass 0.95, for example.",
        )
