"""The one-shot comparators of FedPower: UDA, WDA and DR-SVD (004 Appendix F, Alg. 4 to 6).

All take the sites' tables as given, n_s rows of the same d features: nothing is centred. In Alg. 4
and 5 the sums are printed up to n, the number of rows; they run over the m sites.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.errors import InputError
from eigenfed.linalg.orthonormal import completed_rows, signed_rows


def uda(parts: Sequence[npt.ArrayLike], k: int) -> Array:
    """Average the sites' projectors, unweighted (004 Alg. 4).

    Each site sends its first k right singular vectors; the result is the leading eigenvectors of
    the mean of their projectors. Sites count alike, whatever their rows and singular values.

    Parameters
    ----------
    parts : sequence of array-like of shape (n_s, d)
        One table for each site. A site of lower rank than k sends as many vectors as it has.
    k : int

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
    return _leading([vt for _, _, vt in (_local(table, k) for table in checked_parts(parts, k))], k)


def wda(parts: Sequence[npt.ArrayLike], k: int) -> Array:
    """Average the sites' rank-k covariances (004 Alg. 5).

    Each site sends the first k eigenvectors and eigenvalues of ``X_s.T @ X_s / n_s``. Every site
    counts alike whatever its rows, as printed: with unequal sites the mean is not the pooled
    matrix even where rank k loses nothing.

    Parameters
    ----------
    parts : sequence of array-like of shape (n_s, d)
        One table for each site.
    k : int

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
    found = (_local(table, k) for table in checked_parts(parts, k))
    # The roots of the eigenvalues, since the stack's squares are summed.
    return _leading([s[:, None] / np.sqrt(max(n, 1)) * vt for n, s, vt in found], k)


def dr_svd(
    parts: Sequence[npt.ArrayLike],
    k: int,
    *,
    rng: np.random.Generator,
    oversample: int | None = None,
) -> Array:
    """Decompose all rows by a random sketch that the sites make together (004 Alg. 6).

    Line 3 prints ``Y = A A^+ A Omega``; with a pseudo-inverse that is ``A Omega`` and the factors
    would be idle, so it is read as ``A A' A Omega``, one power step. Y and Q, which have a row for
    each record, are shared with the server: more than the exact methods of eigenfed send.

    Parameters
    ----------
    parts : sequence of array-like of shape (n_s, d)
        One table for each site.
    k : int
    rng : numpy Generator
    oversample : int, optional
        Columns of the sketch beyond k; ``(d - k) // 4`` as printed by default.

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
    tables = checked_parts(parts, k)
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


def checked_parts(parts: Sequence[npt.ArrayLike], k: int) -> list[Array]:
    """Return the sites' tables in float64, or refuse them or k."""
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


def _local(table: Array, k: int) -> tuple[int, Array, Array]:
    """Return the number of rows, and the first k singular values and vectors that are not 0."""
    s, vt = _decomposed(table)
    return len(table), s[:k], vt[:k]


def _decomposed(rows: Array) -> tuple[Array, Array]:
    if not rows.size:
        return np.zeros(0), np.zeros((0, rows.shape[1]))
    _, s, vt = np.linalg.svd(rows, full_matrices=False)
    rank = int(np.count_nonzero(s > max(rows.shape) * np.finfo(float).eps * s[0]))
    return s[:rank], vt[:rank]


def _leading(stacks: list[Array], k: int) -> Array:
    """First k right singular vectors of all rows together: eigenvectors of their sum of squares."""
    _, vt = _decomposed(np.concatenate(stacks))
    return signed_rows(completed_rows(vt[:k], k))
