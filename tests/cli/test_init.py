"""``eigenfed init``: files that hold as they are, private where they must be, never overwritten."""

import errno
import json
import os
import shlex
import stat
from pathlib import Path

import pytest

from command_line import answer, as_csv, eigenfed, rows
from eigenfed.privacy.policy import Policy
from eigenfed.study.config import read_site, read_study, schema_of
from eigenfed.study.config.site_file import USUAL_STEPS


def test_what_is_written_holds_as_it_is(tmp_path: Path) -> None:
    said = answer("init", tmp_path / "heart", "--sites", "a, b,c", "-k", 3)
    study = read_study(said["study"])
    assert (study.name, study.sites, study.components) == ("heart", ("a", "b", "c"), 3)
    assert study.privacy is None
    assert study.by_site
    assert list(said["sites"]) == ["a", "b", "c"]
    for name, path in said["sites"].items():
        site = read_site(path)
        assert (site.name, site.data) == (name, Path(path).parent / f"{name}.csv")
        assert not site.data.exists()
        assert site.ledger is not None
        assert not site.share_scores
        assert site.policy == Policy(min_rows=10, min_counted=100, steps=USUAL_STEPS)


def test_a_private_study_has_its_terms_and_every_site_a_budget(tmp_path: Path) -> None:
    said = answer("init", tmp_path / "p", "--epsilon", 2, "--delta", 1e-7)
    study = read_study(said["study"])
    assert study.privacy is not None
    assert (study.privacy.epsilon, study.privacy.delta) == (2.0, 1e-7)
    assert not study.by_site
    for path in said["sites"].values():
        budget = read_site(path).policy.budget
        assert budget is not None
        assert (budget.epsilon, budget.delta) == (2.0, 1e-7)
    assert "spends the sites' budgets" in said["next"][-1]


def test_only_the_owner_reads_a_site_s_file(tmp_path: Path) -> None:
    said = answer("init", tmp_path)
    for path in map(Path, said["sites"].values()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(Path(said["study"]).stat().st_mode) & 0o044 == 0o044


@pytest.mark.parametrize("there", ["study.toml", "sites/south/site.toml"])
def test_nothing_is_overwritten_and_then_nothing_is_written(tmp_path: Path, there: str) -> None:
    path = tmp_path / there
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")
    path.chmod(0o644)
    run = eigenfed("init", tmp_path)
    assert run.exit_code == 2
    assert f"{path} exists, and nothing is overwritten" in run.stderr
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [path]
    assert path.read_text() == "mine"
    answer("init", tmp_path, "--force")
    assert "mine" not in path.read_text()
    if path.name == "site.toml":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_folder_s_name_that_is_no_study_s_name_is_not_taken(tmp_path: Path) -> None:
    assert read_study(answer("init", tmp_path / "my study!")["study"]).name == "study"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ("--sites", "a,Köln"),
            "--sites has the name 'Köln', and a name must be 1 to 64 letters from a to z, digits, ",
        ),
        (("--sites", "a,b/c"), "--sites has the name 'b/c', and a name must be"),
        (("--sites", "a,a"), "--sites names a site twice. Name each once."),
        (("--sites", ""), "--sites has the name '', and a name must be"),
        (("--sites", "a,b", "--epsilon", 1, "--delta", 1e-6), "requires at least 3 sites"),
        (("--epsilon", 1), "--epsilon requires --delta"),
        (("-k", 0), "0 is not in the range"),
        (
            ("--schema", "study", "--force"),
            "--schema writes no files. Pass it without other options.",
        ),
        (
            ("--schema", "study", "-k", 4),
            "--schema writes no files. Pass it without other options.",
        ),
    ],
)
def test_options_that_make_no_study_are_refused(
    tmp_path: Path, flags: tuple[object, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = eigenfed("init", *flags)
    assert run.exit_code == 2
    assert message in run.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["study", "site"])
def test_the_schema_is_printed_and_nothing_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    schema = schema_of(name)
    assert json.loads(eigenfed("init", "--schema", name).stdout) == schema
    assert answer("init", "--schema", name) == schema
    assert list(tmp_path.iterdir()) == []


def test_the_steps_that_are_printed_lead_to_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = eigenfed("init", "my heart", "-k", 2).stdout
    assert "Each site adds its data" in page
    begin, command = (
        shlex.split(line) for line in page.splitlines() if line.startswith("  eigenfed ")
    )
    early = eigenfed(*command[1:])
    assert early.exit_code == 1
    assert "There is no ledger at my heart/sites/island/island.ledger." in early.stderr
    assert "eigenfed ledger create 'my heart/sites/island/island.ledger'" in early.stderr
    begun = eigenfed(*begin[1:])
    assert begun.exit_code == 0, begun.stderr
    early = eigenfed(*command[1:])
    assert early.exit_code == 1
    assert "island.csv does not exist" in early.stderr
    for place, site in enumerate(("north", "south", "island")):
        as_csv(tmp_path / "my heart/sites" / site / f"{site}.csv", rows(40, seed=place))
    assert command[0] == "eigenfed"
    run = eigenfed(*command[1:])
    assert run.exit_code == 0, run.stderr
    assert json.loads((tmp_path / "result/result.json").read_text())["n"] == 120


def test_a_full_disk_leaves_no_half_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", fill)
        failed = eigenfed("init", tmp_path / "heart", "--sites", "a,b", "-k", "2")
    assert failed.exit_code == 1
    study = tmp_path / "heart/study.toml"
    assert failed.stderr == f"eigenfed: {study}: No space left on device. Make room.\n"
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert eigenfed("init", tmp_path / "heart", "--sites", "a,b", "-k", "2").exit_code == 0
