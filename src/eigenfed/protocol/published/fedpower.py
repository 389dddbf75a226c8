"""[Guo2024]: FedPower with noise at the sites and at the coordinator (Alg. 2 and 3).

===========  ==================================================================================
coordinator  from each participating site: its noisy M Z T, d x r, and the largest entry of Z;
             after local steps also the baseline's Z, d x r, without noise; and if steps follow
             the last average, each site's Z, without noise
site         the common basis from which steps start, and after local steps the baseline's Z
===========  ==================================================================================

M is a site's second moment, Z its basis, and T aligns Z with the baseline, the participating site
with most rows. The output is the leading left singular vectors of the last average, or, if steps
follow it, the first columns of the averaged Z.
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from eigenfed.arrays import Array, Integers
from eigenfed.data.source import Source
from eigenfed.errors import Argument, InputError
from eigenfed.linalg.checks import check_count
from eigenfed.privacy.dp.accounting import delta_of, epsilon_of
from eigenfed.privacy.published_claims import check_one_of, choose_rank, root_of_log
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.core import Call, Protocol, call_each
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.frame_rows import prepare_rows
from eigenfed.protocol.exact.power import Power
from eigenfed.protocol.exact.power_site import Walked, align_basis
from eigenfed.protocol.gate.script import Script, either, repeat
from eigenfed.protocol.operations import Answer, Op, State, Terms, check_finite, check_integer, op
from eigenfed.protocol.published.bounded import (
    Bounded,
    BoundedRequest,
    get_published,
    iterate_bounded_blocks,
)
from eigenfed.protocol.published.continuous_noise import draw_normal
from eigenfed.protocol.published.mechanism import Mechanism


@dataclass(frozen=True)
class NoisyFedPower(Mechanism):
    """FedPower with noise, [Guo2024] Alg. 2 (all sites) and Alg. 3 (a sample for each average).

    Sites take p steps ``Z = orth(M Z)`` between averages and add noise of standard deviation
    ``max|Z| sigma`` to what they send, the coordinator ``max|Z| sigma'`` to the average.
    Neighbours: X'X differs in one entry by at most 1, which for symmetric matrices is a diagonal
    one; nothing is claimed about rows. Theorems 4 and 7 claim (2 epsilon, 2 delta).

    For p = 1 the sensitivity is the largest norm of the rows of Z, not its largest entry: up to
    sqrt(r) times more for r columns. Basic composition leaves slack, so the claim holds while r is
    at most about 7 times the number of averages, and fails beyond. For p > 1 nothing holds: what is
    sent also depends on the rows through Z, without noise, and so do max|Z| and the baseline's Z
    with which sites align. If T is not a multiple of p, the output has no noise. Theorem 7 uses the
    probability of one draw instead of that of participating at all.

    Parameters
    ----------
    epsilon, delta : float
        Half of what is claimed.
    iterations : int
        T, the total number of steps.
    local_steps : int, default=1
        p, steps for each average, including the averaged one.
    rank : int, optional
        r, columns of Z; twice the components by default.
    align : {"procrustes", "none"}, default="procrustes"
        Whether sites align their Z with the baseline's before an average ([Guo2024] eq. 3.2).
    participation : {"full", "scheme1", "scheme2"}, default="full"
        All sites in each average; some, sampled with replacement in proportion to their rows; or
        some, sampled uniformly without replacement.
    sites_per_round : int, optional
        K, the number of sites sampled.
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
                " must be below 0.5, since the claim is twice as much",
                remedy="Pass much less than one over the number of rows.",
            )
        check_count("local_steps", self.local_steps, "Pass 1 to average after each step.")
        remedy = "The first average needs that many."
        check_count("iterations", self.iterations, remedy, least=self.local_steps)
        check_one_of("align", self.align, ("procrustes", "none"))
        check_one_of("participation", self.participation, ("full", "scheme1", "scheme2"))
        if self.rank is not None:
            check_count("rank", self.rank, "Pass None for twice the components.")
        if self.participation != "full":
            check_count("sites_per_round", self.sites_per_round, "Pass how many sites to sample.")
        elif self.sites_per_round is not None:
            raise InputError(
                f"sites_per_round={self.sites_per_round!r} must be None with full participation. "
                "Omit it, or choose participation='scheme1' or 'scheme2'."
            )

    @property
    def claim(self) -> tuple[float, float]:
        """The epsilon and delta that Theorems 4 and 7 claim: twice the formula's."""
        return 2.0 * self.epsilon, 2.0 * self.delta

    @property
    def averages(self) -> int:
        """Number of averages."""
        return self.iterations // self.local_steps

    def rank_for(self, k: int, d: int) -> int:
        """Return r, the number of columns of Z."""
        return choose_rank(self.rank, k, d)

    def noise_factors(self, rows: Sequence[int]) -> tuple[float, float]:
        """Return sigma of the sites' noise and sigma' of the coordinator's, as printed.

        Both are to be multiplied by the largest entry of Z.
        """
        times = self.averages / (self.epsilon * min(rows))
        fraction, sampled = max(rows) / sum(rows), self.sites_per_round or 1
        argument = 1.25 * self.averages / self.delta
        at_server = times * root_of_log(argument, self.delta)
        match self.participation:
            case "full":
                return at_server, fraction * at_server
            case "scheme1":
                at_site = times * root_of_log(argument * fraction, self.delta)
                return at_site, at_server / sampled
            case _:
                at_site = times * root_of_log(argument / len(rows), self.delta)
                return at_site, fraction * at_server / sampled

    def participation_probabilities(self, rows: Sequence[int]) -> list[float]:
        """Return for each site the probability that it participates in an average."""
        match self.participation:
            case "full":
                return [1.0] * len(rows)
            case "scheme1":
                total, sampled = sum(rows), self.sites_per_round or 1
                return [1.0 - (1.0 - n / total) ** sampled for n in rows]
            case _:
                self.check_sites(len(rows))
                return [(self.sites_per_round or 1) / len(rows)] * len(rows)

    def check_sites(self, m: int) -> None:
        """Raise if more sites are to be sampled without replacement than there are."""
        if self.participation == "scheme2" and (self.sites_per_round or 1) > m:
            raise InputError(
                f"sites_per_round={self.sites_per_round} must be at most {m}, the number of "
                "sites, if they are sampled without replacement. Sample fewer."
            )

    def noise_epsilon(self, rows: Sequence[int], d: int, k: int) -> float:
        """Return the least epsilon of the noise, for the worst site.

        The norm of a row of Z over its largest entry is at most sqrt(r), which a Hadamard matrix
        reaches. Which sites participate is public and does not depend on rows, so delta is the
        mean over how often a site does. The coordinator's noise comes later and adds nothing.
        """
        if self.local_steps > 1:
            return math.inf
        sigma, _ = self.noise_factors(rows)
        root = math.sqrt(self.rank_for(k, d))
        return max(
            _sampled_epsilon(self.claim[1], root / (n * sigma), self.averages, q)
            for n, q in zip(rows, self.participation_probabilities(rows), strict=True)
        )

    def reason(self, rows: Sequence[int], d: int, k: int) -> str:
        """Explain the true epsilon."""
        if self.iterations % self.local_steps:
            return "The last steps follow the last average, and their result leaves without noise."
        if self.local_steps > 1:
            return (
                "After local steps Z itself depends on the rows, without noise, and so do the "
                "scale of the noise and the baseline's Z."
            )
        return (
            f"The sensitivity of {self.rank_for(k, d)} columns is up to the root of that number "
            "times what the noise is calibrated for; basic composition leaves slack. A symmetric "
            "pair of entries would change sqrt(2) times as much, and nothing is claimed about rows."
        )

    @classmethod
    def operations(cls) -> tuple[Op[Any, Any], ...]:
        """Return noisy steps, and local steps without noise."""
        return (noisy_step, bare_walk, bare_basis)

    def script(self) -> Script:
        """Return the script: up to two requests for each average, and for the last steps."""
        return repeat(either("noisy_step", "bare_walk", "bare_basis"), 0, 2 * self.averages + 2)

    def run(self, ground: Bounded, k: int, rng: np.random.Generator) -> Protocol[Decomposition]:
        """Average noisy steps until the iterations are done."""
        averages = _NoisyAverages(ground, self, rng, self.rank_for(k, ground.d))
        for _ in range(self.averages):
            yield from averages.average(self.local_steps - 1)
        u, s, _ = np.linalg.svd(averages.product, full_matrices=False)
        basis = u[:, :k]
        rest = self.iterations % self.local_steps
        if rest:
            basis = np.linalg.qr((yield from averages.bare_average(rest))).Q[:, :k]
        return ground.decomposition(basis, s[:k], total=np.nan, products=averages.rounds)


def _sampled_epsilon(delta: float, mu: float, times: int, probability: float) -> float:
    """Return the epsilon of releases of `mu` each, each of which happens with a probability."""
    most = epsilon_of(delta, mu * math.sqrt(times))
    if probability >= 1.0 or most in (0.0, math.inf):
        return most
    # Loaded on use: every site imports this module, and few need these, which are slow to load.
    from scipy.optimize import brentq
    from scipy.stats import binom

    chances = [float(binom.pmf(j, times, probability)) for j in range(1, times + 1)]

    def excess(epsilon: float) -> float:
        curves = (delta_of(epsilon, mu * math.sqrt(j)) for j in range(1, times + 1))
        return sum(map(float.__mul__, chances, curves)) - delta

    return 0.0 if excess(0.0) <= 0.0 else float(brentq(excess, 0.0, most, rtol=1e-12))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BareWalkReply:
    """The basis after local steps, if it was requested."""

    basis: Array | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StepsRequest(BoundedRequest):
    """Base of requests that begin with local steps from a start, or after earlier ones.

    Attributes
    ----------
    start : ndarray of shape (d, r), or None
    steps : int or None
    reference : ndarray of shape (d, r), or None
        Instead of a start: the baseline's basis, with which the site aligns its own.
    """

    start: Array | None = None
    steps: int | None = None
    reference: Array | None = None

    def check(self, terms: Terms, state: State) -> None:
        """Refuse more steps than the mechanism takes, or a basis of another shape."""
        super().check(terms, state)
        value = _get_fedpower(terms)
        shape = (terms.d, value.rank_for(terms.k, terms.d))
        if self.reference is not None:
            if not isinstance(state.own, Walked) or self.start is not None:
                raise InputError("A reference requires local steps before it.")
            check_finite("reference", self.reference, shape)
            return
        if self.start is None or self.steps is None:
            raise InputError("Local steps need a start and a number of steps.")
        check_finite("start", self.start, shape)
        check_integer("steps", self.steps, 0, value.local_steps)

    def own_directions(self, terms: Terms, state: State) -> int:
        """Return the number of columns of the basis."""
        basis = self.reference if self.start is None else self.start
        return 0 if basis is None else basis.shape[1]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NoisyStepReply:
    """A noisy product to be averaged, and the largest entry of the basis multiplied."""

    product: Array
    peak: float


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NoisyStepRequest(StepsRequest):
    """Request the noisy product to be averaged.

    Attributes
    ----------
    rows : ndarray of int64
        Numbers of rows of all sites, from which the noise follows.
    """

    rows: Integers

    op, reply = "noisy_step", NoisyStepReply

    def check(self, terms: Terms, state: State) -> None:
        """Refuse numbers of rows that are not one positive number for each site."""
        super().check(terms, state)
        if self.rows.shape != (len(terms.study.sites),) or self.rows.min() < 1:
            raise InputError("rows must have a number above 0 for each site.")


@op(Release("noisy second moment times basis", "d x l + 1", Leaves.PUBLISHED, Reveals.DIRECTIONS))
def noisy_step(
    source: Source, request: NoisyStepRequest, state: State, terms: Terms
) -> Answer[NoisyStepReply]:
    """Return the noisy product to be averaged, and the largest entry of the basis multiplied."""
    basis = _prepare_basis(source, request, state)
    peak = float(np.abs(basis).max())
    sd = _get_fedpower(terms).noise_factors([int(n) for n in request.rows])[0]
    step = _multiply(source, request, basis) + draw_normal(basis.shape, peak * sd)
    return _answer_metered(source, request, state, NoisyStepReply(product=step, peak=peak), basis)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BareWalkRequest(StepsRequest):
    """Request local steps of a site.

    Attributes
    ----------
    shown : bool
        Whether it replies with the basis that they led to.
    """

    shown: bool = False

    op, reply = "bare_walk", BareWalkReply


@op(Release("basis after local steps, no noise", "d x l", Leaves.PUBLISHED, Reveals.DIRECTIONS))
def bare_walk(
    source: Source, request: BareWalkRequest, state: State, terms: Terms
) -> Answer[BareWalkReply]:
    """Take the local steps and keep their basis; reply with it, without noise, if requested."""
    basis = _prepare_basis(source, request, state)
    kept = replace(state, own=Walked(basis))
    if request.shown:
        return _answer_metered(source, request, kept, BareWalkReply(basis=basis), basis)
    return _answer_metered(source, request, kept, BareWalkReply(), basis[:, :0])


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BareBasisRequest(StepsRequest):
    """Request the basis after local steps, aligned with the baseline's."""

    op, reply = "bare_basis", BareWalkReply


@op(Release("aligned basis, no noise", "d x l", Leaves.PUBLISHED, Reveals.DIRECTIONS))
def bare_basis(
    source: Source, request: BareBasisRequest, state: State, terms: Terms
) -> Answer[BareWalkReply]:
    """Return the basis after local steps, aligned with the baseline's, without noise."""
    basis = _prepare_basis(source, request, state)
    return _answer_metered(source, request, state, BareWalkReply(basis=basis), basis)


class _NoisyAverages:
    """Requests averages; holds the last one and its orthonormal basis."""

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
        """Request local steps, then average the noisy products of the participating sites."""
        self.factors = self._draw_factors()
        fields: dict[str, Any] = {"start": self.basis, "steps": steps}
        if steps and self.value.align == "procrustes":
            fields = {"reference": (yield from self._request_reference(fields))}
        rows = np.array(list(self.ground.rows.values()))
        request = NoisyStepRequest(rows=rows, **fields, **self.ground.fields)
        replies = yield from self._request(Call(request))
        peak = max(reply.peak for reply in replies.values())
        added = draw_normal(self.product.shape, peak * self.at_coordinator, self.bits)
        self.product = added + sum(f * replies[s].product for s, f in self.factors.items())
        self.basis = np.linalg.qr(self.product).Q

    def bare_average(self, steps: int) -> Protocol[Array]:
        """Average the bases after the last steps, without noise, over the last average's sites.

        In scheme 2 all have the same weight, as in the output line of Alg. 3.
        """
        fields: dict[str, Any] = {"start": self.basis, "steps": steps}
        ground = self.ground.fields
        if self.value.align == "procrustes":
            reference = yield from self._request_reference(fields)
            request = BareBasisRequest(reference=reference, **ground)
            replies = yield from self._request(Call(request))
        else:
            walk = BareWalkRequest(shown=True, **fields, **ground)
            replies = yield from self._request(Call(walk))
        even = self.value.participation == "scheme2"
        total = np.zeros_like(self.basis)
        for site, factor in self.factors.items():
            total += (1.0 if even else factor) * replies[site].basis
        return total

    def _draw_factors(self) -> dict[str, float]:
        """Return the factor of each participating site's product."""
        rows = {site: float(n) for site, n in self.ground.rows.items()}
        if self.value.participation == "full":
            return {site: n / self.ground.n for site, n in rows.items()}
        scheme = Power(
            participation=self.value.participation, sites_per_round=self.value.sites_per_round
        )
        return scheme.draw_factors(rows, self.rng)

    def _request_reference(self, fields: dict[str, Any]) -> Protocol[Array]:
        baseline = max(self.factors, key=self.ground.rows.__getitem__)
        walk = BareWalkRequest(**fields, **self.ground.fields)
        each = {baseline: replace(walk, shown=True)}
        replies = yield from self._request(Call(walk, each=each))
        found: Array = replies[baseline].basis
        return found

    def _request(self, call: Call[Any]) -> Protocol[dict[str, Any]]:
        """Send a request to the participating sites."""
        self.rounds += 1
        return (yield from call_each(replace(call, to=tuple(self.factors))))


def _prepare_basis(source: Source, request: StepsRequest, state: State) -> Array:
    """Return the basis to multiply: after local steps, or aligned with the baseline's."""
    if request.reference is not None and isinstance(state.own, Walked):
        return align_basis(state.own.basis, request.reference)
    if request.start is None:
        raise InputError("There is neither a start nor a basis from local steps.")
    basis = request.start
    for _ in range(request.steps or 0):
        basis = np.linalg.qr(_multiply(source, request, basis)).Q
    return basis


def _multiply(source: Source, request: BoundedRequest, basis: Array) -> Array:
    """Multiply the second moment of the bounded rows by a basis, (d, l)."""
    total = np.zeros(basis.shape)
    for block in iterate_bounded_blocks(source, request.mean, request.bound):
        total += block.T @ (block @ basis)
    return total / source.n


def _get_fedpower(terms: Terms) -> NoisyFedPower:
    value = get_published(terms.study)
    if not isinstance(value, NoisyFedPower):
        raise InputError("The study's mechanism is not FedPower.")
    return value


def _answer_metered(
    source: Source, request: BoundedRequest, state: State, reply: Any, basis: Array
) -> Answer[Any]:
    """Return a reply whose directions are metered as if their products had left without noise."""
    scale = np.full(source.d, request.bound)
    view, frame, state = prepare_rows(source, replace(state, sent=(request.mean, scale)))
    return Answer(reply, state, frame.answered(basis, view.product(basis)))
