"""Distributed baselines on the tables of all sites: UDA, WDA, DR-SVD and GUO.

UDA, WDA and DR-SVD need one round each ([Guo2024] Appendix F, Alg. 4 to 6). In Alg. 4 and 5 the
sums are printed up to n, the number of rows; they run over the m sites. GUO, the method that
[Hartebrodt2022] compares with, iterates on one vector at a time and shares the sample vectors.

All take the sites' tables as given, n_s rows of the same d features: nothing is centred.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.errors import InputError
from eigenfed.linalg.orthonormal import complete_rows, flip_signs

_NEGLIGIBLE = 1e-13
"""A sample vector shorter than this, relative to all data, means that the rank is exhausted."""


def uda(parts: Sequence[npt.ArrayLike], k: int) -> Array:
    """Unweighted distributed averaging: average the sites' projectors ([Guo2024] Alg. 4).

    Each site sends its first k right singular vectors; the result is the leading eigenvectors of
    the mean of their projectors. All sites have the same weight, whatever their numbers of rows
    and singular values.

    Parameters
    ----------
    parts : sequence of array-like of shape (n_s, d)
        One table for each site. A site of rank below k sends as many vectors as it has.
    k : int
        Number of components.

    Returns
    -------
    ndarray of shape (k, d)
        Orthonormal rows.

    Examples
    --------
    >>> import numpy as np
    >>> uda([np.diag([3.0, 1.0]), np.diag([2.0, 1.0])], 1)
    array([[1., 0.]])
    """
    return _leading(
        [vt for _, _, vt in (_decompose_site(table, k) for table in check_parts(parts, k))], k
    )


def wda(parts: Sequence[npt.ArrayLike], k: int) -> Array:
    """Weighted distributed averaging: average the sites' rank-k covariances ([Guo2024] Alg. 5).

    Each site sends the first k eigenvectors and eigenvalues of ``X_s.T @ X_s / n_s``. All sites
    have the same weight, as printed: with sites of different size the mean is not the pooled
    matrix, even where rank k loses nothing.

    Parameters
    ----------
    parts : sequence of array-like of shape (n_s, d)
        One table for each site.
    k : int
        Number of components.

    Returns
    -------
    ndarray of shape (k, d)
        Orthonormal rows.

    Examples
    --------
    >>> import numpy as np
    >>> wda([np.diag([3.0, 1.0]), np.diag([1.0, 2.0])], 1)
    array([[1., 0.]])
    """
    found = (_decompose_site(table, k) for table in check_parts(parts, k))
    # The roots of the eigenvalues, since the stack's squares are summed.
    return _leading([s[:, None] / np.sqrt(max(n, 1)) * vt for n, s, vt in found], k)


def dr_svd(
    parts: Sequence[npt.ArrayLike],
    k: int,
    *,
    rng: np.random.Generator,
    oversample: int | None = None,
) -> Array:
    """Distributed randomized SVD: a random sketch that the sites make together ([Guo2024] Alg. 6).

    Line 3 is read as ``Y = A A' A Omega``, one power step: its dagger is a transpose, as in line 4
    of Alg. 2. A pseudo-inverse would leave ``A Omega``. Y and Q, which have a row for each record,
    are shared with the server: more than the exact methods of eigenfed send.

    Parameters
    ----------
    parts : sequence of array-like of shape (n_s, d)
        One table for each site.
    k : int
        Number of components.
    rng : numpy Generator
    oversample : int, optional
        Columns of the sketch beyond k; by default ``(d - k) // 4``, as printed.

    Returns
    -------
    ndarray of shape (k, d)
        Orthonormal rows.

    Examples
    --------
    >>> import numpy as np
    >>> parts = [np.diag([3.0, 1.0, 0.0]), np.diag([2.0, 1.0, 0.0])]
    >>> dr_svd(parts, 1, rng=np.random.default_rng(0), oversample=1).round(12)
    array([[1., 0., 0.]])
    """
    tables = check_parts(parts, k)
    d = tables[0].shape[1]
    if oversample is not None and oversample < 0:
        raise InputError(
            f"oversample={oversample} must be at least 0. Pass None for the published number."
        )
    extra = (d - k) // 4 if oversample is None else oversample
    omega = rng.standard_normal((d, min(k + extra, d)))
    power = sum((A.T @ (A @ omega) for A in tables), np.zeros_like(omega))
    Q = np.linalg.qr(np.concatenate([A @ power for A in tables])).Q
    ends = np.cumsum([len(A) for A in tables])[:-1]
    sketch = sum(
        (part.T @ A for part, A in zip(np.split(Q, ends), tables, strict=True)),
        np.zeros((Q.shape[1], d)),
    )
    return _leading([sketch], k)


def check_parts(parts: Sequence[npt.ArrayLike], k: int) -> list[Array]:
    """Convert the sites' tables to float64, or raise for them or for k."""
    tables = [np.asarray(part, dtype=np.float64) for part in parts]
    shapes = [table.shape for table in tables]
    if not shapes or any(len(shape) != 2 or shape[1:] != shapes[0][1:] for shape in shapes):
        raise InputError(
            f"parts has shapes {shapes} and must be one table or more with the same columns. "
            "Pass rows x features of each site."
        )
    if not all(np.isfinite(table).all() for table in tables):
        raise InputError("parts must be finite. Drop or fill the rows with missing entries.")
    if not 1 <= k <= shapes[0][1]:
        raise InputError(
            f"k={k} must be from 1 to {shapes[0][1]}, the number of features. Change k."
        )
    return tables


def _decompose_site(table: Array, k: int) -> tuple[int, Array, Array]:
    """Return the number of rows, and the first k nonzero singular values and their vectors."""
    s, vt = _decompose(table)
    return len(table), s[:k], vt[:k]


def _decompose(rows: Array) -> tuple[Array, Array]:
    if not rows.size:
        return np.zeros(0), np.zeros((0, rows.shape[1]))
    _, s, vt = np.linalg.svd(rows, full_matrices=False)
    rank = int(np.count_nonzero(s > max(rows.shape) * np.finfo(float).eps * s[0]))
    return s[:rank], vt[:rank]


def _leading(stacks: list[Array], k: int) -> Array:
    """Compute the first k right singular vectors of all rows, completed if there are fewer."""
    _, vt = _decompose(np.concatenate(stacks))
    return flip_signs(complete_rows(vt[:k], k))


def guo(
    parts: Sequence[npt.ArrayLike],
    k: int,
    *,
    rng: np.random.Generator,
    tol: float = 1e-9,
    max_rounds: int = 1000,
) -> tuple[Array, int]:
    """Find one component after another by power iteration over the sites (Guo et al. 2012).

    In a round the sites send ``X_s.T @ g_s``, the aggregator sums them to the feature vector h and
    normalises it, the sites reply with ``g_s = X_s @ h``, and the aggregator makes the sample
    vector g orthogonal to those of the earlier components.

    **It shares sample-side vectors:** an entry of g belongs to one record, and all of g goes to the
    aggregator in every round, with every update of h ([Hartebrodt2022] sections 2.7 and 5). It is
    meant for comparisons on data that may be pooled: no policy can allow it, since no site has an
    operation for it. Rows are taken as given and are not centred.

    Parameters
    ----------
    parts : sequence of array-like of shape (n_s, d)
        One table for each site.
    k : int
        Number of components.
    rng : numpy Generator
        For the initial sample vectors.
    tol : float, default=1e-9
        A vector has converged when ``1 - h_i.T @ h_{i-1}`` is at most this, the t of
        [Hartebrodt2022] eq. 5. This is the change between rounds, not the error, which is much
        larger where the gap is small.
    max_rounds : int, default=1000
        Maximum number of rounds for one vector.

    Returns
    -------
    components : ndarray of shape (k, d)
        Orthonormal rows.
    rounds : int
        Total over all vectors.

    Notes
    -----
    Written from what [Hartebrodt2022] says about Guo et al., Pattern Recognition 45 (2012)
    1211-1219. Deflation on the sample side leaves the feature vectors orthogonal only as far as
    they have converged; the components are orthonormalised at the end, in order.

    Examples
    --------
    >>> import numpy as np
    >>> parts = [np.diag([3.0, 1.0]), np.diag([2.0, 1.0])]
    >>> components, rounds = guo(parts, 1, rng=np.random.default_rng(0))
    >>> np.abs(components).round(4)
    array([[1., 0.]])
    """
    tables = check_parts(parts, k)
    if not tol > 0 or max_rounds < 1:
        raise InputError(
            f"tol={tol} must be above 0 and max_rounds={max_rounds} at least 1. Raise them."
        )
    n, d = sum(len(table) for table in tables), tables[0].shape[1]
    size = float(np.sqrt(sum(float(np.vdot(table, table)) for table in tables)))
    before, found, rounds = np.zeros((n, 0)), np.zeros((0, d)), 0
    while len(found) < min(k, n):
        start = _project_out(rng.standard_normal(n), before)
        h, g, used = _iterate_vector(tables, start, before, tol, max_rounds)
        rounds += used
        length = float(np.linalg.norm(g))
        if length <= _NEGLIGIBLE * size:
            break
        before = np.column_stack([before, g / length])
        found = np.vstack([found, h])
    basis = np.linalg.qr(found.T).Q.T if len(found) else found
    return flip_signs(complete_rows(basis, k)), rounds


def _iterate_vector(
    tables: list[Array], g: Array, before: Array, tol: float, max_rounds: int
) -> tuple[Array, Array, int]:
    """Iterate to one feature vector; return it, its sample vector and the number of rounds."""
    ends = np.cumsum([len(table) for table in tables])[:-1]
    h = np.zeros(tables[0].shape[1])
    rounds = 0
    while rounds < max_rounds:
        rounds += 1
        parts = zip(np.split(g, ends), tables, strict=True)
        summed = sum((table.T @ part for part, table in parts), np.zeros_like(h))
        previous, h = h, _normalise(summed)
        g = _project_out(np.concatenate([table @ h for table in tables]), before)
        # For unit vectors half the squared difference is 1 - cos, without cancellation.
        if not h.any() or float(np.sum((h - previous) ** 2)) / 2 <= tol:
            break
    return h, g, rounds


def _project_out(g: Array, before: Array) -> Array:
    for _ in range(2):  # twice: the first pass leaves rounding errors along `before`
        g = g - before @ (before.T @ g)
    return g


def _normalise(vector: Array) -> Array:
    length = float(np.linalg.norm(vector))
    return vector / length if length > 0 else vector
