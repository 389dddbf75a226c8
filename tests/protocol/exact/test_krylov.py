"""Block Lanczos over sites: the figures to meet, and the odd cases."""

import numpy as np
import pytest
from scipy import sparse

from eigenfed.arrays import Array
from eigenfed.errors import InputError
from eigenfed.linalg.orthonormal import sines
from eigenfed.protocol.exact.krylov import Krylov
from eigenfed.protocol.exact.lanczos_run import LanczosRun
from eigenfed.protocol.exact.subspace import Subspace
from federation import in_sites, mnist, mnist_like, run
from oracles import pooled


def leading(X: Array) -> Array:
    """Return ten directions, from a covariance: to a billionth of the angles they are held to."""
    directions: Array = np.linalg.eigh(np.cov(X.T))[1][:, :-11:-1].T
    return directions


def check_figures(X: Array, seeds: range) -> None:
    exact = leading(X)
    for seed in seeds:
        for certify, floats in (("auto", 4.4e5), (False, 4e5)):
            found, transport, _ = run(in_sites(X, 5), 10, "krylov", seed=seed, certify=certify)
            assert found.products <= 10
            assert transport.floats_up <= floats
            assert np.degrees(sines(found.components, exact)[0]) < 2e-5
            if found.certificate is not None:
                assert found.certificate.converged.all()
                assert found.certificate.angle_bound < np.radians(1e-4)


def test_ten_rounds_and_four_hundred_thousand_floats_on_data_like_mnist() -> None:
    check_figures(mnist_like(), range(10))


def test_ten_rounds_and_four_hundred_thousand_floats_on_mnist() -> None:
    check_figures(mnist(), range(2))


def as_published(X: Array) -> tuple[int, int, float]:
    """RI-FULL with its own criterion, 1e-9: products, floats up, and degrees off."""
    published, tol = Subspace(criterion="change"), float(np.degrees(np.arccos(1.0 - 1e-9)))
    tables = in_sites(X, 5)
    found, transport, _ = run(tables, 10, published, tol=tol, max_rounds=1000, certify=False)
    angle = np.degrees(sines(found.components, leading(X))[0])
    return found.products, transport.floats_up, float(angle)


def test_the_published_iteration_takes_ten_times_the_rounds_and_floats() -> None:
    products, floats, _ = as_published(mnist_like())
    assert products >= 100
    assert floats >= 10 * 4e5


def test_the_published_iteration_stops_on_mnist_before_it_is_there() -> None:
    products, floats, degrees = as_published(mnist())
    assert products >= 100
    assert floats >= 10 * 4e5
    assert degrees > 1e-2


@pytest.mark.parametrize("tol", [1e-2, 1e-6, 1e-9])
def test_residuals_are_true_ones(tol: float) -> None:
    X = mnist_like(300, 60)
    found, _, _ = run(in_sites(X, [200, 90, 10]), 5, "krylov", tol=tol)
    covariance = np.cov(X.T)
    v = found.components
    left = covariance @ v.T - v.T * found.variances
    sizes = np.sqrt(np.sum(left**2, axis=0)) / found.variances[0]
    assert found.certificate is not None
    assert np.all(sizes <= found.certificate.residuals)
    np.testing.assert_allclose(sizes, found.certificate.residuals, atol=2e-13, rtol=1e-3)
    assert np.all(found.certificate.angles <= np.radians(tol))


def test_sparse_sites_stay_sparse_and_agree() -> None:
    dense = sparse.random_array((300, 500), density=0.03, rng=np.random.default_rng(0)).toarray()
    dense[:, 3] = np.arange(300)
    X = sparse.csr_array(dense)
    found, _, _ = run(in_sites(X, [3, 297]), 4, "krylov", tol=1e-10)
    exact = pooled(dense)
    np.testing.assert_allclose(found.variances, exact.s[:4] ** 2 / 299, rtol=1e-9)
    assert found.certificate is not None
    angle = np.arcsin(sines(found.components, exact.vt[:4])[0])
    assert angle <= found.certificate.angle_bound


def test_separated_components_may_stop_early_and_say_which_converged() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 300))
    X[:, :2] *= [9.0, 6.0]
    all_, _, _ = run(in_sites(X, 3), 6, "krylov", max_rounds=60)
    some, _, _ = run(in_sites(X, 3), 6, "krylov", stop="separated")
    assert some.products < all_.products
    assert some.certificate is not None
    np.testing.assert_array_equal(some.certificate.converged[:2], [True, True])
    assert not some.certificate.converged.all()


def test_rank_below_k_ends_at_once() -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((50, 2)) @ rng.standard_normal((2, 40))
    found, _, _ = run(in_sites(X, 3), 5, "krylov")
    assert found.products <= 2
    np.testing.assert_allclose(found.variances[2:], 0, atol=1e-12)
    np.testing.assert_allclose(found.components @ found.components.T, np.eye(5), atol=1e-12)
    assert found.certificate is not None
    # Directions without variance are not determined.
    assert found.certificate.converged.tolist() == [True, True, False, False, False]
    assert found.certificate.angle_bound == np.inf


def test_constant_rows_have_no_variance() -> None:
    found, _, _ = run(in_sites(np.full((9, 4), 7.0), 2), 2, "krylov")
    np.testing.assert_array_equal(found.variances, np.zeros(2))
    assert found.total_variance == 0.0


def test_nothing_of_size_d_by_d_leaves_or_is_made() -> None:
    X = mnist_like(200, 400)
    _, _, sites = run(in_sites(X, [150, 50]), 3, "krylov")
    sizes = [np.prod(s) for site in sites.values() for e in site.egress for s in e.shapes.values()]
    assert max(sizes) == 400 * 8


def sparse_groups(n: int = 300, d: int = 400, count: int = 12) -> Array:
    """Return rows of a few kinds, most of their entries zero."""
    rng = np.random.default_rng(0)
    rows = sparse.random_array((n, d), density=0.01, rng=rng).toarray()
    kind = np.arange(n) % count
    rows[np.arange(n)[:, None], kind[:, None] * 20 + rng.integers(0, 20, (n, 6))] += (
        9.0 - kind / 2
    )[:, None]
    return rows


@pytest.mark.parametrize("certify", ["auto", False])
def test_narrow_blocks_send_half_the_numbers_and_are_certified(certify: str | bool) -> None:
    dense = sparse_groups()
    tables = in_sites(sparse.csr_array(dense), 3)
    wide, far, _ = run(tables, 10, Krylov(), certify=certify)
    narrow, near, _ = run(tables, 10, Krylov(block=4), certify=certify)
    assert near.floats_up < 0.6 * far.floats_up
    assert narrow.products < 2 * wide.products
    angle = np.arcsin(sines(narrow.components, pooled(dense).vt[:10])[0])
    assert angle < np.radians(1e-4)
    if certify:
        grade = narrow.certificate
        assert grade is not None
        assert angle <= grade.angle_bound < np.radians(1e-3)
        assert grade.converged.all()
        assert 0.0 < grade.failure <= 2e-6


@pytest.mark.parametrize("certify", ["auto", False])
@pytest.mark.parametrize("block", [3, 4, 5])
def test_an_eigenvalue_repeated_more_often_than_a_block_is_wide_is_found(
    block: int, certify: str | bool
) -> None:
    rng = np.random.default_rng(0)
    turned = np.linalg.qr(rng.standard_normal((60, 60))).Q
    sizes = np.r_[np.full(7, 3.0), np.linspace(1.0, 0.1, 53)]
    X = np.vstack([turned * sizes, -turned * sizes])
    found, _, _ = run(in_sites(X, 3), 7, Krylov(block=block), certify=certify)
    assert sines(found.components, np.eye(60)[:7])[0] < 1e-6
    if certify:
        assert found.certificate is not None
        assert found.certificate.angle_bound < 1e-5
        assert found.products > 8, "the narrow blocks came first"


def test_without_rounds_to_begin_again_nothing_is_claimed() -> None:
    X = np.repeat(np.diag(np.r_[np.full(7, 3.0), np.linspace(1.0, 0.1, 53)]), 2, axis=0)
    X[::2] *= -1.0
    found, _, _ = run(in_sites(X, 2), 7, Krylov(block=3), max_rounds=5)
    assert found.products == 5
    assert found.certificate is not None
    assert not found.certificate.converged.any()
    assert found.certificate.angle_bound == np.inf
    plain, _, _ = run(in_sites(X, 2), 7, Krylov(block=3), max_rounds=5, certify=False)
    assert plain.certificate is None
    _, _, sites = run(in_sites(X, 2), 7, Krylov(block=3), max_rounds=2)
    shapes = [entry.shapes["product"] for site in sites.values() for entry in site.egress[-2:]]
    assert shapes == [(60, 9)] * 4, "whole blocks from the start"


def test_too_few_rounds_of_a_second_run_do_not_replace_better_components(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dense = sparse_groups()
    tables = in_sites(sparse.csr_array(dense), 3)
    free, _, _ = run(tables, 10, Krylov(block=4))
    monkeypatch.setattr(LanczosRun, "next_bound", np.inf)
    found, _, _ = run(tables, 10, Krylov(block=4), max_rounds=free.products + 6)
    assert found.products == free.products + 6, "the run began again"
    np.testing.assert_allclose(found.variances, free.variances, rtol=1e-9)
    assert found.certificate is not None
    assert not found.certificate.converged.any()
    found, _, _ = run(tables, 10, Krylov(block=4), max_rounds=4 * free.products)
    assert found.certificate is not None
    assert found.certificate.converged.all()


def test_a_rigorous_bound_is_about_the_directions_of_the_second_run() -> None:
    sizes = np.r_[np.full(6, 3.0), np.linspace(1.0, 0.1, 11)]
    turned = np.linalg.qr(np.random.default_rng(0).standard_normal((17, 17))).Q
    tables = in_sites(np.vstack([turned * sizes, -turned * sizes]), 2)
    for seed in range(60):
        found, _, _ = run(tables, 5, Krylov(block=3), certify="rigorous", max_rounds=8, seed=seed)
        assert found.certificate is not None
        assert found.certificate.angle_bound == np.inf, "the fifth is tied with the sixth"


@pytest.mark.parametrize(("features", "max_rounds"), [(9, 1), (9, 50), (17, 2), (17, 50)])
def test_a_space_that_lacks_one_direction_does_not_separate_nearly_tied_components(
    features: int, max_rounds: int
) -> None:
    tol = 1.0
    sizes = np.sqrt(np.r_[1.0 + 1e-7, 1.0, np.linspace(0.9, 0.5, features - 2)])
    turned = np.linalg.qr(np.random.default_rng(0).standard_normal((features, features))).Q
    rows = sizes[:, None] * turned
    tables = in_sites(np.vstack([rows, -rows]), 2)
    for seed in range(60):
        found, _, _ = run(tables, 1, "krylov", max_rounds=max_rounds, tol=tol, seed=seed)
        assert found.certificate is not None
        if found.certificate.converged[0]:
            cosines = turned @ found.components[0]
            assert np.abs(cosines).max() > np.cos(np.radians(tol)), seed


def test_a_space_that_is_full_before_it_holds_the_components_begins_again() -> None:
    X = np.repeat(np.eye(6), 4, axis=0)
    found, _, _ = run(in_sites(X, 2), 5, Krylov(block=3))
    np.testing.assert_allclose(found.variances, np.full(5, 4.0 / 23.0), rtol=1e-12)


def test_a_block_of_fewer_than_three_directions_is_refused() -> None:
    with pytest.raises(InputError, match="at least 3 directions"):
        Krylov(block=2)


def test_narrow_blocks_become_whole_ones_when_rounds_run_short() -> None:
    dense = sparse_groups()
    tables = in_sites(sparse.csr_array(dense), 3)
    free, _, _ = run(tables, 10, Krylov(block=4))
    found, transport, _ = run(tables, 10, Krylov(block=4), max_rounds=free.products - 1)
    assert found.products < free.products
    assert transport.floats_up > 3 * 400 * 4 * free.products
    assert found.certificate is not None
    assert found.certificate.converged.all()
    assert found.certificate.angle_bound < np.radians(1e-3)


def test_narrow_blocks_that_converge_soon_stay_narrow() -> None:
    tables = in_sites(sparse.csr_array(sparse_groups()), 3)
    free, many, _ = run(tables, 20, Krylov(block=3), max_rounds=100)
    found, few, _ = run(tables, 20, Krylov(block=3), max_rounds=free.products + 15)
    assert free.products > 0.6 * (free.products + 15) + 1, "whole blocks otherwise"
    assert found.products == free.products
    assert few.floats_up == many.floats_up
    _, short, _ = run(tables, 20, Krylov(block=3), max_rounds=free.products + 5)
    assert short.floats_up > many.floats_up, "too few rounds are left to begin again"
