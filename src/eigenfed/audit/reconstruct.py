"""Attacks on exact methods: reconstruct the scatter of all rows from the products in a run.

===========  ==================================================================================
attacker     the directions Q of its requests and the sums M Q over all sites, as any coordinator
             has them, with secure aggregation or without
truth        M, the scatter of all rows about their mean; (n - 1) times the covariance
===========  ==================================================================================

`reconstruct` solves M Q = P for the symmetric M ([Hartebrodt2022] section 4, Proposition 4) and
returns only what the replies determine; after d independent directions that is all of M. `nystrom`
also guesses the rest: of the positive semidefinite matrices that fit the replies it returns the
smallest. Real scatters have nearly low rank, so this guess is good long before d directions.

Unlike [Hartebrodt2022], which solves for each row separately, we use that M is symmetric, which
also determines the block between the span and its complement. On power iterates that have become
nearly dependent (breast cancer, three vectors, ten rounds) this reduces the largest error from 2e-3
to 4e-7 of the largest entry.

A run reveals more than products: the trace that accompanies them, the diagonal if features are
scaled, and the bound of the certificate describe the block that `reconstruct` leaves at zero.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from eigenfed.arrays import Array, Arrays
from eigenfed.errors import InputError
from eigenfed.protocol.core import Call, Transport, read_reply
from eigenfed.protocol.exact.products import ProductRequest

_INDEPENDENT = 1e-10


@dataclass(frozen=True, eq=False, repr=False)
class Seen:
    """Directions of the requests, and the scatter of all rows times them.

    Attributes
    ----------
    directions : ndarray of shape (d, m)
    images : ndarray of shape (d, m)

    Examples
    --------
    >>> import numpy as np
    >>> scatter = np.diag([3.0, 2.0, 1.0])
    >>> seen = Seen(np.eye(3)[:, :1], scatter[:, :1])
    >>> seen.append(np.eye(3)[:, 1:], scatter[:, 1:]).directions.shape
    (3, 3)
    """

    directions: Array
    images: Array

    def __post_init__(self) -> None:
        if self.directions.ndim != 2 or self.directions.shape != self.images.shape:
            raise InputError(
                f"directions of shape {self.directions.shape} and images of shape "
                f"{self.images.shape} must both be features x directions. Pass one image per "
                "direction."
            )

    def append(self, directions: Array, images: Array) -> "Seen":
        """Return these and more directions (d, l) with their images (d, l)."""
        return Seen(np.hstack([self.directions, directions]), np.hstack([self.images, images]))

    @cached_property
    def on_span(self) -> tuple[Array, Array]:
        """An orthonormal basis (d, r) of the directions' span, and its images (d, r)."""
        sizes = np.sqrt(np.sum(self.directions**2, axis=0))
        # Each column is one equation, whose rank must not depend on the length of the column.
        lengths = np.where(sizes > 0, sizes, 1.0)
        left, s, right = np.linalg.svd(self.directions / lengths, full_matrices=False)
        rank = int(np.count_nonzero(s > _INDEPENDENT * max(s, default=0.0)))
        return left[:, :rank], (self.images / lengths) @ (right[:rank].T / s[:rank])


@dataclass(frozen=True, eq=False, repr=False)
class Reconstruction:
    """The part of the scatter that replies determine.

    Attributes
    ----------
    matrix : ndarray of shape (d, d)
        Symmetric; exact on the span of the directions and between it and its complement, zero on
        the complement.
    basis : ndarray of shape (d, r)
        Orthonormal columns that span the directions.
    """

    matrix: Array
    basis: Array

    @property
    def rank(self) -> int:
        """Number of independent directions."""
        return int(self.basis.shape[1])

    @property
    def unknown(self) -> int:
        """Dimension of the complement, on which nothing is determined."""
        return len(self.basis) - self.rank


def reconstruct(seen: Seen) -> Reconstruction:
    """Solve for the symmetric scatter M, given ``M @ directions``.

    Returns
    -------
    Reconstruction
        ``matrix @ directions`` equals the images; the block that no reply determines is 0.

    Examples
    --------
    >>> import numpy as np
    >>> scatter = np.array([[3.0, 1.0, 0.5], [1.0, 2.0, 0.0], [0.5, 0.0, 1.0]])
    >>> found = reconstruct(Seen(np.eye(3)[:, :1], scatter[:, :1]))
    >>> found.matrix
    array([[3. , 1. , 0.5],
           [1. , 0. , 0. ],
           [0.5, 0. , 0. ]])
    >>> found.rank, found.unknown
    (1, 2)
    """
    basis, images = seen.on_span
    inner = basis.T @ images
    # B (B'MB) B' plus the two off-diagonal blocks; the block outside B is in no reply.
    across = (images - basis @ ((inner + inner.T) / 4)) @ basis.T
    return Reconstruction(across + across.T, basis)


def nystrom(seen: Seen) -> Array:
    """Guess the whole scatter: ``P (Q'P)^+ P'`` for directions Q and images P.

    Returns
    -------
    ndarray of shape (d, d)
        Positive semidefinite; its rank is at most that of the directions.

    Examples
    --------
    A scatter of rank one is determined by a single reply:

    >>> import numpy as np
    >>> row = np.array([[2.0, 1.0]])
    >>> direction = np.array([[1.0], [0.0]])
    >>> nystrom(Seen(direction, row.T @ (row @ direction)))
    array([[4., 2.],
           [2., 1.]])
    """
    basis, images = seen.on_span
    inner = basis.T @ images
    values, vectors = np.linalg.eigh((inner + inner.T) / 2)
    # Values below the rounding error of the largest are noise, and their inverses would dominate.
    kept = values > len(basis) * np.finfo(float).eps * max(values, default=0.0)
    factor = images @ (vectors[:, kept] / np.sqrt(values[kept]))
    guess: Array = factor @ factor.T
    return guess


def correlation(estimate: Array, truth: Array) -> float:
    """Return the Pearson correlation of all entries of two matrices ([Hartebrodt2022] Table 3).

    Returns
    -------
    float
        1 for a perfect reconstruction up to shift and scale, and NaN if either matrix is constant.

    Examples
    --------
    >>> import numpy as np
    >>> correlation(2 * np.eye(3), np.eye(3))
    1.0
    """
    if estimate.shape != truth.shape:
        raise InputError(
            f"estimate has shape {estimate.shape} and must have that of truth, {truth.shape}. "
            "Compare matrices of the same features."
        )
    a, b = ((m - m.mean()) / (np.abs(m).max(initial=0.0) or 1.0) for m in (estimate, truth))
    spread = math.sqrt(float(np.sum(a**2)) * float(np.sum(b**2)))
    return float(np.sum(a * b)) / spread if spread > 0 else math.nan


class Watch:
    """A transport that stores the sums of products that the coordinator sees; see `watch`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._directions: list[Array] = []
        self._totals: list[Array] = []

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, sorted."""
        return self._transport.sites

    @property
    def products(self) -> int:
        """Number of rounds of products so far."""
        return len(self._directions)

    @property
    def seen(self) -> Seen:
        """All products so far."""
        if not self._directions:
            raise InputError("No product was requested so far. Run a protocol first.")
        return Seen(np.hstack(self._directions), np.hstack(self._totals))

    def exchange(self, round_: int, call: Call[Any]) -> Iterator[tuple[str, Arrays]]:
        """Yield the replies of the wrapped transport, and store the sum of products."""
        answers, request = self._transport.exchange(round_, call), call.request
        if not isinstance(request, ProductRequest):
            yield from answers
            return
        replied, total = 0, np.zeros_like(request.basis)
        for site, reply in answers:
            replied, total = replied + 1, total + read_reply(call, site, reply).product
            yield site, reply
        # A sum over fewer sites belongs to another scatter.
        if replied == len(self.sites):
            self._directions.append(request.basis)
            self._totals.append(total)


def watch(transport: Transport) -> Watch:
    """Wrap a transport so that a run over it can be attacked afterwards.

    Use one per run: another mean or scale makes another scatter.

    Returns
    -------
    Watch
        A transport; its attribute `seen` has the products so far.

    Examples
    --------
    >>> import numpy as np
    >>> from eigenfed.data.source import Source
    >>> from eigenfed.privacy.secagg.identity import Identity
    >>> from eigenfed.protocol.core import drive
    >>> from eigenfed.protocol.gate.gate import Site
    >>> from eigenfed.protocol.pca import pca
    >>> from eigenfed.protocol.study import Study, open_message
    >>> from eigenfed.transport.local import LocalTransport
    >>> rows = np.array([[1.0, 2.0], [3.0, 1.0], [2.0, 6.0]])
    >>> study, coordinator = Study(("a",), 2, "krylov"), Identity.generate()
    >>> site = Site("a", Source.of(rows), coordinator=coordinator.public)
    >>> transport = LocalTransport({"a": site})
    >>> transport.open_with(open_message(transport.run, study, study.method, coordinator))
    >>> watched = watch(transport)
    >>> _ = drive(pca(study, rng=np.random.default_rng(0)), watched)
    >>> reconstruct(watched.seen).matrix.round(12)
    array([[ 2., -1.],
           [-1., 14.]])
    """
    return Watch(transport)
