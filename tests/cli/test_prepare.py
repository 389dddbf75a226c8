"""Preparation on the command line: fit, project, plan, a study file, and the report."""

import json
import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from scipy import sparse

from command_line import answer, as_csv, eigenfed
from eigenfed import FederatedPCA
from eigenfed.arrays import Array
from eigenfed.errors import DataError
from eigenfed.study.config import read_study
from eigenfed.study.results.result_folder import read_result
from table_files import write_h5ad

NAMES = tuple(f"gene{i}" for i in range(30))
STEPS = ["normalize:1000", "select:12", "log1p", "standardize:3"]
FLAGS = [word for step in STEPS for word in ("--prepare", step)]


def counts() -> Array:
    rng = np.random.default_rng(0)
    return rng.poisson(rng.gamma(0.6, 4.0, 30) * rng.gamma(2.0, 0.5, (90, 1))).astype(np.float64)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of three sites, and a result."""
    folder = tmp_path_factory.mktemp("prepare")
    for name, part in zip("abc", np.array_split(counts(), 3), strict=True):
        as_csv(folder / f"{name}.csv", part, NAMES)
    files = [folder / f"{name}.csv" for name in "abc"]
    run = eigenfed("fit", *files, "-k", 2, *FLAGS, "-o", folder / "result")
    assert run.exit_code == 0, run.stderr
    assert "prepared     normalize:1000, select:12, log1p, standardize:3; 12 of 30 " in run.stdout
    return folder


def test_a_result_prepares_new_records_alike(home: Path) -> None:
    pca = FederatedPCA(2, prepare=STEPS).fit(counts())
    kept = read_result(home / "result")
    restored = kept.estimator()
    np.testing.assert_array_equal(restored.selected_features_, pca.selected_features_)
    np.testing.assert_allclose(np.abs(restored.components_), np.abs(pca.components_), atol=1e-9)
    new = answer("project", home / "result", home / "b.csv")["scores"]
    np.testing.assert_allclose(new, restored.transform_aligned(counts()[30:60]), atol=1e-12)
    np.testing.assert_allclose(np.load(home / "result/scores/b.npy"), new, atol=1e-12)
    names = (home / "result/features.txt").read_text().split()
    assert pca.selected_features_ is not None
    assert names == [NAMES[place] for place in pca.selected_features_]
    lines = (home / "result/loadings.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines[1:]] == names


def test_the_report_shows_the_steps_and_how_to_repeat_them(home: Path) -> None:
    page = (home / "result/report.html").read_text()
    assert "How the rows were prepared" in page
    assert "12 of 30 features were selected" in page
    assert "keeps the 12 features that vary most" in page
    assert "prepare=[&#39;normalize:1000&#39;, &#39;select:12&#39;" in page
    facts = json.loads((home / "result/result.json").read_text())
    assert facts["prepare"] == {"steps": STEPS, "features": 30}
    assert facts["d"] == 12
    command = facts["command"]
    assert [command[i + 1] for i, word in enumerate(command) if word == "--prepare"] == STEPS


@pytest.mark.parametrize(
    ("part", "content"),
    [
        ("selected.npy", np.arange(12) + 25),
        ("selected.npy", np.arange(12.0)),
        ("spread.npy", np.zeros(12)),
        ("center.npy", np.zeros(11)),
        ("inputs.txt", None),
    ],
)
def test_a_damaged_preparation_is_refused(
    home: Path, tmp_path: Path, part: str, content: Array | None
) -> None:
    folder = tmp_path / "result"
    folder.mkdir()
    for path in (home / "result").iterdir():
        if path.is_file():
            (folder / path.name).write_bytes(path.read_bytes())
    if content is None:
        (folder / part).unlink()
    else:
        np.save(folder / part, content)
    with pytest.raises(DataError, match="is missing or cannot be read"):
        read_result(folder)


def test_annotated_files_get_loadings_of_the_selected_features(home: Path, tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.h5ad" for name in "abc"]
    for file, part in zip(files, np.array_split(counts(), 3), strict=True):
        write_h5ad(file, sparse.csr_array(part), NAMES)
    answer("fit", *files, "-k", 2, *FLAGS, "--write-back")
    kept = read_result(home / "result")
    with h5py.File(files[1]) as written:
        loadings, scores = written["varm/PCs"][:], written["obsm/X_pca"][:]
        assert written["uns/pca/params/prepare"].asstr()[()] == " ".join(STEPS)
    selected = kept.preparation.selected
    np.testing.assert_array_equal(np.flatnonzero(np.abs(loadings).sum(axis=1)), selected)
    np.testing.assert_allclose(loadings[selected], kept.components.T, atol=1e-9)
    np.testing.assert_allclose(scores, np.load(home / "result/scores/b.npy"), atol=1e-9)


def test_a_plan_counts_the_rounds_of_the_preparation(home: Path) -> None:
    rows = {"rows": "a=30,b=30,c=30"}
    plan = answer("plan", "--rows", rows["rows"], "--features", 30, "-k", 2, *FLAGS)
    fitted = FederatedPCA(2, prepare=STEPS).fit_sites(
        {name: home / f"{name}.csv" for name in "abc"}
    )
    assert plan["rounds"] == [fitted.n_rounds_, fitted.n_rounds_] == [6, 6]
    assert (plan["d"], plan["features"], plan["prepare"]) == (12, 30, STEPS)
    traffic = plan["cases"][0]["traffic"]
    assert traffic["all_bytes"] == pytest.approx(fitted.bytes_up_ + fitted.bytes_down_, rel=0.02)
    wide = answer("plan", "--rows", "900,900", "--features", 20000, "-k", 2, *FLAGS)
    # Sums and sums of squares of 20000 features, and then of 12 only.
    assert wide["cases"][0]["traffic"]["up"] == pytest.approx(8 * 3 * 20000, rel=0.05)


def write_study(folder: Path, **more: Any) -> Path:
    lines = ['name = "cells"', 'sites = ["a", "b", "c"]', "components = 2"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in more.items()]
    path = folder / "study.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_study_file_has_steps(home: Path, tmp_path: Path) -> None:
    study = write_study(tmp_path, prepare=STEPS)
    plain = read_study(write_study(tmp_path / ".." / tmp_path.name)).study.digest
    write_study(tmp_path, prepare=STEPS)
    assert read_study(study).study.digest != plain
    for name in "abc":
        text = f'name = "{name}"\ndata = "{home / name}.csv"\n[policy]\nmin_rows = 5\n'
        (tmp_path / f"{name}.toml").write_text(text)
    sites = [tmp_path / f"{name}.toml" for name in "abc"]
    # The coordinator chooses where standardize clips, so that a site has to list it.
    run = eigenfed("fit", "--study", study, *sites)
    assert run.exit_code == 3
    assert "standardize must be listed" in run.stderr
    for site in sites:
        site.write_text(site.read_text() + f"steps = {[step.split(':')[0] for step in STEPS]}\n")
    found = answer("fit", "--study", study, *sites)
    kept = json.loads((home / "result/result.json").read_text())
    np.testing.assert_allclose(found["eigenvalues"], kept["eigenvalues"], rtol=1e-12)
    text = re.sub("steps = .*", 'steps = ["log1p", "normalize"]', (tmp_path / "b.toml").read_text())
    (tmp_path / "b.toml").write_text(text)
    run = eigenfed("fit", "--study", study, *sites)
    assert run.exit_code == 3
    assert "does not allow a step of the study's preparation" in run.stderr


@pytest.mark.parametrize(
    ("keys", "match"),
    [
        ({"prepare": "log1p"}, 'prepare = "log1p" must be a list of steps in quotes'),
        ({"prepare": [1]}, "must be a list of steps in quotes"),
        ({"prepare": ["log2"]}, 'prepare = "log2" must be the name of a step'),
        ({"prepare": ["standardize"], "scale": True}, "prepare cannot be combined with scale = t"),
        ({"prepare": ["standardize", "log1p"]}, "prepare has a step after 'standardize'"),
    ],
)
def test_a_study_file_with_other_steps_is_refused(
    tmp_path: Path, keys: dict[str, Any], match: str
) -> None:
    with pytest.raises(DataError, match=match):
        read_study(write_study(tmp_path, **keys))


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--prepare", "log2"], 2, "--prepare log2 must be the name of a step"),
        (["--prepare", "select:1"], 2, "-k 2 must be at most 1"),
        (["--prepare", "standardize", "--no-center"], 2, "combined with --no-center: 'standardiz"),
        (
            ["--prepare", "standardize", "--epsilon", "1", "--delta", "1e-6"],
            3,
            "--prepare cannot be combined with privacy: 'standardize' needs means and variances",
        ),
    ],
)
def test_options_that_cannot_be_combined_are_refused(
    home: Path, words: list[str], code: int, text: str
) -> None:
    run = eigenfed("fit", *(home / f"{name}.csv" for name in "abc"), "-k", 2, *words)
    assert run.exit_code == code
    assert text in run.stderr
