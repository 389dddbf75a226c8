"""What a site allows, whoever asks."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """Limits that a site sets for its own data.

    Attributes
    ----------
    max_rank_fraction : float
        Most of the d directions that may have been answered about, over all runs; 1 sets no limit.
    max_variance_fraction : float
        Most of the variance that those directions may hold; 1 sets no limit.
    max_rounds : int or None
        Most asks to answer in one run.
    min_rows : int
        Fewest rows with which the site takes part: the totals of one row are that row.
    forbidden : frozenset of str
        Operations that are never answered.

    Examples
    --------
    >>> Policy(forbidden=frozenset({"scatter"})).allows("scatter")
    False
    """

    max_rank_fraction: float = 1.0
    max_variance_fraction: float = 1.0
    max_rounds: int | None = None
    min_rows: int = 0
    forbidden: frozenset[str] = frozenset()

    def exceeded_by(self, rank: Callable[[], float], variance: Callable[[], float]) -> bool:
        """Say whether a limit is exceeded; a fraction without a limit is not even computed."""
        return (self.max_rank_fraction < 1.0 and rank() > self.max_rank_fraction) or (
            self.max_variance_fraction < 1.0 and variance() > self.max_variance_fraction
        )

    def allows(self, op: str) -> bool:
        """Say whether an operation may be answered at all."""
        return op not in self.forbidden
