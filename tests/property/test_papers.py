"""The merges and bounds of [Grammenos2020] and its supplement, as printed, against ours."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenfed import Summary
from eigenfed.arrays import Array
from oracles import power_law


def basic_merge(u1: Array, s1: Array, u2: Array, s2: Array, r: int, fade: float) -> Array:
    """[Grammenos2020, supplement] Alg. 4: singular values of the stacked, scaled bases."""
    stacked = np.hstack([fade * u1 * s1, u2 * s2])
    return np.linalg.svd(stacked)[1][:r]


def faster_merge(u1: Array, s1: Array, u2: Array, s2: Array, r: int, fade: float) -> Array:
    """[Grammenos2020, supplement] Alg. 5: the same through a QR factorisation."""
    _, triangle = np.linalg.qr(np.hstack([fade * u1 * s1, u2 * s2]))
    return np.linalg.svd(triangle)[1][:r]


def merge_as_printed(u1: Array, s1: Array, u2: Array, s2: Array, r: int) -> tuple[Array, Array]:
    """[Grammenos2020] Alg. 2."""
    z = u1.T @ u2
    q, triangle = np.linalg.qr(u2 - u1 @ z)
    inner = np.block([[np.diag(s1), z * s2], [np.zeros((len(triangle), len(s1))), triangle * s2]])
    u, s, _ = np.linalg.svd(inner)
    return (np.hstack([u1, q]) @ u)[:, :r], s[:r]


@given(seed=st.integers(0, 10**6), fade=st.floats(0.1, 1.0), r=st.integers(1, 10))
def test_merge_of_uncentred_rows_is_that_of_the_papers(seed: int, fade: float, r: int) -> None:
    X = power_law(60, 15, 1.0, seed)
    empty = Summary.empty(15, r, centered=False)
    a, b = empty.update(X[:30]), empty.update(X[30:])
    ours = a.merge(b, decay=fade)
    for algorithm in (basic_merge, faster_merge):
        np.testing.assert_allclose(
            ours.s, algorithm(a.vt.T, a.s, b.vt.T, b.s, r, fade), rtol=0, atol=1e-12 * ours.s[0]
        )
    basis, s = merge_as_printed(a.vt.T, fade * a.s, b.vt.T, b.s, r)
    np.testing.assert_allclose(ours.s, s, rtol=0, atol=1e-12 * s[0])
    np.testing.assert_allclose(
        (ours.vt.T * ours.s**2) @ ours.vt, (basis * s**2) @ basis.T, rtol=0, atol=1e-11 * s[0] ** 2
    )


def distance_up_to_rotation(summary: Summary, Y: Array) -> float:
    """Frobenius norm of the least ``[s*vt; 0] - B @ Y`` over orthogonal B."""
    kept = summary.s[:, None] * summary.vt
    overlap = np.linalg.svd(kept @ Y.T, compute_uv=False).sum()
    return float(np.sqrt(max(np.sum(kept**2) + np.sum(Y**2) - 2 * overlap, 0.0)))


@given(
    seed=st.integers(0, 10**6),
    depth=st.integers(1, 5),
    r=st.integers(1, 12),
    alpha=st.sampled_from([0.001, 0.1, 0.5, 1.0, 2.0, 3.0]),
)
@settings(max_examples=200)
def test_trees_keep_the_bound_of_theorem_3(seed: int, depth: int, r: int, alpha: float) -> None:
    """[Grammenos2020, supplement] Theorem 3, with every node of a binary tree cut to rank r."""
    Y = power_law(10 * 2**depth, 20, alpha, seed)
    empty = Summary.empty(20, r, centered=False)
    level = [empty.update(leaf) for leaf in np.split(Y, 2**depth)]
    for _ in range(depth):
        level = [a.merge(b) for a, b in zip(level[::2], level[1::2], strict=True)]
    residual = np.sqrt(np.sum(np.linalg.svd(Y, compute_uv=False)[r:] ** 2))
    bound = ((1 + np.sqrt(2)) ** (depth + 1) - 1) * residual
    assert distance_up_to_rotation(level[0], Y) <= bound + 1e-9


def test_the_shift_between_two_parts_is_not_lost() -> None:
    """Without the mean row the merged subspace misses the axis between the parts."""
    shift = np.zeros(20)
    shift[7] = 30.0
    parts = [power_law(200, 20, 1.0, 0), power_law(300, 20, 1.0, 1) + shift]
    empty = Summary.empty(20, 3)
    here, there = (empty.update(part) for part in parts)
    ours = here.merge(there)
    assert abs(ours.vt[0, 7]) == pytest.approx(1.0, abs=1e-2)
    without, _ = merge_as_printed(here.vt.T, here.s, there.vt.T, there.s, 3)
    assert np.linalg.norm(without[7]) < 0.6


def test_directions_stay_orthonormal_over_ten_thousand_merges() -> None:
    rng = np.random.default_rng(1)
    summary = Summary.empty(30, 8)
    small = Summary.empty(30, 4)
    spread = 10.0 ** -np.linspace(0, 5, 30)
    for step in range(10_000):
        rows = rng.standard_normal((3, 30)) * spread * 10.0 ** rng.integers(-2, 3) + step % 7
        summary = summary.merge(small.update(rows), decay=0.999)
    assert np.abs(summary.vt @ summary.vt.T - np.eye(8)).max() < 1e-10
