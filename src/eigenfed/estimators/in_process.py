"""Sites, identities and a transport for a run in one process."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from eigenfed.data.source import Source
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
    policies: Mapping[str, Policy],
    *,
    secure: bool,
    by_rows: bool = True,
    privacy: Privacy | Published | None = None,
) -> Federation:
    """Put sources behind the gates of sites.

    Parameters
    ----------
    sources : mapping of str to Source
    policies : mapping of str to Policy
        Of some sites; others have none of their own.
    secure : bool
        Whether nothing may leave a site but inside secure sums. Every site gets an identity then.
    by_rows : bool, default=True
        Whether directions are of features, or of rows where features are split over sites.
    privacy : Privacy, Published or None
        Every site gets a ledger for it; where it is sound, with its budget.

    Examples
    --------
    >>> import numpy as np
    >>> federation({"a": Source.of(np.eye(2))}, {}, secure=False).transport.sites
    ('a',)
    """
    masked = secure or (isinstance(privacy, Privacy) and privacy.trust == "secure_sum")
    identities = {name: Identity.generate() for name in sources} if masked else {}
    roster = Roster.of(identities) if masked else None
    sites = {
        name: Site(
            name,
            source,
            policy=_policy(policies.get(name, Policy()), secure, privacy),
            meter=Meter.empty(source.d if by_rows else source.n),
            ledger=None if privacy is None else Ledger(None),
            identity=identities.get(name),
            roster=roster,
        )
        for name, source in sources.items()
    }
    transport = LocalTransport(sites)
    total = plain_sum if roster is None else SecureSum(roster, run=transport.run)
    return Federation(sites, transport, total)


def _policy(policy: Policy, secure: bool, privacy: Privacy | Published | None) -> Policy:
    """Add to what a site allows what this process, which holds all of them, stands for."""
    policy = replace(policy, secure_only=policy.secure_only or secure)
    if not isinstance(privacy, Privacy):
        return policy
    budget = policy.budget or Budget(privacy.epsilon, privacy.delta, privacy.relation)
    trusts = policy.trusts_coordinator or privacy.trust == "central"
    return replace(policy, budget=budget, trusts_coordinator=trusts)
