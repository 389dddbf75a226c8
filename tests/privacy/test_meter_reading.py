"""Readings from inner products against the meter, which merges replies into a basis."""

import numpy as np
import pytest

from eigenfed.arrays import Array
from eigenfed.privacy import leakage
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.meter_reading import read_answers
from eigenfed.privacy.revealed_products import RevealedProducts

D = 40


def draw_scatter(rng: np.random.Generator) -> Array:
    rows = rng.standard_normal((90, D)) * np.linspace(3.0, 0.5, D)
    scatter: Array = rows.T @ rows
    return scatter


def answer_about(scatter: Array, directions: Array, scale: Array, shift: Array) -> RevealedProducts:
    """Return what a site reveals about rows divided by a scale, and about another mean."""
    seen = (scatter + np.outer(shift, shift)) / np.outer(scale, scale)
    trace = float(scatter.trace())
    return RevealedProducts(directions, seen @ directions, trace, scale, shift / scale)


def orthonormal(rng: np.random.Generator, width: int) -> Array:
    return np.linalg.qr(rng.standard_normal((D, width)))[0]


@pytest.mark.parametrize("seed", range(5))
def test_well_separated_replies_and_their_repeats_are_read_as_the_meter_reads_them(
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    scatter, scale, shift = draw_scatter(rng), rng.uniform(0.5, 1.0, D), rng.standard_normal(D)
    frame = orthonormal(rng, 9)
    again = np.linalg.qr(frame @ rng.standard_normal((9, 3)))[0]
    blocks = [frame[:, :4], frame[:, 4:], again]
    answers = [answer_about(scatter, block, scale, shift * scale) for block in blocks]
    meter = Meter.empty(D)
    for answer in answers:
        meter = meter.answered(answer)
    reading = read_answers(answers)
    assert reading is not None
    assert reading.rank == meter.rank == 9
    assert 0.0 < reading.variance / scatter.trace() - meter.variance_fraction < 2e-8


def test_a_large_meter_is_read_without_a_basis(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    scatter = draw_scatter(rng)
    answers = [
        RevealedProducts(b, scatter @ b, float(scatter.trace())) for b in [orthonormal(rng, 5)]
    ]
    small, large = (Meter.empty(D).answered(answers[0]) for _ in range(2))
    monkeypatch.setattr(leakage, "_LARGE_BYTES", 0)
    assert large.rank_fraction == 5 / D
    assert "_settled" not in vars(large)
    settled = small.settled()
    assert 0.0 < large.variance_fraction - settled.variance_fraction < 2e-8
    assert large.settled().rank == 5


@pytest.mark.parametrize("away", [1e-3, 1e-9, 1e-12])
def test_directions_too_close_to_tell_apart_are_left_to_the_basis(away: float) -> None:
    rng = np.random.default_rng(0)
    scatter, frame = draw_scatter(rng), orthonormal(rng, 4)
    near = frame[:, :1] + away * frame[:, 3:]
    blocks = [frame[:, :3], near]
    trace = float(scatter.trace())
    assert read_answers([RevealedProducts(b, scatter @ b, trace) for b in blocks]) is None


def test_what_squares_cannot_hold_is_left_to_the_basis() -> None:
    rng = np.random.default_rng(0)
    scatter, frame = draw_scatter(rng), orthonormal(rng, 3)
    for factor in (1e-120, 1e120):
        vast = RevealedProducts(factor * frame, factor * (scatter @ frame), 1.0)
        assert read_answers([vast]) is None
    thin = np.diag([1.0, 1e-9] + [0.0] * (D - 2))
    unit = np.eye(D)[:, :2]
    assert read_answers([RevealedProducts(unit, thin @ unit, 1.0)]) is None
    some = RevealedProducts(unit, thin @ unit, 1.0, None, None, np.arange(D), 2 * D)
    assert read_answers([some]) is None
    twice = np.repeat(unit[:, :1], 2, axis=1)
    assert read_answers([RevealedProducts(twice, thin @ twice, 1.0)]) is None
