"""What secure sums and privacy can do, and what is refused: checked before anything leaves.

Sites, identities and a transport for a run in one process.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from eigenfed.data.source import Source
from eigenfed.errors import Argument, Aside, InputError, Name, Pass, PrivacyError
from eigenfed.privacy.guarantee import Privacy
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.ledger.ledger import Budget, Ledger
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.published_claims import Published
from eigenfed.privacy.secagg.identity import LEAST_SITES, Identity, Roster
from eigenfed.protocol.core import Total, plain_sum
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.method import Method, Shape, all_methods
from eigenfed.protocol.methods import choose_method
from eigenfed.protocol.pca import check_summable
from eigenfed.protocol.secure.aggregation import SecureSum
from eigenfed.protocol.study import Study, open_message
from eigenfed.transport.local import LocalTransport
from eigenfed.transport.rounds import RoundRecord


def check_secure(n_sites: int, split: str, method: Method | str) -> None:
    """Refuse what secure aggregation cannot carry."""
    if n_sites < LEAST_SITES:
        raise PrivacyError(
            Argument("secure", True),
            f" needs {LEAST_SITES} sites at least and there are {n_sites}: of two, each could tell "
            "the other's part",
            remedy=("Bring more sites", Aside(", or name them in groups"), "."),
        )
    if split == "features":
        raise PrivacyError(
            Argument("secure", True),
            " cannot do split='features': the loadings of each site leave it by themselves",
            remedy=(Pass("secure", False), "."),
        )
    if isinstance(method, Method):
        check_summable(method)


def check_by_site(secure: bool, privacy: object, split: str) -> None:
    """Refuse that single sites tell where their rows lie, where they must not or cannot."""
    if secure or privacy is not None:
        raise PrivacyError(
            Argument("by_site", True),
            " has single sites tell of their rows, which ",
            Argument("secure", True) if secure else "privacy",
            " forbids",
            remedy=(
                Pass("by_site", False),
                ": a site can still compare itself with the result.",
            ),
        )
    if split == "features":
        raise InputError("by_site=True goes with split='samples' only. Pass by_site=False.")


def check_private(
    privacy: object,
    sources: Mapping[str, Source],
    *,
    split: str,
    method: Method | str,
    secure: bool,
) -> None:
    """Refuse what no noise makes private, or not this one."""
    if not isinstance(privacy, Privacy | Published):
        raise InputError(
            f"privacy is a {type(privacy).__name__} and must be None, a Privacy or a value of "
            "eigenfed.protocol.published. Pass Privacy(epsilon=1.0, delta=1e-6), say."
        )
    if split == "features":
        raise PrivacyError(
            "privacy cannot do split='features': vectors with an entry for each row would leave. "
            "Pass split='samples'."
        )
    if any(source.weights is not None for source in sources.values()):
        raise PrivacyError("sample_weight is not possible under privacy. Drop it.")
    if any(source.has_missing for source in sources.values()):
        raise PrivacyError("X holds NaN, which is not possible under privacy. Fill it in first.")
    if isinstance(privacy, Published):
        _check_published(privacy, method, secure)
    else:
        _check_sound(privacy, len(sources), method, secure)


def _check_published(privacy: Published, method: Method | str, secure: bool) -> None:
    if method != "auto" or secure:
        raise InputError(
            f"{type(privacy).__name__} is a method of its own. Pass method='auto' and secure=False."
        )


def _check_sound(privacy: Privacy, n_sites: int, method: Method | str, secure: bool) -> None:
    if isinstance(method, Method):
        _check_private_method(method)
    if privacy.trust != "secure_sum":
        if secure:
            raise InputError(
                Argument("secure", True),
                " requires ",
                Argument("trust", "secure_sum"),
                f" and privacy has {privacy.trust!r}",
                remedy="Change one of them.",
            )
        return
    if n_sites < LEAST_SITES:
        raise PrivacyError(
            "privacy with ",
            Argument("trust", "secure_sum"),
            f" needs {LEAST_SITES} sites at least and there are {n_sites}",
            remedy=(
                "Bring more sites, or ",
                Pass("trust", "central"),
                " where whoever runs this is trusted with all rows.",
            ),
        )
    privacy.check_sites(n_sites, 2 * n_sites // 3 + 1)


def _check_private_method(method: Method) -> None:
    if not method.private:
        names = ["auto", *(name for name, cls in all_methods().items() if cls.private)]
        raise PrivacyError(
            method.as_argument(),
            f" cannot be made private and must be one of {', '.join(map(repr, names))}",
            remedy=(Pass("method", "auto"), "."),
        )
    if method.options:
        raise PrivacyError(
            method.as_argument(),
            " has options that do not apply under privacy",
            remedy=(Pass("method", method.name), "."),
        )


def check_scaled(study: Study) -> None:
    """Refuse to scale by what noised products do not tell."""
    if study.scale and isinstance(study.method, Method) and study.method.name == "power":
        raise PrivacyError(
            Argument("scale", True),
            " under privacy needs ",
            Argument("method", "covariance"),
            remedy=("Scale by public numbers beforehand, or ", Pass("scale", False), "."),
        )


@dataclass(frozen=True, eq=False)
class Conditions:
    """What surrounds a run.

    Attributes
    ----------
    policies : mapping of str to Policy
        What some sites allow; others allow everything.
    ledgers : mapping of str to Ledger
        Where some sites write down and pay for what leaves. Others do so in memory, where there is
        something to pay for.
    datasets : mapping of str to str
        What some ledgers call the rows; "data" in others.
    filtered : collection of str
        Sites whose rows were chosen by what is in them.
    deadline_s : float or None
        How long to wait for answers.
    callback : callable or None
        Called with each ask when it is over.
    """

    policies: Mapping[str, Policy] = field(default_factory=dict)
    ledgers: Mapping[str, Ledger] = field(default_factory=dict)
    datasets: Mapping[str, str] = field(default_factory=dict)
    filtered: Collection[str] = ()
    deadline_s: float | None = None
    callback: Callable[[RoundRecord], None] | None = None

    def check(self, sites: Collection[str]) -> None:
        """Refuse what is said of no site, and a deadline that has passed at the start."""
        for name in ("policies", "ledgers", "datasets", "filtered"):
            unknown = sorted(set(getattr(self, name)) - set(sites))
            if unknown:
                raise InputError(f"{name} names {unknown}, which are not sites. Drop them.")
        if self.deadline_s is not None and not self.deadline_s > 0.0:
            raise InputError(
                Argument("deadline_s", self.deadline_s),
                " must be above 0, in seconds",
                remedy=("Raise it, or ", Pass("deadline_s", None), " to wait without end."),
            )


@dataclass(frozen=True, eq=False)
class Federation:
    """All that a run in one process needs.

    Attributes
    ----------
    study : Study
        With the method that the run uses.
    reason : str
        Why that method.
    sites : dict of str to Site
    transport : LocalTransport
    total : Total
        How sums over the sites are made.
    opening : bytes
        The message that opens the run at every site, for another transport to the same sites.
    """

    study: Study
    reason: str
    sites: dict[str, Site]
    transport: LocalTransport
    total: Total
    opening: bytes


def federation(study: Study, sources: Mapping[str, Source], conditions: Conditions) -> Federation:
    """Put sources behind the gates of sites, and open a run of a study at them.

    The coordinator gets a key of its own, the sites pin it and approve this study and no other, and
    the run is opened as it would be over a network. Every site without a ledger gets one in memory
    where there is something to pay for; where privacy is sound, with the study's budget.

    Parameters
    ----------
    study : Study
    sources : mapping of str to Source
    conditions : Conditions

    Examples
    --------
    >>> import numpy as np
    >>> sources = {"a": Source.of(np.eye(3))}
    >>> federation(Study(("a",), 1), sources, Conditions()).transport.sites
    ('a',)
    """
    run_study, reason = _with_method(study, sources, conditions)
    coordinator = Identity.generate()
    identities = {name: Identity.generate() for name in sources} if study.masked else {}
    roster = Roster.of(identities) if study.masked else None
    sites = {}
    for name, source in sources.items():
        ledger = conditions.ledgers.get(name)
        if ledger is None and study.privacy is not None:
            ledger = Ledger(None)
        dataset = conditions.datasets.get(name, "data")
        sites[name] = Site(
            name,
            source,
            coordinator=coordinator.public,
            approved=frozenset({study.digest}),
            policy=_policy(conditions.policies.get(name, Policy()), study),
            meter=_meter(ledger, dataset, source.d if study.split == "samples" else source.n),
            ledger=ledger,
            dataset=dataset,
            identity=identities.get(name),
            roster=roster,
            filtered=name in conditions.filtered,
            wire=study.wire,
        )
    transport = LocalTransport(
        sites, wire=study.wire, deadline_s=conditions.deadline_s, callback=conditions.callback
    )
    opening = open_message(transport.run, study, run_study.method, coordinator)
    transport.open_with(opening)
    total = plain_sum if roster is None else SecureSum(roster, run=transport.run)
    return Federation(run_study, reason, sites, transport, total, opening)


def _with_method(
    study: Study, sources: Mapping[str, Source], conditions: Conditions
) -> tuple[Study, str]:
    """Choose the method of a run, where it is left open."""
    if isinstance(study.privacy, Published):
        return study, ""
    shape = Shape(
        rows=max(source.n for source in sources.values()),
        features=max(source.d for source in sources.values()),
        components=study.components,
        sites=len(sources),
        secure=study.masked,
        certify=study.certify,
    )
    method, reason = choose_method(study, shape, tuple(conditions.policies.values()))
    return study.with_method(method), reason


def _meter(ledger: Ledger | None, dataset: str, size: int) -> Meter:
    kept = None if ledger is None else ledger.meter(dataset)
    if kept is None:
        return Meter.empty(size)
    meter = Meter.from_bytes(kept)
    if meter.d != size:
        raise InputError(
            f"The ledger's meter of {dataset!r} is of {meter.d} dimensions and this run's "
            f"directions have {size}: the rows had other features, or were split in another way",
            remedy=("Name them differently in ", Name("datasets"), "."),
        )
    return meter


def _policy(policy: Policy, study: Study) -> Policy:
    """Add to what a site allows what this process, which holds all of them, stands for."""
    policy = replace(policy, secure_only=policy.secure_only or study.secure)
    privacy = study.privacy
    if not isinstance(privacy, Privacy):
        return policy
    budget = policy.budget or Budget(privacy.epsilon, privacy.delta, privacy.relation)
    trusts = policy.trusts_coordinator or privacy.trust == "central"
    return replace(policy, budget=budget, trusts_coordinator=trusts)


def without_digests(state: dict[str, Any]) -> dict[str, Any]:
    """Take the digests of replies out of what is kept of an estimator.

    They would confirm a guess at what left a site, also where it left without noise.
    """
    if "egress_" not in state:
        return state
    kept = {
        site: tuple(replace(entry, digest="") for entry in left)
        for site, left in state["egress_"].items()
    }
    return state | {"egress_": kept}
