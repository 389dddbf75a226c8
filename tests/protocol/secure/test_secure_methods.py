"""Every method that needs nothing but sums, under secure sums: the same as under plain ones."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.errors import PrivacyError, ProtocolError
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.release import Reveals
from eigenfed.protocol.core import Call, Protocol, Total, drive, plain_sum
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.magnitude import MagnitudeReply, MagnitudeRequest, magnitude
from eigenfed.protocol.exact.merge import Merge
from eigenfed.protocol.exact.moments import SpreadRequest, collect_moments
from eigenfed.protocol.exact.orthonormalise import cholesky_steps, close_vectors, gram_schmidt_steps
from eigenfed.protocol.exact.power import Power
from eigenfed.protocol.exact.subspace import Subspace
from eigenfed.protocol.messages import pack
from eigenfed.protocol.method import Method, registered
from eigenfed.protocol.operations import State, Terms
from eigenfed.transport.local import LocalTransport
from federation import coordinated, in_sites, run, study_of
from oracles import power_law
from secured import Coordinator, secured
from sides import Given, PutRequest, sides_of

STAGES = {"sum_keys", "sum_shares", "sum_survivors", "sum_unmask"}


METHODS: list[Method | str] = [
    "covariance",
    "krylov",
    "randomized",
    "subspace",
    Subspace(orthonormalise="each"),
    Subspace(by="gram_schmidt", criterion="change"),
    Power(local_steps=1),
    Power(local_steps=3, align="none"),
]
DENSE = power_law(90, 14, 1.0) + 5.0
SPARSE = sparse.random_array((90, 14), density=0.3, rng=np.random.default_rng(2), format="csr")
MISSING = np.where(np.random.default_rng(3).random(DENSE.shape) < 0.1, np.nan, DENSE)
DATA = {"dense": DENSE, "sparse": SPARSE, "missing": MISSING, "few rows": DENSE[:6]}


def fitted(
    tables: dict[str, Any], method: Method | str, *, k: int = 3, secure: bool, **settings: Any
) -> tuple[Decomposition, LocalTransport]:
    federation = secured(tables, policy=Policy(secure_only=secure))
    study = federation.study(method, k, secure=secure, **settings)
    transport = federation.transport(study)
    total: Total = federation.total(transport) if secure else plain_sum
    return drive(coordinated(study, seed=1, total=total), transport), transport


@pytest.mark.parametrize(
    ("method", "kind", "scale"),
    [
        (method, kind, (i + j) % 2 == 0)
        for i, method in enumerate(METHODS)
        for j, kind in enumerate(("dense", "sparse"))
    ],
)
def test_every_method_that_sums_gives_the_same_under_secure_sums(
    method: Method | str, kind: str, scale: bool
) -> None:
    tables = in_sites(DATA[kind], 3)
    plain, _ = fitted(tables, method, scale=scale, max_rounds=4, secure=False)
    safe, _ = fitted(tables, method, scale=scale, max_rounds=4, secure=True)
    np.testing.assert_allclose(safe.variances, plain.variances, rtol=1e-12)
    np.testing.assert_allclose(safe.components, plain.components, atol=1e-11)
    np.testing.assert_allclose(safe.mean, plain.mean, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(safe.scale, plain.scale, rtol=1e-13)
    assert safe.products == plain.products
    assert safe.total_variance == pytest.approx(plain.total_variance, rel=1e-12)
    if plain.certificate is not None:
        assert safe.certificate is not None
        np.testing.assert_allclose(
            safe.certificate.residuals, plain.certificate.residuals, atol=1e-11
        )


@pytest.mark.parametrize("kind", ["missing", "few rows"])
@pytest.mark.parametrize("method", ["covariance", "krylov"])
def test_missing_entries_and_small_sites_change_nothing(kind: str, method: str) -> None:
    tables = in_sites(DATA[kind], 3)
    plain, safe = (fitted(tables, method, scale=True, secure=s)[0] for s in (False, True))
    np.testing.assert_allclose(safe.variances, plain.variances, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("unit", [1e-100, 1e60])
def test_units_do_not_matter(unit: float) -> None:
    tables = in_sites(unit * DENSE, 3)
    plain, safe = (fitted(tables, "krylov", secure=secure)[0] for secure in (False, True))
    np.testing.assert_allclose(safe.variances, plain.variances, rtol=1e-11)


def test_features_of_very_different_size_keep_their_scales() -> None:
    """The small ones are asked for again, within bounds of their own."""
    sizes = 10.0 ** -(np.arange(14) / 1.5)
    tables = in_sites(DENSE * sizes, 4)
    (plain, _), (safe, transport) = (
        fitted(tables, "covariance", scale=True, secure=s) for s in (False, True)
    )
    np.testing.assert_allclose(safe.scale, plain.scale, rtol=1e-12)
    np.testing.assert_allclose(safe.variances, plain.variances, rtol=1e-11)
    even, fewer = fitted(in_sites(DENSE, 4), "covariance", scale=True, secure=True)
    assert transport.rounds == fewer.rounds + 3
    np.testing.assert_allclose(safe.variances, even.variances, rtol=1e-9)


def test_plain_runs_request_what_they_always_did() -> None:
    tables = in_sites(DENSE, 4)
    for method, rounds in (("covariance", 2), ("krylov", 3)):
        _, transport, sites = run(tables, 3, method, max_rounds=2, seed=1)
        assert transport.rounds == rounds
        asked = {line.op for line in next(iter(sites.values())).egress}
        assert asked <= {"moments", "scatter", "product", "remainder"}


@pytest.mark.parametrize(
    ("method", "remedy"),
    [
        ("merge", "method='covariance' or method='krylov'"),
        (Merge(), "method='covariance' or method='krylov'"),
        ("power", r"Power\(local_steps=1\)"),
        (Power(), r"Power\(local_steps=1\)"),
        (Power(local_steps=2, align="sign"), r"Power\(local_steps=1\)"),
        (Power(1, participation="scheme1", sites_per_round=3), "all sites in each average"),
        (Subspace(start="merge"), r"Subspace\(start='random'\)"),
    ],
    ids=str,
)
def test_methods_that_need_single_replies_are_refused_by_name(
    method: Method | str, remedy: str
) -> None:
    with pytest.raises(PrivacyError, match=rf"method=.*needs replies of single sites.*{remedy}"):
        fitted(in_sites(DENSE, 3), method, k=2, secure=True)


def conditioned(n: int, k: int, condition: float) -> Array:
    rng = np.random.default_rng(4)
    left, right = (np.linalg.qr(rng.standard_normal((m, k))).Q for m in (n, k))
    vectors: Array = (left * np.geomspace(1.0, 1.0 / condition, k)) @ right.T
    return vectors


def graded(n: int, k: int, condition: float) -> Array:
    """Orthogonal columns of very different length."""
    left = np.linalg.qr(np.random.default_rng(5).standard_normal((n, k))).Q
    vectors: Array = left * np.geomspace(1.0, 1.0 / condition, k)
    return vectors


def orthonormalised(
    vectors: Array, size: int, most: float | None = None, by: str = "cholesky"
) -> tuple[Array, Array]:
    """Return the vectors that sites are left with, and the triangle.

    Without a bound on the squared deviations it is the widest that sites take.
    """
    federation, k = secured(in_sites(vectors, size)), vectors.shape[1]
    study = federation.study(Given(), k, center=False)
    with registered(Given):
        transport = federation.transport(study)
        total = federation.total(transport)

        def protocol() -> Protocol[Array]:
            yield from collect_moments(total, study)
            limits = total.limits
            assert limits is not None
            widest = limits.parties * limits.squares * limits.d if most is None else most
            total.agree(replace(limits, most=widest))
            yield Call(PutRequest(most=widest))
            if by == "cholesky":
                done = yield from cholesky_steps(total, {})
            else:
                done = yield from gram_schmidt_steps(k, total, {})
            yield from close_vectors(total, done)
            return done.triangle

        triangle = drive(protocol(), transport)
    return sides_of(federation.sites, transport.run), triangle


@pytest.mark.parametrize("made", [conditioned, graded])
@pytest.mark.parametrize("condition", [1e3, 1e6, 1e12])
@pytest.mark.parametrize("size", [3, 10])
def test_cholesky_steps_are_orthonormal_whatever_the_condition(
    made: Callable[[int, int, float], Array], condition: float, size: int
) -> None:
    vectors = made(300, 8, condition)
    # The bound is some hundred times too wide, as bounds may be.
    found, triangle = orthonormalised(vectors, size)
    assert np.abs(found.T @ found - np.eye(8)).max() < 1e-13
    np.testing.assert_allclose(found @ triangle, vectors, rtol=0, atol=1e-15)


def test_gram_schmidt_sums_securely_and_sees_dependence() -> None:
    vectors = conditioned(300, 6, 1e3)
    found, triangle = orthonormalised(vectors, 5, most=2.0, by="gram_schmidt")
    assert np.abs(found.T @ found - np.eye(6)).max() < 1e-9
    np.testing.assert_allclose(found @ triangle, vectors, rtol=0, atol=1e-14)
    vectors[:, 3] = vectors[:, 0] + vectors[:, 1]
    with pytest.raises(
        ProtocolError, match="Column 3 of the vectors at the sites is zero or depends"
    ):
        orthonormalised(vectors, 5, most=10.0, by="gram_schmidt")


def test_magnitudes_leave_to_a_factor_of_two_and_nothing_else_of_single_sites() -> None:
    tables = in_sites(DENSE, 4)
    federation = secured(tables)
    study = federation.study()
    transport = federation.transport(study)
    drive(collect_moments(federation.total(transport), study), transport)
    for site in federation.sites.values():
        bare = [line for line in site.egress if not line.masked]
        assert {line.op for line in bare} == STAGES | {"magnitude"}
        assert {line.release.reveals for line in bare} == {Reveals.RANGE, Reveals.NOTHING}
    for name, table in tables.items():
        told = magnitudes(table)
        largest, weight = np.abs(table).max(), len(table)
        assert 2.0 ** (told.entry - 1) < largest <= 2.0**told.entry, name
        assert 2.0 ** (told.weight - 1) < weight <= 2.0**told.weight


def magnitudes(X: Any) -> MagnitudeReply:
    source = Source.of(X)
    terms = Terms(study_of("abc", 1, secure=True), source.n, source.d, 3)
    answer = magnitude.run(source, MagnitudeRequest(), State(), terms)
    assert answer.state.declared == (answer.reply.entry, answer.reply.weight)
    return answer.reply


@pytest.mark.parametrize(
    ("X", "entry", "weight"),
    [
        (np.zeros((2, 3)), -1074, 1),
        (np.full((1, 1), -8.0), 3, 0),
        (np.array([[np.nan, 0.3]]), -1, 0),
        (np.full((3, 1), np.nan), -1074, 2),
        (np.zeros((0, 2)), -1074, -1074),
        (sparse.csr_array((5, 4)), -1074, 3),
        (np.array([[5e-324]]), -1074, 0),
        (np.array([[1.7e308]]), 1024, 0),
    ],
    ids=range(8),
)
def test_the_magnitude_of_odd_tables(X: Any, entry: int, weight: int) -> None:
    assert magnitudes(X) == MagnitudeReply(entry=entry, weight=weight)


def test_the_total_deviation_is_told_once_about_a_scale_that_the_study_has() -> None:
    """With scales chosen by the coordinator it would be that of single features."""
    it = Coordinator(secured(in_sites(DENSE, 3)), "covariance")
    shares = it.shared(it.keyed())
    it.masked(shares)
    d = DENSE.shape[1]
    only = SpreadRequest(mean=np.zeros(d), scale=np.where(np.arange(d) == 2, 1.0, 1e140))
    site = it.names[0]
    assert it.code(site, "spread", pack(only) | it.envelope(1)) == "invalid"
    it.reply(site, "spread", it.asked(1))
    assert it.code(site, "spread", it.asked(1)) == "script"
