"""What a site allows, whoever asks."""

from dataclasses import dataclass

from eigenfed.privacy.ledger.entries import Budget


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
        Most asks to answer in one run; those for keys and shares do not count.
    min_rows : int
        Fewest rows with which the site takes part: the totals of one row are that row. A site's
        file must state it; the default is for sites that live in one process.
    methods : frozenset of str or None
        The methods that the site takes part in; None is all of them.
    max_runs : int
        Most runs that may be opened on the data set.
    secure_only : bool
        Whether replies leave only inside secure sums. Keys, shares, magnitudes and numbers of
        rows leave as they are.
    least_roster_change : int
        By how many sites the sets summed over by two secure sums must differ, if they differ: the
        difference of the sums is about those sites alone. 0 sets no limit.
    budget : Budget or None
        Most privacy to spend on the data set, over all runs; None sets no limit. With a budget
        nothing leaves without noise but numbers of rows: exact replies would exceed any.
    sound_only : bool
        Refuse the papers' own mechanisms, whose claims may not hold.
    colluders : int
        How many other sites may collude with the coordinator: noise that is split over sites must
        be enough without theirs.
    trusts_coordinator : bool
        Whether sums may leave without noise for the coordinator to add it.

    Examples
    --------
    >>> Policy(methods=frozenset({"krylov"})).allows("covariance")
    False
    """

    max_rank_fraction: float = 1.0
    max_variance_fraction: float = 1.0
    max_rounds: int | None = None
    min_rows: int = 1
    methods: frozenset[str] | None = None
    max_runs: int = 1000
    secure_only: bool = False
    least_roster_change: int = 3
    budget: Budget | None = None
    sound_only: bool = False
    colluders: int = 0
    trusts_coordinator: bool = False

    def allows(self, method: str) -> bool:
        """Tell whether the site takes part in a method."""
        return self.methods is None or method in self.methods

    @property
    def limits_leakage(self) -> bool:
        """Whether there is a limit on what may be told of the scatter."""
        return self.max_rank_fraction < 1.0 or self.max_variance_fraction < 1.0
