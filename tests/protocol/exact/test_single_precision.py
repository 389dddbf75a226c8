"""The covariance in single precision: half the bytes, and put right in double precision."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from eigenfed import Covariance, FederatedPCA, InputError
from eigenfed.arrays import Array
from eigenfed.data.prepared import Prepared, single_error
from eigenfed.data.source import Source
from eigenfed.errors import PrivacyError
from eigenfed.linalg.orthonormal import sines
from eigenfed.protocol.decomposition import Certificate, Decomposition
from eigenfed.protocol.exact.covariance import correct_matrix
from federation import deviations, fitted, in_sites

SINGLE = Covariance(precision="single")
RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((400, 30)) * np.linspace(9.0, 0.5, 30) + 50.0


def graded(found: Decomposition) -> Certificate:
    assert found.certificate is not None
    return found.certificate


def true_residuals(found: Decomposition, matrix: Array) -> Array:
    left = matrix @ found.components.T - found.components.T * found.variances
    lengths: Array = np.sqrt(np.sum(left**2, axis=0)) / found.variances[0]
    return lengths


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("kind", ["plain", "weighted", "missing", "sparse", "float32"])
def test_with_a_certificate_it_is_as_exact_as_double(kind: str, center: bool, scale: bool) -> None:
    X, w = ROWS.copy(), np.ones(len(ROWS))
    weights: dict[str, Array] = {}
    if kind == "missing":
        X[::7, 2] = np.nan
    if kind == "float32":
        X = X.astype(np.float32).astype(np.float64)
    tables: dict[str, Any] = in_sites(X, [250, 100, 48, 2])
    if kind == "weighted":
        weights = {"s00": np.random.default_rng(1).random(250)}
        w[:250] = weights["s00"]
    if kind == "sparse":
        tables["s01"] = sparse.csr_array(tables["s01"])
    if kind == "float32":
        tables = {name: table.astype(np.float32) for name, table in tables.items()}
    found, _ = fitted(tables, 3, SINGLE, center=center, scale=scale, weights=weights)
    around = deviations(X, w, center=center, scale=scale)
    _, s, vt = np.linalg.svd(around, full_matrices=False)
    np.testing.assert_allclose(found.variances, s[:3] ** 2 / (w.sum() - 1), rtol=1e-12)
    np.testing.assert_allclose(found.total_variance, np.sum(around**2) / (w.sum() - 1), rtol=1e-12)
    assert sines(found.components, vt[:3])[0] < 1e-10
    assert graded(found).converged[:2].all()


def test_it_takes_one_round_more_and_half_the_bytes() -> None:
    falling = 1.0 / np.arange(1, 301)
    tables = in_sites(np.random.default_rng(2).standard_normal((900, 300)) * falling, 3)
    double, plain = fitted(tables, 2, "covariance")
    single, halved = fitted(tables, 2, SINGLE)
    assert (plain.rounds, halved.rounds) == (2, 3)
    assert (double.products, single.products) == (1, 2)
    assert single.method == "covariance"
    triangle = 300 * 301 // 2
    assert plain.log[1].received["s00"] - halved.log[1].received["s00"] == pytest.approx(
        4 * triangle, abs=16
    )
    assert halved.bytes_up < 0.6 * plain.bytes_up


def test_without_a_certificate_it_ends_after_the_scatter_and_claims_nothing() -> None:
    found, transport = fitted(in_sites(ROWS, 3), 4, SINGLE, certify=False)
    assert transport.rounds == 2
    assert found.certificate is None
    truth = np.cov(ROWS.T)
    worst = true_residuals(found, truth).max()
    assert 1e-12 < worst < 1e-6


@pytest.mark.parametrize("size", [1e-25, 1e-18, 1e18, 1e25])
def test_rows_beyond_single_precision_are_taken_in_double(size: float) -> None:
    far = {name: table * size for name, table in in_sites(ROWS, 3).items()}
    found, _ = fitted(far, 3, SINGLE, certify=False)
    exact, _ = fitted(far, 3, "covariance")
    np.testing.assert_allclose(found.variances, exact.variances, rtol=1e-12)
    assert sines(found.components, exact.components)[0] < 1e-12


def test_one_site_beyond_single_precision_does_not_spoil_the_sum() -> None:
    tables = in_sites(ROWS - ROWS.mean(axis=0), 2)
    tables["s01"] = 1e20 * tables["s01"]
    found, _ = fitted(tables, 3, SINGLE)
    pooled = np.vstack(list(tables.values()))
    _, _, vt = np.linalg.svd(pooled - pooled.mean(axis=0), full_matrices=False)
    assert sines(found.components, vt[:3])[0] < 1e-10


@pytest.mark.parametrize("tie", [1e-3, 1e-6, 1e-8, 0.0])
def test_near_ties_take_more_rounds_and_residuals_are_never_understated(tie: float) -> None:
    rng = np.random.default_rng(3)
    frame = np.linalg.qr(rng.standard_normal((40, 40))).Q
    spread = np.r_[4.0, 2.0, 1.0 - tie * np.arange(10), np.full(28, 0.3)]
    side = rng.standard_normal((500, 40))
    side = np.linalg.qr(side - side.mean(axis=0)).Q
    X = np.sqrt(499) * side * np.sqrt(spread) @ frame.T
    found, transport = fitted(in_sites(X, 3), 5, SINGLE, tol=1e-4)
    grade = graded(found)
    truth = np.cov(X.T)
    rounding = 1e-13
    assert np.all(true_residuals(found, truth) <= grade.residuals + rounding)
    assert 3 <= transport.rounds <= 5
    true_values = np.linalg.eigvalsh(truth)[::-1][:5]
    np.testing.assert_allclose(found.variances, true_values, rtol=0, atol=1e-9)
    if tie == 1e-3:
        # The last one cannot be told from the next with a covariance in single precision.
        assert grade.converged[:4].all()


def test_the_bound_on_the_angle_holds() -> None:
    rng = np.random.default_rng(4)
    finite = 0
    for _ in range(100):
        d, k = int(rng.integers(4, 25)), int(rng.integers(1, 4))
        X = rng.standard_normal((int(rng.integers(30, 200)), d)) * rng.exponential(1.0, d)
        found, _ = fitted(in_sites(X, 2), k, SINGLE)
        _, _, vt = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
        angle = np.arcsin(min(sines(found.components, vt[:k])[0], 1.0))
        bound = graded(found).angle_bound
        finite += np.isfinite(bound)
        assert angle <= bound + 1e-13
    assert finite > 90


def test_a_narrow_wire_is_in_the_residuals() -> None:
    found, _ = fitted(in_sites(ROWS, 3), 3, SINGLE, wire="float32")
    grade = graded(found)
    assert np.all(true_residuals(found, np.cov(ROWS.T)) <= grade.residuals)
    assert not grade.converged.any()


def test_all_features_at_once_end_the_corrections() -> None:
    found, transport = fitted(in_sites(ROWS[:, :4], 2), 3, SINGLE, tol=0.0)
    assert transport.rounds == 3
    assert not graded(found).converged.any()


def test_rows_that_do_not_vary_have_no_variance() -> None:
    found, _ = fitted(in_sites(np.full((20, 5), 7.0), 2), 2, SINGLE)
    assert found.variances.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("n", [1, 100, 2048, 2049, 9000])
def test_the_scatter_is_within_its_bound(n: int, is_sparse: bool) -> None:
    rng = np.random.default_rng(n)
    X = rng.exponential(1.0, (n, 7)) * [1e4, 1e2, 1, 1, 1, 1e-2, 1e-4]
    source = Source.of(sparse.csr_array(X) if is_sparse else X)
    view = Prepared(source, np.zeros(7), np.ones(7))
    rough, exact = view.single_scatter(), view.scatter()
    assert rough is not None
    assert rough.dtype == np.float32
    error = np.linalg.norm(rough - exact, 2)
    assert 0.0 < error <= single_error(float(exact.trace()))


def test_the_rows_stay_as_they_were() -> None:
    X = ROWS.copy()
    Prepared(Source.of(X), X.mean(axis=0), np.ones(30)).single_scatter()
    np.testing.assert_array_equal(X, ROWS)


def test_a_matrix_agrees_on_the_directions_asked_about_and_stays_beyond_them() -> None:
    rng = np.random.default_rng(5)
    truth, matrix = (m + m.T for m in rng.standard_normal((2, 6, 6)))
    frame = np.linalg.qr(rng.standard_normal((6, 6))).Q
    known, beyond = frame[:, :2], frame[:, 2:]
    before = beyond.T @ matrix @ beyond
    correct_matrix(known, truth @ known, matrix)
    np.testing.assert_allclose(matrix @ known, truth @ known, rtol=0, atol=1e-14)
    np.testing.assert_allclose(beyond.T @ matrix @ beyond, before, rtol=0, atol=1e-14)
    np.testing.assert_allclose(matrix, matrix.T, rtol=0, atol=1e-15)


def test_secure_sums_have_a_precision_of_their_own() -> None:
    pca_ = FederatedPCA(2, method=SINGLE, secure=True)
    with pytest.raises(PrivacyError, match=r"sets their precision.*Pass method='covariance'"):
        pca_.fit_sites(in_sites(ROWS, 3))
    double = FederatedPCA(2, method=Covariance(), secure=True).fit_sites(in_sites(ROWS, 3))
    assert double.method_ == "covariance"


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(InputError, match="precision='half' must be 'double' or 'single'"):
        Covariance(precision="half")


def test_double_by_its_value_is_double_by_its_name() -> None:
    named, _ = fitted(in_sites(ROWS, 3), 3, "covariance")
    valued, transport = fitted(in_sites(ROWS, 3), 3, Covariance())
    assert transport.rounds == 2
    np.testing.assert_array_equal(named.components, valued.components)


@pytest.mark.parametrize("method", ["covariance", SINGLE, "krylov"], ids=str)
def test_weights_of_little_more_than_one_row_have_one_divisor(method: Any) -> None:
    tables = in_sites(ROWS, 2)
    weights = {name: np.full(200, 1.5 / 400) for name in tables}
    found, _ = fitted(tables, 2, method, weights=weights)
    around = deviations(ROWS, np.full(400, 1.5 / 400), center=True, scale=False)
    expected = np.linalg.svd(around, compute_uv=False)[:2] ** 2 / 0.5
    np.testing.assert_allclose(found.variances, expected, rtol=1e-9)


def test_few_distinct_values_round_alike_and_are_put_right() -> None:
    X = np.random.default_rng(6).poisson(3.0, (20_000, 20)) * np.linspace(2.0, 1.0, 20)
    rough, _ = fitted(in_sites(X, 3), 3, SINGLE, certify=False)
    found, _ = fitted(in_sites(X, 3), 3, SINGLE)
    truth = np.cov(X.T)
    assert 1e-9 < true_residuals(rough, truth).max() < 1e-5
    assert true_residuals(found, truth).max() < 1e-13
