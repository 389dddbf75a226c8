"""The numerical kernel of streaming and merging: centre a block, and compress a stack of rows."""

import numpy as np

from eigenfed.arrays import Array
from eigenfed.linalg.eigen import leading_eigh, refine_eigh
from eigenfed.linalg.orthonormal import orthonormalise_rows
from eigenfed.linalg.threads import limit_threads

# A Gram matrix squares the condition number: at a ratio s_min/s_max its smallest singular values
# are off by about 1e-16/ratio of the largest, and their vectors by 1e-16/ratio**2.
_GRAM_RATIO = 1e-5
_ORTHONORMAL_RATIO = 1e-2
_TINY_SQUARE = 1e-250
# Below this order a full eigenproblem is as fast as refining a known one.
_REFINED_ORDER = 40


def compress(stack: Array, rank: int, known: int = 0) -> tuple[Array, Array, float]:
    """Compute the leading singular values and right singular vectors of a stack of rows.

    Solves the eigenproblem of the smaller Gram matrix and maps back with one product, several
    times faster than a singular value decomposition of a wide stack. If the spectrum kept spans
    more than a Gram matrix can resolve, it falls back to the decomposition.

    Parameters
    ----------
    stack : ndarray of shape (m, d)
    rank : int
        Maximum number of directions to keep.
    known : int, default=0
        Number of leading rows that are orthogonal to each other, largest first. If it equals
        `rank`, they start an iteration that replaces the eigenproblem.

    Returns
    -------
    s : ndarray of shape (r,)
        Largest first, all positive, ``r <= min(rank, m, d)``.
    vt : ndarray of shape (r, d)
        Orthonormal rows.
    discarded : float
        The largest squared singular value not kept, or an upper bound on it.

    Examples
    --------
    >>> import numpy as np
    >>> s, vt, discarded = compress(np.diag([3.0, 2.0, 1.0]), 2)
    >>> s, discarded
    (array([3., 2.]), 1.0)
    """
    m, d = stack.shape
    if m == 0:
        return np.zeros(0), np.zeros((0, d)), 0.0
    k = min(rank, m, d)
    gram = stack @ stack.T if m <= d else stack.T @ stack
    with limit_threads(10.0 * gram.size * len(gram)):
        refined = refine_eigh(gram, k) if known == k < m and _REFINED_ORDER <= m <= d else None
        values, vectors, discarded = _truncate_eigh(gram, k) if refined is None else refined
    if not values[0] > _TINY_SQUARE:
        return _compress_tiny(stack, rank)
    if values[-1] < _GRAM_RATIO**2 * values[0]:
        return _compress_by_svd(stack, rank)
    s = np.sqrt(values)
    vt = (vectors / s).T @ stack if m <= d else np.ascontiguousarray(vectors.T)
    if s[-1] < _ORTHONORMAL_RATIO * s[0]:
        vt = orthonormalise_rows(vt)
    return s, vt, discarded


def _truncate_eigh(gram: Array, k: int) -> tuple[Array, Array, float]:
    values, vectors = leading_eigh(gram, min(k + 1, len(gram)))
    discarded = max(float(values[k]), 0.0) if k < len(values) else 0.0
    return values[:k], vectors[:, :k], discarded


def _compress_tiny(stack: Array, rank: int) -> tuple[Array, Array, float]:
    scale = float(np.abs(stack).max())
    if scale == 0.0:
        return np.zeros(0), np.zeros((0, stack.shape[1])), 0.0
    s, vt, discarded = compress(stack / scale, rank)
    return s * scale, vt, discarded * scale * scale


def _compress_by_svd(stack: Array, rank: int) -> tuple[Array, Array, float]:
    _, s, vt = np.linalg.svd(stack, full_matrices=False)
    noise = s[0] * np.finfo(float).eps * max(stack.shape)
    k = min(rank, int(np.count_nonzero(s > noise)))
    return s[:k], vt[:k], float(s[k]) ** 2 if len(s) > k else 0.0


def center_rows(rows: Array, weights: Array | None, *, centered: bool, out: Array) -> Array:
    """Write the centred rows, ``sqrt(weights) * (rows - mean)``, to `out` and return the mean.

    Parameters
    ----------
    rows : ndarray of shape (b, d)
    weights : ndarray of shape (b,) or None
        With a positive sum.
    centered : bool
        If false, the mean is taken to be zero.
    out : ndarray of shape (b, d)

    Returns
    -------
    ndarray of shape (d,)

    Examples
    --------
    >>> import numpy as np
    >>> around = np.empty((2, 1))
    >>> center_rows(np.array([[1.0], [5.0]]), None, centered=True, out=around)
    array([3.])
    >>> around
    array([[-2.],
           [ 2.]])
    """
    if centered:
        b = len(rows)
        # Relative to one of the rows, so that a large common offset costs no digits and a constant
        # feature becomes exactly 0.
        origin = rows[0] if weights is None else rows[weights.argmax()]
        with np.errstate(over="ignore", invalid="ignore"):
            np.subtract(rows, origin, out=out)
        shift = (np.full(b, 1.0 / b) if weights is None else weights / weights.sum()) @ out
        out -= shift
        mean: Array = origin + shift
    else:
        out[:] = rows
        mean = np.zeros(rows.shape[1])
    if weights is not None:
        out *= np.sqrt(weights)[:, None]
    return mean
