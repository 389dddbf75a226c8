"""The rank follows the share of the last direction, one step at a time."""

import numpy as np
import pytest

from eigenfed.linalg.stream import adapt_rank

ENERGY = (0.01, 0.10)


@pytest.mark.parametrize(
    ("s", "rank", "limit", "expected"),
    [
        pytest.param([3.0, 2.0, 1.0], 2, 4, 3, id="grows above the upper bound"),
        pytest.param([300.0, 2.0, 1.0], 2, 4, 1, id="shrinks below the lower bound"),
        pytest.param([20.0, 1.0, 1.0], 2, 4, 2, id="stays between the bounds"),
        pytest.param([3.0, 2.0, 1.0], 2, 2, 2, id="grows no further than the limit"),
        pytest.param([3.0, 2.0, 1.0], 1, 2, 2, id="grows up to the limit"),
        pytest.param([3.0, 2.0], 2, 4, 2, id="grows into no direction without energy"),
        pytest.param([3.0], 1, 4, 1, id="one direction and no other"),
        pytest.param([3.0, 1e-9], 1, 4, 2, id="one direction always has the whole share"),
        pytest.param([3.0, 1e-9], 2, 4, 1, id="noise is dropped"),
        pytest.param([9.0, 1.0, 1.0], 2, 4, 2, id="stays at the upper bound itself"),
        pytest.param([99.0, 1.0, 1.0], 2, 4, 2, id="stays at the lower bound itself"),
        pytest.param([3.0, 2.0], 5, 8, 4, id="shrinks by one where directions are absent"),
        pytest.param([], 1, 4, 1, id="no data, one direction"),
        pytest.param([], 3, 4, 3, id="no data, three directions"),
        pytest.param([1.0] * 12, 8, 20, 9, id="share above a tenth among eight"),
        pytest.param([1.0] * 12, 10, 20, 10, id="share of exactly a tenth among ten"),
    ],
)
def test_rank_moves_by_at_most_one(s: list[float], rank: int, limit: int, expected: int) -> None:
    assert adapt_rank(np.array(s), rank, ENERGY, limit) == expected


def test_directions_beyond_the_rank_do_not_count() -> None:
    few, many = np.array([20.0, 1.0, 0.9]), np.array([20.0, 1.0, *[0.9] * 30])
    assert adapt_rank(few, 2, ENERGY, 9) == adapt_rank(many, 2, ENERGY, 9) == 2


@pytest.mark.parametrize(
    ("energy", "expected"), [((0.01, 0.3), 3), ((0.01, 0.5), 2), ((0.45, 0.5), 1)]
)
def test_bounds_are_those_given(energy: tuple[float, float], expected: int) -> None:
    assert adapt_rank(np.array([3.0, 2.0, 1.0]), 2, energy, 4) == expected


def test_scale_of_the_data_does_not_matter() -> None:
    for scale in (1e-200, 1e200):
        assert adapt_rank(scale * np.array([3.0, 2.0, 1.0]), 2, ENERGY, 4) == 3
