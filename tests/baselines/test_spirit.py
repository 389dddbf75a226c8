"""SPIRIT against the planted subspace and the energy of all rows."""

import numpy as np
import pytest

from eigenfed.arrays import Array
from eigenfed.baselines import Spirit
from eigenfed.errors import InputError

D = 20


def planted(seed: int, n: int, strengths: list[float], noise: float) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    truth = np.linalg.qr(rng.standard_normal((D, len(strengths)))).Q.T
    signal = rng.standard_normal((n, len(strengths))) * strengths
    return signal @ truth + noise * rng.standard_normal((n, D)), truth


def sine(basis: Array, other: Array) -> float:
    """Sine of the largest angle between a span of orthonormal rows and one that contains it."""
    return float(np.linalg.norm(other - other @ basis.T @ basis, 2))


def retained(rows: Array, components: Array) -> float:
    return float(np.sum((rows @ components.T) ** 2) / np.sum(rows**2))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("forgetting", [1.0, 0.99])
@pytest.mark.parametrize("k", [1, D])
def test_retained_energy_ends_within_its_bounds(seed: int, forgetting: float, k: int) -> None:
    rows, _ = planted(seed, 2000, [2.0, 2.0, 2.0], noise=0.15)
    assert 0.95 < retained(rows, np.linalg.svd(rows, full_matrices=False).Vh[:3]) < 0.98
    tracker = Spirit(k, forgetting=forgetting).partial_fit(rows)
    assert 0.95 <= tracker.retained_energy_ <= 0.98
    assert 0.95 <= retained(rows, tracker.components_) <= 0.985
    assert 3 <= len(tracker.components_) <= 10


@pytest.mark.parametrize("seed", range(3))
def test_a_planted_subspace_is_recovered(seed: int) -> None:
    rows, truth = planted(seed, 2000, [3.0, 2.0, 1.5], noise=0.15)
    tracker = Spirit(forgetting=1.0).partial_fit(rows)
    assert sine(tracker.components_, truth) < 0.02


@pytest.mark.parametrize("seed", range(3))
def test_directions_come_in_order_and_agree_with_all_rows(seed: int) -> None:
    rows, _ = planted(seed, 4000, [4.0, 2.0], noise=0.15)
    principal = np.linalg.eigh(rows.T @ rows).eigenvectors[:, :-3:-1].T
    components = Spirit(2, forgetting=1.0, energy=(0.5, 1.0)).partial_fit(rows).components_
    np.testing.assert_allclose(np.abs(components @ principal.T), np.eye(2), atol=0.05)


@pytest.mark.parametrize("seed", range(3))
def test_a_new_direction_raises_the_number_of_variables(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = np.linalg.qr(rng.standard_normal((D, 2))).Q.T
    signal = rng.standard_normal((2000, 2)) * [2.0, 4.0]
    signal[:1000, 1] = 0.0
    rows = signal @ truth + 0.07 * rng.standard_normal((2000, D))
    tracker = Spirit(forgetting=0.98).partial_fit(rows[:1000])
    assert sine(tracker.components_, truth[1:]) > 0.9
    before = len(tracker.components_)
    tracker.partial_fit(rows[1000:])
    assert len(tracker.components_) > before
    assert sine(tracker.components_, truth) < 0.1


def test_variables_that_are_not_needed_are_dropped() -> None:
    rows, truth = planted(0, 1500, [2.0], noise=0.02)
    tracker = Spirit(10, forgetting=0.96).partial_fit(rows)
    assert len(tracker.components_) == 1
    assert sine(tracker.components_, truth) < 0.05


def test_the_number_of_variables_stays_between_one_and_the_features() -> None:
    rows = np.random.default_rng(0).standard_normal((300, D))
    assert len(Spirit(energy=(0.9999, 0.99999)).partial_fit(rows).components_) == D
    assert len(Spirit(5, energy=(1e-9, 1e-8)).partial_fit(rows).components_) == 1


def test_weights_follow_the_printed_recursion() -> None:
    """By hand: y = 1, d = 0.005 + 1, e = (0, 2), so w = (1, 2 / 1.005) after the first row."""
    tracker = Spirit(forgetting=0.5, energy=(1e-9, 1.0)).partial_fit([[1.0, 2.0]])
    weights = np.array([1.0, 2 / 1.005])
    assert sine(tracker.components_, weights[None] / np.linalg.norm(weights)) < 1e-15
    row = np.array([3.0, -1.0])
    y = weights @ row
    power = 0.5 * 1.005 + y**2
    weights = weights + y * (row - y * weights) / power
    tracker.partial_fit(row[None])
    assert sine(tracker.components_, weights[None] / np.linalg.norm(weights)) < 1e-15


def test_a_new_variable_begins_at_the_next_unit_vector() -> None:
    tracker = Spirit(energy=(0.6, 1.0)).partial_fit([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    np.testing.assert_array_equal(tracker.components_, np.eye(3)[:2])
    second = np.array([0.0, 1.0, 2 / (4 + 0.96 * 0.01)])  # y = 2 and e = (0, 0, 1)
    components = tracker.partial_fit([[0.0, 2.0, 1.0]]).components_
    np.testing.assert_allclose(components[1], second / np.linalg.norm(second), atol=1e-15)


def test_a_variable_that_begins_in_the_span_of_the_others_leaves_them_orthonormal() -> None:
    """The second variable begins at the unit vector that the first has already become."""
    rows = np.zeros((400, 3))
    rows[:, 1] = 5.0
    rows[:, 0] = 1e-9
    tracker = Spirit(forgetting=1.0).partial_fit(rows)
    tracker.partial_fit([[0.0, 0.0, 200.0]])
    components = tracker.components_
    assert len(components) == 2
    np.testing.assert_allclose(components @ components.T, np.eye(2), atol=1e-14)
    assert abs(components[0, 1]) > 0.999


def test_a_variable_that_no_row_reaches_does_not_break_a_long_stream() -> None:
    """Without a floor its power, 0.01 * 0.3^1000, is zero and divides."""
    rows = np.zeros((1000, 2))
    rows[:, 1] = np.random.default_rng(0).standard_normal(1000)
    components = Spirit(forgetting=0.3).partial_fit(rows).components_
    np.testing.assert_array_equal(components, np.eye(2))


def test_rows_of_zeros_are_wholly_retained() -> None:
    assert Spirit().partial_fit(np.zeros((5, D))).retained_energy_ == 1.0


def test_retained_energy_before_any_rows_is_refused() -> None:
    with pytest.raises(InputError, match="retained_energy_ needs at least 1 row and Spirit"):
        _ = Spirit().retained_energy_


@pytest.mark.parametrize("value", [0.0, -0.5, 1.01, np.nan])
def test_bad_forgetting_is_refused(value: float) -> None:
    with pytest.raises(InputError, match=r"forgetting=.* must be above 0 and at most 1"):
        Spirit(forgetting=value)


@pytest.mark.parametrize("value", [(0.98, 0.95), (0.95, 0.95), (0.0, 0.5), (0.95, 1.1)])
def test_bad_energy_bounds_are_refused(value: tuple[float, float]) -> None:
    with pytest.raises(InputError, match=r"energy=.* must be two increasing fractions"):
        Spirit(energy=value)
