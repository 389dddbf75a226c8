"""Noise as the papers print it: its law, its source, and the triangle that must not be bare."""

import secrets

import numpy as np
import pytest
from scipy import stats

from eigenfed.protocol.published.continuous_noise import derive_bits, draw_normal, draw_symmetric


def test_the_noise_is_normal_with_the_standard_deviation_asked_for() -> None:
    bits = np.random.default_rng(0).bytes
    drawn = draw_normal((200, 250), 3.0, bits)
    assert drawn.shape == (200, 250)
    assert stats.kstest(drawn.ravel() / 3.0, "norm").pvalue > 0.01
    assert drawn.std() == pytest.approx(3.0, rel=0.02)


def test_no_bits_make_an_infinite_number() -> None:
    ends = [
        draw_normal((1,), 1.0, lambda size: b"\x00" * size),
        draw_normal((1,), 1.0, lambda size: b"\xff" * size),
    ]
    assert np.isfinite(ends).all()
    assert ends[0][0] == pytest.approx(-ends[1][0])
    assert 8.0 < ends[1][0] < 8.4


def test_noise_comes_from_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counted(size: int) -> bytes:
        asked.append(size)
        return bytes(size)

    monkeypatch.setattr(secrets, "token_bytes", counted)
    draw_normal((3, 4), 1.0)
    draw_symmetric(4, 1.0)
    assert asked == [8 * 12, 8 * 10]


def test_a_seed_for_numpy_changes_nothing() -> None:
    np.random.seed(0)  # noqa: NPY002
    first = draw_normal((4,), 1.0)
    np.random.seed(0)  # noqa: NPY002
    assert (draw_normal((4,), 1.0) != first).all()


def test_symmetric_noise_is_everywhere_and_mirrored() -> None:
    noise = draw_symmetric(60, 2.0, np.random.default_rng(1).bytes)
    np.testing.assert_array_equal(noise, noise.T)
    lower, diagonal = noise[np.tril_indices(60, -1)], noise.diagonal()
    assert (lower != 0).all()
    assert lower.std() == pytest.approx(2.0, rel=0.06)
    assert diagonal.std() == pytest.approx(2.0, rel=0.3)
    upper = noise[np.triu_indices(60)]
    assert len(np.unique(upper)) == len(upper)


def test_mirroring_the_data_instead_of_the_noise_would_release_the_data_bare() -> None:
    """What the published code of [Grammenos2020] does, beside what is done here."""
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((40, 5))
    moment = rows.T @ rows / 40
    drawn = rng.standard_normal((5, 5))
    theirs = moment + np.triu(drawn) + np.triu(moment, 1).T
    below = np.tril_indices(5, -1)
    np.testing.assert_allclose(theirs[below], 2 * moment[below], rtol=1e-12)
    ours = moment + draw_symmetric(5, 1.0, rng.bytes)
    np.testing.assert_allclose(ours, ours.T, rtol=1e-12)
    assert np.abs(ours[below] - moment[below]).min() > 1e-3


def test_a_key_gives_the_same_noise_again_and_another_key_does_not() -> None:
    first, again, other = (draw_normal((50,), 1.0, derive_bits(key)) for key in (b"a", b"a", b"b"))
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()
    stream = derive_bits(b"a")
    stream(8)
    assert (draw_normal((50,), 1.0, stream) != first).all()


def test_noise_from_a_key_is_normal() -> None:
    drawn = draw_normal((50_000,), 1.0, derive_bits(b"a fixed key"))
    assert stats.kstest(drawn, "norm").pvalue > 0.01
