"""The certificate of merged streams holds for all rows, whatever the summaries have lost."""

import math
from functools import reduce

import numpy as np
import pytest

from eigenfed import Summary
from eigenfed.linalg.orthonormal import sines
from eigenfed.protocol.exact.stream_summary import decompose_summary
from oracles import pooled


@pytest.mark.parametrize("rank", [4, 8, 10])
@pytest.mark.parametrize("far", [0.0, 1e3, 1e6, 1e9])
def test_the_certificate_of_merged_streams_holds(rank: int, far: float) -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((400, 10)) * 0.5 ** np.arange(10) + far
    streams = []
    for part in np.array_split(rows, 3):
        batches = np.array_split(part, 4)
        streams.append(reduce(Summary.update, batches, Summary.empty(10, rank)))
    found = decompose_summary(reduce(Summary.merge, streams), 3, tol=1e-4, certify=True)
    truth, grade = pooled(rows), found.certificate
    assert grade is not None
    assert math.isfinite(grade.angle_bound)
    assert math.asin(sines(found.components, truth.vt[:3])[0]) <= grade.angle_bound
    for component, vector, angle in zip(found.components, truth.vt, grade.angles, strict=False):
        assert math.asin(min(sines(component[None], vector[None])[0], 1.0)) <= angle
    scatter = (truth.vt.T * truth.s**2) @ truth.vt / truth.s[0] ** 2
    values = found.variances * (truth.n - 1) / truth.s[0] ** 2
    off = scatter @ found.components.T - values * found.components.T
    assert np.all(np.linalg.norm(off, axis=0) <= grade.residuals + 1e-12)
