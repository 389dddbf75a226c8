"""Site files: what they mean, and one sentence for each way to get them wrong."""

from dataclasses import fields
from pathlib import Path

import pytest

from eigenfed.errors import DataError
from eigenfed.privacy.ledger.entries import Budget
from eigenfed.privacy.policy import Policy
from eigenfed.study.config import read_site
from eigenfed.study.config.site_file import USUAL_STEPS, PolicyTable

TOP = 'name = "north"\ndata = "rows/north.csv"\n'
POLICY = "[policy]\nmin_rows = 20\n"
DIGEST = "0123456789abcdef" * 4


def written(folder: Path, text: str) -> Path:
    path = folder / "north.toml"
    path.write_text(text)
    return path


def test_absent_keys_stand_for_their_defaults(tmp_path: Path) -> None:
    site = read_site(written(tmp_path, TOP + POLICY))
    assert site.data == tmp_path / "rows/north.csv"
    assert (site.id_column, site.where, site.ledger) == (None, (), None)
    assert (site.dataset, site.share_scores, site.approved) == ("data", False, None)
    assert site.policy == Policy(min_rows=20, min_counted=100, steps=USUAL_STEPS)
    assert (site.network, site.drop) == (tmp_path / "network", None)


def test_folders_of_the_network_are_relative_to_the_file(tmp_path: Path) -> None:
    site = read_site(written(tmp_path, TOP + 'network = "keys"\ndrop = "/mnt/drop"\n' + POLICY))
    assert (site.network, site.drop) == (tmp_path / "keys", Path("/mnt/drop"))


@pytest.mark.parametrize("text", [TOP, TOP + "[policy]\nmax_rounds = 3\n"])
def test_a_site_must_state_its_least_number_of_rows(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError) as caught:
        read_site(written(tmp_path, text))
    assert str(caught.value).endswith(
        "north.toml: policy.min_rows is required and must be an integer of at least 2. Set "
        "min_rows = 20 below [policy], for example."
    )


def test_every_key_is_read(tmp_path: Path) -> None:
    text = TOP + (
        'id_column = ""\nwhere = ["age >= 18", "cohort == 2"]\nledger = "/books/north.ledger"\n'
        f'dataset = "visits 2026"\napproved = ["{DIGEST}"]\nshare_scores = true\n[policy]\n'
        "max_rank_fraction = 0.5\nmax_variance_fraction = 0.9\nmax_rounds = 30\nmin_rows = 20\n"
        'min_counted = 50\nmax_runs = 7\nmethods = ["krylov", "merge"]\nsecure_only = true\n'
        'steps = ["log1p", "standardize"]\n'
        "least_roster_change = 2\nsound_only = true\ncolluders = 1\ntrusts_coordinator = true\n"
        "[policy.budget]\nepsilon = 2\ndelta = 1e-6\n"
        'relation = "zero_out"\n'
    )
    site = read_site(written(tmp_path, text))
    assert (site.id_column, site.where) == ("", ("age >= 18", "cohort == 2"))
    assert site.ledger == Path("/books/north.ledger")
    assert (site.dataset, site.share_scores) == ("visits 2026", True)
    assert site.approved == (DIGEST,)
    assert site.policy == Policy(
        max_rank_fraction=0.5,
        max_variance_fraction=0.9,
        max_rounds=30,
        min_rows=20,
        min_counted=50,
        max_runs=7,
        methods=frozenset({"krylov", "merge"}),
        steps=frozenset({"log1p", "standardize"}),
        secure_only=True,
        least_roster_change=2,
        budget=Budget(2.0, 1e-6, "zero_out"),
        sound_only=True,
        colluders=1,
        trusts_coordinator=True,
    )


def test_a_policy_can_be_written_in_full() -> None:
    assert set(PolicyTable.model_fields) == {field.name for field in fields(Policy)}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('where = "age > 3"', 'where = "age > 3" must be a list of conditions, each once, of a c'),
        ('where = ["age"]', 'where = ["age"] must be a list of conditions'),
        (f'where = ["age > {"9" * 400}"]', "where has 'age > 999"),
        (
            'data = ""',
            'data = "" must be the path of a file, in quotes. Set data = "north.csv", for e',
        ),
        ('name = "a/b"', 'name = "a/b" must be 1 to 64 letters from a to z, digits'),
        ('ledger = "l"\ndataset = ""', 'dataset = "" must be 1 to 200 printable characters.'),
        ('ledger = "l"\ndataset = "\\u200b"', "dataset = "),
        ('dataset = "d"', "dataset requires a ledger, in which it is the name of the rows. Set"),
        ('share_scores = "no"', 'share_scores = "no" must be true or false.'),
        ("[policy]\nmin_rows = 1", "policy.min_rows = 1 must be an integer of at least 2."),
        ("[policy]\nmax_rounds = 0", "policy.max_rounds = 0 must be an integer of at least 1"),
        (
            "[policy]\nmax_rank_fraction = 1.5",
            "policy.max_rank_fraction = 1.5 must be a number of at least 0 and at most 1.",
        ),
        (
            '[policy]\nmethods = ["scater"]',
            'policy.methods = ["scater"] must be a list of names of methods, each once.',
        ),
        ("[policy]\nmax_runs = 0", "policy.max_runs = 0 must be an integer of at least 1."),
        (
            'approved = ["abc"]',
            'approved = ["abc"] must be a list of digests, each once, of 64 hex',
        ),
        (
            f'approved = ["{DIGEST}", "{DIGEST}"]',
            f'approved = ["{DIGEST}", "',
        ),
        ("[policy]\nmin_row = 3", "'min_row' is not a key of [policy]. Did you mean 'min_rows'? R"),
        (
            "[policy.budget]\nepsilon = 1\ndelta = 1e-6",
            "[policy.budget] requires a ledger, which records what is spent over all runs. Set",
        ),
        (
            "[policy]\nbudget = 3",
            "policy.budget = 3 must be a table. Write its keys below [policy.budget].",
        ),
        (
            'ledger = "l"\n[policy.budget]\nepsilon = 1',
            "policy.budget.delta is required and must be a number above 0 and below 1.",
        ),
        (
            'ledger = "l"\n[policy.budget]\nepsilon = 1e300\ndelta = 1e-6',
            "policy.budget.epsilon = 1e+300 must be a number above 0 and below 1e+06.",
        ),
    ],
)
def test_a_key_that_breaks_its_rule_is_named_with_rule_and_remedy(
    tmp_path: Path, text: str, fault: str
) -> None:
    key = text.split(" ")[0]
    base = "".join(line + "\n" for line in TOP.splitlines() if not line.startswith(f"{key} "))
    if "min_rows" not in text:
        text = text.replace("[policy]", POLICY) if "[policy]" in text else text + "\n" + POLICY
    with pytest.raises(DataError) as caught:
        read_site(written(tmp_path, base + text + "\n"))
    where, _, said = str(caught.value).partition(": ")
    assert said.startswith(fault)
    assert "\n" not in said
    if "is required" in fault:
        assert where == str(tmp_path / "north.toml")
    else:
        line = int(where.removeprefix(f"{tmp_path / 'north.toml'}:"))
        assert (base + text).splitlines()[line - 1].split(" ")[0] in fault
