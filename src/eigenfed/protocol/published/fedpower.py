"""[Guo2024]: FedPower with noise.

FedPower with noise at the sites and at the coordinator ([Guo2024] Alg. 2 and 3).

===========  ==================================================================================
coordinator  of each site that takes part: its noisy M Z T, d x r, and the largest entry of Z;
             after local steps also the baseline's Z, d x r, without noise; and where steps
             follow the last average, each site's Z, without noise
site         the common basis that steps start from, and after local steps the baseline's Z
===========  ==================================================================================

The output is the leading left singular vectors of the last average, or, where steps follow it, the
first columns of the averaged Z. The baseline is the site with most rows of those that take part.
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import brentq
from scipy.stats import binom

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.errors import Argument, InputError
from eigenfed.linalg.checks import check_count
from eigenfed.privacy.dp.accounting import delta_of, epsilon_of
from eigenfed.privacy.published_claims import Published, check_one_of, root_of_log, wanted_rank
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.core import Call, Protocol, call_each
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.local_steps import Walked
from eigenfed.protocol.exact.moments import framed
from eigenfed.protocol.exact.power import Power
from eigenfed.protocol.messages import Integers
from eigenfed.protocol.operations import Answer, State, Terms, check_finite, check_integer, op
from eigenfed.protocol.published.bounded import (
    Bounded,
    BoundedRequest,
    bounded_blocks,
    published_value,
)
from eigenfed.protocol.published.continuous_noise import normal


@dataclass(frozen=True)
class NoisyFedPower(Published):
    """FedPower with noise, [Guo2024] Alg. 2 (all sites) and Alg. 3 (some sites an average).

    Sites take p steps ``Z = orth(M Z)`` between averages and add noise of standard deviation
    ``max|Z| sigma`` to what they send, the coordinator ``max|Z| sigma'`` to the average.
    Neighbours: X'X differs in one entry by at most 1, which for symmetric matrices is a diagonal
    one; nothing is claimed about rows. Theorems 4 and 7 claim (2 epsilon, 2 delta).

    For p = 1 the sensitivity is the largest norm of Z's rows, not its largest entry: up to
    sqrt(r) times more for r columns. Basic composition leaves slack, so that the claim holds
    while r is at most about 7 times the number of averages, and fails beyond. For p > 1 nothing
    holds: what is sent depends on rows through Z too, without noise; so do max|Z| and the
    baseline's Z that sites are aligned to. Where T is no multiple of p, the output has no noise.
    Theorem 7 takes the probability of one draw for that of taking part at all.

    Parameters
    ----------
    epsilon, delta : float
        Half of what is claimed.
    iterations : int
        T, all steps together.
    local_steps : int, default=1
        p, steps up to and with each average.
    rank : int, optional
        r, columns of Z; twice the components by default.
    align : {"procrustes", "none"}, default="procrustes"
        Whether sites turn their Z to the baseline's before an average ([Guo2024] eq. 3.2).
    participation : {"full", "scheme1", "scheme2"}, default="full"
        All sites in each average; some, drawn with replacement by their share of the rows; or
        some, drawn evenly without replacement.
    sites_per_round : int, optional
        K, how many are drawn.
    clip : float, optional
        Public bound on norms; without it rows are divided by their largest norm.

    Examples
    --------
    >>> single = NoisyFedPower(1.0, 1e-5, iterations=1, rank=16, clip=1.0)
    >>> truth = single.truth([100], 16, k=4, center=False)
    >>> truth.claimed_epsilon, round(truth.true_epsilon, 2)
    (2.0, 3.37)
    >>> local = NoisyFedPower(1.0, 1e-5, iterations=16, local_steps=4, clip=1.0)
    >>> local.truth([100] * 10, 64, k=10, center=False).true_epsilon
    inf
    """

    _: KW_ONLY
    iterations: int
    local_steps: int = 1
    rank: int | None = None
    align: str = "procrustes"
    participation: str = "full"
    sites_per_round: int | None = None

    relation: ClassVar[str] = "entry"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.delta < 0.5:
            raise InputError(
                Argument("delta", self.delta),
                " must be below 0.5, since the claim is about twice as much",
                remedy="Pass much less than one over the number of rows.",
            )
        check_count("local_steps", self.local_steps, "Pass 1 to average after each step.")
        remedy = "One average at least needs that many."
        check_count("iterations", self.iterations, remedy, least=self.local_steps)
        check_one_of("align", self.align, ("procrustes", "none"))
        check_one_of("participation", self.participation, ("full", "scheme1", "scheme2"))
        if self.rank is not None:
            check_count("rank", self.rank, "Pass None for twice the components.")
        if self.participation != "full":
            check_count("sites_per_round", self.sites_per_round, "Say how many sites to draw.")
        elif self.sites_per_round is not None:
            raise InputError(
                f"sites_per_round={self.sites_per_round!r} must be None with full participation. "
                "Leave it out, or choose participation='scheme1' or 'scheme2'."
            )

    @property
    def claim(self) -> tuple[float, float]:
        """The epsilon and delta that Theorems 4 and 7 claim: twice the formula's."""
        return 2.0 * self.epsilon, 2.0 * self.delta

    @property
    def averages(self) -> int:
        """How often sites send."""
        return self.iterations // self.local_steps

    def rank_for(self, k: int, d: int) -> int:
        """Return the columns of Z."""
        return wanted_rank(self.rank, k, d)

    def noise_factors(self, rows: Sequence[int]) -> tuple[float, float]:
        """Return sigma of the sites' noise and sigma' of the coordinator's, as printed.

        Both are to be multiplied by the largest entry of Z.
        """
        times = self.averages / (self.epsilon * min(rows))
        share, drawn = max(rows) / sum(rows), self.sites_per_round or 1
        argument = 1.25 * self.averages / self.delta
        at_server = times * root_of_log(argument, self.delta)
        match self.participation:
            case "full":
                return at_server, share * at_server
            case "scheme1":
                at_site = times * root_of_log(argument * share, self.delta)
                return at_site, at_server / drawn
            case _:
                at_site = times * root_of_log(argument / len(rows), self.delta)
                return at_site, share * at_server / drawn

    def taking_part(self, rows: Sequence[int]) -> list[float]:
        """Return for each site the probability that it takes part in an average."""
        match self.participation:
            case "full":
                return [1.0] * len(rows)
            case "scheme1":
                total, drawn = sum(rows), self.sites_per_round or 1
                return [1.0 - (1.0 - n / total) ** drawn for n in rows]
            case _:
                self.check_sites(len(rows))
                return [(self.sites_per_round or 1) / len(rows)] * len(rows)

    def check_sites(self, m: int) -> None:
        """Refuse to draw more sites without replacement than there are."""
        if self.participation == "scheme2" and (self.sites_per_round or 1) > m:
            raise InputError(
                f"sites_per_round={self.sites_per_round} must be at most {m}, the number of "
                "sites, where they are drawn without replacement. Draw fewer."
            )

    def noise_epsilon(self, rows: Sequence[int], d: int, k: int) -> float:
        """Return the least epsilon of the noise, for the site that fares worst.

        A site's row norm over its largest entry is sqrt(r) at most, and is that for a Hadamard
        matrix. Who takes part is public and does not depend on rows, so that delta is the mean
        over how often a site does. The coordinator's noise comes after and adds nothing.
        """
        if self.local_steps > 1:
            return math.inf
        sigma, _ = self.noise_factors(rows)
        root = math.sqrt(self.rank_for(k, d))
        return max(
            _sampled_epsilon(self.claim[1], root / (n * sigma), self.averages, q)
            for n, q in zip(rows, self.taking_part(rows), strict=True)
        )

    def reason(self, rows: Sequence[int], d: int, k: int) -> str:
        """Return what is behind the true epsilon."""
        if self.iterations % self.local_steps:
            return "The last steps follow the last average, and their result leaves without noise."
        if self.local_steps > 1:
            return (
                "After local steps Z itself depends on the rows, without noise, and so do the "
                "scale of the noise and the baseline's Z."
            )
        return (
            f"The sensitivity of {self.rank_for(k, d)} columns is up to the root of that number "
            "times what the noise is made for; basic composition leaves slack. A symmetric pair "
            "of entries would change sqrt(2) times as much, and of rows nothing is said."
        )


def _sampled_epsilon(delta: float, mu: float, times: int, probability: float) -> float:
    """Return the epsilon of releases of `mu` each, of which each happens with a probability."""
    most = epsilon_of(delta, mu * math.sqrt(times))
    if probability >= 1.0 or most in (0.0, math.inf):
        return most
    chances = [float(binom.pmf(j, times, probability)) for j in range(1, times + 1)]

    def excess(epsilon: float) -> float:
        curves = (delta_of(epsilon, mu * math.sqrt(j)) for j in range(1, times + 1))
        return sum(map(float.__mul__, chances, curves)) - delta

    return 0.0 if excess(0.0) <= 0.0 else float(brentq(excess, 0.0, most, rtol=1e-12))


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
    run = _NoisyAverages(ground, value, rng, value.rank_for(k, ground.d))
    for _ in range(value.averages):
        yield from run.average(value.local_steps - 1)
    u, s, _ = np.linalg.svd(run.product, full_matrices=False)
    basis = u[:, :k]
    rest = value.iterations % value.local_steps
    if rest:
        basis = np.linalg.qr((yield from run.bare_average(rest))).Q[:, :k]
    return ground.decomposition(basis, s[:k], total=np.nan, products=run.rounds)


class _NoisyAverages:
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
        replies = yield from self._ask(Call(request))
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
            replies = yield from self._ask(Call(request))
        else:
            walk = BareWalkRequest(shown=True, **fields, **ground)
            replies = yield from self._ask(Call(walk))
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
        return scheme.draw_factors(rows, self.rng)

    def _reference(self, fields: dict[str, Any]) -> Protocol[Array]:
        baseline = max(self.factors, key=self.ground.rows.__getitem__)
        walk = BareWalkRequest(**fields, **self.ground.fields)
        each = {baseline: replace(walk, shown=True)}
        replies = yield from self._ask(Call(walk, each=each))
        found: Array = replies[baseline].basis
        return found

    def _ask(self, call: Call[Any]) -> Protocol[dict[str, Any]]:
        """Ask the sites that take part."""
        self.rounds += 1
        return (yield from call_each(replace(call, to=tuple(self.factors))))


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
    """Turn a basis to the reference by an orthogonal matrix ([Guo2024] eq. 3.2)."""
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
