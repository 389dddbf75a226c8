"""`eigenfed coordinate`, `eigenfed site` and `eigenfed drop`, as programs that know only files."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from command_line import eigenfed as run_command
from network_parties import NAMES
from network_programs import (
    Program,
    count_rounds,
    keep_programs,
    read_facts,
    wait_for_file,
    wait_until,
)
from network_runs import Network

Start = Callable[..., Program]


@pytest.fixture
def start() -> Iterator[Start]:
    with keep_programs() as start:
        yield start


def check_result(network: Network, out: Path) -> None:
    together = network.fit_together()
    assert np.load(out / "components.npy").tobytes() == together.components_.tobytes()
    assert read_facts(out)["engine"] == "files"
    assert (out / "report.html").exists()


def test_what_comes_first_is_told_to_who_has_not_joined_a_network(tmp_path: Path) -> None:
    assert run_command("init", tmp_path / "s", "--sites", "a,b,c", "-k", 2).exit_code == 0
    study, site = tmp_path / "s/study.toml", tmp_path / "s/sites/a/site.toml"
    run = run_command("coordinate", study, "-o", tmp_path / "r")
    assert (run.exit_code, 'has engine = "in_process". Set engine' in run.stderr) == (2, True)
    text = study.read_text().replace('# engine = "in_process"', 'engine = "files"')
    text = text.replace('features = "same"', 'features = ["age", "bmi"]')
    study.write_text(text.replace("# [network]", '[network]\ndrop = "drop"'))
    run = run_command("coordinate", study, "-o", tmp_path / "r")
    assert "s/network holds no roster. The coordinator makes it with eigenfed" in run.stderr
    assert run.exit_code == 2
    for call in (("run", site), ("run", site, "--once")):
        run = run_command("site", *call)
        assert "a/network holds no keys. Run eigenfed network init (coord" in run.stderr
        assert run.exit_code == 2


def test_a_study_by_files_outlives_its_programs(tmp_path: Path, start: Start) -> None:
    network = Network(tmp_path, method="krylov", study="secure = true\n")
    home = tmp_path / "coordinator"
    sites = {name: start(tmp_path / name, "site", "site.toml") for name in NAMES}
    coordinate = ("coordinate", "study.toml", "-o", "result", "--json")
    first = start(home, *coordinate)
    wait_until(lambda: count_rounds(home) >= 2, "the second round")
    sites["south"].kill()
    first.kill()
    sites["north"].freeze()
    second = start(home, *coordinate)
    sites["south"] = start(tmp_path / "south", "site", "site.toml")
    sites["north"].thaw()
    code, _ = second.finish()
    assert code == 0, second.log
    check_result(network, home / "result")
    for name, site in sites.items():
        wait_for_file(tmp_path / name / "results", f"*/sites/{name}.html")
        assert site.stop() == 0
        assert network.sites[name].ledger.verify().intact
    left = [path for path in (home / "drop").rglob("*") if path.is_file()]
    assert [path for path in left if path.suffix == ".request"] == []


def test_a_study_goes_by_courier_step_by_step(tmp_path: Path) -> None:
    network = Network(tmp_path)
    home = tmp_path / "coordinator"
    words = ("coordinate", str(home / "study.toml"), "-o", str(tmp_path / "result"), "--once")
    waits = []
    for _ in range(20):
        done = run_command(*words)
        if done.exit_code or "waits for" not in done.stdout:
            break
        waits.append(done.stdout)
        for name in NAMES:
            site = run_command("site", "run", str(tmp_path / name / "site.toml"), "--once")
            assert site.exit_code == 0, site.stderr
    assert done.exit_code == 0, done.stderr
    assert waits[0].startswith("Round 0 waits for: island, north, south.")
    assert "Requests go to 3 sites by files: whether a site is there" in done.stderr
    check_result(network, tmp_path / "result")
    # What is left for the courier is the result, which each site takes in its turn.
    assert "Site south has not taken the result" in done.stderr
    for name in NAMES:
        (last,) = (home / "drop" / f"to-{name}").iterdir()
        assert last.name.endswith("-close.request")
        run_command("site", "run", str(tmp_path / name / "site.toml"), "--once")
        (folder,) = (tmp_path / name / "results").iterdir()
        assert (folder / "sites" / f"{name}.html").exists()
        assert not network.sites[name].ledger.recall_names("data")


def test_a_site_that_approves_after_it_refused_is_asked_again(tmp_path: Path) -> None:
    network = Network(tmp_path)
    home, south = tmp_path / "coordinator", str(tmp_path / "south" / "site.toml")
    words = ("coordinate", str(home / "study.toml"), "-o", str(tmp_path / "result"), "--once")
    assert run_command("site", "withdraw", str(home / "study.toml"), south).exit_code == 0
    run_command(*words)
    told = run_command("site", "run", south, "--once")
    assert "eigenfed: A request was refused: no study with the digest" in told.stderr
    refused = run_command(*words)
    assert refused.exit_code == 3
    assert "refused 'open' in round 0 with the code 'unapproved'" in refused.stderr
    approved = run_command("site", "approve", str(home / "study.toml"), south, "--yes")
    assert approved.exit_code == 0, approved.stderr
    for _ in range(20):
        done = run_command(*words)
        if done.exit_code or "waits for" not in done.stdout:
            break
        for name in NAMES:
            run_command("site", "run", str(tmp_path / name / "site.toml"), "--once")
    assert done.exit_code == 0, done.stderr
    check_result(network, tmp_path / "result")


def test_a_site_whose_rows_cannot_be_opened_is_told_why(tmp_path: Path) -> None:
    Network(tmp_path)
    site = tmp_path / "south" / "site.toml"
    words = ("coordinate", str(tmp_path / "coordinator/study.toml"), "-o", str(tmp_path / "r"))
    run_command(*words, "--once")
    data = tmp_path / "south" / "rows.csv"
    data.rename(tmp_path / "away")
    told = run_command("site", "run", str(site), "--once")
    assert told.stderr.startswith("eigenfed: The rows of study ")
    assert f"cannot be opened: {data} does not exist. Check the path." in told.stderr
    assert run_command("site", "run", str(site), "--once", "--quiet").stderr == ""
    refused = run_command(*words, "--once")
    assert "refused 'open' in round 0 with the code 'unready'" in refused.stderr


def test_a_file_is_shown_before_it_leaves(tmp_path: Path) -> None:
    Network(tmp_path)
    home, site = tmp_path / "coordinator", str(tmp_path / "north" / "site.toml")
    words = ("coordinate", str(home / "study.toml"), "-o", str(tmp_path / "result"), "--once")
    run_command(*words)
    run_command("site", "run", site, "--once")
    (reply,) = (home / "drop" / "from-north").iterdir()
    network = str(tmp_path / "north" / "network")
    shown = run_command("drop", "show", str(reply), "--network", network)
    assert shown.exit_code == 0
    assert "by site north, as in the roster" in shown.stdout
    altered = bytearray(reply.read_bytes())
    altered[-1] ^= 1
    reply.write_bytes(altered)
    refused = run_command("drop", "show", str(reply))
    assert refused.exit_code == 1
    assert refused.stderr.startswith(f"eigenfed: {reply}: The data are not a bundle")
    assert "were altered. Have it sent again." in refused.stderr
