"""Federated subspace iteration is the centralised one, converges, and keeps the rows' side home."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import sparse

from eigenfed.arrays import Array
from eigenfed.data.prepared import Prepared
from eigenfed.data.source import Source
from eigenfed.errors import InputError, ProtocolError
from eigenfed.linalg.orthonormal import sines
from eigenfed.privacy.policy import Policy
from eigenfed.protocol.core import Call, Protocol, drive, plain_sum
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.merge import Merge, request_merged_basis
from eigenfed.protocol.exact.moments import collect_moments
from eigenfed.protocol.exact.products import ProductReply
from eigenfed.protocol.exact.subspace import SidedProductRequest, Subspace, sided_product
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.method import Run as MethodRun
from eigenfed.protocol.operations import Answer, State, Terms
from federation import coordinated, gate, opened, study_of, watched
from oracles import pooled, power_law
from sides import side_of, sides_of

K = 4
CUTS = [2, 60, 61, 150]


class Run(NamedTuple):
    found: Decomposition
    sites: dict[str, Site]
    rounds: int
    iterates: list[Array]
    sided: list[Array]
    last: Array
    """What the sites are left with on the rows' side."""


def run(
    parts: Sequence[Any],
    k: int = K,
    *,
    options: Subspace | None = None,
    tol: float = 1e-9,
    max_rounds: int = 400,
    certify: bool = False,
    weights: Sequence[Array] | None = None,
    scale: bool = False,
) -> Run:
    """Run the method, and look at G after each request about it."""
    each = [None] * len(parts) if weights is None else weights
    sites = {
        f"s{i}": gate(f"s{i}", part, weights=w, policy=Policy(min_rows=0))
        for i, (part, w) in enumerate(zip(parts, each, strict=True))
    }
    study = study_of(
        sites,
        k,
        options or Subspace(),
        tol=tol,
        max_rounds=max_rounds,
        certify=certify,
        scale=scale,
    )
    transport = opened(sites, study)
    iterates, sided = list[Array](), list[Array]()

    def seen(call: Call[Any]) -> None:
        basis = getattr(call.request, "basis", None)
        if basis is not None:
            iterates.append(basis)
        if call.op.startswith("sided"):
            sided.append(sides_of(sites, transport.run))

    found = drive(watched(coordinated(study), seen), transport)
    return Run(found, sites, transport.rounds, iterates, sided, sides_of(sites, transport.run))


def data(seed: int = 0) -> Array:
    """Rows of a spectrum that subspace iteration resolves in some dozens of rounds."""
    return power_law(211, 17, 3.0, seed) + 3.0


def cut(X: Array, cuts: list[int] = CUTS) -> list[Array]:
    return np.split(X, cuts)


def schmidt(columns: Array) -> Array:
    """Orthonormalise with positive coefficients, in the order given."""
    q, r = np.linalg.qr(columns)
    made: Array = q * np.sign(r.diagonal())
    return made


@pytest.mark.parametrize("by", ["cholesky", "gram_schmidt"])
def test_with_orthonormal_rows_each_iterate_is_the_centralised_one(by: str) -> None:
    """[Hartebrodt2022] Prop. 2: Alg. 3 with orthonormalisation is Alg. 1 iterate by iterate."""
    X = data()
    options = Subspace(orthonormalise="each", by=by)
    done = run(cut(X), options=options, tol=0.0, max_rounds=12)
    around = X - X.mean(axis=0)
    each = {"cholesky": 3, "gram_schmidt": 2 * K}[by]
    G = schmidt(done.sided[0])
    for i in range(11):
        np.testing.assert_allclose(done.sided[each * i + each - 1], G, rtol=0, atol=1e-11)
        H = schmidt(around.T @ G)
        np.testing.assert_allclose(done.iterates[i], H, rtol=0, atol=1e-11)
        G = schmidt(around @ H)
    assert float(sines(done.iterates[10].T, pooled(X).vt[:K])[0]) > 1e-6


def test_without_each_iterate_is_that_of_the_covariance() -> None:
    X = data(1)
    done = run(cut(X), tol=0.0, max_rounds=10)
    around = X - X.mean(axis=0)
    H = schmidt(around.T @ done.sided[0])
    for found in done.iterates[:9]:
        np.testing.assert_allclose(found, H, rtol=0, atol=1e-11)
        H = schmidt(around.T @ (around @ H))


@pytest.mark.parametrize("orthonormalise", ["final", "each"])
@pytest.mark.parametrize("by", ["cholesky", "gram_schmidt"])
@pytest.mark.parametrize("criterion", ["residual", "change"])
def test_components_are_those_of_all_rows(orthonormalise: str, by: str, criterion: str) -> None:
    X = data(2)
    options = Subspace("random", orthonormalise, by, criterion)
    done = run(cut(X), options=options, tol=1e-9 if criterion == "residual" else 1e-15)
    truth = pooled(X)
    assert float(sines(done.found.components, truth.vt[:K])[0]) < 1e-6  # 1e-9 by the gap
    np.testing.assert_allclose(done.found.variances, truth.s[:K] ** 2 / 210, rtol=1e-12)
    np.testing.assert_allclose(done.found.total_variance, truth.energy / 210, rtol=1e-12)
    scores = (X - X.mean(axis=0)) @ done.found.components.T
    unit = scores / np.linalg.norm(scores, axis=0)
    np.testing.assert_allclose(done.last, unit, rtol=0, atol=1e-6)
    # Gram-Schmidt keeps what the condition of G leaves it.
    defect = np.abs(done.last.T @ done.last - np.eye(K)).max()
    assert defect < (1e-13 if by == "cholesky" else 1e-11)


def test_products_count_the_iterates_and_rounds_are_three_more_than_those() -> None:
    done = run(cut(data(3)))
    made = sum(e.op == "sided_product" for e in done.sites["s0"].egress)
    assert done.found.products == made > 10
    assert done.rounds == 1 + made + 3


def test_rows_may_be_sparse_weighted_and_scaled() -> None:
    rng = np.random.default_rng(4)
    common = rng.standard_normal((211, 2)) * [3.0, 2.0] @ rng.standard_normal((2, 17))
    X = (common + data(4)) * (rng.uniform(size=(211, 17)) < 0.7) * np.arange(1, 18)
    weights: Array = rng.choice([0.5, 1.0, 2.5], 211)
    parts = [sparse.csr_array(part) if i % 2 else part for i, part in enumerate(cut(X))]
    done = run(parts, 2, weights=np.split(weights, CUTS), scale=True, tol=1e-10)
    mean = np.average(X, axis=0, weights=weights)
    around = X - mean
    scaled = around / np.sqrt(np.average(around**2, axis=0, weights=weights))
    truth = pooled(scaled, weights)
    assert float(sines(done.found.components, truth.vt[:2])[0]) < 1e-7
    np.testing.assert_allclose(done.found.variances, truth.s[:2] ** 2 / (weights.sum() - 1))


def test_sites_of_one_row_and_of_none_find_all_directions() -> None:
    X = data(5)[:12]
    done = run([X[:0], *np.split(X, 12)], 3)
    assert float(sines(done.found.components, pooled(X).vt[:3])[0]) < 1e-6


def test_the_change_of_iterates_stops_where_the_residual_would_not() -> None:
    rng, t = np.random.default_rng(6), float(np.degrees(np.arccos(1.0 - 1e-8)))
    X = rng.standard_normal((300, 12)) * [9.0, 5.0, 3.0, 1.4, *[1.0] * 8]
    by_change = run(cut(X), options=Subspace(criterion="change"), tol=t, certify=True)
    by_residual = run(cut(X), tol=1e-4, certify=True)
    truth = pooled(X).vt[:K]
    early, late = (float(sines(r.found.components, truth)[0]) for r in (by_change, by_residual))
    assert by_change.found.products < by_residual.found.products
    assert early > 1e-4 > 2e-6 > late
    assert by_change.found.certificate is not None
    assert by_residual.found.certificate is not None
    assert not by_change.found.certificate.converged.all()
    assert by_residual.found.certificate.converged.all()


def test_the_criterion_of_equation_5_is_the_published_one() -> None:
    t = 1e-4
    angle = float(np.degrees(np.arccos(1.0 - t)))
    done = run(cut(data(7)), options=Subspace(criterion="change"), tol=angle)
    turns = [np.sum(a * b, axis=0).min() for a, b in itertools.pairwise(done.iterates)]
    last = done.found.products
    assert all(turn < 1 - t for turn in turns[: last - 2])
    assert turns[last - 2] >= 1 - t


@pytest.mark.parametrize("criterion", ["residual", "change"])
def test_certificates_speak_of_the_components_returned(criterion: str) -> None:
    X = data(8)
    options = Subspace(criterion=criterion)
    done = run(cut(X), options=options, tol=1e-5, certify=True)
    covariance = np.cov(X.T)
    components, variances = done.found.components, done.found.variances
    left = covariance @ components.T - components.T * variances
    residuals = np.linalg.norm(left, axis=0) / variances[0]
    assert done.found.certificate is not None
    np.testing.assert_allclose(done.found.certificate.residuals, residuals, rtol=1e-3, atol=1e-12)
    made = sum("product" in e.op for e in done.sites["s0"].egress)
    assert done.found.products == made


def merged_basis(parts: Sequence[Array]) -> Array:
    """What a one-shot merge of the same sites would start from."""
    sites = {f"s{i}": gate(f"s{i}", part) for i, part in enumerate(parts)}
    study = study_of(sites, K, "merge")

    def protocol() -> Protocol[Array]:
        moments = yield from collect_moments(plain_sum, study)
        run = MethodRun(study, moments, study.sites, np.random.default_rng(0), plain_sum)
        return (yield from request_merged_basis(run, K, Merge()))

    return drive(protocol(), opened(sites, study))


def test_a_merge_as_start_saves_rounds() -> None:
    X = data(9)
    parts = cut(X, [70, 140])
    merged = run(parts, options=Subspace(start="merge"), tol=1e-6)
    drawn = run(parts, tol=1e-6)
    assert merged.found.products < drawn.found.products
    assert float(sines(merged.found.components, pooled(X).vt[:K])[0]) < 1e-4
    np.testing.assert_allclose(merged.iterates[0], schmidt(merged_basis(parts)), atol=1e-14)


@pytest.mark.parametrize("orthonormalise", ["final", "each"])
@pytest.mark.parametrize("criterion", ["residual", "change"])
def test_nothing_of_the_rows_side_leaves(orthonormalise: str, criterion: str) -> None:
    X = data(10)
    options = Subspace(orthonormalise=orthonormalise, criterion=criterion)
    done = run(cut(X), options=options, tol=1e-6, certify=True)
    allowed = {(17,), (1,), (17, K), (K, K)}
    lengths = {2, 58, 1, 89, 61, 211}
    shapes = {s for site in done.sites.values() for e in site.egress for s in e.shapes.values()}
    assert shapes <= allowed
    assert not {length for shape in shapes for length in shape} & (lengths - {1})


def asked(source: Source, frame: tuple[Array, Array], **fields: Any) -> Answer[ProductReply]:
    """What a site of a study of three components answers."""
    terms = Terms(study_of("a", 3, "subspace"), source.n, source.d)
    return sided_product.run(source, SidedProductRequest(**fields), State(sent=frame), terms)


def test_images_are_the_scatter_times_the_directions_revealed() -> None:
    """In each of the ways in which G comes about."""
    rng = np.random.default_rng(11)
    source = Source.of(data(12), weights=np.random.default_rng(12).uniform(0, 2, 211))
    frame = rng.standard_normal(17), rng.uniform(1, 2, 17)
    basis = rng.standard_normal((17, 3))
    upper = np.triu(rng.standard_normal((3, 3))) + 3 * np.eye(3)
    made: dict[str, dict[str, Any]] = {
        "given": {"basis": basis},
        "divided": {"basis": basis, "triangle": upper},
        "drawn": {"seed": 5},
        "drawn and divided": {"seed": 5, "triangle": upper},
    }
    view = Prepared(source, *frame)
    scatter = view.scatter()
    for name, fields in made.items():
        answer = asked(source, frame, **fields)
        revealed = answer.revealed
        assert revealed is not None
        expected = scatter @ revealed.directions
        np.testing.assert_allclose(revealed.images, expected, rtol=1e-10, err_msg=name)
        assert answer.reply.trace == pytest.approx(scatter.trace())
        reply = view.adjoint(side_of(answer.state))
        np.testing.assert_array_equal(answer.reply.product, reply)
        if name.startswith("drawn"):
            span = np.linalg.qr(reply).Q
            assert float(sines(revealed.directions.T, span.T)[0]) < 1e-12


def test_draws_differ_by_site_and_seed_and_repeat() -> None:
    one, other = Source.of(data(13)[:9]), Source.of(data(13)[9:18])

    def drawn(source: Source, seed: int) -> Array:
        return side_of(asked(source, (np.zeros(17), np.ones(17)), seed=seed).state)

    np.testing.assert_array_equal(drawn(one, 1), drawn(one, 1))
    assert np.abs(drawn(one, 1) - drawn(one, 2)).max() > 0.1
    assert np.abs(drawn(one, 1) - drawn(other, 1)).max() > 0.1
    many = drawn(Source.of(np.random.default_rng(0).standard_normal((4000, 17))), 1)
    np.testing.assert_allclose(many.T @ many / 4000, np.eye(3), atol=0.1)


@pytest.mark.parametrize("orthonormalise", ["final", "each"])
def test_rows_of_low_rank_give_components_of_no_variance(orthonormalise: str) -> None:
    rng = np.random.default_rng(14)
    X = rng.standard_normal((211, 2)) @ rng.standard_normal((2, 17))
    done = run(cut(X), options=Subspace(orthonormalise=orthonormalise))
    np.testing.assert_allclose(done.found.variances[2:], 0.0, atol=1e-12)
    assert float(sines(done.found.components[:2], pooled(X).vt[:2])[0]) < 1e-8
    components = done.found.components
    np.testing.assert_allclose(components @ components.T, np.eye(K), atol=1e-13)
    printed = Subspace(orthonormalise=orthonormalise, by="gram_schmidt")
    with pytest.raises(ProtocolError, match="depends on the earlier ones"):
        run(cut(np.where(np.arange(17) < 2, X, 0.0)), options=printed)


@pytest.mark.parametrize("start", ["random", "merge"])
@pytest.mark.parametrize("criterion", ["residual", "change"])
@pytest.mark.parametrize("certify", [False, True])
def test_one_round_is_enough_for_a_result(start: str, criterion: str, certify: bool) -> None:
    options = Subspace(start=start, criterion=criterion)
    X = data(15)
    done = run(cut(X), options=options, max_rounds=1, certify=certify)
    assert sum(e.op == "sided_product" for e in done.sites["s0"].egress) == 1
    components = done.found.components
    np.testing.assert_allclose(components @ components.T, np.eye(K), atol=1e-13)
    quotients = np.diag(components @ np.cov(X.T) @ components.T)
    np.testing.assert_allclose(done.found.variances, quotients, rtol=1e-10)
    assert (done.found.certificate is not None) == certify


def test_more_components_than_features_are_cut() -> None:
    done = run(cut(data(16)), 40, tol=1e-6)
    assert done.found.components.shape == (17, 17)


@pytest.mark.parametrize("name", ["start", "orthonormalise", "by", "criterion"])
def test_unknown_options_are_refused_by_name(name: str) -> None:
    with pytest.raises(InputError, match=rf"^{name}='best' must be one of '"):
        Subspace(**{name: "best"})
