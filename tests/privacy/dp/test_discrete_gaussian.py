"""Discrete Gaussian noise: its distribution, exactly, and what it is as private as."""

import inspect
import math
import secrets
from collections.abc import Callable

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
from dp_accounting.pld import privacy_loss_mechanism
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from eigenfed.errors import InputError
from eigenfed.privacy.dp import discrete_gaussian as gaussian
from eigenfed.privacy.dp.accounting import delta_of
from eigenfed.privacy.dp.discrete_gaussian import continuous_sd, discrete_gaussian, discrete_sd

Bits = Callable[[int], bytes]


def seeded(seed: int) -> Bits:
    return np.random.default_rng(seed).bytes


def scripted(*chunks: bytes) -> Bits:
    """Give these bytes, in order."""
    left = list(chunks)

    def bits(size: int) -> bytes:
        chunk = left.pop(0)
        assert len(chunk) == size
        return chunk

    return bits


def within(sd: float, edges: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """P(z <= edge) of the exact distribution, by adding up its terms."""
    reach = math.ceil(12 * sd)
    z = np.arange(-reach, reach + 1)
    mass = np.exp(-((z / sd) ** 2) / 2)
    cumulated: npt.NDArray[np.float64] = np.cumsum(mass) / mass.sum()
    return cumulated[np.clip(edges + reach, 0, 2 * reach)]


def p_value(drawn: npt.NDArray[np.int64], sd: float, bins: int = 24) -> float:
    """Chi-square of draws against the exact distribution, on bins of about equal size."""
    edges = np.unique(np.rint(sd * stats.norm.ppf(np.arange(1, bins) / bins))).astype(np.int64)
    cumulated = np.concatenate([[0.0], within(sd, edges), [1.0]])
    counts = np.bincount(np.searchsorted(edges, drawn, side="left"), minlength=len(edges) + 1)
    return float(stats.chisquare(counts, np.diff(cumulated) * len(drawn)).pvalue)


@pytest.mark.parametrize("sd", [8.0, 8.7, 33.3, 1000.1, 4096.0, 4097.0, 8191.9, 70000.5])
def test_draws_follow_the_exact_distribution(sd: float) -> None:
    drawn = discrete_gaussian(sd, 400_000, seeded(int(sd)))
    assert p_value(drawn, sd) > 1e-3


def test_the_test_of_the_distribution_sees_a_deviation_that_is_off_by_one_percent() -> None:
    assert p_value(discrete_gaussian(33.3 * 1.01, 400_000, seeded(1)), 33.3) < 1e-3


@pytest.mark.parametrize(
    ("sd", "step"),
    [
        *((8.0, step) for step in (2, 3, 5)),
        *((sd, step) for sd in (5000.0, 2.0**20, 3.1e9) for step in (2, 3, 64, 1000, 1024)),
    ],
)
def test_no_residue_is_preferred(sd: float, step: int) -> None:
    """Large deviations add a coarse and a fine part; no seam may show."""
    drawn = discrete_gaussian(sd, 300_000, seeded(step))
    counts = np.bincount(drawn % step, minlength=step)
    assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("power", range(3, 41))
def test_every_deviation_has_its_moments(power: int) -> None:
    sd, count = 1.37 * 2.0**power, 50_000
    drawn = discrete_gaussian(sd, count, seeded(power)) / sd
    error = 4.5 / math.sqrt(count)
    assert abs(drawn.mean()) < error
    assert abs(drawn.var() - 1) < error * math.sqrt(2)
    assert abs((drawn**4).mean() - 3) < error * math.sqrt(96)
    assert abs(drawn).max() > 3.5
    if power >= 10:
        assert stats.kstest(drawn, "norm").pvalue > 1e-3


@pytest.mark.parametrize("sd", [8.0, 9.3, 77.7])
def test_the_table_is_exact_to_a_hundred_bits(sd: float) -> None:
    """Against sums of exponentials in sixty digits, computed in another way."""
    upper, lower = gaussian._build_table(sd)
    with mpmath.workdps(60):
        s = mpmath.mpf(sd)
        mass = [mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * s**2)) for k in range(math.ceil(20 * sd))]
        whole = 2 * mpmath.fsum(mass) - 1
        worst, total = mpmath.mpf(0), -mass[0]
        for k, (high, low) in enumerate(zip(upper.tolist(), lower.tolist(), strict=True)):
            total += 2 * mass[k] if k else 2 * mass[0]
            held = mpmath.mpf((high << 64) + low) / mpmath.mpf(2) ** 128
            worst = max(worst, abs(held - total / whole))
        assert worst < mpmath.mpf(2) ** -120
        assert len(upper) == math.ceil(14 * sd)


@pytest.mark.parametrize("sd", [4097.0, 8191.9, 65536.0, 3.3e5, 2.0**30, 2.0**55])
def test_parts_of_a_large_deviation_add_up_to_it_and_overlap_enough(
    sd: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    real = gaussian._draw

    def noted(part: float, count: int, bits: Bits) -> npt.NDArray[np.int64]:
        asked.append(part)
        return real(part, count, bits)

    monkeypatch.setattr(gaussian, "_draw", noted)
    real(sd, 1, seeded(0))
    fine, coarse = asked[:2]
    step = round(fine / 3)
    assert fine == 3 * step
    assert math.hypot(fine, step * coarse) == pytest.approx(sd, rel=1e-13)
    assert coarse >= 60
    # The variance of the coarse part, given the sum: Poisson's formula is flat to 1e-70 there.
    spread = 1 / (step**2 / fine**2 + 1 / coarse**2)
    assert 2.1 * math.exp(-2 * math.pi**2 * spread) < 1e-76


def test_a_tie_in_the_first_64_bits_is_broken_by_the_next_64() -> None:
    upper, lower = gaussian._build_table(8.0)
    k = 5
    tied, sign = int(upper[k]).to_bytes(8, "little"), b"\x00"
    below = (int(lower[k]) - 1).to_bytes(8, "little")
    beyond = int(lower[k]).to_bytes(8, "little")
    assert discrete_gaussian(8.0, 1, scripted(tied, below, sign)).tolist() == [k]
    assert discrete_gaussian(8.0, 1, scripted(tied, beyond, sign)).tolist() == [k + 1]


def test_the_ends_of_the_table_are_reached() -> None:
    upper, _ = gaussian._build_table(8.0)
    nothing, everything = b"\x00" * 8, b"\xff" * 8
    assert discrete_gaussian(8.0, 1, scripted(nothing, b"\x00")).tolist() == [0]
    last = discrete_gaussian(8.0, 1, scripted(everything, b"\xff" * 8, b"\x80")).tolist()
    assert last == [-len(upper)]


def test_signs_are_fair_and_zero_has_its_own_share() -> None:
    drawn = discrete_gaussian(8.0, 400_000, seeded(3))
    positive, negative = int((drawn > 0).sum()), int((drawn < 0).sum())
    assert stats.binomtest(positive, positive + negative).pvalue > 1e-3
    zero = 1 / (8.0 * math.sqrt(2 * math.pi))
    assert stats.binomtest(int((drawn == 0).sum()), 400_000, zero).pvalue > 1e-3


def test_noise_comes_from_the_system_and_is_never_the_same() -> None:
    assert inspect.signature(discrete_gaussian).parameters["bits"].default is secrets.token_bytes
    assert not np.array_equal(discrete_gaussian(100.0, 50), discrete_gaussian(100.0, 50))


@pytest.mark.parametrize("size", [0, 1, 7, (2, 3), (4, 0)])
def test_noise_has_the_shape_asked_for(size: int | tuple[int, ...]) -> None:
    drawn = discrete_gaussian(10.0, size)
    assert drawn.shape == (size if isinstance(size, tuple) else (size,))
    assert drawn.dtype == np.int64


@pytest.mark.parametrize("sd", [0.0, 7.99, -10.0, math.nan, math.inf, 2.0**56])
def test_a_deviation_out_of_range_is_refused(sd: float) -> None:
    with pytest.raises(InputError, match="sd="):
        discrete_gaussian(sd, 3)


# What it is as private as -----------------------------------------------------------------------


@pytest.mark.parametrize("shift", [1, 2, 5, 13])
@pytest.mark.parametrize("sd", [8.0, 9.5, 20.0, 50.0])
def test_accounting_is_an_upper_bound_on_the_exact_delta_and_a_close_one(
    sd: float, shift: int
) -> None:
    exact = privacy_loss_mechanism.DiscreteGaussianPrivacyLoss(sd, sensitivity=shift)
    mu = shift / continuous_sd(sd)
    for epsilon in np.linspace(0.0, 5 * mu, 15):
        delta = float(exact.get_delta_for_epsilon(epsilon))
        assert delta <= delta_of(float(epsilon), mu) * (1 + 1e-9)
    widest = float(exact.get_delta_for_epsilon(mu))
    assert widest >= 0.8 * delta_of(mu, shift / sd)
    assert delta_of(mu, mu) < 1.5 * widest


def test_without_the_extra_variance_the_bound_would_fail() -> None:
    """Somewhere between whole numbers the discrete mechanism is worse than the continuous one."""
    sd, shift = 8.0, 1
    exact = privacy_loss_mechanism.DiscreteGaussianPrivacyLoss(sd, sensitivity=shift)
    grid = np.linspace(0.0, 0.4, 200)
    excess = [exact.get_delta_for_epsilon(e) - delta_of(float(e), shift / sd) for e in grid]
    assert max(excess) > 0.0


def test_rounding_a_continuous_gaussian_at_random_gives_the_discrete_one() -> None:
    """The proof's step: P(z) integrated over y equals the discrete Gaussian about any centre."""
    sd, spread = 8.0, continuous_sd(8.0)
    for offset in (0, 3):
        z = np.arange(-60, 61) + offset
        y = np.linspace(offset - 90, offset + 90, 18_001)
        density = stats.norm.pdf(y, offset, spread)
        whole = np.arange(-200, 201)
        weights = np.exp(-((whole[:, None] - y) ** 2) / 8)
        rounded = np.exp(-((z[:, None] - y) ** 2) / 8) / weights.sum(axis=0)
        found = np.trapezoid(rounded * density, y, axis=1)
        mass = np.exp(-((np.arange(-200, 201)) ** 2) / (2 * sd**2))
        expected = np.exp(-((z - offset) ** 2) / (2 * sd**2)) / mass.sum()
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-15)


@given(sd=st.floats(7.75, 1e12))
def test_whole_and_effective_are_inverse(sd: float) -> None:
    assert discrete_sd(sd) >= sd
    assert continuous_sd(discrete_sd(sd)) == pytest.approx(sd, rel=1e-12)


def test_too_little_noise_has_no_accounting() -> None:
    with pytest.raises(InputError, match="at least 8"):
        continuous_sd(7.0)
    with pytest.raises(InputError, match="at least 8"):
        continuous_sd(math.nan)


@pytest.mark.parametrize("parties", [2, 3, 10])
def test_a_sum_of_parts_is_distributed_as_the_whole(parties: int) -> None:
    """By convolution of the whole distributions, not of draws."""
    part = 8.0
    whole = part * math.sqrt(parties)
    reach = 800
    z = np.arange(-reach, reach + 1)
    one = np.exp(-((z / part) ** 2) / 2)
    one /= one.sum()
    power = np.fft.fft(np.fft.ifftshift(one)) ** parties
    summed = np.fft.fftshift(np.fft.ifft(power)).real
    expected = np.exp(-((z / whole) ** 2) / 2)
    expected /= expected.sum()
    likely = expected > 1e-5
    np.testing.assert_allclose(summed[likely], expected[likely], rtol=1e-10)
    assert np.abs(summed - expected).sum() < 1e-12
