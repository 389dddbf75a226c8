"""Progress: what a run's asks tell, and what is shown of it."""

import io
import time
from collections.abc import Iterator

import pytest
from rich.console import Console

from eigenfed.cli import progress
from eigenfed.cli.progress import Rounds, show_progress
from eigenfed.transport.rounds import RoundRecord


def asked(round_: int, angle: float | None = None) -> RoundRecord:
    return RoundRecord(round_, "product", {"a": 400}, {"a": 600}, angle=angle)


def ticking() -> Iterator[float]:
    now = 0.0
    while True:
        yield now
        now += 3.0


@pytest.fixture
def rounds() -> Rounds:
    clock = ticking()
    return Rounds(tol=1e-8, clock=lambda: next(clock))


def test_before_the_first_answer_rows_are_read(rounds: Rounds) -> None:
    assert rounds.text == "reading rows"
    assert rounds.done is None


def test_without_angles_nothing_is_said_of_the_time_left(rounds: Rounds) -> None:
    for number in range(3):
        rounds.add(asked(number))
    assert rounds.text == "round 3, product; 3.0 kB"
    assert rounds.left_s is None


def test_time_left_follows_how_angles_fall(rounds: Rounds) -> None:
    for number, angle in enumerate([1e-2, 1e-3, 1e-4]):
        rounds.add(asked(number, angle))
    assert rounds.done == pytest.approx(2 / 6)
    assert rounds.left_s == pytest.approx(12.0)
    assert rounds.text.endswith("within 1.0e-04 degrees; 3.0 kB; about 12 s left")


@pytest.mark.parametrize("later", [1e-2, 1.0, 0.0, float("inf")])
def test_angles_that_do_not_fall_tell_nothing(rounds: Rounds, later: float) -> None:
    rounds.add(asked(0, 1e-2))
    rounds.add(asked(1, later))
    assert rounds.left_s is None


def test_what_is_done_is_done(rounds: Rounds) -> None:
    for number, angle in enumerate([1e-2, 1e-9]):
        rounds.add(asked(number, angle))
    assert rounds.done == 1.0
    assert rounds.left_s == 0.0


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=100)
    monkeypatch.setattr("rich.console.Console", lambda **_: console)
    return written


def test_what_is_over_in_a_second_shows_nothing(screen: io.StringIO) -> None:
    with show_progress(lambda: "never seen"):
        pass
    assert screen.getvalue() == ""


def test_a_line_and_a_bar_are_shown(screen: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_AFTER_S", 0.0)
    with show_progress(lambda: "round 4", lambda: 0.5):
        for _ in range(200):
            if "round 4" in screen.getvalue():
                break
            time.sleep(0.02)
    assert "round 4" in screen.getvalue()
    assert 8 * "━" in screen.getvalue()
