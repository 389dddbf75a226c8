"""How a run is set up whose sites all belong to this program.

The rows are put behind the gates of sites, wherever the engine keeps those, and a run is opened at
them as it would be over a network.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from eigenfed.data.source import Source
from eigenfed.errors import InputError, Pass, PrivacyError
from eigenfed.privacy.leakage import MOST_METER_BYTES, Meter
from eigenfed.privacy.ledger.ledger import Budget, Ledger
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.privacy.published_claims import Published
from eigenfed.privacy.secagg.identity import Identity, Roster
from eigenfed.protocol.component_count import count_per_request
from eigenfed.protocol.core import Total, plain_sum
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.method import Shape
from eigenfed.protocol.method_registry import choose_method
from eigenfed.protocol.secure.aggregation import SecureSum
from eigenfed.protocol.study import Study, open_message
from eigenfed.transport.engine import Callback, Engine, SiteSetup, SiteTransport, check_deadline
from eigenfed.transport.local import Local, LocalTransport

_ALL_METERS_BYTES = 512 << 20
"""Memory of the leakage meters of all sites. A meter that runs out of it counts all variance."""
_KINDS: dict[str, tuple[Any, str]] = {
    "policies": (Policy, "a Policy"),
    "ledgers": (Ledger | None, "a Ledger"),
    "datasets": (str, "a name as text"),
}


@dataclass(frozen=True, eq=False)
class Conditions:
    """What sites and callers add to a study.

    Attributes
    ----------
    policies : mapping of str to Policy
        What some sites allow; others allow everything.
    ledgers : mapping of str to Ledger
        Where some sites record and pay for what leaves. Others do so in memory, where there is
        something to pay for.
    datasets : mapping of str to str
        What some ledgers call the rows; "data" in others.
    filtered : collection of str
        Sites whose rows were selected by their content.
    deadline_s : float or None
        How long to wait for answers.
    callback : callable or None
        Called with the `RoundRecord` of each round when it is over.
    """

    policies: Mapping[str, Policy] = field(default_factory=dict)
    ledgers: Mapping[str, Ledger] = field(default_factory=dict)
    datasets: Mapping[str, str] = field(default_factory=dict)
    filtered: Collection[str] = ()
    deadline_s: float | None = None
    callback: Callback | None = None

    def check(self, sites: Collection[str]) -> None:
        """Refuse names that are not sites, what is not for a site, and a deadline of the past."""
        for name in ("policies", "ledgers", "datasets", "filtered"):
            unknown = sorted(set(getattr(self, name)) - set(sites))
            if unknown:
                raise InputError(f"{name} names {unknown}, which are not sites. Drop them.")
        for name, (kind, noun) in _KINDS.items():
            for site, value in getattr(self, name).items():
                if not isinstance(value, kind):
                    raise InputError(
                        f"{name} has a value of type {type(value).__name__} for site {site!r} and "
                        f"must have {noun} for it. Pass one."
                    )
        check_deadline(self.deadline_s)


@dataclass(frozen=True, eq=False)
class Federation:
    """All that a run needs.

    Attributes
    ----------
    study : Study
        With the method that the run uses.
    reason : str
        Why that method.
    transport : SiteTransport
    roster : Roster or None
        The sites of secure aggregation.
    opening : bytes
        The message that opens the run at every site, for another transport to the same sites.
    """

    study: Study
    reason: str
    transport: SiteTransport
    roster: Roster | None
    opening: bytes

    @property
    def total(self) -> Total:
        """A new way to sum over the sites; secure aggregation has one for each run."""
        return total_of(self.roster, self.transport.run)

    @property
    def sites(self) -> dict[str, Site]:
        """The sites that live in this process."""
        return self.transport.gates if isinstance(self.transport, LocalTransport) else {}


def total_of(roster: Roster | None, run: str) -> Total:
    """Return how sums over sites are made: by secure aggregation where there is a roster."""
    return plain_sum if roster is None else SecureSum(roster, run=run)


def federation(
    study: Study,
    sources: Mapping[str, Source],
    conditions: Conditions,
    engine: Engine | None = None,
) -> Federation:
    """Put sources behind the gates of sites, and open a run of a study at them.

    The coordinator gets a key of its own, the sites pin it and approve this study and no other.
    Every site without a ledger gets one in memory where there is something to pay for, with the
    study's budget where the privacy is proven.

    Parameters
    ----------
    study : Study
    sources : mapping of str to Source
    conditions : Conditions
    engine : Engine, optional
        Where the sites live; on threads of this process by default.

    Examples
    --------
    >>> import numpy as np
    >>> sources = {"a": Source.of(np.eye(3))}
    >>> federation(Study(("a",), 1), sources, Conditions()).transport.sites
    ('a',)
    """
    run_study, reason = choose_study_method(study, sources, conditions)
    coordinator = Identity.generate()
    identities = make_identities(sources) if study.masked else {}
    roster = Roster.of(identities) if study.masked else None
    setups = {}
    meter_bytes = min(MOST_METER_BYTES, _ALL_METERS_BYTES // len(sources))
    for name, source in sources.items():
        ledger, dataset = conditions.ledgers.get(name), conditions.datasets.get(name, "data")
        policy = conditions.policies.get(name, Policy())
        if ledger is not None and isinstance(study.privacy, Privacy):
            policy = _require_budget(name, policy, ledger.budget(dataset), study.privacy)
        setups[name] = SiteSetup(
            name,
            source,
            coordinator.public,
            approved=frozenset({study.digest}),
            policy=_policy(policy, study),
            meter=_meter(
                name,
                ledger,
                dataset,
                source.d if study.split == "samples" else source.n,
                None if policy.limits_leakage else meter_bytes,
            ),
            ledger=ledger,
            pays=study.privacy is not None,
            dataset=dataset,
            identity=identities.get(name),
            roster=roster,
            filtered=name in conditions.filtered,
        )
    transport = (engine or Local()).connect(
        setups,
        wire=study.wire,
        deadline_s=conditions.deadline_s,
        callback=conditions.callback,
    )
    opening = open_message(transport.run, study, run_study.method, coordinator)
    transport.open_with(opening)
    return Federation(run_study, reason, transport, roster, opening)


def make_identities(sites: Iterable[str]) -> dict[str, Identity]:
    """Make the keys with which sites of this process take part in secure aggregation."""
    return {site: Identity.generate() for site in sites}


def choose_study_method(
    study: Study, sources: Mapping[str, Source], conditions: Conditions
) -> tuple[Study, str]:
    """Return the study with the method of its run, and the reason for that method."""
    if isinstance(study.privacy, Published):
        return study, ""
    d = study.width(max(source.d for source in sources.values()))
    most = min(sum(source.n for source in sources.values()), d)
    entries = sum(source.n * source.d for source in sources.values())
    held = sum(source.stored_size for source in sources.values())
    shape = Shape(
        rows=max(source.n for source in sources.values()),
        features=d,
        components=count_per_request(study.components, most),
        sites=len(sources),
        secure=study.masked,
        certify=study.certify,
        density=held / entries if entries else 1.0,
    )
    method, reason = choose_method(study, shape, tuple(conditions.policies.values()))
    return study.with_method(method), reason


def _meter(name: str, ledger: Ledger | None, dataset: str, size: int, limit: int | None) -> Meter:
    """Return the ledger's meter, or one for this run only, which may be limited to some bytes."""
    if ledger is None:
        empty = Meter.empty(size)
        return empty if limit is None else replace(empty, limit=limit, forgets=True)
    kept = ledger.meter(dataset)
    if kept is None:
        return Meter.empty(size)
    meter = Meter.from_bytes(kept)
    if meter.d != size:
        raise InputError(
            f"Site {name!r}: its ledger knows the rows {dataset!r} with {meter.d} dimensions, and "
            f"this run has {size}: they had other features, or were split in another way",
            remedy=(
                *("Keep the features, or, for other rows, ", Pass("datasets", ...)),
                " with a name of their own.",
            ),
        )
    return meter


def _require_budget(name: str, policy: Policy, kept: Budget | None, privacy: Privacy) -> Policy:
    """Return a policy with a budget: its own, or that of the ledger; refuse if there is none.

    The study's budget would become that of the ledger, unsaid, and the next run would be refused.
    """
    if policy.budget is None and kept is None:
        raise PrivacyError(
            f"The ledger of site {name!r} has no budget, the most that all runs on these rows may "
            f"spend together. Pass policies={{{name!r}: Policy(budget=Budget("
            f"{privacy.epsilon:g}, {privacy.delta:g}))}} for this run alone, or more for others."
        )
    return policy if policy.budget is not None else replace(policy, budget=kept)


def _policy(policy: Policy, study: Study) -> Policy:
    """Complete a site's policy with what this program, which owns all sites, decides for it."""
    policy = replace(policy, secure_only=policy.secure_only or study.secure)
    privacy = study.privacy
    if not isinstance(privacy, Privacy):
        return policy
    budget = policy.budget or Budget(privacy.epsilon, privacy.delta, privacy.relation)
    trusts = policy.trusts_coordinator or privacy.trust == "central"
    return replace(policy, budget=budget, trusts_coordinator=trusts)
