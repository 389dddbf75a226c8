"""Block Lanczos against dense algebra: the basis, the Ritz pairs, and residuals that are true."""

import numpy as np
import pytest

from eigenfed.arrays import Array
from eigenfed.linalg.lanczos import BlockLanczos, rank_revealing_qr


def symmetric(seed: int, values: Array) -> Array:
    """Matrix with these eigenvalues, in general position."""
    rng = np.random.default_rng(seed)
    q = np.linalg.qr(rng.standard_normal((len(values), len(values)))).Q
    matrix: Array = (q * values) @ q.T
    return (matrix + matrix.T) / 2


def grown(matrix: Array, width: int, blocks: int, seed: int = 0) -> BlockLanczos:
    """Take up to so many products."""
    rng = np.random.default_rng(seed)
    space = BlockLanczos(np.linalg.qr(rng.standard_normal((len(matrix), width))).Q)
    for i in range(blocks):
        space.take(matrix @ space.block)
        if not space.room or i == blocks - 1:
            break
        space.extend()
    return space


def defect(columns: Array) -> float:
    return float(np.abs(columns.T @ columns - np.eye(columns.shape[1])).max(initial=0.0))


SPECTRA = {
    "falling": 0.8 ** np.arange(120),
    "steep": 0.3 ** np.arange(120),
    "flat": np.linspace(1.0, 2.0, 120),
    "with ties": np.repeat([5.0, 2.0, 1.0, 0.1], 30),
    "far and near": np.concatenate([[1e6, 1e6 - 1.0], np.linspace(1, 2, 118)]),
}


@pytest.mark.parametrize("kind", SPECTRA)
@pytest.mark.parametrize(("width", "blocks"), [(1, 60), (4, 20), (9, 14), (40, 3)])
def test_the_basis_stays_orthonormal_and_residuals_are_true(
    kind: str, width: int, blocks: int
) -> None:
    matrix = symmetric(1, SPECTRA[kind])
    size = float(np.abs(SPECTRA[kind]).max())
    space = grown(matrix, width, blocks)
    assert defect(space.basis) < 1e-12
    k = min(width, 5)
    values, vectors = space.ritz(k)
    vt = space.components(vectors)
    true = matrix @ vt.T - vt.T * values[:k]
    told = np.linalg.norm(space.residuals(vectors), axis=0)
    np.testing.assert_allclose(told, np.linalg.norm(true, axis=0), rtol=1e-6, atol=1e-13 * size)
    inner = space.basis.T @ matrix @ space.basis
    exact = np.linalg.eigvalsh(inner)[::-1]
    np.testing.assert_allclose(values, exact[: len(values)], rtol=0, atol=1e-12 * size)


def test_a_basis_of_everything_has_all_eigenvalues_and_no_room() -> None:
    matrix = symmetric(2, np.linspace(1.0, 4.0, 11))
    space = grown(matrix, 4, 10)
    assert space.room == 0
    assert space.basis.shape == (11, 11)
    assert defect(space.basis) < 1e-13
    values, vectors = space.ritz(20)
    np.testing.assert_allclose(values, np.linspace(4.0, 1.0, 11), rtol=1e-13)
    assert vectors.shape == (11, 11)


def test_an_invariant_start_ends_at_once() -> None:
    matrix = np.diag([3.0, 2.0, 1.0, 0.5])
    space = BlockLanczos(np.eye(4)[:, :2])
    space.take(matrix @ space.block)
    assert space.room == 0
    values, vectors = space.ritz(2)
    np.testing.assert_allclose(values, [3.0, 2.0])
    np.testing.assert_array_equal(space.residuals(vectors), np.zeros((0, 2)))


def test_the_zero_matrix_has_nothing_to_go_on_to() -> None:
    space = BlockLanczos(np.eye(5)[:, :2])
    space.take(np.zeros((5, 2)))
    assert space.room == 0
    np.testing.assert_array_equal(space.ritz(2)[0], [0.0, 0.0])


@pytest.mark.parametrize("size", [1e-200, 1e-120, 1e120, 1e200])
def test_entries_may_be_too_large_or_small_to_square(size: float) -> None:
    matrix = size * symmetric(3, np.power(0.5, np.arange(30.0)))
    space = grown(matrix, 3, 8)
    assert defect(space.basis) < 1e-12
    values, vectors = space.ritz(3)
    np.testing.assert_allclose(values[:3], size * 0.5 ** np.arange(3), rtol=1e-12)
    vt = space.components(vectors)
    true = (matrix @ vt.T - vt.T * values[:3]) / size
    told = np.linalg.norm(space.residuals(vectors) / size, axis=0)
    np.testing.assert_allclose(told, np.linalg.norm(true, axis=0), rtol=1e-5, atol=1e-13)


@pytest.mark.parametrize("least", [0.5, 1e-3, 1e-6, 1e-10])
@pytest.mark.parametrize("size", [1.0, 1e-250, 1e250])
def test_columns_become_orthonormal_however_near_they_are(least: float, size: float) -> None:
    rng = np.random.default_rng(4)
    left = np.linalg.qr(rng.standard_normal((50, 4))).Q
    right = np.linalg.qr(rng.standard_normal((4, 4))).Q
    a = (left * np.geomspace(1.0, least, 4)) @ right
    frame, coefficients = rank_revealing_qr(size * a, 1e-14 * size)
    assert frame.shape == (50, 4)
    assert defect(frame) < 1e-14
    np.testing.assert_allclose(frame @ (coefficients / size), a, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("floor", "kept"), [(0.0, 3), (1e-3, 2), (0.3, 1), (2.0, 0)])
def test_directions_below_the_floor_are_left_out(floor: float, kept: int) -> None:
    a = np.zeros((6, 3))
    a[:3] = np.diag([1.0, 1e-2, 1e-4])
    frame, coefficients = rank_revealing_qr(a.copy(), floor)
    assert frame.shape == (6, kept)
    assert coefficients.shape == (kept, 3)
    gone = a - frame @ coefficients
    assert np.linalg.norm(gone, 2) <= floor


def test_no_columns_and_zero_columns_span_nothing() -> None:
    for a in (np.zeros((4, 0)), np.zeros((4, 2))):
        frame, coefficients = rank_revealing_qr(a, 1e-14)
        assert frame.shape == (4, 0)
        assert coefficients.shape == (0, a.shape[1])


@pytest.mark.parametrize("room", [8, 10_000])
def test_a_basis_that_outgrows_its_room_is_the_same(
    room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = symmetric(3, SPECTRA["falling"])
    roomy = grown(matrix, 4, 12)
    monkeypatch.setattr("eigenfed.linalg.lanczos.FIRST_ROOM_BYTES", room)
    monkeypatch.setattr("eigenfed.linalg.lanczos.LARGE_ROOM_BYTES", room)
    tight = grown(matrix, 4, 12)
    np.testing.assert_array_equal(tight.basis, roomy.basis)
    assert tight.basis.shape == (120, 48)


def test_a_basis_that_somebody_holds_stays_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eigenfed.linalg.lanczos.FIRST_ROOM_BYTES", 8)
    monkeypatch.setattr("eigenfed.linalg.lanczos.LARGE_ROOM_BYTES", 8)
    matrix = symmetric(3, SPECTRA["falling"])
    space = BlockLanczos(np.eye(120)[:, :4])
    held, copies = [], []
    for _ in range(6):
        space.take(matrix @ space.block)
        space.extend()
        held.append(space.basis)
        copies.append(space.basis.copy())
    for basis, copy in zip(held, copies, strict=True):
        np.testing.assert_array_equal(basis, copy)


@pytest.mark.parametrize("count", [3, 60])
def test_further_directions_may_join_a_block(count: int) -> None:
    rng = np.random.default_rng(0)
    spectrum = np.linspace(2.0, 1.0, 40)
    space = BlockLanczos(np.linalg.qr(rng.standard_normal((40, 2))).Q)
    for step in range(6):
        space.take(spectrum[:, None] * space.block)
        if step == 5 or not space.room:
            break
        space.extend(rng.standard_normal((40, count)) if step == 2 else None)
    basis = space.basis
    assert basis.shape[1] == (40 if count == 60 else 6 + 3 * 5)
    np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-13)
    values, vectors = space.ritz(4)
    components = space.components(vectors)
    left = spectrum * components - values[:, None] * components
    norms = np.linalg.norm(space.residuals(vectors), axis=0)
    np.testing.assert_allclose(np.linalg.norm(left, axis=1), norms, atol=1e-13)


@pytest.mark.parametrize("scale", [1e-300, 1e-304, 1e300])
def test_the_basis_of_tiny_and_huge_products_is_orthonormal_too(scale: float) -> None:
    matrix = symmetric(3, np.logspace(0.0, -31.0, 25))
    plain, scaled = grown(matrix, 5, 5), grown(matrix * scale, 5, 5)
    assert defect(scaled.basis) < 1e-13
    np.testing.assert_allclose(scaled.ritz_values(9) / scale, plain.ritz_values(9), atol=1e-14)
    np.testing.assert_allclose(scaled.trace / scale, plain.trace, rtol=1e-12)
    np.testing.assert_allclose(scaled.coupling / scale, plain.coupling, atol=1e-14)
