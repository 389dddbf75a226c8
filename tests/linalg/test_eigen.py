"""Leading eigenpairs against numpy, and a bound that what is left out never exceeds."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from eigenfed.arrays import Array
from eigenfed.linalg.eigen import leading_eigh, refine_eigh, top_eigh


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    # Several BLAS threads on a busy machine make the small decompositions here take seconds.
    with threadpool_limits(limits=1, user_api="blas"):
        yield


def spread(seed: int, values: Array) -> Array:
    """Symmetric matrix with these eigenvalues, in general position."""
    rng = np.random.default_rng(seed)
    q = np.linalg.qr(rng.standard_normal((len(values), len(values)))).Q
    matrix: Array = (q * values) @ q.T
    return (matrix + matrix.T) / 2


def stream_gram(seed: int, k: int, rows: int, decay: float) -> Array:
    """Gram matrix of a stack as a stream makes it: k old directions, new rows, a shift."""
    d = 80
    rng = np.random.default_rng(seed)
    profile = np.arange(1, d + 1) ** -decay
    _, s, vt = np.linalg.svd(rng.standard_normal((100 + 5 * k, d)) * profile, full_matrices=False)
    new = rng.standard_normal((rows, d)) * profile
    shift = 0.1 * rng.standard_normal((1, d)) * profile
    stack = np.vstack([s[:k, None] * vt[:k], new, shift])
    gram: Array = stack @ stack.T
    return gram


def on_complement(a: Array, vectors: Array) -> Array:
    """Eigenvalues of `a` on the complement of the span, largest first."""
    full = np.linalg.qr(vectors, mode="complete").Q
    rest = full[:, vectors.shape[1] :]
    values: Array = np.linalg.eigvalsh(rest.T @ a @ rest)[::-1]
    return values


def samuelson(values: Array) -> float:
    """Bound on the largest of some numbers, from the moments of their squares."""
    squares = values**2
    deviation = np.sqrt(np.mean((squares - squares.mean()) ** 2))
    return float(np.sqrt(squares.mean() + np.sqrt(len(squares) - 1) * deviation))


@pytest.mark.parametrize(("m", "k"), [(1, 1), (5, 1), (5, 4), (5, 5), (30, 7)])
def test_leading_pairs_are_those_of_the_full_problem(m: int, k: int) -> None:
    values_given = np.random.default_rng(m).standard_normal(m)
    a = spread(k, values_given)
    values, vectors = leading_eigh(a, k)
    np.testing.assert_allclose(values, np.sort(values_given)[::-1][:k], rtol=0, atol=1e-13)
    np.testing.assert_allclose(a @ vectors, vectors * values, rtol=0, atol=1e-13)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(k), rtol=0, atol=1e-13)


@pytest.mark.parametrize("m", [7, 20])
def test_all_leading_pairs_are_found_where_eigenvalues_are_nearly_equal(m: int) -> None:
    """For some of these matrices LAPACK's driver for a part of the spectrum finds none at all."""
    for seed in range(250):
        v = np.random.default_rng(seed).standard_normal(m)
        a = np.eye(m) + 1e-9 * np.outer(v, v) / (v @ v)
        values, vectors = top_eigh(a, 2)
        np.testing.assert_allclose(values, [1.0 + 1e-9, 1.0], rtol=0, atol=1e-14)
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(2), rtol=0, atol=1e-13)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("decay", [0.5, 1.0, 2.0])
@pytest.mark.parametrize(("k", "rows"), [(1, 32), (5, 32), (20, 40), (20, 1)])
def test_refined_pairs_of_a_stream_stay_within_their_bounds(
    seed: int, decay: float, k: int, rows: int
) -> None:
    a = stream_gram(seed, k, rows, decay)
    kept = a.copy()
    found = refine_eigh(a, k)
    assert found is not None
    values, vectors, outside = found
    exact = np.linalg.eigvalsh(a)[::-1]
    scale = exact[0]
    left = on_complement(a, vectors)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(k), rtol=0, atol=1e-12)
    np.testing.assert_allclose(vectors.T @ a @ vectors, np.diag(values), rtol=0, atol=1e-12 * scale)
    assert np.all(np.diff(values) <= 0)
    # A Ritz value never exceeds the eigenvalue of its place, nor can it fall short by more than
    # what the complement holds.
    assert np.all(values <= exact[:k] + 1e-12 * scale)
    assert np.all(values >= 0.97 * exact[:k])
    assert left[0] - 1e-12 * scale <= outside <= values[-1]
    np.testing.assert_allclose(outside, samuelson(left), rtol=1e-6)
    np.testing.assert_array_equal(a, kept)


@pytest.mark.parametrize("seed", range(3))
def test_refined_pairs_are_exact_where_the_known_ones_are_far_above(seed: int) -> None:
    k, m = 6, 50
    rng = np.random.default_rng(seed)
    a = np.diag(np.concatenate([np.linspace(2e6, 1e6, k), np.ones(m - k)]))
    coupling = rng.standard_normal((m, m))
    a += coupling @ coupling.T / m
    found = refine_eigh(a, k)
    assert found is not None
    values, vectors, _ = found
    exact_values, exact = np.linalg.eigh(a)
    np.testing.assert_allclose(values, exact_values[::-1][:k], rtol=1e-13)
    outside_span = vectors - exact[:, -k:] @ (exact[:, -k:].T @ vectors)
    assert np.abs(outside_span).max() < 1e-10


def test_two_steps_are_taken() -> None:
    # One step of the iteration shrinks the stray part by lambda_3 / lambda_1, two by its square.
    c, s = np.cos(0.3), np.sin(0.3)
    turn = np.array([[c, -s], [s, c]])
    a = turn @ np.diag([1.0, 0.01]) @ turn.T
    found = refine_eigh(a, 1)
    assert found is not None
    stray = abs(float(turn[:, 1] @ found[1][:, 0]))
    np.testing.assert_allclose(stray, np.tan(0.3) * 0.01**2, rtol=1e-3)


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ([1.0], 1.0),
        ([1.0, 1.0, 1.0, 1.0], 1.0),
        ([1.0, 0.0, 0.0, 0.0], 1.0),
        ([1.0, 0.5], 1.0),
        ([1.0, 0.8, 0.3], samuelson(np.array([1.0, 0.8, 0.3]))),
        ([0.0, 0.0], 0.0),
    ],
)
def test_bound_is_that_of_samuelson(rest: list[float], expected: float) -> None:
    found = refine_eigh(np.diag([9.0, 4.0, *rest]), 2)
    assert found is not None
    np.testing.assert_allclose(found[2], expected, rtol=1e-12)
    assert found[2] >= max(rest) - 1e-12


@pytest.mark.parametrize("seed", range(5))
def test_bound_holds_for_any_rest(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = np.concatenate([100.0 + np.arange(5.0)[::-1], rng.pareto(1.0, 40).clip(0, 50)])
    a = np.diag(values)
    found = refine_eigh(a, 5)
    assert found is None or found[2] >= values[5:].max()
    assert samuelson(values[5:]) > 104 or found is not None


def test_parallel_columns_end_in_none() -> None:
    # The columns are equal to the last bit, so that Cholesky meets a pivot of exactly zero.
    assert refine_eigh(np.ones((4, 4)), 2) is None


@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_column_of_zeros_ends_in_none(k: int) -> None:
    a = np.diag([4.0, 3.0, 2.0, 1.0])
    a[k - 1, k - 1] = 0.0
    assert refine_eigh(a, k) is None


def test_columns_of_very_different_length_are_refined() -> None:
    graded = np.logspace(0, -4, 10)
    rng = np.random.default_rng(9)
    factor = np.vstack([np.diag(graded), 1e-2 * rng.standard_normal((20, 10)) * graded])
    found = refine_eigh(factor @ factor.T, 10)
    assert found is not None
    np.testing.assert_allclose(found[0], np.linalg.svd(factor, compute_uv=False) ** 2, rtol=1e-6)


@pytest.mark.parametrize("angle", [1e-4, 1e-6])
def test_nearly_parallel_columns_end_in_none(angle: float) -> None:
    a = np.eye(5) * angle / 100
    a[:2, :2] = [[1.0, 1.0 - angle], [1.0 - angle, 1.0]]
    assert refine_eigh(a, 2) is None


@pytest.mark.parametrize(("strong", "refused"), [(1.01, True), (0.99, False), (100.0, True)])
def test_a_bound_above_the_least_ritz_value_ends_in_none(strong: float, refused: bool) -> None:
    found = refine_eigh(np.diag([2.0, 1.0, strong]), 2)
    assert (found is None) == refused


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
@pytest.mark.parametrize(("m", "k"), [(1, 1), (5, 5), (40, 3), (300, 11)])
def test_a_few_of_many_are_those_of_all(m: int, k: int, size: float) -> None:
    matrix = spread(8, np.linspace(-1.0, 2.0, m) if m > 1 else np.ones(1))
    values, vectors = top_eigh(size * matrix, k)
    every, all_vectors = leading_eigh(matrix, m)
    np.testing.assert_allclose(values / size, every[:k], rtol=0, atol=1e-13)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(k), rtol=0, atol=1e-13)
    overlap = np.abs(np.sum(vectors * all_vectors[:, :k], axis=0))
    np.testing.assert_allclose(overlap, np.ones(k), rtol=0, atol=1e-12)


def _fail(*_: object, **__: object) -> None:
    raise np.linalg.LinAlgError("Internal Error.")


def _find_none(a: Array, **_: object) -> tuple[Array, Array]:
    return np.zeros(0), np.zeros((len(a), 0))


@pytest.mark.parametrize("driver", [_fail, _find_none])
def test_all_pairs_are_computed_where_the_driver_for_a_few_fails(
    driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scipy.linalg.eigh", driver)
    values, vectors = top_eigh(np.diag(np.arange(20.0)), 2)
    np.testing.assert_array_equal(values, [19.0, 18.0])
    np.testing.assert_array_equal(np.abs(vectors), np.eye(20)[:, :-3:-1])
