"""Attack of a hostile coordinator on one site: what it is refused, and what it learns.

===========  ==================================================================================
attacker     the coordinator's key and all replies of the site; sends any message at any time
truth        the site's own covariance, and whether any refusal depends on the rows
===========  ==================================================================================

The site's rows, policy and study are the real ones. Its ledger is kept in memory and the other
sites are simulated, so that no budget is spent and no other site is involved. The attack

1. runs the study as it is;
2. runs it with a coordinator that continues for as long as the script allows;
3. before every message sends lies, that is, altered messages (`eigenfed.audit.lies`), to a copy of
   the site in the same state, and sends the same lies to a copy with other rows. Whatever a
   coordinator can observe of the answers must be the same, or it would depend on the rows.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from eigenfed.audit.lies import generate_lies
from eigenfed.audit.stand_in_rows import compare_guess, simulate_rows, take_some
from eigenfed.data.loci import find_loci
from eigenfed.data.prepared_rows import Preparation
from eigenfed.data.source import Source
from eigenfed.errors import EigenfedError, SiteRefused
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.ledger.ledger import Ledger
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.secagg.identity import Identity, Roster
from eigenfed.privacy.secagg.masking import context, derive_key
from eigenfed.protocol.core import drive, plain_sum
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.messages import REFUSAL_TEXTS, Message
from eigenfed.protocol.pca import pca
from eigenfed.protocol.secure.aggregation import SecureSum
from eigenfed.protocol.study import Study, open_message
from eigenfed.transport.local import Answering, LocalTransport

_RUN = "audit"
_NEVER = 1e-300
_REPEATED = 11
_ENDED = ("aborted", "closed", "stopped")
Make = Callable[[], Site]
Check = Callable[[Site, Message, Message], None]


class Outcome(NamedTuple):
    """What can be observed of an answer: its kind, its code and its length in bytes."""

    kind: str
    code: str
    size: int


class Lie(NamedTuple):
    """An altered message: what was altered, its bytes, and what was observed of the answer."""

    how: str
    data: bytes
    outcome: Outcome


class Step(NamedTuple):
    """One message of a run, and the lies that were sent in its place."""

    op: str
    data: bytes
    lies: list[Lie]


def observe(reply: bytes) -> Outcome:
    """Return what can be observed of an answer."""
    message = Message.from_bytes(reply, "reply", "refusal")
    code = message.label if message.kind == "refusal" else ""
    return Outcome(message.kind, code, len(reply))


@dataclass
class Copies:
    """Copies of a site, brought to the same state by the same messages.

    Attributes
    ----------
    make : callable
        Creates the site in its initial state.
    check : callable or None
        Called with the copy, the request and the reply if a lie was answered.
    """

    make: Make
    check: Check | None = None
    _sent: list[bytes] = field(default_factory=list)
    _copy: Site | None = None

    def follow(self, data: bytes) -> None:
        """Send the next message of the run to the copies."""
        self._sent.append(data)
        if self._copy is not None:
            self._copy.answer(data)

    def try_lie(self, data: bytes) -> Outcome:
        """Send a lie to a copy, which is replaced once it has answered one."""
        copy = self._copy or self._make_copy()
        reply = copy.answer(data)
        outcome = observe(reply)
        if outcome.kind == "reply" and self.check is not None:
            request = Message.from_bytes(data, "request", "open")
            self.check(copy, request, Message.from_bytes(reply, "reply"))
        over = outcome.kind == "reply" or outcome.code in _ENDED
        self._copy = None if over else copy
        return outcome

    def _make_copy(self) -> Site:
        copy = self.make()
        for earlier in self._sent:
            if observe(copy.answer(earlier)).kind != "reply":
                raise RuntimeError("A copy of the site does not follow the run.")
        return copy


@dataclass
class Probe:
    """A proxy for a site that tries lies on copies of it before it passes a message on.

    All lies are tried the first two times that an operation occurs, and some of them after that.

    Attributes
    ----------
    copies : Copies
    steps : list of Step
        The messages of the run, and the lies with what was observed.
    """

    copies: Copies
    steps: list[Step] = field(default_factory=list)
    _site: Site | None = None

    def answer(self, data: bytes) -> bytes:
        """Try lies in place of a message, then pass the message on."""
        label = Message.from_bytes(data, "request", "open").label
        earlier = sum(step.op == label for step in self.steps)
        tried = list(generate_lies(data))[:: 1 if earlier < 2 else _REPEATED]
        lies = [Lie(how, lie, self.copies.try_lie(lie)) for how, lie in tried]
        self.steps.append(Step(label, data, lies))
        self.copies.follow(data)
        self._site = self._site or self.copies.make()
        return self._site.answer(data)


def repeat_lies(steps: Iterable[Step], make: Make) -> Iterator[tuple[Step, Lie, Outcome]]:
    """Send the same lies, byte for byte, to another site, and yield what is observed."""
    copies = Copies(make)
    for step in steps:
        for lie in step.lies:
            yield step, lie, copies.try_lie(lie.data)
        copies.follow(step.data)


@dataclass(frozen=True)
class Disclosure:
    """What a run has revealed about a site.

    Attributes
    ----------
    rounds : int
        Number of replies that left.
    rank_fraction : float
        Fraction of directions along which the covariance was revealed exactly.
    variance_fraction : float
        Fraction of the variance that the best guess from the replies contains.
    error : float or None
        Distance of that guess from the site's own covariance, relative to the norm of the latter;
        None if nothing exact was revealed.
    refused : str
        The code with which the site ended the run, if it did.
    """

    rounds: int
    rank_fraction: float
    variance_fraction: float
    error: float | None
    refused: str


@dataclass(frozen=True)
class HostileFindings:
    """What a hostile coordinator learns about a site.

    Attributes
    ----------
    agreed : Disclosure
        From the study as it is.
    greedy : Disclosure
        From continuing for as long as the site allows.
    lies : int
        Number of altered messages sent.
    refused, answered, aborted : int
        How many of them were refused, answered, or ended the run.
    codes : dict of str to int
        Number of refusals by code.
    differing : int
        Lies whose observed outcome differs with other rows; 0 unless there is a bug.
    """

    agreed: Disclosure
    greedy: Disclosure
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
        Whether the rows were selected by their content.

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
    agreed = scene.measure(source, study)
    greedy = scene.measure(source, replace(study, tol=_NEVER))
    some = take_some(source, max(policy.min_rows, policy.min_counted))
    steps = scene.probe(some)
    other = scene.maker(simulate_rows(some, 0, counts=scene.needs_counts))
    differing, codes = 0, dict[str, int]()
    outcomes = []
    for _, lie, outcome in repeat_lies(steps, other):
        outcomes.append(lie.outcome)
        # Whether a run aborts may depend on the rows: that is why aborts are counted and limited.
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
    """A study with one real site and simulated other sites."""

    def __init__(self, study: Study, site: str, policy: Policy, filtered: bool) -> None:
        self._study, self._site, self._filtered = study, site, filtered
        self._policy = policy
        self._coordinator = Identity.generate()
        self._key = secrets.token_bytes(32)
        self._identities = {name: Identity.generate() for name in study.sites}
        self._roster = Roster.of(self._identities) if study.masked else None

    def maker(self, source: Source) -> Make:
        """Return a function that creates the attacked site, with the given rows."""
        return lambda: self._make_site(self._site, source, self._policy, self._filtered)

    def check_opens(self, source: Source) -> None:
        """Raise SiteRefused if the site does not take part in the study."""
        opening = open_message(_RUN, self._study, self._study.method, self._coordinator)
        outcome = observe(self.maker(source)().answer(opening))
        if outcome.kind == "refusal":
            raise SiteRefused(
                self._site, outcome.code, "open", 0, REFUSAL_TEXTS.get(outcome.code, "")
            )

    def measure(self, source: Source, study: Study) -> Disclosure:
        """Run a study, which the coordinator may have changed, and return what it revealed."""
        target = _Listener(self.maker(source)(), Preparation(study.prepare))
        sites: dict[str, Answering] = {**self._others(source), self._site: target}
        code = ""
        try:
            self._run(study, sites, source)
        except SiteRefused as refused:
            code = refused.code
        except EigenfedError:
            code = "failed"
        meter = target.site.meter.settled()
        return Disclosure(
            len(target.site.egress),
            meter.rank_fraction,
            meter.variance_fraction,
            compare_guess(meter, source, target.known) if self._study.split == "samples" else None,
            code,
        )

    def probe(self, source: Source) -> list[Step]:
        """Lie to the site at every message of the study, for as long as the run continues."""
        probe = Probe(Copies(self.maker(source)))
        sites: dict[str, Answering] = {**self._others(source), self._site: probe}
        greedy = replace(self._study, tol=_NEVER, max_rounds=min(self._study.max_rounds, 3))
        with suppress(EigenfedError):  # the policy of a site may end the run
            self._run(greedy, sites, source)
        return probe.steps

    def _run(self, study: Study, sites: Mapping[str, Answering], source: Source) -> None:
        """Run `study` at sites at which the scene's study is opened, which may be another one."""
        opened = self._study
        transport = LocalTransport(sites, run=_RUN, workers=1)
        transport.open_with(open_message(_RUN, opened, opened.method, self._coordinator))
        protocol = pca(
            study,
            rng=np.random.default_rng(0),
            total=plain_sum if self._roster is None else SecureSum(self._roster, run=_RUN),
            rows=source.n if opened.split == "features" else None,
            loci=find_loci(source.X),
        )
        drive(protocol, transport)

    def _others(self, source: Source) -> dict[str, Answering]:
        names = [name for name in self._study.sites if name != self._site]
        return {
            name: self._make_site(
                name,
                simulate_rows(source, seed, counts=self.needs_counts),
                self._open_policy(),
                False,
            )
            for seed, name in enumerate(names)
        }

    @property
    def needs_counts(self) -> bool:
        """Whether the study prepares counts."""
        return any(step.needs_counts for step in self._study.prepare)

    def _open_policy(self) -> Policy:
        budget, trusts = self._policy.budget, self._policy.trusts_coordinator
        return Policy(budget=budget, trusts_coordinator=trusts)

    def _make_site(self, name: str, source: Source, policy: Policy, filtered: bool) -> Site:
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
            draw_key=lambda purpose: derive_key(self._key, context("audit", name, purpose)),
        )


@dataclass
class _Listener:
    """A proxy for a site that remembers the figures of the preparation it was sent."""

    site: Site
    known: Preparation

    def answer(self, data: bytes) -> bytes:
        """Pass a message on, and note its figures."""
        arrays = Message.from_bytes(data, "request", "open").arrays
        reply = self.site.answer(data)
        if self.known.missing is not None and observe(reply).kind == "reply":
            if "selected" in arrays:
                self.known = self.known.with_selected(arrays["selected"])
            if {"center", "spread"} <= arrays.keys():
                self.known = self.known.with_moments(arrays["center"], arrays["spread"])
        return reply
