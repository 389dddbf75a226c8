"""What holds of every method, whoever wrote it."""

from collections.abc import Mapping

import numpy as np

from eigenfed import FederatedPCA
from eigenfed.arrays import Array
from eigenfed.linalg.orthonormal import sines
from eigenfed.protocol.method import Method
from oracles import pooled

ROUNDING = 1e-7


def check_against_pooled(
    method: Method, tables: Mapping[str, Array], k: int, *, secure: bool = False
) -> FederatedPCA:
    """Fit by a method, and hold the result and its certificate against all rows in one place."""
    X = np.vstack(list(tables.values()))
    pca = FederatedPCA(k, method=method, secure=secure, random_state=0).fit_sites(tables)
    exact = pooled(X)
    assert pca.method_ == method.name
    np.testing.assert_allclose(pca.mean_, exact.mean, atol=1e-9 * np.abs(X).max())
    np.testing.assert_allclose(pca.components_ @ pca.components_.T, np.eye(k), atol=1e-9)
    variances = exact.s[:k] ** 2 / (len(X) - 1)
    assert np.all(pca.explained_variance_ <= variances * (1.0 + ROUNDING))
    grade = pca.certificate_
    assert grade is not None
    angle = np.arcsin(min(float(sines(pca.components_, exact.vt[:k])[0]), 1.0))
    assert angle <= grade.angle_bound + ROUNDING
    if grade.converged.all():
        np.testing.assert_allclose(pca.explained_variance_, variances, rtol=ROUNDING)
    assert sum(asked.bytes_up for asked in pca.rounds_) == pca.bytes_up_
    return pca
