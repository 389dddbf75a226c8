"""The angle bound holds wherever it is finite, and Ritz values alone would not do."""

import math
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from eigenfed.arrays import Array
from eigenfed.errors import InputError, SiteRefused
from eigenfed.linalg.orthonormal import column_norms, sines
from eigenfed.linalg.remainder import UpperBound
from eigenfed.protocol.core import Protocol, drive
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.accuracy import RitzValues, bound_angle, make_certificate
from eigenfed.protocol.exact.certificate import (
    finish_with_product,
    make_products,
    remainder,
)
from eigenfed.protocol.exact.products import product
from eigenfed.protocol.gate.script import sequence
from eigenfed.protocol.method import Run, registered
from eigenfed.protocol.pca import pca
from federation import (
    InTurn,
    Testing,
    coordinated,
    gates,
    in_sites,
    mnist_like,
    opened,
    run,
    study_of,
)
from oracles import pooled

KINDS = ("decaying", "flat", "near_tie", "site_apart")


def problem(kind: str, rng: np.random.Generator) -> tuple[dict[str, Array], int]:
    d = int(rng.integers(4, 40))
    k = int(rng.integers(1, min(6, d - 1)))
    spread = {
        "decaying": 0.7 ** np.arange(d),
        "flat": np.ones(d),
        "near_tie": np.where(np.arange(d) <= k, 1.0, 0.3) * (1 - 1e-6 * np.arange(d)),
        "site_apart": 0.8 ** np.arange(d),
    }[kind]
    sites = {}
    for i in range(int(rng.integers(1, 6))):
        n = int(rng.integers(k + 2, 60))
        own = rng.permutation(spread) if kind == "site_apart" else spread
        rows = rng.standard_normal((n, d)) * own
        sites[f"s{i}"] = rows + rng.standard_normal(d) * rng.choice([0.0, 1.0])
    return sites, k


@pytest.mark.parametrize("kind", KINDS)
def test_the_bound_holds_on_many_problems(kind: str) -> None:
    rng = np.random.default_rng(KINDS.index(kind))
    finite = 0
    for _ in range(200):
        sites, k = problem(kind, rng)
        study = study_of(
            sites,
            k,
            "krylov",
            tol=float(10.0 ** -rng.integers(1, 10)),
            max_rounds=int(rng.integers(1, 5)),
        )
        found = drive(pca(study, rng=rng), InTurn(gates(sites), study))
        grade = found.certificate
        assert grade is not None
        exact = pooled(np.vstack([sites[name] for name in sorted(sites)]))
        if len(exact.s) < k:
            continue
        true = np.arcsin(sines(found.components, exact.vt[:k])[0])
        gap = exact.s[k - 1] ** 2 - (exact.s[k] ** 2 if len(exact.s) > k else 0.0)
        if gap < 1e-9 * exact.s[0] ** 2:
            continue
        assert true <= grade.angle_bound + 1e-6
        finite += np.isfinite(grade.angle_bound)
    assert finite >= (0 if kind == "flat" else 40)


class Blind(Testing):
    """Finishes with directions among which the first component is not."""

    ops = (product, remainder)
    asked = sequence("product", "remainder")
    basis: ClassVar[Array] = np.eye(6)[:, 1:3]

    def width(self, k: int, d: int) -> int:
        return 2

    def run(self, run: Run) -> Protocol[Decomposition]:
        return finish_with_product(make_products(run), self.basis, run.k, tol=run.tol, certify=True)


def test_the_estimate_is_no_bound_and_the_bound_knows_it() -> None:
    """Ritz values bound the next eigenvalue from below: what a start misses they cannot tell."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((500, 6)) * [9.0, 3.0, 0.01, 0.01, 0.01, 0.01]
    rows = np.linalg.qr(rows - rows.mean(axis=0)).Q * [9.0, 3.0, 0.1, 0.1, 0.1, 0.1]
    with registered(Blind):
        found, _, _ = run({"a": rows[:200], "b": rows[200:]}, 1, Blind(), tol=1e-8)
    assert found.certificate is not None
    assert sines(found.components, pooled(rows).vt[:1])[0] > 0.99
    assert found.certificate.angle_estimate < 1e-6
    assert found.certificate.angle_bound == np.inf


def test_a_whole_covariance_certifies_itself() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 8)) * 0.5 ** np.arange(8)
    found, _, _ = run({"a": X[:30], "b": X[30:]}, 3, "covariance", tol=1e-10)
    assert found.certificate is not None
    assert found.certificate.converged.all()
    assert found.certificate.angle_bound < 1e-10
    assert found.certificate.orthonormality < 1e-13
    assert found.certificate.total_variance == pytest.approx(np.cov(X.T).trace())


def test_angles_of_sines() -> None:
    assert bound_angle(1.0, 2.0) == pytest.approx(np.pi / 6)
    assert bound_angle(2.0, 1.0) == bound_angle(1.0, 0.0) == bound_angle(0.0, -1.0) == np.inf
    assert bound_angle(0.0, 1.0) == 0.0


def true_residuals(found: Decomposition, X: Array) -> Array:
    """Residuals of the components for the covariance that pooling all rows would give."""
    covariance = np.cov(X.T)
    left = covariance @ found.components.T - found.components.T * found.variances
    residuals: Array = column_norms(left) / found.variances[0]
    return residuals


def over_wire(X: Array, method: str, *, said: str, wire: str = "float32") -> Decomposition:
    """Run over three sites with narrow messages, and say that they are so or not."""
    sites = gates(in_sites(X, 3), wire=wire)
    study = study_of(sites, 4, method, tol=1e-9, max_rounds=12, wire=said)
    return drive(coordinated(study), opened(sites, study, wire=wire))


@pytest.mark.parametrize("offset", [0.0, 30.0, 3000.0])
@pytest.mark.parametrize("method", ["covariance", "krylov", "subspace", "power"])
def test_the_error_of_a_narrow_wire_is_part_of_the_residual(method: str, offset: float) -> None:
    X = mnist_like(400, 50, seed=1) + offset
    found = over_wire(X, method, said="float32")
    assert found.certificate is not None
    true = true_residuals(found, X)
    assert np.all(true <= found.certificate.residuals)
    assert not found.certificate.converged.any()
    exact = pooled(X)
    assert np.arcsin(sines(found.components, exact.vt[:4])[0]) <= found.certificate.angle_bound
    if method == "covariance" and offset < 1000.0:
        # A wire that is narrow and not said to be makes the residual look better than it is.
        blind = over_wire(X, method, said="float64")
        assert blind.certificate is not None
        assert np.any(true_residuals(blind, X) > blind.certificate.residuals)


@pytest.mark.parametrize("method", ["krylov", "power"])
def test_directions_that_crossed_a_wire_narrower_than_the_study_s_are_refused(method: str) -> None:
    with pytest.raises(SiteRefused, match="'invalid'"):
        over_wire(mnist_like(400, 50, seed=1), method, said="float64")


def test_a_wide_wire_adds_nothing() -> None:
    X = mnist_like(400, 50, seed=1)
    found = over_wire(X, "krylov", said="float64", wire="float64")
    assert found.certificate is not None
    np.testing.assert_allclose(found.certificate.residuals, true_residuals(found, X), atol=2e-13)


def test_a_wire_of_another_width_is_refused() -> None:
    with pytest.raises(InputError, match="wire of a study must be one of float64, float32"):
        over_wire(mnist_like(60, 20), "krylov", said="float16", wire="float64")


@pytest.mark.parametrize("method", ["covariance", "krylov", "power", "merge"])
def test_residuals_are_right_where_their_squares_would_overflow(method: str) -> None:
    rng = np.random.default_rng(2)
    X = rng.standard_normal((200, 20)) * np.power(0.7, np.arange(20.0))
    plain = over_wire(X, method, said="float64", wire="float64")
    huge = over_wire(1e100 * X, method, said="float64", wire="float64")
    assert plain.certificate is not None
    assert huge.certificate is not None
    np.testing.assert_allclose(huge.variances, 1e200 * plain.variances, rtol=1e-9)
    np.testing.assert_allclose(
        huge.certificate.residuals, plain.certificate.residuals, rtol=1e-3, atol=1e-13
    )
    assert huge.certificate.angle_bound == pytest.approx(
        plain.certificate.angle_bound, rel=1e-3, abs=1e-12
    )


def test_the_residual_of_a_variance_near_the_least_numbers_is_infinite() -> None:
    ritz = RitzValues(np.array([1e-320, 0.0]), np.array([0.0, 0.0]), 1, 1.0)
    grade = make_certificate(
        ritz, span=0.0, above=UpperBound(0.0, 0.0), vt=np.eye(1, 2), variance=1.0, tol=1e-4
    )
    assert (grade.residuals[0], grade.angle_bound) == (np.inf, np.inf)


def test_a_run_does_not_stop_where_its_certificate_finds_it_too_early() -> None:
    norm, rounding = 0.0007, 1e-4
    ritz = RitzValues(np.array([2.0, 1.0]), np.array([norm, 0.0]), 1, rounding)
    for tol in np.linspace(0.03, 0.08, 21):
        is_within = ritz.estimate_angles()[0] <= math.radians(tol)
        assert ritz.reaches(float(tol)) == is_within
    # What rounding hides cannot be improved.
    exact = replace(ritz, norms=np.array([rounding, 0.0]))
    assert exact.reaches(1e-6)
