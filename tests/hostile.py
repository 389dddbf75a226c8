"""A coordinator with a mind of its own, and sites that it can be tried on."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import numpy as np

from eigenfed.arrays import Arrays
from eigenfed.audit.hostile_coordinator import Check, Copies, Outcome, Probe, Step, observe
from eigenfed.data.loci import find_loci
from eigenfed.data.source import Source
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.ledger.ledger import Budget, Ledger
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.privacy.secagg.identity import Identity, Roster
from eigenfed.protocol.core import drive, plain_sum
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.messages import Message, pack
from eigenfed.protocol.operations import Request
from eigenfed.protocol.pca import pca
from eigenfed.protocol.secure.aggregation import SecureSum
from eigenfed.protocol.study import Study, open_message
from eigenfed.transport.local import Answering, LocalTransport

RUN = "audit"
COORDINATOR = Identity.from_bytes(bytes(range(32)))


@dataclass
class Lone:
    """One site, and a coordinator that it trusts to open runs and nothing else."""

    site: Site
    study: Study
    run: str = RUN
    round_: int = -1

    @classmethod
    def of(
        cls,
        rows: Any,
        study: Study,
        *,
        policy: Policy | None = None,
        ledger: Ledger | None = None,
        **settings: Any,
    ) -> "Lone":
        """Put rows behind the gate of the study's first site, and open a run."""
        site = Site(
            study.sites[0],
            as_source(rows),
            coordinator=COORDINATOR.public,
            policy=policy,
            ledger=ledger,
            **settings,
        )
        return cls(site, study)

    def open(self, run: str = RUN, study: Study | None = None) -> Outcome:
        """Open a run."""
        self.run, study = run, study or self.study
        return observe(self.site.answer(open_message(run, study, study.method, COORDINATOR)))

    def send(self, op: str, arrays: Arrays) -> bytes:
        """Send a message of the next round."""
        self.round_ += 1
        return self.site.answer(Message("request", self.run, self.round_, op, arrays).to_bytes())

    def request(self, request: Request[Any]) -> Outcome:
        """Send a request, and return what can be seen of the answer."""
        return observe(self.send(request.op, pack(request)))

    def reply(self, request: Request[Any]) -> Arrays:
        """Send a request that must be answered, and return the reply."""
        message = Message.from_bytes(self.send(request.op, pack(request)), "reply", "refusal")
        assert message.kind == "reply", message.label
        return message.arrays


def sites_of(
    tables: Mapping[str, Any], study: Study, *, policy: Policy | None = None
) -> dict[str, Callable[[], Site]]:
    """Return what makes each site of a study anew, always in the same state."""
    identities = identities_of(tables)
    roster = Roster.of(identities) if study.masked else None
    rules = policy or Policy()
    if isinstance(study.privacy, Privacy):
        privacy = study.privacy
        budget = Budget(privacy.epsilon, privacy.delta, privacy.relation)
        rules = replace(rules, budget=budget, trusts_coordinator=privacy.trust == "central")

    def maker(name: str) -> Callable[[], Site]:
        source = as_source(tables[name])
        return lambda: Site(
            name,
            source,
            coordinator=COORDINATOR.public,
            policy=rules,
            meter=Meter.empty(source.n if study.split == "features" else source.d),
            ledger=None if study.privacy is None else Ledger(None),
            identity=identities[name] if study.masked else None,
            roster=roster,
            draw_key=lambda purpose: sha256(f"{name} {purpose}".encode()).digest(),
        )

    return {name: maker(name) for name in sorted(tables)}


def walk(
    tables: Mapping[str, Any],
    study: Study,
    target: str,
    check: Check | None = None,
    *,
    policy: Policy | None = None,
) -> list[Step]:
    """Run a study honestly, with one site probed at every message."""
    makers = sites_of(tables, study, policy=policy)
    probe = Probe(Copies(makers[target], check))
    sites: dict[str, Answering] = {
        name: probe if name == target else make() for name, make in makers.items()
    }
    transport = LocalTransport(sites, run=RUN, workers=1)
    transport.open_with(open_message(RUN, study, study.method, COORDINATOR))
    protocol = pca(
        study,
        rng=np.random.default_rng(0),
        total=SecureSum(roster_of(tables), run=RUN) if study.masked else plain_sum,
        rows=len(next(iter(tables.values()))) if study.split == "features" else None,
        loci=find_loci(as_source(tables[target]).X),
    )
    drive(protocol, transport)
    return probe.steps


def as_source(rows: Any) -> Source:
    """Return rows as a source, unless they are one."""
    return rows if isinstance(rows, Source) else Source.of(rows)


def identities_of(names: Iterable[str]) -> dict[str, Identity]:
    """Return the same identities for the same sites."""
    return {name: Identity.from_bytes(bytes([i]) * 32) for i, name in enumerate(sorted(names))}


def roster_of(names: Iterable[str]) -> Roster:
    """Return the roster of these identities."""
    return Roster.of(identities_of(names))
