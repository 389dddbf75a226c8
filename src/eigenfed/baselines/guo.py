"""GUO: one vector at a time, with the sample vectors in the open (003's comparator)."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.baselines.averaging import checked_parts
from eigenfed.errors import InputError
from eigenfed.linalg.orthonormal import completed_rows, signed_rows

_NEGLIGIBLE = 1e-13


def guo(
    parts: Sequence[npt.ArrayLike],
    k: int,
    *,
    rng: np.random.Generator,
    tol: float = 1e-9,
    max_rounds: int = 1000,
) -> tuple[Array, int]:
    """Find one component after the other by power iteration over the sites.

    In a round the sites send ``X_s.T @ g_s``, the aggregator sums them to the feature vector h and
    normalises it, the sites answer with ``g_s = X_s @ h``, and the aggregator makes the sample
    vector g orthogonal to those of the components before.

    **It shares sample-side vectors:** an entry of g belongs to one record, and all of g goes to
    the aggregator in every round, with every update of h (003 sections 2.7 and 5). It is here to
    be compared with on data that may be pooled: it is off by default in every policy, since no
    site has an operation that answers it. Rows are taken as given and are not centred.

    Parameters
    ----------
    parts : sequence of array-like of shape (n_s, d)
        One table for each site.
    k : int
    rng : numpy Generator
        For the first sample vectors.
    tol : float, default=1e-9
        A vector is done when ``1 - h_i.T @ h_{i-1}`` is at most this (003 eq. 5, and its t). The
        change between rounds, not the error: with a small gap the error is much larger.
    max_rounds : int, default=1000
        Most rounds for one vector.

    Returns
    -------
    components : ndarray of shape (k, d)
        Orthonormal rows.
    rounds : int
        For all vectors together.

    Notes
    -----
    Written from what 003 says of Guo et al., Pattern Recognition 45 (2012) 1211-1219. Deflation on
    the sample side leaves the feature vectors orthogonal only as far as they have converged; the
    components are made so at the end, in order.

    Examples
    --------
    >>> import numpy as np
    >>> parts = [np.diag([3.0, 1.0]), np.diag([2.0, 1.0])]
    >>> components, rounds = guo(parts, 1, rng=np.random.default_rng(0))
    >>> np.abs(components).round(4)
    array([[1., 0.]])
    """
    tables = checked_parts(parts, k)
    if not tol > 0 or max_rounds < 1:
        raise InputError(
            f"tol={tol} must be above 0 and max_rounds={max_rounds} at least 1. Raise them."
        )
    n, d = sum(len(table) for table in tables), tables[0].shape[1]
    size = float(np.sqrt(sum(float(np.vdot(table, table)) for table in tables)))
    before, found, rounds = np.zeros((n, 0)), np.zeros((0, d)), 0
    while len(found) < min(k, n):
        start = _outside(rng.standard_normal(n), before)
        h, g, used = _one_vector(tables, start, before, tol, max_rounds)
        rounds += used
        length = float(np.linalg.norm(g))
        if length <= _NEGLIGIBLE * size:
            break
        before = np.column_stack([before, g / length])
        found = np.vstack([found, h])
    basis = np.linalg.qr(found.T).Q.T if len(found) else found
    return signed_rows(completed_rows(basis, k)), rounds


def _one_vector(
    tables: list[Array], g: Array, before: Array, tol: float, max_rounds: int
) -> tuple[Array, Array, int]:
    """Iterate to one feature vector; return it, its sample vector and the rounds it took."""
    ends = np.cumsum([len(table) for table in tables])[:-1]
    h = np.zeros(tables[0].shape[1])
    rounds = 0
    while rounds < max_rounds:
        rounds += 1
        parts = zip(np.split(g, ends), tables, strict=True)
        summed = sum((table.T @ part for part, table in parts), np.zeros_like(h))
        previous, h = h, _unit(summed)
        g = _outside(np.concatenate([table @ h for table in tables]), before)
        # For unit vectors half the squared difference is 1 - cos, with all its digits.
        if not h.any() or float(np.sum((h - previous) ** 2)) / 2 <= tol:
            break
    return h, g, rounds


def _outside(g: Array, before: Array) -> Array:
    for _ in range(2):
        g = g - before @ (before.T @ g)
    return g


def _unit(vector: Array) -> Array:
    length = float(np.linalg.norm(vector))
    return vector / length if length > 0 else vector
