"""The pages as text: what may be in them, and what must not."""

import base64
import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest

from eigenfed import Budget, FederatedPCA, Policy, Privacy
from eigenfed.errors import InputError
from eigenfed.privacy.ledger.ledger import Ledger
from eigenfed.protocol.published import DPdisPCA
from eigenfed.report.html import make_shared_page, write_pages
from eigenfed.report.model import read_report
from eigenfed.report.page_elements import Facts, Notice, Page, PageTable, PageVerdict, Panels
from eigenfed.report.wording import explain_no_variance
from eigenfed.study.results.result_folder import write_result
from eigenfed.study.scores import Projected
from reports import ODD_NAMES, named, result, tables, without_pages

SITES = ("north", "south", "west")


def verdict(page: Page, title: str) -> PageVerdict:
    return next(found for found in page.verdicts if found.title == title)


def words(page: Page, section: str) -> str:
    found = next(part for part in page.sections if part.name == section)
    return " ".join(found.words)


def test_a_page_holds_all_it_needs_and_forbids_the_rest(tmp_path: Path) -> None:
    pages = result(tmp_path / "r", tables(), by_site=True, share=SITES)
    for path in (pages.shared, *pages.own.values()):
        text = path.read_text()
        assert re.findall(r"(?:src|srcset|action)\s*=", text) == []
        assert set(re.findall(r'href="([^"]*)"', text)) <= {
            *re.findall(r'href="(#[\w-]+)"', text),
            "../report.html",
        }
        assert re.findall(r"https?://[^\"' ]*", text) == ["http://www.w3.org/2000/svg"]
        assert "url(" not in text
        assert "default-src 'none'" in text
        for kind in ("style", "script"):
            inside = re.search(f"<{kind}>(.*?)</{kind}>", text, flags=re.DOTALL)
            assert inside is not None
            digest = base64.b64encode(hashlib.sha256(inside[1].encode()).digest()).decode()
            assert f"{kind}-src 'sha256-{digest}'" in text


def test_names_are_text_and_nothing_else(tmp_path: Path) -> None:
    odd = ("München-Süd", "it's <b>bold</b>", 'a "b" & c')
    with pytest.raises(ValueError, match="not a valid file name"):
        result(tmp_path / "r", named(tables(odd)))
    odd = ("München-Süd", "it's <b>bold<b>", 'a "b" & c')
    pages = result(tmp_path / "r", named(tables(odd)), by_site=True, share=odd)
    assert set(pages.own) == set(odd)
    for path in (pages.shared, *pages.own.values()):
        text = path.read_text()
        assert text.count("<script") == 1
        assert "<b>" not in text
        assert "München-Süd" in text or path.stem != "München-Süd"
    assert "&lt;script&gt;document.title" in pages.shared.read_text()
    assert ODD_NAMES[2] in pages.shared.read_text()


def test_rows_are_shown_to_all_only_where_a_site_opted_in(tmp_path: Path) -> None:
    pages = result(tmp_path / "r", tables(), share=("south",))
    text = pages.shared.read_text()
    assert set(re.findall(r'data-site="(\w+)"', text)) == {"south"}
    assert "Not shown: north and west." in text
    result(tmp_path / "none", tables())
    text = (tmp_path / "none/report.html").read_text()
    assert "data-scores" not in text
    assert "no site has agreed to show them" in text
    for site, path in pages.own.items():
        assert set(re.findall(r'data-site="(\w+)"', path.read_text())) == {site}


def test_a_private_page_shows_no_row_even_if_somebody_put_scores_there(tmp_path: Path) -> None:
    private = Privacy(5.0, 1e-3, clip=20.0)
    pages = result(tmp_path / "r", tables(), k=2, scores=False, privacy=private)
    assert pages.own == {}
    (tmp_path / "r/scores").mkdir()
    np.save(tmp_path / "r/scores/north.npy", np.ones((5, 2)))
    path = tmp_path / "r/result.json"
    facts = json.loads(path.read_text()) | {"scores": True, "shown_scores": ["north"]}
    path.write_text(json.dumps(facts))
    assert "data-scores" not in write_pages(tmp_path / "r").shared.read_text()


def test_a_private_page_states_the_guarantee(tmp_path: Path) -> None:
    private = Privacy(5.0, 1e-3, clip=20.0)
    result(tmp_path / "r", tables(), k=2, scores=False, privacy=private)
    report = read_report(tmp_path / "r")
    page = make_shared_page(report)
    assert verdict(page, "What left the sites").value == "private, epsilon 5"
    assert verdict(page, "Accuracy").value == "converged, with noise"
    for line in report.facts["privacy"]["text"].splitlines():
        assert line in words(page, "privacy")
    assert "matrix with noise" in words(page, "convergence")
    assert "figures with noise" in words(page, "by-site")
    text = (tmp_path / "r/report.html").read_text()
    for name in ("outsiders", "participants"):
        assert f"{report.facts['privacy'][f'epsilon_{name}']:.3g}</dd>" in text


def test_a_trusted_coordinator_is_told_without_a_guarantee_against_it(tmp_path: Path) -> None:
    central = Privacy(5.0, 1e-3, clip=20.0, trust="central")
    pages = result(tmp_path / "r", tables(), k=2, scores=False, privacy=central)
    assert "<dd>no guarantee</dd>" in pages.shared.read_text()


def test_a_private_number_of_rows_is_not_told_as_it_is(tmp_path: Path) -> None:
    private = Privacy(5.0, 1e-3, clip=20.0, count="private")
    exact = sum(map(len, tables().values()))
    told = set()
    for seed in range(6):
        folder = tmp_path / str(seed)
        result(folder, tables(), k=2, scores=False, privacy=private)
        told.add(read_report(folder).facts["n"])
    assert told != {exact}


def test_a_mechanism_that_guarantees_nothing_is_called_that(tmp_path: Path) -> None:
    result(tmp_path / "r", tables(), k=2, scores=False, privacy=DPdisPCA(2.0, 1e-3))
    page = make_shared_page(read_report(tmp_path / "r"))
    assert verdict(page, "What left the sites").value == "no guarantee"
    section = next(part for part in page.sections if part.name == "privacy")
    (notice,) = (part for part in section.parts if isinstance(part, Notice))
    assert notice.text == "This mechanism gives no guarantee. The paper claims epsilon 2."


def test_a_secure_page_says_that_only_sums_can_be_read(tmp_path: Path) -> None:
    pages = result(tmp_path / "r", tables(), secure=True)
    page = make_shared_page(read_report(tmp_path / "r"))
    assert verdict(page, "What left the sites").value == "sums over all sites"
    assert "only sums over all sites can be read" in words(page, "by-site")
    assert "not of a single site" in words(page, "privacy")
    assert "ran in one process, whose owner could see everything" in words(page, "left")
    table = next(
        p for s in page.sections for p in s.parts if getattr(p, "name", "") == "left-table"
    )
    assert isinstance(table, PageTable)
    ways = {row[0]: row[3] for row in table.rows}
    assert ways["moments"] == "masked, exact in the sum"
    assert ways["magnitude"] == "exact, readable by the coordinator"
    assert set(pages.own) == set(SITES)


def test_a_trusted_coordinator_is_said_to_see_sums_without_noise(tmp_path: Path) -> None:
    private = Privacy(5.0, 1e-3, clip=20.0, trust="central")
    pages = result(tmp_path / "r", tables(), k=2, scores=False, privacy=private)
    assert "to the trusted coordinator, which adds the noise" in pages.shared.read_text()


def test_a_run_that_did_not_converge_says_so_first(tmp_path: Path) -> None:
    flat = {
        name: np.random.default_rng(at).standard_normal((200, 40)) for at, name in enumerate(SITES)
    }
    result(tmp_path / "r", flat, k=4, method="subspace", max_rounds=2)
    page = make_shared_page(read_report(tmp_path / "r"))
    said = verdict(page, "Accuracy")
    assert (said.value, said.tone) == ("not converged", "look")
    assert said.words.startswith("Not certified: there is no bound on the angle. 4 of 4 components")


def test_components_without_a_gap_have_no_bound(tmp_path: Path) -> None:
    flat = np.eye(3) - 1 / 3
    result(tmp_path / "r", {"a": flat, "b": -flat}, k=1)
    said = verdict(make_shared_page(read_report(tmp_path / "r")), "Accuracy")
    assert (said.value, said.tone) == ("not converged", "look")
    assert "nearly equal variance" in said.words
    result(tmp_path / "bare", {"a": flat, "b": -flat}, k=1, method="power", certify=False)
    said = verdict(make_shared_page(read_report(tmp_path / "bare")), "Accuracy")
    assert (said.value, said.tone) == ("not certified", "look")


def test_a_component_that_is_a_site_is_called_that(tmp_path: Path) -> None:
    result(tmp_path / "r", tables(apart=30.0), by_site=True)
    page = make_shared_page(read_report(tmp_path / "r"))
    said = verdict(page, "Differences between sites")
    assert said.tone == "look"
    assert said.words.startswith(("99 % of the variance of PC1", "100 % of the variance of PC1"))
    result(tmp_path / "alike", tables(), by_site=True)
    assert (
        verdict(make_shared_page(read_report(tmp_path / "alike")), "Differences between sites").tone
        == "good"
    )


def test_lost_sites_are_named(tmp_path: Path) -> None:
    result(tmp_path / "r", tables())
    path = tmp_path / "r/run.jsonl"
    path.write_text(path.read_text().replace('"lost": []', '"lost": ["west"]', 1))
    page = make_shared_page(read_report(tmp_path / "r"))
    facts = page.sections[0].parts[0]
    assert isinstance(facts, Facts)
    assert ("Did not answer a request", "west") in facts.items


def test_pages_of_sites_that_have_no_scores_any_more_are_taken_away(tmp_path: Path) -> None:
    result(tmp_path / "r", tables())
    (tmp_path / "r/scores/north.npy").unlink()
    pages = write_pages(tmp_path / "r")
    kept = {f"{site}.{kind}" for site in ("south", "west") for kind in ("csv", "html")}
    assert {path.name for path in (tmp_path / "r/sites").iterdir()} == kept
    assert set(pages.own) == {"south", "west"}


def test_a_warning_names_the_site_and_the_features(tmp_path: Path) -> None:
    sites = named(tables(apart=30.0))
    text = result(tmp_path / "r", sites, by_site=True).shared.read_text()
    assert re.search(r"On PC1, (north|west) lies [+-]1\.\d standard deviations", text)
    assert "its largest loadings are those of x7" in text
    assert re.search(
        r"PC1 is \d+ % x7[ ,].* and PC.* Check whether one of them is an identif", text
    )
    one = result(tmp_path / "one", sites, by_site=True, k=1).shared.read_text()
    assert re.search(r"PC1 is \d+ % x7\. Check whether it is an identifier", one)
    two = result(tmp_path / "two", sites, by_site=True, k=2).shared.read_text()
    assert re.search(r"The first component explains \d+ % of it, both together \d+ %\.", two)
    assert re.search(r"The first component explains \d+ % of it, all 3 together \d+ %\.", text)
    mixed = {name: rows @ np.ones((8, 8)) + rows for name, rows in tables().items()}
    like = result(tmp_path / "like", mixed, by_site=True, k=1).shared.read_text()
    assert "its largest loadings" not in like
    assert "is an identifier" not in like


def test_a_page_about_equal_rows_says_so(tmp_path: Path) -> None:
    pca = FederatedPCA(2).fit_sites({"north": np.full((9, 4), 3.0), "south": np.full((7, 4), 3.0)})
    write_result(tmp_path / "r", pca, sites=("north", "south"))
    page = make_shared_page(read_report(tmp_path / "r"))
    found = verdict(page, "Variance explained")
    assert (found.value, found.tone) == ("none", "look")
    assert found.words.startswith("All rows are equal")
    assert (
        verdict(page, "Accuracy").words
        == f"Not certified: {explain_no_variance({'privacy': None})}"
    )
    assert "is an identifier" not in write_pages(tmp_path / "r").shared.read_text()


def test_sites_that_subtract_their_means_are_not_compared(tmp_path: Path) -> None:
    sites = named(tables(apart=30.0))
    pca = FederatedPCA(3, center="site").fit_sites(sites, by_site=True)
    write_result(tmp_path / "r", pca, sites=sites)
    page = make_shared_page(read_report(tmp_path / "r"))
    found = verdict(page, "Differences between sites")
    assert (found.value, found.tone) == ("removed", "plain")
    assert "Each site subtracted its own mean" in words(page, "by-site")
    text = write_pages(tmp_path / "r").shared.read_text()
    assert "Mean score of each site" not in text
    assert "Contribution of each site" in text


def test_numbers_of_rows_are_not_disclosed_only_where_they_are_hidden(tmp_path: Path) -> None:
    sites = tables()
    for name, settings, said in (
        ("exact", {}, "not listed"),
        ("secure", {"secure": True}, "not disclosed"),
        ("public", {"privacy": Privacy(100.0, 1e-3)}, "not listed"),
        ("private", {"privacy": Privacy(100.0, 1e-3, count="private")}, "not disclosed"),
    ):
        pca = FederatedPCA(1, **settings).fit_sites(sites)
        write_result(tmp_path / name, pca, sites=sites)
        page = make_shared_page(read_report(tmp_path / name))
        computed = next(part for part in page.sections if part.name == "computed")
        table = next(part for part in computed.parts if isinstance(part, PageTable))
        assert {row[1] for row in table.rows} == {said}, name


def test_fractions_are_not_shown_as_all_of_a_variance_that_noise_hides(tmp_path: Path) -> None:
    sites = tables()
    pca = FederatedPCA(2, privacy=Privacy(100.0, 1e-3)).fit_sites(sites)
    write_result(tmp_path / "r", pca, sites=sites)
    report = read_report(tmp_path / "r")
    report.facts["ratios"] = [0.7, 0.3]
    page = make_shared_page(report)
    found = verdict(page, "Variance explained")
    assert (found.value, found.tone) == ("unknown", "look")
    assert "Noise hides the variance outside the components" in words(page, "variance")
    report.facts["ratios"] = [0.7, 0.2]
    assert "Noise hides" not in words(make_shared_page(report), "variance")
    report.facts.update(total_variance=0.0, eigenvalues=[0.0, 0.0], ratios=[0.0, 0.0])
    report.facts["certificate"]["converged"] = [False, False]
    page = make_shared_page(report)
    for title in ("Variance explained", "Accuracy"):
        assert "oise hides the variance of every direction." in verdict(page, title).words
    assert words(page, "variance").startswith("Noise hides the variance of every direction.")


def test_far_rows_and_missing_entries_are_on_the_sites_own_page_only(tmp_path: Path) -> None:
    sites = tables()
    sites["south"][17] = 50.0
    pca = FederatedPCA(2).fit_sites(sites)
    rows = {
        site: Projected(
            pca.transform(table),
            tuple(f"{site}-{at:03d}" for at in range(len(table))),
            (0, 3, *[0] * 6) if site == "south" else None,
        )
        for site, table in sites.items()
    }
    write_result(tmp_path / "r", pca, sites=sites, rows=rows, date="2031-02-03")
    pages = write_pages(tmp_path / "r")
    own = pages.own["south"].read_text()
    table = own[own.index('id="far-table"') :]
    assert table.index("south-017") < table.index("</tr>", table.index("<tbody>"))
    assert "3 entries of 1 feature are missing" in own
    assert "north-" not in own
    assert "are missing" not in pages.own["north"].read_text()
    shared = pages.shared.read_text() + "".join(path.read_text() for path in pages.exports)
    assert "south-0" not in shared
    assert "far-table" not in shared
    assert "2031-02-03" in shared
    assert pca.egress_["north"][0].run in shared
    digest = hashlib.sha256((tmp_path / "r/components.npy").read_bytes()).hexdigest()
    assert digest in shared
    scores = hashlib.sha256((tmp_path / "r/scores/south.npy").read_bytes()).hexdigest()
    assert scores not in shared


def test_what_left_by_row_is_called_that(tmp_path: Path) -> None:
    whole = tables(("all",))["all"]
    halves = {"left": whole[:, :4], "right": whole[:, 4:]}
    keys = {name: np.arange(len(whole)) for name in halves}
    pca = FederatedPCA(2, split="features", random_state=0).fit_sites(halves, keys=keys)
    write_result(tmp_path / "r", pca, sites=halves)
    text = write_pages(tmp_path / "r").shared.read_text()
    assert "vectors with one entry per row left them" in text
    assert "No row left" not in text


def test_what_the_ledgers_come_to_is_on_the_page(tmp_path: Path) -> None:
    sites, ledgers = tables(), {name: Ledger(None) for name in SITES}
    pca = FederatedPCA(2, privacy=Privacy(2.0, 1e-3, clip=20.0), random_state=0)
    policies = dict.fromkeys(SITES, Policy(budget=Budget(2.0, 1e-3)))
    pca.fit_sites(sites, ledgers=ledgers, policies=policies)
    totals = {name: ledger.totals("data") for name, ledger in ledgers.items()}
    write_result(tmp_path / "r", pca, sites=sites, ledgers=totals)
    write_pages(tmp_path / "r")
    page = make_shared_page(read_report(tmp_path / "r"))
    section = next(part for part in page.sections if part.name == "privacy")
    table = section.parts[-1]
    assert isinstance(table, PageTable)
    assert [row[0] for row in table.rows] == list(SITES)
    assert [row[1] for row in table.rows] == [totals[name].epsilon for name in SITES]
    assert table.rows[0][1] == pytest.approx(2.0, rel=1e-6)
    for row in table.rows:
        assert str(row[5]) in (tmp_path / "r/report.html").read_text()


def test_scores_that_are_not_written_cannot_be_shared(tmp_path: Path) -> None:
    pca = FederatedPCA(2).fit_sites(tables())
    with pytest.raises(InputError, match="share_scores='north' must name a site whose scores are"):
        write_result(tmp_path / "r", pca, sites=SITES, share_scores=["north"])
    assert list(tmp_path.iterdir()) == []


def test_the_same_folder_gives_the_same_page(tmp_path: Path) -> None:
    before = result(tmp_path / "r", tables(), by_site=True, share=SITES).shared.read_bytes()
    assert write_pages(tmp_path / "r").shared.read_bytes() == before


def test_one_component_has_nothing_to_be_drawn_against(tmp_path: Path) -> None:
    pages = result(tmp_path / "r", tables(), k=1, by_site=True, share=SITES)
    assert "no second axis for a plot of rows" in pages.shared.read_text()


def test_a_large_study_stays_below_three_megabytes(tmp_path: Path) -> None:
    """50 sites, 100 components, 60 rounds, long names, every row shared."""
    many = tuple(f"a clinic with a name, number {at}" for at in range(50))
    long = tuple(f"{'a feature with a very long name ' * 4}{at}" for at in range(130))
    sites = named(tables(many, n=450, d=130), long)
    without_pages(tmp_path / "r", sites, k=100, by_site=True, share=many, method="covariance")
    path = tmp_path / "r/run.jsonl"
    start, *lines, end = path.read_text().splitlines()
    events = [json.loads(line) for line in lines]
    longer = [json.dumps(event | {"round": at}) for at in range(60) for event in events[:51]]
    path.write_text("\n".join([start, *longer, end]))
    page = make_shared_page(read_report(tmp_path / "r"))
    panels = next(p for s in page.sections for p in s.parts if isinstance(p, Panels))
    assert len(panels.figures) == 10
    pages = write_pages(tmp_path / "r")
    assert pages.shared.stat().st_size < 3_000_000
    text = pages.shared.read_text()
    drawn = sum(text.count("h0M") + 1 for text in re.findall(r'<path d="(M[^"]*h0)"', text))
    assert 15_000 < drawn <= 20_000
    assert "are drawn, evenly spaced" in text


def test_tables_show_rounded_numbers_and_have_them_in_full(tmp_path: Path) -> None:
    pages = result(tmp_path / "r", tables())
    first = read_report(tmp_path / "r").facts["eigenvalues"][0]
    assert f'<td class="n" title="{first!r}">{first:.4g}</td>' in pages.shared.read_text()


def test_one_site_is_not_compared_with_others(tmp_path: Path) -> None:
    result(tmp_path / "r", tables(("only",)), k=1, by_site=True)
    page = make_shared_page(read_report(tmp_path / "r"))
    assert "Differences between sites" not in {found.title for found in page.verdicts}
    assert words(page, "by-site") == "There is one site, so there is nothing to compare."
    assert page.title == "1 principal component of 120 rows at 1 site"


def test_exact_sums_in_a_ledger_are_not_shown_as_a_spend_of_zero(tmp_path: Path) -> None:
    sites, ledgers = tables(), {name: Ledger(None) for name in SITES}
    pca = FederatedPCA(2).fit_sites(sites, ledgers=ledgers)
    totals = {name: ledger.totals("data") for name, ledger in ledgers.items()}
    write_result(tmp_path / "r", pca, sites=sites, ledgers=totals)
    page = make_shared_page(read_report(tmp_path / "r"))
    section = next(part for part in page.sections if part.name == "privacy")
    table = section.parts[-1]
    assert isinstance(table, PageTable)
    assert {(row[1], row[3]) for row in table.rows} == {("no guarantee", "no guarantee")}
