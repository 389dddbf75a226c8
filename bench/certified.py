"""What the certificate costs: a fit with it against the same fit without.

Processor time with BLAS on one thread. A line is refused if the bound is infinite or does not hold.
Handwritten digits and genotypes are read from the folder that EIGENFED_DATA names; their lines are
left out without it.
"""

import gzip
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from threadpoolctl import threadpool_limits

from bench.federated import groups, topics
from bench.few_rows import counts, genotypes
from bench.table import Line, least_cpu
from eigenfed import FederatedPCA
from eigenfed.arrays import Array
from eigenfed.linalg.orthonormal import sines

_SITES = 5
_DIGITS = "mnist/t10k-images-idx3-ubyte.gz"


def digits() -> Array | None:
    """Read the 10000 digits of the MNIST test set; None if they are not there."""
    path = Path(os.environ.get("EIGENFED_DATA", "../shared/data")) / _DIGITS
    if not path.is_file():
        return None
    with gzip.open(path) as file:
        return np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784) / 255.0


def compare(name: str, X: Any, k: int, method: str = "auto") -> Line:
    labels = groups(X.shape[0], _SITES)

    def fit(certify: str | bool) -> FederatedPCA:
        pca = FederatedPCA(k, method=method, certify=certify, random_state=0)
        return pca.fit(X, groups=labels)

    with threadpool_limits(1):
        with_it, without = least_cpu(lambda: fit("auto"), lambda: fit(False), repeats=5)
        found = fit("auto")
        exact = PCA(k, svd_solver="arpack", random_state=0).fit(X).components_
    certificate, apart = found.certificate_, float(sines(found.components_, exact)[0])
    bound = math.inf if certificate is None else certificate.angle_bound
    # arpack's own error is far below this, and a bound below it cannot be checked with arpack.
    holds = math.asin(min(apart, 1.0)) <= bound + 1e-7
    return Line(
        f"with / without certificate, {name}, k={k}",
        with_it / without,
        "at most",
        1.1,
        holds and math.isfinite(bound),
        f"{1e3 * with_it:.0f} ms / {1e3 * without:.0f} ms, {found.method_}; bound {bound:.0e}, "
        f"angle {apart:.0e}; {'none' if certificate is None else certificate.basis}",
    )


def lines() -> Iterator[Line]:
    people, images = genotypes(), digits()
    if people is not None:
        yield compare("957x14079 genotypes", people, 10)
    yield compare("559x32786 sparse", counts(559, 32_786), 10)
    if images is not None:
        yield compare("10000x784 digits", images, 10)
        yield compare("10000x784 digits, krylov", images, 10, "krylov")
    yield compare("20000x20000 sparse", topics(), 20)
