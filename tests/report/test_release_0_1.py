"""Result folders of release 0.1, as it wrote them: a private run with one site."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from command_line import eigenfed
from eigenfed.report.html import write_pages
from eigenfed.report.model import read_report
from eigenfed.report.repeat import write_command, write_python
from eigenfed.study.results.result_folder import read_result
from eigenfed.study.results.run_log import read_log


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    copy = shutil.copytree(Path(__file__).with_name("release_0_1"), tmp_path / "result")
    return Path(copy)


def test_keys_and_events_have_their_present_names(folder: Path) -> None:
    text = (folder / "result.json").read_text()
    assert '"clarity"' in text
    assert '"tolerate"' in text
    facts = read_result(folder).facts
    assert facts["signal"] == [0.9995758027542684, 0.9947001526069353]
    assert facts["asked"]["options"] == {}
    assert facts["asked"]["privacy"]["colluders"] == 0
    assert {"clarity", "tolerate"}.isdisjoint(facts.keys() | facts["asked"]["privacy"].keys())
    assert '"event": "ask"' in (folder / "run.jsonl").read_text()
    kinds = [event["event"] for event in read_log(folder)]
    assert kinds == ["start", *["request", "left"] * 8, "end"]


def test_the_report_is_written_and_the_run_can_be_repeated(folder: Path) -> None:
    page = write_pages(folder).shared.read_text()
    assert "Signal kept" in page
    facts = read_report(folder).facts
    assert write_command(facts) == (
        "eigenfed fit north.csv -k 2 --method covariance --epsilon 5 --delta 1e-05 --clip 20.0 "
        "--trust central -o result"
    )
    assert "Privacy(epsilon=5.0, delta=1e-05, clip=20.0, trust='central')" in write_python(facts)


def test_new_records_are_projected(folder: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "new.npy", np.ones((2, 3)))
    run = eigenfed("project", folder, tmp_path / "new.npy")
    assert run.exit_code == 0, run.stderr
    assert run.stdout.splitlines()[0] == "PC1,PC2"
