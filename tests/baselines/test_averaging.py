"""UDA, WDA and DR-SVD against their printed matrices and the pooled decomposition."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from eigenfed.arrays import Array
from eigenfed.baselines.averaging import dr_svd, uda, wda
from eigenfed.errors import InputError
from eigenfed.linalg.orthonormal import sines
from oracles import pooled, power_law

K = 3


def sketched(parts: Sequence[Array], k: int) -> Array:
    return dr_svd(parts, k, rng=np.random.default_rng(0))


ALL = [uda, wda, sketched]
Method = Callable[[Sequence[Array], int], Array]


def tables(sizes: Sequence[int] = (150, 60, 300), d: int = 20, alpha: float = 1.5) -> list[Array]:
    X = power_law(sum(sizes), d, alpha, seed=1)
    return np.split(X, np.cumsum(sizes)[:-1])


def printed(parts: Sequence[Array], k: int, *, weighted: bool) -> Array:
    """The matrix of [Guo2024] Alg. 4 or 5, line 3, formed in full; its leading eigenvectors."""
    mean = np.zeros((parts[0].shape[1],) * 2)
    for A in parts:
        values, vectors = np.linalg.eigh(A.T @ A / len(A))
        V = vectors[:, -k:]
        mean += (V * (values[-k:] if weighted else 1.0)) @ V.T / len(parts)
    leading: Array = np.linalg.eigh(mean).eigenvectors[:, : -k - 1 : -1].T
    return leading


@pytest.mark.parametrize(("method", "weighted"), [(uda, False), (wda, True)])
def test_averages_are_those_printed(method: Method, weighted: bool) -> None:
    parts = tables()
    expected = printed(parts, K, weighted=weighted)
    assert sines(method(parts, K), expected)[0] < 1e-10
    np.testing.assert_allclose(np.abs(np.sum(method(parts, K) * expected, axis=1)), 1.0)


def test_a_sketch_is_the_one_printed() -> None:
    parts = tables()
    A = np.concatenate(parts)
    omega = np.random.default_rng(0).standard_normal((20, K + (20 - K) // 4))
    Q = np.linalg.qr(A @ A.T @ A @ omega).Q
    assert sines(sketched(parts, K), np.linalg.svd(Q.T @ A).Vh[:K])[0] < 1e-10


@pytest.mark.parametrize("method", [uda, wda])
def test_one_site_gives_its_own_decomposition(method: Method) -> None:
    X = tables((200,))[0]
    assert sines(method([X], K), pooled(X, centered=False).vt[:K])[0] < 1e-12


@pytest.mark.parametrize("method", ALL)
def test_rows_of_rank_k_are_recovered(method: Method) -> None:
    rng = np.random.default_rng(2)
    mix = rng.standard_normal((K, 12))
    parts = [rng.standard_normal((n, K)) @ mix for n in (5, 9, 40)]
    assert sines(method(parts, K), np.linalg.qr(mix.T).Q.T)[0] < 1e-10


@pytest.mark.parametrize(("method", "limit"), [(uda, 0.3), (wda, 0.3), (sketched, 0.1)])
def test_large_alike_sites_come_near_the_pooled_answer(method: Method, limit: float) -> None:
    parts = tables((2000, 2000, 2000), alpha=2.0)
    assert sines(method(parts, K), pooled(np.concatenate(parts), centered=False).vt[:K])[0] < limit


def test_more_columns_make_a_better_sketch() -> None:
    parts = tables(d=60, alpha=0.5)
    truth = pooled(np.concatenate(parts), centered=False).vt[:K]
    errors = [
        sines(dr_svd(parts, K, rng=np.random.default_rng(4), oversample=extra), truth)[0]
        for extra in (0, 20, 57)
    ]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-10


def test_weights_of_sites_do_not_follow_their_rows() -> None:
    """As printed: one row with a strong direction outweighs a thousand with a weak one."""
    weak = np.zeros((1000, 2))
    weak[:, 0] = 1.0
    strong = np.array([[0.0, 2.0]])
    np.testing.assert_allclose(np.abs(wda([weak, strong], 1)), [[0.0, 1.0]], atol=1e-12)
    truth = pooled(np.concatenate([weak, strong]), centered=False).vt[0]
    assert abs(truth[0]) > 0.99


@pytest.mark.parametrize("method", ALL)
def test_components_are_orthonormal_and_signed_whatever_the_rank(method: Method) -> None:
    parts = [np.zeros((0, 6)), np.zeros((4, 6)), np.ones((2, 6))]
    found = method(parts, K)
    assert found.shape == (K, 6)
    np.testing.assert_allclose(found @ found.T, np.eye(K), atol=1e-12)
    np.testing.assert_allclose(found[0], np.full(6, 6**-0.5))


@pytest.mark.parametrize("method", ALL)
@pytest.mark.parametrize(
    ("parts", "k", "match"),
    [
        ([], 1, "parts has shapes"),
        ([np.ones(3)], 1, "parts has shapes"),
        ([np.ones((2, 3)), np.ones((2, 4))], 1, "parts has shapes"),
        ([np.full((2, 3), np.nan)], 1, "parts must be finite"),
        ([np.ones((2, 3))], 0, "k=0 must be from 1 to 3"),
        ([np.ones((2, 3))], 4, "k=4 must be from 1 to 3"),
    ],
)
def test_bad_arguments_are_refused(method: Method, parts: list[Array], k: int, match: str) -> None:
    with pytest.raises(InputError, match=match):
        method(parts, k)


def test_a_negative_oversample_is_refused() -> None:
    with pytest.raises(InputError, match="oversample=-1 must be at least 0"):
        dr_svd([np.ones((2, 3))], 1, rng=np.random.default_rng(0), oversample=-1)
