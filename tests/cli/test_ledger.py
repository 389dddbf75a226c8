"""``eigenfed ledger``: what left, what it cost, and whether anybody touched the record."""

import sqlite3
from pathlib import Path

import pytest

from command_line import answer, eigenfed
from eigenfed.privacy.ledger.ledger import Budget, Ledger, Refusal, ReplyKey
from eigenfed.privacy.release import Leaves, Release, Reveals


def paid(ledger: Ledger, key: ReplyKey) -> None:
    ledger.spend(key, 0.2, sensitivity=1.0, sd=5.0, relation="replace_one", mechanism="gaussian")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A ledger with a paid reply, an exact one on another data set, and a refusal."""
    path = tmp_path / "site.ledger"
    with Ledger(path, create=True) as ledger:
        ledger.set_budget("cohort", Budget(1.0, 1e-5))
        release = Release("second moment", "d x d", Leaves.EXACT, Reveals.SCATTER)
        key = ReplyKey("cohort", "run 1", 0, "private_scatter", ask_digest="5d41")
        paid(ledger, key)
        ledger.commit(key, b"noisy", release, {"scatter": (2, 2)}, paid=True)
        with pytest.raises(Refusal):
            paid(ledger, ReplyKey("cohort", "run 2", 0, "private_scatter", ask_digest="7d79"))
        plain = ReplyKey("pilot", "run 3", 0, "scatter", ask_digest="aa00")
        ledger.commit(plain, b"exact!", release, {"scatter": (2, 2)}, paid=False)
    return path


def test_show_tells_what_left_and_what_it_cost(file: Path) -> None:
    said = answer("ledger", "show", file)
    assert said["datasets"]["cohort"]["mu"] == pytest.approx(0.2)
    assert said["datasets"]["cohort"]["budget"] == {"epsilon": 1.0, "delta": 1e-5}
    assert said["datasets"]["pilot"]["spends"] == 0
    kinds = [event["kind"] for event in said["events"]]
    assert kinds == ["opened", "budgeted", "spent", "replied", "refused", "replied"]
    page = eigenfed("ledger", "show", file).stdout
    assert "cohort: 1 spend comes to mu=0.2" in page
    assert "budget epsilon=1 at delta=1e-05" in page
    assert "refused: budget" in page
    assert "second moment, 6 bytes" in page
    assert page.splitlines()[-1] == f"head {said['head']}"


def test_show_tells_of_sums_and_of_what_has_no_guarantee(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l", create=True) as ledger:
        key = ReplyKey("cohort", "run 1", 0, "noisy_covariance", ask_digest="5d41")
        ledger.summed(key, frozenset("abc"))
        ledger.spend_unsound(key, mechanism="DPdisPCA", allowed=True)
    page = eigenfed("ledger", "show", tmp_path / "l").stdout
    assert "cohort: No epsilon holds: 1 of 1 replies" in page
    assert "in a sum over 3 sites" in page
    assert "no guarantee, DPdisPCA" in page
    assert answer("ledger", "show", tmp_path / "l")["datasets"]["cohort"]["mu"] is None


def test_show_can_keep_to_one_data_set(file: Path) -> None:
    said = answer("ledger", "show", file, "--dataset", "pilot")
    assert list(said["datasets"]) == ["pilot"]
    assert [event["run"] for event in said["events"]] == ["run 3"]
    run = eigenfed("ledger", "show", file, "--dataset", "nobody's")
    assert run.exit_code == 2
    assert "'cohort', 'pilot'" in run.stderr


def test_looking_changes_nothing(file: Path) -> None:
    before = file.read_bytes()
    answer("ledger", "show", file)
    answer("ledger", "verify", file)
    assert file.read_bytes() == before
    names = sorted(path.name for path in file.parent.iterdir())
    assert names == ["site.ledger", "site.ledger.head"]


def test_a_whole_ledger_verifies_also_against_an_old_head(file: Path) -> None:
    with Ledger(file) as ledger:
        head = ledger.head
        ledger.set_budget("pilot", Budget(2.0, 1e-5))
    said = answer("ledger", "verify", file, "--head", head)
    assert (said["sound"], said["events"]) == (True, 7)
    run = eigenfed("ledger", "verify", file)
    assert run.exit_code == 0
    assert "as --head" in run.stderr


def test_a_changed_ledger_exits_with_1_and_says_where(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        sql = connection.execute("SELECT sql FROM sqlite_master WHERE name='no_change'").fetchone()
        connection.execute("DROP TRIGGER no_change")
        changed = "CAST(replace(body, '\"mu\":0.2', '\"mu\":0.3') AS BLOB)"
        connection.execute(f"UPDATE events SET body = {changed} WHERE number = 3")
        connection.execute(sql[0])
    connection.close()
    run = eigenfed("ledger", "verify", file)
    assert run.exit_code == 1
    assert run.stdout.startswith("Broken at event 3: ")
    shown = eigenfed("ledger", "show", file)
    assert shown.exit_code == 1
    assert "broken at event 3" in shown.stderr


def test_a_cut_end_shows_against_the_head(file: Path) -> None:
    run = eigenfed("ledger", "verify", file, "--head", "00" * 32, "--json")
    assert run.exit_code == 1
    assert '"sound": false' in run.stdout


def test_another_file_is_no_ledger(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("not a database at all, but long enough to be looked at")
    run = eigenfed("ledger", "verify", tmp_path / "notes")
    assert run.exit_code == 1
    assert str(tmp_path / "notes") in run.stderr
    assert eigenfed("ledger", "show", tmp_path / "absent").exit_code == 2


def test_create_begins_ledgers_and_overwrites_nothing(tmp_path: Path) -> None:
    files = [tmp_path / "a.ledger", tmp_path / "b.ledger"]
    page = eigenfed("ledger", "create", *files).stdout
    assert page.splitlines()[0] == f"Created {files[0]}, with its head in {files[0]}.head."
    for file in files:
        assert answer("ledger", "verify", file)["witnessed"] is True
        assert file.stat().st_mode & 0o777 == 0o600
    before = files[1].read_bytes()
    run = eigenfed("ledger", "create", tmp_path / "c.ledger", files[1])
    assert run.exit_code == 2
    assert f"{files[1]} exists and is not overwritten" in run.stderr
    assert files[1].read_bytes() == before
    assert not (tmp_path / "c.ledger").exists()
    run = eigenfed("ledger", "create", tmp_path / "c.ledger", tmp_path / "no" / "d.ledger")
    assert run.exit_code == 2
    assert f"Folder {tmp_path / 'no'} does not exist. Create it first." in run.stderr
    assert not (tmp_path / "c.ledger").exists()
    assert eigenfed("ledger", "create").exit_code == 2


def test_create_does_not_begin_a_deleted_ledger_anew(file: Path) -> None:
    file.unlink()
    run = eigenfed("ledger", "create", file)
    assert run.exit_code == 1
    assert "the ledger was deleted" in run.stderr
    assert not file.exists()


def test_release_lists_what_it_forgives_and_show_says_so(file: Path) -> None:
    with Ledger(file) as ledger:
        ledger.open_run("cohort", "run 0", study="9f86d081884c", coordinator="d75a980182b1")
        for run in range(4):
            ledger.abort("cohort", f"run {run}", run, "scatter")
        for round_ in range(30):
            ledger.refuse(
                ReplyKey("cohort", "run 9", round_, "scatter", ask_digest="5d41"), "forbidden"
            )
    page = eigenfed("ledger", "show", file).stdout
    assert "Blocked after too many aborted runs" in page
    assert "study 9f86d081, coordinator d75a9801" in page
    assert page.count("failed after rows were read") == 4
    assert "further refusals in this run are not recorded" in page
    assert answer("ledger", "show", file)["datasets"]["cohort"]["held"] is True
    said = eigenfed("ledger", "release", file, "--dataset", "cohort", "--reason", "A full disk.")
    assert said.exit_code == 0
    assert said.stdout.startswith("Cleared 4 aborted runs of cohort.")
    assert all(f"run {run}" in said.stdout for run in range(4))
    page = eigenfed("ledger", "show", file).stdout
    assert "Held" not in page
    assert "cohort: aborted runs cleared: A full disk." in page
    again = eigenfed("ledger", "release", file, "--dataset", "cohort", "--reason", "Again.")
    assert again.exit_code == 1
    assert "No run on the data set 'cohort' was aborted" in again.stderr
    assert eigenfed("ledger", "release", file, "--dataset", "cohort").exit_code == 2


def test_show_does_not_read_as_privacy_after_exact_replies(file: Path) -> None:
    said = answer("ledger", "show", file)["datasets"]["pilot"]
    assert (said["mu"], said["epsilon"], said["exact"]) == (None, None, 1)
    page = eigenfed("ledger", "show", file).stdout
    assert "pilot: No epsilon holds: exact sums of these rows have left, in 1 reply." in page


def test_a_ledger_that_was_put_back_does_not_verify(file: Path) -> None:
    old = file.read_bytes()
    with Ledger(file) as ledger:
        ledger.set_budget("pilot", Budget(2.0, 1e-5))
    file.write_bytes(old)
    run = eigenfed("ledger", "verify", file)
    assert run.exit_code == 1
    assert "the head in the head file is not in the chain" in run.stdout


def test_an_empty_file_that_a_full_disk_left_becomes_a_ledger(tmp_path: Path) -> None:
    path = tmp_path / "site.ledger"
    path.touch()
    assert eigenfed("ledger", "create", path).exit_code == 0
    assert eigenfed("ledger", "verify", path).exit_code == 0
    again = eigenfed("ledger", "create", path)
    assert (again.exit_code, "is not overwritten" in again.stderr) == (2, True)
    path.write_bytes(b"")
    emptied = eigenfed("ledger", "create", path)
    assert emptied.exit_code != 0, "its head file proves that there was one"
    assert path.stat().st_size == 0
