"""One-shot merges against pooled PCA: what is exact, what is close, what is lost."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits

from eigenfed.arrays import Array, Arrays
from eigenfed.data.source import Source
from eigenfed.errors import InputError, ProtocolError, SiteRefused
from eigenfed.linalg.orthonormal import sines
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.release import Leaves
from eigenfed.protocol.core import Protocol, drive, plain_sum
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.merge import Merge, request_merged_basis
from eigenfed.protocol.exact.moments import Moments, collect_moments
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.method import Run
from eigenfed.transport.local import LocalTransport
from federation import coordinated, gate, gates, opened, study_of
from oracles import pooled, power_law

WEIGHTINGS = ("sigma", "sqrt", "none")


def federation(
    parts: Sequence[Array], *, wire: str = "float64", policy: Policy | None = None
) -> dict[str, Site]:
    return {f"s{i}": gate(f"s{i}", part, policy=policy, wire=wire) for i, part in enumerate(parts)}


def merged(
    sites: dict[str, Site],
    k: int,
    options: Merge | None = None,
    *,
    certify: bool = False,
    **settings: Any,
) -> tuple[Decomposition, LocalTransport]:
    study = study_of(sites, k, options or Merge(), tol=1e-6, certify=certify, **settings)
    transport = opened(sites, study, workers=1)
    return drive(coordinated(study), transport), transport


def warm_basis(parts: Sequence[Array], k: int, options: Merge) -> Array:
    sites = federation(parts)
    study = study_of(sites, k, options)

    def protocol() -> Protocol[Array]:
        moments = yield from collect_moments(plain_sum, study)
        run = Run(study, moments, study.sites, np.random.default_rng(0), plain_sum)
        return (yield from request_merged_basis(run, k, options))

    return drive(protocol(), opened(sites, study, workers=1))


def captured(X: Array, vt: Array) -> float:
    """Share of the best k components' energy that `vt` captures of rows of mean zero."""
    s = np.linalg.svd(X, compute_uv=False)
    return float(np.sum((X @ vt.T) ** 2) / np.sum(s[: len(vt)] ** 2))


def low_rank(rank: int, d: int, sizes: Sequence[int], seed: int = 0) -> list[Array]:
    """Rows of several sites, each of rank `rank` about means that differ."""
    rng = np.random.default_rng(seed)
    mix = rng.standard_normal((rank, d)) * np.arange(rank, 0, -1)[:, None]
    return [rng.standard_normal((n, rank)) @ mix + rng.standard_normal(d) for n in sizes]


@pytest.mark.parametrize("seed", range(4))
def test_digits_capture_what_was_measured(seed: int) -> None:
    """0.961, 0.993, 0.99993 were on one random split of standardised digits; others differ."""
    digits = load_digits().data
    X = digits - digits.mean(axis=0)
    X /= np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    parts = np.array_split(digits[np.random.default_rng(seed).permutation(len(digits))], 5)
    shares = {
        w: captured(X, merged(federation(parts), 10, Merge(weighting=w), scale=True)[0].components)
        for w in WEIGHTINGS
    }
    assert shares["none"] == pytest.approx(0.961, abs=0.03)
    assert shares["sqrt"] == pytest.approx(0.993, abs=0.005)
    assert 1 - 2e-4 < shares["sigma"] <= 1


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("certify", [True, False])
def test_the_merge_is_exact_where_the_directions_cover_the_rank(
    center: bool, certify: bool
) -> None:
    parts = low_rank(4, 30, [40, 25, 90])
    X = np.concatenate(parts)
    result, _ = merged(federation(parts), 5, certify=certify, center=center)
    truth = pooled(X, centered=center)
    assert sines(result.components, truth.vt[:5])[0] < 1e-10
    np.testing.assert_allclose(result.variances, truth.s[:5] ** 2 / (len(X) - 1), rtol=1e-10)
    np.testing.assert_allclose(result.mean, truth.mean, atol=1e-12)
    assert result.total_variance == pytest.approx(truth.energy / (len(X) - 1), rel=1e-12)
    assert result.n == len(X)


def test_weights_scale_missing_entries_and_sparse_rows_are_those_of_the_pooled_table() -> None:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((120, 8)) * np.arange(1, 9) + 5
    X[rng.random(X.shape) < 0.3] = 0.0
    weights = rng.uniform(0.5, 2.0, 120)
    gaps = X.copy()
    gaps[80:][rng.random((40, 8)) < 0.1] = np.nan
    sources = {
        "a": Source.of(X[:50], weights=weights[:50]),
        "b": Source.of(sparse.csr_array(X[50:80]), weights=weights[50:80]),
        "c": Source.of(gaps[80:], weights=weights[80:]),
    }
    result, _ = merged(gates(sources), 4, scale=True)
    seen = weights[:, None] * ~np.isnan(gaps)
    mean = np.nansum(gaps * seen, axis=0) / seen.sum(axis=0)
    around = np.where(np.isnan(gaps), 0.0, gaps - mean)
    around /= np.sqrt(np.sum(weights[:, None] * around**2, axis=0) / seen.sum(axis=0))
    scatter = (weights[:, None] * around).T @ around
    values, vectors = np.linalg.eigh(scatter / (weights.sum() - 1))
    assert sines(result.components, vectors[:, :-5:-1].T)[0] < 1e-10
    np.testing.assert_allclose(result.variances, values[:-5:-1], rtol=1e-10)


def test_without_further_rounds_variances_are_below_the_truth_and_the_total_is_exact() -> None:
    X = power_law(600, 40, 1.0, seed=1)
    result, transport = merged(federation(np.array_split(X, 4)), 5)
    truth = pooled(X)
    exact = truth.s[:5] ** 2 / 599
    assert np.all(result.variances <= exact * (1 + 1e-12))
    assert np.all(result.variances > 0.95 * exact)
    assert result.total_variance == pytest.approx(truth.energy / 599)
    assert result.certificate is None
    assert (transport.rounds, result.products) == (2, 0)


@pytest.mark.parametrize(("weighting", "lossy"), [("sigma", False), ("sqrt", True), ("none", True)])
def test_only_sigma_keeps_the_shift_between_sites(weighting: str, lossy: bool) -> None:
    """All sites are alike but for their means, which differ along the last feature."""
    rng = np.random.default_rng(0)
    spread = np.array([3.0, 2.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.1])
    parts = [rng.standard_normal((200, 10)) * spread for _ in range(3)]
    for part, shift in zip(parts, (-50.0, 0.0, 50.0), strict=True):
        part[:, -1] += shift
    result, _ = merged(federation(parts), 2, Merge(weighting=weighting), certify=True)
    assert abs(result.components[0, -1]) == pytest.approx(0.0 if lossy else 1.0, abs=0.05)
    truth = pooled(np.concatenate(parts))
    sine = sines(result.components, truth.vt[:2])[0]
    assert sine > 0.9 if lossy else sine < 1e-2


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("seed", range(4))
def test_the_certificate_is_honest(weighting: str, seed: int) -> None:
    X = power_law(500, 25, 2.5, seed=seed)
    parts = np.array_split(X, [60, 200])
    options = Merge(weighting=weighting, oversample=2)
    result, _ = merged(federation(parts), 3, options, certify=True)
    truth = pooled(X)
    matrix = np.cov(X, rowvar=False)
    grade = result.certificate
    assert grade is not None
    left = matrix @ result.components.T - result.components.T * result.variances
    expected = np.linalg.norm(left, axis=0) / result.variances[0]
    np.testing.assert_allclose(grade.residuals, expected, rtol=1e-6, atol=1e-12)
    assert sines(result.components, truth.vt[:3])[0] <= np.sin(min(grade.angle_bound, np.pi / 2))
    assert grade.converged.tolist() == (expected <= 1e-6).tolist()
    assert grade.orthonormality < 1e-12


def test_the_certificate_says_something_where_the_spectrum_falls() -> None:
    X = power_law(2000, 25, 3.0, seed=5)
    result, _ = merged(federation(np.array_split(X, 3)), 2, certify=True)
    assert result.certificate is not None
    assert result.certificate.angle_bound < 0.05


def test_a_certified_run_is_at_least_as_good_and_costs_two_rounds_more() -> None:
    X = power_law(900, 40, 1.0, seed=2)
    X -= X.mean(axis=0)
    plain, cheap = merged(federation(np.array_split(X, 6)), 4)
    graded, dear = merged(federation(np.array_split(X, 6)), 4, certify=True)
    assert captured(X, graded.components) >= captured(X, plain.components)
    assert (cheap.rounds, dear.rounds, graded.products) == (2, 4, 1)


@pytest.mark.parametrize("weighting", ["sqrt", "none"])
def test_the_published_weightings_ask_for_one_product_to_know_variances(weighting: str) -> None:
    X = power_law(300, 20, 1.0)
    result, transport = merged(federation(np.array_split(X, 3)), 3, Merge(weighting=weighting))
    assert (transport.rounds, result.products) == (3, 1)
    along = (X - X.mean(axis=0)) @ result.components.T
    np.testing.assert_allclose(result.variances, along.var(axis=0, ddof=1), rtol=1e-10)


@pytest.mark.parametrize(
    ("weighting", "weigh"),
    [("none", np.ones_like), ("sqrt", np.sqrt)],
)
def test_the_published_weightings_are_the_stack_as_printed(
    weighting: str, weigh: Callable[[Array], Array]
) -> None:
    parts = [power_law(n, 12, 1.0, seed=n) for n in (30, 50, 80)]
    stack = []
    for part in parts:
        own = pooled(part)
        stack.append(weigh(own.s[:6])[:, None] * own.vt[:6])
    expected = np.linalg.svd(np.concatenate(stack)).Vh[:3]
    basis = warm_basis(parts, 3, Merge(weighting=weighting))
    assert sines(basis.T, expected)[0] < 1e-9


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("certify", [True, False])
def test_sites_with_few_or_no_rows_take_part(weighting: str, certify: bool) -> None:
    parts = low_rank(3, 12, [60, 0, 1, 2], seed=4)
    sites = federation(parts, policy=Policy(min_rows=0))
    result, _ = merged(sites, 4, Merge(weighting=weighting), certify=certify)
    assert result.components.shape == (4, 12)
    assert np.abs(result.components @ result.components.T - np.eye(4)).max() < 1e-12
    # How many directions a site's rows have is not to be told by how long its reply is.
    assert {site.egress[1].shapes["vt"] for site in sites.values()} == {(8, 12)}
    assert len({site.egress[1].sent_bytes for site in sites.values()}) == 1
    if weighting == "sigma":
        truth = pooled(np.concatenate(parts))
        assert sines(result.components, truth.vt[:4])[0] < 1e-8


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_constant_rows_give_some_basis_of_no_variance(weighting: str) -> None:
    sites = federation([np.full((3, 5), 2.0), np.full((4, 5), 2.0)])
    result, _ = merged(sites, 2, Merge(weighting=weighting))
    np.testing.assert_allclose(result.components @ result.components.T, np.eye(2), atol=1e-12)
    assert result.variances.tolist() == [0.0, 0.0]


def test_what_leaves_a_site_is_the_summary_and_no_more() -> None:
    sites = federation(np.array_split(power_law(200, 15, 1.0), 2))
    _, transport = merged(sites, 3)
    for site in sites.values():
        first, second = site.egress
        assert (first.op, second.op) == ("moments", "summarise")
        assert second.shapes == {
            "n": (1,),
            "mean": (15,),
            "s": (6,),
            "vt": (6, 15),
            "energy": (1,),
            "lost": (1,),
        }
        assert second.release.leaves is Leaves.EXACT
    assert transport.floats_up == 2 * ((1 + 2 * 15) + (6 * (15 + 1) + 15 + 3))


def test_the_meter_counts_the_directions_sent() -> None:
    X = power_law(200, 15, 1.0)
    sites = federation([X])
    merged(sites, 3)
    s = pooled(X).s
    assert sites["s0"].meter.rank_fraction == pytest.approx(6 / 15)
    share = np.sum(s[:6] ** 2) / np.sum(s**2)
    assert sites["s0"].meter.variance_fraction == pytest.approx(share, rel=5e-3)


def test_the_meter_holds_summary_and_product_together_in_the_units_of_the_rows() -> None:
    X = power_law(300, 15, 1.0) * np.arange(1, 16)
    sites = federation([X[:200], X[200:] + 3.0])
    merged(sites, 3, scale=True, certify=True)
    basis = sites["s0"].meter.basis
    scatter = 199 * np.cov(X[:200], rowvar=False)
    image = scatter @ basis
    completion = image @ np.linalg.pinv(basis.T @ image) @ image.T
    share = completion.trace() / scatter.trace()
    assert basis.shape == (15, 12)
    assert sites["s0"].meter.variance_fraction == pytest.approx(share, rel=0.1)


def test_a_policy_can_limit_the_directions_sent() -> None:
    parts, half = [power_law(50, 10, 1.0)], Policy(max_rank_fraction=0.5)
    with pytest.raises(SiteRefused, match="leakage"):
        merged(federation(parts, policy=half), 3)
    merged(federation(parts, policy=half), 3, Merge(oversample=2))


def test_the_order_in_which_sites_are_named_changes_no_bit() -> None:
    sites = federation(np.array_split(power_law(300, 20, 1.0), 4))
    one, _ = merged(sites, 3)
    other, _ = merged(dict(reversed(sites.items())), 3)
    np.testing.assert_array_equal(one.components, other.components)
    np.testing.assert_array_equal(one.variances, other.variances)


@pytest.mark.parametrize("sizes", [[80], [50, 60]])
def test_a_single_precision_wire_costs_its_digits_and_no_orthonormality(sizes: list[int]) -> None:
    X = low_rank(3, 20, sizes)
    result, _ = merged(federation(X, wire="float32"), 3, wire="float32")
    truth = pooled(np.concatenate(X))
    assert np.abs(result.components @ result.components.T - np.eye(3)).max() < 1e-12
    assert sines(result.components, truth.vt[:3])[0] > 1e-10
    exact, _ = merged(federation(X), 3)
    assert sines(result.components, exact.components)[0] < 1e-5


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_a_basis_to_start_from_is_orthonormal_and_near(weighting: str) -> None:
    X = power_law(800, 30, 2.0, seed=7)
    basis = warm_basis(np.array_split(X, 4), 4, Merge(weighting=weighting))
    assert basis.shape == (30, 4)
    np.testing.assert_allclose(basis.T @ basis, np.eye(4), atol=1e-12)
    limit = {"sigma": 0.01, "sqrt": 0.3, "none": 1.0}[weighting]
    assert sines(basis.T, pooled(X).vt[:4])[0] < limit


def test_more_directions_sent_come_closer() -> None:
    X = power_law(1000, 40, 1.0, seed=3)
    truth = pooled(X).vt[:4]
    errors = [
        sines(warm_basis(np.array_split(X, 5), 4, Merge(oversample=extra)).T, truth)[0]
        for extra in (0, 4, 36)
    ]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-10


@pytest.mark.parametrize("weighting", ["", "SIGMA", "svd"])
def test_an_unknown_weighting_is_refused(weighting: str) -> None:
    with pytest.raises(InputError, match=r"weighting=.* must be 'sigma', 'sqrt' or 'none'"):
        Merge(weighting=weighting)


@pytest.mark.parametrize("oversample", [-1, 1.5, True])
def test_a_bad_oversample_is_refused(oversample: int) -> None:
    with pytest.raises(InputError, match=r"oversample=.* must be an integer of at least 0"):
        Merge(oversample=oversample)


def sound_reply() -> Arrays:
    own = pooled(power_law(30, 5, 1.0))
    return {
        "n": np.array([30.0]),
        "mean": np.zeros(5),
        "s": own.s[:2],
        "vt": own.vt[:2],
        "energy": np.array([own.energy]),
        "lost": np.array([own.s[2] ** 2]),
    }


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"vt": np.eye(5)[:1]}, "do not match 5 features"),
        ({"mean": np.zeros(4)}, "do not match 5 features"),
        ({"more": np.zeros(1)}, "does not have fields"),
        ({"n": np.array([np.nan])}, "not finite"),
        ({"vt": np.ones((2, 5))}, "not orthonormal"),
    ],
)
def test_a_reply_that_is_no_summary_is_refused_by_the_name_of_its_site(
    changed: Arrays, match: str
) -> None:
    study, moments = study_of("ab", 2, "merge"), Moments(30.0, np.zeros(5), np.ones(5))
    run = Run(study, moments, study.sites, np.random.default_rng(0), plain_sum)
    protocol = request_merged_basis(run, 2, Merge())
    next(protocol)
    with pytest.raises(ProtocolError, match=match) as caught:
        protocol.send({"a": sound_reply(), "b": sound_reply() | changed})
    assert "'b'" in str(caught.value)
