"""A hostile coordinator against one site: what it is refused, and what it gets all the same.

The site's rows, policy and study are the real ones; its ledger is one in memory and the other
sites are made up, so that nothing is spent and nobody is asked. Three things are done:

1. the study is run as it is;
2. it is run by a coordinator that goes on for as long as the script allows;
3. before every message all kinds of lies are told, to a copy of the site that is in the same
   state, and told again to a copy with other rows: what can be seen must be the same.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from eigenfed.arrays import Array
from eigenfed.audit.lies import lies_about
from eigenfed.data.prepared import Prepared
from eigenfed.data.source import Source
from eigenfed.errors import EigenfedError, SiteRefused
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.ledger.ledger import Ledger
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.secagg.identity import Identity, Roster
from eigenfed.privacy.secagg.masking import context, derived
from eigenfed.protocol.core import drive, plain_sum
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.messages import WHY, Message
from eigenfed.protocol.pca import pca
from eigenfed.protocol.secure.aggregation import SecureSum
from eigenfed.protocol.study import Study, open_message
from eigenfed.transport.local import Answering, LocalTransport

_RUN = "audit"
_NEVER = 1e-300
_REPEATED = 11
_LIAR_ROWS = 200
_ENDED = ("aborted", "closed", "stopped")
Make = Callable[[], Site]
Check = Callable[[Site, Message, Message], None]


class Outcome(NamedTuple):
    """What can be seen of an answer: its kind, its code, and how long it is."""

    kind: str
    code: str
    size: int


class Lie(NamedTuple):
    """A message that was changed: how, its bytes, and what was seen of the answer."""

    how: str
    data: bytes
    outcome: Outcome


class Step(NamedTuple):
    """One message of a run, and the lies that were told in its place."""

    op: str
    data: bytes
    lies: list[Lie]


def seen(reply: bytes) -> Outcome:
    """Return what can be seen of an answer."""
    message = Message.from_bytes(reply, "reply", "refusal")
    code = message.label if message.kind == "refusal" else ""
    return Outcome(message.kind, code, len(reply))


@dataclass
class Copies:
    """Copies of a site, brought to the same state by the same messages.

    Attributes
    ----------
    make : callable
        Makes the site anew.
    check : callable or None
        Called with the copy, the request and the reply, where a lie was answered.
    """

    make: Make
    check: Check | None = None
    _sent: list[bytes] = field(default_factory=list)
    _copy: Site | None = None

    def follow(self, data: bytes) -> None:
        """Take the next message of the run."""
        self._sent.append(data)
        if self._copy is not None:
            self._copy.answer(data)

    def try_lie(self, data: bytes) -> Outcome:
        """Send a lie to a copy, which is made anew once it has answered one."""
        copy = self._copy or self._remade()
        reply = copy.answer(data)
        outcome = seen(reply)
        if outcome.kind == "reply" and self.check is not None:
            asked = Message.from_bytes(data, "request", "open")
            self.check(copy, asked, Message.from_bytes(reply, "reply"))
        over = outcome.kind == "reply" or outcome.code in _ENDED
        self._copy = None if over else copy
        return outcome

    def _remade(self) -> Site:
        copy = self.make()
        for earlier in self._sent:
            if seen(copy.answer(earlier)).kind != "reply":
                raise RuntimeError("A copy of the site does not follow the run.")
        return copy


@dataclass
class Probe:
    """Stands before a site: before every message that comes, lies are tried on copies.

    All kinds of them where an operation comes for the first and second time, then some.

    Attributes
    ----------
    copies : Copies
    steps : list of Step
        What was sent, and what was seen.
    """

    copies: Copies
    steps: list[Step] = field(default_factory=list)
    _site: Site | None = None

    def answer(self, data: bytes) -> bytes:
        """Tell lies about a message, and pass it on."""
        label = Message.from_bytes(data, "request", "open").label
        earlier = sum(step.op == label for step in self.steps)
        told = list(lies_about(data))[:: 1 if earlier < 2 else _REPEATED]
        lies = [Lie(how, lie, self.copies.try_lie(lie)) for how, lie in told]
        self.steps.append(Step(label, data, lies))
        self.copies.follow(data)
        self._site = self._site or self.copies.make()
        return self._site.answer(data)


def run_probed(
    study: Study,
    makers: Mapping[str, Make],
    target: str,
    *,
    coordinator: Identity,
    roster: Roster | None = None,
    rows: int | None = None,
    check: Check | None = None,
) -> list[Step]:
    """Run a study with one site probed at every message.

    Parameters
    ----------
    study : Study
        With its method.
    makers : mapping of str to callable
        What makes each site anew, always in the same state.
    target : str
        The site that is lied to.
    coordinator : Identity
    roster : Roster, optional
        Of the sites, where sums are secure.
    rows : int, optional
        How many rows all sites share, where features are split.
    check : callable, optional
        Called with the copy, the request and the reply, where a lie was answered.
    """
    probe = Probe(Copies(makers[target], check))
    sites: dict[str, Answering] = {
        name: probe if name == target else make() for name, make in makers.items()
    }
    _run(study, study, sites, coordinator, roster, rows)
    return probe.steps


def retell(steps: Iterable[Step], make: Make) -> Iterator[tuple[Step, Lie, Outcome]]:
    """Tell the same lies, to the byte, to another site, and give what is seen of it."""
    copies = Copies(make)
    for step in steps:
        for lie in step.lies:
            yield step, lie, copies.try_lie(lie.data)
        copies.follow(step.data)


def _run(
    study: Study,
    opened: Study,
    sites: Mapping[str, Answering],
    coordinator: Identity,
    roster: Roster | None,
    rows: int | None,
) -> None:
    """Run a study at sites at which another one, or the same, was opened."""
    transport = LocalTransport(sites, run=_RUN, workers=1)
    transport.open_with(open_message(_RUN, opened, opened.method, coordinator))
    total = plain_sum if roster is None else SecureSum(roster, run=_RUN)
    drive(pca(study, rng=np.random.default_rng(0), total=total, rows=rows), transport)


@dataclass(frozen=True)
class Told:
    """What a run has told of a site.

    Attributes
    ----------
    rounds : int
        Replies that left.
    rank_fraction : float
        Part of the directions on which the covariance is known exactly.
    variance_fraction : float
        Part of the variance that the best guess from the replies holds.
    error : float or None
        How far that guess is from the site's own covariance, relative to its size; None where
        nothing exact was told.
    refused : str
        The code with which the site ended it, if it did.
    """

    rounds: int
    rank_fraction: float
    variance_fraction: float
    error: float | None
    refused: str


@dataclass(frozen=True)
class HostileFindings:
    """What a hostile coordinator gets of a site.

    Attributes
    ----------
    agreed : Told
        By the study as it is.
    greedy : Told
        By going on for as long as the site lets it.
    lies : int
    refused, answered, aborted : int
        What became of them.
    codes : dict of str to int
        The codes of those that were refused.
    differing : int
        Lies of which something else was seen with other rows; 0 unless there is a fault.
    """

    agreed: Told
    greedy: Told
    lies: int
    refused: int
    answered: int
    aborted: int
    codes: dict[str, int]
    differing: int


def attack_site(
    study: Study, site: str, source: Source, policy: Policy, *, filtered: bool = False
) -> HostileFindings:
    """Attack one site of a study.

    Parameters
    ----------
    study : Study
        With its method.
    site : str
    source : Source
        The site's rows.
    policy : Policy
    filtered : bool
        Whether the rows were chosen by what is in them.

    Raises
    ------
    SiteRefused
        If the site does not take part in the study at all.

    Examples
    --------
    >>> rows = np.random.default_rng(0).standard_normal((30, 8))
    >>> study = Study(("a", "b"), 1, "krylov", max_rounds=2)
    >>> found = attack_site(study, "a", Source.of(rows), Policy(max_rank_fraction=0.5))
    >>> found.agreed.refused, found.differing, found.lies > 200
    ('leakage', 0, True)
    """
    scene = _Scene(study, site, policy, filtered)
    scene.check_opens(source)
    agreed = scene.told(source, study)
    greedy = scene.told(source, replace(study, tol=_NEVER))
    steps = scene.probed(_some_rows(source))
    other = scene.maker(_other_rows(_some_rows(source)))
    differing, codes = 0, dict[str, int]()
    outcomes = []
    for _, lie, outcome in retell(steps, other):
        outcomes.append(lie.outcome)
        if "aborted" not in (lie.outcome.code, outcome.code):
            differing += lie.outcome != outcome
        if lie.outcome.kind == "refusal":
            codes[lie.outcome.code] = codes.get(lie.outcome.code, 0) + 1
    answered = sum(outcome.kind == "reply" for outcome in outcomes)
    aborted = codes.pop("aborted", 0)
    return HostileFindings(
        agreed,
        greedy,
        len(outcomes),
        len(outcomes) - answered - aborted,
        answered,
        aborted,
        dict(sorted(codes.items(), key=lambda item: -item[1])),
        differing,
    )


class _Scene:
    """A study with one real site, and made-up ones beside it."""

    def __init__(self, study: Study, site: str, policy: Policy, filtered: bool) -> None:
        self._study, self._site, self._filtered = study, site, filtered
        self._policy = policy
        self._coordinator = Identity.generate()
        self._key = secrets.token_bytes(32)
        self._identities = {name: Identity.generate() for name in study.sites}
        self._roster = Roster.of(self._identities) if study.masked else None

    def maker(self, source: Source) -> Make:
        """Return what makes the real site, with some rows."""
        return lambda: self._made(self._site, source, self._policy, self._filtered)

    def check_opens(self, source: Source) -> None:
        """Refuse to attack a site that does not take part in the study."""
        opening = open_message(_RUN, self._study, self._study.method, self._coordinator)
        outcome = seen(self.maker(source)().answer(opening))
        if outcome.kind == "refusal":
            raise SiteRefused(self._site, outcome.code, "open", 0, WHY.get(outcome.code, ""))

    def told(self, source: Source, study: Study) -> Told:
        """Run a study by a coordinator's own idea of it, and return what the site has told."""
        target = self.maker(source)()
        sites: dict[str, Answering] = {**self._others(source), self._site: target}
        code = ""
        try:
            _run(study, self._study, sites, self._coordinator, self._roster, self._rows(source))
        except SiteRefused as refused:
            code = refused.code
        except EigenfedError:
            code = "failed"
        meter = target.meter.settled()
        return Told(
            len(target.egress),
            meter.rank_fraction,
            meter.variance_fraction,
            _error(meter, source) if self._study.split == "samples" else None,
            code,
        )

    def probed(self, source: Source) -> list[Step]:
        """Lie to the site at every message of the study, for as long as it goes on."""
        probe = Probe(Copies(self.maker(source)))
        sites: dict[str, Answering] = {**self._others(source), self._site: probe}
        greedy = replace(self._study, tol=_NEVER, max_rounds=min(self._study.max_rounds, 3))
        with suppress(EigenfedError):  # a site may end the run, as its policy says
            _run(greedy, self._study, sites, self._coordinator, self._roster, self._rows(source))
        return probe.steps

    def _rows(self, source: Source) -> int | None:
        return source.n if self._study.split == "features" else None

    def _others(self, source: Source) -> dict[str, Answering]:
        names = [name for name in self._study.sites if name != self._site]
        return {
            name: self._made(name, _other_rows(source, seed), self._open_policy(), False)
            for seed, name in enumerate(names)
        }

    def _open_policy(self) -> Policy:
        budget, trusts = self._policy.budget, self._policy.trusts_coordinator
        return Policy(budget=budget, trusts_coordinator=trusts)

    def _made(self, name: str, source: Source, policy: Policy, filtered: bool) -> Site:
        masked, private = self._study.masked, self._study.privacy is not None
        return Site(
            name,
            source,
            coordinator=self._coordinator.public,
            policy=policy,
            meter=Meter.empty(source.n if self._study.split == "features" else source.d),
            ledger=Ledger(None) if private else None,
            identity=self._identities[name] if masked else None,
            roster=self._roster,
            filtered=filtered,
            draw_key=lambda purpose: derived(self._key, context("audit", name, purpose)),
        )


def _some_rows(source: Source) -> Source:
    """Return few enough rows for many copies of a site."""
    count = min(source.n, _LIAR_ROWS)
    weights = None if source.weights is None else source.weights[:count]
    return Source(source.X[:count], weights, source.names)


def _other_rows(source: Source, seed: int = 0) -> Source:
    """Return made-up rows, as many as there are, of the same largest entry."""
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-0.5, 0.5, (source.n, source.d))
    largest = max((float(np.nanmax(np.abs(b), initial=0.0)) for b, _ in source.blocks()), default=0)
    rows *= largest
    if rows.size:
        rows.flat[0] = largest
    return Source(rows, source.weights, source.names)


def _error(meter: Meter, source: Source) -> float | None:
    """Return how far the best guess of the scatter is from the site's own."""
    truth = _scatter(source)
    size = float(np.linalg.norm(truth))
    if meter.whole:
        return 0.0
    if not meter.basis.shape[1] or not size:
        return None
    inner = meter.basis.T @ meter.images
    guess = meter.images @ np.linalg.pinv((inner + inner.T) / 2, hermitian=True) @ meter.images.T
    return float(np.linalg.norm(guess - truth)) / size


def _scatter(source: Source) -> Array:
    _, count, total = source.totals()
    mean = total / np.where(count > 0, count, 1.0)
    return Prepared(source, mean, np.ones(source.d)).scatter()
