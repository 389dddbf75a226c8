"""Pages that people read: nothing on them is made up where something is not known."""

import numpy as np
import pytest

from eigenfed import FederatedPCA
from eigenfed.cli.tables import fit_text, judge_facts, summary_text
from eigenfed.report.wording import size
from eigenfed.study.results.facts import describe_fit

X = np.random.default_rng(0).standard_normal((80, 30))


def test_of_many_components_the_first_are_shown_and_the_rest_counted() -> None:
    page = fit_text(describe_fit(FederatedPCA(25).fit_sites({"a": X}), ["a"]))
    assert "PC20" in page
    assert "PC21" not in page
    assert "and 5 more; all 25 together explain" in page
    assert "at 1 site, by" in page


def test_what_is_not_known_is_said_not_to_be() -> None:
    facts = describe_fit(FederatedPCA(2).fit_sites({"a": X}), ["a"])
    facts |= {"certificate": None, "ratios": [None, None], "eigenvalues": [1.0, None]}
    lines = {line.split()[0]: line.split() for line in fit_text(facts).splitlines() if line}
    assert lines["PC1"] == ["PC1", "1", "unknown", "unknown"]
    assert lines["PC2"][1] == "unknown"
    assert lines["certificate"] == ["certificate", "none"]


def test_leakage_of_a_secure_run_is_said_to_be_hidden_in_sums() -> None:
    sites = {"a": X[:30], "b": X[30:50], "c": X[50:]}
    facts = describe_fit(FederatedPCA(2, secure=True).fit_sites(sites), sites)
    assert "of all sites together, not of a single site" in fit_text(facts)


def test_a_few_of_very_many_directions_are_not_said_to_be_none() -> None:
    facts = describe_fit(FederatedPCA(2, method="krylov").fit_sites({"a": X}), ["a"])
    facts["leakage"] = {"rank_fraction": 0.004, "variance_fraction": 1.0}
    assert "along less than 1% of directions (100% of its variance)" in fit_text(facts)


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        (0.5, "at most 3.0e+01 degrees"),
        (1.5, "unknown"),
        (np.inf, "unknown"),
        (None, "unknown"),
    ],
)
def test_the_angle_of_a_summary_is_told_as_far_as_it_is_known(
    bound: float | None, words: str
) -> None:
    facts = {"n": 1e7, "d": 3, "eigenvalues": [2.0], "ratios": [0.5], "sine_bound": bound}
    page = summary_text(facts)
    assert page.startswith("10000000 rows x 3 features")
    assert words in page.splitlines()[-1]


def test_one_row_and_one_feature_are_counted_in_words() -> None:
    facts = {"n": 1.0, "d": 1, "eigenvalues": [0.0], "ratios": [0.0], "sine_bound": None}
    assert summary_text(facts).startswith("1 row x 1 feature\n")


def test_equal_rows_are_said_to_be_equal() -> None:
    sites = {"a": np.full((30, 4), 3.0), "b": np.full((20, 4), 3.0)}
    page = fit_text(describe_fit(FederatedPCA(2).fit_sites(sites), sites))
    assert page.startswith("NOT CERTIFIED: all rows are equal, so that no direction")


def test_rows_without_variance_in_a_private_result_are_not_said_to_be_equal() -> None:
    sites = {"a": X[:30], "b": X[30:50], "c": X[50:]}
    facts = describe_fit(FederatedPCA(2).fit_sites(sites), sites)
    terms = {"trust": "secure_sum", "text": "private", "epsilon": 0.1}
    facts |= {"privacy": terms, "signal": [0.1, 0.0], "total_variance": 0.0}
    facts |= {"eigenvalues": [0.0, 0.0], "ratios": [0.0, 0.0]}
    facts["asked"] = facts["asked"] | {"privacy": {"count": "public"}}
    page = fit_text(facts)
    assert page.startswith("NOT CERTIFIED: noise hides the variance of every direction.\n")
    assert "The variances of 2 components are lost in noise." in judge_facts(facts).text


def test_an_angle_of_zero_is_written_as_such() -> None:
    page = fit_text(describe_fit(FederatedPCA(1).fit_sites({"a": X[:, :1]}), ["a"]))
    assert "angle at most 0 degrees" in page


def test_sites_that_subtract_their_means_are_not_compared() -> None:
    sites = {"a": X[:30], "b": X[30:] + 9.0}
    pca = FederatedPCA(2, center="site").fit_sites(sites, by_site=True)
    page = fit_text(describe_fit(pca, sites))
    assert "sites        each site subtracted its own mean, so that their means do not" in page
    assert "of a component's variance lies between sites" not in page


def test_a_component_that_partly_tells_sites_apart_is_named() -> None:
    sites = {"a": X[:40], "b": X[40:]}
    facts = describe_fit(FederatedPCA(2).fit_sites(sites, by_site=True), sites)
    for explained, line in (
        ([0.02, 0.31], "31% of the variance of PC2 lies between sites: check how they differ"),
        ([0.02, 0.04], "at most 4% of a component's variance lies between sites"),
        ([0.6, 0.31], "PC1 mostly reflects differences between sites"),
    ):
        facts["by_site"] = {**facts["by_site"], "explained": explained}
        assert f"sites        {line}" in fit_text(facts)
    few = facts | {"n": 7, "sites": ["a", "b"]}
    few["by_site"] = {**facts["by_site"], "explained": [0.02, 0.31]}
    assert "at most 31% of a component's variance lies between sites" in fit_text(few)


def test_fractions_of_a_total_that_noise_hides_are_said_to_be_that() -> None:
    sites = {"a": X[:30], "b": X[30:50], "c": X[50:]}
    facts = describe_fit(FederatedPCA(2).fit_sites(sites), sites)
    terms = {"trust": "secure_sum", "text": "private", "epsilon": 1.0}
    facts |= {"privacy": terms, "signal": [0.9, 0.8], "ratios": [0.7, 0.3]}
    facts["asked"] = facts["asked"] | {"privacy": {"count": "public"}}
    line = "fractions    of the variance of the components alone: noise hides that of the rest"
    lines = fit_text(facts).splitlines()
    assert lines[lines.index(line) + 1].startswith("rounds")
    assert line not in fit_text(facts | {"ratios": [0.7, 0.2]})


def test_bytes_are_told_in_units() -> None:
    assert [size(n) for n in (999, 1000, 2_500_000, 7e9)] == [
        "999 bytes",
        "1.0 kB",
        "2.5 MB",
        "7.0 GB",
    ]


def test_one_component_of_one_site_is_singular() -> None:
    pca = FederatedPCA(1).fit_sites({"a": X}, by_site=True)
    page = fit_text(describe_fit(pca, ["a"]))
    assert page.startswith("1 component of 80 rows x 30 features at 1 site, by ")
    assert "between sites" not in page
