"""Sites, identities and a transport for a run in one process."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.privacy.identity import Identity, Roster
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.ledger import Budget, Ledger
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.published import Published
from eigenfed.privacy.terms import Privacy
from eigenfed.protocol.secure_sum import SecureSum
from eigenfed.protocol.site import Site
from eigenfed.protocol.totals import Total, plain_sum
from eigenfed.transport.local import LocalTransport
from eigenfed.transport.log import Asked


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
    deadline_s : float or None
        How long to wait for answers.
    told : callable or None
        Called with each ask when it is over.
    """

    policies: Mapping[str, Policy] = field(default_factory=dict)
    ledgers: Mapping[str, Ledger] = field(default_factory=dict)
    datasets: Mapping[str, str] = field(default_factory=dict)
    deadline_s: float | None = None
    told: Callable[[Asked], None] | None = None

    def check(self, sites: Collection[str]) -> None:
        """Refuse what is said of no site, and a deadline that has passed at the start."""
        for name in ("policies", "ledgers", "datasets"):
            unknown = sorted(getattr(self, name).keys() - set(sites))
            if unknown:
                raise InputError(f"{name} names {unknown}, which are not sites. Drop them.")
        if self.deadline_s is not None and not self.deadline_s > 0.0:
            raise InputError(
                f"deadline_s={self.deadline_s!r} must be above 0, in seconds. Raise it, or pass "
                "None to wait without end."
            )


@dataclass(frozen=True, eq=False)
class Federation:
    """All that a run in one process needs.

    Attributes
    ----------
    sites : dict of str to Site
    transport : LocalTransport
    total : Total
        How sums over the sites are made.
    """

    sites: dict[str, Site]
    transport: LocalTransport
    total: Total


def federation(
    sources: Mapping[str, Source],
    conditions: Conditions,
    *,
    secure: bool,
    by_rows: bool = True,
    privacy: Privacy | Published | None = None,
) -> Federation:
    """Put sources behind the gates of sites.

    Parameters
    ----------
    sources : mapping of str to Source
    conditions : Conditions
    secure : bool
        Whether nothing may leave a site but inside secure sums. Every site gets an identity then.
    by_rows : bool, default=True
        Whether directions are of features, or of rows where features are split over sites.
    privacy : Privacy, Published or None
        Every site without a ledger gets one for it; where it is sound, with its budget.

    Examples
    --------
    >>> import numpy as np
    >>> federation({"a": Source.of(np.eye(2))}, Conditions(), secure=False).transport.sites
    ('a',)
    """
    masked = secure or (isinstance(privacy, Privacy) and privacy.trust == "secure_sum")
    identities = {name: Identity.generate() for name in sources} if masked else {}
    roster = Roster.of(identities) if masked else None
    sites = {}
    for name, source in sources.items():
        ledger = conditions.ledgers.get(name) or (None if privacy is None else Ledger(None))
        dataset = conditions.datasets.get(name, "data")
        sites[name] = Site(
            name,
            source,
            policy=_policy(conditions.policies.get(name, Policy()), secure, privacy),
            meter=_meter(ledger, dataset, source.d if by_rows else source.n),
            ledger=ledger,
            dataset=dataset,
            identity=identities.get(name),
            roster=roster,
        )
    transport = LocalTransport(sites, deadline_s=conditions.deadline_s, told=conditions.told)
    total = plain_sum if roster is None else SecureSum(roster, run=transport.run)
    return Federation(sites, transport, total)


def _meter(ledger: Ledger | None, dataset: str, size: int) -> Meter:
    kept = None if ledger is None else ledger.meter(dataset)
    return Meter.empty(size) if kept is None else Meter.from_bytes(kept)


def _policy(policy: Policy, secure: bool, privacy: Privacy | Published | None) -> Policy:
    """Add to what a site allows what this process, which holds all of them, stands for."""
    policy = replace(policy, secure_only=policy.secure_only or secure)
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
