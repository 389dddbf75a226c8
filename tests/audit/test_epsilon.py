"""Audits: sound mechanisms stay within their claims, and claims that are false are shown false."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import hadamard
from scipy.stats import beta, binom

from eigenfed.arrays import Array, Arrays
from eigenfed.audit.epsilon import (
    Audit,
    Mechanism,
    audit_epsilon,
    likelihood_ratio,
    lower_bound,
    upper_bound,
)
from eigenfed.errors import InputError
from eigenfed.privacy.dp.accounting import delta_of, epsilon_of, mu_of
from eigenfed.privacy.dp.discrete_gaussian import Noise, discrete_gaussian
from eigenfed.privacy.dp.sensitivity import RELATIONS
from eigenfed.protocol.published import DPdisPCA, ModSuLQ, NoisyFedPower, StreamingModSuLQ
from eigenfed.protocol.published.bounded import SizesRequest, bounded_rows
from eigenfed.protocol.published.continuous_noise import draw_normal
from eigenfed.protocol.published.dpdispca import (
    NoisyCovarianceRequest,
    NoisyFactorRequest,
    noisy_covariance,
    noisy_factor,
)
from eigenfed.protocol.published.fedpower import NoisyStepRequest, noisy_step
from private_runs import apart, as_published, worst_pairs

SILENT = 1e200
"""An epsilon with which the papers' own noise is nothing."""


def shifted(mu: float, seed: int = 0) -> Mechanism:
    """One number, mu apart between the data sets, with noise of deviation 1."""
    rng = np.random.default_rng(seed)
    return lambda which, count: which * mu + rng.standard_normal(count)


def gaussian(first: Array, second: Array, sd: float, seed: int = 0) -> Mechanism:
    """Either of two arrays with the papers' noise."""
    bits = np.random.default_rng(seed).bytes

    def mechanism(which: int, count: int) -> Array:
        value = (first, second)[which]
        return value + draw_normal((count, *value.shape), sd, bits)

    return mechanism


# The audit itself -------------------------------------------------------------------------------


@pytest.mark.parametrize("trials", [1, 7, 200])
@pytest.mark.parametrize("level", [0.0125, 0.3])
def test_bounds_are_those_of_clopper_and_pearson(trials: int, level: float) -> None:
    hits = np.arange(trials + 1)
    low, high = (
        lower_bound(hits, trials, level),
        upper_bound(hits, trials, level),
    )
    np.testing.assert_allclose(low[1:], beta.ppf(level, hits[1:], trials - hits[1:] + 1))
    np.testing.assert_allclose(binom.sf(hits[1:] - 1, trials, low[1:]), level, rtol=1e-9)
    np.testing.assert_allclose(binom.cdf(hits[:-1], trials, high[:-1]), level, rtol=1e-9)
    assert (low[0], high[-1]) == (0.0, 1.0)
    assert np.all(low < high)


def test_bounds_hold_as_often_as_they_say() -> None:
    rng, p, trials = np.random.default_rng(1), 0.03, 400
    hits = rng.binomial(trials, p, 20_000)
    assert np.mean(lower_bound(hits, trials, 0.05) > p) <= 0.05
    assert np.mean(upper_bound(hits, trials, 0.05) < p) <= 0.05


def test_an_audit_of_nothing_certifies_nothing() -> None:
    found = audit_epsilon(shifted(0.0), 1e-5, trials=20_000, claimed=0.1)
    assert found.certified <= 0.1
    assert found.gaussian <= 0.5
    assert not found.refutes


@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
def test_an_audit_comes_near_to_theory_and_stays_below_it(mu: float) -> None:
    theory = epsilon_of(1e-3, mu)
    found = audit_epsilon(shifted(mu), 1e-3, trials=400_000, theory=theory)
    assert 0.6 * min(theory, 8.0) < found.certified < theory
    assert 0.95 * mu < found.mu < mu
    assert 0.93 * theory < found.gaussian < theory


def test_certificates_are_wrong_no_oftener_than_their_confidence_allows() -> None:
    """At 50% confidence so that a test can count; it is split in four, and so is half too safe."""
    theory = epsilon_of(0.01, 1.0)
    found = [
        audit_epsilon(shifted(1.0, seed), 0.01, trials=4000, confidence=0.5) for seed in range(150)
    ]
    assert 0 < np.mean([a.certified > theory for a in found]) <= 0.5
    assert 0 < np.mean([a.mu > 1.0 for a in found]) <= 0.5


@pytest.mark.parametrize("chance", [0.02, 0.3])
def test_a_loss_that_shows_on_one_side_only_is_found_on_either(chance: float) -> None:
    """Data set 1 is sometimes shown openly: epsilon is infinite there and next to 0 reversed."""
    rng = np.random.default_rng(2)

    def showing(which: int, count: int) -> Array:
        return (which * (rng.random(count) < chance)).astype(np.float64)

    def hiding(which: int, count: int) -> Array:
        return -showing(1 - which, count)

    for mechanism in (showing, hiding):
        found = audit_epsilon(mechanism, 1e-3, trials=20_000, claimed=1.0)
        assert found.certified > 3.0
        assert found.refutes
        # With delta as large as the chance, it is private.
        assert audit_epsilon(mechanism, 1.2 * chance, trials=20_000).certified == 0.0


def test_scores_may_be_infinite_and_releases_come_in_batches() -> None:
    asked: list[int] = []

    def mechanism(which: int, count: int) -> Array:
        asked.append(count)
        return np.where(np.arange(count) % 2, np.inf, -np.inf) * (1.0 if which else -1.0)

    found = audit_epsilon(mechanism, 0.0, trials=600_000)
    assert found.certified == found.mu == 0.0
    assert max(asked) < 600_000
    assert sum(asked) == 2 * found.trials


def test_an_audit_says_what_it_found() -> None:
    found = audit_epsilon(shifted(3.0), 1e-5, trials=50_000, claimed=1.0, theory=2.0)
    assert "Certified at least epsilon" in found.text
    assert "95% confidence, 50000 runs" in found.text
    assert "If its privacy curve is Gaussian" in found.text
    assert "Theory: 2." in found.text
    assert "which is refuted" in found.text
    kept = Audit(1e-5, 0.5, 0.1, 0.6, 0.95, 1000, claimed=1.0)
    assert "which the runs do not refute" in kept.text
    assert "Theory" not in kept.text
    assert "Claimed" not in Audit(1e-5, 0.5, 0.1, 0.6, 0.95, 1000).text


@pytest.mark.parametrize(
    ("changed", "about"),
    [
        ({"delta": -0.1}, "delta="),
        ({"delta": 1.0}, "delta="),
        ({"delta": math.nan}, "delta="),
        ({"trials": 99}, "trials="),
        ({"trials": 1000.0}, "trials="),
        ({"confidence": 1.0}, "confidence="),
        ({"confidence": 0.0}, "confidence="),
    ],
)
def test_an_audit_that_could_not_certify_is_refused(changed: dict[str, float], about: str) -> None:
    terms = {"delta": 1e-5, "trials": 1000, "confidence": 0.9} | changed
    delta, trials = terms.pop("delta"), terms.pop("trials")
    with pytest.raises(InputError, match=about):
        audit_epsilon(shifted(1.0), delta, trials=trials, **terms)  # type: ignore[arg-type]


def test_releases_without_one_score_each_are_refused() -> None:
    with pytest.raises(InputError, match=r"likelihood_ratio"):
        audit_epsilon(lambda _, count: np.zeros((count, 2)), 1e-5, trials=1000)
    with pytest.raises(InputError, match="NaN"):
        audit_epsilon(lambda _, count: np.full(count, np.nan), 1e-5, trials=1000)


def test_the_likelihood_ratio_is_that_of_the_densities() -> None:
    rng = np.random.default_rng(3)
    first, second, seen = rng.standard_normal((3, 2, 2))
    sd = np.array([[1.0, 2.0], [0.5, 3.0]])
    logs = [-np.sum(((seen - value) / sd) ** 2) / 2 for value in (first, second)]
    assert likelihood_ratio(first, second, sd)(seen[None])[0] == pytest.approx(logs[1] - logs[0])


# Sound mechanisms -------------------------------------------------------------------------------

EPSILON, DELTA = 2.0, 1e-3


def noised(answers: tuple[Arrays, Arrays], noise: Noise, parties: int = 1) -> Mechanism:
    """The gate's own noise on either answer, many times at once; parties add parts of it."""
    bits = np.random.default_rng(0).bytes
    ((name, _),) = answers[0].items()
    mu = mu_of(EPSILON, DELTA)

    def draw(sd: float, count: int) -> "np.typing.NDArray[np.int64]":
        return discrete_gaussian(sd, count, bits)

    def mechanism(which: int, count: int) -> Array:
        value = answers[which][name]
        shape = (count, *value.shape)
        relative = noise.relative.get(name, np.ones(value.shape))
        many = Noise(noise.sensitivity, {name: np.broadcast_to(relative, shape)})
        total = np.broadcast_to(value, shape)
        for _ in range(parties):
            nothing = {name: np.zeros(shape, dtype=np.int64)}
            total = total + many.add_to(nothing, mu, parties, draw)[name]
        return total.astype(np.float64)

    return mechanism


def joined(answers: tuple[Arrays, Arrays], noise: Noise) -> tuple[tuple[Arrays, Arrays], Noise]:
    """One array of all parts of a reply, in units of its noise."""
    sds = [noise.relative.get(name, np.ones(part.shape)) for name, part in answers[0].items()]
    one, other = ({"all": np.concatenate([a.ravel() for a in part.values()])} for part in answers)
    return (one, other), Noise(noise.sensitivity, {"all": np.concatenate([s.ravel() for s in sds])})


def audit_of(answers: tuple[Arrays, Arrays], noise: Noise, parties: int = 1) -> Audit:
    if len(answers[0]) > 1:
        answers, noise = joined(answers, noise)
    ((name, first),) = answers[0].items()
    sd = noise.relative.get(name, np.ones(first.shape)) * noise.sensitivity
    theory = epsilon_of(DELTA, mu_of(EPSILON, DELTA) * apart(*answers, noise))
    return audit_epsilon(
        noised(answers, noise, parties),
        DELTA,
        trials=100_000 if first.size < 100 else 40_000,
        score=likelihood_ratio(first, answers[1][name], sd),
        claimed=EPSILON,
        theory=theory,
    )


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", worst_pairs("replace_one"))
def test_a_sound_mechanism_stays_within_its_claim_and_reaches_it(name: str, relation: str) -> None:
    """On its worst neighbours; the closed form of the pair is the theory."""
    pair = worst_pairs(relation)[name]
    found = audit_of(pair.replies, pair.noise)
    assert found.theory is not None
    assert 0.98 * EPSILON < found.theory <= EPSILON * (1 + 1e-12)
    assert found.certified <= EPSILON
    assert not found.refutes
    assert 0.85 * EPSILON < found.gaussian <= EPSILON


@pytest.mark.parametrize("parties", [3, 5])
def test_noise_in_parts_stays_within_the_claim(parties: int) -> None:
    pair = worst_pairs("replace_one")["private_scatter"]
    found = audit_of(pair.replies, pair.noise, parties)
    assert found.certified <= EPSILON
    assert 0.85 * EPSILON < found.gaussian <= EPSILON


def test_half_of_the_noise_would_be_caught() -> None:
    pair = worst_pairs("replace_one")["private_scatter"]
    half = Noise(pair.noise.sensitivity / 2, pair.noise.relative)
    assert audit_of(pair.replies, half).refutes


# Published claims that are false ----------------------------------------------------------------


def second_moment(X: Array, value: DPdisPCA | None = None, bound: float = 1.0) -> Array:
    """What a site sends of its second moment of bounded rows, without noise by default."""
    silent = DPdisPCA(SILENT, 1e-5, release="covariance", clip=bound)
    request = NoisyCovarianceRequest(mean=np.zeros(X.shape[1]), bound=bound)
    sent: Array = as_published(value or silent, noisy_covariance, request, X).reply.triangle
    return sent


def one_more(rest: Array, row: Array) -> Array:
    return np.vstack([rest, row[None]])


def test_lemma_2_2_as_printed_calls_one_row_enough_and_is_false() -> None:
    """[Grammenos2020] Lemma 2.2, whose bracket is inverted: epsilon=1, delta=0.01, mask 0.1."""
    d = 20
    value = StreamingModSuLQ(1.0, 0.01, mask=0.1, clip=1.0)
    n = value.batch_size(d)
    assert n == 1
    first, second = (np.outer(row, row) / n for row in np.eye(d)[:2])
    found = audit_epsilon(
        gaussian(first, second, value.noise_sd(n, d)),
        0.01,
        trials=4000,
        score=likelihood_ratio(first, second, value.noise_sd(n, d)),
        claimed=1.0,
        theory=value.truth([n], d, k=2, center=False).true_epsilon,
    )
    assert found.refutes
    assert found.certified > 5.0
    assert found.theory == pytest.approx(132, abs=0.5)


def test_lemma_2_2_with_its_bracket_set_right_holds() -> None:
    d = 20
    value = StreamingModSuLQ(1.0, 0.01, mask=0.1, minimum="corrected", clip=1.0)
    n = value.batch_size(d)
    mu = math.sqrt(2.0) / n / value.noise_sd(n, d)
    assert not audit_epsilon(shifted(mu), 0.01, trials=200_000, claimed=1.0).refutes


def dpdispca_pair(n: int = 1000, d: int = 2) -> tuple[Array, Array]:
    """Upper triangles of a site's second moment, where the last of n rows is e1 or e2."""
    rest = np.zeros((n - 1, d))
    first, second = (second_moment(one_more(rest, e)) for e in np.eye(d)[:2])
    return first, second


@pytest.mark.parametrize(("epsilon", "trials"), [(2.0, 12_000_000), (4.0, 10_000_000)])
def test_dpdispca_is_refuted_at_delta_1e_5(epsilon: float, trials: int) -> None:
    """[Imtiaz2018] Theorem 1, where a site sends its matrix: nothing is assumed but the runs.

    Of the matrix only the difference of the two changed entries is drawn: the noise of the
    others, and that of their sum, is independent of it.
    """
    value = DPdisPCA(epsilon, 1e-5, release="covariance", clip=1.0)
    n = 1000
    apart = [float(triangle[2] - triangle[0]) for triangle in dpdispca_pair(n)]
    sd = math.sqrt(2.0) * value.noise_sd(n, 2)
    rng = np.random.default_rng(1)

    def mechanism(which: int, count: int) -> Array:
        return apart[which] + sd * rng.standard_normal(count)

    found = audit_epsilon(
        mechanism,
        1e-5,
        trials=trials,
        claimed=epsilon,
        theory=value.truth([n], 2, k=1, center=False).true_epsilon,
    )
    assert found.refutes
    assert found.theory is not None
    assert epsilon < found.certified < found.theory
    assert 0.99 * found.theory < found.gaussian < found.theory


@pytest.mark.parametrize("epsilon", [2.0, 4.0])
def test_the_factors_that_dpdispca_sends_are_no_more_private(epsilon: float) -> None:
    """The message of [Imtiaz2018], rank 2 of 4: a Gaussian's curve is assumed and not proved."""
    value, n, d, rank = DPdisPCA(epsilon, 1e-5, rank=2, clip=1.0), 1000, 4, 2
    # With many rows along e1 and e2 the leading directions are known, and so is the change.
    rest = np.repeat(np.eye(d), [450, 450, 0, 99], axis=0)
    rest[900:] = 0.0
    first, second = (second_moment(one_more(rest, e)) for e in np.eye(d)[:2])
    rows, columns = np.triu_indices(d)
    bits = np.random.default_rng(2).bytes

    def factors(which: int, count: int) -> Array:
        noisy = np.zeros((count, d, d))
        upper = (first, second)[which]
        noisy[:, rows, columns] = upper + draw_normal(
            (count, len(rows)), value.noise_sd(n, d), bits
        )
        noisy[:, columns, rows] = noisy[:, rows, columns]
        values, vectors = np.linalg.eigh(noisy)
        roots = np.sqrt(np.maximum(values[:, None, -rank:], 0.0))
        sent: Array = vectors[:, :, -rank:] * roots
        return sent

    def score(releases: Array) -> Array:
        squares: Array = np.sum(releases[:, :2] ** 2, axis=2)
        return squares[:, 1] - squares[:, 0]

    found = audit_epsilon(factors, 1e-5, trials=150_000, score=score, claimed=epsilon)
    assert found.gaussian > 1.1 * epsilon
    assert found.mu > mu_of(epsilon, 1e-5)


def test_the_factor_that_is_audited_is_the_one_that_a_site_sends() -> None:
    X = np.random.default_rng(4).standard_normal((30, 4))
    triangle = second_moment(X)
    matrix = np.zeros((4, 4))
    matrix[np.triu_indices(4)] = triangle
    matrix = matrix + np.triu(matrix, 1).T
    values, vectors = np.linalg.eigh(matrix)
    factor = vectors[:, -2:] * np.sqrt(values[-2:])
    value, request = (
        DPdisPCA(SILENT, 1e-5, rank=2, clip=1.0),
        NoisyFactorRequest(mean=np.zeros(4), bound=1.0),
    )
    sent = as_published(value, noisy_factor, request, X).reply.factor
    np.testing.assert_allclose(sent @ sent.T, factor @ factor.T, atol=1e-12)


def test_division_by_the_largest_norm_is_refuted() -> None:
    """[Imtiaz2018] section 4: one row of norm 2 among rows of norm 1 shrinks all others by 4."""
    value, n, d = DPdisPCA(1.0, 1e-5), 1000, 3
    rest = np.tile(np.eye(d)[0], (n - 1, 1))
    sent = []
    for row in (np.eye(d)[0], 2 * np.eye(d)[1]):
        X = one_more(rest, row)
        peak = as_published(value, bounded_rows, SizesRequest(), X).reply.peak
        sent.append(second_moment(X, bound=peak))
    first, second = sent
    sd = value.noise_sd(n, d)
    assert (first[0], second[0]) == pytest.approx((1.0, 0.24975))
    found = audit_epsilon(
        gaussian(first, second, sd),
        1e-5,
        trials=20_000,
        score=likelihood_ratio(first, second, sd),
        claimed=1.0,
        theory=value.truth([n], d, k=1, center=False).true_epsilon,
    )
    assert found.refutes
    assert found.certified > 7.0
    assert found.theory == math.inf
    assert np.linalg.norm(second - first) / sd > 150


def power_pair(value: NoisyFedPower, start: Array, steps: int) -> tuple[Array, Array, float]:
    """Noisy steps of 100 rows, of which one of zeros becomes e1; and the noise without it.

    X'X changes in one diagonal entry by 1, as [Guo2024] has its neighbours.
    """
    d, n = start.shape[0], 100
    rest = np.zeros((n - 1, d))
    rest[:90, 1] = 1.0
    request = NoisyStepRequest(
        mean=np.zeros(d), bound=1.0, start=start, steps=steps, rows=np.array([n])
    )
    silent = replace(value, epsilon=SILENT)
    tables = (one_more(rest, row) for row in (np.zeros(d), np.eye(d)[0]))
    first, second = (as_published(silent, noisy_step, request, X).reply for X in tables)
    sigma, _ = value.noise_factors([n])
    return first.product, second.product, sigma * max(first.peak, second.peak)


def test_fedpower_with_two_local_steps_is_refuted() -> None:
    """[Guo2024] Theorem 4 with p=2: the direction itself follows the rows, without noise."""
    value = NoisyFedPower(1.0, 1e-5, iterations=2, local_steps=2, rank=1, clip=1.0)
    start = np.array([[1.0], [1 / 900], [0.0]])
    first, second, sd = power_pair(value, start, steps=1)
    claimed, delta = value.claim
    found = audit_epsilon(
        gaussian(first, second, sd),
        delta,
        trials=20_000,
        score=likelihood_ratio(first, second, sd),
        claimed=claimed,
        theory=value.truth([100], 3, k=1, center=False).true_epsilon,
    )
    assert found.refutes
    assert found.certified > 7.0
    assert found.theory == math.inf
    # The paper's own figure for the change is max|Z| / n.
    assert np.linalg.norm(second - first) > 40 * 0.01


def test_fedpower_with_single_steps_and_many_columns_is_refuted() -> None:
    """[Guo2024] Theorem 4 with p=1 and Z a Hadamard matrix: r=16 columns change, not one."""
    d = 16
    value = NoisyFedPower(1.0, 1e-5, iterations=1, rank=d, clip=1.0)
    start = hadamard(d) / 4.0
    first, second, sd = power_pair(value, start, steps=0)
    claimed, delta = value.claim
    changed = np.flatnonzero(np.abs(second - first).max(axis=1) > 1e-12)
    np.testing.assert_array_equal(changed, [0])
    theory = value.truth([100], d, k=4, center=False).true_epsilon
    rng = np.random.default_rng(5)

    def mechanism(which: int, count: int) -> Array:
        """The row that changes; the noise of the others is independent of it."""
        row: Array = (first, second)[which][0]
        return row + sd * rng.standard_normal((count, d))

    found = audit_epsilon(
        mechanism,
        delta,
        trials=1_500_000,
        score=likelihood_ratio(first[0], second[0], sd),
        claimed=claimed,
        theory=theory,
    )
    assert theory == pytest.approx(3.37, abs=0.01)
    assert found.refutes
    assert claimed < found.certified < theory


def mirrored_data(matrix: Array, noise: Array) -> Array:
    """The code of [Grammenos2020]: the data's triangle is mirrored and not the noise's."""
    released = matrix + np.triu(noise)
    return released + np.triu(matrix, 1).swapaxes(-1, -2)


def mirrored_noise(matrix: Array, noise: Array) -> Array:
    upper = np.triu(noise)
    return matrix + upper + np.triu(noise, 1).swapaxes(-1, -2)


def mod_sulq(publish: Callable[[Array, Array], Array]) -> Audit:
    """Audit the strictly lower triangle, where rows (1, 1) and (1, -1) over sqrt(2) differ."""
    value, n, d = ModSuLQ(1.0, 1e-5, clip=1.0), 50, 2
    pair = [np.outer(row, row) / (2 * n) for row in np.array([[1.0, 1.0], [1.0, -1.0]])]
    bits = np.random.default_rng(6).bytes
    sd = value.noise_sd(n, d)

    def lower(which: int, count: int) -> Array:
        released = publish(pair[which], draw_normal((count, d, d), sd, bits))
        entries: Array = released[:, 1, 0]
        return -entries

    return audit_epsilon(lower, 1e-5, trials=20_000, claimed=1.0)


def test_mod_sulq_mirrors_its_noise_where_the_published_code_mirrors_the_data() -> None:
    assert mod_sulq(mirrored_data).certified > 7.0
    assert not mod_sulq(mirrored_noise).refutes


def test_no_entry_of_what_we_release_as_published_is_without_noise() -> None:
    X = np.random.default_rng(7).standard_normal((40, 5))
    value = DPdisPCA(1.0, 1e-5, release="covariance", clip=1.0)
    replies = [second_moment(X, value) for _ in range(2)]
    assert np.all(replies[0] != replies[1])
    assert len(replies[0]) == 15


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0])
def test_a_claim_is_false_where_its_own_noise_gives_more_delta(epsilon: float) -> None:
    """The closed form beside the audits: DPdisPCA's delta at its claimed epsilon."""
    value, n = DPdisPCA(epsilon, 1e-5, release="covariance", clip=1.0), 1000
    first, second = dpdispca_pair(n)
    mu = float(np.linalg.norm(second - first)) / value.noise_sd(n, 2)
    assert delta_of(epsilon, mu) > 1.2e-5
