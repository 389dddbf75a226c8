"""Private studies at sites: runs of them, single requests, and neighbouring tables."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eigenfed.arrays import Array, Arrays
from eigenfed.data.source import Source
from eigenfed.estimators.in_process import Conditions, Federation, federation
from eigenfed.privacy.dp.discrete_gaussian import Noise
from eigenfed.privacy.dp.norm_counts import encode_counts, near_radii, wide_radii
from eigenfed.privacy.ledger.ledger import Budget, Ledger
from eigenfed.privacy.ledger.ledger_interface import SiteLedger
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.privacy.published_claims import Published
from eigenfed.privacy.secagg.identity import Identity, Roster
from eigenfed.protocol.core import drive
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.messages import Message, pack
from eigenfed.protocol.operations import Answer, Op, Request, State, Terms
from eigenfed.protocol.pca import pca
from eigenfed.protocol.private.budget_schedule import list_spends
from eigenfed.protocol.private.private_site import (
    CountRequest,
    MomentRequest,
    NormsRequest,
    RowsRequest,
    ScreeRequest,
    SketchRequest,
    StartRequest,
    TotalRequest,
    private_count,
    private_norms,
    private_product,
    private_scatter,
    private_scree,
    private_start,
    private_total,
)
from eigenfed.protocol.secure.sum_format import encode_sites, stack_rows
from eigenfed.protocol.study import Study, open_message


def made(n: int = 3000, d: int = 6, seed: int = 0) -> Array:
    """Rows about a mean, with two strong directions."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((d, d))).Q
    sizes = np.array([5.0, 3.0] + [0.5] * (d - 2))
    rows: Array = (rng.standard_normal((n, d)) * sizes) @ turn + np.arange(d)
    return rows


# Whole runs -------------------------------------------------------------------------------------


@dataclass
class Ran:
    """A run, and what it ran over."""

    found: Decomposition
    over: Federation


def in_parts(X: Array, count: int = 3) -> dict[str, Array]:
    """Cut rows into nearly equal tables of sites."""
    return {f"s{i}": part for i, part in enumerate(np.array_split(X, count))}


def run(study: Study, tables: Mapping[str, Array], conditions: Conditions | None = None) -> Ran:
    """Run a study on tables behind the gates of sites."""
    sources = {name: Source.of(table) for name, table in tables.items()}
    over = federation(study, sources, conditions or Conditions())
    protocol = pca(over.study, rng=np.random.default_rng(1), total=over.total)
    return Ran(drive(protocol, over.transport), over)


# Single requests --------------------------------------------------------------------------------


def as_message(answered: bytes) -> Message:
    return Message.from_bytes(answered, "reply", "refusal")


@dataclass
class Asking:
    """A coordinator of one study that asks one site what it likes, request by request."""

    site: Site
    study: Study
    coordinator: Identity
    run: str = "run"
    round_: int = -1

    def opened(self) -> Message:
        """Open the run."""
        message = open_message(self.run, self.study, self.study.chosen, self.coordinator)
        return as_message(self.site.answer(message))

    def request(
        self, request: Request[Any], envelope: Arrays | None = None, *, again: bool = False
    ) -> Message:
        """Ask in the next round, or in the last one again."""
        self.round_ += not again
        fields = pack(request) | (envelope or {})
        message = Message("request", self.run, self.round_, request.op, fields)
        return as_message(self.site.answer(message.to_bytes()))

    def reply(self, request: Request[Any], envelope: Arrays | None = None) -> Arrays:
        """Return the reply, which must not be a refusal."""
        message = self.request(request, envelope)
        assert message.kind == "reply", message.label
        return message.arrays

    def code(self, request: Request[Any], envelope: Arrays | None = None) -> str:
        """Return the code of the refusal that it must be."""
        message = self.request(request, envelope)
        assert message.kind == "refusal", message.label
        assert not message.arrays
        return message.label


COORDINATOR = Identity.generate()


def asking(
    study: Study,
    source: Source,
    *,
    ledger: SiteLedger | None = None,
    policy: Policy | None = None,
    filtered: bool = False,
    run: str = "run",
) -> Asking:
    """Put rows behind the gate of the study's only site, with a budget of just this study."""
    privacy = study.privacy
    assert isinstance(privacy, Privacy)
    own = Policy(
        budget=Budget(privacy.epsilon, privacy.delta, privacy.relation),
        trusts_coordinator=privacy.trust == "central",
    )
    site = Site(
        study.sites[0],
        source,
        coordinator=COORDINATOR.public,
        policy=own if policy is None else policy,
        ledger=ledger,
        filtered=filtered,
    )
    return Asking(site, study, COORDINATOR, run)


def request_for(study: Study, op: str, d: int, n: int = 1000, radius: float = 5.0) -> Request[Any]:
    """A request about the origin that fits a study."""
    k, width = study.components, min(2 * study.components, d)
    ball: dict[str, Any] = {"center": np.zeros(d), "radius": radius}
    match op:
        case "rows":
            return RowsRequest()
        case "private_count":
            return CountRequest()
        case "private_start":
            return StartRequest()
        case "private_norms":
            return NormsRequest(**ball)
        case "private_total":
            return TotalRequest(n=n, **ball)
        case "private_scatter":
            return MomentRequest(n=n, **ball)
        case "private_product":
            return SketchRequest(n=n, basis=np.eye(d)[:, :width], **ball)
        case _:
            return ScreeRequest(components=np.eye(d)[:k], **ball)


def walked(it: Asking, op: str, d: int, n: int = 1000) -> Asking:
    """Open the run and answer all that its script has before an operation."""
    assert it.opened().kind == "reply"
    for step in ["rows", *(spend.op for spend in list_spends(it.study))]:
        if step == op:
            return it
        it.reply(request_for(it.study, step, d, n))
    raise AssertionError(f"{op} is not in the script")


# Papers' own mechanisms ------------------------------------------------------------------------


def as_published(
    value: Published,
    op: Op[Any, Any],
    request: Request[Any],
    X: Array,
    *,
    k: int = 1,
    state: State | None = None,
    checked: bool = True,
) -> Answer[Any]:
    """What an operation answers of a table in a study with a paper's mechanism, about zero."""
    study = Study(("a",), k, privacy=value, center=False)
    terms, state = Terms(study, len(X), X.shape[1]), state or State()
    if checked:
        request.check(terms, state)
    return op.run(Source.of(X), request, state, terms)


# Secure sums, message by message ----------------------------------------------------------------


@dataclass
class Summing:
    """A coordinator with a mind of its own, over sites that share a roster."""

    study: Study
    identities: dict[str, Identity]
    roster: Roster
    sites: dict[str, Site]
    run: str = "run"
    round_: int = -1
    number: int = -1
    coordinator: Identity = field(default_factory=lambda: COORDINATOR)

    @classmethod
    def of(
        cls, study: Study, tables: Mapping[str, Array], policy: Policy | None = None
    ) -> "Summing":
        privacy = study.privacy
        assert isinstance(privacy, Privacy)
        identities = {name: Identity.generate() for name in tables}
        roster = Roster.of(identities)
        own = Policy(budget=Budget(privacy.epsilon, privacy.delta, privacy.relation))
        sites = {
            name: Site(
                name,
                Source.of(table),
                coordinator=COORDINATOR.public,
                policy=own if policy is None else policy,
                ledger=Ledger(None),
                identity=identities[name],
                roster=roster,
            )
            for name, table in tables.items()
        }
        return cls(study, identities, roster, sites)

    def opened(self) -> dict[str, Message]:
        """Open the run at all sites."""
        message = open_message(self.run, self.study, self.study.chosen, self.coordinator)
        return {name: as_message(site.answer(message)) for name, site in self.sites.items()}

    def request(self, op: str, fields: Mapping[str, Arrays]) -> dict[str, Message]:
        """Ask some sites in one round, each with fields of its own."""
        self.round_ += 1
        return {
            name: as_message(
                self.sites[name].answer(
                    Message("request", self.run, self.round_, op, arrays).to_bytes()
                )
            )
            for name, arrays in fields.items()
        }

    def replies(self, op: str, fields: Mapping[str, Arrays]) -> dict[str, Arrays]:
        """Ask, and expect a reply of each."""
        answers = self.request(op, fields)
        assert {message.kind for message in answers.values()} == {"reply"}, answers
        return {name: message.arrays for name, message in answers.items()}

    def flags(self, names: Any) -> Any:
        return encode_sites(names, self.roster)

    def masked(self, request: Request[Any]) -> dict[str, Arrays]:
        """Lead all sites to where each has sent its masked reply to a request."""
        self.number += 1
        names = self.roster.sites
        wanted = {"first": np.array([self.number]), "count": np.array([1])}
        made = self.replies("sum_keys", dict.fromkeys(names, wanted))
        shown = {
            "present": self.flags(names),
            "keys": np.stack([made[name]["keys"] for name in names]),
            "signatures": np.stack([made[name]["signature"] for name in names]),
        }
        shares = self.replies("sum_shares", dict.fromkeys(names, shown))
        fields = {
            name: {
                **pack(request),
                "secure.number": np.array([self.number]),
                "secure.present": self.flags(names),
                "secure.shares": np.stack([shares[owner]["shares"][i] for owner in names]),
            }
            for i, name in enumerate(names)
        }
        return self.replies(request.op, fields)

    def signed(self, survivors: tuple[str, ...]) -> dict[str, Message]:
        """Have survivors sign that they are all that is left."""
        listed = {"number": np.array([self.number]), "survivors": self.flags(survivors)}
        return self.request("sum_survivors", dict.fromkeys(survivors, listed))

    def unmasked(
        self, survivors: tuple[str, ...], signatures: Mapping[str, Message], to: tuple[str, ...]
    ) -> dict[str, Message]:
        """Show survivors who has signed, and ask them for what opens the sum."""
        signed = [signatures[name].arrays["signature"].tobytes() for name in signatures]
        fields = {
            "number": np.array([self.number]),
            "survivors": self.flags(survivors),
            "signers": self.flags(signatures),
            "signatures": stack_rows(signed),
        }
        return self.request("sum_unmask", dict.fromkeys(to, fields))


# Neighbouring tables ----------------------------------------------------------------------------

D, RADIUS, WIDTH = 3, 2.0, 2
CENTER = np.array([0.3, -1.1, 0.7])
REST: Array = CENTER + np.random.default_rng(0).standard_normal((20, D))
E1, E2, E3 = np.eye(D)
ROWS = len(REST) + 1
BALL: dict[str, Any] = {"center": CENTER, "radius": RADIUS}
GRID: dict[str, Any] = BALL | {"n": ROWS}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ClippedRequest(SketchRequest):
    """A product whose updates are clipped to any part of a row's squared norm."""

    part: float

    def update_clip(self, state: State) -> float:
        return self.part


def terms_of(relation: str, count: str = "public") -> Terms:
    """What a site knows of a private study of two components on three features."""
    privacy = Privacy(1.0, 1e-5, relation=relation, trust="local", count=count)
    return Terms(Study(("a",), WIDTH, "covariance", privacy=privacy), ROWS, D)


def fitting(op: Op[Any, Any], update_clip: float = 1.0) -> Request[Any]:
    """A request for an operation about the common centre and radius."""
    basis = np.linalg.qr(np.random.default_rng(2).standard_normal((D, WIDTH))).Q
    requests: dict[str, Request[Any]] = {
        "private_count": CountRequest(),
        "private_start": StartRequest(),
        "private_norms": NormsRequest(**BALL),
        "private_total": TotalRequest(**GRID),
        "private_scatter": MomentRequest(**GRID),
        "private_product": ClippedRequest(basis=basis, part=update_clip, **GRID),
        "private_scree": ScreeRequest(components=basis.T, **BALL),
    }
    return requests[op.name]


@dataclass(frozen=True, eq=False)
class Pair:
    """Two tables that differ in one row: replaced, or (None) taken out of every sum."""

    op: Op[Any, Any]
    request: Request[Any]
    row: Array
    other: Array | None
    relation: str = "replace_one"

    @property
    def noise(self) -> Noise:
        """What the gate takes from the request, which has not seen a row."""
        noise = self.request.noise(terms_of(self.relation), State())
        assert noise is not None
        return noise

    @property
    def replies(self) -> tuple[Arrays, Arrays]:
        rows = (CENTER + self.row, None if self.other is None else CENTER + self.other)
        one, other = (REST if row is None else np.vstack([REST, row[None]]) for row in rows)
        return self.reply(one), self.reply(other)

    def reply(self, X: Array) -> Arrays:
        """What the operation says of a table, without noise."""
        terms = terms_of(self.relation)
        self.request.check(terms, State())
        return pack(self.op.run(Source.of(X), self.request, State(), terms).reply)

    @property
    def moved(self) -> float:
        """How far apart the replies are, as a part of the sensitivity of the noise."""
        return apart(*self.replies, self.noise)


def apart(one: Arrays, other: Arrays, noise: Noise) -> float:
    """How far apart two replies are, as a part of a sensitivity."""
    square = 0.0
    for name, values in one.items():
        relative = noise.relative.get(name, np.ones(values.shape))
        square += float(np.sum(((values - other[name]) / relative) ** 2))
    return float(np.sqrt(square)) / noise.sensitivity


def worst_pairs(relation: str) -> dict[str, Pair]:
    """For each operation, the neighbours that theory says are worst."""
    far = 5.0 * RADIUS
    thin, full = 0.05 * RADIUS, RADIUS
    every = ClippedRequest(basis=np.eye(D)[:, :2], part=1.0, **GRID)
    clipped = ClippedRequest(basis=np.eye(D)[:, :1], part=0.05, **GRID)
    parts = ScreeRequest(components=np.eye(D)[:2], **BALL)
    near = find_worst_norms(near_radii(RADIUS), relation)
    wide = find_worst_norms(wide_radii(), relation)
    replaced: dict[str, tuple[Op[Any, Any], Request[Any], Array, Array]] = {
        # These are about the origin, and rows are given about the centre.
        "private_start": (
            *(private_start, StartRequest()),
            *(wide[0] * E1 - CENTER, -wide[1] * E1 - CENTER),
        ),
        "private_norms": (private_norms, NormsRequest(**BALL), near[0] * E1, near[1] * E2),
        "private_total": (private_total, TotalRequest(**GRID), far * E1, -far * E1),
        "private_scatter": (private_scatter, MomentRequest(**GRID), far * E1, far * E2),
        "private_product": (private_product, every, far * E1, far * E2),
        "clipped private_product": (
            *(private_product, clipped),
            *(thin * E1 + full * E3, -thin * E1 + full * E3),
        ),
        "private_scree": (private_scree, parts, far * E1, far * E2),
    }
    return {
        name: Pair(op, request, row, other if relation == "replace_one" else None, relation)
        for name, (op, request, row, other) in replaced.items()
    }


def find_worst_norms(radii: Array, relation: str) -> tuple[float, float]:
    """The norms between which the counts of one row are furthest apart, or furthest from none."""
    norms = np.append(0.99 * radii, 2 * radii[-1])
    codes = np.array([encode_counts(norms[[i]], radii) for i in range(len(norms))], float)
    apart = np.linalg.norm(codes[:, None] - codes, axis=2)
    if relation == "zero_out":
        apart = apart[:, [-1]]
    i, j = np.unravel_index(np.argmax(apart), apart.shape)
    return float(norms[i]), float(norms[j])


OPS: tuple[Op[Any, Any], ...] = (
    private_norms,
    private_total,
    private_scatter,
    private_product,
    private_scree,
)
COUNTING: tuple[Op[Any, Any], ...] = (private_count, private_start, *OPS)
