"""What a differentially private run promises, as its user states it."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass

from eigenfed.errors import Argument, InputError, Name, Pass, PrivacyError
from eigenfed.privacy.calibration import check_delta, check_epsilon, mu_of
from eigenfed.privacy.sensitivity import RELATIONS

TRUSTS = ("secure_sum", "local", "central")

COUNTS = ("public", "private")

SHARES = {
    "count": 0.02,
    "radius": 0.03,
    "mean": 0.15,
    "clip": 0.02,
    "covariance": 0.75,
    "scree": 0.05,
}
"""Parts of the budget (of mu squared) by what they buy: the number of rows, the norm to which rows
are clipped for the mean, the mean, the norm about the mean to which they are clipped, the
covariance, and the variances along the components."""


@dataclass(frozen=True)
class Privacy:
    """Differential privacy of one row, with noise that holds.

    Attributes
    ----------
    epsilon, delta : float
        The guarantee for everything that the run releases. `delta` must be below one over the
        number of rows.
    relation : {"replace_one", "zero_out"}
        What neighbouring tables are: one row is another one, or is left out of every sum. The
        number of rows is public in both.
    clip : float or None
        Public bound to which the norm of rows is clipped, known without looking at the rows. None
        finds one privately and pays for it.
    trust : {"secure_sum", "local", "central"}
        Who sees what before noise: nobody (each site adds a part of the noise, inside secure
        aggregation; three sites at least), nobody (each site adds all of the noise), or the
        coordinator (who adds the noise).
    colluders : int
        With "secure_sum", how many sites may show the coordinator what they know without loss of
        privacy: the others add more noise for them. With 0 the guarantee is one against people
        outside the study, and `Statement` also tells what is left of it against a site.
    dropouts : int
        With "secure_sum", how many other sites may be lost from a sum.
    count : {"public", "private"}
        Whether the number of rows is known to all, or found with noise: what a site needs that
        takes only some of its rows, chosen by what is in them.
    shares : mapping of str to float or None
        How the budget is split over "radius", "mean", "clip", "covariance" and "scree"; what is
        not named keeps its default, and what a run does not need falls to the others.
    mode : {"sound"}
        The papers' own mechanisms are values of ``eigenfed.privacy.published``.

    Examples
    --------
    >>> from eigenfed import Privacy
    >>> Privacy(epsilon=1.0, delta=1e-6).relation
    'replace_one'
    """

    epsilon: float
    delta: float
    _: KW_ONLY
    relation: str = "replace_one"
    clip: float | None = None
    trust: str = "secure_sum"
    colluders: int = 0
    dropouts: int = 0
    count: str = "public"
    shares: Mapping[str, float] | None = None
    mode: str = "sound"

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        mu_of(self.epsilon, self.delta)
        _check_choice("relation", self.relation, RELATIONS)
        _check_choice("trust", self.trust, TRUSTS)
        if self.mode != "sound":
            raise InputError(
                Argument("mode", self.mode),
                " must be 'sound'",
                remedy="A paper's own mechanism is a value of eigenfed.privacy.published: pass "
                "that as privacy.",
            )
        if self.clip is not None and not (_is_real(self.clip) and 0 < self.clip < math.inf):
            raise InputError(
                Argument("clip", self.clip),
                " must be a finite number above 0 that is known without the rows",
                remedy=(Pass("clip", None), " to find one privately."),
            )
        _check_choice("count", self.count, COUNTS)
        for name in ("colluders", "dropouts"):
            self._check_number(name, getattr(self, name))
        _check_shares(self.shares)

    def _check_number(self, name: str, value: object) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise InputError(
                Argument(name, value),
                " must be an integer of at least 0",
                remedy="Pass 1, for example.",
            )
        if value and self.trust != "secure_sum":
            raise InputError(
                Argument(name, value),
                " requires ",
                Argument("trust", "secure_sum"),
                remedy="Drop it.",
            )

    def parties(self, sites: int) -> int:
        """Return over how many sites the noise is split; 0 where the coordinator adds it.

        Examples
        --------
        >>> Privacy(1.0, 1e-6, colluders=1, dropouts=1).parties(10)
        8
        """
        match self.trust:
            case "secure_sum":
                return sites - self.colluders - self.dropouts
            case "local":
                return 1
            case _:
                return 0

    def check_sites(self, sites: int, least: int) -> None:
        """Refuse more dropouts than a sum survives, or fewer honest sites than carry its noise.

        Parameters
        ----------
        sites : int
        least : int
            How many sites a secure sum must have at its end.
        """
        if self.trust != "secure_sum":
            return
        if self.dropouts > sites - least:
            raise PrivacyError(
                Argument("dropouts", self.dropouts),
                f" must be at most {sites - least} with {sites} sites: a sum needs more than two "
                "thirds of them",
                remedy="Lower it.",
            )
        most = sites - self.dropouts - 2
        if self.colluders > most:
            raise PrivacyError(
                Argument("colluders", self.colluders),
                f" must be at most {most} with {sites} sites and ",
                Argument("dropouts", self.dropouts),
                ": two honest sites at least must be in every sum",
                remedy="Lower one of them.",
            )

    @property
    def mu(self) -> float:
        """The whole budget, as Gaussian DP."""
        return mu_of(self.epsilon, self.delta)

    def split(self, needed: Iterable[str]) -> dict[str, float]:
        """Return the part of mu squared that each thing needed gets; they add up to 1.

        Examples
        --------
        >>> Privacy(1.0, 1e-6).split(["covariance"])
        {'covariance': 1.0}
        """
        given = SHARES | dict(self.shares or {})
        wanted = {name: given[name] for name in needed}
        whole = sum(wanted.values())
        for name, share in wanted.items():
            if share == 0.0 and name != "scree":
                raise InputError(
                    Name("shares"),
                    f" gives {name!r} 0, and there is no PCA without",
                    remedy="Raise it: only 'scree' may be 0.",
                )
        return {name: share / whole for name, share in wanted.items()}

    def check_rows(self, n: int) -> None:
        """Refuse a delta that lets whole rows be given away."""
        if self.delta >= 1.0 / max(n, 1):
            raise InputError(
                Argument("delta", float(self.delta)),
                f" must be below 1/n = {1.0 / max(n, 1):.3g}: otherwise giving away some rows "
                "whole would pass for private",
                remedy=("Lower ", Name("delta"), "."),
            )


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(
            Argument(name, value),
            f" must be one of {', '.join(map(repr, choices))}",
            remedy="Pass one of them.",
        )


def _check_shares(shares: Mapping[str, float] | None) -> None:
    for name, share in (shares or {}).items():
        if name not in SHARES:
            raise InputError(
                Name("shares"),
                f" has {name!r} and may have {', '.join(map(repr, SHARES))}",
                remedy="Drop it.",
            )
        if not _is_real(share) or not 0.0 <= share < math.inf:
            raise InputError(
                Argument(f"shares[{name!r}]", share),
                " must be a finite number of at least 0",
                remedy="Pass 0.1, for example.",
            )


def _is_real(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
