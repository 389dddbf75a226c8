"""``eigenfed fit --study``: what the study and its sites say takes effect, or is refused."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA

from command_line import FEATURES, answer, as_csv, as_npy, eigenfed, rows
from eigenfed.privacy.ledger.ledger import Ledger

SITES = ("island", "north", "south")
COUNTS = {"island": 150, "north": 450, "south": 300}
PRIVACY = "[privacy]\nepsilon = 2\ndelta = 1e-5\n"
BUDGET = "[policy.budget]\nepsilon = 2\ndelta = 1e-5\n"


class Consortium:
    """A study's folder, and changes to its files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.study = folder / "study.toml"
        self.write_study()
        start = 0
        for name, count in COUNTS.items():
            part = rows()[start : start + count]
            as_csv(folder / f"{name}.csv", part)
            self.write_site(name)
            start += count

    def write_study(self, text: str = "", **keys: str) -> None:
        keys = {"name": '"heart"', "sites": json.dumps(SITES), "components": "3"} | keys
        lines = [f"{key} = {value}\n" for key, value in keys.items()]
        self.study.write_text("".join(lines) + text)

    def write_site(self, name: str, text: str = "", data: str | None = None) -> Path:
        path = self.folder / f"{name}.toml"
        top, _, policy = text.partition("[policy]\n")
        least = "" if "min_rows" in policy else "min_rows = 2\n"
        top, sign, budget = top.partition("[policy.")
        path.write_text(
            f'name = "{name}"\ndata = "{data or f"{name}.csv"}"\n{top}[policy]\n{least}{policy}'
            f"{sign}{budget}"
        )
        for ledger in re.findall('ledger = "(.+)"', text):
            Ledger(self.folder / ledger, create=True).close()
        return path

    def everywhere(self, text: Callable[[str], str]) -> None:
        for name in SITES:
            self.write_site(name, text(name))

    def call(self, *more: object, sites: tuple[str, ...] = SITES) -> tuple[object, ...]:
        files = [self.folder / f"{name}.toml" for name in sites]
        if self.study.exists() and "[privacy]" in self.study.read_text() and "-o" not in more:
            more = (*more, "-o", self.folder / "private", "--force")
        return ("fit", "--study", self.study, *files, *more)


@pytest.fixture
def heart(tmp_path: Path) -> Consortium:
    return Consortium(tmp_path)


def refusal(heart: Consortium, *more: object, code: int, sites: tuple[str, ...] = SITES) -> str:
    run = eigenfed(*heart.call(*more, sites=sites))
    assert run.exit_code == code, run.stderr
    assert run.stdout == ""
    return run.stderr


def test_the_result_is_the_pooled_pca(heart: Consortium, tmp_path: Path) -> None:
    facts = answer(*heart.call("-o", tmp_path / "out"))
    pooled = PCA(3).fit(rows())
    assert (facts["n"], facts["d"], facts["k"], facts["sites"]) == (900, 6, 3, list(SITES))
    np.testing.assert_allclose(facts["eigenvalues"], pooled.explained_variance_, rtol=1e-12)
    assert facts["folder"] == str(tmp_path / "out")
    assert facts["by_site"] is None
    assert facts["shown_scores"] == []
    assert not list(tmp_path.glob("*.ledger"))


def test_keys_of_the_study_reach_the_fit(heart: Consortium) -> None:
    heart.write_study(components="2", scale="true", by_site="true", method='"krylov"', seed="5")
    facts = answer(*heart.call())
    assert (facts["k"], facts["scale"], facts["method"], facts["seed"]) == (2, True, "krylov", 5)
    assert set(facts["by_site"]["sites"]) == set(SITES)
    heart.write_study(secure="true", center="false")
    facts = answer(*heart.call())
    assert (facts["secure"], facts["center"]) == (True, False)


def test_the_deadline_reaches_the_run(heart: Consortium, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def fit_sites(self: Any, sites: Any, **keys: Any) -> None:
        seen.update(keys)
        raise RuntimeError

    monkeypatch.setattr("eigenfed.estimators.pca_fit.PCAFit.fit_sites", fit_sites)
    heart.write_study(deadline_s="9")
    refusal(heart, code=1)
    assert seen["deadline_s"] == 9.0


@pytest.mark.parametrize("how", ["features", "manifest"])
def test_listed_features_are_taken_in_their_order(
    heart: Consortium, tmp_path: Path, how: str
) -> None:
    if how == "features":
        heart.write_study(features='["sbp", "age", "bmi"]')
    else:
        (tmp_path / "features.txt").write_text("sbp\nage\nbmi\n")
        heart.write_study(manifest='"features.txt"')
    facts = answer(*heart.call("-o", tmp_path / "out"))
    assert (tmp_path / "out/features.txt").read_text().split() == ["sbp", "age", "bmi"]
    variance = np.var(rows()[:, [4, 0, 1]], axis=0, ddof=1).sum()
    assert sum(facts["eigenvalues"]) == pytest.approx(variance)


def test_sites_that_differ_are_refused_unless_common_features_do(
    heart: Consortium, tmp_path: Path
) -> None:
    order = [5, 4, 3, 2, 1]
    names = tuple(FEATURES[i] for i in order)
    as_csv(tmp_path / "south.csv", rows()[600:, order], names)
    message = refusal(heart, code=1)
    assert (
        "study.toml: features = \"same\", but the sites differ in 'age' (not at 'south')" in message
    )
    assert 'features = "common"' in message
    heart.write_study(features='"common"', components="5")
    facts = answer(*heart.call())
    assert facts["d"] == 5
    assert sum(facts["eigenvalues"]) == pytest.approx(np.var(rows()[:, 1:], axis=0, ddof=1).sum())
    as_csv(tmp_path / "south.csv", rows()[600:], tuple("uvwxyz"))
    assert "no feature in common" in refusal(heart, code=1)
    heart.write_study(features='["age", "height"]')
    message = refusal(heart, code=1)
    assert "island.toml: " in message
    assert "lacks the column 'height'. Check the spelling." in message


def test_files_without_names_serve_too(heart: Consortium, tmp_path: Path) -> None:
    for path in as_npy(tmp_path, rows(), SITES):
        heart.write_site(path.stem, data=path.name)
    assert answer(*heart.call())["named"] is False
    heart.write_site("south")
    assert "have no feature names and others do" in refusal(heart, code=1)


def test_rows_are_filtered_named_and_shared_as_each_site_says(
    heart: Consortium, tmp_path: Path
) -> None:
    lines = (tmp_path / "north.csv").read_text().splitlines()
    cohort = [f"patient,cohort,{lines[0]}"]
    cohort += [f"p{i},{i % 3},{line}" for i, line in enumerate(lines[1:])]
    (tmp_path / "north.csv").write_text("\n".join(cohort) + "\n")
    heart.write_site(
        "north", 'id_column = "patient"\nwhere = ["cohort >= 1", "age > 50"]\nshare_scores = true\n'
    )
    heart.write_study(features=json.dumps(FEATURES))
    facts = answer(*heart.call("-o", tmp_path / "out"))
    north = rows()[150:600]
    kept = (np.arange(450) % 3 >= 1) & (north[:, 0] > 50)
    assert facts["n"] == 450 + kept.sum()
    pooled = PCA(3).fit(np.vstack([rows()[:150], north[kept], rows()[600:]]))
    np.testing.assert_allclose(facts["eigenvalues"], pooled.explained_variance_, rtol=1e-12)
    scores = np.load(tmp_path / "out/scores/north.npy")
    np.testing.assert_allclose(np.abs(scores), np.abs(pooled.transform(north[kept])), atol=1e-8)
    ids = json.loads((tmp_path / "out/scores/north.rows.json").read_text())
    assert ids == [f"p{i}" for i in np.flatnonzero(kept)]
    assert facts["shown_scores"] == ["north"]


def test_a_filter_without_rows_names_the_site_s_file(heart: Consortium) -> None:
    heart.write_site("north", 'where = ["age > 900"]\n')
    message = refusal(heart, code=1)
    assert "north.toml: No row of" in message


def test_a_quorum_is_enough_and_less_is_not(heart: Consortium) -> None:
    assert "requires quorum = 3 sites, and there are 2" in refusal(heart, code=2, sites=SITES[:2])
    heart.write_study(quorum="2")
    run = eigenfed(*heart.call(sites=SITES[:2]))
    assert run.exit_code == 0
    assert "absent sites: south" in run.stderr
    assert "there are 1" in refusal(heart, code=2, sites=SITES[:1])


def test_strangers_and_doubles_are_refused(heart: Consortium, tmp_path: Path) -> None:
    heart.write_site("west", data="north.csv")
    message = refusal(heart, code=1, sites=("west", *SITES))
    assert 'west.toml: name = "west" is not one of the sites of' in message
    assert "'island', 'north', 'south'" in message
    message = refusal(heart, code=2, sites=(*SITES, "north"))
    assert "both describe the site 'north'" in message


def test_sites_do_not_share_a_ledger(heart: Consortium) -> None:
    heart.everywhere(lambda name: 'ledger = "one.ledger"\n')
    assert "name the same ledger and dataset" in refusal(heart, code=1)
    heart.everywhere(lambda name: f'ledger = "one.ledger"\ndataset = "rows of {name}"\n')
    assert answer(*heart.call())["n"] == 900


def test_a_ledger_that_is_not_there_stops_the_study_before_anything_runs(
    heart: Consortium, tmp_path: Path
) -> None:
    heart.everywhere(lambda name: f'ledger = "{name}.ledger"\n')
    for suffix in ("", ".head"):
        (tmp_path / f"south.ledger{suffix}").unlink()
    message = refusal(heart, "-o", tmp_path / "out", code=1)
    assert f"There is no ledger at {tmp_path}/south.ledger." in message
    assert f"eigenfed ledger create {tmp_path}/south.ledger" in message
    assert not (tmp_path / "south.ledger").exists()
    for name in ("island", "north"):
        with Ledger(tmp_path / f"{name}.ledger", readonly=True) as ledger:
            assert len(ledger.events) == 1
    assert eigenfed("ledger", "create", tmp_path / "south.ledger").exit_code == 0
    assert answer(*heart.call())["n"] == 900


def test_a_ledger_that_was_deleted_or_put_back_stops_the_study(
    heart: Consortium, tmp_path: Path
) -> None:
    heart.everywhere(lambda name: f'ledger = "{name}.ledger"\n')
    ledger = tmp_path / "south.ledger"
    old = ledger.read_bytes()
    answer(*heart.call())
    ledger.write_bytes(old)
    assert "rolled back, replaced or removed" in refusal(heart, code=1)
    ledger.unlink()
    assert "the ledger was deleted" in refusal(heart, code=1)


def test_after_exact_sums_no_noise_is_sold_as_privacy(heart: Consortium, tmp_path: Path) -> None:
    heart.everywhere(lambda name: f'ledger = "{name}.ledger"\ndataset = "visits"\n')
    answer(*heart.call("-o", tmp_path / "out"))
    said = json.loads((tmp_path / "out/result.json").read_text())["ledgers"]["north"]
    assert said["text"].startswith("No epsilon holds: exact sums of these rows have left")
    assert (said["mu"], said["exact"] > 0) == (None, True)
    private(heart)
    assert "'exact_left'. No epsilon holds for these rows" in refusal(heart, code=3)


def test_after_noised_sums_no_exact_one_leaves_whatever_the_site_file_says_by_then(
    heart: Consortium, tmp_path: Path
) -> None:
    private(heart)
    answer(*heart.call())
    shown = answer("ledger", "show", tmp_path / "north.ledger")["datasets"]["visits"]
    heart.write_study()
    heart.everywhere(lambda name: "")
    for name in SITES:
        text = (tmp_path / f"{name}.toml").read_text().replace("[policy]", "[policy]\n", 1)
        (tmp_path / f"{name}.toml").write_text(
            text.replace("data =", f'ledger = "{name}.ledger"\ndataset = "visits"\ndata =')
        )
    assert "'exact'. The rows have a privacy budget" in refusal(heart, code=3)
    again = answer("ledger", "show", tmp_path / "north.ledger")["datasets"]["visits"]
    assert (again["exact"], again["epsilon"]) == (0, shown["epsilon"])


def test_a_private_study_without_a_folder_or_a_budget_spends_nothing(
    heart: Consortium, tmp_path: Path
) -> None:
    private(heart)
    files = [tmp_path / f"{name}.toml" for name in SITES]
    lost = eigenfed("fit", "--study", heart.study, *files)
    assert lost.exit_code == 2
    assert "without -o its result would be lost. Pass -o FOLDER." in lost.stderr
    # Nobody, not even the superuser, can make a file in /proc.
    lost = eigenfed("fit", "--study", heart.study, *files, "-o", "/proc/result")
    assert lost.exit_code == 2
    assert "No file can be made in the folder /proc: " in lost.stderr
    heart.write_site("north", 'ledger = "n.ledger"\n')
    message = refusal(heart, code=1)
    assert f"north.toml: [policy.budget] is required, as {heart.study} has [privacy]" in message
    assert "write [policy.budget] with epsilon = 2 and delta = 1e-05" in message
    for name in SITES:
        with Ledger(tmp_path / f"{name}.ledger", readonly=True) as ledger:
            assert ledger.totals("visits").spends == 0


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ("min_rows = 1000", "few_rows"),
        ('methods = ["merge"]', "method"),
        ("max_rank_fraction = 0.1", "leakage"),
        ("max_rounds = 1", "rounds"),
        ("secure_only = true", "unmasked"),
    ],
)
def test_a_policy_that_forbids_exits_with_3_and_writes_nothing(
    heart: Consortium, tmp_path: Path, policy: str, code: str
) -> None:
    heart.write_site("north", f"[policy]\n{policy}\n")
    message = refusal(heart, "-o", tmp_path / "out", code=3)
    assert "Site 'north' refused" in message
    assert repr(code) in message
    assert not (tmp_path / "out").exists()


def test_a_limit_on_leakage_holds_over_all_runs_in_the_ledger(
    heart: Consortium, tmp_path: Path
) -> None:
    wide = np.random.default_rng(3).standard_normal((300, 60)) * np.linspace(9, 1, 60)
    for path in as_npy(tmp_path, wide, SITES):
        heart.write_site(path.stem, data=path.name)
    study = {"components": "1", "method": '"merge"'}
    heart.write_study(**study)
    share = answer(*heart.call())["leakage"]["rank_fraction"]
    # Before its rows are touched, a summary is reckoned to tell two directions that are new.
    limit = f"[policy]\nmax_rank_fraction = {share + 2.5 / 60}\n"
    for ledger, is_kept in (("", False), ('ledger = "n.ledger"\n', True)):
        heart.write_site("north", ledger + limit, data="north.npy")
        heart.write_study(**study)
        for _ in range(2):
            answer(*heart.call())
        heart.write_study(**study, scale="true")
        if is_kept:
            assert "'leakage'" in refusal(heart, code=3)
        else:
            answer(*heart.call())


def test_only_an_approved_study_runs(heart: Consortium, tmp_path: Path) -> None:
    said = eigenfed("plan", heart.study, "--rows", "150,450,300", "--features", 6)
    digest = said.stdout.rpartition("Digest to approve: ")[2].strip()
    plan = answer("plan", heart.study, "--rows", "150,450,300", "--features", 6)
    assert plan["digest"] == digest
    heart.everywhere(lambda name: f'approved = ["{digest}"]\n')
    assert answer(*heart.call())["n"] == 900
    heart.write_study(components="2")
    message = refusal(heart, "-o", tmp_path / "out", code=3)
    assert f"island.toml: approved does not list {heart.study}" in message
    assert not (tmp_path / "out").exists()
    heart.write_study()
    heart.write_site("south", "approved = []\n")
    assert f"whose digest is {digest}. Read the study" in refusal(heart, code=3)


def test_a_filtered_site_wants_its_number_of_rows_private(heart: Consortium) -> None:
    private(heart)
    heart.write_site("north", f'ledger = "n.ledger"\nwhere = ["age > 50"]\n{BUDGET}')
    assert "'count'" in refusal(heart, code=3)
    heart.study.write_text(heart.study.read_text() + 'count = "private"\n')
    facts = answer(*heart.call())
    assert "the number of rows was released with noise" in facts["privacy"]["text"]


def test_whether_a_filter_leaves_rows_does_not_show_where_their_number_is_private(
    heart: Consortium,
) -> None:
    """A refusal would tell no row from one row, without noise."""
    terms, budget = (text.replace("epsilon = 2", "epsilon = 60") for text in (PRIVACY, BUDGET))
    heart.write_study(f'{terms}count = "private"\n', components="1")
    heart.everywhere(
        lambda name: (
            f'ledger = "{name}.ledger"\nwhere = ["age > {900 if name == "north" else 0}"]\n{budget}'
        )
    )
    assert answer(*heart.call())["n"] == pytest.approx(450, abs=30)


def test_a_site_can_want_noise_that_outlasts_colluders(heart: Consortium) -> None:
    private(heart)
    heart.write_site("north", f'ledger = "n.ledger"\n[policy]\ncolluders = 1\n{BUDGET}')
    assert "'collusion'" in refusal(heart, code=3)
    heart.study.write_text(heart.study.read_text() + "colluders = 1\n")
    stated = answer(*heart.call())["privacy"]
    assert stated["epsilon_outsiders"] < stated["epsilon_participants"] == pytest.approx(2.0)


def test_the_options_of_a_method_reach_the_run(heart: Consortium) -> None:
    heart.write_study('[method]\nname = "power"\nlocal_steps = 2\n')
    asked = answer(*heart.call())["asked"]
    assert (asked["method"], asked["options"]) == ("power", {"local_steps": 2})


def private(heart: Consortium, **keys: str) -> None:
    heart.write_study(PRIVACY, components="1", **keys)
    heart.everywhere(lambda name: f'ledger = "{name}.ledger"\ndataset = "visits"\n{BUDGET}')


def test_a_private_study_spends_in_the_ledgers_and_a_second_run_is_refused(
    heart: Consortium, tmp_path: Path
) -> None:
    private(heart)
    facts = answer(*heart.call("-o", tmp_path / "out"))
    assert (facts["privacy"]["epsilon"], facts["scores"]) == (2.0, False)
    assert not (tmp_path / "out/scores").exists()
    assert set(facts["ledgers"]) == set(SITES)
    for name in SITES:
        with Ledger(tmp_path / f"{name}.ledger", readonly=True) as ledger:
            totals = ledger.totals("visits")
        assert totals.spends > 0
        assert totals.epsilon is not None
        assert 1.9 < totals.epsilon <= 2.0
    assert "'budget'" in refusal(heart, "-o", tmp_path / "again", code=3)
    assert not (tmp_path / "again").exists()


def test_a_larger_budget_of_a_site_lets_a_second_run_through(heart: Consortium) -> None:
    private(heart)
    budget = "[policy.budget]\nepsilon = 9\ndelta = 1e-5\n"
    heart.everywhere(lambda name: f'ledger = "{name}.ledger"\n{budget}')
    assert answer(*heart.call())["privacy"]["epsilon"] == 2.0
    assert answer(*heart.call())["privacy"]["epsilon"] == 2.0


def test_privacy_needs_a_ledger_trust_and_no_scores(heart: Consortium) -> None:
    private(heart)
    heart.write_site("north")
    message = refusal(heart, code=1)
    assert "north.toml: ledger is required" in message
    assert 'Set ledger = "north.ledger".' in message
    heart.write_site("north", f'ledger = "n.ledger"\nshare_scores = true\n{BUDGET}')
    assert "north.toml: share_scores = true shows single rows" in refusal(heart, code=1)
    private(heart)
    heart.study.write_text(heart.study.read_text() + 'trust = "central"\n')
    message = refusal(heart, code=3)
    assert "island.toml: policy.trusts_coordinator = false" in message
    trusting = f"[policy]\ntrusts_coordinator = true\n{BUDGET}"
    heart.everywhere(lambda name: f'ledger = "{name}.ledger"\n{trusting}')
    assert answer(*heart.call())["privacy"]["trust"] == "central"


def test_messages_of_the_library_speak_of_keys(heart: Consortium, tmp_path: Path) -> None:
    heart.write_study(components="40")
    message = refusal(heart, code=1)
    assert "study.toml: components = 40 must be at most 6" in message
    assert "Lower components." in message
    private(heart)
    text = heart.study.read_text().replace("1e-5", "0.5")
    heart.study.write_text(text)
    large = BUDGET.replace("1e-5", "0.5")
    heart.everywhere(lambda name: f'ledger = "{name}.ledger"\n{large}')
    message = refusal(heart, code=1)
    assert "study.toml: privacy.delta = 0.5 must be below 1/n" in message
    assert "Lower privacy.delta." in message
    heart.write_study()
    heart.write_site("island", data="nowhere.csv")
    message = refusal(heart, code=1)
    assert "island.toml: " in message
    assert "nowhere.csv does not exist" in message
    (tmp_path / "island.csv").write_text("name,age\nAnn,3\nBob,4\n")
    heart.write_site("island")
    heart.write_study(features='["name", "age"]')
    message = refusal(heart, code=1)
    assert "do not hold numbers: 'name'. " in message
    assert "exclude in the site's file" in message
    assert "Ann" not in message


@pytest.mark.parametrize(
    "flags",
    [
        ("-k", 3),
        ("--method", "auto"),
        ("--secure",),
        ("--epsilon", 1),
        ("--delta", 1e-6),
        ("--clip", 3),
        ("--colluders", 0),
        ("--dropouts", 0),
        ("--count", "public"),
        ("--option", "precision=single"),
        ("--trust", "local"),
        ("--scale",),
        ("--no-center",),
        ("--features", "same"),
        ("--column", "age"),
        ("--id-column", "id"),
        ("--seed", 1),
        ("--share-scores", "north"),
    ],
)
def test_what_the_study_says_is_not_said_again(
    heart: Consortium, flags: tuple[object, ...]
) -> None:
    message = refusal(heart, *flags, code=2)
    option = str(flags[0]).replace("--no-", "--")
    assert f"{option} cannot be combined with --study" in message


def test_files_and_flags_that_do_not_fit_a_study_are_usage_errors(
    heart: Consortium, tmp_path: Path
) -> None:
    run = eigenfed("fit", "--study", heart.study, tmp_path / "north.csv")
    assert run.exit_code == 2
    assert "north.csv is not a .toml file" in run.stderr
    run = eigenfed("fit", tmp_path / "north.csv")
    assert run.exit_code == 2
    assert "Missing option '-k'" in run.stderr
    assert "--force requires" in refusal(heart, "--force", code=2)
    site = tmp_path / "north.toml"
    for study, file, what in ((site, heart.study, "a site"), (heart.study, heart.study, "a study")):
        run = eigenfed("fit", "--study", study, file)
        assert f"{study} describes {what}, and a" in run.stderr
    heart.write_site("north", 'where = ["age > 3"]\n')
    assert "north.toml selects some with where" in refusal(heart, "--write-back", code=2)


def test_a_study_file_with_a_fault_is_told_by_file_and_key(heart: Consortium) -> None:
    heart.write_study(component="3")
    message = refusal(heart, code=1)
    assert (
        "study.toml:4: 'component' is not a key of this file. Did you mean 'components'?" in message
    )
    heart.write_study()
    heart.write_site("north", "[policy]\nmin_row = 3\n")
    assert "north.toml:5: 'min_row' is not a key of [policy]" in refusal(heart, code=1)
    heart.study.unlink()
    assert refusal(heart, code=2).count("study.toml") == 1


def test_a_finished_rehearsal_is_there_again_from_its_transcript(
    heart: Consortium, tmp_path: Path
) -> None:
    heart.everywhere(
        lambda name: f'ledger = "{name}.ledger"\n[policy.budget]\nepsilon = 9.0\ndelta = 1e-6\n'
    )
    heart.write_study("[privacy]\nepsilon = 9.0\ndelta = 1e-6\n")
    call = heart.call("--transcript", tmp_path / "run.transcript")
    facts = answer(*call)
    run = eigenfed(*call, "--json")
    again = json.loads(run.stdout)
    assert "UserWarning" not in run.stderr
    assert "eigenfed: All rounds come from the transcript" in run.stderr
    for name in ("eigenvalues", "rounds", "bytes_up", "leakage", "privacy", "ledgers"):
        assert again.get(name) == facts.get(name), name
    assert "'budget'" in refusal(heart, code=3)
