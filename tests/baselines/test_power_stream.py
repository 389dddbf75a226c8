"""The block power method against the planted spikes and an eigendecomposition of a block."""

import numpy as np
import pytest

from eigenfed.arrays import Array
from eigenfed.baselines import PowerStream
from eigenfed.errors import InputError

D, K = 40, 3


def spiked(seed: int, n: int, noise: float) -> tuple[Array, Array]:
    """Rows of the spiked covariance model, A'A + noise^2 I, and orthonormal rows A."""
    rng = np.random.default_rng(seed)
    spikes = np.linalg.qr(rng.standard_normal((D, K))).Q.T
    return rng.standard_normal((n, K)) @ spikes + noise * rng.standard_normal((n, D)), spikes


def sine(basis: Array, other: Array) -> float:
    """Sine of the largest angle between the spans of orthonormal rows."""
    return float(np.linalg.norm(other - other @ basis.T @ basis, 2))


def errors_by_block(block_size: int, n_blocks: int, seed: int) -> list[float]:
    rows, spikes = spiked(seed, block_size * n_blocks, noise=0.5)
    # another seed than that of the spikes, or the tracker begins at them
    tracker = PowerStream(K, block_size=block_size, random_state=seed + 100)
    parts = np.split(rows, n_blocks)
    return [sine(tracker.partial_fit(part).components_, spikes) for part in parts]


@pytest.mark.parametrize("seed", range(3))
def test_error_falls_with_the_blocks_to_the_floor_of_their_size(seed: int) -> None:
    """A step from the truth errs by s / sqrt(1 + s^2) (sqrt d + sqrt k) / sqrt B, for noise s.

    This norm of a Gaussian matrix is 0.051 here.
    """
    errors = errors_by_block(block_size=5000, n_blocks=10, seed=seed)
    assert errors[0] > 0.7
    assert errors[0] > errors[1] > errors[2] > errors[3]
    assert max(errors[-3:]) < 0.06


def test_larger_blocks_lower_the_floor() -> None:
    small = np.mean(errors_by_block(500, 15, seed=0)[-5:])
    large = np.mean(errors_by_block(8000, 15, seed=0)[-5:])
    assert large == pytest.approx(small / np.sqrt(8000 / 500), rel=0.3)


def test_one_block_is_one_step_of_orthogonal_iteration() -> None:
    rows, _ = spiked(0, 60, noise=0.3)
    tracker = PowerStream(K, block_size=60, random_state=1)
    once = tracker.partial_fit(rows).components_
    twice = tracker.partial_fit(rows).components_
    stepped = np.linalg.svd(rows.T @ rows @ once.T, full_matrices=False).U.T
    assert sine(twice, stepped) < 1e-12 < 1e-3 < sine(twice, once)


def test_the_same_block_again_and_again_gives_its_principal_directions() -> None:
    block, _ = spiked(1, 200, noise=0.3)
    tracker = PowerStream(K, block_size=200, random_state=0)
    for _ in range(60):
        tracker.partial_fit(block)
    principal = np.linalg.eigh(block.T @ block).eigenvectors[:, -K:].T
    assert sine(tracker.components_, principal) < 1e-12


def test_rows_of_an_unfinished_block_wait() -> None:
    rows, _ = spiked(0, 150, noise=0.3)
    tracker = PowerStream(K, block_size=100, random_state=0).partial_fit(rows[:100])
    first = tracker.components_
    np.testing.assert_array_equal(tracker.partial_fit(rows[100:]).components_, first)
    assert (tracker.n_blocks_, tracker.n_rows_) == (1, 150)
    assert sine(tracker.partial_fit(rows[:50]).components_, first) > 1e-3
    assert tracker.n_blocks_ == 2


def test_block_size_is_the_number_of_features_unless_given() -> None:
    rows, _ = spiked(0, 10 * D, noise=0.3)
    default = PowerStream(K, random_state=0).partial_fit(rows)
    given = PowerStream(K, block_size=D, random_state=0).partial_fit(rows)
    assert default.n_blocks_ == 10
    np.testing.assert_array_equal(default.components_, given.components_)


def test_components_before_the_first_full_block_are_refused() -> None:
    tracker = PowerStream(K, block_size=50).partial_fit(np.ones((20, D)))
    with pytest.raises(
        InputError, match=r"components_ needs a full block of 50 rows and .* seen 20"
    ):
        _ = tracker.components_


@pytest.mark.parametrize("value", [K - 1, 0, 10.0])
def test_bad_block_sizes_are_refused(value: int) -> None:
    with pytest.raises(InputError, match=r"block_size=.* must be an integer of at least 3"):
        PowerStream(K, block_size=value)
