"""Sines of principal angles against scipy, and where scipy's own keep too few digits."""

import re

import numpy as np
import pytest
from scipy.linalg import subspace_angles

from eigenfed.arrays import Array
from eigenfed.errors import InputError
from eigenfed.linalg.orthonormal import sines


def random_rows(seed: int, k: int, d: int) -> Array:
    q: Array = np.linalg.qr(np.random.default_rng(seed).standard_normal((d, k))).Q
    return q.T.copy()


def tilted(angles: Array, d: int) -> tuple[Array, Array]:
    """Return two spans with the given principal angles, in general position."""
    k = len(angles)
    frame = random_rows(7, d, d)
    first, second = frame[:k], frame[k : 2 * k]
    return np.cos(angles)[:, None] * first + np.sin(angles)[:, None] * second, first


@pytest.mark.parametrize(
    ("k", "other_k", "d"), [(1, 1, 2), (3, 3, 8), (2, 5, 9), (4, 4, 4), (5, 6, 40)]
)
def test_sines_agree_with_scipy(k: int, other_k: int, d: int) -> None:
    vt, other = random_rows(1, k, d), random_rows(2, other_k, d)
    expected = np.sin(subspace_angles(vt.T, other.T))
    np.testing.assert_allclose(sines(vt, other), expected, rtol=0, atol=1e-14)


def test_sines_come_largest_first_and_keep_small_angles() -> None:
    angles = np.array([1e-13, 1.2, 1e-4, 1e-9])
    vt, other = tilted(angles, 12)
    expected = np.sin(np.sort(angles)[::-1])
    np.testing.assert_allclose(sines(vt, other), expected, rtol=1e-6, atol=1e-15)


def test_sine_of_one_tiny_angle_keeps_its_digits() -> None:
    for angle in (1e-3, 1e-8, 1e-12, 1e-100, 0.0):
        found = sines(np.array([[np.cos(angle), np.sin(angle)]]), np.array([[1.0, 0.0]]))
        np.testing.assert_allclose(found, [np.sin(angle)], rtol=1e-15)


def test_sines_do_not_depend_on_the_basis_of_either_span() -> None:
    vt, other = tilted(np.array([0.3, 1e-3, 1e-6]), 9)
    turned = random_rows(3, 3, 3) @ vt
    mirrored = -random_rows(4, 3, 3) @ other
    np.testing.assert_allclose(sines(turned, mirrored), sines(vt, other), rtol=0, atol=1e-15)


def test_a_span_inside_the_other_has_no_angle() -> None:
    other = random_rows(5, 6, 10)
    assert sines(other[2:4], other).max() < 1e-15


def test_orthogonal_spans_have_sine_one_and_never_more() -> None:
    frame = random_rows(6, 8, 8)
    found = sines(frame[:4], frame[4:])
    np.testing.assert_allclose(found, np.ones(4), rtol=0, atol=1e-15)
    assert sines((1 + 1e-9) * frame[:4], frame[4:]).max() == 1.0


def test_no_rows_have_no_sines() -> None:
    assert sines(np.zeros((0, 3)), np.eye(3)).shape == (0,)


def test_arguments_stay_as_they_were() -> None:
    vt, other = random_rows(1, 2, 5), random_rows(2, 3, 5)
    kept, other_kept = vt.copy(), other.copy()
    sines(vt, other)
    np.testing.assert_array_equal(vt, kept)
    np.testing.assert_array_equal(other, other_kept)


@pytest.mark.parametrize("shape", [(1, 4), (2, 3), (2, 5), (1, 3)])
def test_other_of_the_wrong_shape_is_refused(shape: tuple[int, int]) -> None:
    message = (
        f"other has shape {shape} and must have the 4 columns of vt and at least its 2 rows. "
        "Swap the arguments or cut vt."
    )
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        sines(np.eye(2, 4), np.eye(*shape))
