"""Rounds and bytes that a forecast tells, beside those of real runs on dense rows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from eigenfed import FederatedPCA, Krylov, Privacy
from eigenfed.arrays import Array
from eigenfed.study.planning.assumed_spectra import make_geometric_spectrum
from eigenfed.study.planning.forecast import Case, Question, forecast
from eigenfed.study.planning.plan import make_question
from genotype_files import draw_genotypes, write_plink

ROWS = {"north": 900, "south": 500, "island": 400}


def with_spectrum(values: Array, rows: dict[str, int], seed: int = 0) -> dict[str, Array]:
    """Dense rows, turned at random, whose pooled covariance has exactly these eigenvalues."""
    rng, n, d = np.random.default_rng(seed), sum(rows.values()), len(values)
    sided = rng.standard_normal((n, d))
    sided = np.linalg.qr(sided - sided.mean(axis=0)).Q
    turn = np.linalg.qr(rng.standard_normal((d, d))).Q
    table = (sided * np.sqrt(values * (n - 1))) @ turn.T + rng.standard_normal(d)
    edges = np.cumsum(list(rows.values()))[:-1]
    return dict(zip(rows, np.split(table, edges), strict=True))


def check(found: Case, pca: FederatedPCA) -> None:
    assert abs(found.traffic.rounds - pca.n_rounds_) <= 2
    assert found.traffic.all_bytes == pytest.approx(pca.bytes_up_ + pca.bytes_down_, rel=0.05)


@pytest.mark.parametrize(
    ("method", "secure", "decay"),
    [
        ("auto", False, 0.7),
        ("krylov", False, 0.7),
        ("randomized", False, 0.7),
        ("power", False, 0.4),
        ("merge", False, 0.7),
        ("covariance", True, 0.7),
        ("krylov", True, 0.7),
        ("randomized", True, 0.7),
    ],
)
def test_rounds_and_bytes_are_those_of_rows_with_that_spectrum(
    method: str, secure: bool, decay: float
) -> None:
    values = make_geometric_spectrum(decay, 60, 60).values(60)
    tables = with_spectrum(values, ROWS)
    pca = FederatedPCA(3, method=method, secure=secure, random_state=1).fit_sites(tables)
    question = Question(ROWS, 60, 3, method=method, secure=secure, spectrum=tuple(values))
    (case,) = forecast(question).cases
    check(case, pca)
    largest = {
        "up": max(sum(asked.received[name] for asked in pca.rounds_) for name in ROWS),
        "down": max(sum(asked.sent[name] for asked in pca.rounds_) for name in ROWS),
    }
    assert case.traffic.up == pytest.approx(largest["up"], rel=0.05)
    assert case.traffic.down == pytest.approx(largest["down"], rel=0.05)


def test_subspace_iteration_takes_about_as_many_rounds_whatever_its_start() -> None:
    """Its own runs are several rounds apart, by the random start."""
    values = make_geometric_spectrum(0.4, 60, 60).values(60)
    runs = [
        FederatedPCA(3, method="subspace", random_state=seed).fit_sites(with_spectrum(values, ROWS))
        for seed in range(5)
    ]
    (case,) = forecast(Question(ROWS, 60, 3, "subspace", spectrum=tuple(values))).cases
    assert abs(case.traffic.rounds - np.median([pca.n_rounds_ for pca in runs])) <= 4
    each = [(pca.bytes_up_ + pca.bytes_down_) / pca.n_rounds_ for pca in runs]
    told = case.traffic.all_bytes / case.traffic.rounds
    assert told == pytest.approx(np.median(each), rel=0.05)


@pytest.mark.parametrize("scale", [False, True])
def test_scaling_by_site_levels_and_certificates_are_counted(scale: bool) -> None:
    values = make_geometric_spectrum(0.8, 40, 40).values(40)
    tables = with_spectrum(values, ROWS)
    pca = FederatedPCA(2, method="covariance", scale=scale)
    pca.fit_sites(tables, by_site=True)
    question = Question(ROWS, 40, 2, method="covariance", scale=scale, by_site=True)
    for case in forecast(question).cases:
        assert case.traffic.rounds == pca.n_rounds_ == 3 + scale
        check(case, pca)


def test_few_features_stand_for_many() -> None:
    """The model has about a thousand features and is never as large as the rows."""
    d, rows = 2500, {"a": 60, "b": 50, "c": 40}
    lead = with_spectrum(make_geometric_spectrum(0.6, 40, 40).values(40), rows)
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((d, 40))).Q
    tables = {name: part @ turn.T for name, part in lead.items()}
    pca = FederatedPCA(4, method="krylov", random_state=0).fit_sites(tables)
    spectrum = tuple(0.6 ** np.arange(40))
    assert forecast(Question(rows, d, 4, spectrum=spectrum)).method.name == "factors"
    found = forecast(Question(rows, d, 4, method=Krylov(), spectrum=spectrum))
    assert found.method.name == pca.method_ == "krylov"
    check(found.cases[0], pca)
    assert found.cases[0].rank_fraction == pytest.approx(pca.leakage_.rank_fraction, abs=0.005)


def test_keys_of_many_sites_and_many_sums_are_counted() -> None:
    rows = {f"s{i}": 40 + i for i in range(8)}
    tables = with_spectrum(np.linspace(2.0, 1.0, 12), rows)
    pca = FederatedPCA(2, method="subspace", secure=True, max_rounds=50, random_state=0)
    pca.fit_sites(tables)
    question = Question(rows, 12, 2, "subspace", secure=True, spectrum=tuple(np.linspace(2, 1, 12)))
    (case,) = forecast(question).cases
    assert pca.n_rounds_ > 150
    check(case, pca)


@pytest.mark.parametrize("trust", ["secure_sum", "local", "central"])
@pytest.mark.parametrize("method", ["covariance", "power"])
def test_a_private_run_crosses_as_forecast(trust: str, method: str) -> None:
    privacy = Privacy(4.0, 1e-6, trust=trust)
    tables = with_spectrum(make_geometric_spectrum(0.8, 30, 30).values(30), ROWS)
    pca = FederatedPCA(2, method=method, privacy=privacy).fit_sites(tables)
    (case,) = forecast(Question(ROWS, 30, 2, method, privacy=privacy, decay=0.8)).cases
    assert case.traffic.rounds == pca.n_rounds_
    check(case, pca)


def real_tables(kind: str) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    table = {
        "digits": load_digits().data,
        "noise": rng.standard_normal((1500, 90)),
        "few": rng.standard_normal((900, 3)) @ rng.standard_normal((3, 50)),
        "fall": rng.standard_normal((900, 70)) * 0.93 ** np.arange(70),
    }[kind]
    return {name: table[i::3] for i, name in enumerate("abc")}


@pytest.mark.parametrize("kind", ["digits", "noise", "few", "fall"])
@pytest.mark.parametrize("method", ["krylov", "subspace", "power"])
def test_without_a_spectrum_the_range_holds_the_truth(kind: str, method: str) -> None:
    tables = real_tables(kind)
    pca = FederatedPCA(3, method=method, random_state=0).fit_sites(tables)
    rows = {name: len(table) for name, table in tables.items()}
    found = forecast(Question(rows, tables["a"].shape[1], 3, method=method))
    low, high = found.rounds
    assert low <= pca.n_rounds_ <= high
    sent = sorted(case.traffic.all_bytes for case in found.cases)
    assert sent[0] <= 1.05 * (pca.bytes_up_ + pca.bytes_down_)
    assert pca.bytes_up_ + pca.bytes_down_ <= 1.05 * sent[-1]


@pytest.mark.parametrize("method", ["covariance", "krylov", "merge", "power"])
def test_leakage_is_about_what_the_meter_will_say(method: str) -> None:
    values = make_geometric_spectrum(0.85, 200, 200).values(200)
    pca = FederatedPCA(4, method=method, random_state=0).fit_sites(with_spectrum(values, ROWS))
    (case,) = forecast(Question(ROWS, 200, 4, method=method, decay=0.85)).cases
    assert case.rank_fraction == pytest.approx(pca.leakage_.rank_fraction, abs=0.05)
    assert case.variance_fraction == pytest.approx(pca.leakage_.variance_fraction, abs=0.1)


@pytest.mark.parametrize("secure", [False, True])
def test_sums_over_variants_are_counted_tile_by_tile(
    secure: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The forecast knows neither genotypes nor places, but the window of the step."""
    rows, d = {"a": 120, "b": 90, "c": 150}, 1500
    copies = draw_genotypes(np.random.default_rng(0), list(rows.values()), d)
    copies[0] = 1
    parts = np.split(copies, np.cumsum(list(rows.values()))[:-1])
    paths = {
        name: write_plink(tmp_path / f"{name}.bed", part)
        for name, part in zip(rows, parts, strict=True)
    }
    monkeypatch.setattr("eigenfed.protocol.exact.variant_products.TILE_PAIRS", 9000)
    steps = ["maf:0.0001", "ld:30:0.999"]
    pca = FederatedPCA(2, prepare=steps, secure=secure, random_state=0).fit_sites(paths)
    z = (copies - pca.mean_) / np.sqrt(pca.mean_ * (1 - pca.mean_ / 2))
    values = np.linalg.svd(z, compute_uv=False)[:-1] ** 2 / (len(z) - 1)
    question = make_question(
        rows=rows, features=d, components=2, prepare=steps, secure=secure, spectrum=tuple(values)
    )
    assert question.products is not None
    assert (question.products.tiles, question.products.pairs) == (5, 1500 * 29 - 29 * 15)
    found = forecast(question)
    assert found.method == Krylov()
    (case,) = found.cases
    check(case, pca)
    # The model's block of directions is a few wider or narrower.
    assert case.rank_fraction == pytest.approx(pca.leakage_.rank_fraction, abs=0.01)
    assert found.rows_bytes == 150 * d / 4
    largest = max(sum(asked.received[name] for asked in pca.rounds_) for name in rows)
    assert case.traffic.up == pytest.approx(largest, rel=0.02)
    assert make_question(rows=rows, features=d, components=2, prepare=steps).secure
    unknown = make_question(rows=rows, features=d, components=2, prepare=["ld:100kb"])
    assert unknown.products is None
