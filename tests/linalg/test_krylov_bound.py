"""The bound on the next eigenvalue from a run itself holds, whatever the spectrum."""

import math

import numpy as np
import pytest

from eigenfed.arrays import Array
from eigenfed.linalg.krylov_bound import (
    FAILURE,
    RitzSpace,
    _bound_pseudo_inverse,
    bound_next_eigenvalue,
)
from eigenfed.linalg.lanczos import BlockLanczos

SPECTRA = {
    "flat": np.ones(60),
    "step": np.r_[np.full(5, 2.0), np.ones(55)],
    "tie": np.r_[5.0, 4.0, np.full(20, 3.0), np.linspace(1.0, 0.0, 38)],
    "geometric": 0.8 ** np.arange(60),
    "steep": 1e-1 ** np.arange(60),
    "linear": np.linspace(1.0, 0.0, 60),
    "rank two": np.r_[3.0, 1.0, np.zeros(58)],
    "far apart": np.r_[1e10, 1.0, 0.99, np.linspace(0.5, 0.4, 57)],
    "near tie": np.r_[2.0, 1.0, 1.0 - 1e-9, np.linspace(0.5, 0.0, 57)],
    "negative": np.linspace(1.0, -3.0, 60),
    "nothing": np.zeros(60),
}


def take_steps(
    spectrum: Array, width: int, rng: np.random.Generator, *, steps: int, noise: float = 0.0
) -> tuple[BlockLanczos, Array]:
    start = rng.standard_normal((len(spectrum), width))
    space = BlockLanczos(np.linalg.qr(start).Q)
    for step in range(steps):
        error = noise * rng.standard_normal(space.block.shape) / math.sqrt(len(spectrum) * width)
        space.take(spectrum[:, None] * space.block + error)
        if step == steps - 1 or not space.room:
            break
        space.extend()
    return space, start


@pytest.mark.parametrize("name", SPECTRA)
def test_the_bound_holds_after_any_number_of_steps(name: str) -> None:
    spectrum, rng = SPECTRA[name], np.random.default_rng(len(name))
    largest = float(np.abs(spectrum).max())
    rounding = 1e-14 * largest
    for _ in range(40):
        k, steps = int(rng.integers(0, 5)), int(rng.integers(1, 9))
        space, start = take_steps(spectrum, int(rng.integers(k + 1, 10)), rng, steps=steps)
        described = space.describe(float(np.linalg.norm(start, 2)), rounding)
        most = float(np.abs(spectrum).sum()) + rounding
        bound = bound_next_eigenvalue(described, k, most)
        assert bound >= np.sort(spectrum)[::-1][k] - rounding
        enough = (bound + most) / 2
        assert bound <= bound_next_eigenvalue(described, k, most, enough=enough) <= most


@pytest.mark.parametrize("name", SPECTRA)
def test_the_bound_holds_for_blocks_narrower_than_the_components(name: str) -> None:
    spectrum, rng = SPECTRA[name], np.random.default_rng(len(name))
    rounding = 1e-14 * float(np.abs(spectrum).max())
    most = float(np.abs(spectrum).sum()) + rounding
    for _ in range(12):
        width, steps = int(rng.integers(1, 6)), int(rng.integers(2, 13))
        space, start = take_steps(spectrum, width, rng, steps=steps)
        described = space.describe(float(np.linalg.norm(start, 2)), rounding)
        for k in range(width, min(len(described.values), 12)):
            assert bound_next_eigenvalue(described, k, most) >= np.sort(spectrum)[-k - 1] - rounding


def test_narrow_blocks_set_components_apart_step_by_step() -> None:
    spectrum = np.r_[np.linspace(9.0, 5.0, 12), np.linspace(1.0, 0.0, 288)]
    rng = np.random.default_rng(0)
    space, start = take_steps(spectrum, 4, rng, steps=18)
    described = space.describe(float(np.linalg.norm(start, 2)), 1e-14)
    assert 1.0 <= bound_next_eigenvalue(described, 12, 400.0) < 1.5
    assert bound_next_eigenvalue(described._replace(error=1e-2), 12, 400.0) == 400.0
    narrowest, start = take_steps(spectrum, 2, rng, steps=40)
    described = narrowest.describe(float(np.linalg.norm(start, 2)), 1e-14)
    assert bound_next_eigenvalue(described, 12, 400.0) == 400.0, "with no direction to spare"


def test_wider_blocks_keep_directions_to_spare_for_rounding_and_give_them_up_for_ties() -> None:
    """With two directions to spare, as for ties, this rounding would leave nothing certified."""
    spectrum = np.r_[0.97 ** np.arange(80), np.linspace(0.05, 0.0, 320)]
    space, start = take_steps(spectrum, 16, np.random.default_rng(0), steps=20)
    described = space.describe(float(np.linalg.norm(start, 2)), 1e-9)
    assert bound_next_eigenvalue(described, 60, 50.0) < 1.001 * spectrum[60]
    whole, start = take_steps(spectrum, 62, np.random.default_rng(0), steps=6)
    described = whole.describe(float(np.linalg.norm(start, 2)), 1e-9)
    assert bound_next_eigenvalue(described, 60, 50.0) < 1.02 * spectrum[60]
    tied = np.r_[np.full(14, 9.0), np.linspace(5.0, 4.0, 14), np.linspace(1.0, 0.0, 372)]
    space, start = take_steps(tied, 16, np.random.default_rng(0), steps=20)
    described = space.describe(float(np.linalg.norm(start, 2)), 1e-13)
    assert 1.0 <= bound_next_eigenvalue(described, 28, 400.0) < 1.2


@pytest.mark.parametrize("repeated", [4, 5, 9])
def test_an_eigenvalue_repeated_as_often_as_a_block_is_wide_is_not_certified(repeated: int) -> None:
    """Such a start finds four of its directions: what seems to follow them is far below."""
    spectrum = np.r_[np.full(repeated, 9.0), np.linspace(1.0, 0.0, 100)]
    space, start = take_steps(spectrum, 4, np.random.default_rng(0), steps=8)
    described = space.describe(float(np.linalg.norm(start, 2)), 1e-14)
    np.testing.assert_allclose(described.values[:6] > 8.0, np.arange(6) < 4)
    assert bound_next_eigenvalue(described, 4, 200.0) == 200.0
    assert bound_next_eigenvalue(described, 3, 200.0) >= 9.0 - 1e-12


@pytest.mark.parametrize("noise", [1e-12, 1e-7, 1e-3])
def test_the_error_of_products_is_counted(noise: float) -> None:
    """An error can hide an eigenvector that the start has: without it the bound would be wrong."""
    rng = np.random.default_rng(0)
    spectrum = np.r_[3.0, 2.0, np.linspace(1.0, 0.0, 58)]
    bounds = []
    for _ in range(20):
        space, start = take_steps(spectrum, 6, rng, steps=9, noise=noise)
        described = space.describe(float(np.linalg.norm(start, 2)), 3.0 * noise)
        bounds.append(bound_next_eigenvalue(described, 1, 40.0))
        assert 2.0 - 3.0 * noise <= bounds[-1]
        assert bounds[-1] >= bound_next_eigenvalue(described._replace(error=0.0), 1, 40.0)
    assert max(bounds) < (40.0 if noise > 1e-4 else 2.1)


def test_the_bound_is_close_once_the_run_has_converged() -> None:
    rng = np.random.default_rng(0)
    spectrum = np.r_[3.0, 2.0, 1.5, np.linspace(1.0, 0.0, 297)]
    space, start = take_steps(spectrum, 8, rng, steps=12)
    described = space.describe(float(np.linalg.norm(start, 2)), 1e-14)
    assert 1.5 <= bound_next_eigenvalue(described, 2, 200.0) < 1.501


def test_a_start_that_misses_the_leading_eigenvectors_is_not_believed() -> None:
    """With such a start, which no Gaussian matrix is, the Ritz values converge to the others."""
    spectrum = np.r_[9.0, np.linspace(1.0, 0.0, 59)]
    start = np.random.default_rng(0).standard_normal((60, 3))
    start[0] = 0.0
    space = BlockLanczos(np.linalg.qr(start).Q)
    for _ in range(10):
        space.take(spectrum[:, None] * space.block)
        space.extend()
    space.take(spectrum[:, None] * space.block)
    described = space.describe(float(np.linalg.norm(start, 2)), 1e-14)
    assert bound_next_eigenvalue(described, 0, 40.0) < 2.0, "the bound rests on the start"
    assert bound_next_eigenvalue(described, 3, 40.0) == 40.0, "and needs more columns than k"


def test_the_tail_of_the_least_singular_value_is_an_upper_bound() -> None:
    """At a large probability the formula can be tried: fewer starts are worse than it allows."""
    rng = np.random.default_rng(0)
    for width, leading in [(1, 1), (4, 1), (5, 3), (8, 5)]:
        spare = width - leading + 1
        typical = _bound_pseudo_inverse(width, leading) * (FAILURE / 0.1) ** (1.0 / spare)
        least = np.linalg.svd(rng.standard_normal((4000, width, leading)), compute_uv=False)[:, -1]
        assert np.mean(least < 1.0 / typical) <= 0.1


def test_nothing_is_claimed_where_inverses_overflow() -> None:
    values = np.array([3e-310, 1e-310])
    space = RitzSpace(values, np.eye(4, 2), np.zeros((1, 2)), start=1.0, error=0.0)
    assert bound_next_eigenvalue(space, 1, most=5e-310) == 5e-310
