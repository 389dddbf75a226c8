"""The pages in Chromium: they open, ask for nothing, and their numbers are those of the result."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from reports import Opened

pytestmark = pytest.mark.browser

KINDS = ("exact", "secure", "private", "stuck", "many")


def cells(page: Page, table: str) -> list[list[str]]:
    """Read a table's rows, numbers with all of their digits."""
    found: list[list[str]] = page.eval_on_selector_all(
        f"#{table} tbody tr",
        "rows => rows.map(r => Array.from(r.cells, c => c.title || c.textContent))",
    )
    return found


def column(page: Page, table: str, place: int) -> list[float]:
    return [float(row[place]) for row in cells(page, table)]


def facts(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return read


@pytest.mark.parametrize("kind", KINDS)
def test_it_opens_from_a_file_says_nothing_and_asks_for_nothing(
    kind: str, results: dict[str, Path], opened: Opened
) -> None:
    path = results[kind] / "report.html"
    watched = opened(path)
    assert watched.page.locator("h1").count() == 1
    assert watched.asked == [path.as_uri()]
    assert watched.said == []
    assert path.stat().st_size < 3_000_000


def test_the_page_of_a_site_opens_alike(results: dict[str, Path], opened: Opened) -> None:
    path = results["secure"] / "sites/München-Süd.html"
    watched = opened(path)
    assert watched.page.locator("h1").text_content() == "Report for München-Süd only"
    assert watched.asked == [path.as_uri()]
    assert watched.said == []
    scores = np.load(results["secure"] / "scores/München-Süd.npy")
    np.testing.assert_allclose(column(watched.page, "own-table", 1), scores.mean(0), atol=1e-12)
    np.testing.assert_allclose(column(watched.page, "own-table", 2), scores.var(0), rtol=1e-12)
    watched.page.get_by_role("link", name="Shared report").click()
    assert "principal components of" in (watched.page.locator("h1").text_content() or "")


@pytest.mark.parametrize("kind", KINDS)
def test_the_numbers_are_those_of_the_result_to_the_last_digit(
    kind: str, results: dict[str, Path], opened: Opened
) -> None:
    page, known = opened(results[kind] / "report.html").page, facts(results[kind])
    assert column(page, "scree-table", 1) == known["eigenvalues"]
    assert column(page, "scree-table", 2) == known["ratios"]
    assert column(page, "angle-table", 2) == known["certificate"]["residuals"]
    assert sum(column(page, "left-table", 6)) == known["bytes_up"]
    assert sum(column(page, "sites-table", 3)) == known["bytes_up"]
    assert sum(column(page, "sites-table", 4)) == known["bytes_down"]
    assert sum(column(page, "reply-table", 5)) == known["bytes_up"]
    assert len(cells(page, "round-table")) == known["rounds"]
    assert dict(cells(page, "version-table")) == known["versions"]
    components = np.load(results[kind] / "components.npy")
    names = (results[kind] / "features.txt").read_text().split("\n")
    for name, weight, _ in cells(page, "loadings-1-table"):
        assert float(weight) == components[0, names.index(name)]


@pytest.mark.parametrize("kind", ["exact", "stuck", "many"])
def test_the_sites_are_those_of_the_result(
    kind: str, results: dict[str, Path], opened: Opened
) -> None:
    page, told = opened(results[kind] / "report.html").page, facts(results[kind])["by_site"]
    assert column(page, "explained-table", 1) == told["explained"]
    for table, key in (("shift-table", "shift"), ("contribution-table", "contribution")):
        shown: dict[str, list[float]] = {}
        for site, _, value in cells(page, table):
            shown.setdefault(site, []).append(float(value))
        assert shown == {site: found[key] for site, found in told["sites"].items()}


def test_the_statement_of_a_private_run_is_on_its_page(
    results: dict[str, Path], opened: Opened
) -> None:
    page, known = opened(results["private"] / "report.html").page, facts(results["private"])
    said = page.locator("#privacy").inner_text()
    for line in known["privacy"]["text"].splitlines():
        assert line in said
    assert {row[0]: float(row[1]) for row in cells(page, "budget-table")} == (
        known["privacy"]["budget"]
    )
    assert page.locator(".points").count() == 0


def test_names_of_features_are_text(results: dict[str, Path], opened: Opened) -> None:
    page = opened(results["exact"] / "report.html").page
    assert page.title() == "4 principal components of 381 rows at 3 sites"
    assert page.locator("main script").count() == 0


def test_without_script_everything_is_there(results: dict[str, Path], opened: Opened) -> None:
    page = opened(results["exact"] / "report.html", java_script_enabled=False).page
    assert page.locator(".controls:visible").count() == 0
    assert page.locator(".panel:visible").count() == 4
    page.locator("#scree summary").click()
    assert page.locator("#scree-table").is_visible()
    assert page.locator("path.points").first.get_attribute("d") != ""


def test_on_paper_are_the_figures_the_open_tables_and_no_controls(
    results: dict[str, Path], opened: Opened
) -> None:
    page = opened(results["exact"] / "report.html").page
    page.locator("#scree summary").click()
    page.emulate_media(media="print")
    assert page.locator(".controls:visible").count() == 0
    assert page.locator("nav:visible").count() == 0
    assert page.locator(".panel:visible").count() == 4
    assert page.locator("#scree-table").is_visible()
    assert page.locator("#left-table").is_visible()
    assert not page.locator("#loadings-4-table").is_visible()
    assert page.pdf(format="A4").count(b"/Type /Page\n") <= 6
