"""Scree beyond the components, edge of noise, and turns in another sample."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eigenfed import Privacy
from eigenfed.linalg.sampling import bound_turns
from reports import result, tables


def facts_and_page(folder: Path, **settings: Any) -> tuple[dict[str, Any], str]:
    pages = result(folder, tables(d=20), k=3, **settings)
    facts: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return facts, pages.shared.read_text()


@pytest.mark.parametrize("method", ["covariance", "krylov", "power"])
def test_further_variances_are_those_of_all_rows_or_lower(tmp_path: Path, method: str) -> None:
    facts, page = facts_and_page(tmp_path / "r", method=method)
    pooled = np.vstack(list(tables(d=20).values()))
    wanted = np.linalg.eigvalsh(np.cov(pooled.T))[::-1][3:13][: len(facts["further"])]
    assert len(facts["further"]) >= 3
    assert facts["further_exact"] is (method == "covariance")
    assert np.all(facts["further"] <= wanted + 1e-12 * facts["total_variance"])
    np.testing.assert_allclose(facts["further"][:2], wanted[:2], rtol=1e-3)
    assert page.count("bar further") == len(facts["further"])
    assert ("lower bounds" in page) is (method != "covariance")


def test_components_above_noise_and_their_turns_are_told(tmp_path: Path) -> None:
    facts, page = facts_and_page(tmp_path / "r")
    edge = facts["noise_edge"]
    known = np.array([*facts["eigenvalues"], *facts["further"]])
    assert edge["above"] == np.count_nonzero(known > edge["variance"]) == 2
    assert edge["noise"] == pytest.approx(facts["total_variance"] / 20)
    assert "2 components stand above the edge of noise" in page
    assert "Of the 3 requested, 1 does not." in page
    assert "The features were not scaled" in page
    turns = facts["sampling_angles"]
    assert len(turns) == 3
    assert turns == sorted(turns)
    assert "The largest turn is about" in page
    assert 'id="turn-table"' in page
    intervals = facts["confidence_angles"]
    bounds = bound_turns(known, facts["total_variance"], facts["n"] - 1.0, 20)[:3]
    expected = np.minimum(bounds + facts["certificate"]["angles"], np.pi / 2)
    np.testing.assert_allclose(intervals, expected, rtol=1e-6)
    assert np.all(bounds >= np.arctan(1.959964 * np.tan(turns)) - 1e-9)
    assert f"0 to {np.degrees(intervals[0]):.3g}" in page


@pytest.mark.parametrize("second", [3.0, 2.9, 2.6, 2.0])
def test_the_interval_covers_the_angle_of_samples_as_often_as_it_says(second: float) -> None:
    rng, spread = np.random.default_rng(5), np.array([3.0, second, 1.0, 1.0, 1.0, 1.0])
    covered = []
    for _ in range(200):
        rows = rng.standard_normal((300, 6)) * spread
        values, vectors = np.linalg.eigh(np.cov(rows.T))
        turns = bound_turns(values[::-1][:2], float(values.sum()), 299.0, 6)
        angles = np.arccos(np.minimum(np.abs(vectors[[0, 1], [-1, -2]]), 1.0))
        covered.append(angles <= turns)
    assert (np.mean(covered, axis=0) >= 0.95).all()


def test_nothing_of_it_is_said_of_a_private_run(tmp_path: Path) -> None:
    settings = {"privacy": Privacy(5.0, 1e-3, clip=20.0), "scores": False}
    facts, page = facts_and_page(tmp_path / "r", **settings)
    assert facts["further"] == []
    assert facts["noise_edge"] is facts["sampling_angles"] is None
    assert "edge of noise" not in page
    assert "another sample" not in page.lower()


def test_noise_alone_is_called_noise(tmp_path: Path) -> None:
    rows = np.random.default_rng(2).standard_normal((200, 30))
    page = result(tmp_path / "r", {"a": rows[:90], "b": rows[90:]}, k=2, scale=True).shared
    text = page.read_text()
    assert "No component stands above the edge of noise" in text
    assert "Of the 2 requested, 2 do not." in text
    assert "none differs from noise" in text
    assert "2 components would not be found again." in text
    assert "The features were not scaled" not in text
