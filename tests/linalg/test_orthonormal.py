"""Rows are mended, completed and signed without moving what was right."""

import numpy as np
import pytest
from sklearn.utils.extmath import svd_flip

from eigenfed.arrays import Array
from eigenfed.linalg.orthonormal import (
    column_norms,
    complete_rows,
    flip_signs,
    orthonormalise_rows,
)


def random_rows(seed: int, k: int, d: int) -> Array:
    """Orthonormal rows in general position."""
    q: Array = np.linalg.qr(np.random.default_rng(seed).standard_normal((d, k))).Q
    return q.T.copy()


def defect(vt: Array) -> float:
    return float(np.abs(vt @ vt.T - np.eye(len(vt))).max(initial=0.0))


def qr_of_rows(vt: Array) -> Array:
    """Gram and Schmidt from the first row down, signs as given: the oracle of the mending."""
    q, r = np.linalg.qr(vt.T)
    rows: Array = (q * np.sign(np.diag(r))).T
    return rows


@pytest.mark.parametrize("size", [1e-3, 1e-6, 1e-10])
@pytest.mark.parametrize(("k", "d"), [(1, 1), (1, 5), (4, 4), (7, 30), (40, 200)])
def test_mending_agrees_with_qr_from_the_first_row_down(k: int, d: int, size: float) -> None:
    noise = np.random.default_rng(1).standard_normal((k, d)) / np.sqrt(d)
    given = random_rows(0, k, d) + size * noise
    kept = given.copy()
    mended = orthonormalise_rows(given)
    assert defect(mended) < 1e-14
    np.testing.assert_allclose(mended, qr_of_rows(given), rtol=0, atol=1e-14)
    np.testing.assert_array_equal(given, kept)


def test_mending_keeps_the_direction_of_the_first_row() -> None:
    given = random_rows(2, 3, 8)
    given[0] *= 1.001
    given[2] += 1e-4 * given[0]
    first = orthonormalise_rows(given)[0]
    np.testing.assert_allclose(first, given[0] / np.linalg.norm(given[0]), rtol=0, atol=1e-15)


def test_mending_leaves_orthonormal_rows_in_place() -> None:
    given = random_rows(3, 6, 20)
    np.testing.assert_allclose(orthonormalise_rows(given), given, rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    ("j", "k", "d"),
    [(0, 1, 1), (0, 4, 4), (1, 2, 3), (3, 3, 3), (2, 5, 9), (1, 60, 60), (59, 60, 60)],
)
def test_completion_is_orthonormal_and_begins_with_the_rows_given(j: int, k: int, d: int) -> None:
    given = random_rows(4, j, d)
    kept = given.copy()
    completed = complete_rows(given, k)
    assert completed.shape == (k, d)
    assert defect(completed) < 4e-15
    np.testing.assert_array_equal(completed[:j], kept)
    np.testing.assert_array_equal(given, kept)


def test_completion_is_the_same_each_time() -> None:
    given = random_rows(5, 2, 10)
    np.testing.assert_array_equal(complete_rows(given, 7), complete_rows(given.copy(), 7))


def test_completion_of_nothing_is_the_first_canonical_vectors() -> None:
    np.testing.assert_array_equal(complete_rows(np.zeros((0, 4)), 3), np.eye(4)[:3])


def test_completion_takes_the_canonical_vector_that_is_least_covered() -> None:
    given = np.array([[0.8, 0.6, 0.0, 0.0], [0.0, 0.0, 0.28, 0.96]])
    third = complete_rows(given, 3)[2]
    expected = np.eye(4)[2] - 0.28 * given[1]
    np.testing.assert_allclose(third, expected / np.linalg.norm(expected), rtol=0, atol=1e-15)


@pytest.mark.parametrize("tilt", [1e-3, 1e-8, 1e-15])
def test_completion_of_rows_close_to_canonical_ones_is_orthonormal(tilt: float) -> None:
    given = orthonormalise_rows(np.eye(3, 6) + tilt * np.ones((3, 6)))
    completed = complete_rows(given, 6)
    assert defect(completed) < 4e-15
    assert np.linalg.matrix_rank(completed) == 6


@pytest.mark.parametrize("seed", range(3))
def test_signs_are_those_of_svd_flip_on_components(seed: int) -> None:
    given = random_rows(seed, 6, 11)
    kept = given.copy()
    signed = flip_signs(given)
    expected = svd_flip(np.zeros((2, 6)), given.copy(), u_based_decision=False)[1]
    np.testing.assert_array_equal(signed, expected)
    assert (signed.max(axis=1) == np.abs(signed).max(axis=1)).all()
    np.testing.assert_array_equal(given, kept)


def test_signing_twice_is_signing_once() -> None:
    signed = flip_signs(random_rows(6, 4, 5))
    np.testing.assert_array_equal(flip_signs(signed), signed)
    np.testing.assert_array_equal(flip_signs(-signed), signed)


def test_signing_accepts_zero_rows_and_no_rows() -> None:
    np.testing.assert_array_equal(flip_signs(np.zeros((2, 3))), np.zeros((2, 3)))
    assert flip_signs(np.zeros((0, 3))).shape == (0, 3)


@pytest.mark.parametrize("size", [1.0, 1e-300, 1e300])
def test_lengths_of_columns_whatever_their_size(size: float) -> None:
    columns = np.random.default_rng(5).standard_normal((9, 4))
    columns[:, 2] = 0.0
    expected = size * np.sqrt(np.sum(columns**2, axis=0))
    np.testing.assert_allclose(column_norms(size * columns), expected, rtol=1e-14)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_lengths_of_nothing_are_zero(shape: tuple[int, int]) -> None:
    np.testing.assert_array_equal(column_norms(np.zeros(shape)), np.zeros(shape[1]))
