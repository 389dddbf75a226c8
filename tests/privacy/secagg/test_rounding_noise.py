"""Noise before rounding: a sum of rounded numbers tells of the sum, and not of its terms."""

import numpy as np
import pytest
from scipy import stats

from eigenfed.privacy.secagg.fixed_point import decode_fixed_point, encode_fixed_point, error
from eigenfed.privacy.secagg.rounding_noise import (
    LARGEST,
    STANDARD_DEVIATION,
    draw_rounding_noise,
)

KEYS = [bytes([number]) * 32 for number in range(4)]
STEP = 2.0**-60


def test_the_noise_is_normal_bounded_and_follows_from_its_key() -> None:
    noise = draw_rounding_noise(KEYS[0], 100_001)
    assert stats.kstest(noise / STANDARD_DEVIATION, "norm").pvalue > 1e-3
    assert np.abs(noise).max() <= LARGEST
    np.testing.assert_array_equal(draw_rounding_noise(KEYS[0], 100_001), noise)
    assert not np.array_equal(draw_rounding_noise(KEYS[1], 100_001), noise)
    assert len(draw_rounding_noise(KEYS[0], 0)) == 0


@pytest.mark.parametrize("parts", [(0.49, 0.49, 0.49, 0.49), (0.51, 0.51, 0.51, 0.43)])
def test_the_law_of_a_sum_depends_on_the_sum_alone(parts: tuple[float, ...]) -> None:
    """Without noise the first is 0 and the second 3, for sums of 1.96 steps."""
    sums = np.zeros(200_000, dtype=np.int64)
    for key, part in zip(KEYS, parts, strict=True):
        sums += encode_fixed_point(np.full(len(sums), part * STEP), 1.0, 4, key)
    sd = np.sqrt(len(parts) * (STANDARD_DEVIATION**2 + 1.0 / 12.0))
    values, counts = np.unique(sums, return_counts=True)
    expected = stats.norm.pdf(values, sum(parts), sd)
    keep = expected * len(sums) > 20
    scale = counts[keep].sum() / expected[keep].sum()
    assert stats.chisquare(counts[keep], expected[keep] * scale).pvalue > 1e-3


@pytest.mark.parametrize("parties", [3, 4, 17])
def test_sums_are_right_to_their_error_and_do_not_wrap_round(parties: int) -> None:
    rng = np.random.default_rng(0)
    parts = rng.uniform(-5.0, 5.0, (parties, 500))
    parts[:, :2] = 8.0, -8.0
    total = sum(
        encode_fixed_point(part, 8.0, parties, KEYS[0][:-1] + bytes([number]))
        for number, part in enumerate(parts)
    )
    assert np.abs(total).max() <= 2**62
    found = decode_fixed_point(np.asarray(total), 8.0, parties)
    rounding = 1e-15 * parties * 8.0
    assert np.abs(found - parts.sum(axis=0)).max() <= error(8.0, parties, noisy=True) + rounding
