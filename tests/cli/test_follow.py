"""Streams and regions between programs that know only files."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from command_line import eigenfed as run_command
from eigenfed import Region, RegionReport
from eigenfed.linalg.summary import Summary
from network_parties import NAMES
from network_programs import Program, keep_programs, read_facts, wait_until
from network_streams import StreamNetwork, summarise

Start = Callable[..., Program]


@pytest.fixture
def start() -> Iterator[Start]:
    with keep_programs() as start:
        yield start


def test_streams_are_followed_until_all_is_sent(tmp_path: Path, start: Start) -> None:
    network = StreamNetwork(tmp_path)
    home = tmp_path / "coordinator"
    sites = {name: start(tmp_path / name, "site", "site.toml") for name in NAMES}
    words = ("coordinate", "study.toml", "-o", "result", "--follow", "--json", "--force")
    first = start(home, *words, "--summary", "all.summary")

    def has(rows: int) -> bool:
        path = home / "all.summary"
        return path.exists() and Summary.from_bytes(path.read_bytes()).n == rows

    wait_until(lambda: has(60), "the first result")
    network.grow("north", 30)
    wait_until(lambda: has(70), "a result with more of north")
    first.kill()
    sites["south"].kill()
    network.grow("north", 40)
    network.grow("south", 35)
    network.grow("island", 40)
    second = start(home, *words, "--summary", "all.summary")
    wait_until(lambda: has(100), "a result without south")
    sites["south"] = start(tmp_path / "south", "site", "site.toml")
    wait_until(lambda: has(115), "a result with more of south")
    assert second.stop() == 0, second.log
    facts = read_facts(home / "result")
    assert (facts["n"], facts["method"], facts["engine"]) == (115, "merge", "files")
    region = Region("all", rank=5)
    for name, seen in {"north": 40, "south": 35, "island": 40}.items():
        report = RegionReport(name, seen, summarise(network.rows[name][:seen]).truncate(4))
        region.receive(report)
    assert (home / "all.summary").read_bytes() == region.summary().to_bytes()
    assert sorted(set(network.released("north"))) == [(1, 20.0), (2, 30.0), (3, 40.0)]
    for name, site in sites.items():
        assert site.stop() == 0, site.log
        assert len(list((tmp_path / name / "results").iterdir())) == 1
        assert network.sites[name].ledger.verify().intact
    # The island has been asked for its third summary since, and the files of the others are gone.
    assert len(list((home / "drop" / "to-island").glob("*-summarise_stream.request"))) == 1


def test_a_courier_brings_a_summary_in_one_journey(tmp_path: Path) -> None:
    network = StreamNetwork(tmp_path, method='{ name = "merge", max_summaries = 2 }')
    home = tmp_path / "coordinator"
    words = ("coordinate", str(home / "study.toml"), "-o", str(tmp_path / "result"), "--once")

    def travel(*names: str) -> None:
        for name in names:
            done = run_command("site", "run", str(tmp_path / name / "site.toml"), "--once")
            assert done.exit_code == 0, done.stderr

    first = run_command(*words)
    assert first.exit_code == 0, first.stderr
    assert "No summary has come from island, north, south yet" in first.stdout
    travel("north")
    assert "No summary has come from island, south yet" in run_command(*words).stdout
    travel("south", "island")
    done = run_command(*words)
    assert done.exit_code == 0, done.stderr
    assert "2 components of 60 rows x 5 features at 3 sites, by merge" in done.stdout
    page = (tmp_path / "result" / "report.html").read_text()
    assert "It follows from what the summaries left out" in page
    # The next request went out with the result, and nothing has come since.
    travel(*NAMES)
    assert "No newer summary has come" in run_command(*words, "--force").stdout
    network.grow("south", 40)
    travel(*NAMES)
    done = run_command(*words, "--force", "--json")
    assert json.loads(done.stdout)["n"] == 80
    shown = run_command("ledger", "show", str(tmp_path / "south" / "south.ledger"))
    assert "summary 2 of the stream, weight 40" in shown.stdout
    assert "summary of a stream" in shown.stdout
    for path in (tmp_path / "north" / "network" / "approved").iterdir():
        path.unlink()
    travel("north")
    refused = run_command(*words, "--force")
    assert refused.exit_code == 3
    assert "Site 'north' refused 'summarise_stream'" in refused.stderr


REGION = """\
name = "{name}"
sites = {sites}
components = 2
features = ["age", "bmi", "hdl", "ldl", "sbp"]
method = {{ name = "merge", max_summaries = 5 }}
engine = "files"
[network]
drop = "drop"
"""


def build_party(folder: Path, name: str, data: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "site.toml").write_text(
        f'name = "{name}"\ndata = "{data}"\nledger = "{name}.ledger"\n[policy]\nmin_rows = 5\n'
    )
    assert run_command("ledger", "create", str(folder / f"{name}.ledger")).exit_code == 0


def connect(home: Path, name: str, folders: dict[str, Path]) -> None:
    """Let a coordinator and its sites exchange keys, and the sites approve the study."""
    home.mkdir(parents=True, exist_ok=True)
    study = home / "study.toml"
    study.write_text(REGION.format(name=name, sites=json.dumps(sorted(folders))))

    def run(*words: str) -> dict[str, object]:
        done = run_command(*words, "--json")
        assert done.exit_code == 0, done.stderr
        found: dict[str, object] = json.loads(done.stdout)
        return found

    invited = run("network", "init", str(study))
    told = str(invited["fingerprint"])
    admitted: list[str] = []
    for site, folder in folders.items():
        sent = home / f"{name}.invitation.json"
        asked = run("network", "join", str(sent), str(folder / "site.toml"), "--fingerprint", told)
        admitted += [str(folder / f"{site}.request.json"), "--fingerprint"]
        admitted += [f"{site}={asked['fingerprint']}"]
    roster = str(run("network", "admit", str(study), *admitted)["fingerprint"])
    for folder in folders.values():
        sent = home / f"{name}.roster.json"
        run("network", "join", str(sent), str(folder / "site.toml"), "--fingerprint", roster)
        run("site", "approve", str(study), str(folder / "site.toml"), "--yes")


def test_a_tree_of_regions_merges_the_streams_of_all_leaves(tmp_path: Path, start: Start) -> None:
    rng = np.random.default_rng(5)
    rows = {leaf: rng.standard_normal((30, 5)) * [5, 3, 2, 1, 1] + 3 for leaf in "abcd"}
    regions = {"north": "ab", "south": "cd"}
    for region, leaves in regions.items():
        for leaf in leaves:
            build_party(tmp_path / leaf, leaf, "rows.summary")
            summary = summarise(rows[leaf][:20])
            (tmp_path / leaf / "rows.summary").write_bytes(summary.to_bytes())
        connect(tmp_path / region, region, {leaf: tmp_path / leaf for leaf in leaves})
        build_party(tmp_path / f"{region}-up", region, f"../{region}/region.summary")
    connect(tmp_path / "root", "all", {region: tmp_path / f"{region}-up" for region in regions})
    for name in ("a", "b", "c", "d", "north-up", "south-up"):
        start(tmp_path / name, "site", "site.toml")
    follow = ("coordinate", "study.toml", "-o", "result", "--follow")
    for region in regions:
        start(tmp_path / region, *follow, "--summary", "region.summary")
    root = start(tmp_path / "root", *follow, "--summary", "all.summary", "--json")

    def count() -> float:
        path = tmp_path / "root" / "all.summary"
        return Summary.from_bytes(path.read_bytes()).n if path.exists() else 0.0

    wait_until(lambda: count() == 80, "the rows of all leaves")
    (tmp_path / "d" / "rows.summary").write_bytes(summarise(rows["d"]).to_bytes())
    wait_until(lambda: count() == 90, "the rows that a leaf has more")
    assert root.stop() == 0, root.log

    top = Region("all", rank=5)
    for region, leaves in regions.items():
        below = Region(region, rank=5)
        for leaf in leaves:
            seen = rows[leaf][: 30 if leaf == "d" else 20]
            below.receive(RegionReport(leaf, len(seen), summarise(seen).truncate(4)))
        merged = below.summary().truncate(4)
        top.receive(RegionReport(region, int(merged.n), merged))
    assert (tmp_path / "root" / "all.summary").read_bytes() == top.summary().to_bytes()

    facts = read_facts(tmp_path / "root" / "result")
    pooled = np.vstack([part[: 30 if leaf == "d" else 20] for leaf, part in rows.items()])
    _, _, vt = np.linalg.svd(pooled - pooled.mean(axis=0), full_matrices=False)
    found = np.load(tmp_path / "root" / "result" / "components.npy")
    cosine = np.linalg.svd(found @ vt[:2].T, compute_uv=False)[-1]
    assert np.arccos(min(cosine, 1.0)) <= facts["certificate"]["angle_bound"]
    assert facts["total_variance"] == pytest.approx(pooled.var(axis=0, ddof=1).sum())
