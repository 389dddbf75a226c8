"""``eigenfed report``, and the pages that fit and demo write."""

import json
from pathlib import Path

import pytest

from command_line import answer, as_npy, eigenfed, rows
from eigenfed.report.model import read_report
from reports import result, tables


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return as_npy(tmp_path, rows(), ("north", "south", "west"))


def test_it_writes_the_pages_again_and_says_where(tmp_path: Path) -> None:
    before = result(tmp_path / "r", tables()).shared.read_bytes()
    (tmp_path / "r/report.html").unlink()
    said = answer("report", tmp_path / "r")
    assert Path(said["report"]).read_bytes() == before
    assert set(said["sites"]) == {"north", "south", "west"}
    for path in (*said["sites"].values(), *said["exports"]):
        assert Path(path).exists()
    page = eigenfed("report", tmp_path / "r").stdout
    assert page.startswith(f"report       {tmp_path / 'r/report.html'}\n")
    assert f"only for north: {tmp_path / 'r/sites/north.html'}" in page


def test_a_folder_that_is_no_result_is_refused(tmp_path: Path) -> None:
    run = eigenfed("report", tmp_path)
    assert run.exit_code == 1
    assert "result.json is missing or cannot be read" in run.stderr
    assert list(tmp_path.iterdir()) == []
    result(tmp_path / "r", tables())
    (tmp_path / "r/run.jsonl").write_text("")
    run = eigenfed("report", tmp_path / "r")
    assert run.exit_code == 1
    assert "run.jsonl is missing or incomplete" in run.stderr


def test_fit_writes_the_page_and_shows_what_was_shared(files: list[Path], tmp_path: Path) -> None:
    run = eigenfed("fit", *files, "-k", 2, "-o", tmp_path / "out", "--share-scores", "south")
    assert run.exit_code == 0, run.stderr
    assert f"report       {tmp_path / 'out/report.html'}" in run.stdout
    assert list(read_report(tmp_path / "out").shown_scores) == ["south"]
    facts = json.loads((tmp_path / "out/result.json").read_text())
    assert facts["shown_scores"] == ["south"]
    again = eigenfed("fit", *files, "-k", 2, "-o", tmp_path / "out", "--force")
    assert again.exit_code == 0, again.stderr
    assert list(read_report(tmp_path / "out").shown_scores) == []


def test_scores_cannot_be_shared_in_vain(files: list[Path], tmp_path: Path) -> None:
    out = ["-o", tmp_path / "out"]
    private = ["--epsilon", 5, "--delta", 1e-4]
    for given, message in (
        ([*out, "--share-scores", "east"], "must be one of the sites: north, south, west"),
        ([*out, *private, "--share-scores", "north"], "cannot be combined with --epsilon"),
        (["--share-scores", "north"], "requires -o"),
    ):
        run = eigenfed("fit", *files, "-k", 2, *given)
        assert run.exit_code == 2
        assert message in run.stderr
        assert not (tmp_path / "out").exists()
