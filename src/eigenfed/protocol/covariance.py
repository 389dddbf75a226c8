"""The whole covariance in one round of products: exact, and best where features are few.

===========  ==================================================================================
coordinator  the sum over sites of the upper triangle of D'W D, d (d + 1) / 2 numbers
site         the mean and scale of all rows
===========  ==================================================================================
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Arrays
from eigenfed.data.prepared import Prepared
from eigenfed.data.source import Source
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.certificate import wire_error
from eigenfed.protocol.core import Ask, Protocol
from eigenfed.protocol.moments import Moments, kept_scatter
from eigenfed.protocol.ops import Answer, op
from eigenfed.protocol.result import Decomposition
from eigenfed.protocol.spectrum import symmetric, whole_spectrum
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
    answer = yield from total(Ask("scatter", moments.arrays, bounds={"triangle": moments.most}))
    matrix = symmetric(answer["triangle"] / max(moments.n - 1.0, 1.0), len(moments.mean))
    rounding = wire_error(moments, float(matrix.trace()), 1)
    rounding += len(matrix) * float(np.max(total.error(moments.most))) / max(moments.n - 1.0, 1.0)
    return whole_spectrum(
        matrix,
        k,
        mean=moments.mean,
        scale=moments.scale,
        n=moments.n,
        tol=tol,
        rounding=rounding,
    )
