"""The scripts in examples/, one for each kind of user, run and show what they promise."""

import re
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def shown_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], str]:
    """Run an example as a program, in an empty folder, and return what it prints."""

    def run(name: str) -> str:
        monkeypatch.chdir(tmp_path)
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize(
    "name", ["data_scientist.py", "consortium.py", "three_sensors.py", "researcher.py"]
)
def test_examples_fit_on_a_screen_or_two(name: str) -> None:
    assert len((EXAMPLES / name).read_text(encoding="utf-8").splitlines()) < 80


def test_data_scientist_gets_the_same_with_either(shown_by: Callable[[str], str]) -> None:
    page = shown_by("data_scientist.py")
    assert float(re.findall(r"entries of the components: (\S+)", page)[0]) < 1e-12
    ours, pooled = re.findall(r"variance ratio, \w+: +(\[.*\])", page)
    assert ours == pooled
    right = [float(share) for share in re.findall(r"(0\.\d+) right", page)]
    assert right[0] == right[1]
    assert min(right) > 0.9


def test_researcher_sees_where_the_papers_part_from_the_pooled_rows(
    shown_by: Callable[[str], str],
) -> None:
    page = shown_by("researcher.py")
    angles = {
        name.strip(): float(angle)
        for name, angle in re.findall(r"^(.{46}).* (\S+) deg$", page, flags=re.MULTILINE)
    }
    assert len(angles) == 12
    assert angles["krylov"] < 1e-4
    assert angles["FedPower, four steps, as printed"] > 1.0
    assert angles["FedPower, four steps that fall to one"] < 1e-4
    assert angles["merge of directions alone, as printed"] > 45.0
    assert angles["merge with variances and means"] < 3.0
    assert min(angles[name] for name in angles if re.match("UDA|WDA|DR", name)) > 45.0
    assert angles["StreamingPCA"] < angles["Frequent Directions"] / 2
    claims = dict(re.findall(r"^(\w+) +(holds|does not hold) ", page, flags=re.MULTILINE))
    assert claims == {"SuLQ": "holds", "AnalyzeGauss": "holds", "DPdisPCA": "does not hold"}


def test_consortium_sees_what_sites_refuse_and_gets_a_report(
    tmp_path: Path, shown_by: Callable[[str], str]
) -> None:
    page = shown_by("consortium.py")
    parts = re.split(r"^(\w+\.toml): .*$", page, flags=re.MULTILINE)
    told = list(zip(parts[1::2], parts[2::2], strict=True))
    assert [name for name, _ in told] == [
        "open.toml",
        "secure.toml",
        "private.toml",
        "private.toml",
    ]
    assert "code 'unmasked'" in told[0][1]
    assert "refused" not in told[1][1] + told[2][1]
    assert "code 'budget'" in told[3][1]
    assert "epsilon=1 at delta=1e-06" in page
    (folder,) = tmp_path.iterdir()
    assert {path.parent.name for path in folder.rglob("report.html")} == {
        "secure-result",
        "private-result",
    }


def test_sensors_show_the_merged_components_beside_the_pooled_ones(
    shown_by: Callable[[str], str],
) -> None:
    page = shown_by("three_sensors.py")
    angles = dict(re.findall(r"^(\w+).* ([\d.]+) deg +[\d.]+%", page, flags=re.MULTILINE))
    assert float(angles["merged"]) < 0.2
    assert float(angles["IncrementalPCA"]) > 10 * float(angles["merged"])
    off = [float(x) for x in re.findall(r"off by ([\d.e-]+)", page)]
    assert len(off) == 5
    assert max(off) < 1e-3


def test_demo_shows_what_the_federated_pca_brought_and_cost(
    shown_by: Callable[[str], str],
) -> None:
    page = shown_by("three_hospitals.py")
    rows = re.findall(
        r"^(\w+) +(\d+) +(\d+) kB +([\d.e+-]+) deg +([\d.e+-]+) deg +([\d.]+) / ([\d.]+)$",
        page,
        flags=re.MULTILINE,
    )
    found = {row[0]: [float(x) for x in row[1:]] for row in rows}
    assert set(found) == {"covariance", "krylov", "merge"}
    for rounds, sent, angle, bound, rank, variance in found.values():
        assert rounds >= 2
        assert sent > 0
        assert angle <= bound + 1e-12  # the pooled PCA is rounded as well
        assert 0 < rank <= 1
        assert 0 < variance <= 1
    assert found["covariance"][2] < 1e-9
    assert found["krylov"][2] < 1e-4
    assert "averaging local PCAs" in page
