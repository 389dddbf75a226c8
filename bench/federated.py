"""FederatedPCA over sites in one process against scikit-learn's PCA of all rows in one place."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.decomposition import PCA
from threadpoolctl import threadpool_limits

from bench.table import Line, fastest, least_cpu
from eigenfed import Covariance, FederatedPCA
from eigenfed.arrays import Array
from eigenfed.linalg.orthonormal import sines

_IMAGE_FEATURES = 784


def images(n: int = 60_000, d: int = _IMAGE_FEATURES) -> Array:
    """Rows whose variances fall as those of handwritten digits do."""
    rng = np.random.default_rng(0)
    spread = np.sqrt(np.maximum(9.7 / np.arange(1, d + 1) ** 1.1, 1e-4))
    rows: Array = rng.standard_normal((n, d)) * spread + 1.0
    return rows


def topics(n: int = 20_000, d: int = 20_000, count: int = 20) -> Any:
    """Sparse counts with planted topics, of which centring leaves one less to stand out."""
    rng = np.random.default_rng(1)
    rows: Any = sparse.random_array((n, d), density=0.002, rng=rng, format="csr")
    own = np.repeat(np.arange(count), n // count)
    words = own[:, None] * (d // count) + rng.integers(0, 40, (n, 20))
    heavy = sparse.csr_array(
        (
            np.repeat(np.linspace(9, 5, count), n // count * 20),
            words.ravel(),
            np.arange(0, 20 * n + 1, 20),
        ),
        shape=(n, d),
    )
    return sparse.csr_array(rows + heavy)


def groups(n: int, sites: int) -> npt.NDArray[np.int_]:
    return np.arange(n) * sites // n


def dense_sites() -> Iterator[Line]:
    X = images()
    k = 10
    five, many = groups(len(X), 5), groups(len(X), 200)
    single = Covariance(precision="single")
    times = fastest(
        lambda: FederatedPCA(k, certify=False).fit(X, groups=five),
        lambda: PCA(k, svd_solver="covariance_eigh").fit(X),
        lambda: PCA(k, svd_solver="randomized", random_state=0).fit(X),
        lambda: FederatedPCA(k, certify=False).fit(X, groups=many),
        lambda: FederatedPCA(k, method=single, certify=False).fit(X, groups=five),
        repeats=5,
    )
    exact = PCA(k, svd_solver="covariance_eigh").fit(X).components_
    ours = sines(FederatedPCA(k).fit(X, groups=five).components_, exact)[0]
    split = sines(FederatedPCA(k).fit(X, groups=many).components_, exact)[0]
    halved = FederatedPCA(k, method=single, certify=False).fit(X, groups=five).components_
    nearly = sines(halved, exact)[0]
    rough = PCA(k, svd_solver="randomized", random_state=0).fit(X).components_
    theirs = sines(rough, exact)[0]
    yield Line(
        "5 sites / pooled covariance_eigh, 60000x784, k=10",
        times[0] / times[1],
        "at most",
        1.15,
        ours < 1e-8,
        f"{times[0]:.2f} s / {times[1]:.2f} s; sine {ours:.0e}",
    )
    # The products alone, in double precision, take more than a quarter of its time on two cores.
    yield Line(
        "pooled randomized / 5 sites, 60000x784, k=10",
        times[2] / times[0],
        "report",
        0.0,
        ours < 1e-8,
        f"{times[2]:.2f} s / {times[0]:.2f} s; sine {theirs:.0e} / {ours:.0e}",
    )
    yield Line(
        "pooled randomized / 5 sites, single, 60000x784, k=10",
        times[2] / times[4],
        "at least",
        4.0,
        nearly < 1e-6,
        f"{times[2]:.2f} s / {times[4]:.2f} s; sine {theirs:.0e} / {nearly:.0e}",
    )
    yield Line(
        "200 sites of 300 rows / 5 sites of 12000",
        times[3] / times[0],
        "at most",
        2.5,
        split < 1e-8,
        f"{times[3]:.2f} s / {times[0]:.2f} s; sine {split:.0e}",
    )


def sparse_sites() -> Iterator[Line]:
    X = topics()
    k = 20
    labels = groups(X.shape[0], 5)

    def fit(certify: str | bool) -> FederatedPCA:
        return FederatedPCA(k, certify=certify, random_state=0).fit(X, groups=labels)

    with threadpool_limits(1):
        plain, certified, peer = least_cpu(
            lambda: fit(False),
            lambda: fit("auto"),
            lambda: PCA(k, svd_solver="arpack", random_state=0).fit(X),
            repeats=5,
        )
        fitted = fit("auto")
        exact = PCA(k, svd_solver="arpack", random_state=0, tol=0).fit(X).components_
    apart = sines(fitted.components_, exact)[0]
    for name, ours, most in (("", plain, 1.3), (", with certificate", certified, 1.5)):
        yield Line(
            f"5 sparse sites / arpack, 20000x20000, k=20{name}",
            ours / peer,
            "at most",
            most,
            apart < 1e-6,
            f"{ours:.2f} s / {peer:.2f} s; sine {apart:.0e}; {fitted.n_rounds_} rounds",
        )


def many_sites(d: int, k: int = 10) -> Line:
    """Compare processor time: with sites this small, it goes into messages and checks.

    The fewer the features, the less there is to compute for the five sites that it is compared
    with; the target is for rows of images.
    """
    X = images(50_000, d)
    many, five = groups(len(X), 1000), groups(len(X), 5)
    with threadpool_limits(1):
        ours, peer = least_cpu(
            lambda: FederatedPCA(k, certify=False, random_state=0).fit(X, groups=many),
            lambda: FederatedPCA(k, certify=False, random_state=0).fit(X, groups=five),
            repeats=3,
        )
        split = FederatedPCA(k, certify=False, random_state=0).fit(X, groups=many)
        whole = FederatedPCA(k, certify=False, random_state=0).fit(X, groups=five)
    apart = sines(split.components_, whole.components_)[0]
    return Line(
        f"1000 sites of 50 rows / 5 sites of 10000, d={d}, k={k}",
        ours / peer,
        "at most" if d == _IMAGE_FEATURES else "report",
        3.0,
        apart < 1e-5,
        f"{ours:.2f} s / {peer:.3f} s, {ours:.2f} ms a site, {split.method_} / {whole.method_}; "
        f"sine {apart:.0e}",
    )


def lines() -> Iterator[Line]:
    yield from dense_sites()
    for d in (_IMAGE_FEATURES, 200, 20):
        yield many_sites(d)
    yield from sparse_sites()
