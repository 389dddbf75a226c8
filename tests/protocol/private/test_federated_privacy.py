"""FederatedPCA with noise that holds, with the papers' own, and what is refused."""

import math
import re
import warnings
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits

from eigenfed import (
    FederatedPCA,
    InputError,
    Policy,
    Privacy,
    PrivacyError,
    ProtocolError,
    SiteRefused,
)
from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.errors import NoiseWarning
from eigenfed.estimators.in_process import Conditions, federation
from eigenfed.privacy.dp.discrete_gaussian import discrete_gaussian
from eigenfed.privacy.ledger.ledger import Budget
from eigenfed.protocol.core import drive
from eigenfed.protocol.private.private_pca import private_pca
from eigenfed.protocol.published import AnalyzeGauss, DPdisPCA, NoisyFedPower, StreamingModSuLQ
from eigenfed.protocol.study import Study

pytestmark = pytest.mark.usefixtures("seeded_noise")

DIGITS: Array = load_digits().data.astype(np.float64)
GROUPS = np.random.default_rng(0).integers(0, 10, len(DIGITS))
K = 10


def captured(components: Array, rows: Array) -> float:
    covariance = np.cov(rows.T)
    k = len(components)
    best = np.linalg.eigvalsh(covariance)[-k:].sum()
    return float(np.trace(components @ covariance @ components.T) / best)


def spiked(n: int = 50_000, d: int = 200, k: int = 10) -> Array:
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((d, k))).Q
    scores = rng.standard_normal((n, k)) * np.sqrt(np.linspace(1.0, 0.3, k))
    rows: Array = scores @ basis.T + 0.1 * rng.standard_normal((n, d))
    return rows


FIGURES = [
    (0.5, 0, 0.78),
    (1.0, 0, 0.91),
    (2.0, 0, 0.97),
    (0.5, 1, 0.755),
    (1.0, 1, 0.895),
    (2.0, 1, 0.965),
]


@pytest.mark.parametrize(("epsilon", "colluders", "least"), FIGURES)
def test_digits_from_raw_rows_with_the_noise_that_ten_sites_add(
    epsilon: float, colluders: int, least: float
) -> None:
    """A curator draws what is in law the sum of the sites' parts, which is quick.

    With the operating system's noise, medians over 40 runs are 0.797, 0.921 and 0.975; the
    deviation of single runs is 0.017, 0.007 and 0.002.
    """
    grown = math.sqrt(10 / Privacy(epsilon, 1e-5, colluders=colluders).parties(10))

    def of_ten_sites(sd: float, count: int) -> npt.NDArray[np.int64]:
        return discrete_gaussian(sd * grown, count)

    study = Study(("all",), K, "covariance", privacy=Privacy(epsilon, 1e-5, trust="central"))
    captures = []
    for _ in range(9):
        over = federation(study, {"all": Source.of(DIGITS)}, Conditions())
        run = private_pca(
            over.study, rng=np.random.default_rng(0), total=over.total, draw=of_ten_sites
        )
        captures.append(captured(drive(run, over.transport).components, DIGITS))
    assert np.median(captures) >= least


@pytest.mark.parametrize(
    ("epsilon", "number", "least", "kind"),
    [(*figure, "colluders") for figure in FIGURES[:3]]
    + [(*FIGURES[4], kind) for kind in ("colluders", "dropouts")],
)
def test_digits_from_raw_rows_in_secure_sums_over_ten_sites(
    epsilon: float, number: int, least: float, kind: str
) -> None:
    """One run tells: the deviation of single ones is at most 0.02."""
    privacy = replace(Privacy(epsilon, 1e-5), **{kind: number})  # type: ignore[arg-type]
    run = FederatedPCA(K, privacy=privacy).fit(DIGITS, groups=GROUPS)
    assert captured(run.components_, DIGITS) >= least - 0.06
    assert run.n_rounds_ == 18


def test_a_spiked_model_with_a_private_clip_at_a_tenth() -> None:
    rows = spiked()
    privacy = Privacy(0.1, 1e-5)
    run = FederatedPCA(K, privacy=privacy).fit(rows, groups=np.arange(len(rows)) % 3)
    assert captured(run.components_, rows) >= 0.95


def test_variances_are_those_of_the_rows_and_not_of_clipped_ones() -> None:
    rows = spiked(n=20_000, d=20, k=3)
    run = FederatedPCA(3, privacy=Privacy(1.0, 1e-5, trust="central")).fit(rows)
    truth = np.linalg.eigvalsh(np.cov(rows.T))[:-4:-1]
    np.testing.assert_allclose(run.explained_variance_, truth, rtol=0.1)
    assert run.explained_variance_ratio_.sum() == pytest.approx(truth.sum() / 2.15, rel=0.1)
    assert np.all(np.diff(run.explained_variance_) <= 0)


@pytest.mark.parametrize("offset", [0.0, 3.0])
@pytest.mark.parametrize("center", [True, False])
def test_scales_are_those_of_the_rows_and_not_of_clipped_ones(center: bool, offset: float) -> None:
    """Nearly all rows are clipped: their scales would be half as large, and scores twice."""
    rows = spiked(n=20_000, d=20, k=3) + offset
    privacy = Privacy(2.0, 1e-5, trust="central")
    run = FederatedPCA(3, center=center, scale=True, privacy=privacy).fit(rows)
    exact = FederatedPCA(3, center=center, scale=True).fit(rows)
    np.testing.assert_allclose(run.scale_, exact.scale_, rtol=0.35)
    assert np.mean(run.scale_ / exact.scale_) == pytest.approx(1.0, abs=0.15)


def test_without_a_share_for_the_scree_variances_are_of_clipped_rows() -> None:
    rows = spiked(n=20_000, d=20, k=3)
    privacy = Privacy(1.0, 1e-5, trust="central", shares={"scree": 0.0})
    run = FederatedPCA(3, privacy=privacy).fit(rows)
    truth = np.linalg.eigvalsh(np.cov(rows.T))[:-4:-1]
    assert np.all(run.explained_variance_ < truth)
    assert run.privacy_ is not None
    assert "scree" not in run.privacy_.budget or run.privacy_.budget["scree"] == 0.0


def test_two_fits_with_one_seed_differ_and_the_seed_fixes_the_public_start() -> None:
    privacy = Privacy(1.0, 1e-5, trust="central")
    one, other = (
        FederatedPCA(2, method="power", privacy=privacy, random_state=0).fit(DIGITS)
        for _ in range(2)
    )
    assert not np.array_equal(one.components_, other.components_)


def test_the_statement_says_who_is_trusted_with_what() -> None:
    privacy = Privacy(1.0, 1e-5, relation="zero_out", colluders=1, dropouts=1)
    run = FederatedPCA(2, privacy=privacy).fit(DIGITS, groups=GROUPS % 5)
    said = run.privacy_
    assert said is not None
    assert (said.epsilon, said.delta, said.relation, said.unit) == (1.0, 1e-5, "zero_out", "row")
    assert sum(said.budget.values()) == pytest.approx(1.0)
    for words in (
        "1797",
        "left out of every sum",
        "at most 1 sites drop out of a sum and at most 1 collude",
        "one row",
        "radius 1.5%",
    ):
        assert words in said.text
    assert run.leakage_.rank_fraction == 0.0
    assert FederatedPCA(2).fit(DIGITS).privacy_ is None


def test_noise_costs_rounds_that_do_not_depend_on_the_rows() -> None:
    central = FederatedPCA(2, privacy=Privacy(1.0, 1e-5, trust="central")).fit(DIGITS)
    assert central.n_rounds_ == 1 + 5


@pytest.mark.parametrize("method", ["covariance", "power"])
@pytest.mark.parametrize("trust", ["local", "central", "secure_sum"])
def test_every_trust_and_method_gives_orthonormal_components(method: str, trust: str) -> None:
    privacy = Privacy(4.0, 1e-5, trust=trust)
    run = FederatedPCA(3, method=method, privacy=privacy).fit(DIGITS, groups=GROUPS % 3)
    np.testing.assert_allclose(run.components_ @ run.components_.T, np.eye(3), atol=1e-10)
    assert captured(run.components_, DIGITS) > 0.75
    assert run.method_ == method


def test_a_site_that_sets_a_smaller_budget_of_its_own_stops_the_run() -> None:
    sites = {str(g): DIGITS[g == GROUPS] for g in range(3)}
    policies = {"1": Policy(budget=Budget(0.5, 1e-5))}
    with pytest.raises(SiteRefused, match="'budget'"):
        FederatedPCA(2, privacy=Privacy(1.0, 1e-5)).fit_sites(sites, policies=policies)


def test_a_site_that_does_not_trust_its_peers_wants_more_noise() -> None:
    sites = {str(g): DIGITS[g == GROUPS] for g in range(5)}
    policies = {"1": Policy(colluders=1)}
    for fewer in (Privacy(1.0, 1e-5), Privacy(1.0, 1e-5, dropouts=1)):
        with pytest.raises(SiteRefused, match="'collusion'"):
            FederatedPCA(2, privacy=fewer).fit_sites(sites, policies=policies)
    FederatedPCA(2, privacy=Privacy(1.0, 1e-5, colluders=1)).fit_sites(sites, policies=policies)


def test_a_scale_that_noise_has_swallowed_is_refused() -> None:
    with pytest.raises(ProtocolError, match="below three standard deviations"):
        FederatedPCA(2, scale=True, privacy=Privacy(1.0, 1e-5, trust="central")).fit(DIGITS)


def test_scaling_is_done_after_the_noise_where_it_stands_out() -> None:
    rows = spiked(n=20_000, d=5, k=2) * [1.0, 2.0, 3.0, 4.0, 5.0]
    run = FederatedPCA(2, scale=True, privacy=Privacy(2.0, 1e-6, trust="central")).fit(rows)
    ratio = run.scale_ / rows.std(axis=0)  # clipping shortens some features more than others
    assert ratio.mean() == pytest.approx(1.0, abs=0.2)
    assert ratio.max() / ratio.min() < 2.0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"privacy": Privacy(1.0, 1e-2)}, "must be below 1/n"),
        ({"privacy": Privacy(1.0, 1e-5, trust="local"), "secure": True}, "trust='secure_sum'"),
        ({"privacy": 1.0}, "privacy has type float"),
        ({"privacy": DPdisPCA(1.0, 1e-5), "secure": True}, "method of its own"),
        ({"privacy": DPdisPCA(1.0, 1e-5), "scale": True}, "scale=True"),
    ],
)
def test_wrong_settings_of_privacy_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        FederatedPCA(2, **settings).fit(DIGITS, groups=GROUPS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"privacy": Privacy(1.0, 1e-5), "method": "krylov"}, "cannot be made private"),
        ({"privacy": Privacy(1.0, 1e-5, dropouts=4)}, "dropouts=4 must be at most 3"),
        ({"privacy": Privacy(1.0, 1e-5, colluders=7)}, "colluders=7 must be at most 6"),
        (
            {"privacy": Privacy(1.0, 1e-5, colluders=4, dropouts=3)},
            "colluders=4 must be at most 3 with 10 sites and dropouts=3",
        ),
    ],
)
def test_what_cannot_be_private_is_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(PrivacyError, match=re.escape(words)):
        FederatedPCA(2, **settings).fit(DIGITS, groups=GROUPS)  # type: ignore[arg-type]


def test_weights_gaps_and_features_apart_are_refused() -> None:
    pca = FederatedPCA(2, privacy=Privacy(1.0, 1e-5, trust="central"))
    with pytest.raises(PrivacyError, match="sample_weight cannot be combined with privacy"):
        pca.fit(DIGITS, sample_weight=np.ones(len(DIGITS)))
    gaps = DIGITS.copy()
    gaps[0, 0] = np.nan
    with pytest.raises(PrivacyError, match="NaN, for which the paper has no rule"):
        clone(pca).set_params(privacy=DPdisPCA(1.0, 1e-5)).fit(gaps)
    halves = {"a": DIGITS[:, :32], "b": DIGITS[:, 32:]}
    keys = dict.fromkeys(halves, np.arange(len(DIGITS)))
    with pytest.raises(PrivacyError, match="an entry for each row would leave"):
        clone(pca).set_params(split="features").fit_sites(halves, keys=keys)


def test_one_table_is_no_secure_sum() -> None:
    with pytest.raises(PrivacyError, match="trust='central' if the coordinator is trusted"):
        FederatedPCA(2, privacy=Privacy(1.0, 1e-5)).fit(DIGITS)


@pytest.mark.parametrize(
    "value",
    [
        DPdisPCA(2.0, 1e-5),
        AnalyzeGauss(1.0, 1e-5),
        StreamingModSuLQ(1.0, 1e-5, batch=50),
        NoisyFedPower(1.0, 1e-5, iterations=4),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_published_mechanism_runs_and_the_statement_says_that_nothing_holds(
    value: DPdisPCA,
) -> None:
    run = FederatedPCA(3, privacy=value).fit(DIGITS, groups=GROUPS)
    said = run.privacy_
    assert said is not None
    assert said.epsilon == np.inf
    assert said.claimed_epsilon is not None
    assert said.claimed_epsilon < np.inf
    assert "no guarantee holds" in said.text
    assert run.components_.shape == (3, 64)


def test_a_published_mechanism_with_public_bounds_tells_its_true_epsilon() -> None:
    value = DPdisPCA(2.0, 1e-5, clip=60.0)
    run = FederatedPCA(3, center=False, privacy=value).fit(DIGITS, groups=GROUPS)
    assert run.privacy_ is not None
    assert run.privacy_.epsilon == pytest.approx(2.371, abs=1e-3)
    assert run.privacy_.claimed_epsilon == 2.0


def test_a_site_that_wants_sound_noise_refuses_a_published_mechanism() -> None:
    sites = {str(g): DIGITS[g == GROUPS] for g in range(3)}
    policies = {"2": Policy(sound_only=True)}
    with pytest.raises(SiteRefused, match="'no_guarantee'"):
        FederatedPCA(2, privacy=DPdisPCA(1.0, 1e-5)).fit_sites(sites, policies=policies)


def test_privacy_survives_a_clone() -> None:
    pca = FederatedPCA(2, privacy=Privacy(1.0, 1e-5, shares={"mean": 0.1}))
    assert clone(pca).get_params()["privacy"] == pca.privacy


def far_from_zero(n: int) -> Array:
    spread = np.array([20.0, 15.0, 12.0, 9.0, 7.0, 4.0, 3.0, 2.0])
    level = np.array([50, 25, 130, 80, 50, 120, 5, 90])
    rows: Array = np.random.default_rng(5).standard_normal((n, 8)) * spread + level
    return rows


@pytest.mark.filterwarnings("ignore::eigenfed.errors.NoiseWarning")
@pytest.mark.parametrize(("n", "least"), [(710, 0.95), (7100, 0.99)])
def test_rows_far_from_zero_cost_little(n: int, least: float) -> None:
    rows = far_from_zero(n)
    runs = [
        FederatedPCA(3, privacy=Privacy(1.0, 1e-6, trust="central")).fit(rows) for _ in range(6)
    ]
    assert np.mean([captured(run.components_, rows) for run in runs]) > least


@pytest.mark.parametrize(("n", "epsilon", "scale"), [(800, 1.0, False), (3000, 4.0, True)])
def test_signal_tells_what_noise_has_left(n: int, epsilon: float, scale: bool) -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((n, 20)) * np.sqrt(0.6 ** np.arange(20) + 0.05)
    if scale:
        rows = rng.standard_normal((n, 2)) @ rng.standard_normal((2, 20)) + rng.standard_normal(
            (n, 20)
        )
    exact = FederatedPCA(2, scale=scale).fit(rows).components_
    told, true = [], []
    for _ in range(6):
        run = FederatedPCA(2, scale=scale, privacy=Privacy(epsilon, 1e-6, trust="central")).fit(
            rows
        )
        assert run.signal_ is not None
        told.append(run.signal_)
        true.append(np.sum(run.components_ * exact, axis=1) ** 2)
    np.testing.assert_allclose(np.mean(told, axis=0), np.mean(true, axis=0), atol=0.15)


@pytest.mark.usefixtures("seeded_noise")
def test_rows_as_far_from_zero_as_years_keep_their_mean_and_their_first_component() -> None:
    """Relative to their distance their norms are all alike: clipped at some, half are shortened."""
    rng = np.random.default_rng(0)
    away = rng.standard_normal(20)
    rows = rng.standard_normal((20_000, 20)) * 2.0 * 0.6 ** np.arange(20)
    rows += 1000.0 * away / np.linalg.norm(away)
    run = FederatedPCA(1, privacy=Privacy(3.0, 1e-6, trust="central")).fit(rows)
    assert np.linalg.norm(run.mean_ - rows.mean(axis=0)) < 1.0
    assert run.components_[0, 0] ** 2 > 0.9


def offset_rows(spectrum: Array, n: int, offset: float, seed: int) -> Array:
    """Rows at some distance from zero, relative to their spread."""
    rng, d = np.random.default_rng(seed), len(spectrum)
    turn = np.linalg.qr(rng.standard_normal((d, d))).Q
    level = rng.standard_normal(d)
    level *= offset * np.sqrt(spectrum.sum()) / np.linalg.norm(level)
    rows: Array = (rng.standard_normal((n, d)) * np.sqrt(spectrum)) @ turn + level
    return rows


@pytest.mark.usefixtures("seeded_noise")
@pytest.mark.parametrize(
    ("spectrum", "n", "offset", "epsilon"),
    [
        (np.ones(50), 500, 1.0, 1.0),
        (np.ones(50), 5000, 0.0, 0.1),
        (0.95 ** np.arange(50), 5000, 1.0, 0.1),
    ],
    ids=["few", "centred", "slowly falling"],
)
def test_the_error_of_the_mean_is_not_taken_for_a_component(
    spectrum: Array, n: int, offset: float, epsilon: float
) -> None:
    """Its own eigenvalue was above what its length explains, which passed for signal: about 0.6."""
    privacy, best = Privacy(epsilon, 1e-5, trust="central"), []
    for seed in range(7):
        rows = offset_rows(spectrum, n, offset, seed)
        true = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False).Vh[:2]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoiseWarning)
            run = FederatedPCA(2, privacy=privacy).fit(rows)
        assert np.sum(run.components_ * true, axis=1).max() ** 2 < 0.5
        assert run.signal_ is not None
        best.append(run.signal_.max())
    assert np.median(best) < 0.1


@pytest.mark.usefixtures("seeded_noise")
@pytest.mark.parametrize("offset", [0.0, 1.0, 5.0])
def test_components_that_noise_leaves_are_not_called_noise(offset: float) -> None:
    spectrum = np.r_[10.0, 6.0, 3.0, np.ones(47)]
    for seed in range(2):
        rows = offset_rows(spectrum, 5000, offset, seed)
        true = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False).Vh[:2]
        run = FederatedPCA(2, privacy=Privacy(1.0, 1e-5, trust="central")).fit(rows)
        assert run.signal_ is not None
        np.testing.assert_allclose(
            run.signal_, np.sum(run.components_ * true, axis=1) ** 2, atol=0.1
        )


@pytest.mark.usefixtures("seeded_noise")
@pytest.mark.parametrize("method", ["covariance", "power"])
@pytest.mark.parametrize(("offset", "factor"), [(2.0, 0.3), (2.0, 0.7), (3.0, 0.05), (3.0, 0.7)])
def test_signal_counts_a_mean_that_a_public_clip_has_lost(
    offset: float, factor: float, method: str
) -> None:
    """Rows that are clipped on one side of their mean leave a component of nothing but that."""
    rows = spiked(n=20_000, d=12, k=2) + offset
    clip = float(np.median(np.linalg.norm(rows, axis=1)))
    true = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False).Vh[0]

    def fitted(part: float) -> FederatedPCA:
        privacy = Privacy(10.0, 1e-6, trust="central", clip=part * clip)
        return FederatedPCA(2, method=method, privacy=privacy).fit(rows)

    with pytest.warns(NoiseWarning, match="a public clip that is longer than most rows"):
        lost = fitted(factor)
    assert lost.signal_ is not None
    assert lost.signal_.max() < 0.5
    assert (lost.components_[0] @ true) ** 2 < 0.5
    for part in (1.0, 1.3):
        found = fitted(part)
        assert found.signal_ is not None
        assert found.signal_[0] > 0.8
        assert (found.components_[0] @ true) ** 2 > 0.8


@pytest.mark.parametrize("method", ["covariance", "power"])
@pytest.mark.parametrize("unit", [1e-95, 1e95])
def test_the_unit_of_the_rows_changes_no_signal(unit: float, method: str) -> None:
    """Squares of variances are beyond double precision: a run failed after it had spent all."""
    rows = spiked(n=5000, d=12, k=2) * unit
    privacy = Privacy(8.0, 1e-6, trust="central", clip=1.5 * unit)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = FederatedPCA(2, method=method, privacy=privacy).fit(rows)
    assert run.signal_ is not None
    assert 0.9 < run.signal_[0] < 1.0


@pytest.mark.parametrize("method", ["covariance", "power"])
def test_a_short_clip_does_no_harm_to_rows_about_the_centre(method: str) -> None:
    rows = spiked(n=5000, d=12, k=2)
    privacy = Privacy(3.0, 1e-6, trust="central", clip=0.05)
    run = FederatedPCA(2, method=method, privacy=privacy).fit(rows)
    assert run.signal_ is not None
    assert run.signal_[0] > 0.9


def test_signal_is_there_with_noise_only() -> None:
    assert FederatedPCA(2).fit(DIGITS).signal_ is None
    power = FederatedPCA(2, method="power", privacy=Privacy(8.0, 1e-6, trust="central")).fit(DIGITS)
    assert power.signal_ is not None
    assert 0.9 < power.signal_.min() <= power.signal_.max() < 1.0
