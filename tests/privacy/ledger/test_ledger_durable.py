"""A ledger that is killed, starved of disk, shared or locked never counts less than has left."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eigenfed.errors import EigenfedError
from eigenfed.privacy.ledger.events import Kind, Replied, Spent
from eigenfed.privacy.ledger.ledger import Budget, Ledger, Refusal, ReplyKey, Spending
from eigenfed.privacy.ledger.ledger_interface import REFUSALS_RECORDED

MU = 0.1
ROUNDS = 3
TERMS: dict[str, Any] = {
    "sensitivity": 1.0,
    "sd": 10.0,
    "relation": "replace_one",
    "mechanism": "gaussian",
}


class Children:
    """The script that forks for each order, and what it said."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("ledger_child.py")
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore::DeprecationWarning", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def told(self, job: str, path: Path, **order: Any) -> tuple[list[str], list[int]]:
        """Return what the processes said, and their exit codes (less than 0: killed)."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"job": job, "path": str(path)} | order) + "\n")
        self._process.stdin.flush()
        said: list[str] = []
        for line in self._process.stdout:
            if line.startswith("end "):
                return said, [int(code) for code in line.split()[1:]]
            said.append(line.strip())
        raise AssertionError(f"the script ended after {said}")

    def close(self) -> None:
        self._process.communicate()
        assert self._process.returncode == 0


@pytest.fixture(scope="module")
def children() -> Iterator[Children]:
    script = Children()
    yield script
    script.close()


def sent(said: list[str]) -> dict[int, str]:
    return {int(w[1]): w[2] for line in said if (w := line.split())[0] == "sent"}


def spread(last: int, count: int) -> list[int]:
    return sorted({1 + (last - 1) * i // (count - 1) for i in range(count)})


def assert_nothing_is_lost(children: Children, path: Path, said: list[str]) -> None:
    """What left is counted; the retry sends the same bytes, and spends once for each round."""
    if sent(said):
        with Ledger(path, create=False) as ledger:
            assert ledger.verify().intact
            replied = {w.key.round_: w for e in ledger.events if isinstance(w := e.what, Replied)}
            spent = {w.key.round_ for e in ledger.events if isinstance(w := e.what, Spent)}
            assert {r: replied[r].digest for r in sent(said)} == sent(said)
            assert sent(said).keys() <= spent
            assert ledger.totals("cohort").mu >= MU * len(sent(said)) ** 0.5 * (1 - 1e-12)
            committed = {r: what.digest for r, what in replied.items()}
    else:
        committed = {}
    again, codes = children.told("rounds", path)
    assert codes == [0]
    assert committed.items() <= sent(again).items()
    with Ledger(path, create=False) as ledger:
        assert ledger.verify().intact
        assert [e.kind for e in ledger.events].count(Kind.SPENT) == ROUNDS
        assert [e.kind for e in ledger.events].count(Kind.REPLIED) == ROUNDS
        assert ledger.totals("cohort").mu == pytest.approx(MU * ROUNDS**0.5, rel=1e-12)
        assert ledger.meter("cohort") == b"+" * ROUNDS


@pytest.mark.parametrize(("by", "points"), [("lines", 18), ("instructions", 10)])
def test_killed_at_any_step_it_counts_what_has_left_and_spends_once(
    by: str, points: int, children: Children, tmp_path: Path
) -> None:
    said, codes = children.told("rounds", tmp_path / "whole", by=by)
    steps = int(said[-1].removeprefix("steps "))
    assert codes == [0]
    assert len(sent(said)) == ROUNDS
    reached = set()
    for at in spread(steps, points):
        path = tmp_path / f"{at}"
        said, codes = children.told("rounds", path, by=by, at=at)
        assert codes == [-9]
        reached.add(len(sent(said)))
        assert_nothing_is_lost(children, path, said)
    assert reached >= {0, 1, 2}


def test_killed_in_the_midst_of_a_write_it_counts_what_has_left(
    children: Children, tmp_path: Path
) -> None:
    children.told("rounds", tmp_path / "whole")
    size = (tmp_path / "whole").stat().st_size
    killed, reached = 0, set()
    for at in spread(size, 10):
        path = tmp_path / f"{at}"
        said, codes = children.told("rounds", path, by="writes", at=at)
        killed += codes == [-25]
        reached.add(len(sent(said)))
        assert_nothing_is_lost(children, path, said)
    assert killed >= 6
    assert len(reached) >= 2


def test_a_full_disk_refuses_the_release_and_leaves_the_ledger_sound(
    children: Children, tmp_path: Path
) -> None:
    children.told("rounds", tmp_path / "whole")
    size = (tmp_path / "whole").stat().st_size
    refused = 0
    for at in spread(size, 6):
        path = tmp_path / f"{at}"
        said, codes = children.told("rounds", path, by="full", at=at)
        assert codes == [0]
        refused += "refused only ledger" in said
        assert len(sent(said)) < ROUNDS or at == size
        assert_nothing_is_lost(children, path, said)
    assert refused >= 5


def test_a_spend_that_finds_no_room_is_not_counted_and_can_be_made_later(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger", create=True)
    pages = ledger._file._connection.execute("PRAGMA page_count").fetchone()[0]
    ledger._file._connection.execute(f"PRAGMA max_page_count = {pages}")
    keys = [ReplyKey("cohort", "run", i, "scatter", ask_digest="ask") for i in range(1000)]
    heads = [ledger.head]

    def spend_all() -> None:
        for key in keys:
            ledger.spend(key, MU, **TERMS)
            heads.append(ledger.head)

    with pytest.raises(Refusal, match=r"cannot be used \(SQLITE_FULL\)") as refusal:
        spend_all()
    made = len(heads) - 1
    assert refusal.value.code == "ledger"
    assert isinstance(refusal.value, EigenfedError)
    assert ledger.head == heads[-1]
    assert ledger.totals("cohort").spends == made
    assert ledger.verify().intact
    ledger._file._connection.execute("PRAGMA max_page_count = 1000000")
    assert ledger.spend(keys[made], MU, **TERMS) is Spending.NEW
    assert ledger.totals("cohort").spends == made + 1


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can enter; the superuser's tests act as one."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_a_file_that_cannot_be_written_is_refused_for_spending_and_can_be_looked_at(
    children: Children, open_folder: Path
) -> None:
    path = open_folder / "ledger"
    children.told("rounds", path)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o444)
    before = path.read_bytes()
    assert children.told("rounds", path, by="stranger")[0] == ["refused only ledger", "steps 0"]
    assert children.told("hammer", path, by="stranger")[0] == ["refused only ledger", "steps 0"]
    assert children.told("look", path, by="stranger")[0] == ["events 8 True", "steps 0"]
    assert path.read_bytes() == before


def test_a_ledger_and_its_journal_are_for_their_owner_only(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        ledger = Ledger(tmp_path / "ledger", create=True)
        with ledger._file.transaction(write=True):
            ledger._file.keep_meter("cohort", b"+")
            modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    finally:
        os.umask(old)
    assert modes == dict.fromkeys(["ledger", "ledger-journal", "ledger.head"], 0o600)


def test_what_is_promised_is_synced_to_disk(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger", create=True)
    connection = ledger._file._connection
    assert connection.execute("PRAGMA synchronous").fetchone() == (3,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_two_processes_on_one_ledger_never_exceed_the_budget_nor_lose_an_event(
    children: Children, tmp_path: Path
) -> None:
    path = tmp_path / "ledger"
    budget = Budget(epsilon=4.0, delta=1e-6)
    affordable = int((budget.mu / MU) ** 2)
    with Ledger(path, create=True) as ledger:
        ledger.set_budget("cohort", budget)
    said, codes = children.told("hammer", path, names=["a", "b"])
    assert codes == [0, 0]
    assert {"refused a budget", "refused b budget"} <= set(said)
    claimed = {tuple(line.split()[1:]) for line in said if line.startswith("spent ")}
    with Ledger(path, create=False) as ledger:
        written = {
            (w.key.run, str(w.key.round_)) for e in ledger.events if isinstance(w := e.what, Spent)
        }
        assert written == claimed
        assert len(written) == affordable > 40
        assert {run for run, _ in written} == {"a", "b"}
        assert ledger.totals("cohort").mu <= budget.mu
        assert ledger.verify().intact
        assert len(ledger.events) == 1 + 1 + affordable + 2


def test_processes_that_begin_one_ledger_together_begin_one(
    children: Children, tmp_path: Path
) -> None:
    for trial in range(4):
        path = tmp_path / f"{trial}"
        said, codes = children.told("rounds", path, names=["a", "b", "c"])
        assert codes == [0, 0, 0]
        digests = {line for line in said if line.startswith("sent ")}
        assert len(digests) == ROUNDS
        with Ledger(path, create=False) as ledger:
            assert [e.kind for e in ledger.events].count(Kind.OPENED) == 1
            assert ledger.totals("cohort").spends == ROUNDS
            assert ledger.meter("cohort") == b"+" * ROUNDS


@pytest.mark.parametrize("name", [None, "ledger"])
def test_threads_on_one_ledger_never_exceed_the_budget(name: str | None, tmp_path: Path) -> None:
    ledger = Ledger(None if name is None else tmp_path / name, create=True)
    budget = Budget(epsilon=1.8, delta=1e-6)
    affordable = int((budget.mu / MU) ** 2)
    ledger.set_budget("cohort", budget)
    outcomes: list[str] = []

    def spend(run: str) -> None:
        for round_ in range(affordable):
            key = ReplyKey("cohort", run, round_, "scatter", ask_digest="ask")
            try:
                outcomes.append(ledger.spend(key, MU, **TERMS).value)
            except Refusal as refusal:
                outcomes.append(refusal.code)

    threads = [threading.Thread(target=spend, args=(f"run {i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert REFUSALS_RECORDED > affordable > 10
    assert outcomes.count("new") == affordable
    assert outcomes.count("budget") == 3 * affordable
    assert ledger.totals("cohort").spends == affordable
    assert len(ledger.events) == 2 + 4 * affordable
    assert ledger.verify().intact


def test_closed_while_threads_write_it_refuses_what_comes_later(tmp_path: Path) -> None:
    outcomes: list[str] = []
    for attempt in range(5):
        ledger = Ledger(tmp_path / f"{attempt}.ledger", create=True)
        begun = threading.Barrier(3)

        def spend(run: str, ledger: Ledger = ledger, begun: threading.Barrier = begun) -> None:
            begun.wait()
            for round_ in range(40):
                key = ReplyKey("cohort", run, round_, "scatter", ask_digest="ask")
                try:
                    outcomes.append(ledger.spend(key, MU, **TERMS).value)
                except Refusal as refusal:
                    outcomes.append(refusal.code)

        threads = [threading.Thread(target=spend, args=(f"run {i}",)) for i in range(2)]
        for thread in threads:
            thread.start()
        begun.wait()
        ledger.close()
        for thread in threads:
            thread.join()
        with Ledger(tmp_path / f"{attempt}.ledger", readonly=True) as kept:
            assert kept.verify().intact
    assert set(outcomes) <= {"new", "ledger"}
    assert "ledger" in outcomes


def test_another_process_that_holds_the_ledger_for_long_makes_it_refuse(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger, other = Ledger(path, timeout_s=0.05, create=True), Ledger(path)
    with other._file.transaction(write=True), pytest.raises(Refusal, match="SQLITE_BUSY"):
        ledger.spend(ReplyKey("cohort", "run", 0, "scatter", ask_digest="ask"), MU, **TERMS)
    assert ledger.totals("cohort").spends == 0


def test_a_spend_whose_last_step_fails_was_never_made(tmp_path: Path) -> None:
    """A reader lets a writer begin and write, and holds up its commit."""
    path = tmp_path / "ledger"
    ledger, reader = Ledger(path, timeout_s=0.05, create=True), Ledger(path, readonly=True)
    key = ReplyKey("cohort", "run", 0, "scatter", ask_digest="ask")
    with reader._file.transaction(write=False):
        with reader._file.rows(since=1) as rows:
            list(rows)
        with pytest.raises(Refusal, match="SQLITE_BUSY"):
            ledger.spend(key, MU, **TERMS)
        assert ledger.totals("cohort").spends == 0
    assert ledger.spend(key, MU, **TERMS) is Spending.NEW
    assert reader.totals("cohort").spends == 1
    assert ledger.verify().intact
