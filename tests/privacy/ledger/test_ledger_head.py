"""A ledger that is put back, cut, replaced or removed is noticed, and then nothing leaves."""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eigenfed.errors import DataError
from eigenfed.privacy.ledger.entries import ReplyKey
from eigenfed.privacy.ledger.events import (
    BEFORE_FIRST,
    Budgeted,
    Event,
    Kind,
    Opened,
    Refused,
    Upgraded,
    What,
    chain_hash,
)
from eigenfed.privacy.ledger.ledger import Budget, Ledger, Refusal
from eigenfed.privacy.ledger.storage import _SCHEMA, APPLICATION, Broken
from eigenfed.privacy.ledger.witness import Head, Mismatch, Witness
from eigenfed.privacy.release import Leaves, Release, Reveals

NOISED = Release("scatter", "d x d", Leaves.NOISED, Reveals.NOISE)
TERMS: dict[str, Any] = {
    "sensitivity": 1.0,
    "sd": 10.0,
    "relation": "replace_one",
    "mechanism": "gaussian",
}


def key(round_: int) -> ReplyKey:
    return ReplyKey("cohort", "run", round_, "scatter", ask_digest="ask")


def answer(ledger: Ledger, round_: int) -> None:
    ledger.spend(key(round_), 0.1, **TERMS)
    ledger.commit(key(round_), b"reply", NOISED, {"scatter": (2, 2)}, paid=True)


def head_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.head")


class Scene:
    """A running ledger of eight events, a copy of it at four, and another ledger."""

    def __init__(self, folder: Path) -> None:
        self.path, self.head = folder / "ledger", folder / "ledger.head"
        self.old, self.right = folder / "old", folder / "right"
        self.other = folder / "elsewhere" / "ledger"
        self.other.parent.mkdir()
        with Ledger(self.other, create=True) as other:
            for round_ in range(6):
                answer(other, round_)
        self.ledger = Ledger(self.path, create=True)
        self.ledger.set_budget("cohort", Budget(1.0, 1e-6))
        answer(self.ledger, 0)
        self.copy_to(self.old)
        for round_ in (1, 2):
            answer(self.ledger, round_)
        self.copy_to(self.right)

    def copy_to(self, place: Path) -> None:
        shutil.copy(self.path, place)
        shutil.copy(self.head, head_file(place))

    def restore(self) -> None:
        shutil.copy(self.right, self.path)
        shutil.copy(head_file(self.right), self.head)


def write_over(place: Path, by: Path) -> None:
    place.write_bytes(by.read_bytes())


def rename_over(place: Path, by: Path) -> None:
    shutil.copy(by, place.with_name("coming"))
    place.with_name("coming").rename(place)


def cut(place: Path, part: float) -> None:
    data = place.read_bytes()
    place.write_bytes(data[: int(part * len(data))])


def replace_by_empty(place: Path) -> None:
    place.unlink()
    place.touch()


TAMPERINGS: dict[str, Callable[[Scene], object]] = {
    "put back by copying": lambda s: write_over(s.path, s.old),
    "put back by renaming": lambda s: rename_over(s.path, s.old),
    "deleted": lambda s: s.path.unlink(),
    "deleted with its folder's name": lambda s: s.path.rename(s.path.with_name("away")),
    "cut to nothing": lambda s: cut(s.path, 0),
    "cut in half": lambda s: cut(s.path, 0.5),
    "replaced by an empty file": lambda s: replace_by_empty(s.path),
    "replaced by notes": lambda s: s.path.write_text("These are notes. " * 500),
    "replaced by another in place": lambda s: write_over(s.path, s.other),
    "replaced by another by renaming": lambda s: rename_over(s.path, s.other),
    "head deleted": lambda s: s.head.unlink(),
    "head cut to nothing": lambda s: cut(s.head, 0),
    "head cut in half": lambda s: cut(s.head, 0.5),
    "head put back": lambda s: write_over(s.head, head_file(s.old)),
    "head put back by renaming": lambda s: rename_over(s.head, head_file(s.old)),
    "head of another": lambda s: write_over(s.head, head_file(s.other)),
    "head is notes": lambda s: s.head.write_text("These are notes. " * 500),
}
CALLS: dict[str, Callable[[Ledger], object]] = {
    "spend": lambda at: at.spend(key(9), 0.1, **TERMS),
    "unsound": lambda at: at.spend_unsound(key(9), mechanism="old", allowed=True),
    "commit": lambda at: at.commit(key(9), b"r", NOISED, {}, paid=False),
    "reply": lambda at: at.reply(key(0)),
    "refuse": lambda at: at.refuse(key(9), "forbidden"),
    "summed": lambda at: at.summed(key(9), frozenset("abc")),
    "sums": lambda at: at.sums("cohort"),
    "budget": lambda at: at.budget("cohort"),
    "set_budget": lambda at: at.set_budget("cohort", Budget(9.0, 1e-6)),
    "totals": lambda at: at.totals("cohort"),
    "meter": lambda at: at.meter("cohort"),
    "open_run": lambda at: at.open_run("cohort", "new", study="s", coordinator="c"),
    "abort": lambda at: at.abort("cohort", "run", 0, "scatter"),
    "held": lambda at: at.held("cohort"),
    "is_aborted": lambda at: at.is_aborted("cohort", "run"),
    "forget": lambda at: at.forget_replies("run"),
    "datasets": lambda at: at.datasets,
    "head": lambda at: at.head,
    "events": lambda at: at.events,
    "verify": lambda at: at.verify(),
}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.mark.parametrize("how", TAMPERINGS)
def test_while_running_it_is_noticed_and_stays_noticed(how: str, scene: Scene) -> None:
    TAMPERINGS[how](scene)
    for name in ("reply", "spend"):
        with pytest.raises(Broken):
            CALLS[name](scene.ledger)
    scene.restore()
    for call in CALLS.values():
        with pytest.raises(Broken):
            call(scene.ledger)
    scene.ledger.close()
    with Ledger(scene.path) as again:
        assert again.totals("cohort").spends == 3
        assert again.verify().intact


@pytest.mark.parametrize("how", TAMPERINGS)
@pytest.mark.parametrize("create", [False, True])
def test_between_starts_it_is_noticed_until_the_right_file_is_back(
    how: str, create: bool, scene: Scene
) -> None:
    scene.ledger.close()
    TAMPERINGS[how](scene)
    for _ in range(2):
        with pytest.raises(Broken):
            Ledger(scene.path, create=create)
    scene.restore()
    with Ledger(scene.path) as again:
        assert again.totals("cohort").spends == 3


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("how", ["put back by copying", "put back by renaming", "deleted"])
def test_whatever_is_called_first_notices(how: str, call: str, scene: Scene) -> None:
    TAMPERINGS[how](scene)
    with pytest.raises(Broken):
        CALLS[call](scene.ledger)


def test_break_9_an_old_copy_over_a_running_site_s_gives_no_budget_back(scene: Scene) -> None:
    write_over(scene.path, scene.old)
    for round_ in range(3, 9):
        with pytest.raises(Broken, match="Nothing may leave"):
            scene.ledger.spend(key(round_), 0.1, **TERMS)


def test_an_error_that_somebody_keeps_holds_no_lock(scene: Scene) -> None:
    write_over(scene.path, scene.other)
    with pytest.raises(Broken) as kept:
        scene.ledger.spend(key(3), 0.1, **TERMS)
    scene.restore()
    with Ledger(scene.path, timeout_s=0.0) as again:
        answer(again, 3)
    assert kept.value.__traceback__ is not None


def test_nothing_is_written_into_what_was_put_in_its_place(scene: Scene) -> None:
    rename_over(scene.path, scene.old)
    with pytest.raises(Broken):
        scene.ledger.spend(key(3), 0.1, **TERMS)
    assert scene.path.read_bytes() == scene.old.read_bytes()
    assert scene.head.read_bytes() == head_file(scene.right).read_bytes()


def test_a_true_copy_by_renaming_lets_nothing_be_written_to_the_lost_file(scene: Scene) -> None:
    rename_over(scene.path, scene.right)
    with pytest.raises(Refusal, match="SQLITE_READONLY_DBMOVED"):
        scene.ledger.spend(key(3), 0.1, **TERMS)
    with Ledger(scene.path) as again:
        answer(again, 3)
    with pytest.raises(Broken):
        scene.ledger.totals("cohort")


def test_a_deleted_ledger_is_not_begun_anew(scene: Scene) -> None:
    scene.ledger.close()
    scene.path.unlink()
    with pytest.raises(Mismatch, match="the ledger was deleted"):
        Ledger(scene.path, create=True)
    assert not scene.path.exists()


def test_the_head_is_that_of_the_last_event_after_every_call(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger(path, create=True)
    witness = Witness(str(head_file(path)), str(path), 1.0)
    for call in (None, "set_budget", "spend", "refuse", "open_run", "abort", "totals", "forget"):
        if call is not None:
            CALLS[call](ledger)
        head = witness.read()
        assert head is not None
        assert (head.number, head.hash.hex()) == (len(ledger.events), ledger.head)


def test_heads_only_go_forward(tmp_path: Path) -> None:
    (tmp_path / "l").touch()
    witness = Witness(str(tmp_path / "l.head"), str(tmp_path / "l"), 1.0)
    assert witness.read() is None
    for number in (3, 5, 4):
        witness.keep(Head("id", number, bytes([number]) * 32))
    assert witness.read() == Head("id", 5, bytes([5]) * 32)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["l", "l.head"]


class Crash(BaseException):
    """The process ends here."""


def crash(witness: Witness, head: Head) -> None:
    raise Crash


@pytest.mark.parametrize("call", ["set_budget", "spend", "refuse", "summed", "open_run", "abort"])
def test_a_crash_before_the_head_is_written_is_made_good_at_the_next_start(
    call: str, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(scene.ledger.events)
    with monkeypatch.context() as patch:
        patch.setattr(Witness, "keep", crash)
        with pytest.raises(Crash):
            CALLS[call](scene.ledger)
        scene.ledger.close()
        with pytest.raises(Crash):
            Ledger(scene.path)
    with Ledger(scene.path) as ledger:
        assert len(ledger.events) == before + 1
        answer(ledger, 3)
        assert ledger.verify().witnessed


@pytest.mark.parametrize("version", [1, 3])
def test_a_crash_before_the_first_head_is_made_good(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger"
    if version == 1:
        write_old_format(path)
    with monkeypatch.context() as patch:
        patch.setattr(Witness, "keep", crash)
        for _ in range(2):
            with pytest.raises(Crash):
                Ledger(path, create=version == 3)
    assert not head_file(path).exists()
    with Ledger(path) as ledger:
        answer(ledger, 0)
        assert ledger.verify().witnessed


def test_a_refused_head_refuses_the_call_and_the_event_counts(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = Witness.keep

    def fail(witness: Witness, head: Head) -> None:
        raise Refusal("ledger", "The disk is full.")

    monkeypatch.setattr(Witness, "keep", fail)
    for _ in range(3):
        with pytest.raises(Refusal, match="The disk is full"):
            scene.ledger.spend(key(3), 0.1, **TERMS)
    monkeypatch.setattr(Witness, "keep", keep)
    assert scene.ledger.totals("cohort").spends == 4
    scene.ledger.close()
    with Ledger(scene.path) as again:
        assert again.totals("cohort").spends == 4


def test_a_reply_is_not_given_out_before_its_event_is_covered(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = Witness.keep

    def fail(witness: Witness, head: Head) -> None:
        raise Refusal("ledger", "The disk is full.")

    scene.ledger.spend(key(3), 0.1, **TERMS)
    second = Ledger(scene.path)
    monkeypatch.setattr(Witness, "keep", fail)
    with pytest.raises(Refusal, match="The disk is full"):
        scene.ledger.commit(key(3), b"reply", NOISED, {}, paid=True)
    for ledger in (scene.ledger, second):
        with pytest.raises(Refusal, match="The disk is full"):
            ledger.reply(key(3))
    monkeypatch.setattr(Witness, "keep", keep)
    assert second.reply(key(3)) == b"reply"


def test_the_head_may_be_kept_elsewhere(tmp_path: Path) -> None:
    path, witness = tmp_path / "ledger", tmp_path / "other disk" / "head"
    witness.parent.mkdir()
    with Ledger(path, create=True, witness=witness) as ledger:
        answer(ledger, 0)
        assert ledger.verify().witnessed
    assert not head_file(path).exists()
    assert witness.stat().st_mode & 0o777 == 0o600
    with pytest.raises(Mismatch, match="the head file is missing"):
        Ledger(path)
    with Ledger(path, witness=str(witness)) as ledger:
        assert ledger.totals("cohort").spends == 1


def test_looking_needs_no_head(scene: Scene) -> None:
    scene.ledger.close()
    scene.head.unlink()
    with Ledger(scene.path, readonly=True) as ledger:
        verdict = ledger.verify()
        assert (verdict.intact, verdict.witnessed) == (True, False)
        assert ledger.totals("cohort").spends == 3
    assert not scene.head.exists()


def test_verifying_finds_what_does_not_go_with_the_head(scene: Scene) -> None:
    scene.ledger.close()
    for tamper in ("put back by copying", "replaced by another in place", "head is notes"):
        scene.restore()
        TAMPERINGS[tamper](scene)
        with Ledger(scene.path, readonly=True) as ledger:
            assert not ledger.verify().intact


def write_old_format(path: Path, events: int = 3) -> None:
    """Write a ledger as release 0.1 did."""
    whats: list[What] = [Opened(1, "00ff"), Budgeted("cohort", Budget(1.0, 1e-6))]
    whats += [Refused(key(round_), "forbidden") for round_ in range(events - 2)]
    connection = sqlite3.connect(path)
    for name, statement in _SCHEMA.items():
        if name != "memory":
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute("PRAGMA user_version = 1")
    head = BEFORE_FIRST
    for number, what in enumerate(whats, start=1):
        body = Event(number, "2026-11-15T12:00:00+00:00", what).to_bytes()
        head = chain_hash(head, body)
        connection.execute("INSERT INTO events VALUES (?, ?, ?)", (number, body, head))
    connection.commit()
    connection.close()


def test_a_ledger_of_release_0_1_opens_and_then_must_have_its_head(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    write_old_format(path)
    before = path.read_bytes()
    with Ledger(path, readonly=True) as ledger:
        assert ledger.budget("cohort") == Budget(1.0, 1e-6)
        assert ledger.verify().intact
    assert path.read_bytes() == before
    assert not head_file(path).exists()
    with Ledger(path) as ledger:
        assert [event.kind for event in ledger.events][-2:] == [Kind.REFUSED, Kind.UPGRADED]
        assert ledger.events[-1].what == Upgraded(3)
        answer(ledger, 1)
    with Ledger(path) as ledger:
        assert [event.kind for event in ledger.events].count(Kind.UPGRADED) == 1
        assert ledger.verify().witnessed
    right = path.read_bytes()
    path.write_bytes(before)
    with pytest.raises(Mismatch):
        Ledger(path)
    path.write_bytes(right)
    head_file(path).unlink()
    with pytest.raises(Mismatch, match="the head file is missing"):
        Ledger(path)


def test_two_processes_eyes_keep_one_head(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledgers = [Ledger(path, create=True), Ledger(path)]
    for round_ in range(6):
        answer(ledgers[round_ % 2], round_)
        assert ledgers[(round_ + 1) % 2].reply(key(round_)) == b"reply"
    head = Witness(str(head_file(path)), str(path), 1.0).read()
    assert head is not None
    assert (head.number, head.hash.hex()) == (13, ledgers[0].head)


def test_other_tables_in_the_head_file_are_refused(scene: Scene) -> None:
    connection = sqlite3.connect(scene.head)
    connection.execute("INSERT INTO head SELECT * FROM head")
    connection.commit()
    connection.close()
    with pytest.raises(DataError, match="its head file is not a valid head file"):
        scene.ledger.totals("cohort")


def write_format_2(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a ledger as releases 0.2 and 0.3 did, with its head file."""
    with monkeypatch.context() as patch:
        patch.setattr("eigenfed.privacy.ledger.event_log.VERSION", 2)
        Ledger(path, create=True).close()
    connection = sqlite3.connect(path)
    connection.execute("DROP TABLE memory")
    connection.execute("PRAGMA user_version = 2")
    connection.commit()
    connection.close()


@pytest.mark.parametrize("version", [1, 2])
def test_a_ledger_of_an_older_release_remembers_runs_once_it_is_opened(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger"
    if version == 1:
        write_old_format(path)
    else:
        write_format_2(path, monkeypatch)
    with Ledger(path, readonly=True) as ledger:
        assert not any(isinstance(event.what, Upgraded) for event in ledger.events)
    with Ledger(path) as ledger:
        assert ledger.events[-1].what == Upgraded(3)
        assert ledger.open_run(
            "cohort", "run", study="9f86", coordinator="d75a", remember=(b"opening", b"secret")
        )
    with Ledger(path) as ledger:
        found = ledger.recall("cohort", "run")
        assert found is not None
        assert (found.opening, found.secret, found.requests) == (b"opening", b"secret", ())
        ledger.forget_run("cohort", "run")
        assert ledger.recall_names("cohort") == ()
        assert ledger.verify().intact
    assert b"opening" not in path.read_bytes()
