"""What a study asks of a site, in words, and what its policy refuses, before a row is read."""

from pathlib import Path

import pytest

from eigenfed.study.network.roster_file import read_roster
from eigenfed.study.network.study_terms import StudyTerms, describe_terms
from network_parties import STUDY, Parties

PLAIN = STUDY.replace("secure = true\n", "")
PRIVATE = "[privacy]\nepsilon = 1\ndelta = 1e-6\n"
BUDGET = "[policy.budget]\nepsilon = 2\ndelta = 1e-6\n"


def terms_of(home: Path, study: str, *, top: str = "", policy: str = "") -> StudyTerms:
    """Describe a study to a site whose file has more lines."""
    parties = Parties.start(home, "", study)
    file = home / "north" / "site.toml"
    file.write_text(top + file.read_text() + policy)
    return describe_terms(parties.study, parties.site("north"))


def test_a_secure_study_says_that_only_sums_are_seen(tmp_path: Path) -> None:
    terms = terms_of(tmp_path, STUDY)
    assert terms.refusals == {}
    assert terms.methods == ("krylov",)
    said = dict(terms.lines)
    assert said["study"] == f"heart, fingerprint {terms.fingerprint}"
    assert said["features"] == "3, as listed in the study"
    assert said["secure sums"].startswith("yes: the coordinator sees sums over sites")
    assert terms.leaves["scatter times directions"] == "in a sum over all sites"
    assert terms.leaves["magnitude of entries and of the weight"] == "from this site alone"
    assert not any("key" in kind or "share" in kind for kind in terms.leaves)


def test_a_plain_study_says_that_replies_are_seen_and_exact(tmp_path: Path) -> None:
    text = PLAIN.replace('"krylov"', '"auto"').replace('["age", "bmi", "hdl"]', '"common"')
    terms = terms_of(tmp_path, text + 'by_site = true\nprepare = ["log1p", "select:2"]\n')
    assert terms.methods == ("covariance", "factors", "krylov")
    said = dict(terms.lines)
    assert said["method"] == "covariance or factors or krylov"
    assert said["secure sums"].startswith("no: the coordinator sees the replies of this site")
    assert said["privacy"] == "none: what leaves is exact"
    assert said["preparation"] == "log1p, select:2"
    assert said["features"] == "the columns that all sites have"
    assert terms.leaves["weight, and moments of the scores"] == "from this site alone"


@pytest.mark.parametrize(
    ("components", "said"),
    [
        ("2", "2"),
        ("0.9", "as many as explain 90% of the variance"),
        ('"all"', "all"),
        ('"auto"', "those that stand out from noise"),
    ],
)
def test_components_are_told_in_words(tmp_path: Path, components: str, said: str) -> None:
    text = PLAIN.replace("components = 2", f"components = {components}").replace("krylov", "auto")
    assert dict(terms_of(tmp_path, text).lines)["components"] == said


@pytest.mark.parametrize(
    ("trust", "policy", "said", "leaves"),
    [
        ("secure_sum", "", "every site adds a part", "with noise, in a sum over all sites"),
        ("local", "", "this site adds all of the noise", "with noise, from this site alone"),
        (
            "central",
            "trusts_coordinator = true\n",
            "the coordinator adds the noise, and sees sums without it",
            "without noise, which the coordinator adds",
        ),
    ],
)
def test_a_private_study_says_who_adds_the_noise(
    tmp_path: Path, trust: str, policy: str, said: str, leaves: str
) -> None:
    text = PLAIN.replace('"krylov"', '"auto"') + PRIVATE + f'trust = "{trust}"\n'
    terms = terms_of(tmp_path, text, top='ledger = "a.ledger"\n', policy=policy + BUDGET)
    assert terms.refusals == {}
    assert said in dict(terms.lines)["privacy"]
    assert "epsilon 1 and delta 1e-06 for a row (replace_one)" in dict(terms.lines)["privacy"]
    assert terms.leaves["total of clipped rows"] == leaves
    assert terms.leaves["numbers of rows and features, public"] == "from this site alone"


@pytest.mark.parametrize(
    ("study", "top", "policy", "code"),
    [
        (PLAIN, "", "secure_only = true\n", "unmasked"),
        (STUDY, "", 'methods = ["covariance"]\n', "method"),
        (PLAIN + 'prepare = ["select:2"]\n', "", 'steps = ["log1p"]\n', "prepare"),
        (STUDY, 'ledger = "a"\n', BUDGET, "exact"),
        (STUDY.replace("krylov", "covariance"), "", "max_rank_fraction = 0.5\n", "leakage"),
        (PLAIN.replace("krylov", "auto") + PRIVATE, "", "", "site_file"),
        (
            PLAIN.replace("krylov", "auto") + PRIVATE + 'trust = "central"\n',
            'ledger = "a"\n',
            BUDGET,
            "untrusted",
        ),
        (
            PLAIN.replace("krylov", "auto") + PRIVATE,
            'ledger = "a"\nwhere = ["age > 3"]\n',
            BUDGET,
            "count",
        ),
    ],
)
def test_what_the_policy_refuses_is_told_before_anything_runs(
    tmp_path: Path, study: str, top: str, policy: str, code: str
) -> None:
    refusals = terms_of(tmp_path, study, top=top, policy=policy).refusals
    assert list(refusals) == [code]
    assert refusals[code].endswith(".")


def test_a_method_that_the_policy_refuses_is_not_offered_if_another_is_left(tmp_path: Path) -> None:
    text = STUDY.replace('"krylov"', '"auto"')
    terms = terms_of(tmp_path, text, policy='methods = ["krylov"]\n')
    assert terms.refusals == {}
    assert terms.methods == ("krylov",)
    assert "covariance" not in terms.leaves


def test_a_study_with_sites_outside_the_roster_is_refused(tmp_path: Path) -> None:
    parties = Parties.start(tmp_path)
    parties.join()
    site = parties.site("north")
    roster = read_roster(site.network / "roster.json")
    assert describe_terms(parties.study, site, roster).refusals == {}
    path = parties.study.path
    path.write_text(path.read_text().replace('"island"]', '"island", "west"]'))
    refusals = describe_terms(parties.study, site, roster).refusals
    assert "lacks west. Join with a roster of all sites" in refusals["other_sites"]


def test_two_sites_can_share_a_study_without_secure_sums(tmp_path: Path) -> None:
    text = PLAIN.replace(', "island"', "")
    assert terms_of(tmp_path, text).refusals == {}


def test_a_study_that_lists_no_features_says_so(tmp_path: Path) -> None:
    terms = terms_of(tmp_path, PLAIN.replace('["age", "bmi", "hdl"]', '"same"'))
    assert dict(terms.lines)["features"] == "all columns, which all sites must have"
