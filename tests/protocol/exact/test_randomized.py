"""Federated randomized SVD: as accurate as promised, and the centralised algorithm itself."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from eigenfed.arrays import Array
from eigenfed.data.prepared import Prepared
from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.linalg.orthonormal import sines
from eigenfed.protocol.core import Call, drive
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.randomized import Randomized, ReducedRequest, reduced
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.operations import State, Terms
from eigenfed.transport.local import LocalTransport
from federation import coordinated, gate, mnist, opened, study_of, watched
from oracles import pooled, power_law
from sides import sides_of


class Run(NamedTuple):
    found: Decomposition
    sites: dict[str, Site]
    transport: LocalTransport
    sided: list[Array]


def run(parts: Sequence[Any], k: int, *, certify: bool = False, iterations: int = 10) -> Run:
    """Run the method, and look at G after each sum about it."""
    sites = {f"s{i}": gate(f"s{i}", part) for i, part in enumerate(parts)}
    study = study_of(sites, k, Randomized(iterations), certify=certify)
    transport, sided = opened(sites, study), list[Array]()

    def seen(call: Call[Any]) -> None:
        if call.op == "sided_product":
            sided.append(sides_of(sites, transport.run))

    found = drive(watched(coordinated(study), seen), transport)
    return Run(found, sites, transport, sided)


def degrees(components: Array, truth: Array) -> float:
    return float(np.degrees(np.arcsin(sines(components, truth)[0])))


def centralised(around: Array, first: Array, k: int, iterations: int) -> tuple[Array, Array]:
    """[Hartebrodt2022] Alg. 5 on all rows at once, from the same random vectors."""
    G, blocks = first, []
    for _ in range(iterations):
        H = np.linalg.qr(around.T @ G).Q
        G = around @ H
        blocks.append(H)
    P = np.linalg.svd(np.hstack(blocks), full_matrices=False)[0]
    proxy = around @ P
    leading = np.linalg.svd(proxy.T @ proxy)[0][:, :k]
    G = np.linalg.qr(proxy @ leading).Q
    return np.linalg.qr(around.T @ G).Q.T, G


def test_ten_iterations_are_within_a_millionth_of_a_degree() -> None:
    X = power_law(900, 120, 1.0, 1) + 2.0
    truth = pooled(X)
    done = run(np.split(X, [5, 100, 101, 700]), 10)
    assert degrees(done.found.components, truth.vt[:10]) < 1e-6
    np.testing.assert_allclose(done.found.variances, truth.s[:10] ** 2 / 899, rtol=1e-12)
    np.testing.assert_allclose(done.found.total_variance, truth.energy / 899, rtol=1e-12)


def test_ten_iterations_are_within_a_millionth_of_a_degree_on_mnist() -> None:
    X = mnist()
    truth = np.linalg.eigh(np.cov(X.T))[1][:, ::-1][:, :10].T
    done = run(np.array_split(X, 5), 10)
    assert degrees(done.found.components, truth) < 1e-6
    assert done.transport.floats_up < 5e5


def test_a_few_iterations_are_the_centralised_algorithm_not_the_limit() -> None:
    X, k, iterations = power_law(300, 60, 0.7, 2), 5, 3
    done = run(np.split(X, [2, 90, 91, 200]), k, iterations=iterations)
    H, G = centralised(X - X.mean(axis=0), done.sided[0], k, iterations)
    assert float(sines(done.found.components, H)[0]) < 1e-11
    assert float(sines(H, pooled(X).vt[:k])[0]) > 1e-4
    np.testing.assert_allclose(done.sided[-1].T @ done.sided[-1], np.eye(k), atol=1e-13)
    assert float(sines(done.sided[-1].T, G.T)[0]) < 1e-11


@pytest.mark.parametrize("iterations", [1, 4])
def test_rounds_and_numbers_are_those_of_the_printed_algorithm(iterations: int) -> None:
    d, k = 40, 3
    parts = np.split(power_law(120, d, 1.0, 3), [20, 70])
    done = run(parts, k, iterations=iterations)
    assert done.transport.rounds == 1 + iterations + 2
    assert done.found.products == iterations + 2
    numbers = (1 + 2 * d) + (iterations + 1) * (d * k + 1) + (k * iterations) ** 2
    assert done.transport.floats_up == 3 * numbers
    shapes = {s for site in done.sites.values() for e in site.egress for s in e.shapes.values()}
    assert shapes == {(1,), (d,), (d, k), (k * iterations, k * iterations)}


def test_a_certificate_takes_two_rounds_more_and_speaks_of_the_components() -> None:
    X = power_law(200, 30, 1.5, 4)
    done = run(np.split(X, [50]), 3, iterations=2, certify=True)
    assert done.transport.rounds == 1 + 2 + 2 + 2
    components, variances = done.found.components, done.found.variances
    left = np.cov(X.T) @ components.T - components.T * variances
    residuals = np.linalg.norm(left, axis=0) / variances[0]
    certificate = done.found.certificate
    assert certificate is not None
    np.testing.assert_allclose(certificate.residuals, residuals, rtol=1e-6, atol=1e-14)
    assert not certificate.converged.all()
    assert float(np.arcsin(sines(components, pooled(X).vt[:3])[0])) <= certificate.angle_bound


def test_iterates_may_fill_the_space() -> None:
    X = power_law(80, 9, 1.0, 5)
    done = run(np.split(X, [1, 30]), 4)
    assert degrees(done.found.components, pooled(X).vt[:4]) < 1e-10
    widths = {e.shapes["inner"] for e in done.sites["s0"].egress if e.op == "reduced"}
    assert widths == {(9, 9)}
    assert run([X], 30).found.components.shape == (9, 9)


def test_rows_of_low_rank_give_components_of_no_variance() -> None:
    rng = np.random.default_rng(6)
    X = rng.standard_normal((90, 2)) @ rng.standard_normal((2, 20))
    done = run(np.split(X, [40]), 4, iterations=3)
    components = done.found.components
    np.testing.assert_allclose(components @ components.T, np.eye(4), atol=1e-13)
    np.testing.assert_allclose(done.found.variances[2:], 0.0, atol=1e-13)
    assert float(sines(components[:2], pooled(X).vt[:2])[0]) < 1e-10
    gram = done.sided[-1].T @ done.sided[-1]
    np.testing.assert_allclose(gram, np.diag([1.0, 1.0, 0.0, 0.0]), atol=1e-13)


def test_the_meter_is_told_the_scatter_on_all_iterates() -> None:
    rng = np.random.default_rng(7)
    source = Source.of(rng.standard_normal((50, 8)), weights=rng.uniform(0, 2, 50))
    basis = np.linalg.qr(rng.standard_normal((8, 3))).Q
    frame = (rng.standard_normal(8), rng.uniform(1, 2, 8))
    terms = Terms(study_of("a", 3, "randomized", scale=True), 50, 8)
    answer = reduced.run(source, ReducedRequest(basis=basis), State(sent=frame), terms)
    scatter = Prepared(source, *frame).scatter()
    assert answer.revealed is not None
    np.testing.assert_allclose(answer.revealed.images, scatter @ basis, rtol=1e-12)
    np.testing.assert_allclose(answer.reply.inner, basis.T @ scatter @ basis, rtol=1e-12)
    np.testing.assert_array_equal(answer.revealed.directions, basis)


def test_no_iteration_is_refused() -> None:
    with pytest.raises(InputError, match=r"^iterations=0 must be an integer of at least 1\."):
        Randomized(iterations=0)
