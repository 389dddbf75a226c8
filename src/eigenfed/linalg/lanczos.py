"""Block Lanczos with full reorthogonalisation: the algebra beside the products.

All products with the basis are known, so Rayleigh-Ritz values, components and true residuals cost
no further product. Only the basis is kept: with Q the next block and B its coefficients,
``M V = V T + Q B E'`` gives the residual of a Ritz pair as ``Q B y`` (y its last entries), and Q is
orthonormal, so that its norm is that of ``B y``.
"""

from collections import deque

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from eigenfed.arrays import Array
from eigenfed.linalg.eigen import top_eigh
from eigenfed.linalg.threads import in_order, one_blas_thread

_NEGLIGIBLE = 1e-14
_WELL_APART = 1e-4
_NEARLY_DEPENDENT = 1e-3
_LEAST_PLAIN, _LARGEST_PLAIN = 1e-100, 1e100
_ROWS_AT_A_TIME = 2048
_FIRST_ROOM_BYTES = 64 << 20


class BlockLanczos:
    """A basis that grows by a block at a time, and a symmetric matrix M on it.

    Parameters
    ----------
    start : ndarray of shape (d, l)
        Orthonormal columns.

    Attributes
    ----------
    block : ndarray of shape (d, l)
        The last block of the basis, whose product with M comes next.
    coefficients : ndarray of shape (r, l)
        M between the part of the last product outside the basis and the last block.

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
    (array([3., 2.]), array([[1., 0., 0.]]))
    """

    def __init__(self, start: Array) -> None:
        self._kept = _with_room(start)
        self._starts = [0]
        self.block = start
        self.coefficients = np.zeros((0, 0))
        self._inner = np.zeros((0, 0))
        self._following = np.zeros((len(start), 0))
        self._size = int(start.shape[1])

    @property
    def basis(self) -> Array:
        """All directions so far, (d, m), orthonormal."""
        return self._kept[:, : self._size]

    @property
    def room(self) -> int:
        """How many directions the next block has; 0 when there is nothing to go on to."""
        return min(int(self._following.shape[1]), len(self._kept) - self._size)

    def take(self, image: Array) -> None:
        """Take the product of M with the last block, (d, l); the array is used up."""
        basis, m, width = self.basis, self._size, image.shape[1]
        # M maps a block onto its neighbours, so that two of them take away all but rounding, and
        # one pass over the whole basis is the second that makes it orthogonal.
        near = self._starts[-2:][0]
        onto = np.zeros((m, width))
        onto[near:] = _take_away(basis[:, near:], image)
        onto += _take_away(basis, image)
        inner = np.zeros((m, m))
        inner[: len(self._inner), : len(self._inner)] = self._inner
        inner[:, m - width :] = onto
        inner[m - width :, :] = onto.T
        self._inner = (inner + inner.T) / 2
        floor = _NEGLIGIBLE * max(float(np.abs(inner).max()), np.finfo(float).tiny)
        with one_blas_thread:
            self._following, self.coefficients = independent_columns(image, floor)

    def ritz(self, k: int) -> tuple[Array, Array]:
        """Return the first k + 1 Ritz values, or all, and their vectors on the basis, (m, k)."""
        values, vectors = top_eigh(self._inner, min(k + 1, self._size))
        return values, vectors[:, :k]

    def residuals(self, vectors: Array) -> Array:
        """Return ``M v - value v`` for Ritz vectors, in an orthonormal basis, (r, k)."""
        return self.coefficients @ vectors[self._size - self.coefficients.shape[1] :]

    def components(self, vectors: Array) -> Array:
        """Return Ritz vectors in full, (k, d)."""
        with one_blas_thread:
            return (self.basis @ vectors).T

    def extend(self) -> None:
        """Make the part outside the next block of the basis."""
        fresh = self._following[:, : self.room]
        sizes = np.linalg.svd(self.coefficients, compute_uv=False)
        if sizes[-1] < _NEARLY_DEPENDENT * sizes[0]:
            # Directions that were small beside others have carried more of the rounding.
            _take_away(self.basis, fresh)
            with one_blas_thread:
                fresh = independent_columns(fresh, 0.0)[0]
        m, width = self._size, fresh.shape[1]
        if m + width > self._kept.shape[1]:
            self._kept = _with_room(self.basis)
        self._kept[:, m : m + width] = fresh
        self._starts.append(m)
        self._size = m + width
        self.block = fresh


def _with_room(basis: Array) -> Array:
    """Return a copy by columns, with room for more: memory that is not written to costs nothing."""
    d, m = basis.shape
    room = np.empty((d, min(max(2 * m, _FIRST_ROOM_BYTES // (8 * d)), d)), order="F")
    room[:, :m] = basis
    return room


def independent_columns(a: Array, floor: float) -> tuple[Array, Array]:
    """Orthonormal columns that span `a`, and its coefficients on them.

    Parameters
    ----------
    a : ndarray of shape (d, l)
        Used up: the columns may be put in its place.
    floor : float
        Directions in which `a` is no larger are left out.

    Returns
    -------
    frame : ndarray of shape (d, r)
    coefficients : ndarray of shape (r, l)
        ``frame @ coefficients`` is `a`, but for what was left out.

    Examples
    --------
    >>> import numpy as np
    >>> frame, coefficients = independent_columns(np.array([[2.0, 2.0], [0.0, 0.0]]), 1e-12)
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
        # Cholesky QR, twice: the first leaves a departure of 1e-8 at most, the second none.
        first = cholesky(gram)
        _divide(scaled, first)
        second = cholesky(scaled.T @ scaled)
        _divide(scaled, second)
        return scaled, peak * (second @ first)
    frame, triangle = np.linalg.qr(scaled)
    left, s, right = np.linalg.svd(triangle)
    count = int(np.count_nonzero(s > floor / peak))
    return frame @ left[:, :count], (peak * s[:count])[:, None] * right[:count]


def _take_away(basis: Array, columns: Array) -> Array:
    """Take the part on the basis out of the columns, in place, and return its coefficients."""
    spans = [slice(i, i + _ROWS_AT_A_TIME) for i in range(0, len(basis), _ROWS_AT_A_TIME)]
    flops = 2.0 * basis.size * columns.shape[1]
    onto = np.zeros((basis.shape[1], columns.shape[1]))
    for part in in_order(lambda span: basis[span].T @ columns[span], spans, flops=flops):
        onto += part

    def without(span: slice) -> None:
        columns[span] -= basis[span] @ onto

    deque(in_order(without, spans, flops=flops), maxlen=0)
    return onto


def _divide(a: Array, upper: Array) -> None:
    """Replace `a` by ``a @ inv(upper)``, a few rows at a time: no second array."""
    inverse = solve_triangular(upper, np.eye(len(upper)))
    for start in range(0, len(a), _ROWS_AT_A_TIME):
        span = slice(start, start + _ROWS_AT_A_TIME)
        a[span] = a[span] @ inverse
