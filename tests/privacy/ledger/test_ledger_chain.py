"""What was changed in a ledger is found, and what is no ledger of ours is not touched."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eigenfed.errors import DataError
from eigenfed.privacy.ledger.entries import ReplyKey
from eigenfed.privacy.ledger.events import BEFORE_FIRST, Event, Opened, chain_hash
from eigenfed.privacy.ledger.ledger import Budget, Ledger, Refusal
from eigenfed.privacy.release import Leaves, Release, Reveals

EXACT = Release("scatter", "d x d", Leaves.EXACT, Reveals.SCATTER)
TERMS: dict[str, Any] = {
    "sensitivity": 1.0,
    "sd": 10.0,
    "relation": "replace_one",
    "mechanism": "gaussian",
}
LAST = 9
Rows = list[tuple[int, bytes, bytes]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger of nine events: opened, budgeted, refused, and thrice spent and replied."""
    path = tmp_path / "ledger"
    with Ledger(path, create=True) as ledger:
        ledger.set_budget("cohort", Budget(1.0, 1e-6))
        ledger.refuse(key(0), "forbidden")
        for round_ in range(1, 4):
            ledger.spend(key(round_), 0.1, **TERMS)
            shapes = {"scatter": (2, 2)}
            ledger.commit(
                key(round_), b"reply", EXACT, shapes, paid=True, meter=lambda kept: b"meter"
            )
    return path


def head_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.head")


def key(round_: int) -> ReplyKey:
    return ReplyKey("cohort", "run", round_, "scatter", ask_digest="ask")


def tamper(path: Path, change: Callable[[Rows], Rows]) -> None:
    """Write other events past the triggers, as somebody with an editor would."""
    connection = sqlite3.connect(path)
    triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
    kept = triggers.fetchall()
    for name, _ in kept:
        connection.execute(f"DROP TRIGGER {name}")
    rows = connection.execute("SELECT number, body, hash FROM events ORDER BY number").fetchall()
    connection.execute("DELETE FROM events")
    connection.executemany("INSERT INTO events VALUES (?, ?, ?)", change(rows))
    for _, sql in kept:
        connection.execute(sql)
    connection.commit()
    connection.close()


def lessened(body: bytes) -> bytes:
    assert b'"mu":0.1,' in body
    return body.replace(b'"mu":0.1,', b'"mu":0.10000000000000002,')


def change_one(rows: Rows) -> Rows:
    number, body, hash_ = rows[3]
    return [*rows[:3], (number, lessened(body), hash_), *rows[4:]]


def change_one_with_its_hash(rows: Rows) -> Rows:
    number, body, _ = rows[3]
    return [
        *rows[:3],
        (number, lessened(body), chain_hash(rows[2][2], lessened(body))),
        *rows[4:],
    ]


def remove_one(rows: Rows) -> Rows:
    return rows[:3] + rows[4:]


def remove_one_and_count_anew(rows: Rows) -> Rows:
    return rows[:3] + [(number - 1, body, hash_) for number, body, hash_ in rows[4:]]


def swap_two(rows: Rows) -> Rows:
    (a, *fourth), (b, *fifth) = rows[3], rows[4]
    return [*rows[:3], (a, *fifth), (b, *fourth), *rows[5:]]  # type: ignore[list-item]


def insert_one(rows: Rows) -> Rows:
    later = [(number + 1, body, hash_) for number, body, hash_ in rows[3:]]
    return [*rows[:3], (4, rows[3][1], rows[3][2]), *later]


def insert_with_its_hash(rows: Rows) -> Rows:
    event = Event.from_bytes(rows[2][1])
    body = Event(4, event.when, event.what).to_bytes()
    later = [(number + 1, body, hash_) for number, body, hash_ in rows[3:]]
    return [*rows[:3], (4, body, chain_hash(rows[2][2], body)), *later]


def spoil_one(rows: Rows) -> Rows:
    return [*rows[:3], (4, b"{}", rows[3][2]), *rows[4:]]


def remove_first(rows: Rows) -> Rows:
    return rows[1:]


def remove_all(rows: Rows) -> Rows:
    return []


@pytest.mark.parametrize(
    ("change", "at", "why"),
    [
        (change_one, 4, "was changed"),
        (change_one_with_its_hash, 5, "or the event before it, was changed"),
        (remove_one, 4, "it is missing"),
        (remove_one_and_count_anew, 4, "it was written as event 5"),
        (swap_two, 4, "it was written as event 5"),
        (insert_one, 5, "it was written as event 4"),
        (insert_with_its_hash, 5, "it was written as event 4"),
        (spoil_one, 4, "not a valid event"),
        (remove_first, 1, "it is missing"),
        (remove_all, 1, "it is missing"),
    ],
)
def test_verifying_names_the_event_at_which_the_chain_breaks(
    change: Callable[[Rows], Rows], at: int, why: str, path: Path
) -> None:
    tamper(path, change)
    with Ledger(path, readonly=True) as ledger:
        verdict = ledger.verify()
        assert not verdict.intact
        assert (verdict.broken_at, verdict.events) == (at, at - 1)
        assert why in verdict.why
        assert verdict.text.startswith(f"Broken at event {at}: ")
    with pytest.raises(DataError, match=f"broken at event {at}: .* Nothing may be spent on it"):
        Ledger(path)


def test_a_second_beginning_is_no_part_of_a_chain(path: Path) -> None:
    def begin_again(rows: Rows) -> Rows:
        body = Event(LAST + 1, "2026-11-15T12:00:00+00:00", Opened(1, "id")).to_bytes()
        return [*rows, (LAST + 1, body, chain_hash(rows[-1][2], body))]

    tamper(path, begin_again)
    with Ledger(path, readonly=True) as ledger:
        assert ledger.verify().broken_at == LAST + 1


def test_a_sound_ledger_verifies_with_every_head_that_it_ever_had(path: Path) -> None:
    with Ledger(path) as ledger:
        first = ledger.head
        verdict = ledger.verify()
        assert (verdict.intact, verdict.events, verdict.head) == (True, LAST, first)
        assert verdict.text == f"{LAST} events, intact, up to head {first}."
        ledger.refuse(key(9), "forbidden")
        assert ledger.head != first
        assert ledger.verify(head=first).intact
        assert ledger.verify(head=ledger.head).intact
        assert not ledger.verify(head="00" * 32).intact


def test_a_cut_end_is_found_against_a_noted_head_only(path: Path) -> None:
    with Ledger(path, readonly=True) as ledger:
        noted = ledger.head
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM replies WHERE round = 3")
    connection.commit()
    connection.close()
    tamper(path, lambda rows: rows[:-2])
    with Ledger(path, readonly=True) as ledger:
        verdict = ledger.verify()
        assert (verdict.broken_at, verdict.witnessed) == (LAST - 1, True)
        assert "head in the head file is not in the chain" in verdict.why
    head_file(path).unlink()
    with Ledger(path, readonly=True) as ledger:
        assert ledger.verify().intact
        verdict = ledger.verify(head=noted)
    assert verdict.broken_at == LAST - 1
    assert "the given head is not in the chain" in verdict.why


def test_a_chain_written_anew_is_found_against_a_noted_head_only(path: Path) -> None:
    def rewritten(rows: Rows) -> Rows:
        found, head = [], BEFORE_FIRST
        for number, body, _ in rows:
            body = lessened(body) if number == 4 else body
            head = chain_hash(head, body)
            found.append((number, body, head))
        return found

    with Ledger(path, readonly=True) as ledger:
        noted = ledger.head
    tamper(path, rewritten)
    with Ledger(path, readonly=True) as ledger:
        assert not ledger.verify().intact
    head_file(path).unlink()
    with Ledger(path, readonly=True) as ledger:
        assert ledger.verify().intact
        assert not ledger.verify(head=noted).intact


def test_events_that_vanish_under_an_open_ledger_stop_it(path: Path) -> None:
    with Ledger(path) as ledger:
        tamper(path, lambda rows: rows[:-2])
        with pytest.raises(DataError, match="it was present before and is missing now"):
            ledger.spend(key(4), 0.1, **TERMS)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET body = x'00' WHERE number = 2",
        "DELETE FROM events WHERE number = 9",
        "DELETE FROM events",
        "INSERT OR REPLACE INTO events SELECT 2, body, hash FROM events WHERE number = 1",
        "INSERT INTO events SELECT 11, body, hash FROM events WHERE number = 1",
        "INSERT INTO events SELECT NULL, body, hash FROM events WHERE number = 1",
    ],
)
def test_the_file_itself_lets_events_be_added_and_nothing_else(statement: str, path: Path) -> None:
    connection = sqlite3.connect(path)
    before = connection.execute("SELECT * FROM events").fetchall()
    with pytest.raises(sqlite3.IntegrityError, match="an event"):
        connection.execute(statement)
    assert connection.execute("SELECT * FROM events").fetchall() == before
    connection.close()


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("UPDATE replies SET data = x'00' WHERE round = 2", "the reply stored with it was changed"),
        ("INSERT INTO replies VALUES ('cohort', 'run', 2, 1, x'00')", "the reply stored with it"),
        ("INSERT INTO replies VALUES ('cohort', 'run', 8, 0, x'00')", "has no event"),
        ("UPDATE meters SET data = x'00'", "a stored meter"),
        ("DELETE FROM meters", "a stored meter"),
        ("INSERT INTO meters VALUES ('other', x'00')", "a stored meter"),
    ],
)
def test_kept_replies_and_meters_are_those_of_the_events(
    statement: str, why: str, path: Path
) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()
    with Ledger(path) as ledger:
        verdict = ledger.verify()
        assert why in verdict.why
        assert verdict.broken_at == (7 if "stored with it" in why else LAST)
        if "WHERE round = 2" in statement:
            with pytest.raises(DataError, match="stored reply was changed"):
                ledger.reply(key(2))
        if "meters SET" in statement or "DELETE FROM meters" in statement:
            with pytest.raises(DataError, match="stored meter was changed"):
                ledger.meter("cohort")


def with_pragma(path: Path, pragma: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA {pragma}")
    connection.commit()
    connection.close()


@pytest.mark.parametrize("readonly", [False, True])
def test_another_format_is_refused_naming_both(readonly: bool, path: Path) -> None:
    with_pragma(path, "user_version = 4")
    before = path.read_bytes()
    with pytest.raises(DataError, match="has format 4 and this release reads formats 1, 2, 3"):
        Ledger(path, readonly=readonly)
    assert path.read_bytes() == before


@pytest.mark.parametrize("readonly", [False, True])
def test_another_program_s_file_is_refused_naming_both(readonly: bool, tmp_path: Path) -> None:
    path = tmp_path / "foreign"
    with_pragma(path, "application_id = 12")
    before = path.read_bytes()
    with pytest.raises(DataError, match="has the application id 0xc and a ledger has 0x45464c47"):
        Ledger(path, readonly=readonly)
    assert path.read_bytes() == before


def test_a_file_with_tables_of_its_own_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "foreign"
    with_pragma(path, "user_version = 0")
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE patients (name TEXT)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(DataError, match="application id 0x0 "):
        Ledger(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("readonly", [False, True])
def test_what_is_no_database_is_refused(readonly: bool, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("These are notes. " * 100)
    with pytest.raises(DataError, match=r"is not a valid SQLite file \(SQLITE_NOTADB\)"):
        Ledger(path, readonly=readonly)
    assert path.read_text() == "These are notes. " * 100


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TRIGGER no_change",
        "CREATE TRIGGER more AFTER INSERT ON meters BEGIN DELETE FROM replies; END",
        "CREATE TABLE notes (text TEXT)",
        "ALTER TABLE events ADD COLUMN note TEXT",
    ],
)
def test_tables_and_triggers_that_were_changed_are_refused(statement: str, path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()
    with pytest.raises(DataError, match="are not those of format 3: they were changed"):
        Ledger(path)


def test_a_ledger_that_was_put_on_another_journal_is_refused(path: Path) -> None:
    with_pragma(path, "journal_mode = WAL")
    with pytest.raises(DataError, match=r"journal .* not those of format 3"):
        Ledger(path)


def test_where_there_is_no_ledger_only_creating_makes_one(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    for create, readonly in ((False, False), (True, True)):
        remedy = f"There is no ledger at {path}. .* eigenfed ledger create {path}$"
        with pytest.raises(Refusal, match=remedy) as refusal:
            Ledger(path, create=create, readonly=readonly)
        assert refusal.value.code == "ledger"
        assert not path.exists()
    path.touch()
    with pytest.raises(Refusal, match=remedy):
        Ledger(path)
    with pytest.raises(Refusal, match=remedy):
        Ledger(path, create=False)
    with pytest.raises(DataError, match="application id 0x0 "):
        Ledger(path, readonly=True)
    with Ledger(path, create=True) as ledger:
        assert ledger.verify().events == 1
    with Ledger(path, create=False) as ledger:
        assert ledger.verify().events == 1
    with pytest.raises(Refusal, match="SQLITE_CANTOPEN"):
        Ledger(tmp_path / "absent" / "ledger", create=True)
    for create in (False, True):
        with pytest.raises(Refusal, match="SQLITE_CANTOPEN"):
            Ledger(tmp_path, create=create)


def test_names_with_signs_of_addresses_are_names(tmp_path: Path) -> None:
    path = tmp_path / "a b?mode=memory&x=%41#é.ledger"
    Ledger(str(path), create=True).close()
    found = sorted(found.name for found in tmp_path.iterdir())
    assert found == [path.name, f"{path.name}.head"]
    with Ledger(path, readonly=True) as ledger:
        assert ledger.verify().intact


def test_a_ledger_opened_for_reading_or_closed_records_nothing(path: Path) -> None:
    before = path.read_bytes()
    ledger = Ledger(path, readonly=True)
    assert ledger.totals("cohort").spends == 3
    for write in (
        lambda: ledger.spend(key(4), 0.1, **TERMS),
        lambda: ledger.refuse(key(4), "forbidden"),
        lambda: ledger.forget_replies("run"),
    ):
        with pytest.raises(Refusal, match="opened for reading only") as refusal:
            write()
        assert refusal.value.code == "ledger"
    assert path.read_bytes() == before
    ledger.close()
    with pytest.raises(Refusal, match="ProgrammingError"):
        ledger.totals("cohort")


def test_ledgers_differ_from_their_first_event_on(tmp_path: Path) -> None:
    heads = {Ledger(tmp_path / name, create=True).head for name in "abc"}
    assert len(heads) == 3
