"""GROUSE against the true subspace, exact geodesics, and an eigendecomposition of all rows."""

import numpy as np
import pytest
from scipy.linalg import expm

from eigenfed.arrays import Array
from eigenfed.baselines import Grouse
from eigenfed.errors import InputError

D, K = 20, 3


def orthonormal(rng: np.random.Generator, k: int = K) -> Array:
    rows: Array = np.linalg.qr(rng.standard_normal((D, k))).Q.T
    return rows


def low_rank(seed: int, n: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    truth = orthonormal(rng)
    return rng.standard_normal((n, K)) @ truth, truth


def with_missing(rows: Array, share: float) -> Array:
    gone = np.random.default_rng(9).random(rows.shape) < share
    return np.where(gone, np.nan, rows)


def sine(basis: Array, other: Array) -> float:
    """Sine of the largest angle between the spans of orthonormal rows."""
    return float(np.linalg.norm(other - other @ basis.T @ basis, 2))


def turned(basis: Array, row: Array, angle: float) -> Array:
    """Rotate the basis in the plane of the row's fit and residual, by a matrix exponential."""
    fit = row @ basis.T @ basis
    residual = row - fit
    p, r = fit / np.linalg.norm(fit), residual / np.linalg.norm(residual)
    rotation: Array = basis @ expm(angle * (np.outer(r, p) - np.outer(p, r))).T
    return rotation


def tracker_and_next_row(step_size: float | None) -> tuple[Grouse, Array, Array]:
    rows, _ = low_rank(3, 5)
    tracker = Grouse(K, step_size=step_size, random_state=1).partial_fit(rows)
    row = np.random.default_rng(8).standard_normal(D)
    return tracker, tracker.components_, row


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_greedy_steps_find_a_subspace_without_noise(seed: int, share: float) -> None:
    rows, truth = low_rank(seed, 1000)
    # another seed than that of the truth, or the tracker begins at it
    tracker = Grouse(K, random_state=seed + 100)
    parts = np.split(with_missing(rows, share), [1])
    errors = [sine(tracker.partial_fit(part).components_, truth) for part in parts]
    assert errors[0] > 0.5
    assert errors[1] < 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_the_error_falls_by_a_factor_with_half_of_the_entries_missing(seed: int) -> None:
    rows, truth = low_rank(seed, 400)
    tracker = Grouse(K, random_state=seed + 100)
    parts = np.split(with_missing(rows, 0.5), 4)
    errors = np.array([sine(tracker.partial_fit(part).components_, truth) for part in parts])
    assert errors[0] > 1e-4
    assert (errors[1:] < 0.1 * errors[:-1]).all()


@pytest.mark.parametrize("step_size", [None, 2.0])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_basis_stays_orthonormal_over_ten_thousand_rows(
    step_size: float | None, share: float
) -> None:
    rows = with_missing(np.random.default_rng(0).standard_normal((10_000, D)), share)
    components = Grouse(K, step_size=step_size, random_state=0).partial_fit(rows).components_
    np.testing.assert_allclose(components @ components.T, np.eye(K), rtol=0, atol=1e-10)


def test_basis_stays_orthonormal_where_residuals_are_rounding_alone() -> None:
    rows = np.random.default_rng(0).standard_normal((1000, D))
    components = Grouse(D, step_size=1e15, random_state=0).partial_fit(rows).components_
    np.testing.assert_allclose(components @ components.T, np.eye(D), rtol=0, atol=1e-10)


def test_a_long_turn_along_a_short_residual_keeps_the_basis_orthonormal() -> None:
    rows, truth = low_rank(0, 300)
    tracker = Grouse(K, random_state=5).partial_fit(rows)
    tracker.step_size = 2e13
    before = tracker.components_
    row = truth.sum(axis=0) + 1e-12 * np.random.default_rng(2).standard_normal(D)
    after = tracker.partial_fit(row[None]).components_
    assert sine(after, before) > 0.1
    np.testing.assert_allclose(after @ after.T, np.eye(K), rtol=0, atol=1e-13)


def test_a_given_step_of_two_converges_on_noisy_rows() -> None:
    """The setting of Federated PCA, on rows of unit signal: within 0.01 of all rows' PCA."""
    rows, _ = low_rank(0, 10_000)
    noisy = rows + 0.1 * np.random.default_rng(1).standard_normal(rows.shape)
    principal = np.linalg.eigh(noisy.T @ noisy).eigenvectors[:, -K:].T
    given = Grouse(K, step_size=2.0, random_state=5).partial_fit(noisy).components_
    greedy = Grouse(K, random_state=5).partial_fit(noisy).components_
    assert sine(given, principal) < 0.01 < 0.1 < sine(greedy, principal)


def test_a_greedy_step_turns_the_span_along_the_geodesic_onto_the_row() -> None:
    tracker, before, row = tracker_and_next_row(step_size=None)
    fit = row @ before.T @ before
    angle = np.arccos(np.linalg.norm(fit) / np.linalg.norm(row))
    after = tracker.partial_fit(row[None]).components_
    assert sine(after, turned(before, row, angle)) < 1e-13
    assert sine(after, row[None] / np.linalg.norm(row)) < 1e-13
    assert sine(after, before) == pytest.approx(np.sin(angle))


def test_a_given_step_is_divided_by_the_number_of_the_row() -> None:
    tracker, before, row = tracker_and_next_row(step_size=0.4)
    fit = row @ before.T @ before
    angle = 0.4 * np.linalg.norm(fit) * np.linalg.norm(row - fit) / 6
    after = tracker.partial_fit(row[None]).components_
    assert sine(after, turned(before, row, float(angle))) < 1e-13
    assert sine(after, before) == pytest.approx(np.sin(angle))


def test_a_greedy_step_fits_what_was_observed_exactly() -> None:
    tracker, _, row = tracker_and_next_row(step_size=None)
    seen = np.arange(D) < 12
    after = tracker.partial_fit(np.where(seen, row, np.nan)[None]).components_
    weights = np.linalg.lstsq(after[:, seen].T, row[seen], rcond=None)[0]
    np.testing.assert_allclose(weights @ after[:, seen], row[seen], atol=1e-12)


def test_incremental_svd_is_the_limit_of_greedy_steps_for_long_rows() -> None:
    gaps = []
    for length in (1.0, 10.0, 1000.0):
        tracker, before, row = tracker_and_next_row(step_size=None)
        row *= length
        after = tracker.partial_fit(row[None]).components_
        gaps.append(sine(after, np.linalg.svd(np.vstack([before, row])).Vh[:K]))
    assert gaps[0] > 1e-2 > gaps[1] > 1e-4 > gaps[2]


def passed_over(before: Array) -> dict[str, Array]:
    outside = np.linalg.svd(before).Vh[-1]
    return {
        "all entries missing": np.full(D, np.nan),
        "zero": np.zeros(D),
        "inside the span": before[0],
        "orthogonal to the span": outside - outside @ before.T @ before,
        "fewer entries than components": np.where(np.arange(D) < K - 1, 1.0, np.nan),
    }


@pytest.mark.parametrize("step_size", [None, 0.5])
def test_rows_that_say_nothing_leave_the_span(step_size: float | None) -> None:
    tracker, before, _ = tracker_and_next_row(step_size)
    for row in passed_over(before).values():
        after = tracker.partial_fit(row[None]).components_
        assert sine(after, before) < 1e-13


def test_a_row_exactly_orthogonal_to_the_span_leaves_it() -> None:
    tracker = Grouse(1, random_state=0).partial_fit([[1.0, 0.0]] * 40)
    after = tracker.partial_fit([[0.0, 1.0]]).components_
    np.testing.assert_allclose(after, [[1.0, 0.0]], atol=1e-15)


def test_a_step_beyond_a_right_angle_is_passed_over() -> None:
    tracker, before, row = tracker_and_next_row(step_size=0.5)
    np.testing.assert_array_equal(tracker.partial_fit(100 * row[None]).components_, before)


@pytest.mark.parametrize("value", [0.0, -1.0, np.inf, np.nan])
def test_bad_steps_are_refused(value: float) -> None:
    with pytest.raises(InputError, match=r"step_size=.* must be positive and finite"):
        Grouse(K, step_size=value)
