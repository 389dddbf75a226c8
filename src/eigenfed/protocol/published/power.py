"""FedPower with noise at the sites and at the coordinator (004 Alg. 2 and 3).

===========  ==================================================================================
coordinator  of each site that takes part: its noisy M Z T, d x r, and the largest entry of Z;
             after local steps also the baseline's Z, d x r, without noise; and where steps
             follow the last average, each site's Z, without noise
site         the common basis that steps start from, and after local steps the baseline's Z
===========  ==================================================================================

The output is the leading left singular vectors of the last average, or, where steps follow it, the
first columns of the averaged Z. The baseline is the site with most rows of those that take part.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.privacy.published import NoisyFedPower
from eigenfed.privacy.published.noise import normal
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.codec import Integers
from eigenfed.protocol.core import Ask, Protocol, ask_each
from eigenfed.protocol.local_steps import Walked
from eigenfed.protocol.moments import framed
from eigenfed.protocol.ops import Answer, State, Terms, check_finite, check_integer, op
from eigenfed.protocol.power import Power
from eigenfed.protocol.published.bounded import (
    Bounded,
    BoundedRequest,
    bounded_blocks,
    published_value,
)
from eigenfed.protocol.result import Decomposition


def _value(terms: Terms) -> NoisyFedPower:
    value = published_value(terms.study)
    if not isinstance(value, NoisyFedPower):
        raise InputError("The study's mechanism is not FedPower.")
    return value


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BareWalkReply:
    """Where local steps led, where that was asked."""

    basis: Array | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StepsRequest(BoundedRequest):
    """A request that begins with local steps, or from where earlier ones led.

    Attributes
    ----------
    start : ndarray of shape (d, r), or None
    steps : int or None
    reference : ndarray of shape (d, r), or None
        Instead of a start: the baseline's basis, to which the site turns its own.
    """

    start: Array | None = None
    steps: int | None = None
    reference: Array | None = None

    def check(self, terms: Terms, state: State) -> None:
        """Refuse steps that the mechanism does not take, or a basis of another shape."""
        super().check(terms, state)
        value = _value(terms)
        shape = (terms.d, value.rank_for(terms.k, terms.d))
        if self.reference is not None:
            if not isinstance(state.own, Walked) or self.start is not None:
                raise InputError("A reference comes after local steps.")
            check_finite("reference", self.reference, shape)
            return
        if self.start is None or self.steps is None:
            raise InputError("Local steps have a start and a number.")
        check_finite("start", self.start, shape)
        check_integer("steps", self.steps, 0, value.local_steps)

    def own_directions(self, terms: Terms, state: State) -> int:
        """Count the columns of the basis."""
        basis = self.reference if self.start is None else self.start
        return 0 if basis is None else basis.shape[1]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NoisyStepReply:
    """A noisy step before an average, and the largest entry of what it starts from."""

    product: Array
    peak: float


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NoisyStepRequest(StepsRequest):
    """Ask for the noisy step before an average.

    Attributes
    ----------
    rows : ndarray of int64
        Numbers of rows of all sites, from which the noise follows.
    """

    rows: Integers

    op, reply = "noisy_step", NoisyStepReply

    def check(self, terms: Terms, state: State) -> None:
        """Refuse numbers of rows that are none."""
        super().check(terms, state)
        if self.rows.shape != (len(terms.study.sites),) or self.rows.min() < 1:
            raise InputError("rows must have a number above 0 for each site.")


@op(Release("noisy second moment times basis", "d x l + 1", Leaves.PUBLISHED, Reveals.DIRECTIONS))
def noisy_step(
    source: Source, request: NoisyStepRequest, state: State, terms: Terms
) -> Answer[NoisyStepReply]:
    """Return the noisy step before an average, and the largest entry of what it starts from."""
    basis = _begun(source, request, state)
    peak = float(np.abs(basis).max())
    sd = _value(terms).noise_factors([int(n) for n in request.rows])[0]
    step = _step(source, request, basis) + normal(basis.shape, peak * sd)
    return _counted(source, request, state, NoisyStepReply(product=step, peak=peak), basis)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BareWalkRequest(StepsRequest):
    """Have a site take local steps.

    Attributes
    ----------
    shown : bool
        Whether it tells where they led.
    """

    shown: bool = False

    op, reply = "bare_walk", BareWalkReply


@op(Release("basis after local steps, bare", "d x l", Leaves.PUBLISHED, Reveals.DIRECTIONS))
def bare_walk(
    source: Source, request: BareWalkRequest, state: State, terms: Terms
) -> Answer[BareWalkReply]:
    """Take local steps, keep where they led, and reply with it only where that is asked."""
    basis = _begun(source, request, state)
    kept = replace(state, own=Walked(basis))
    if request.shown:
        return _counted(source, request, kept, BareWalkReply(basis=basis), basis)
    return _counted(source, request, kept, BareWalkReply(), basis[:, :0])


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BareBasisRequest(StepsRequest):
    """Ask where local steps led, turned towards the baseline's."""

    op, reply = "bare_basis", BareWalkReply


@op(Release("turned basis, bare", "d x l", Leaves.PUBLISHED, Reveals.DIRECTIONS))
def bare_basis(
    source: Source, request: BareBasisRequest, state: State, terms: Terms
) -> Answer[BareWalkReply]:
    """Return where local steps led, turned towards the baseline's."""
    basis = _begun(source, request, state)
    return _counted(source, request, state, BareWalkReply(basis=basis), basis)


OPS = (noisy_step, bare_walk, bare_basis)


def noisy_power(
    ground: Bounded, k: int, value: NoisyFedPower, *, rng: np.random.Generator
) -> Protocol[Decomposition]:
    """Average noisy steps until the iterations are done.

    Parameters
    ----------
    ground : Bounded
    k : int
    value : NoisyFedPower
    rng : numpy Generator
        For the public start and for drawing sites; noise never comes from it.
    """
    run = _Averages(ground, value, rng, value.rank_for(k, ground.d))
    for _ in range(value.averages):
        yield from run.average(value.local_steps - 1)
    u, s, _ = np.linalg.svd(run.product, full_matrices=False)
    basis = u[:, :k]
    rest = value.iterations % value.local_steps
    if rest:
        basis = np.linalg.qr((yield from run.bare_average(rest))).Q[:, :k]
    return ground.decomposition(basis, s[:k], total=np.nan, products=run.rounds)


class _Averages:
    """Asks for averages; holds the last one and the basis that it led to."""

    def __init__(
        self, ground: Bounded, value: NoisyFedPower, rng: np.random.Generator, rank: int
    ) -> None:
        value.check_sites(len(ground.rows))
        self.ground, self.value, self.rng = ground, value, rng
        _, self.at_coordinator = value.noise_factors(list(ground.rows.values()))
        self.bits = ground.bits()
        self.factors: dict[str, float] = {}
        self.product = np.zeros((ground.d, rank))
        self.basis: Array = rng.standard_normal((ground.d, rank))
        self.rounds = 0

    def average(self, steps: int) -> Protocol[None]:
        """Take local steps, then average the noisy ones of the sites that take part."""
        self.factors = self._drawn()
        fields: dict[str, Any] = {"start": self.basis, "steps": steps}
        if steps and self.value.align == "procrustes":
            fields = {"reference": (yield from self._reference(fields))}
        rows = np.array(list(self.ground.rows.values()))
        request = NoisyStepRequest(rows=rows, **fields, **self.ground.fields)
        replies = yield from self._ask(Ask(request))
        peak = max(reply.peak for reply in replies.values())
        added = normal(self.product.shape, peak * self.at_coordinator, self.bits)
        self.product = added + sum(f * replies[s].product for s, f in self.factors.items())
        self.basis = np.linalg.qr(self.product).Q

    def bare_average(self, steps: int) -> Protocol[Array]:
        """Average where the last steps led, without noise, over the last average's sites.

        In scheme 2 all have the same weight, as the output line of Alg. 3 has it.
        """
        fields: dict[str, Any] = {"start": self.basis, "steps": steps}
        ground = self.ground.fields
        if self.value.align == "procrustes":
            reference = yield from self._reference(fields)
            request = BareBasisRequest(reference=reference, **ground)
            replies = yield from self._ask(Ask(request))
        else:
            walk = BareWalkRequest(shown=True, **fields, **ground)
            replies = yield from self._ask(Ask(walk))
        even = self.value.participation == "scheme2"
        total = np.zeros_like(self.basis)
        for site, factor in self.factors.items():
            total += (1.0 if even else factor) * replies[site].basis
        return total

    def _drawn(self) -> dict[str, float]:
        """Return what to multiply each site's step by, of those that take part."""
        rows = {site: float(n) for site, n in self.ground.rows.items()}
        if self.value.participation == "full":
            return {site: n / self.ground.n for site, n in rows.items()}
        scheme = Power(
            participation=self.value.participation, sites_per_round=self.value.sites_per_round
        )
        return scheme.factors(rows, self.rng)

    def _reference(self, fields: dict[str, Any]) -> Protocol[Array]:
        baseline = max(self.factors, key=self.ground.rows.__getitem__)
        walk = BareWalkRequest(**fields, **self.ground.fields)
        each = {baseline: replace(walk, shown=True)}
        replies = yield from self._ask(Ask(walk, each=each))
        found: Array = replies[baseline].basis
        return found

    def _ask(self, ask: Ask[Any]) -> Protocol[dict[str, Any]]:
        """Ask the sites that take part."""
        self.rounds += 1
        return (yield from ask_each(replace(ask, to=tuple(self.factors))))


def _begun(source: Source, request: StepsRequest, state: State) -> Array:
    """Return where a site stands: after local steps, or turned towards the baseline's."""
    if request.reference is not None and isinstance(state.own, Walked):
        return _turned(state.own.basis, request.reference)
    if request.start is None:
        raise InputError("There is neither a start nor where local steps led.")
    basis = request.start
    for _ in range(request.steps or 0):
        basis = np.linalg.qr(_step(source, request, basis)).Q
    return basis


def _step(source: Source, request: BoundedRequest, basis: Array) -> Array:
    """Return the second moment of the bounded rows times a basis, (d, l)."""
    total = np.zeros(basis.shape)
    for block in bounded_blocks(source, request.mean, request.bound):
        total += block.T @ (block @ basis)
    return total / source.n


def _turned(basis: Array, reference: Array) -> Array:
    """Turn a basis to the reference by an orthogonal matrix (004 eq. 3.2)."""
    left, _, right = np.linalg.svd(basis.T @ reference)
    turned: Array = basis @ (left @ right)
    return turned


def _counted(
    source: Source, request: BoundedRequest, state: State, reply: Any, basis: Array
) -> Answer[Any]:
    """Have the meter count the directions as if their products had left without noise."""
    scale = np.full(source.d, request.bound)
    view, frame, state = framed(source, replace(state, sent=(request.mean, scale)))
    return Answer(reply, state, frame.answered(basis, view.product(basis)))
