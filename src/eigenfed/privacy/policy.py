"""A site's policy: the limits it enforces against every coordinator."""

from collections.abc import Iterable
from dataclasses import dataclass

from eigenfed.privacy.ledger.entries import Budget


@dataclass(frozen=True)
class Policy:
    """Limits that a site sets for its own data.

    Attributes
    ----------
    max_rank_fraction : float
        Largest fraction of the d directions along which the covariance may be revealed, over all
        runs; 1 sets no limit.
    max_variance_fraction : float
        Largest fraction of the variance that the revealed products may determine; 1 sets no limit.
    max_rounds : int or None
        Largest number of requests to answer in one run; requests for keys and secret shares do
        not count. None sets no limit.
    min_rows : int
        Fewest rows with which the site takes part: the totals of one row are that row. A site
        file must state it; the default is for sites within one process.
    min_counted : int
        Fewest people with whom a site sends counts of genotypes of its own, outside secure
        aggregation: the counts of few people tell who is among them.
    methods : frozenset of str or None
        The methods that the site takes part in; None allows all of them.
    steps : frozenset of str or None
        The steps of a preparation that the site takes part in, such as "log1p"; None allows all. A
        site file that names none allows all but "standardize", where the coordinator's figures
        decide which entries are clipped, and false ones can single out a row.
    max_clips : int
        Largest number of different bounds at which entries are clipped, over all runs. The
        coordinator sends the bounds, and many of them would tell where single entries are.
    max_runs : int
        Largest number of runs on the data set.
    secure_only : bool
        Whether replies leave only within secure aggregation. Keys, secret shares, magnitudes and
        numbers of rows leave as they are.
    least_roster_change : int
        Least number of sites by which the rosters of two secure aggregations must differ, unless
        they are equal: the difference of the two sums concerns those sites alone. 0 sets no limit.
    budget : Budget or None
        Total privacy budget of the data set, over all runs; None sets no limit. With a budget,
        only numbers of rows leave without noise: exact replies would exceed any budget.
    sound_only : bool
        Whether to refuse the published mechanisms, whose claims may not hold.
    colluders : int
        Number of other sites that may collude with the coordinator: noise that is split over the
        sites must suffice without their parts.
    trusts_coordinator : bool
        Whether sums may leave without noise, for the coordinator to add it.

    Examples
    --------
    >>> Policy(methods=frozenset({"krylov"})).allows("covariance")
    False
    """

    max_rank_fraction: float = 1.0
    max_variance_fraction: float = 1.0
    max_rounds: int | None = None
    min_rows: int = 1
    min_counted: int = 1
    methods: frozenset[str] | None = None
    steps: frozenset[str] | None = None
    max_clips: int = 8
    max_runs: int = 1000
    secure_only: bool = False
    least_roster_change: int = 3
    budget: Budget | None = None
    sound_only: bool = False
    colluders: int = 0
    trusts_coordinator: bool = False

    def allows(self, method: str) -> bool:
        """Return whether the site takes part in a method."""
        return self.methods is None or method in self.methods

    def allows_steps(self, names: Iterable[str]) -> bool:
        """Return whether the site takes part in a preparation by these steps.

        Examples
        --------
        >>> Policy(steps=frozenset({"log1p"})).allows_steps(["log1p", "standardize"])
        False
        """
        return self.steps is None or self.steps.issuperset(names)

    @property
    def limits_leakage(self) -> bool:
        """Whether there is a limit on what may be revealed about the covariance."""
        return self.max_rank_fraction < 1.0 or self.max_variance_fraction < 1.0
