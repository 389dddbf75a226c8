"""Block Lanczos with full reorthogonalisation: few rounds, nothing of size d x d.

===========  ==================================================================================
coordinator  sums over sites of D'W D Q, one block of directions Q a round
site         the blocks Q
===========  ==================================================================================

All products with the basis are known, so Rayleigh-Ritz values, components and true residuals cost
no further round. Only the basis is kept: with Q the next block and B its coefficients,
``M V = V T + Q B E'`` gives the residual of a Ritz pair as ``Q B y`` (y its last entries).
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.linalg.orthonormal import completed_rows, signed_rows
from eigenfed.linalg.threads import threads_for
from eigenfed.protocol.certificate import certificate
from eigenfed.protocol.core import Protocol
from eigenfed.protocol.moments import Moments
from eigenfed.protocol.products import Products
from eigenfed.protocol.result import Decomposition
from eigenfed.protocol.totals import Total

_LEAST_BLOCK = 8
_NEGLIGIBLE = 1e-14


@dataclass
class _Lanczos:
    """The basis so far, M on it, and the part of the last product outside it."""

    basis: Array
    inner: Array = field(default_factory=lambda: np.zeros((0, 0)))
    following: Array = field(default_factory=lambda: np.zeros((0, 0)))
    coefficients: Array = field(default_factory=lambda: np.zeros((0, 0)))

    def take(self, image: Array) -> None:
        """Add the product of M with the last block of the basis."""
        m, width = self.basis.shape[1], image.shape[1]
        onto = self.basis.T @ image
        outside = image - self.basis @ onto
        again = self.basis.T @ outside
        outside, onto = outside - self.basis @ again, onto + again
        inner = np.zeros((m, m))
        inner[: len(self.inner), : len(self.inner)] = self.inner
        inner[:, m - width :] = onto
        inner[m - width :, :] = onto.T
        self.inner = (inner + inner.T) / 2
        self.following, self.coefficients = _independent(outside, float(np.abs(inner).max()))

    def ritz(self, k: int) -> tuple[Array, Array, Array]:
        """Return all Ritz values, and the components (k, d) and residuals (d, k) of the first."""
        values, vectors = np.linalg.eigh(self.inner)
        values, vectors = values[::-1], vectors[:, ::-1]
        last = vectors[len(vectors) - self.coefficients.shape[1] :, :k]
        residual = self.following @ (self.coefficients @ last)
        return values, (self.basis @ vectors[:, :k]).T, residual

    def extend(self, width: int) -> Array:
        """Make the part outside the next block of the basis, and return that."""
        fresh = self.following[:, :width]
        fresh = np.linalg.qr(fresh - self.basis @ (self.basis.T @ fresh)).Q
        self.basis = np.hstack([self.basis, fresh])
        return fresh


def _independent(outside: Array, size: float) -> tuple[Array, Array]:
    """Orthonormal columns that span `outside`, and its coefficients on them."""
    left, s, right = np.linalg.svd(outside, full_matrices=False)
    count = int(np.count_nonzero(s > _NEGLIGIBLE * max(size, np.finfo(float).tiny)))
    return left[:, :count], s[:count, None] * right[:count]


def krylov(
    moments: Moments,
    k: int,
    *,
    tol: float,
    stop: str,
    max_rounds: int,
    certify: bool,
    rng: np.random.Generator,
    total: Total,
) -> Protocol[Decomposition]:
    """Ask for products with one new block of directions a round until the residuals are small.

    Parameters
    ----------
    moments : Moments
    k : int
        Number of components.
    tol : float
        Largest residual, relative to the first eigenvalue.
    stop : {"all", "separated"}
        Whether all components must meet it, or only those clearly above the next Ritz value.
    max_rounds : int
        Most products to ask for.
    certify : bool
        Ask once more for the bound on the angle.
    rng : numpy Generator
        For the first block.
    total : Total
        How sums are made.
    """
    products = Products(moments, total)
    return (
        yield from lanczos(
            products, k, tol=tol, stop=stop, max_rounds=max_rounds, certify=certify, rng=rng
        )
    )


def lanczos(
    products: Products,
    k: int,
    *,
    tol: float,
    stop: str,
    max_rounds: int,
    certify: bool,
    rng: np.random.Generator,
) -> Protocol[Decomposition]:
    """Find leading eigenvectors of whatever the products are of; see `krylov`."""
    d = len(products.moments.mean)
    space = _Lanczos(np.linalg.qr(rng.standard_normal((d, min(max(k, _LEAST_BLOCK), d)))).Q)
    block = space.basis
    while True:
        image = yield from products.of(block)
        with threads_for(4.0 * space.basis.size * image.shape[1]):
            space.take(image)
            values, vt, residual = space.ritz(k)
        room = min(space.following.shape[1], d - space.basis.shape[1])
        sizes = np.sqrt(np.sum(residual**2, axis=0))[_wanted(values, k, stop)]
        done = len(vt) == k and bool(np.all(sizes <= tol * max(values[0], 0.0)))
        if done or room == 0 or products.rounds >= max_rounds:
            break
        with threads_for(4.0 * space.basis.size * room):
            block = space.extend(room)
    shown, found = np.zeros(k), signed_rows(completed_rows(vt, k))
    shown[: len(vt)] = np.maximum(values[:k], 0.0)
    grade = None
    if certify:
        grade = yield from certificate(
            products,
            values=shown,
            residual=residual,
            vt=found,
            known=space.basis,
            next_value=float(values[k]) if len(values) > k else None,
            coupling=float(np.linalg.norm(space.coefficients, 2)) if room else 0.0,
            tol=tol,
        )
    return Decomposition(
        found,
        shown,
        products.moments.mean,
        products.moments.scale,
        products.moments.n,
        products.trace / products.divisor,
        products.rounds,
        grade,
    )


def _wanted(values: Array, k: int, stop: str) -> npt.NDArray[np.bool_]:
    """Say which of the first k components must converge."""
    count = min(k, len(values))
    if stop == "all" or len(values) <= k:
        return np.ones(count, dtype=bool)
    clear: npt.NDArray[np.bool_] = values[:count] > 1.05 * values[k]
    return clear
