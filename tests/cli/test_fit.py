"""``eigenfed fit`` and ``eigenfed project``: files in, a folder out, records onto it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA

from command_line import FEATURES, answer, as_csv, as_npy, eigenfed, rows, without_sign
from eigenfed import methods

SITES = ("north", "south", "west")


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return as_npy(tmp_path, rows(), SITES)


@pytest.fixture
def tables(tmp_path: Path) -> list[Path]:
    parts = np.array_split(rows(), 3)
    return [as_csv(tmp_path / f"{name}.csv", part) for name, part in zip(SITES, parts, strict=True)]


def test_the_folder_holds_the_pooled_pca(files: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = answer("fit", *files, "-k", 3, "-o", out)
    pooled = PCA(3).fit(rows())
    facts = json.loads((out / "result.json").read_text())
    assert said == facts | {"folder": str(out)}
    assert (facts["n"], facts["d"], facts["k"], facts["sites"]) == (900, 6, 3, list(SITES))
    np.testing.assert_allclose(facts["eigenvalues"], pooled.explained_variance_, rtol=1e-12)
    np.testing.assert_allclose(facts["ratios"], pooled.explained_variance_ratio_, rtol=1e-12)
    assert facts["total_variance"] == pytest.approx(np.var(rows(), axis=0, ddof=1).sum())
    assert facts["certificate"]["converged"] == [True] * 3
    assert facts["privacy"] is None
    np.testing.assert_allclose(
        np.load(out / "components.npy"), without_sign(pooled.components_), atol=1e-10
    )
    np.testing.assert_allclose(np.load(out / "mean.npy"), pooled.mean_)
    assert (out / "features.txt").read_text().split() == [f"x{i}" for i in range(6)]
    for path, part in zip(files, np.array_split(rows(), 3), strict=True):
        scores = np.load(out / "scores" / path.name)
        np.testing.assert_allclose(np.abs(scores), np.abs(pooled.transform(part)), atol=1e-9)
    assert not (out / "scale.npy").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"out", *(path.name for path in files)}


def test_the_log_has_a_line_for_each_ask(files: list[Path], tmp_path: Path) -> None:
    facts = answer("fit", *files, "-k", 2, "--method", "krylov", "--seed", 3, "-o", tmp_path / "o")
    start, *events, end = map(json.loads, (tmp_path / "o/run.jsonl").read_text().splitlines())
    asks = [event for event in events if event["event"] == "request"]
    left = [event for event in events if event["event"] == "left"]
    assert start == {"event": "start", "method": "krylov", "sites": list(SITES)}
    assert [call["round"] for call in asks] == list(range(facts["rounds"]))
    assert asks[0]["op"] == "moments"
    assert {call["op"] for call in asks[1:]} >= {"product"}
    assert end["bytes_up"] == facts["bytes_up"] == sum(event["bytes"] for event in left)
    assert end["bytes_up"] == sum(sum(call["bytes_up"].values()) for call in asks)
    assert end["bytes_down"] == sum(sum(call["bytes_down"].values()) for call in asks)


def test_a_csv_and_a_npy_of_the_same_rows_give_the_same(
    files: list[Path], tables: list[Path]
) -> None:
    by_position, by_name = answer("fit", *files, "-k", 2), answer("fit", *tables, "-k", 2)
    assert by_position["eigenvalues"] == by_name["eigenvalues"]
    assert (by_position["named"], by_name["named"]) == (False, True)


def test_the_page_tells_rounds_bytes_certificate_leakage_and_privacy(files: list[Path]) -> None:
    facts, page = answer("fit", *files, "-k", 2), eigenfed("fit", *files, "-k", 2).stdout
    heads = {line.split()[0]: line for line in page.splitlines() if line.strip()}
    assert "900 rows x 6 features at 3 sites, by covariance" in page
    assert heads["rounds"].split() == ["rounds", str(facts["rounds"])]
    assert f"{facts['bytes_up'] / 1e3:.1f} kB by the sites" in heads["sent"]
    assert "2 of 2 components converged" in heads["certificate"]
    assert "can reconstruct each site's full covariance" in heads["leakage"]
    assert "none" in heads["privacy"]
    assert f"{facts['eigenvalues'][1]:.6g}" in heads["PC2"]


def test_scaled_uncentred_and_chosen_features_reach_the_fit(
    tables: list[Path], tmp_path: Path
) -> None:
    scaled = answer("fit", *tables, "-k", 6, "--scale", "-o", tmp_path / "s")
    assert sum(scaled["eigenvalues"]) == pytest.approx(6.0 * 900 / 899)
    np.testing.assert_allclose(np.load(tmp_path / "s/scale.npy"), rows().std(axis=0))
    raw = answer("fit", *tables, "-k", 1, "--no-center")
    top = np.linalg.svd(rows(), compute_uv=False)[0] ** 2 / 899
    assert raw["eigenvalues"] == pytest.approx([top], rel=1e-12)
    two = answer("fit", *tables, "-k", 2, "--column", "bmi", "--column", "age")
    assert sum(two["eigenvalues"]) == pytest.approx(np.var(rows()[:, :2], axis=0, ddof=1).sum())


def test_sites_can_be_centred_by_their_own_means(tables: list[Path], tmp_path: Path) -> None:
    parts = np.array_split(rows(), 3)
    within = PCA(2).fit(np.vstack([part - part.mean(axis=0) for part in parts]))
    facts = answer("fit", *tables, "-k", 2, "--center", "site", "-o", tmp_path / "o")
    assert facts["center"] == "site"
    np.testing.assert_allclose(facts["eigenvalues"], within.explained_variance_)
    scores = np.load(tmp_path / "o/scores/north.npy")
    np.testing.assert_allclose(scores.mean(axis=0), 0.0, atol=1e-9)
    again = answer("project", tmp_path / "o", tables[0])["scores"]
    np.testing.assert_allclose(again, scores, atol=1e-9)
    assert "each site by its own mean" in (tmp_path / "o/report.html").read_text()
    private = eigenfed("fit", *tables, "-k", 2, "--center", "site", "--epsilon", 1, "--delta", 1e-6)
    assert private.exit_code == 3
    assert "--center site cannot be combined with privacy" in private.stderr


def test_the_number_of_components_can_follow_from_the_data(
    tables: list[Path], tmp_path: Path
) -> None:
    assert answer("fit", *tables, "-k", "0.8")["k"] == PCA(0.8).fit(rows()).n_components_
    assert answer("fit", *tables, "-k", "all", "-o", tmp_path / "o")["k"] == 6
    assert answer("fit", *tables, "-k", "auto", "--scale")["k"] < 6
    for wrong in ("0", "1.5", "most"):
        run = eigenfed("fit", *tables, "-k", wrong)
        assert run.exit_code == 2
        assert "an integer of at least 1, a fraction of the variance between 0 and 1" in run.stderr
    run = eigenfed("fit", *tables, "-k", "0.9", "--epsilon", 1, "--delta", 1e-6)
    assert run.exit_code == 3
    assert "-k 0.9 cannot be combined with privacy" in run.stderr


def test_an_id_column_is_left_out_and_without_the_option_named(tmp_path: Path) -> None:
    lines = as_csv(tmp_path / "a.csv", rows(30)).read_text().splitlines()
    named = [f"id,{lines[0]}", *(f"p{i},{line}" for i, line in enumerate(lines[1:]))]
    (tmp_path / "a.csv").write_text("\n".join(named) + "\n")
    assert answer("fit", tmp_path / "a.csv", "-k", 2, "--id-column", "id")["d"] == 6
    run = eigenfed("fit", tmp_path / "a.csv", "-k", 2)
    assert run.exit_code == 2
    assert "a.csv" in run.stderr
    assert "'id'" in run.stderr
    assert "--id-column" in run.stderr


def test_features_that_only_some_have_are_dropped_where_asked(
    tables: list[Path], tmp_path: Path
) -> None:
    fewer = as_csv(tmp_path / "east.csv", rows(40)[:, 1:], FEATURES[1:])
    run = eigenfed("fit", *tables, fewer, "-k", 2)
    assert run.exit_code == 2
    assert "--features common" in run.stderr
    found = answer("fit", *tables, fewer, "-k", 2, "--features", "common", "-o", tmp_path / "o")
    assert found["d"] == 5
    assert (tmp_path / "o/features.txt").read_text().split() == list(FEATURES[1:])
    assert np.load(tmp_path / "o/scores/north.npy").shape == (300, 2)


def test_secure_sums_give_the_same_components(files: list[Path], tmp_path: Path) -> None:
    for name, flags in {"plain": (), "secure": ("--secure",)}.items():
        answer("fit", *files, "-k", 2, *flags, "-o", tmp_path / name)
    plain, secure = (np.load(tmp_path / name / "components.npy") for name in ("plain", "secure"))
    np.testing.assert_allclose(secure, plain, atol=1e-10)
    assert json.loads((tmp_path / "secure/result.json").read_text())["secure"]


def test_a_private_result_has_its_statement_and_no_scores(
    files: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run = eigenfed("fit", *files, "-k", 1, "--epsilon", 2, "--delta", 1e-5, "-o", out)
    assert run.exit_code == 0
    assert "(epsilon=2, delta=1e-05)-differentially private" in run.stdout
    assert "projections of records are not private" in run.stderr
    facts = json.loads((out / "result.json").read_text())
    assert (facts["privacy"]["epsilon"], facts["privacy"]["trust"]) == (2.0, "secure_sum")
    assert facts["scores"] is False
    assert not (out / "scores").exists()


def test_privacy_options_reach_the_run(files: list[Path]) -> None:
    call = ("fit", *files[:1], "-k", 1, "--epsilon", 30, "--delta", 1e-5, "--trust", "central")
    said = answer(*call, "--public-center", 50, "--clip", 60)["privacy"]
    assert said["trust"] == "central"
    assert "clipped to the public norm 60" in said["text"]


def test_a_public_clip_that_loses_the_mean_ends_with_a_code_of_its_own(files: list[Path]) -> None:
    """The rows are about 120 long: clipped to 80, all are on one side of their mean."""
    call = ("fit", *files[:1], "-k", 1, "--epsilon", 30, "--delta", 1e-5, "--trust", "central")
    run = eigenfed(*call, "--clip", 80)
    assert run.exit_code == 4
    assert "a public clip that is longer than most rows" in run.stdout + run.stderr


def test_options_of_the_method_reach_the_fit(files: list[Path]) -> None:
    words = ("--method", "power", "--option", "local_steps=2", "--option", "decay=false")
    facts = answer("fit", *files, "-k", 2, *words)
    assert facts["method"] == "power"
    assert facts["asked"]["options"] == {"local_steps": 2, "decay": False}


def test_methods_are_listed_with_their_options() -> None:
    for command in (("fit",), ("plan",), ("audit", "reconstruct")):
        run = eigenfed(*command, "--list-methods")
        assert run.exit_code == 0
        for name, summary in methods().items():
            assert f"{name:<12}{summary}\n" in run.stdout
        assert "--option local_steps=4\n" in run.stdout


@pytest.mark.parametrize(
    ("count", "flags", "message"),
    [
        (2, ("--epsilon", "1", "--delta", "1e-6"), "needs 3 sites at least and has 2"),
        (2, ("--secure",), "--secure needs 3 sites at least and has 2"),
        (3, ("--secure", "--method", "merge"), "--method merge needs replies of single sites"),
        (3, ("--epsilon", "1", "--delta", "1e-6", "--dropouts", "1"), "--dropouts 1 must be at"),
        (3, ("--epsilon", "1", "--delta", "1e-6", "--colluders", "2"), "--colluders 2 must be at"),
        (
            3,
            ("--secure", "--method", "power", "--option", "local_steps=2"),
            "--method power --option local_steps=2 needs replies of single sites",
        ),
        (3, ("--epsilon", "1", "--delta", "1e-6", "--method", "krylov"), "--method krylov cannot"),
    ],
)
def test_what_privacy_forbids_exits_with_3_and_writes_nothing(
    files: list[Path], tmp_path: Path, count: int, flags: tuple[str, ...], message: str
) -> None:
    run = eigenfed("fit", *files[:count], "-k", 2, *flags, "-o", tmp_path / "out")
    assert run.exit_code == 3
    assert message in run.stderr
    assert run.stdout == ""
    assert not (tmp_path / "out").exists()


def test_missing_entries_are_in_the_output_and_in_the_report(tmp_path: Path) -> None:
    table = rows(100)
    table[:30, 1], table[0, 0] = np.nan, np.nan
    paths = [as_csv(tmp_path / f"{name}.csv", table) for name in ("a", "b")]
    run = eigenfed("fit", *paths, "-k", 1, "-o", tmp_path / "result")
    share = f"{100 * 31 / table.size:.2g}"
    told = f"in 2 of {table.shape[1]} features, most in '{FEATURES[1]}' (30%)"
    assert f"missing      {share}% of the entries, {told}; they count as the mean\n" in run.stdout
    page = (tmp_path / "result/report.html").read_text("utf-8")
    assert f"<dt>Missing</dt><dd>{share} % of the entries, in 2 of" in page
    whole = as_csv(tmp_path / "whole.csv", rows(100))
    assert "missing" not in eigenfed("fit", whole, "-k", 1).stdout


def test_missing_entries_under_privacy_are_replaced_as_the_statement_says(tmp_path: Path) -> None:
    table = rows()
    table[5, 1] = np.nan
    run = eigenfed("fit", *as_npy(tmp_path, table, SITES), "-k", 1, "--epsilon", 1, "--delta", 1e-6)
    assert run.exit_code in (0, 4), run.stderr
    assert "Missing entries, if any, are replaced by the private mean." in run.stdout


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--epsilon", "-1", "--delta", "1e-6"), "--epsilon -1.0 must be a finite number above 0"),
        (("--delta", "1e-6"), "--delta requires --epsilon"),
        (("--colluders", "0"), "--colluders requires --epsilon"),
        (("--dropouts", "0"), "--dropouts requires --epsilon"),
        (("--count", "private"), "--count requires --epsilon"),
        (("--option", "local_steps=2"), "requires a named method. Pass --method."),
        (
            ("--method", "power", "--option", "steps=2"),
            "must be KEY=VALUE, with KEY one of the options of power: local_steps, align, decay,",
        ),
        (("--method", "factors", "--option", "steps=2"), "one of the options of factors: none"),
        (("--method", "krylov", "--option", "block=2"), "block=2 must be at least 3 directions"),
        (("--method", "power", "--option", "decay"), "--option decay must be KEY=VALUE"),
        (("--method", "power", "--option", "decay=no"), "decay='no' of the method 'power' must"),
        (("--method", "power", "--option", "local_steps=0"), "local_steps=0 must be"),
        (
            ("--method", "power", "--option", "decay=true", "--option", "decay=false"),
            "--option decay is given twice",
        ),
        (("--trust", "local"), "--trust requires --epsilon"),
        (("--epsilon", "1", "--delta", "1e-6", "--clip", "0"), "--clip 0.0 must be"),
        (("--force",), "--force requires -o or --write-back"),
        (("--method", "magic"), "'magic' is not one of"),
        (("--epsilon", "1", "--delta", "2"), "--delta 2.0 must be above 0 and below 1"),
        (("--epsilon", "1", "--delta", "0.01"), "--delta 0.01 must be below 1/n = 0.00111"),
        (
            ("--epsilon", "1", "--delta", "1e-6", "--secure", "--trust", "local"),
            "--secure requires --trust secure_sum",
        ),
    ],
)
def test_options_that_break_a_rule_of_their_own_exit_with_2(
    files: list[Path], flags: tuple[str, ...], message: str
) -> None:
    run = eigenfed("fit", *files, "-k", 2, *flags)
    assert run.exit_code == 2
    assert message in run.stderr


def test_two_files_of_one_name_are_refused(files: list[Path], tables: list[Path]) -> None:
    run = eigenfed("fit", files[0], tables[0], "-k", 2)
    assert run.exit_code == 2
    assert "would both be the site 'north'" in run.stderr
    run = eigenfed("fit", files[0], files[0], "-k", 2)
    assert (run.exit_code, "is named twice" in run.stderr) == (2, True)


def test_a_folder_with_something_in_it_is_kept(files: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    answer("fit", *files, "-k", 2, "-o", out)
    before = (out / "result.json").read_bytes()
    run = eigenfed("fit", *files, "-k", 1, "-o", out)
    assert run.exit_code == 2
    assert "--force" in run.stderr
    assert (out / "result.json").read_bytes() == before
    assert answer("fit", *files, "-k", 1, "-o", out, "--force")["k"] == 1
    assert np.load(out / "components.npy").shape == (1, 6)


def test_new_records_are_projected_by_name(tables: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    answer("fit", *tables, "-k", 2, "--scale", "-o", out)
    new = rows(25, seed=9)
    order = [3, 0, 5, 1, 4, 2]
    names = (*(FEATURES[i] for i in order), "new")
    mixed = as_csv(tmp_path / "new.csv", np.hstack([new[:, order], new[:, :1]]), names)
    said = answer("project", out, mixed, "-o", tmp_path / "scores.npy")
    assert (said["n"], said["k"]) == (25, 2)
    around = (new - np.load(out / "mean.npy")) / np.load(out / "scale.npy")
    wanted = around @ np.load(out / "components.npy").T
    np.testing.assert_allclose(np.load(tmp_path / "scores.npy"), wanted, atol=1e-12)
    assert answer("project", out, mixed)["scores"] == np.load(tmp_path / "scores.npy").tolist()


def test_scores_on_standard_output_are_csv_to_the_last_bit(
    files: list[Path], tmp_path: Path
) -> None:
    answer("fit", *files, "-k", 2, "-o", tmp_path / "out")
    lines = eigenfed("project", tmp_path / "out", files[0]).stdout.splitlines()
    assert lines[0] == "PC1,PC2"
    scores = [[float(cell) for cell in line.split(",")] for line in lines[1:]]
    assert scores == np.load(tmp_path / "out/scores/north.npy").tolist()


def test_loadings_variances_and_scores_are_there_for_a_spreadsheet(
    tables: list[Path], tmp_path: Path
) -> None:
    ids = [f"P{at:03d}, of north" for at in range(len(pd.read_csv(tables[0])))]
    for table in tables:
        rows_ = pd.read_csv(table)
        rows_.insert(0, "patient", ids[: len(rows_)])
        rows_.to_csv(table, index=False)
    out = tmp_path / "out"
    facts = answer("fit", *tables, "-k", 2, "--id-column", "patient", "-o", out)
    loadings = pd.read_csv(out / "loadings.csv", index_col="feature")
    assert list(loadings.index) == list(FEATURES)
    wanted = np.load(out / "components.npy")
    np.testing.assert_allclose(loadings[["PC1", "PC2"]].T, wanted, rtol=1e-15)
    variances = pd.read_csv(out / "variances.csv")
    np.testing.assert_allclose(variances["variance"], facts["eigenvalues"], rtol=1e-15)
    np.testing.assert_allclose(variances["cumulative"], np.cumsum(facts["ratios"]), rtol=1e-15)
    scores = pd.read_csv(out / "sites/north.csv", index_col="id")
    assert list(scores.index) == ids
    np.testing.assert_allclose(scores, np.load(out / "scores/north.npy"), rtol=1e-15)
    call = ("project", out, tables[0], "--id-column", "patient", "-o")
    for name, separator in (("s.csv", ","), ("s.tsv", "\t")):
        assert answer(*call, tmp_path / name)["n"] == len(ids)
        again = pd.read_csv(tmp_path / name, sep=separator, index_col="id")
        pd.testing.assert_frame_equal(again, scores)
    assert answer(*call[:-1])["ids"] == ids
    for name, message in (("s.xls", "must end in .csv, .tsv or .npy"), ("s.npy", "no place for")):
        run = eigenfed(*call, tmp_path / name)
        assert run.exit_code == 2
        assert message in run.stderr


def test_records_that_do_not_fit_are_refused(
    files: list[Path], tables: list[Path], tmp_path: Path
) -> None:
    answer("fit", *tables, "-k", 2, "-o", tmp_path / "named")
    answer("fit", *files, "-k", 2, "-o", tmp_path / "unnamed")
    np.save(tmp_path / "narrow.npy", rows()[:, :5])
    lacking = as_csv(tmp_path / "lacking.csv", rows(9)[:, 1:], FEATURES[1:])
    for folder, file, message in [
        ("named", files[0], "north.npy has no names"),
        ("unnamed", tables[0], "north.csv has names"),
        ("unnamed", tmp_path / "narrow.npy", "has 5 features and must have 6"),
        ("named", lacking, "'age'"),
    ]:
        run = eigenfed("project", tmp_path / folder, file)
        assert run.exit_code == 2, message
        assert message in run.stderr


def test_scores_of_a_private_result_are_said_not_to_be_private(
    files: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    answer("fit", *files, "-k", 1, "--epsilon", 2, "--delta", 1e-5, "-o", out)
    run = eigenfed("project", out, files[0], "-o", tmp_path / "s.npy")
    assert run.exit_code == 0
    assert "These scores are not private" in run.stderr
    again = eigenfed("project", out, files[0], "-o", tmp_path / "s.npy")
    assert again.exit_code == 2
    assert "--force" in again.stderr


def test_the_installed_program_runs_from_files_to_a_folder(
    files: list[Path], tmp_path: Path
) -> None:
    program = Path(sys.executable).with_name("eigenfed")
    call = [str(program), "fit", *map(str, files), "-k", "2", "-o", str(tmp_path / "out"), "--json"]
    run = subprocess.run(call, capture_output=True, text=True, check=True)
    assert json.loads(run.stdout)["k"] == 2
    assert run.stderr == ""


def test_scores_come_with_the_names_of_their_rows(tmp_path: Path) -> None:
    table = rows(40)
    for name, part in (("north", table[:25]), ("south", table[25:])):
        lines = ["patient," + ",".join(FEATURES)]
        lines += [f"p{i}," + ",".join(map(repr, row)) for i, row in enumerate(part.tolist())]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    files = [tmp_path / "north.csv", tmp_path / "south.csv"]
    answer("fit", *files, "-k", 2, "--id-column", "patient", "-o", tmp_path / "out")
    assert json.loads((tmp_path / "out/scores/south.rows.json").read_text()) == [
        f"p{i}" for i in range(15)
    ]
    assert np.load(tmp_path / "out/scores/south.npy").shape == (15, 2)
    assert eigenfed("project", tmp_path / "out", files[0]).exit_code == 0


def test_a_component_that_tells_sites_apart_is_pointed_out(tmp_path: Path) -> None:
    table = rows(300)
    far = np.vstack([table[:150], table[150:] + 200.0])
    calls = {
        name: as_npy(tmp_path, part, (f"{name}1", f"{name}2"))
        for name, part in (("like", table), ("far", far))
    }
    said = {
        name: eigenfed("fit", *files, "-k", 2, "-o", tmp_path / name).stdout
        for name, files in calls.items()
    }
    assert "of a component's variance lies between sites" in said["like"]
    assert "PC1 mostly reflects differences between sites" in said["far"]
    advice = "fit with center=&#34;site&#34; (--center site)"
    assert advice in (tmp_path / "far/report.html").read_text()
    assert advice not in (tmp_path / "like/report.html").read_text()


def test_the_command_in_the_report_runs_and_has_no_path_of_the_machine(
    tables: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data/deep").mkdir(parents=True)
    files = [Path("data", path.name) for path in tables[:-1]]
    files.append(Path("data/deep", tables[-1].name))
    for table, file in zip(tables, files, strict=True):
        table.rename(tmp_path / file)
    monkeypatch.chdir(tmp_path)
    options = ["-k", 1, "--column", "age", "--column", "bmi", "--method", "krylov", "--quiet"]
    eigenfed("fit", *files, *options, "-o", "typed")
    eigenfed("fit", *(file.resolve() for file in files), *options, "-o", "absolute")
    commands = {
        name: json.loads(Path(name, "result.json").read_text())["command"]
        for name in ("typed", "absolute")
    }
    assert sorted(commands["typed"][2:]) == sorted(
        [*map(str, files), *map(str, options[:-1]), "-o", "typed"]
    )
    assert " ".join(commands["typed"]) in Path("typed/report.html").read_text()
    below = [str(file.relative_to("data")) for file in files]
    assert sorted(commands["absolute"][2:]) == sorted(
        [*below, *map(str, options[:-1]), "-o", "absolute"]
    )
    for name, folder in (("typed", tmp_path), ("absolute", tmp_path / "data")):
        monkeypatch.chdir(folder)
        assert eigenfed(*commands[name][1:], "--json", "--force").exit_code == 0
        assert str(tmp_path) not in (tmp_path / name / "report.html").read_text()


@pytest.mark.parametrize(
    ("given", "written"),
    [
        (("--no-center",), ["--center", "none"]),
        (("--center", "site"), ["--center", "site"]),
        (("--no-secure", "--scale"), ["--no-secure", "--scale"]),
        (("--header",), ["--header"]),
        (
            ("--public-center", "1,2,3,4,5,6", "--epsilon", "9", "--delta", "1e-4"),
            ["--epsilon", "9.0", "--delta", "0.0001", "--public-center", "1.0,2.0,3.0,4.0,5.0,6.0"],
        ),
    ],
)
def test_the_command_in_the_report_has_flags_and_lists_as_they_are_typed(
    tables: list[Path], tmp_path: Path, given: tuple[str, ...], written: list[str]
) -> None:
    out = tmp_path / "r"
    eigenfed("fit", *tables, "-k", 1, "-o", out, *given)
    command = json.loads((out / "result.json").read_text())["command"]
    names = [path.name for path in tables]
    assert command == ["eigenfed", "fit", *names, "-k", "1", "-o", "r", *written]


def test_a_file_with_the_name_of_an_option_stays_a_file_in_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    as_csv(Path("-k.csv"), rows(20))
    answer("fit", "./-k.csv", "-k", 1, "-o", "first")
    command = json.loads(Path("first/result.json").read_text())["command"]
    assert command[2] == "./-k.csv"
    answer(*command[1:-1], "second")


def test_rows_are_coloured_by_a_column_on_the_own_page_alone(tmp_path: Path) -> None:
    rng, files = np.random.default_rng(3), []
    for site, n in (("north", 40), ("south", 30)):
        table = rng.standard_normal((n, 3)) + (site == "north")
        lines = [
            f"{a},{b},{c},{'zebra' if i % 3 else 'quokka'}" for i, (a, b, c) in enumerate(table)
        ]
        files.append(tmp_path / f"{site}.csv")
        files[-1].write_text("\n".join(["age,bmi,height,arm", *lines]) + "\n")
    out = tmp_path / "r"
    said = answer("fit", *files, "-k", 2, "--color-by", "arm", "-o", out, "--share-scores", "north")
    assert said["d"] == 3
    own = (out / "sites" / "north.html").read_text()
    assert 'data-site="zebra"' in own
    assert 'data-site="quokka"' in own
    assert '<label for="points-site">Label</label>' in own
    assert '<label for="points-site">Site</label>' not in own
    assert 'id="feature-means-table"' in own
    for shared in ("report.html", "run.json", "result.json", "run.jsonl", "loadings.csv"):
        text = (out / shared).read_text()
        assert "zebra" not in text
        assert "feature-means" not in text
    assert json.loads((out / "scores" / "north.means.json").read_text())["age"] > 0.1
    files[0].write_text(files[0].read_text().replace("height", "length"))
    run = eigenfed("fit", *files, "-k", 2, "--color-by", "arm", "-o", tmp_path / "s")
    assert (run.exit_code, "The sites differ in 'height'" in run.stderr) == (2, True)
    run = eigenfed("fit", *files, "-k", 2, "--color-by", "arm")
    assert (run.exit_code, "--color-by requires -o" in run.stderr) == (2, True)


def test_columns_that_no_file_has_are_refused_before_anything_is_computed(tmp_path: Path) -> None:
    wide = as_csv(tmp_path / "a.csv", np.arange(24.0).reshape(4, 6) ** 2)
    narrow = tmp_path / "b.csv"
    narrow.write_text("age,bmi,hdl,ldl,sbp\n1,2,3,4,9\n5,6,7,9,8\n2,2,0,3,1\n")
    answer("fit", wide, narrow, "-k", 1, "--exclude", "dbp")
    run = eigenfed("fit", wide, narrow, "-k", 1, "--exclude", "dpb", "--exclude", "age")
    message = "--exclude names the column 'dpb', which no file has. Check the spelling."
    assert (run.exit_code, run.stderr) == (2, f"eigenfed: {message}\n")
    run = eigenfed("fit", wide, "-k", 1, "--color-by", "arm", "-o", tmp_path / "r")
    message = f"{wide} lacks the column 'arm'. Check the spelling."
    assert (run.exit_code, run.stderr) == (2, f"eigenfed: {message}\n")
    assert not (tmp_path / "r").exists()


def test_a_column_without_a_name_can_be_left_out_as_the_message_tells(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b,,\n1,2,,\n3,4,,\n6,5,,\n")
    run = eigenfed("fit", path, "-k", 1)
    assert (
        "2 columns without a name: columns 3, 4. Name them, or pass --exclude '' to" in run.stderr
    )
    assert answer("fit", path, "-k", 1, "--exclude", "")["d"] == 2


def test_many_labels_are_drawn_as_the_most_frequent_and_the_rest(tmp_path: Path) -> None:
    lines = [f"{i % 7},{i * i % 11},{'common' if i < 30 else f'rare{i:03}'}" for i in range(50)]
    file, out = tmp_path / "a.csv", tmp_path / "r"
    file.write_text("\n".join(["u,v,kind", *lines]) + "\n")
    answer("fit", file, "-k", 2, "--color-by", "kind", "-o", out)
    own = (out / "sites" / "a.html").read_text()
    assert 'data-site="common"' in own
    assert 'data-site="other labels"' in own
    assert 'data-site="rare049"' not in own
    (out / "scores" / "a.labels.json").write_text('["common"]')
    assert eigenfed("report", out).exit_code == 1
    file.write_text("u,v,kind\n1,2,a\n3,5,\n6,1,b\n")
    run = eigenfed("fit", file, "-k", 1, "--color-by", "kind", "-o", tmp_path / "s")
    assert (run.exit_code, "lacks an entry of 'kind'" in run.stderr) == (1, True)
