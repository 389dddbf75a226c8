"""Errors of files: each problem with its line, those that matter first, and never too many."""

from pathlib import Path

import pytest

from eigenfed.errors import DataError
from eigenfed.study.config import read_site, read_study

BASE = 'name = "heart"\nsites = ["north", "south", "island"]\ncomponents = 4\n'


def problems_of(folder: Path, text: str) -> list[str]:
    path = folder / "study.toml"
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        read_study(path)
    return str(caught.value).replace(str(path), "FILE").split("\n")


def test_every_problem_is_told_with_its_line(tmp_path: Path) -> None:
    assert problems_of(tmp_path, BASE + "seed = -1\ncenter = 1\n[privacy]\nepsilon = 0\n") == [
        'FILE:5: center = 1 must be true, false or "site". Write true, false or "site".',
        "FILE:4: seed = -1 must be an integer from 0 to 4294967295. Set seed = 7, for example.",
        "FILE:7: privacy.epsilon = 0 must be a number above 0 and below 1e+06. "
        "Set epsilon = 1.0, for example.",
        "FILE: There are more problems. Fix these first.",
    ]


def test_unknown_keys_come_first_and_a_key_that_is_misspelt_is_not_also_missing(
    tmp_path: Path,
) -> None:
    found = problems_of(tmp_path, BASE.replace("components", "component") + "seed = -1\n")
    assert found == [
        "FILE:3: 'component' is not a key of this file. Did you mean 'components'? Rename it, or "
        "remove it.",
        "FILE:4: seed = -1 must be an integer from 0 to 4294967295. Set seed = 7, for example.",
    ]


def test_a_key_in_the_wrong_table_is_not_also_missing(tmp_path: Path) -> None:
    assert problems_of(tmp_path, f"delta = 1e-6\n{BASE}[privacy]\nepsilon = 1\n") == [
        "FILE:1: 'delta' is not a key of this file. Move it below [privacy]."
    ]


def test_all_conflicts_are_told(tmp_path: Path) -> None:
    found = problems_of(tmp_path, BASE + 'secure = true\nby_site = true\nmethod = "merge"\n')
    assert [problem.partition(" ")[0] for problem in found] == ["FILE:5:", "FILE:6:"]
    assert "cannot be combined with secure = true" in found[0]
    assert "needs replies of single sites" in found[1]


def test_conflicts_of_a_table_have_the_line_of_its_key(tmp_path: Path) -> None:
    text = f'{BASE}[privacy]\nepsilon = 1\ndelta = 1e-6\ntrust = "local"\ncolluders = 1\n'
    assert problems_of(tmp_path, text) == [
        'FILE:8: in [privacy], colluders = 1 requires trust = "secure_sum". Drop it.'
    ]


def test_a_list_with_many_wrong_entries_is_one_problem(tmp_path: Path) -> None:
    (found,) = problems_of(tmp_path, BASE.replace('"north", "south"', '"a b", "c d", 3'))
    assert found.startswith('FILE:2: sites = ["a b", "c d", 3, "island"] must be a list of names')


def test_what_the_number_of_sites_forbids_is_told_with_its_line(tmp_path: Path) -> None:
    text = f"{BASE}quorum = 9\n[expected]\nrows = {{ west = 3, east = 4 }}\n"
    assert [problem.partition(": ")[2][:26] for problem in problems_of(tmp_path, text)] == [
        "quorum = 9 must be at most",
        "expected.rows names 'east'",
        "expected.rows names 'west'",
    ]
    text = f"{BASE}[privacy]\nepsilon = 1\ndelta = 1e-6\ncolluders = 2\n"
    (found,) = problems_of(tmp_path, text)
    assert found.startswith("FILE:7: privacy.colluders = 2 must be at most 1 with 3 sites")


def test_a_required_table_that_is_absent_is_told_by_its_required_keys(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text("share_scores = true\n")
    with pytest.raises(DataError) as caught:
        read_site(path)
    assert str(caught.value).replace(str(path), "FILE").split("\n") == [
        "FILE: name is required and must be 1 to 64 letters from a to z, digits, - and _, starting "
        'with a letter or digit. Set name = "north", for example.',
        "FILE: data is required and must be the path of a file, in quotes. Set data = "
        '"north.csv", for example.',
        "FILE: policy.min_rows is required and must be an integer of at least 2. Set min_rows = "
        "20 below [policy], for example.",
    ]


def test_very_many_problems_take_no_longer_than_a_few(tmp_path: Path) -> None:
    many = f"sites = [{'1, ' * 100_000}]\n" + "".join(f"key{i} = 1\n" for i in range(20_000))
    assert len(problems_of(tmp_path, many)) == 4
