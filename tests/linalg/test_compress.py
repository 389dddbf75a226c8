"""Few rows that stand for many, against the singular value decomposition of all of them."""

from collections.abc import Iterator

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from eigenfed.arrays import Array
from eigenfed.linalg.compress import compress


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    # Several BLAS threads on a busy machine make the small decompositions here take seconds.
    with threadpool_limits(limits=1, user_api="blas"):
        yield


def with_spectrum(seed: int, m: int, d: int, s: Array) -> Array:
    """Rows in general position with the singular values `s`."""
    rng = np.random.default_rng(seed)
    u = np.linalg.qr(rng.standard_normal((m, len(s)))).Q
    v = np.linalg.qr(rng.standard_normal((d, len(s)))).Q
    rows: Array = (u * s) @ v.T
    return rows


def gaussian(seed: int, m: int, d: int) -> Array:
    return np.random.default_rng(seed).standard_normal((m, d))


def stream_stack(seed: int, k: int, b: int, d: int) -> Array:
    """Stack as a stream makes it: k directions of many rows, then b new rows."""
    rng = np.random.default_rng(seed)
    profile = np.arange(1, d + 1) ** -1.0
    _, s, vt = np.linalg.svd(rng.standard_normal((200, d)) * profile, full_matrices=False)
    return np.vstack([s[:k, None] * vt[:k], rng.standard_normal((b, d)) * profile])


STACKS = {
    "tall": gaussian(1, 90, 12),
    "wide": gaussian(2, 12, 90),
    "square": gaussian(3, 30, 30),
    "one row": gaussian(4, 1, 9),
    "one column": gaussian(5, 9, 1),
    "one number": np.array([[-3.0]]),
    "large offset": gaussian(6, 20, 40) + 1000.0,
    "decaying wide": with_spectrum(7, 25, 60, np.logspace(0, -7, 25, base=2)),
    "decaying tall": with_spectrum(8, 60, 25, np.logspace(0, -7, 25, base=2)),
    "to the third digit": with_spectrum(9, 30, 80, np.logspace(0, -3, 30)),
    "to the fourth digit": with_spectrum(10, 30, 80, np.logspace(0, -4.9, 30)),
    "to the twelfth digit, wide": with_spectrum(11, 30, 80, np.logspace(0, -12, 30)),
    "to the twelfth digit, tall": with_spectrum(12, 80, 30, np.logspace(0, -12, 30)),
    "twins": with_spectrum(13, 20, 50, np.repeat([5.0, 3.0, 1.0, 0.1], 5)),
    "huge": 1e150 * gaussian(14, 10, 20),
}


def check(stack: Array, rank: int, known: int = 0) -> tuple[Array, Array, float]:
    """Check all that holds on every path and return what compress did."""
    kept = stack.copy()
    s, vt, discarded = compress(stack, rank, known)
    np.testing.assert_array_equal(stack, kept)
    scale = float(np.abs(stack).max(initial=0.0)) or 1.0
    exact = np.linalg.svd(stack / scale, compute_uv=False)
    tolerance = 1e-12 * float(exact.max(initial=0.0)) ** 2
    assert len(s) <= min(rank, *stack.shape)
    assert vt.shape == (len(s), stack.shape[1])
    assert np.all(s > 0)
    assert np.all(np.diff(s) <= 0)
    np.testing.assert_allclose(vt @ vt.T, np.eye(len(s)), rtol=0, atol=1e-10)
    following = exact[len(s)] ** 2 if len(s) < len(exact) else 0.0
    # Squares of numbers below 1e-150 leave the range, and the bound with them.
    bound = discarded / scale / scale if scale > 1e-150 else following
    assert bound >= following * (1 - 1e-9) - 1e-3 * tolerance
    # What the rows stand for differs from all rows by a positive matrix within that bound.
    gone = (stack / scale).T @ (stack / scale) - (vt.T * (s / scale) ** 2) @ vt
    eigenvalues = np.linalg.eigvalsh(gone)
    assert eigenvalues[0] >= -tolerance
    assert eigenvalues[-1] <= bound + tolerance
    return s, vt, discarded


@pytest.mark.parametrize("rank", [1, 2, 7, 12, 29, 1000])
@pytest.mark.parametrize("name", STACKS)
def test_agrees_with_the_singular_value_decomposition(name: str, rank: int) -> None:
    stack = STACKS[name]
    s, vt, discarded = check(stack, rank)
    _, exact, exact_vt = np.linalg.svd(stack, full_matrices=False)
    k = min(rank, *stack.shape)
    assert len(s) == k
    np.testing.assert_allclose(s, exact[:k], rtol=1e-3, atol=1e-11 * exact[0])
    np.testing.assert_allclose(s[s > 0.01 * s[0]], exact[:k][s > 0.01 * s[0]], rtol=1e-12)
    following = exact[k] ** 2 if k < len(exact) else 0.0
    np.testing.assert_allclose(discarded, following, rtol=1e-3, atol=1e-14 * exact[0] ** 2)
    for i in np.flatnonzero(exact[:k] > 1e-4 * exact[0]):
        gaps = np.abs(np.delete(exact, i) ** 2 - exact[i] ** 2)
        if gaps.min(initial=np.inf) > 1e-4 * exact[i] ** 2:
            assert abs(vt[i] @ exact_vt[i]) > 1 - 1e-9


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("last", [-4.5, -5.5, -7, -12])
@pytest.mark.parametrize("shape", [(30, 80), (80, 30)], ids=["wide", "tall"])
def test_small_singular_values_keep_their_digits(
    shape: tuple[int, int], last: float, scale: float
) -> None:
    exact = scale * np.logspace(0, last, 30)
    s, _, _ = check(with_spectrum(20, *shape, exact), 30)
    np.testing.assert_allclose(s, exact, rtol=1e-3)


@pytest.mark.parametrize("shape", [(30, 80), (80, 30)], ids=["wide", "tall"])
def test_the_first_of_several_small_values_let_go_is_told(shape: tuple[int, int]) -> None:
    stack = with_spectrum(21, *shape, np.array([1.0, 1e-6, 8e-7, 6e-7]))
    s, _, discarded = check(stack, 2)
    np.testing.assert_allclose(s, [1.0, 1e-6], rtol=1e-6)
    np.testing.assert_allclose(discarded, 6.4e-13, rtol=1e-6)


@pytest.mark.parametrize("shape", [(40, 15), (15, 40), (30, 30), (5, 80)])
@pytest.mark.parametrize("rank", [1, 3, 10])
def test_rank_deficient_rows_give_only_the_directions_they_have(
    shape: tuple[int, int], rank: int
) -> None:
    stack = with_spectrum(15, *shape, np.array([4.0, 2.0, 1.0]))
    s, _, discarded = check(stack, rank)
    np.testing.assert_allclose(s, [4.0, 2.0, 1.0][:rank], rtol=1e-12)
    np.testing.assert_allclose(discarded, 4.0 if rank == 1 else 0.0, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("times", [2, 50])
def test_equal_rows_count_as_one_direction(times: int) -> None:
    row = np.array([[3.0, 0.0, 4.0]])
    s, vt, discarded = check(np.repeat(row, times, axis=0), 3)
    np.testing.assert_allclose(s, [5.0 * np.sqrt(times)], rtol=1e-14)
    np.testing.assert_allclose(np.abs(vt), row / 5.0, rtol=0, atol=1e-15)
    assert discarded < 1e-28 * times


@pytest.mark.parametrize("shape", [(1, 3), (4, 2), (2, 50), (50, 60)])
def test_zero_rows_give_no_direction(shape: tuple[int, int]) -> None:
    s, vt, discarded = check(np.zeros(shape), 2)
    assert s.shape == (0,)
    assert vt.shape == (0, shape[1])
    assert discarded == 0.0


def test_no_rows_give_no_direction() -> None:
    s, vt, discarded = check(np.zeros((0, 4)), 3)
    assert s.shape == (0,)
    assert vt.shape == (0, 4)
    assert discarded == 0.0


def test_zero_rows_and_columns_around_the_data_change_nothing() -> None:
    inner = gaussian(16, 6, 5)
    padded = np.zeros((10, 9))
    padded[2:8, 1:6] = inner
    s, vt, discarded = check(padded, 3)
    exact = np.linalg.svd(inner, compute_uv=False)
    np.testing.assert_allclose(s, exact[:3], rtol=1e-12)
    np.testing.assert_allclose(discarded, exact[3] ** 2, rtol=1e-12)
    assert np.abs(np.delete(vt, np.s_[1:6], axis=1)).max() < 1e-15


@pytest.mark.parametrize("exponent", [-100, -124, -125, -126, -150, -160, -200, -300])
@pytest.mark.parametrize("shape", [(8, 30), (30, 8)])
def test_a_tiny_scale_changes_only_the_scale(shape: tuple[int, int], exponent: int) -> None:
    stack = gaussian(17, *shape)
    expected, _, discarded = compress(stack, 4)
    s, _, tiny_discarded = check(10.0**exponent * stack, 4)
    np.testing.assert_allclose(s, 10.0**exponent * expected, rtol=1e-12)
    # Squares below 1e-308 cannot be told from nothing.
    np.testing.assert_allclose(
        tiny_discarded, 10.0**exponent * discarded * 10.0**exponent, rtol=1e-9, atol=1e-307
    )


def test_the_smallest_number_there_is_makes_a_direction() -> None:
    s, vt, discarded = compress(np.array([[0.0, 5e-324], [0.0, 0.0]]), 2)
    np.testing.assert_array_equal(s, [5e-324])
    np.testing.assert_allclose(np.abs(vt), [[0.0, 1.0]])
    assert discarded == 0.0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("k", "b"), [(10, 40), (20, 20), (3, 60), (40, 1)])
def test_known_directions_keep_the_bounds(seed: int, k: int, b: int) -> None:
    stack = stream_stack(seed, k, b, 70)
    s, _, discarded = check(stack, k, known=k)
    exact = np.linalg.svd(stack, compute_uv=False)
    assert np.all(s <= exact[:k] * (1 + 1e-12))
    assert np.all(s**2 + discarded >= exact[:k] ** 2)
    np.testing.assert_allclose(s, exact[:k], rtol=0.02)


def test_known_directions_are_refined_and_not_solved_anew() -> None:
    stack = stream_stack(0, 20, 40, 70)
    refined, anew = compress(stack, 20, known=20), compress(stack, 20)
    assert not np.array_equal(refined[0], anew[0])
    assert refined[2] > anew[2]


@pytest.mark.parametrize(
    ("k", "b", "d", "known"),
    [(20, 40, 70, 19), (20, 40, 70, 0), (20, 15, 70, 20), (20, 60, 70, 20)],
    ids=["fewer known", "none known", "small order", "taller than wide"],
)
def test_known_directions_are_not_used_where_they_do_not_pay(
    k: int, b: int, d: int, known: int
) -> None:
    stack = stream_stack(1, k, b, d)
    s, _, discarded = check(stack, k, known=known)
    exact = np.linalg.svd(stack, compute_uv=False)
    np.testing.assert_allclose(s, exact[:k], rtol=1e-11)
    np.testing.assert_allclose(discarded, exact[k] ** 2, rtol=1e-9)


def test_known_directions_that_the_new_rows_outgrow_are_solved_anew() -> None:
    stack = np.zeros((50, 70))
    stack[:10, :10] = np.diag(np.arange(20.0, 10.0, -1.0))
    stack[10:, 10:] = 100.0 * gaussian(19, 40, 60)
    s, _, discarded = check(stack, 10, known=10)
    exact = np.linalg.svd(stack, compute_uv=False)
    np.testing.assert_allclose(s, exact[:10], rtol=1e-11)
    np.testing.assert_allclose(discarded, exact[10] ** 2, rtol=1e-9)


def test_known_directions_of_a_graded_spectrum_keep_their_digits() -> None:
    s = np.logspace(0, -9, 15)
    q = np.linalg.qr(gaussian(18, 90, 45)).Q.T
    stack = np.vstack([s[:, None] * q[:15], 1e-11 * q[15:]])
    found, _, _ = check(stack, 15, known=15)
    np.testing.assert_allclose(found, s, rtol=1e-5)


def test_the_same_stack_gives_the_same_bits() -> None:
    stack = stream_stack(3, 20, 40, 70)
    first, second = compress(stack, 20, known=20), compress(stack.copy(), 20, known=20)
    np.testing.assert_array_equal(first[0], second[0])
    np.testing.assert_array_equal(first[1], second[1])
    assert first[2] == second[2]


def test_known_directions_may_be_all_rows() -> None:
    stack = np.linspace(2.0, 1.0, 50)[:, None] * np.eye(50, 100)
    s, _, discarded = check(stack, 50, known=50)
    np.testing.assert_allclose(s, np.linspace(2.0, 1.0, 50), rtol=1e-12)
    assert discarded == 0.0
