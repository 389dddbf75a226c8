"""``eigenfed demo``: what it shows is computed, and what it writes is a result."""

from pathlib import Path

import numpy as np

from command_line import answer, eigenfed
from eigenfed.study.results.result_folder import read_result


def test_the_demo_writes_a_result_and_compares_it_with_the_pooled_one(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    said = answer("demo", "-o", out)
    found = said["methods"]
    assert set(found) == {"covariance", "krylov", "merge"}
    assert found["covariance"]["angle"] < 1e-10
    for method in found.values():
        assert method["angle"] <= method["angle_bound"]
    assert said["averaged_angle"] > 100 * found["merge"]["angle"]
    assert said["report"] == str(out / "report.html")
    page = (out / "report.html").read_text()
    assert "Differences between sites" in page
    assert "eigenfed demo --seed 11" in page
    assert "eigenfed fit" not in page
    result = read_result(out)
    assert result.components.shape == (4, 120)
    assert {path.stem for path in (out / "scores").iterdir()} == {"north", "south", "island"}
    variances = np.vstack([np.load(path) for path in (out / "scores").iterdir()]).var(axis=0)
    np.testing.assert_allclose(variances * 4050 / 4049, result.facts["eigenvalues"], rtol=1e-9)


def test_the_demo_says_where_the_result_is_and_keeps_what_is_there(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    run = eigenfed("demo", "-o", out, "--seed", 3)
    assert run.exit_code == 0
    assert f"result: {out}" in run.stdout
    assert "no row left a hospital" in run.stdout
    assert "Running krylov" in run.stderr
    again = eigenfed("demo", "-o", out)
    assert again.exit_code == 2
    assert "--force" in again.stderr
