"""``eigenfed plan``: options in, a forecast out."""

from pathlib import Path

import pytest

from command_line import answer, eigenfed

THREE = ("plan", "--rows", "3000,900,150", "--features", "120", "-k", "4")
FILE = """
name = "heart"
sites = ["north", "south", "island"]
components = 4
[privacy]
epsilon = 1.0
delta = 1e-6
[expected]
rows = { north = 3000, south = 900, island = 150 }
features = 50
decay = 0.9
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(FILE)
    return path


def test_options_alone_are_enough() -> None:
    found = answer(*THREE, "--method", "krylov", "--decay", 0.9)
    assert (found["n"], found["d"], found["k"], found["method"]) == (4050, 120, 4, "krylov")
    (case,) = found["cases"]
    assert found["rounds"] == [case["traffic"]["rounds"]] * 2
    assert 0 < case["rank_fraction"] < 1
    assert case["kept"] is None
    assert found["verdict"].startswith(f"{found['rounds'][0]} rounds")


def test_without_a_spectrum_the_page_has_three_columns_and_says_why() -> None:
    run = eigenfed(*THREE, "--method", "krylov")
    assert run.exit_code == 0
    assert "eigenvalues                steep" in run.stdout
    assert "three spectra are assumed" in run.stdout
    assert max(map(len, run.stdout.splitlines())) <= 100
    alike = eigenfed(*THREE, "--method", "covariance").stdout
    assert "spectra" not in alike
    assert "rounds                     2\n" in alike


def test_all_of_a_variance_is_written_as_a_percentage() -> None:
    run = eigenfed("plan", "--rows", 1000, "--features", 1, "-k", 1)
    assert "explains up to 100% of" in " ".join(run.stdout.split())


def test_why_a_private_run_would_fail_names_no_python() -> None:
    call = ("--rows", "100,50,40", "--features", 5, "-k", 2, "--epsilon", 0.1, "--delta", 1e-6)
    text = " ".join(eigenfed("plan", *call).stdout.split())
    assert "or avoid the search for a radius: give a public clip and set scree = 0.0 among" in text
    assert "{'scree'" not in text


def test_a_study_file_is_read_and_options_replace_it(study: Path) -> None:
    found = answer("plan", study)
    assert found["sites"] == {"north": 3000, "south": 900, "island": 150}
    assert found["privacy"]["epsilon"] == 1.0
    weak = found["cases"][0]["kept"]["captured"]
    strong = answer("plan", study, "--epsilon", 8, "--rows", "30000,9000,1500")
    assert strong["privacy"] == found["privacy"] | {"epsilon": 8.0}
    assert strong["n"] == 40500
    assert strong["cases"][0]["kept"]["captured"] > weak
    named = answer("plan", study, "--rows", "island=10,north=2000,south=3000", "-k", 2)
    assert (named["n"], named["k"]) == (5010, 2)


def test_a_file_of_eigenvalues_is_a_spectrum(tmp_path: Path) -> None:
    path = tmp_path / "spectrum.txt"
    path.write_text("\n".join(str(0.5**i) for i in range(60)))
    given = answer(*THREE, "--method", "krylov", "--spectrum", path)
    same = answer(*THREE, "--method", "krylov", "--decay", 0.5)
    assert given["rounds"] == same["rounds"]
    assert given["above_noise"] == same["above_noise"] == 6
    assert 1 / 120 < given["noise_share"] < 2 / 120


def test_the_link_makes_time(study: Path) -> None:
    slow = answer("plan", study, "--latency-ms", 500, "--bandwidth-mbps", 1)
    assert slow["cases"][0]["seconds"] > 0.5 * slow["rounds"][0]
    run = eigenfed("plan", study, "--latency-ms", 500)
    assert "pass --bandwidth-mbps" in run.stdout.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        ((), "--rows is missing", 2),
        (("--rows", "30"), "--features is missing", 2),
        (("--rows", "30", "--features", "3"), "-k is missing", 2),
        (("--rows", "30,x", "--features", "3", "-k", "1"), "must be integers", 2),
        (("--rows", "a=30,40", "--features", "3", "-k", "1"), "must be integers", 2),
        (("--rows", "a=30,a=40", "--features", "3", "-k", "1"), "once", 2),
        (("--rows", "30,0", "--features", "3", "-k", "1"), "at least 1", 2),
        (("--rows", "30,40", "--features", "3", "-k", "4"), "-k 4 must be at most 3", 2),
        (
            ("--rows", "30,40", "--features", "3", "-k", "1", "--epsilon", "1"),
            "requires --delta",
            2,
        ),
        (("--rows", "9,9", "--features", "3", "-k", "1", "--secure"), "--secure needs 3 sites", 3),
        (("--rows", "9", "--features", "3", "-k", "1", "--delta", "1e-6"), "requires --epsilon", 2),
        (("--rows", "9", "--features", "3", "-k", "1", "--offset", "3"), "requires --epsilon", 2),
    ],
)
def test_a_wrong_call_is_one_line(arguments: tuple[str, ...], words: str, code: int) -> None:
    run = eigenfed("plan", *arguments)
    assert (run.exit_code, run.stdout) == (code, "")
    assert words in run.stderr
    assert run.stderr.count("\n") == 1


def test_rows_must_be_of_the_studys_sites(study: Path) -> None:
    for rows in ("1,2", "north=1,south=2,west=3"):
        run = eigenfed("plan", study, "--rows", rows)
        assert run.exit_code == 2
        assert "sites" in run.stderr


def test_a_spectrum_is_given_once(tmp_path: Path, study: Path) -> None:
    path = tmp_path / "spectrum.txt"
    path.write_text("2\n1\n")
    run = eigenfed("plan", study, "--spectrum", path, "--decay", 0.5)
    assert run.exit_code == 2
    assert "Pass one of them" in run.stderr


@pytest.mark.parametrize(
    ("asked", "more", "expected"),
    [("0.9", ["--decay", "0.5"], 4), ("auto", ["--decay", "0.5"], 3), ("all", [], 20)],
)
def test_a_number_that_follows_from_the_data_is_expected(
    asked: str, more: list[str], expected: int
) -> None:
    run = eigenfed("plan", "--rows", "500,400", "--features", 20, "-k", asked, *more)
    assert run.exit_code == 0
    assert run.stdout.startswith(f"{expected} components of 900 rows")
    assert ("follows from the data" in run.stdout) is (asked != "all")


def test_such_a_number_rests_on_assumed_eigenvalues_and_is_refused_under_privacy() -> None:
    given = ["plan", "--rows", "500,400", "--features", 20, "-k", "0.9"]
    text = " ".join(eigenfed(*given).stdout.split())
    assert "-k 0.9 gives 14 components with eigenvalues proportional to 1/i" in text
    run = eigenfed(*given, "--epsilon", 1, "--delta", "1e-6")
    assert (run.exit_code, "-k 0.9 cannot be combined with privacy" in run.stderr) == (3, True)
