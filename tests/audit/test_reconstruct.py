"""What a coordinator can make of summed products: all at full rank, only M Q below it."""

import gzip
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from threadpoolctl import threadpool_limits

from eigenfed.arrays import Array
from eigenfed.audit.reconstruct import Seen, Watch, correlation, nystrom, reconstruct, watch
from eigenfed.data.source import Source
from eigenfed.errors import InputError, SiteLost
from eigenfed.estimators.in_process import Conditions, Federation, federation
from eigenfed.protocol.core import Call, Protocol, drive, plain_sum
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.certificate import make_products
from eigenfed.protocol.exact.krylov import Krylov
from eigenfed.protocol.exact.moments import collect_moments
from eigenfed.protocol.exact.products import ProductRequest
from eigenfed.protocol.method import Run
from eigenfed.protocol.pca import pca
from eigenfed.protocol.study import Study
from eigenfed.transport.local import LocalTransport
from oracles import power_law
from private_runs import in_parts

DATA = Path(__file__).parents[2] / os.environ.get("EIGENFED_DATA", "../shared/data")
MNIST = DATA / "mnist" / "t10k-images-idx3-ubyte.gz"


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    # Several BLAS threads on a busy machine make the small decompositions here take seconds.
    with threadpool_limits(limits=1, user_api="blas"):
        yield


def scatter(X: Array) -> Array:
    around = X - X.mean(axis=0)
    whole: Array = around.T @ around
    return whole


def over_sites(X: Array, study: Study) -> Federation:
    """Put rows behind the gates of the study's sites."""
    parts = in_parts(X, len(study.sites))
    return federation(study, {name: Source.of(part) for name, part in parts.items()}, Conditions())


def study_of(k: int, tol: float = 0.0, max_rounds: int = 50, sites: int = 3) -> Study:
    names = tuple(f"s{i}" for i in range(sites))
    return Study(names, k, Krylov(), tol=tol, max_rounds=max_rounds, certify=False)


def requesting(study: Study, bases: tuple[Array, ...]) -> Protocol[None]:
    """Request for the products with each basis in turn."""
    moments = yield from collect_moments(plain_sum, study)
    run = Run(study, moments, study.sites, np.random.default_rng(0), plain_sum)
    products = make_products(run)
    for basis in bases:
        yield from products.of(basis)


def seen_of(X: Array, *bases: Array) -> Seen:
    """What a coordinator sees that requests directions of its own."""
    study = study_of(2)
    watched = watch(over_sites(X, study).transport)
    drive(requesting(study, bases), watched)
    return watched.seen


def decomposing(study: Study) -> Protocol[Decomposition]:
    return pca(study, rng=np.random.default_rng(0))


def seen_by(X: Array, study: Study) -> Seen:
    """What a coordinator sees that follows a study."""
    watched = watch(over_sites(X, study).transport)
    drive(decomposing(study), watched)
    return watched.seen


def relative(estimate: Array, truth: Array) -> float:
    return float(np.abs(estimate - truth).max() / np.abs(truth).max())


@pytest.mark.parametrize("load", [load_breast_cancer, load_diabetes, load_digits])
def test_at_full_rank_a_whole_run_gives_the_scatter_away(load: Callable[[], object]) -> None:
    X = np.asarray(getattr(load(), "data"), dtype=np.float64)  # noqa: B009  # sklearn is untyped
    seen = seen_by(X, study_of(5))
    found = reconstruct(seen)
    assert (found.rank, found.unknown) == (X.shape[1], 0)
    for estimate in (found.matrix, nystrom(seen)):
        assert correlation(estimate, scatter(X)) == pytest.approx(1.0, abs=1e-12)
        assert relative(estimate, scatter(X)) < 1e-12


def test_at_full_rank_many_small_requests_give_the_scatter_away() -> None:
    X = power_law(60, 9, 2.0)
    directions = np.random.default_rng(1).standard_normal((9, 9))
    directions /= np.linalg.norm(directions, axis=0)
    seen = seen_of(X, *np.split(directions, 9, axis=1))
    assert relative(reconstruct(seen).matrix, scatter(X)) < 1e-9
    assert relative(nystrom(seen), scatter(X)) < 1e-9


def test_power_iterates_that_became_dependent_still_give_it_away() -> None:
    M = scatter(load_breast_cancer().data)
    iterate = np.linalg.qr(np.random.default_rng(0).standard_normal((30, 3))).Q
    seen = Seen(iterate, M @ iterate)
    for _ in range(9):
        iterate = np.linalg.qr(M @ iterate).Q
        seen = seen.append(iterate, M @ iterate)
    by_rows = np.linalg.lstsq(seen.directions.T, seen.images.T, rcond=None)[0]
    found = reconstruct(seen)
    assert 0 < found.unknown < 30
    assert relative(found.matrix, M) < 1e-5 < 1e-4 < np.abs(by_rows - M).max() / np.abs(M).max()


@given(
    seed=st.integers(0, 2**32 - 1),
    d=st.integers(1, 9),
    rank=st.integers(0, 9),
    data_rank=st.integers(1, 9),
)
def test_below_full_rank_the_answers_are_kept_and_the_rest_is_zero(
    seed: int, d: int, rank: int, data_rank: int
) -> None:
    rng = np.random.default_rng(seed)
    rank = min(rank, d)
    X = rng.standard_normal((20, data_rank)) @ rng.standard_normal((data_rank, d))
    M = X.T @ X
    span = np.linalg.qr(rng.standard_normal((d, d))).Q
    # Repeated, scaled and mixed columns, and one of zeros, fix no more than their span.
    mixed = span[:, :rank] @ rng.standard_normal((rank, rank + 2))
    directions = np.hstack([span[:, :rank], 1e6 * mixed, np.zeros((d, 1)), 1e-6 * mixed])
    seen = Seen(directions, M @ directions)
    found = reconstruct(seen)
    complement = span[:, rank:]
    lengths = np.maximum(np.linalg.norm(directions, axis=0), 1e-300)
    size = np.abs(M).max()
    assert (found.rank, found.unknown) == (rank, d - rank)
    assert np.abs((found.matrix @ directions - seen.images) / lengths).max() < 1e-9 * size
    assert np.abs(complement.T @ found.matrix @ complement).max(initial=0.0) < 1e-9 * size
    np.testing.assert_array_equal(found.matrix, found.matrix.T)


def twins() -> tuple[Array, Array]:
    """Two tables that agree on all of M Q for the first three of seven features.

    Whole numbers with their negatives: means are 0 and every product is exact.
    """
    rng = np.random.default_rng(5)
    shared = rng.integers(-4, 5, (12, 7))
    tables = []
    for seed in (1, 2):
        own = np.random.default_rng(seed).integers(-9, 10, (6, 7))
        own[:, :3] = 0
        half = np.vstack([shared, own])
        tables.append(np.vstack([half, -half]).astype(np.float64))
    return tables[0], tables[1]


def test_answers_that_agree_give_attacks_that_agree_whatever_the_rest_is() -> None:
    one, other = twins()
    basis = np.eye(7)[:, :3]
    seen_one = seen_of(one, basis[:, :2], basis[:, 2:])
    seen_other = seen_of(other, basis[:, :2], basis[:, 2:])
    truths = scatter(one), scatter(other)
    assert relative(*truths) > 0.1
    np.testing.assert_array_equal(truths[0][:, :3], truths[1][:, :3])
    found = reconstruct(seen_one).matrix
    np.testing.assert_array_equal(found, reconstruct(seen_other).matrix)
    np.testing.assert_array_equal(nystrom(seen_one), nystrom(seen_other))
    np.testing.assert_array_equal(found[3:, 3:], 0.0)
    np.testing.assert_allclose(found[:, :3], truths[0][:, :3], rtol=1e-14)


def test_the_rest_stays_unknown_in_any_basis() -> None:
    rng = np.random.default_rng(3)
    turn = np.linalg.qr(rng.standard_normal((7, 7))).Q
    one, other = (table @ turn.T for table in twins())
    basis = turn[:, :3]
    found, also = (reconstruct(seen_of(table, basis)).matrix for table in (one, other))
    assert relative(scatter(one), scatter(other)) > 0.1
    assert relative(found, also) < 1e-13
    assert relative(found @ basis, scatter(one) @ basis) < 1e-13


def test_nystrom_guesses_the_rest_of_a_decaying_spectrum() -> None:
    X = power_law(400, 80, 3.0, seed=2)
    seen = seen_by(X, study_of(4, max_rounds=1))
    found, guess, truth = reconstruct(seen), nystrom(seen), scatter(X)
    assert found.rank == 8
    assert correlation(guess, truth) > 0.98 > 0.9 > correlation(found.matrix, truth)
    assert np.linalg.eigvalsh(guess)[0] > -1e-12 * np.abs(truth).max()
    assert relative(guess @ seen.directions, seen.images) < 1e-11


def test_nystrom_is_exact_once_the_directions_outnumber_the_rank() -> None:
    X = np.random.default_rng(4).standard_normal((50, 3)) @ np.eye(3, 40)
    directions = np.random.default_rng(5).standard_normal((40, 6))
    assert relative(nystrom(Seen(directions, scatter(X) @ directions)), scatter(X)) < 1e-12


@pytest.mark.parametrize("max_rounds", [1, 2, 3, 6])
def test_the_meter_says_what_the_attacks_get(max_rounds: int) -> None:
    X = power_law(300, 64, 2.0, seed=6)
    study = study_of(4, max_rounds=max_rounds, sites=1)
    over = over_sites(X, study)
    watched = watch(over.transport)
    drive(decomposing(study), watched)
    truth, guess = scatter(X), nystrom(watched.seen)
    (meter,) = (site.meter for site in over.sites.values())
    assert meter.rank_fraction == reconstruct(watched.seen).rank / 64
    assert meter.trace == pytest.approx(truth.trace(), rel=1e-12)
    missed = np.linalg.norm(truth - guess, "nuc") / truth.trace()
    assert missed == pytest.approx(1 - meter.variance_fraction, abs=1e-6)


@pytest.mark.skipif(not MNIST.exists(), reason="needs the MNIST images of EIGENFED_DATA")
def test_mnist_is_nearly_given_away_at_an_eighth_of_its_rank() -> None:
    pixels = np.frombuffer(gzip.decompress(MNIST.read_bytes())[16:], np.uint8)
    X = pixels.reshape(-1, 784)[:5000].astype(np.float64)
    study = study_of(10, tol=1e-4, sites=2)
    over = over_sites(X, study)
    watched = watch(over.transport)
    found = drive(decomposing(study), watched)
    truth = scatter(X)
    alone = (found.components.T * found.variances) @ found.components
    meter = over.sites["s0"].meter
    assert meter.rank_fraction == reconstruct(watched.seen).rank / 784 < 0.14
    assert meter.variance_fraction > 0.85
    assert correlation(nystrom(watched.seen), truth) > 0.998
    assert 0.92 < correlation(alone, truth) < 0.95


class _Dropping:
    """Two sites, of which the second does not answer in round 1."""

    sites = ("a", "b")

    def exchange(self, round_: int, call: Call[Any]) -> Iterator[tuple[str, dict[str, Array]]]:
        assert isinstance(call.request, ProductRequest)
        image = np.full_like(call.request.basis, 1.0 + round_)
        yield "a", {"product": image, "trace": np.ones(1)}
        if round_ != 1:
            yield "b", {"product": image, "trace": np.ones(1)}


def test_a_watch_keeps_sums_over_all_sites_only() -> None:
    watched = Watch(_Dropping())
    basis = np.eye(2)[:, :1]
    for round_ in range(3):
        replies = dict(watched.exchange(round_, Call(ProductRequest(basis=basis))))
        assert len(replies) == (1 if round_ == 1 else 2)
    np.testing.assert_array_equal(watched.seen.images, [[2.0, 6.0], [2.0, 6.0]])


def test_a_watch_changes_nothing_and_counts_no_other_requests() -> None:
    X = power_law(40, 6, 1.0)
    study = study_of(2, tol=1e-9)
    plain, watched = over_sites(X, study).transport, watch(over_sites(X, study).transport)
    assert watched.sites == plain.sites
    one, two = (drive(decomposing(study), transport) for transport in (plain, watched))
    np.testing.assert_array_equal(one.components, two.components)
    with pytest.raises(InputError, match="No product was requested"):
        _ = watch(plain).seen
    scaled = replace(study, scale=True)
    only = watch(over_sites(X, scaled).transport)
    drive(collect_moments(plain_sum, scaled), only)
    with pytest.raises(InputError, match="No product was requested"):
        _ = only.seen


def test_a_lost_site_passes_through_a_watch() -> None:
    class Silent:
        def answer(self, data: bytes) -> bytes:
            raise ConnectionError

    watched = watch(LocalTransport({"a": Silent()}))
    with pytest.raises(SiteLost, match="No answer from a"):
        drive(plain_sum(Call(ProductRequest(basis=np.eye(2)))), watched)


def test_correlation_is_that_of_the_entries() -> None:
    rng = np.random.default_rng(8)
    a, b = rng.standard_normal((2, 5, 5))
    assert correlation(a, b) == pytest.approx(np.corrcoef(a.ravel(), b.ravel())[0, 1], abs=1e-14)
    assert correlation(-3 * a + 1, a) == pytest.approx(-1.0, abs=1e-14)
    assert correlation(1e300 * a, 1e-300 * a) == pytest.approx(1.0, abs=1e-14)
    assert np.isnan(correlation(np.zeros((2, 2)), b[:2, :2]))
    with pytest.raises(InputError, match="shape"):
        correlation(a, b[:2])


def test_directions_without_images_are_refused() -> None:
    with pytest.raises(InputError, match="features x directions"):
        Seen(np.eye(3), np.eye(3)[:, :2])
    with pytest.raises(InputError, match="features x directions"):
        Seen(np.ones(3), np.ones(3))
