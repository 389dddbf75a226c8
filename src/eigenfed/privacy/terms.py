"""What a differentially private run promises, as its user states it."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass

from eigenfed.errors import InputError
from eigenfed.privacy.calibration import check_delta, check_epsilon, mu_of
from eigenfed.privacy.sensitivity import RELATIONS

TRUSTS = ("secure_sum", "local", "central")

SHARES = {"radius": 0.03, "mean": 0.15, "clip": 0.02, "covariance": 0.75, "scree": 0.05}
"""Parts of the budget (of mu squared) by what they buy: the norm to which rows are clipped for the
mean, the mean, the norm about the mean to which they are clipped, the covariance, and the variances
along the components."""


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
        Who sees what before noise: nobody (each site adds a part of the noise, inside a sum that
        nobody can open; three sites at least), nobody (each site adds all of the noise), or the
        coordinator (who adds the noise).
    tolerate : int
        With "secure_sum", how many sites may drop out or collude, together, without loss of
        privacy: the others add more noise for them.
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
    tolerate: int = 0
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
                f"mode={self.mode!r} must be 'sound'. A paper's own mechanism is a value of "
                "eigenfed.privacy.published: pass that as privacy."
            )
        if self.clip is not None and not (_is_real(self.clip) and 0 < self.clip < math.inf):
            raise InputError(
                f"clip={self.clip!r} must be None or a finite number above 0 that is known "
                "without the rows. Pass None to find one privately."
            )
        whole = isinstance(self.tolerate, int) and not isinstance(self.tolerate, bool)
        if not whole or self.tolerate < 0:
            raise InputError(
                f"tolerate={self.tolerate!r} must be a whole number of at least 0. Pass 1, say."
            )
        if self.tolerate and self.trust != "secure_sum":
            raise InputError(
                f"tolerate={self.tolerate} goes with trust='secure_sum' only. Drop it."
            )
        _check_shares(self.shares)

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
                    f"shares gives {name!r} 0, and there is no PCA without. Raise it: only 'scree' "
                    "may be 0."
                )
        return {name: share / whole for name, share in wanted.items()}

    def check_rows(self, n: int) -> None:
        """Refuse a delta that lets whole rows be given away."""
        if self.delta >= 1.0 / max(n, 1):
            raise InputError(
                f"delta={self.delta} must be below 1/n = {1.0 / max(n, 1):.3g}: otherwise giving "
                "away some rows whole would pass for private. Lower delta."
            )


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(
            f"{name}={value!r} must be one of {', '.join(map(repr, choices))}. Pass one of them."
        )


def _check_shares(shares: Mapping[str, float] | None) -> None:
    for name, share in (shares or {}).items():
        if name not in SHARES:
            raise InputError(
                f"shares has {name!r} and may have {', '.join(map(repr, SHARES))}. Drop it."
            )
        if not _is_real(share) or not 0.0 <= share < math.inf:
            raise InputError(
                f"shares[{name!r}]={share!r} must be a finite number of at least 0. Pass 0.1, say."
            )


def _is_real(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
