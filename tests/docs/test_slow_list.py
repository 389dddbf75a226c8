"""The list of slow tests names tests that are there, and leaves something of every area."""

from pathlib import Path

import pytest

from slow import MEASURED, SLOW, is_measured, is_slow

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"


@pytest.mark.parametrize("file", SLOW)
def test_what_is_listed_is_there(file: str) -> None:
    text = (ROOT / file).read_text("utf-8")
    named = (*SLOW[file], *MEASURED.get(file, ()))
    gone = [name for name in named if f"\ndef {name}(" not in text]
    assert not gone, f"tests/slow.py names what {file} has no more"


def test_slow_tests_are_measured_only_if_they_are_listed() -> None:
    assert MEASURED.keys() <= SLOW.keys()
    assert all(is_slow(f"{file}::{name}") for file in MEASURED for name in MEASURED[file])
    file, names = next((file, names) for file, names in MEASURED.items() if names)
    assert is_measured(f"{file}::{names[0]}[a-1]")
    assert is_measured(f"{file}::{names[0]}_too") != is_slow(f"{file}::{names[0]}_too")
    assert is_measured("tests/docs/test_slow_list.py::test_anything")
    unlisted = next(file for file in SLOW if not SLOW[file] and file not in MEASURED)
    assert not is_measured(f"{unlisted}::test_anything")


@pytest.mark.parametrize(
    "area", sorted({path.relative_to(TESTS).parts[0] for path in TESTS.glob("*/**/test_*.py")})
)
def test_every_area_has_files_that_are_not_left_out_whole(area: str) -> None:
    files = sorted((TESTS / area).rglob("test_*.py"))
    kept = [path for path in files if SLOW.get(str(path.relative_to(ROOT)), ("some",))]
    assert kept


def test_a_test_is_slow_with_all_its_parameters_or_with_its_whole_file() -> None:
    file, names = next((file, names) for file, names in SLOW.items() if names)
    whole = next(file for file, names in SLOW.items() if not names)
    assert is_slow(f"{file}::{names[0]}")
    assert is_slow(f"{file}::{names[0]}[a-1]")
    assert is_slow(f"{whole}::test_anything")
    assert not is_slow(f"{file}::{names[0]}_too")
    assert not is_slow("tests/docs/test_slow_list.py::test_anything")
