"""Runs of the papers' mechanisms: exact without noise, as useful as was measured, never quiet."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.errors import InputError, ProtocolError, SiteRefused
from eigenfed.estimators.in_process import Conditions, federation
from eigenfed.linalg.orthonormal import sines
from eigenfed.privacy.dp.accounting import delta_of
from eigenfed.privacy.ledger.ledger import Budget
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.published_claims import Published
from eigenfed.privacy.release import Leaves, Reveals
from eigenfed.protocol.core import Call, Record, call_each, drive
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.method_registry import all_operations
from eigenfed.protocol.published import (
    AnalyzeGauss,
    DPdisPCA,
    ModSuLQ,
    NoisyFedPower,
    StreamingModSuLQ,
    SuLQ,
)
from eigenfed.protocol.published.bounded import SizesRequest
from eigenfed.protocol.published.dpdispca import NoisyCovarianceRequest, noisy_covariance
from eigenfed.protocol.published.fedpower import NoisyStepReply, NoisyStepRequest, noisy_step
from eigenfed.protocol.published.mechanism import BoundedScatterRequest, bounded_scatter
from eigenfed.protocol.published.published_pca import OPS, published_pca, published_script
from eigenfed.protocol.published.sulq import MaskedStreamRequest, masked_stream
from eigenfed.protocol.study import Study
from eigenfed.transport.local import LocalTransport
from eigenfed.transport.transcript import Transcript
from oracles import pooled, power_law
from private_runs import as_published, in_parts

HUGE = 1e12
SILENT = 1e200
KNOWN = all_operations()


@pytest.fixture(autouse=True)
def seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise that is the same in every run of the tests."""
    monkeypatch.setattr(secrets, "token_bytes", np.random.default_rng(7).bytes)


def run(
    value: Published,
    tables: dict[str, Any],
    k: int,
    *,
    center: bool = True,
    seed: int = 0,
    record: Record | None = None,
    policy: Policy | None = None,
) -> tuple[Decomposition, LocalTransport, dict[str, Site]]:
    study = Study(tuple(sorted(tables)), k, privacy=value, center=center)
    sources = {
        name: table if isinstance(table, Source) else Source.of(table)
        for name, table in tables.items()
    }
    over = federation(
        study, sources, Conditions(policies=dict.fromkeys(tables, policy or Policy()))
    )
    # One after the other, so that seeded noise is drawn in one order.
    assert isinstance(over.transport, LocalTransport)
    over.transport._workers = 1
    protocol = published_pca(over.study, rng=np.random.default_rng(seed))
    return drive(protocol, over.transport, record), over.transport, over.sites


# Without noise ---------------------------------------------------------------------------------

ALL_BUT_SILENT: list[Published] = [
    SuLQ(HUGE, 1e-5),
    ModSuLQ(HUGE, 1e-5),
    ModSuLQ(HUGE, 1e-5, formula="17"),
    AnalyzeGauss(HUGE, 1e-5),
    DPdisPCA(HUGE, 1e-5, release="covariance"),
    DPdisPCA(HUGE, 1e-5, rank=7),
    DPdisPCA(HUGE, 1e-5, release="covariance", where="pooled"),
    StreamingModSuLQ(HUGE, 1e-5, batch=25, formula="17", merge="corrected", rank=7),
    NoisyFedPower(HUGE, 1e-5, iterations=60, rank=5),
]


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("value", ALL_BUT_SILENT, ids=lambda value: type(value).__name__)
def test_with_hardly_any_noise_every_mechanism_is_the_pooled_pca(
    value: Published, center: bool
) -> None:
    X = power_law(200, 7, 2.0) + 0.3
    result, _, _ = run(value, in_parts(X, 4), 3, center=center)
    truth = pooled(X, centered=center)
    assert sines(result.components, truth.vt[:3])[0] < 1e-4
    np.testing.assert_allclose(result.variances, truth.s[:3] ** 2 / 199, rtol=1e-3)
    np.testing.assert_allclose(result.mean, truth.mean, atol=1e-12)
    assert result.n == 200
    np.testing.assert_allclose(result.components @ result.components.T, np.eye(3), atol=1e-10)
    assert result.method == type(value).__name__
    if not np.isnan(result.total_variance):
        assert result.total_variance == pytest.approx(truth.energy / 199, rel=1e-6)


def test_a_public_bound_shortens_longer_rows_only() -> None:
    X = np.array([[3.0, 4.0], [0.0, 0.5], [1.0, 0.0]])

    def moment(bound: float) -> Array:
        request = BoundedScatterRequest(mean=np.zeros(2), bound=bound)
        value = AnalyzeGauss(1.0, 1e-5, clip=bound)
        triangle: Array = as_published(value, bounded_scatter, request, X).reply.triangle
        return triangle

    short = np.array([[0.6, 0.8], [0.0, 0.5], [1.0, 0.0]])
    np.testing.assert_allclose(moment(1.0), (short.T @ short)[np.triu_indices(2)], rtol=1e-14)
    np.testing.assert_allclose(moment(10.0), (X.T @ X / 100)[np.triu_indices(2)])


def test_dividing_by_the_largest_norm_lets_one_row_rescale_all_others() -> None:
    """[Imtiaz2018] section 4: nothing else changed, and the first entry falls to a quarter."""
    calm = np.zeros((1000, 4))
    calm[:, 0] = 1.0
    loud = calm.copy()
    loud[-1, 0] = 2.0
    value = AnalyzeGauss(HUGE, 1e-5)
    before, after = (run(value, {"a": X}, 1, center=False)[0] for X in (calm, loud))
    # Variances are in the rows' units again: dividing by the squared bound undoes that.
    firsts = [r.variances[0] * 999 / 1000 / bound**2 for r, bound in ((before, 1), (after, 2))]
    np.testing.assert_allclose(firsts, [1.0, 0.25075], rtol=1e-6)


@pytest.mark.parametrize("k", [1, 4])
def test_sparse_rows_are_bounded_as_dense_ones(k: int) -> None:
    X = np.where(np.random.default_rng(0).random((60, 8)) < 0.5, power_law(60, 8, 1.0), 0.0)
    value = DPdisPCA(HUGE, 1e-5, release="covariance", clip=0.7)
    dense, held = (
        run(value, {"a": table[:30], "b": table[30:]}, k)[0] for table in (X, sparse.csr_array(X))
    )
    np.testing.assert_allclose(held.variances, dense.variances, rtol=1e-6)


# Noise -----------------------------------------------------------------------------------------


def released(result: Decomposition) -> Array:
    """The noisy matrix, where all of its eigenvalues are positive and shown."""
    moment: Array = (result.components.T * result.variances) @ result.components
    return moment * (result.n - 1) / result.n


@pytest.mark.parametrize(
    "value",
    [
        ModSuLQ(2000.0, 1e-5, clip=1.0),
        AnalyzeGauss(40.0, 1e-5, clip=1.0),
        DPdisPCA(40.0, 1e-5, release="covariance", where="pooled", clip=1.0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_pooled_noise_is_in_both_triangles_and_as_large_as_printed(value: ModSuLQ) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 30))
    X /= np.linalg.norm(X, axis=1)[:, None]
    result, _, _ = run(value, in_parts(X, 2), 30, center=False)
    assert (result.variances > 0).all()
    noise = released(result) - X.T @ X / 4000
    np.testing.assert_allclose(noise, noise.T, atol=1e-12)
    sd = value.noise_sd(4000, 30)
    for triangle in (np.tril_indices(30, -1), np.triu_indices(30, 1)):
        assert np.abs(noise[triangle]).min() > 0
        assert noise[triangle].std() == pytest.approx(sd, rel=0.12)
    assert noise.diagonal().std() == pytest.approx(sd, rel=0.5)


@pytest.mark.parametrize("n", [10, 40])
def test_a_site_adds_the_noise_of_the_study_for_its_own_number_of_rows(n: int) -> None:
    """Nobody tells it how much: [Imtiaz2018]'s formula, of the rows that the site has."""
    value = DPdisPCA(1.0, 1e-5, release="covariance", clip=1.0)
    request = NoisyCovarianceRequest(mean=np.zeros(80), bound=1.0)
    triangle = as_published(value, noisy_covariance, request, np.zeros((n, 80))).reply.triangle
    assert len(np.unique(triangle)) == 80 * 81 // 2
    assert triangle.std() == pytest.approx(value.noise_sd(n, 80), rel=0.06)


@pytest.mark.parametrize("bound", [0.0, -1.0, np.inf, np.nan, 0.5, 2.0])
def test_a_site_takes_no_bound_but_that_of_the_study(bound: float) -> None:
    """Divided by a larger one, rows would be small beside the noise that is made for norm 1."""
    value = DPdisPCA(1.0, 1e-5, release="covariance", clip=1.0)
    request = NoisyCovarianceRequest(mean=np.zeros(2), bound=bound)
    with pytest.raises(InputError, match="bound must be above 0, and the study's"):
        as_published(value, noisy_covariance, request, np.eye(2))


def test_an_operation_of_another_mechanism_tells_nothing() -> None:
    """The script has no place for it; if it had, its noise would be without end."""
    request = NoisyCovarianceRequest(mean=np.zeros(2), bound=1.0)
    other = NoisyFedPower(1.0, 1e-5, iterations=1, clip=1.0)
    sent = as_published(other, noisy_covariance, request, np.eye(2)).reply.triangle
    assert not np.isfinite(sent).any()
    study = Study(("a",), 1, privacy=other, center=False)
    following = published_script(study).after("bounded_rows")
    assert following is not None
    assert following.after("noisy_covariance") is None
    assert following.after("noisy_step") is not None


SOME: list[Published] = [
    AnalyzeGauss(1.0, 1e-5),
    SuLQ(1.0, 1e-5),
    DPdisPCA(1.0, 1e-5),
    StreamingModSuLQ(1.0, 0.1, batch=10),
    NoisyFedPower(1.0, 1e-5, iterations=4, local_steps=2),
]


@pytest.mark.parametrize("value", SOME, ids=lambda value: type(value).__name__)
def test_the_users_seed_does_not_set_the_noise(value: Published) -> None:
    tables = in_parts(power_law(90, 6, 1.0), 3)
    first, second = (run(value, tables, 2, seed=3)[0] for _ in range(2))
    assert np.abs(first.components - second.components).max() > 1e-9


@pytest.mark.parametrize("value", SOME, ids=lambda value: type(value).__name__)
def test_a_run_that_is_taken_up_again_draws_no_second_noise(value: Published) -> None:
    """Each further draw for the same data would average the noise away."""
    tables, record = in_parts(power_law(90, 6, 1.0), 3), Transcript(None)
    first, asked, _ = run(value, tables, 2, record=record)
    again, replayed, _ = run(value, tables, 2, record=record)
    assert asked.rounds > 0
    assert replayed.rounds == 0
    np.testing.assert_array_equal(first.components, again.components)
    np.testing.assert_array_equal(first.variances, again.variances)


# What the papers do ----------------------------------------------------------------------------


def test_dpdispca_averages_sites_evenly_whatever_their_rows() -> None:
    """[Imtiaz2018] line 9: 1/S, which is biased where sites differ in size."""
    X = np.concatenate([np.tile([1.0, 0.0], (90, 1)), np.tile([0.0, 1.0], (10, 1))])
    value = DPdisPCA(HUGE, 1e-5, release="covariance", clip=1.0)
    result, _, _ = run(value, {"a": X[:90], "b": X[90:]}, 2, center=False)
    np.testing.assert_allclose(result.variances * 99 / 100, [0.5, 0.5], atol=1e-9)


def test_dpdispca_takes_negative_eigenvalues_for_positive_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """[Imtiaz2018] line 5 takes singular values: a negative eigenvalue becomes a direction."""
    monkeypatch.setattr(secrets, "token_bytes", lambda size: bytes(size))
    # All noise is then the same number far below zero, whose eigenvector is all ones.
    X = np.tile([1.0, -1.0, 0.0], (50, 1))
    result, _, _ = run(DPdisPCA(1.0, 1e-5, clip=2.0, rank=1), {"a": X}, 1, center=False)
    np.testing.assert_allclose(np.abs(result.components[0]), 1 / np.sqrt(3), atol=1e-6)
    assert result.variances[0] > 1.0


def test_the_factor_is_what_leaves_and_its_rank_is_kept() -> None:
    tables = in_parts(power_law(120, 9, 1.0), 3)
    _, transport, sites = run(DPdisPCA(1.0, 1e-5, rank=4), tables, 2)
    assert transport.rounds == 3
    for site in sites.values():
        assert site.egress[-1].op == "noisy_factor"
        assert site.egress[-1].shapes == {"factor": (9, 4)}


def test_local_data_means_only_the_largest_site_is_asked() -> None:
    X = power_law(120, 6, 1.0)
    tables = {"a": X[:30], "b": X[30:100], "c": X[100:]}
    value = DPdisPCA(HUGE, 1e-5, release="covariance", where="one_site", clip=9.0)
    result, _, sites = run(value, tables, 2, center=False)
    asked = {name: [line.op for line in site.egress] for name, site in sites.items()}
    assert asked["a"] == asked["c"] == ["bounded_rows"]
    assert asked["b"] == ["bounded_rows", "noisy_covariance"]
    assert sines(result.components, pooled(X[30:100], centered=False).vt[:2])[0] < 1e-4


def test_pooled_mechanisms_send_bare_matrices_to_a_curator() -> None:
    _, transport, sites = run(ModSuLQ(1.0, 1e-5), in_parts(power_law(60, 5, 1.0), 2), 2)
    assert transport.rounds == 3
    ops = [line.op for line in sites["s0"].egress]
    assert ops == ["moments", "bounded_rows", "bounded_scatter"]


def test_with_a_public_bound_and_no_centring_nothing_bare_leaves_but_sizes() -> None:
    value = DPdisPCA(1.0, 1e-5, clip=3.0)
    _, transport, sites = run(value, in_parts(power_law(60, 5, 1.0), 2), 2, center=False)
    assert transport.rounds == 2
    first = sites["s0"].egress[0]
    assert first.shapes == {"n": (1,), "d": (1,), "key": (32,)}


# Streaming MOD-SuLQ ----------------------------------------------------------------------------


def merged_as_printed(first: tuple[Array, Array], second: tuple[Array, Array], r: int) -> Array:
    """[Grammenos2020] Alg. 2, line by line; returns U S."""
    (u1, s1), (u2, s2) = first, second
    z = u1.T @ u2
    q, rest = np.linalg.qr(u2 - u1 @ z)
    stacked = np.block([[np.diag(s1), z * s2], [np.zeros((q.shape[1], len(s1))), rest * s2]])
    turn, s, _ = np.linalg.svd(stacked)
    factor: Array = (np.hstack([u1, q]) @ turn)[:, :r] * s[:r]
    return factor


def masked(X: Array, **options: Any) -> Array:
    """What a site replies, with the mask next to nothing."""
    value = StreamingModSuLQ(SILENT, 1e-5, formula="17", clip=1e3, **options)
    request = MaskedStreamRequest(mean=np.zeros(X.shape[1]), bound=1e3)
    factor: Array = as_published(value, masked_stream, request, X).reply.factor
    return factor * 1e6


def test_slices_and_batches_are_merged_as_alg_2_and_3_have_it() -> None:
    X, r, c = power_law(40, 6, 1.5), 3, 2
    tracked = None
    for start in (0, 20):
        batch = X[start : start + 20]
        moment = batch.T @ batch / 20
        slices = None
        for left in range(0, 6, c):
            part = moment[:, left : left + c]
            u, s, _ = np.linalg.svd(part, full_matrices=False)
            if slices is None:
                slices = u[:, :r] * s[:r]
                continue
            held = np.linalg.svd(slices, full_matrices=False)
            # SSVD merges the slice itself with I for its singular values.
            slices = merged_as_printed((held[0], held[1]), (part, np.ones(c)), r)
        assert slices is not None
        fresh = np.linalg.svd(slices, full_matrices=False)
        if tracked is None:
            tracked = slices
            continue
        held = np.linalg.svd(tracked, full_matrices=False)
        tracked = merged_as_printed((fresh[0], fresh[1]), (held[0], held[1]), r)
    assert tracked is not None
    found = masked(X, batch=20, rank=r, columns=c)
    np.testing.assert_allclose(found @ found.T, tracked @ tracked.T, rtol=1e-9, atol=1e-12)


def captured(X: Array, vt: Array) -> float:
    """Share of the best k components' energy that `vt` captures of rows about zero."""
    s = np.linalg.svd(X, compute_uv=False)
    return float(np.sum((X @ vt.T) ** 2) / np.sum(s[: len(vt)] ** 2))


def test_the_printed_merge_adds_squares_and_the_corrected_one_covariances() -> None:
    """One strong direction at one site, a weaker one at all: squares favour the strong one."""
    X = np.zeros((400, 4))
    X[:100, 0] = 1.0
    X[:, 1] = np.tile([0.6, -0.6], 200)
    tables = in_parts(X, 4)
    found = {
        merge: run(
            StreamingModSuLQ(HUGE, 1e-5, batch=50, formula="17", rank=3, merge=merge, clip=2.0),
            tables,
            1,
            center=False,
        )[0]
        for merge in ("printed", "corrected")
    }
    assert captured(X, found["corrected"].components) == pytest.approx(1.0, abs=1e-6)
    assert captured(X, found["printed"].components) < 0.75
    assert found["corrected"].variances[0] == pytest.approx(0.36 * 400 / 399, rel=1e-4)


def test_the_rank_follows_the_energy_where_that_is_asked() -> None:
    X = np.random.default_rng(0).standard_normal((100, 6))
    fixed = masked(X, batch=20, rank=2, columns=6)
    grown = masked(X, batch=20, rank=2, columns=6, energy=(0.01, 0.10))
    shrunk = masked(X, batch=20, rank=6, columns=6, energy=(0.3, 0.4))
    assert fixed.shape == (6, 2)
    # Where the rank adapts a reply is as long as it can get, whatever the rows are.
    assert grown.shape == shrunk.shape == (6, 6)
    assert tracked(grown) > 2
    assert 1 <= tracked(shrunk) < 6


def tracked(factor: Array) -> int:
    """Return how many directions a site's factor holds; columns of zeros fill it up."""
    return int((factor != 0.0).any(axis=0).sum())


def test_an_adaptive_rank_goes_through_a_whole_run() -> None:
    X = power_law(200, 8, 0.5)
    value = StreamingModSuLQ(
        HUGE, 1e-5, batch=25, formula="17", rank=2, energy=(0.01, 0.1), merge="corrected"
    )
    result, _, sites = run(value, in_parts(X, 2), 2)
    assert sites["s0"].egress[-1].shapes["factor"][1] > 2
    assert captured(X - X.mean(axis=0), result.components) > 0.9


def test_rows_that_do_not_fill_a_batch_are_never_used() -> None:
    X = power_law(50, 5, 1.0)
    full, longer = masked(X[:40], batch=20, rank=5), masked(X, batch=20, rank=5)
    np.testing.assert_allclose(full @ full.T, longer @ longer.T, rtol=1e-12)
    assert not masked(X[:19], batch=20, rank=5).any()


def test_a_site_without_a_batch_is_passed_over() -> None:
    X = power_law(60, 5, 1.0)
    value = StreamingModSuLQ(
        HUGE, 1e-5, batch=20, formula="17", rank=5, merge="corrected", clip=9.0
    )
    result, _, _ = run(value, {"a": X[:10], "b": X[10:50], "c": X[50:]}, 2, center=False)
    assert sines(result.components, pooled(X[10:50], centered=False).vt[:2])[0] < 1e-3


def test_fewer_tracked_directions_than_components_are_completed() -> None:
    X = power_law(40, 5, 1.0)
    value = StreamingModSuLQ(1.0, 0.1, batch=20, rank=4, energy=(0.5, 0.9))
    result, _, _ = run(value, {"a": X}, 4)
    np.testing.assert_allclose(result.components @ result.components.T, np.eye(4), atol=1e-10)
    assert (np.diff(result.variances) <= 0).all()


def test_a_stream_without_any_full_batch_is_refused() -> None:
    value = StreamingModSuLQ(1.0, 0.1, batch=100)
    with pytest.raises(ProtocolError, match="No site fills a batch of 100 rows"):
        run(value, in_parts(power_law(60, 5, 1.0), 2), 2)


# FedPower --------------------------------------------------------------------------------------


def stepped(X: Array, start: Array) -> NoisyStepReply:
    """What a site sends after one local step, without noise."""
    value = NoisyFedPower(SILENT, 1e-5, iterations=2, local_steps=2, rank=1, clip=1.0)
    request = NoisyStepRequest(
        mean=np.zeros(X.shape[1]), bound=1.0, start=start, steps=1, rows=np.array([len(X)])
    )
    reply: NoisyStepReply = as_published(value, noisy_step, request, X).reply
    return reply


def test_local_steps_change_far_more_than_the_noise_is_made_for() -> None:
    """[Guo2024] Theorem 4, p = 2, s = 100: a diagonal entry of X'X moves by 1, and so does Z."""
    base = np.tile([0.0, np.sqrt(0.99), 0.0], (100, 1))
    neighbour = base.copy()
    neighbour[:, 0] = np.tile([0.1, -0.1], 50)
    change = neighbour.T @ neighbour - base.T @ base
    np.testing.assert_allclose(change, np.diag([1.0, 0.0, 0.0]), atol=1e-12)
    first, second = (stepped(X, np.array([[1.0], [0.001], [0.0]])) for X in (base, neighbour))
    moved = float(np.linalg.norm(first.product - second.product))
    assert moved == pytest.approx(0.89, abs=0.01)
    assert moved > 80 * max(first.peak, second.peak) / 100
    value = NoisyFedPower(1.0, 1e-5, iterations=2, local_steps=2, clip=1.0)
    sigma, _ = value.noise_factors([100])
    assert delta_of(2.0, moved / sigma) > 0.99
    assert value.truth([100], 3, k=1, center=False).true_epsilon == np.inf


def test_the_scale_of_the_noise_tells_of_the_rows_after_local_steps() -> None:
    start = np.ones((2, 1))
    assert stepped(np.tile([1.0, 0.0], (9, 1)), start).peak == pytest.approx(1.0)
    assert stepped(np.tile([0.5, 0.5], (9, 1)), start).peak == pytest.approx(np.sqrt(0.5))


def walked(parts: list[Array], start: Array, p: int, iterations: int, align: bool) -> Array:
    """[Guo2024] Alg. 2 without noise, line by line; returns the orthonormal output, (d, r)."""
    n = sum(len(part) for part in parts)
    shares = [len(part) / n for part in parts]
    moments = [part.T @ part / len(part) for part in parts]
    largest = int(np.argmax(shares))

    def turned(bases: list[Array]) -> list[Array]:
        if not align:
            return bases
        found = []
        for basis in bases:
            left, _, right = np.linalg.svd(basis.T @ bases[largest])
            found.append(basis @ left @ right)
        return found

    bases = [start] * len(parts)
    for t in range(1, iterations + 1):
        if t % p:
            bases = [np.linalg.qr(m @ z).Q for m, z in zip(moments, bases, strict=True)]
        else:
            # At t = 1 all Z are the same and turning must not touch a start that is not
            # orthonormal, so that the alignment is the identity.
            even = turned(bases) if p > 1 else bases
            steps = [s * m @ z for s, m, z in zip(shares, moments, even, strict=True)]
            bases = [np.linalg.qr(sum(steps, np.zeros(start.shape))).Q] * len(parts)
    if iterations % p:
        bases = turned(bases)
    return np.linalg.qr(sum(s * z for s, z in zip(shares, bases, strict=True))).Q


@pytest.mark.parametrize("align", ["procrustes", "none"])
@pytest.mark.parametrize(("p", "iterations"), [(1, 4), (3, 6), (3, 8)])
def test_fedpower_without_noise_is_alg_2(p: int, iterations: int, align: str) -> None:
    X = power_law(90, 6, 2.0)
    parts = [X[:20], X[20:70], X[70:]]
    value = NoisyFedPower(
        HUGE, 1e-5, iterations=iterations, local_steps=p, rank=3, align=align, clip=20.0
    )
    result, _, _ = run(value, dict(zip("abc", parts, strict=True)), 3, center=False, seed=4)
    start = np.random.default_rng(4).standard_normal((6, 3))
    expected = walked([part / 20 for part in parts], start, p, iterations, align == "procrustes")
    assert sines(result.components, expected.T)[0] < 1e-6


@pytest.mark.parametrize(
    ("options", "rounds"),
    [
        ({"iterations": 4}, 4),
        ({"iterations": 8, "local_steps": 4}, 4),
        ({"iterations": 8, "local_steps": 4, "align": "none"}, 2),
        ({"iterations": 9, "local_steps": 4}, 6),
        ({"iterations": 9, "local_steps": 4, "align": "none"}, 3),
    ],
)
def test_alignment_and_a_bare_end_cost_their_rounds(options: dict[str, Any], rounds: int) -> None:
    tables = in_parts(power_law(60, 5, 1.0), 3)
    result, transport, _ = run(NoisyFedPower(1.0, 1e-5, **options), tables, 2)
    assert result.products == rounds
    assert transport.rounds == 2 + rounds
    assert np.isnan(result.total_variance)


def test_only_the_baseline_shows_where_its_steps_led() -> None:
    X = power_law(60, 5, 1.0)
    value = NoisyFedPower(1.0, 1e-5, iterations=2, local_steps=2)
    _, _, sites = run(value, {"a": X[:10], "b": X[10:50], "c": X[50:]}, 2)
    shown = {
        name: [line.shapes for line in site.egress if line.op == "bare_walk"]
        for name, site in sites.items()
    }
    assert shown == {"a": [{}], "b": [{"basis": (5, 4)}], "c": [{}]}


def test_steps_after_the_last_average_leave_bare() -> None:
    value = NoisyFedPower(1.0, 1e-5, iterations=3, local_steps=2)
    _, _, sites = run(value, in_parts(power_law(60, 5, 1.0), 2), 2)
    last = sites["s1"].egress[-1]
    assert (last.op, last.shapes) == ("bare_basis", {"basis": (5, 4)})
    assert last.release.kind.endswith("no noise")


@pytest.mark.parametrize("scheme", ["scheme1", "scheme2"])
def test_only_the_sites_drawn_are_asked_for_steps(scheme: str) -> None:
    tables = in_parts(power_law(80, 5, 1.0), 8)
    value = NoisyFedPower(
        1.0, 1e-5, iterations=5, local_steps=2, participation=scheme, sites_per_round=2
    )
    _, _, sites = run(value, tables, 2)
    steps = [sum(line.op == "noisy_step" for line in site.egress) for site in sites.values()]
    assert 2 <= sum(steps) <= 4
    ends = [sum(line.op == "bare_basis" for line in site.egress) for site in sites.values()]
    assert 1 <= sum(ends) <= 2
    if scheme == "scheme2":
        assert (sum(steps), sum(ends)) == (4, 2)


def test_drawing_all_sites_without_replacement_is_full_participation() -> None:
    X = power_law(90, 6, 2.0)
    tables = {"a": X[:20], "b": X[20:70], "c": X[70:]}
    full = NoisyFedPower(HUGE, 1e-5, iterations=3, rank=3)
    drawn = NoisyFedPower(
        HUGE, 1e-5, iterations=3, rank=3, participation="scheme2", sites_per_round=3
    )
    first, second = (run(value, tables, 2)[0] for value in (full, drawn))
    assert sines(first.components, second.components)[0] < 1e-6


def test_the_printed_end_of_scheme_2_weighs_all_sites_alike() -> None:
    """Alg. 3's output line lacks p_i: two sites of opposite directions come out halfway."""
    tables = {"a": np.tile([1.0, 0.0], (90, 1)), "b": np.tile([0.0, 1.0], (10, 1))}
    value = NoisyFedPower(
        HUGE,
        1e-5,
        iterations=3,
        local_steps=2,
        rank=1,
        align="none",
        participation="scheme2",
        sites_per_round=2,
        clip=1.0,
    )
    result, _, _ = run(value, tables, 1, center=False)
    np.testing.assert_allclose(np.abs(result.components[0]), np.sqrt(0.5), atol=1e-6)


def test_the_meter_counts_noisy_steps_as_if_they_were_bare() -> None:
    value = NoisyFedPower(1.0, 1e-5, iterations=1, rank=2, clip=0.1)
    _, _, sites = run(value, in_parts(power_law(60, 5, 1.0), 2), 1, center=False)
    assert sites["s0"].meter.rank_fraction == pytest.approx(2 / 5)
    _, _, sites = run(DPdisPCA(1.0, 1e-5), in_parts(power_law(60, 5, 1.0), 2), 1)
    assert sites["s0"].meter.rank_fraction == 1.0


# Utility on digits -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A method of the table and the share of energy captured at epsilon 1 and 2."""

    make: Callable[[float], Published]
    shares: tuple[float, float]
    runs: int = 3


def halved(epsilon: float, **options: Any) -> NoisyFedPower:
    """FedPower with half of each, so that its claim is (epsilon, 1e-5)."""
    return NoisyFedPower(epsilon / 2, 5e-6, rank=20, **options)


TABLE = {
    "DPdisPCA, R = 2k": Row(lambda e: DPdisPCA(e, 1e-5), (0.285, 0.439)),
    "DPdisPCA, A whole": Row(lambda e: DPdisPCA(e, 1e-5, release="covariance"), (0.431, 0.632)),
    "Analyze Gauss": Row(lambda e: AnalyzeGauss(e, 1e-5), (0.761, 0.900)),
    "MOD-SuLQ, eq. 6": Row(lambda e: ModSuLQ(e, 1e-5), (0.213, 0.226)),
    "MOD-SuLQ, eq. 17": Row(lambda e: ModSuLQ(e, 1e-5, formula="17"), (0.214, 0.219)),
    "FPCA, eq. 17": Row(
        lambda e: StreamingModSuLQ(e, 1e-5, batch=90, formula="17"), (0.226, 0.190)
    ),
    "FedPower, p = 4": Row(lambda e: halved(e, iterations=16, local_steps=4), (0.243, 0.300)),
    "FedPower, p = 1": Row(lambda e: halved(e, iterations=4), (0.222, 0.231)),
}


@pytest.mark.parametrize("at", [0, 1], ids=["epsilon 1", "epsilon 2"])
@pytest.mark.parametrize("name", TABLE)
def test_digits_capture_what_was_measured(name: str, at: int) -> None:
    digits = load_digits().data
    X = digits - digits.mean(axis=0)
    row, tables = TABLE[name], in_parts(digits, 10)
    value = row.make((1.0, 2.0)[at])
    shares = [
        captured(X, run(value, tables, 10, seed=seed)[0].components) for seed in range(row.runs)
    ]
    assert np.mean(shares) == pytest.approx(row.shares[at], abs=0.06)


# Declarations and refusals ---------------------------------------------------------------------


def test_every_operation_is_declared_as_published_so_that_a_gate_can_refuse_it() -> None:
    assert all(op.release.leaves is Leaves.PUBLISHED for op in OPS)
    assert all(KNOWN[op.name] is op for op in OPS)
    table = {op.name: op.release.reveals for op in OPS}
    assert table == {
        "bounded_rows": Reveals.BOUND,
        "bounded_scatter": Reveals.SCATTER,
        "noisy_covariance": Reveals.SCATTER,
        "noisy_factor": Reveals.SCATTER,
        "masked_stream": Reveals.SCATTER,
        "noisy_step": Reveals.DIRECTIONS,
        "bare_walk": Reveals.DIRECTIONS,
        "bare_basis": Reveals.DIRECTIONS,
    }


def test_no_other_operation_is_declared_as_published() -> None:
    ours = {op.name for op in OPS}
    others = [op for name, op in KNOWN.items() if name not in ours]
    assert others
    assert not any(op.release.leaves is Leaves.PUBLISHED for op in others)


@pytest.mark.parametrize("value", SOME, ids=lambda value: type(value).__name__)
def test_weights_are_refused_when_a_run_is_opened(value: Published) -> None:
    source = Source.of(np.eye(4), weights=np.ones(4))
    with pytest.raises(SiteRefused, match="'open'") as refused:
        run(value, {"a": source}, 2)
    assert refused.value.code == "weights"


@pytest.mark.parametrize("clip", [None, 3.0])
def test_a_missing_entry_counts_as_the_mean(clip: float | None) -> None:
    """So that whether a row has one does not show in whether there is an answer."""
    X = power_law(60, 4, 1.0)
    gaps, mean = X.copy(), X.copy()
    gaps[[3, 40], [1, 2]] = np.nan
    mean[[3, 40], [1, 2]] = np.nanmean(gaps, axis=0)[[1, 2]]
    value = DPdisPCA(HUGE, 1e-5, release="covariance", clip=clip)
    found, wanted = (run(value, in_parts(table, 2), 2)[0] for table in (gaps, mean))
    np.testing.assert_allclose(found.variances, wanted.variances, rtol=1e-9)
    np.testing.assert_allclose(found.mean, wanted.mean, atol=1e-12)


@pytest.mark.parametrize("value", SOME, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("policy", [Policy(sound_only=True), Policy(budget=Budget(9.0, 1e-5))])
def test_a_site_that_wants_sound_mechanisms_refuses_all_of_them(
    value: Published, policy: Policy
) -> None:
    with pytest.raises(SiteRefused, match="'open'") as refused:
        run(value, {"a": power_law(30, 4, 1.0)}, 2, center=False, policy=policy)
    assert refused.value.code == "no_guarantee"


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"a": np.eye(3), "b": np.eye(4)}, "different numbers of features"),
        ({"a": np.eye(3), "b": np.zeros((0, 3))}, "Site 'b' has no rows"),
        ({"a": np.zeros((5, 3))}, "All rows are equal"),
    ],
)
def test_tables_that_no_mechanism_can_take_are_refused(
    tables: dict[str, Array], words: str
) -> None:
    with pytest.raises(ProtocolError, match=words):
        run(AnalyzeGauss(1.0, 1e-5), tables, 1, center=False, policy=Policy(min_rows=0))


def test_too_many_components_and_foreign_values_are_refused() -> None:
    with pytest.raises(InputError, match="k=4 must be at most 3, the number of features"):
        run(AnalyzeGauss(1.0, 1e-5), {"a": np.eye(3)}, 4)

    class Foreign(Published):
        def noise_epsilon(self, rows: Any, d: int, k: int) -> float:
            return 0.0

        def reason(self, rows: Any, d: int, k: int) -> str:
            return ""

    foreign = Foreign(1.0, 1e-5, clip=1.0)
    study = Study(("a",), 1, privacy=foreign, center=False)
    over = federation(study, {"a": Source.of(np.eye(3))}, Conditions(policies={"a": Policy()}))
    with pytest.raises(SiteRefused, match="'malformed'"):
        drive(call_each(Call(SizesRequest())), over.transport)
    with pytest.raises(InputError, match="must be a mechanism of eigenfed"):
        next(published_pca(study, rng=np.random.default_rng(0)))


def test_more_sites_than_there_are_cannot_be_drawn_and_nobody_is_asked() -> None:
    value = NoisyFedPower(1.0, 1e-5, iterations=1, participation="scheme2", sites_per_round=3)
    protocol = published_pca(Study(("a", "b"), 1, privacy=value), rng=np.random.default_rng(0))
    with pytest.raises(InputError, match="sites_per_round=3 must be at most 2"):
        next(protocol)
