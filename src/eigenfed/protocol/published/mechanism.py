"""What a published mechanism is: claim, script, operations and run, declared once in one class.

A mechanism is a frozen dataclass. `eigenfed.privacy.published_claims` has the half about its claim
and what is true of it; this module adds the half about the protocol, and the mechanisms of a
trusted curator, which several papers share.

===========  ==================================================================================
coordinator  with a curator: the sum over sites of the second moments of bounded rows, without
             noise, to which it adds noise as a curator trusted by all sites
site         the mean and the bound
===========  ==================================================================================
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.linalg.eigen import leading_eigh
from eigenfed.privacy.published_claims import CovarianceNoise, Published
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.core import Call, Protocol, plain_sum
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.spectrum import pack_symmetric, unpack_symmetric
from eigenfed.protocol.gate.script import Script, sequence
from eigenfed.protocol.operations import Answer, Op, State, Terms, op
from eigenfed.protocol.published.bounded import Bounded, BoundedRequest, compute_bounded_moment
from eigenfed.protocol.published.continuous_noise import draw_normal, draw_symmetric


@dataclass(frozen=True)
class Mechanism(Published):
    """A published mechanism that a study can run.

    All runs begin alike: the mean, if rows are centred, and the operation `bounded_rows`, which
    bounds the rows' norms. The methods here are about what follows.
    """

    @classmethod
    @abstractmethod
    def operations(cls) -> tuple[Op[Any, Any], ...]:
        """Return the operations of a site that the script names."""

    @abstractmethod
    def script(self) -> Script:
        """Return the script of a site after `bounded_rows`."""

    @abstractmethod
    def run(self, ground: Bounded, k: int, rng: np.random.Generator) -> Protocol[Decomposition]:
        """Run the coordinator's half.

        Parameters
        ----------
        ground : Bounded
            What is known about the bounded rows.
        k : int
            Number of components.
        rng : numpy Generator
            For public random numbers; noise never comes from it.
        """

    def check_sites(self, m: int) -> None:
        """Raise if the mechanism cannot run with this number of sites."""


@dataclass(frozen=True)
class CuratorMechanism(CovarianceNoise, Mechanism):
    """Base of the mechanisms of a trusted curator, who adds noise to the pooled second moment."""

    @classmethod
    def operations(cls) -> tuple[Op[Any, Any], ...]:
        """Return the operation that sends a second moment without noise."""
        return (bounded_scatter,)

    def script(self) -> Script:
        """Return the script: one second moment without noise."""
        return sequence("bounded_scatter")

    def run(self, ground: Bounded, k: int, rng: np.random.Generator) -> Protocol[Decomposition]:
        """Sum the second moments of all sites and add the curator's noise.

        The components are leading eigenvectors if the noise is symmetric, and leading left singular
        vectors otherwise.
        """
        summed = yield from plain_sum(Call(BoundedScatterRequest(**ground.fields)))
        matrix = unpack_symmetric(summed.triangle, ground.d) / ground.n
        sd = self.noise_sd(ground.n, ground.d)
        if self.is_symmetric:
            matrix += draw_symmetric(ground.d, sd, ground.bits())
            return decompose_symmetric(ground, matrix, k)
        matrix += draw_normal(matrix.shape, sd, ground.bits())
        u, s, _ = np.linalg.svd(matrix)
        return ground.decomposition(u[:, :k], s[:k], total=float(np.trace(matrix)), products=1)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TriangleReply:
    """Upper triangle of a second moment, row by row."""

    triangle: Array


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FactorReply:
    """A factor of a second moment, (d, r)."""

    factor: Array


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BoundedScatterRequest(BoundedRequest):
    """Request the second moment of bounded rows, without noise."""

    op, reply = "bounded_scatter", TriangleReply


@op(Release("second moment without noise", "d (d + 1) / 2", Leaves.PUBLISHED, Reveals.SCATTER))
def bounded_scatter(
    source: Source, request: BoundedScatterRequest, state: State, terms: Terms
) -> Answer[TriangleReply]:
    """Return the upper triangle of the sum of x x' over the site's bounded rows."""
    moment = compute_bounded_moment(source, request.mean, request.bound)
    return Answer(TriangleReply(triangle=pack_symmetric(moment)), state)


def decompose_symmetric(ground: Bounded, matrix: Array, k: int) -> Decomposition:
    """Return the leading eigenvectors of a symmetric noisy second moment, (d, d)."""
    values, vectors = leading_eigh(matrix, k)
    return ground.decomposition(vectors, values, total=float(np.trace(matrix)), products=1)
