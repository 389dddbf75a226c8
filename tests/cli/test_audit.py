"""``eigenfed audit``: what an attacker gets, in figures that are checked and in words."""

from pathlib import Path

import numpy as np
import pytest

from command_line import answer, as_csv, as_npy, eigenfed, rows

pytestmark = pytest.mark.usefixtures("seeded_noise")


def wide(n: int, d: int, fall: float) -> "np.ndarray[tuple[int, int], np.dtype[np.float64]]":
    X = np.random.default_rng(1).standard_normal((n, d)) * fall ** np.arange(d)
    return np.asarray(X + 5.0)


def test_reconstruct_tells_how_much_of_the_covariance_is_known(tmp_path: Path) -> None:
    files = as_npy(tmp_path, wide(400, 60, 0.8), ("a", "b"))
    said = answer("audit", "reconstruct", *files, "-k", 2, "--seed", 0)
    assert said["d"] == 60
    assert 2 < said["directions"] < 60
    assert 0.999 < said["correlation"] < 1.0
    assert 0.0 < said["error"] < 0.01
    page = eigenfed("audit", "reconstruct", *files, "-k", 2, "--seed", 0).stdout
    assert f"along {said['directions']} of 60 directions; the rest is estimated" in page
    assert "Secure aggregation does not prevent this" in page


def test_a_flat_covariance_is_harder_to_rebuild(tmp_path: Path) -> None:
    steep = as_npy(tmp_path, wide(400, 60, 0.7), ("a", "b"))
    flat = as_npy(tmp_path, wide(400, 60, 0.99), ("c", "d"))
    call = ("-k", 2, "--method", "randomized", "--seed", 0)
    errors = [answer("audit", "reconstruct", *files, *call)["error"] for files in (steep, flat)]
    assert errors[0] < 0.5 * errors[1] < 0.5


def test_few_features_are_rebuilt_entirely_also_with_missing_entries(tmp_path: Path) -> None:
    table = rows(200)
    table[::7, 3] = np.nan
    files = as_npy(tmp_path, table, ("a", "b"))
    said = answer("audit", "reconstruct", *files, "-k", 2)
    assert (said["directions"], said["d"]) == (6, 6)
    assert said["error"] < 1e-9
    run = eigenfed("audit", "reconstruct", *files, "-k", 7)
    assert run.exit_code == 2
    assert "-k 7 must be at most 6" in run.stderr


def test_the_noise_of_a_site_stays_within_its_claim_and_near_it() -> None:
    said = answer("audit", "epsilon", "--epsilon", 2, "--delta", 1e-3, "--trials", 100_000)
    assert said["refutes"] is False
    assert said["theory"] == pytest.approx(2.0, rel=1e-4)
    assert 1.3 < said["certified"] <= 2.0
    assert 1.6 < said["gaussian"] <= 2.0
    assert "The attacker knows all rows but one" in said["text"]
    assert "times as likely with one candidate" in said["text"]


def test_a_false_claim_of_a_paper_is_refuted() -> None:
    call = ("audit", "epsilon", "--published", "DPdisPCA", "--epsilon", 20, "--delta", 1e-3)
    said = answer(*call, "--trials", 5000, "--rows", 500, "--features", 10)
    assert said["holds"] is False
    assert said["claimed"] == 20.0
    assert said["theory"] > 20.0
    assert said["mu"] > 2.0
    assert "DPdisPCA claims epsilon 20" in said["text"]


@pytest.mark.parametrize(
    "name", ["SuLQ", "ModSuLQ", "AnalyzeGauss", "DPdisPCA", "StreamingModSuLQ"]
)
def test_each_published_mechanism_is_audited_at_its_own_noise(name: str) -> None:
    call = ("audit", "epsilon", "--published", name, "--epsilon", 1, "--delta", 1e-5)
    said = answer(*call, "--trials", 4000, "--features", 2, "--rows", 100)
    assert said["mechanism"] == name
    assert said["certified"] <= said["theory"] + 1e-9
    assert said["gaussian"] <= said["theory"] + 0.05


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--epsilon", "0", "--delta", "0.1"), "--epsilon 0.0 must be"),
        (("--epsilon", "1e40", "--delta", "0.1"), "almost no noise"),
        (("--epsilon", "1", "--delta", "2"), "--delta 2.0 must be"),
        (("--epsilon", "1", "--delta", "0.1", "--rows", "9"), "require --published"),
        (
            ("--epsilon", "1", "--delta", "0.1", "--published", "SuLQ", "--sites", "3"),
            "--sites cannot be combined with --published",
        ),
        (("--epsilon", "1", "--delta", "0.1", "--trials", "9"), "9 is not in the range x>=100"),
        (("--epsilon", "1"), "Missing option '--delta'"),
    ],
)
def test_a_wrong_audit_of_epsilon_exits_with_2(flags: tuple[str, ...], message: str) -> None:
    run = eigenfed("audit", "epsilon", *flags)
    assert run.exit_code == 2
    assert message in run.stderr


def test_a_record_among_few_rows_is_found(tmp_path: Path) -> None:
    table = np.random.default_rng(0).standard_normal((120, 40))
    table[17] *= 4.0
    (path,) = as_npy(tmp_path, table, ("cohort",))
    call = ("audit", "membership", path, "-k", 3, "--size", 10, "--trials", 100, "--seed", 0)
    said = answer(*call)
    assert (said["record"], said["size"]) == (18, 10)
    assert said["advantage"] > 0.5
    assert said["allowed"] is None
    other = answer(*call, "--record", 5)
    assert other["record"] == 5
    page = eigenfed(*call).stdout
    assert "The attacker knows record 18 and the released mean and 3 components" in page
    assert "a coin toss is right in 50%" in page


def test_noise_hides_the_record(tmp_path: Path) -> None:
    table = np.random.default_rng(0).standard_normal((120, 40))
    table[17] *= 4.0
    (path,) = as_npy(tmp_path, table, ("cohort",))
    call = ("audit", "membership", path, "-k", 3, "--size", 110, "--trials", 20, "--seed", 0)
    said = answer(*call, "--epsilon", 1, "--delta", 1e-3, "--clip", 10)
    assert said["allowed"] == pytest.approx(0.4627, abs=1e-3)
    assert said["refutes"] is False
    refused = eigenfed(*call, "--epsilon", 1, "--delta", 0.2, "--clip", 10)
    assert refused.exit_code == 2
    assert "--delta 0.2 must be below 1/n = 0.00909" in refused.stderr


def test_what_membership_cannot_do_is_refused(tmp_path: Path) -> None:
    table = rows(40)
    (path,) = as_npy(tmp_path, table, ("whole",))
    table[3, 3] = np.nan
    (gaps,) = as_npy(tmp_path, table, ("gaps",))
    (few,) = as_npy(tmp_path, table[4:6], ("few",))
    for flags, message in [
        ((gaps,), "missing entries"),
        ((few,), "needs 3 rows at least, one record and others, and the files have 2"),
        ((path, "--record", 41), "must be from 1 to 40"),
        ((path, "--size", 40), "--size 40 must be at most 39"),
    ]:
        run = eigenfed("audit", "membership", *flags)
        assert run.exit_code == 2
        assert message in run.stderr


@pytest.mark.parametrize("command", ["reconstruct", "membership"])
def test_files_are_read_with_the_options_that_messages_advise(tmp_path: Path, command: str) -> None:
    table, path = rows(60)[:, :3], tmp_path / "cohort.csv"
    plain = as_csv(tmp_path / "plain.csv", table, ("age", "bmi", "hdl"))
    lines = [f"p{i};{line}".replace(",", ";") for i, line in enumerate(plain.read_text().split())]
    path.write_text("\n".join(lines) + "\n")
    trials = ("--trials", 20) if command == "membership" else ()
    call = ("audit", command, "-k", 1, "--seed", 0, *trials)
    refused = eigenfed(*call, path)
    assert refused.exit_code == 2
    assert "Pass --exclude NAME to leave them out, or pass --id-column NAME" in refused.stderr
    for flags in (("--id-column", "p0"), ("--exclude", "p0", "--delimiter", ";")):
        assert answer(*call, path, *flags) == answer(*call, plain)
    misspelt = eigenfed(*call, path, "--exclude", "P0")
    assert "--exclude names the column 'P0', which no file has" in misspelt.stderr
    path.write_text("\n".join([*lines, "p60;-;-;-", ""]))
    coded = eigenfed(*call, path, "--exclude", "p0")
    assert "pass --missing CODE" in coded.stderr
    run = eigenfed(*call, path, "--exclude", "p0", "--missing", "-")
    assert ("missing entries, which this attack" in run.stderr) is (command == "membership")
    assert run.exit_code == (2 if command == "membership" else 0)
