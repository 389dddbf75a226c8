"""The parameters of differential privacy that a user sets, and the rules that they obey."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from eigenfed.arrays import Array
from eigenfed.errors import Argument, InputError, Name, Pass, PrivacyError
from eigenfed.privacy.dp.accounting import check_delta, check_epsilon, is_number, mu_of
from eigenfed.privacy.dp.clipping import LARGEST
from eigenfed.privacy.dp.sensitivity import RELATIONS
from eigenfed.privacy.secagg.collusion import count_tolerable

TRUSTS = ("secure_sum", "local", "central")

COUNTS = ("public", "private")

BUDGET_FRACTIONS = {
    "count": 0.02,
    "radius": 0.015,
    "mean": 0.14,
    "clip": 0.015,
    "covariance": 0.8,
    "scree": 0.03,
}
"""Default budget fractions (of mu squared), by what they are spent on: the number of rows, the norm
to which rows are clipped for the mean, the mean, the norm to which centred rows are clipped, the
covariance, and the variances along the components."""

MISSING = ("mean", "public", "drop")

PUBLIC = ("public_center", "public_scale")

_SCALES = (1e-50, 1e50)


@dataclass(frozen=True)
class Privacy:
    """Parameters of row-level differential privacy.

    Attributes
    ----------
    epsilon, delta : float
        The guarantee for everything that the run releases. `delta` must be below one over the
        number of rows.
    relation : {"replace_one", "zero_out"}
        The neighbouring relation: one row is replaced by another, or left out of every sum. The
        number of rows is public in both.
    clip : float or None
        Norm to which rows are clipped; it must be public, that is, known without the rows. None
        finds one privately, at the expense of the budget. The mean is that of rows clipped about
        the public centre, or 0: a clip that is shorter than most of them there loses it.
    trust : {"secure_sum", "local", "central"}
        Where the noise is added. "secure_sum": each site adds a part of it within secure
        aggregation (at least three sites), and nobody sees sums without noise. "local": each site
        adds all of it, and nobody sees anything without noise. "central": the coordinator adds
        it, and sees sums without noise.
    colluders : int
        With "secure_sum", the number of sites that may share all they know with the coordinator
        without loss of privacy; the others add more noise to make up for them. About two thirds
        of the sites at most, and a third with `dropouts`: more could unmask single replies. With 0
        the guarantee is against people outside the study, and `Statement` also has the larger
        epsilon against a site.
    dropouts : int
        With "secure_sum", the number of other sites that may drop out of a sum.
    count : {"public", "private"}
        Whether the number of rows is public or released with noise. A site that selects its rows
        by their content needs "private".
    if_missing : {"mean", "public", "drop"}
        What becomes of missing entries. "mean": they are replaced by the private mean, as far as it
        is known at each step. "public": they are replaced by `public_center`. "drop": rows with a
        missing entry are left out of every sum; as their number depends on the rows, this requires
        ``count="private"``. Whether entries are missing is never a reason to refuse.
    public_center : float, sequence of float or None
        A rough level of each feature, or of all, that people know without looking at the rows, such
        as 120 for a blood pressure. The search for the mean starts there instead of at 0, which
        matters if rows are few and far from 0.
    public_scale : float, sequence of float or None
        Features are divided by these public numbers, in place of ``scale=True``.
    shares : mapping of str to float or None
        Budget fractions of "count", "radius", "mean", "clip", "covariance" and "scree". A missing
        key keeps its default, and the fraction of a step that a run does not need goes to the
        others.
    mode : {"sound"}
        The papers' own mechanisms are in ``eigenfed.protocol.published``.

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
    if_missing: str = "mean"
    public_center: float | Sequence[float] | Array | None = None
    public_scale: float | Sequence[float] | Array | None = None
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
                remedy="To run a paper's own mechanism, pass one of eigenfed.protocol.published as "
                "privacy.",
            )
        if self.clip is not None and not (is_number(self.clip) and 0 < self.clip < math.inf):
            raise InputError(
                Argument("clip", self.clip),
                " must be a finite number above 0, known without the rows",
                remedy=(Pass("clip", None), " to find one privately."),
            )
        _check_choice("count", self.count, COUNTS)
        _check_choice("if_missing", self.if_missing, MISSING)
        self._check_missing()
        for name in PUBLIC:
            object.__setattr__(self, name, _read_public(name, getattr(self, name)))
        for name in ("colluders", "dropouts"):
            self._check_number(name, getattr(self, name))
        _check_shares(self.shares)

    def _check_missing(self) -> None:
        if self.if_missing == "drop" and self.count == "public":
            raise InputError(
                Argument("if_missing", "drop"),
                " requires ",
                Argument("count", "private"),
                ": how many rows are complete depends on the rows",
                remedy=(Pass("count", "private"), "."),
            )
        if self.if_missing == "public" and self.public_center is None:
            raise InputError(
                Argument("if_missing", "public"),
                " requires ",
                Name("public_center"),
                ", which replaces missing entries",
                remedy=("Pass it, or ", Pass("if_missing", "mean"), "."),
            )

    def frame(self, d: int) -> tuple[Array, Array]:
        """Return the public centre and the public scale of each of d features.

        Raises
        ------
        InputError
            If they are not for d features.

        Examples
        --------
        >>> Privacy(1.0, 1e-6, public_center=120.0).frame(2)
        (array([120., 120.]), array([1., 1.]))
        """
        found = []
        for name, default in (("public_center", 0.0), ("public_scale", 1.0)):
            value = getattr(self, name)
            numbers = np.asarray(default if value is None else value, dtype=np.float64)
            if numbers.ndim and len(numbers) != d:
                raise InputError(
                    Name(name),
                    f" has {len(numbers)} numbers and must have one for each of {d} features",
                    remedy="Pass one number for all of them, or one for each.",
                )
            found.append(np.broadcast_to(numbers, (d,)).copy())
        return found[0], found[1]

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
        """Return the number of sites over which the noise is split; 0 if the coordinator adds it.

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
        """Raise PrivacyError if a sum does not survive the dropouts or hides too few honest sites.

        Parameters
        ----------
        sites : int
        least : int
            Least number of sites that must complete a secure aggregation.
        """
        if self.trust != "secure_sum":
            return
        if self.dropouts > sites - least:
            raise PrivacyError(
                Argument("dropouts", self.dropouts),
                f" must be at most {sites - least} with {sites} sites: secure aggregation needs "
                "more than two thirds of them",
                remedy="Lower it.",
            )
        most = count_tolerable(sites, least, self.dropouts)
        if self.colluders > most:
            raise PrivacyError(
                Argument("colluders", self.colluders),
                f" must be at most {most} with {sites} sites and ",
                Argument("dropouts", self.dropouts),
                ": more could unmask single replies, or would leave fewer than two honest sites",
                remedy="Lower one of them.",
            )

    @property
    def mu(self) -> float:
        """The whole budget as the parameter mu of Gaussian differential privacy."""
        return mu_of(self.epsilon, self.delta)

    def split(self, needed: Iterable[str]) -> dict[str, float]:
        """Return the fraction of mu squared for each of the steps needed; the sum is 1.

        Examples
        --------
        >>> Privacy(1.0, 1e-6).split(["covariance"])
        {'covariance': 1.0}
        """
        weights = BUDGET_FRACTIONS | dict(self.shares or {})
        needed_weights = {name: weights[name] for name in needed}
        total = sum(needed_weights.values())
        for name, weight in needed_weights.items():
            if weight == 0.0 and name != "scree":
                raise InputError(
                    Name("shares"),
                    f" gives {name!r} 0, and the run cannot do without it",
                    remedy="Raise it: only 'scree' may be 0.",
                )
        return {name: weight / total for name, weight in needed_weights.items()}

    def check_rows(self, n: int) -> None:
        """Raise InputError if delta permits publishing a whole row."""
        if self.delta >= 1.0 / max(n, 1):
            raise InputError(
                Argument("delta", float(self.delta)),
                f" must be below 1/n = {1.0 / max(n, 1):.3g}: a larger delta permits publishing "
                "whole rows",
                remedy=("Lower ", Name("delta"), "."),
            )


def _read_public(name: str, value: object) -> float | tuple[float, ...] | None:
    """Return a public centre or scale as a number or a tuple of them."""
    if value is None:
        return None
    least, most = _SCALES if name == "public_scale" else (-LARGEST, LARGEST)
    several = value.tolist() if isinstance(value, np.ndarray) else value
    numbers: list[Any] = list(several) if isinstance(several, list | tuple) else [several]
    if not numbers or not all(is_number(v) and least <= v <= most for v in numbers):
        # The numbers are not quoted: somebody might have taken them from the rows.
        raise InputError(
            Name(name),
            f" must be a finite number{' above 0' * (name == 'public_scale')}, or one for each "
            "feature, known without the rows",
            remedy="Pass a rough value, such as 100.0.",
        )
    plain = tuple(map(float, numbers))
    return plain if isinstance(several, list | tuple) else plain[0]


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(
            Argument(name, value),
            f" must be one of {', '.join(map(repr, choices))}",
            remedy="Pass one of them.",
        )


def _check_shares(shares: Mapping[str, float] | None) -> None:
    known = ", ".join(map(repr, BUDGET_FRACTIONS))
    for name, fraction in (shares or {}).items():
        if name not in BUDGET_FRACTIONS:
            raise InputError(
                Name("shares"),
                f" has the unknown key {name!r}; the keys are {known}",
                remedy="Drop it.",
            )
        if not is_number(fraction) or not 0.0 <= fraction < math.inf:
            raise InputError(
                Argument(f"shares[{name!r}]", fraction),
                " must be a finite number of at least 0",
                remedy="Pass 0.1, for example.",
            )


def check_stream_terms(privacy: Privacy) -> None:
    """Refuse terms that a stream does not have."""
    for name in PUBLIC:
        if getattr(privacy, name) is not None:
            raise InputError(
                Name(name),
                " cannot be used with a stream",
                remedy="Subtract or divide by public numbers before rows are passed.",
            )
    if privacy.if_missing != "mean":
        raise InputError(
            Argument("if_missing", privacy.if_missing),
            " cannot be used with a stream, which refuses missing entries",
            remedy="Fill them in before rows are passed.",
        )
