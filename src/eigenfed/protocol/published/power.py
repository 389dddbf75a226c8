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

import numpy as np

from eigenfed.arrays import Array, Arrays
from eigenfed.data.source import Source
from eigenfed.privacy.published import NoisyFedPower
from eigenfed.privacy.published.noise import normal
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.core import Ask, Protocol
from eigenfed.protocol.ops import Answer, op
from eigenfed.protocol.power_options import Power
from eigenfed.protocol.products import prepared
from eigenfed.protocol.published.bounded import Bounded, bounded_blocks
from eigenfed.protocol.published.covariances import checked_sd
from eigenfed.protocol.result import Decomposition


@op(Release("noisy second moment times basis", "d x l + 1", Leaves.PUBLISHED, Reveals.DIRECTIONS))
def noisy_step(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Return the noisy step before an average, and the largest entry of what it starts from."""
    basis = _turned(state["basis"], payload["reference"]) if "reference" in payload else None
    if basis is None:
        basis = _walked(source, payload)
    peak = float(np.abs(basis).max())
    step = _step(source, payload, basis) + normal(basis.shape, peak * checked_sd(payload))
    return _counted(source, payload, state, {"product": step, "peak": np.array([peak])}, basis)


@op(Release("basis after local steps, bare", "d x l", Leaves.PUBLISHED, Reveals.DIRECTIONS))
def bare_walk(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Take local steps, keep where they led, and reply with it only where that is asked."""
    basis = _walked(source, payload)
    kept = {**state, "basis": basis}
    if "shown" in payload:
        return _counted(source, payload, kept, {"basis": basis}, basis)
    return _counted(source, payload, kept, {}, basis[:, :0])


@op(Release("turned basis, bare", "d x l", Leaves.PUBLISHED, Reveals.DIRECTIONS))
def bare_basis(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Return where local steps led, turned towards the baseline's."""
    basis = _turned(state["basis"], payload["reference"])
    return _counted(source, payload, state, {"basis": basis}, basis)


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
        self.at_site, self.at_coordinator = value.noise_factors(list(ground.rows.values()))
        self.bits = ground.bits()
        self.factors: dict[str, float] = {}
        self.product = np.zeros((ground.d, rank))
        self.basis: Array = rng.standard_normal((ground.d, rank))
        self.rounds = 0

    def average(self, steps: int) -> Protocol[None]:
        """Take local steps, then average the noisy ones of the sites that take part."""
        self.factors = self._drawn()
        payload = {"start": self.basis, "steps": np.array([steps])}
        if steps and self.value.align == "procrustes":
            payload = {"reference": (yield from self._reference(payload))}
        replies = yield self._ask("noisy_step", payload | {"sd": np.array([self.at_site])})
        peak = max(float(reply["peak"][0]) for reply in replies.values())
        added = normal(self.product.shape, peak * self.at_coordinator, self.bits)
        self.product = added + sum(f * replies[s]["product"] for s, f in self.factors.items())
        self.basis = np.linalg.qr(self.product).Q

    def bare_average(self, steps: int) -> Protocol[Array]:
        """Average where the last steps led, without noise, over the last average's sites.

        In scheme 2 all have the same weight, as the output line of Alg. 3 has it.
        """
        payload: Arrays = {"start": self.basis, "steps": np.array([steps])}
        if self.value.align == "procrustes":
            reference = yield from self._reference(payload)
            replies = yield self._ask("bare_basis", {"reference": reference})
        else:
            replies = yield self._ask("bare_walk", payload | {"shown": np.ones(1)})
        even = self.value.participation == "scheme2"
        total = np.zeros_like(self.basis)
        for site, factor in self.factors.items():
            total += (1.0 if even else factor) * replies[site]["basis"]
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

    def _reference(self, payload: Arrays) -> Protocol[Array]:
        baseline = max(self.factors, key=self.ground.rows.__getitem__)
        replies = yield self._ask("bare_walk", payload, {baseline: {"shown": np.ones(1)}})
        return replies[baseline]["basis"]

    def _ask(self, op_name: str, payload: Arrays, each: dict[str, Arrays] | None = None) -> Ask:
        self.rounds += 1
        whole = self.ground.arrays | payload
        return Ask(op_name, whole, each=each or {}, to=tuple(self.factors))


def _walked(source: Source, payload: Arrays) -> Array:
    basis: Array = payload["start"]
    for _ in range(int(payload["steps"][0])):
        basis = np.linalg.qr(_step(source, payload, basis)).Q
    return basis


def _step(source: Source, payload: Arrays, basis: Array) -> Array:
    """Return the second moment of the bounded rows times a basis, (d, l)."""
    total = np.zeros(basis.shape)
    for block in bounded_blocks(source, payload):
        total += block.T @ (block @ basis)
    return total / source.n


def _turned(basis: Array, reference: Array) -> Array:
    """Turn a basis to the reference by an orthogonal matrix (004 eq. 3.2)."""
    left, _, right = np.linalg.svd(basis.T @ reference)
    turned: Array = basis @ (left @ right)
    return turned


def _counted(source: Source, payload: Arrays, state: Arrays, reply: Arrays, basis: Array) -> Answer:
    """Have the meter count the directions as if their products had left without noise."""
    scale = np.full(source.d, float(payload["bound"][0]))
    view, state = prepared(source, {"mean": payload["mean"], "scale": scale}, state)
    trace = float(state["trace"][0])
    return Answer(reply, state, basis, view.product(basis), trace)
