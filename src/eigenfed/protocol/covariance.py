"""The whole covariance in one round of products: exact, and best where features are few.

===========  ==================================================================================
coordinator  the sum over sites of the upper triangle of D'W D, d (d + 1) / 2 numbers
site         the mean and scale of all rows
===========  ==================================================================================
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array, Arrays
from eigenfed.data.prepared import Prepared
from eigenfed.data.source import Source
from eigenfed.linalg.eigen import top_eigh
from eigenfed.linalg.orthonormal import column_lengths, signed_rows
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.certificate import angle, wire_error
from eigenfed.protocol.core import Ask, Protocol
from eigenfed.protocol.moments import Moments, kept_scatter
from eigenfed.protocol.ops import Answer, op
from eigenfed.protocol.result import Certificate, Decomposition
from eigenfed.protocol.totals import Total


@op(Release("covariance", "d (d + 1) / 2", Leaves.SUM_ONLY, Reveals.SCATTER))
def scatter(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Return the upper triangle of the site's scatter about the mean of all sites."""
    mean, scale = payload["mean"], payload["scale"]
    kept = kept_scatter(state)
    whole = Prepared(source, mean, scale).scatter() if kept is None else kept.about(mean, scale)
    # It is as large as many rows and has served its purpose.
    state = {name: array for name, array in state.items() if not name.startswith("kept_")}
    return Answer({"triangle": whole[_upper(source.d)]}, state)


OPS = (scatter,)


@lru_cache(maxsize=4)
def _upper(d: int) -> npt.NDArray[np.bool_]:
    """Where the upper triangle is."""
    return np.triu(np.ones((d, d), dtype=bool))


def covariance(moments: Moments, k: int, *, tol: float, total: Total) -> Protocol[Decomposition]:
    """Bring the covariance together and decompose it."""
    answer = yield from total(Ask("scatter", moments.arrays))
    d = len(moments.mean)
    matrix = np.zeros((d, d))
    matrix[_upper(d)] = answer["triangle"] / max(moments.n - 1.0, 1.0)
    matrix.T[_upper(d)] = matrix[_upper(d)]
    values, vectors = top_eigh(matrix, min(k + 1, d))
    values, vt = np.maximum(values, 0.0), signed_rows(vectors[:, :k].T)
    return Decomposition(
        vt,
        values[:k],
        moments.mean,
        moments.scale,
        moments.n,
        float(matrix.trace()),
        products=1,
        certificate=_certificate(matrix, values, vt, tol, moments),
    )


def _certificate(
    matrix: Array, values: Array, vt: Array, tol: float, moments: Moments
) -> Certificate:
    """All of the matrix is known, so that bound and estimate are one."""
    k = len(vt)
    left = matrix @ vt.T - vt.T * values[:k]
    largest = values[0] if values[0] > 0 else 1.0
    rounding = wire_error(moments, float(matrix.trace()), 1)
    residuals = (column_lengths(left) + rounding) / largest
    following = (values[k] + rounding) if k < len(values) else 0.0
    sure = angle(float(np.linalg.norm(left, 2)) + rounding, values[k - 1] - following)
    return Certificate(
        residuals,
        sure,
        sure,
        residuals <= tol,
        float(matrix.trace()),
        float(np.abs(vt @ vt.T - np.eye(k)).max()),
    )
