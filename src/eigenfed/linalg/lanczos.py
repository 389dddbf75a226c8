"""Block Lanczos with full reorthogonalisation: all the algebra except the products with M.

The products with the whole basis V are known, so Ritz values, components and true residuals need
no further product. Only the basis is stored: with Q the next block and B its coefficients,
``M V = V T + Q B E'`` gives the residual of a Ritz pair as ``Q B y``, y the last entries of the
Ritz vector, and since Q is orthonormal its norm is that of ``B y``.
"""

import math
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dtrtri

from eigenfed.arrays import Array
from eigenfed.linalg.eigen import top_eigh
from eigenfed.linalg.krylov_bound import RitzSpace
from eigenfed.linalg.threads import map_in_order, one_blas_thread

_NEGLIGIBLE = 1e-14
"""Directions of a product below this, relative to the largest entry of T, are rounding."""
_WELL_APART = 1e-4
_NEARLY_DEPENDENT = 1e-3
_LEAST_PLAIN, _LARGEST_PLAIN, _MOST_EXPONENT = 1e-100, 1e100, 1000
_LEAST_ROWS, _MOST_ROWS = 256, 8192
_CACHED_ENTRIES = 1 << 17
"""Entries of a basis that fit into a core's own cache, with room for what they are multiplied by:
rows that are still there the second time take half the time."""
_CACHED_BLOCK = 1 << 15
"""Entries of a block of directions that stay in the cache while they are divided."""
_FEW_COLUMNS, _FEW_DIRECTIONS, _LONG_ROWS = 12, 16, 4096
"""Few columns are multiplied by a few directions of a basis at a time, and by long parts of them,
in as little as half the time: a processor reads ahead in only so many places of memory."""
FIRST_ROOM_BYTES, LARGE_ROOM_BYTES = 32 << 20, 64 << 20
"""Room for the first directions of a basis, and the size from which it is no longer doubled."""


class BlockLanczos:
    """A basis that grows by one block at a time, and a symmetric matrix M projected on it.

    Parameters
    ----------
    start : ndarray of shape (d, l)
        Orthonormal columns.

    Attributes
    ----------
    block : ndarray of shape (d, l)
        The last block of the basis, to be multiplied by M next.
    coefficients : ndarray of shape (r, l)
        B: the part of the last product outside the basis is the next block times this.
    negligible : float
        Bound on the norm of what was left out of all products as rounding.

    Examples
    --------
    >>> import numpy as np
    >>> matrix = np.diag([3.0, 2.0, 1.0])
    >>> space = BlockLanczos(np.full((3, 1), 3**-0.5))
    >>> while True:
    ...     space.take(matrix @ space.block)
    ...     if not space.room:
    ...         break
    ...     space.extend()
    >>> values, vectors = space.ritz(1)
    >>> values.round(12), abs(space.components(vectors)).round(12)
    (array([3.]), array([[1., 0., 0.]]))
    """

    def __init__(self, start: Array) -> None:
        self._rows = _allocate(start)
        self._starts = [0]
        self.block = start
        self.coefficients = np.zeros((0, 0))
        self.negligible = 0.0
        self._inner = np.zeros((0, 0))
        self._unit = 1.0
        self._following = np.zeros((len(start), 0))
        self._size = int(start.shape[1])

    @property
    def basis(self) -> Array:
        """All directions so far, orthonormal columns, shape (d, m)."""
        return self._rows[: self._size].T

    @property
    def blocks(self) -> int:
        """Number of blocks of the basis."""
        return len(self._starts)

    @property
    def start_size(self) -> int:
        """Number of directions of the first block."""
        return self._starts[1] if len(self._starts) > 1 else self._size

    @property
    def room(self) -> int:
        """Number of directions of the next block; 0 if the space is invariant under M or full."""
        return min(int(self._following.shape[1]), int(self._rows.shape[1]) - self._size)

    def take(self, image: Array) -> None:
        """Add the product of M with the last block, shape (d, l); the array is overwritten."""
        with one_blas_thread:
            self._take(image)

    def _take(self, image: Array) -> None:
        basis, m, width = self.basis, self._size, image.shape[1]
        if not self._inner.size:
            self._unit = _choose_unit(image)
        if self._unit != 1.0:
            image *= self._unit
        # In exact arithmetic M maps a block into the span of itself and its two neighbours, so
        # projecting out the last two blocks removes all but rounding. One pass over the whole
        # basis is then the second Gram-Schmidt pass, which makes it orthogonal ("twice is enough").
        near = self._starts[-2:][0]
        onto = np.zeros((m, width))
        onto[near:] = _project_out(basis[:, near:], image)
        onto += _project_out(basis, image)
        inner = np.zeros((m, m))
        inner[: len(self._inner), : len(self._inner)] = self._inner
        onto /= self._unit
        inner[:, m - width :] = onto
        inner[m - width :, :] = onto.T
        self._inner = (inner + inner.T) / 2
        floor = _NEGLIGIBLE * max(float(np.abs(inner).max()), np.finfo(float).tiny)
        self.negligible = math.sqrt(m) * floor
        self._following, self.coefficients = rank_revealing_qr(image, floor * self._unit)
        self.coefficients /= self._unit

    @property
    def trace(self) -> float:
        """Trace of M on the basis: the sum of all Ritz values."""
        return float(self._inner.trace())

    @property
    def coupling(self) -> float:
        """Norm of M between the basis and its complement."""
        return float(np.linalg.norm(self.coefficients, 2)) if self.coefficients.size else 0.0

    def ritz(self, k: int) -> tuple[Array, Array]:
        """Compute k Ritz values, or all there are, and their vectors on the basis, (m, k)."""
        return top_eigh(self._inner, min(k, self._size))

    def describe(self, start: float, error: float) -> RitzSpace:
        """Return all Ritz pairs, for a bound on the eigenvalues that they may have missed.

        Parameters
        ----------
        start : float
            Spectral norm of the Gaussian matrix whose columns span the start.
        error : float
            Bound on the norm of the error of all products together.
        """
        values, vectors = np.linalg.eigh(self._inner)
        values, vectors = values[::-1], vectors[:, ::-1]
        coupled = self.residuals(vectors)
        return RitzSpace(
            values, vectors[: self.start_size], coupled, start, error + self.negligible
        )

    def ritz_values(self, count: int) -> Array:
        """Compute the largest Ritz values: at most `count`, and at most all there are."""
        return np.asarray(np.linalg.eigvalsh(self._inner)[::-1][:count], dtype=np.float64)

    def residuals(self, vectors: Array) -> Array:
        """Return ``M v - value v`` of Ritz vectors in the basis of the next block, (r, k)."""
        return self.coefficients @ vectors[self._size - self.coefficients.shape[1] :]

    def components(self, vectors: Array) -> Array:
        """Map Ritz vectors from the basis to d entries, (k, d)."""
        with one_blas_thread:
            return vectors.T @ self.basis.T

    def extend(self, more: Array | None = None) -> None:
        """Append the next block to the basis.

        Parameters
        ----------
        more : ndarray of shape (d, r), optional
            Further directions for the block, of which only the part outside the basis and the
            block counts. The product of M with the basis is still within the basis and the block.
        """
        fresh = self._following[:, : self.room]
        sizes = np.linalg.svd(self.coefficients, compute_uv=False)
        if sizes[-1] < _NEARLY_DEPENDENT * sizes[0]:
            # Normalising directions that were small beside others has magnified their rounding
            # error along the basis: project it out once more.
            _project_out(self.basis, fresh)
            with one_blas_thread:
                fresh = rank_revealing_qr(fresh, 0.0)[0]
        if more is not None:
            fresh = self._widen(fresh, more)
        m, width = self._size, fresh.shape[1]
        if m + width > len(self._rows):
            self._grow(m + width)
        self._rows[m : m + width] = fresh.T
        self._starts.append(m)
        self._size = m + width
        self.block = fresh

    def _grow(self, count: int) -> None:
        """Make room for so many directions."""
        if self._rows.nbytes < LARGE_ROOM_BYTES:
            self._rows = _allocate(self.basis, count)
            return
        # In place: two copies of a large basis would take more memory than all else.
        try:
            self._rows.resize((count, self._rows.shape[1]))
        except ValueError:  # somebody holds the basis, which must not move
            self._rows = np.pad(self._rows, [(0, count - len(self._rows)), (0, 0)])

    def _widen(self, fresh: Array, more: Array) -> Array:
        """Return a block with further directions, as many as there is room for."""
        columns = np.array(more[:, : len(more) - self._size - fresh.shape[1]])
        for _ in range(2):
            _project_out(self.basis, columns)
            _project_out(fresh, columns)
            with one_blas_thread:
                columns = rank_revealing_qr(columns, 0.0)[0]
        return np.hstack([fresh, columns])


def _choose_unit(image: Array) -> float:
    """Return a power of two by which products are multiplied: without it tiny ones lose digits."""
    peak = max(float(image.max()), -float(image.min()))
    if peak == 0.0 or _LEAST_PLAIN < peak < _LARGEST_PLAIN:
        return 1.0
    return math.ldexp(1.0, -min(max(math.frexp(peak)[1], -_MOST_EXPONENT), _MOST_EXPONENT))


def _allocate(basis: Array, least: int = 0) -> Array:
    """Copy columns to rows, with spare ones; pages that are never written use no memory."""
    d, m = basis.shape
    room = np.empty((min(max(2 * m, least, FIRST_ROOM_BYTES // (8 * d)), d), d))
    room[:m] = basis.T
    return room


def rank_revealing_qr(a: Array, floor: float) -> tuple[Array, Array]:
    """Factor `a` into orthonormal columns and coefficients, without negligible directions.

    Parameters
    ----------
    a : ndarray of shape (d, l)
        May be overwritten with the result.
    floor : float
        Directions with singular values up to this are left out.

    Returns
    -------
    frame : ndarray of shape (d, r)
        Orthonormal columns.
    coefficients : ndarray of shape (r, l)
        ``frame @ coefficients`` equals `a` up to the directions left out.

    Examples
    --------
    >>> import numpy as np
    >>> frame, coefficients = rank_revealing_qr(np.array([[2.0, 2.0], [0.0, 0.0]]), 1e-12)
    >>> frame.shape, (frame @ coefficients).round(12)
    ((2, 1), array([[2., 2.], [0., 0.]]))
    """
    peak = max(float(a.max(initial=0.0)), -float(a.min(initial=0.0)))
    if not peak > 0.0:
        return a[:, :0], np.zeros((0, a.shape[1]))
    # Squares of its entries must neither overflow nor vanish.
    peak = 1.0 if _LEAST_PLAIN < peak < _LARGEST_PLAIN else peak
    scaled = a if peak == 1.0 else a / peak
    gram = scaled.T @ scaled
    squares = np.linalg.eigvalsh(gram)
    if squares[0] > _WELL_APART**2 * squares[-1] and np.sqrt(squares[0]) > 2.0 * floor / peak:
        # CholeskyQR2: at this condition the first pass is orthonormal to 1e-8, the second to
        # rounding.
        first = np.linalg.cholesky(gram, upper=True)
        _divide(scaled, first)
        second = np.linalg.cholesky(scaled.T @ scaled, upper=True)
        _divide(scaled, second)
        return scaled, peak * (second @ first)
    frame, triangle = np.linalg.qr(scaled)
    left, s, right = np.linalg.svd(triangle)
    count = int(np.count_nonzero(s > floor / peak))
    return frame @ left[:, :count], (peak * s[:count])[:, None] * right[:count]


def _project_out(basis: Array, columns: Array) -> Array:
    """Subtract the projection on the basis from the columns, in place; return its coefficients."""
    (d, m), width = basis.shape, columns.shape[1]
    if width <= _FEW_COLUMNS:
        groups, step = _cut(m, _FEW_DIRECTIONS), _LONG_ROWS
    else:
        groups, step = [slice(None)], min(max(_CACHED_ENTRIES // m, _LEAST_ROWS), _MOST_ROWS)
    spans, flops = _cut(d, step), 2.0 * basis.size * width

    def project(span: slice) -> Array:
        return np.concatenate([basis[span, group].T @ columns[span] for group in groups])

    def subtract(span: slice) -> None:
        rest = columns[span]
        for group in groups:
            rest -= basis[span, group] @ onto[group]

    onto = np.zeros((m, width))
    for part in map_in_order(project, spans, flops=flops):
        onto += part
    deque(map_in_order(subtract, spans, flops=flops), maxlen=0)
    return onto


def _cut(length: int, step: int) -> list[slice]:
    return [slice(start, start + step) for start in range(0, length, step)]


def _divide(a: Array, upper: npt.NDArray[np.floating[Any]]) -> None:
    """Replace `a` by ``a @ inv(upper)`` in blocks of rows, without a second array."""
    inverse, _ = dtrtri(upper)
    for span in _cut(len(a), max(_CACHED_BLOCK // len(upper), _LEAST_ROWS)):
        a[span] = a[span] @ inverse
