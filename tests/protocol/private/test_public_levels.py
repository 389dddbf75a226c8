"""Public centres and scales, and missing entries: what people know without looking at rows."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command_line import eigenfed
from eigenfed import FederatedPCA, Privacy
from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.errors import InputError, NoiseWarning
from eigenfed.privacy.dp.sensitivity import RELATIONS
from eigenfed.privacy.ledger.ledger import Ledger
from eigenfed.protocol.messages import pack
from eigenfed.protocol.operations import Op, State, Terms
from eigenfed.protocol.study import Study
from eigenfed.study.planning.assumed_spectra import make_geometric_spectrum
from eigenfed.study.planning.noise_forecast import forecast_noise
from private_runs import COUNTING, REST, D, apart, asking, fitting

pytestmark = pytest.mark.usefixtures("seeded_noise")

FEATURES, ROWS = 30, 4000
LEVELS: Array = np.linspace(20.0, 150.0, FEATURES)
OFF: Array = LEVELS * np.where(np.arange(FEATURES) % 2, 1.1, 0.9)
"""Levels as somebody would guess them, each of them 10 % off."""


def measured() -> Array:
    """Rows at levels from 20 to 150, with a total variance of about 6000."""
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.standard_normal((FEATURES, FEATURES))).Q
    sizes = np.sqrt(3000.0 * 0.5 ** np.arange(FEATURES) + 1.0)
    rows: Array = (rng.standard_normal((ROWS, FEATURES)) * sizes) @ turn + LEVELS
    return rows


def first_cosine(fitted: FederatedPCA, rows: Array) -> float:
    exact = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False).Vh[0]
    return float((fitted.components_[0] @ exact) ** 2)


def test_a_rough_public_level_turns_noise_into_a_result() -> None:
    """At epsilon 0.1 the first squared cosine is below 0.3 without it, and about 0.97 with it."""
    rows = measured()
    lost = FederatedPCA(3, privacy=Privacy(0.1, 1e-5, trust="central"))
    found = FederatedPCA(3, privacy=Privacy(0.1, 1e-5, trust="central", public_center=OFF))
    kept = []
    for _ in range(3):
        with pytest.warns(NoiseWarning, match="mostly noise"):
            lost.fit(rows)
        assert first_cosine(lost, rows) < 0.3
        assert lost.signal_ is not None
        assert lost.signal_.max() < 0.5
        with warnings.catch_warnings():
            # The estimate is careful: it doubts about one of ten such results.
            warnings.simplefilter("ignore", NoiseWarning)
            found.fit(rows)
        assert first_cosine(found, rows) > 0.94
        assert found.signal_ is not None
        kept.append(found.signal_[0])
    assert np.median(kept) > 0.9
    assert found.privacy_ is not None
    assert lost.privacy_ is not None
    listed = f"Public centre of the features, not taken from the rows: {OFF[0]:g}, {OFF[1]:g}"
    assert listed in found.privacy_.text
    assert "Public centre" not in lost.privacy_.text


def test_a_plan_reckons_with_the_search_for_the_mean() -> None:
    rows = {"a": 1400, "b": 1300, "c": 1300}
    spectrum = make_geometric_spectrum(0.5, FEATURES, FEATURES)

    def signal(offset: float | None, **terms: Any) -> float:
        study = Study(tuple(rows), 3, "covariance", privacy=Privacy(0.1, 1e-5, **terms))
        found = forecast_noise(study, rows, spectrum, offset=offset).signal
        assert found is not None
        return found

    assert signal(6.6) < 0.3
    assert signal(None) < 0.5
    assert signal(0.0) > 0.9
    assert signal(None, public_center=100.0) > 0.9
    usual = ("--rows", "1400,1300,1300", "--features", 30, "-k", 3, "--epsilon", 0.1)
    told = eigenfed("plan", *usual, "--delta", "1e-5", "--decay", 0.5).stdout
    assert "Do not use differential privacy here" in told
    assert "the first component would be mostly" in " ".join(told.split())


def test_the_command_says_first_that_a_result_is_noise_and_has_a_code_of_its_own(
    tmp_path: Path,
) -> None:
    files = []
    for name, part in zip("abc", np.array_split(measured(), 3), strict=True):
        np.save(tmp_path / f"{name}.npy", part)
        files.append(tmp_path / f"{name}.npy")
    private = ("--delta", "1e-5", "--trust", "central")
    lost = eigenfed("fit", *files, "-k", 3, "--epsilon", 0.1, *private, "-o", tmp_path / "lost")
    assert lost.exit_code == 4
    assert lost.stdout.startswith("The result is mostly noise: no component keeps half")
    page = (tmp_path / "lost/report.html").read_text()
    assert "Signal kept" in page
    assert "The result is mostly noise" in page
    levels = ",".join(map(str, OFF))
    # With 0.1, one result in thirty is not told from noise, although it is near the truth.
    found = eigenfed("fit", *files, "-k", 3, "--epsilon", 0.15, *private, "--public-center", levels)
    assert found.exit_code == 0, found.stdout
    assert "Public centre of the features, not taken from the rows: 18, " in found.stdout


def test_public_numbers_are_part_of_the_study_and_of_the_result() -> None:
    rows = measured()
    scales = np.full(FEATURES, 10.0)
    plain = Privacy(8.0, 1e-5, trust="central", public_center=OFF)
    scaled = Privacy(8.0, 1e-5, trust="central", public_center=OFF, public_scale=scales)
    assert len({Study(("a",), 2, privacy=privacy).digest for privacy in (plain, scaled)}) == 2
    assert Study.from_bytes(Study(("a",), 2, privacy=scaled).to_bytes()).privacy == scaled
    one, other = (FederatedPCA(2, privacy=privacy).fit(rows) for privacy in (plain, scaled))
    np.testing.assert_allclose(one.mean_, rows.mean(axis=0), atol=3.0)
    np.testing.assert_allclose(other.mean_, rows.mean(axis=0), atol=3.0)
    np.testing.assert_array_equal(other.scale_, scales)
    np.testing.assert_allclose(other.explained_variance_, one.explained_variance_ / 100.0, rtol=0.2)
    np.testing.assert_allclose(
        other.transform(rows[:5]), (rows[:5] - other.mean_) / 10.0 @ other.components_.T
    )


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"public_center": [1.0, np.nan]}, "public_center must be a finite number"),
        ({"public_center": "high"}, "public_center must be a finite number"),
        ({"public_center": []}, "public_center must be a finite number"),
        ({"public_scale": 0.0}, "public_scale must be a finite number above 0"),
        ({"public_scale": [1.0, -2.0]}, "public_scale must be a finite number above 0"),
        ({"if_missing": "zero"}, "if_missing='zero' must be one of"),
        ({"if_missing": "public"}, "if_missing='public' requires public_center"),
        ({"if_missing": "drop"}, "if_missing='drop' requires count='private'"),
    ],
)
def test_what_is_no_public_number_or_choice_is_refused(terms: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Privacy(1.0, 1e-5, **terms)


def test_numbers_for_other_features_are_refused_before_anything_is_spent() -> None:
    ledger = Ledger(None)
    privacy = Privacy(1.0, 1e-5, trust="local", public_center=(1.0, 2.0))
    study = Study(("a",), 2, "covariance", privacy=privacy)
    it = asking(study, Source.of(REST), ledger=ledger)
    assert it.opened().label == "public"
    assert ledger.totals("data").spends == 0
    with pytest.raises(InputError, match="public_center has 2 numbers and must have one for each"):
        FederatedPCA(2, privacy=privacy).fit(REST)


# Missing entries --------------------------------------------------------------------------------

LEVEL = (0.5, -1.0, 2.0)
CHOICES: dict[str, dict[str, Any]] = {
    "mean": {"public_center": LEVEL, "public_scale": 2.0},
    "public": {"if_missing": "public", "public_center": LEVEL, "public_scale": (1.0, 2.0, 3.0)},
    "drop": {"if_missing": "drop", "count": "private", "public_center": LEVEL},
}


def terms_with(relation: str, **terms: Any) -> Terms:
    privacy = Privacy(1.0, 1e-5, relation=relation, trust="local", **terms)
    return Terms(Study(("a",), 2, "covariance", privacy=privacy), len(REST) + 1, D)


def random_row(rng: np.random.Generator) -> Array:
    row: Array = rng.standard_normal(D) * np.exp(2 * rng.standard_normal())
    row[rng.random(D) < 0.3] = np.nan
    return row


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("op", COUNTING, ids=lambda op: str(op.name))
def test_neighbours_with_gaps_move_no_sum_further_than_stated(
    op: Op[Any, Any], choice: str
) -> None:
    """Entries come and go: rows become complete, or lose some or all of their entries."""
    rng = np.random.default_rng(7)
    for relation in RELATIONS:
        terms, request = terms_with(relation, **CHOICES[choice]), fitting(op)
        noise = request.noise(terms, State())
        assert noise is not None
        for _ in range(25):
            row, other = random_row(rng), random_row(rng)
            tables = [np.vstack([REST, row]), np.vstack([REST, other])]
            if relation == "zero_out":
                tables[1] = REST
            replies = [
                pack(op.run(Source.of(table), request, State(), terms).reply) for table in tables
            ]
            assert apart(replies[0], replies[1], noise) <= 1.0


@pytest.mark.parametrize("op", COUNTING, ids=lambda op: str(op.name))
def test_missing_entries_are_what_the_study_says(op: Op[Any, Any]) -> None:
    gaps = REST.copy()
    gaps[np.random.default_rng(4).random(REST.shape) < 0.2] = np.nan
    request = fitting(op)

    def reply(table: Array, choice: str) -> Any:
        terms = terms_with("replace_one", **CHOICES[choice])
        return pack(op.run(Source.of(table), request, State(), terms).reply)

    filled = np.where(np.isnan(gaps), LEVEL, gaps)
    complete = gaps[~np.isnan(gaps).any(axis=1)]
    assert 0 < len(complete) < len(gaps)
    for choice, same in (("public", filled), ("drop", complete)):
        found, wanted = reply(gaps, choice), reply(same, choice)
        assert found.keys() == wanted.keys()
        for name, values in wanted.items():
            np.testing.assert_array_equal(found[name], values)


@pytest.mark.parametrize("choice", ["mean", "public", "drop"])
def test_a_private_fit_takes_rows_with_gaps(choice: str) -> None:
    rows = measured()
    exact = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False).Vh[0]
    rows[np.random.default_rng(2).random(rows.shape) < 0.002] = np.nan
    terms: dict[str, Any] = {"if_missing": choice, "public_center": OFF}
    terms |= {"count": "private"} if choice == "drop" else {}
    fitted = FederatedPCA(2, privacy=Privacy(2.0, 1e-5, trust="central", **terms)).fit(rows)
    assert float((fitted.components_[0] @ exact) ** 2) > 0.98
    assert fitted.privacy_ is not None
    words = {"mean": "private mean", "public": "public centre", "drop": "left out of every sum."}
    assert words[choice] in fitted.privacy_.text
    if choice == "drop":
        assert abs(fitted.n_samples_ - (~np.isnan(rows).any(axis=1)).sum()) < 400
