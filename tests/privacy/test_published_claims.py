"""What the papers claim beside what holds: closed forms, against the figures found earlier."""

import math
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest

from eigenfed.errors import InputError
from eigenfed.privacy.dp.accounting import delta_of, epsilon_of, mu_of
from eigenfed.privacy.published_claims import CovarianceNoise, Published, Truth
from eigenfed.protocol.published import (
    AnalyzeGauss,
    DPdisPCA,
    ModSuLQ,
    NoisyFedPower,
    StreamingModSuLQ,
    SuLQ,
)

ROOT_2 = math.sqrt(2.0)


def truth_of(value: Published, rows: list[int] | None = None, d: int = 20, k: int = 2) -> Truth:
    """The truth where rows are bounded by a public number and not centred."""
    return value.truth(rows or [1000], d, k=k, center=False)


def needed_sd(epsilon: float, delta: float, d: int) -> float:
    """The least noise on the second moment of one row for that row replaced."""
    return (ROOT_2 if d > 1 else 1.0) / mu_of(epsilon, delta)


# [Imtiaz2018] -------------------------------------------------------------------------------------

CLAIMED = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
TABLE = {
    1e-2: (".020", ".316", ".811", "2.04", "5.26", "14.3"),
    1e-3: (".058", ".420", ".957", "2.20", "5.21", "13.1"),
    1e-5: (".089", ".514", "1.098", "2.37", "5.24", "12.1"),
    1e-8: (".107", ".575", "1.19", "2.49", "5.31", "11.7"),
}
CELLS = [
    (delta, epsilon, figure)
    for delta, figures in TABLE.items()
    for epsilon, figure in zip(CLAIMED, figures, strict=True)
]


@pytest.mark.parametrize(("delta", "epsilon", "figure"), CELLS)
def test_dpdispca_has_the_true_epsilon_of_the_table_to_its_digits(
    delta: float, epsilon: float, figure: str
) -> None:
    truth = truth_of(DPdisPCA(epsilon, delta, clip=1.0))
    digits = len(figure.split(".")[1])
    assert f"{truth.true_epsilon:.{digits}f}".lstrip("0") == figure
    assert truth.holds == (truth.true_epsilon <= epsilon)
    assert truth.holds == (float(figure) < epsilon)
    assert truth.relation == "replace_one"


@pytest.mark.parametrize("epsilon", [2.0, 4.0])
@pytest.mark.parametrize("where", ["local", "one_site", "pooled"])
def test_dpdispca_is_false_at_delta_1e_5_wherever_the_noise_is_added(
    epsilon: float, where: str
) -> None:
    value = DPdisPCA(epsilon, 1e-5, release="covariance", where=where, clip=1.0)
    truth = truth_of(value, rows=[300, 200])
    assert not truth.holds
    assert truth.true_epsilon > 1.15 * epsilon
    assert "Frobenius" in truth.why


def test_two_rows_at_right_angles_reach_the_epsilon_of_dpdispca() -> None:
    """Send A whole and replace e1 by e2: the likelihood ratio is that of two Gaussians."""
    value, n, d = DPdisPCA(2.0, 1e-5, release="covariance", clip=1.0), 50, 4
    change = np.zeros((d, d))
    change[0, 0], change[1, 1] = 1 / n, -1 / n
    mu = np.linalg.norm(change[np.triu_indices(d)]) / value.noise_sd(n, d)
    exact = epsilon_of(1e-5, float(mu))
    assert truth_of(value, rows=[n], d=d).true_epsilon == pytest.approx(exact, rel=1e-9)
    assert delta_of(2.0, float(mu)) > 3e-5


def test_with_one_feature_a_replaced_row_changes_as_much_as_one_taken_out() -> None:
    """A second moment of one feature is between 0 and 1, whatever the row."""
    single, several = (truth_of(DPdisPCA(2.0, 1e-5, clip=1.0), d=d, k=1) for d in (1, 2))
    taken_out = truth_of(AnalyzeGauss(2.0, 1e-5, clip=1.0), d=1, k=1)
    assert single.true_epsilon == taken_out.true_epsilon < several.true_epsilon


@pytest.mark.parametrize(("delta", "true"), [(1e-2, 8.60), (1e-3, 8.18)])
def test_analyze_gauss_fails_at_epsilon_8_even_for_a_row_taken_out(
    delta: float, true: float
) -> None:
    truth = truth_of(AnalyzeGauss(8.0, delta, clip=1.0))
    assert truth.relation == "zero_out"
    assert not truth.holds
    assert truth.true_epsilon == pytest.approx(true, abs=0.005)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0, 4.0])
def test_analyze_gauss_holds_up_to_epsilon_4_and_says_what_a_replaced_row_gets(
    epsilon: float,
) -> None:
    truth = truth_of(AnalyzeGauss(epsilon, 1e-5, clip=1.0))
    replaced = truth_of(DPdisPCA(epsilon, 1e-5, clip=1.0)).true_epsilon
    assert truth.holds
    assert truth.true_epsilon < replaced
    assert f"epsilon is {replaced:.4g}." in truth.why


# [Grammenos2020] and its supplement ---------------------------------------------------------------


def least_ratio(formula: str) -> float:
    return min(
        ModSuLQ(epsilon, delta, formula=formula).noise_sd(1, d) / needed_sd(epsilon, delta, d)
        for epsilon in np.geomspace(0.01, 316, 19)
        for delta in [*np.geomspace(1e-12, 0.1, 12), 0.2]
        for d in range(1, 11)
    )


@pytest.mark.parametrize(("formula", "ratio"), [("17", 2.26), ("6", 1.28)])
def test_mod_sulq_has_more_noise_than_it_needs_everywhere(formula: str, ratio: float) -> None:
    assert least_ratio(formula) == pytest.approx(ratio, abs=0.02)


@pytest.mark.parametrize(("d", "times"), [(20, 88), (64, 299), (200, 987), (784, 4112)])
def test_eq_17_is_wasteful_by_what_was_measured(d: int, times: int) -> None:
    value = ModSuLQ(1.0, 1e-5, formula="17", clip=1.0)
    assert value.noise_sd(1, d) / needed_sd(1.0, 1e-5, d) == pytest.approx(times, rel=0.005)
    truth = truth_of(value, d=d)
    assert truth.holds
    assert truth.true_epsilon < 0.05


def test_the_4d_of_eq_17_is_a_slip_for_the_root_of_its_own_quadratic() -> None:
    d, n, epsilon, delta = 20, 1000, 1.0, 0.01
    b = math.sqrt(2 * math.log(d * d / (delta * math.sqrt(2 * math.pi))))
    root = (d * b + math.sqrt((d * b) ** 2 + 2 * epsilon)) / (epsilon * n)
    assert root == pytest.approx(0.1760, abs=5e-5)
    printed = ModSuLQ(epsilon, delta, formula="17").noise_sd(n, d)
    assert printed == pytest.approx(0.3534, abs=5e-5)


def test_the_second_term_of_eq_8_does_not_fall_as_one_over_n() -> None:
    eight, seventeen = (ModSuLQ(1.0, 0.01, formula=name) for name in ("8", "17"))
    gaps = [eight.noise_sd(n, 5) - seventeen.noise_sd(n, 5) for n in (10**4, 10**6)]
    expected = [ROOT_2 / math.sqrt(n) - ROOT_2 / n for n in (10**4, 10**6)]
    np.testing.assert_allclose(gaps, expected, rtol=1e-9)
    assert seventeen.noise_sd(10**6, 5) == pytest.approx(seventeen.noise_sd(1, 5) / 10**6)


def test_sulq_is_the_rate_that_000_states_and_fails_at_a_very_large_epsilon() -> None:
    value = SuLQ(1.0, 0.01, clip=1.0)
    assert value.noise_sd(100, 20) ** 2 == pytest.approx(
        8 * 20**2 * math.log(20 / 0.01) ** 2 / 100**2
    )
    assert truth_of(value).holds
    assert not truth_of(SuLQ(300.0, 0.2, clip=1.0), d=2).holds


def test_lemma_2_item_2_as_printed_calls_one_row_private_at_epsilon_132() -> None:
    value = StreamingModSuLQ(1.0, 0.01, mask=0.1, clip=1.0)
    assert value.least_batch(20) == pytest.approx(0.028, abs=5e-4)
    assert value.batch_size(20) == 1
    truth = truth_of(value)
    assert not truth.holds
    assert truth.true_epsilon == pytest.approx(132, abs=0.5)
    assert "inverts its bracket" in truth.why


def test_lemma_2_item_2_holds_once_its_bracket_is_not_inverted() -> None:
    value = StreamingModSuLQ(1.0, 0.01, mask=0.1, minimum="corrected", clip=1.0)
    assert value.batch_size(20) == 3534
    assert truth_of(value).holds
    enough = math.ceil(ROOT_2 / (0.1 * mu_of(1.0, 0.01)))
    assert enough == 27
    tight = [
        StreamingModSuLQ(1.0, 0.01, mask=0.1, minimum="printed", batch=b, clip=1.0)
        for b in (enough - 1, enough)
    ]
    assert [truth_of(value).holds for value in tight] == [False, True]


def test_the_corrected_least_batch_is_where_the_mask_meets_eq_17() -> None:
    value = StreamingModSuLQ(0.5, 1e-4, mask=0.3, minimum="corrected")
    b = value.batch_size(7)
    formula = StreamingModSuLQ(0.5, 1e-4, batch=b, formula="17")
    assert formula.noise_sd(b, 7) <= 0.3 < formula.noise_sd(b - 1, 7)


@pytest.mark.parametrize("formula", ["8", "17"])
def test_the_stream_is_accounted_by_the_batch_and_not_by_all_rows(formula: str) -> None:
    value = StreamingModSuLQ(1.0, 0.01, batch=50, formula=formula, clip=1.0)
    mu = ROOT_2 / (50 * value.noise_sd(50, 20))
    few, many = (truth_of(value, rows=rows) for rows in ([50], [10**6, 10**6]))
    assert few.true_epsilon == many.true_epsilon == epsilon_of(0.01, mu)
    assert few.holds


def test_eq_8_is_the_default_of_alg_3() -> None:
    default, eight = (StreamingModSuLQ(1.0, 0.1, batch=9, formula=f) for f in (None, "8"))
    assert default.noise_sd(9, 4) == eight.noise_sd(9, 4)


# [Guo2024] ----------------------------------------------------------------------------------------


def hadamard(order: int) -> np.ndarray[Any, Any]:
    matrix = np.ones((1, 1))
    for _ in range(order):
        matrix = np.kron(matrix, np.array([[1.0, 1.0], [1.0, -1.0]]))
    return matrix


def test_a_hadamard_basis_reaches_the_epsilon_of_fedpower() -> None:
    value = NoisyFedPower(1.0, 1e-5, iterations=1, rank=16, clip=1.0)
    truth = truth_of(value, rows=[100], d=16, k=4)
    z = hadamard(4) / 4
    np.testing.assert_allclose(z @ z.T, np.eye(16), atol=1e-15)
    sigma, _ = value.noise_factors([100])
    mu = np.linalg.norm(z[0] / 100) / (np.abs(z).max() * sigma)
    assert truth.true_epsilon == pytest.approx(epsilon_of(2e-5, float(mu)), rel=1e-9)
    assert (truth.claimed_epsilon, truth.claimed_delta) == (2.0, 2e-5)
    assert truth.true_epsilon == pytest.approx(3.37, abs=0.005)
    assert not truth.holds
    assert truth.relation == "entry"


@pytest.mark.parametrize(("d", "r", "times"), [(64, 10, 1.45), (256, 256, 3.45)])
def test_fedpower_understates_the_sensitivity_of_random_bases(d: int, r: int, times: float) -> None:
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(20):
        z = np.linalg.qr(rng.standard_normal((d, r))).Q
        ratios.append(np.linalg.norm(z, axis=1).max() / np.abs(z).max())
    assert np.mean(ratios) == pytest.approx(times, rel=0.1)
    assert max(ratios) <= math.sqrt(r)


@pytest.mark.parametrize("averages", [1, 4, 16])
def test_single_steps_keep_the_claim_while_columns_are_about_seven_times_the_averages(
    averages: int,
) -> None:
    def holds(r: int) -> bool:
        value = NoisyFedPower(1.0, 1e-5, iterations=averages, rank=r, clip=1.0)
        return truth_of(value, rows=[400, 100], d=1000).holds

    most = max(r for r in range(2, 12 * averages) if holds(r))
    assert 6 * averages <= most <= 9 * averages
    assert all(holds(r) for r in range(2, most))


@pytest.mark.parametrize(("iterations", "why"), [(4, "Z itself"), (5, "without noise")])
def test_with_local_steps_nothing_holds_of_fedpower(iterations: int, why: str) -> None:
    value = NoisyFedPower(1.0, 1e-5, iterations=iterations, local_steps=2, clip=1.0)
    truth = truth_of(value, rows=[100, 100])
    assert truth.true_epsilon == truth.noise_epsilon == math.inf
    assert not truth.holds
    assert why in truth.why
    assert "no guarantee holds" in truth.text


def test_theorem_7_takes_one_draw_for_taking_part() -> None:
    rows, drawn = [50] * 200, 100
    for scheme, times in (("scheme1", 79), ("scheme2", 100)):
        value = NoisyFedPower(1.0, 1e-5, iterations=3, participation=scheme, sites_per_round=drawn)
        taken_for = 1 / 200
        assert value.participation_probabilities(rows)[0] / taken_for == pytest.approx(
            times, rel=0.003
        )
        full = NoisyFedPower(1.0, 1e-5, iterations=3).noise_factors(rows)[0]
        log = math.log(1.25 * 3 * taken_for / 1e-5) / math.log(1.25 * 3 / 1e-5)
        assert value.noise_factors(rows)[0] == pytest.approx(full * math.sqrt(log))


def test_how_often_a_site_takes_part_is_counted_as_it_is_drawn() -> None:
    rng = np.random.default_rng(5)
    rows, drawn = [10, 20, 70], 2
    value = NoisyFedPower(1.0, 1e-5, iterations=1, participation="scheme1", sites_per_round=drawn)
    counts = rng.multinomial(drawn, np.array(rows) / 100, size=40_000)
    np.testing.assert_allclose(
        value.participation_probabilities(rows), (counts > 0).mean(axis=0), atol=0.01
    )


def test_a_sampled_site_has_the_mean_of_the_curves() -> None:
    rows, times = [100, 100, 100, 100], 3
    value = NoisyFedPower(
        4.0, 1e-5, iterations=times, rank=2, participation="scheme2", sites_per_round=1, clip=1.0
    )
    found = truth_of(value, rows=rows).true_epsilon
    mu = ROOT_2 / (100 * value.noise_factors(rows)[0])
    mean = sum(
        math.comb(times, j) * 0.25**j * 0.75 ** (times - j) * delta_of(found, mu * math.sqrt(j))
        for j in range(1, times + 1)
    )
    assert mean == pytest.approx(2e-5, rel=1e-6)
    assert found < epsilon_of(2e-5, mu * math.sqrt(times))


def test_the_site_with_fewest_rows_fares_worst() -> None:
    value = NoisyFedPower(1.0, 1e-5, iterations=1, rank=16, clip=1.0)
    alone = truth_of(value, rows=[100], d=16).true_epsilon
    assert truth_of(value, rows=[100, 5000], d=16).true_epsilon == alone


def test_drawing_rarely_can_leave_an_epsilon_of_zero() -> None:
    value = NoisyFedPower(
        0.01, 0.01, iterations=1, rank=2, participation="scheme2", sites_per_round=1, clip=1.0
    )
    assert truth_of(value, rows=[1000] * 100).true_epsilon == 0.0


def test_the_coordinators_noise_is_as_printed() -> None:
    rows = [100, 300]
    root = math.sqrt(2 * math.log(1.25 * 4 / 1e-5))
    base = 4 / (0.5 * 100) * root
    options: dict[str, Any] = {"iterations": 8, "local_steps": 2}
    full = NoisyFedPower(0.5, 1e-5, **options)
    assert full.noise_factors(rows) == pytest.approx((base, 0.75 * base))
    printed = {"scheme1": base / 2, "scheme2": 0.75 * base / 2}
    for scheme, expected in printed.items():
        value = NoisyFedPower(0.5, 1e-5, participation=scheme, sites_per_round=2, **options)
        assert value.noise_factors(rows)[1] == pytest.approx(expected)


# Preparation and words -------------------------------------------------------------------------

VALUES: list[Published] = [
    SuLQ(1.0, 1e-5, clip=2.0),
    ModSuLQ(1.0, 1e-5, clip=2.0),
    StreamingModSuLQ(1.0, 1e-5, batch=10, clip=2.0),
    AnalyzeGauss(1.0, 1e-5, clip=2.0),
    DPdisPCA(0.1, 1e-5, clip=2.0),
    NoisyFedPower(1.0, 1e-5, iterations=4, clip=2.0),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_what_is_taken_from_the_rows_bare_voids_every_claim(value: Published) -> None:
    plain = truth_of(value)
    assert plain.holds
    assert plain.true_epsilon == plain.noise_epsilon
    centred = value.truth([1000], 20, k=2)
    assert not centred.holds
    assert centred.true_epsilon == math.inf
    assert centred.noise_epsilon == plain.noise_epsilon
    assert "the mean of the rows" in centred.why
    fields = {**value.__dict__, "clip": None}
    scaled = truth_of(type(value)(**fields))
    assert scaled.true_epsilon == math.inf
    assert "the largest norm of the rows" in scaled.why


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_the_text_names_the_mechanism_the_claim_and_what_holds(value: Published) -> None:
    truth = truth_of(value)
    epsilon, delta = value.claim
    assert truth.text.startswith(
        f"{type(value).__name__} claims epsilon {epsilon:g} at delta {delta:g}"
    )
    assert f"epsilon {truth.true_epsilon:.4g} holds" in truth.text
    assert truth.text.endswith(truth.why)


def test_one_row_twice_as_long_as_the_others_shows_through_any_noise() -> None:
    """Division by the largest norm: 1.000 becomes 0.2507 where the noise is 0.0048."""
    n, sd = 1000, DPdisPCA(1.0, 1e-5).noise_sd(1000, 4)
    before, after = 1.0, ((n - 1) * 1.0**2 + 2.0**2) / (n * 2.0**2)
    assert after == pytest.approx(0.2507, abs=1e-4)
    assert sd == pytest.approx(0.0048, abs=5e-5)
    mu = (before - after) / sd
    assert mu == pytest.approx(155, abs=1)
    assert epsilon_of(1e-5, mu) > 10_000
    assert DPdisPCA(1.0, 1e-5).truth([n], 4, k=1, center=False).true_epsilon == math.inf


def test_a_delta_that_would_let_a_row_be_shown_is_named() -> None:
    assert "permits publishing one" in truth_of(ModSuLQ(0.1, 0.1, clip=1.0), rows=[100]).why
    assert "permits publishing one" not in truth_of(ModSuLQ(0.1, 1e-4, clip=1.0), rows=[100]).why


def test_values_cannot_be_changed_later() -> None:
    with pytest.raises(FrozenInstanceError):
        DPdisPCA(1.0, 1e-5).epsilon = 9.0  # type: ignore[misc]


def test_a_second_moment_is_what_covariance_noise_is_about() -> None:
    assert not isinstance(NoisyFedPower(1.0, 1e-5, iterations=1), CovarianceNoise)
    noisy = [value for value in VALUES if isinstance(value, CovarianceNoise)]
    symmetric = {type(value) for value in noisy if value.is_symmetric}
    assert symmetric == {ModSuLQ, AnalyzeGauss, DPdisPCA}
    assert len(noisy) == 5


WRONG: list[tuple[type[Published], dict[str, Any], str]] = [
    (SuLQ, {"epsilon": -1.0}, "epsilon=-1.0 must be a finite number above 0"),
    (SuLQ, {"delta": 1.5}, "delta=1.5 must be above 0 and below 1"),
    (SuLQ, {"clip": 0.0}, "clip=0.0 must be a finite number above 0"),
    (SuLQ, {"clip": True}, "clip=True must be a finite number above 0"),
    (SuLQ, {"clip": "1"}, "clip='1' must be a finite number above 0"),
    (ModSuLQ, {"formula": "7"}, "formula='7' must be one of '6', '8', '17'"),
    (DPdisPCA, {"release": "all"}, "release='all' must be one of"),
    (DPdisPCA, {"where": "here"}, "where='here' must be one of"),
    (DPdisPCA, {"where": "pooled"}, "release='factor' is what sites send"),
    (DPdisPCA, {"rank": 0}, "rank=0 must be an integer of at least 1"),
    (DPdisPCA, {"rank": 3, "release": "covariance"}, "rank=3 must be None with"),
    (StreamingModSuLQ, {}, "batch=None requires a mask"),
    (StreamingModSuLQ, {"batch": 0}, "batch=0 must be an integer"),
    (StreamingModSuLQ, {"batch": 5, "formula": "6"}, "formula='6' must be one of"),
    (StreamingModSuLQ, {"batch": 5, "minimum": "printed"}, "minimum='printed' requires a mask"),
    (StreamingModSuLQ, {"mask": -1.0}, "mask=-1.0 must be a finite number above 0"),
    (StreamingModSuLQ, {"mask": 1.0, "minimum": "least"}, "minimum='least' must be one of"),
    (StreamingModSuLQ, {"mask": 1.0, "formula": "8"}, "formula='8' must be None with a mask"),
    (StreamingModSuLQ, {"batch": 5, "merge": "best"}, "merge='best' must be one of"),
    (StreamingModSuLQ, {"batch": 5, "rank": 0}, "rank=0 must be an integer"),
    (StreamingModSuLQ, {"batch": 5, "columns": 2.5}, "columns=2.5 must be an integer"),
    (
        StreamingModSuLQ,
        {"batch": 5, "columns": 2, "merge": "corrected"},
        "columns=2 must be None with merge='corrected'",
    ),
    (StreamingModSuLQ, {"batch": 5, "energy": (0.2, 0.1)}, "must be two fractions"),
    (NoisyFedPower, {"iterations": 0}, "iterations=0 must be an integer of at least 1"),
    (NoisyFedPower, {"iterations": 2, "local_steps": 3}, "iterations=2 must be .* at least 3"),
    (NoisyFedPower, {"iterations": 2, "local_steps": 0}, "local_steps=0 must be"),
    (NoisyFedPower, {"iterations": 2, "align": "sign"}, "align='sign' must be one of"),
    (NoisyFedPower, {"iterations": 2, "participation": "some"}, "participation='some' must"),
    (NoisyFedPower, {"iterations": 2, "rank": 0}, "rank=0 must be an integer"),
    (NoisyFedPower, {"iterations": 2, "delta": 0.5}, "delta=0.5 must be below 0.5"),
    (NoisyFedPower, {"iterations": 2, "sites_per_round": 2}, "must be None with full"),
    (NoisyFedPower, {"iterations": 2, "participation": "scheme1"}, "sites_per_round=None must"),
]


@pytest.mark.parametrize(("kind", "fields", "words"), WRONG)
def test_a_wrong_argument_is_named_with_its_rule(
    kind: type[Published], fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        kind(**{"epsilon": 1.0, "delta": 1e-5, **fields})


def test_a_formula_without_a_value_is_refused() -> None:
    with pytest.raises(InputError, match=r"delta=0\.9 makes the paper's formula .* Lower delta"):
        ModSuLQ(1.0, 0.9).noise_sd(10, 1)
    rare = NoisyFedPower(
        1.0, 0.01, iterations=1, participation="scheme2", sites_per_round=1, clip=1.0
    )
    with pytest.raises(InputError, match="root of the logarithm"):
        truth_of(rare, rows=[10] * 200)


def test_ranks_and_batches_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="rank=2 must be at least 3, the number of components"):
        DPdisPCA(1.0, 1e-5, rank=2).rank_for(3, 10)
    with pytest.raises(InputError, match="at most 4, the number of features"):
        NoisyFedPower(1.0, 1e-5, iterations=1, rank=5).rank_for(3, 4)
    assert StreamingModSuLQ(1.0, 1e-5, batch=5).rank_for(3, 5) == 5
    with pytest.raises(InputError, match="batch=10 must be at least 3534"):
        StreamingModSuLQ(1.0, 0.01, mask=0.1, minimum="corrected", batch=10).batch_size(20)
    with pytest.raises(InputError, match="mask=None has no least batch size"):
        StreamingModSuLQ(1.0, 0.01, batch=10).least_batch(20)
    drawn = NoisyFedPower(
        1.0, 1e-5, iterations=1, participation="scheme2", sites_per_round=3, clip=1.0
    )
    with pytest.raises(InputError, match="sites_per_round=3 must be at most 2"):
        truth_of(drawn, rows=[100, 100])
