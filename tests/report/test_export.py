"""What programs get: the page's numbers, and nothing of single rows."""

import json
from pathlib import Path

import numpy as np

from eigenfed.study.results.result_folder import read_result
from reports import result, tables


def test_run_json_has_the_numbers_of_the_page(tmp_path: Path) -> None:
    pages = result(tmp_path / "r", tables(), by_site=True, share=("north",))
    run = json.loads((tmp_path / "r/run.json").read_text())
    facts = read_result(tmp_path / "r").facts
    assert run["format"] == 1
    assert run["result"] == facts
    assert [c["variance"] for c in run["components"]] == facts["eigenvalues"]
    assert run["by_site"]["explained"] == facts["by_site"]["explained"]
    assert sum(sum(kind["bytes"].values()) for kind in run["left"]) == facts["bytes_up"]
    assert len(run["rounds"]) == facts["rounds"]
    assert tmp_path / "r/run.json" in pages.exports


def test_no_row_is_in_what_programs_get(tmp_path: Path) -> None:
    pages = result(tmp_path / "r", tables(), share=("north", "south", "west"))
    scores = np.load(tmp_path / "r/scores/north.npy")
    for path in pages.exports:
        text = path.read_text()
        assert not any(repr(value) in text for value in scores[:20].ravel().tolist())


def test_multiqc_gets_custom_content(tmp_path: Path) -> None:
    result(tmp_path / "r", tables(), by_site=True)
    facts = read_result(tmp_path / "r").facts
    found = {p.name: json.loads(p.read_text()) for p in (tmp_path / "r/multiqc").iterdir()}
    assert set(found) == {f"eigenfed_{name}_mqc.json" for name in ("general", "scree", "sites")}
    assert len({content["id"] for content in found.values()}) == 3
    general = found["eigenfed_general_mqc.json"]
    assert general["plot_type"] == "generalstats"
    (numbers,) = general["data"].values()
    assert set(numbers) == {name for header in general["pconfig"] for name in header}
    assert numbers["rows"] == facts["n"]
    scree = found["eigenfed_scree_mqc.json"]
    assert scree["plot_type"] == "linegraph"
    (line,) = scree["data"].values()
    assert list(line.values()) == facts["eigenvalues"]
    assert list(line) == ["1", "2", "3"]
    sites = found["eigenfed_sites_mqc.json"]
    assert sites["plot_type"] == "table"
    assert set(sites["data"]) == set(facts["sites"])
    assert all(set(row) == set(sites["headers"]) for row in sites["data"].values())


def test_what_is_not_known_is_left_out_for_multiqc(tmp_path: Path) -> None:
    result(tmp_path / "r", tables(), secure=True)
    sites = json.loads((tmp_path / "r/multiqc/eigenfed_sites_mqc.json").read_text())
    assert all("rows" not in row for row in sites["data"].values())
